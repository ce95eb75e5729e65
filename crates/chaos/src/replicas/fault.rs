//! The list of faults of a service. Module `strike` applies them.

use std::time::Duration;

use gripfast_measure::store::Persistence;

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

/// Action that causes a fault. The replica that it hits is the first one.
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
    /// Ends and starts all replicas in turn, in order.
    RollingRestart,
    /// Stops the replica by SIGSTOP for longer than its lease.
    Stop,
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
            "owner-stopped-in-call" | "owner-killed" | "forwarder-killed" => Work::Slow,
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
            _ => Duration::from_secs(15),
        }
    }

    /// Lease of the replicas. It is long where no replica may look lost, so that a busy machine does not matter.
    #[must_use]
    pub fn lease(&self, length: RunLength) -> Duration {
        let seconds = Duration::from_secs;
        if self.takes_over() { length.pick(seconds(3), seconds(3), seconds(10)) } else { seconds(10) }
    }
}

const DURING_GRACE: Loss = Loss::WithCodes {
    codes: &["overloaded"],
    why: "after an outage of the store no session is taken over for one lease and one heartbeat: 503",
};
/// All faults.
pub const REPLICA_FAULTS: &[ReplicaFault] = &[
    ReplicaFault {
        name: "owner-killed",
        description: "the owner of all sessions is killed while other replicas forward calls to it",
        action: ReplicaAction::Kill,
        placement: SessionPlacement::AtTarget,
        allowed_loss: Loss::Never,
        unknown_outcome: Allowed::Sometimes,
        cut: Allowed::Never,
        takeovers: TakeoverRule::EachOnce,
    },
    ReplicaFault {
        name: "owner-replaced",
        description: "the same, and it is started again at once under its name",
        action: ReplicaAction::Replace,
        placement: SessionPlacement::AtTarget,
        allowed_loss: Loss::Never,
        unknown_outcome: Allowed::Sometimes,
        cut: Allowed::Never,
        takeovers: TakeoverRule::Any,
    },
    ReplicaFault {
        name: "forwarder-killed",
        description: "a replica that owns no session and forwards half of all calls is killed",
        action: ReplicaAction::Kill,
        placement: SessionPlacement::ThroughTarget,
        allowed_loss: Loss::Never,
        unknown_outcome: Allowed::Never,
        cut: Allowed::Sometimes,
        takeovers: TakeoverRule::None,
    },
    ReplicaFault {
        name: "rolling-restart",
        description: "all replicas are ended by SIGTERM and started again, one after the other",
        action: ReplicaAction::RollingRestart,
        placement: SessionPlacement::Everywhere,
        allowed_loss: Loss::Never,
        unknown_outcome: Allowed::Never,
        cut: Allowed::Never,
        takeovers: TakeoverRule::Any,
    },
    ReplicaFault {
        name: "owner-stopped",
        description: "the owner of all sessions is stopped by SIGSTOP before it reads forwarded calls, for longer than \
                      its lease, and continues",
        action: ReplicaAction::Stop,
        placement: SessionPlacement::AtTarget,
        allowed_loss: Loss::Never,
        unknown_outcome: Allowed::Sometimes,
        cut: Allowed::Never,
        takeovers: TakeoverRule::EachOnce,
    },
    ReplicaFault {
        name: "owner-stopped-in-call",
        description: "the same while calls are at the server",
        action: ReplicaAction::Stop,
        placement: SessionPlacement::AtTarget,
        allowed_loss: Loss::Never,
        unknown_outcome: Allowed::Sometimes,
        cut: Allowed::Never,
        takeovers: TakeoverRule::EachOnce,
    },
    ReplicaFault {
        name: "owner-stopped-with-stream",
        description: "the same while clients have a stream open: it ends, and the next one has the messages",
        action: ReplicaAction::Stop,
        placement: SessionPlacement::AtTarget,
        allowed_loss: Loss::Never,
        unknown_outcome: Allowed::Sometimes,
        cut: Allowed::Never,
        takeovers: TakeoverRule::EachOnce,
    },
    ReplicaFault {
        name: "store-killed",
        description: "the store is killed, and is back after two seconds (`--long`: a minute), empty",
        action: ReplicaAction::KillStore(Persistence::None),
        placement: SessionPlacement::Everywhere,
        allowed_loss: Loss::Never,
        unknown_outcome: Allowed::Never,
        cut: Allowed::Never,
        takeovers: TakeoverRule::None,
    },
    ReplicaFault {
        name: "store-killed-aof",
        description: "the same with an append-only file: it has its records when it is back",
        action: ReplicaAction::KillStore(Persistence::AppendOnlyFile),
        placement: SessionPlacement::Everywhere,
        allowed_loss: Loss::Never,
        unknown_outcome: Allowed::Never,
        cut: Allowed::Never,
        takeovers: TakeoverRule::None,
    },
    ReplicaFault {
        name: "store-emptied-after-takeover",
        description: "the owner of all sessions is killed; when they have moved, the store is emptied and the owner is \
                      back",
        action: ReplicaAction::EmptyStoreAfterTakeover,
        placement: SessionPlacement::AtTarget,
        allowed_loss: DURING_GRACE,
        unknown_outcome: Allowed::Sometimes,
        cut: Allowed::Never,
        takeovers: TakeoverRule::EachOnce,
    },
    ReplicaFault {
        name: "store-slow",
        description: "each round trip to the store takes 200 ms longer",
        action: ReplicaAction::SlowStore,
        placement: SessionPlacement::Everywhere,
        allowed_loss: Loss::Never,
        unknown_outcome: Allowed::Never,
        cut: Allowed::Never,
        takeovers: TakeoverRule::None,
    },
    ReplicaFault {
        name: "store-refused",
        description: "one replica cannot connect to the store for longer than its lease",
        action: ReplicaAction::CutFromStore(Partition::Refused),
        placement: SessionPlacement::Everywhere,
        allowed_loss: Loss::Never,
        unknown_outcome: Allowed::Sometimes,
        cut: Allowed::Never,
        takeovers: TakeoverRule::Any,
    },
    ReplicaFault {
        name: "store-dropped",
        description: "the same, but its packets to the store are swallowed",
        action: ReplicaAction::CutFromStore(Partition::Dropped),
        placement: SessionPlacement::Everywhere,
        allowed_loss: Loss::Never,
        unknown_outcome: Allowed::Sometimes,
        cut: Allowed::Never,
        takeovers: TakeoverRule::Any,
    },
    ReplicaFault {
        name: "replica-refused",
        description: "the other replicas cannot connect to one replica for longer than its lease; it reaches the store",
        action: ReplicaAction::CutFromReplicas(Partition::Refused),
        placement: SessionPlacement::Everywhere,
        allowed_loss: Loss::Never,
        unknown_outcome: Allowed::Sometimes,
        cut: Allowed::Never,
        takeovers: TakeoverRule::Any,
    },
    ReplicaFault {
        name: "replica-dropped",
        description: "the same, but the packets of the other replicas to it are swallowed",
        action: ReplicaAction::CutFromReplicas(Partition::Dropped),
        placement: SessionPlacement::Everywhere,
        allowed_loss: Loss::Never,
        unknown_outcome: Allowed::Sometimes,
        cut: Allowed::Never,
        takeovers: TakeoverRule::Any,
    },
    ReplicaFault {
        name: "two-takeovers",
        description: "the owner of all sessions is killed; then each client calls through both other replicas at the \
                      same moment",
        action: ReplicaAction::KillBetweenBursts,
        placement: SessionPlacement::AtTarget,
        allowed_loss: Loss::Never,
        unknown_outcome: Allowed::Never,
        cut: Allowed::Never,
        takeovers: TakeoverRule::EachOnce,
    },
    ReplicaFault {
        name: "old-name-back",
        description: "the owner of all sessions is killed; when they have moved, it is back under its name and gets all \
                      requests",
        action: ReplicaAction::ReturnName,
        placement: SessionPlacement::AtTarget,
        allowed_loss: Loss::Never,
        unknown_outcome: Allowed::Sometimes,
        cut: Allowed::Never,
        takeovers: TakeoverRule::EachOnce,
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
