//! The server on HTTP: Streamable HTTP of both eras at `/mcp`, HTTP+SSE at `/sse`.
//!
//! This file starts and stops it and gives tests a handle on it. A request goes through `gate` (refusals that
//! have nothing to do with MCP) to `legacy`, `modern` or `sse`, and comes back through `respond`.

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
    socket::{Connection, Door},
};
use crate::{
    options::{EraChoice, Faults, Options},
    process,
    rpc::{Call, Era, MODERN_VERSION, Message, PARSE_ERROR, RpcError},
    world::{Change, Flow, Owner, World},
};

/// The largest request body that is taken.
const MAX_BODY: usize = 64 * 1024 * 1024;

/// Serves HTTP at the address until the process ends, and tells the address once it listens (port 0 picks one).
/// Faults that concern the process apply: this may exit it.
///
/// # Errors
///
/// If the address cannot be listened at, or a file named in the options cannot be written.
pub async fn serve_http(
    addr: SocketAddr,
    options: Options,
    on_listening: impl FnOnce(SocketAddr),
) -> io::Result<()> {
    process::start(&options).await?;
    let server = start(addr, options, Owner::Process).await?;
    on_listening(server.addr());
    server.wait().await
}

/// Starts an HTTP server inside this process. It listens when this returns. Where [`serve_http`] would exit the
/// process, it resets the connection of the call instead; [`Faults`] of the process are ignored.
///
/// # Errors
///
/// If the address cannot be listened at.
pub async fn start_http(addr: SocketAddr, options: Options) -> io::Result<RunningServer> {
    start(addr, options, Owner::Embedder).await
}

async fn start(addr: SocketAddr, options: Options, owner: Owner) -> io::Result<RunningServer> {
    let listener = TcpListener::bind(addr).await?;
    let addr = listener.local_addr()?;
    let world = World::new(options, owner);
    let mut routes = Router::new()
        .route("/sse", routing::get(sse::open).post(sse::post))
        .route("/message", routing::post(sse::post));
    if world.options.streamable_http {
        routes = routes.route("/mcp", routing::any(mcp));
    }
    let service = routes.with_state(Arc::clone(&world)).into_make_service_with_connect_info::<Connection>();
    let serving = axum::serve(Door::new(listener, Arc::clone(&world)), service)
        .with_graceful_shutdown(world.life.clone().cancelled_owned());
    let task = tokio::spawn(async move { serving.await });
    let ends_with_handle = world.life.clone().drop_guard();
    Ok(RunningServer { addr, world, task, _ends_with_handle: ends_with_handle })
}

/// A handle on a server that runs inside this process. Dropping it ends the server without waiting for the end.
#[derive(Debug)]
pub struct RunningServer {
    addr: SocketAddr,
    world: Arc<World>,
    task: JoinHandle<io::Result<()>>,
    _ends_with_handle: DropGuard,
}

impl RunningServer {
    /// Where it listens.
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

    /// Where the counter stands.
    pub fn counter(&self) -> u64 {
        self.world.counter()
    }

    /// The keys of all `counter` calls in order, the last 65,536 of them; `-` for a call without one. A key that
    /// is there twice was executed twice.
    pub fn counter_keys(&self) -> Vec<String> {
        self.world.counter_keys()
    }

    /// How many `tools/call` of known tools arrived.
    pub fn calls(&self) -> u64 {
        self.world.calls()
    }

    /// How many `initialize` were answered.
    pub fn initializes(&self) -> u64 {
        self.world.initializes()
    }

    /// How many requests are being handled, `subscriptions/listen` among them.
    pub fn in_flight(&self) -> usize {
        *self.world.in_flight().borrow()
    }

    /// Waits until no request is being handled.
    pub async fn until_idle(&self) {
        // The count lives as long as this handle.
        drop(self.world.in_flight().wait_for(|count| *count == 0).await);
    }

    /// Waits until no tool is being called, whoever listens meanwhile.
    pub async fn until_no_calls(&self) {
        drop(self.world.calls_in_flight().wait_for(|count| *count == 0).await);
    }

    /// How many sessions are alive.
    pub fn sessions(&self) -> usize {
        self.world.sessions.all().len()
    }

    /// Makes every session id a dead one, as a restart would. Calls in flight are still answered.
    pub fn forget_sessions(&self) {
        self.world.sessions.forget_all();
    }

    /// The active faults.
    pub fn faults(&self) -> Faults {
        (*self.world.faults()).clone()
    }

    /// Replaces the faults, from the next request on. The time or number of a refusal starts anew.
    pub fn set_faults(&self, faults: Faults) {
        self.world.set_faults(faults);
    }

    /// Adds a tool and tells the clients.
    pub async fn add_tool(&self, name: &str) {
        self.world.add_tool(Some(name));
        self.world.announce(Change::Tools).await;
    }

    /// Removes a tool and tells the clients. Says whether there was one.
    pub async fn remove_tool(&self, name: &str) -> bool {
        let found = self.world.remove_tool(name);
        if found {
            self.world.announce(Change::Tools).await;
        }
        found
    }

    /// Asks every session for a word, outside any request, and gives what they answered: bodies with `result` or
    /// `error`.
    pub async fn ask_sessions(&self, question: &str) -> Vec<Value> {
        let word = json!({ "type": "object", "properties": { "word": { "type": "string" } } });
        let form = json!({ "message": question, "requestedSchema": word });
        let asking = self.world.sessions.all().into_iter().map(|session| {
            let form = form.clone();
            async move { session.peer.ask_aside("elicitation/create", form).await }
        });
        futures_util::future::join_all(asking).await.into_iter().flatten().collect()
    }

    /// Reads and writes nothing more on any connection, as if packets were dropped, until [`Self::resume`].
    pub fn stall(&self) {
        self.world.set_flow(Flow::BlackHole, None);
    }

    /// Ends [`Self::stall`]; what was held back moves on.
    pub fn resume(&self) {
        self.world.set_flow(Flow::Open, None);
    }

    /// Resets every open connection. The server goes on.
    pub fn reset_connections(&self) {
        self.world.sessions.connections.reset_all();
    }

    /// Ends the server: no more listening, every connection closed. The port is free when this returns.
    pub async fn stop(self) {
        self.world.life.cancel();
        self.world.tasks.close();
        self.world.tasks.wait().await;
        // An accept error of the past is of no interest to somebody who wants the end.
        drop(self.task.await);
    }

    async fn wait(self) -> io::Result<()> {
        self.task.await?
    }
}

/// One request with its body read.
struct Arrival {
    world: Arc<World>,
    connection: Connection,
    parts: Parts,
    body: Bytes,
}

impl Arrival {
    async fn read(
        world: Arc<World>,
        connection: Connection,
        request: axum::extract::Request,
    ) -> Result<Self, Response> {
        let (parts, body) = request.into_parts();
        gate::check(&world, &parts)?;
        let body = to_bytes(body, MAX_BODY)
            .await
            .map_err(|error| text(StatusCode::PAYLOAD_TOO_LARGE, &error.to_string()))?;
        Ok(Self { world, connection, parts, body })
    }

    fn header(&self, name: &str) -> Option<&str> {
        header(&self.parts.headers, name)
    }

    fn json(&self) -> Result<Value, Response> {
        serde_json::from_slice(&self.body).map_err(|cause| {
            error(StatusCode::BAD_REQUEST, &Value::Null, &RpcError::new(PARSE_ERROR, cause.to_string()))
        })
    }

    /// Headers may show the modern era where the body forgot to.
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
    State(world): State<Arc<World>>,
    ConnectInfo(connection): ConnectInfo<Connection>,
    request: axum::extract::Request,
) -> Response {
    match answer(world, connection, request).await {
        Ok(response) | Err(response) => response,
    }
}

async fn answer(
    world: Arc<World>,
    connection: Connection,
    request: axum::extract::Request,
) -> Result<Response, Response> {
    let arrival = Arrival::read(world, connection, request).await?;
    let modern_only = arrival.world.options.era == EraChoice::Modern;
    match arrival.parts.method {
        Method::POST => {}
        Method::GET if !modern_only => return legacy::get(&arrival),
        Method::DELETE if !modern_only => return legacy::delete(&arrival),
        _ => return Err(respond::not_allowed(if modern_only { "POST" } else { "POST, GET, DELETE" })),
    }
    gate::check_post(&arrival)?;
    let value = arrival.json()?;
    if let Value::Array(members) = value {
        return legacy::post_batch(&arrival, members).await;
    }
    match Message::sort(value) {
        Message::Request(call) => match (arrival.era(&call), arrival.world.options.era) {
            (Era::Modern, EraChoice::Both) | (Era::Modern | Era::Legacy, EraChoice::Modern) => {
                modern::post(&arrival, call).await
            }
            (Era::Legacy, EraChoice::Both) | (Era::Modern | Era::Legacy, EraChoice::Legacy) => {
                legacy::post(&arrival, call).await
            }
        },
        // The modern era defines no such message from client to server.
        Message::Notification { .. } if modern_only => Ok(respond::accepted()),
        Message::Notification { method, params } => legacy::notified(&arrival, &method, &params),
        Message::Response { id, body } => legacy::answered(&arrival, &id, body),
        Message::Malformed(cause) => Err(error(StatusCode::BAD_REQUEST, &Value::Null, &cause)),
    }
}
