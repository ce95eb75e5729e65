//! Ways to a server. A transport moves messages and reports what it saw; it decides nothing: not whether
//! to try again, not what a status means, not who may call.
//!
//! [`Dialer`] and [`Link`] are public so that a program can bring a transport of its own.

mod http;
mod inbox;
mod pending;
mod process;
mod secrets;
mod sse;
mod stderr;
mod stdio;
mod target;
mod underway;

pub use gripfast_core::failure::recovery::Safety;
pub use gripfast_core::failure::{DialTrouble, During, Evidence, HttpAnswer, Observed, RpcError, Sent};
pub use gripfast_core::isolation::Whose;
pub use gripfast_core::supervise::upstream::{LinkKind, Manner};
pub use gripfast_wire::{Era, ProtocolVersion};
pub(crate) use http::{Ask as HttpAsk, HttpClient, get, not_a_response, read_whole, retry_after, send};
pub use inbox::{Inbox, Incoming, Surroundings};
pub use process::{Environment, NetworkVariables};
pub use secrets::Secrets;
pub use stderr::{StderrLines, StderrRing};
pub(crate) use target::{TargetDialer, TlsFiles, expand};
pub(crate) use underway::{CallEar, Entered, Underway};

use crate::memory::{AnswerMemory, OutOfMemory, Reservation};
use bytes::Bytes;
use gripfast_core::redact::KnownSecrets;
use gripfast_wire::results::Progress;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The header of a handshake over HTTP that carries [`Host::id`](crate::Host::id).
pub const HOST_ID: &str = "gripfast-host-id";

/// A future that a trait object can return.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Makes links to one server.
pub trait Dialer: Send + Sync + 'static {
    /// What kind of thing is at the other end.
    fn kind(&self) -> LinkKind;

    /// The ways to reach it, the preferred one first.
    fn routes(&self) -> Vec<Route>;

    /// Opens a link. No MCP message has been exchanged yet when it returns.
    fn open(
        &self,
        route: Route,
        surroundings: Surroundings,
    ) -> BoxFuture<'_, Result<Arc<dyn Link>, Evidence>>;

    /// What would be filled in for a link, as far as that is known without running anything: a stored catalog may repeat it
    /// before there is a link.
    fn secrets(&self) -> BoxFuture<'_, KnownSecrets> {
        Box::pin(std::future::ready(KnownSecrets::default()))
    }

    /// The server has refused the credential that its links show: puts another in its place, once for all links
    /// that ask at the same time. Links that are open show it from then on.
    fn renew_credential(&self) -> BoxFuture<'_, Result<Renewed, Evidence>> {
        Box::pin(std::future::ready(Ok(Renewed::NeedsPerson(None))))
    }

    /// Ends when a person may have mended what the credential lacked, such as by a login.
    fn credential_mended(&self) -> BoxFuture<'_, ()> {
        Box::pin(std::future::pending())
    }
}

/// What came of renewing a credential.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Renewed {
    /// Another one is in its place.
    Replaced,
    /// There is none to put in its place before a person has done something; why, if that is known.
    NeedsPerson(Option<String>),
    /// The authorization server rejected it for good, for this reason: a person has to log in.
    Rejected(String),
}

/// A way to reach a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Route {
    /// A child process and its pipes.
    Stdio,
    /// Streamable HTTP.
    Http,
    /// HTTP with a separate event stream, as of 2024-11-05.
    LegacySse,
    /// A transport that the embedding program brought along.
    Custom,
}

impl Route {
    /// The word in status and logs.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Stdio => "stdio",
            Self::Http => "http",
            Self::LegacySse => "sse",
            Self::Custom => "custom",
        }
    }
}

/// An open way to one server.
pub trait Link: Send + Sync + 'static {
    /// Sends a request and waits for its answer, for as long as it takes: deadlines are the caller's.
    ///
    /// Dropping the future withdraws the request if nothing of it was written yet, and otherwise tells
    /// the server, in the form of its era, that nobody waits any more.
    fn request<'a>(
        &'a self,
        session: &'a Session,
        request: Outgoing,
    ) -> BoxFuture<'a, Result<Reply, Box<Trouble>>>;

    /// Sends a message that has no answer: a notification, or our answer to a request of the server.
    fn send<'a>(&'a self, session: &'a Session, message: Vec<u8>) -> BoxFuture<'a, Result<(), Box<Trouble>>>;

    /// Begins to listen for what the server says unasked, where that needs a stream of its own. What it
    /// says goes to the inbox; the stream ends with the returned guard.
    fn listen(self: Arc<Self>, session: Arc<Session>) -> Option<Listening>;

    /// Ends the link. Returns when nothing of it is left behind.
    fn close<'a>(&'a self, session: Option<&'a Session>, manner: Manner) -> BoxFuture<'a, ()>;

    /// What can be told about it.
    fn facts(&self) -> LinkFacts;

    /// The memory that the other end holds, in bytes, where that is a child of ours and the system tells.
    /// It may block for a moment.
    fn resident(&self) -> Option<u64> {
        None
    }
}

/// A stream of unasked messages; dropping it ends the stream.
#[derive(Debug)]
pub struct Listening(tokio::task::AbortHandle);

impl Listening {
    /// The stream that this task follows.
    pub fn in_task(task: tokio::task::AbortHandle) -> Self {
        Self(task)
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// What can be told about a link.
#[derive(Debug, Clone, Default)]
pub struct LinkFacts {
    /// The child's process id.
    pub pid: Option<u32>,
    /// The server's address, without anything secret.
    pub url: Option<String>,
}

/// What a message needs to know of the session it belongs to.
#[derive(Debug, Clone)]
pub struct Session {
    /// The era that both sides speak.
    pub era: Era,
    /// The version that both sides speak; none before the handshake has settled it.
    pub version: Option<ProtocolVersion>,
    /// The session's id, where the server gave one.
    pub id: Option<String>,
}

/// A request on its way out.
pub struct Outgoing {
    /// Our id for it; the message carries the same.
    pub id: u64,
    /// Its method.
    pub method: String,
    /// The whole message.
    pub message: Vec<u8>,
    /// The `Mcp-Name` header of the modern era.
    pub name: Option<String>,
    /// Further headers that repeat parts of the message: `Mcp-Param-*` of the modern era, and the trace context.
    pub headers: Vec<(String, String)>,
    /// What this is part of; evidence says so.
    pub during: During,
    /// Whether executing it twice does harm. What may not be sent twice is better sent on a connection that the server
    /// is not about to close.
    pub safety: Safety,
    /// Set by the transport when the first byte may have left us.
    pub sent: Arc<SentMark>,
    /// Who hears what the server says on the way to the answer.
    pub listener: Option<Arc<dyn Listener>>,
    /// The memory that the answer is counted against.
    pub memory: Option<Arc<dyn AnswerMemory>>,
}

/// Whether a notification of this method speaks of the call that it comes with.
fn is_about_a_call(method: &str) -> bool {
    matches!(method, Progress::METHOD | LOG_MESSAGE)
}

/// A log message of the server.
pub(crate) const LOG_MESSAGE: &str = "notifications/message";

/// Whether anything of a request may have left us, for whoever gives up waiting for its answer.
#[derive(Debug, Default)]
pub struct SentMark(AtomicBool);

impl SentMark {
    /// From here on the server may have seen it.
    pub fn set(&self) {
        self.0.store(true, Ordering::Release);
    }

    /// How much has left us.
    pub fn sent(&self) -> Sent {
        if self.0.load(Ordering::Acquire) { Sent::Yes } else { Sent::No }
    }
}

/// Hears what a server says on the way to an answer: progress, log messages, questions.
pub trait Listener: Send + Sync {
    /// The server said this. It must not block.
    fn said(&self, message: &[u8]);

    /// The server asks this before it can go on: input of a person, a model's words, the client's roots.
    /// The future gives the JSON-RPC response to it. `None`: there is nobody to ask, and the server is told.
    fn asked(&self, request: Bytes) -> Option<BoxFuture<'static, Vec<u8>>> {
        let _ = request;
        None
    }
}

/// The answer to a request.
#[derive(Debug)]
pub struct Reply {
    /// The JSON-RPC response. Its id need not be ours: the transport has correlated it already.
    pub message: Bytes,
    /// The session id that came with it.
    pub session_id: Option<String>,
    /// The memory that is reserved for it, if the transport has done so.
    pub memory: Option<Box<dyn Reservation>>,
}

impl Reply {
    /// A reply for which no memory is reserved yet.
    pub fn of(message: Bytes) -> Self {
        Self { message, session_id: None, memory: None }
    }

    /// A whole answer, with the memory that it takes if that is counted.
    fn counted(message: Bytes, during: During, memory: Option<&dyn AnswerMemory>) -> Result<Self, Evidence> {
        let reserved = memory.map(|memory| memory.reserve(message.len())).transpose();
        let memory = reserved.map_err(|error| no_memory(during, error, true))?;
        Ok(Self { memory, ..Self::of(message) })
    }
}

/// The evidence of an answer that there is no memory for.
fn no_memory(during: During, OutOfMemory(why): OutOfMemory, is_answer: bool) -> Evidence {
    Evidence::sent(during, Observed::NoMemory { why, is_answer })
}

/// A request that was not answered as it should be.
#[derive(Debug)]
pub struct Trouble {
    /// What was seen.
    pub evidence: Evidence,
    /// The JSON-RPC error that came with it, if one did: should the server merely have declined, the
    /// caller gets it as it is.
    pub answer: Option<Bytes>,
}

impl From<Evidence> for Box<Trouble> {
    fn from(evidence: Evidence) -> Self {
        Self::new(Trouble { evidence, answer: None })
    }
}
