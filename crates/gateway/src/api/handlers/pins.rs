//! `/pins`: approved definitions of tools, changes since, and their approval. The command line prints the same type,
//! also without a gateway.

use crate::api::Admin;
use crate::api::auth;
use crate::api::enums;
use crate::api::response::{ApiError, json};
use crate::api::types::millis;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use gripfast::{CallError, Difference, Host, PinnedTool, Suspicion};
use schemars::JsonSchema;
use serde::Serialize;
use std::sync::Arc;

/// Pins of servers.
#[derive(JsonSchema, Debug, Serialize)]
#[schemars(rename = "Pins")]
pub struct PinsView {
    servers: Vec<ServerPinsView>,
}

#[derive(JsonSchema, Debug, Serialize)]
#[schemars(rename = "ServerPins")]
struct ServerPinsView {
    server: String,
    tools: Vec<PinView>,
}

/// One pinned item. Times are milliseconds since the Unix epoch.
#[derive(JsonSchema, Debug, Serialize)]
#[schemars(rename = "Pin")]
struct PinView {
    /// `tool`, `prompt`, `template` or `instructions`.
    kind: &'static str,
    /// Name of the item, of any kind.
    tool: String,
    /// `approved`, `changed`, or `new` for a new tool that waits for approval.
    state: &'static str,
    sha256: String,
    first_seen_ms: u64,
    approved_ms: Option<u64>,
    renamed_to: Option<String>,
    #[schemars(schema_with = "enums::array_of_objects")]
    differences: Vec<Difference>,
    #[schemars(schema_with = "enums::array_of_objects")]
    suspicions: Vec<Suspicion>,
}

/// Approved items.
#[derive(JsonSchema, Debug, Serialize)]
#[schemars(rename = "Approved")]
pub(crate) struct ApprovedView {
    server: String,
    approved: Vec<String>,
}

impl PinsView {
    /// Pins of one server, or of all servers.
    ///
    /// # Errors
    /// There is no server with this name, or its config is invalid.
    pub fn of(host: &Host, server: Option<&str>) -> Result<Self, CallError> {
        let servers = match server {
            Some(server) => vec![ServerPinsView { tools: pins(host, server)?, server: server.to_owned() }],
            None => {
                let usable = host.server_names().into_iter();
                usable
                    .filter_map(|server| Some(ServerPinsView { tools: pins(host, &server).ok()?, server }))
                    .collect()
            }
        };
        Ok(Self { servers })
    }
}

fn pins(host: &Host, server: &str) -> Result<Vec<PinView>, CallError> {
    let redact = |text: &str| host.redact(server, text).unwrap_or_default();
    Ok(host.pins(server)?.into_iter().map(|pin| PinView::of(pin, redact)).collect())
}

impl PinView {
    /// `redact` removes the secrets of the server from its texts.
    fn of(pin: PinnedTool, redact: impl Fn(&str) -> String) -> Self {
        let mut view = Self {
            kind: pin.kind.as_str(),
            tool: redact(&pin.tool),
            state: "approved",
            sha256: pin.digest,
            first_seen_ms: millis(pin.first_seen.since_epoch()),
            approved_ms: pin.approved.map(|at| millis(at.since_epoch())),
            renamed_to: None,
            differences: Vec::new(),
            suspicions: pin.suspicions,
        };
        if let Some(change) = pin.change {
            view.state = if change.is_new { "new" } else { "changed" };
            view.renamed_to = change.renamed_to.as_deref().map(&redact);
            view.differences = change.differences;
            view.suspicions = change.suspicions;
        }
        for difference in &mut view.differences {
            difference.before = difference.before.as_deref().map(&redact);
            difference.after = difference.after.as_deref().map(&redact);
        }
        for suspicion in &mut view.suspicions {
            suspicion.what = redact(&suspicion.what);
        }
        view
    }
}

pub(crate) async fn all(State(admin): State<Arc<Admin>>) -> Result<Response, ApiError> {
    admin.host.wait_for_secrets().await;
    Ok(json(StatusCode::OK, &PinsView::of(&admin.host, None)?))
}

pub(crate) async fn of_server(
    State(admin): State<Arc<Admin>>,
    name: Result<Path<String>, PathRejection>,
) -> Result<Response, ApiError> {
    let Path(name) = name.map_err(crate::api::router::invalid_path)?;
    admin.host.wait_for_secrets().await;
    Ok(json(StatusCode::OK, &PinsView::of(&admin.host, Some(&name))?))
}

pub(crate) async fn approve_all(
    State(admin): State<Arc<Admin>>,
    name: Result<Path<String>, PathRejection>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    auth::require_token(&headers, &admin.token)?;
    let Path(name) = name.map_err(crate::api::router::invalid_path)?;
    approve(&admin, name, None)
}

pub(crate) async fn approve_one(
    State(admin): State<Arc<Admin>>,
    path: Result<Path<(String, String)>, PathRejection>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    auth::require_token(&headers, &admin.token)?;
    let Path((name, tool)) = path.map_err(crate::api::router::invalid_path)?;
    approve(&admin, name, Some(&tool))
}

fn approve(admin: &Admin, server: String, tool: Option<&str>) -> Result<Response, ApiError> {
    let approved = admin.host.approve(&server, tool)?;
    Ok(json(StatusCode::OK, &ApprovedView { server, approved }))
}
