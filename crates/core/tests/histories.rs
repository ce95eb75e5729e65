//! Random histories of one upstream: the invariants hold for any order of events. proptest prints the seed of a failing
//! history and shrinks it.

mod common;

use common::*;
use gripfast_core::failure::{BlockCause, Failure};
use gripfast_core::ids::{Epoch, PrincipalName};
use gripfast_core::supervise::circuit::CircuitView;
use gripfast_core::supervise::keepalive::Probe;
use gripfast_core::supervise::spec::{RecycleSpec, SupervisionSpec};
use gripfast_core::supervise::status::State;
use gripfast_core::supervise::upstream::{
    Action, Admission, CallEnd, Command, Input, LinkKind, ProbeAnswer, QueuePlace, RefusalReason, Revision,
    StandbyRole, Ticket,
};
use proptest::prelude::*;
use std::time::Duration;

/// One step. `u8` selects one of the present tickets or places.
#[derive(Debug, Clone)]
enum Step {
    Pass(Duration),
    Sleep(Duration),
    Command(Command),
    Revise(Box<SupervisionSpec>, LinkKind, Revision),
    LinkUp,
    LinkDown(Failure),
    Heard,
    ProbeEnded(ProbeAnswer),
    RenewalEnded(Option<Failure>),
    CatalogListed,
    CatalogKnown,
    CatalogFailed(Failure),
    CatalogChanged,
    SecondUp,
    SecondDown(Failure),
    Measured(u64),
    Stale(u8),
    Admit,
    AdmitFor(u8),
    Readmit(u8),
    Leave(u8),
    End(u8, CallEnd),
}

fn failure() -> impl Strategy<Value = Failure> {
    prop_oneof![
        Just(refused()),
        Just(killed()),
        Just(timed_out()),
        Just(expired()),
        Just(Failure::CredentialRefused("HTTP 401".into())),
        Just(Failure::Busy { retry_after: Some(Duration::from_secs(9)), text: "HTTP 429".into() }),
        Just(Failure::InsufficientScope("HTTP 403".into())),
        Just(Failure::ServerFault("HTTP 500".into())),
        Just(Failure::InvalidResponse("not JSON".into())),
        Just(Failure::HeaderMismatch("HTTP 400: Mcp-Param-Region is missing".into())),
        Just(Failure::Declined("no (-32602)".into())),
        Just(Failure::Blocked(BlockCause::UnsetVariable("TOKEN".into()))),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let span = prop_oneof![
        (0u64..300).prop_map(Duration::from_millis),
        (0u64..20).prop_map(Duration::from_secs),
        (0u64..400).prop_map(Duration::from_secs),
    ];
    let command = prop_oneof![
        Just(Command::Start),
        Just(Command::Reconnect),
        Just(Command::Reload),
        Just(Command::CauseChanged),
        Just(Command::Stop),
        Just(Command::Shutdown { within: Duration::from_secs(4) }),
    ];
    let revision = prop_oneof![Just(Revision::Rules), Just(Revision::Link)];
    let probe = prop_oneof![
        3 => Just(ProbeAnswer::Alive),
        1 => Just(ProbeAnswer::Unsupported),
        2 => failure().prop_map(ProbeAnswer::Failed),
    ];
    let end = prop_oneof![
        3 => Just(CallEnd::Answered),
        1 => Just(CallEnd::Abandoned),
        3 => failure().prop_map(CallEnd::Failed),
    ];
    prop_oneof![
        6 => span.prop_map(Step::Pass),
        1 => (0u64..100_000).prop_map(|s| Step::Sleep(Duration::from_secs(s))),
        1 => command.prop_map(Step::Command),
        1 => (spec(), kind(), revision).prop_map(|(spec, kind, revision)| {
            Step::Revise(Box::new(spec), kind, revision)
        }),
        6 => Just(Step::LinkUp),
        4 => failure().prop_map(Step::LinkDown),
        1 => Just(Step::Heard),
        3 => probe.prop_map(Step::ProbeEnded),
        2 => prop_oneof![Just(None), failure().prop_map(Some)].prop_map(Step::RenewalEnded),
        4 => Just(Step::CatalogListed),
        1 => Just(Step::CatalogKnown),
        1 => failure().prop_map(Step::CatalogFailed),
        1 => Just(Step::CatalogChanged),
        4 => Just(Step::SecondUp),
        2 => failure().prop_map(Step::SecondDown),
        1 => (0u64..200).prop_map(Step::Measured),
        1 => any::<u8>().prop_map(Step::Stale),
        8 => Just(Step::Admit),
        6 => (0u8..3).prop_map(Step::AdmitFor),
        4 => any::<u8>().prop_map(Step::Readmit),
        1 => any::<u8>().prop_map(Step::Leave),
        8 => (any::<u8>(), end).prop_map(|(n, end)| Step::End(n, end)),
    ]
}

/// A sim with its open tickets and places, which checks the invariants after every step.
struct History {
    sim: Simulation,
    tickets: Vec<Ticket>,
    places: Vec<QueuePlace>,
    asked_to_stop: bool,
    /// Links that were replaced.
    replaced: usize,
}

impl History {
    fn new(kind: LinkKind, spec: SupervisionSpec) -> Self {
        let mut sim = Simulation::new(kind, spec);
        sim.command(Command::Start);
        Self { sim, tickets: Vec::new(), places: Vec::new(), asked_to_stop: false, replaced: 0 }
    }

    fn live(&mut self, step: Step) {
        let sim = &mut self.sim;
        match step {
            // `Simulation::advance` asserts that after each wake-up the next one is later.
            Step::Pass(span) => sim.advance(span),
            Step::Sleep(span) => sim.wall += span,
            Step::Command(command) => {
                match command {
                    Command::Stop | Command::Shutdown { .. } => self.asked_to_stop = true,
                    Command::Start => self.asked_to_stop = false,
                    Command::Reconnect | Command::Reload | Command::CauseChanged => {}
                }
                sim.command(command);
            }
            Step::Revise(spec, kind, revision) => sim.reconfigure(*spec, kind, revision),
            Step::LinkUp => {
                let open_before = sim.status().circuit != CircuitView::Closed;
                let connecting = sim.machine.ready_epoch().is_none();
                if dialed(sim) {
                    sim.link_up();
                }
                let came_up = connecting && sim.machine.ready_epoch().is_some();
                if came_up {
                    assert_eq!(sim.status().circuit, CircuitView::Closed, "was open: {open_before}");
                    assert!(matches!(sim.actions.last(), Some(Action::ListCatalog { .. })), "stale");
                }
            }
            Step::LinkDown(failure) if dialed(sim) => sim.link_down(failure),
            Step::Heard if dialed(sim) => {
                let epoch = sim.epoch();
                sim.handle(Input::Received { epoch });
            }
            Step::ProbeEnded(answer) if dialed(sim) => sim.probe_ended(answer),
            Step::RenewalEnded(failure) if dialed(sim) => {
                let epoch = sim.epoch();
                sim.handle(Input::RenewalEnded { epoch, failure });
            }
            Step::CatalogListed if dialed(sim) => {
                let epoch = sim.epoch();
                sim.handle(Input::CatalogListed { epoch });
            }
            Step::CatalogKnown if dialed(sim) => {
                let epoch = sim.epoch();
                sim.handle(Input::CatalogKnown { epoch });
            }
            Step::CatalogFailed(failure) if dialed(sim) => {
                let epoch = sim.epoch();
                sim.handle(Input::CatalogFailed { epoch, failure });
            }
            Step::CatalogChanged if dialed(sim) => {
                let epoch = sim.epoch();
                sim.handle(Input::CatalogChanged { epoch });
            }
            Step::SecondUp => match sim.standby() {
                Some((_, StandbyRole::Spare)) => sim.spare_up(),
                Some((_, StandbyRole::Replacement)) => {
                    let ready = sim.machine.ready_epoch().is_some() || sim.is_renewing();
                    let taken = sim.take_over();
                    assert!(ready || !taken, "only a working link is replaced");
                    self.replaced += usize::from(taken);
                }
                None => {}
            },
            Step::SecondDown(failure) => {
                if sim.standby().is_some() {
                    sim.standby_down(failure);
                }
            }
            Step::Measured(resident) if dialed(sim) => {
                let epoch = sim.epoch();
                sim.handle(Input::MemoryMeasured { epoch, resident });
            }
            Step::Measured(_)
            | Step::LinkDown(_)
            | Step::Heard
            | Step::ProbeEnded(_)
            | Step::RenewalEnded(_)
            | Step::CatalogListed
            | Step::CatalogKnown
            | Step::CatalogFailed(_)
            | Step::CatalogChanged => {}
            Step::Stale(which) => self.straggle(which),
            Step::Admit => self.admit(),
            Step::AdmitFor(n) => {
                let name = PrincipalName::new(format!("client-{n}"));
                match sim.machine.admit_for(sim.now(), &name) {
                    Admission::Go(ticket) => self.tickets.push(ticket),
                    Admission::Wait(place) => self.places.push(place),
                    Admission::Refuse(_) => {}
                }
                sim.drain();
            }
            Step::Readmit(n) => {
                if let Some(place) = take(&mut self.places, n) {
                    match sim.readmit(place) {
                        Admission::Go(ticket) => self.tickets.push(ticket),
                        Admission::Wait(place) => self.places.push(place),
                        Admission::Refuse(_) => {}
                    }
                }
            }
            Step::Leave(n) => {
                if let Some(place) = take(&mut self.places, n) {
                    sim.machine.leave_queue(sim.now(), place);
                }
            }
            Step::End(n, end) => {
                if let Some(ticket) = take(&mut self.tickets, n) {
                    sim.end(ticket, end);
                }
            }
        }
        self.tell_displaced();
        self.check();
    }

    /// A displaced call is refused.
    fn tell_displaced(&mut self) {
        for number in self.sim.machine.take_displaced() {
            let at = self.places.iter().position(|place| place.number == number).expect("it waits");
            let told = self.sim.readmit(self.places.swap_remove(at));
            assert!(matches!(told, Admission::Refuse(refusal) if refusal.reason == RefusalReason::Displaced));
        }
    }

    fn admit(&mut self) {
        let half_open = self.sim.status().circuit == CircuitView::HalfOpen;
        match self.sim.admit() {
            Admission::Go(ticket) => {
                self.tickets.push(ticket);
                if half_open {
                    // A second call at the same moment must not be a second trial.
                    assert!(matches!(self.sim.admit(), Admission::Refuse(_)), "two trials at once");
                }
            }
            Admission::Wait(place) => self.places.push(place),
            Admission::Refuse(_) => {}
        }
    }

    /// A late report about any epoch but the present one.
    fn straggle(&mut self, which: u8) {
        let sim = &mut self.sim;
        if !dialed(sim) || sim.epoch().number() < 2 {
            return;
        }
        let old = Epoch::default().next();
        let before = (sim.actions.len(), sim.state(), sim.status().consecutive_failures);
        let input = match which % 4 {
            0 => Input::LinkDown { epoch: old, failure: killed() },
            1 => Input::ProbeEnded { epoch: old, answer: ProbeAnswer::Failed(killed()) },
            2 => Input::LinkUp { epoch: old, probe: Probe::Ping },
            _ => Input::CatalogFailed { epoch: old, failure: killed() },
        };
        // A renewal uses the link of the epoch before; only then is epoch 1 the present link.
        if sim.epoch() == old.next() {
            return;
        }
        sim.handle(input);
        let after = (sim.actions.len(), sim.state(), sim.status().consecutive_failures);
        assert_eq!(before, after, "a straggler changed something");
    }

    fn check(&self) {
        let status = self.sim.status();
        assert_eq!(status.in_flight as usize, self.tickets.len(), "every ticket ends exactly once");
        assert_eq!(status.waiting as usize, self.places.len(), "every place is left exactly once");
        let next = self.sim.machine.next_in_turn();
        assert_eq!(next.is_some(), self.sim.machine.can_be_answered() > 0, "a call is next if one can go");
        assert!(next.is_none_or(|next| self.places.iter().any(|place| place.number == next)), "it is there");
        if status.state == State::Stopped {
            assert!(self.asked_to_stop, "only a stop reaches stopped");
        }
        let count = |wanted: fn(&Action) -> bool| self.sim.actions.iter().filter(|done| wanted(done)).count();
        let hung_up = count(|action| matches!(action, Action::CloseRetired { .. }));
        assert!(hung_up <= self.replaced, "what was not replaced is not hung up");
        if self.tickets.is_empty() {
            assert_eq!(hung_up, self.replaced, "a replaced link without calls is let go");
        }
        match status.state {
            State::Idle | State::Stopped => {}
            _ => assert!(status.next_wake.is_some(), "{:?} has no wake-up", status.state),
        }
    }

    /// From now on everything succeeds: connection attempts, probes and listings.
    fn heal_and_call(mut self, patience: Duration) {
        let sim = &mut self.sim;
        for ticket in self.tickets.drain(..) {
            sim.end(ticket, CallEnd::Abandoned);
        }
        for place in self.places.drain(..) {
            sim.machine.leave_queue(sim.now(), place);
        }
        sim.command(Command::Start);
        let end = sim.mono + patience;
        let mut answered = 0;
        loop {
            while answered < sim.actions.len() {
                let action = sim.actions[answered];
                answered += 1;
                match action {
                    Action::Connect { epoch } | Action::UseSpare { epoch, .. } => {
                        sim.handle(Input::LinkUp { epoch, probe: Probe::Ping });
                    }
                    Action::ConnectStandby { id, role: StandbyRole::Spare } => {
                        sim.handle(Input::SpareUp { id })
                    }
                    Action::ConnectStandby { id, role: StandbyRole::Replacement } => {
                        sim.machine.take_over(sim.now(), id, Probe::Ping);
                        sim.drain();
                    }
                    Action::MeasureMemory { epoch } => {
                        sim.handle(Input::MemoryMeasured { epoch, resident: 0 })
                    }
                    Action::Probe { epoch, .. } => {
                        sim.handle(Input::ProbeEnded { epoch, answer: ProbeAnswer::Alive });
                    }
                    Action::Renew { epoch, .. } => sim.handle(Input::RenewalEnded { epoch, failure: None }),
                    Action::ListCatalog { epoch } => sim.handle(Input::CatalogListed { epoch }),
                    Action::Close(_)
                    | Action::EndCalls
                    | Action::DropStandby
                    | Action::CloseRetired { .. } => {}
                }
            }
            // By a principal that is not refused because of its crashes.
            let admission = sim.machine.admit_for(sim.now(), &PrincipalName::new("another"));
            sim.drain();
            match admission {
                Admission::Go(_) => return,
                Admission::Wait(place) => sim.machine.leave_queue(sim.now(), place),
                Admission::Refuse(_) => {}
            }
            assert!(sim.mono < end, "a healthy sim was not admitted in time: {:?}", sim.status());
            sim.advance(Duration::from_secs(1));
        }
    }
}

fn dialed(sim: &Simulation) -> bool {
    sim.connects() > 0
}

fn take<T>(from: &mut Vec<T>, n: u8) -> Option<T> {
    (!from.is_empty()).then(|| from.swap_remove(n as usize % from.len()))
}

fn spec() -> impl Strategy<Value = SupervisionSpec> {
    let beside = (any::<bool>(), prop::option::of(1u64..600), prop::option::of(0u64..150));
    (any::<bool>(), any::<bool>(), 1u32..4, 0u32..4, beside).prop_map(
        |(lazy, keepalive, in_flight, waiting, beside)| {
            let (spare, lifetime, max_rss) = beside;
            let mut spec = SupervisionSpec {
                lazy,
                spare,
                recycle: RecycleSpec { max_lifetime: lifetime.map(Duration::from_secs), max_rss },
                max_in_flight: in_flight,
                max_waiting: waiting,
                ..SupervisionSpec::default()
            };
            if !keepalive {
                spec.keepalive.interval = None;
            }
            spec
        },
    )
}

fn kind() -> impl Strategy<Value = LinkKind> {
    prop_oneof![Just(LinkKind::Process), Just(LinkKind::Remote)]
}

proptest! {
    /// B01, B13–B16: the invariants of the machine hold after every step of any history, and once everything succeeds,
    /// a call is admitted within the longest timer.
    #[test]
    fn b01_no_history_loses_an_upstream(
        kind in kind(),
        spec in spec(),
        steps in prop::collection::vec(step(), 0..80),
    ) {
        let mut history = History::new(kind, spec);
        for step in steps {
            history.live(step);
        }
        // The longest timer: an attempt while parked (60 s) or a cooldown (60 s), with jitter, after the time limit of
        // an open connection attempt (30 s).
        history.heal_and_call(Duration::from_secs(60 * 2 + 30));
    }
}
