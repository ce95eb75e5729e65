//! Admission of calls: a call is admitted, waits or is refused, and its end is recorded.

use super::{LinkKind, UpstreamMachine};
use crate::event::Event;
use crate::failure::crashes::PrincipalCrashes;
use crate::failure::{BlockCause, Failure};
use crate::ids::{Epoch, PrincipalName};
use crate::supervise::circuit::CircuitDecision;
use crate::supervise::link::Link;
use crate::supervise::principals::{PrincipalIndex, WaitingCall};
use crate::time::{Mono, Now};
use std::time::Duration;

/// The admission decision.
#[derive(Debug)]
#[must_use]
pub enum Admission {
    /// Admitted. The ticket is returned through [`UpstreamMachine::end_call`], exactly once.
    Go(Ticket),
    /// Wait, then ask again with [`UpstreamMachine::readmit`], or leave with [`UpstreamMachine::leave_queue`].
    Wait(QueuePlace),
    /// Refused.
    Refuse(Refusal),
}

/// Permission to send one request over the present link. It cannot be copied, so it ends once.
#[derive(Debug)]
#[must_use = "a ticket that is never ended keeps its slot for ever"]
pub struct Ticket {
    call: u64,
    epoch: Epoch,
    link: u64,
    admitted_at: Mono,
    principal: PrincipalIndex,
}

impl Ticket {
    /// The link or session that this ticket is for.
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }
}

/// The slot of a call that waits for a person, which other calls may use meanwhile. It is taken again through
/// [`UpstreamMachine::resume`], exactly once.
#[derive(Debug)]
#[must_use = "a slot that is never taken again is given away for ever"]
pub struct PausedSlot {
    link: u64,
    principal: PrincipalIndex,
}

/// A place in the queue. It cannot be copied, so it is left once.
#[derive(Debug)]
#[must_use = "a place that is never left counts as waiting for ever"]
pub struct QueuePlace {
    /// The event it waits for.
    pub wait_for: WaitFor,
    /// Its number among all places of this upstream.
    pub number: u64,
    principal: PrincipalIndex,
}

/// The event that a queued call waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WaitFor {
    /// A usable link.
    Link,
    /// The end of another call.
    Slot,
}

/// The waiting calls that have to ask again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wakeups {
    /// None.
    None,
    /// The one with this place number.
    One(u64),
    /// All.
    All,
}

/// Refusal of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The reason.
    pub reason: RefusalReason,
    /// Time after which a retry is useful, if it is known.
    pub retry_after: Option<Duration>,
}

/// Reason for a refusal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RefusalReason {
    /// Too many consecutive failures.
    CircuitOpen {
        /// Number of failures.
        failures: u32,
    },
    /// The circuit's trial is due, but there is no link; one is being made.
    Reconnecting {
        /// The known cause.
        cause: Option<String>,
    },
    /// Down for long, or too often.
    Parked {
        /// The known cause.
        cause: Option<String>,
    },
    /// It cannot work until the cause of its block changes.
    Blocked(BlockCause),
    /// Stopped by an operator, or stopping.
    Stopped,
    /// The queue is full.
    Overloaded,
    /// The server process died several times while calls of this principal alone were in flight.
    Crashed {
        /// Number of deaths.
        deaths: usize,
        /// The window.
        within: Duration,
    },
    /// The queue is full, and this principal has the most places: its newest call made room for another principal.
    Displaced,
}

/// The end of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CallEnd {
    /// The server answered, possibly with an error of its own.
    Answered,
    /// The call failed.
    Failed(Failure),
    /// The caller cancelled; nothing was learned.
    Abandoned,
    /// The ticket was not used.
    Unused,
}

enum Verdict {
    Go {
        trial: bool,
    },
    Wait(WaitFor),
    /// It is parked, and this call may wake it.
    Wake,
    Refuse(Refusal),
}

impl UpstreamMachine {
    /// Retry time after a refusal for overload.
    const AFTER_OVERLOAD: Duration = Duration::from_secs(1);

    /// Asks for admission of a new call on behalf of all local clients.
    pub fn admit(&mut self, now: Now) -> Admission {
        self.admit_at(now, PrincipalIndex::LOCAL)
    }

    /// Asks for admission of a new call on behalf of this principal.
    pub fn admit_for(&mut self, now: Now, principal: &PrincipalName) -> Admission {
        let caller = self.principals.index_of(principal);
        self.callers.record(now.mono, principal);
        self.admit_at(now, caller)
    }

    fn admit_at(&mut self, now: Now, caller: PrincipalIndex) -> Admission {
        self.check_sleep(now);
        // A new call does not overtake calls that wait for a slot.
        let slots_free = self.has_free_slot() && self.waiting == 0;
        let admission = match self.verdict(now.mono, caller, slots_free) {
            Verdict::Go { trial } => Admission::Go(self.issue(now.mono, caller, trial)),
            Verdict::Wait(_) | Verdict::Wake if !self.has_place_for(caller) => Admission::Refuse(Refusal {
                reason: RefusalReason::Overloaded,
                retry_after: Some(Self::AFTER_OVERLOAD),
            }),
            Verdict::Wait(wait_for) => Admission::Wait(self.queue(caller, wait_for, false)),
            Verdict::Wake => {
                self.woken_by_call = Some(now.mono);
                self.try_parked(now.mono);
                Admission::Wait(self.queue(caller, WaitFor::Link, true))
            }
            Verdict::Refuse(refusal) => Admission::Refuse(refusal),
        };
        self.report_state(now.mono);
        admission
    }

    /// Asks for admission of a waiting call.
    pub fn readmit(&mut self, now: Now, place: QueuePlace) -> Admission {
        self.check_sleep(now);
        let Some(waiting) = self.principals.waiting(place.principal, place.number) else {
            self.principals.leave(place.principal, place.number);
            return Admission::Refuse(Refusal {
                reason: RefusalReason::Displaced,
                retry_after: Some(Self::AFTER_OVERLOAD),
            });
        };
        if waiting.woke && matches!(self.link, Link::Connecting { parked: true, .. }) {
            return Admission::Wait(place);
        }
        let admission = match self.verdict(now.mono, place.principal, self.is_turn_of(&place)) {
            Verdict::Go { trial } => {
                let caller = place.principal;
                let ticket = self.issue(now.mono, caller, trial);
                self.dequeue(&place);
                Admission::Go(ticket)
            }
            Verdict::Wait(wait_for) => Admission::Wait(self.requeue(place, wait_for)),
            // A call waits once for a parked upstream, and is refused then.
            Verdict::Wake => {
                self.dequeue(&place);
                Admission::Refuse(self.parked_refusal(now.mono))
            }
            Verdict::Refuse(refusal) => {
                self.dequeue(&place);
                Admission::Refuse(refusal)
            }
        };
        self.report_state(now.mono);
        admission
    }

    /// Removes a waiting call that gave up.
    pub fn leave_queue(&mut self, now: Now, place: QueuePlace) {
        self.dequeue(&place);
        self.used_at = now.mono;
    }

    /// Returns whether a call of this principal may wait: there is room, or a principal with more places gives one up.
    fn has_place_for(&mut self, caller: PrincipalIndex) -> bool {
        if self.waiting < self.spec.max_waiting {
            return true;
        }
        let Some(gone) = self.principals.make_room(caller) else { return false };
        self.forget_waiting(gone);
        self.displaced.push(gone.number);
        true
    }

    fn queue(&mut self, caller: PrincipalIndex, wait_for: WaitFor, woke: bool) -> QueuePlace {
        let for_slot = wait_for == WaitFor::Slot;
        self.waiting += 1;
        self.waiting_for_slot += u32::from(for_slot);
        self.wakers += u32::from(woke);
        QueuePlace { wait_for, number: self.principals.wait(caller, for_slot, woke), principal: caller }
    }

    /// A call that continues to wait keeps its turn, and does not count as a waker any more.
    fn requeue(&mut self, place: QueuePlace, wait_for: WaitFor) -> QueuePlace {
        if let Some(waiting) = self.principals.waiting(place.principal, place.number) {
            self.waiting_for_slot -= u32::from(waiting.for_slot);
            self.wakers -= u32::from(waiting.woke);
            (waiting.for_slot, waiting.woke) = (wait_for == WaitFor::Slot, false);
            self.waiting_for_slot += u32::from(waiting.for_slot);
        }
        QueuePlace { wait_for, ..place }
    }

    fn dequeue(&mut self, place: &QueuePlace) {
        if let Some(left) = self.principals.leave(place.principal, place.number) {
            self.forget_waiting(left);
        }
    }

    fn forget_waiting(&mut self, left: WaitingCall) {
        self.waiting -= 1;
        self.waiting_for_slot -= u32::from(left.for_slot);
        self.wakers -= u32::from(left.woke);
    }

    /// The numbers of places that were displaced by other principals since the last call. Their calls have to ask
    /// again.
    pub fn take_displaced(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.displaced)
    }

    /// The number of the place that has to ask again next, if it would get an answer now. A free slot goes to the
    /// waiting principal with the fewest slots in use.
    pub fn next_in_turn(&self) -> Option<u64> {
        match &self.link {
            _ if self.can_be_answered() == 0 => None,
            Link::Ready(_) => self.principals.next_for_slot(),
            Link::Connecting { parked: true, .. } => self.principals.first(|waiting| !waiting.woke),
            Link::Dormant
            | Link::Connecting { .. }
            | Link::Renewing { .. }
            | Link::Waiting { .. }
            | Link::Parked { .. }
            | Link::Blocked { .. }
            | Link::Draining { .. }
            | Link::Stopped => self.principals.first(|_| true),
        }
    }

    /// The waiting calls that have to ask again. Usually one, which then wakes the next; after `news` that concern all
    /// calls, all of them, if all would get an answer.
    pub fn take_wakeups(&mut self, news: bool) -> Wakeups {
        let answers = self.can_be_answered();
        if self.take_stranded() > 0 || news && answers > 0 && answers == self.waiting {
            return Wakeups::All;
        }
        self.next_in_turn().map_or(Wakeups::None, Wakeups::One)
    }

    /// Returns whether there is a slot for this place: one for every waiting call, or it is its turn.
    fn is_turn_of(&self, place: &QueuePlace) -> bool {
        let free = self.free_slots();
        free >= self.waiting || free > 0 && self.principals.next_for_slot() == Some(place.number)
    }

    /// The number of waiting calls that have to ask again because they wait for something else now: without a usable
    /// link no call waits for a slot, and with one no call waits for a link. These are two waits with different ends.
    /// Returned once for each change.
    pub fn take_stranded(&mut self) -> u32 {
        if std::mem::take(&mut self.stranded) { self.waiting } else { 0 }
    }

    /// Notices that the link lost or regained its slots. A link that may not be used has none.
    pub(super) fn detect_stranded(&mut self) {
        let has_slots = matches!(&self.link, Link::Ready(ready) if ready.suspect.is_none());
        let had_slots = std::mem::replace(&mut self.has_slots, has_slots);
        self.stranded |= match (had_slots, has_slots) {
            (true, false) => self.waiting_for_slot > 0,
            (false, true) => self.waiting > 0,
            (true, true) | (false, false) => false,
        };
    }

    /// The number of waiting calls that would get an answer now. It is enough to wake one, which then wakes the next;
    /// when a link came up, all can be woken at once.
    pub fn can_be_answered(&self) -> u32 {
        let answers = match &self.link {
            Link::Ready(ready) if ready.suspect.is_none() => self.free_slots(),
            Link::Ready(_) => 0,
            Link::Dormant | Link::Parked { .. } | Link::Blocked { .. } => u32::MAX,
            Link::Draining { .. } | Link::Stopped => u32::MAX,
            Link::Connecting { blocked: Some(_), .. } => u32::MAX,
            Link::Connecting { parked: true, .. } => self.waiting.saturating_sub(self.wakers),
            Link::Connecting { .. } | Link::Renewing { .. } | Link::Waiting { .. } => 0,
        };
        self.waiting.min(answers)
    }

    /// The call of this ticket waits for a person, and needs no slot meanwhile. It stays in flight.
    pub fn pause(&mut self, ticket: &Ticket) -> PausedSlot {
        let on_present_link = ticket.link == self.link_number;
        self.paused += u32::from(on_present_link);
        self.principals.pause(ticket.principal, on_present_link);
        PausedSlot { link: ticket.link, principal: ticket.principal }
    }

    /// The call continues. If its slot was given to another call, one more than the limit is in use for a while.
    pub fn resume(&mut self, slot: PausedSlot) {
        let on_present_link = slot.link == self.link_number;
        self.paused -= u32::from(on_present_link);
        self.principals.resume(slot.principal, on_present_link);
    }

    /// Records the end of a call.
    pub fn end_call(&mut self, now: Now, ticket: Ticket, end: CallEnd) {
        self.check_sleep(now);
        let mono = now.mono;
        let Ticket { call, epoch, link, admitted_at: at, principal: caller } = ticket;
        self.in_flight -= 1;
        self.leave_link(link);
        self.used_at = mono;
        let may_go_on = matches!(end, CallEnd::Abandoned | CallEnd::Failed(Failure::TimedOut(_)));
        if may_go_on && link == self.link_number {
            self.given_up.add(self.principals.name(caller));
            self.given_up_at = mono;
        }
        match end {
            // A cancellation says nothing about the server. If no message came since the call was sent, the server may
            // hang, so it is probed.
            CallEnd::Abandoned | CallEnd::Unused => {
                self.circuit.release_trial(mono, call);
                if self
                    .ready_for_mut(epoch)
                    .is_some_and(|ready| ready.keepalive.last_received() <= at && at < mono)
                {
                    self.probe(mono);
                }
            }
            CallEnd::Answered => self.record_success(mono, epoch, caller),
            CallEnd::Failed(failure) => self.record_failure(mono, call, epoch, caller, failure),
        }
        self.call_left(mono, call, link);
        self.principals.end(caller, link == self.link_number);
        if self.in_flight == 0 && matches!(self.link, Link::Draining { .. }) {
            self.finish_drain();
        }
        self.report_state(mono);
    }

    fn record_success(&mut self, now: Mono, epoch: Epoch, caller: PrincipalIndex) {
        let Some(ready) = self.ready_for_mut(epoch) else { return };
        ready.keepalive.received(now);
        ready.answered = true;
        ready.credential_on_trial = false;
        if ready.proven_at.take().is_some() {
            self.budget.forgive();
        }
        self.circuit.record_answer(now, self.principals.name(caller));
        if self.circuit.close() {
            self.events.push_back(Event::CircuitClosed);
        }
    }

    fn record_failure(
        &mut self,
        now: Mono,
        call: u64,
        epoch: Epoch,
        caller: PrincipalIndex,
        failure: Failure,
    ) {
        if matches!(
            failure,
            Failure::Declined(_) | Failure::HeaderMismatch(_) | Failure::InsufficientScope(_)
        ) {
            self.record_success(now, epoch, caller);
            if matches!(failure, Failure::HeaderMismatch(_)) {
                // The next call would be refused for the same reason.
                self.on_catalog_changed(now, epoch);
            }
            return;
        }
        let Some(ready) = self.ready_for_mut(epoch) else {
            // It raced a reconnect that is known already, or is about a link that is gone.
            self.circuit.release_trial(now, call);
            return;
        };
        // Calls that were in flight together fail together: the first one raises the doubt, and the others add nothing,
        // however long after the doubt was settled.
        let doubted = ready.was_in_doubt(call) && !self.circuit.is_trial(call);
        let says_nothing_new = doubted
            && match failure {
                Failure::Lost(_) | Failure::TimedOut(_) | Failure::ServerFault(_) => true,
                Failure::Unreachable(_)
                | Failure::OutOfResources(_)
                | Failure::SessionExpired(_)
                | Failure::CredentialRefused(_)
                | Failure::Busy { .. }
                | Failure::InvalidResponse(_)
                | Failure::HeaderMismatch(_)
                | Failure::InsufficientScope(_)
                | Failure::Declined(_)
                | Failure::Blocked(_) => false,
            };
        if counts_for_circuit(&failure) && !says_nothing_new {
            let opened = match may_be_caused_by_request(&failure) {
                true => self.circuit.record_failure_of(now, call, self.principals.name(caller)),
                false => self.circuit.record_failure(now, call),
            };
            if opened {
                self.events.push_back(Event::CircuitOpened {
                    failures: self.circuit.consecutive_failures(),
                    cooldown: self.spec.circuit.cooldown,
                });
                self.cause = Some(failure.to_string());
            }
        } else {
            self.circuit.release_trial(now, call);
        }
        // A pipe breaks as a whole, whenever the call was sent.
        let pipe_broke = self.kind == LinkKind::Process && matches!(failure, Failure::Lost(_));
        if !says_nothing_new || pipe_broke {
            self.on_link_failure(now, failure);
        }
    }

    fn verdict(&mut self, now: Mono, caller: PrincipalIndex, slot_free: bool) -> Verdict {
        if let Some(refusal) = self.crash_refusal(now, caller) {
            return Verdict::Refuse(refusal);
        }
        match &self.link {
            Link::Dormant => {
                self.connect(now);
                Verdict::Wait(WaitFor::Link)
            }
            Link::Connecting { blocked: Some(cause), give_up_at, .. } => Verdict::Refuse(Refusal {
                reason: RefusalReason::Blocked(cause.clone()),
                retry_after: Some(now.until(*give_up_at)),
            }),
            Link::Connecting { parked: true, .. } => Verdict::Refuse(self.parked_refusal(now)),
            Link::Connecting { blocked: None, parked: false, .. }
            | Link::Renewing { .. }
            | Link::Waiting { .. } => self.without_link(now),
            Link::Ready(ready) if ready.suspect.is_some() => {
                self.settle_doubt(now);
                match self.circuit.decision(now) {
                    CircuitDecision::Allowed | CircuitDecision::TrialDue => Verdict::Wait(WaitFor::Link),
                    CircuitDecision::Refused { retry_at } => {
                        Verdict::Refuse(self.circuit_refusal(now, retry_at))
                    }
                }
            }
            Link::Ready(_) => match self.circuit.decision(now) {
                CircuitDecision::Allowed if slot_free => Verdict::Go { trial: false },
                CircuitDecision::Allowed => Verdict::Wait(WaitFor::Slot),
                CircuitDecision::TrialDue => match self.yields_trial(now, caller) {
                    None => Verdict::Go { trial: true },
                    Some(retry_at) => Verdict::Refuse(self.circuit_refusal(now, retry_at)),
                },
                CircuitDecision::Refused { retry_at } => Verdict::Refuse(self.circuit_refusal(now, retry_at)),
            },
            Link::Parked { .. } if self.may_wake(now) => Verdict::Wake,
            Link::Parked { .. } => Verdict::Refuse(self.parked_refusal(now)),
            Link::Blocked { cause, recheck_at } => Verdict::Refuse(Refusal {
                reason: RefusalReason::Blocked(cause.clone()),
                retry_after: Some(now.until(*recheck_at)),
            }),
            Link::Draining { .. } | Link::Stopped => {
                Verdict::Refuse(Refusal { reason: RefusalReason::Stopped, retry_after: None })
            }
        }
    }

    /// The time until which this principal leaves the trial to others. If others call too, a principal whose trial
    /// failed does not decide on the circuit alone.
    fn yields_trial(&self, now: Mono, caller: PrincipalIndex) -> Option<Mono> {
        let name = self.principals.name(caller);
        let others_call = self.callers.has_other(now, name, self.spec.circuit.cooldown * 2);
        self.circuit.yields_until(now, name).filter(|_| others_call)
    }

    fn crash_refusal(&self, now: Mono, caller: PrincipalIndex) -> Option<Refusal> {
        if self.crashes.is_empty()
            || matches!(self.link, Link::Blocked { .. } | Link::Draining { .. } | Link::Stopped)
        {
            return None;
        }
        let wait = self.crashes.refused_for(now, self.principals.name(caller))?;
        let reason =
            RefusalReason::Crashed { deaths: PrincipalCrashes::REFUSED_AT, within: PrincipalCrashes::WINDOW };
        Some(Refusal { reason, retry_after: Some(wait) })
    }

    /// Returns whether a call may start the next attempt now.
    fn may_wake(&self, now: Mono) -> bool {
        self.woken_by_call.is_none_or(|at| now - at >= Self::WAKE_EVERY)
    }

    fn parked_refusal(&self, now: Mono) -> Refusal {
        let mut retry_after = None;
        if let Link::Parked { probe_at: at } | Link::Connecting { give_up_at: at, .. } = self.link {
            retry_after = Some(now.until(at));
        }
        Refusal { reason: RefusalReason::Parked { cause: self.cause.clone() }, retry_after }
    }

    /// Decides without a link while one is being made: the call waits, unless the circuit refuses it. A waiting call
    /// starts the next attempt early.
    fn without_link(&mut self, now: Mono) -> Verdict {
        match self.circuit.decision(now) {
            CircuitDecision::Allowed => {
                if matches!(self.link, Link::Waiting { .. }) && self.may_wake(now) {
                    self.woken_by_call = Some(now);
                    self.restart(now);
                }
                Verdict::Wait(WaitFor::Link)
            }
            CircuitDecision::Refused { retry_at } => Verdict::Refuse(self.circuit_refusal(now, retry_at)),
            // A trial would write into a dead pipe: the link is made first.
            CircuitDecision::TrialDue => {
                if matches!(self.link, Link::Waiting { .. }) {
                    self.restart(now);
                }
                Verdict::Refuse(Refusal {
                    reason: RefusalReason::Reconnecting { cause: self.cause.clone() },
                    retry_after: Some(Duration::from_secs(1)),
                })
            }
        }
    }

    fn circuit_refusal(&self, now: Mono, retry_at: Mono) -> Refusal {
        Refusal {
            reason: RefusalReason::CircuitOpen { failures: self.circuit.consecutive_failures() },
            retry_after: Some(now.until(retry_at)),
        }
    }

    fn issue(&mut self, now: Mono, caller: PrincipalIndex, trial: bool) -> Ticket {
        let call = self.next_call;
        self.next_call += 1;
        self.in_flight += 1;
        self.used_at = now;
        if trial {
            self.circuit.begin_trial_for(now, call, self.principals.name(caller));
        }
        let epoch = self.ready_epoch().expect("a call is admitted to a usable link only");
        self.principals.begin(caller);
        Ticket { call, epoch, link: self.join_link(), admitted_at: now, principal: caller }
    }

    /// Calls left on a previous link use no slots of the present one.
    fn has_free_slot(&self) -> bool {
        self.free_slots() > 0
    }

    fn free_slots(&self) -> u32 {
        self.spec.max_in_flight.saturating_sub(self.slots_in_use())
    }

    /// Calls on the present link that do not wait for a person.
    fn slots_in_use(&self) -> u32 {
        self.calls_on_link.saturating_sub(self.paused)
    }
}

/// Returns whether a failure says something about the transport. Refusals and application errors do not.
fn counts_for_circuit(failure: &Failure) -> bool {
    match failure {
        Failure::Unreachable(_)
        | Failure::Lost(_)
        | Failure::TimedOut(_)
        | Failure::ServerFault(_)
        | Failure::Blocked(_) => true,
        // An answer that arrived, too large or unreadable, came over a working transport.
        Failure::InvalidResponse(_)
        // It was not tried at all.
        | Failure::OutOfResources(_)
        | Failure::SessionExpired(_)
        | Failure::CredentialRefused(_)
        | Failure::Busy { .. }
        | Failure::HeaderMismatch(_)
        | Failure::InsufficientScope(_)
        | Failure::Declined(_) => false,
    }
}

/// Returns whether the request itself may have caused a failure, and not the state of the server or the connection.
fn may_be_caused_by_request(failure: &Failure) -> bool {
    match failure {
        Failure::TimedOut(_) | Failure::ServerFault(_) => true,
        Failure::Unreachable(_)
        | Failure::Lost(_)
        | Failure::Blocked(_)
        | Failure::InvalidResponse(_)
        | Failure::SessionExpired(_)
        | Failure::CredentialRefused(_)
        | Failure::Busy { .. }
        | Failure::HeaderMismatch(_)
        | Failure::InsufficientScope(_)
        | Failure::OutOfResources(_)
        | Failure::Declined(_) => false,
    }
}
