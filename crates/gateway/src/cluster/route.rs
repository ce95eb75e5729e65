//! Takes a request to the replica that must serve it. `core::placement` decides; this module performs the decisions.

use super::Member;
pub(crate) use super::forward::OutgoingForward;
use super::forward::misdirected;
use super::sessions::RemoteSession;
use crate::mcp::Gateway;
use crate::mcp::address::Replica;
use crate::mcp::request::dispatch::RequestOutcome;
use crate::mcp::request::overload::{self, Overload};
use crate::mcp::request::respond;
use crate::mcp::transport::event_id::lost_call;
use crate::mcp::transport::streamable_http::{text_response, wire};
use crate::server::quota::Peer;
use axum::response::Response;
use gripfast::placement::heartbeat::StoreUnreachable;
use gripfast::placement::place::{BootId, OwnerEpoch};
use gripfast::placement::routing::{
    Arrival, Decision, ForwardEnd, RoutedRequest, TakeoverReply, UnavailableReason,
};
use gripfast::wire::envelope::Request;
use gripfast::wire::{Era, Id};
use gripfast_cluster::{StoreError, lease_now};
use http::request::Parts;
use http::{Method, StatusCode};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::time::Instant;

/// Marks a request that another replica forwarded to this one.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ForwardedArrival {
    /// The epoch under which the forwarder believes this replica to be the owner.
    pub(crate) epoch: OwnerEpoch,
}

/// Process that has what a request concerns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Target<'a> {
    /// The owner of the session with this id.
    Session(&'a str),
    /// The process that issued an id in the request: a stream, a question, a call that waits for input.
    Boot {
        boot: BootId,
        /// The session of the request. If the process is gone, its owner serves the request.
        session: Option<&'a str>,
    },
    /// The replica that runs the dedicated instances of this client, which has no session.
    Home(&'a Peer),
}

/// A request, as far as routing is concerned.
pub(crate) struct RoutedMessage<'a> {
    pub(crate) forward: OutgoingForward<'a>,
    /// JSON-RPC request in the body, if it is one.
    pub(crate) request: Option<&'a Request<'a>>,
    pub(crate) era: Era,
}

/// The request could not be routed, and nothing was done.
struct Unavailable {
    reason: UnavailableReason,
    retry_after: Duration,
}

/// Longest pause between two attempts to route a request.
const ROUTE_INTERVAL: Duration = Duration::from_millis(250);

/// Result of routing a request.
pub(crate) enum Routed {
    /// Here.
    Here,
    /// It was answered elsewhere, or not at all.
    Elsewhere(Response),
}

impl Member {
    /// Returns whether a request of a client is served here without a step before that.
    pub(crate) fn serves(&self, gateway: &Gateway, target: Target<'_>, head: &Parts) -> bool {
        let is_forwarded = head.extensions.get::<ForwardedArrival>().is_some();
        match target {
            Target::Session(id) if !is_forwarded => gateway
                .sessions
                .session_id(id)
                .is_some_and(|session| self.router.lock().serves(lease_now(), &session)),
            // The forwarder may know of other replicas than this one. Its choice counts.
            Target::Home(_) if is_forwarded => self.router.lock().admits(),
            Target::Home(client) => self.homes(client).first() == Some(&self.place.boot),
            Target::Session(_) | Target::Boot { .. } => false,
        }
    }

    fn homes(&self, client: &Peer) -> Vec<BootId> {
        self.router.lock().homes(client.principal().name())
    }

    /// Takes a request to where it must be served. It waits while the session moves, because most clients take a 503 for
    /// the end of their call.
    pub(crate) async fn route(
        self: &Arc<Self>,
        gateway: &Arc<Gateway>,
        target: Target<'_>,
        request: &RoutedMessage<'_>,
    ) -> Routed {
        let wait_until = Instant::now() + self.settings.lease.longest_move();
        loop {
            let Unavailable { reason, retry_after } =
                match self.try_route(gateway, target, request, wait_until).await {
                    Ok(routed) => return routed,
                    Err(unavailable) => unavailable,
                };
            let pause = retry_after.min(ROUTE_INTERVAL);
            if !reason.passes() || Instant::now() + pause > wait_until {
                return Routed::Elsewhere(unavailable(request.id(), reason, retry_after));
            }
            tokio::time::sleep(pause).await;
        }
    }

    /// One attempt. An error means that nothing was done. Steps before the request is sent end at `limit`.
    async fn try_route(
        self: &Arc<Self>,
        gateway: &Arc<Gateway>,
        target: Target<'_>,
        request: &RoutedMessage<'_>,
        limit: Instant,
    ) -> Result<Routed, Unavailable> {
        let forwarded = request.forward.head.extensions.get::<ForwardedArrival>().copied();
        match target {
            Target::Session(id) => self.route_to_owner(gateway, id, request, forwarded, limit).await,
            Target::Boot { boot, session } => {
                let is_mine = boot == self.place.boot;
                if !is_mine
                    && forwarded.is_none()
                    && let Some(response) = self.route_to_boot(boot, request, limit).await?
                {
                    return Ok(Routed::Elsewhere(response));
                }
                match session {
                    // Also a session that another replica has taken over: its streams of calls are still here.
                    Some(id) if is_mine && gateway.sessions.has(id) => Ok(Routed::Here),
                    Some(id) => self.route_to_owner(gateway, id, request, forwarded, limit).await,
                    // What it concerns is here, or lost.
                    None => Ok(Routed::Here),
                }
            }
            Target::Home(_) if forwarded.is_some() => {
                Ok(Routed::Elsewhere(misdirected(self.place.boot, None)))
            }
            Target::Home(client) => {
                let others = self.homes(client).into_iter().take_while(|home| *home != self.place.boot);
                for home in others {
                    if let Some(response) = self.route_to_boot(home, request, limit).await? {
                        return Ok(Routed::Elsewhere(response));
                    }
                }
                Ok(Routed::Here)
            }
        }
    }

    /// Forwards to one process; `None` if it is gone, and nothing was done.
    async fn route_to_boot(
        self: &Arc<Self>,
        boot: BootId,
        request: &RoutedMessage<'_>,
        limit: Instant,
    ) -> Result<Option<Response>, Unavailable> {
        let found = tokio::time::timeout_at(limit, self.find_replica(boot)).await;
        let Some(replica) = found.unwrap_or_default() else { return Ok(None) };
        match self.forward(&replica.place, OwnerEpoch::FIRST, &request.forward).await {
            Ok(response) => Ok(Some(response)),
            Err(ForwardEnd::Refused | ForwardEnd::Misdirected { .. } | ForwardEnd::Answered) => Ok(None),
            Err(ForwardEnd::NotConnected) => Err(Unavailable {
                reason: UnavailableReason::OwnerChanged,
                retry_after: Duration::from_secs(1),
            }),
            // A stream that was not begun has no effect.
            Err(ForwardEnd::Lost) if request.forward.head.method == Method::GET => Ok(None),
            Err(ForwardEnd::Lost) => Ok(Some(request.lost())),
        }
    }

    async fn route_to_owner(
        self: &Arc<Self>,
        gateway: &Arc<Gateway>,
        id: &str,
        request: &RoutedMessage<'_>,
        forwarded: Option<ForwardedArrival>,
        limit: Instant,
    ) -> Result<Routed, Unavailable> {
        // An id that does not open is refused here, and one that no replica issued is served here.
        let Some(session) = gateway.sessions.session_id(id) else { return Ok(Routed::Here) };
        let arrival = match forwarded {
            Some(ForwardedArrival { epoch }) => Arrival::Forwarded { to: self.place.boot, epoch },
            None => Arrival::Direct,
        };
        let (mut routed, mut stored) = (RoutedRequest::new(session, arrival), None);
        loop {
            let takeover_ended = self.takeover_ended.notified();
            let decision = self.with_router(|router| router.decide(lease_now(), &routed));
            match decision {
                Decision::Serve { .. } => {
                    if let Some(stored) = stored {
                        gateway.sessions.restore_remote(id, request.forward.peer, stored).await;
                    }
                    return Ok(Routed::Here);
                }
                Decision::Forward { to, epoch } => match self.forward(&to, epoch, &request.forward).await {
                    Ok(response) => return Ok(Routed::Elsewhere(response)),
                    Err(end) => {
                        self.with_router(|router| router.forward_ended(&mut routed, to.boot, end));
                    }
                },
                Decision::LookUp => {
                    let found = tokio::time::timeout_at(limit, self.look_up(&routed)).await;
                    let found = found.unwrap_or(Err(StoreUnreachable));
                    let owner = found.map(|found| {
                        stored = Some(RemoteSession::from_stored(&found));
                        found.owner
                    });
                    self.with_router(|router| router.looked_up(&mut routed, owner));
                }
                Decision::TakeOver { from, cause } => {
                    let abandoned = AbandonOnDrop { member: self, request: Some(routed.clone()) };
                    let taken = match self.joined_store() {
                        Ok(store) => {
                            let taking = store.take_over(routed.session(), &from, cause);
                            // Like a takeover whose reply is lost: the store tells this replica what it owns.
                            let taken = tokio::time::timeout_at(limit, taking).await;
                            taken.unwrap_or_else(|_| {
                                Err(StoreError::Unreachable("no reply in time".to_owned()))
                            })
                        }
                        Err(error) => Err(error),
                    };
                    if matches!(taken, Ok(TakeoverReply::Taken { .. })) {
                        self.takeovers.fetch_add(1, Ordering::Relaxed);
                        // Before other requests of the session are served here: they would open it without its preferences.
                        if let Some(stored) = stored.take() {
                            gateway.sessions.restore_remote(id, request.forward.peer, stored).await;
                        }
                    }
                    abandoned.ended();
                    let taken = taken.map_err(|error| error.for_machine());
                    self.with_router(|router| router.takeover_ended(lease_now(), &mut routed, taken));
                    self.takeover_ended.notify_waiters();
                }
                Decision::AwaitTakeover => {
                    if tokio::time::timeout_at(limit, takeover_ended).await.is_err() {
                        let (reason, retry_after) = (UnavailableReason::OwnerChanged, Duration::from_secs(1));
                        return Err(Unavailable { reason, retry_after });
                    }
                }
                Decision::Misdirected { owner } => {
                    return Ok(Routed::Elsewhere(misdirected(self.place.boot, owner.as_ref())));
                }
                Decision::Unavailable { retry_after, reason } => {
                    return Err(Unavailable { reason, retry_after });
                }
                Decision::OutcomeUnknown => return Ok(Routed::Elsewhere(request.lost())),
                Decision::Answered => return Ok(Routed::Here),
            }
        }
    }

    async fn look_up(
        &self,
        request: &RoutedRequest,
    ) -> Result<gripfast_cluster::sessions::StoredSession, StoreUnreachable> {
        let found = match self.joined_store() {
            Ok(store) => store.open_session(request.session()).await,
            Err(error) => Err(error),
        };
        let found = found.map_err(|error| {
            match &error {
                StoreError::NewerFormat { .. } if !self.has_reported_newer.swap(true, Ordering::AcqRel) => {
                    tracing::warn!(
                        "client sessions are not served here, and get 503: {error}; upgrade this gateway (logged once)"
                    );
                }
                _ => tracing::debug!("the owner of a session is not known: {error}"),
            }
            error.for_machine()
        })?;
        // An owner that started after the last heartbeat has a record, which the router needs to forward.
        let owner = found.owner.as_ref().map_or(request.session().origin.boot, |owner| owner.place.boot);
        if owner != self.place.boot {
            self.find_replica(owner).await;
        }
        Ok(found)
    }

    /// The process that an id names, if it is another replica.
    pub(crate) fn other_replica(&self, replica: &Replica) -> Option<BootId> {
        let Replica { name, boot } = replica;
        (name.is_some() && *boot != self.place.boot).then_some(*boot)
    }
}

/// Reports a takeover whose client went away before the reply.
struct AbandonOnDrop<'a> {
    member: &'a Member,
    request: Option<RoutedRequest>,
}

impl AbandonOnDrop<'_> {
    fn ended(mut self) {
        self.request = None;
    }
}

impl Drop for AbandonOnDrop<'_> {
    fn drop(&mut self) {
        if let Some(request) = &self.request {
            self.member.with_router(|router| router.takeover_abandoned(request));
            self.member.takeover_ended.notify_waiters();
        }
    }
}

impl RoutedMessage<'_> {
    fn id(&self) -> Option<Id<'_>> {
        self.request.map(|request| request.id)
    }

    /// Response to a request that was sent to another replica and whose result is not known.
    fn lost(&self) -> Response {
        let text =
            "the replica that served this request was lost; whether the request was carried out is unknown";
        match self.request {
            Some(request) => {
                let lost = RequestOutcome::Failed(lost_call(text));
                wire(respond::respond(self.era, &request.method, request.id, lost), StatusCode::OK)
            }
            // Notifications, answers and streams: the client comes back.
            None => text_response(StatusCode::BAD_GATEWAY, text),
        }
    }
}

/// 503: nothing was done.
fn unavailable(id: Option<Id<'_>>, reason: UnavailableReason, retry_after: Duration) -> Response {
    let text = match reason {
        UnavailableReason::StoreUnreachable => {
            "the replica of this session is unreachable, and so is the store: no other replica can take over"
        }
        UnavailableReason::Grace => "the store came back a moment ago; replicas report to it first",
        UnavailableReason::Busy => "too many sessions are being taken over",
        UnavailableReason::OwnerChanged => "the session moves to another replica",
        UnavailableReason::ShuttingDown => "this replica shuts down",
    };
    overload::overloaded(id, &Overload::unavailable(text, retry_after))
}
