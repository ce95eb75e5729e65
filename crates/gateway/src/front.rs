//! What is served to whoever connects. The endpoint that clients call all day is on a short way of its own; the other
//! paths are the router's. Both ways begin with the guard and ask who somebody is.

use crate::auth::Access;
use crate::downstream::{Gateway, Guard};
use crate::shares::Peer;
use axum::Router;
use axum::body::Body;
use axum::response::Response;
use http::Request;
use hyper::body::Incoming;
use std::convert::Infallible;
use std::sync::Arc;
use tower_service::Service as _;

/// What is served to whoever connects.
#[derive(Clone)]
pub(crate) struct Front(Arc<Inner>);

struct Inner {
    guard: Guard,
    access: Option<Arc<Access>>,
    gateway: Arc<Gateway>,
    others: Router,
}

impl Front {
    /// The endpoint of `gateway`, for those whom `guard` lets pass and `access` knows; and `others`, which looks
    /// after itself.
    pub(crate) fn new(
        guard: Guard,
        access: Option<Arc<Access>>,
        gateway: Arc<Gateway>,
        others: Router,
    ) -> Self {
        Self(Arc::new(Inner { guard, access, gateway, others }))
    }

    /// Answers one request of somebody who connected from the address of `peer`.
    pub(crate) async fn serve(
        self,
        mut request: Request<Incoming>,
        peer: Peer,
    ) -> Result<Response<Body>, Infallible> {
        if request.uri().path() != Gateway::ENDPOINT {
            request.extensions_mut().insert(peer);
            return self.0.others.clone().call(request).await;
        }
        if let Some(refusal) = self.0.guard.refusal(request.method(), request.uri(), request.headers()) {
            return Ok(refusal);
        }
        let Some(access) = &self.0.access else { return Ok(self.0.gateway.serve(request, peer).await) };
        // Checking a token takes a large future.
        match Box::pin(access.peer(request.uri(), request.headers())).await {
            Ok((peer, credential)) => {
                request.extensions_mut().insert(credential.clone());
                let served = self.0.gateway.serve(request, peer);
                Ok(access.serve(&credential, Gateway::ENDPOINT, served).await)
            }
            Err(refusal) => Ok(*refusal),
        }
    }
}
