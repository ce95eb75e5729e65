//! Device flow (RFC 8628): the user enters a code on a page of the authorization server, on any device with a
//! browser.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::Bytes;
use axum::extract::{RawQuery, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::json;

use super::{AuthorityState, Records, Token, form_fields, json_response, refused};

/// Minimum polling interval.
const INTERVAL: Duration = Duration::from_secs(1);

/// An issued device code.
#[derive(Debug)]
pub(super) struct DeviceCode {
    user_code: String,
    client: String,
    scopes: String,
    ends: Instant,
    last_poll: Option<Instant>,
    approval: Approval,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Approval {
    Pending,
    Approved,
    Denied,
}

pub(super) async fn device_authorization(State(state): State<Arc<AuthorityState>>, body: Bytes) -> Response {
    let Some(lasts) = state.options.device_code_lifetime else {
        return StatusCode::NOT_FOUND.into_response();
    };
    let asked = form_fields(&body);
    let of = |key: &str| asked.get(key).cloned().unwrap_or_default();
    let mut records = state.records();
    if !records.device_clients.contains(&of("client_id")) {
        return refused(StatusCode::BAD_REQUEST, "unauthorized_client");
    }
    if of("resource") != format!("{}/mcp", state.url) {
        return refused(StatusCode::BAD_REQUEST, "invalid_target");
    }
    let device_code = records.new_secret("device");
    let user_code = format!("WDJB-{}", records.next_number());
    let code = DeviceCode {
        user_code: user_code.clone(),
        client: of("client_id"),
        scopes: of("scope"),
        ends: Instant::now() + lasts,
        last_poll: None,
        approval: Approval::Pending,
    };
    records.device_codes.insert(device_code.clone(), code);
    let page = format!("{}/activate", state.url);
    json_response(&json!({
        "device_code": device_code,
        "user_code": user_code,
        "verification_uri": page,
        "verification_uri_complete": format!("{page}?user_code={user_code}"),
        "expires_in": lasts.as_secs(),
        "interval": INTERVAL.as_secs(),
    }))
}

/// Verification page: the user enters the code and approves, or denies with `&no`.
pub(super) async fn activate(
    State(state): State<Arc<AuthorityState>>,
    RawQuery(query): RawQuery,
) -> Response {
    let asked = form_fields(query.unwrap_or_default().as_bytes());
    let mut records = state.records();
    let entered = asked.get("user_code");
    let Some(code) = records.device_codes.values_mut().find(|code| Some(&code.user_code) == entered) else {
        return StatusCode::NOT_FOUND.into_response();
    };
    code.approval = if asked.contains_key("no") { Approval::Denied } else { Approval::Approved };
    "go back to your device".into_response()
}

/// Token request of a polling client.
pub(super) fn token(
    state: &AuthorityState,
    records: &mut Records,
    device_code: &str,
    client: &str,
) -> Response {
    records.counts.device_polls += 1;
    let Some(code) = records.device_codes.get_mut(device_code).filter(|code| code.client == client) else {
        return refused(StatusCode::BAD_REQUEST, "invalid_grant");
    };
    let now = Instant::now();
    // Tolerates a tenth of the interval for timer inaccuracy.
    let hasty = code.last_poll.replace(now).is_some_and(|last| now - last < INTERVAL * 9 / 10);
    let no = match code.approval {
        _ if now >= code.ends => "expired_token",
        _ if hasty => "slow_down",
        Approval::Pending => "authorization_pending",
        Approval::Denied => "access_denied",
        Approval::Approved => {
            let (client, scopes) = (code.client.clone(), code.scopes.clone());
            records.device_codes.remove(device_code);
            let grant = Token { login: records.next_number(), client, scopes, ends: None };
            return json_response(&state.grant(records, grant, true));
        }
    };
    refused(StatusCode::BAD_REQUEST, no)
}
