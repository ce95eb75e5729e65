//! What a server offers, and trying it.

use super::answer::Refusal;
use super::words;
use axum::http::StatusCode;
use gripfast::{Answer, CallError, Catalog, Code, Decision, RawValue};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The tools of one server, as far as they are known.
#[derive(JsonSchema, Serialize)]
#[schemars(rename = "Tools")]
pub(super) struct ToolsView<'c> {
    server: &'c str,
    tools: Vec<ToolView>,
}

#[derive(JsonSchema, Serialize)]
#[schemars(rename = "Tool")]
struct ToolView {
    name: String,
    /// What it says about itself, in one word each.
    marks: Vec<&'static str>,
    /// The tool in the server's own words.
    #[serde(flatten)]
    said: Said,
}

#[derive(JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Said {
    #[serde(skip_serializing_if = "Option::is_none")]
    description: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "words::anything")]
    input_schema: Option<Box<RawValue>>,
}

impl<'c> ToolsView<'c> {
    /// `redact` takes the secrets of the server out of what it wrote.
    pub(super) fn of(server: &'c str, catalog: &Catalog, redact: impl Fn(&str) -> String) -> Self {
        let tools = catalog.tools.iter().map(|tool| {
            let marks = [
                (tool.hints.read_only, "read_only"),
                (tool.hints.idempotent, "idempotent"),
                (tool.hints.destructive, "destructive"),
            ];
            ToolView {
                name: redact(&tool.key),
                marks: marks.into_iter().filter_map(|(says, mark)| says.then_some(mark)).collect(),
                said: serde_json::from_str(&redact(tool.raw.get()))
                    .unwrap_or(Said { description: None, input_schema: None }),
            }
        });
        Self { server, tools: tools.collect() }
    }
}

/// What the lists say about a client and a tool.
#[derive(JsonSchema, Serialize)]
#[schemars(rename = "Decision")]
pub(super) struct DecisionView<'d> {
    client: &'d str,
    server: &'d str,
    tool: &'d str,
    allowed: bool,
    reason: &'d str,
}

impl<'d> DecisionView<'d> {
    pub(super) fn of(client: &'d str, server: &'d str, tool: &'d str, decision: &'d Decision) -> Self {
        Self { client, server, tool, allowed: decision.allowed, reason: &decision.reason }
    }
}

/// A call to be made for whoever has the token.
#[derive(JsonSchema, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Wanted {
    pub(super) tool: String,
    #[serde(default)]
    #[schemars(with = "Option<serde_json::Map<String, serde_json::Value>>")]
    pub(super) arguments: Option<Box<RawValue>>,
}

/// What the server answered.
#[derive(JsonSchema, Serialize)]
#[schemars(rename = "Answer")]
pub(super) struct AnswerView<'a> {
    #[schemars(schema_with = "words::anything")]
    result: &'a RawValue,
}

impl<'a> AnswerView<'a> {
    pub(super) fn of(answer: &'a Answer) -> Result<Self, Refusal> {
        let result = answer.result().map_err(|(code, text)| {
            let what = format!("the server answered with an error: {text} ({code})");
            Refusal::new(StatusCode::BAD_GATEWAY, "server_error", what)
        })?;
        Ok(Self { result })
    }
}

/// A call that came to nothing, as HTTP says it.
pub(super) fn not_called(error: CallError) -> Refusal {
    let status = match error.code {
        Code::UnknownServer | Code::UnknownTool => StatusCode::NOT_FOUND,
        Code::InvalidRequest => StatusCode::BAD_REQUEST,
        Code::Timeout => StatusCode::GATEWAY_TIMEOUT,
        Code::Denied => StatusCode::FORBIDDEN,
        Code::BudgetExceeded | Code::Overloaded => StatusCode::TOO_MANY_REQUESTS,
        Code::Unreachable
        | Code::Reconnecting
        | Code::OutcomeUnknown
        | Code::NeedsLogin
        | Code::SchemaChanged
        | Code::Cancelled
        | Code::Stopped
        | Code::UpstreamProtocol => StatusCode::BAD_GATEWAY,
    };
    Refusal::from(error).with_status(status)
}
