//! OAuth logins started from the dashboard or the API. The gateway provides the login URL and receives the callback of
//! the browser. The server reconnects by itself afterwards, as after `gripfast login`.

use crate::api::response::{ApiError, json, page};
use crate::api::router::invalid_path;
use crate::api::{Admin, auth};
use axum::Router;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::http::header::{HOST, ORIGIN};
use axum::http::{HeaderMap, HeaderName, StatusCode, Uri};
use axum::response::Response;
use axum::routing::get;
use gripfast::auth::{Login, LoginError, state_parameter};
use gripfast::sync::Mutex;
use schemars::JsonSchema;
use serde::Serialize;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Path of the OAuth callback: the same as with `gripfast login`, for OAuth clients that were registered with it.
const CALLBACK_PATH: &str = "/callback";
/// A login without a callback within this time counts as abandoned.
const LOGIN_TIMEOUT: Duration = Duration::from_secs(600);
/// Maximum number of pending logins; beyond it the oldest is dropped.
const MAX_PENDING: usize = 32;

/// Logins that wait for their callback.
#[derive(Default)]
pub(crate) struct PendingLogins(Mutex<Vec<PendingLogin>>);

struct PendingLogin {
    server: String,
    /// OAuth `state` that the callback must contain. It is secret.
    state: String,
    redirect: String,
    login: Login,
    expires: Instant,
}

/// Login page to open.
#[derive(JsonSchema, Serialize)]
#[schemars(rename = "Login")]
pub(crate) struct LoginView<'l> {
    server: &'l str,
    /// URL to open in a browser, which is redirected back to this gateway.
    url: &'l str,
    /// Scopes that the server has requested since the last login; this login requests them too.
    added_scopes: &'l [String],
}

impl PendingLogins {
    /// Adds a login. A new login for the same server replaces the pending one.
    fn add(&self, login: PendingLogin) {
        let mut pending = self.0.lock();
        let now = Instant::now();
        pending.retain(|other| other.server != login.server && other.expires > now);
        if pending.len() >= MAX_PENDING {
            pending.remove(0);
        }
        pending.push(login);
    }

    /// Removes the login with this `state`; a callback is accepted once.
    fn take(&self, state: &str) -> Option<PendingLogin> {
        let mut pending = self.0.lock();
        let at = pending.iter().position(|login| login.state == state)?;
        Some(pending.remove(at)).filter(|login| login.expires > Instant::now())
    }
}

/// Starts a login for the operator.
pub(crate) async fn start(
    State(admin): State<Arc<Admin>>,
    name: Result<Path<String>, PathRejection>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    auth::require_token(&headers, &admin.token)?;
    let Path(name) = name.map_err(invalid_path)?;
    let spec = admin.host.server_spec(&name)?;
    let cli_hint = format!("`gripfast login {name}` logs in");
    if spec.oauth.as_ref().is_some_and(|oauth| oauth.callback_port != 0) {
        let text = format!(
            "the OAuth client of server `{name}` is registered with another callback port than that of this gateway"
        );
        return Err(ApiError::new(StatusCode::CONFLICT, "login_elsewhere", text).with_hint(cli_hint));
    }
    let redirect = format!("{}{CALLBACK_PATH}", gateway_origin(&headers, admin.tls.is_some())?);
    let started = Login::begin(&name, &spec, admin.host.logins(), &redirect).await;
    let login = started.map_err(|error| {
        let (status, code) = match error {
            LoginError::NotNeeded(_) => (StatusCode::CONFLICT, "no_login_needed"),
            LoginError::BadConfig(_) => (StatusCode::CONFLICT, "config_invalid"),
            LoginError::Refused(_) | LoginError::NotOffered(_) | LoginError::NotStored(_) => {
                (StatusCode::BAD_GATEWAY, "login_refused")
            }
        };
        ApiError::new(status, code, format!("login to server `{name}` is not possible: {error}"))
    })?;
    let Some(state) = state_parameter(login.url()).map(str::to_owned) else {
        let text = format!("the login URL of server `{name}` has no `state`");
        return Err(ApiError::new(StatusCode::BAD_GATEWAY, "login_refused", text).with_hint(cli_hint));
    };
    let view = LoginView { server: &name, url: login.url(), added_scopes: login.added_scopes() };
    let response = json(StatusCode::OK, &view);
    admin.logins.add(PendingLogin {
        server: name,
        state,
        redirect,
        login,
        expires: Instant::now() + LOGIN_TIMEOUT,
    });
    Ok(response)
}

/// Router of the OAuth callback. It needs no token, because the secret `state` identifies the login.
pub(crate) fn router(admin: Arc<Admin>) -> Router {
    Router::new().route(CALLBACK_PATH, get(callback)).with_state(admin)
}

async fn callback(State(admin): State<Arc<Admin>>, uri: Uri) -> Response {
    let callback_url = uri.to_string();
    let found = state_parameter(&callback_url).and_then(|state| admin.logins.take(state));
    let (Some(pending), Some(query)) = (found, uri.query()) else {
        let text =
            "This login is not pending: it was already completed, took too long, or was started again.\n";
        return page(StatusCode::NOT_FOUND, text.to_owned());
    };
    let server = pending.server;
    match pending.login.finish(&format!("{}?{query}", pending.redirect)).await {
        Ok(()) => page(
            StatusCode::OK,
            format!("Done: you are logged in to `{server}`. You can close this window.\n"),
        ),
        Err(error) => page(StatusCode::BAD_GATEWAY, format!("Login to `{server}` failed: {error}.\n")),
    }
}

/// Origin of this gateway as the caller sees it. Browsers send `Origin`, which was already compared with `Host`; behind
/// a proxy that terminates TLS, only the browser knows the scheme. Other programs connect to the listener directly.
fn gateway_origin(headers: &HeaderMap, is_encrypted: bool) -> Result<String, ApiError> {
    let text = |name: HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
    if let Some(origin) = text(ORIGIN) {
        return Ok(origin.to_owned());
    }
    let nameless =
        || ApiError::new(StatusCode::BAD_REQUEST, "invalid_request", "the request has no `Host` header");
    let scheme = if is_encrypted { "https" } else { "http" };
    text(HOST).map(|host| format!("{scheme}://{host}")).ok_or_else(nameless)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_callback_goes_to_the_origin_of_the_browser_or_to_the_listener() {
        let mut headers = HeaderMap::new();
        assert!(gateway_origin(&headers, true).is_err());
        headers.insert(HOST, "mcp.example.com".parse().unwrap());
        assert_eq!(gateway_origin(&headers, false).unwrap(), "http://mcp.example.com");
        assert_eq!(gateway_origin(&headers, true).unwrap(), "https://mcp.example.com");
        headers.insert(ORIGIN, "https://mcp.example.com".parse().unwrap());
        assert_eq!(
            gateway_origin(&headers, false).unwrap(),
            "https://mcp.example.com",
            "a proxy terminates TLS"
        );
    }
}
