//! Exit codes of the process.

use gripfast::Code;
use std::process::ExitCode;

/// The exit code by its meaning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    /// Success.
    Ok,
    /// A failure without a number of its own, usage errors included.
    General,
    /// The config, or the requested part of it, cannot be used.
    ConfigInvalid,
    /// The user has to log in.
    LoginNeeded,
    /// The server or the gateway was unreachable, or gave no valid answer in time.
    Unreachable,
    /// The server answered with an error.
    ToolError,
    /// A policy, a pin or a budget denies the call, or a credential was refused.
    Denied,
    /// SIGINT ended the process after an orderly shutdown.
    Interrupted,
    /// SIGTERM ended the process after an orderly shutdown.
    Terminated,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(match exit {
            Exit::Ok => 0,
            Exit::General => 1,
            Exit::ConfigInvalid => 2,
            Exit::LoginNeeded => 3,
            Exit::Unreachable => 4,
            Exit::ToolError => 5,
            Exit::Denied => 6,
            // 128 plus the signal number, as shells report for a process that the signal killed.
            Exit::Interrupted => 130,
            Exit::Terminated => 143,
        })
    }
}

impl Exit {
    /// The exit code for the error code of a gateway.
    pub(crate) fn from_code(code: &str) -> Self {
        match Code::parse(code) {
            Some(code) => code.into(),
            None if code == "config_invalid" => Self::ConfigInvalid,
            None => Self::General,
        }
    }
}

impl From<Code> for Exit {
    fn from(code: Code) -> Self {
        match code {
            Code::NeedsLogin => Self::LoginNeeded,
            Code::Unreachable
            | Code::Reconnecting
            | Code::Timeout
            | Code::OutcomeUnknown
            | Code::Overloaded
            | Code::Stopped
            | Code::UpstreamProtocol => Self::Unreachable,
            Code::Denied | Code::SchemaChanged | Code::BudgetExceeded => Self::Denied,
            Code::UnknownServer | Code::UnknownTool | Code::InvalidRequest | Code::Cancelled => Self::General,
        }
    }
}
