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
mod exchange;
mod outage;
mod renewal;
mod report;
mod revise;
mod second;
mod upkeep;

pub use super::link::Renewal;
pub use admission::{Admission, CallEnd, PausedSlot, Place, Reason, Refusal, Ticket, WaitFor, Wakeups};
pub use exchange::{Action, Ask, Input, LinkKind, Manner, ProbeAnswer};
pub use revise::Revision;
pub use second::Role;

use super::circuit::Circuit;
use super::connect_limit::ConnectLimit;
use super::keepalive::{CallsBefore, Keepalive, Probe};
use super::link::{CatalogState, Link, Ready};
use super::principals::{AtWorkFor, Principals, RecentPrincipals};
use super::restarts::{RestartBudget, RestartCause};
use super::spec::{KeepaliveSpec, SupervisionSpec};
use super::status::State;
use crate::event::Event;
use crate::failure::crashes::PrincipalCrashes;
use crate::failure::{BlockCause, Failure};
use crate::ids::Epoch;
use crate::jitter::Jitter;
use crate::time::{Mono, Now, SleepWatch};
use outage::{CountedAs, Outage};
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
    /// Those of them that wait for a person, and need no slot.
    paused: u32,
    second: SecondLink,
    retired: Vec<Retired>,
    circuit: Circuit,
    budget: RestartBudget,
    connect_limit: ConnectLimit,
    /// What the next restart is counted for.
    restart_cause: RestartCause,
    /// How the present attempt was counted.
    counted: CountedAs,
    /// Deaths of the process, by the principal whose calls alone were in flight.
    crashes: PrincipalCrashes,
    outage: Option<Outage>,
    /// Since when it was away, until its catalog is listed again.
    away_since: Option<Mono>,
    cause: Option<String>,
    /// Why the catalog is stale, while it is.
    stale_cause: Option<String>,
    /// Why a person has to approve something before all of it can be used.
    held_back: Option<String>,
    jitter: Jitter,
    sleep: SleepWatch,
    glance_at: Mono,

    next_call: u64,
    in_flight: u32,
    /// The slots and waiting calls of each principal.
    principals: Principals,
    /// The principals that called lately.
    callers: RecentPrincipals,
    /// The principals that gave up calls on the present link; the server may still be at work on them.
    given_up: AtWorkFor,
    /// When the last of them was given up.
    given_up_at: Mono,
    waiting: u32,
    /// Places that were lost to other principals, and were not told so yet.
    displaced: Vec<u64>,
    /// Those of them who wait for a slot.
    queued: u32,
    /// Whether they had a link to wait for a slot of, when that was last looked at.
    has_slots: bool,
    /// They have it no more, and were not told so yet.
    strands: bool,
    holders: u32,
    used_at: Mono,

    ever_up: bool,
    restarts: u64,
    woken_by_call: Option<Mono>,
    /// Callers that have woken a parked upstream and are held until it has been tried.
    wakers: u32,
    session_doubted_at: Option<Mono>,
    rechecked_at: Option<Mono>,
    shown: State,
    shown_since: Mono,

    actions: VecDeque<Action>,
    events: VecDeque<Event>,
}

impl Upstream {
    /// How often an otherwise untroubled machine looks whether the computer slept.
    const GLANCE_EVERY: Duration = Duration::from_secs(30);
    /// After a sleep, links are checked one after another within this span.
    const STAGGER: Duration = Duration::from_secs(5);
    /// How long calls in flight may go on after a stop.
    const DRAIN_FOR: Duration = Duration::from_secs(10);
    /// A call wakes a parked upstream or pulls an attempt forward, a changed cause wakes a blocked one, and a doubt about
    /// the session has it probed, at most this often.
    const WAKE_EVERY: Duration = Duration::from_secs(5);
    /// A remote server that was not heard of for this long is probed when its status is read.
    const STATUS_TRUE_FOR: Duration = Duration::from_secs(10);
    /// In a span of this length a server is listed twice at the most, however often it says that something changed:
    /// there are servers that say so whenever they are listed.
    const LISTED_TWICE_IN: Duration = Duration::from_secs(1);
    /// The longest pause between two attempts to list a catalog.
    const RELIST_PAUSE_MAX: Duration = Duration::from_secs(60);

    /// An upstream that was not started yet. `seed` decides its jitter.
    pub fn new(spec: SupervisionSpec, kind: LinkKind, seed: u64, now: Now) -> Self {
        Self {
            circuit: Circuit::new(spec.circuit),
            budget: RestartBudget::new(&spec.restart),
            connect_limit: ConnectLimit::default(),
            restart_cause: RestartCause::default(),
            counted: CountedAs::Nothing,
            crashes: PrincipalCrashes::default(),
            spec,
            kind,
            link: Link::Dormant,
            epoch: Epoch::default(),
            link_number: 0,
            on_link: 0,
            paused: 0,
            second: SecondLink::new(now.mono),
            retired: Vec::new(),
            outage: None,
            away_since: None,
            cause: None,
            stale_cause: None,
            held_back: None,
            jitter: Jitter::seeded(seed),
            sleep: SleepWatch::new(now),
            glance_at: now.mono + Self::GLANCE_EVERY,
            next_call: 0,
            in_flight: 0,
            principals: Principals::new(),
            callers: RecentPrincipals::default(),
            given_up: AtWorkFor::Nobody,
            given_up_at: now.mono,
            waiting: 0,
            displaced: Vec::new(),
            queued: 0,
            has_slots: false,
            strands: false,
            holders: 0,
            used_at: now.mono,
            ever_up: false,
            restarts: 0,
            woken_by_call: None,
            wakers: 0,
            session_doubted_at: None,
            rechecked_at: None,
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
            Input::ToolsListed { epoch } => self.on_tools_listed(now, epoch),
            Input::CatalogPartlyListed { epoch, cause } => self.on_catalog_partly_listed(now, epoch, cause),
            Input::CatalogKnown { epoch } => self.on_catalog_known(now, epoch),
            Input::HeldBack { cause } => self.held_back = cause,
            Input::CatalogFailed { epoch, failure } => self.on_catalog_failed(now, epoch, failure),
            Input::CatalogChanged { epoch } => self.on_catalog_changed(now, epoch),
            Input::SpareUp { id } => self.on_spare_up(now, id),
            Input::SecondDown { id, failure } => self.on_second_down(now, id, &failure),
            Input::Measured { epoch, resident } => self.on_measured(now, epoch, resident),
            Input::SessionDoubted { epoch } => self.on_session_doubted(now, epoch),
            Input::StatusRead => self.on_status_read(now),
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
            Link::Connecting { since, give_up_at, .. } => {
                if *give_up_at <= now {
                    let limit = *give_up_at - *since;
                    self.connect_limit.timed_out(limit);
                    self.actions.push_back(Action::HangUp(Manner::AtOnce));
                    self.away(now, Failure::TimedOut(limit));
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
        earlier(earlier(self.second_due(), self.retired_due()), self.link_due())
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
                    CatalogState::Stale { retry_at: due, .. } | CatalogState::Changed { list_at: due } => {
                        Some(due)
                    }
                    CatalogState::FirstListing { .. }
                    | CatalogState::Listing { .. }
                    | CatalogState::Fresh => None,
                };
                let due = [
                    ready.keepalive.wake_at(),
                    ready.proven_at,
                    ready.suspect,
                    catalog_due,
                    ready.recycle_at,
                    ready.measure_at,
                    self.idle_stop_at(),
                ];
                due.into_iter().fold(Some(self.glance_at), earlier)
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

    /// The time that the present attempt to connect has in all, or that the next one will have.
    pub fn connect_limit(&self) -> Duration {
        self.attempt().map_or_else(|| self.connect_limit.next(&self.spec.timeouts), |(_, limit)| limit)
    }

    /// When the present attempt to connect began, and the time that it has in all.
    fn attempt(&self) -> Option<(Mono, Duration)> {
        match &self.link {
            Link::Connecting { since, give_up_at, .. } => Some((*since, *give_up_at - *since)),
            Link::Dormant
            | Link::Ready(_)
            | Link::Renewing { .. }
            | Link::Waiting { .. }
            | Link::Parked { .. }
            | Link::Blocked { .. }
            | Link::Draining { .. }
            | Link::Stopped => None,
        }
    }

    /// The duration of the last successful start; zero if there was none.
    pub fn last_start(&self) -> Duration {
        self.connect_limit.last_start()
    }

    /// An earlier run of the gateway saw a start that took this long.
    pub fn remember_start(&mut self, took: Duration) {
        self.connect_limit.started(took);
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

    fn on_link_up(&mut self, now: Mono, epoch: Epoch, probe: Probe) {
        // Anything else is a dial that was given up: the shell drops what it made.
        if let Link::Connecting { epoch: dialed, since, .. } = self.link
            && dialed == epoch
        {
            self.connect_limit.started(now - since);
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
            credential_on_trial: false,
            proven_at: Some(now + prove_after),
            suspect: None,
            vouched_from: 0,
            catalog,
            listings: [None, None],
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

/// The earlier of two times, if there is one.
fn earlier(one: Option<Mono>, other: Option<Mono>) -> Option<Mono> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}
