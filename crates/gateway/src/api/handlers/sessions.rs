//! `/sessions`: sessions of legacy clients. Session ids are not shown, because an id gives access to its session.

use crate::api::Admin;
use crate::api::convert::millis;
use crate::api::response::json;
use crate::mcp::SessionInfo;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use schemars::JsonSchema;
use serde::Serialize;
use std::sync::Arc;

/// Maximum number of sessions in a response.
const MAX_SESSIONS: usize = 500;

/// Legacy sessions in memory, the most recently used first; at most 500.
#[derive(JsonSchema, Serialize)]
#[schemars(rename = "Sessions")]
pub(crate) struct SessionsView {
    sessions: Vec<SessionView>,
}

/// One session. Durations are in milliseconds, up to the time of the request.
#[derive(JsonSchema, Serialize)]
#[schemars(rename = "Session")]
struct SessionView {
    /// Number for display. It gives no access to the session.
    number: String,
    /// Name that the client gives itself.
    name: Option<String>,
    /// Principal of the client.
    client: String,
    protocol_version: String,
    age_ms: u64,
    /// Time since the last use; null while the session is in use.
    idle_ms: Option<u64>,
    /// Calls in flight.
    running: usize,
    /// Open listening streams of the client.
    listening: usize,
}

impl From<SessionInfo> for SessionView {
    fn from(facts: SessionInfo) -> Self {
        Self {
            number: facts.number,
            name: facts.name,
            client: facts.client,
            protocol_version: facts.version,
            age_ms: millis(facts.age),
            idle_ms: facts.idle.map(millis),
            running: facts.in_flight,
            listening: facts.listening,
        }
    }
}

pub(crate) async fn sessions(State(admin): State<Arc<Admin>>) -> Response {
    let known = admin.sessions.as_ref().map(|list| list(MAX_SESSIONS)).unwrap_or_default();
    json(StatusCode::OK, &SessionsView { sessions: known.into_iter().map(SessionView::from).collect() })
}
