//! The legacy eras over Streamable HTTP: sessions, a GET stream, resumption, batches, and a hang-up that cancels
//! nothing.

use std::sync::Arc;

use axum::{body::Body, response::Response};
use http::{HeaderValue, StatusCode};
use serde_json::{Value, json};

use super::{
    Arrival,
    respond::{self, Manner, Outgoing, accepted, error, text},
    session::{Session, Use},
};
use crate::{
    frame::Frame,
    methods::{notice, perform, perform_batch},
    options::SessionExpiry,
    peer::{Outlet, Request},
    rpc::{
        BATCH_VERSION, Call, Era, INVALID_REQUEST, LEGACY_VERSIONS, Message, NOT_INITIALIZED, RpcError,
        SESSION_NOT_FOUND,
    },
    stream::{Stream, parse_event_id},
};

const SESSION_HEADER: &str = "mcp-session-id";

/// From this revision on, streams open with an event to resume from.
const PRIMING_SINCE: &str = "2025-11-25";

pub(super) async fn post(arrival: &Arrival, call: Call) -> Result<Response, Response> {
    if call.method == "initialize" {
        let session = {
            let world = &arrival.world;
            let id = if world.options.sessionless { String::new() } else { world.random_id() };
            world.sessions.open(id, world.life.child_token())
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

/// The request runs in a task of its own, so that it outlives its connection.
async fn run(arrival: &Arrival, session: &Arc<Session>, call: Call) -> Response {
    let stream = session.open_stream();
    let outlet = Outlet::Stream(Arc::clone(&stream));
    let request = Request::begin(call, Era::Legacy, &session.peer, outlet);
    let world = Arc::clone(&arrival.world);
    respond_with(arrival, session, stream, async move { perform(&world, request).await }).await
}

async fn respond_with(
    arrival: &Arrival,
    session: &Arc<Session>,
    stream: Arc<Stream>,
    work: impl Future<Output = Option<Frame>> + Send + 'static,
) -> Response {
    let world = &arrival.world;
    let reader = stream.read_after(0);
    world.tasks.spawn(async move {
        if let Some(frame) = work.await {
            stream.push(frame);
        }
        stream.end();
    });
    let outgoing =
        Outgoing::new(reader, Arc::clone(world), arrival.connection.clone(), Manner::Resumable, ());
    let primed = session.peer.version().is_some_and(|version| version.as_str() >= PRIMING_SINCE);
    match (world.options.sse_answers, primed) {
        (true, true) => outgoing.primed().events(),
        (true, false) => outgoing.events(),
        (false, true) => outgoing.primed().shortest().await,
        (false, false) => outgoing.shortest().await,
    }
}

pub(super) async fn post_batch(arrival: &Arrival, members: Vec<Value>) -> Result<Response, Response> {
    check_version(arrival)?;
    let session = session(arrival, &Value::Null, Use::Request)?;
    if session.peer.version().as_deref() != Some(BATCH_VERSION) {
        let cause = RpcError::new(
            INVALID_REQUEST,
            format!("batches belong to {BATCH_VERSION}, which was not agreed on"),
        );
        return Err(error(StatusCode::BAD_REQUEST, &Value::Null, &cause));
    }
    let asks = members
        .iter()
        .any(|member| matches!(Message::sort(member.clone()), Message::Request(_) | Message::Malformed(_)));
    let (world, peer) = (Arc::clone(&arrival.world), Arc::clone(&session.peer));
    let stream = session.open_stream();
    let outlet = Outlet::Stream(Arc::clone(&stream));
    let work = async move { perform_batch(&world, &peer, &outlet, members).await };
    if asks {
        Ok(respond_with(arrival, &session, stream, work).await)
    } else {
        work.await;
        Ok(accepted())
    }
}

pub(super) fn notified(arrival: &Arrival, method: &str, params: &Value) -> Result<Response, Response> {
    check_version(arrival)?;
    notice(&session(arrival, &Value::Null, Use::Other)?.peer, method, params);
    Ok(accepted())
}

pub(super) fn answered(arrival: &Arrival, id: &Value, body: Value) -> Result<Response, Response> {
    check_version(arrival)?;
    session(arrival, &Value::Null, Use::Other)?.peer.answered(id, body);
    Ok(accepted())
}

/// Follows the background stream, or whichever stream `Last-Event-ID` names.
pub(super) fn get(arrival: &Arrival) -> Result<Response, Response> {
    if !arrival.header("accept").unwrap_or_default().contains("text/event-stream") {
        return Err(text(StatusCode::NOT_ACCEPTABLE, "Accept must name text/event-stream"));
    }
    check_version(arrival)?;
    let session = session(arrival, &Value::Null, Use::Other)?;
    let resumed = arrival.header("last-event-id").and_then(parse_event_id);
    let reader = match resumed.and_then(|(stream, event)| Some((session.stream(stream)?, event))) {
        Some((stream, event)) => stream.read_after(event),
        None => session.background.read_on(),
    };
    let world = Arc::clone(&arrival.world);
    Ok(Outgoing::new(reader, world, arrival.connection.clone(), Manner::Resumable, ()).primed().events())
}

pub(super) fn delete(arrival: &Arrival) -> Result<Response, Response> {
    let session = session(arrival, &Value::Null, Use::Other)?;
    if let Some(session) = arrival.world.sessions.forget(&session.id) {
        session.peer.end();
    }
    Ok(Response::new(Body::empty()))
}

fn session(arrival: &Arrival, id: &Value, use_: Use) -> Result<Arc<Session>, Response> {
    let faults = arrival.world.faults();
    let name = match arrival.header(SESSION_HEADER) {
        Some(name) => name,
        None if arrival.world.options.sessionless => "",
        None => {
            let cause = RpcError::new(NOT_INITIALIZED, "Bad Request: Server not initialized");
            return Err(error(StatusCode::BAD_REQUEST, &Value::Null, &cause));
        }
    };
    let session = arrival.world.sessions.find(name, &faults, use_);
    session.ok_or_else(|| dead_session(faults.session_expiry, id))
}

/// A client of 2025-03-26 sends no version; a version that nobody agreed on is refused.
fn check_version(arrival: &Arrival) -> Result<(), Response> {
    match arrival.header("mcp-protocol-version") {
        Some(version) if !LEGACY_VERSIONS.contains(&version) => {
            let cause = format!("Bad Request: Unsupported protocol version: {version}");
            Err(error(StatusCode::BAD_REQUEST, &Value::Null, &RpcError::new(NOT_INITIALIZED, cause)))
        }
        Some(_) | None => Ok(()),
    }
}

/// The forms are those of servers in the field, word for word where a client may look at the words.
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
