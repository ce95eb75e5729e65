//! Interface between the upstream machine and the supervisor task: inputs, commands and actions.

use super::StandbyRole;
use crate::failure::{Evidence, Failure, ServerAnswer};
use crate::ids::{Epoch, StandbyId};
use crate::supervise::keepalive::Probe;
use crate::supervise::link::Renewal;
use std::time::Duration;

/// Kind of server at the other end; it decides which events count as a restart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinkKind {
    /// A child process: every spawn but the first is a restart.
    Process,
    /// A remote server: every loss of an established link is a restart; a failed connection attempt is not.
    Remote,
}

/// Report of the supervisor task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Input {
    /// The connection attempt of this epoch succeeded, with the handshake.
    LinkUp {
        /// The epoch of the attempt.
        epoch: Epoch,
        /// The probe for the server's era.
        probe: Probe,
    },
    /// The connection attempt of this epoch failed, or the link of this epoch was lost.
    LinkDown {
        /// The epoch.
        epoch: Epoch,
        /// The failure.
        failure: Failure,
    },
    /// The server of this epoch sent a message.
    Received {
        /// The epoch.
        epoch: Epoch,
    },
    /// A probe ended.
    ProbeEnded {
        /// The epoch.
        epoch: Epoch,
        /// The result.
        answer: ProbeAnswer,
    },
    /// The renewal of this epoch ended.
    RenewalEnded {
        /// The epoch of the renewal.
        epoch: Epoch,
        /// `None` if it succeeded.
        failure: Option<Failure>,
    },
    /// The catalog was listed and published.
    CatalogListed {
        /// The epoch.
        epoch: Epoch,
    },
    /// The tools were listed and published; the other lists take longer.
    ToolsListed {
        /// The epoch.
        epoch: Epoch,
    },
    /// The catalog was listed and published without some of its lists, which keep their known content.
    CatalogPartlyListed {
        /// The epoch.
        epoch: Epoch,
        /// The missing lists and the cause.
        cause: String,
    },
    /// Items of the server have to be approved by an operator; or none has to any more.
    ApprovalNeeded {
        /// The items to review.
        cause: Option<String>,
    },
    /// The catalog of this instance is known from another one; it was not listed.
    CatalogKnown {
        /// The epoch.
        epoch: Epoch,
    },
    /// The catalog could not be listed.
    CatalogFailed {
        /// The epoch.
        epoch: Epoch,
        /// The failure.
        failure: Failure,
    },
    /// The server announced a changed catalog.
    CatalogChanged {
        /// The epoch.
        epoch: Epoch,
    },
    /// The spare with this number is connected, with the handshake.
    SpareUp {
        /// Its number.
        id: StandbyId,
    },
    /// The standby link with this number could not be made, or was lost while it waited.
    StandbyDown {
        /// Its number.
        id: StandbyId,
        /// The failure.
        failure: Failure,
    },
    /// The memory of the process of this epoch and its descendants was measured.
    MemoryMeasured {
        /// The epoch.
        epoch: Epoch,
        /// Resident memory in bytes.
        resident: u64,
    },
    /// An error of the server raised a doubt about the session.
    SessionDoubted {
        /// The epoch.
        epoch: Epoch,
    },
    /// The status is being read, and should be current.
    StatusRead,
    /// A command.
    Command(Command),
}

/// Result of a probe.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProbeAnswer {
    /// The server answered.
    Alive,
    /// The server does not support the probe.
    Unsupported,
    /// The probe failed.
    Failed(Failure),
}

impl ProbeAnswer {
    /// The result of a probe that was not answered with a result. Any answer of the server proves that it is alive. If
    /// the server refuses the probe, in whatever form, the fallback is tried before a conclusion: a server that answers
    /// `ping` with 404 has not forgotten its session. A server that fails (5xx) at both is unhealthy, and calls wait
    /// instead of being sent there.
    pub fn from_failure(probe: Probe, evidence: &Evidence, failure: Failure) -> Self {
        let refused = match evidence.observed.server_answer() {
            // A proxy answers for a server that is not there.
            Some(ServerAnswer::Http(answer)) => !matches!(answer.status, 401 | 502..=504),
            Some(ServerAnswer::Rpc { .. }) => true,
            None => false,
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

/// Command of an operator or another part of the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Command {
    /// Start it, if it was stopped or never started.
    Start,
    /// Replace the link now.
    Reconnect,
    /// Reset circuit and restart budget, and replace the link: a working link stays in use until the new one works.
    Reload,
    /// The cause of a block may be gone: the config changed, or a person logged in.
    CauseChanged,
    /// Stop it, until it is started again. Also used for removal.
    Stop,
    /// The program ends: calls in flight may finish within this time.
    Shutdown {
        /// The time limit.
        within: Duration,
    },
}

/// Action for the supervisor task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Connect or spawn, with the handshake; report `LinkUp` or `LinkDown` with this epoch.
    Connect {
        /// The number of the new link.
        epoch: Epoch,
    },
    /// Use the spare with this number as the link of this epoch; report as for `Connect`. If it is gone, connect.
    UseSpare {
        /// Its number.
        id: StandbyId,
        /// The number of the new link.
        epoch: Epoch,
    },
    /// Make a standby link beside the present one, with the handshake; a replacement is listed too. Report `SpareUp` or
    /// call [`take_over`](super::UpstreamMachine::take_over); on failure report `StandbyDown`.
    ConnectStandby {
        /// Its number.
        id: StandbyId,
        /// Its role.
        role: StandbyRole,
    },
    /// Drop the standby link, made or being made.
    DropStandby,
    /// Close the link of this epoch, which was replaced.
    CloseRetired {
        /// Its last epoch.
        epoch: Epoch,
    },
    /// Measure the memory of the process; report `MemoryMeasured`.
    MeasureMemory {
        /// The present epoch.
        epoch: Epoch,
    },
    /// Close the link, or cancel the connection attempt in progress.
    Close(CloseMode),
    /// End all calls in flight, on whatever link: their time after a stop is over.
    EndCalls,
    /// Send a probe; report `ProbeEnded`.
    Probe {
        /// The present epoch.
        epoch: Epoch,
        /// The probe.
        probe: Probe,
    },
    /// Replace session or credential and keep the link; report `RenewalEnded` with this epoch.
    Renew {
        /// The number of the new session.
        epoch: Epoch,
        /// The part to replace.
        renewal: Renewal,
    },
    /// List the catalog, publish what changed; report `CatalogListed`, `CatalogPartlyListed` or
    /// `CatalogFailed`, and `ToolsListed` before that if the other lists are slow.
    ListCatalog {
        /// The present epoch.
        epoch: Epoch,
    },
}

/// Way to close a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CloseMode {
    /// End the session and give the server time.
    Graceful,
    /// Without waiting, because it does not answer.
    Immediate,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::classify::classify;
    use crate::failure::{During, HttpAnswer, Observed};

    /// D05
    #[test]
    fn d05_a_refused_probe_fails_only_after_its_fallback() {
        let ended = |probe: Probe, status: u16| {
            let answer = HttpAnswer { status, had_session: true, ..HttpAnswer::default() };
            let evidence = Evidence::sent(During::Probe, Observed::Http(answer));
            ProbeAnswer::from_failure(probe, &evidence, classify(&evidence))
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
