//! The list of faults of a service. Module `strike` applies them.

use std::time::Duration;

use gripfast_measure::store::Persistence;
use gripfast_testkit::balancer::Balancer;

use crate::fault::{Allowed, Loss, RunLength};

/// A failure of a replica, of the store or of a connection between them.
#[derive(Debug, Clone, Copy)]
pub struct ReplicaFault {
    /// Name on the command line and in reports.
    pub name: &'static str,
    /// One-sentence description for reports.
    pub description: &'static str,
    /// Action that causes the fault.
    pub action: ReplicaAction,
    /// Replicas that get the sessions and the requests before the fault.
    pub placement: SessionPlacement,
    /// Calls that may be lost.
    pub allowed_loss: Loss,
    /// Permission for calls to end with an unknown outcome.
    pub unknown_outcome: Allowed,
    /// Permission for calls to lose their connection to a replica.
    pub cut: Allowed,
    /// Sessions that other replicas take over.
    pub takeovers: TakeoverRule,
}

/// Action that causes a fault. The replica that it hits is the first one; with a singleton server, its holder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplicaAction {
    /// Kills the replica, and starts it again when all clients are served.
    Kill,
    /// Kills the replica and starts it again at once.
    Replace,
    /// Kills the replica while no call is in flight; then all clients call through both others at the same moment.
    KillBetweenBursts,
    /// Kills the replica; when all clients are served, it comes back under its name and gets all requests.
    ReturnName,
    /// Ends and starts all replicas in turn, in order. Clients reach them directly or through a load balancer.
    RollingRestart(Option<Balancer>),
    /// Ends and starts all replicas in turn, three times: with the old cluster key and the new one, with the new one
    /// first, and with the new one alone.
    RotateKey,
    /// Stops the replica by SIGSTOP for longer than its lease.
    Stop,
    /// Kills the holder of a singleton server.
    KillHolder,
    /// Stops the holder of a singleton server by SIGSTOP for longer than its lease.
    StopHolder,
    /// Kills the store for a while.
    KillStore(Persistence),
    /// Kills a replica, and the store when the sessions have moved. The store is empty when it is back.
    EmptyStoreAfterTakeover,
    /// Delays all traffic to and from the store.
    SlowStore,
    /// Cuts the connections of the replica to the store, for longer than its lease.
    CutFromStore(Partition),
    /// Cuts the connections of other replicas to the replica, for longer than its lease.
    CutFromReplicas(Partition),
    /// Changes a tool of the server, and approves the change through the replica.
    ApproveTool,
    /// Spends a budget from all replicas at once. Each loses a reply of the store to a reservation.
    LoseReservations,
    /// Spends a budget from all replicas at once, and kills the replica while it holds reservations.
    KillWithReservations,
    /// Stops the replica by SIGSTOP when it may refresh a token and has not sent it, until another one has.
    StopBeforeRefresh,
    /// Kills the replica when the authorization server has answered it, before it stores the new token.
    KillInRefresh,
}

impl ReplicaAction {
    /// True if the server is a singleton of the service.
    pub(super) fn has_singleton(self) -> bool {
        matches!(self, Self::KillHolder | Self::StopHolder)
    }

    /// True if a budget limits the calls with a side effect.
    pub(super) fn has_budget(self) -> bool {
        matches!(self, Self::LoseReservations | Self::KillWithReservations)
    }

    /// True if there is a second server that needs a login.
    pub(super) fn has_login(self) -> bool {
        matches!(self, Self::StopBeforeRefresh | Self::KillInRefresh)
    }

    /// True if clients need an API key.
    pub(super) fn needs_key(self) -> bool {
        matches!(self, Self::KillStore(_))
    }

    /// True if proxies stand between the replicas and the store.
    pub(super) fn has_store_proxies(self) -> bool {
        matches!(
            self,
            Self::SlowStore | Self::CutFromStore(_) | Self::LoseReservations | Self::StopBeforeRefresh
        )
    }

    /// Load balancer between clients and replicas.
    #[must_use]
    pub fn balancer(self) -> Option<Balancer> {
        match self {
            Self::RollingRestart(balancer) => balancer,
            _ => None,
        }
    }
}

/// Kind of a cut connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Partition {
    /// Connections are refused.
    Refused,
    /// Bytes are swallowed.
    Dropped,
}

/// Replicas that get the sessions and the requests before the fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SessionPlacement {
    /// All sessions at the replica that is hit, all requests through the others.
    AtTarget,
    /// All sessions at another replica, requests through the replica that is hit and a third one.
    ThroughTarget,
    /// Sessions and requests at all replicas.
    Everywhere,
}

/// Sessions that other replicas take over during one strike.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TakeoverRule {
    /// None.
    None,
    /// Each session once.
    EachOnce,
    /// Not checked: it depends on the arrival of requests.
    Any,
}

/// Tool calls of a load.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Work {
    /// Calls are answered at once.
    Fast,
    /// Calls take a while, so that some were always sent to the server and not answered.
    Slow,
    /// Fast calls, and an open stream for messages outside of calls.
    FastWithStreams,
}

impl ReplicaFault {
    /// Tool calls of its load.
    #[must_use]
    pub fn work(&self) -> Work {
        match self.name {
            "rolling-restart" | "rolling-restart-haproxy" | "rolling-restart-nginx" => Work::Slow,
            "owner-stopped-in-call" | "owner-killed" | "forwarder-killed" | "budget-holder-killed" => {
                Work::Slow
            }
            "owner-stopped-with-stream" => Work::FastWithStreams,
            _ => Work::Fast,
        }
    }

    /// True if sessions may be taken over.
    #[must_use]
    pub fn takes_over(&self) -> bool {
        self.takeovers != TakeoverRule::None
    }

    /// Deadline of a call. It is longer than the time after which a stopped replica counts as lost, and where packets
    /// are swallowed, longer than the time after which a silent one does.
    #[must_use]
    pub fn deadline(&self) -> Duration {
        match self.action {
            ReplicaAction::CutFromReplicas(Partition::Dropped) => Duration::from_secs(50),
            // A call waits for a new holder: up to a lease, a heartbeat and the start of the server.
            ReplicaAction::KillHolder | ReplicaAction::StopHolder => Duration::from_secs(30),
            _ => Duration::from_secs(15),
        }
    }

    /// Lease of the replicas. It is long where no replica may look lost, so that a busy machine does not matter.
    #[must_use]
    pub fn lease(&self, length: RunLength) -> Duration {
        let seconds = Duration::from_secs;
        let ends_in_order =
            matches!(self.action, ReplicaAction::RollingRestart(_) | ReplicaAction::RotateKey);
        match self.takes_over() && !ends_in_order {
            true => length.pick(seconds(3), seconds(3), seconds(10)),
            false => seconds(10),
        }
    }

    /// Number of strikes, unless the caller wants another. A budget can be spent only once.
    #[must_use]
    pub fn strikes(&self, length: RunLength, wanted: Option<usize>) -> usize {
        if self.action.has_budget() { 1 } else { wanted.unwrap_or(length.pick(1, 3, 3)) }
    }
}

const DURING_GRACE: Loss = Loss::WithCodes {
    codes: &["overloaded"],
    why: "after an outage of the store no session is taken over for one lease and one heartbeat: 503",
};
const BUDGET_SPENT: Loss = Loss::WithCodes {
    codes: &["budget_exceeded", "reconnecting"],
    why: "a spent budget refuses calls; with `on_store_loss = \"refuse\"` a call that cannot be counted is not made",
};
/// A fault that clients must not notice.
const UNNOTICED: ReplicaFault = ReplicaFault {
    name: "",
    description: "",
    action: ReplicaAction::RotateKey,
    placement: SessionPlacement::Everywhere,
    allowed_loss: Loss::Never,
    unknown_outcome: Allowed::Never,
    cut: Allowed::Never,
    takeovers: TakeoverRule::Any,
};
/// A fault that costs the replica of all sessions.
const OWNER_LOST: ReplicaFault = ReplicaFault {
    placement: SessionPlacement::AtTarget,
    unknown_outcome: Allowed::Sometimes,
    takeovers: TakeoverRule::EachOnce,
    ..UNNOTICED
};
/// All faults.
pub const REPLICA_FAULTS: &[ReplicaFault] = &[
    ReplicaFault {
        name: "owner-killed",
        description: "the owner of all sessions is killed while other replicas forward calls to it",
        action: ReplicaAction::Kill,
        ..OWNER_LOST
    },
    ReplicaFault {
        name: "owner-replaced",
        description: "the same, and it is started again at once under its name",
        action: ReplicaAction::Replace,
        takeovers: TakeoverRule::Any,
        ..OWNER_LOST
    },
    ReplicaFault {
        name: "forwarder-killed",
        description: "a replica that owns no session and forwards half of all calls is killed",
        action: ReplicaAction::Kill,
        placement: SessionPlacement::ThroughTarget,
        cut: Allowed::Sometimes,
        takeovers: TakeoverRule::None,
        ..UNNOTICED
    },
    ReplicaFault {
        name: "rolling-restart",
        description: "all replicas are ended by SIGTERM and started again, one after the other",
        action: ReplicaAction::RollingRestart(None),
        ..UNNOTICED
    },
    ReplicaFault {
        name: "rolling-restart-haproxy",
        description: "the same behind HAProxy, which keeps connections open",
        action: ReplicaAction::RollingRestart(Some(Balancer::Haproxy)),
        ..UNNOTICED
    },
    ReplicaFault {
        name: "rolling-restart-nginx",
        description: "the same behind nginx",
        action: ReplicaAction::RollingRestart(Some(Balancer::Nginx)),
        ..UNNOTICED
    },
    ReplicaFault {
        name: "key-rotated",
        description: "the cluster key is replaced by three rolling restarts; sessions that the old key has sealed end before \
                      the third",
        action: ReplicaAction::RotateKey,
        ..UNNOTICED
    },
    ReplicaFault {
        name: "owner-stopped",
        description: "the owner of all sessions is stopped by SIGSTOP before it reads forwarded calls, for longer than \
                      its lease, and continues",
        action: ReplicaAction::Stop,
        ..OWNER_LOST
    },
    ReplicaFault {
        name: "owner-stopped-in-call",
        description: "the same while calls are at the server",
        action: ReplicaAction::Stop,
        ..OWNER_LOST
    },
    ReplicaFault {
        name: "owner-stopped-with-stream",
        description: "the same while clients have a stream open: it ends, and the next one has the messages",
        action: ReplicaAction::Stop,
        ..OWNER_LOST
    },
    ReplicaFault {
        name: "holder-killed",
        description: "the holder of a singleton server, which owns all sessions too, is killed",
        action: ReplicaAction::KillHolder,
        ..OWNER_LOST
    },
    ReplicaFault {
        name: "holder-stopped",
        description: "the same by SIGSTOP for longer than its lease; it continues",
        action: ReplicaAction::StopHolder,
        ..OWNER_LOST
    },
    ReplicaFault {
        name: "store-killed",
        description: "the store is killed, and is back after two seconds (`--long`: a minute), empty: no changed tool is pinned, \
                      and a removed API key stays removed",
        action: ReplicaAction::KillStore(Persistence::None),
        takeovers: TakeoverRule::None,
        ..UNNOTICED
    },
    ReplicaFault {
        name: "store-killed-aof",
        description: "the same with an append-only file: it has its records when it is back",
        action: ReplicaAction::KillStore(Persistence::AppendOnlyFile),
        takeovers: TakeoverRule::None,
        ..UNNOTICED
    },
    ReplicaFault {
        name: "store-emptied-after-takeover",
        description: "the owner of all sessions is killed; when they have moved, the store is emptied and the owner is \
                      back",
        action: ReplicaAction::EmptyStoreAfterTakeover,
        allowed_loss: DURING_GRACE,
        ..OWNER_LOST
    },
    ReplicaFault {
        name: "store-slow",
        description: "each round trip to the store takes 200 ms longer",
        action: ReplicaAction::SlowStore,
        takeovers: TakeoverRule::None,
        ..UNNOTICED
    },
    ReplicaFault {
        name: "store-refused",
        description: "one replica cannot connect to the store for longer than its lease",
        action: ReplicaAction::CutFromStore(Partition::Refused),
        unknown_outcome: Allowed::Sometimes,
        ..UNNOTICED
    },
    ReplicaFault {
        name: "store-dropped",
        description: "the same, but its packets to the store are swallowed",
        action: ReplicaAction::CutFromStore(Partition::Dropped),
        unknown_outcome: Allowed::Sometimes,
        ..UNNOTICED
    },
    ReplicaFault {
        name: "replica-refused",
        description: "the other replicas cannot connect to one replica for longer than its lease; it reaches the store",
        action: ReplicaAction::CutFromReplicas(Partition::Refused),
        unknown_outcome: Allowed::Sometimes,
        ..UNNOTICED
    },
    ReplicaFault {
        name: "replica-dropped",
        description: "the same, but the packets of the other replicas to it are swallowed",
        action: ReplicaAction::CutFromReplicas(Partition::Dropped),
        unknown_outcome: Allowed::Sometimes,
        ..UNNOTICED
    },
    ReplicaFault {
        name: "two-takeovers",
        description: "the owner of all sessions is killed; then each client calls through both other replicas at the \
                      same moment",
        action: ReplicaAction::KillBetweenBursts,
        unknown_outcome: Allowed::Never,
        ..OWNER_LOST
    },
    ReplicaFault {
        name: "old-name-back",
        description: "the owner of all sessions is killed; when they have moved, it is back under its name and gets all \
                      requests",
        action: ReplicaAction::ReturnName,
        ..OWNER_LOST
    },
    ReplicaFault {
        name: "tool-approved",
        description: "a tool changes, and the change is approved through one replica: all offer the tool again",
        action: ReplicaAction::ApproveTool,
        takeovers: TakeoverRule::None,
        ..UNNOTICED
    },
    ReplicaFault {
        name: "budget-reply-lost",
        description: "a budget is spent from all replicas at once, and each loses a reply of the store to a reservation",
        action: ReplicaAction::LoseReservations,
        allowed_loss: BUDGET_SPENT,
        takeovers: TakeoverRule::None,
        ..UNNOTICED
    },
    ReplicaFault {
        name: "budget-holder-killed",
        description: "a budget is spent from all replicas at once, and one is killed while it holds reservations",
        action: ReplicaAction::KillWithReservations,
        allowed_loss: BUDGET_SPENT,
        unknown_outcome: Allowed::Sometimes,
        cut: Allowed::Sometimes,
        ..UNNOTICED
    },
    ReplicaFault {
        name: "refresh-stopped",
        description: "two replicas want to refresh a token; the first is stopped by SIGSTOP before it sends it",
        action: ReplicaAction::StopBeforeRefresh,
        placement: SessionPlacement::AtTarget,
        takeovers: TakeoverRule::None,
        ..UNNOTICED
    },
    ReplicaFault {
        name: "refresh-killed",
        description: "a replica is killed after the authorization server has answered its refresh: the login ends",
        action: ReplicaAction::KillInRefresh,
        ..OWNER_LOST
    },
];

impl ReplicaFault {
    /// Finds a fault by name.
    #[must_use]
    pub fn by_name(name: &str) -> Option<&'static Self> {
        REPLICA_FAULTS.iter().find(|fault| fault.name == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fault::FAULTS;

    #[test]
    fn names_are_unique_among_all_faults() {
        let others = FAULTS.iter().map(|fault| fault.name);
        let names: Vec<_> = REPLICA_FAULTS.iter().map(|fault| fault.name).chain(others).collect();
        let unique: std::collections::BTreeSet<_> = names.iter().collect();
        assert_eq!(names.len(), unique.len());
    }
}
