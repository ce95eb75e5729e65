//! Several replicas, their store and the network between them, driven by one queue of events in virtual time.

use crate::store::{StoreContent, StoreModel};
use crate::{MS, SEC};
use gripfast_core::placement::address::ReplicaAddress;
use gripfast_core::placement::exclusive::{ClaimReply, ExclusiveLease, LeaseAction, LeaseInput};
use gripfast_core::placement::heartbeat::{
    Heartbeat, HeartbeatReply, HeartbeatTicket, LiveReplica, StoreState, StoreUnreachable,
};
use gripfast_core::placement::place::{
    BootId, OwnerEpoch, Place, ReplicaName, SessionId, SessionOwner, StoreTime,
};
use gripfast_core::placement::routing::{
    Arrival, Decision, ForwardEnd, RoutedRequest, Router, TakeoverCause, TakeoverReply,
};
use gripfast_core::placement::term::{LeaseNow, LeaseSpec};
use gripfast_core::time::Wall;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

pub(crate) const NODES: usize = 3;
/// The exclusive lease that all replicas want.
pub(crate) const SINGLETON: &str = "singleton";
/// A forwarder gives up on an answer after this time.
const FORWARD_TIMEOUT: Duration = Duration::from_secs(5);
/// A replica gives up on a reply of the store after this time.
const STORE_TIMEOUT: Duration = Duration::from_secs(2);
/// The longest time between the end of a term and the end of the work: part of the margin of one second.
const STOP_TAKES: Duration = Duration::from_millis(500);
/// A failover takes longer than a microsecond, so that no two claims get one epoch.
const FAILOVER_TAKES: i64 = 1_000;
const TICK: Duration = Duration::from_millis(100);

/// A connection between two participants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wire {
    Ok,
    /// Connections are refused.
    Refused,
    /// Packets are lost.
    Dropped,
}

pub(crate) struct ServiceSimulation {
    pub(crate) spec: LeaseSpec,
    pub(crate) time: Duration,
    pub(crate) store: StoreModel,
    pub(crate) store_up: bool,
    /// Time that an operation takes on its way to the store.
    pub(crate) store_delay: Duration,
    /// Time that a reply takes, if it differs.
    pub(crate) reply_delay: Option<Duration>,
    /// The clock of the store minus the true time, in microseconds. Failovers change it.
    store_clock: i64,
    /// The state of a replica of the store, which lags.
    replica_data: StoreContent,
    /// The state of another one, which confirms claims: it has everything up to the last one.
    confirming_data: StoreContent,
    /// A replica of the store confirms claims in time (`WAIT`). If none does, a claim is given back.
    pub(crate) is_confirming: bool,
    /// A failover that happens right after the next claim.
    pub(crate) claim_failover: Option<ClaimFailover>,
    pub(crate) nodes: Vec<Node>,
    pub(crate) peer_wires: BTreeMap<(usize, usize), Wire>,
    queue: BTreeMap<(Duration, u64), Event>,
    sequence: u64,
    boots: u64,
    flows: BTreeMap<u64, Flow>,
    /// Runs of each request, by replica.
    pub(crate) runs: BTreeMap<u64, Vec<usize>>,
    /// The final decision of each request of a client.
    pub(crate) ends: BTreeMap<u64, Decision>,
    /// Time of the last failover, which may have lost writes: two holders are possible for up to one heartbeat.
    failed_over: Option<Duration>,
    /// The longest such time, of holders that reached the store meanwhile.
    pub(crate) longest_overlap: Duration,
    /// Takeovers that the store performed: the boot that lost the session, and whether it had a live process.
    pub(crate) takeovers: Vec<(SessionId, BootId)>,
}

/// A failover of the store right after a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ClaimFailover {
    /// Before a replica of the store has confirmed the claim. The claim is lost, and so is its reply.
    BeforeConfirmation,
    /// After that, to another replica of the store, which does not have it.
    AfterConfirmation,
}

/// One replica, or the place of one that was killed.
pub(crate) struct Node {
    pub(crate) place: Place,
    pub(crate) is_up: bool,
    pub(crate) is_paused: bool,
    pub(crate) store_wire: Wire,
    started: Duration,
    /// Speed of the boot clock, in thousandths.
    pub(crate) speed: u32,
    /// The wall clock minus the true time, in milliseconds.
    pub(crate) wall_offset: i64,
    heartbeat: Heartbeat,
    /// Heartbeats in flight, with the true time of sending.
    tickets: BTreeMap<u64, (HeartbeatTicket, Duration)>,
    pub(crate) router: Router,
    pub(crate) lease: ExclusiveLease,
    /// The singleton's process under its epoch.
    pub(crate) work: Option<OwnerEpoch>,
    /// The time at which the process ends, by the gateway or by the watcher process.
    work_ends: Option<Duration>,
    /// Events that arrived while the process was stopped.
    backlog: Vec<Event>,
    pending: BTreeSet<u64>,
    sessions: u64,
    /// True time of sending of the last heartbeat that succeeded.
    heartbeat_sent: Duration,
    /// The last time at which it did not reach the store, or only slowly.
    cut_off: Duration,
    /// Time since which it acts beside the holder that the store knows.
    superseded: Option<Duration>,
    /// Takeovers that the last heartbeat reported, for the next one to acknowledge.
    notices: Vec<(SessionId, SessionOwner)>,
    pub(crate) streams_ended: Vec<SessionId>,
}

#[derive(Debug, Clone)]
enum Op {
    Heartbeat { leases: Vec<(String, OwnerEpoch)>, acknowledged: Vec<(SessionId, SessionOwner)>, ticket: u64 },
    Claim { above: OwnerEpoch },
    Release { epoch: OwnerEpoch },
    LookUp { flow: u64 },
    TakeOver { flow: u64, from: SessionOwner, cause: TakeoverCause },
    PutBack { records: Vec<(SessionId, OwnerEpoch)>, last_takeover: OwnerEpoch },
    Leave,
}

#[derive(Debug, Clone)]
enum Reply {
    Heartbeat(HeartbeatReply),
    Claim(ClaimReply),
    /// The owner, and the record of the replica that the session is at then.
    LookUp(Option<SessionOwner>, Option<LiveReplica>),
    TakeOver(TakeoverReply),
    PutBack(Vec<(SessionId, SessionOwner)>),
    Done,
}

#[derive(Debug, Clone)]
enum Event {
    Tick { node: usize, boot: BootId },
    StoreArrive { node: usize, boot: BootId, id: u64, op: Op },
    StoreEnd { node: usize, boot: BootId, id: u64, op: Op, reply: Result<Reply, StoreUnreachable> },
    ForwardArrive { from: u64, node: usize, to: BootId, epoch: OwnerEpoch },
    ForwardEnd { flow: u64, end: ForwardEnd },
    Await { flow: u64 },
    WorkEnds { node: usize, boot: BootId },
}

/// A request at one replica. A forwarded request has one flow at each end.
struct Flow {
    request: u64,
    node: usize,
    boot: BootId,
    routed: RoutedRequest,
    /// The flow at the forwarder.
    forwarder: Option<u64>,
    /// The boot to which it is being forwarded.
    forwarding: Option<BootId>,
}

impl ServiceSimulation {
    pub(crate) fn new() -> Self {
        let spec = LeaseSpec::default();
        let mut service = Self {
            spec,
            time: Duration::from_secs(1_000),
            store: StoreModel::new(spec),
            store_up: true,
            store_delay: MS,
            reply_delay: None,
            store_clock: 0,
            replica_data: StoreContent::default(),
            confirming_data: StoreContent::default(),
            is_confirming: true,
            claim_failover: None,
            nodes: Vec::new(),
            peer_wires: BTreeMap::new(),
            queue: BTreeMap::new(),
            sequence: 0,
            boots: 0,
            flows: BTreeMap::new(),
            runs: BTreeMap::new(),
            ends: BTreeMap::new(),
            failed_over: None,
            longest_overlap: Duration::ZERO,
            takeovers: Vec::new(),
        };
        for index in 0..NODES {
            let node = service.new_node(index);
            service.nodes.push(node);
            service.begin(index);
        }
        service
    }

    /// A service whose first grace period is over: every replica is known to the others, one holds the singleton.
    pub(crate) fn settled() -> Self {
        let mut service = Self::new();
        service.advance(service.spec.grace() + service.spec.heartbeat() * 2);
        service
    }

    fn new_node(&mut self, index: usize) -> Node {
        self.boots += 1;
        let name = ReplicaName::new(&format!("replica-{index}")).expect("it is a name");
        let place = Place { name, boot: BootId::from_number(self.boots) };
        let clock = LeaseNow { boottime: Duration::ZERO, wall: wall(self.time, 0) };
        Node {
            router: Router::new(place.clone(), self.spec),
            lease: ExclusiveLease::new(self.spec, clock),
            heartbeat: Heartbeat::new(self.spec),
            place,
            is_up: true,
            is_paused: false,
            store_wire: Wire::Ok,
            started: self.time,
            speed: 1_000,
            wall_offset: 0,
            tickets: BTreeMap::new(),
            work: None,
            work_ends: None,
            backlog: Vec::new(),
            pending: BTreeSet::new(),
            sessions: 0,
            heartbeat_sent: Duration::ZERO,
            cut_off: Duration::ZERO,
            superseded: None,
            notices: Vec::new(),
            streams_ended: Vec::new(),
        }
    }

    fn begin(&mut self, index: usize) {
        let now = self.now_of(index);
        self.nodes[index].lease.handle(now, LeaseInput::Wanted);
        self.act_on_lease(index);
        let boot = self.nodes[index].place.boot;
        self.schedule(Duration::ZERO, Event::Tick { node: index, boot });
    }

    // The clocks.

    pub(crate) fn now_of(&self, index: usize) -> LeaseNow {
        let node = &self.nodes[index];
        let age = self.time - node.started;
        LeaseNow { boottime: age * node.speed / 1_000, wall: wall(self.time, node.wall_offset) }
    }

    fn store_time(&self) -> StoreTime {
        let micros = i64::try_from(self.time.as_micros()).expect("a test is short");
        StoreTime::from_micros(
            u64::try_from(1_800_000_000_000_000 + micros + self.store_clock).expect("positive"),
        )
    }

    /// Advances the time. Checks the invariants after every event.
    pub(crate) fn advance(&mut self, span: Duration) {
        let end = self.time + span;
        loop {
            // The watcher process looks at the clock also while no gateway runs.
            let watched = end.min(self.time + TICK);
            match self.queue.first_entry().filter(|entry| entry.key().0 <= watched) {
                Some(entry) => {
                    self.time = self.time.max(entry.key().0);
                    let event = entry.remove();
                    self.happen(event);
                }
                None if self.time == end => return,
                None => self.time = watched,
            }
            for node in &mut self.nodes {
                while let Some(session) = node.router.poll_taken() {
                    node.streams_ended.push(session);
                }
            }
            self.watch_work();
            self.watch_overlap();
            self.check();
        }
    }

    fn schedule(&mut self, after: Duration, event: Event) {
        self.sequence += 1;
        self.queue.insert((self.time + after, self.sequence), event);
    }

    // Faults.

    pub(crate) fn kill(&mut self, index: usize) {
        let node = &mut self.nodes[index];
        node.is_up = false;
        node.is_paused = false;
        // Its children go with it.
        node.work = None;
        node.work_ends = None;
        node.backlog.clear();
        self.flows.retain(|_, flow| flow.node != index);
    }

    pub(crate) fn start(&mut self, index: usize) {
        if self.nodes[index].is_up {
            return;
        }
        let (speed, wall_offset) = (self.nodes[index].speed, self.nodes[index].wall_offset);
        let mut node = self.new_node(index);
        (node.speed, node.wall_offset) = (speed, wall_offset);
        self.nodes[index] = node;
        self.begin(index);
    }

    pub(crate) fn pause(&mut self, index: usize) {
        self.nodes[index].is_paused = self.nodes[index].is_up;
    }

    pub(crate) fn resume(&mut self, index: usize) {
        let node = &mut self.nodes[index];
        node.is_paused = false;
        for event in std::mem::take(&mut node.backlog) {
            self.schedule(Duration::ZERO, event);
        }
    }

    /// A graceful end: the singleton stops, the record is removed, the process exits.
    pub(crate) fn shut_down(&mut self, index: usize) {
        if !self.nodes[index].is_up || self.nodes[index].is_paused {
            return;
        }
        self.nodes[index].router.release();
        if let Some(epoch) = self.nodes[index].work {
            let op = Op::Release { epoch };
            self.send(index, op);
        }
        self.send(index, Op::Leave);
        self.kill(index);
    }

    pub(crate) fn empty_store(&mut self) {
        self.store.data = StoreContent::default();
        self.replica_data = StoreContent::default();
        self.confirming_data = StoreContent::default();
    }

    /// The replicas of the store catch up.
    pub(crate) fn replicate(&mut self) {
        self.replica_data = self.store.data.clone();
        self.confirming_data = self.store.data.clone();
    }

    /// The replica of the store that lags takes over, with the clock of another machine.
    pub(crate) fn fail_over(&mut self, clock: i64) {
        self.promote(self.replica_data.clone(), clock);
    }

    /// The replica of the store takes over that has confirmed the last claim.
    pub(crate) fn fail_over_to_confirming(&mut self, clock: i64) {
        self.promote(self.confirming_data.clone(), clock);
    }

    fn promote(&mut self, data: StoreContent, clock: i64) {
        self.replica_data = data.clone();
        self.confirming_data = data.clone();
        self.store.data = data;
        self.store_clock = clock;
        self.failed_over = Some(self.time);
    }

    // Clients.

    pub(crate) fn open_session(&mut self, index: usize) -> Option<SessionId> {
        let node = &mut self.nodes[index];
        if !node.is_up || node.is_paused {
            return None;
        }
        node.sessions += 1;
        let session = SessionId { origin: node.place.clone(), number: node.sessions };
        node.router.session_opened(&session);
        Some(session)
    }

    /// A client sends a request of this session to a replica. Returns its number; `None` if the replica is down.
    pub(crate) fn request(&mut self, session: &SessionId, index: usize) -> Option<u64> {
        let node = &self.nodes[index];
        if !node.is_up || node.is_paused {
            return None;
        }
        let (boot, request) = (node.place.boot, self.sequence);
        let is_served_at_once = node.router.serves(self.now_of(index), session);
        let routed = RoutedRequest::new(session.clone(), Arrival::Direct);
        self.sequence += 1;
        let flow = self.sequence;
        self.flows
            .insert(flow, Flow { request, node: index, boot, routed, forwarder: None, forwarding: None });
        self.progress(flow);
        let is_served = matches!(self.ends.get(&request), Some(Decision::Serve { .. }));
        assert_eq!(is_served, is_served_at_once, "the check and the decision differ");
        Some(request)
    }

    /// Sends a request and lets it end. Returns the replica that ran it.
    pub(crate) fn serve(&mut self, session: &SessionId, index: usize) -> Option<usize> {
        let request = self.request(session, index)?;
        self.advance(50 * MS + self.store_delay * 6);
        self.runs.get(&request)?.first().copied()
    }

    /// The end of a request that a client sent to a replica.
    pub(crate) fn end_of(&mut self, session: &SessionId, index: usize) -> Option<Decision> {
        let request = self.request(session, index)?;
        self.advance(50 * MS + self.store_delay * 6);
        self.ends.get(&request).cloned()
    }

    fn progress(&mut self, id: u64) {
        let Some(mut flow) = self.flows.remove(&id) else { return };
        let index = flow.node;
        if !self.is_running(index, flow.boot) {
            return;
        }
        let now = self.now_of(index);
        let decision = self.nodes[index].router.decide(now, &flow.routed);
        match decision {
            Decision::Serve { .. } => {
                let runs = self.runs.entry(flow.request).or_default();
                runs.push(index);
                assert_eq!(runs.len(), 1, "request {} ran twice, at {runs:?}", flow.request);
                self.end(&flow, decision, ForwardEnd::Answered);
                return;
            }
            Decision::Misdirected { ref owner } => {
                let by = flow.boot;
                let end = ForwardEnd::Misdirected { by, owner: owner.clone() };
                self.end(&flow, decision, end);
                return;
            }
            Decision::Unavailable { .. } | Decision::OutcomeUnknown | Decision::Answered => {
                assert_eq!(flow.forwarder, None, "a forwarded request is served here or answered with 421");
                self.end(&flow, decision, ForwardEnd::Answered);
                return;
            }
            Decision::Forward { to, epoch } => {
                assert!(flow.forwarder.is_none(), "one hop at most");
                flow.forwarding = Some(to.boot);
                self.forward(id, index, &to, epoch);
            }
            Decision::LookUp => self.send(index, Op::LookUp { flow: id }),
            Decision::TakeOver { from, cause } => self.send(index, Op::TakeOver { flow: id, from, cause }),
            Decision::AwaitTakeover => self.schedule(20 * MS, Event::Await { flow: id }),
        }
        self.flows.insert(id, flow);
    }

    fn end(&mut self, flow: &Flow, decision: Decision, end: ForwardEnd) {
        match flow.forwarder {
            None => {
                self.ends.insert(flow.request, decision);
            }
            Some(forwarder) => {
                let Some(back) = self.flows.get(&forwarder) else { return };
                if self.wire(flow.node, back.node) == Wire::Ok {
                    self.schedule(MS, Event::ForwardEnd { flow: forwarder, end });
                }
            }
        }
    }

    fn forward(&mut self, from: u64, index: usize, to: &Place, epoch: OwnerEpoch) {
        // The address belongs to a machine, whichever boot runs there.
        let target = self.nodes.iter().position(|node| node.place.name == to.name).expect("a known name");
        let wire = self.wire(index, target);
        let refused = wire == Wire::Refused || !self.nodes[target].is_up;
        let end = |end: ForwardEnd| Event::ForwardEnd { flow: from, end };
        if refused {
            self.schedule(MS, end(ForwardEnd::Refused));
        } else if wire == Wire::Dropped {
            self.schedule(FORWARD_TIMEOUT, end(ForwardEnd::NotConnected));
        } else {
            self.schedule(MS, Event::ForwardArrive { from, node: target, to: to.boot, epoch });
            // Judged by the first of both: an answer, or silence.
            self.schedule(FORWARD_TIMEOUT, end(ForwardEnd::Lost));
        }
    }

    pub(crate) fn wire(&self, one: usize, other: usize) -> Wire {
        let pair = (one.min(other), one.max(other));
        if one == other { Wire::Ok } else { self.peer_wires.get(&pair).copied().unwrap_or(Wire::Ok) }
    }

    // Events.

    fn is_running(&self, index: usize, boot: BootId) -> bool {
        let node = &self.nodes[index];
        node.is_up && !node.is_paused && node.place.boot == boot
    }

    fn happen(&mut self, event: Event) {
        let addressee = match &event {
            Event::Tick { node, boot }
            | Event::StoreEnd { node, boot, .. }
            | Event::WorkEnds { node, boot } => Some((*node, *boot)),
            // The connection is made with whatever runs there; it reads when it runs.
            Event::ForwardArrive { node, .. } => Some((*node, self.nodes[*node].place.boot)),
            Event::ForwardEnd { flow, .. } | Event::Await { flow } => match self.flows.get(flow) {
                Some(flow) => Some((flow.node, flow.boot)),
                None => return,
            },
            Event::StoreArrive { .. } => None,
        };
        if let Some((index, boot)) = addressee {
            let node = &mut self.nodes[index];
            if !node.is_up || node.place.boot != boot {
                return;
            }
            if node.is_paused {
                node.backlog.push(event);
                return;
            }
        }
        match event {
            Event::Tick { node, boot } => {
                self.tick(node);
                self.schedule(TICK, Event::Tick { node, boot });
            }
            Event::StoreArrive { node, boot, id, op } => self.execute(node, boot, id, op),
            Event::StoreEnd { node, id, op, reply, .. } => {
                if self.nodes[node].pending.remove(&id) {
                    self.store_ended(node, op, reply);
                }
            }
            Event::ForwardArrive { from, node, to, epoch } => {
                let Some(forwarder) = self.flows.get(&from) else { return };
                let routed =
                    RoutedRequest::new(forwarder.routed.session().clone(), Arrival::Forwarded { to, epoch });
                let (request, boot) = (forwarder.request, self.nodes[node].place.boot);
                self.sequence += 1;
                let id = self.sequence;
                let flow = Flow { request, node, boot, routed, forwarder: Some(from), forwarding: None };
                self.flows.insert(id, flow);
                self.progress(id);
            }
            Event::ForwardEnd { flow: id, end } => {
                let Some(flow) = self.flows.get_mut(&id) else { return };
                let Some(to) = flow.forwarding.take() else { return };
                let index = flow.node;
                self.nodes[index].router.forward_ended(&mut flow.routed, to, end);
                self.cancel_timeout(id);
                self.progress(id);
            }
            Event::Await { flow } => self.progress(flow),
            Event::WorkEnds { node, .. } => self.work_ended(node),
        }
    }

    /// The timeout of an attempt that has ended must not end the next one.
    fn cancel_timeout(&mut self, id: u64) {
        self.queue.retain(|_, event| !matches!(event, Event::ForwardEnd { flow, .. } if *flow == id));
    }

    fn tick(&mut self, index: usize) {
        let now = self.now_of(index);
        let node = &mut self.nodes[index];
        let was_ok = node.heartbeat.state() == StoreState::Ok;
        if let Some(ticket) = node.heartbeat.poll(now) {
            if was_ok && node.heartbeat.state() == StoreState::Unreachable {
                node.router.heartbeat_failed(now);
            }
            let leases = node.lease.renewal().map(|epoch| (SINGLETON.to_owned(), epoch));
            self.sequence += 1;
            let number = self.sequence;
            node.tickets.insert(number, (ticket, self.time));
            let acknowledged = node.notices.clone();
            let leases = leases.into_iter().collect();
            self.send(index, Op::Heartbeat { leases, acknowledged, ticket: number });
        }
        self.nodes[index].lease.handle_timeout(now);
        self.act_on_lease(index);
    }

    fn act_on_lease(&mut self, index: usize) {
        while let Some(action) = self.nodes[index].lease.poll_action() {
            match action {
                LeaseAction::Claim { above } => self.send(index, Op::Claim { above }),
                LeaseAction::Start { epoch } => {
                    assert_eq!(self.nodes[index].work, None, "one process per replica");
                    self.nodes[index].work = Some(epoch);
                }
                LeaseAction::Stop { .. } => self.end_work(index),
                LeaseAction::Release { epoch } => self.send(index, Op::Release { epoch }),
            }
        }
    }

    fn end_work(&mut self, index: usize) {
        let node = &mut self.nodes[index];
        if node.work_ends.is_none() {
            node.work_ends = Some(self.time + STOP_TAKES);
            let boot = node.place.boot;
            self.schedule(STOP_TAKES, Event::WorkEnds { node: index, boot });
        }
    }

    /// The watcher process ends the work when the term is over, also while the gateway is stopped.
    fn watch_work(&mut self) {
        for index in 0..self.nodes.len() {
            let now = self.now_of(index);
            let node = &self.nodes[index];
            if node.work.is_some() && node.lease.left(now).is_zero() {
                self.end_work(index);
            }
            let node = &mut self.nodes[index];
            if node.work_ends.is_some_and(|ends| ends <= self.time) {
                node.work = None;
            }
        }
    }

    fn work_ended(&mut self, index: usize) {
        let now = self.now_of(index);
        self.nodes[index].work = None;
        self.nodes[index].work_ends = None;
        // The term may have ended before the gateway noticed.
        self.nodes[index].lease.handle_timeout(now);
        self.act_on_lease_but_stop(index);
        self.nodes[index].lease.handle(now, LeaseInput::Stopped);
        self.act_on_lease(index);
    }

    fn act_on_lease_but_stop(&mut self, index: usize) {
        while let Some(action) = self.nodes[index].lease.poll_action() {
            assert!(matches!(action, LeaseAction::Stop { .. }), "{action:?}");
        }
    }

    // The store.

    fn send(&mut self, index: usize, op: Op) {
        self.sequence += 1;
        let id = self.sequence;
        let boot = self.nodes[index].place.boot;
        self.nodes[index].pending.insert(id);
        let failed = Event::StoreEnd { node: index, boot, id, op: op.clone(), reply: Err(StoreUnreachable) };
        if self.nodes[index].store_wire == Wire::Refused || !self.store_up {
            self.schedule(MS, failed);
            return;
        }
        self.schedule(STORE_TIMEOUT, failed);
        if self.nodes[index].store_wire == Wire::Ok {
            self.schedule(self.store_delay, Event::StoreArrive { node: index, boot, id, op });
        }
    }

    fn execute(&mut self, index: usize, boot: BootId, id: u64, op: Op) {
        // An operation that was sent before is executed even if its replica is cut off or dead by now.
        if !self.store_up {
            return;
        }
        let now = self.store_time();
        let name = ReplicaName::new(&format!("replica-{index}")).expect("it is a name");
        let me = Place { name, boot };
        let address = ReplicaAddress::parse(&format!("http://10.0.0.{index}:7332")).expect("an address");
        let reply = match &op {
            Op::Heartbeat { leases, acknowledged, .. } => {
                let live = LiveReplica { place: me, address };
                Reply::Heartbeat(self.store.heartbeat(now, &live, leases, acknowledged))
            }
            Op::Claim { above } => {
                let reply = self.store.claim(now, &me, SINGLETON, *above);
                let Some(reply) = self.confirm_claim(&me, reply) else { return };
                Reply::Claim(reply)
            }
            Op::Release { epoch } => {
                self.store.release(&me, SINGLETON, *epoch);
                Reply::Done
            }
            Op::LookUp { flow } => {
                let Some(flow) = self.flows.get(flow) else { return };
                let session = flow.routed.session();
                let owner = self.store.look_up(session);
                let boot = owner.as_ref().map_or(session.origin.boot, |owner| owner.place.boot);
                Reply::LookUp(owner, self.store.record(now, boot))
            }
            Op::TakeOver { flow, from, cause } => {
                let Some(flow) = self.flows.get(flow) else { return };
                let session = flow.routed.session().clone();
                let reply = self.store.take_over(now, &me, &session, from, *cause);
                if matches!(reply, TakeoverReply::Taken { .. }) {
                    self.takeovers.push((session, from.place.boot));
                }
                Reply::TakeOver(reply)
            }
            Op::PutBack { records, last_takeover } => {
                Reply::PutBack(self.store.put_back(now, &me, records, *last_takeover))
            }
            Op::Leave => {
                self.store.leave(&me);
                Reply::Done
            }
        };
        if self.nodes[index].store_wire == Wire::Ok {
            let delay = self.reply_delay.unwrap_or(self.store_delay);
            self.schedule(delay, Event::StoreEnd { node: index, boot, id, op, reply: Ok(reply) });
        }
    }

    /// `WAIT` after a claim. Returns nothing if the claim has no reply in time.
    fn confirm_claim(&mut self, me: &Place, reply: ClaimReply) -> Option<ClaimReply> {
        let ClaimReply::Claimed { epoch } = reply else { return Some(reply) };
        let failover = self.claim_failover.take();
        if failover == Some(ClaimFailover::BeforeConfirmation) {
            self.fail_over(self.store_clock + FAILOVER_TAKES);
            return None;
        }
        if !self.is_confirming {
            self.store.release(me, SINGLETON, epoch);
            return None;
        }
        self.confirming_data = self.store.data.clone();
        if failover == Some(ClaimFailover::AfterConfirmation) {
            self.fail_over(self.store_clock + FAILOVER_TAKES);
        }
        Some(reply)
    }

    fn store_ended(&mut self, index: usize, op: Op, reply: Result<Reply, StoreUnreachable>) {
        let now = self.now_of(index);
        let node = &mut self.nodes[index];
        match (op, reply) {
            (Op::Heartbeat { leases, ticket, .. }, reply) => {
                let (ticket, sent_at) = node.tickets.remove(&ticket).expect("it was sent");
                if !node.heartbeat.ended(ticket, reply.as_ref().map(|_| ()).map_err(|gone| *gone)) {
                    if reply.is_err() {
                        node.router.heartbeat_failed(now);
                    }
                    return;
                }
                node.heartbeat_sent = sent_at;
                let Ok(Reply::Heartbeat(reply)) = reply else { unreachable!("a heartbeat's reply") };
                self.heartbeat_succeeded(index, now, ticket.sent, &leases, &reply);
            }
            (Op::Claim { .. }, reply) => {
                let reply = reply.map(|reply| match reply {
                    Reply::Claim(reply) => reply,
                    other => unreachable!("{other:?}"),
                });
                node.lease.handle(now, LeaseInput::ClaimEnded(reply));
                self.act_on_lease(index);
            }
            (Op::Release { .. }, _) => {
                node.lease.handle(now, LeaseInput::ReleaseEnded);
                self.act_on_lease(index);
            }
            (Op::LookUp { flow: id }, reply) => {
                let reply = reply.map(|reply| match reply {
                    Reply::LookUp(owner, live) => (owner, live),
                    other => unreachable!("{other:?}"),
                });
                let Some(flow) = self.flows.get_mut(&id) else { return };
                let reply = reply.map(|(owner, live)| {
                    if let Some(live) = live {
                        node.router.replica_read(now, live);
                    }
                    owner
                });
                node.router.looked_up(&mut flow.routed, reply);
                self.progress(id);
            }
            (Op::TakeOver { flow: id, .. }, reply) => {
                let reply = reply.map(|reply| match reply {
                    Reply::TakeOver(reply) => reply,
                    other => unreachable!("{other:?}"),
                });
                let Some(flow) = self.flows.get_mut(&id) else { return };
                node.router.takeover_ended(now, &mut flow.routed, reply);
                self.progress(id);
            }
            (Op::PutBack { .. }, Ok(Reply::PutBack(current))) => {
                node.router.put_back_ended(&current);
            }
            (Op::PutBack { .. } | Op::Leave, _) => {}
        }
    }

    fn heartbeat_succeeded(
        &mut self,
        index: usize,
        now: LeaseNow,
        sent: LeaseNow,
        leases: &[(String, OwnerEpoch)],
        reply: &HeartbeatReply,
    ) {
        let node = &mut self.nodes[index];
        for (name, epoch) in leases {
            let input = if reply.lost.contains(name) {
                LeaseInput::Lost { epoch: *epoch }
            } else {
                LeaseInput::Renewed { sent, epoch: *epoch }
            };
            node.lease.handle(now, input);
        }
        let changes = node.router.heartbeat_succeeded(now, sent, reply);
        node.notices.clone_from(&reply.taken);
        if !changes.put_back.is_empty() {
            let records = changes.put_back;
            self.send(index, Op::PutBack { records, last_takeover: changes.last_takeover });
        }
        self.act_on_lease(index);
    }

    // Invariants.

    /// Replicas whose singleton runs.
    pub(crate) fn working(&self) -> Vec<usize> {
        (0..self.nodes.len()).filter(|index| self.nodes[*index].work.is_some()).collect()
    }

    /// Two replicas act at the same time only after a failover of the store. The one before stops with its next heartbeat,
    /// or when its term ends if it does not reach the store.
    fn watch_overlap(&mut self) {
        let is_slow = self.store_delay + self.reply_delay.unwrap_or(self.store_delay) >= SEC;
        for node in &mut self.nodes {
            if !self.store_up || is_slow || node.is_paused || node.store_wire != Wire::Ok {
                node.cut_off = self.time;
            }
        }
        let (working, current) = (self.working(), self.store.current_epoch(SINGLETON));
        // The slowest clock runs at 97 %.
        let slowest = |span: Duration| span * 1_000 / 970;
        if working.len() > 1 {
            let failover = self.failed_over.expect("two replicas act without a failover of the store");
            let end = failover + slowest(self.spec.lease) + STOP_TAKES;
            assert!(
                self.time <= end,
                "two replicas act long after the failover at {failover:?}: {working:?}"
            );
        }
        for index in 0..self.nodes.len() {
            let node = &mut self.nodes[index];
            let is_superseded = working.len() > 1 && working.contains(&index) && node.work != current;
            if !is_superseded || current.is_none() {
                node.superseded = None;
                continue;
            }
            let since = *node.superseded.get_or_insert(self.time);
            // A heartbeat that was lost before counts too.
            if node.cut_off + slowest(self.spec.heartbeat()) < since {
                let took = self.time - since;
                let longest = slowest(self.spec.heartbeat()) + SEC + TICK * 2 + STOP_TAKES;
                assert!(took <= longest, "replica {index} acts beside its successor for {took:?}");
                self.longest_overlap = self.longest_overlap.max(took);
            }
        }
    }

    fn check(&self) {
        let working = self.working();
        let epochs: Vec<OwnerEpoch> = working.iter().filter_map(|index| self.nodes[*index].work).collect();
        let distinct: BTreeSet<&OwnerEpoch> = epochs.iter().collect();
        assert_eq!(distinct.len(), epochs.len(), "two replicas act under one epoch: {working:?}");
        let current = self.store.current_epoch(SINGLETON);
        let holders = epochs.iter().filter(|epoch| Some(**epoch) == current).count();
        assert!(holders <= 1, "two replicas hold the current epoch: {working:?}");
        for node in &self.nodes {
            if node.is_up && !node.is_paused && node.work.is_some() && node.work_ends.is_none() {
                assert!(node.lease.renewal().is_some(), "work without a lease");
            }
        }
    }
}

fn wall(time: Duration, offset: i64) -> Wall {
    let millis = i64::try_from(time.as_millis()).expect("a test is short") + 1_800_000_000_000 + offset;
    Wall::from_unix_epoch(Duration::from_millis(u64::try_from(millis).expect("positive")))
}

impl ServiceSimulation {
    /// Ends every fault. At least one replica runs afterwards.
    pub(crate) fn heal(&mut self) {
        self.store_up = true;
        self.store_delay = MS;
        self.reply_delay = None;
        self.is_confirming = true;
        self.claim_failover = None;
        self.peer_wires.clear();
        for index in 0..NODES {
            self.nodes[index].store_wire = Wire::Ok;
            if self.nodes[index].is_paused {
                self.resume(index);
            }
        }
        if self.nodes.iter().all(|node| !node.is_up) {
            self.start(0);
        }
    }

    pub(crate) fn live(&self) -> Vec<usize> {
        (0..NODES).filter(|index| self.nodes[*index].is_up && !self.nodes[*index].is_paused).collect()
    }

    /// Waits until each live replica has sent a heartbeat from now on, and got its reply.
    pub(crate) fn await_heartbeats(&mut self) {
        let start = self.time;
        let limit = start + self.spec.heartbeat() * 2 + SEC;
        while self.live().into_iter().any(|index| self.nodes[index].heartbeat_sent <= start) {
            assert!(self.time < limit, "no heartbeat although the store is there");
            self.advance(TICK);
        }
    }
}
