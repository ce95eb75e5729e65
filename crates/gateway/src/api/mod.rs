//! Admin API of a running gateway: status of the servers, and actions on them. The command line, the dashboard and
//! scripts use these routes only. The listener is in [`crate::server`].
//!
//! `operations` is the table of all operations, `openapi` describes them and `router` with `handlers` serves them.
//! `types` are their JSON types, which the command line uses too, and `convert` makes them. `events` is the event
//! stream, `history` the last day. `token` and `auth` check credentials, `actions` records actions, `response` writes
//! responses.

pub(crate) mod actions;
pub(crate) mod auth;
pub(crate) mod convert;
pub(crate) mod enums;
pub(crate) mod events;
pub(crate) mod handlers;
pub(crate) mod history;
pub(crate) mod openapi;
pub(crate) mod operations;
pub(crate) mod response;
pub(crate) mod router;
pub(crate) mod token;
pub mod types;

pub(crate) use crate::api::convert::next_step;
pub use crate::api::openapi::document;
pub(crate) use crate::api::response::too_many_requests;
pub use crate::api::token::{TOKEN_FILE, rotate_token};

use crate::api::events::{EventLog, EventVisibility};
use crate::api::history::History;
use crate::api::token::Token;
use crate::api::types::{ClientsView, UpstreamView};
use crate::auth::FailedAuth;
use crate::cluster::Member;
use crate::mcp::SessionInfo;
use crate::reload::Reloader;
use crate::server::dispatcher::source_of;
use crate::server::quota::{Peer, Quota};
use crate::server::tls::Tls;
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use gripfast::{AuthFailure, AuthTarget, Host, KeyChange, SecurityEvent, ServerStatus};
use http::{HeaderMap, Method};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Memory that all request bodies of the admin API may use together.
const MAX_BODY_MEMORY: usize = 64 << 20;

/// The admin API of one host.
pub struct Admin {
    host: Host,
    token: Token,
    event_log: EventLog,
    history: History,
    started: Instant,
    serving: AtomicBool,
    shutdown: CancellationToken,
    reloader: OnceLock<Arc<Reloader>>,
    /// Settings from the command line, which override the config file.
    command_line: OnceLock<Vec<(&'static str, String)>>,
    state_dir: Option<PathBuf>,
    clients: Option<Box<dyn Fn() -> ClientsView + Send + Sync>>,
    sessions: Option<Box<dyn Fn(usize) -> Vec<SessionInfo> + Send + Sync>>,
    logins: handlers::login::PendingLogins,
    /// Memory for request bodies.
    body_memory: Quota,
    tls: Option<Arc<Tls>>,
    /// The service that the gateway is a replica of.
    cluster: Option<Arc<Member>>,
    /// True if reading records needs the token on this machine too.
    protects_records: bool,
    failed_auth: FailedAuth,
}

/// Request extension: the request was authorized by the admin token only.
#[derive(Debug, Clone, Copy)]
struct ByToken;

impl Admin {
    /// Creates the admin API of `host` on the current Tokio runtime.
    ///
    /// The admin token is stored in `state_dir`. If it can be neither read nor created there, this logs a warning and
    /// uses a random token that is shown nowhere: reading works, actions do not.
    ///
    /// # Errors
    /// The system random number generator failed.
    pub fn new(host: Host, state_dir: Option<&Path>) -> io::Result<Self> {
        let shutdown = CancellationToken::new();
        Ok(Self {
            token: Token::open(state_dir)?,
            state_dir: state_dir.map(Path::to_owned),
            event_log: EventLog::spawn(host.subscribe_events()),
            history: History::spawn(&host),
            failed_auth: FailedAuth::new(host.clone(), shutdown.clone()),
            host,
            started: Instant::now(),
            serving: AtomicBool::new(false),
            shutdown,
            reloader: OnceLock::new(),
            command_line: OnceLock::new(),
            clients: None,
            sessions: None,
            logins: handlers::login::PendingLogins::default(),
            body_memory: Quota::new(MAX_BODY_MEMORY, MAX_BODY_MEMORY),
            tls: None,
            cluster: None,
            protects_records: false,
        })
    }

    /// Damaged files of the state directory that gripfast moved aside.
    fn damaged_files(&self) -> Vec<String> {
        let files =
            self.state_dir.as_deref().map(gripfast::private_files::quarantined_files).unwrap_or_default();
        files.iter().map(|file| file.display().to_string()).collect()
    }

    /// Includes these counts of clients in the status.
    pub(crate) fn with_client_counts(
        mut self,
        count: impl Fn() -> ClientsView + Send + Sync + 'static,
    ) -> Self {
        self.clients = Some(Box::new(count));
        self
    }

    /// Requires the token for calls, logs, sessions and config on this machine too. Used if clients must authenticate:
    /// then other local users must not see what clients did.
    pub(crate) fn with_protected_records(mut self, protects: bool) -> Self {
        self.protects_records = protects;
        self
    }

    /// Sets the settings from the command line, each with its value. They override the config file.
    pub fn set_command_line(&self, settings: Vec<(&'static str, String)>) {
        let set = self.command_line.set(settings);
        debug_assert!(set.is_ok(), "the command line is set once");
    }

    /// Sets the reloader of the config file, which enables `/reload` and the config part of the status.
    pub fn set_reloader(&self, reloader: Arc<Reloader>) {
        let set = self.reloader.set(reloader);
        debug_assert!(set.is_ok(), "a host has one config");
    }

    /// Serves `/sessions` from `list`, which returns the most recently used sessions, at most as many as its argument.
    pub(crate) fn with_sessions(
        mut self,
        list: impl Fn(usize) -> Vec<SessionInfo> + Send + Sync + 'static,
    ) -> Self {
        self.sessions = Some(Box::new(list));
        self
    }

    /// Includes the state of the listener's certificate in the status.
    pub(crate) fn with_tls(mut self, tls: Arc<Tls>) -> Self {
        self.tls = Some(tls);
        self
    }

    /// Includes the service that the gateway is a replica of in the status.
    pub(crate) fn with_cluster(mut self, member: Arc<Member>) -> Self {
        self.cluster = Some(member);
        self
    }

    /// Marks the gateway as serving: `/readyz` answers 200.
    pub fn set_serving(&self) {
        self.serving.store(true, Ordering::Release);
    }

    /// Marks the gateway as shutting down: `/readyz` answers 503, and event streams end, so that a shutdown that waits
    /// for its connections can complete.
    pub fn set_shutting_down(&self) {
        self.shutdown.cancel();
    }

    /// Router of `/healthz`, `/readyz` and everything under `/api/v1`.
    pub fn router(self: Arc<Self>) -> axum::Router {
        router::router(self)
    }

    /// Router of the OAuth callback, which needs no token.
    pub(crate) fn login_router(self: Arc<Self>) -> axum::Router {
        handlers::login::router(self)
    }

    /// Middleware: admits reads from this machine, and all other reads only with the token.
    pub(crate) async fn authorize_read(
        State(admin): State<Arc<Self>>,
        mut request: Request,
        next: Next,
    ) -> Response {
        let (is_here, path) = (Peer::from_request(&request).is_local(), request.uri().path());
        let is_guarded = admin.protects_records && is_record(path);
        let is_health = matches!(path, "/healthz" | "/readyz");
        let is_open = (is_here && !is_guarded) || is_health;
        let is_read = matches!(*request.method(), Method::GET | Method::HEAD);
        let target = if is_read { AuthTarget::AdminRead } else { AuthTarget::AdminAction };
        let checked = auth::check_path(path, request.headers(), &admin.token);
        admin.record_token_change();
        match checked {
            Err(reason) if !is_open => {
                let source = source_of(&request);
                let delay = admin.failed_auth.record(source, target, reason, None);
                // Releases the body before the delay.
                drop(request);
                let refusal = auth::error_for(reason, &admin.token);
                // The location of the token is shown on this machine only.
                let refusal = if is_here { refusal } else { refusal.without_hint() };
                admin.failed_auth.respond_after(source, delay, refusal.into_response()).await
            }
            Err(reason) => {
                // Served like a request without a token, but a wrong token is recorded. Actions are checked by their
                // routes.
                if reason == AuthFailure::WrongAdminToken && is_read && !is_health {
                    admin.failed_auth.record(source_of(&request), target, reason, None);
                }
                next.run(request).await
            }
            Ok(()) => {
                if !is_open {
                    request.extensions_mut().insert(ByToken);
                }
                next.run(request).await
            }
        }
    }

    /// True if the request has the admin token or the key of a signed-in browser.
    pub(crate) fn has_admin_token(&self, headers: &HeaderMap) -> bool {
        auth::bearer_token(headers).is_some_and(|bearer| self.token.accepts(bearer))
    }

    /// The events that a request may see.
    fn event_visibility(&self, headers: &HeaderMap) -> EventVisibility {
        match self.protects_records && auth::check(headers, &self.token).is_err() {
            true => EventVisibility::Servers,
            false => EventVisibility::Everything,
        }
    }

    /// Records a replacement of the admin token, if there was one.
    fn record_token_change(&self) {
        if self.token.was_replaced() {
            let change = KeyChange::AdminToken;
            self.host.record_security_event(SecurityEvent::KeysChanged {
                change,
                names: Vec::new(),
                actor: None,
            });
        }
    }

    /// View of a server for the status.
    fn upstream_view(&self, status: &ServerStatus) -> UpstreamView {
        let mut view = UpstreamView::from(status);
        if let Ok(exposure) = self.host.server_exposure(&status.name) {
            view.exposure = exposure.as_str().into();
        }
        match self.reloader.get() {
            Some(_) => view.with_config_check_interval(Reloader::CHECK_INTERVAL),
            None => view,
        }
    }

    fn is_ready(&self) -> bool {
        self.serving.load(Ordering::Acquire) && !self.shutdown.is_cancelled()
    }
}

/// True if the path shows what clients did, or what servers logged about it.
fn is_record(path: &str) -> bool {
    let Some(path) = path.strip_prefix("/api/v1/") else { return false };
    let path = path.trim_end_matches('/');
    matches!(path, "calls" | "sessions" | "config" | "replicas")
        || (path.starts_with("upstreams/") && path.ends_with("/log"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::Router;
    use axum::body::Body;
    use axum::middleware::from_fn_with_state;
    use http::header::AUTHORIZATION;
    use tower_service::Service;

    #[tokio::test]
    async fn other_machines_read_only_with_the_token() {
        let state = tempfile::tempdir().unwrap();
        let admin = Arc::new(Admin::new(Host::builder().build(), Some(state.path())).unwrap());
        let token = std::fs::read_to_string(state.path().join(TOKEN_FILE)).unwrap();
        let layer = from_fn_with_state(Arc::clone(&admin), Admin::authorize_read);
        let router: Router = admin.router().layer(layer);
        let read = async |from: Option<[u8; 4]>, path: &str, token: Option<&str>| {
            let mut request = Request::new(Body::empty());
            *request.uri_mut() = path.parse().unwrap();
            if let Some(from) = from {
                request.extensions_mut().insert(Peer::from_address(from.into()));
            }
            if let Some(token) = token {
                request.headers_mut().insert(AUTHORIZATION, format!("Bearer {token}").parse().unwrap());
            }
            router.clone().call(request).await.unwrap().status().as_u16()
        };
        let (here, elsewhere) = (Some([127, 0, 0, 1]), Some([192, 0, 2, 1]));
        assert_eq!(read(here, "/api/v1/status", None).await, 200);
        assert_eq!(read(elsewhere, "/api/v1/status", None).await, 401);
        assert_eq!(read(None, "/api/v1/status", None).await, 401, "the address of the peer is unknown");
        assert_eq!(read(elsewhere, "/api/v1/status", Some("a guess")).await, 401);
        assert_eq!(read(elsewhere, "/api/v1/status", Some(token.trim())).await, 200);
        assert_eq!(read(elsewhere, "/healthz", None).await, 200);
    }

    #[tokio::test]
    async fn g05_if_clients_authenticate_local_reads_of_records_need_the_token() {
        let state = tempfile::tempdir().unwrap();
        let token = async |guards: bool, path: &str, shown: Option<&str>| {
            let admin = Admin::new(Host::builder().build(), Some(state.path())).unwrap();
            let admin = Arc::new(admin.with_protected_records(guards));
            let layer = from_fn_with_state(Arc::clone(&admin), Admin::authorize_read);
            let mut request = Request::new(Body::empty());
            *request.uri_mut() = path.parse().unwrap();
            request.extensions_mut().insert(Peer::local());
            if let Some(token) = shown {
                request.headers_mut().insert(AUTHORIZATION, format!("Bearer {token}").parse().unwrap());
            }
            let router: Router = admin.router().layer(layer);
            router.clone().call(request).await.unwrap().status().as_u16()
        };
        assert_eq!(token(false, "/api/v1/calls", None).await, 200);
        let kept = std::fs::read_to_string(state.path().join(TOKEN_FILE)).unwrap();
        let records =
            ["calls", "calls?limit=1", "sessions", "config", "upstreams/x/log", "upstreams/x/log?from=0"];
        for record in records {
            let path = format!("/api/v1/{record}");
            assert_ne!(token(false, &path, None).await, 401, "{path}");
            assert_eq!(token(true, &path, None).await, 401, "{path}");
            assert_eq!(token(true, &path, Some("a guess")).await, 401, "{path}");
            assert_ne!(token(true, &path, Some(kept.trim())).await, 401, "{path}");
        }
        for open in ["status", "events", "pins", "history", "openapi.json"] {
            assert_eq!(token(true, &format!("/api/v1/{open}"), None).await, 200, "{open}");
        }
    }
}
