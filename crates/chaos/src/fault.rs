//! The faults: each a small value that says what breaks, on which transports, and what a client may notice of it.
//! How a fault strikes is in `strike`, what it needs on the stage in `scene`.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::Serialize;

use crate::proxy::Break;

/// One way in which a server, or the way to it, breaks.
#[derive(Debug, Clone, Copy)]
pub struct Fault {
    /// What it is called on the command line and in reports.
    pub name: &'static str,
    /// What happens, in a sentence.
    pub what: &'static str,
    /// Where it can happen.
    pub transports: &'static [Transport],
    /// What is done.
    pub act: Act,
    /// What callers do meanwhile.
    pub callers: Callers,
    /// Which calls may be lost.
    pub lost: Loss,
    /// Whether a call may end with nobody knowing whether it was carried out.
    pub unknown: Allowed,
}

/// How a gateway reaches the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Transport {
    /// A child on pipes.
    Stdio,
    /// Streamable HTTP.
    Http,
    /// HTTP+SSE.
    Sse,
}

/// What callers do while the fault strikes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Callers {
    /// They rest, and begin again right after the blow.
    Rest,
    /// They call steadily, and answers come at once.
    Call,
    /// They call steadily, and each call takes a while, so that some are always under way.
    Wait,
}

/// Which calls may be lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Loss {
    /// None.
    Never,
    /// Those whose callers were told one of these codes, which a promise has answered at once and not held.
    As {
        /// The codes.
        codes: &'static [&'static str],
        /// The promise.
        why: &'static str,
    },
}

impl Loss {
    /// Whether a call may be lost whose caller was told this.
    #[must_use]
    pub fn allows(self, code: &str) -> bool {
        match self {
            Self::Never => false,
            Self::As { codes, why: _ } => codes.contains(&code),
        }
    }
}

/// Whether something may happen at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Allowed {
    /// Never.
    Never,
    /// It may.
    Sometimes,
}

/// What is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Act {
    /// The child is killed.
    Kill,
    /// The child is killed while a second one stands ready.
    KillSpared,
    /// The child is killed ten times, once a second, however far it has come.
    KillTenTimes,
    /// The child is killed, and its successors are sick for a while.
    Relapse(Sickness),
    /// The child is killed, and its successor takes long to start.
    SlowStart,
    /// The server is stopped with SIGSTOP. A child stays so; a remote server goes on after a while.
    Freeze,
    /// A child writes lines to stdout that are no messages, and halves of messages.
    Junk,
    /// The server answers a call with one enormous message.
    HugeFrame,
    /// The child fills its stderr.
    FloodStderr,
    /// The child, which has children of its own on its pipes, is killed.
    KillParent,
    /// The server is killed, is away for a while, and starts again without its sessions.
    Restart(SessionForm),
    /// The server forgets its sessions and goes on.
    ExpireSession,
    /// Some answers break off in their middle.
    BreakAnswers(Break),
    /// Nothing passes for a while, and connections from before never move again.
    BlackHole,
    /// Answers come drop by drop for a while.
    Drip,
    /// The server refuses everything for a while.
    Refuse(Status),
    /// The server wants another token from now on, which the config has already.
    ExpireToken(Challenge),
    /// The server wants another token from now on, which the config has by and by.
    LoseToken,
    /// The server is started anew, and its name resolves only after a while.
    LoseName,
    /// The gateway starts, and the server later.
    StartLate,
    /// Another server, with other tools, takes the place of this one.
    OtherTools,
    /// The gateway itself is killed and started again.
    KillGateway,
    /// The child is killed again and again, as soon as it is back.
    KillOver,
}

/// What ails the successors of a killed child.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sickness {
    /// They exit at start, and the restart budget allows for that.
    Exits,
    /// They exit at start, more often than the restart budget allows.
    CrashLoops,
    /// They never answer a handshake.
    Mute,
}

/// How a server refuses a session that it does not know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SessionForm {
    /// 404.
    NotFound,
    /// 400 and an error without id.
    BadRequest,
}

/// How a server refuses everything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// 500.
    Fault,
    /// 429 with Retry-After.
    TooMany,
}

/// Whether a 401 says what is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Challenge {
    /// With `WWW-Authenticate`.
    Given,
    /// Without.
    Missing,
}

/// How thoroughly a fault is tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// Once, with short waits: for the counts, in every test run.
    Short,
    /// Several times, with waits that a person can sit through.
    Ordinary,
    /// With the waits that the fault is known for, and a thousand kills.
    Long,
}

impl Form {
    /// The span that fits.
    #[must_use]
    pub fn span(self, short: Duration, ordinary: Duration, long: Duration) -> Duration {
        match self {
            Self::Short => short,
            Self::Ordinary => ordinary,
            Self::Long => long,
        }
    }
}

const PARKED: Loss = Loss::As { codes: &["unreachable"], why: "a parked server answers at once (B03, C04)" };
const NEEDS_LOGIN: Loss = Loss::As {
    codes: &["needs_login"],
    why: "a server that a person has to mend answers at once (C04, E03)",
};

const STDIO: &[Transport] = &[Transport::Stdio];
const HTTP: &[Transport] = &[Transport::Http];
const REMOTE: &[Transport] = &[Transport::Http, Transport::Sse];
const ALL: &[Transport] = &[Transport::Stdio, Transport::Http, Transport::Sse];

/// All of them. The jump of a clock is not among them: it cannot be done to one process, and is told in virtual time
/// by the stories of [`CLOCK_JUMP`].
pub const FAULTS: &[Fault] = &[
    Fault {
        name: "killed-idle",
        what: "the child is killed while nobody calls",
        transports: STDIO,
        act: Act::Kill,
        callers: Callers::Rest,
        lost: Loss::Never,
        unknown: Allowed::Never,
    },
    Fault {
        name: "killed-with-spare",
        what: "the child is killed while a spare stands ready (`spare = 1`)",
        transports: STDIO,
        act: Act::KillSpared,
        callers: Callers::Rest,
        lost: Loss::Never,
        unknown: Allowed::Never,
    },
    Fault {
        name: "killed-in-call",
        what: "the child is killed with calls under way",
        transports: STDIO,
        act: Act::Kill,
        callers: Callers::Wait,
        lost: Loss::Never,
        unknown: Allowed::Sometimes,
    },
    Fault {
        name: "killed-ten-times",
        what: "the child is killed ten times in ten seconds",
        transports: STDIO,
        act: Act::KillTenTimes,
        callers: Callers::Call,
        lost: Loss::Never,
        unknown: Allowed::Sometimes,
    },
    Fault {
        name: "killed-over-and-over",
        what: "the child is killed as soon as it is back, a thousand times",
        transports: STDIO,
        act: Act::KillOver,
        callers: Callers::Call,
        lost: Loss::Never,
        unknown: Allowed::Sometimes,
    },
    Fault {
        name: "leaves-grandchildren",
        what: "a child whose own children hold its pipes open is killed",
        transports: STDIO,
        act: Act::KillParent,
        callers: Callers::Call,
        lost: Loss::Never,
        unknown: Allowed::Sometimes,
    },
    Fault {
        name: "exits-at-start",
        what: "the child is killed, and its successors exit at start for five seconds (`--long`: a minute)",
        transports: STDIO,
        act: Act::Relapse(Sickness::Exits),
        callers: Callers::Call,
        lost: Loss::Never,
        unknown: Allowed::Sometimes,
    },
    Fault {
        name: "crash-loop",
        what: "the same, with the restart budget at its default: the server is parked, and calls are answered at once",
        transports: STDIO,
        act: Act::Relapse(Sickness::CrashLoops),
        callers: Callers::Call,
        lost: PARKED,
        unknown: Allowed::Sometimes,
    },
    Fault {
        name: "never-initializes",
        what: "the child is killed, and its successors do not answer the handshake for a while",
        transports: STDIO,
        act: Act::Relapse(Sickness::Mute),
        callers: Callers::Call,
        lost: Loss::Never,
        unknown: Allowed::Sometimes,
    },
    Fault {
        name: "slow-start",
        what: "the child is killed, and each start takes three seconds (`--long`: half a minute)",
        transports: STDIO,
        act: Act::SlowStart,
        callers: Callers::Call,
        lost: Loss::Never,
        unknown: Allowed::Sometimes,
    },
    Fault {
        name: "frozen",
        what: "the server is stopped by SIGSTOP, a remote one for a while only",
        transports: ALL,
        act: Act::Freeze,
        callers: Callers::Call,
        lost: Loss::Never,
        unknown: Allowed::Sometimes,
    },
    Fault {
        name: "junk-on-stdout",
        what: "the child writes lines that are no messages, and halves of messages",
        transports: STDIO,
        act: Act::Junk,
        callers: Callers::Call,
        lost: Loss::Never,
        unknown: Allowed::Never,
    },
    Fault {
        name: "huge-frame",
        what: "a call is answered with a message of 100 MiB",
        transports: ALL,
        act: Act::HugeFrame,
        callers: Callers::Call,
        lost: Loss::Never,
        unknown: Allowed::Sometimes,
    },
    Fault {
        name: "fills-stderr",
        what: "the child writes 64 MiB to stderr",
        transports: STDIO,
        act: Act::FloodStderr,
        callers: Callers::Call,
        lost: Loss::Never,
        unknown: Allowed::Never,
    },
    Fault {
        name: "restarted",
        what: "the server is killed, is away for just under two seconds (in `cargo xtask test`: for one), and answers 404 to sessions \
               from before",
        transports: REMOTE,
        act: Act::Restart(SessionForm::NotFound),
        callers: Callers::Call,
        lost: Loss::Never,
        unknown: Allowed::Sometimes,
    },
    Fault {
        name: "restarted-400",
        what: "the same, and it answers 400 to sessions from before",
        transports: HTTP,
        act: Act::Restart(SessionForm::BadRequest),
        callers: Callers::Call,
        lost: Loss::Never,
        unknown: Allowed::Sometimes,
    },
    Fault {
        name: "session-expired",
        what: "the server forgets its sessions and goes on",
        transports: HTTP,
        act: Act::ExpireSession,
        callers: Callers::Call,
        lost: Loss::Never,
        unknown: Allowed::Never,
    },
    Fault {
        name: "reset",
        what: "connections are reset in the middle of an answer",
        transports: REMOTE,
        act: Act::BreakAnswers(Break::Reset),
        callers: Callers::Call,
        lost: Loss::Never,
        unknown: Allowed::Sometimes,
    },
    Fault {
        name: "stream-cut",
        what: "event streams end in the middle of an event",
        transports: REMOTE,
        act: Act::BreakAnswers(Break::Close),
        callers: Callers::Call,
        lost: Loss::Never,
        unknown: Allowed::Sometimes,
    },
    Fault {
        name: "black-hole",
        what: "nothing passes for a while, and old connections stay silent for good",
        transports: REMOTE,
        act: Act::BlackHole,
        callers: Callers::Call,
        lost: Loss::Never,
        unknown: Allowed::Sometimes,
    },
    Fault {
        name: "slow-drip",
        what: "answers come drop by drop for a while",
        transports: REMOTE,
        act: Act::Drip,
        callers: Callers::Call,
        lost: Loss::Never,
        unknown: Allowed::Never,
    },
    Fault {
        name: "answers-500",
        what: "the server answers 500 for a while",
        transports: REMOTE,
        act: Act::Refuse(Status::Fault),
        callers: Callers::Call,
        lost: Loss::Never,
        unknown: Allowed::Sometimes,
    },
    Fault {
        name: "answers-429",
        what: "the server answers 429 for a while, and Retry-After says for how long",
        transports: REMOTE,
        act: Act::Refuse(Status::TooMany),
        callers: Callers::Call,
        lost: Loss::Never,
        unknown: Allowed::Never,
    },
    Fault {
        name: "token-expired",
        what: "the token in use is refused with a challenge, and the config has another",
        transports: HTTP,
        act: Act::ExpireToken(Challenge::Given),
        callers: Callers::Call,
        lost: Loss::Never,
        unknown: Allowed::Never,
    },
    Fault {
        name: "token-expired-bare",
        what: "the same, and the 401 says nothing",
        transports: HTTP,
        act: Act::ExpireToken(Challenge::Missing),
        callers: Callers::Call,
        lost: Loss::Never,
        unknown: Allowed::Never,
    },
    Fault {
        name: "token-missing",
        what: "the token in use is refused until somebody brings another; meanwhile calls are answered at once",
        transports: HTTP,
        act: Act::LoseToken,
        callers: Callers::Call,
        lost: NEEDS_LOGIN,
        unknown: Allowed::Never,
    },
    Fault {
        name: "name-lost",
        what: "the server is started anew, and its name does not resolve for a while",
        transports: HTTP,
        act: Act::LoseName,
        callers: Callers::Call,
        lost: Loss::Never,
        unknown: Allowed::Sometimes,
    },
    Fault {
        name: "down-at-start",
        what: "the server starts after the gateway",
        transports: REMOTE,
        act: Act::StartLate,
        callers: Callers::Call,
        lost: Loss::Never,
        unknown: Allowed::Never,
    },
    Fault {
        name: "other-tools",
        what: "another server with other tools takes its place",
        transports: ALL,
        act: Act::OtherTools,
        callers: Callers::Call,
        lost: Loss::Never,
        unknown: Allowed::Sometimes,
    },
    Fault {
        name: "gateway-killed",
        what: "the gateway is killed and started again",
        transports: ALL,
        act: Act::KillGateway,
        callers: Callers::Wait,
        lost: Loss::Never,
        unknown: Allowed::Sometimes,
    },
];

/// The stories of the core that tell of a clock that jumps.
pub const CLOCK_JUMP: &[&str] = &[
    "b10_after_a_suspend_the_link_is_probed_before_it_is_trusted",
    "b10_after_a_suspend_idle_links_are_probed_one_after_another",
    "b10_a_clock_that_is_set_back_moves_nothing_and_a_suspend_after_it_is_noticed",
];

impl Fault {
    /// The one of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<&'static Self> {
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
        known.copied().ok_or_else(|| "one of stdio, http, sse".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_fault_has_a_name_of_its_own() {
        let names: std::collections::BTreeSet<_> = FAULTS.iter().map(|fault| fault.name).collect();
        assert_eq!(names.len(), FAULTS.len());
    }

    #[test]
    fn the_stories_of_a_clock_that_jumps_exist() {
        let stories = concat!(env!("CARGO_MANIFEST_DIR"), "/../core/tests/stories/owner.rs");
        let stories = std::fs::read_to_string(stories).unwrap();
        for story in CLOCK_JUMP {
            assert!(stories.contains(&format!("fn {story}()")), "{story} is not told any more");
        }
    }
}
