//! Exclusive lease: the right of one replica to run what must exist once, such as a singleton server.
//!
//! The holder acts only within its [`LeaseTerm`], whatever the store and the network do. The heartbeat renews the lease;
//! its reply says when the lease was lost. The shell performs the actions and reports how they ended.

use super::heartbeat::StoreUnreachable;
use super::place::OwnerEpoch;
use super::term::{LeaseNow, LeaseSpec, LeaseTerm};
use std::collections::VecDeque;
use std::time::Duration;

/// The machine of one exclusive lease at one replica.
#[derive(Debug, Clone)]
pub struct ExclusiveLease {
    spec: LeaseSpec,
    wish: Wish,
    state: LeaseState,
    /// The highest epoch that this replica knows. A claim carries it, so that a store that lost it does not go back.
    highest: OwnerEpoch,
    actions: VecDeque<LeaseAction>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wish {
    Hold,
    LetGo,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LeaseState {
    /// Not held. The next claim is due after the pause.
    Idle { since: LeaseNow, pause: Duration },
    /// A claim is in flight.
    Claiming { sent: LeaseNow },
    /// Held: the work runs.
    Held { epoch: OwnerEpoch, term: LeaseTerm },
    /// The work is being ended. The heartbeat still renews the lease, so that no other replica starts before.
    Stopping { epoch: OwnerEpoch },
    /// The work could not be ended in time. The lease is neither renewed nor released, so that it ends by time, and it is
    /// not claimed again: the work may still run.
    StopOverdue { epoch: OwnerEpoch },
    /// The release is in flight.
    Releasing { since: LeaseNow },
}

/// An action for the shell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeaseAction {
    /// Claim the lease in the store, then report [`LeaseInput::ClaimEnded`].
    Claim {
        /// The highest known epoch; the new one is above it.
        above: OwnerEpoch,
    },
    /// Start the work under this epoch.
    Start {
        /// The epoch of the lease.
        epoch: OwnerEpoch,
    },
    /// End the work within [`LeaseSpec::MARGIN`], then report [`LeaseInput::Stopped`], or [`LeaseInput::StopOverdue`] if
    /// it does not end.
    Stop {
        /// The epoch of the lease.
        epoch: OwnerEpoch,
        /// The reason.
        cause: StopCause,
    },
    /// Release the lease in the store, then report [`LeaseInput::ReleaseEnded`].
    Release {
        /// The epoch of the lease.
        epoch: OwnerEpoch,
    },
}

/// Reason why a holder stops.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopCause {
    /// No heartbeat renewed the lease in time.
    Ending,
    /// Another replica holds the lease.
    Lost,
    /// The replica no longer wants it.
    LetGo,
}

/// A report of the shell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LeaseInput {
    /// The replica wants the lease.
    Wanted,
    /// The replica no longer wants the lease: its configuration changed, or it shuts down.
    Unwanted,
    /// A claim ended.
    ClaimEnded(Result<ClaimReply, StoreUnreachable>),
    /// A heartbeat that carried this lease succeeded.
    Renewed {
        /// The time before it was sent.
        sent: LeaseNow,
        /// The epoch that the heartbeat carried.
        epoch: OwnerEpoch,
    },
    /// A heartbeat says that this lease belongs to another replica.
    Lost {
        /// The epoch that the heartbeat carried.
        epoch: OwnerEpoch,
    },
    /// The work has ended: after a [`LeaseAction::Stop`], or by itself.
    Stopped,
    /// The work could not be ended in time, such as a process that the kernel does not kill. [`LeaseInput::Stopped`]
    /// follows if it ends later.
    StopOverdue,
    /// A release ended, with or without success: without it, the lease ends by time.
    ReleaseEnded,
}

/// The reply of the store to a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClaimReply {
    /// The replica holds the lease.
    Claimed {
        /// The epoch of the lease.
        epoch: OwnerEpoch,
    },
    /// Another replica holds it.
    Taken {
        /// The time until it ends, unless it is renewed.
        left: Duration,
    },
    /// No replica may claim during a grace period.
    Grace {
        /// The rest of the period.
        left: Duration,
    },
}

impl ExclusiveLease {
    /// The shortest pause before a refused claim is repeated.
    const MIN_PAUSE: Duration = Duration::from_millis(50);

    /// A lease that is neither wanted nor held.
    pub const fn new(spec: LeaseSpec, now: LeaseNow) -> Self {
        Self {
            spec,
            wish: Wish::LetGo,
            state: LeaseState::Idle { since: now, pause: Duration::ZERO },
            highest: OwnerEpoch::FIRST,
            actions: VecDeque::new(),
        }
    }

    /// The epoch under which the holder may act now. The shell asks before each act; a timer alone is not enough,
    /// because the process may have been stopped.
    pub fn may_act(&self, now: LeaseNow) -> Option<OwnerEpoch> {
        match self.state {
            LeaseState::Held { epoch, term } => term.may_act(now).then_some(epoch),
            LeaseState::Idle { .. }
            | LeaseState::Claiming { .. }
            | LeaseState::Stopping { .. }
            | LeaseState::StopOverdue { .. }
            | LeaseState::Releasing { .. } => None,
        }
    }

    /// The time for which the holder may still act, for the watcher process that kills from outside.
    pub fn left(&self, now: LeaseNow) -> Duration {
        match self.state {
            LeaseState::Held { term, .. } => term.left(now),
            LeaseState::Idle { .. }
            | LeaseState::Claiming { .. }
            | LeaseState::Stopping { .. }
            | LeaseState::StopOverdue { .. }
            | LeaseState::Releasing { .. } => Duration::ZERO,
        }
    }

    /// The epoch that the next heartbeat carries, if it renews this lease.
    pub fn renewal(&self) -> Option<OwnerEpoch> {
        match self.state {
            LeaseState::Held { epoch, .. } | LeaseState::Stopping { epoch } => Some(epoch),
            LeaseState::Idle { .. }
            | LeaseState::Claiming { .. }
            | LeaseState::StopOverdue { .. }
            | LeaseState::Releasing { .. } => None,
        }
    }

    /// Returns whether the work may still run although it was to end.
    pub fn is_stop_overdue(&self) -> bool {
        matches!(self.state, LeaseState::StopOverdue { .. })
    }

    /// Handles a report.
    pub fn handle(&mut self, now: LeaseNow, input: LeaseInput) {
        match input {
            LeaseInput::Wanted => self.wish = Wish::Hold,
            LeaseInput::Unwanted => {
                self.wish = Wish::LetGo;
                if let LeaseState::Held { epoch, .. } = self.state {
                    self.stop(epoch, StopCause::LetGo);
                }
            }
            LeaseInput::ClaimEnded(reply) => self.claim_ended(now, reply),
            LeaseInput::Renewed { sent, epoch: renewed } => match self.state {
                LeaseState::Held { epoch, term } if epoch == renewed => {
                    let renewed = LeaseTerm::granted(sent, self.spec.lease);
                    // A term that has ended stays ended: the work may already have been killed from outside.
                    if term.may_act(now) && renewed.left(now) > term.left(now) {
                        self.state = LeaseState::Held { epoch, term: renewed };
                    }
                }
                LeaseState::Held { .. }
                | LeaseState::Idle { .. }
                | LeaseState::Claiming { .. }
                | LeaseState::Stopping { .. }
                | LeaseState::StopOverdue { .. }
                | LeaseState::Releasing { .. } => {}
            },
            LeaseInput::Lost { epoch: lost } => match self.state {
                LeaseState::Held { epoch, .. } if epoch == lost => self.stop(epoch, StopCause::Lost),
                // A report about an earlier ownership.
                LeaseState::Held { .. }
                | LeaseState::Idle { .. }
                | LeaseState::Claiming { .. }
                | LeaseState::Stopping { .. }
                | LeaseState::StopOverdue { .. }
                | LeaseState::Releasing { .. } => {}
            },
            LeaseInput::Stopped => match self.state {
                // If another replica holds the lease by now, the store keeps that one.
                LeaseState::Held { epoch, .. }
                | LeaseState::Stopping { epoch }
                | LeaseState::StopOverdue { epoch } => self.release(now, epoch),
                LeaseState::Idle { .. } | LeaseState::Claiming { .. } | LeaseState::Releasing { .. } => {}
            },
            LeaseInput::StopOverdue => match self.state {
                LeaseState::Stopping { epoch } => self.state = LeaseState::StopOverdue { epoch },
                LeaseState::Idle { .. }
                | LeaseState::Claiming { .. }
                | LeaseState::Held { .. }
                | LeaseState::StopOverdue { .. }
                | LeaseState::Releasing { .. } => {}
            },
            LeaseInput::ReleaseEnded => match self.state {
                LeaseState::Releasing { .. } => self.rest(now, self.spec.heartbeat()),
                LeaseState::Idle { .. }
                | LeaseState::Claiming { .. }
                | LeaseState::Held { .. }
                | LeaseState::Stopping { .. }
                | LeaseState::StopOverdue { .. } => {}
            },
        }
        self.handle_timeout(now);
    }

    /// Does what is due: claims, or stops before the lease ends.
    pub fn handle_timeout(&mut self, now: LeaseNow) {
        if self.poll_timeout(now).is_none_or(|left| !left.is_zero()) {
            return;
        }
        match self.state {
            LeaseState::Idle { .. } => {
                self.state = LeaseState::Claiming { sent: now };
                self.actions.push_back(LeaseAction::Claim { above: self.highest });
            }
            LeaseState::Held { epoch, .. } => self.stop(epoch, StopCause::Ending),
            LeaseState::Releasing { .. } => self.rest(now, Duration::ZERO),
            LeaseState::Claiming { .. } | LeaseState::Stopping { .. } | LeaseState::StopOverdue { .. } => {}
        }
    }

    /// The time until [`Self::handle_timeout`] has something to do; `None` if only a report changes anything.
    pub fn poll_timeout(&self, now: LeaseNow) -> Option<Duration> {
        match self.state {
            LeaseState::Idle { since, pause } => {
                (self.wish == Wish::Hold).then(|| pause.saturating_sub(now.since(since)))
            }
            LeaseState::Held { term, .. } => Some(term.left(now)),
            LeaseState::Releasing { since } => Some(self.spec.heartbeat().saturating_sub(now.since(since))),
            // The shell always reports the end of a claim, and the end of the work.
            LeaseState::Claiming { .. } | LeaseState::Stopping { .. } | LeaseState::StopOverdue { .. } => {
                None
            }
        }
    }

    /// The next action, in order.
    pub fn poll_action(&mut self) -> Option<LeaseAction> {
        self.actions.pop_front()
    }

    fn claim_ended(&mut self, now: LeaseNow, reply: Result<ClaimReply, StoreUnreachable>) {
        let LeaseState::Claiming { sent } = self.state else { return };
        match reply {
            Ok(ClaimReply::Claimed { epoch }) => {
                self.highest = self.highest.max(epoch);
                let term = LeaseTerm::granted(sent, self.spec.lease);
                if self.wish == Wish::Hold && term.may_act(now) {
                    self.state = LeaseState::Held { epoch, term };
                    self.actions.push_back(LeaseAction::Start { epoch });
                } else {
                    self.release(now, epoch);
                }
            }
            Ok(ClaimReply::Taken { left }) => {
                self.rest(now, left.max(Self::MIN_PAUSE).min(self.spec.heartbeat()));
            }
            Ok(ClaimReply::Grace { left }) => self.rest(now, left.max(Self::MIN_PAUSE)),
            Err(StoreUnreachable) => self.rest(now, self.spec.heartbeat()),
        }
    }

    fn stop(&mut self, epoch: OwnerEpoch, cause: StopCause) {
        self.state = LeaseState::Stopping { epoch };
        self.actions.push_back(LeaseAction::Stop { epoch, cause });
    }

    fn release(&mut self, now: LeaseNow, epoch: OwnerEpoch) {
        self.state = LeaseState::Releasing { since: now };
        self.actions.push_back(LeaseAction::Release { epoch });
    }

    fn rest(&mut self, now: LeaseNow, pause: Duration) {
        self.state = LeaseState::Idle { since: now, pause };
    }
}
