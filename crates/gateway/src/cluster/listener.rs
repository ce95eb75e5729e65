//! The listener for requests that other replicas forward. The seal of a request is checked before its body is read, and the
//! body counts against the memory quota of its client.
//!
//! The number of connections is bounded. Until a connection has brought a request with a valid seal, it is the first one
//! to be closed for a new one.

use super::Member;
use super::forward::{CREDENTIAL, PRINCIPAL, REPLY, RESULT, covered_headers, misdirected, read_principal};
use super::route::ForwardedArrival;
use super::sealed_body::SealedBody;
use super::singletons::{SERVERS_PATH, not_performed};
use crate::auth::Authenticator;
use crate::auth::credential::Credential;
use crate::mcp::Gateway;
use crate::server::connection_table::{ConnectionSlot, ConnectionTable};
use crate::server::listener::CONNECTION_LIMITS;
use crate::server::quota::Peer;
use axum::Router;
use axum::body::Body;
use axum::response::Response;
use gripfast::sync::Mutex;
use gripfast::{Clock, LogThrottle};
use gripfast_cluster::forward::{
    FORWARD_HEADER, ForwardRefusal, ForwardedRequest, PROBE_PATH, VerifiedForward, is_forwarded_header,
    seal_reply,
};
use gripfast_http1::server as http1;
use gripfast_http1::server::RequestBody;
use http::header::CONNECTION;
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Request, StatusCode};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower_service::Service as _;

/// Time for the first request with a valid seal.
const FIRST_REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
/// Delay after a failed accept.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(100);

/// Listener for the other replicas of the service.
pub(crate) struct ForwardListener {
    pub(crate) listener: TcpListener,
    pub(crate) member: Arc<Member>,
    pub(crate) gateway: Arc<Gateway>,
    /// The routes of clients. The other replica has authenticated them.
    pub(crate) routes: Router,
    /// Ends requests together with the credential of their client.
    pub(crate) access: Option<Arc<Authenticator>>,
    /// Maximum number of connections. A forwarded stream takes one.
    pub(crate) max_connections: usize,
}

impl ForwardListener {
    /// Serves forwarded requests until `close`, then closes idle connections and waits for requests in flight.
    pub(crate) async fn serve(self, close: CancellationToken) {
        let Self { listener, member, gateway, routes, access, max_connections } = self;
        let (clock, refusals) = (Clock::new(), Mutex::default());
        let receiver = Arc::new(Receiver { member, gateway, routes, access, clock, refusals });
        // All replicas may have one address, behind a translation of addresses.
        let table = ConnectionTable::new(max_connections, max_connections);
        let all = TaskTracker::new();
        let close_all = CancellationToken::new();
        let _close_all_on_drop = close_all.clone().drop_guard();
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                () = close.cancelled() => break,
            };
            let Ok((stream, address)) = accepted else {
                table.make_room();
                tokio::time::sleep(ACCEPT_RETRY_DELAY).await;
                continue;
            };
            let close_now = close_all.child_token();
            let Ok(slot) = table.admit(&Peer::from_address(SocketAddr::ip(&address)), close_now.clone())
            else {
                receiver.log_refused(
                    "all connections for other replicas are in use (`gateway.limits.connections`)",
                );
                continue;
            };
            let connection = Arc::clone(&receiver).serve_connection(stream, slot, close.clone());
            all.spawn(async move {
                let _ = close_now.run_until_cancelled(connection).await;
            });
        }
        drop(listener);
        all.close();
        all.wait().await;
    }
}

struct Receiver {
    member: Arc<Member>,
    gateway: Arc<Gateway>,
    routes: Router,
    access: Option<Arc<Authenticator>>,
    clock: Clock,
    refusals: Mutex<LogThrottle>,
}

impl Receiver {
    async fn serve_connection(
        self: Arc<Self>,
        stream: TcpStream,
        slot: ConnectionSlot,
        close: CancellationToken,
    ) {
        let _ = stream.set_nodelay(true);
        let service = |request| {
            Box::pin(async {
                let mut response = Arc::clone(&self).receive(request, &slot).await;
                if close.is_cancelled() {
                    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
                }
                response
            })
        };
        let connection = http1::serve(stream, &CONNECTION_LIMITS, close.cancelled(), service);
        let too_slow = async {
            if slot.until_known(FIRST_REQUEST_TIMEOUT).await.is_ok() {
                std::future::pending::<()>().await;
            }
        };
        tokio::select! {
            () = connection => {}
            () = too_slow => {}
        }
    }

    async fn receive(self: Arc<Self>, request: Request<RequestBody>, slot: &ConnectionSlot) -> Response {
        let (mut head, body) = request.into_parts();
        let Some(seal) = only(&head.headers, &SEAL).map(str::to_owned) else {
            return self.refuse(ForwardRefusal::Malformed);
        };
        let response = match self.verify(&seal, &head) {
            // Answered here, and the connection is not a known one by that: anyone can replay a probe.
            Ok(_) if head.uri.path() == PROBE_PATH => {
                let mut response = Response::new(Body::empty());
                *response.status_mut() = StatusCode::NO_CONTENT;
                response
            }
            Ok((verified, peer)) => {
                slot.mark_known();
                // Other replicas use a singleton server by this path. Checked before the body is read.
                if let Some(rest) = head.uri.path().strip_prefix(SERVERS_PATH) {
                    let relay = self.member.relay(rest, &verified);
                    keep_forwarded(&mut head.headers);
                    let request = Request::from_parts(head, SealedBody::new(body, verified.body_digest));
                    let response = match relay {
                        Ok(relay) => Box::pin(relay.serve(request, peer)).await,
                        Err(text) => not_performed(text),
                    };
                    return self.sealed(&seal, response);
                }
                let credential = self.credential(&head, &peer);
                keep_forwarded(&mut head.headers);
                head.extensions.insert(ForwardedArrival { epoch: verified.epoch });
                let request = Request::from_parts(head, SealedBody::new(body, verified.body_digest));
                self.serve(request, peer, credential).await
            }
            Err(ForwardRefusal::OtherBoot) => misdirected(self.member.place.boot, None),
            Err(refusal) => return self.refuse(refusal),
        };
        self.sealed(&seal, response)
    }

    fn verify(&self, seal: &str, head: &Parts) -> Result<(VerifiedForward, Peer), ForwardRefusal> {
        let principal = only(&head.headers, &PRINCIPAL).ok_or(ForwardRefusal::Malformed)?;
        let credential = match head.headers.contains_key(CREDENTIAL) {
            true => only(&head.headers, &CREDENTIAL).ok_or(ForwardRefusal::Malformed)?,
            false => "",
        };
        let covered = covered_headers(&head.headers);
        let request = ForwardedRequest {
            method: head.method.as_str(),
            path: head.uri.path(),
            query: head.uri.query(),
            headers: &covered,
            principal,
            credential,
            era: "",
        };
        let verified = self.member.verifier.lock().verify(seal, &request)?;
        Ok((verified, read_principal(principal).ok_or(ForwardRefusal::Malformed)?))
    }

    /// The credential of the client, if it is known here.
    fn credential(&self, head: &Parts, peer: &Peer) -> Option<Credential> {
        let header = only(&head.headers, &CREDENTIAL)?;
        self.access.as_ref()?.forwarded_credential(header, &peer.principal())
    }

    async fn serve(
        &self,
        mut request: Request<SealedBody<RequestBody>>,
        peer: Peer,
        credential: Option<Credential>,
    ) -> Response {
        let path = request.uri().path().to_owned();
        if let Some(credential) = &credential {
            request.extensions_mut().insert(credential.clone());
        }
        // Boxed, because the future is large and the one of the connection is copied.
        let served = Box::pin(async {
            if path == Gateway::ENDPOINT {
                return self.gateway.serve(request, peer).await;
            }
            let mut request = request.map(Body::new);
            request.extensions_mut().insert(peer);
            match self.routes.clone().call(request).await {
                Ok(response) => response,
                Err(never) => match never {},
            }
        });
        match (&self.access, &credential) {
            (Some(access), Some(credential)) => access.serve_while_valid(credential, &path, served).await,
            _ => served.await,
        }
    }

    /// Adds the proof that a replica has made the response.
    fn sealed(&self, seal: &str, mut response: Response) -> Response {
        let result = only(response.headers(), &RESULT).unwrap_or_default();
        let reply = seal_reply(self.member.settings.keys(), seal, response.status().as_u16(), result);
        if let Ok(reply) = HeaderValue::try_from(reply) {
            response.headers_mut().insert(REPLY, reply);
        }
        response
    }

    /// Refuses a request whose seal is not valid. The response has no proof, so that it cannot be used against the
    /// forwarder of the true request.
    fn refuse(&self, refusal: ForwardRefusal) -> Response {
        self.log_refused(&refusal.to_string());
        let mut response = Response::new(Body::from(format!("{refusal}\n")));
        *response.status_mut() = StatusCode::FORBIDDEN;
        // The rest of the request is not read.
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        response
    }

    fn log_refused(&self, reason: &str) {
        let due = self.refusals.lock().record(self.clock.mono());
        if let Some(suppressed) = due {
            tracing::warn!(
                suppressed,
                "a request to `cluster.listen` is refused: {reason} (logged once a minute)"
            );
        }
    }
}

const SEAL: HeaderName = HeaderName::from_static(FORWARD_HEADER);

/// The value of a header that occurs once.
fn only<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    let mut values = headers.get_all(name).iter();
    let value = values.next()?.to_str().ok()?;
    values.next().is_none().then_some(value)
}

/// Removes all headers that the seal does not cover.
fn keep_forwarded(headers: &mut HeaderMap) {
    let others: Vec<HeaderName> =
        headers.keys().filter(|name| !is_forwarded_header(name.as_str())).cloned().collect();
    for name in others {
        headers.remove(name);
    }
}
