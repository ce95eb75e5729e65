//! Everything that can be asked of the admin API: one entry each. The router serves this table and the document
//! at `/api/v1/openapi.json` describes it, so that neither can forget what the other has.

use super::answer::RefusalView;
use super::calls::{CallsView, calls};
use super::config::{ConfigView, config};
use super::history::HistoryView;
use super::login::{self, LoginView};
use super::pins::{self, ApprovedView, PinsView};
use super::routes;
use super::sessions::{SessionsView, sessions};
use super::sign_in::{self, SessionView, SignInCodeView};
use super::tools::{AnswerView, DecisionView, ToolsView, Wanted};
use super::view::{DetailView, FleetView, LogView, UpstreamView};
use super::{Admin, openapi};
use crate::reload::Reloaded;
use axum::routing::{MethodRouter, get, post};
use gripfast::ledger::Query;
use schemars::{Schema, SchemaGenerator};
use serde_json::{Value, json};
use std::sync::Arc;

/// One thing that can be asked.
pub(super) struct Operation {
    pub(super) method: Method,
    /// Under `/api/v1`.
    pub(super) path: &'static str,
    /// Its name in the document, for those who make clients from it.
    pub(super) id: &'static str,
    pub(super) summary: &'static str,
    pub(super) parameters: &'static [Parameter],
    /// What is sent along.
    pub(super) body: Option<SchemaOf>,
    pub(super) answer: Answer,
    /// How it may be refused, beyond the token that every POST needs.
    pub(super) refusals: &'static [Refused],
    pub(super) serve: fn() -> MethodRouter<Arc<Admin>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Method {
    /// Reading is open.
    Get,
    /// Acting needs the token.
    Post,
}

/// A part of the path, or of the query.
pub(super) enum Parameter {
    Path { name: &'static str, text: &'static str, words: &'static [&'static str] },
    Query { name: &'static str, text: &'static str, schema: fn() -> Value },
    Header { name: &'static str, text: &'static str },
}

pub(super) type SchemaOf = fn(&mut SchemaGenerator) -> Schema;

/// What comes back if all is well.
pub(super) enum Answer {
    Json { status: u16, text: &'static str, schema: SchemaOf },
    Events { text: &'static str },
    Document,
}

/// Why nothing came of it.
pub(super) struct Refused {
    pub(super) status: u16,
    pub(super) text: &'static str,
}

const SERVER: Parameter = Parameter::Path { name: "name", text: "The name of a server.", words: &[] };

const MISWRITTEN: Refused = Refused { status: 400, text: "The request cannot be read." };
const NO_SUCH_SERVER: Refused = Refused { status: 404, text: "There is no server of this name." };
const NOT_USABLE: Refused =
    Refused { status: 409, text: "As it is configured, there is nothing to act on or to look at." };

const NO_RANDOMNESS: Refused = Refused { status: 500, text: "The system gave no randomness." };

pub(super) const OPERATIONS: &[Operation] = &[
    Operation {
        method: Method::Get,
        path: "/status",
        id: "status",
        summary: "The facts about all servers.",
        parameters: &[],
        body: None,
        answer: Answer::Json { status: 200, text: "The fleet.", schema: of::<FleetView> },
        refusals: &[],
        serve: || get(routes::fleet),
    },
    Operation {
        method: Method::Get,
        path: "/upstreams/{name}",
        id: "upstream",
        summary: "The facts about one server, with its last events and its last lines on stderr.",
        parameters: &[SERVER],
        body: None,
        answer: Answer::Json { status: 200, text: "The server.", schema: of::<DetailView> },
        refusals: &[MISWRITTEN, NO_SUCH_SERVER],
        serve: || get(routes::upstream),
    },
    Operation {
        method: Method::Get,
        path: "/upstreams/{name}/tools",
        id: "tools",
        summary: "What a server is known to offer. Looking does not start it.",
        parameters: &[SERVER],
        body: None,
        answer: Answer::Json { status: 200, text: "Its tools.", schema: of::<ToolsView<'static>> },
        refusals: &[MISWRITTEN, NO_SUCH_SERVER, NOT_USABLE],
        serve: || get(routes::tools),
    },
    Operation {
        method: Method::Get,
        path: "/upstreams/{name}/log",
        id: "log",
        summary: "What a server wrote to stderr.",
        parameters: &[
            SERVER,
            Parameter::Query {
                name: "from",
                text: "The number of the first line that is wanted.",
                schema: || json!({ "type": "integer", "minimum": 0, "maximum": u64::MAX }),
            },
        ],
        body: None,
        answer: Answer::Json { status: 200, text: "Lines, numbered.", schema: of::<LogView<'static>> },
        refusals: &[MISWRITTEN, NO_SUCH_SERVER, NOT_USABLE],
        serve: || get(routes::log),
    },
    Operation {
        method: Method::Get,
        path: "/pins",
        id: "pins",
        summary: "The pins of all servers: what was approved, and what says something else by now.",
        parameters: &[],
        body: None,
        answer: Answer::Json { status: 200, text: "Pins.", schema: of::<PinsView> },
        refusals: &[NO_SUCH_SERVER, NOT_USABLE],
        serve: || get(pins::all),
    },
    Operation {
        method: Method::Get,
        path: "/upstreams/{name}/pins",
        id: "pinsOf",
        summary: "The pins of one server.",
        parameters: &[SERVER],
        body: None,
        answer: Answer::Json { status: 200, text: "Pins.", schema: of::<PinsView> },
        refusals: &[MISWRITTEN, NO_SUCH_SERVER, NOT_USABLE],
        serve: || get(pins::of_server),
    },
    Operation {
        method: Method::Post,
        path: "/upstreams/{name}/pins/approve",
        id: "approveAll",
        summary: "Approves all tools of a server as they are by now.",
        parameters: &[SERVER],
        body: None,
        answer: Answer::Json { status: 200, text: "What was approved.", schema: of::<ApprovedView> },
        refusals: &[MISWRITTEN, NO_SUCH_SERVER, NOT_USABLE],
        serve: || post(pins::approve_all),
    },
    Operation {
        method: Method::Post,
        path: "/upstreams/{name}/pins/{tool}/approve",
        id: "approve",
        summary: "Approves one tool of a server as it is by now.",
        parameters: &[
            SERVER,
            Parameter::Path { name: "tool", text: "The server's own name of a tool.", words: &[] },
        ],
        body: None,
        answer: Answer::Json { status: 200, text: "What was approved.", schema: of::<ApprovedView> },
        refusals: &[MISWRITTEN, NO_SUCH_SERVER, NOT_USABLE],
        serve: || post(pins::approve_one),
    },
    Operation {
        method: Method::Post,
        path: "/upstreams/{name}/call",
        id: "call",
        summary: "Calls a tool, as any client would.",
        parameters: &[SERVER],
        body: Some(of::<Wanted>),
        answer: Answer::Json {
            status: 200,
            text: "What the server answered; `isError` in it is the tool's own word.",
            schema: of::<AnswerView<'static>>,
        },
        refusals: &[
            MISWRITTEN,
            Refused { status: 404, text: "There is no server or no tool of this name." },
            NOT_USABLE,
            Refused { status: 408, text: "The body was not complete after 60 s." },
            Refused { status: 413, text: "The body is over 16 MiB." },
            Refused { status: 429, text: "A budget is used up, or too many calls wait already." },
            Refused { status: 502, text: "The server could not be reached, or answered with an error." },
            Refused { status: 504, text: "The server did not answer in time." },
        ],
        serve: || post(routes::call),
    },
    Operation {
        method: Method::Post,
        path: "/upstreams/{name}/login",
        id: "login",
        summary: "Begins a login: says which page a person has to open, whose browser then comes back to this gateway.",
        parameters: &[SERVER],
        body: None,
        answer: Answer::Json {
            status: 200,
            text: "Where to send the person, for the next ten minutes.",
            schema: of::<LoginView<'static>>,
        },
        refusals: &[
            MISWRITTEN,
            NO_SUCH_SERVER,
            Refused { status: 409, text: "It takes no login, or not one that can be made here." },
            Refused {
                status: 502,
                text: "The server or its authorization server cannot be reached, or says no.",
            },
        ],
        serve: || post(login::begin),
    },
    Operation {
        method: Method::Post,
        path: "/upstreams/{name}/{action}",
        id: "act",
        summary: "Operates a server.",
        parameters: &[
            SERVER,
            Parameter::Path {
                name: "action",
                text: "What to do: replace its link, forget all bad memories and replace its link, stop it, start it.",
                words: &["reconnect", "reload", "stop", "start"],
            },
        ],
        body: None,
        answer: Answer::Json {
            status: 202,
            text: "It will be done; this is how the server is now.",
            schema: of::<UpstreamView>,
        },
        refusals: &[
            MISWRITTEN,
            Refused { status: 404, text: "There is no server or no action of this name." },
            NOT_USABLE,
        ],
        serve: || post(routes::act),
    },
    Operation {
        method: Method::Get,
        path: "/policy/{client}/{server}/{tool}",
        id: "policy",
        summary: "What the lists say about a client and a tool, and why.",
        parameters: &[
            Parameter::Path { name: "client", text: "On whose behalf it would be called.", words: &[] },
            Parameter::Path { name: "server", text: "The name of a server.", words: &[] },
            Parameter::Path { name: "tool", text: "The server's own name of a tool.", words: &[] },
        ],
        body: None,
        answer: Answer::Json { status: 200, text: "The decision.", schema: of::<DecisionView<'static>> },
        refusals: &[MISWRITTEN, NO_SUCH_SERVER, NOT_USABLE],
        serve: || get(routes::policy),
    },
    Operation {
        method: Method::Post,
        path: "/reload",
        id: "reload",
        summary: "Looks at the config file now, and takes what it says.",
        parameters: &[],
        body: None,
        answer: Answer::Json { status: 200, text: "What was done about it.", schema: of::<Reloaded> },
        refusals: &[
            Refused { status: 409, text: "This gateway goes by no file." },
            Refused { status: 422, text: "The config cannot be used; the one before it stays in use." },
        ],
        serve: || post(routes::reload),
    },
    Operation {
        method: Method::Post,
        path: sign_in::LINK,
        id: "signInLink",
        summary: "Makes a one-time code for a sign-in link: `/#/sign-in/CODE`. Needs the admin token itself.",
        parameters: &[],
        body: None,
        answer: Answer::Json { status: 200, text: "The code.", schema: of::<SignInCodeView> },
        refusals: &[NO_RANDOMNESS],
        serve: || post(sign_in::link),
    },
    Operation {
        method: Method::Post,
        path: sign_in::EXCHANGE,
        id: "signIn",
        summary: "Exchanges the one-time code of a sign-in link, shown as the bearer token, for a session key.",
        parameters: &[],
        body: None,
        answer: Answer::Json { status: 200, text: "The session.", schema: of::<SessionView> },
        refusals: &[NO_RANDOMNESS],
        serve: || post(sign_in::exchange),
    },
    Operation {
        method: Method::Get,
        path: "/history",
        id: "history",
        summary: "The last day of every server: its states, and its calls by the minute.",
        parameters: &[],
        body: None,
        answer: Answer::Json { status: 200, text: "The past.", schema: of::<HistoryView> },
        refusals: &[],
        serve: || get(routes::history),
    },
    Operation {
        method: Method::Get,
        path: "/events",
        id: "events",
        summary: "What happens, as it happens.",
        parameters: &[Parameter::Header {
            name: "Last-Event-ID",
            text: "The last event that was seen; what came after it is told first.",
        }],
        body: None,
        answer: Answer::Events { text: "Events without end, each with one `Event` as its data." },
        refusals: &[],
        serve: || get(routes::events),
    },
    Operation {
        method: Method::Get,
        path: "/calls",
        id: "calls",
        summary: "What became of tool calls, the newest first.",
        parameters: &[
            Parameter::Query {
                name: "unknown",
                text: "Only those whose outcome is unknown.",
                schema: || json!({ "type": "boolean" }),
            },
            Parameter::Query {
                name: "server",
                text: "Only those of this server.",
                schema: || json!({ "type": "string" }),
            },
            Parameter::Query {
                name: "since_ms",
                text: "Only those that began at or after this time, in milliseconds since the Unix epoch.",
                schema: || json!({ "type": "integer", "minimum": 0, "maximum": u64::MAX }),
            },
            Parameter::Query {
                name: "limit",
                text: "At most so many.",
                schema: || json!({ "type": "integer", "minimum": 0, "maximum": Query::MOST }),
            },
        ],
        body: None,
        answer: Answer::Json { status: 200, text: "Calls.", schema: of::<CallsView> },
        refusals: &[MISWRITTEN, Refused { status: 500, text: "There is a ledger, and it cannot be read." }],
        serve: || get(calls),
    },
    Operation {
        method: Method::Get,
        path: "/config",
        id: "config",
        summary: "The config as it is in force, without anything secret, and where each value comes from.",
        parameters: &[],
        body: None,
        answer: Answer::Json { status: 200, text: "The config.", schema: of::<ConfigView> },
        refusals: &[],
        serve: || get(config),
    },
    Operation {
        method: Method::Get,
        path: "/sessions",
        id: "sessions",
        summary: "The sessions of legacy clients, those used last first.",
        parameters: &[],
        body: None,
        answer: Answer::Json { status: 200, text: "Sessions.", schema: of::<SessionsView> },
        refusals: &[],
        serve: || get(sessions),
    },
    Operation {
        method: Method::Get,
        path: "/openapi.json",
        id: "openapi",
        summary: "This document.",
        parameters: &[],
        body: None,
        answer: Answer::Document,
        refusals: &[],
        serve: || get(openapi::serve),
    },
];

pub(super) fn of<T: schemars::JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    generator.subschema_for::<T>()
}

pub(super) fn refused(generator: &mut SchemaGenerator) -> Schema {
    of::<RefusalView<'static>>(generator)
}
