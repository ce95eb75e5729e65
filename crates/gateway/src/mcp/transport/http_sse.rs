//! HTTP with a separate event stream, for clients of 2024-11-05: a GET opens the stream and is told where
//! to POST; everything else comes on the stream.

use super::Gateway;
use super::body::{self, Received};
use super::conversation::Conversation;
use super::http::{plain, stream};
use super::pieces::{self, Event};
use super::refusal::{self, Overload};
use crate::shares::{Peer, Share, Shares};
use axum::Router;
use axum::extract::{Request, State};
use axum::response::Response;
use axum::routing::{get, post};
use bytes::Bytes;
use futures_util::StreamExt;
use gripfast::Principal;
use gripfast::wire::sse;
use http::StatusCode;
use ring::rand::{SecureRandom, SystemRandom};
use std::collections::HashMap;
use std::fmt::Write;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::mpsc::{self, error::TrySendError};

/// The clients with an open stream, by the number in their address.
#[derive(Default)]
struct Clients(Mutex<HashMap<String, Connected>>);

/// A client, and the way to whoever takes what it says.
#[derive(Clone)]
struct Connected {
    principal: Principal,
    to_gateway: mpsc::Sender<Received>,
}

#[derive(Clone)]
struct Shared {
    gateway: Arc<Gateway>,
    clients: Arc<Clients>,
    /// How many there may be.
    shares: Shares,
}

/// Streams at a time, of one client and of all.
const MOST_EACH: usize = 1000;
const MOST: usize = 2000;
/// Messages that may wait for a client that does not read, and messages of a client that wait for us.
const QUEUED: usize = 256;
const KEEP_ALIVE: Duration = Duration::from_secs(15);

pub(super) fn router(gateway: Arc<Gateway>) -> Router {
    let shared = Shared { gateway, clients: Arc::default(), shares: Shares::new(MOST_EACH, MOST) };
    Router::new().route("/sse", get(open)).route("/message", post(take)).with_state(shared)
}

async fn open(State(shared): State<Shared>, request: Request) -> Response {
    let peer = Peer::of(&request);
    let share = match shared.shares.take(&peer, 1) {
        Ok(share) => share,
        Err(exhausted) => {
            return refusal::overloaded(None, &Overload::new(exhausted, "streams of HTTP+SSE are open"));
        }
    };
    let mut number = [0; 16];
    if SystemRandom::new().fill(&mut number).is_err() {
        return plain(StatusCode::INTERNAL_SERVER_ERROR, "no session could be made\n");
    }
    let id = number.iter().fold(String::new(), |mut id, byte| {
        let _ = write!(id, "{byte:02x}");
        id
    });
    let (to_client, from_gateway) = mpsc::channel::<Bytes>(QUEUED);
    let (to_gateway, mut from_client) = mpsc::channel::<Received>(QUEUED);
    shared
        .clients
        .0
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .insert(id.clone(), Connected { principal: peer.principal(), to_gateway });
    let gateway = Arc::clone(&shared.gateway);
    tokio::spawn(async move {
        let leaving = gateway.leaving.clone();
        let mut conversation = Conversation::new(gateway, to_client, &peer);
        loop {
            tokio::select! {
                message = from_client.recv() => match message {
                    Some(message) => conversation.take(&message).await,
                    None => break,
                },
                // What was accepted is still carried out.
                () = leaving.cancelled(), if !from_client.is_closed() => from_client.close(),
            }
        }
        if leaving.is_cancelled() {
            conversation.finish().await;
        } else {
            conversation.abandon();
        }
    });
    let hello =
        sse::Writer::new().event("endpoint").data(format!("/message?sessionId={id}").as_bytes()).finish();
    let farewell = Farewell { id, clients: Arc::clone(&shared.clients), _share: share };
    let messages =
        futures_util::stream::unfold((from_gateway, farewell), |(mut messages, farewell)| async move {
            let event = match tokio::time::timeout(KEEP_ALIVE, messages.recv()).await {
                Err(_) => Event::keep_alive(),
                Ok(None) => return None,
                Ok(Some(message)) => Event::Message(sse::Writer::new().event("message"), message),
            };
            Some((event, (messages, farewell)))
        });
    let hello = futures_util::stream::once(std::future::ready(Event::Whole(hello.into())));
    stream(pieces::events(hello.chain(messages)))
}

async fn take(State(shared): State<Shared>, request: Request) -> Response {
    let query = request.uri().query().unwrap_or_default().to_owned();
    let id = query.split('&').find_map(|pair| pair.strip_prefix("sessionId=")).unwrap_or_default();
    let client = shared.clients.0.lock().unwrap_or_else(PoisonError::into_inner).get(id).cloned();
    let peer = Peer::of(&request);
    // Somebody else's is nobody's.
    let Some(client) = client.filter(|client| client.principal == peer.principal()) else {
        return plain(StatusCode::NOT_FOUND, "Could not find session\n");
    };
    let (head, body) = request.into_parts();
    let message = match body::read(&shared.gateway.memory, peer, body).await {
        Ok(message) => message.traced_by(&head.headers).let_in_by(&head.extensions),
        Err(refusal) => return *refusal,
    };
    match client.to_gateway.try_send(message) {
        Ok(()) => plain(StatusCode::ACCEPTED, "Accepted"),
        Err(TrySendError::Full(_)) => refusal::overloaded(None, &Overload::of_session("messages wait")),
        Err(TrySendError::Closed(_)) => plain(StatusCode::NOT_FOUND, "Could not find session\n"),
    }
}

/// A client whose stream ended is gone: its address leads nowhere any more.
struct Farewell {
    id: String,
    clients: Arc<Clients>,
    _share: Share,
}

impl Drop for Farewell {
    fn drop(&mut self) {
        self.clients.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Seal, Terms};
    use super::*;
    use axum::body::Body;
    use gripfast::Host;
    use tower_service::Service;

    #[tokio::test]
    async fn one_client_cannot_have_all_the_streams() {
        let gateway =
            Gateway::new(Host::builder().build(), Seal::of_this_process().unwrap(), &Terms::default());
        let mut router = router(gateway);
        let mut open = async |name: &str| {
            let mut request = Request::builder().uri("/sse").body(Body::empty()).unwrap();
            request.extensions_mut().insert(Peer::Is(Principal::named(name)));
            router.call(request).await.unwrap()
        };
        let mut hers = Vec::new();
        for _ in 0..MOST_EACH {
            hers.push(open("alice").await);
        }
        assert!(hers.iter().all(|stream| stream.status() == StatusCode::OK));
        assert_eq!(open("alice").await.status(), StatusCode::TOO_MANY_REQUESTS);
        assert_eq!(open("bob").await.status(), StatusCode::OK);
    }
}
