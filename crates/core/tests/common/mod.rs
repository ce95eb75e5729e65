//! A hand-turned clock around one upstream machine.

#![allow(dead_code, reason = "each test binary uses its own part")]

use gripfast_core::event::Event;
use gripfast_core::failure::Failure;
use gripfast_core::ids::{Epoch, SecondId};
use gripfast_core::supervise::keepalive::Probe;
use gripfast_core::supervise::spec::SupervisionSpec;
use gripfast_core::supervise::status::{State, UpstreamStatus};
use gripfast_core::supervise::upstream::{
    Action, Admission, Ask, CallEnd, Input, LinkKind, Place, ProbeAnswer, Refusal, Revision, Role, Ticket,
    Upstream,
};
use gripfast_core::time::{Mono, Now, Wall};
use std::time::Duration;

pub(crate) const MS: Duration = Duration::from_millis(1);
pub(crate) const SEC: Duration = Duration::from_secs(1);
pub(crate) const MIN: Duration = Duration::from_secs(60);

/// One upstream machine, its clock, and what it asked for.
pub(crate) struct World {
    pub(crate) machine: Upstream,
    pub(crate) mono: Duration,
    pub(crate) wall: Duration,
    pub(crate) actions: Vec<Action>,
    pub(crate) events: Vec<Event>,
    /// The epoch of the newest replacement.
    pub(crate) taken_over: Option<Epoch>,
}

impl World {
    pub(crate) fn new(kind: LinkKind, spec: SupervisionSpec) -> Self {
        let (mono, wall) = (Duration::from_secs(1000), Duration::from_secs(1_800_000_000));
        let now = Now { mono: Mono::at(mono), wall: Wall::at(wall) };
        let machine = Upstream::new(spec, kind, 42, now);
        Self { machine, mono, wall, actions: Vec::new(), events: Vec::new(), taken_over: None }
    }

    /// A started upstream that is up and listed.
    pub(crate) fn ready(kind: LinkKind) -> Self {
        Self::ready_with(kind, SupervisionSpec::default())
    }

    pub(crate) fn ready_with(kind: LinkKind, spec: SupervisionSpec) -> Self {
        let mut world = Self::new(kind, spec);
        world.ask(Ask::Start);
        world.come_up();
        world
    }

    pub(crate) fn now(&self) -> Now {
        Now { mono: Mono::at(self.mono), wall: Wall::at(self.wall) }
    }

    /// Lets time pass, waking the machine exactly when it asked for it.
    pub(crate) fn pass(&mut self, span: Duration) {
        let end = self.mono + span;
        while let Some(at) = self.machine.poll_timeout().filter(|at| at.since_origin() <= end) {
            let step = at.since_origin().saturating_sub(self.mono);
            self.tick(step);
            self.machine.handle_timeout(self.now());
            self.drain();
            let next = self.machine.poll_timeout();
            assert!(
                next.is_none_or(|next| next.since_origin() > self.mono),
                "the next wake-up must be later"
            );
        }
        self.tick(end.saturating_sub(self.mono));
    }

    pub(crate) fn tick(&mut self, span: Duration) {
        self.mono += span;
        self.wall += span;
    }

    pub(crate) fn tell(&mut self, input: Input) {
        self.machine.handle(self.now(), input);
        self.drain();
    }

    pub(crate) fn ask(&mut self, ask: Ask) {
        self.tell(Input::Asked(ask));
    }

    pub(crate) fn revise(&mut self, spec: SupervisionSpec, kind: LinkKind, revision: Revision) {
        self.machine.revise(self.now(), spec, kind, revision);
        self.drain();
    }

    pub(crate) fn drain(&mut self) {
        while let Some(action) = self.machine.poll_action() {
            self.actions.push(action);
        }
        while let Some(event) = self.machine.poll_event() {
            self.events.push(event);
        }
    }

    /// The epoch of the newest dial or renewal.
    pub(crate) fn epoch(&self) -> Epoch {
        self.actions
            .iter()
            .rev()
            .find_map(|action| match action {
                Action::Dial { epoch } | Action::Renew { epoch, .. } | Action::UseSpare { epoch, .. } => {
                    Some(*epoch)
                }
                Action::HangUp(_)
                | Action::Probe { .. }
                | Action::ListCatalog { .. }
                | Action::DialSecond { .. }
                | Action::DropSecond
                | Action::HangUpRetired { .. }
                | Action::EndCalls
                | Action::Measure { .. } => None,
            })
            .into_iter()
            .chain(self.taken_over)
            .max()
            .expect("something was dialed")
    }

    /// Whether a session or credential is being replaced.
    pub(crate) fn is_renewing(&self) -> bool {
        let renewal = self.actions.iter().rev().find_map(|action| match action {
            Action::Renew { epoch, .. } => Some(*epoch),
            _ => None,
        });
        renewal.is_some_and(|epoch| self.machine.awaits(epoch))
    }

    /// The newest second link and what it is for.
    pub(crate) fn second(&self) -> Option<(SecondId, Role)> {
        self.actions.iter().rev().find_map(|action| match action {
            Action::DialSecond { id, role } => Some((*id, *role)),
            _ => None,
        })
    }

    pub(crate) fn spare_up(&mut self) {
        let (id, _) = self.second().expect("a spare is being made");
        self.tell(Input::SpareUp { id });
    }

    pub(crate) fn second_down(&mut self, failure: Failure) {
        let (id, _) = self.second().expect("a second link was made");
        self.tell(Input::SecondDown { id, failure });
    }

    /// The replacement is connected and listed; whether it was wanted.
    pub(crate) fn take_over(&mut self) -> bool {
        let (id, _) = self.second().expect("a replacement is being made");
        let epoch = self.machine.take_over(self.now(), id, Probe::Ping);
        self.drain();
        self.taken_over = self.taken_over.max(epoch);
        epoch.is_some()
    }

    pub(crate) fn did(&self, action: Action) -> usize {
        self.actions.iter().filter(|done| **done == action).count()
    }

    pub(crate) fn dials(&self) -> usize {
        self.actions.iter().filter(|action| matches!(action, Action::Dial { .. })).count()
    }

    pub(crate) fn probes(&self) -> usize {
        self.actions.iter().filter(|action| matches!(action, Action::Probe { .. })).count()
    }

    pub(crate) fn link_up(&mut self) {
        let epoch = self.epoch();
        self.tell(Input::LinkUp { epoch, probe: Probe::Ping });
    }

    pub(crate) fn come_up(&mut self) {
        self.link_up();
        let epoch = self.epoch();
        self.tell(Input::CatalogListed { epoch });
    }

    pub(crate) fn link_down(&mut self, failure: Failure) {
        let epoch = self.epoch();
        self.tell(Input::LinkDown { epoch, failure });
    }

    pub(crate) fn probe_ended(&mut self, answer: ProbeAnswer) {
        let epoch = self.epoch();
        self.tell(Input::ProbeEnded { epoch, answer });
    }

    pub(crate) fn admit(&mut self) -> Admission {
        let admission = self.machine.admit(self.now());
        self.drain();
        admission
    }

    pub(crate) fn go(&mut self) -> Ticket {
        match self.admit() {
            Admission::Go(ticket) => ticket,
            other => panic!("expected to be admitted, got {other:?} in {:?}", self.state()),
        }
    }

    pub(crate) fn wait(&mut self) -> Place {
        match self.admit() {
            Admission::Wait(place) => place,
            other => panic!("expected to be held, got {other:?} in {:?}", self.state()),
        }
    }

    pub(crate) fn refused(&mut self) -> Refusal {
        match self.admit() {
            Admission::Refuse(refusal) => refusal,
            other => panic!("expected to be refused, got {other:?} in {:?}", self.state()),
        }
    }

    pub(crate) fn readmit(&mut self, place: Place) -> Admission {
        let admission = self.machine.readmit(self.now(), place);
        self.drain();
        admission
    }

    pub(crate) fn end(&mut self, ticket: Ticket, end: CallEnd) {
        self.machine.end(self.now(), ticket, end);
        self.drain();
    }

    pub(crate) fn fail_call(&mut self, failure: Failure) {
        let ticket = self.go();
        self.end(ticket, CallEnd::Failed(failure));
    }

    pub(crate) fn good_call(&mut self) {
        let ticket = self.go();
        self.end(ticket, CallEnd::Answered);
    }

    pub(crate) fn status(&self) -> UpstreamStatus {
        self.machine.status(self.now())
    }

    pub(crate) fn state(&self) -> State {
        self.status().state
    }
}

pub(crate) fn killed() -> Failure {
    Failure::Lost("was killed (signal 9)".to_owned())
}

pub(crate) fn refused() -> Failure {
    Failure::Unreachable("connection refused".to_owned())
}

pub(crate) fn timed_out() -> Failure {
    Failure::TimedOut(Duration::from_secs(300))
}

pub(crate) fn expired() -> Failure {
    Failure::SessionExpired("HTTP 404".to_owned())
}
