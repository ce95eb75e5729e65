//! The listener for requests that other replicas forward. The seal of a request is checked before its body is read.

use super::Member;
use super::forward::{PRINCIPAL, REFUSED, RESULT, covered_headers, misdirected, read_principal};
use super::route::ForwardedArrival;
use crate::mcp::Gateway;
use crate::server::quota::Peer;
use axum::Router;
use axum::body::Body;
use axum::response::Response;
use gripfast::sync::Mutex;
use gripfast::{Clock, LogThrottle};
use gripfast_cluster::forward::{
    BodyDigest, FORWARD_HEADER, ForwardRefusal, ForwardedRequest, VerifiedForward,
};
use http::request::Parts;
use http::{HeaderValue, Request, StatusCode};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower_service::Service as _;

/// Time for the head of a request, which is also the time for which an unused connection is kept.
const HEAD_TIMEOUT: Duration = Duration::from_secs(60);
/// Largest size of a head.
const MAX_HEAD: usize = 64 << 10;
/// Delay after a failed accept.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(100);
/// Time for a body.
const READ_TIMEOUT: Duration = Duration::from_secs(60);

/// Serves forwarded requests until `close`, then closes idle connections and waits for requests in flight.
pub(crate) async fn serve(
    listener: TcpListener,
    member: Arc<Member>,
    gateway: Arc<Gateway>,
    routes: Router,
    close: CancellationToken,
) {
    let all = TaskTracker::new();
    let receiver =
        Arc::new(Receiver { member, gateway, routes, clock: Clock::new(), refusals: Mutex::default() });
    let close_all = CancellationToken::new();
    let _close_all_on_drop = close_all.clone().drop_guard();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = close.cancelled() => break,
        };
        let Ok((stream, _)) = accepted else {
            tokio::time::sleep(ACCEPT_RETRY_DELAY).await;
            continue;
        };
        let _ = stream.set_nodelay(true);
        let (receiver, close, close_all) = (Arc::clone(&receiver), close.clone(), close_all.clone());
        all.spawn(async move {
            let service = service_fn(|request| Arc::clone(&receiver).receive(request));
            let connection = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(HEAD_TIMEOUT)
                .max_buf_size(MAX_HEAD)
                .serve_connection(TokioIo::new(stream), service);
            let mut connection = std::pin::pin!(connection);
            tokio::select! {
                _ = &mut connection => return,
                () = close.cancelled() => connection.as_mut().graceful_shutdown(),
            }
            let _ = close_all.run_until_cancelled(connection).await;
        });
    }
    drop(listener);
    all.close();
    all.wait().await;
}

struct Receiver {
    member: Arc<Member>,
    gateway: Arc<Gateway>,
    routes: Router,
    clock: Clock,
    refusals: Mutex<LogThrottle>,
}

impl Receiver {
    async fn receive(self: Arc<Self>, request: Request<Incoming>) -> Result<Response, Infallible> {
        let (mut head, body) = request.into_parts();
        let (verified, peer) = match self.verify(&head) {
            Ok(verified) => verified,
            Err(ForwardRefusal::OtherBoot) => return Ok(misdirected(self.member.place.boot, None)),
            Err(refusal) => return Ok(self.refuse(StatusCode::FORBIDDEN, refusal)),
        };
        let body = Limited::new(body, crate::mcp::transport::body::MAX_BODY).collect();
        let Ok(Ok(body)) = tokio::time::timeout(READ_TIMEOUT, body).await else {
            return Ok(self.refuse(StatusCode::BAD_REQUEST, ForwardRefusal::Malformed));
        };
        let body = body.to_bytes();
        if BodyDigest::of(&body) != verified.body_digest {
            return Ok(self.refuse(StatusCode::FORBIDDEN, ForwardRefusal::InvalidMac));
        }
        head.extensions.insert(ForwardedArrival { epoch: verified.epoch });
        let request = Request::from_parts(head, Body::from(body));
        if request.uri().path() == Gateway::ENDPOINT {
            return Ok(self.gateway.serve(request, peer).await);
        }
        let mut request = request;
        request.extensions_mut().insert(peer);
        self.routes.clone().call(request).await
    }

    fn verify(&self, head: &Parts) -> Result<(VerifiedForward, Peer), ForwardRefusal> {
        let text = |name: &str| head.headers.get(name).and_then(|value| value.to_str().ok());
        let seal = text(FORWARD_HEADER).ok_or(ForwardRefusal::Malformed)?;
        let principal = text(PRINCIPAL.as_str()).ok_or(ForwardRefusal::Malformed)?;
        let covered = covered_headers(&head.headers);
        let request = ForwardedRequest {
            method: head.method.as_str(),
            path: head.uri.path(),
            query: head.uri.query(),
            headers: &covered,
            principal,
            scopes: &[],
            era: "",
        };
        let verified = self.member.verifier.lock().verify(seal, &request)?;
        Ok((verified, read_principal(principal).ok_or(ForwardRefusal::Malformed)?))
    }

    fn refuse(&self, status: StatusCode, refusal: ForwardRefusal) -> Response {
        let due = self.refusals.lock().record(self.clock.mono());
        if let Some(suppressed) = due {
            tracing::warn!(
                suppressed,
                "a request to `cluster.listen` is refused: {refusal} (logged once a minute)"
            );
        }
        let mut response = Response::new(Body::from(format!("{refusal}\n")));
        *response.status_mut() = status;
        response.headers_mut().insert(RESULT, HeaderValue::from_static(REFUSED));
        response
    }
}
