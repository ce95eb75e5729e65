//! The server on HTTP: Streamable HTTP of both eras at `/mcp`, HTTP+SSE at `/sse`.
//!
//! This module starts and stops the server and gives tests a handle. A request goes through `gate` (refusals that have
//! nothing to do with MCP) to `legacy`, `modern` or `sse`, and its response is made by `respond`.

#![expect(
    clippy::result_large_err,
    reason = "the error is the response itself, moved once per refused request"
)]

mod gate;
mod legacy;
mod modern;
mod respond;
mod session;
mod socket;
mod sse;

use std::{io, net::SocketAddr, sync::Arc};

use axum::{
    Router,
    body::{Bytes, to_bytes},
    extract::{ConnectInfo, State},
    response::Response,
    routing,
};
use http::{HeaderMap, Method, StatusCode, request::Parts};
use serde_json::{Value, json};
use tokio::{net::TcpListener, task::JoinHandle};
use tokio_util::sync::DropGuard;

pub(crate) use self::session::Sessions;
use self::{
    respond::{error, text},
    socket::{Acceptor, Connection},
};
use crate::{
    options::{EraChoice, Faults, Options},
    process,
    rpc::{Call, Era, MODERN_VERSION, Message, PARSE_ERROR, RpcError},
    state::{Change, Flow, ProcessOwner, ServerState},
};

/// Largest request body that is accepted.
const MAX_BODY: usize = 64 * 1024 * 1024;

/// Serves HTTP at the address until the process ends, and passes the address to `on_listening` (port 0 picks a free
/// port). Faults of the process apply, so this may exit the process.
///
/// # Errors
///
/// If the server cannot listen at the address, or a file named in the options cannot be written.
pub async fn serve_http(
    addr: SocketAddr,
    options: Options,
    on_listening: impl FnOnce(SocketAddr),
) -> io::Result<()> {
    process::start(&options).await?;
    let server = start(addr, options, ProcessOwner::Process).await?;
    on_listening(server.addr());
    server.wait().await
}

/// Starts an HTTP server inside this process. It listens when this returns. Where [`serve_http`] would exit the
/// process, it resets the connection of the call instead; [`Faults`] of the process are ignored.
///
/// # Errors
///
/// If the server cannot listen at the address.
pub async fn start_http(addr: SocketAddr, options: Options) -> io::Result<RunningServer> {
    start(addr, options, ProcessOwner::Embedder).await
}

async fn start(addr: SocketAddr, options: Options, owner: ProcessOwner) -> io::Result<RunningServer> {
    let listener = TcpListener::bind(addr).await?;
    let addr = listener.local_addr()?;
    let state = ServerState::new(options, owner);
    let mut routes = Router::new()
        .route("/sse", routing::get(sse::open).post(sse::post))
        .route("/message", routing::post(sse::post));
    if !state.options.sse_only {
        routes = routes.route("/mcp", routing::any(mcp));
    }
    let service = routes.with_state(Arc::clone(&state)).into_make_service_with_connect_info::<Connection>();
    let serving = axum::serve(Acceptor::new(listener, Arc::clone(&state)), service)
        .with_graceful_shutdown(state.shutdown.clone().cancelled_owned());
    let task = tokio::spawn(async move { serving.await });
    let ends_with_handle = state.shutdown.clone().drop_guard();
    Ok(RunningServer { addr, state, task, _ends_with_handle: ends_with_handle })
}

/// Handle of a server that runs inside this process. Dropping it ends the server without waiting for the end.
#[derive(Debug)]
pub struct RunningServer {
    addr: SocketAddr,
    state: Arc<ServerState>,
    task: JoinHandle<io::Result<()>>,
    _ends_with_handle: DropGuard,
}

impl RunningServer {
    /// Address of the listener.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// The URL of Streamable HTTP.
    pub fn url(&self) -> String {
        format!("http://{}/mcp", self.addr)
    }

    /// The URL of HTTP+SSE.
    pub fn sse_url(&self) -> String {
        format!("http://{}/sse", self.addr)
    }

    /// Value of the counter.
    pub fn counter(&self) -> u64 {
        self.state.counter()
    }

    /// The keys of all `counter` calls in order, the last 65,536 of them; `-` for a call without one. A call whose key
    /// occurs twice was executed twice.
    pub fn counter_keys(&self) -> Vec<String> {
        self.state.counter_keys()
    }

    /// Number of `tools/call` requests for known tools.
    pub fn calls(&self) -> u64 {
        self.state.calls()
    }

    /// Number of answered `initialize` requests.
    pub fn initializes(&self) -> u64 {
        self.state.initializes()
    }

    /// Number of requests in flight, `subscriptions/listen` included.
    pub fn in_flight(&self) -> usize {
        *self.state.in_flight().borrow()
    }

    /// Waits until no request is in flight.
    pub async fn until_idle(&self) {
        // Cannot fail: the sender lives as long as this handle.
        drop(self.state.in_flight().wait_for(|count| *count == 0).await);
    }

    /// Waits until no tool call is in flight; open `subscriptions/listen` requests do not count.
    pub async fn until_no_calls(&self) {
        drop(self.state.calls_in_flight().wait_for(|count| *count == 0).await);
    }

    /// Number of live sessions.
    pub fn sessions(&self) -> usize {
        self.state.sessions.all().len()
    }

    /// Drops all sessions, as a restart would. Calls in flight are still answered.
    pub fn forget_sessions(&self) {
        self.state.sessions.forget_all();
    }

    /// The active faults.
    pub fn faults(&self) -> Faults {
        (*self.state.faults()).clone()
    }

    /// Replaces the faults, from the next request on. The duration of a refusal starts again.
    pub fn set_faults(&self, faults: Faults) {
        self.state.set_faults(faults);
    }

    /// Adds a tool and notifies the clients.
    pub async fn add_tool(&self, name: &str) {
        self.state.add_tool(Some(name));
        self.state.announce(Change::Tools).await;
    }

    /// Removes a tool and notifies the clients. Returns whether there was one.
    pub async fn remove_tool(&self, name: &str) -> bool {
        let found = self.state.remove_tool(name);
        if found {
            self.state.announce(Change::Tools).await;
        }
        found
    }

    /// Asks every session for a word, outside of requests, and returns the answers: bodies with `result` or `error`.
    pub async fn ask_sessions(&self, question: &str) -> Vec<Value> {
        let word = json!({ "type": "object", "properties": { "word": { "type": "string" } } });
        let form = json!({ "message": question, "requestedSchema": word });
        let asking = self.state.sessions.all().into_iter().map(|session| {
            let form = form.clone();
            async move { session.peer.ask_in_background("elicitation/create", form).await }
        });
        futures_util::future::join_all(asking).await.into_iter().flatten().collect()
    }

    /// Stops reading and writing on all connections, as if packets were dropped, until [`Self::resume`].
    pub fn stall(&self) {
        self.state.set_flow(Flow::BlackHole, None);
    }

    /// Ends [`Self::stall`].
    pub fn resume(&self) {
        self.state.set_flow(Flow::Open, None);
    }

    /// Resets all open connections. The server keeps running.
    pub fn reset_connections(&self) {
        self.state.sessions.connections.reset_all();
    }

    /// Ends the server and closes all connections. The port is free when this returns.
    pub async fn stop(self) {
        self.state.shutdown.cancel();
        self.state.tasks.close();
        self.state.tasks.wait().await;
        // An earlier accept error does not matter at the end.
        drop(self.task.await);
    }

    async fn wait(self) -> io::Result<()> {
        self.task.await?
    }
}

/// One request with its body read.
struct Arrival {
    state: Arc<ServerState>,
    connection: Connection,
    parts: Parts,
    body: Bytes,
}

impl Arrival {
    async fn read(
        state: Arc<ServerState>,
        connection: Connection,
        request: axum::extract::Request,
    ) -> Result<Self, Response> {
        let (parts, body) = request.into_parts();
        gate::check(&state, &parts)?;
        let body = to_bytes(body, MAX_BODY)
            .await
            .map_err(|error| text(StatusCode::PAYLOAD_TOO_LARGE, &error.to_string()))?;
        Ok(Self { state, connection, parts, body })
    }

    fn header(&self, name: &str) -> Option<&str> {
        header(&self.parts.headers, name)
    }

    fn json(&self) -> Result<Value, Response> {
        serde_json::from_slice(&self.body).map_err(|cause| {
            error(StatusCode::BAD_REQUEST, &Value::Null, &RpcError::new(PARSE_ERROR, cause.to_string()))
        })
    }

    /// The era of a request. Headers may show the modern era even if the body does not.
    fn era(&self, call: &Call) -> Era {
        let version = self.header("mcp-protocol-version");
        if version.is_some_and(|version| version >= MODERN_VERSION) || self.header("mcp-method").is_some() {
            Era::Modern
        } else {
            call.era()
        }
    }
}

fn header<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

async fn mcp(
    State(state): State<Arc<ServerState>>,
    ConnectInfo(connection): ConnectInfo<Connection>,
    request: axum::extract::Request,
) -> Response {
    match answer(state, connection, request).await {
        Ok(response) | Err(response) => response,
    }
}

async fn answer(
    state: Arc<ServerState>,
    connection: Connection,
    request: axum::extract::Request,
) -> Result<Response, Response> {
    let arrival = Arrival::read(state, connection, request).await?;
    let modern_only = arrival.state.options.era == EraChoice::Modern;
    match arrival.parts.method {
        Method::POST => {}
        Method::GET if !modern_only => return legacy::get(&arrival),
        Method::DELETE if !modern_only => return legacy::delete(&arrival),
        _ => return Err(respond::method_not_allowed(if modern_only { "POST" } else { "POST, GET, DELETE" })),
    }
    gate::check_post(&arrival)?;
    let value = arrival.json()?;
    if let Value::Array(members) = value {
        return legacy::post_batch(&arrival, members).await;
    }
    match Message::from_value(value) {
        Message::Request(call) => match (arrival.era(&call), arrival.state.options.era) {
            (Era::Modern, EraChoice::Both) | (Era::Modern | Era::Legacy, EraChoice::Modern) => {
                modern::post(&arrival, call).await
            }
            (Era::Legacy, EraChoice::Both) | (Era::Modern | Era::Legacy, EraChoice::Legacy) => {
                legacy::post(&arrival, call).await
            }
        },
        // The modern era defines no notifications from client to server.
        Message::Notification { .. } if modern_only => Ok(respond::accepted()),
        Message::Notification { method, params } => legacy::post_notification(&arrival, &method, &params),
        Message::Response { id, body } => legacy::post_response(&arrival, &id, body),
        Message::Malformed(cause) => Err(error(StatusCode::BAD_REQUEST, &Value::Null, &cause)),
    }
}
