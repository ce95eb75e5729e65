//! Random histories of one upstream: whatever happens, in whatever order, the invariants hold. proptest
//! prints the seed of a failing history and shrinks it to the shortest one that still fails.

mod common;

use common::*;
use gripfast_core::failure::{BlockCause, Failure};
use gripfast_core::ids::{Epoch, PrincipalName};
use gripfast_core::supervise::circuit::CircuitView;
use gripfast_core::supervise::keepalive::Probe;
use gripfast_core::supervise::spec::{RecycleSpec, SupervisionSpec};
use gripfast_core::supervise::status::State;
use gripfast_core::supervise::upstream::{
    Action, Admission, Ask, CallEnd, Input, LinkKind, Place, ProbeAnswer, Reason, Revision, Role, Ticket,
};
use proptest::prelude::*;
use std::time::Duration;

/// One thing that may happen. `u8` picks among what is there.
#[derive(Debug, Clone)]
enum Step {
    Pass(Duration),
    Sleep(Duration),
    Ask(Ask),
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
        Just(Failure::BeyondScope("HTTP 403".into())),
        Just(Failure::ServerFault("HTTP 500".into())),
        Just(Failure::Nonsense("not JSON".into())),
        Just(Failure::Outdated("HTTP 400: Mcp-Param-Region is missing".into())),
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
    let ask = prop_oneof![
        Just(Ask::Start),
        Just(Ask::Reconnect),
        Just(Ask::Reload),
        Just(Ask::CauseChanged),
        Just(Ask::Stop),
        Just(Ask::Leave { within: Duration::from_secs(4) }),
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
        1 => ask.prop_map(Step::Ask),
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

/// A world with the tickets and places that are out, checking the invariants after every step.
struct History {
    world: World,
    tickets: Vec<Ticket>,
    places: Vec<Place>,
    asked_to_stop: bool,
    /// Links that were replaced.
    replaced: usize,
}

impl History {
    fn new(kind: LinkKind, spec: SupervisionSpec) -> Self {
        let mut world = World::new(kind, spec);
        world.ask(Ask::Start);
        Self { world, tickets: Vec::new(), places: Vec::new(), asked_to_stop: false, replaced: 0 }
    }

    fn live(&mut self, step: Step) {
        let world = &mut self.world;
        match step {
            // `World::pass` asserts that after each wake-up the next one is later.
            Step::Pass(span) => world.pass(span),
            Step::Sleep(span) => world.wall += span,
            Step::Ask(ask) => {
                match ask {
                    Ask::Stop | Ask::Leave { .. } => self.asked_to_stop = true,
                    Ask::Start => self.asked_to_stop = false,
                    Ask::Reconnect | Ask::Reload | Ask::CauseChanged => {}
                }
                world.ask(ask);
            }
            Step::Revise(spec, kind, revision) => world.revise(*spec, kind, revision),
            Step::LinkUp => {
                let open_before = world.status().circuit != CircuitView::Closed;
                let connecting = world.machine.ready_epoch().is_none();
                if dialed(world) {
                    world.link_up();
                }
                let came_up = connecting && world.machine.ready_epoch().is_some();
                if came_up {
                    assert_eq!(world.status().circuit, CircuitView::Closed, "was open: {open_before}");
                    assert!(matches!(world.actions.last(), Some(Action::ListCatalog { .. })), "stale");
                }
            }
            Step::LinkDown(failure) if dialed(world) => world.link_down(failure),
            Step::Heard if dialed(world) => {
                let epoch = world.epoch();
                world.tell(Input::Heard { epoch });
            }
            Step::ProbeEnded(answer) if dialed(world) => world.probe_ended(answer),
            Step::RenewalEnded(failure) if dialed(world) => {
                let epoch = world.epoch();
                world.tell(Input::RenewalEnded { epoch, failure });
            }
            Step::CatalogListed if dialed(world) => {
                let epoch = world.epoch();
                world.tell(Input::CatalogListed { epoch });
            }
            Step::CatalogKnown if dialed(world) => {
                let epoch = world.epoch();
                world.tell(Input::CatalogKnown { epoch });
            }
            Step::CatalogFailed(failure) if dialed(world) => {
                let epoch = world.epoch();
                world.tell(Input::CatalogFailed { epoch, failure });
            }
            Step::CatalogChanged if dialed(world) => {
                let epoch = world.epoch();
                world.tell(Input::CatalogChanged { epoch });
            }
            Step::SecondUp => match world.second() {
                Some((_, Role::Spare)) => world.spare_up(),
                Some((_, Role::Replacement)) => {
                    let ready = world.machine.ready_epoch().is_some() || world.is_renewing();
                    let taken = world.take_over();
                    assert!(ready || !taken, "only a working link is replaced");
                    self.replaced += usize::from(taken);
                }
                None => {}
            },
            Step::SecondDown(failure) => {
                if world.second().is_some() {
                    world.second_down(failure);
                }
            }
            Step::Measured(resident) if dialed(world) => {
                let epoch = world.epoch();
                world.tell(Input::Measured { epoch, resident });
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
                match world.machine.admit_for(world.now(), &name) {
                    Admission::Go(ticket) => self.tickets.push(ticket),
                    Admission::Wait(place) => self.places.push(place),
                    Admission::Refuse(_) => {}
                }
                world.drain();
            }
            Step::Readmit(n) => {
                if let Some(place) = take(&mut self.places, n) {
                    match world.readmit(place) {
                        Admission::Go(ticket) => self.tickets.push(ticket),
                        Admission::Wait(place) => self.places.push(place),
                        Admission::Refuse(_) => {}
                    }
                }
            }
            Step::Leave(n) => {
                if let Some(place) = take(&mut self.places, n) {
                    world.machine.leave(world.now(), place);
                }
            }
            Step::End(n, end) => {
                if let Some(ticket) = take(&mut self.tickets, n) {
                    world.end(ticket, end);
                }
            }
        }
        self.tell_displaced();
        self.check();
    }

    /// Whose place went to another principal is refused.
    fn tell_displaced(&mut self) {
        for number in self.world.machine.take_displaced() {
            let at = self.places.iter().position(|place| place.number == number).expect("it waits");
            let told = self.world.readmit(self.places.swap_remove(at));
            assert!(matches!(told, Admission::Refuse(refusal) if refusal.reason == Reason::MadeRoom));
        }
    }

    fn admit(&mut self) {
        let half_open = self.world.status().circuit == CircuitView::HalfOpen;
        match self.world.admit() {
            Admission::Go(ticket) => {
                self.tickets.push(ticket);
                if half_open {
                    // A second caller at the same moment must not be a second trial.
                    assert!(matches!(self.world.admit(), Admission::Refuse(_)), "two trials at once");
                }
            }
            Admission::Wait(place) => self.places.push(place),
            Admission::Refuse(_) => {}
        }
    }

    /// Old news about any epoch but the present one.
    fn straggle(&mut self, which: u8) {
        let world = &mut self.world;
        if !dialed(world) || world.epoch().number() < 2 {
            return;
        }
        let old = Epoch::default().next();
        let before = (world.actions.len(), world.state(), world.status().consecutive_failures);
        let input = match which % 4 {
            0 => Input::LinkDown { epoch: old, failure: killed() },
            1 => Input::ProbeEnded { epoch: old, answer: ProbeAnswer::Failed(killed()) },
            2 => Input::LinkUp { epoch: old, probe: Probe::Ping },
            _ => Input::CatalogFailed { epoch: old, failure: killed() },
        };
        // A renewal stands on the link of the epoch before; only then is epoch 1 the present link.
        if world.epoch() == old.next() {
            return;
        }
        world.tell(input);
        let after = (world.actions.len(), world.state(), world.status().consecutive_failures);
        assert_eq!(before, after, "a straggler changed something");
    }

    fn check(&self) {
        let status = self.world.status();
        assert_eq!(status.in_flight as usize, self.tickets.len(), "every ticket ends exactly once");
        assert_eq!(status.waiting as usize, self.places.len(), "every place is left exactly once");
        let next = self.world.machine.next_in_turn();
        assert_eq!(next.is_some(), self.world.machine.can_be_answered() > 0, "somebody is next");
        assert!(next.is_none_or(|next| self.places.iter().any(|place| place.number == next)), "it is there");
        if status.state == State::Stopped {
            assert!(self.asked_to_stop, "only a stop reaches stopped");
        }
        let count =
            |wanted: fn(&Action) -> bool| self.world.actions.iter().filter(|done| wanted(done)).count();
        let hung_up = count(|action| matches!(action, Action::HangUpRetired { .. }));
        assert!(hung_up <= self.replaced, "what was not replaced is not hung up");
        if self.tickets.is_empty() {
            assert_eq!(hung_up, self.replaced, "a replaced link without calls is let go");
        }
        match status.state {
            State::Idle | State::Stopped => {}
            _ => assert!(status.next_wake.is_some(), "{:?} has no wake-up", status.state),
        }
    }

    /// The world is healthy from now on: dials succeed, probes are answered, lists are listed.
    fn heal_and_call(mut self, patience: Duration) {
        let world = &mut self.world;
        for ticket in self.tickets.drain(..) {
            world.end(ticket, CallEnd::Abandoned);
        }
        for place in self.places.drain(..) {
            world.machine.leave(world.now(), place);
        }
        world.ask(Ask::Start);
        let end = world.mono + patience;
        let mut answered = 0;
        loop {
            while answered < world.actions.len() {
                let action = world.actions[answered];
                answered += 1;
                match action {
                    Action::Dial { epoch } | Action::UseSpare { epoch, .. } => {
                        world.tell(Input::LinkUp { epoch, probe: Probe::Ping });
                    }
                    Action::DialSecond { id, role: Role::Spare } => world.tell(Input::SpareUp { id }),
                    Action::DialSecond { id, role: Role::Replacement } => {
                        world.machine.take_over(world.now(), id, Probe::Ping);
                        world.drain();
                    }
                    Action::Measure { epoch } => world.tell(Input::Measured { epoch, resident: 0 }),
                    Action::Probe { epoch, .. } => {
                        world.tell(Input::ProbeEnded { epoch, answer: ProbeAnswer::Alive });
                    }
                    Action::Renew { epoch, .. } => world.tell(Input::RenewalEnded { epoch, failure: None }),
                    Action::ListCatalog { epoch } => world.tell(Input::CatalogListed { epoch }),
                    Action::HangUp(_)
                    | Action::EndCalls
                    | Action::DropSecond
                    | Action::HangUpRetired { .. } => {}
                }
            }
            // Of a principal that is not refused for what it did to the server.
            let admission = world.machine.admit_for(world.now(), &PrincipalName::new("another"));
            world.drain();
            match admission {
                Admission::Go(_) => return,
                Admission::Wait(place) => world.machine.leave(world.now(), place),
                Admission::Refuse(_) => {}
            }
            assert!(world.mono < end, "a healthy world was not admitted in time: {:?}", world.status());
            world.pass(Duration::from_secs(1));
        }
    }
}

fn dialed(world: &World) -> bool {
    world.dials() > 0
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
    /// B01, B13–B16: the invariants of the machine hold after every step of any history, and from its end
    /// a healthy world admits a call within the longest wake-up.
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
        // The longest wake-up: a parked probe (60 s) or a cooldown (60 s), with jitter and an open
        // dial's give-up time (30 s) before it.
        history.heal_and_call(Duration::from_secs(60 * 2 + 30));
    }
}
