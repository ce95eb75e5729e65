//! HTTP+SSE of 2024-11-05: one GET that stays open and carries all answers, and POSTs that are merely accepted.
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
    respond::{Manner, Outgoing, error, not_allowed, text},
    session::{Session, Use},
    socket::Connection,
};
use crate::{
    frame::{Delivery, Frame},
    methods::{notice, perform},
    options::{EndpointForm, EraChoice},
    peer::{Outlet, Request},
    rpc::{Era, Message},
    world::World,
};

pub(super) async fn open(
    State(world): State<Arc<World>>,
    ConnectInfo(connection): ConnectInfo<Connection>,
    request: axum::extract::Request,
) -> Response {
    let arrival = match Arrival::read(world, connection, request).await {
        Ok(arrival) => arrival,
        Err(response) => return response,
    };
    if arrival.world.options.era == EraChoice::Modern {
        return text(StatusCode::NOT_FOUND, "not found");
    }
    let life = arrival.world.life.child_token();
    let session = arrival.world.sessions.open(arrival.world.random_id(), life);
    let endpoint = endpoint(arrival.world.faults().endpoint, &arrival.parts, &session.id);
    let reader = session.background.read_after(0);
    let guard = EndsWithStream { world: Arc::clone(&arrival.world), session };
    Outgoing::new(reader, arrival.world, arrival.connection, Manner::Plain, guard)
        .preceded_by(format!("event: endpoint\ndata: {endpoint}\n\n"))
        .events()
}

fn endpoint(form: EndpointForm, parts: &Parts, session: &str) -> String {
    let host = header(&parts.headers, "host").unwrap_or("localhost");
    match form {
        EndpointForm::Relative => format!("/message?sessionId={session}"),
        EndpointForm::Absolute => format!("http://{host}/message?sessionId={session}"),
        EndpointForm::Query => format!("?sessionId={session}"),
        // A name that is reserved never to resolve.
        EndpointForm::ForeignOrigin => format!("http://elsewhere.invalid/message?sessionId={session}"),
    }
}

struct EndsWithStream {
    world: Arc<World>,
    session: Arc<Session>,
}

impl Drop for EndsWithStream {
    fn drop(&mut self) {
        self.world.sessions.forget(&self.session.id);
        self.session.peer.end();
    }
}

pub(super) async fn post(
    State(world): State<Arc<World>>,
    ConnectInfo(connection): ConnectInfo<Connection>,
    request: axum::extract::Request,
) -> Response {
    match take(world, connection, request).await {
        Ok(()) => text(StatusCode::ACCEPTED, "Accepted"),
        Err(response) => response,
    }
}

async fn take(
    world: Arc<World>,
    connection: Connection,
    request: axum::extract::Request,
) -> Result<(), Response> {
    let arrival = Arrival::read(world, connection, request).await?;
    let world = arrival.world.clone();
    let query = arrival.parts.uri.query().unwrap_or_default();
    let Some(id) = query.split('&').find_map(|pair| pair.strip_prefix("sessionId=")) else {
        // What a client of Streamable HTTP sees when it tries its luck here.
        return Err(not_allowed("GET"));
    };
    let faults = world.faults();
    let Some(session) = world.sessions.find(id, &faults, Use::Request) else {
        if faults.silent_dead_sse_post {
            return std::future::pending().await;
        }
        return Err(text(StatusCode::NOT_FOUND, "Could not find session"));
    };
    let outlet = Outlet::Stream(Arc::clone(&session.background));
    match Message::sort(arrival.json()?) {
        Message::Request(call) => {
            let request = Request::begin(call, Era::Legacy, &session.peer, outlet.clone());
            let performing = Arc::clone(&world);
            world.tasks.spawn(async move {
                if let Some(frame) = perform(&performing, request).await {
                    outlet.send(frame).await;
                }
            });
        }
        Message::Notification { method, params } => notice(&session.peer, &method, &params),
        Message::Response { id, body } => session.peer.answered(&id, body),
        Message::Malformed(cause) => {
            let answer = cause.answer(&Value::Null);
            outlet.send(Frame::Answer(answer, Delivery::WHOLE)).await;
            return Err(error(StatusCode::BAD_REQUEST, &Value::Null, &cause));
        }
    }
    Ok(())
}
