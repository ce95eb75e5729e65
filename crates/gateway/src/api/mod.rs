//! The admin API: what a running gateway tells about its servers, and the few things it can be asked to do
//! about them. The command line, the dashboard and scripts all use these routes and nothing else.
//!
//! `operations` lists what can be asked, `openapi` describes it. `view` says what status looks like, `journal` numbers what happens, `history` keeps a day, `token` and `guard` decide who may
//! act, `sign_in` lets a browser act, `acting` records it, `answer` is the only file that writes responses. Which address to listen on is not known here.

mod acting;
mod answer;
mod calls;
mod config;
mod guard;
mod history;
mod journal;
mod login;
mod openapi;
mod operations;
mod pins;
mod routes;
mod sessions;
mod sign_in;
mod token;
mod tools;
mod view;
mod words;

pub(crate) use answer::too_many_requests;
pub use calls::CallsView;
pub use openapi::document;
pub use pins::PinsView;
pub use token::{TOKEN_FILE, rotate_token};

use crate::auth::FailedAuth;
use crate::downstream::SessionFacts;
use crate::front::source_of;
use crate::reload::Reloader;
use crate::shares::{Peer, Shares};
use crate::tls::Tls;
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use gripfast::{AuthFailure, AuthTarget, Host, KeyChange, SecurityEvent, ServerStatus};
use history::History;
use http::{HeaderMap, Method};
use journal::{Journal, Sees};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use token::Token;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use view::UpstreamView;
pub(crate) use view::{ClientsView, next_step};

/// What the bodies of requests to the admin API may take in memory together.
const BODIES: usize = 64 << 20;

/// The admin API of one host.
pub struct Admin {
    host: Host,
    token: Token,
    journal: Journal,
    history: History,
    begun: Instant,
    serving: AtomicBool,
    leaving: CancellationToken,
    reloader: OnceLock<Arc<Reloader>>,
    /// Settings that were typed, and override the file.
    typed: OnceLock<Vec<(&'static str, String)>>,
    state_dir: Option<PathBuf>,
    clients: Option<Box<dyn Fn() -> ClientsView + Send + Sync>>,
    sessions: Option<Box<dyn Fn(usize) -> Vec<SessionFacts> + Send + Sync>>,
    logins: login::Underway,
    /// The memory that bodies share.
    bodies: Shares,
    tls: Option<Arc<Tls>>,
    /// Whether records need the token on this machine too.
    guards_records: bool,
    failed: FailedAuth,
}

/// Marks a request that is answered only because it shows the admin token.
#[derive(Debug, Clone, Copy)]
struct ByToken;

impl Admin {
    /// The admin API in front of `host`, on the tokio runtime that this is called on.
    ///
    /// Its token is kept in `state_dir`. Where it can be neither read nor made there, that is said aloud and
    /// a token of this process takes its place, which nobody knows: reading works then, acting does not.
    ///
    /// # Errors
    /// The system gave no randomness.
    pub fn new(host: Host, state_dir: Option<&Path>) -> io::Result<Self> {
        let leaving = CancellationToken::new();
        Ok(Self {
            token: Token::of(state_dir)?,
            state_dir: state_dir.map(Path::to_owned),
            journal: Journal::following(host.events()),
            history: History::of(&host),
            failed: FailedAuth::new(host.clone(), leaving.clone()),
            host,
            begun: Instant::now(),
            serving: AtomicBool::new(false),
            leaving,
            reloader: OnceLock::new(),
            typed: OnceLock::new(),
            clients: None,
            sessions: None,
            logins: login::Underway::default(),
            bodies: Shares::new(BODIES, BODIES),
            tls: None,
            guards_records: false,
        })
    }

    /// The damaged files of the state directory that have been replaced.
    fn set_aside(&self) -> Vec<String> {
        let files = self.state_dir.as_deref().map(gripfast::private_files::set_aside).unwrap_or_default();
        files.iter().map(|file| file.display().to_string()).collect()
    }

    /// Tells in the status what clients have, as it is counted there.
    pub(crate) fn counting(mut self, count: impl Fn() -> ClientsView + Send + Sync + 'static) -> Self {
        self.clients = Some(Box::new(count));
        self
    }

    /// Clients have to show who they are, so what they did is not for everybody on this machine: calls, logs, sessions
    /// and config are read with the token.
    pub(crate) fn guarding_records(mut self, guards: bool) -> Self {
        self.guards_records = guards;
        self
    }

    /// These settings, each with its value, were typed and override the file.
    pub fn set_typed(&self, typed: Vec<(&'static str, String)>) {
        let set = self.typed.set(typed);
        debug_assert!(set.is_ok(), "a command line is typed once");
    }

    /// The host goes by a config file: it can be told to look at it, and status says what came of that.
    pub fn set_reloader(&self, reloader: Arc<Reloader>) {
        let set = self.reloader.set(reloader);
        debug_assert!(set.is_ok(), "a host goes by one config");
    }

    /// Shows the sessions of clients: at most so many, those used last.
    pub(crate) fn listing(
        mut self,
        list: impl Fn(usize) -> Vec<SessionFacts> + Send + Sync + 'static,
    ) -> Self {
        self.sessions = Some(Box::new(list));
        self
    }

    /// Tells in the status how the listener's certificate does.
    pub(crate) fn proving(mut self, tls: Arc<Tls>) -> Self {
        self.tls = Some(tls);
        self
    }

    /// The gateway serves from now on: `/readyz` says so.
    pub fn set_serving(&self) {
        self.serving.store(true, Ordering::Release);
    }

    /// The gateway is about to end: `/readyz` says so, and whoever follows events is let go, so that a
    /// shutdown that waits for its connections gets done.
    pub fn set_leaving(&self) {
        self.leaving.cancel();
    }

    /// The routes: `/healthz`, `/readyz` and everything under `/api/v1`.
    pub fn router(self: Arc<Self>) -> axum::Router {
        routes::router(self)
    }

    /// Where browsers come back to after a login, which nobody shows a token at.
    pub(crate) fn login_router(self: Arc<Self>) -> axum::Router {
        login::router(self)
    }

    /// Lets those read who are on this machine, and others if they have the token.
    pub(crate) async fn let_read(
        State(admin): State<Arc<Self>>,
        mut request: Request,
        next: Next,
    ) -> Response {
        let (is_here, path) = (Peer::of(&request).is_here(), request.uri().path());
        let is_guarded = admin.guards_records && is_record(path);
        let is_health = matches!(path, "/healthz" | "/readyz");
        let is_open = (is_here && !is_guarded) || is_health;
        let is_read = matches!(*request.method(), Method::GET | Method::HEAD);
        let target = if is_read { AuthTarget::AdminRead } else { AuthTarget::AdminAction };
        let checked = guard::check_at(path, request.headers(), &admin.token);
        admin.note_token_change();
        match checked {
            Err(reason) if !is_open => {
                let source = source_of(&request);
                let delay = admin.failed.record(source, target, reason, None);
                // Its body holds nothing while the answer waits.
                drop(request);
                let refusal = guard::refusal(reason, &admin.token);
                // Where the token is concerns nobody elsewhere.
                let refusal = if is_here { refusal } else { refusal.without_hint() };
                admin.failed.delayed(source, delay, refusal.into_response()).await
            }
            Err(reason) => {
                // It is answered like one without a token, and a guess is a guess. Actions are checked by their routes.
                if reason == AuthFailure::WrongAdminToken && is_read && !is_health {
                    admin.failed.record(source_of(&request), target, reason, None);
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

    /// Whether a request shows the admin token.
    pub(crate) fn is_shown_token(&self, headers: &HeaderMap) -> bool {
        guard::offered(headers).is_some_and(|offered| self.token.admits(offered))
    }

    /// Which events a request may see.
    fn sees(&self, headers: &HeaderMap) -> Sees {
        match self.guards_records && guard::check(headers, &self.token).is_err() {
            true => Sees::Servers,
            false => Sees::Everything,
        }
    }

    /// Records that the token was replaced, if it was.
    fn note_token_change(&self) {
        if self.token.was_replaced() {
            let change = KeyChange::AdminToken;
            self.host.record(SecurityEvent::KeysChanged { change, names: Vec::new(), actor: None });
        }
    }

    /// A server as status shows it.
    fn shown(&self, status: &ServerStatus) -> UpstreamView {
        match self.reloader.get() {
            Some(_) => UpstreamView::from(status).looked_at_every(Reloader::LOOKS_EVERY),
            None => status.into(),
        }
    }

    fn serves(&self) -> bool {
        self.serving.load(Ordering::Acquire) && !self.leaving.is_cancelled()
    }
}

/// Whether what is read here tells what clients did, or what servers wrote about it.
fn is_record(path: &str) -> bool {
    let Some(path) = path.strip_prefix("/api/v1/") else { return false };
    let path = path.trim_end_matches('/');
    matches!(path, "calls" | "sessions" | "config")
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
    async fn others_read_only_with_the_token() {
        let state = tempfile::tempdir().unwrap();
        let admin = Arc::new(Admin::new(Host::builder().build(), Some(state.path())).unwrap());
        let token = std::fs::read_to_string(state.path().join(TOKEN_FILE)).unwrap();
        let layer = from_fn_with_state(Arc::clone(&admin), Admin::let_read);
        let router: Router = admin.router().layer(layer);
        let read = async |from: Option<[u8; 4]>, path: &str, token: Option<&str>| {
            let mut request = Request::new(Body::empty());
            *request.uri_mut() = path.parse().unwrap();
            if let Some(from) = from {
                request.extensions_mut().insert(Peer::at(from.into()));
            }
            if let Some(token) = token {
                request.headers_mut().insert(AUTHORIZATION, format!("Bearer {token}").parse().unwrap());
            }
            router.clone().call(request).await.unwrap().status().as_u16()
        };
        let (here, elsewhere) = (Some([127, 0, 0, 1]), Some([192, 0, 2, 1]));
        assert_eq!(read(here, "/api/v1/status", None).await, 200);
        assert_eq!(read(elsewhere, "/api/v1/status", None).await, 401);
        assert_eq!(read(None, "/api/v1/status", None).await, 401, "nobody has said where it is from");
        assert_eq!(read(elsewhere, "/api/v1/status", Some("a guess")).await, 401);
        assert_eq!(read(elsewhere, "/api/v1/status", Some(token.trim())).await, 200);
        assert_eq!(read(elsewhere, "/healthz", None).await, 200);
    }

    #[tokio::test]
    async fn g05_where_clients_authenticate_records_are_read_with_the_token_on_this_machine_too() {
        let state = tempfile::tempdir().unwrap();
        let token = async |guards: bool, path: &str, shown: Option<&str>| {
            let admin = Admin::new(Host::builder().build(), Some(state.path())).unwrap();
            let admin = Arc::new(admin.guarding_records(guards));
            let layer = from_fn_with_state(Arc::clone(&admin), Admin::let_read);
            let mut request = Request::new(Body::empty());
            *request.uri_mut() = path.parse().unwrap();
            request.extensions_mut().insert(Peer::here());
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
