//! Exit codes: what a script can tell from `$?` alone.

use gripfast::Code;
use std::process::ExitCode;

/// How the process ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    /// It worked.
    Ok,
    /// Anything that has no number of its own, wrong usage included.
    General,
    /// The config, or the part of it that was asked for, cannot be used.
    ConfigInvalid,
    /// A person has to log in.
    LoginNeeded,
    /// The server could not be reached, or did not answer sensibly or in time.
    Unreachable,
    /// The server answered that it failed.
    ToolError,
    /// A policy, a pin or a budget says no.
    Denied,
    /// SIGINT came, and everything was put away.
    Interrupted,
    /// SIGTERM came, and everything was put away.
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
            // What shells report for a process that the signal itself has ended: 128 and its number.
            Exit::Interrupted => 130,
            Exit::Terminated => 143,
        })
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
