//! Transports: open a link to a server, move messages over it and report what happened as evidence. Retries, the
//! meaning of a status and access control are decided elsewhere.
//!
//! [`Dialer`] and [`Link`] are public so that an embedding program can bring its own transport.

mod http;
mod in_flight;
mod inbox;
mod pending_replies;
mod process;
mod read_result;
mod secrets;
mod singleton;
mod sse;
mod stderr;
mod stdin;
mod stdio;
mod target;

pub(crate) use crate::transport::in_flight::{CallListener, InFlightCall, InFlightCalls};
pub use gripfast_core::failure::recovery::Safety;
pub use gripfast_core::failure::{ConnectStepFailed, During, Evidence, HttpAnswer, Observed, RpcError, Sent};
pub use gripfast_core::isolation::Attribution;
pub use gripfast_core::supervise::upstream::{CloseMode, LinkKind};
pub use gripfast_wire::{Era, ProtocolVersion};
pub(crate) use http::{
    HttpClient, HttpEndpoint, HttpRequest, get, not_a_response, read_body, retry_after, send,
};
pub use inbox::{Inbox, Incoming, LinkContext};
pub(crate) use process::renew_child_leases;
pub use process::{Environment, NetworkVariables};
pub use read_result::Members;
pub(crate) use read_result::ReadResult;
pub use secrets::Secrets;
pub(crate) use singleton::SingletonDialer;
pub use stderr::{StderrLines, StderrRing};
pub(crate) use target::{TargetDialer, TlsFiles, expand};

use crate::client::Principal;
use crate::memory::{AnswerMemory, OutOfMemory, Reservation};
use bytes::Bytes;
use gripfast_core::redact::KnownSecrets;
use gripfast_wire::results::Progress;
use std::borrow::Cow;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// HTTP header of the handshake that carries [`Host::id`](crate::Host::id).
pub const HOST_ID: &str = "gripfast-host-id";

/// Boxed future returned by the traits of this module.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Boxes a future in place: it is made in its memory on the heap, and not copied there.
#[inline(always)]
pub fn box_future<F>(make: impl FnOnce() -> F) -> Pin<Box<F>> {
    Box::into_pin(Box::write(Box::new_uninit(), make()))
}

/// Opens links to one server.
pub trait Dialer: Send + Sync + 'static {
    /// Returns the kind of peer at the other end.
    fn kind(&self) -> LinkKind;

    /// Returns the routes to the server, in order of preference.
    fn routes(&self) -> Vec<Route>;

    /// Opens a link. No MCP message has been exchanged when it returns.
    fn connect(&self, route: Route, context: LinkContext) -> BoxFuture<'_, Result<Arc<dyn Link>, Evidence>>;

    /// Returns the secrets that a new link would be configured with, as far as they are known without running a
    /// command. A stored catalog may repeat them before there is a link.
    fn secrets(&self) -> BoxFuture<'_, KnownSecrets> {
        Box::pin(std::future::ready(KnownSecrets::default()))
    }

    /// Replaces a credential that the server has refused, once for all links that ask at the same time. Open links use
    /// the new one from then on.
    fn renew_credential(&self) -> BoxFuture<'_, Result<RenewOutcome, Evidence>> {
        Box::pin(std::future::ready(Ok(RenewOutcome::NeedsPerson(None))))
    }

    /// Returns the replica that runs a singleton server.
    fn holder(&self) -> Option<String> {
        None
    }

    /// Completes when a person may have repaired the credential, for example by a login.
    fn credential_changed(&self) -> BoxFuture<'_, ()> {
        Box::pin(std::future::pending())
    }
}

/// Outcome of renewing a credential.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RenewOutcome {
    /// A new credential is in place.
    Replaced,
    /// No new credential is available until a person acts; holds the reason if it is known.
    NeedsPerson(Option<String>),
    /// The authorization server rejected the credential for good, for this reason; a person has to log in.
    Rejected(String),
}

gripfast_core::word_enum! {
    /// Transport by which a server is reached.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    pub enum Route {
        /// A child process with pipes.
        Stdio = "stdio",
        /// Streamable HTTP.
        Http = "http",
        /// HTTP with a separate event stream, as of 2024-11-05.
        LegacySse = "sse",
        /// Another replica, which runs this singleton server.
        Replica = "replica",
        /// A transport of the embedding program.
        Custom = "custom",
    }
}

/// An open link to one server.
pub trait Link: Send + Sync + 'static {
    /// Sends a request and waits for its response without a deadline; deadlines are set by the caller.
    ///
    /// Dropping the future withdraws the request if nothing of it has been written. Otherwise it cancels the request in
    /// the form of the server's era.
    fn request<'a>(
        &'a self,
        session: &'a Session,
        request: Outgoing<'a>,
    ) -> BoxFuture<'a, Result<Reply, Box<SendError>>>;

    /// Sends a message without a response: a notification, or our response to a request of the server.
    fn send<'a>(
        &'a self,
        session: &'a Session,
        message: Vec<u8>,
    ) -> BoxFuture<'a, Result<(), Box<SendError>>>;

    /// Opens the stream for unsolicited server messages, where the transport needs a separate one. Messages go to the
    /// inbox; dropping the returned guard ends the stream.
    fn listen(self: Arc<Self>, session: Arc<Session>) -> Option<UnsolicitedStream>;

    /// Closes the link. Returns when nothing of it is left behind.
    fn close<'a>(&'a self, session: Option<&'a Session>, manner: CloseMode) -> BoxFuture<'a, ()>;

    /// Returns the peer's process id or URL.
    fn info(&self) -> LinkInfo;

    /// Returns the resident memory of the peer in bytes, if it is a child process and the system reports it. May block
    /// for a moment.
    fn resident_memory(&self) -> Option<u64> {
        None
    }
}

/// Stream of unsolicited messages; dropping it ends the stream.
#[derive(Debug)]
pub struct UnsolicitedStream(tokio::task::AbortHandle);

impl UnsolicitedStream {
    /// Wraps the task that reads the stream.
    pub fn from_task(task: tokio::task::AbortHandle) -> Self {
        Self(task)
    }
}

impl Drop for UnsolicitedStream {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Process id or URL of the peer of a link.
#[derive(Debug, Clone, Default)]
pub struct LinkInfo {
    /// The child's process id.
    pub pid: Option<u32>,
    /// The server's URL, without secrets.
    pub url: Option<String>,
}

/// Session data that every message needs.
#[derive(Debug, Clone)]
pub struct Session {
    /// Protocol era in use.
    pub era: Era,
    /// Negotiated protocol version; `None` before the handshake.
    pub version: Option<ProtocolVersion>,
    /// Session id, if the server assigned one.
    pub id: Option<String>,
}

/// An outgoing request.
pub struct Outgoing<'a> {
    /// Request id; the message carries the same.
    pub id: u64,
    /// JSON-RPC method.
    pub method: &'a str,
    /// The whole JSON-RPC message.
    pub message: Vec<u8>,
    /// The `Mcp-Name` header of the modern era.
    pub name: Option<Cow<'a, str>>,
    /// Further headers that repeat parts of the message: `Mcp-Param-*` of the modern era, and the trace context.
    pub headers: Vec<(String, String)>,
    /// Phase that the request belongs to, as recorded in evidence.
    pub during: During,
    /// Principal of the call; `None` for a request of the host itself.
    pub principal: Option<Principal>,
    /// Replay safety of the request. A request that must not be sent twice avoids connections
    /// that the server may be about to close.
    pub safety: Safety,
    /// Set by the transport when the first byte may have been sent.
    pub sent: Arc<SentFlag>,
    /// Receives server messages that precede the response.
    pub listener: Option<Arc<dyn Listener>>,
    /// Memory budget that the response is counted against.
    pub memory: Option<Arc<dyn AnswerMemory>>,
}

/// Returns whether a notification with this method belongs to the call that it arrives with.
fn is_call_notification(method: &str) -> bool {
    matches!(method, Progress::METHOD | LOG_MESSAGE)
}

/// Method of the server's log notification.
pub(crate) const LOG_MESSAGE: &str = "notifications/message";

/// Records whether any part of a request may have been sent, for a caller that stops waiting.
#[derive(Debug, Default)]
pub struct SentFlag(AtomicBool);

impl SentFlag {
    /// Marks the request as possibly seen by the server.
    pub fn set(&self) {
        self.0.store(true, Ordering::Release);
    }

    /// Returns whether any part may have been sent.
    pub fn sent(&self) -> Sent {
        if self.0.load(Ordering::Acquire) { Sent::Yes } else { Sent::No }
    }
}

/// Receives server messages that precede a response: progress, log messages and requests.
pub trait Listener: Send + Sync {
    /// Handles a message of the server. Must not block.
    fn on_message(&self, message: &[u8]);

    /// Handles a request of the server that it needs answered before it can continue: elicitation, sampling, roots.
    /// The future resolves to the JSON-RPC response. `None` if no client can answer; the request is then refused.
    fn on_request(&self, request: Bytes) -> Option<BoxFuture<'static, Vec<u8>>> {
        let _ = request;
        None
    }
}

/// Response to a request.
#[derive(Debug)]
pub struct Reply {
    /// JSON-RPC response. Its id may differ from the request's: the transport has already correlated it.
    pub message: Bytes,
    /// Session id that came with the response.
    pub session_id: Option<String>,
    /// Memory reserved for the response, if the transport has reserved it.
    pub memory: Option<Arc<dyn Reservation>>,
    /// The result, if the transport has read it.
    pub(crate) result: Option<ReadResult>,
}

impl Reply {
    /// Creates a reply without reserved memory.
    pub fn new(message: Bytes) -> Self {
        Self { message, session_id: None, memory: None, result: None }
    }

    /// Creates a reply and reserves its memory, if memory is counted.
    fn with_memory(
        message: Bytes,
        during: During,
        memory: Option<&dyn AnswerMemory>,
    ) -> Result<Self, Evidence> {
        let reserved = memory.map(|memory| memory.reserve(message.len())).transpose();
        let memory = reserved.map_err(|error| no_memory(during, error, true))?;
        Ok(Self { memory, ..Self::new(message) })
    }
}

/// Evidence for a response that exceeds the memory budget.
fn no_memory(during: During, OutOfMemory(why): OutOfMemory, is_answer: bool) -> Evidence {
    Evidence::sent(during, Observed::NoMemory { why, is_answer })
}

/// A request that failed or was answered with an error.
#[derive(Debug)]
pub struct SendError {
    /// Evidence of the failure.
    pub evidence: Evidence,
    /// JSON-RPC error that came with the failure. If the server merely declined the request, the caller gets it
    /// unchanged.
    pub answer: Option<Bytes>,
}

impl From<Evidence> for Box<SendError> {
    fn from(evidence: Evidence) -> Self {
        Self::new(SendError { evidence, answer: None })
    }
}
