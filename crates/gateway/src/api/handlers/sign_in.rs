//! Sign-in links for the dashboard. `gripfast dashboard` asks for a one-time code with the admin token; the page exchanges
//! it for the key of a session, so that the token itself never gets into a browser. Only digests are kept, in memory.

use super::answer::{Refusal, json};
use super::{Admin, guard};
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use gripfast::{AuthFailure, SignIns};
use schemars::JsonSchema;
use serde::Serialize;
use std::io;
use std::sync::Arc;

/// The path that makes a code.
pub(super) const LINK: &str = "/sign_in_link";
/// The path that exchanges a code for a session.
pub(super) const EXCHANGE: &str = "/sign_in";

/// A code to sign in with.
#[derive(JsonSchema, Serialize)]
#[schemars(rename = "SignInCode")]
pub(super) struct SignInCodeView {
    /// For the fragment of a sign-in link. It can be used once.
    code: String,
    /// How long it can be used.
    valid_ms: u64,
}

/// A browser that signed in.
#[derive(JsonSchema, Serialize)]
#[schemars(rename = "DashboardSession")]
pub(super) struct SessionView {
    /// Shown in the place of the admin token. It ends when the token is replaced or the gateway ends.
    key: String,
    /// How long it is valid.
    valid_ms: u64,
}

pub(super) async fn link(State(admin): State<Arc<Admin>>, headers: HeaderMap) -> Result<Response, Refusal> {
    admit(LINK, &admin, &headers)?;
    let code = admin.token.sign_in_code().map_err(|error| no_randomness(&error))?;
    let valid_ms = super::view::millis(SignIns::CODE_LIFETIME);
    Ok(json(StatusCode::OK, &SignInCodeView { code, valid_ms }))
}

pub(super) async fn exchange(
    State(admin): State<Arc<Admin>>,
    headers: HeaderMap,
) -> Result<Response, Refusal> {
    admit(EXCHANGE, &admin, &headers)?;
    let code = guard::offered(&headers).unwrap_or_default();
    let key = admin.token.sign_in(code).map_err(|error| no_randomness(&error))?;
    // Another request may have used the code since it was checked.
    let key = key.ok_or_else(|| guard::refusal(AuthFailure::InvalidSignInCode, &admin.token))?;
    let valid_ms = super::view::millis(SignIns::SESSION_LIFETIME);
    Ok(json(StatusCode::OK, &SessionView { key, valid_ms }))
}

fn admit(path: &str, admin: &Admin, headers: &HeaderMap) -> Result<(), Refusal> {
    guard::check_at(path, headers, &admin.token).map_err(|reason| guard::refusal(reason, &admin.token))
}

fn no_randomness(error: &io::Error) -> Refusal {
    Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", error.to_string())
}
