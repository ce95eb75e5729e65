//! State machine of one upstream: composes link, circuit, restart budget, keepalive and catalog freshness.
//!
//! The supervisor task owns one machine per upstream. It asks for admission before each call and reports each end; it
//! performs the actions and reports their results; it keeps one timer, set to [`UpstreamMachine::poll_timeout`]. The
//! machine does not know how a link is made, and never reads a clock.
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
mod catalog;
mod commands;
mod interface;
mod maintenance;
mod outage;
mod reconfigure;
mod renewal;
mod standby;
mod status_report;

pub use super::link::Renewal;
pub use super::upstream::interface::{Action, CloseMode, Command, Input, LinkKind, ProbeAnswer};
pub use super::upstream::reconfigure::Revision;
pub use super::upstream::standby::StandbyRole;
pub use admission::{
    Admission, CallEnd, PausedSlot, QueuePlace, Refusal, RefusalReason, Ticket, WaitFor, Wakeups,
};

use super::circuit::Circuit;
use super::connect_limit::ConnectLimit;
use super::keepalive::{CallsBefore, Keepalive, Probe};
use super::link::{CatalogState, Link, Ready};
use super::principals::{BusyPrincipals, Principals, RecentPrincipals};
use super::restarts::{RestartBudget, RestartCause};
use super::spec::{KeepaliveSpec, SupervisionSpec};
use super::status::State;
use super::upstream::standby::{RetiredLink, StandbyLinks};
use crate::event::Event;
use crate::failure::crashes::PrincipalCrashes;
use crate::failure::{BlockCause, Failure};
use crate::ids::Epoch;
use crate::jitter::Jitter;
use crate::time::{Mono, Now, SleepWatch};
use outage::{CountedAs, Outage};
use std::collections::VecDeque;
use std::time::Duration;

/// The state machine of one upstream.
#[derive(Debug)]
pub struct UpstreamMachine {
    spec: SupervisionSpec,
    kind: LinkKind,
    link: Link,
    epoch: Epoch,
    /// The number of the present link. A renewed session has a new epoch on the same link.
    link_number: u64,
    /// Calls in flight on the present link.
    calls_on_link: u32,
    /// Those of them that wait for a person, and need no slot.
    paused: u32,
    standby: StandbyLinks,
    retired: Vec<RetiredLink>,
    circuit: Circuit,
    budget: RestartBudget,
    connect_limit: ConnectLimit,
    /// The cause of the next restart.
    restart_cause: RestartCause,
    /// The way in which the present attempt was counted.
    counted: CountedAs,
    /// Deaths of the process, by the principal whose calls alone were in flight.
    crashes: PrincipalCrashes,
    outage: Option<Outage>,
    /// Start of the outage, until the catalog is listed again.
    away_since: Option<Mono>,
    cause: Option<String>,
    /// The cause of a stale catalog.
    stale_cause: Option<String>,
    /// The reason for which an operator has to approve something.
    approval_cause: Option<String>,
    jitter: Jitter,
    sleep: SleepWatch,
    sleep_check_at: Mono,

    next_call: u64,
    in_flight: u32,
    /// The slots and waiting calls of each principal.
    principals: Principals,
    /// The principals of recent calls.
    callers: RecentPrincipals,
    /// The principals of calls that were cancelled or timed out on the present link; the server may still work on them.
    given_up: BusyPrincipals,
    /// The time of the last of these.
    given_up_at: Mono,
    waiting: u32,
    /// Places that were displaced by other principals, and were not reported yet.
    displaced: Vec<u64>,
    /// Waiting calls that wait for a slot.
    waiting_for_slot: u32,
    /// True if there was a usable link at the last check.
    has_slots: bool,
    /// True if that changed and waiting calls were not woken yet.
    stranded: bool,
    hold_count: u32,
    used_at: Mono,

    ever_up: bool,
    restarts: u64,
    woken_by_call: Option<Mono>,
    /// Calls that woke a parked upstream and wait for the result of the attempt.
    wakers: u32,
    session_doubted_at: Option<Mono>,
    rechecked_at: Option<Mono>,
    reported_state: State,
    reported_since: Mono,

    actions: VecDeque<Action>,
    events: VecDeque<Event>,
}

impl UpstreamMachine {
    /// Interval of checks whether the machine slept.
    const SLEEP_CHECK_INTERVAL: Duration = Duration::from_secs(30);
    /// After a sleep, links are checked within this span, one after another.
    const STAGGER: Duration = Duration::from_secs(5);
    /// Time that calls in flight have after a stop.
    const DRAIN_FOR: Duration = Duration::from_secs(10);
    /// Minimum interval of each of these: a call wakes a parked upstream or starts an attempt early, a changed cause
    /// wakes a blocked upstream, a doubt about the session causes a probe.
    const WAKE_EVERY: Duration = Duration::from_secs(5);
    /// A remote server that was silent for this long is probed when its status is read.
    const STATUS_FRESH_FOR: Duration = Duration::from_secs(10);
    /// Window with at most two listings, however often the server announces changes: some servers announce one whenever
    /// they are listed.
    const RELIST_WINDOW: Duration = Duration::from_secs(1);
    /// The longest pause between two attempts to list a catalog.
    const RELIST_PAUSE_MAX: Duration = Duration::from_secs(60);

    /// An upstream that is not started yet. `seed` determines its jitter.
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
            calls_on_link: 0,
            paused: 0,
            standby: StandbyLinks::new(now.mono),
            retired: Vec::new(),
            outage: None,
            away_since: None,
            cause: None,
            stale_cause: None,
            approval_cause: None,
            jitter: Jitter::seeded(seed),
            sleep: SleepWatch::new(now),
            sleep_check_at: now.mono + Self::SLEEP_CHECK_INTERVAL,
            next_call: 0,
            in_flight: 0,
            principals: Principals::new(),
            callers: RecentPrincipals::default(),
            given_up: BusyPrincipals::None,
            given_up_at: now.mono,
            waiting: 0,
            displaced: Vec::new(),
            waiting_for_slot: 0,
            has_slots: false,
            stranded: false,
            hold_count: 0,
            used_at: now.mono,
            ever_up: false,
            restarts: 0,
            woken_by_call: None,
            wakers: 0,
            session_doubted_at: None,
            rechecked_at: None,
            reported_state: State::Idle,
            reported_since: now.mono,
            actions: VecDeque::new(),
            events: VecDeque::new(),
        }
    }

    /// Handles a report.
    pub fn handle(&mut self, now: Now, input: Input) {
        self.check_sleep(now);
        let now = now.mono;
        match input {
            Input::LinkUp { epoch, probe } => self.on_link_up(now, epoch, probe),
            Input::LinkDown { epoch, failure } => self.on_link_down(now, epoch, failure),
            Input::Received { epoch } => {
                if let Some(ready) = self.ready_for_mut(epoch) {
                    ready.keepalive.received(now);
                }
            }
            Input::ProbeEnded { epoch, answer } => self.on_probe_ended(now, epoch, answer),
            Input::RenewalEnded { epoch, failure } => self.on_renewal_ended(now, epoch, failure),
            Input::CatalogListed { epoch } => self.on_catalog_listed(now, epoch),
            Input::ToolsListed { epoch } => self.on_tools_listed(now, epoch),
            Input::CatalogPartlyListed { epoch, cause } => self.on_catalog_partly_listed(now, epoch, cause),
            Input::CatalogKnown { epoch } => self.on_catalog_known(now, epoch),
            Input::ApprovalNeeded { cause } => self.approval_cause = cause,
            Input::CatalogFailed { epoch, failure } => self.on_catalog_failed(now, epoch, failure),
            Input::CatalogChanged { epoch } => self.on_catalog_changed(now, epoch),
            Input::SpareUp { id } => self.on_spare_up(now, id),
            Input::StandbyDown { id, failure } => self.on_standby_down(now, id, &failure),
            Input::MemoryMeasured { epoch, resident } => self.on_measured(now, epoch, resident),
            Input::SessionDoubted { epoch } => self.on_session_doubted(now, epoch),
            Input::StatusRead => self.on_status_read(now),
            Input::Command(command) => self.on_command(now, command),
        }
        self.report_state(now);
    }

    /// Sets the kind of the next link: a singleton server may move to another replica and back.
    pub fn set_kind(&mut self, kind: LinkKind) {
        self.kind = kind;
    }

    /// Handles the timeout of [`Self::poll_timeout`].
    pub fn handle_timeout(&mut self, now: Now) {
        self.check_sleep(now);
        let now = now.mono;
        self.maintain_standby(now);
        self.close_finished_retired(now);
        match &self.link {
            Link::Dormant | Link::Stopped => {}
            Link::Connecting { since, give_up_at, .. } => {
                if *give_up_at <= now {
                    let limit = *give_up_at - *since;
                    self.connect_limit.record_timeout(limit);
                    self.actions.push_back(Action::Close(CloseMode::Immediate));
                    self.enter_outage(now, Failure::TimedOut(limit));
                }
            }
            Link::Ready(_) => self.maintain(now),
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
        self.report_state(now);
    }

    /// The time for the next [`Self::handle_timeout`].
    pub fn poll_timeout(&self) -> Option<Mono> {
        earlier(earlier(self.standby_due(), self.retired_due()), self.link_due())
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
                due.into_iter().fold(Some(self.sleep_check_at), earlier)
            }
        }
    }

    /// The next action.
    pub fn poll_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// Returns whether there are actions to poll.
    pub fn has_actions(&self) -> bool {
        !self.actions.is_empty()
    }

    /// The next event.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Keeps a lazy upstream running, used or not, until [`Self::release`].
    pub fn hold(&mut self) {
        self.hold_count += 1;
    }

    /// The counterpart of [`Self::hold`].
    pub fn release(&mut self, now: Now) {
        self.hold_count = self.hold_count.saturating_sub(1);
        self.used_at = now.mono;
    }

    /// The epoch of the present link or session, if it is usable.
    pub fn ready_epoch(&self) -> Option<Epoch> {
        self.ready().map(|ready| ready.epoch)
    }

    /// The cause of its block, if it is blocked.
    pub fn block_cause(&self) -> Option<&BlockCause> {
        let (Link::Blocked { cause, .. } | Link::Connecting { blocked: Some(cause), .. }) = &self.link else {
            return None;
        };
        Some(cause)
    }

    /// The time limit of the present connection attempt, or of the next one.
    pub fn connect_limit(&self) -> Duration {
        self.attempt().map_or_else(|| self.connect_limit.next(&self.spec.timeouts), |(_, limit)| limit)
    }

    /// The start and time limit of the present connection attempt.
    fn attempt(&self) -> Option<(Mono, Duration)> {
        let Link::Connecting { since, give_up_at, .. } = self.link else { return None };
        Some((since, give_up_at - since))
    }

    /// The duration of the last successful start; zero if there was none.
    pub fn last_start(&self) -> Duration {
        self.connect_limit.last_start()
    }

    /// Sets the duration of a start that an earlier run of the gateway saw.
    pub fn remember_start(&mut self, took: Duration) {
        self.connect_limit.record_start(took);
    }

    /// Returns whether the connection attempt or renewal of this epoch is still wanted.
    pub fn awaits(&self, wanted: Epoch) -> bool {
        matches!(self.link, Link::Connecting { epoch, .. } | Link::Renewing { epoch, .. } if epoch == wanted)
    }

    fn on_link_up(&mut self, now: Mono, epoch: Epoch, probe: Probe) {
        // Otherwise the attempt was given up, and the supervisor drops the link.
        if let Link::Connecting { epoch: dialed, since, .. } = self.link
            && dialed == epoch
        {
            self.connect_limit.record_start(now - since);
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
            trusted_from_call: 0,
            catalog,
            listings: [None, None],
            state_until_listed: if self.ever_up { State::Reconnecting } else { State::Starting },
            recycle_at: self.recycle_at(now),
            measure_at: self.measure_at(now),
        });
        self.ever_up = true;
        self.used_at = now;
        self.sleep_check_at = now + Self::SLEEP_CHECK_INTERVAL;
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
        let Link::Ready(ready) = &self.link else { return None };
        Some(ready)
    }

    /// The link of this epoch, if it is the present one.
    fn ready_for(&self, epoch: Epoch) -> Option<&Ready> {
        self.ready().filter(|ready| ready.epoch == epoch)
    }

    fn ready_for_mut(&mut self, epoch: Epoch) -> Option<&mut Ready> {
        let Link::Ready(ready) = &mut self.link else { return None };
        (ready.epoch == epoch).then_some(ready)
    }
}

/// The earlier of two times.
fn earlier(one: Option<Mono>, other: Option<Mono>) -> Option<Mono> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}
