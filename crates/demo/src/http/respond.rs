//! Turns a stream of frames into an HTTP response: one JSON body where the answer is all there is, an event
//! stream otherwise. The only place that knows what an event stream looks like from the HTTP side.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use axum::{body::Body, response::Response};
use bytes::Bytes;
use http::{HeaderValue, StatusCode, header};
use serde_json::Value;
use tokio::time::timeout;

use super::socket::Connection;
use crate::{
    frame::{Delivery, Frame, Framing, Part, Step, Then, steps},
    process,
    rpc::{HEADER_MISMATCH, METHOD_NOT_FOUND, MISSING_CLIENT_CAPABILITY, RpcError, UNSUPPORTED_VERSION},
    stream::Reader,
    world::{Owner, World},
};

/// How often an open stream shows that it lives.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// Lets the last bytes leave before the process goes.
const BEFORE_DEATH: Duration = Duration::from_millis(20);

/// A response of this status that says one line of text.
pub(super) fn text(status: StatusCode, text: &str) -> Response {
    body(status, "text/plain; charset=utf-8", text.to_owned())
}

pub(super) fn json(status: StatusCode, value: &Value) -> Response {
    body(status, "application/json", value.to_string())
}

pub(super) fn error(status: StatusCode, id: &Value, error: &RpcError) -> Response {
    json(status, &error.answer(id))
}

pub(super) fn accepted() -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::ACCEPTED;
    response
}

pub(super) fn not_allowed(allow: &'static str) -> Response {
    let mut response = text(StatusCode::METHOD_NOT_ALLOWED, "method not allowed");
    response.headers_mut().insert(header::ALLOW, HeaderValue::from_static(allow));
    response
}

fn body(status: StatusCode, content_type: &'static str, text: String) -> Response {
    let mut response = Response::new(Body::from(text));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

/// The status of a modern answer. Legacy answers are always 200: there, 404 means a dead session.
fn modern_status(answer: &Value) -> StatusCode {
    match answer["error"]["code"].as_i64() {
        Some(METHOD_NOT_FOUND) => StatusCode::NOT_FOUND,
        Some(HEADER_MISMATCH | MISSING_CLIENT_CAPABILITY | UNSUPPORTED_VERSION) => StatusCode::BAD_REQUEST,
        Some(_) | None => StatusCode::OK,
    }
}

/// What the manners of an era ask of a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Manner {
    /// Legacy Streamable HTTP: events carry ids that a client may come back with.
    Resumable,
    /// HTTP+SSE: no ids.
    Plain,
    /// No ids, and errors show in the status.
    Modern,
}

/// A response in the making. `G` is held until the response has been sent or its client has gone; dropping it
/// tells.
pub(super) struct Outgoing<G> {
    reader: Reader,
    world: Arc<World>,
    connection: Connection,
    manner: Manner,
    _guard: G,
    pending: VecDeque<Step>,
}

impl<G: Send + 'static> Outgoing<G> {
    pub(super) fn new(
        reader: Reader,
        world: Arc<World>,
        connection: Connection,
        manner: Manner,
        guard: G,
    ) -> Self {
        Self { reader, world, connection, manner, _guard: guard, pending: VecDeque::new() }
    }

    /// Puts bytes of our own before the first event.
    pub(super) fn preceded_by(mut self, event: String) -> Self {
        self.pending.push_back(Step::Write(Bytes::from(event)));
        self
    }

    /// An event with an id and no data, from which a client can resume before anything has happened.
    pub(super) fn primed(self) -> Self {
        let event = format!("id: {}\nretry: 500\ndata: \n\n", self.reader.event_id(0));
        self.preceded_by(event)
    }

    /// One JSON body if the answer is the first thing that comes, else an event stream.
    ///
    /// Dropping the future drops the guard.
    pub(super) async fn shortest(mut self) -> Response {
        let Some((number, frame)) = self.reader.next().await else { return self.events() };
        if let Frame::Answer(answer, delivery) = &frame {
            if *delivery == Delivery::WHOLE {
                let status = match self.manner {
                    Manner::Resumable | Manner::Plain => StatusCode::OK,
                    Manner::Modern => modern_status(answer),
                };
                return json(status, answer);
            }
            if delivery.part == Part::Nothing {
                match delivery.then {
                    // Not even a status line.
                    Then::Reset => self.connection.reset_and_wait().await,
                    Then::Die(code) => die(&self.world, &self.connection, code).await,
                    Then::GoOn | Then::End => {}
                }
            }
        }
        self.queue(number, &frame);
        self.events()
    }

    pub(super) fn events(self) -> Response {
        let stream = futures_util::stream::unfold(self, |mut outgoing| async move {
            let bytes = outgoing.next().await?;
            Some((Ok::<_, std::io::Error>(bytes), outgoing))
        });
        let mut response = Response::new(Body::from_stream(stream));
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
        headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
        response
    }

    fn queue(&mut self, number: u64, frame: &Frame) {
        let id = match self.manner {
            Manner::Resumable => Some(self.reader.event_id(number)),
            Manner::Plain | Manner::Modern => None,
        };
        self.pending.extend(steps(frame, &Framing::Events { id }));
    }

    async fn next(&mut self) -> Option<Bytes> {
        loop {
            while let Some(step) = self.pending.pop_front() {
                match step {
                    Step::Write(bytes) => return Some(bytes),
                    Step::Pause(time) => tokio::time::sleep(time).await,
                    Step::End => return None,
                    Step::Reset => self.connection.reset_and_wait().await,
                    Step::Die(code) => die(&self.world, &self.connection, code).await,
                }
            }
            match timeout(KEEP_ALIVE, self.reader.next()).await {
                Ok(Some((number, frame))) => self.queue(number, &frame),
                Ok(None) => return None,
                Err(_) => return Some(Bytes::from_static(b": keep-alive\n\n")),
            }
        }
    }
}

async fn die(world: &World, connection: &Connection, code: i32) {
    tokio::time::sleep(BEFORE_DEATH).await;
    match world.owner {
        Owner::Process => process::exit(code),
        Owner::Embedder => connection.reset_and_wait().await,
    }
}
