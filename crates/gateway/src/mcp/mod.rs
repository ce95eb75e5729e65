//! The side that clients see: one MCP endpoint of both protocol eras, over HTTP and stdio.
//!
//! `http`, `legacy_sse` and `stdio` move messages; `ask` decides who answers a request and under which
//! name, `forward` brings it there; `respond` is the only file that turns outcomes into wire form, with `translate`
//! for what the other era says otherwise; `era` tells the eras apart; `session` knows legacy clients.

mod aside;
mod ask;
mod begun;
pub(crate) mod body;
#[cfg(unix)]
pub mod bridge;
mod client;
pub(crate) mod clock;
mod conversation;
mod cursor;
mod era;
mod extensions;
mod fair_table;
mod follows;
mod forward;
mod guard;
mod heard;
mod herald;
mod http;
mod left_out;
mod legacy_sse;
mod listen;
mod modern;
mod newest;
mod outbox;
mod pages;
mod pass;
mod pieces;
mod presence;
mod pulse;
mod questions;
mod recall;
mod refusal;
mod respond;
mod roster;
mod route;
mod running;
mod seal;
mod session;
mod sessions;
mod shutdown;
mod status_tool;
mod stdio;
mod suspended;
mod tasks;
mod terms;
mod translate;
mod under_way;
mod wishes;

pub(crate) use ask::Told;
pub use guard::Guard;
pub(crate) use refusal::too_many_requests;
pub use seal::Seal;
pub(crate) use session::SessionFacts;
pub use terms::Terms;

use crate::memory::ClientMemory;
use crate::request_limits::RequestLimits;
use crate::shares::{Peer, Shares};
use crate::telemetry::Telemetry;
use begun::Begun;
use clock::Clock;
use gripfast::Host;
use herald::Herald;
use pulse::Pulse;
use sessions::Sessions;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;
use suspended::Waiting;
use tokio::sync::OnceCell;
use tokio_util::sync::CancellationToken;

/// The gateway in front of a host.
pub struct Gateway {
    pub(crate) host: Host,
    pub(crate) sessions: Sessions,
    pub(crate) herald: Herald,
    pub(crate) waiting: Waiting,
    /// Requests that are not answered yet.
    in_flight: Shares,
    /// The memory that request bodies and answers take.
    memory: Shares,
    /// What servers have begun for clients and will speak of again.
    pub(crate) begun: Arc<Begun>,
    /// The end is near: streams that only listen are over, and nothing is read on channels that carry everything.
    pub(crate) leaving: CancellationToken,
    pulse: Pulse,
    /// Levels of nesting that arguments may have.
    nesting: usize,
    startup_wait: Duration,
    /// Whether clients are offered the tool `gripfast_status`.
    status_tool: bool,
    shutdown_timeout: Duration,
    settled: OnceCell<()>,
    /// Tells our cursors from those of another process.
    pub(crate) process: u64,
    /// Who else is told of what is served.
    telemetry: OnceLock<Telemetry>,
    /// Requests per second of each client, where they are limited.
    request_limits: OnceLock<Arc<RequestLimits>>,
}

impl Gateway {
    /// A gateway in front of `host`, which serves clients under these terms. Session ids are sealed with
    /// `seal`; what is remembered of sessions is kept in the host's store.
    pub fn new(host: Host, seal: Seal, terms: &Terms) -> Arc<Self> {
        let herald = Herald::of(&host);
        let begun = Arc::new(Begun::new(Clock::new()));
        host.overhear(Arc::clone(&begun) as _);
        let bytes = |limit: u64| usize::try_from(limit).unwrap_or(usize::MAX);
        let memory = Shares::new(bytes(terms.limits.memory_per_client), bytes(terms.limits.memory));
        let sessions = Sessions::new(seal, host.clone(), terms, Clock::new(), &memory);
        let gateway = Arc::new(Self {
            host,
            sessions,
            waiting: Waiting::new(
                terms.limits.suspended_calls_per_client as usize,
                terms.limits.suspended_calls as usize,
            ),
            in_flight: Shares::new(
                terms.limits.in_flight_per_client as usize,
                terms.limits.in_flight as usize,
            ),
            memory,
            begun,
            leaving: CancellationToken::new(),
            herald,
            pulse: Pulse::start(),
            nesting: terms.limits.nesting as usize,
            startup_wait: terms.startup_wait,
            status_tool: terms.status_tool,
            shutdown_timeout: terms.shutdown_timeout,
            settled: OnceCell::new(),
            process: RandomState::new().build_hasher().finish(),
            telemetry: OnceLock::new(),
            request_limits: OnceLock::new(),
        });
        tokio::spawn(sweep(Arc::downgrade(&gateway), gateway.leaving.clone()));
        gateway
    }

    /// Where clients call it.
    pub(crate) const ENDPOINT: &str = "/mcp";

    /// Answers a request of `peer` to the endpoint.
    pub(crate) async fn serve<B>(
        self: &Arc<Self>,
        request: ::http::Request<B>,
        peer: Peer,
    ) -> axum::response::Response
    where
        B: http_body::Body<Data = bytes::Bytes> + Unpin,
    {
        http::serve(self, request, peer).await
    }

    /// The messages of a batch count as requests here.
    pub(crate) fn limit_requests(&self, limits: Arc<RequestLimits>) {
        let set = self.request_limits.set(limits);
        debug_assert!(set.is_ok(), "a gateway has one listener");
    }

    /// From now on somebody else is told of what is served, unless somebody is already.
    pub fn tell(&self, telemetry: Telemetry) -> &Telemetry {
        self.telemetry.get_or_init(|| telemetry)
    }

    /// Tells what is left to tell.
    pub async fn finish_telling(&self) {
        if let Some(telemetry) = self.telemetry.get() {
            telemetry.finish().await;
        }
    }

    /// The routes of `/mcp` and `/sse`.
    pub fn router(self: &Arc<Self>) -> axum::Router {
        http::router(Arc::clone(self)).merge(legacy_sse::router(Arc::clone(self)))
    }

    /// Nothing new is begun on channels that carry everything, and streams that only listen end. Calls under way go
    /// on, and have a while to be answered.
    pub fn leave(&self) {
        self.leaving.cancel();
    }

    /// Notes when each session was last used, so that whoever comes after us knows which are still open.
    pub async fn note_sessions(&self) {
        self.sessions.note_all().await;
    }

    /// What clients have at this moment.
    pub fn census(&self) -> Census {
        Census {
            sessions: self.sessions.count(),
            in_flight: self.in_flight.taken(),
            memory: self.memory.taken(),
        }
    }

    /// The memory of one client.
    fn memory_of(&self, peer: &Peer) -> Arc<ClientMemory> {
        Arc::new(ClientMemory::new(&self.memory, peer))
    }

    /// Serves one client on a pair of streams, one message a line, until its end of input or until we leave. What it
    /// waits for then has a while to come.
    ///
    /// # Errors
    /// The streams break.
    pub async fn serve_stdio(
        self: &Arc<Self>,
        input: impl tokio::io::AsyncRead + Unpin,
        output: impl tokio::io::AsyncWrite + Unpin + Send + 'static,
    ) -> std::io::Result<()> {
        stdio::serve(self, input, output).await
    }

    /// Servers that were never listed are waited for once, by whoever asks first.
    async fn settle(&self) {
        self.settled.get_or_init(|| self.host.settled(self.startup_wait)).await;
    }
}

/// What clients have at a moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Census {
    /// Legacy sessions in memory.
    pub sessions: usize,
    /// Requests that are not answered yet.
    pub in_flight: usize,
    /// The bytes of request bodies and answers in memory.
    pub memory: usize,
}

/// Lets go of idle sessions now and then, until the gateway leaves or is gone.
async fn sweep(gateway: Weak<Gateway>, leaving: CancellationToken) {
    while let Some(every) = gateway.upgrade().map(|gateway| gateway.sessions.sweep_every()) {
        tokio::select! {
            () = tokio::time::sleep(every) => {}
            () = leaving.cancelled() => return,
        }
        if let Some(gateway) = gateway.upgrade() {
            gateway.sessions.sweep().await;
            gateway.begun.sweep();
        }
    }
}

/// What servers may ask a gateway's clients: everything that can cross. A client that cannot be asked is
/// declined for.
pub fn client_capabilities() -> serde_json::Value {
    serde_json::json!({
        "elicitation": { "form": {}, "url": {} },
        "sampling": {},
        "roots": { "listChanged": true },
        "extensions": questions::shows_apps(),
    })
}
