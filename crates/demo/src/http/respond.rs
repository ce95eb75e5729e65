//! Turns a stream of frames into an HTTP response: one JSON body if there is only the answer, an event stream
//! otherwise.

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
    state::{ProcessOwner, ServerState},
    stream::Reader,
};

/// Interval of keep-alive comments in an open stream.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// Time for the last bytes to be sent before the process exits.
const BEFORE_DEATH: Duration = Duration::from_millis(20);

/// A response with one line of text.
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

pub(super) fn method_not_allowed(allow: &'static str) -> Response {
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

/// The status of a modern answer. Legacy answers are always 200, because 404 means an expired session there.
fn modern_status(answer: &Value) -> StatusCode {
    match answer["error"]["code"].as_i64() {
        Some(METHOD_NOT_FOUND) => StatusCode::NOT_FOUND,
        Some(HEADER_MISMATCH | MISSING_CLIENT_CAPABILITY | UNSUPPORTED_VERSION) => StatusCode::BAD_REQUEST,
        Some(_) | None => StatusCode::OK,
    }
}

/// Form of a response, by era and transport.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ResponseStyle {
    /// Legacy Streamable HTTP: events carry ids, so that a client can resume.
    Resumable,
    /// HTTP+SSE: no ids.
    Plain,
    /// Modern Streamable HTTP: no ids, and errors set the status.
    Modern,
}

/// A response that is being made. `G` is a guard that is dropped when the response was sent or its client disconnected.
pub(super) struct Outgoing<G> {
    reader: Reader,
    state: Arc<ServerState>,
    connection: Connection,
    style: ResponseStyle,
    _guard: G,
    pending: VecDeque<Step>,
}

impl<G: Send + 'static> Outgoing<G> {
    pub(super) fn new(
        reader: Reader,
        state: Arc<ServerState>,
        connection: Connection,
        manner: ResponseStyle,
        guard: G,
    ) -> Self {
        Self { reader, state, connection, style: manner, _guard: guard, pending: VecDeque::new() }
    }

    /// Adds bytes before the first event.
    pub(super) fn with_prefix(mut self, event: String) -> Self {
        self.pending.push_back(Step::Write(Bytes::from(event)));
        self
    }

    /// Adds an event with an id and no data, so that a client can resume before the first message.
    pub(super) fn with_priming_event(self) -> Self {
        let event = format!("id: {}\nretry: 500\ndata: \n\n", self.reader.event_id(0));
        self.with_prefix(event)
    }

    /// One JSON body if the answer is the first frame, otherwise an event stream.
    ///
    /// Dropping the future drops the guard.
    pub(super) async fn json_or_events(mut self) -> Response {
        let Some((number, frame)) = self.reader.next().await else { return self.events() };
        if let Frame::Answer(answer, delivery) = &frame {
            if *delivery == Delivery::WHOLE {
                let status = match self.style {
                    ResponseStyle::Resumable | ResponseStyle::Plain => StatusCode::OK,
                    ResponseStyle::Modern => modern_status(answer),
                };
                return json(status, answer);
            }
            if delivery.part == Part::Nothing {
                match delivery.then {
                    // No status line is sent.
                    Then::Reset => self.connection.reset_and_wait().await,
                    Then::Die(code) => die(&self.state, &self.connection, code).await,
                    Then::Continue | Then::End => {}
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
        let id = match self.style {
            ResponseStyle::Resumable => Some(self.reader.event_id(number)),
            ResponseStyle::Plain | ResponseStyle::Modern => None,
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
                    Step::Die(code) => die(&self.state, &self.connection, code).await,
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

async fn die(state: &ServerState, connection: &Connection, code: i32) {
    tokio::time::sleep(BEFORE_DEATH).await;
    match state.owner {
        ProcessOwner::Process => process::exit(code),
        ProcessOwner::Embedder => connection.reset_and_wait().await,
    }
}
