//! The words between the machine and its shell: what the shell reports, and what it is to do.

use super::Role;
use crate::failure::{Evidence, Failure, Observed};
use crate::ids::{Epoch, SecondId};
use crate::supervise::keepalive::Probe;
use crate::supervise::link::Renewal;
use std::time::Duration;

/// What kind of thing is at the other end; it decides what counts as a restart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinkKind {
    /// A child process: every spawn but the first is a restart.
    Process,
    /// A server elsewhere: every loss of an established link is a restart; a refused dial is not.
    Remote,
}

/// What the shell reports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Input {
    /// The dial of this epoch succeeded: connected, handshake done.
    LinkUp {
        /// The epoch that the dial was given.
        epoch: Epoch,
        /// The question that fits the server's era.
        probe: Probe,
    },
    /// The dial of this epoch failed, or the link of this epoch was lost.
    LinkDown {
        /// The epoch it is about.
        epoch: Epoch,
        /// What happened.
        failure: Failure,
    },
    /// The server of this epoch said something unasked.
    Heard {
        /// The epoch it is about.
        epoch: Epoch,
    },
    /// A probe came to an end.
    ProbeEnded {
        /// The epoch it is about.
        epoch: Epoch,
        /// How.
        answer: ProbeAnswer,
    },
    /// The renewal of this epoch came to an end.
    RenewalEnded {
        /// The epoch that the renewal was given.
        epoch: Epoch,
        /// `None` if it succeeded.
        failure: Option<Failure>,
    },
    /// The catalog was listed and published.
    CatalogListed {
        /// The epoch it is about.
        epoch: Epoch,
    },
    /// The tools are listed and published; the other lists take their time.
    ToolsListed {
        /// The epoch it is about.
        epoch: Epoch,
    },
    /// The catalog was listed and published without some of its lists, which are as they were known before.
    CatalogPartlyListed {
        /// The epoch it is about.
        epoch: Epoch,
        /// Which lists are missing, and why.
        cause: String,
    },
    /// A person has to approve something of it, for this reason; or nobody has to any more.
    HeldBack {
        /// What a person has to look at.
        cause: Option<String>,
    },
    /// What this one offers is known from elsewhere; it was not asked.
    CatalogKnown {
        /// The epoch it is about.
        epoch: Epoch,
    },
    /// The catalog could not be listed.
    CatalogFailed {
        /// The epoch it is about.
        epoch: Epoch,
        /// What happened.
        failure: Failure,
    },
    /// The server says that its catalog changed.
    CatalogChanged {
        /// The epoch it is about.
        epoch: Epoch,
    },
    /// The spare of this number is connected, its handshake done.
    SpareUp {
        /// The number that it was given.
        id: SecondId,
    },
    /// The second link of this number could not be made, or was lost while it waited.
    SecondDown {
        /// The number that it was given.
        id: SecondId,
        /// What happened.
        failure: Failure,
    },
    /// The child of this epoch and its offspring hold this much memory.
    Measured {
        /// The epoch it is about.
        epoch: Epoch,
        /// In bytes.
        resident: u64,
    },
    /// An error of the server leaves a doubt whether it still knows the session.
    SessionDoubted {
        /// The epoch it is about.
        epoch: Epoch,
    },
    /// Somebody looks at the status, and wants it to be true.
    StatusRead,
    /// Somebody asks for something.
    Asked(Ask),
}

/// How a probe ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProbeAnswer {
    /// The server answered.
    Alive,
    /// The server does not know the question.
    Unsupported,
    /// It did not answer as it should.
    Failed(Failure),
}

impl ProbeAnswer {
    /// The meaning of a probe that was not answered with a result. An answer of the server proves that it lives. One that
    /// refuses the probe, in whatever form, is asked the other question before anything is concluded: a server that
    /// answers `ping` with 404 has not forgotten its session. A server that fails (5xx) at both is not well, and callers
    /// are better held than sent there.
    pub fn of(probe: Probe, evidence: &Evidence, failure: Failure) -> Self {
        let refused = match &evidence.observed {
            // A proxy speaks for a server that is not there.
            Observed::Http(answer) => !matches!(answer.status, 401 | 502..=504),
            Observed::Rpc { .. } => true,
            Observed::NoExecutable(_)
            | Observed::SpawnFailed(_)
            | Observed::LacksResources(_)
            | Observed::UnsetVariable(_)
            | Observed::BadConfig(_)
            | Observed::Dial { .. }
            | Observed::NoToken(_)
            | Observed::Closed(_)
            | Observed::TurnedAway(_)
            | Observed::Exited { .. }
            | Observed::Silence(_)
            | Observed::Garbled(_)
            | Observed::TooLarge(_)
            | Observed::NoMemory { .. } => false,
        };
        match (refused, probe, &failure) {
            (true, Probe::Ping | Probe::Discover, _) => Self::Unsupported,
            (true, Probe::ListTools, Failure::SessionExpired(_) | Failure::ServerFault(_)) => {
                Self::Failed(failure)
            }
            (true, Probe::ListTools, _) => Self::Alive,
            (false, _, _) => Self::Failed(failure),
        }
    }
}

/// What people, and other parts of the program, may ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ask {
    /// Bring it up, if it was stopped or never started.
    Start,
    /// Replace the link now.
    Reconnect,
    /// Forget all bad memories (circuit, restart budget) and replace the link: one that works stays in use
    /// until the new one does.
    Reload,
    /// The cause of a block may be gone: the config changed, somebody logged in.
    CauseChanged,
    /// End it, until somebody says start. Removal asks for the same.
    Stop,
    /// The whole program ends: calls in flight may go on for this long.
    Leave {
        /// How long.
        within: Duration,
    },
}

/// What the shell is to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Connect or spawn, with the handshake; report `LinkUp` or `LinkDown` with this epoch.
    Dial {
        /// The number of the link to be.
        epoch: Epoch,
    },
    /// Use the spare of this number as the link of this epoch; report as for a dial. If it is gone, dial.
    UseSpare {
        /// The number that it was given.
        id: SecondId,
        /// The number of the link to be.
        epoch: Epoch,
    },
    /// Make a second link beside the present one, with the handshake; a replacement is listed too. Report
    /// `SpareUp`, or call [`take_over`](super::Upstream::take_over); or report `SecondDown`.
    DialSecond {
        /// Its number.
        id: SecondId,
        /// What it is for.
        role: Role,
    },
    /// Drop the second link, made or being made.
    DropSecond,
    /// Drop the link of this epoch, which was replaced.
    HangUpRetired {
        /// Its last epoch.
        epoch: Epoch,
    },
    /// Look how much memory the child holds; report `Measured`.
    Measure {
        /// The present epoch.
        epoch: Epoch,
    },
    /// Drop the link, or the dial that is under way.
    HangUp(Manner),
    /// End the calls under way, on whatever link they are: they had the time that they have after a stop.
    EndCalls,
    /// Ask the server whether it listens; report `ProbeEnded`.
    Probe {
        /// The present epoch.
        epoch: Epoch,
        /// What to ask.
        probe: Probe,
    },
    /// Replace session or credential and keep the link; report `RenewalEnded` with this epoch.
    Renew {
        /// The number of the session to be.
        epoch: Epoch,
        /// What to replace.
        renewal: Renewal,
    },
    /// List the catalog, publish what changed; report `CatalogListed`, `CatalogPartlyListed` or
    /// `CatalogFailed`, and `ToolsListed` before that if the other lists are slow.
    ListCatalog {
        /// The present epoch.
        epoch: Epoch,
    },
}

/// How a link is ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Manner {
    /// Say goodbye and give it time.
    Politely,
    /// It does not answer anyway.
    AtOnce,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::classify::classify;
    use crate::failure::{During, HttpAnswer};

    /// D05
    #[test]
    fn d05_a_refused_probe_is_no_failure_before_the_other_question_was_asked() {
        let ended = |probe: Probe, status: u16| {
            let answer = HttpAnswer { status, had_session: true, ..HttpAnswer::default() };
            let evidence = Evidence::sent(During::Probe, Observed::Http(answer));
            ProbeAnswer::of(probe, &evidence, classify(&evidence))
        };
        for status in [400, 404, 405, 410, 500, 501] {
            assert_eq!(ended(Probe::Ping, status), ProbeAnswer::Unsupported, "{status}");
            assert_eq!(ended(Probe::Discover, status), ProbeAnswer::Unsupported, "{status}");
        }
        assert_eq!(ended(Probe::ListTools, 405), ProbeAnswer::Alive);
        assert!(matches!(ended(Probe::ListTools, 404), ProbeAnswer::Failed(Failure::SessionExpired(_))));
        assert!(matches!(ended(Probe::ListTools, 410), ProbeAnswer::Failed(Failure::SessionExpired(_))));
        assert!(matches!(ended(Probe::ListTools, 500), ProbeAnswer::Failed(Failure::ServerFault(_))));
        for probe in [Probe::Ping, Probe::ListTools] {
            assert!(matches!(ended(probe, 401), ProbeAnswer::Failed(Failure::CredentialRefused(_))));
            assert!(matches!(ended(probe, 502), ProbeAnswer::Failed(Failure::ServerFault(_))));
        }
    }
}
