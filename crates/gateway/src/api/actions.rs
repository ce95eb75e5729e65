//! Actions of the admin API: each needs the token, and each is recorded, with where it came from and what was answered.

use super::{Admin, guard};
use crate::front::source_of;
use axum::RequestExt;
use axum::extract::{RawPathParams, Request, State};
use axum::http::Method;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use gripfast::{AdminAction, AuthTarget, Host, SecurityEvent, Source};
use std::sync::Arc;

/// Lets those act who have the token. A route checks it again, for it may be used without this.
pub(super) async fn admit(State(admin): State<Arc<Admin>>, mut request: Request, next: Next) -> Response {
    if matches!(*request.method(), Method::GET | Method::HEAD | Method::OPTIONS) {
        return next.run(request).await;
    }
    let source = source_of(&request);
    if let Err(reason) = guard::check_at(request.uri().path(), request.headers(), &admin.token) {
        admin.note_token_change();
        let delay = admin.failed.record(source, AuthTarget::AdminAction, reason, None);
        // Its body holds nothing while the answer waits.
        drop(request);
        let refusal = guard::refusal(reason, &admin.token).into_response();
        return admin.failed.delayed(source, delay, refusal).await;
    }
    admin.note_token_change();
    let mut recording = Recording { host: &admin.host, event: Some(named(&mut request, source).await) };
    let response = next.run(request).await;
    recording.answered(response.status().as_u16());
    response
}

/// An action that is recorded when it is over, also if its client does not wait for that.
struct Recording<'h> {
    host: &'h Host,
    event: Option<SecurityEvent>,
}

impl Recording<'_> {
    fn answered(&mut self, code: u16) {
        if let Some(SecurityEvent::AdminAction { status, .. }) = &mut self.event {
            *status = Some(code);
        }
    }
}

impl Drop for Recording<'_> {
    fn drop(&mut self) {
        if let Some(event) = self.event.take() {
            self.host.record(event);
        }
    }
}

/// The action that a request asks for.
async fn named(request: &mut Request, source: Source) -> SecurityEvent {
    let params = request.extract_parts::<RawPathParams>().await.ok();
    let param = |wanted: &str| {
        let found = params.as_ref()?.iter().find(|(name, _)| *name == wanted)?.1;
        Some(found.chars().take(LONGEST_NAME).collect::<String>())
    };
    let action = action(request.uri().path());
    SecurityEvent::AdminAction { action, server: param("name"), tool: param("tool"), source, status: None }
}

/// Longer names are no names of ours, and are cut.
const LONGEST_NAME: usize = 256;

fn action(path: &str) -> AdminAction {
    // Within the routes, `/api/v1` is not in the path any more.
    let path = path.strip_prefix("/api/v1").unwrap_or(path).trim_end_matches('/');
    match path.rsplit('/').next() {
        _ if path == "/reload" => AdminAction::ReloadConfig,
        Some(last) => {
            let named = AdminAction::ALL.into_iter().find(|action| action.word() == last);
            named.unwrap_or(AdminAction::Unknown)
        }
        None => AdminAction::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::super::operations::{self, OPERATIONS, Parameter};
    use super::*;

    #[test]
    fn every_operation_that_acts_is_recorded_by_its_own_word() {
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
                assert_ne!(action(&path), AdminAction::Unknown, "{path} has no word");
            }
        }
        assert_eq!(action("/api/v1/reload"), AdminAction::ReloadConfig);
        assert_eq!(action("/api/v1/upstreams/v1/reload"), AdminAction::Reload);
    }
}
