//! Routes each request of a connection: `/mcp` goes to the gateway directly, all other paths to the router. Before
//! both, the origin check examines the head, and requests above the client's rate limit are refused.

use super::connection_table::ConnectionSlot;
use super::quota::Peer;
use super::request_rate::{RateExceeded, RequestRates};
use super::tracked_body::TrackedBody;
use crate::api;
use crate::api::Admin;
use crate::auth::Authenticator;
use crate::mcp::transport::origin_check::is_health;
use crate::mcp::{Gateway, OriginCheck, too_many_requests};
use axum::Router;
use axum::body::Body;
use axum::response::Response;
#[cfg(unix)]
use gripfast::{AuthFailure, AuthFailures, AuthTarget};
use gripfast::{Principal, RequestSource};
use gripfast_http1::server::RequestBody;
use http::Request;
use std::sync::Arc;
use tower_service::Service as _;

/// Dispatches requests to the gateway and the router.
#[derive(Clone)]
pub(crate) struct Dispatcher(Arc<DispatcherParts>);

/// Marks a request that came through the control socket.
#[derive(Debug, Clone, Copy)]
struct BySocket;

/// Source of a request for the records.
pub(crate) fn source_of<B>(request: &Request<B>) -> RequestSource {
    match request.extensions().get::<BySocket>() {
        Some(BySocket) => RequestSource::ControlSocket,
        None => Peer::from_request(request).source(),
    }
}

/// Parts of the dispatcher.
pub(crate) struct DispatcherParts {
    pub(crate) origin_check: OriginCheck,
    pub(crate) access: Option<Arc<Authenticator>>,
    pub(crate) admin: Arc<Admin>,
    /// Requests per second, if they are limited.
    pub(crate) limits: Option<Arc<RequestRates>>,
    pub(crate) gateway: Arc<Gateway>,
    /// All paths except the MCP endpoint. The router checks access itself.
    pub(crate) other_routes: Router,
}

/// Principal for the rate limit of requests with the admin token. No API key can have this name.
const ADMIN: &str = "(admin token)";

impl Dispatcher {
    pub(crate) fn new(parts: DispatcherParts) -> Self {
        Self(Arc::new(parts))
    }

    #[cfg(unix)]
    pub(crate) fn gateway(&self) -> Arc<Gateway> {
        Arc::clone(&self.0.gateway)
    }

    /// Records that a process of another user was refused at the control socket.
    #[cfg(unix)]
    pub(crate) fn log_refused_user(&self, uid: u32) {
        let (target, reason) = (AuthTarget::ControlSocket, AuthFailure::OtherUser);
        let principal = Some(format!("uid {uid}"));
        let failure =
            AuthFailures { target, reason, principal, source: RequestSource::ControlSocket, count: 1 };
        self.0.gateway.host.record_auth_failure(failure);
    }

    /// Answers one request of a client that connected from the address of `peer`. Requests without a `slot` came
    /// through the control socket, which has no limits.
    pub(crate) async fn serve(
        &self,
        mut request: Request<RequestBody>,
        peer: Peer,
        slot: Option<&Arc<ConnectionSlot>>,
    ) -> Response<Body> {
        let DispatcherParts { origin_check: guard, access, gateway, .. } = &*self.0;
        let limits = slot.and(self.0.limits.as_deref());
        let spend = |peer: &Peer| limits.map_or(Ok(()), |limits| limits.spend(peer, 1));
        let path = request.uri().path();
        if let Some(refusal) = guard.refusal(request.method(), request.uri(), request.headers()) {
            return spend(&peer).map_or_else(|too_many| refused(path, too_many), |()| refusal);
        }
        if slot.is_none() {
            request.extensions_mut().insert(BySocket);
        }
        let unknown = slot.filter(|slot| !slot.is_known()).cloned();
        if request.uri().path() != Gateway::ENDPOINT {
            return self.serve_other_routes(request, peer, unknown, spend).await;
        }
        let Some(access) = access else {
            if let Err(too_many) = spend(&peer) {
                return too_many_requests(too_many);
            }
            return gateway.serve(request.map(|body| TrackedBody::new(body, unknown)), peer).await;
        };
        // Boxed, because the future of the token check is large.
        match Box::pin(access.authenticate_limited(&peer, request.headers())).await {
            Ok((client, credential)) => {
                unknown.into_iter().for_each(|slot| slot.mark_known_as(&client));
                request.extensions_mut().insert(credential.clone());
                let served = gateway.serve(request, client);
                access.serve_while_valid(&credential, Gateway::ENDPOINT, served).await
            }
            Err(refused) => {
                let by_socket = request.extensions().get::<BySocket>().is_some();
                let source = if by_socket { RequestSource::ControlSocket } else { peer.source() };
                // Releases the body while the refusal is delayed.
                drop(request);
                Box::pin(access.refuse(&refused, source, Gateway::ENDPOINT)).await
            }
        }
    }

    async fn serve_other_routes(
        &self,
        mut request: Request<RequestBody>,
        peer: Peer,
        unknown: Option<Arc<ConnectionSlot>>,
        spend: impl Fn(&Peer) -> Result<(), RateExceeded>,
    ) -> Response<Body> {
        let DispatcherParts { access, admin, other_routes: others, .. } = &*self.0;
        let path = request.uri().path();
        let shows_token = admin.has_admin_token(request.headers());
        // `Authenticator::admit` counts these requests itself.
        let is_counted_there = access.is_some() && is_client_path(path);
        if !is_health(path) && !is_counted_there {
            let spent =
                if shows_token { spend(&Peer::Principal(Principal::new(ADMIN))) } else { spend(&peer) };
            if let Err(too_many) = spent {
                return refused(path, too_many);
            }
        }
        request.extensions_mut().insert(peer);
        let routed = match (access, unknown) {
            // Without authentication, a client is known after a complete request.
            (None, unknown) => others.clone().call(request.map(|body| TrackedBody::new(body, unknown))).await,
            (Some(_), Some(unknown)) => {
                if shows_token {
                    unknown.mark_known();
                }
                request.extensions_mut().insert(unknown);
                others.clone().call(request).await
            }
            (Some(_), None) => others.clone().call(request).await,
        };
        match routed {
            Ok(response) => response,
            Err(never) => match never {},
        }
    }
}

/// Paths besides the endpoint that clients authenticate for.
fn is_client_path(path: &str) -> bool {
    matches!(path, "/sse" | "/message")
}

fn refused(path: &str, too_many: RateExceeded) -> Response {
    match path.starts_with("/api/") {
        true => api::too_many_requests(too_many),
        false => too_many_requests(too_many),
    }
}
