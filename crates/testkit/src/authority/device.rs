//! Logins by a code that a person enters on a page of the authority's, wherever they have a browser (RFC 8628).

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::Bytes;
use axum::extract::{RawQuery, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::json;

use super::{Books, Pages, Token, axum_json, pairs, refused};

/// How often it may be asked.
const INTERVAL: Duration = Duration::from_secs(1);

/// A code that was made.
#[derive(Debug)]
pub(super) struct Code {
    user_code: String,
    client: String,
    scopes: String,
    ends: Instant,
    asked: Option<Instant>,
    person: Person,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Person {
    Away,
    Agreed,
    Denied,
}

pub(super) async fn begin(State(books): State<Arc<Books>>, body: Bytes) -> Response {
    let Some(lasts) = books.manners.device_codes_last else { return StatusCode::NOT_FOUND.into_response() };
    let asked = pairs(&body);
    let of = |key: &str| asked.get(key).cloned().unwrap_or_default();
    let mut pages = books.pages();
    if !pages.device_clients.contains(&of("client_id")) {
        return refused(StatusCode::BAD_REQUEST, "unauthorized_client");
    }
    if of("resource") != format!("{}/mcp", books.url) {
        return refused(StatusCode::BAD_REQUEST, "invalid_target");
    }
    let device_code = pages.name("device");
    let user_code = format!("WDJB-{}", pages.number());
    let code = Code {
        user_code: user_code.clone(),
        client: of("client_id"),
        scopes: of("scope"),
        ends: Instant::now() + lasts,
        asked: None,
        person: Person::Away,
    };
    pages.device_codes.insert(device_code.clone(), code);
    let page = format!("{}/activate", books.url);
    axum_json(&json!({
        "device_code": device_code,
        "user_code": user_code,
        "verification_uri": page,
        "verification_uri_complete": format!("{page}?user_code={user_code}"),
        "expires_in": lasts.as_secs(),
        "interval": INTERVAL.as_secs(),
    }))
}

/// The person enters the code, and agrees; or does not (`&no`).
pub(super) async fn activate(State(books): State<Arc<Books>>, RawQuery(query): RawQuery) -> Response {
    let asked = pairs(query.unwrap_or_default().as_bytes());
    let mut pages = books.pages();
    let entered = asked.get("user_code");
    let Some(code) = pages.device_codes.values_mut().find(|code| Some(&code.user_code) == entered) else {
        return StatusCode::NOT_FOUND.into_response();
    };
    code.person = if asked.contains_key("no") { Person::Denied } else { Person::Agreed };
    "go back to your device".into_response()
}

/// Whether somebody has agreed.
pub(super) fn token(books: &Books, pages: &mut Pages, device_code: &str, client: &str) -> Response {
    pages.counts.device_polls += 1;
    let Some(code) = pages.device_codes.get_mut(device_code).filter(|code| code.client == client) else {
        return refused(StatusCode::BAD_REQUEST, "invalid_grant");
    };
    let now = Instant::now();
    // A tenth earlier is a timer's, not an impatient client's.
    let hasty = code.asked.replace(now).is_some_and(|last| now - last < INTERVAL * 9 / 10);
    let no = match code.person {
        _ if now >= code.ends => "expired_token",
        _ if hasty => "slow_down",
        Person::Away => "authorization_pending",
        Person::Denied => "access_denied",
        Person::Agreed => {
            let (client, scopes) = (code.client.clone(), code.scopes.clone());
            pages.device_codes.remove(device_code);
            let grant = Token { login: pages.number(), client, scopes, ends: None };
            return axum_json(&books.grant(pages, grant, true));
        }
    };
    refused(StatusCode::BAD_REQUEST, no)
}
