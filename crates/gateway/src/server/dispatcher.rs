//! Routes each request of a connection. Requests to `/mcp` take a short way of their own, the router has all other
//! paths. Before both, the guard looks at the head, and requests beyond the rate of their client are refused.

use crate::admin::{self, Admin};
use crate::auth::Access;
use crate::connection_table::Slot;
use crate::downstream::{Gateway, Guard, too_many_requests};
use crate::request_body::RequestBody;
use crate::request_limits::{RequestLimits, TooMany};
use crate::shares::Peer;
use axum::Router;
use axum::body::Body;
use axum::response::Response;
#[cfg(unix)]
use gripfast::{AuthFailure, AuthFailures, AuthTarget};
use gripfast::{Principal, Source};
use http::Request;
use hyper::body::Incoming;
use std::convert::Infallible;
use std::sync::Arc;
use tower_service::Service as _;

/// What is served to whoever connects.
#[derive(Clone)]
pub(crate) struct Front(Arc<Parts>);

/// Marks a request that came through the control socket.
#[derive(Debug, Clone, Copy)]
struct BySocket;

/// Where a request came from, as it is recorded.
pub(crate) fn source_of<B>(request: &Request<B>) -> Source {
    match request.extensions().get::<BySocket>() {
        Some(BySocket) => Source::ControlSocket,
        None => Peer::of(request).source(),
    }
}

/// What a request may meet.
pub(crate) struct Parts {
    pub(crate) guard: Guard,
    pub(crate) access: Option<Arc<Access>>,
    pub(crate) admin: Arc<Admin>,
    /// Requests per second, where they are limited.
    pub(crate) limits: Option<Arc<RequestLimits>>,
    pub(crate) gateway: Arc<Gateway>,
    /// Everything but the endpoint. It looks itself after who may use what.
    pub(crate) others: Router,
}

/// The principal that requests with the admin token count for. No key can have this name.
const ADMIN: &str = "(admin token)";

impl Front {
    pub(crate) fn new(parts: Parts) -> Self {
        Self(Arc::new(parts))
    }

    #[cfg(unix)]
    pub(crate) fn gateway(&self) -> Arc<Gateway> {
        Arc::clone(&self.0.gateway)
    }

    /// Records that a process of another user was turned away at the control socket.
    #[cfg(unix)]
    pub(crate) fn refused_user(&self, uid: u32) {
        let (target, reason) = (AuthTarget::ControlSocket, AuthFailure::OtherUser);
        let principal = Some(format!("uid {uid}"));
        let failure = AuthFailures { target, reason, principal, source: Source::ControlSocket, count: 1 };
        self.0.gateway.host.auth_failed(failure);
    }

    /// Answers one request of a client that connected from the address of `peer`. Requests without a `slot` came through
    /// the control socket, which has no limits.
    pub(crate) async fn serve(
        self,
        mut request: Request<Incoming>,
        peer: Peer,
        slot: Option<Arc<Slot>>,
    ) -> Result<Response<Body>, Infallible> {
        let Parts { guard, access, gateway, .. } = &*self.0;
        let limits = slot.as_ref().and(self.0.limits.as_deref());
        let spend = |peer: &Peer| limits.map_or(Ok(()), |limits| limits.spend(peer, 1));
        let path = request.uri().path();
        if let Some(refusal) = guard.refusal(request.method(), request.uri(), request.headers()) {
            return Ok(spend(&peer).map_or_else(|too_many| refused(path, too_many), |()| refusal));
        }
        if slot.is_none() {
            request.extensions_mut().insert(BySocket);
        }
        let unknown = slot.filter(|slot| !slot.is_known());
        if request.uri().path() != Gateway::ENDPOINT {
            return self.serve_others(request, peer, unknown, spend).await;
        }
        let Some(access) = access else {
            if let Err(too_many) = spend(&peer) {
                return Ok(too_many_requests(too_many));
            }
            return Ok(gateway.serve(request.map(|body| RequestBody::new(body, unknown)), peer).await);
        };
        // Checking a token takes a large future.
        match Box::pin(access.limited_peer(&peer, request.headers())).await {
            Ok((client, credential)) => {
                unknown.into_iter().for_each(|slot| slot.mark_known_as(&client));
                request.extensions_mut().insert(credential.clone());
                let served = gateway.serve(request, client);
                Ok(access.serve(&credential, Gateway::ENDPOINT, served).await)
            }
            Err(refused) => {
                let by_socket = request.extensions().get::<BySocket>().is_some();
                let source = if by_socket { Source::ControlSocket } else { peer.source() };
                // Its body holds nothing while the answer waits.
                drop(request);
                Ok(Box::pin(access.refuse(&refused, source, Gateway::ENDPOINT)).await)
            }
        }
    }

    async fn serve_others(
        &self,
        mut request: Request<Incoming>,
        peer: Peer,
        unknown: Option<Arc<Slot>>,
        spend: impl Fn(&Peer) -> Result<(), TooMany>,
    ) -> Result<Response<Body>, Infallible> {
        let Parts { access, admin, others, .. } = &*self.0;
        let path = request.uri().path();
        let shows_token = admin.is_shown_token(request.headers());
        // `Access::admit` counts what it lets in, and what it does not.
        let is_counted_there = access.is_some() && is_of_clients(path);
        if !is_health(path) && !is_counted_there {
            let spent = if shows_token { spend(&Peer::Is(Principal::named(ADMIN))) } else { spend(&peer) };
            if let Err(too_many) = spent {
                return Ok(refused(path, too_many));
            }
        }
        request.extensions_mut().insert(peer);
        match (access, unknown) {
            // Without authentication a client is known by a complete request.
            (None, unknown) => others.clone().call(request.map(|body| RequestBody::new(body, unknown))).await,
            (Some(_), Some(unknown)) => {
                if shows_token {
                    unknown.mark_known();
                }
                request.extensions_mut().insert(unknown);
                others.clone().call(request).await
            }
            (Some(_), None) => others.clone().call(request).await,
        }
    }
}

/// A load balancer takes a gateway out of use that does not answer here, and answering costs nothing.
fn is_health(path: &str) -> bool {
    matches!(path, "/healthz" | "/readyz")
}

/// Paths besides the endpoint that clients authenticate for.
fn is_of_clients(path: &str) -> bool {
    matches!(path, "/sse" | "/message")
}

fn refused(path: &str, too_many: TooMany) -> Response {
    match path.starts_with("/api/") {
        true => admin::too_many_requests(too_many),
        false => too_many_requests(too_many),
    }
}
