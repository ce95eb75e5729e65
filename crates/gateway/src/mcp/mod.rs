//! Client-facing half of the gateway: one MCP endpoint for both protocol eras, over HTTP and stdio.
//!
//! `transport` moves messages. `request` decides which server answers a request, forwards it and writes the response;
//! within it, `respond` is the only file that turns outcomes into wire form, `translate` adapts results to the era of
//! the client, and `era` detects that era. `session` keeps the state of legacy clients, `notify` delivers
//! notifications, `elicitation` and `tasks` handle requests of servers to clients and long-running work.

pub mod address;
pub(crate) mod client;
pub(crate) mod elicitation;
pub(crate) mod fair_table;
pub(crate) mod in_flight;
pub(crate) mod limits;
pub(crate) mod loaded_tools;
pub(crate) mod notify;
pub(crate) mod registration;
pub(crate) mod request;
pub(crate) mod session;
pub(crate) mod shutdown;
pub(crate) mod status_tool;
pub(crate) mod tasks;
pub(crate) mod tool_search;
pub(crate) mod tool_summary;
pub mod transport;

pub use crate::mcp::limits::Limits;
pub(crate) use crate::mcp::request::dispatch::RequestOutcome;
pub(crate) use crate::mcp::request::overload::too_many_requests;
pub(crate) use crate::mcp::session::state::SessionInfo;
pub use crate::mcp::session::token::TokenCipher;
pub use crate::mcp::transport::origin_check::OriginCheck;

use crate::mcp::elicitation::input_required::InputRequiredCalls;
use crate::mcp::notify::list_changes::ListChangeNotifier;
use crate::mcp::session::registry::Sessions;
use crate::mcp::tasks::registry::TaskRegistry;
use crate::server::memory::ClientMemory;
use crate::server::quota::{Peer, Quota};
use crate::server::request_rate::RequestRates;
use crate::telemetry::Telemetry;
use gripfast::Clock;
use gripfast::Host;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;
use tokio::sync::OnceCell;
use tokio_util::sync::CancellationToken;

/// Gateway in front of a [`Host`]: serves clients over every transport.
pub struct Gateway {
    pub(crate) host: Host,
    pub(crate) sessions: Sessions,
    pub(crate) list_changes: ListChangeNotifier,
    pub(crate) input_required: InputRequiredCalls,
    /// Quota for requests that are not answered yet.
    in_flight: Quota,
    /// Quota for the memory of request bodies and answers.
    memory: Quota,
    /// Tasks and URL elicitations that servers have started for clients and will send notifications about.
    pub(crate) tasks: Arc<TaskRegistry>,
    /// Cancelled when shutdown begins: streams that only listen end, and stdio, bridge and HTTP+SSE channels are no
    /// longer read.
    pub(crate) shutting_down: CancellationToken,
    /// Maximum nesting depth of a message.
    max_nesting: usize,
    startup_wait: Duration,
    /// Offers the tool `gripfast_status` to clients.
    status_tool: bool,
    shutdown_timeout: Duration,
    startup_waited: OnceCell<()>,
    /// Issues and opens the ids that name this process.
    pub(crate) tokens: Arc<TokenCipher>,
    /// OTLP exporter for served requests, if one is configured.
    telemetry: OnceLock<Telemetry>,
    /// Requests per second of each client, if they are limited.
    request_limits: OnceLock<Arc<RequestRates>>,
}

impl Gateway {
    /// Creates a gateway in front of `host` with these limits. Ids are encrypted with `cipher`; session records are
    /// kept in the store of the host.
    pub fn new(host: Host, cipher: TokenCipher, limits: &Limits) -> Arc<Self> {
        let list_changes = ListChangeNotifier::new(&host);
        let tasks = Arc::new(TaskRegistry::new(Clock::new()));
        host.set_notification_sink(Arc::clone(&tasks) as _);
        let bytes = |limit: u64| usize::try_from(limit).unwrap_or(usize::MAX);
        let memory = Quota::new(bytes(limits.client.memory_per_client), bytes(limits.client.memory));
        let tokens = Arc::new(cipher);
        let sessions = Sessions::new(Arc::clone(&tokens), host.clone(), limits, Clock::new(), &memory);
        let gateway = Arc::new(Self {
            host,
            sessions,
            input_required: InputRequiredCalls::new(
                limits.client.suspended_calls_per_client as usize,
                limits.client.suspended_calls as usize,
            ),
            in_flight: Quota::new(
                limits.client.in_flight_per_client as usize,
                limits.client.in_flight as usize,
            ),
            memory,
            tasks,
            shutting_down: CancellationToken::new(),
            list_changes,
            max_nesting: limits.client.nesting as usize,
            startup_wait: limits.startup_wait,
            status_tool: limits.status_tool,
            shutdown_timeout: limits.shutdown_timeout,
            startup_waited: OnceCell::new(),
            tokens,
            telemetry: OnceLock::new(),
            request_limits: OnceLock::new(),
        });
        tokio::spawn(sweep(Arc::downgrade(&gateway), gateway.shutting_down.clone()));
        gateway
    }

    /// Path of the Streamable HTTP endpoint.
    pub(crate) const ENDPOINT: &str = "/mcp";

    /// Answers a request of `peer` to [`Self::ENDPOINT`].
    pub(crate) async fn serve<B>(
        self: &Arc<Self>,
        request: ::http::Request<B>,
        peer: Peer,
    ) -> axum::response::Response
    where
        B: http_body::Body<Data = bytes::Bytes> + Unpin,
    {
        transport::streamable_http::serve(self, request, peer).await
    }

    /// Sets the request rate limits. Each message of a batch counts as one request.
    pub(crate) fn limit_requests(&self, limits: Arc<RequestRates>) {
        let set = self.request_limits.set(limits);
        debug_assert!(set.is_ok(), "a gateway has one listener");
    }

    /// Installs the telemetry exporter, unless one is already installed. Returns the installed one.
    pub fn install_telemetry(&self, telemetry: Telemetry) -> &Telemetry {
        self.telemetry.get_or_init(|| telemetry)
    }

    /// Exports the remaining telemetry and shuts the exporter down.
    pub async fn flush_telemetry(&self) {
        if let Some(telemetry) = self.telemetry.get() {
            telemetry.shutdown().await;
        }
    }

    /// Router of `/mcp` and `/sse`.
    pub fn router(self: &Arc<Self>) -> axum::Router {
        transport::streamable_http::router(Arc::clone(self))
            .merge(transport::http_sse::router(Arc::clone(self)))
    }

    /// Begins the shutdown: channels are no longer read, and streams that only listen end. Calls in flight continue
    /// until the shutdown timeout.
    pub fn begin_shutdown(&self) {
        self.shutting_down.cancel();
    }

    /// Saves when each session was last used, so that the next process knows which sessions are still valid.
    pub async fn save_sessions(&self) {
        self.sessions.save_all().await;
    }

    /// Current number of sessions and requests, and the memory in use.
    pub fn client_counts(&self) -> ClientCounts {
        ClientCounts {
            sessions: self.sessions.count(),
            in_flight: self.in_flight.used(),
            memory: self.memory.used(),
        }
    }

    /// Memory account of one client.
    fn memory_of(&self, peer: &Peer) -> Arc<ClientMemory> {
        Arc::new(ClientMemory::new(&self.memory, peer))
    }

    /// Serves one client on a pair of streams, one message per line, until its input ends or shutdown begins. Requests
    /// in flight then have a limited time to be answered.
    ///
    /// # Errors
    /// A stream breaks.
    pub async fn serve_stdio(
        self: &Arc<Self>,
        input: impl tokio::io::AsyncRead + Unpin,
        output: impl tokio::io::AsyncWrite + Unpin + Send + 'static,
    ) -> std::io::Result<()> {
        transport::stdio::serve(self, input, output).await
    }

    /// Waits once per process for servers that have never been listed; the first request that needs the lists starts
    /// the wait.
    async fn wait_for_startup(&self) {
        self.startup_waited.get_or_init(|| self.host.wait_until_listed(self.startup_wait)).await;
    }
}

/// Resources that clients use at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClientCounts {
    /// Legacy sessions in memory.
    pub sessions: usize,
    /// Requests that are not answered yet.
    pub in_flight: usize,
    /// Bytes of request bodies and answers in memory.
    pub memory: usize,
}

/// Removes idle sessions and expired tasks periodically, until the gateway shuts down or is dropped.
async fn sweep(gateway: Weak<Gateway>, shutdown: CancellationToken) {
    while let Some(every) = gateway.upgrade().map(|gateway| gateway.sessions.sweep_interval()) {
        tokio::select! {
            () = tokio::time::sleep(every) => {}
            () = shutdown.cancelled() => return,
        }
        if let Some(gateway) = gateway.upgrade() {
            gateway.sessions.sweep().await;
            gateway.tasks.sweep();
        }
    }
}

/// Client capabilities that the gateway declares to servers: everything it can forward to clients. For a client that
/// lacks one, the gateway declines.
pub fn client_capabilities() -> serde_json::Value {
    serde_json::json!({
        "elicitation": { "form": {}, "url": {} },
        "sampling": {},
        "roots": { "listChanged": true },
        "extensions": elicitation::apps_extension(),
    })
}
