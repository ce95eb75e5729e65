//! State of the servers for models, so that a model can tell its user why tools are missing: a paragraph in
//! `instructions` for servers that never came up, and the tool `gripfast_status` (`gateway.status_tool`).

use super::Gateway;
use super::request::dispatch::{millis, server_info_meta};
use crate::api::next_step;
use gripfast::text::{duration, escaped};
use gripfast::wire::Era;
use gripfast::{ItemKind, Principal, ServerStatus, State};
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// Name of the tool. No server tool can have it while the status tool is on.
pub(super) const NAME: &str = "gripfast_status";

/// Definition of the tool for `tools/list`.
pub(super) fn definition() -> String {
    json!({
        "name": NAME,
        "title": "State of the MCP servers",
        "description": "Lists the MCP servers behind this gateway with their state, and why one is not available. Call it \
                        when a tool is missing or fails, and tell the user what it says.",
        "inputSchema": { "type": "object", "properties": {}, "additionalProperties": false },
        "outputSchema": {
            "type": "object",
            "properties": { "servers": { "type": "array", "items": {
                "type": "object",
                "properties": {
                    "name": { "type": "string" },
                    "state": { "type": "string" },
                    "cause": { "type": ["string", "null"] },
                    "next_attempt_ms": { "type": ["integer", "null"] },
                    "next_step": { "type": ["string", "null"] },
                },
                "required": ["name", "state"],
            } } },
            "required": ["servers"],
        },
        "annotations": { "readOnlyHint": true, "openWorldHint": false },
    })
    .to_string()
}

impl Gateway {
    /// Result of a call of the tool.
    pub(super) fn status_result(&self, principal: &Principal, era: Era) -> Value {
        let servers: Vec<Report> =
            self.host.status().iter().filter_map(|status| self.report(principal, status)).collect();
        let lines: Vec<String> = servers.iter().map(Report::line).collect();
        let text =
            if lines.is_empty() { "no servers are configured for you".to_owned() } else { lines.join("\n") };
        let mut result = json!({
            "content": [{ "type": "text", "text": text }],
            "structuredContent": { "servers": servers.iter().map(Report::json).collect::<Vec<_>>() },
        });
        if era == Era::Modern {
            result["resultType"] = "complete".into();
            result["_meta"] = server_info_meta();
        }
        result
    }

    /// Paragraph about the servers that offer nothing because they never came up; `None` if there are none. `listed`
    /// are the servers that offer something.
    pub(super) fn missing_servers(&self, principal: &Principal, listed: &BTreeSet<&str>) -> Option<String> {
        let status = self.host.status();
        let missing = status.iter().filter(|status| {
            let is_away = match status.supervision.state {
                State::Starting
                | State::Reconnecting
                | State::Parked
                | State::NeedsLogin
                | State::ConfigError
                | State::Stopped => true,
                State::Idle | State::Ready | State::Degraded | State::NeedsApproval | State::Disabled => {
                    false
                }
            };
            is_away && !listed.contains(status.name.as_str())
        });
        let lines: Vec<String> = missing
            .filter_map(|status| self.report(principal, status))
            .map(|report| report.without_cause().line())
            .collect();
        (!lines.is_empty()).then(|| {
            format!(
                "These MCP servers are configured but not available, so their tools are missing. Tell the user if \
                 they are needed.\n{}",
                lines.join("\n")
            )
        })
    }

    /// State of a server as the principal may see it; `None` for a server that it may not use.
    fn report(&self, principal: &Principal, status: &ServerStatus) -> Option<Report> {
        // Before a server has listed its tools, no rule for a single tool can be looked up, so this checks the access
        // to an unnamed tool.
        let decision = self.host.explain_access(Some(principal), &status.name, ItemKind::Tool, "*").ok();
        let offers =
            self.host.catalog_snapshot_for(principal).merged.servers().contains(status.name.as_str());
        if !offers && !decision.is_some_and(|decision| decision.allowed) {
            return None;
        }
        let supervision = &status.supervision;
        // A cause may quote the server's stderr, which is only for the operator when clients are authenticated.
        let is_local = principal.name() == Principal::LOCAL;
        let attempt = status.attempt.as_ref().map(|attempt| attempt.text());
        let cause = supervision.cause.clone().or(attempt).filter(|_| is_local);
        Some(Report {
            name: status.name.clone(),
            state: supervision.state.as_str(),
            cause: cause.map(|cause| escaped(&cause).into_owned()),
            next_attempt_ms: supervision.next_attempt.map(millis),
            next_attempt: supervision.next_attempt.filter(|wait| !wait.is_zero()).map(duration),
            next_step: supervision.next_action.map(|action| next_step(action, &status.name)),
        })
    }
}

/// State of one server in the form that models get.
struct Report {
    name: String,
    state: &'static str,
    cause: Option<String>,
    next_attempt_ms: Option<u64>,
    /// The same as text.
    next_attempt: Option<String>,
    next_step: Option<String>,
}

impl Report {
    /// Removes the cause, which may quote the server: in `instructions` a model would take the server's text for the
    /// gateway's own.
    fn without_cause(self) -> Self {
        Self { cause: None, ..self }
    }

    fn line(&self) -> String {
        let cause = self.cause.as_ref().map(|cause| format!(": {cause}")).unwrap_or_default();
        let next =
            self.next_attempt.as_ref().map(|wait| format!("; next attempt in {wait}")).unwrap_or_default();
        let step = self.next_step.as_ref().map(|step| format!("; {step}")).unwrap_or_default();
        format!("- `{}` is {}{cause}{next}{step}", self.name, self.state.replace('_', " "))
    }

    fn json(&self) -> Value {
        json!({
            "name": self.name,
            "state": self.state,
            "cause": self.cause,
            "next_attempt_ms": self.next_attempt_ms,
            "next_step": self.next_step,
        })
    }
}
