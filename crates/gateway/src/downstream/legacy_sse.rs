//! HTTP with a separate event stream, for clients of 2024-11-05: a GET opens the stream and is told where
//! to POST; everything else comes on the stream.

use super::Gateway;
use super::conversation::Conversation;
use super::http::{LARGEST_BODY, plain, stream};
use axum::Router;
use axum::body::to_bytes;
use axum::extract::{Request, State};
use axum::response::Response;
use axum::routing::{get, post};
use bytes::Bytes;
use futures_util::StreamExt;
use gripfast::wire::sse;
use http::StatusCode;
use ring::rand::{SecureRandom, SystemRandom};
use std::collections::HashMap;
use std::fmt::Write;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::mpsc;

/// The clients with an open stream, by the number in their address.
#[derive(Default)]
struct Clients(Mutex<HashMap<String, mpsc::Sender<Bytes>>>);

#[derive(Clone)]
struct Shared {
    gateway: Arc<Gateway>,
    clients: Arc<Clients>,
}

/// Messages that may wait for a client that does not read, and messages of a client that wait for us.
const QUEUED: usize = 256;
const KEEP_ALIVE: Duration = Duration::from_secs(15);

pub(super) fn router(gateway: Arc<Gateway>) -> Router {
    let shared = Shared { gateway, clients: Arc::default() };
    Router::new().route("/sse", get(open)).route("/message", post(take)).with_state(shared)
}

async fn open(State(shared): State<Shared>) -> Response {
    let mut number = [0; 16];
    if SystemRandom::new().fill(&mut number).is_err() {
        return plain(StatusCode::INTERNAL_SERVER_ERROR, "no session could be made\n");
    }
    let id = number.iter().fold(String::new(), |mut id, byte| {
        let _ = write!(id, "{byte:02x}");
        id
    });
    let (to_client, from_gateway) = mpsc::channel::<Bytes>(QUEUED);
    let (to_gateway, mut from_client) = mpsc::channel::<Bytes>(QUEUED);
    shared.clients.0.lock().unwrap_or_else(PoisonError::into_inner).insert(id.clone(), to_gateway);
    let gateway = Arc::clone(&shared.gateway);
    tokio::spawn(async move {
        let mut conversation = Conversation::new(gateway, to_client);
        while let Some(message) = from_client.recv().await {
            conversation.take(message).await;
        }
        conversation.abandon();
    });
    let hello =
        sse::Writer::new().event("endpoint").data(format!("/message?sessionId={id}").as_bytes()).finish();
    let farewell = Farewell { id, clients: Arc::clone(&shared.clients), gateway: shared.gateway };
    let messages =
        futures_util::stream::unfold((from_gateway, farewell), |(mut messages, farewell)| async move {
            let next = tokio::select! {
                next = tokio::time::timeout(KEEP_ALIVE, messages.recv()) => next,
                () = farewell.gateway.leaving.cancelled() => return None,
            };
            match next {
                Err(_) => Some((Bytes::from_static(sse::KEEP_ALIVE), (messages, farewell))),
                Ok(None) => None,
                Ok(Some(message)) => Some((
                    sse::Writer::new().event("message").data(&message).finish().into(),
                    (messages, farewell),
                )),
            }
        });
    stream(futures_util::stream::once(std::future::ready(Bytes::from(hello))).chain(messages))
}

async fn take(State(shared): State<Shared>, request: Request) -> Response {
    let query = request.uri().query().unwrap_or_default().to_owned();
    let id = query.split('&').find_map(|pair| pair.strip_prefix("sessionId=")).unwrap_or_default();
    let client = shared.clients.0.lock().unwrap_or_else(PoisonError::into_inner).get(id).cloned();
    let Some(client) = client else { return plain(StatusCode::NOT_FOUND, "Could not find session\n") };
    let Ok(body) = to_bytes(request.into_body(), LARGEST_BODY).await else {
        return plain(StatusCode::PAYLOAD_TOO_LARGE, "the message is over the limit of 16 MiB\n");
    };
    match client.send(body).await {
        Ok(()) => plain(StatusCode::ACCEPTED, "Accepted"),
        Err(_) => plain(StatusCode::NOT_FOUND, "Could not find session\n"),
    }
}

/// A client whose stream ended is gone: its address leads nowhere any more.
struct Farewell {
    id: String,
    clients: Arc<Clients>,
    gateway: Arc<Gateway>,
}

impl Drop for Farewell {
    fn drop(&mut self) {
        self.clients.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.id);
    }
}
