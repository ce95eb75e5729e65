//! Test harness: one upstream machine with a clock that the test advances.

#![allow(dead_code, reason = "each test binary uses its own part")]

use gripfast_core::event::Event;
use gripfast_core::failure::Failure;
use gripfast_core::ids::{Epoch, StandbyId};
use gripfast_core::supervise::keepalive::Probe;
use gripfast_core::supervise::spec::SupervisionSpec;
use gripfast_core::supervise::status::{State, UpstreamStatus};
use gripfast_core::supervise::upstream::{
    Action, Admission, CallEnd, Command, Input, LinkKind, ProbeAnswer, QueuePlace, Refusal, Revision,
    StandbyRole, Ticket, UpstreamMachine,
};
use gripfast_core::time::{Mono, Now, Wall};
use std::time::Duration;

pub(crate) const MS: Duration = Duration::from_millis(1);
pub(crate) const SEC: Duration = Duration::from_secs(1);
pub(crate) const MIN: Duration = Duration::from_secs(60);

/// One upstream machine, its clock, and the actions it asked for.
pub(crate) struct Simulation {
    pub(crate) machine: UpstreamMachine,
    pub(crate) mono: Duration,
    pub(crate) wall: Duration,
    pub(crate) actions: Vec<Action>,
    pub(crate) events: Vec<Event>,
    /// The epoch of the newest replacement.
    pub(crate) taken_over: Option<Epoch>,
}

impl Simulation {
    pub(crate) fn new(kind: LinkKind, spec: SupervisionSpec) -> Self {
        let (mono, wall) = (Duration::from_secs(1000), Duration::from_secs(1_800_000_000));
        let now = Now { mono: Mono::from_origin(mono), wall: Wall::from_unix_epoch(wall) };
        let machine = UpstreamMachine::new(spec, kind, 42, now);
        Self { machine, mono, wall, actions: Vec::new(), events: Vec::new(), taken_over: None }
    }

    /// A started upstream that is up and listed.
    pub(crate) fn ready(kind: LinkKind) -> Self {
        Self::ready_with(kind, SupervisionSpec::default())
    }

    pub(crate) fn ready_with(kind: LinkKind, spec: SupervisionSpec) -> Self {
        let mut sim = Self::new(kind, spec);
        sim.command(Command::Start);
        sim.come_up();
        sim
    }

    pub(crate) fn now(&self) -> Now {
        Now { mono: Mono::from_origin(self.mono), wall: Wall::from_unix_epoch(self.wall) }
    }

    /// Advances the clock, and wakes the machine exactly at its timeouts.
    pub(crate) fn advance(&mut self, span: Duration) {
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

    pub(crate) fn handle(&mut self, input: Input) {
        self.machine.handle(self.now(), input);
        self.drain();
    }

    pub(crate) fn command(&mut self, command: Command) {
        self.handle(Input::Command(command));
    }

    pub(crate) fn reconfigure(&mut self, spec: SupervisionSpec, kind: LinkKind, revision: Revision) {
        self.machine.reconfigure(self.now(), spec, kind, revision);
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

    /// The epoch of the newest connection attempt or renewal.
    pub(crate) fn epoch(&self) -> Epoch {
        self.actions
            .iter()
            .rev()
            .find_map(|action| match action {
                Action::Connect { epoch } | Action::Renew { epoch, .. } | Action::UseSpare { epoch, .. } => {
                    Some(*epoch)
                }
                Action::Close(_)
                | Action::Probe { .. }
                | Action::ListCatalog { .. }
                | Action::ConnectStandby { .. }
                | Action::DropStandby
                | Action::CloseRetired { .. }
                | Action::EndCalls
                | Action::MeasureMemory { .. } => None,
            })
            .into_iter()
            .chain(self.taken_over)
            .max()
            .expect("there was a connection attempt")
    }

    /// Returns whether a session or credential is being replaced.
    pub(crate) fn is_renewing(&self) -> bool {
        let renewal = self.actions.iter().rev().find_map(|action| match action {
            Action::Renew { epoch, .. } => Some(*epoch),
            _ => None,
        });
        renewal.is_some_and(|epoch| self.machine.awaits(epoch))
    }

    /// The newest standby link and its role.
    pub(crate) fn standby(&self) -> Option<(StandbyId, StandbyRole)> {
        self.actions.iter().rev().find_map(|action| match action {
            Action::ConnectStandby { id, role } => Some((*id, *role)),
            _ => None,
        })
    }

    pub(crate) fn spare_up(&mut self) {
        let (id, _) = self.standby().expect("a spare is being made");
        self.handle(Input::SpareUp { id });
    }

    pub(crate) fn standby_down(&mut self, failure: Failure) {
        let (id, _) = self.standby().expect("a standby link was made");
        self.handle(Input::StandbyDown { id, failure });
    }

    /// The replacement is connected and listed. Returns whether it was wanted.
    pub(crate) fn take_over(&mut self) -> bool {
        let (id, _) = self.standby().expect("a replacement is being made");
        let epoch = self.machine.take_over(self.now(), id, Probe::Ping);
        self.drain();
        self.taken_over = self.taken_over.max(epoch);
        epoch.is_some()
    }

    pub(crate) fn count_of(&self, action: Action) -> usize {
        self.actions.iter().filter(|done| **done == action).count()
    }

    pub(crate) fn connects(&self) -> usize {
        self.actions.iter().filter(|action| matches!(action, Action::Connect { .. })).count()
    }

    pub(crate) fn probes(&self) -> usize {
        self.actions.iter().filter(|action| matches!(action, Action::Probe { .. })).count()
    }

    pub(crate) fn link_up(&mut self) {
        let epoch = self.epoch();
        self.handle(Input::LinkUp { epoch, probe: Probe::Ping });
    }

    pub(crate) fn come_up(&mut self) {
        self.link_up();
        let epoch = self.epoch();
        self.handle(Input::CatalogListed { epoch });
    }

    pub(crate) fn link_down(&mut self, failure: Failure) {
        let epoch = self.epoch();
        self.handle(Input::LinkDown { epoch, failure });
    }

    pub(crate) fn probe_ended(&mut self, answer: ProbeAnswer) {
        let epoch = self.epoch();
        self.handle(Input::ProbeEnded { epoch, answer });
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

    pub(crate) fn wait(&mut self) -> QueuePlace {
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

    pub(crate) fn readmit(&mut self, place: QueuePlace) -> Admission {
        let admission = self.machine.readmit(self.now(), place);
        self.drain();
        admission
    }

    pub(crate) fn end(&mut self, ticket: Ticket, end: CallEnd) {
        self.machine.end_call(self.now(), ticket, end);
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
