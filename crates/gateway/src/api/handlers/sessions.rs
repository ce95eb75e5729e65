//! `/sessions`: the legacy sessions of clients. Ids are not shown: whoever has one is that client.

use super::Admin;
use super::answer::json;
use super::view::millis;
use crate::downstream::SessionFacts;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use schemars::JsonSchema;
use serde::Serialize;
use std::sync::Arc;

/// More than a person reads.
const MOST: usize = 500;

/// Legacy sessions in memory, those used last first; at most five hundred.
#[derive(JsonSchema, Serialize)]
#[schemars(rename = "Sessions")]
pub(super) struct SessionsView {
    sessions: Vec<SessionView>,
}

/// One session. Spans are in milliseconds, back from the moment of asking.
#[derive(JsonSchema, Serialize)]
#[schemars(rename = "Session")]
struct SessionView {
    /// Tells it from others, and opens nothing.
    number: String,
    /// What its client says that it is.
    name: Option<String>,
    /// On whose behalf it calls.
    client: String,
    protocol_version: String,
    age_ms: u64,
    /// How long nobody has used it; null while somebody does.
    idle_ms: Option<u64>,
    /// Calls under way.
    running: usize,
    /// Streams that its client has open to listen.
    listening: usize,
}

impl From<SessionFacts> for SessionView {
    fn from(facts: SessionFacts) -> Self {
        Self {
            number: facts.number,
            name: facts.name,
            client: facts.client,
            protocol_version: facts.version,
            age_ms: millis(facts.age),
            idle_ms: facts.idle.map(millis),
            running: facts.running,
            listening: facts.listening,
        }
    }
}

pub(super) async fn sessions(State(admin): State<Arc<Admin>>) -> Response {
    let known = admin.sessions.as_ref().map(|list| list(MOST)).unwrap_or_default();
    json(StatusCode::OK, &SessionsView { sessions: known.into_iter().map(SessionView::from).collect() })
}
