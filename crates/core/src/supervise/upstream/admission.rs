//! Who may call now, who waits, who is refused; and what the end of a call teaches.

use super::{LinkKind, Upstream};
use crate::event::Event;
use crate::failure::{BlockCause, Failure};
use crate::ids::Epoch;
use crate::supervise::circuit::Passage;
use crate::supervise::link::Link;
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
}

/// A place among those who wait. It cannot be copied, so it is left once.
#[derive(Debug)]
#[must_use = "a place that is never left counts as waiting for ever"]
pub struct Place {
    /// What it waits for.
    pub wait_for: WaitFor,
    /// Whether it has woken a parked upstream, and is held until that was tried.
    woke: bool,
}

/// What a waiting caller waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WaitFor {
    /// A usable link.
    Link,
    /// The end of another call.
    Slot,
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
    /// A new caller asks to go.
    pub fn admit(&mut self, now: Now) -> Admission {
        self.look(now);
        // Nobody overtakes those who wait for a slot.
        let slots_free = self.has_free_slot() && self.waiting == 0;
        let admission = match self.verdict(now.mono, slots_free) {
            Verdict::Go { trial } => Admission::Go(self.issue(now.mono, trial)),
            Verdict::Wait(_) | Verdict::Wake if self.waiting >= self.spec.max_waiting => {
                Admission::Refuse(Refusal {
                    reason: Reason::Overloaded,
                    retry_after: Some(Duration::from_secs(1)),
                })
            }
            Verdict::Wait(wait_for) => {
                self.waiting += 1;
                Admission::Wait(self.place(wait_for, false))
            }
            Verdict::Wake => {
                self.woken_by_call = Some(now.mono);
                self.try_parked(now.mono);
                self.waiting += 1;
                Admission::Wait(self.place(WaitFor::Link, true))
            }
            Verdict::Refuse(refusal) => Admission::Refuse(refusal),
        };
        self.show(now.mono);
        admission
    }

    /// A waiting caller asks again.
    pub fn readmit(&mut self, now: Now, place: Place) -> Admission {
        self.look(now);
        let woke = place.woke;
        self.give_up_place(place);
        if woke && matches!(self.link, Link::Connecting { parked: true, .. }) {
            return Admission::Wait(self.place(WaitFor::Link, true));
        }
        let admission = match self.verdict(now.mono, self.has_free_slot()) {
            Verdict::Go { trial } => {
                self.waiting -= 1;
                Admission::Go(self.issue(now.mono, trial))
            }
            Verdict::Wait(wait_for) => Admission::Wait(self.place(wait_for, false)),
            // A caller is held once: whoever has waited already is told.
            Verdict::Wake => {
                self.waiting -= 1;
                Admission::Refuse(self.parked_refusal(now.mono))
            }
            Verdict::Refuse(refusal) => {
                self.waiting -= 1;
                Admission::Refuse(refusal)
            }
        };
        self.show(now.mono);
        admission
    }

    /// A waiting caller gives up.
    pub fn leave(&mut self, now: Now, place: Place) {
        self.give_up_place(place);
        self.waiting -= 1;
        self.used_at = now.mono;
    }

    fn place(&mut self, wait_for: WaitFor, woke: bool) -> Place {
        self.queued += u32::from(wait_for == WaitFor::Slot);
        self.wakers += u32::from(woke);
        Place { wait_for, woke }
    }

    fn give_up_place(&mut self, Place { wait_for, woke }: Place) {
        self.queued -= u32::from(wait_for == WaitFor::Slot);
        self.wakers -= u32::from(woke);
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
        let free = self.spec.max_in_flight.saturating_sub(self.slots_in_use());
        let answers = match &self.link {
            Link::Ready(ready) if ready.suspect.is_none() => free,
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
        self.paused += u32::from(ticket.link == self.link_number);
        PausedSlot { link: ticket.link }
    }

    /// The call goes on. Its slot may have been given to another: for a while there is one more in use than there are.
    pub fn resume(&mut self, slot: PausedSlot) {
        self.paused -= u32::from(slot.link == self.link_number);
    }

    /// A call ended.
    pub fn end(&mut self, now: Now, ticket: Ticket, end: CallEnd) {
        self.look(now);
        let mono = now.mono;
        let Ticket { call, epoch, link, at } = ticket;
        self.in_flight -= 1;
        self.leave_link(link);
        self.used_at = mono;
        match end {
            // A caller's change of mind teaches nothing about the server. If nothing at all was heard since the call was
            // sent, the server may hang: it is asked, and nothing else is done.
            CallEnd::Abandoned => {
                self.circuit.abandoned(mono, call);
                if self.ready_at(epoch).is_some_and(|ready| ready.keepalive.heard_at() <= at && at < mono) {
                    self.probe(mono);
                }
            }
            CallEnd::Answered => self.learn_success(mono, epoch),
            CallEnd::Failed(failure) => self.learn_failure(mono, call, epoch, failure),
        }
        self.call_left(mono, call, link);
        if self.in_flight == 0 && matches!(self.link, Link::Draining { .. }) {
            self.finish_drain();
        }
        self.show(mono);
    }

    fn learn_success(&mut self, now: Mono, epoch: Epoch) {
        let Some(ready) = self.ready_at(epoch) else { return };
        ready.keepalive.heard(now);
        ready.answered = true;
        ready.credential_on_trial = false;
        if ready.proven_at.take().is_some() {
            self.budget.forgive();
        }
        if self.circuit.close() {
            self.events.push_back(Event::CircuitClosed);
        }
    }

    fn learn_failure(&mut self, now: Mono, call: u64, epoch: Epoch, failure: Failure) {
        if matches!(failure, Failure::Declined(_) | Failure::Outdated(_) | Failure::BeyondScope(_)) {
            self.learn_success(now, epoch);
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
            if self.circuit.failed(now, call) {
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

    fn verdict(&mut self, now: Mono, slot_free: bool) -> Verdict {
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
                Passage::TrialDue => Verdict::Go { trial: true },
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

    fn issue(&mut self, now: Mono, trial: bool) -> Ticket {
        let call = self.next_call;
        self.next_call += 1;
        self.in_flight += 1;
        self.used_at = now;
        if trial {
            self.circuit.begin_trial(now, call);
        }
        let epoch = self.ready_epoch().expect("a call is admitted to a usable link only");
        Ticket { call, epoch, link: self.join_link(), at: now }
    }

    /// Calls that were left behind on a link that is gone take nothing from the present one.
    fn has_free_slot(&self) -> bool {
        self.slots_in_use() < self.spec.max_in_flight
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
        | Failure::SessionExpired(_)
        | Failure::CredentialRefused(_)
        | Failure::Busy { .. }
        | Failure::Outdated(_)
        | Failure::BeyondScope(_)
        | Failure::Declined(_) => false,
    }
}
