//! What a transport saw, before anybody decides what it means.

use std::time::Duration;

/// One observation of a transport.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Evidence {
    /// What was being done.
    pub during: During,
    /// How much of the request had left us.
    pub sent: Sent,
    /// What was seen.
    pub observed: Observed,
}

impl Evidence {
    /// An observation made before anything was sent.
    pub fn unsent(during: During, observed: Observed) -> Self {
        Self { during, sent: Sent::No, observed }
    }

    /// An observation made after at least a part was written.
    pub fn sent(during: During, observed: Observed) -> Self {
        Self { during, sent: Sent::Yes, observed }
    }
}

/// What was being done when something was seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum During {
    /// Spawning or connecting, and the handshake.
    Handshake,
    /// A request of a caller.
    Call,
    /// A question of our own about an idle link.
    Probe,
}

/// How much of a request had left us. One written byte is enough for `Yes`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sent {
    /// Provably nothing: the server cannot have acted.
    No,
    /// Something, perhaps all: the server may have acted.
    Yes,
}

/// What was seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Observed {
    /// The executable is not there, or may not be run.
    NoExecutable(String),
    /// The process could not be started for another reason.
    SpawnFailed(String),
    /// The system has no file descriptor, memory or process left for the attempt.
    LacksResources(String),
    /// A variable that the config names is not set.
    UnsetVariable(String),
    /// A value of the config turned out unusable when it was expanded.
    BadConfig(String),
    /// No connection could be made.
    Dial {
        /// Which step of connecting failed.
        trouble: DialTrouble,
        /// What the system said.
        text: String,
    },
    /// No token could be had for the request, for a reason that may pass.
    NoToken(String),
    /// The peer closed, reset or cut an established connection or pipe.
    Closed(String),
    /// The peer refused to begin with the request, and says so: it has too many.
    TurnedAway(String),
    /// The child process ended.
    Exited {
        /// Its exit code, if it had one.
        code: Option<i32>,
        /// The signal that ended it, if one did.
        signal: Option<i32>,
        /// The line it wrote to stderr that most probably says why.
        last_words: Option<String>,
    },
    /// Nothing came back in time.
    Silence(Duration),
    /// An HTTP answer that is not a success.
    Http(HttpAnswer),
    /// A JSON-RPC error, on a success status or without HTTP.
    Rpc {
        /// The error.
        error: RpcError,
        /// Whether the request carried a session.
        had_session: bool,
    },
    /// Bytes that are not what the protocol allows here.
    Garbled(String),
    /// A message over the size limit (in bytes).
    TooLarge(usize),
    /// The server answers, and there is no memory for the answer.
    NoMemory {
        /// Whose memory is used up, and the key that bounds it.
        why: String,
        /// Whether what came is the answer, in whole or in part.
        is_answer: bool,
    },
}

/// Which step of connecting failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DialTrouble {
    /// The name did not resolve.
    Dns,
    /// Nobody listens there.
    Refused,
    /// The TLS handshake failed.
    Tls,
    /// It took too long.
    TimedOut,
    /// There is no file descriptor or memory left for it here.
    LacksResources,
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
    /// Whether the request carried a session.
    pub had_session: bool,
    /// The proxy through which it came, and whose own answer it may be.
    pub proxy: Option<Box<str>>,
    /// Whether the request was of the modern era, where some codes have one meaning for everybody.
    pub modern: bool,
}

/// The part of a JSON-RPC error that decisions need.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RpcError {
    /// The code.
    pub code: i64,
    /// The message.
    pub message: String,
}
