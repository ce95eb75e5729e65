//! Who may call now, who waits, who is refused; and what the end of a call teaches.

use super::{LinkKind, Upstream};
use crate::event::Event;
use crate::failure::crashes::PrincipalCrashes;
use crate::failure::{BlockCause, Failure};
use crate::ids::{Epoch, PrincipalName};
use crate::supervise::circuit::Passage;
use crate::supervise::link::Link;
use crate::supervise::principals::{PrincipalIndex, WaitingCall};
use crate::time::{Mono, Now};
use std::time::Duration;

/// What a caller is told.
#[derive(Debug)]
#[must_use]
pub enum Admission {
    /// Go. The ticket is given back through [`Upstream::end`], exactly once.
    Go(Ticket),
    /// Wait, then ask again with [`Upstream::readmit`], or leave with [`Upstream::leave`].
    Wait(Place),
    /// No.
    Refuse(Refusal),
}

/// The right to send one request over the present link. It cannot be copied, so it ends once.
#[derive(Debug)]
#[must_use = "a ticket that is never ended keeps its slot for ever"]
pub struct Ticket {
    call: u64,
    epoch: Epoch,
    link: u64,
    at: Mono,
    by: PrincipalIndex,
}

impl Ticket {
    /// The link or session that this ticket is for.
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }
}

/// The slot of a call that waits for a person, which others may use meanwhile. Taken again through [`Upstream::resume`],
/// exactly once.
#[derive(Debug)]
#[must_use = "a slot that is never taken again is given away for ever"]
pub struct PausedSlot {
    link: u64,
    by: PrincipalIndex,
}

/// A place among those who wait. It cannot be copied, so it is left once.
#[derive(Debug)]
#[must_use = "a place that is never left counts as waiting for ever"]
pub struct Place {
    /// What it waits for.
    pub wait_for: WaitFor,
    /// Its number among all places of this upstream.
    pub number: u64,
    by: PrincipalIndex,
}

/// What a waiting caller waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WaitFor {
    /// A usable link.
    Link,
    /// The end of another call.
    Slot,
}

/// The waiting calls that are to ask again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wakeups {
    /// None.
    None,
    /// The one with the place of this number.
    One(u64),
    /// All of them.
    All,
}

/// Why a caller is not admitted, and when it is worth asking again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// Why.
    pub reason: Reason,
    /// When it is worth asking again, if that has a time.
    pub retry_after: Option<Duration>,
}

/// Why a caller is not admitted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reason {
    /// Too many failures in a row.
    CircuitOpen {
        /// How many.
        failures: u32,
    },
    /// The trial found no link; one is being made.
    Reconnecting {
        /// What is known of the cause.
        cause: Option<String>,
    },
    /// Away for long, or too often.
    Parked {
        /// What is known of the cause.
        cause: Option<String>,
    },
    /// It cannot work until its cause changes.
    Blocked(BlockCause),
    /// Stopped by a person, or ending.
    Stopped,
    /// Too many are waiting already.
    Overloaded,
    /// The server process died several times while calls of this principal alone were in flight.
    Crashed {
        /// How often.
        deaths: usize,
        /// Within which time.
        within: Duration,
    },
    /// Too many are waiting, most of them for this principal: its newest call made room for another principal.
    MadeRoom,
}

/// How a call ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CallEnd {
    /// The server answered, if only with an error of its own.
    Answered,
    /// It did not.
    Failed(Failure),
    /// The caller lost interest; nothing was learned.
    Abandoned,
    /// Nothing was sent with this ticket.
    Unused,
}

enum Verdict {
    Go {
        trial: bool,
    },
    Wait(WaitFor),
    /// It is parked, and this caller may wake it.
    Wake,
    Refuse(Refusal),
}

impl Upstream {
    /// When it is worth asking again after an overload.
    const AFTER_OVERLOAD: Duration = Duration::from_secs(1);

    /// A new caller asks to go, on behalf of everybody on this machine.
    pub fn admit(&mut self, now: Now) -> Admission {
        self.admit_at(now, PrincipalIndex::LOCAL)
    }

    /// A new caller asks to go, on behalf of this principal.
    pub fn admit_for(&mut self, now: Now, principal: &PrincipalName) -> Admission {
        let by = self.principals.index_of(principal);
        self.callers.note(now.mono, principal);
        self.admit_at(now, by)
    }

    fn admit_at(&mut self, now: Now, by: PrincipalIndex) -> Admission {
        self.look(now);
        // Nobody overtakes those who wait for a slot.
        let slots_free = self.has_free_slot() && self.waiting == 0;
        let admission = match self.verdict(now.mono, by, slots_free) {
            Verdict::Go { trial } => Admission::Go(self.issue(now.mono, by, trial)),
            Verdict::Wait(_) | Verdict::Wake if !self.has_place_for(by) => Admission::Refuse(Refusal {
                reason: Reason::Overloaded,
                retry_after: Some(Self::AFTER_OVERLOAD),
            }),
            Verdict::Wait(wait_for) => Admission::Wait(self.queue(by, wait_for, false)),
            Verdict::Wake => {
                self.woken_by_call = Some(now.mono);
                self.try_parked(now.mono);
                Admission::Wait(self.queue(by, WaitFor::Link, true))
            }
            Verdict::Refuse(refusal) => Admission::Refuse(refusal),
        };
        self.show(now.mono);
        admission
    }

    /// A waiting caller asks again.
    pub fn readmit(&mut self, now: Now, place: Place) -> Admission {
        self.look(now);
        let Some(waiting) = self.principals.waiting(place.by, place.number) else {
            self.principals.leave(place.by, place.number);
            return Admission::Refuse(Refusal {
                reason: Reason::MadeRoom,
                retry_after: Some(Self::AFTER_OVERLOAD),
            });
        };
        if waiting.woke && matches!(self.link, Link::Connecting { parked: true, .. }) {
            return Admission::Wait(place);
        }
        let admission = match self.verdict(now.mono, place.by, self.is_turn_of(&place)) {
            Verdict::Go { trial } => {
                let by = place.by;
                let ticket = self.issue(now.mono, by, trial);
                self.dequeue(&place);
                Admission::Go(ticket)
            }
            Verdict::Wait(wait_for) => Admission::Wait(self.requeue(place, wait_for)),
            // A caller is held once: whoever has waited already is told.
            Verdict::Wake => {
                self.dequeue(&place);
                Admission::Refuse(self.parked_refusal(now.mono))
            }
            Verdict::Refuse(refusal) => {
                self.dequeue(&place);
                Admission::Refuse(refusal)
            }
        };
        self.show(now.mono);
        admission
    }

    /// A waiting caller gives up.
    pub fn leave(&mut self, now: Now, place: Place) {
        self.dequeue(&place);
        self.used_at = now.mono;
    }

    /// Whether a call of this principal may wait: there is room, or a principal with more places makes some.
    fn has_place_for(&mut self, by: PrincipalIndex) -> bool {
        if self.waiting < self.spec.max_waiting {
            return true;
        }
        let Some(gone) = self.principals.make_room(by) else { return false };
        self.forget_waiting(gone);
        self.displaced.push(gone.number);
        true
    }

    fn queue(&mut self, by: PrincipalIndex, wait_for: WaitFor, woke: bool) -> Place {
        let for_slot = wait_for == WaitFor::Slot;
        self.waiting += 1;
        self.queued += u32::from(for_slot);
        self.wakers += u32::from(woke);
        Place { wait_for, number: self.principals.wait(by, for_slot, woke), by }
    }

    /// A call that goes on waiting keeps its turn, and has woken nobody from now on.
    fn requeue(&mut self, place: Place, wait_for: WaitFor) -> Place {
        if let Some(waiting) = self.principals.waiting(place.by, place.number) {
            self.queued -= u32::from(waiting.for_slot);
            self.wakers -= u32::from(waiting.woke);
            (waiting.for_slot, waiting.woke) = (wait_for == WaitFor::Slot, false);
            self.queued += u32::from(waiting.for_slot);
        }
        Place { wait_for, ..place }
    }

    fn dequeue(&mut self, place: &Place) {
        if let Some(left) = self.principals.leave(place.by, place.number) {
            self.forget_waiting(left);
        }
    }

    fn forget_waiting(&mut self, left: WaitingCall) {
        self.waiting -= 1;
        self.queued -= u32::from(left.for_slot);
        self.wakers -= u32::from(left.woke);
    }

    /// The numbers of places that were lost to other principals since this was last asked. Those who have them are to ask
    /// again.
    pub fn take_displaced(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.displaced)
    }

    /// The number of the place that is to ask again next, if one of them would get an answer now. A free slot goes to the
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

    /// The waiting calls that are to ask again. One is enough, who then makes room for the next; after `news` that concern
    /// everybody they need not go one after another, if all of them would get an answer.
    pub fn take_wakeups(&mut self, news: bool) -> Wakeups {
        let answers = self.can_be_answered();
        if self.take_stranded() > 0 || news && answers > 0 && answers == self.waiting {
            return Wakeups::All;
        }
        self.next_in_turn().map_or(Wakeups::None, Wakeups::One)
    }

    /// Whether there is a slot for this place: for all who wait, or it is its turn.
    fn is_turn_of(&self, place: &Place) -> bool {
        let free = self.free_slots();
        free >= self.waiting || free > 0 && self.principals.next_for_slot() == Some(place.number)
    }

    /// How many of those who wait are to ask again because they wait for something else now: without a link that can be
    /// used nobody waits for a slot, and with one nobody waits for a link. Those are two waits with two ends. Said once
    /// each time that this changes.
    pub fn take_stranded(&mut self) -> u32 {
        if std::mem::take(&mut self.strands) { self.waiting } else { 0 }
    }

    /// A link that nobody may use any more has no slots.
    pub(super) fn look_for_stranded(&mut self) {
        let has_slots = matches!(&self.link, Link::Ready(ready) if ready.suspect.is_none());
        let had_slots = std::mem::replace(&mut self.has_slots, has_slots);
        self.strands |= match (had_slots, has_slots) {
            (true, false) => self.queued > 0,
            (false, true) => self.waiting > 0,
            (true, true) | (false, false) => false,
        };
    }

    /// How many of those who wait would get an answer now. It is enough to wake one of them, who then makes room for the
    /// next; when a link came up, they need not go one after another.
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
        self.principals.pause(ticket.by, on_present_link);
        PausedSlot { link: ticket.link, by: ticket.by }
    }

    /// The call goes on. Its slot may have been given to another: for a while there is one more in use than there are.
    pub fn resume(&mut self, slot: PausedSlot) {
        let on_present_link = slot.link == self.link_number;
        self.paused -= u32::from(on_present_link);
        self.principals.resume(slot.by, on_present_link);
    }

    /// A call ended.
    pub fn end(&mut self, now: Now, ticket: Ticket, end: CallEnd) {
        self.look(now);
        let mono = now.mono;
        let Ticket { call, epoch, link, at, by } = ticket;
        self.in_flight -= 1;
        self.leave_link(link);
        self.used_at = mono;
        let may_go_on = matches!(end, CallEnd::Abandoned | CallEnd::Failed(Failure::TimedOut(_)));
        if may_go_on && link == self.link_number {
            self.given_up.add(self.principals.name(by));
            self.given_up_at = mono;
        }
        match end {
            // A caller's change of mind teaches nothing about the server. If nothing at all was heard since the call was
            // sent, the server may hang: it is asked, and nothing else is done.
            CallEnd::Abandoned | CallEnd::Unused => {
                self.circuit.abandoned(mono, call);
                if self.ready_at(epoch).is_some_and(|ready| ready.keepalive.heard_at() <= at && at < mono) {
                    self.probe(mono);
                }
            }
            CallEnd::Answered => self.learn_success(mono, epoch, by),
            CallEnd::Failed(failure) => self.learn_failure(mono, call, epoch, by, failure),
        }
        self.call_left(mono, call, link);
        self.principals.end(by, link == self.link_number);
        if self.in_flight == 0 && matches!(self.link, Link::Draining { .. }) {
            self.finish_drain();
        }
        self.show(mono);
    }

    fn learn_success(&mut self, now: Mono, epoch: Epoch, by: PrincipalIndex) {
        let Some(ready) = self.ready_at(epoch) else { return };
        ready.keepalive.heard(now);
        ready.answered = true;
        ready.credential_on_trial = false;
        if ready.proven_at.take().is_some() {
            self.budget.forgive();
        }
        self.circuit.answered(now, self.principals.name(by));
        if self.circuit.close() {
            self.events.push_back(Event::CircuitClosed);
        }
    }

    fn learn_failure(&mut self, now: Mono, call: u64, epoch: Epoch, by: PrincipalIndex, failure: Failure) {
        if matches!(failure, Failure::Declined(_) | Failure::Outdated(_) | Failure::BeyondScope(_)) {
            self.learn_success(now, epoch, by);
            if matches!(failure, Failure::Outdated(_)) {
                // Whoever comes next would be refused for the same reason.
                self.on_catalog_changed(now, epoch);
            }
            return;
        }
        let Some(ready) = self.ready_at(epoch) else {
            // It raced a reconnect that is known already, or speaks of a link that is gone.
            self.circuit.abandoned(now, call);
            return;
        };
        // Calls that were under way together fail together: the first one raises the doubt, the others say
        // nothing new, however long after the doubt was settled.
        let doubted = ready.was_in_doubt(call) && !self.circuit.is_trial(call);
        let says_nothing_new = doubted
            && match failure {
                Failure::Lost(_) | Failure::TimedOut(_) | Failure::ServerFault(_) => true,
                Failure::Unreachable(_)
                | Failure::LacksResources(_)
                | Failure::SessionExpired(_)
                | Failure::CredentialRefused(_)
                | Failure::Busy { .. }
                | Failure::Nonsense(_)
                | Failure::Outdated(_)
                | Failure::BeyondScope(_)
                | Failure::Declined(_)
                | Failure::Blocked(_) => false,
            };
        if counts(&failure) && !says_nothing_new {
            let opened = match may_be_of_its_request(&failure) {
                true => self.circuit.failed_by(now, call, self.principals.name(by)),
                false => self.circuit.failed(now, call),
            };
            if opened {
                self.events.push_back(Event::CircuitOpened {
                    failures: self.circuit.consecutive_failures(),
                    cooldown: self.spec.circuit.cooldown,
                });
                self.cause = Some(failure.to_string());
            }
        } else {
            self.circuit.abandoned(now, call);
        }
        // A pipe does not break in part, whenever the call was sent.
        let pipe_broke = self.kind == LinkKind::Process && matches!(failure, Failure::Lost(_));
        if !says_nothing_new || pipe_broke {
            self.trouble(now, failure);
        }
    }

    fn verdict(&mut self, now: Mono, by: PrincipalIndex, slot_free: bool) -> Verdict {
        if let Some(refusal) = self.crash_refusal(now, by) {
            return Verdict::Refuse(refusal);
        }
        match &self.link {
            Link::Dormant => {
                self.dial(now);
                Verdict::Wait(WaitFor::Link)
            }
            Link::Connecting { blocked: Some(cause), give_up_at, .. } => Verdict::Refuse(Refusal {
                reason: Reason::Blocked(cause.clone()),
                retry_after: Some(now.until(*give_up_at)),
            }),
            Link::Connecting { parked: true, .. } => Verdict::Refuse(self.parked_refusal(now)),
            Link::Connecting { blocked: None, parked: false, .. }
            | Link::Renewing { .. }
            | Link::Waiting { .. } => self.without_link(now),
            Link::Ready(ready) if ready.suspect.is_some() => {
                self.settle_doubt(now);
                match self.circuit.passage(now) {
                    Passage::Free | Passage::TrialDue => Verdict::Wait(WaitFor::Link),
                    Passage::Refused { retry_at } => Verdict::Refuse(self.circuit_refusal(now, retry_at)),
                }
            }
            Link::Ready(_) => match self.circuit.passage(now) {
                Passage::Free if slot_free => Verdict::Go { trial: false },
                Passage::Free => Verdict::Wait(WaitFor::Slot),
                Passage::TrialDue => match self.yields_trial(now, by) {
                    None => Verdict::Go { trial: true },
                    Some(retry_at) => Verdict::Refuse(self.circuit_refusal(now, retry_at)),
                },
                Passage::Refused { retry_at } => Verdict::Refuse(self.circuit_refusal(now, retry_at)),
            },
            Link::Parked { .. } if self.may_wake(now) => Verdict::Wake,
            Link::Parked { .. } => Verdict::Refuse(self.parked_refusal(now)),
            Link::Blocked { cause, recheck_at } => Verdict::Refuse(Refusal {
                reason: Reason::Blocked(cause.clone()),
                retry_after: Some(now.until(*recheck_at)),
            }),
            Link::Draining { .. } | Link::Stopped => {
                Verdict::Refuse(Refusal { reason: Reason::Stopped, retry_after: None })
            }
        }
    }

    /// Until when this principal leaves the trial to others. One that tried last and failed is not the only one that
    /// decides on the circuit, if others call too.
    fn yields_trial(&self, now: Mono, by: PrincipalIndex) -> Option<Mono> {
        let name = self.principals.name(by);
        let others_call = self.callers.has_other(now, name, self.spec.circuit.cooldown * 2);
        self.circuit.yields_until(now, name).filter(|_| others_call)
    }

    fn crash_refusal(&self, now: Mono, by: PrincipalIndex) -> Option<Refusal> {
        if self.crashes.is_empty()
            || matches!(self.link, Link::Blocked { .. } | Link::Draining { .. } | Link::Stopped)
        {
            return None;
        }
        let wait = self.crashes.refused(now, self.principals.name(by))?;
        let reason =
            Reason::Crashed { deaths: PrincipalCrashes::REFUSED_AT, within: PrincipalCrashes::WINDOW };
        Some(Refusal { reason, retry_after: Some(wait) })
    }

    /// Whether a call may have the next attempt made now.
    fn may_wake(&self, now: Mono) -> bool {
        self.woken_by_call.is_none_or(|at| now - at >= Self::WAKE_EVERY)
    }

    fn parked_refusal(&self, now: Mono) -> Refusal {
        let retry_after = match &self.link {
            Link::Parked { probe_at: at } | Link::Connecting { give_up_at: at, .. } => Some(now.until(*at)),
            Link::Dormant
            | Link::Ready(_)
            | Link::Renewing { .. }
            | Link::Waiting { .. }
            | Link::Blocked { .. }
            | Link::Draining { .. }
            | Link::Stopped => None,
        };
        Refusal { reason: Reason::Parked { cause: self.cause.clone() }, retry_after }
    }

    /// No link, but one is on its way: hold the caller, unless the circuit has something against it. A held caller pulls
    /// the next attempt forward.
    fn without_link(&mut self, now: Mono) -> Verdict {
        match self.circuit.passage(now) {
            Passage::Free => {
                if matches!(self.link, Link::Waiting { .. }) && self.may_wake(now) {
                    self.woken_by_call = Some(now);
                    self.restart(now);
                }
                Verdict::Wait(WaitFor::Link)
            }
            Passage::Refused { retry_at } => Verdict::Refuse(self.circuit_refusal(now, retry_at)),
            // A trial would write into a dead pipe: have the link made first.
            Passage::TrialDue => {
                if matches!(self.link, Link::Waiting { .. }) {
                    self.restart(now);
                }
                Verdict::Refuse(Refusal {
                    reason: Reason::Reconnecting { cause: self.cause.clone() },
                    retry_after: Some(Duration::from_secs(1)),
                })
            }
        }
    }

    fn circuit_refusal(&self, now: Mono, retry_at: Mono) -> Refusal {
        Refusal {
            reason: Reason::CircuitOpen { failures: self.circuit.consecutive_failures() },
            retry_after: Some(now.until(retry_at)),
        }
    }

    fn issue(&mut self, now: Mono, by: PrincipalIndex, trial: bool) -> Ticket {
        let call = self.next_call;
        self.next_call += 1;
        self.in_flight += 1;
        self.used_at = now;
        if trial {
            self.circuit.begin_trial_of(now, call, self.principals.name(by));
        }
        let epoch = self.ready_epoch().expect("a call is admitted to a usable link only");
        self.principals.begin(by);
        Ticket { call, epoch, link: self.join_link(), at: now, by }
    }

    /// Calls that were left behind on a link that is gone take nothing from the present one.
    fn has_free_slot(&self) -> bool {
        self.free_slots() > 0
    }

    fn free_slots(&self) -> u32 {
        self.spec.max_in_flight.saturating_sub(self.slots_in_use())
    }

    /// Calls on the present link that do not wait for a person.
    fn slots_in_use(&self) -> u32 {
        self.on_link.saturating_sub(self.paused)
    }
}

/// Whether a failure says something about the transport. Refusals and application errors do not.
fn counts(failure: &Failure) -> bool {
    match failure {
        Failure::Unreachable(_)
        | Failure::Lost(_)
        | Failure::TimedOut(_)
        | Failure::ServerFault(_)
        | Failure::Blocked(_) => true,
        // An answer that arrived, too large or unreadable, came over a transport that works.
        Failure::Nonsense(_)
        // It was not even tried.
        | Failure::LacksResources(_)
        | Failure::SessionExpired(_)
        | Failure::CredentialRefused(_)
        | Failure::Busy { .. }
        | Failure::Outdated(_)
        | Failure::BeyondScope(_)
        | Failure::Declined(_) => false,
    }
}

/// Whether the request itself may have caused a failure, and not the state of the server or of the way to it.
fn may_be_of_its_request(failure: &Failure) -> bool {
    match failure {
        Failure::TimedOut(_) | Failure::ServerFault(_) => true,
        Failure::Unreachable(_)
        | Failure::Lost(_)
        | Failure::Blocked(_)
        | Failure::Nonsense(_)
        | Failure::SessionExpired(_)
        | Failure::CredentialRefused(_)
        | Failure::Busy { .. }
        | Failure::Outdated(_)
        | Failure::BeyondScope(_)
        | Failure::LacksResources(_)
        | Failure::Declined(_) => false,
    }
}
