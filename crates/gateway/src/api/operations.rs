//! Table of all operations of the admin API. The router and the document at `/api/v1/openapi.json` are both made from
//! this table, so that they cannot differ.

use super::handlers::calls::calls;
use super::handlers::config::{ConfigView, config};
use super::handlers::login;
use super::handlers::login::LoginView;
use super::handlers::pins;
use super::handlers::replicas::replicas;
use super::handlers::sessions::{SessionsView, sessions};
use super::handlers::sign_in;
use super::handlers::sign_in::DashboardSessionView;
use super::handlers::tools::{ToolCallRequest, ToolCallView, ToolsView};
use super::history::HistoryView;
use super::router;
use super::types::{
    ApprovedView, CallsView, DecisionView, DetailView, FleetView, LogView, PinsView, RefusalView,
    ReplicaView, SignInCodeView, UpstreamView,
};
use super::{Admin, openapi};
use crate::reload::ReloadOutcome;
use axum::routing::{MethodRouter, get, post};
use gripfast::ledger::Query;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde_json::{Value, json};
use std::sync::Arc;

/// One operation of the admin API.
pub(super) struct Operation {
    pub(super) method: Method,
    /// Path below `/api/v1`.
    pub(super) path: &'static str,
    /// `operationId` in the document, for client generators.
    pub(super) id: &'static str,
    pub(super) summary: &'static str,
    /// Parameters besides the name of the server, which every path below `/upstreams` has.
    pub(super) parameters: &'static [Parameter],
    /// Schema of the request body.
    pub(super) body: Option<SchemaOf>,
    pub(super) response: OperationResponse,
    /// Error responses besides those for a missing token, which every POST has.
    pub(super) errors: &'static [OperationError],
    pub(super) route: Route,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Method {
    /// Reads; open on this machine.
    Get,
    /// Acts; needs the token.
    Post,
}

/// Parameter in the path, the query or a header.
pub(super) enum Parameter {
    Path { name: &'static str, text: &'static str, words: &'static [&'static str] },
    Query { name: &'static str, text: &'static str, schema: fn() -> Value },
    Header { name: &'static str, text: &'static str },
}

type Route = fn() -> MethodRouter<Arc<Admin>>;

pub(super) type SchemaOf = fn(&mut SchemaGenerator) -> Schema;

/// Successful response.
pub(super) enum OperationResponse {
    Json { status: u16, text: &'static str, schema: SchemaOf },
    Events { text: &'static str },
    Document,
}

/// Error response.
pub(super) struct OperationError {
    pub(super) status: u16,
    pub(super) text: &'static str,
}

impl Operation {
    /// An operation that reads. Its response is a document until another one is set.
    const fn get(path: &'static str, id: &'static str, route: Route) -> Self {
        Self {
            method: Method::Get,
            path,
            id,
            summary: "",
            parameters: &[],
            body: None,
            response: OperationResponse::Document,
            errors: &[],
            route,
        }
    }

    /// An operation that acts.
    const fn post(path: &'static str, id: &'static str, route: Route) -> Self {
        Self { method: Method::Post, ..Self::get(path, id, route) }
    }

    const fn about(self, summary: &'static str) -> Self {
        Self { summary, ..self }
    }

    const fn with_parameters(self, parameters: &'static [Parameter]) -> Self {
        Self { parameters, ..self }
    }

    /// Sets the type of the request body.
    const fn takes<T: JsonSchema>(self) -> Self {
        Self { body: Some(schema_of::<T>), ..self }
    }

    /// Sets the type of the response.
    const fn returns<T: JsonSchema>(self, text: &'static str) -> Self {
        Self { response: OperationResponse::Json { status: 200, text, schema: schema_of::<T> }, ..self }
    }

    /// Sets the type of the response to an action that goes on after it.
    const fn accepts<T: JsonSchema>(self, text: &'static str) -> Self {
        Self { response: OperationResponse::Json { status: 202, text, schema: schema_of::<T> }, ..self }
    }

    /// Makes the response an event stream.
    const fn streams(self, text: &'static str) -> Self {
        Self { response: OperationResponse::Events { text }, ..self }
    }

    const fn with_errors(self, errors: &'static [OperationError]) -> Self {
        Self { errors, ..self }
    }
}

const fn path(name: &'static str, text: &'static str) -> Parameter {
    Parameter::Path { name, text, words: &[] }
}

const fn query(name: &'static str, text: &'static str, schema: fn() -> Value) -> Parameter {
    Parameter::Query { name, text, schema }
}

const fn error(status: u16, text: &'static str) -> OperationError {
    OperationError { status, text }
}

pub(super) const SERVER: Parameter = path("name", "Name of a server.");

const INVALID_REQUEST: OperationError = error(400, "The request is malformed.");
const NO_SUCH_SERVER: OperationError = error(404, "There is no server with this name.");
const CONFLICT: OperationError = error(409, "The server is disabled or its config is invalid.");
const SERVER_ERRORS: &[OperationError] = &[INVALID_REQUEST, NO_SUCH_SERVER, CONFLICT];
const NO_RANDOMNESS: OperationError = error(500, "The system random number generator failed.");

pub(super) const OPERATIONS: &[Operation] = &[
    Operation::get("/status", "status", || get(router::status))
        .about("Status of the gateway and of all servers.")
        .returns::<FleetView>("Status."),
    Operation::get("/upstreams/{name}", "upstream", || get(router::upstream))
        .about("Status of one server, with its last events and its last lines of stderr.")
        .returns::<DetailView>("Status of the server.")
        .with_errors(&[INVALID_REQUEST, NO_SUCH_SERVER]),
    Operation::get("/upstreams/{name}/tools", "tools", || get(router::tools))
        .about("Known tools of a server. Does not start the server.")
        .returns::<ToolsView<'static>>("Tools of the server.")
        .with_errors(SERVER_ERRORS),
    Operation::get("/upstreams/{name}/log", "log", || get(router::log))
        .about("Lines that a server wrote to stderr.")
        .with_parameters(&[query(
            "from",
            "Number of the first line to return.",
            || json!({ "type": "integer", "minimum": 0, "maximum": u64::MAX }),
        )])
        .returns::<LogView>("Numbered lines.")
        .with_errors(SERVER_ERRORS),
    Operation::get("/pins", "pins", || get(pins::all))
        .about("Pins of all servers: approved tools, and tools that differ from the approved definition.")
        .returns::<PinsView>("Pins.")
        .with_errors(&[NO_SUCH_SERVER, CONFLICT]),
    Operation::get("/upstreams/{name}/pins", "pinsOf", || get(pins::of_server))
        .about("Pins of one server.")
        .returns::<PinsView>("Pins.")
        .with_errors(SERVER_ERRORS),
    Operation::post("/upstreams/{name}/pins/approve", "approveAll", || post(pins::approve_all))
        .about("Approves the current definitions of all tools of a server.")
        .returns::<ApprovedView>("Approved tools.")
        .with_errors(SERVER_ERRORS),
    Operation::post("/upstreams/{name}/pins/{tool}/approve", "approve", || post(pins::approve_one))
        .about("Approves the current definition of one tool of a server.")
        .with_parameters(&[path("tool", "Name of a tool as the server names it.")])
        .returns::<ApprovedView>("Approved tools.")
        .with_errors(SERVER_ERRORS),
    Operation::post("/upstreams/{name}/call", "call", || post(router::call))
        .about("Calls a tool, as an MCP client would.")
        .takes::<ToolCallRequest>()
        .returns::<ToolCallView<'static>>(
            "Result of the call. A result with `isError` is an error that the tool reports.",
        )
        .with_errors(&[
            INVALID_REQUEST,
            error(404, "There is no server or no tool with this name."),
            CONFLICT,
            error(408, "The request body was not complete after 60 s."),
            error(413, "The request body is larger than 16 MiB."),
            error(429, "A call budget is used up, or too many calls are waiting."),
            error(502, "The server is unreachable, or answered with an error."),
            error(504, "The server did not answer in time."),
        ]),
    Operation::post("/upstreams/{name}/login", "login", || post(login::start))
        .about(
            "Starts a login. Returns the page to open in a browser, which is redirected back \
            to this gateway.",
        )
        .returns::<LoginView<'static>>("Login page, valid for ten minutes.")
        .with_errors(&[
            INVALID_REQUEST,
            NO_SUCH_SERVER,
            error(409, "The server needs no login, or its login is not possible through this gateway."),
            error(502, "The server or its authorization server is unreachable or refused."),
        ]),
    Operation::post("/upstreams/{name}/{action}", "act", || post(router::run_action))
        .about("Runs an action on a server.")
        .with_parameters(&[Parameter::Path {
            name: "action",
            text: "`reconnect` replaces the link; `reload` also resets circuit and restart budget.",
            words: &["reconnect", "reload", "stop", "start"],
        }])
        .accepts::<UpstreamView>("The action was accepted; the current status of the server.")
        .with_errors(&[
            INVALID_REQUEST,
            error(404, "There is no server or no action with this name."),
            CONFLICT,
        ]),
    Operation::get("/policy/{client}/{server}/{tool}", "policy", || get(router::policy))
        .about("Policy decision for a client and a tool, with the reason.")
        .with_parameters(&[
            path("client", "Principal that would call the tool."),
            path("server", "Name of a server."),
            path("tool", "Name of a tool as the server names it."),
        ])
        .returns::<DecisionView>("Decision.")
        .with_errors(SERVER_ERRORS),
    Operation::post("/reload", "reload", || post(router::reload))
        .about("Reads the config file now and applies it.")
        .returns::<ReloadOutcome>("Applied changes.")
        .with_errors(&[
            error(409, "This gateway has no config file."),
            error(422, "The config is invalid; the previous config stays in use."),
        ]),
    Operation::post(sign_in::LINK_PATH, "signInLink", || post(sign_in::link))
        .about(
            "Creates a one-time code for a sign-in link, `/#/sign-in/CODE`. Needs the admin \
            token itself.",
        )
        .returns::<SignInCodeView>("Code.")
        .with_errors(&[NO_RANDOMNESS]),
    Operation::post(sign_in::EXCHANGE_PATH, "signIn", || post(sign_in::exchange))
        .about("Exchanges the one-time code of a sign-in link, sent as the bearer token, for a session key.")
        .returns::<DashboardSessionView>("Session.")
        .with_errors(&[NO_RANDOMNESS]),
    Operation::get("/history", "history", || get(router::history))
        .about(
            "History of every server: states of the last day, and calls per minute of the \
            last three hours.",
        )
        .returns::<HistoryView>("History."),
    Operation::get("/events", "events", || get(router::events))
        .about("Stream of events.")
        .with_parameters(&[Parameter::Header {
            name: "Last-Event-ID",
            text: "Id of the last event received; the stream starts with the events after it.",
        }])
        .streams("Endless event stream; the data of each message is an `Event`."),
    Operation::get("/calls", "calls", || get(calls))
        .about("Tool calls with their outcomes, the newest first.")
        .with_parameters(&[
            query("unknown", "Only calls with an unknown outcome.", || json!({ "type": "boolean" })),
            query("server", "Only calls to this server.", || json!({ "type": "string" })),
            query(
                "since_ms",
                "Only calls started at or after this time, in milliseconds since the Unix epoch.",
                || json!({ "type": "integer", "minimum": 0, "maximum": u64::MAX }),
            ),
            query(
                "limit",
                "Maximum number of calls.",
                || json!({ "type": "integer", "minimum": 0, "maximum": Query::MAX_LIMIT }),
            ),
        ])
        .returns::<CallsView>("Calls.")
        .with_errors(&[INVALID_REQUEST, error(500, "The ledger cannot be read.")]),
    Operation::get("/config", "config", || get(config))
        .about("Config in force, without secrets, with the source of each value.")
        .returns::<ConfigView>("Config."),
    Operation::get("/replicas", "replicas", || get(replicas))
        .about("The replicas of the service.")
        .returns::<Vec<ReplicaView>>(
            "All live and lost replicas; none if the gateway runs alone or has not joined.",
        ),
    Operation::get("/sessions", "sessions", || get(sessions))
        .about("Sessions of legacy clients, the most recently used first.")
        .returns::<SessionsView>("Sessions."),
    Operation::get("/openapi.json", "openapi", || get(openapi::serve)).about("This document."),
];

pub(super) fn schema_of<T: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    generator.subschema_for::<T>()
}

pub(super) fn error_schema(generator: &mut SchemaGenerator) -> Schema {
    schema_of::<RefusalView>(generator)
}
