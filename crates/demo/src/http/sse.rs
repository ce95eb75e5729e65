//! HTTP+SSE of 2024-11-05: one GET that stays open and carries all answers, and POSTs that are only accepted with 202.
//! The session lives as long as the GET.

use std::sync::Arc;

use axum::{
    extract::{ConnectInfo, State},
    response::Response,
};
use http::{StatusCode, request::Parts};
use serde_json::Value;

use super::{
    Arrival, header,
    respond::{Outgoing, ResponseStyle, error, method_not_allowed, text},
    session::{Session, Use},
    socket::Connection,
};
use crate::{
    frame::{Delivery, Frame},
    methods::{handle_notification, perform},
    options::{EndpointForm, EraChoice},
    peer::{MessageSink, Request},
    rpc::{Era, Message},
    state::ServerState,
};

pub(super) async fn open(
    State(state): State<Arc<ServerState>>,
    ConnectInfo(connection): ConnectInfo<Connection>,
    request: axum::extract::Request,
) -> Response {
    let arrival = match Arrival::read(state, connection, request).await {
        Ok(arrival) => arrival,
        Err(response) => return response,
    };
    if arrival.state.options.era == EraChoice::Modern {
        return text(StatusCode::NOT_FOUND, "not found");
    }
    let life = arrival.state.shutdown.child_token();
    let session = arrival.state.sessions.open(arrival.state.random_id(), life);
    let endpoint = endpoint(arrival.state.faults().endpoint, &arrival.parts, &session.id);
    let reader = session.background.read_after(0);
    let guard = EndsWithStream { state: Arc::clone(&arrival.state), session };
    Outgoing::new(reader, arrival.state, arrival.connection, ResponseStyle::Plain, guard)
        .with_prefix(format!("event: endpoint\ndata: {endpoint}\n\n"))
        .events()
}

fn endpoint(form: EndpointForm, parts: &Parts, session: &str) -> String {
    let host = header(&parts.headers, "host").unwrap_or("localhost");
    match form {
        EndpointForm::Relative => format!("/message?sessionId={session}"),
        EndpointForm::Absolute => format!("http://{host}/message?sessionId={session}"),
        EndpointForm::Query => format!("?sessionId={session}"),
        // `.invalid` is reserved and never resolves.
        EndpointForm::ForeignOrigin => format!("http://elsewhere.invalid/message?sessionId={session}"),
    }
}

struct EndsWithStream {
    state: Arc<ServerState>,
    session: Arc<Session>,
}

impl Drop for EndsWithStream {
    fn drop(&mut self) {
        self.state.sessions.forget(&self.session.id);
        self.session.peer.end();
    }
}

pub(super) async fn post(
    State(state): State<Arc<ServerState>>,
    ConnectInfo(connection): ConnectInfo<Connection>,
    request: axum::extract::Request,
) -> Response {
    match take(state, connection, request).await {
        Ok(()) => text(StatusCode::ACCEPTED, "Accepted"),
        Err(response) => response,
    }
}

async fn take(
    state: Arc<ServerState>,
    connection: Connection,
    request: axum::extract::Request,
) -> Result<(), Response> {
    let arrival = Arrival::read(state, connection, request).await?;
    let state = arrival.state.clone();
    let query = arrival.parts.uri.query().unwrap_or_default();
    let Some(id) = query.split('&').find_map(|pair| pair.strip_prefix("sessionId=")) else {
        // Probably a client that tries Streamable HTTP at this URL.
        return Err(method_not_allowed("GET"));
    };
    let faults = state.faults();
    let Some(session) = state.sessions.find(id, &faults, Use::Request) else {
        if faults.silent_dead_sse_post {
            return std::future::pending().await;
        }
        return Err(text(StatusCode::NOT_FOUND, "Could not find session"));
    };
    let outlet = MessageSink::Stream(Arc::clone(&session.background));
    match Message::from_value(arrival.json()?) {
        Message::Request(call) => {
            let request = Request::begin(call, Era::Legacy, &session.peer, outlet.clone());
            let performing = Arc::clone(&state);
            state.tasks.spawn(async move {
                if let Some(frame) = perform(&performing, request).await {
                    outlet.send(frame).await;
                }
            });
        }
        Message::Notification { method, params } => handle_notification(&session.peer, &method, &params),
        Message::Response { id, body } => session.peer.resolve_question(&id, body),
        Message::Malformed(cause) => {
            let answer = cause.answer(&Value::Null);
            outlet.send(Frame::Answer(answer, Delivery::WHOLE)).await;
            return Err(error(StatusCode::BAD_REQUEST, &Value::Null, &cause));
        }
    }
    Ok(())
}
