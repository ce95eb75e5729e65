//! Logins that are begun from a page: the gateway finds out where to send the person, and is where their browser comes
//! back to. The server revives by itself, as after `gripfast login`.

use super::answer::{Refusal, json, page};
use super::routes::unreadable;
use super::{Admin, guard};
use axum::Router;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::http::header::{HOST, ORIGIN};
use axum::http::{HeaderMap, HeaderName, StatusCode, Uri};
use axum::response::Response;
use axum::routing::get;
use gripfast::auth::{Login, LoginError, state_of};
use schemars::JsonSchema;
use serde::Serialize;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// Where browsers come back to: the same path as with `gripfast login`, for clients that were registered with it.
const BACK: &str = "/callback";
/// Who has not come back by then has closed the window.
const WITHIN: Duration = Duration::from_secs(600);
/// So many people log in at a time; who began first has to begin again.
const MOST: usize = 32;

/// Logins that wait for somebody to come back.
#[derive(Default)]
pub(super) struct Underway(Mutex<Vec<Begun>>);

struct Begun {
    server: String,
    /// What the browser comes back with; nobody else knows it.
    state: String,
    redirect: String,
    login: Login,
    until: Instant,
}

/// Where to send a person who is to log in.
#[derive(JsonSchema, Serialize)]
#[schemars(rename = "Login")]
pub(super) struct LoginView<'l> {
    server: &'l str,
    /// The page to open in a browser, which will come back to this gateway.
    url: &'l str,
    /// Scopes that the server has asked for since the last login, which this one asks for besides.
    added_scopes: &'l [String],
}

impl Underway {
    /// One for each server: who begins anew has given the other up.
    fn add(&self, begun: Begun) {
        let mut underway = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        underway.retain(|other| other.server != begun.server && other.until > now);
        if underway.len() >= MOST {
            underway.remove(0);
        }
        underway.push(begun);
    }

    /// Each can be come back from once.
    fn take(&self, state: &str) -> Option<Begun> {
        let mut underway = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let at = underway.iter().position(|begun| begun.state == state)?;
        Some(underway.remove(at)).filter(|begun| begun.until > Instant::now())
    }
}

/// Begins a login for whoever has the token.
pub(super) async fn begin(
    State(admin): State<Arc<Admin>>,
    name: Result<Path<String>, PathRejection>,
    headers: HeaderMap,
) -> Result<Response, Refusal> {
    guard::admit(&headers, &admin.token)?;
    let Path(name) = name.map_err(unreadable)?;
    let spec = admin.host.spec_of(&name)?;
    let by_hand = format!("`gripfast login {name}` logs in");
    if spec.oauth.as_ref().is_some_and(|oauth| oauth.callback_port != 0) {
        let text =
            "its client is registered to come back to a port of its own, where this gateway does not listen";
        return Err(Refusal::new(StatusCode::CONFLICT, "login_elsewhere", text).with_hint(by_hand));
    }
    let redirect = format!("{}{BACK}", origin(&headers, admin.tls.is_some())?);
    let begun = Login::begin(&name, &spec, admin.host.logins(), &redirect).await;
    let login = begun.map_err(|error| {
        let (status, code) = match error {
            LoginError::NotNeeded(_) => (StatusCode::CONFLICT, "no_login_needed"),
            LoginError::BadConfig(_) => (StatusCode::CONFLICT, "config_invalid"),
            LoginError::Refused(_) | LoginError::NotOffered(_) | LoginError::NotKept(_) => {
                (StatusCode::BAD_GATEWAY, "login_refused")
            }
        };
        Refusal::new(status, code, format!("nobody can log in to `{name}`: {error}"))
    })?;
    let Some(state) = state_of(login.url()).map(str::to_owned) else {
        let text = format!("nobody could come back from the login to `{name}`");
        return Err(Refusal::new(StatusCode::BAD_GATEWAY, "login_refused", text).with_hint(by_hand));
    };
    let view = LoginView { server: &name, url: login.url(), added_scopes: login.added_scopes() };
    let response = json(StatusCode::OK, &view);
    admin.logins.add(Begun { server: name, state, redirect, login, until: Instant::now() + WITHIN });
    Ok(response)
}

/// The routes that browsers come back to. They have no token: they know the login.
pub(super) fn router(admin: Arc<Admin>) -> Router {
    Router::new().route(BACK, get(come_back)).with_state(admin)
}

async fn come_back(State(admin): State<Arc<Admin>>, uri: Uri) -> Response {
    let came_back_to = uri.to_string();
    let begun = state_of(&came_back_to).and_then(|state| admin.logins.take(state));
    let (Some(begun), Some(query)) = (begun, uri.query()) else {
        let text = "Nobody waits for this login: it was made already, took too long, or was begun anew.\n";
        return page(StatusCode::NOT_FOUND, text.to_owned());
    };
    let server = begun.server;
    match begun.login.finish(&format!("{}?{query}", begun.redirect)).await {
        Ok(()) => page(
            StatusCode::OK,
            format!("Done: you are logged in to `{server}`. You can close this window.\n"),
        ),
        Err(error) => {
            page(StatusCode::BAD_GATEWAY, format!("You are not logged in to `{server}`: {error}.\n"))
        }
    }
}

/// What the caller's browser calls this gateway. It was compared with the host already, if it is there; behind a proxy
/// that ends TLS, only the browser knows. Programs do not say it: they come to the listener as it is.
fn origin(headers: &HeaderMap, is_encrypted: bool) -> Result<String, Refusal> {
    let text = |name: HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
    if let Some(origin) = text(ORIGIN) {
        return Ok(origin.to_owned());
    }
    let nameless = || Refusal::new(StatusCode::BAD_REQUEST, "invalid_request", "the request has no `Host`");
    let scheme = if is_encrypted { "https" } else { "http" };
    text(HOST).map(|host| format!("{scheme}://{host}")).ok_or_else(nameless)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_browser_comes_back_to_where_it_was_or_to_the_listener_as_it_is() {
        let mut headers = HeaderMap::new();
        assert!(origin(&headers, true).is_err());
        headers.insert(HOST, "mcp.example.com".parse().unwrap());
        assert_eq!(origin(&headers, false).unwrap(), "http://mcp.example.com");
        assert_eq!(origin(&headers, true).unwrap(), "https://mcp.example.com");
        headers.insert(ORIGIN, "https://mcp.example.com".parse().unwrap());
        assert_eq!(origin(&headers, false).unwrap(), "https://mcp.example.com", "a proxy ends TLS");
    }
}
