//! HTTP+SSE transport of protocol 2024-11-05: a GET opens the event stream, whose first event names the address for
//! POST; all messages to the client come on the stream.

use super::body;
use super::body::ReceivedMessage;
use super::channel::ChannelClient;
use super::chunks;
use super::chunks::StreamEvent;
use super::streamable_http::{stream, text_response};
use crate::cluster::Member;
use crate::cluster::route::{OutgoingForward, Routed, RoutedMessage, Target};
use crate::mcp::Gateway;
use crate::mcp::address::AddressKind;
use crate::mcp::request::overload;
use crate::mcp::request::overload::Overload;
use crate::server::quota::{Peer, Quota, QuotaPermit};
use axum::Router;
use axum::extract::{Request, State};
use axum::response::Response;
use axum::routing::{get, post};
use bytes::Bytes;
use futures_util::StreamExt;
use gripfast::sync::Mutex;
use gripfast::wire::{Era, sse};
use gripfast::{BootId, Principal};
use http::StatusCode;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::mpsc::{self, error::TrySendError};

/// Clients with an open stream, by session id. The id is a sealed address, which cannot be guessed.
#[derive(Default)]
struct Clients(Mutex<HashMap<String, ConnectedClient>>);

/// A client, and the queue of its messages to the gateway.
#[derive(Clone)]
struct ConnectedClient {
    principal: Principal,
    to_gateway: mpsc::Sender<ReceivedMessage>,
}

#[derive(Clone)]
struct Shared {
    gateway: Arc<Gateway>,
    clients: Arc<Clients>,
    /// Limit of open streams.
    quota: Quota,
    /// Number of the next stream.
    next_number: Arc<AtomicU64>,
}

/// Maximum number of streams, of one client and in total.
const MAX_PER_CLIENT: usize = 1000;
const MAX_CLIENTS: usize = 2000;
/// Length of the queues in both directions.
const QUEUE_LEN: usize = 256;
const KEEP_ALIVE: Duration = Duration::from_secs(15);

pub(crate) fn router(gateway: Arc<Gateway>) -> Router {
    let quota = Quota::new(MAX_PER_CLIENT, MAX_CLIENTS);
    let shared = Shared { gateway, clients: Arc::default(), quota, next_number: Arc::default() };
    Router::new().route("/sse", get(open)).route("/message", post(receive)).with_state(shared)
}

async fn open(State(shared): State<Shared>, request: Request) -> Response {
    let peer = Peer::from_request(&request);
    let permit = match shared.quota.acquire(&peer, 1) {
        Ok(permit) => permit,
        Err(exhausted) => {
            return overload::overloaded(None, &Overload::new(exhausted, "HTTP+SSE streams are open"));
        }
    };
    let number = shared.next_number.fetch_add(1, Ordering::Relaxed);
    let Some(id) = shared.gateway.tokens.seal(AddressKind::SseEndpoint, number, b"") else {
        return text_response(
            StatusCode::INTERNAL_SERVER_ERROR,
            "cannot create a session: the system provided no random numbers\n",
        );
    };
    let (to_client, from_gateway) = mpsc::channel::<Bytes>(QUEUE_LEN);
    let (to_gateway, mut from_client) = mpsc::channel::<ReceivedMessage>(QUEUE_LEN);
    shared.clients.0.lock().insert(id.clone(), ConnectedClient { principal: peer.principal(), to_gateway });
    let gateway = Arc::clone(&shared.gateway);
    tokio::spawn(async move {
        let shutdown = gateway.shutting_down.clone();
        let mut channel = ChannelClient::new(gateway, to_client, &peer);
        loop {
            tokio::select! {
                message = from_client.recv() => match message {
                    Some(message) => channel.handle(&message).await,
                    None => break,
                },
                // Messages that were accepted are still handled.
                () = shutdown.cancelled(), if !from_client.is_closed() => from_client.close(),
            }
        }
        if shutdown.is_cancelled() {
            channel.finish().await;
        } else {
            channel.abandon();
        }
    });
    let hello =
        sse::Writer::new().event("endpoint").data(format!("/message?sessionId={id}").as_bytes()).finish();
    let guard = RemoveOnDrop { id, clients: Arc::clone(&shared.clients), _permit: permit };
    let messages = futures_util::stream::unfold((from_gateway, guard), |(mut messages, guard)| async move {
        let event = match tokio::time::timeout(KEEP_ALIVE, messages.recv()).await {
            Err(_) => StreamEvent::keep_alive(),
            Ok(None) => return None,
            Ok(Some(message)) => StreamEvent::Message(sse::Writer::new().event("message"), message),
        };
        Some((event, (messages, guard)))
    });
    let hello = futures_util::stream::once(std::future::ready(StreamEvent::Whole(hello.into())));
    stream(chunks::events(hello.chain(messages)))
}

async fn receive(State(shared): State<Shared>, request: Request) -> Response {
    let query = request.uri().query().unwrap_or_default().to_owned();
    let id = query.split('&').find_map(|pair| pair.strip_prefix("sessionId=")).unwrap_or_default();
    let client = shared.clients.0.lock().get(id).cloned();
    let peer = Peer::from_request(&request);
    if client.is_none()
        && let Some(member) = shared.gateway.sessions.member()
        && let Some((address, _)) = shared.gateway.tokens.open(AddressKind::SseEndpoint, id)
        && let Some(boot) = member.other_replica(&address.replica)
    {
        return receive_elsewhere(&shared.gateway, member, boot, request, peer).await;
    }
    // A session of another principal is reported as unknown.
    let Some(client) = client.filter(|client| client.principal == peer.principal()) else {
        return text_response(StatusCode::NOT_FOUND, "Could not find session\n");
    };
    let (head, body) = request.into_parts();
    let message = match body::read(&shared.gateway.memory, peer, body).await {
        Ok(message) => message.with_trace_headers(&head.headers).with_credential(&head.extensions),
        Err(refusal) => return *refusal,
    };
    match client.to_gateway.try_send(message) {
        Ok(()) => text_response(StatusCode::ACCEPTED, "Accepted"),
        Err(TrySendError::Full(_)) => overload::overloaded(None, &Overload::session("messages are queued")),
        Err(TrySendError::Closed(_)) => text_response(StatusCode::NOT_FOUND, "Could not find session\n"),
    }
}

/// Sends a message to the replica that has the stream of the client.
async fn receive_elsewhere(
    gateway: &Arc<Gateway>,
    member: &Arc<Member>,
    boot: BootId,
    request: Request,
    peer: Peer,
) -> Response {
    let (head, body) = request.into_parts();
    let message = match body::read(&gateway.memory, peer.clone(), body).await {
        Ok(message) => message,
        Err(refusal) => return *refusal,
    };
    let forward = OutgoingForward { head: &head, body: &message.bytes, peer: &peer };
    let message = RoutedMessage { forward, request: None, era: Era::Legacy };
    match Box::pin(member.route(gateway, Target::Boot { boot, session: None }, &message)).await {
        Routed::Elsewhere(response) => response,
        // The stream ended with its replica.
        Routed::Here => text_response(StatusCode::NOT_FOUND, "Could not find session\n"),
    }
}

/// Removes a client when its stream ends.
struct RemoveOnDrop {
    id: String,
    clients: Arc<Clients>,
    _permit: QuotaPermit,
}

impl Drop for RemoveOnDrop {
    fn drop(&mut self) {
        self.clients.0.lock().remove(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mcp::address::IdOrigin;
    use crate::mcp::{Limits, TokenCipher};
    use axum::body::Body;
    use gripfast::Host;
    use http_body_util::BodyExt;
    use tower_service::Service;

    #[tokio::test]
    async fn the_endpoint_of_a_client_is_an_address_of_this_process() {
        let gateway =
            Gateway::new(Host::builder().build(), TokenCipher::ephemeral().unwrap(), &Limits::default());
        let request = Request::builder().uri("/sse").body(Body::empty()).unwrap();
        let stream = router(Arc::clone(&gateway)).call(request).await.unwrap();
        let first = stream.into_body().frame().await.unwrap().unwrap().into_data().unwrap();
        let first = String::from_utf8(first.to_vec()).unwrap();
        let id = first.split_once("/message?sessionId=").unwrap().1.trim();
        let (address, _) = gateway.tokens.open(AddressKind::SseEndpoint, id).unwrap();
        assert_eq!((gateway.tokens.origin_of(&address), address.number), (IdOrigin::Here, 0));
    }

    #[tokio::test]
    async fn one_client_cannot_use_all_streams() {
        let gateway =
            Gateway::new(Host::builder().build(), TokenCipher::ephemeral().unwrap(), &Limits::default());
        let mut router = router(gateway);
        let mut open = async |name: &str| {
            let mut request = Request::builder().uri("/sse").body(Body::empty()).unwrap();
            request.extensions_mut().insert(Peer::Principal(Principal::new(name)));
            router.call(request).await.unwrap()
        };
        let mut hers = Vec::new();
        for _ in 0..MAX_PER_CLIENT {
            hers.push(open("alice").await);
        }
        assert!(hers.iter().all(|stream| stream.status() == StatusCode::OK));
        assert_eq!(open("alice").await.status(), StatusCode::TOO_MANY_REQUESTS);
        assert_eq!(open("bob").await.status(), StatusCode::OK);
    }
}
