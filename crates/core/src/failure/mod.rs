//! From what was seen to what to do: evidence → failure → recovery.
//!
//! A transport reports [`Evidence`]. [`classify`](classify::classify) is the only place that turns it into
//! a [`Failure`], and the only place that looks at text. [`recovery`] says what a call and a link do about
//! it. [`CallError`] is what a caller gets when nothing helped.

mod call_error;
pub mod cause_line;
pub mod classify;
pub mod crashes;
mod evidence;
pub mod recovery;
pub mod session_forms;
pub mod symptoms;

pub use call_error::{CallError, Code, Outcome};
pub use evidence::{DialTrouble, During, Evidence, HttpAnswer, Observed, RpcError, Sent};

use crate::redact::KnownSecrets;
use crate::text::escaped;
use std::fmt;
use std::time::Duration;

/// What went wrong, one variant per different reaction. The text is for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failure {
    /// The server could not be reached: nothing was sent.
    Unreachable(String),
    /// This machine or process has no file descriptor, memory or process left for the attempt. It says nothing about
    /// the server, and nothing was sent.
    LacksResources(String),
    /// An established link broke.
    Lost(String),
    /// Nothing came back in time.
    TimedOut(Duration),
    /// The server does not know our session any more.
    SessionExpired(String),
    /// The server refused our credential.
    CredentialRefused(String),
    /// The server wants a wider grant for this request than our credential has. The others work.
    BeyondScope(String),
    /// The server asked for patience before doing anything.
    Busy {
        /// How much patience, if it said so.
        retry_after: Option<Duration>,
        /// What it said.
        text: String,
    },
    /// The server failed in a way of its own (HTTP 5xx); what it did before that is unknown.
    ServerFault(String),
    /// What came back is not MCP.
    Nonsense(String),
    /// The server refused the request before acting: the headers that repeat its arguments are not those that it
    /// asks for now. What we know of its tools is older than the server.
    Outdated(String),
    /// The server understood and said no: a JSON-RPC application error. The path works.
    Declined(String),
    /// Retrying cannot mend it.
    Blocked(BlockCause),
}

impl Failure {
    /// The same without what the server wrote to stderr, for a client that may not see that.
    #[must_use]
    pub fn without_last_words(self) -> Self {
        let cut = |text: String| classify::without_last_words(&text).to_owned();
        match self {
            Self::Unreachable(text) => Self::Unreachable(cut(text)),
            Self::Lost(text) => Self::Lost(cut(text)),
            Self::LacksResources(_)
            | Self::TimedOut(_)
            | Self::SessionExpired(_)
            | Self::CredentialRefused(_)
            | Self::BeyondScope(_)
            | Self::Busy { .. }
            | Self::ServerFault(_)
            | Self::Nonsense(_)
            | Self::Outdated(_)
            | Self::Declined(_)
            | Self::Blocked(_) => self,
        }
    }

    /// The same without what is known to be secret, and without words that are shaped like a token; control characters
    /// of the server are escaped.
    #[must_use]
    pub fn redacted(self, known: &KnownSecrets) -> Self {
        let masked = |text: String| escaped(&known.text(&text)).into_owned();
        match self {
            Self::Unreachable(text) => Self::Unreachable(masked(text)),
            Self::LacksResources(text) => Self::LacksResources(masked(text)),
            Self::Lost(text) => Self::Lost(masked(text)),
            Self::TimedOut(after) => Self::TimedOut(after),
            Self::SessionExpired(text) => Self::SessionExpired(masked(text)),
            Self::CredentialRefused(text) => Self::CredentialRefused(masked(text)),
            Self::BeyondScope(text) => Self::BeyondScope(masked(text)),
            Self::Busy { retry_after, text } => Self::Busy { retry_after, text: masked(text) },
            Self::ServerFault(text) => Self::ServerFault(masked(text)),
            Self::Nonsense(text) => Self::Nonsense(masked(text)),
            Self::Outdated(text) => Self::Outdated(masked(text)),
            Self::Declined(text) => Self::Declined(masked(text)),
            Self::Blocked(cause) => Self::Blocked(match cause {
                BlockCause::MissingExecutable(text) => BlockCause::MissingExecutable(masked(text)),
                BlockCause::UnsetVariable(text) => BlockCause::UnsetVariable(masked(text)),
                BlockCause::BadConfig(text) => BlockCause::BadConfig(masked(text)),
                BlockCause::NotMcp(text) => BlockCause::NotMcp(masked(text)),
                BlockCause::NeedsLogin(text) => BlockCause::NeedsLogin(masked(text)),
            }),
        }
    }
}

/// Why an upstream cannot work until something about it changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BlockCause {
    /// The command does not exist or may not be run.
    MissingExecutable(String),
    /// A variable that the config names is not set.
    UnsetVariable(String),
    /// The config cannot be used as it is.
    BadConfig(String),
    /// Something answers at the URL, and it is not an MCP server.
    NotMcp(String),
    /// A person has to log in, or to correct the credential.
    NeedsLogin(String),
}

impl BlockCause {
    /// The cause in the operator's words.
    pub fn text(&self) -> &str {
        match self {
            Self::MissingExecutable(text)
            | Self::UnsetVariable(text)
            | Self::BadConfig(text)
            | Self::NotMcp(text)
            | Self::NeedsLogin(text) => text,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreachable(text)
            | Self::LacksResources(text)
            | Self::Lost(text)
            | Self::SessionExpired(text)
            | Self::CredentialRefused(text)
            | Self::BeyondScope(text)
            | Self::ServerFault(text)
            | Self::Nonsense(text)
            | Self::Outdated(text)
            | Self::Declined(text)
            | Self::Busy { text, .. } => f.write_str(text),
            Self::TimedOut(after) => write!(f, "no answer within {}", crate::text::duration(*after)),
            Self::Blocked(cause) => f.write_str(cause.text()),
        }
    }
}
