//! Authorization and audit of admin actions: each action needs the token and is recorded with its source and its
//! HTTP status.

use super::{Admin, auth};
use crate::server::dispatcher::source_of;
use axum::RequestExt;
use axum::extract::{RawPathParams, Request, State};
use axum::http::Method;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use gripfast::{AdminAction, AuthTarget, Host, RequestSource, SecurityEvent};
use std::sync::Arc;

/// Middleware: refuses actions without the token and records the others. Routes check the token again, because they may
/// be used without this middleware.
pub(super) async fn authorize_and_record(
    State(admin): State<Arc<Admin>>,
    mut request: Request,
    next: Next,
) -> Response {
    if matches!(*request.method(), Method::GET | Method::HEAD | Method::OPTIONS) {
        return next.run(request).await;
    }
    let source = source_of(&request);
    if let Err(reason) = auth::check_path(request.uri().path(), request.headers(), &admin.token) {
        admin.record_token_change();
        let delay = admin.failed_auth.record(source, AuthTarget::AdminAction, reason, None);
        // Releases the body before the delay.
        drop(request);
        let refusal = auth::error_for(reason, &admin.token).into_response();
        return admin.failed_auth.respond_after(source, delay, refusal).await;
    }
    admin.record_token_change();
    let mut recording = Recording { host: &admin.host, event: Some(describe(&mut request, source).await) };
    let response = next.run(request).await;
    recording.set_status(response.status().as_u16());
    response
}

/// Records an action when it ends, also if the client disconnected before.
struct Recording<'h> {
    host: &'h Host,
    event: Option<SecurityEvent>,
}

impl Recording<'_> {
    fn set_status(&mut self, code: u16) {
        if let Some(SecurityEvent::AdminAction { status, .. }) = &mut self.event {
            *status = Some(code);
        }
    }
}

impl Drop for Recording<'_> {
    fn drop(&mut self) {
        if let Some(event) = self.event.take() {
            self.host.record_security_event(event);
        }
    }
}

/// The event for the action of a request.
async fn describe(request: &mut Request, source: RequestSource) -> SecurityEvent {
    let params = request.extract_parts::<RawPathParams>().await.ok();
    let param = |wanted: &str| {
        let found = params.as_ref()?.iter().find(|(name, _)| *name == wanted)?.1;
        Some(found.chars().take(MAX_NAME_LEN).collect::<String>())
    };
    let action = action_of(request.uri().path());
    SecurityEvent::AdminAction { action, server: param("name"), tool: param("tool"), source, status: None }
}

/// Longer names are truncated: no server or tool has such a name.
const MAX_NAME_LEN: usize = 256;

fn action_of(path: &str) -> AdminAction {
    // Inside the nested router the path has no `/api/v1` prefix.
    let path = path.strip_prefix("/api/v1").unwrap_or(path).trim_end_matches('/');
    match path.rsplit('/').next() {
        _ if path == "/reload" => AdminAction::ReloadConfig,
        Some(last) => {
            let named = AdminAction::parse(last);
            named.unwrap_or(AdminAction::Unknown)
        }
        None => AdminAction::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::operations;
    use crate::api::operations::{OPERATIONS, Parameter};

    #[test]
    fn every_action_is_recorded_under_its_own_name() {
        for operation in OPERATIONS {
            if operation.method == operations::Method::Get {
                continue;
            }
            let words = operation.parameters.iter().find_map(|parameter| match parameter {
                Parameter::Path { name: "action", words, .. } => Some(*words),
                Parameter::Path { .. } | Parameter::Query { .. } | Parameter::Header { .. } => None,
            });
            for word in words.unwrap_or(&[""]) {
                let path = operation.path.replace("{action}", word).replace("{name}", "x");
                let path = format!("/api/v1{}", path.replace("{tool}", "y"));
                assert_ne!(action_of(&path), AdminAction::Unknown, "{path} has no word");
            }
        }
        assert_eq!(action_of("/api/v1/reload"), AdminAction::ReloadConfig);
        assert_eq!(action_of("/api/v1/upstreams/v1/reload"), AdminAction::Reload);
    }
}
