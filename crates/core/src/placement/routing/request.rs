//! One request of a client session on its way: the decisions of the router, and the results that the shell reports.

use super::{Liveness, PutBack, Router, Stage};
use crate::placement::heartbeat::StoreUnreachable;
use crate::placement::place::{BootId, OwnerEpoch, Place, SessionId, SessionOwner};
use crate::placement::term::LeaseNow;
#[cfg(doc)]
use crate::placement::term::LeaseSpec;
use std::time::Duration;

/// One request and its progress. The shell asks [`Router::decide`], performs the decision and reports its result, until
/// the decision is final.
#[derive(Debug, Clone)]
pub struct RoutedRequest {
    session: SessionId,
    arrival: Arrival,
    forwards: u32,
    lookup: Lookup,
    /// A boot that is not there: it refused the connection, another boot answered at its address, or it released its
    /// sessions.
    absent: Option<BootId>,
    end: Option<Decision>,
}

/// Origin of a request at this replica.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arrival {
    /// From the client.
    Direct,
    /// From another replica. It is never forwarded again.
    Forwarded {
        /// The boot that the forwarder means.
        to: BootId,
        /// The epoch under which the forwarder believes that boot to be the owner.
        epoch: OwnerEpoch,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lookup {
    NotAsked,
    Answered,
    StoreUnreachable,
}

/// The next step of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// Final: serve it here.
    Serve {
        /// The epoch of this replica's ownership.
        epoch: OwnerEpoch,
    },
    /// Forward it, then report [`Router::forward_ended`].
    Forward {
        /// The owner. [`Router::replica`] has its address.
        to: Place,
        /// The epoch of its ownership.
        epoch: OwnerEpoch,
    },
    /// Read the session's record from the store, then report [`Router::looked_up`].
    LookUp,
    /// Take the session over in the store and restore it, then report [`Router::takeover_ended`].
    TakeOver {
        /// The present owner. The store refuses if it knows another one.
        from: SessionOwner,
        /// The reason.
        cause: TakeoverCause,
    },
    /// Another request of this session takes it over here. Ask again when that has ended.
    AwaitTakeover,
    /// Final, for a forwarded request: 421, nothing was done.
    Misdirected {
        /// The owner that this replica knows; `None` if it released the session or knows none.
        owner: Option<SessionOwner>,
    },
    /// Final: 503, nothing was done.
    Unavailable {
        /// `Retry-After`.
        retry_after: Duration,
        /// The reason.
        reason: UnavailableReason,
    },
    /// Final: the request was sent and its result is not known.
    OutcomeUnknown,
    /// Final: the owner has answered.
    Answered,
}

/// Reason of a takeover.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TakeoverCause {
    /// The record of the owner has ended. The store refuses if the owner is back.
    RecordEnded,
    /// The owner refused the connection, or said that it released the session.
    Refused,
}

/// Reason of a 503.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnavailableReason {
    /// The owner is unreachable, and without the store no other replica can take over.
    StoreUnreachable,
    /// The store came back a moment ago; the owner may still report.
    Grace,
    /// Too many takeovers at once.
    Busy,
    /// The owner changed twice while the request was on its way.
    OwnerChanged,
    /// This replica shuts down.
    ShuttingDown,
}

impl UnavailableReason {
    /// Returns whether the reason passes within [`LeaseSpec::longest_move`], so that the request can wait here. The
    /// return of a store cannot be foreseen; a replica that shuts down or has too many requests must not keep them.
    pub const fn passes(self) -> bool {
        match self {
            Self::Grace | Self::OwnerChanged => true,
            Self::StoreUnreachable | Self::Busy | Self::ShuttingDown => false,
        }
    }
}

/// The end of a forwarded request at its forwarder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ForwardEnd {
    /// The owner answered.
    Answered,
    /// The connection was refused: nothing was sent.
    Refused,
    /// The connection could not be made in time: nothing was sent, and the owner may be alive.
    NotConnected,
    /// 421: the replica at that address did nothing.
    Misdirected {
        /// The boot that answered.
        by: BootId,
        /// The owner that it knows.
        owner: Option<SessionOwner>,
    },
    /// The connection was lost after the first byte was written.
    Lost,
}

/// The reply of the store to a takeover.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TakeoverReply {
    /// This replica is the owner.
    Taken {
        /// The epoch of its ownership.
        epoch: OwnerEpoch,
        /// Epoch of the takeover by this replica before, as the store knows it.
        previous: OwnerEpoch,
    },
    /// Another takeover was first.
    Owned(SessionOwner),
    /// The owner has a live record again.
    OwnerIsLive,
    /// No replica takes over a session during a grace period.
    Grace {
        /// The rest of the period.
        left: Duration,
    },
}

impl RoutedRequest {
    /// A request that has just arrived.
    pub const fn new(session: SessionId, arrival: Arrival) -> Self {
        Self { session, arrival, forwards: 0, lookup: Lookup::NotAsked, absent: None, end: None }
    }

    /// The session.
    pub const fn session(&self) -> &SessionId {
        &self.session
    }

    fn ends_unavailable(&mut self, retry_after: Duration, reason: UnavailableReason) {
        self.end = Some(Decision::Unavailable { retry_after, reason });
    }
}

impl Router {
    /// Attempts to forward one request. The second one follows a 421.
    const MAX_FORWARDS: u32 = 2;
    /// `Retry-After` if nothing says when it will be better.
    const SHORT_PAUSE: Duration = Duration::from_secs(1);

    /// Returns whether a request of a client is served here at once: [`Decision::Serve`] without a step before it.
    pub fn serves(&self, now: LeaseNow, session: &SessionId) -> bool {
        let is_owner = self.moved.get(session).map_or(&session.origin, |owner| &owner.place) == &self.me;
        is_owner && self.stage == Stage::Serving && !self.must_confirm(now, session)
    }

    /// The next step of a request. The same request gets the same answer until a result is reported.
    pub fn decide(&mut self, now: LeaseNow, request: &RoutedRequest) -> Decision {
        if let Some(end) = &request.end {
            return end.clone();
        }
        match request.arrival {
            Arrival::Direct => self.decide_direct(now, request),
            Arrival::Forwarded { to, epoch } => self.decide_forwarded(now, request, to, epoch),
        }
    }

    fn decide_direct(&mut self, now: LeaseNow, request: &RoutedRequest) -> Decision {
        let session = &request.session;
        let owner = self.owner_of(session);
        if owner.place == self.me {
            return match self.stage {
                Stage::Released => unavailable(Self::SHORT_PAUSE, UnavailableReason::ShuttingDown),
                Stage::Serving if request.lookup == Lookup::NotAsked && self.must_confirm(now, session) => {
                    Decision::LookUp
                }
                Stage::Serving => Decision::Serve { epoch: owner.epoch },
            };
        }
        let liveness = self.liveness(now, owner.place.boot);
        let is_absent = request.absent == Some(owner.place.boot);
        let cause = match liveness {
            Liveness::Gone => TakeoverCause::RecordEnded,
            Liveness::Live | Liveness::LastKnown | Liveness::Unknown if is_absent => TakeoverCause::Refused,
            Liveness::Live | Liveness::LastKnown if request.forwards < Self::MAX_FORWARDS => {
                return Decision::Forward { to: owner.place, epoch: owner.epoch };
            }
            Liveness::Live | Liveness::LastKnown => {
                return unavailable(Self::SHORT_PAUSE, UnavailableReason::OwnerChanged);
            }
            Liveness::Unknown => TakeoverCause::RecordEnded,
        };
        self.take_over(now, request, owner, cause)
    }

    /// The owner is gone: look for a later owner in the store, and become the owner if there is none.
    fn take_over(
        &mut self,
        now: LeaseNow,
        request: &RoutedRequest,
        from: SessionOwner,
        cause: TakeoverCause,
    ) -> Decision {
        if self.stage == Stage::Released {
            return unavailable(Self::SHORT_PAUSE, UnavailableReason::ShuttingDown);
        }
        match request.lookup {
            Lookup::NotAsked => return Decision::LookUp,
            Lookup::StoreUnreachable => {
                return unavailable(Self::SHORT_PAUSE, UnavailableReason::StoreUnreachable);
            }
            Lookup::Answered => {}
        }
        let grace = self.grace_left(now);
        if !grace.is_zero() {
            return unavailable(grace, UnavailableReason::Grace);
        }
        if self.taking.contains(&request.session) {
            return Decision::AwaitTakeover;
        }
        if self.taking.len() >= Self::MAX_TAKEOVERS {
            return unavailable(Self::SHORT_PAUSE, UnavailableReason::Busy);
        }
        self.taking.insert(request.session.clone());
        Decision::TakeOver { from, cause }
    }

    fn decide_forwarded(
        &mut self,
        now: LeaseNow,
        request: &RoutedRequest,
        to: BootId,
        epoch: OwnerEpoch,
    ) -> Decision {
        if self.stage == Stage::Released {
            return Decision::Misdirected { owner: None };
        }
        let session = &request.session;
        let owner = self.owner_of(session);
        if to != self.me.boot {
            // The forwarder means an earlier boot, whose sessions this one knows only if they moved.
            let known = owner.epoch > OwnerEpoch::FIRST;
            return Decision::Misdirected { owner: known.then_some(owner) };
        }
        if self.taking.contains(session) {
            // Another request takes the session over here and restores it. The forwarder has learned that from the store.
            return Decision::AwaitTakeover;
        }
        let is_owner = owner.place == self.me;
        // The forwarder knows of a takeover that this replica does not: its own, whose reply was lost, or whose session it
        // has forgotten.
        let knows_less = epoch > owner.epoch;
        match request.lookup {
            Lookup::NotAsked if knows_less || (is_owner && self.must_confirm(now, session)) => {
                return Decision::LookUp;
            }
            // The store has lost the record of that takeover. It is written back.
            Lookup::Answered if knows_less => {
                self.learn(session, &SessionOwner { place: self.me.clone(), epoch });
                return Decision::Serve { epoch };
            }
            Lookup::NotAsked | Lookup::Answered | Lookup::StoreUnreachable => {}
        }
        if is_owner && owner.epoch == epoch {
            return Decision::Serve { epoch };
        }
        Decision::Misdirected { owner: Some(owner) }
    }

    /// Records the session's record in the store, or its absence.
    pub fn looked_up(
        &mut self,
        request: &mut RoutedRequest,
        record: Result<Option<SessionOwner>, StoreUnreachable>,
    ) {
        request.lookup = match record {
            Ok(record) => {
                if let Some(owner) = record {
                    self.learn(&request.session, &owner);
                }
                if self.owns(&request.session) {
                    self.confirm(&request.session);
                }
                Lookup::Answered
            }
            Err(StoreUnreachable) => {
                // Requests must not wait for an unreachable store one after the other.
                self.returned = false;
                Lookup::StoreUnreachable
            }
        };
    }

    /// Records the end of an attempt to forward.
    pub fn forward_ended(&mut self, request: &mut RoutedRequest, to: BootId, end: ForwardEnd) {
        request.forwards += 1;
        match end {
            ForwardEnd::Answered => request.end = Some(Decision::Answered),
            ForwardEnd::Lost => request.end = Some(Decision::OutcomeUnknown),
            ForwardEnd::Refused => request.absent = Some(to),
            ForwardEnd::NotConnected => {
                request.ends_unavailable(Self::SHORT_PAUSE, UnavailableReason::OwnerChanged);
            }
            ForwardEnd::Misdirected { by, owner } => {
                let learned = owner.as_ref().is_some_and(|owner| self.learn(&request.session, owner));
                if learned {
                    return;
                }
                if by != to || owner.is_none() {
                    // That boot is gone, or has released the session.
                    request.absent = Some(to);
                } else {
                    // The owner knows less than this replica, or the same: only the store can tell.
                    request.ends_unavailable(Self::SHORT_PAUSE, UnavailableReason::OwnerChanged);
                }
            }
        }
    }

    /// Records the end of a takeover.
    pub fn takeover_ended(
        &mut self,
        now: LeaseNow,
        request: &mut RoutedRequest,
        reply: Result<TakeoverReply, StoreUnreachable>,
    ) {
        self.taking.remove(&request.session);
        match reply {
            Ok(TakeoverReply::Taken { epoch, previous }) => {
                if previous < self.last_takeover {
                    self.put_back = PutBack::Due;
                }
                let owner = SessionOwner { place: self.me.clone(), epoch };
                self.learn(&request.session, &owner);
                self.confirm(&request.session);
            }
            Ok(TakeoverReply::Owned(owner)) => {
                // Another request of the session may have learned it while this one asked the store.
                let is_known =
                    self.learn(&request.session, &owner) || self.owner_of(&request.session) == owner;
                if !is_known || request.absent == Some(owner.place.boot) {
                    request.ends_unavailable(Self::SHORT_PAUSE, UnavailableReason::OwnerChanged);
                }
            }
            Ok(TakeoverReply::OwnerIsLive) => {
                request.ends_unavailable(Self::SHORT_PAUSE, UnavailableReason::OwnerChanged);
            }
            Ok(TakeoverReply::Grace { left }) => {
                self.set_grace(now, left);
                request.ends_unavailable(left, UnavailableReason::Grace);
            }
            Err(StoreUnreachable) => {
                request.ends_unavailable(Self::SHORT_PAUSE, UnavailableReason::StoreUnreachable);
            }
        }
    }

    /// Records that a request whose takeover was in flight ended without its reply: its client went away.
    pub fn takeover_abandoned(&mut self, request: &RoutedRequest) {
        self.taking.remove(&request.session);
    }
}

const fn unavailable(retry_after: Duration, reason: UnavailableReason) -> Decision {
    Decision::Unavailable { retry_after, reason }
}
