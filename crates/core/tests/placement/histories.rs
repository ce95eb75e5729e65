//! Random histories of three replicas, their store and the network. proptest prints the seed of a failing history and
//! shrinks it.

use crate::service_simulation::{ClaimFailover, NODES, ServiceSimulation, Wire};
use crate::{MS, SEC};
use gripfast_core::placement::place::SessionId;
use proptest::prelude::*;
use std::time::Duration;

#[derive(Debug, Clone)]
enum Step {
    Pass(u64),
    Open(usize),
    Request {
        session: usize,
        at: usize,
    },
    /// All sessions at all replicas.
    RequestAll,
    Kill(usize),
    Start(usize),
    Pause(usize),
    Resume(usize),
    ShutDown(usize),
    StoreWire(usize, Wire),
    PeerWire(usize, usize, Wire),
    StoreDown,
    StoreUp,
    StoreEmptied,
    StoreDelay(u64),
    ReplyDelay(u64),
    Replicate,
    FailOver(i64),
    FailOverToConfirming(i64),
    ClaimFailover(ClaimFailover),
    Confirming(bool),
    Wall(usize, i64),
    /// All sessions of a replica leave its memory.
    Forget(usize),
}

fn step() -> impl Strategy<Value = Step> {
    let node = || 0..NODES;
    let wire = || prop_oneof![2 => Just(Wire::Ok), 1 => Just(Wire::Refused), 1 => Just(Wire::Dropped)];
    let pass = prop_oneof![5u64..400, 400u64..3_000, 3_000u64..15_000];
    prop_oneof![
        10 => pass.prop_map(Step::Pass),
        3 => node().prop_map(Step::Open),
        6 => (0usize..8, node()).prop_map(|(session, at)| Step::Request { session, at }),
        2 => Just(Step::RequestAll),
        2 => node().prop_map(Step::Kill),
        2 => node().prop_map(Step::Start),
        2 => node().prop_map(Step::Pause),
        3 => node().prop_map(Step::Resume),
        1 => node().prop_map(Step::ShutDown),
        2 => (node(), wire()).prop_map(|(node, wire)| Step::StoreWire(node, wire)),
        2 => (node(), node(), wire()).prop_map(|(one, other, wire)| Step::PeerWire(one, other, wire)),
        1 => Just(Step::StoreDown),
        2 => Just(Step::StoreUp),
        1 => Just(Step::StoreEmptied),
        1 => prop_oneof![Just(1u64), 1u64..1_200].prop_map(Step::StoreDelay),
        1 => prop_oneof![1u64..100, 1_000u64..1_950].prop_map(Step::ReplyDelay),
        1 => Just(Step::Replicate),
        // The clocks of the store's machines differ by less than half a second.
        1 => (-400_000i64..400_000).prop_map(Step::FailOver),
        1 => (-400_000i64..400_000).prop_map(Step::FailOverToConfirming),
        1 => prop_oneof![
            Just(ClaimFailover::BeforeConfirmation),
            Just(ClaimFailover::AfterConfirmation)
        ].prop_map(Step::ClaimFailover),
        1 => any::<bool>().prop_map(Step::Confirming),
        1 => (node(), -600_000i64..600_000).prop_map(|(node, jump)| Step::Wall(node, jump)),
        1 => node().prop_map(Step::Forget),
    ]
}

struct History {
    service: ServiceSimulation,
    sessions: Vec<SessionId>,
}

impl History {
    fn live(&mut self, step: Step) {
        let service = &mut self.service;
        match step {
            Step::Pass(millis) => service.advance(Duration::from_millis(millis)),
            Step::Open(at) => self.sessions.extend(service.open_session(at)),
            Step::Request { session, at } => {
                if let Some(session) = self.sessions.get(session % self.sessions.len().max(1)) {
                    service.request(session, at);
                }
            }
            Step::RequestAll => {
                for session in &self.sessions {
                    for at in 0..NODES {
                        service.request(session, at);
                    }
                }
            }
            Step::Kill(node) => service.kill(node),
            Step::Start(node) => service.start(node),
            Step::Pause(node) => service.pause(node),
            Step::Resume(node) => service.resume(node),
            Step::ShutDown(node) => service.shut_down(node),
            Step::StoreWire(node, wire) => service.nodes[node].store_wire = wire,
            Step::PeerWire(one, other, wire) => {
                service.peer_wires.insert((one.min(other), one.max(other)), wire);
            }
            Step::StoreDown => service.store_up = false,
            Step::StoreUp => service.store_up = true,
            Step::StoreEmptied => service.empty_store(),
            Step::StoreDelay(millis) => service.store_delay = Duration::from_millis(millis),
            Step::ReplyDelay(millis) => service.reply_delay = Some(Duration::from_millis(millis)),
            Step::Replicate => service.replicate(),
            Step::FailOver(clock) => service.fail_over(clock),
            Step::FailOverToConfirming(clock) => service.fail_over_to_confirming(clock),
            Step::ClaimFailover(moment) => service.claim_failover = Some(moment),
            Step::Confirming(is_confirming) => service.is_confirming = is_confirming,
            Step::Wall(node, jump) => service.nodes[node].wall_offset = jump,
            Step::Forget(node) => service.nodes[node].router.retain_open(|_| false),
        }
    }

    /// Everything works from now on: each session is served at each replica within one lease and one heartbeat after
    /// the first heartbeat, and then by one owner; one replica holds the singleton.
    fn heal_and_serve(mut self) {
        let service = &mut self.service;
        service.heal();
        service.await_heartbeats();
        let deadline = service.time + service.spec.lease + service.spec.heartbeat() + 500 * MS;
        let mut open: Vec<(usize, usize)> = Vec::new();
        for session in 0..self.sessions.len() {
            open.extend(service.live().into_iter().map(|at| (session, at)));
        }
        while !open.is_empty() {
            assert!(service.time <= deadline, "not served in time: {open:?}");
            let asked: Vec<_> =
                open.iter().map(|(session, at)| service.request(&self.sessions[*session], *at)).collect();
            service.advance(200 * MS);
            let mut asked = asked.into_iter();
            open.retain(|_| {
                let request = asked.next().expect("one each").expect("it runs");
                !service.runs.contains_key(&request)
            });
        }
        service.advance(service.spec.grace() + service.spec.lease + service.spec.heartbeat());
        for session in &self.sessions {
            let owners: Vec<_> = service.live().into_iter().map(|at| service.serve(session, at)).collect();
            assert!(owners[0].is_some(), "{session:?} is served");
            assert!(owners.iter().all(|owner| *owner == owners[0]), "{session:?} has owners {owners:?}");
        }
        assert_eq!(service.working().len(), 1, "one replica holds the singleton");
        service.advance(30 * SEC);
        assert_eq!(service.working().len(), 1, "and keeps it");
    }
}

proptest! {
    /// At most one replica acts under the current epoch, no request runs twice, and every session is served again in
    /// time, by one owner: `ServiceSimulation` checks the first two after every event.
    #[test]
    fn no_history_splits_a_lease_or_loses_a_session(
        speeds in prop::array::uniform3(970u32..=1_030),
        steps in prop::collection::vec(step(), 0..60),
        settled: bool,
    ) {
        let mut service = if settled { ServiceSimulation::settled() } else { ServiceSimulation::new() };
        for (node, speed) in service.nodes.iter_mut().zip(speeds) {
            node.speed = speed;
        }
        let sessions = (0..NODES).filter_map(|at| service.open_session(at)).collect();
        let mut history = History { service, sessions };
        for step in steps {
            history.live(step);
        }
        history.heal_and_serve();
    }
}
