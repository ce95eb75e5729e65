//! Sign-in links for the dashboard. `gripfast dashboard` requests a one-time code with the admin token; the page
//! exchanges it for a session key, so that the token itself never reaches a browser. Only digests are stored, in
//! memory.

use crate::api::convert::millis;
use crate::api::response::{ApiError, json};
use crate::api::types::SignInCodeView;
use crate::api::{Admin, auth};
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use gripfast::{AuthFailure, SignIns};
use schemars::JsonSchema;
use serde::Serialize;
use std::io;
use std::sync::Arc;

/// Path that creates a code.
pub(crate) const LINK_PATH: &str = "/sign_in_link";
/// Path that exchanges a code for a session.
pub(crate) const EXCHANGE_PATH: &str = "/sign_in";

/// Session of a signed-in browser.
#[derive(JsonSchema, Serialize)]
#[schemars(rename = "DashboardSession")]
pub(crate) struct DashboardSessionView {
    /// Key to send in place of the admin token. It ends when the token is replaced or the gateway stops.
    key: String,
    /// Validity in milliseconds.
    valid_ms: u64,
}

pub(crate) async fn link(State(admin): State<Arc<Admin>>, headers: HeaderMap) -> Result<Response, ApiError> {
    admit(LINK_PATH, &admin, &headers)?;
    let code = admin.token.issue_sign_in_code().map_err(|error| no_randomness(&error))?;
    let valid_ms = millis(SignIns::CODE_LIFETIME);
    Ok(json(StatusCode::OK, &SignInCodeView { code, valid_ms }))
}

pub(crate) async fn exchange(
    State(admin): State<Arc<Admin>>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    admit(EXCHANGE_PATH, &admin, &headers)?;
    let code = auth::bearer_token(&headers).unwrap_or_default();
    let key = admin.token.sign_in(code).map_err(|error| no_randomness(&error))?;
    // Another request may have used the code since it was checked.
    let key = key.ok_or_else(|| auth::error_for(AuthFailure::InvalidSignInCode, &admin.token))?;
    let valid_ms = millis(SignIns::SESSION_LIFETIME);
    Ok(json(StatusCode::OK, &DashboardSessionView { key, valid_ms }))
}

fn admit(path: &str, admin: &Admin, headers: &HeaderMap) -> Result<(), ApiError> {
    auth::check_path(path, headers, &admin.token).map_err(|reason| auth::error_for(reason, &admin.token))
}

fn no_randomness(error: &io::Error) -> ApiError {
    ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", error.to_string())
}
