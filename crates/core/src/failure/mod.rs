//! Failures, from observation to reaction: evidence → failure → recovery.
//!
//! A transport reports [`Evidence`]. [`classify`](classify::classify) is the only function that turns it into a
//! [`Failure`], and the only one that reads error text. [`recovery`] decides how a call reacts. [`CallError`] is the
//! error that the caller gets.

mod call_error;
pub mod cause_line;
pub mod classify;
pub mod crashes;
mod evidence;
pub mod recovery;
pub mod session_forms;
pub mod symptoms;

pub use call_error::{CallError, CallOutcome, Code};
pub(crate) use evidence::ServerAnswer;
pub use evidence::{ConnectStepFailed, During, Evidence, HttpAnswer, Observed, RpcError, Sent};

use crate::redact::KnownSecrets;
use crate::text::escaped;
use std::fmt;
use std::time::Duration;

/// A failure, with one variant per different reaction. The text is for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failure {
    /// The server could not be reached: nothing was sent.
    Unreachable(String),
    /// This machine has no file descriptor, memory or process left for the attempt. Nothing was sent, and it says
    /// nothing about the server.
    OutOfResources(String),
    /// An established link broke.
    Lost(String),
    /// No answer within this time.
    TimedOut(Duration),
    /// The server does not know the session any more.
    SessionExpired(String),
    /// The server refused the credential.
    CredentialRefused(String),
    /// The server wants a wider scope for this request than the credential has. Other requests work.
    InsufficientScope(String),
    /// The server refused the request for now, before acting.
    Busy {
        /// The pause it asked for.
        retry_after: Option<Duration>,
        /// The server's text.
        text: String,
    },
    /// The server failed (HTTP 5xx); whether it acted before that is unknown.
    ServerFault(String),
    /// The answer is not valid MCP.
    InvalidResponse(String),
    /// The server refused the request before acting, because the headers that repeat its arguments are not those it
    /// asks for now. The known tool list is older than the server.
    HeaderMismatch(String),
    /// The server declined with a JSON-RPC application error. The connection works.
    Declined(String),
    /// Retrying does not help.
    Blocked(BlockCause),
}

impl Failure {
    /// The failure without the server's stderr line, for clients that may not see it.
    #[must_use]
    pub fn without_stderr(self) -> Self {
        let cut = |text: String| classify::without_stderr(&text).to_owned();
        match self {
            Self::Unreachable(text) => Self::Unreachable(cut(text)),
            Self::Lost(text) => Self::Lost(cut(text)),
            Self::OutOfResources(_)
            | Self::TimedOut(_)
            | Self::SessionExpired(_)
            | Self::CredentialRefused(_)
            | Self::InsufficientScope(_)
            | Self::Busy { .. }
            | Self::ServerFault(_)
            | Self::InvalidResponse(_)
            | Self::HeaderMismatch(_)
            | Self::Declined(_)
            | Self::Blocked(_) => self,
        }
    }

    /// The failure without known secrets and words that look like a token. Control characters are escaped.
    #[must_use]
    pub fn redacted(self, known: &KnownSecrets) -> Self {
        let masked = |text: String| escaped(&known.text(&text)).into_owned();
        match self {
            Self::Unreachable(text) => Self::Unreachable(masked(text)),
            Self::OutOfResources(text) => Self::OutOfResources(masked(text)),
            Self::Lost(text) => Self::Lost(masked(text)),
            Self::TimedOut(after) => Self::TimedOut(after),
            Self::SessionExpired(text) => Self::SessionExpired(masked(text)),
            Self::CredentialRefused(text) => Self::CredentialRefused(masked(text)),
            Self::InsufficientScope(text) => Self::InsufficientScope(masked(text)),
            Self::Busy { retry_after, text } => Self::Busy { retry_after, text: masked(text) },
            Self::ServerFault(text) => Self::ServerFault(masked(text)),
            Self::InvalidResponse(text) => Self::InvalidResponse(masked(text)),
            Self::HeaderMismatch(text) => Self::HeaderMismatch(masked(text)),
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

/// The cause for which an upstream cannot work until something changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BlockCause {
    /// The command does not exist or may not be run.
    MissingExecutable(String),
    /// A variable that the config names is not set.
    UnsetVariable(String),
    /// The config cannot be used as it is.
    BadConfig(String),
    /// The URL answers, but not as an MCP server.
    NotMcp(String),
    /// A person has to log in, or correct the credential.
    NeedsLogin(String),
}

impl BlockCause {
    /// The cause as text.
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
            | Self::OutOfResources(text)
            | Self::Lost(text)
            | Self::SessionExpired(text)
            | Self::CredentialRefused(text)
            | Self::InsufficientScope(text)
            | Self::ServerFault(text)
            | Self::InvalidResponse(text)
            | Self::HeaderMismatch(text)
            | Self::Declined(text)
            | Self::Busy { text, .. } => f.write_str(text),
            Self::TimedOut(after) => write!(f, "no answer within {}", crate::text::duration(*after)),
            Self::Blocked(cause) => f.write_str(cause.text()),
        }
    }
}
