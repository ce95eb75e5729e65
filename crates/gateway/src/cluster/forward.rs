//! Sends a request to another replica, and returns its response as it comes.

use super::Member;
use crate::auth::credential::Credential;
use crate::server::quota::Peer;
use axum::body::Body;
use axum::response::Response;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use futures_util::{Stream, StreamExt};
use gripfast::placement::address::ReplicaAddress;
use gripfast::placement::place::{BootId, OwnerEpoch, Place, SessionOwner};
use gripfast::placement::routing::ForwardEnd;
use gripfast::{Principal, ReplicaName};
use gripfast_cluster::forward::{
    FORWARD_HEADER, ForwardSealer, ForwardedRequest, REPLY_HEADER, is_forwarded_header,
};
use http::header::{
    CONNECTION, DATE, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, TE, TRAILER, TRANSFER_ENCODING, UPGRADE,
};
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Request, StatusCode, Uri};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use std::error::Error;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// The principal that the forwarder has authenticated.
pub(super) const PRINCIPAL: HeaderName = HeaderName::from_static("gripfast-principal");
/// Result of a forwarded request that the receiver did not perform.
pub(super) const RESULT: HeaderName = HeaderName::from_static("gripfast-forward-result");
/// The id of the client's credential, without the secret.
pub(super) const CREDENTIAL: HeaderName = HeaderName::from_static("gripfast-credential");
/// The seal of a reply.
pub(super) const REPLY: HeaderName = HeaderName::from_static(REPLY_HEADER);
/// Headers of a response that concern the connection between two replicas only.
const OF_THE_HOP: [HeaderName; 12] = [
    CONNECTION,
    DATE,
    HeaderName::from_static("keep-alive"),
    PROXY_AUTHENTICATE,
    PROXY_AUTHORIZATION,
    HeaderName::from_static("proxy-connection"),
    TE,
    TRAILER,
    TRANSFER_ENCODING,
    UPGRADE,
    RESULT,
    REPLY,
];
/// Value of [`PRINCIPAL`] for a client that needs no credential.
const LOCAL: &str = "local";

/// Time without a byte from the owner, after which the owner counts as lost for this request. An owner that serves writes
/// something each 15 s (`KEEP_ALIVE`), the head of a response included.
const SILENCE: Duration = Duration::from_secs(35);

/// A request on its way to another replica.
pub(crate) struct OutgoingForward<'a> {
    pub(crate) head: &'a Parts,
    pub(crate) body: &'a Bytes,
    pub(crate) peer: &'a Peer,
}

/// The HTTP client for other replicas. It follows no redirects and uses no proxy.
pub(super) struct ForwardClient(Client<HttpConnector, Full<Bytes>>);

impl ForwardClient {
    /// Time for a connection. Replicas are near each other.
    const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
    /// Time for which an unused connection is kept, shorter than the receiver keeps it.
    const IDLE_TIMEOUT: Duration = Duration::from_secs(20);
    /// Largest number of unused connections to one replica.
    const MAX_IDLE: usize = 64;

    pub(super) fn new() -> Self {
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        connector.set_connect_timeout(Some(Self::CONNECT_TIMEOUT));
        // A connection that the network has forgotten is closed before a request uses it.
        connector.set_keepalive(Some(Self::IDLE_TIMEOUT / 2));
        connector.set_keepalive_interval(Some(Self::CONNECT_TIMEOUT));
        connector.set_keepalive_retries(Some(3));
        let mut builder = Client::builder(TokioExecutor::new());
        // The router decides about a second attempt.
        builder.retry_canceled_requests(false).pool_idle_timeout(Self::IDLE_TIMEOUT);
        builder.pool_max_idle_per_host(Self::MAX_IDLE);
        Self(builder.build(connector))
    }

    pub(super) async fn send(
        &self,
        request: Request<Full<Bytes>>,
    ) -> Result<http::Response<Incoming>, ForwardEnd> {
        let mut sent = self.0.request(request.clone()).await;
        // A kept connection may have been closed by the other side: nothing was sent then. All those to a replica that
        // was killed are, and only a new one shows that it is gone.
        for _ in 0..Self::MAX_IDLE {
            match &sent {
                Err(error) if is_unsent(error) => sent = self.0.request(request.clone()).await,
                Ok(_) | Err(_) => break,
            }
        }
        sent.map_err(|error| match error.is_connect() {
            true if is_refused(&error) => ForwardEnd::Refused,
            false if !is_unsent(&error) => ForwardEnd::Lost,
            true | false => {
                tracing::debug!("a request was not forwarded: {error}: {:?}", error.source());
                ForwardEnd::NotConnected
            }
        })
    }
}

/// Returns whether the connection was closed before the request was written.
fn is_unsent(error: &hyper_util::client::legacy::Error) -> bool {
    let cause = error.source().and_then(|cause| cause.downcast_ref::<hyper::Error>());
    cause.is_some_and(hyper::Error::is_canceled)
}

/// Returns whether no process listens at the address, or the last one ended while the connection was made.
fn is_refused(error: &(dyn Error + 'static)) -> bool {
    let kinds = [io::ErrorKind::ConnectionRefused, io::ErrorKind::ConnectionReset];
    std::iter::successors(Some(error), |&error| error.source())
        .any(|error| error.downcast_ref::<io::Error>().is_some_and(|error| kinds.contains(&error.kind())))
}

impl Member {
    /// Forwards a request. The response may be a stream, which is cut when the owner is lost.
    pub(super) async fn forward(
        self: &Arc<Self>,
        to: &Place,
        epoch: OwnerEpoch,
        forward: &OutgoingForward<'_>,
    ) -> Result<Response, ForwardEnd> {
        let Some(replica) = self.live_replica(to.boot) else { return Err(ForwardEnd::NotConnected) };
        let (request, seal) = sealed(&self.sealer, &replica.address, to.boot, epoch, forward)
            .ok_or(ForwardEnd::NotConnected)?;
        let response = tokio::select! {
            response = self.client.send(request) => response?,
            // It was stopped, or its machine is lost. The request may have been sent.
            () = self.gone(to.boot) => return Err(ForwardEnd::Lost),
            // It lives, but its packets do not arrive.
            () = tokio::time::sleep(SILENCE) => return Err(ForwardEnd::Lost),
        };
        if !self.is_authentic_reply(to.boot, &seal, response.status(), response.headers()) {
            // Whether the owner got the request is not known.
            return Err(ForwardEnd::Lost);
        }
        let result = header_text(response.headers(), &RESULT);
        if !result.is_empty() {
            return Err(read_result(result).unwrap_or(ForwardEnd::NotConnected));
        }
        self.forwards.fetch_add(1, Ordering::Relaxed);
        Ok(self.passed_on(response, to.boot))
    }

    /// Returns whether a replica made this reply to the request with this seal, which was sent to `to`. If not, another
    /// process has its address, or it has another key.
    pub(super) fn is_authentic_reply(
        &self,
        to: BootId,
        seal: &str,
        status: StatusCode,
        headers: &HeaderMap,
    ) -> bool {
        let (result, reply) = (header_text(headers, &RESULT), header_text(headers, &REPLY));
        let is_authentic = self.sealer.is_authentic_reply(seal, status.as_u16(), result, reply);
        if !is_authentic {
            let replica = self.live_replica(to);
            let name = replica.as_ref().map_or("a lost replica", |replica| replica.place.name.as_str());
            let address = replica.as_ref().map_or("its address", |replica| replica.address.as_str());
            tracing::warn!(
                "a request was forwarded to {name} at {address}, and the answer ({}) is not that of a replica with this \
                 `cluster.key`; check that no other process uses that address",
                status.as_u16()
            );
        }
        is_authentic
    }

    /// The owner's response for the client.
    fn passed_on(self: &Arc<Self>, response: http::Response<Incoming>, owner: BootId) -> Response {
        let (mut head, body) = response.into_parts();
        for of_the_hop in &OF_THE_HOP {
            head.headers.remove(of_the_hop);
        }
        let member = Arc::clone(self);
        let lost = async move {
            member.gone(owner).await;
            Err(io::Error::other("the replica that served this stream is lost"))
        };
        // An error instead of an end: the client must not take a part for the whole.
        let data = until_silent(http_body_util::BodyDataStream::new(body));
        let (data, lost) = (Box::pin(data), Box::pin(futures_util::stream::once(lost)));
        let ended = futures_util::stream::once(std::future::ready(None));
        let data = data.map(Some).chain(ended);
        let until_lost = futures_util::stream::select(data, lost.map(Some));
        let stream = until_lost.take_while(|part| std::future::ready(part.is_some()));
        Response::from_parts(head, Body::from_stream(stream.filter_map(std::future::ready)))
    }
}

/// The parts of a body, and an error in place of the next part if the owner is silent.
fn until_silent<E>(
    body: impl Stream<Item = Result<Bytes, E>> + Unpin,
) -> impl Stream<Item = io::Result<Bytes>>
where
    E: Into<Box<dyn Error + Send + Sync>>,
{
    futures_util::stream::unfold(Some(body), async |body| {
        let mut body = body?;
        match tokio::time::timeout(SILENCE, body.next()).await {
            Ok(part) => Some((part?.map_err(io::Error::other), Some(body))),
            Err(_) => Some((Err(io::Error::other("the replica that serves this stream is silent")), None)),
        }
    })
}

/// A request without effect, of a client without a credential.
pub(super) fn sealed_by(
    sealer: &ForwardSealer,
    address: &ReplicaAddress,
    to: BootId,
    head: &Parts,
    body: &Bytes,
) -> Option<(Request<Full<Bytes>>, String)> {
    let peer = Peer::local();
    sealed(sealer, address, to, OwnerEpoch::FIRST, &OutgoingForward { head, body, peer: &peer })
}

/// The request for the other replica, and its seal.
fn sealed(
    sealer: &ForwardSealer,
    address: &ReplicaAddress,
    to: BootId,
    epoch: OwnerEpoch,
    forward: &OutgoingForward<'_>,
) -> Option<(Request<Full<Bytes>>, String)> {
    let OutgoingForward { head, body, peer } = forward;
    let path = head.uri.path_and_query()?;
    let mut request = Request::new(Full::new(Bytes::clone(body)));
    *request.method_mut() = head.method.clone();
    *request.uri_mut() = format!("{address}{path}").parse::<Uri>().ok()?;
    let principal = principal_header(peer);
    let credential = head.extensions.get::<Credential>().map(Credential::forwarded).unwrap_or_default();
    let headers = request.headers_mut();
    for (name, value) in head.headers.iter().filter(|(name, _)| is_forwarded_header(name.as_str())) {
        headers.append(name, value.clone());
    }
    let covered = covered_headers(headers);
    let seal = sealer.seal(
        to,
        epoch,
        &ForwardedRequest {
            method: head.method.as_str(),
            path: head.uri.path(),
            query: head.uri.query(),
            headers: &covered,
            principal: &principal,
            credential: &credential,
            era: "",
        },
        body,
    );
    drop(covered);
    headers.insert(FORWARD_HEADER, HeaderValue::try_from(&seal).ok()?);
    headers.insert(PRINCIPAL, HeaderValue::try_from(principal).ok()?);
    if !credential.is_empty() {
        headers.insert(CREDENTIAL, HeaderValue::try_from(credential).ok()?);
    }
    Some((request, seal))
}

fn header_text<'a>(headers: &'a HeaderMap, name: &HeaderName) -> &'a str {
    headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
}

/// The headers that the seal covers.
pub(super) fn covered_headers(headers: &HeaderMap) -> Vec<(&str, &[u8])> {
    let forwarded = headers.iter().filter(|(name, _)| is_forwarded_header(name.as_str()));
    forwarded.map(|(name, value)| (name.as_str(), value.as_bytes())).collect()
}

/// Value of [`PRINCIPAL`] for a call of this principal, or of the gateway itself.
pub(super) fn caller_header(principal: Option<&Principal>) -> String {
    match principal {
        Some(principal) if *principal != Principal::local() => {
            principal_header(&Peer::Principal(principal.clone()))
        }
        Some(_) | None => LOCAL.to_owned(),
    }
}

fn principal_header(peer: &Peer) -> String {
    match peer {
        Peer::Address(_) => LOCAL.to_owned(),
        Peer::Principal(principal) => format!("name:{}", URL_SAFE_NO_PAD.encode(principal.name())),
    }
}

/// The client of a forwarded request.
pub(super) fn read_principal(header: &str) -> Option<Peer> {
    if header == LOCAL {
        return Some(Peer::local());
    }
    let name = URL_SAFE_NO_PAD.decode(header.strip_prefix("name:")?).ok()?;
    Some(Peer::Principal(Principal::new(String::from_utf8(name).ok()?.as_str())))
}

/// 421: nothing was done. The forwarder learns which boot answers and which owner it knows.
pub(super) fn misdirected(by: BootId, owner: Option<&SessionOwner>) -> Response {
    let result = match owner {
        Some(owner) => format!("misdirected {by} {} {}", owner.place, owner.epoch.number()),
        None => format!("misdirected {by}"),
    };
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::MISDIRECTED_REQUEST;
    if let Ok(result) = HeaderValue::try_from(result) {
        response.headers_mut().insert(RESULT, result);
    }
    response
}

fn read_result(text: &str) -> Option<ForwardEnd> {
    let words: Vec<&str> = text.split(' ').collect();
    let (by, owner) = match words[..] {
        ["misdirected", by] => (by, None),
        ["misdirected", by, place, epoch] => {
            let (name, boot) = place.split_once('/')?;
            let place = Place { name: ReplicaName::new(name)?, boot: BootId::parse(boot)? };
            (by, Some(SessionOwner { place, epoch: OwnerEpoch::from_number(epoch.parse().ok()?) }))
        }
        _ => return None,
    };
    Some(ForwardEnd::Misdirected { by: BootId::parse(by)?, owner })
}

#[cfg(test)]
mod tests {
    use super::*;
    use gripfast_testkit::unreachable_listener::UnreachableListener;

    #[test]
    fn the_result_of_a_misdirected_request_survives_its_header() {
        let (by, name) = (BootId::from_number(7), ReplicaName::new("web-1").unwrap());
        let owner = SessionOwner {
            place: Place { name, boot: BootId::from_number(8) },
            epoch: OwnerEpoch::from_number(99),
        };
        for owner in [Some(owner), None] {
            let response = misdirected(by, owner.as_ref());
            assert_eq!(response.status(), 421);
            let text = response.headers()[RESULT].to_str().unwrap();
            assert_eq!(read_result(text), Some(ForwardEnd::Misdirected { by, owner }));
        }
        let place = "web-1/0000000000000008";
        for malformed in [
            "refused".to_owned(),
            "misdirected nonsense".to_owned(),
            format!("misdirected {by} {place}"),
            format!("misdirected {by} {place} 99 100"),
            format!("misdirected {by} {place} -1"),
            format!("misdirected  {by}"),
        ] {
            assert_eq!(read_result(&malformed), None, "{malformed}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_stream_is_cut_when_its_owner_is_silent_and_not_when_it_is_slow() {
        let parts = futures_util::stream::unfold(0, async |number: u32| {
            let pause = if number < 3 { SILENCE - Duration::from_secs(1) } else { SILENCE * 100 };
            tokio::time::sleep(pause).await;
            Some((Ok::<_, io::Error>(Bytes::from_static(b":")), number + 1))
        });
        let parts: Vec<_> = until_silent(Box::pin(parts)).collect().await;
        let [Ok(_), Ok(_), Ok(_), Err(silent)] = &parts[..] else { panic!("{parts:?}") };
        assert!(silent.to_string().contains("silent"), "{silent}");
    }

    /// The time is virtual. Nothing was sent, and the owner may be alive: the session is not taken over.
    #[tokio::test(start_paused = true)]
    async fn a_replica_behind_dropped_packets_is_not_connected_after_two_seconds() {
        let port = UnreachableListener::open();
        let begun = tokio::time::Instant::now();
        let uri = format!("http://{}/mcp", port.address());
        let request = Request::post(uri).body(Full::new(Bytes::new())).unwrap();
        let end = ForwardClient::new().send(request).await.map(|response| response.status());
        assert_eq!(end, Err(ForwardEnd::NotConnected));
        let took = begun.elapsed();
        assert!((Duration::from_secs(2)..Duration::from_secs(3)).contains(&took), "{took:?}");
    }

    #[test]
    fn a_principal_survives_its_header() {
        for name in ["alice", "ä b\n", "local", ""] {
            let peer = Peer::Principal(Principal::new(name));
            let header = principal_header(&peer);
            assert!(HeaderValue::try_from(&header).is_ok());
            assert_eq!(read_principal(&header), Some(peer));
        }
        assert_eq!(read_principal(&principal_header(&Peer::local())), Some(Peer::local()));
        for malformed in ["", "alice", "name:!", "name"] {
            assert_eq!(read_principal(malformed), None, "{malformed}");
        }
    }
}
