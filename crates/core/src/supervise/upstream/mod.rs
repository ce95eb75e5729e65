//! The machine of one upstream: link, circuit, restart budget, keepalive and catalog freshness composed.
//!
//! The shell owns exactly one of these per upstream. It asks for admission before each call and reports
//! each end; it performs the actions it is given and reports what came of them; it keeps one timer, set to
//! [`Upstream::poll_timeout`]. The machine never learns how a link is made, and it never reads a clock.
//!
//! ```text
//!            a call           up                  lost, probe failed
//!  Dormant ─────────▶ Connecting ─────▶ Ready ───────────────┐
//!     ▲                 ▲  ▲  │          │  ▲                 │
//!     │ idle            │  │  │ failed   │  │ renewed         │
//!     └─────────────────┼──┼──┼──────────┤  └─── Renewing ◀───┤ session or credential refused
//!                  time │  │  ▼          │           │ failed │
//!                       └─Waiting ◀──────┼───────────┴────────┘
//!                          │  │ budget spent, or away for the whole window
//!                     time │  ▼          │
//!                       Parked           │ stop           Blocked: what retrying cannot mend,
//!                                        ▼                re-checked now and then
//!                                Draining ─▶ Stopped
//! ```

mod admission;
mod asks;
mod catalog;
mod outage;
mod report;
mod revise;
mod second;

pub use super::link::Renewal;
pub use admission::{Admission, CallEnd, Place, Reason, Refusal, Ticket, WaitFor};
pub use revise::Revision;
pub use second::Role;

use super::circuit::Circuit;
use super::keepalive::{Keepalive, Probe};
use super::link::{CatalogState, Link, Ready};
use super::restarts::RestartBudget;
use super::spec::{KeepaliveSpec, SupervisionSpec};
use super::status::State;
use crate::event::Event;
use crate::failure::{BlockCause, Failure};
use crate::ids::{Epoch, SecondId};
use crate::jitter::Jitter;
use crate::time::{Mono, Now, SleepWatch};
use outage::Outage;
use second::{Retired, SecondLink};
use std::collections::VecDeque;
use std::time::Duration;

/// The supervision of one upstream.
#[derive(Debug)]
pub struct Upstream {
    spec: SupervisionSpec,
    kind: LinkKind,
    link: Link,
    epoch: Epoch,
    /// The number of the present link. A renewed session has a new epoch on the same link.
    link_number: u64,
    /// Calls under way on the present link.
    on_link: u32,
    second: SecondLink,
    retired: Vec<Retired>,
    circuit: Circuit,
    budget: RestartBudget,
    outage: Option<Outage>,
    /// Since when it was away, until its catalog is listed again.
    away_since: Option<Mono>,
    cause: Option<String>,
    /// Why a person has to approve something before all of it can be used.
    held_back: Option<String>,
    jitter: Jitter,
    sleep: SleepWatch,
    glance_at: Mono,

    next_call: u64,
    in_flight: u32,
    waiting: u32,
    holders: u32,
    used_at: Mono,

    ever_up: bool,
    restarts: u64,
    woken_by_call: Option<Mono>,
    shown: State,
    shown_since: Mono,

    actions: VecDeque<Action>,
    events: VecDeque<Event>,
}

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
    /// End it, until somebody says start. Removal and shutdown ask for the same.
    Stop,
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
    /// `SpareUp`, or call [`Upstream::take_over`]; or report `SecondDown`.
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
    /// List the catalog, publish what changed; report `CatalogListed` or `CatalogFailed`.
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

impl Upstream {
    /// How often an otherwise untroubled machine looks whether the computer slept.
    const GLANCE_EVERY: Duration = Duration::from_secs(30);
    /// After a sleep, links are checked one after another within this span.
    const STAGGER: Duration = Duration::from_secs(5);
    /// How long calls in flight may go on after a stop.
    const DRAIN_FOR: Duration = Duration::from_secs(10);
    /// The longest pause between two attempts to list a catalog.
    const RELIST_PAUSE_MAX: Duration = Duration::from_secs(60);

    /// An upstream that was not started yet. `seed` decides its jitter.
    pub fn new(spec: SupervisionSpec, kind: LinkKind, seed: u64, now: Now) -> Self {
        Self {
            circuit: Circuit::new(spec.circuit),
            budget: RestartBudget::new(&spec.restart),
            spec,
            kind,
            link: Link::Dormant,
            epoch: Epoch::default(),
            link_number: 0,
            on_link: 0,
            second: SecondLink::new(now.mono),
            retired: Vec::new(),
            outage: None,
            away_since: None,
            cause: None,
            held_back: None,
            jitter: Jitter::seeded(seed),
            sleep: SleepWatch::new(now),
            glance_at: now.mono + Self::GLANCE_EVERY,
            next_call: 0,
            in_flight: 0,
            waiting: 0,
            holders: 0,
            used_at: now.mono,
            ever_up: false,
            restarts: 0,
            woken_by_call: None,
            shown: State::Idle,
            shown_since: now.mono,
            actions: VecDeque::new(),
            events: VecDeque::new(),
        }
    }

    /// Takes a report.
    pub fn handle(&mut self, now: Now, input: Input) {
        self.look(now);
        let now = now.mono;
        match input {
            Input::LinkUp { epoch, probe } => self.on_link_up(now, epoch, probe),
            Input::LinkDown { epoch, failure } => self.on_link_down(now, epoch, failure),
            Input::Heard { epoch } => {
                if let Some(ready) = self.ready_at(epoch) {
                    ready.keepalive.heard(now);
                }
            }
            Input::ProbeEnded { epoch, answer } => self.on_probe_ended(now, epoch, answer),
            Input::RenewalEnded { epoch, failure } => self.on_renewal_ended(now, epoch, failure),
            Input::CatalogListed { epoch } => self.on_catalog_listed(now, epoch),
            Input::CatalogKnown { epoch } => self.on_catalog_known(now, epoch),
            Input::HeldBack { cause } => self.held_back = cause,
            Input::CatalogFailed { epoch, failure } => self.on_catalog_failed(now, epoch, failure),
            Input::CatalogChanged { epoch } => self.on_catalog_changed(now, epoch),
            Input::SpareUp { id } => self.on_spare_up(now, id),
            Input::SecondDown { id, failure } => self.on_second_down(now, id, &failure),
            Input::Measured { epoch, resident } => self.on_measured(now, epoch, resident),
            Input::Asked(ask) => self.on_asked(now, ask),
        }
        self.show(now);
    }

    /// The time of [`Self::poll_timeout`] has come.
    pub fn handle_timeout(&mut self, now: Now) {
        self.look(now);
        let now = now.mono;
        self.tend_second(now);
        self.tend_retired(now);
        match &self.link {
            Link::Dormant | Link::Stopped => {}
            Link::Connecting { give_up_at, .. } => {
                if *give_up_at <= now {
                    let waited = Failure::TimedOut(self.spec.timeouts.connect);
                    self.actions.push_back(Action::HangUp(Manner::AtOnce));
                    self.away(now, waited);
                }
            }
            Link::Ready(_) => self.tend(now),
            Link::Renewing { give_up_at, .. } => {
                if *give_up_at <= now {
                    let waited = Failure::TimedOut(self.spec.timeouts.connect);
                    self.lose_link(now, waited);
                }
            }
            Link::Waiting { until } => {
                if *until <= now {
                    self.restart(now);
                }
            }
            Link::Parked { probe_at } => {
                if *probe_at <= now {
                    self.try_parked(now);
                }
            }
            Link::Blocked { recheck_at, .. } => {
                if *recheck_at <= now {
                    self.recheck(now);
                }
            }
            Link::Draining { until } => {
                if *until <= now {
                    self.finish_drain();
                }
            }
        }
        self.show(now);
    }

    /// When [`Self::handle_timeout`] wants to be called next.
    pub fn poll_timeout(&self) -> Option<Mono> {
        let beside = [self.second_due(), self.retired_due()];
        beside.into_iter().flatten().chain(self.link_due()).min()
    }

    fn link_due(&self) -> Option<Mono> {
        match &self.link {
            Link::Dormant | Link::Stopped => None,
            Link::Connecting { give_up_at: due, .. }
            | Link::Renewing { give_up_at: due, .. }
            | Link::Waiting { until: due }
            | Link::Parked { probe_at: due }
            | Link::Blocked { recheck_at: due, .. }
            | Link::Draining { until: due } => Some(*due),
            Link::Ready(ready) => {
                let catalog_due = match ready.catalog {
                    CatalogState::Stale { retry_at, .. } => Some(retry_at),
                    CatalogState::FirstListing { .. }
                    | CatalogState::Listing { .. }
                    | CatalogState::Fresh => None,
                };
                let due = [
                    ready.keepalive.wake_at(self.in_flight),
                    ready.proven_at,
                    ready.suspect,
                    catalog_due,
                    ready.recycle_at,
                    ready.measure_at,
                    self.idle_stop_at(),
                ];
                due.into_iter().flatten().chain([self.glance_at]).min()
            }
        }
    }

    /// The next thing to do.
    pub fn poll_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// Whether there is something to do that was not polled yet.
    pub fn has_actions(&self) -> bool {
        !self.actions.is_empty()
    }

    /// The next thing to tell.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Somebody wants this upstream to stay up, used or not.
    pub fn hold(&mut self) {
        self.holders += 1;
    }

    /// The counterpart of [`Self::hold`].
    pub fn release(&mut self, now: Now) {
        self.holders = self.holders.saturating_sub(1);
        self.used_at = now.mono;
    }

    /// The number of the present link or session, if it is usable.
    pub fn ready_epoch(&self) -> Option<Epoch> {
        self.ready().map(|ready| ready.epoch)
    }

    /// What it is blocked by, if it is.
    pub fn block_cause(&self) -> Option<&BlockCause> {
        match &self.link {
            Link::Blocked { cause, .. } | Link::Connecting { blocked: Some(cause), .. } => Some(cause),
            Link::Dormant
            | Link::Connecting { blocked: None, .. }
            | Link::Ready(_)
            | Link::Renewing { .. }
            | Link::Waiting { .. }
            | Link::Parked { .. }
            | Link::Draining { .. }
            | Link::Stopped => None,
        }
    }

    /// Whether the dial or renewal of this epoch is still wanted.
    pub fn awaits(&self, wanted: Epoch) -> bool {
        match &self.link {
            Link::Connecting { epoch, .. } | Link::Renewing { epoch, .. } => *epoch == wanted,
            Link::Dormant
            | Link::Ready(_)
            | Link::Waiting { .. }
            | Link::Parked { .. }
            | Link::Blocked { .. }
            | Link::Draining { .. }
            | Link::Stopped => false,
        }
    }

    /// Looks at both clocks: after a sleep, a link is checked before it is trusted.
    fn look(&mut self, now: Now) {
        if !self.sleep.slept(now) {
            return;
        }
        if let Link::Ready(ready) = &mut self.link {
            ready.suspect = Some(now.mono + self.jitter.within(Self::STAGGER));
            self.events.push_back(Event::Slept);
        }
    }

    /// Everything that a usable link may need when time has passed.
    fn tend(&mut self, now: Mono) {
        if self.glance_at <= now {
            self.glance_at = now + Self::GLANCE_EVERY;
        }
        if self.idle_stop_at().is_some_and(|at| at <= now) {
            self.actions.push_back(Action::HangUp(Manner::Politely));
            self.link = Link::Dormant;
            self.drop_second();
            return;
        }
        self.tend_age(now);
        let Link::Ready(ready) = &mut self.link else { return };
        if let Some(waited) = ready.keepalive.overdue(now) {
            let silent = Failure::TimedOut(waited);
            self.events.push_back(Event::ProbeFailed { cause: silent.to_string() });
            self.lose_link(now, silent);
            return;
        }
        if ready.proven_at.is_some_and(|at| at <= now) {
            ready.proven_at = None;
            self.budget.forgive();
        }
        if let CatalogState::Stale { retry_at, attempts } = ready.catalog
            && retry_at <= now
        {
            // The count of attempts lives on in the retry time of the next failure.
            ready.catalog = CatalogState::Stale { retry_at: now + Self::RELIST_PAUSE_MAX, attempts };
            self.actions.push_back(Action::ListCatalog { epoch: ready.epoch });
        }
        let suspicion_due = ready.suspect.is_some_and(|at| at <= now);
        if suspicion_due {
            // Asked, or being asked: the answer's own deadline takes over.
            ready.suspect = Some(now + self.spec.keepalive.timeout);
        }
        if suspicion_due || ready.keepalive.is_due(now, self.in_flight) {
            self.probe(now);
        }
    }

    fn probe(&mut self, now: Mono) {
        self.probe_within(now, self.spec.keepalive.timeout);
    }

    fn probe_within(&mut self, now: Mono, limit: Duration) {
        if let Link::Ready(ready) = &mut self.link
            && let Some(probe) = ready.keepalive.ask_within(now, limit)
        {
            self.actions.push_back(Action::Probe { epoch: ready.epoch, probe });
        }
    }

    fn on_link_up(&mut self, now: Mono, epoch: Epoch, probe: Probe) {
        // Anything else is a dial that was given up: the shell drops what it made.
        if matches!(&self.link, Link::Connecting { epoch: dialed, .. } if *dialed == epoch) {
            self.begin_link();
            self.become_ready(now, epoch, probe, CatalogState::FirstListing { again: false });
        }
    }

    fn become_ready(&mut self, now: Mono, epoch: Epoch, probe: Probe, catalog: CatalogState) {
        let prove_after =
            self.spec.keepalive.interval.or(KeepaliveSpec::default().interval).unwrap_or_default();
        self.link = Link::Ready(Ready {
            epoch,
            keepalive: Keepalive::new(self.spec.keepalive, probe, now),
            answered: false,
            proven_at: Some(now + prove_after),
            suspect: None,
            vouched_from: 0,
            catalog,
            until_listed: if self.ever_up { State::Reconnecting } else { State::Starting },
            recycle_at: self.recycle_at(now),
            measure_at: self.measure_at(now),
        });
        self.ever_up = true;
        self.used_at = now;
        self.glance_at = now + Self::GLANCE_EVERY;
        self.cause = None;
        if self.circuit.close() {
            self.events.push_back(Event::CircuitClosed);
        }
        if let Some(outage) = self.outage.take() {
            self.away_since.get_or_insert(outage.since);
        }
        self.actions.push_back(Action::ListCatalog { epoch });
    }

    fn on_probe_ended(&mut self, now: Mono, epoch: Epoch, answer: ProbeAnswer) {
        let next_call = self.next_call;
        let Some(ready) = self.ready_at(epoch) else { return };
        match answer {
            ProbeAnswer::Alive
            | ProbeAnswer::Failed(
                Failure::Declined(_) | Failure::Outdated(_) | Failure::BeyondScope(_) | Failure::Busy { .. },
            ) => {
                ready.keepalive.answered(now);
                ready.answered = true;
                ready.trust(next_call);
            }
            ProbeAnswer::Unsupported => match ready.keepalive.unsupported(now) {
                Some(probe) => self.actions.push_back(Action::Probe { epoch, probe }),
                None => ready.trust(next_call),
            },
            ProbeAnswer::Failed(failure) => {
                self.events.push_back(Event::ProbeFailed { cause: failure.to_string() });
                match failure {
                    Failure::SessionExpired(_) => self.renew_session(now, failure),
                    Failure::CredentialRefused(_) => self.renew(now, Renewal::Credential),
                    Failure::Unreachable(_)
                    | Failure::Lost(_)
                    | Failure::TimedOut(_)
                    | Failure::ServerFault(_)
                    | Failure::Nonsense(_)
                    | Failure::Blocked(_)
                    | Failure::Outdated(_)
                    | Failure::BeyondScope(_)
                    | Failure::Declined(_)
                    | Failure::Busy { .. } => self.lose_link(now, failure),
                }
            }
        }
    }

    /// The session was refused. One that never worked is not replaced by another of its kind: that would
    /// go on for ever, while a lost link has a budget.
    fn renew_session(&mut self, now: Mono, failure: Failure) {
        match &self.link {
            Link::Ready(ready) if !ready.answered => self.lose_link(now, failure),
            Link::Ready(_)
            | Link::Dormant
            | Link::Connecting { .. }
            | Link::Renewing { .. }
            | Link::Waiting { .. }
            | Link::Parked { .. }
            | Link::Blocked { .. }
            | Link::Draining { .. }
            | Link::Stopped => self.renew(now, Renewal::Session),
        }
    }

    /// Session or credential was refused on the present link: replace it once for everybody.
    fn renew(&mut self, now: Mono, renewal: Renewal) {
        let Link::Ready(ready) = &self.link else { return };
        let probe = ready.keepalive.probe();
        self.epoch = self.epoch.next();
        let give_up_at = now + self.spec.timeouts.connect;
        self.link = Link::Renewing { epoch: self.epoch, renewal, probe, give_up_at };
        self.actions.push_back(Action::Renew { epoch: self.epoch, renewal });
    }

    fn on_renewal_ended(&mut self, now: Mono, epoch: Epoch, failure: Option<Failure>) {
        let Link::Renewing { epoch: renewed, renewal, probe, .. } = self.link else { return };
        if renewed != epoch {
            return;
        }
        match failure {
            None => {
                self.events.push_back(match renewal {
                    Renewal::Session => Event::SessionRenewed,
                    Renewal::Credential => Event::CredentialRenewed,
                });
                self.become_ready(now, epoch, probe, CatalogState::FirstListing { again: false });
            }
            Some(Failure::CredentialRefused(text)) => {
                self.actions.push_back(Action::HangUp(Manner::AtOnce));
                self.block(now, BlockCause::NeedsLogin(text));
            }
            Some(failure) => self.lose_link(now, failure),
        }
    }

    /// When a lazy link that nobody uses is to be stopped.
    fn idle_stop_at(&self) -> Option<Mono> {
        let unused = self.spec.lazy && self.in_flight == 0 && self.waiting == 0 && self.holders == 0;
        unused.then(|| self.used_at + self.spec.idle_timeout)
    }

    fn ready(&self) -> Option<&Ready> {
        match &self.link {
            Link::Ready(ready) => Some(ready),
            Link::Dormant
            | Link::Connecting { .. }
            | Link::Renewing { .. }
            | Link::Waiting { .. }
            | Link::Parked { .. }
            | Link::Blocked { .. }
            | Link::Draining { .. }
            | Link::Stopped => None,
        }
    }

    /// The link of this epoch, if it is the present one.
    fn ready_on(&self, epoch: Epoch) -> Option<&Ready> {
        self.ready().filter(|ready| ready.epoch == epoch)
    }

    fn ready_at(&mut self, epoch: Epoch) -> Option<&mut Ready> {
        match &mut self.link {
            Link::Ready(ready) if ready.epoch == epoch => Some(ready),
            Link::Ready(_)
            | Link::Dormant
            | Link::Connecting { .. }
            | Link::Renewing { .. }
            | Link::Waiting { .. }
            | Link::Parked { .. }
            | Link::Blocked { .. }
            | Link::Draining { .. }
            | Link::Stopped => None,
        }
    }
}
