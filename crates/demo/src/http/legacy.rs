//! The legacy era over Streamable HTTP: sessions, a GET stream, resumption and batches. A closed connection does not
//! cancel its request.

use std::sync::Arc;

use axum::{body::Body, response::Response};
use http::{HeaderValue, StatusCode};
use serde_json::{Value, json};

use super::{
    Arrival,
    respond::{self, Outgoing, ResponseStyle, accepted, error, text},
    session::{Session, Use},
};
use crate::{
    frame::Frame,
    methods::{handle_notification, perform, perform_batch},
    options::SessionExpiry,
    peer::{MessageSink, Request},
    rpc::{
        BATCH_VERSION, Call, Era, INVALID_REQUEST, LEGACY_VERSIONS, Message, NOT_INITIALIZED, RpcError,
        SESSION_NOT_FOUND,
    },
    stream::{Stream, parse_event_id},
};

const SESSION_HEADER: &str = "mcp-session-id";

/// From this revision on, streams start with an event to resume from.
const PRIMING_SINCE: &str = "2025-11-25";

pub(super) async fn post(arrival: &Arrival, call: Call) -> Result<Response, Response> {
    if call.method == "initialize" {
        let session = {
            let state = &arrival.state;
            let id = if state.options.sessionless { String::new() } else { state.random_id() };
            state.sessions.open(id, state.shutdown.child_token())
        };
        let mut response = run(arrival, &session, call).await;
        if let Ok(id) = HeaderValue::from_str(&session.id)
            && !session.id.is_empty()
        {
            response.headers_mut().insert(SESSION_HEADER, id);
        }
        return Ok(response);
    }
    check_version(arrival)?;
    let session = session(arrival, &call.id, Use::Request)?;
    Ok(run(arrival, &session, call).await)
}

/// Runs the request in its own task, so that it outlives its connection.
async fn run(arrival: &Arrival, session: &Arc<Session>, call: Call) -> Response {
    let stream = session.open_stream();
    let outlet = MessageSink::Stream(Arc::clone(&stream));
    let request = Request::begin(call, Era::Legacy, &session.peer, outlet);
    let state = Arc::clone(&arrival.state);
    respond_with(arrival, session, stream, async move { perform(&state, request).await }).await
}

async fn respond_with(
    arrival: &Arrival,
    session: &Arc<Session>,
    stream: Arc<Stream>,
    work: impl Future<Output = Option<Frame>> + Send + 'static,
) -> Response {
    let state = &arrival.state;
    let reader = stream.read_after(0);
    state.tasks.spawn(async move {
        if let Some(frame) = work.await {
            stream.push(frame);
        }
        stream.end();
    });
    let outgoing =
        Outgoing::new(reader, Arc::clone(state), arrival.connection.clone(), ResponseStyle::Resumable, ());
    let primed = session.peer.version().is_some_and(|version| version.as_str() >= PRIMING_SINCE);
    match (state.options.sse_answers, primed) {
        (true, true) => outgoing.with_priming_event().events(),
        (true, false) => outgoing.events(),
        (false, true) => outgoing.with_priming_event().json_or_events().await,
        (false, false) => outgoing.json_or_events().await,
    }
}

pub(super) async fn post_batch(arrival: &Arrival, members: Vec<Value>) -> Result<Response, Response> {
    check_version(arrival)?;
    let session = session(arrival, &Value::Null, Use::Request)?;
    if session.peer.version().as_deref() != Some(BATCH_VERSION) {
        let cause = RpcError::new(
            INVALID_REQUEST,
            format!("batches require protocol version {BATCH_VERSION}, which was not negotiated"),
        );
        return Err(error(StatusCode::BAD_REQUEST, &Value::Null, &cause));
    }
    let asks = members.iter().any(|member| {
        matches!(Message::from_value(member.clone()), Message::Request(_) | Message::Malformed(_))
    });
    let (state, peer) = (Arc::clone(&arrival.state), Arc::clone(&session.peer));
    let stream = session.open_stream();
    let outlet = MessageSink::Stream(Arc::clone(&stream));
    let work = async move { perform_batch(&state, &peer, &outlet, members).await };
    if asks {
        Ok(respond_with(arrival, &session, stream, work).await)
    } else {
        work.await;
        Ok(accepted())
    }
}

pub(super) fn post_notification(
    arrival: &Arrival,
    method: &str,
    params: &Value,
) -> Result<Response, Response> {
    check_version(arrival)?;
    handle_notification(&session(arrival, &Value::Null, Use::Other)?.peer, method, params);
    Ok(accepted())
}

pub(super) fn post_response(arrival: &Arrival, id: &Value, body: Value) -> Result<Response, Response> {
    check_version(arrival)?;
    session(arrival, &Value::Null, Use::Other)?.peer.resolve_question(id, body);
    Ok(accepted())
}

/// Sends the background stream, or the stream that `Last-Event-ID` names.
pub(super) fn get(arrival: &Arrival) -> Result<Response, Response> {
    if !arrival.header("accept").unwrap_or_default().contains("text/event-stream") {
        return Err(text(StatusCode::NOT_ACCEPTABLE, "Accept must contain text/event-stream"));
    }
    check_version(arrival)?;
    let session = session(arrival, &Value::Null, Use::Other)?;
    let resumed = arrival.header("last-event-id").and_then(parse_event_id);
    let reader = match resumed.and_then(|(stream, event)| Some((session.stream(stream)?, event))) {
        Some((stream, event)) => stream.read_after(event),
        None => session.background.read_on(),
    };
    let state = Arc::clone(&arrival.state);
    Ok(Outgoing::new(reader, state, arrival.connection.clone(), ResponseStyle::Resumable, ())
        .with_priming_event()
        .events())
}

pub(super) fn delete(arrival: &Arrival) -> Result<Response, Response> {
    let session = session(arrival, &Value::Null, Use::Other)?;
    if let Some(session) = arrival.state.sessions.forget(&session.id) {
        session.peer.end();
    }
    Ok(Response::new(Body::empty()))
}

fn session(arrival: &Arrival, id: &Value, use_: Use) -> Result<Arc<Session>, Response> {
    let faults = arrival.state.faults();
    let name = match arrival.header(SESSION_HEADER) {
        Some(name) => name,
        None if arrival.state.options.sessionless => "",
        None => {
            let cause = RpcError::new(NOT_INITIALIZED, "Bad Request: Server not initialized");
            return Err(error(StatusCode::BAD_REQUEST, &Value::Null, &cause));
        }
    };
    let session = arrival.state.sessions.find(name, &faults, use_);
    session.ok_or_else(|| dead_session(faults.session_expiry, id))
}

/// Refuses an unknown version. Clients of 2025-03-26 send none.
fn check_version(arrival: &Arrival) -> Result<(), Response> {
    match arrival.header("mcp-protocol-version") {
        Some(version) if !LEGACY_VERSIONS.contains(&version) => {
            let cause = format!("Bad Request: Unsupported protocol version: {version}");
            Err(error(StatusCode::BAD_REQUEST, &Value::Null, &RpcError::new(NOT_INITIALIZED, cause)))
        }
        Some(_) | None => Ok(()),
    }
}

/// The refusal of an expired session, in the wording of real servers, because clients may look at the text.
fn dead_session(form: SessionExpiry, id: &Value) -> Response {
    let not_found = RpcError::new(SESSION_NOT_FOUND, "Session not found");
    match form {
        SessionExpiry::NotFound => error(StatusCode::NOT_FOUND, &Value::Null, &not_found),
        SessionExpiry::NotFoundText => text(StatusCode::NOT_FOUND, "Not Found: Session not found"),
        SessionExpiry::BadRequestWithoutId => {
            let cause = RpcError::new(NOT_INITIALIZED, "Bad Request: No valid session ID provided");
            let body = json!({ "jsonrpc": "2.0", "error": cause.to_value() });
            respond::json(StatusCode::BAD_REQUEST, &body)
        }
        SessionExpiry::BadRequestServerError => {
            let cause = RpcError::new(INVALID_REQUEST, "Bad Request: No valid session ID provided");
            error(StatusCode::BAD_REQUEST, &json!("server-error"), &cause)
        }
        SessionExpiry::BadRequestText => text(StatusCode::BAD_REQUEST, "Invalid or expired session"),
        SessionExpiry::OkWithError => error(StatusCode::OK, id, &not_found),
    }
}
