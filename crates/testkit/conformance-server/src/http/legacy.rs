//! The legacy era: a session from the handshake on, every answer on a stream of its own, and streams that can be picked
//! up where they broke off.

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
use crate::caller::{Caller, LegacyClient, Said, lock};
use crate::methods;
use crate::rpc::{self, INVALID_REQUEST, LEGACY_VERSIONS, Message, Request, RpcError};
use crate::world::{Change, World};

const SESSION: &str = "mcp-session-id";
/// The older suite says so in requests of its own, whatever was agreed on.
const OLDER_VERSION: &str = "2025-03-26";
/// When a client whose stream broke off is to come back.
const RETRY_MS: u32 = 100;

pub(super) fn router(world: Arc<World>) -> Router {
    let server = Arc::new(Server { world, sessions: Mutex::default() });
    Router::new().route("/mcp", post(receive).get(listen).delete(end)).with_state(server)
}

struct Server {
    world: Arc<World>,
    sessions: Mutex<HashMap<String, Arc<Session>>>,
}

struct Session {
    client: Arc<LegacyClient>,
    /// Every stream that was ever opened for a request, by its number.
    logs: Mutex<Vec<Arc<Log>>>,
}

/// All that belongs on the stream of one request, whether or not somebody reads it.
#[derive(Default)]
struct Log {
    entries: Mutex<Vec<Entry>>,
    news: Notify,
}

#[derive(Clone)]
enum Entry {
    Message(Value),
    HangUp,
    End,
}

impl Log {
    fn push(&self, entry: Entry) {
        lock(&self.entries).push(entry);
        self.news.notify_waiters();
    }

    async fn get(&self, place: usize) -> Entry {
        loop {
            let news = self.news.notified();
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

    fn begin_session(&self, initialize: &Request) -> Response {
        let client = LegacyClient::shakes_hands(initialize);
        let id = format!("{:016x}", RandomState::new().hash_one("session"));
        lock(&self.sessions).insert(id.clone(), Arc::new(Session { client, logs: Mutex::default() }));
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
        return server.begin_session(request);
    }
    let session = match server.session(&headers) {
        Ok(session) => session,
        Err(refusal) => return *refusal,
    };
    match message {
        Message::Request(request) => {
            let (number, log) = session.perform(&server.world, request);
            events(first_reader(number, log))
        }
        Message::Notification => empty(StatusCode::ACCEPTED),
        Message::Response { id, outcome } => {
            session.client.answered(&id, outcome);
            empty(StatusCode::ACCEPTED)
        }
    }
}

impl Session {
    /// Begins to answer a request. That goes on whatever becomes of the stream.
    fn perform(&self, world: &Arc<World>, request: Request) -> (usize, Arc<Log>) {
        let log = Arc::new(Log::default());
        let number = {
            let mut logs = lock(&self.logs);
            logs.push(Arc::clone(&log));
            logs.len() - 1
        };
        let (stream, mut said) = mpsc::channel(16);
        let caller = Caller::legacy(&self.client, stream);
        let (world, written) = (Arc::clone(world), Arc::clone(&log));
        let writer = tokio::spawn(async move {
            while let Some(said) = said.recv().await {
                written.push(match said {
                    Said::Message(message) => Entry::Message(message),
                    Said::HangUp => Entry::HangUp,
                });
            }
            written.push(Entry::End);
        });
        tokio::spawn(async move {
            let outcome = methods::answer(&world, &caller, &request).await;
            caller.say(rpc::response(&request.id, outcome)).await;
            drop(caller);
            let _ = writer.await;
        });
        (number, log)
    }
}

/// The response to the POST: an event without data first, so that there is a place to come back to.
fn first_reader(number: usize, log: Arc<Log>) -> impl stream::Stream<Item = String> + Send {
    stream::unfold(None, move |place| {
        let log = Arc::clone(&log);
        async move {
            let Some(place) = place else {
                return Some((format!("id: {number}-0\nretry: {RETRY_MS}\ndata: \n\n"), Some(0)));
            };
            match log.get(place).await {
                Entry::Message(message) => Some((event(number, place, &message), Some(place + 1))),
                Entry::HangUp | Entry::End => None,
            }
        }
    })
}

/// Whoever comes back gets the rest.
fn later_reader(number: usize, log: Arc<Log>, place: usize) -> impl stream::Stream<Item = String> + Send {
    stream::unfold(place, move |mut place| {
        let log = Arc::clone(&log);
        async move {
            loop {
                match log.get(place).await {
                    Entry::Message(message) => return Some((event(number, place, &message), place + 1)),
                    Entry::HangUp => place += 1,
                    Entry::End => return None,
                }
            }
        }
    })
}

fn event(number: usize, place: usize, message: &Value) -> String {
    format!("id: {number}-{}\nevent: message\ndata: {message}\n\n", place + 1)
}

/// The rest of a stream, or whatever is said outside of any request.
async fn listen(State(server): State<Arc<Server>>, headers: HeaderMap) -> Response {
    let session = match server.session(&headers) {
        Ok(session) => session,
        Err(refusal) => return *refusal,
    };
    if let Some(last) = header(&headers, "last-event-id") {
        let place = last.split_once('-').and_then(|(number, place)| {
            let (number, place) = (number.parse::<usize>().ok()?, place.parse().ok()?);
            let log = lock(&session.logs).get(number).cloned()?;
            Some((number, log, place))
        });
        return match place {
            Some((number, log, place)) => events(later_reader(number, log, place)),
            None => empty(StatusCode::BAD_REQUEST),
        };
    }
    let changes = server.world.changes.subscribe();
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
