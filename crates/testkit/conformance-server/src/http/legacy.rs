//! Legacy era: sessions from the handshake on, one stream per answer, and streams that can be resumed.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::response::Response;
use axum::routing::post;
use futures_util::stream;
use http::{HeaderMap, HeaderValue, StatusCode};
use serde_json::{Value, json};
use tokio::sync::{Notify, mpsc};

use super::{empty, events, header, json};
use crate::caller::{Caller, LegacyClient, Outbound, lock};
use crate::methods;
use crate::rpc::{self, INVALID_REQUEST, LEGACY_VERSIONS, Message, Request, RpcError};
use crate::state::{Change, ServerState};

const SESSION: &str = "mcp-session-id";
/// Version that the older suite sends in its own requests, whatever was negotiated.
const OLDER_VERSION: &str = "2025-03-26";
/// Reconnection delay after a stream was closed.
const RETRY_MS: u32 = 100;

pub(super) fn router(shared: Arc<ServerState>) -> Router {
    let server = Arc::new(Server { shared, sessions: Mutex::default() });
    Router::new().route("/mcp", post(receive).get(listen).delete(end)).with_state(server)
}

struct Server {
    shared: Arc<ServerState>,
    sessions: Mutex<HashMap<String, Arc<Session>>>,
}

struct Session {
    client: Arc<LegacyClient>,
    /// Streams of all requests, by number.
    buffers: Mutex<Vec<Arc<ReplayBuffer>>>,
}

/// All messages for the stream of one request, whether or not a client reads them.
#[derive(Default)]
struct ReplayBuffer {
    entries: Mutex<Vec<Entry>>,
    changed: Notify,
}

#[derive(Clone)]
enum Entry {
    Message(Value),
    Close,
    End,
}

impl ReplayBuffer {
    fn push(&self, entry: Entry) {
        lock(&self.entries).push(entry);
        self.changed.notify_waiters();
    }

    async fn get(&self, place: usize) -> Entry {
        loop {
            let news = self.changed.notified();
            tokio::pin!(news);
            news.as_mut().enable();
            if let Some(entry) = lock(&self.entries).get(place) {
                return entry.clone();
            }
            news.await;
        }
    }
}

impl Server {
    fn session(&self, headers: &HeaderMap) -> Result<Arc<Session>, Box<Response>> {
        let refuse = |status, text: &str| {
            Box::new(json(status, &rpc::response(&Value::Null, Err(RpcError::new(INVALID_REQUEST, text)))))
        };
        let Some(id) = header(headers, SESSION) else {
            return Err(refuse(StatusCode::BAD_REQUEST, "there is no session yet"));
        };
        let version = header(headers, "mcp-protocol-version");
        if version.is_some_and(|said| said != OLDER_VERSION && !LEGACY_VERSIONS.contains(&said)) {
            return Err(refuse(StatusCode::BAD_REQUEST, "the protocol version is not spoken here"));
        }
        let session = lock(&self.sessions).get(id).cloned();
        session.ok_or_else(|| refuse(StatusCode::NOT_FOUND, "there is no such session"))
    }

    fn create_session(&self, initialize: &Request) -> Response {
        let client = LegacyClient::from_initialize(initialize);
        let id = format!("{:016x}", RandomState::new().hash_one("session"));
        lock(&self.sessions).insert(id.clone(), Arc::new(Session { client, buffers: Mutex::default() }));
        let result = methods::initialize(initialize);
        let mut response = json(StatusCode::OK, &rpc::response(&initialize.id, Ok(result)));
        let id = HeaderValue::from_str(&id).expect("hexadecimal digits may be in a header");
        response.headers_mut().insert(SESSION, id);
        response
    }
}

async fn receive(State(server): State<Arc<Server>>, headers: HeaderMap, body: Bytes) -> Response {
    let message = match Message::read(&body) {
        Ok(message) => message,
        Err(error) => {
            return json(StatusCode::BAD_REQUEST, &rpc::response(&Value::Null, Err(error)));
        }
    };
    if let Message::Request(request) = &message
        && request.method == "initialize"
    {
        return server.create_session(request);
    }
    let session = match server.session(&headers) {
        Ok(session) => session,
        Err(refusal) => return *refusal,
    };
    match message {
        Message::Request(request) => {
            let (number, log) = session.perform(&server.shared, request);
            events(first_reader(number, log))
        }
        Message::Notification => empty(StatusCode::ACCEPTED),
        Message::Response { id, outcome } => {
            session.client.complete(&id, outcome);
            empty(StatusCode::ACCEPTED)
        }
    }
}

impl Session {
    /// Starts to answer a request. The answer is completed even if the stream is lost.
    fn perform(&self, shared: &Arc<ServerState>, request: Request) -> (usize, Arc<ReplayBuffer>) {
        let log = Arc::new(ReplayBuffer::default());
        let number = {
            let mut logs = lock(&self.buffers);
            logs.push(Arc::clone(&log));
            logs.len() - 1
        };
        let (stream, mut said) = mpsc::channel(16);
        let caller = Caller::legacy(&self.client, stream);
        let (shared, written) = (Arc::clone(shared), Arc::clone(&log));
        let writer = tokio::spawn(async move {
            while let Some(said) = said.recv().await {
                written.push(match said {
                    Outbound::Message(message) => Entry::Message(message),
                    Outbound::Close => Entry::Close,
                });
            }
            written.push(Entry::End);
        });
        tokio::spawn(async move {
            let outcome = methods::answer(&shared, &caller, &request).await;
            caller.send(rpc::response(&request.id, outcome)).await;
            drop(caller);
            let _ = writer.await;
        });
        (number, log)
    }
}

/// Response to the POST. It starts with an event without data, so that the client has an event id to resume from.
fn first_reader(number: usize, log: Arc<ReplayBuffer>) -> impl stream::Stream<Item = String> + Send {
    stream::unfold(None, move |place| {
        let log = Arc::clone(&log);
        async move {
            let Some(place) = place else {
                return Some((format!("id: {number}-0\nretry: {RETRY_MS}\ndata: \n\n"), Some(0)));
            };
            match log.get(place).await {
                Entry::Message(message) => Some((event(number, place, &message), Some(place + 1))),
                Entry::Close | Entry::End => None,
            }
        }
    })
}

/// Rest of a stream for a client that resumes it.
fn later_reader(
    number: usize,
    log: Arc<ReplayBuffer>,
    place: usize,
) -> impl stream::Stream<Item = String> + Send {
    stream::unfold(place, move |mut place| {
        let log = Arc::clone(&log);
        async move {
            loop {
                match log.get(place).await {
                    Entry::Message(message) => return Some((event(number, place, &message), place + 1)),
                    Entry::Close => place += 1,
                    Entry::End => return None,
                }
            }
        }
    })
}

fn event(number: usize, place: usize, message: &Value) -> String {
    format!("id: {number}-{}\nevent: message\ndata: {message}\n\n", place + 1)
}

/// Rest of a stream, or messages outside of any request.
async fn listen(State(server): State<Arc<Server>>, headers: HeaderMap) -> Response {
    let session = match server.session(&headers) {
        Ok(session) => session,
        Err(refusal) => return *refusal,
    };
    if let Some(last) = header(&headers, "last-event-id") {
        let place = last.split_once('-').and_then(|(number, place)| {
            let (number, place) = (number.parse::<usize>().ok()?, place.parse().ok()?);
            let log = lock(&session.buffers).get(number).cloned()?;
            Some((number, log, place))
        });
        return match place {
            Some((number, log, place)) => events(later_reader(number, log, place)),
            None => empty(StatusCode::BAD_REQUEST),
        };
    }
    let changes = server.shared.changes.subscribe();
    events(stream::unfold((changes, session), |(mut changes, session)| async move {
        loop {
            let change = changes.recv().await.ok()?;
            let wanted = match &change {
                Change::Tools | Change::Prompts => true,
                Change::Resource(uri) => session.client.is_subscribed_to(uri),
            };
            if wanted {
                let event = format!("event: message\ndata: {}\n\n", change.to_message(None));
                return Some((event, (changes, session)));
            }
        }
    }))
}

async fn end(State(server): State<Arc<Server>>, headers: HeaderMap) -> Response {
    match server.session(&headers) {
        Ok(_) => {
            let id = header(&headers, SESSION).unwrap_or_default();
            lock(&server.sessions).remove(id);
            json(StatusCode::OK, &json!({}))
        }
        Err(refusal) => *refusal,
    }
}
