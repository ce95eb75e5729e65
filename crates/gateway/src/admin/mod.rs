//! The admin API: what a running gateway tells about its servers, and the few things it can be asked to do
//! about them. The command line, the dashboard and scripts all use these routes and nothing else.
//!
//! `operations` lists what can be asked, `openapi` describes it. `view` says what status looks like, `journal` numbers what happens, `history` keeps a day, `token` and `guard` decide who may
//! act, `answer` is the only file that writes responses. Which address to listen on is not known here.

mod answer;
mod calls;
mod guard;
mod history;
mod journal;
mod openapi;
mod operations;
mod pins;
mod routes;
mod token;
mod tools;
mod view;
mod words;

pub use calls::CallsView;
pub use openapi::document;
pub use pins::PinsView;
pub use token::TOKEN_FILE;

use gripfast::Host;
use history::History;
use journal::Journal;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use token::Token;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
pub(crate) use view::ClientsView;

/// The admin API of one host.
pub struct Admin {
    host: Host,
    token: Token,
    journal: Journal,
    history: History,
    begun: Instant,
    serving: AtomicBool,
    leaving: CancellationToken,
    clients: Option<Box<dyn Fn() -> ClientsView + Send + Sync>>,
}

impl Admin {
    /// The admin API in front of `host`, on the tokio runtime that this is called on.
    ///
    /// Its token is kept in `state_dir`. Where it can be neither read nor made there, that is said aloud and
    /// a token of this process takes its place, which nobody knows: reading works then, acting does not.
    ///
    /// # Errors
    /// The system gave no randomness.
    pub fn new(host: Host, state_dir: Option<&Path>) -> io::Result<Self> {
        Ok(Self {
            token: Token::of(state_dir)?,
            journal: Journal::following(host.events()),
            history: History::of(&host),
            host,
            begun: Instant::now(),
            serving: AtomicBool::new(false),
            leaving: CancellationToken::new(),
            clients: None,
        })
    }

    /// Tells in the status what clients have, as it is counted there.
    pub(crate) fn counting(mut self, count: impl Fn() -> ClientsView + Send + Sync + 'static) -> Self {
        self.clients = Some(Box::new(count));
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

    fn serves(&self) -> bool {
        self.serving.load(Ordering::Acquire) && !self.leaving.is_cancelled()
    }
}
