//! Evidence: the raw observations of a transport, before they are classified.

use std::time::Duration;

/// One observation of a transport.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Evidence {
    /// The activity during which it was made.
    pub during: During,
    /// Sent state of the request.
    pub sent: Sent,
    /// The observation.
    pub observed: Observed,
}

impl Evidence {
    /// An observation from before anything was sent.
    pub fn unsent(during: During, observed: Observed) -> Self {
        Self { during, sent: Sent::No, observed }
    }

    /// An observation from after at least a part was written.
    pub fn sent(during: During, observed: Observed) -> Self {
        Self { during, sent: Sent::Yes, observed }
    }
}

/// Activity during which an observation was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum During {
    /// Spawning or connecting, and the handshake.
    Handshake,
    /// A request of a client.
    Call,
    /// A probe of an idle link.
    Probe,
}

/// Sent state of a request. One written byte is enough for `Yes`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sent {
    /// Nothing was sent: the server cannot have acted.
    No,
    /// At least a part was sent: the server may have acted.
    Yes,
}

/// An observation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Observed {
    /// The executable does not exist or may not be run.
    NoExecutable(String),
    /// The process could not be started for another reason.
    SpawnFailed(String),
    /// The system has no file descriptor, memory or process left for the attempt.
    OutOfResources(String),
    /// The attempt was not made, because no replica is known to run this singleton server.
    Unplaced(String),
    /// A variable that the config names is not set.
    UnsetVariable(String),
    /// A config value is unusable after expansion.
    BadConfig(String),
    /// The connection failed.
    Connect {
        /// The step that failed.
        step: ConnectStepFailed,
        /// The message of the system.
        text: String,
    },
    /// No token could be obtained for the request, for a reason that may pass.
    NoToken(String),
    /// The peer closed, reset or cut an established connection or pipe.
    Closed(String),
    /// The peer refused to process the request because it has too many.
    RefusedByPeer(String),
    /// The child process ended.
    Exited {
        /// Exit code, if there is one.
        code: Option<i32>,
        /// Signal that ended it, if there was one.
        signal: Option<i32>,
        /// The stderr line that most probably explains the exit.
        stderr_line: Option<String>,
    },
    /// No answer within this time.
    NoAnswer(Duration),
    /// An HTTP answer that is not a success.
    Http(HttpAnswer),
    /// A JSON-RPC error, on a success status or without HTTP.
    Rpc {
        /// The error.
        error: RpcError,
        /// True if the request carried a session.
        had_session: bool,
    },
    /// Bytes that the protocol does not allow here.
    Malformed(String),
    /// A message over the size limit in bytes.
    TooLarge(usize),
    /// The server answered, but the memory limit does not allow keeping the answer.
    NoMemory {
        /// The memory that is used up, and the config key that limits it.
        why: String,
        /// True if the message is the answer, complete or in part.
        is_answer: bool,
    },
}

/// An answer of the server.
#[derive(Debug, Clone, Copy)]
pub(crate) enum ServerAnswer<'a> {
    /// An HTTP response that is no result.
    Http(&'a HttpAnswer),
    /// A JSON-RPC error.
    Rpc {
        /// The error.
        error: &'a RpcError,
        /// True if the request carried a session.
        had_session: bool,
    },
}

impl Observed {
    /// Returns the answer of the server, if there was one.
    pub(crate) fn server_answer(&self) -> Option<ServerAnswer<'_>> {
        match self {
            Self::Http(answer) => Some(ServerAnswer::Http(answer)),
            Self::Rpc { error, had_session } => Some(ServerAnswer::Rpc { error, had_session: *had_session }),
            Self::NoExecutable(_)
            | Self::SpawnFailed(_)
            | Self::OutOfResources(_)
            | Self::Unplaced(_)
            | Self::UnsetVariable(_)
            | Self::BadConfig(_)
            | Self::Connect { .. }
            | Self::NoToken(_)
            | Self::Closed(_)
            | Self::RefusedByPeer(_)
            | Self::Exited { .. }
            | Self::NoAnswer(_)
            | Self::Malformed(_)
            | Self::TooLarge(_)
            | Self::NoMemory { .. } => None,
        }
    }
}

/// Step of connecting that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConnectStepFailed {
    /// The name did not resolve.
    Dns,
    /// The connection was refused: no listener.
    Refused,
    /// The TLS handshake failed.
    Tls,
    /// It took too long.
    TimedOut,
    /// This machine has no file descriptor or memory left for it.
    OutOfResources,
    /// Anything else.
    Other,
}

/// An HTTP answer that is not a success.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HttpAnswer {
    /// The status code.
    pub status: u16,
    /// The `Retry-After` header, if it could be read.
    pub retry_after: Option<Duration>,
    /// The `WWW-Authenticate` header.
    pub challenge: Option<Box<str>>,
    /// The beginning of the body, as text.
    pub body: String,
    /// The JSON-RPC error in the body, if there is one.
    pub rpc: Option<RpcError>,
    /// True if the request carried a session.
    pub had_session: bool,
    /// The proxy that it came through, which may have answered itself.
    pub proxy: Option<Box<str>>,
    /// True if the request was of the modern era, in which some codes have a fixed meaning.
    pub modern: bool,
}

/// The part of a JSON-RPC error that classification needs.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RpcError {
    /// The code.
    pub code: i64,
    /// The message.
    pub message: String,
}
