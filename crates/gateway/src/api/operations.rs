//! Table of all operations of the admin API. The router and the document at `/api/v1/openapi.json` are both made from
//! this table, so that they cannot differ.

use super::handlers::calls::{CallsView, calls};
use super::handlers::config::{ConfigView, config};
use super::handlers::login;
use super::handlers::login::LoginView;
use super::handlers::pins;
use super::handlers::pins::{ApprovedView, PinsView};
use super::handlers::sessions::{SessionsView, sessions};
use super::handlers::sign_in;
use super::handlers::sign_in::{DashboardSessionView, SignInCodeView};
use super::handlers::tools::{DecisionView, ToolCallRequest, ToolCallView, ToolsView};
use super::history::HistoryView;
use super::response::RefusalView;
use super::router;
use super::types::{DetailView, FleetView, LogView, UpstreamView};
use super::{Admin, openapi};
use crate::reload::ReloadOutcome;
use axum::routing::{MethodRouter, get, post};
use gripfast::ledger::Query;
use schemars::{Schema, SchemaGenerator};
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
    pub(super) parameters: &'static [Parameter],
    /// Schema of the request body.
    pub(super) body: Option<SchemaOf>,
    pub(super) response: OperationResponse,
    /// Error responses besides those for a missing token, which every POST has.
    pub(super) errors: &'static [OperationError],
    pub(super) route: fn() -> MethodRouter<Arc<Admin>>,
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

const SERVER: Parameter = Parameter::Path { name: "name", text: "Name of a server.", words: &[] };

const INVALID_REQUEST: OperationError = OperationError { status: 400, text: "The request is malformed." };
const NO_SUCH_SERVER: OperationError =
    OperationError { status: 404, text: "There is no server with this name." };
const CONFLICT: OperationError =
    OperationError { status: 409, text: "The server is disabled or its config is invalid." };

const NO_RANDOMNESS: OperationError =
    OperationError { status: 500, text: "The system random number generator failed." };

pub(super) const OPERATIONS: &[Operation] = &[
    Operation {
        method: Method::Get,
        path: "/status",
        id: "status",
        summary: "Status of the gateway and of all servers.",
        parameters: &[],
        body: None,
        response: OperationResponse::Json { status: 200, text: "Status.", schema: schema_of::<FleetView> },
        errors: &[],
        route: || get(router::status),
    },
    Operation {
        method: Method::Get,
        path: "/upstreams/{name}",
        id: "upstream",
        summary: "Status of one server, with its last events and its last lines of stderr.",
        parameters: &[SERVER],
        body: None,
        response: OperationResponse::Json {
            status: 200,
            text: "Status of the server.",
            schema: schema_of::<DetailView>,
        },
        errors: &[INVALID_REQUEST, NO_SUCH_SERVER],
        route: || get(router::upstream),
    },
    Operation {
        method: Method::Get,
        path: "/upstreams/{name}/tools",
        id: "tools",
        summary: "Known tools of a server. Does not start the server.",
        parameters: &[SERVER],
        body: None,
        response: OperationResponse::Json {
            status: 200,
            text: "Tools of the server.",
            schema: schema_of::<ToolsView<'static>>,
        },
        errors: &[INVALID_REQUEST, NO_SUCH_SERVER, CONFLICT],
        route: || get(router::tools),
    },
    Operation {
        method: Method::Get,
        path: "/upstreams/{name}/log",
        id: "log",
        summary: "Lines that a server wrote to stderr.",
        parameters: &[
            SERVER,
            Parameter::Query {
                name: "from",
                text: "Number of the first line to return.",
                schema: || json!({ "type": "integer", "minimum": 0, "maximum": u64::MAX }),
            },
        ],
        body: None,
        response: OperationResponse::Json {
            status: 200,
            text: "Numbered lines.",
            schema: schema_of::<LogView<'static>>,
        },
        errors: &[INVALID_REQUEST, NO_SUCH_SERVER, CONFLICT],
        route: || get(router::log),
    },
    Operation {
        method: Method::Get,
        path: "/pins",
        id: "pins",
        summary: "Pins of all servers: approved tools, and tools that differ from the approved definition.",
        parameters: &[],
        body: None,
        response: OperationResponse::Json { status: 200, text: "Pins.", schema: schema_of::<PinsView> },
        errors: &[NO_SUCH_SERVER, CONFLICT],
        route: || get(pins::all),
    },
    Operation {
        method: Method::Get,
        path: "/upstreams/{name}/pins",
        id: "pinsOf",
        summary: "Pins of one server.",
        parameters: &[SERVER],
        body: None,
        response: OperationResponse::Json { status: 200, text: "Pins.", schema: schema_of::<PinsView> },
        errors: &[INVALID_REQUEST, NO_SUCH_SERVER, CONFLICT],
        route: || get(pins::of_server),
    },
    Operation {
        method: Method::Post,
        path: "/upstreams/{name}/pins/approve",
        id: "approveAll",
        summary: "Approves the current definitions of all tools of a server.",
        parameters: &[SERVER],
        body: None,
        response: OperationResponse::Json {
            status: 200,
            text: "Approved tools.",
            schema: schema_of::<ApprovedView>,
        },
        errors: &[INVALID_REQUEST, NO_SUCH_SERVER, CONFLICT],
        route: || post(pins::approve_all),
    },
    Operation {
        method: Method::Post,
        path: "/upstreams/{name}/pins/{tool}/approve",
        id: "approve",
        summary: "Approves the current definition of one tool of a server.",
        parameters: &[
            SERVER,
            Parameter::Path { name: "tool", text: "Name of a tool as the server names it.", words: &[] },
        ],
        body: None,
        response: OperationResponse::Json {
            status: 200,
            text: "Approved tools.",
            schema: schema_of::<ApprovedView>,
        },
        errors: &[INVALID_REQUEST, NO_SUCH_SERVER, CONFLICT],
        route: || post(pins::approve_one),
    },
    Operation {
        method: Method::Post,
        path: "/upstreams/{name}/call",
        id: "call",
        summary: "Calls a tool, as an MCP client would.",
        parameters: &[SERVER],
        body: Some(schema_of::<ToolCallRequest>),
        response: OperationResponse::Json {
            status: 200,
            text: "Result of the call. A result with `isError` is an error that the tool reports.",
            schema: schema_of::<ToolCallView<'static>>,
        },
        errors: &[
            INVALID_REQUEST,
            OperationError { status: 404, text: "There is no server or no tool with this name." },
            CONFLICT,
            OperationError { status: 408, text: "The request body was not complete after 60 s." },
            OperationError { status: 413, text: "The request body is larger than 16 MiB." },
            OperationError { status: 429, text: "A call budget is used up, or too many calls are waiting." },
            OperationError { status: 502, text: "The server is unreachable, or answered with an error." },
            OperationError { status: 504, text: "The server did not answer in time." },
        ],
        route: || post(router::call),
    },
    Operation {
        method: Method::Post,
        path: "/upstreams/{name}/login",
        id: "login",
        summary: "Starts a login. Returns the page to open in a browser, which is redirected back to this gateway.",
        parameters: &[SERVER],
        body: None,
        response: OperationResponse::Json {
            status: 200,
            text: "Login page, valid for ten minutes.",
            schema: schema_of::<LoginView<'static>>,
        },
        errors: &[
            INVALID_REQUEST,
            NO_SUCH_SERVER,
            OperationError {
                status: 409,
                text: "The server needs no login, or its login is not possible through this gateway.",
            },
            OperationError {
                status: 502,
                text: "The server or its authorization server is unreachable or refused.",
            },
        ],
        route: || post(login::start),
    },
    Operation {
        method: Method::Post,
        path: "/upstreams/{name}/{action}",
        id: "act",
        summary: "Runs an action on a server.",
        parameters: &[
            SERVER,
            Parameter::Path {
                name: "action",
                text: "`reconnect` replaces the link; `reload` also resets circuit and restart budget.",
                words: &["reconnect", "reload", "stop", "start"],
            },
        ],
        body: None,
        response: OperationResponse::Json {
            status: 202,
            text: "The action was accepted; the current status of the server.",
            schema: schema_of::<UpstreamView>,
        },
        errors: &[
            INVALID_REQUEST,
            OperationError { status: 404, text: "There is no server or no action with this name." },
            CONFLICT,
        ],
        route: || post(router::run_action),
    },
    Operation {
        method: Method::Get,
        path: "/policy/{client}/{server}/{tool}",
        id: "policy",
        summary: "Policy decision for a client and a tool, with the reason.",
        parameters: &[
            Parameter::Path { name: "client", text: "Principal that would call the tool.", words: &[] },
            Parameter::Path { name: "server", text: "Name of a server.", words: &[] },
            Parameter::Path { name: "tool", text: "Name of a tool as the server names it.", words: &[] },
        ],
        body: None,
        response: OperationResponse::Json {
            status: 200,
            text: "Decision.",
            schema: schema_of::<DecisionView<'static>>,
        },
        errors: &[INVALID_REQUEST, NO_SUCH_SERVER, CONFLICT],
        route: || get(router::policy),
    },
    Operation {
        method: Method::Post,
        path: "/reload",
        id: "reload",
        summary: "Reads the config file now and applies it.",
        parameters: &[],
        body: None,
        response: OperationResponse::Json {
            status: 200,
            text: "Applied changes.",
            schema: schema_of::<ReloadOutcome>,
        },
        errors: &[
            OperationError { status: 409, text: "This gateway has no config file." },
            OperationError { status: 422, text: "The config is invalid; the previous config stays in use." },
        ],
        route: || post(router::reload),
    },
    Operation {
        method: Method::Post,
        path: sign_in::LINK_PATH,
        id: "signInLink",
        summary: "Creates a one-time code for a sign-in link, `/#/sign-in/CODE`. Needs the admin token itself.",
        parameters: &[],
        body: None,
        response: OperationResponse::Json { status: 200, text: "Code.", schema: schema_of::<SignInCodeView> },
        errors: &[NO_RANDOMNESS],
        route: || post(sign_in::link),
    },
    Operation {
        method: Method::Post,
        path: sign_in::EXCHANGE_PATH,
        id: "signIn",
        summary: "Exchanges the one-time code of a sign-in link, sent as the bearer token, for a session key.",
        parameters: &[],
        body: None,
        response: OperationResponse::Json {
            status: 200,
            text: "Session.",
            schema: schema_of::<DashboardSessionView>,
        },
        errors: &[NO_RANDOMNESS],
        route: || post(sign_in::exchange),
    },
    Operation {
        method: Method::Get,
        path: "/history",
        id: "history",
        summary: "History of every server: states of the last day, and calls per minute of the last three hours.",
        parameters: &[],
        body: None,
        response: OperationResponse::Json { status: 200, text: "History.", schema: schema_of::<HistoryView> },
        errors: &[],
        route: || get(router::history),
    },
    Operation {
        method: Method::Get,
        path: "/events",
        id: "events",
        summary: "Stream of events.",
        parameters: &[Parameter::Header {
            name: "Last-Event-ID",
            text: "Id of the last event received; the stream starts with the events after it.",
        }],
        body: None,
        response: OperationResponse::Events {
            text: "Endless event stream; the data of each message is an `Event`.",
        },
        errors: &[],
        route: || get(router::events),
    },
    Operation {
        method: Method::Get,
        path: "/calls",
        id: "calls",
        summary: "Tool calls with their outcomes, the newest first.",
        parameters: &[
            Parameter::Query {
                name: "unknown",
                text: "Only calls with an unknown outcome.",
                schema: || json!({ "type": "boolean" }),
            },
            Parameter::Query {
                name: "server",
                text: "Only calls to this server.",
                schema: || json!({ "type": "string" }),
            },
            Parameter::Query {
                name: "since_ms",
                text: "Only calls started at or after this time, in milliseconds since the Unix epoch.",
                schema: || json!({ "type": "integer", "minimum": 0, "maximum": u64::MAX }),
            },
            Parameter::Query {
                name: "limit",
                text: "Maximum number of calls.",
                schema: || json!({ "type": "integer", "minimum": 0, "maximum": Query::MAX_LIMIT }),
            },
        ],
        body: None,
        response: OperationResponse::Json { status: 200, text: "Calls.", schema: schema_of::<CallsView> },
        errors: &[INVALID_REQUEST, OperationError { status: 500, text: "The ledger cannot be read." }],
        route: || get(calls),
    },
    Operation {
        method: Method::Get,
        path: "/config",
        id: "config",
        summary: "Config in force, without secrets, with the source of each value.",
        parameters: &[],
        body: None,
        response: OperationResponse::Json { status: 200, text: "Config.", schema: schema_of::<ConfigView> },
        errors: &[],
        route: || get(config),
    },
    Operation {
        method: Method::Get,
        path: "/sessions",
        id: "sessions",
        summary: "Sessions of legacy clients, the most recently used first.",
        parameters: &[],
        body: None,
        response: OperationResponse::Json {
            status: 200,
            text: "Sessions.",
            schema: schema_of::<SessionsView>,
        },
        errors: &[],
        route: || get(sessions),
    },
    Operation {
        method: Method::Get,
        path: "/openapi.json",
        id: "openapi",
        summary: "This document.",
        parameters: &[],
        body: None,
        response: OperationResponse::Document,
        errors: &[],
        route: || get(openapi::serve),
    },
];

pub(super) fn schema_of<T: schemars::JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    generator.subschema_for::<T>()
}

pub(super) fn error_schema(generator: &mut SchemaGenerator) -> Schema {
    schema_of::<RefusalView<'static>>(generator)
}
