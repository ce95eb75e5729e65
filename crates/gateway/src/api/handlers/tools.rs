//! Views of tools, tool calls and policy decisions.

use crate::api::enums;
use crate::api::response::ApiError;
use axum::http::StatusCode;
use gripfast::{Answer, CallError, Catalog, Code, Json, JsonText};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Known tools of one server.
#[derive(JsonSchema, Serialize)]
#[schemars(rename = "Tools")]
pub(crate) struct ToolsView<'c> {
    server: &'c str,
    tools: Vec<ToolView>,
}

#[derive(JsonSchema, Serialize)]
#[schemars(rename = "Tool")]
struct ToolView {
    name: String,
    /// Hints of the tool: `read_only`, `idempotent`, `destructive`.
    marks: Vec<&'static str>,
    /// Definition by the server.
    #[serde(flatten)]
    definition: ToolDefinition,
}

#[derive(JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ToolDefinition {
    #[serde(skip_serializing_if = "Option::is_none")]
    description: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "enums::any_json")]
    input_schema: Option<JsonText>,
}

impl<'c> ToolsView<'c> {
    /// `redact` removes the secrets of the server from its texts.
    pub(crate) fn of(server: &'c str, catalog: &Catalog, redact: impl Fn(&str) -> String) -> Self {
        let tools = catalog.tools.iter().map(|tool| {
            let marks = [
                (tool.hints.read_only, "read_only"),
                (tool.hints.idempotent, "idempotent"),
                (tool.hints.destructive, "destructive"),
            ];
            ToolView {
                name: redact(&tool.key),
                marks: marks.into_iter().filter_map(|(says, mark)| says.then_some(mark)).collect(),
                definition: serde_json::from_str(&redact(tool.raw.get()))
                    .unwrap_or(ToolDefinition { description: None, input_schema: None }),
            }
        });
        Self { server, tools: tools.collect() }
    }
}

/// Tool call of the operator.
#[derive(JsonSchema, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ToolCallRequest {
    pub(crate) tool: String,
    #[serde(default)]
    #[schemars(with = "Option<serde_json::Map<String, serde_json::Value>>")]
    pub(crate) arguments: Option<JsonText>,
}

/// Answer of the server.
#[derive(JsonSchema, Serialize)]
#[schemars(rename = "Answer")]
pub(crate) struct ToolCallView<'a> {
    #[schemars(schema_with = "enums::any_json")]
    result: &'a Json,
}

impl<'a> ToolCallView<'a> {
    pub(crate) fn of(answer: &'a Answer) -> Result<Self, ApiError> {
        let result = answer.result().map_err(|(code, text)| {
            let message = format!("the server answered with an error: {text} ({code})");
            ApiError::new(StatusCode::BAD_GATEWAY, "server_error", message)
        })?;
        Ok(Self { result })
    }
}

/// Error response for a failed call.
pub(crate) fn call_error(error: CallError) -> ApiError {
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
    ApiError::from(error).with_status(status)
}
