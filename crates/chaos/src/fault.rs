//! The list of faults: each value says what breaks, on which transports, and which effects on clients are allowed.
//! Module `strike` applies a fault, `fault_setup` holds the setup that it needs.

use std::fmt;
use std::str::FromStr;

use serde::Serialize;

use crate::proxy::Break;

/// A failure of a server or of the connection to it.
#[derive(Debug, Clone, Copy)]
pub struct Fault {
    /// Name on the command line and in reports.
    pub name: &'static str,
    /// One-sentence description for reports.
    pub description: &'static str,
    /// Transports on which the fault can occur.
    pub transports: &'static [Transport],
    /// Action that causes the fault.
    pub action: FaultAction,
    /// Activity of callers while the fault is active.
    pub callers: CallerActivity,
    /// Calls that may be lost.
    pub allowed_loss: Loss,
    /// Permission for calls to end with an unknown outcome.
    pub unknown_outcome: Allowed,
}

/// Transport between gateway and server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Transport {
    /// A child process over stdio.
    Stdio,
    /// Streamable HTTP.
    Http,
    /// HTTP+SSE.
    Sse,
}

/// Activity of callers while the fault is active.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallerActivity {
    /// No calls during the strike; callers resume right after it.
    Paused,
    /// Calls at a steady rate that are answered immediately.
    FastCalls,
    /// Calls at a steady rate that each take a while, so that some are always in flight.
    SlowCalls,
}

/// Calls that may be lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Loss {
    /// None.
    Never,
    /// Calls that ended with one of these codes, for which the gateway documents an immediate error instead of
    /// holding the call.
    WithCodes {
        /// Allowed error codes.
        codes: &'static [&'static str],
        /// Documented behaviour that allows the loss.
        why: &'static str,
    },
}

impl Loss {
    /// True if a call that ended with this error code may be lost.
    #[must_use]
    pub fn allows(self, code: &str) -> bool {
        match self {
            Self::Never => false,
            Self::WithCodes { codes, why: _ } => codes.contains(&code),
        }
    }
}

/// Permission for an outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Allowed {
    /// Not allowed.
    Never,
    /// Allowed.
    Sometimes,
}

/// Action that causes a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FaultAction {
    /// Kills the child.
    Kill,
    /// Kills the child while a standby is ready.
    KillWithStandby,
    /// Kills the child ten times, once a second, whatever its state.
    KillTenTimes,
    /// Kills the child; its successors are faulty for a while.
    KillWithFaultySuccessor(SuccessorFault),
    /// Kills the child; its successor starts slowly.
    SlowStart,
    /// Stops the server with SIGSTOP. A child stays stopped; a remote server continues after a while.
    Freeze,
    /// Makes the child write invalid lines and partial messages to stdout.
    Junk,
    /// Makes the server answer a call with one very large message.
    HugeFrame,
    /// Makes the child flood its stderr.
    FloodStderr,
    /// Kills a child whose own children hold its pipes open.
    KillParent,
    /// Kills the server and restarts it after a while without its sessions.
    Restart(ExpiryAnswer),
    /// Makes the server drop its sessions while it keeps running.
    ExpireSession,
    /// Breaks off some answers halfway.
    BreakAnswers(Break),
    /// Stops all traffic for a while; existing connections never recover.
    BlackHole,
    /// Delivers answers in small pieces for a while.
    TrickleAnswers,
    /// Makes the server refuse every request for a while.
    Refuse(Status),
    /// Makes the server require another token that the config already contains.
    ExpireToken(Challenge),
    /// Makes the server require another token that the config contains only later.
    LoseToken,
    /// Restarts the server; its host name resolves only after a while.
    FailDns,
    /// Starts the server after the gateway.
    StartLate,
    /// Replaces the server with another one that has other tools.
    ReplaceTools,
    /// Kills and restarts the gateway.
    KillGateway,
    /// Kills the child every time it is back.
    KillOnReturn,
}

/// Fault of the successors of a killed child.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SuccessorFault {
    /// They exit at start, within the restart budget.
    Exits,
    /// They exit at start, more often than the restart budget allows.
    CrashLoops,
    /// They never answer the handshake.
    NeverHandshakes,
}

/// Response of a server to an unknown session id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExpiryAnswer {
    /// 404.
    NotFound,
    /// 400 with a JSON-RPC error without an id.
    BadRequest,
}

/// Status of a server that refuses every request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// 500.
    InternalError,
    /// 429 with Retry-After.
    TooManyRequests,
}

/// Presence of a challenge in a 401 response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Challenge {
    /// With `WWW-Authenticate`.
    Present,
    /// Without `WWW-Authenticate`.
    Missing,
}

/// Thoroughness of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunLength {
    /// Once, with short waits. Every test run uses it to check the counts.
    Short,
    /// Several times, with waits of a few seconds.
    Ordinary,
    /// With the waits that are typical of the fault in practice, and a thousand kills.
    Long,
}

impl RunLength {
    /// Returns whether the run measures times. A short run only counts calls; other tests may use all processors at the
    /// same time, and attackers with the idle policy would then attempt nothing.
    #[must_use]
    pub fn measures_times(self) -> bool {
        self != Self::Short
    }
}

impl RunLength {
    /// Picks the value for this run length.
    #[must_use]
    pub fn pick<T>(self, short: T, ordinary: T, long: T) -> T {
        match self {
            Self::Short => short,
            Self::Ordinary => ordinary,
            Self::Long => long,
        }
    }
}

const PARKED: Loss =
    Loss::WithCodes { codes: &["unreachable"], why: "calls to a parked server fail immediately (B03, C04)" };
const NEEDS_LOGIN: Loss = Loss::WithCodes {
    codes: &["needs_login"],
    why: "calls to a server that needs a login fail immediately (C04, E03)",
};

const STDIO: &[Transport] = &[Transport::Stdio];
const HTTP: &[Transport] = &[Transport::Http];
const REMOTE: &[Transport] = &[Transport::Http, Transport::Sse];
const ALL: &[Transport] = &[Transport::Stdio, Transport::Http, Transport::Sse];

/// All faults. Clock jumps are not included: they cannot be applied to a single process. The core stories in
/// [`CLOCK_JUMP`] cover them in virtual time.
pub const FAULTS: &[Fault] = &[
    Fault {
        name: "killed-idle",
        description: "the child is killed while no call is in flight",
        transports: STDIO,
        action: FaultAction::Kill,
        callers: CallerActivity::Paused,
        allowed_loss: Loss::Never,
        unknown_outcome: Allowed::Never,
    },
    Fault {
        name: "killed-with-spare",
        description: "the child is killed while a spare is ready (`spare = 1`)",
        transports: STDIO,
        action: FaultAction::KillWithStandby,
        callers: CallerActivity::Paused,
        allowed_loss: Loss::Never,
        unknown_outcome: Allowed::Never,
    },
    Fault {
        name: "killed-in-call",
        description: "the child is killed with calls in flight",
        transports: STDIO,
        action: FaultAction::Kill,
        callers: CallerActivity::SlowCalls,
        allowed_loss: Loss::Never,
        unknown_outcome: Allowed::Sometimes,
    },
    Fault {
        name: "killed-ten-times",
        description: "the child is killed ten times in ten seconds",
        transports: STDIO,
        action: FaultAction::KillTenTimes,
        callers: CallerActivity::FastCalls,
        allowed_loss: Loss::Never,
        unknown_outcome: Allowed::Sometimes,
    },
    Fault {
        name: "killed-over-and-over",
        description: "the child is killed every time it is back, a thousand times",
        transports: STDIO,
        action: FaultAction::KillOnReturn,
        callers: CallerActivity::FastCalls,
        allowed_loss: Loss::Never,
        unknown_outcome: Allowed::Sometimes,
    },
    Fault {
        name: "leaves-grandchildren",
        description: "a child whose own children hold its pipes open is killed",
        transports: STDIO,
        action: FaultAction::KillParent,
        callers: CallerActivity::FastCalls,
        allowed_loss: Loss::Never,
        unknown_outcome: Allowed::Sometimes,
    },
    Fault {
        name: "exits-at-start",
        description: "the child is killed, and its successors exit at start for five seconds (`--long`: a minute)",
        transports: STDIO,
        action: FaultAction::KillWithFaultySuccessor(SuccessorFault::Exits),
        callers: CallerActivity::FastCalls,
        allowed_loss: Loss::Never,
        unknown_outcome: Allowed::Sometimes,
    },
    Fault {
        name: "crash-loop",
        description: "the same with the default restart budget: the server is parked, and calls fail immediately",
        transports: STDIO,
        action: FaultAction::KillWithFaultySuccessor(SuccessorFault::CrashLoops),
        callers: CallerActivity::FastCalls,
        allowed_loss: PARKED,
        unknown_outcome: Allowed::Sometimes,
    },
    Fault {
        name: "never-initializes",
        description: "the child is killed, and its successors do not answer the handshake for a while",
        transports: STDIO,
        action: FaultAction::KillWithFaultySuccessor(SuccessorFault::NeverHandshakes),
        callers: CallerActivity::FastCalls,
        allowed_loss: Loss::Never,
        unknown_outcome: Allowed::Sometimes,
    },
    Fault {
        name: "slow-start",
        description: "the child is killed, and each start takes three seconds (`--long`: 30 seconds)",
        transports: STDIO,
        action: FaultAction::SlowStart,
        callers: CallerActivity::FastCalls,
        allowed_loss: Loss::Never,
        unknown_outcome: Allowed::Sometimes,
    },
    Fault {
        name: "frozen",
        description: "the server is stopped by SIGSTOP; a remote one continues after a while",
        transports: ALL,
        action: FaultAction::Freeze,
        callers: CallerActivity::FastCalls,
        allowed_loss: Loss::Never,
        unknown_outcome: Allowed::Sometimes,
    },
    Fault {
        name: "junk-on-stdout",
        description: "the child writes invalid lines and partial messages to stdout",
        transports: STDIO,
        action: FaultAction::Junk,
        callers: CallerActivity::FastCalls,
        allowed_loss: Loss::Never,
        unknown_outcome: Allowed::Never,
    },
    Fault {
        name: "huge-frame",
        description: "a call is answered with a message of 100 MiB",
        transports: ALL,
        action: FaultAction::HugeFrame,
        callers: CallerActivity::FastCalls,
        allowed_loss: Loss::Never,
        unknown_outcome: Allowed::Sometimes,
    },
    Fault {
        name: "fills-stderr",
        description: "the child writes 64 MiB to stderr",
        transports: STDIO,
        action: FaultAction::FloodStderr,
        callers: CallerActivity::FastCalls,
        allowed_loss: Loss::Never,
        unknown_outcome: Allowed::Never,
    },
    Fault {
        name: "restarted",
        description: "the server is killed, is back after just under two seconds (`cargo xtask test`: one second), and answers \
               404 to old sessions",
        transports: REMOTE,
        action: FaultAction::Restart(ExpiryAnswer::NotFound),
        callers: CallerActivity::FastCalls,
        allowed_loss: Loss::Never,
        unknown_outcome: Allowed::Sometimes,
    },
    Fault {
        name: "restarted-400",
        description: "the same, but it answers 400 to old sessions",
        transports: HTTP,
        action: FaultAction::Restart(ExpiryAnswer::BadRequest),
        callers: CallerActivity::FastCalls,
        allowed_loss: Loss::Never,
        unknown_outcome: Allowed::Sometimes,
    },
    Fault {
        name: "session-expired",
        description: "the server drops its sessions and keeps running",
        transports: HTTP,
        action: FaultAction::ExpireSession,
        callers: CallerActivity::FastCalls,
        allowed_loss: Loss::Never,
        unknown_outcome: Allowed::Never,
    },
    Fault {
        name: "reset",
        description: "connections are reset in the middle of an answer",
        transports: REMOTE,
        action: FaultAction::BreakAnswers(Break::Reset),
        callers: CallerActivity::FastCalls,
        allowed_loss: Loss::Never,
        unknown_outcome: Allowed::Sometimes,
    },
    Fault {
        name: "stream-cut",
        description: "event streams end in the middle of an event",
        transports: REMOTE,
        action: FaultAction::BreakAnswers(Break::Close),
        callers: CallerActivity::FastCalls,
        allowed_loss: Loss::Never,
        unknown_outcome: Allowed::Sometimes,
    },
    Fault {
        name: "black-hole",
        description: "no traffic passes for a while, and old connections never recover",
        transports: REMOTE,
        action: FaultAction::BlackHole,
        callers: CallerActivity::FastCalls,
        allowed_loss: Loss::Never,
        unknown_outcome: Allowed::Sometimes,
    },
    Fault {
        name: "slow-drip",
        description: "answers arrive in small pieces for a while",
        transports: REMOTE,
        action: FaultAction::TrickleAnswers,
        callers: CallerActivity::FastCalls,
        allowed_loss: Loss::Never,
        unknown_outcome: Allowed::Never,
    },
    Fault {
        name: "answers-500",
        description: "the server answers 500 for a while",
        transports: REMOTE,
        action: FaultAction::Refuse(Status::InternalError),
        callers: CallerActivity::FastCalls,
        allowed_loss: Loss::Never,
        unknown_outcome: Allowed::Sometimes,
    },
    Fault {
        name: "answers-429",
        description: "the server answers 429 for a while, with the duration in Retry-After",
        transports: REMOTE,
        action: FaultAction::Refuse(Status::TooManyRequests),
        callers: CallerActivity::FastCalls,
        allowed_loss: Loss::Never,
        unknown_outcome: Allowed::Never,
    },
    Fault {
        name: "token-expired",
        description: "the token in use is refused with a challenge, and the config has a new one",
        transports: HTTP,
        action: FaultAction::ExpireToken(Challenge::Present),
        callers: CallerActivity::FastCalls,
        allowed_loss: Loss::Never,
        unknown_outcome: Allowed::Never,
    },
    Fault {
        name: "token-expired-bare",
        description: "the same, but the 401 has no challenge",
        transports: HTTP,
        action: FaultAction::ExpireToken(Challenge::Missing),
        callers: CallerActivity::FastCalls,
        allowed_loss: Loss::Never,
        unknown_outcome: Allowed::Never,
    },
    Fault {
        name: "token-missing",
        description: "the token in use is refused until the config has a new one; meanwhile calls fail immediately",
        transports: HTTP,
        action: FaultAction::LoseToken,
        callers: CallerActivity::FastCalls,
        allowed_loss: NEEDS_LOGIN,
        unknown_outcome: Allowed::Never,
    },
    Fault {
        name: "name-lost",
        description: "the server is restarted, and its host name does not resolve for a while",
        transports: HTTP,
        action: FaultAction::FailDns,
        callers: CallerActivity::FastCalls,
        allowed_loss: Loss::Never,
        unknown_outcome: Allowed::Sometimes,
    },
    Fault {
        name: "down-at-start",
        description: "the server starts after the gateway",
        transports: REMOTE,
        action: FaultAction::StartLate,
        callers: CallerActivity::FastCalls,
        allowed_loss: Loss::Never,
        unknown_outcome: Allowed::Never,
    },
    Fault {
        name: "other-tools",
        description: "the server is replaced by one with other tools",
        transports: ALL,
        action: FaultAction::ReplaceTools,
        callers: CallerActivity::FastCalls,
        allowed_loss: Loss::Never,
        unknown_outcome: Allowed::Sometimes,
    },
    Fault {
        name: "gateway-killed",
        description: "the gateway is killed and started again",
        transports: ALL,
        action: FaultAction::KillGateway,
        callers: CallerActivity::SlowCalls,
        allowed_loss: Loss::Never,
        unknown_outcome: Allowed::Sometimes,
    },
];

/// Core stories that cover clock jumps.
pub const CLOCK_JUMP: &[&str] = &[
    "b10_after_a_suspend_the_link_is_probed_before_use",
    "b10_after_a_suspend_idle_links_are_probed_one_after_another",
    "b10_a_clock_that_is_set_back_moves_nothing_and_a_suspend_after_it_is_noticed",
];

impl Fault {
    /// Finds a fault by name.
    #[must_use]
    pub fn by_name(name: &str) -> Option<&'static Self> {
        FAULTS.iter().find(|fault| fault.name == name)
    }
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Stdio => "stdio",
            Self::Http => "http",
            Self::Sse => "sse",
        })
    }
}

impl FromStr for Transport {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let known = ALL.iter().find(|transport| transport.to_string() == text);
        known.copied().ok_or_else(|| "expected one of stdio, http, sse".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fault_names_are_unique() {
        let names: std::collections::BTreeSet<_> = FAULTS.iter().map(|fault| fault.name).collect();
        assert_eq!(names.len(), FAULTS.len());
    }

    #[test]
    fn clock_jump_stories_exist() {
        let stories = concat!(env!("CARGO_MANIFEST_DIR"), "/../core/tests/stories/supervisor.rs");
        let stories = std::fs::read_to_string(stories).unwrap();
        for story in CLOCK_JUMP {
            assert!(stories.contains(&format!("fn {story}()")), "story {story} does not exist");
        }
    }
}
