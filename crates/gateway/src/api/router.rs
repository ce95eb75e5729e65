//! Routes of the admin API. Reads are open on this machine, actions need the token.

use super::convert::millis;
use super::events::{EventSubscriber, EventVisibility};
use super::handlers::tools::{ToolCallRequest, ToolCallView, ToolsView, call_error};
use super::operations::OPERATIONS;
use super::response::{ApiError, json, text};
use super::types::{
    BudgetView, DecisionView, DetailView, EventView, ExposureView, FleetView, LedgerView, LogView,
};
use super::{Admin, ByToken, actions, auth};
use crate::mcp::transport::body;
use crate::server::quota::Peer;
use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, Request, State};
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, Uri};
use axum::middleware::from_fn_with_state;
use axum::response::Response;
use axum::routing::get;
use gripfast::config::suggest;
use gripfast::{CallError, Host, ItemKind, Principal};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

/// Interval of keep-alive comments on an event stream. Proxies close connections that are silent for a minute, and a
/// disconnected client is only noticed by a write.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(15);

/// Interval at which an event stream checks that the token which opened it is still valid.
const TOKEN_CHECK_INTERVAL: Duration = Duration::from_millis(500);

type HostAction = fn(&Host, &str) -> Result<(), CallError>;

/// Actions on a server.
const ACTIONS: [(&str, HostAction); 4] =
    [("reconnect", Host::reconnect), ("reload", Host::reload), ("stop", Host::stop), ("start", Host::start)];

pub(super) fn router(admin: Arc<Admin>) -> Router {
    let served = OPERATIONS
        .iter()
        .fold(Router::new(), |router, operation| router.route(operation.path, (operation.route)()));
    let acting = from_fn_with_state(Arc::clone(&admin), actions::authorize_and_record);
    // Unknown paths are answered without asking for a token.
    let api = served.route_layer(acting).method_not_allowed_fallback(method_not_allowed).fallback(not_found);
    Router::new()
        .route("/healthz", get(healthz))
        .route("/readyz", get(readyz))
        .nest("/api/v1", api)
        // A nested router does not match the bare prefix.
        .route("/api/v1/", get(not_found))
        .with_state(admin)
}

async fn healthz() -> Response {
    text(StatusCode::OK, "ok")
}

async fn readyz(State(admin): State<Arc<Admin>>) -> Result<Response, ApiError> {
    if admin.is_ready() {
        return Ok(text(StatusCode::OK, "ok"));
    }
    let message = "the gateway is starting or shutting down";
    Err(ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "not_ready", message))
}

pub(super) async fn status(State(admin): State<Arc<Admin>>, headers: HeaderMap) -> Response {
    let events = match admin.event_visibility(&headers) {
        EventVisibility::Everything => admin.host.security_events(),
        EventVisibility::Servers => Vec::new(),
    };
    admin.host.refresh_budgets().await;
    let fleet = FleetView {
        version: env!("CARGO_PKG_VERSION").into(),
        uptime_ms: millis(admin.started.elapsed()),
        upstreams: admin.host.status().iter().map(|status| admin.upstream_view(status)).collect(),
        ledger: LedgerView::from(&admin.host.ledger_status()),
        cache: admin.host.cache_counts().into(),
        events: events.iter().map(EventView::from).collect(),
        audit: admin.host.audit_status().into(),
        budgets: admin.host.budgets().into_iter().map(BudgetView::from).collect(),
        clients: admin.clients.as_ref().map(|count| count()),
        config: admin.reloader.get().map(|reloader| (&**reloader).into()),
        tls: admin.tls.as_deref().map(Into::into),
        cluster: admin.cluster.as_deref().map(Into::into),
        set_aside: admin.damaged_files(),
        exposure: ExposureView::of(&admin.host),
    };
    json(StatusCode::OK, &fleet)
}

pub(super) async fn upstream(
    State(admin): State<Arc<Admin>>,
    name: Result<Path<String>, PathRejection>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let Path(name) = name.map_err(invalid_path)?;
    let mut status = admin.host.server_status(&name)?;
    if admin.event_visibility(&headers) == EventVisibility::Servers {
        // stderr is part of the log, which needs the token.
        status.stderr.clear();
    }
    Ok(json(StatusCode::OK, &DetailView::of(&status, admin.upstream_view(&status))))
}

/// Lines of a server's stderr, starting with the requested line.
pub(super) async fn log(
    State(admin): State<Arc<Admin>>,
    name: Result<Path<String>, PathRejection>,
    uri: Uri,
) -> Result<Response, ApiError> {
    let Path(name) = name.map_err(invalid_path)?;
    // Other parameters are ignored.
    let mut pairs = uri.query().unwrap_or_default().split('&');
    let from = pairs.find_map(|pair| pair.strip_prefix("from=")).map_or(Ok(0), str::parse);
    let from = from.map_err(|_| {
        let text = "`from` must be the number of a log line";
        ApiError::new(StatusCode::BAD_REQUEST, "invalid_request", text)
    })?;
    Ok(json(StatusCode::OK, &LogView::of(&name, admin.host.server_stderr(&name, from)?)))
}

/// Known tools of a server. Does not start the server.
pub(super) async fn tools(
    State(admin): State<Arc<Admin>>,
    name: Result<Path<String>, PathRejection>,
) -> Result<Response, ApiError> {
    let Path(name) = name.map_err(invalid_path)?;
    let known = admin.host.cached_catalog(&name)?;
    admin.host.wait_for_secrets().await;
    let redact = |text: &str| admin.host.redact(&name, text).unwrap_or_default();
    Ok(json(StatusCode::OK, &ToolsView::of(&name, &known, redact)))
}

/// Calls a tool for the operator, as an MCP client would.
pub(super) async fn call(
    State(admin): State<Arc<Admin>>,
    name: Result<Path<String>, PathRejection>,
    request: Request,
) -> Result<Response, ApiError> {
    // Before the body is read: an unauthenticated client must not make the gateway read it.
    auth::require_token(request.headers(), &admin.token)?;
    let Path(name) = name.map_err(invalid_path)?;
    let received =
        body::read_bytes(&admin.body_memory, Peer::local(), request.into_body()).await.map_err(body_error)?;
    let wanted: ToolCallRequest = serde_json::from_slice(&received.bytes).map_err(|error| {
        ApiError::new(StatusCode::BAD_REQUEST, "invalid_request", format!("invalid request body: {error}"))
            .with_hint("send `{\"tool\": \"…\", \"arguments\": {…}}`")
    })?;
    if wanted.arguments.as_ref().is_some_and(|arguments| !matches!(arguments.get().as_bytes(), [b'{', ..])) {
        let text = "`arguments` must be a JSON object";
        return Err(ApiError::new(StatusCode::BAD_REQUEST, "invalid_request", text));
    }
    let answer =
        admin.host.call_by_operator(&name, &wanted.tool, wanted.arguments).await.map_err(call_error)?;
    Ok(json(StatusCode::OK, &ToolCallView::of(&answer)?))
}

/// Policy decision for a client and a tool.
pub(super) async fn policy(
    State(admin): State<Arc<Admin>>,
    path: Result<Path<(String, String, String)>, PathRejection>,
) -> Result<Response, ApiError> {
    let Path((client, server, tool)) = path.map_err(invalid_path)?;
    let principal = Principal::new(client.as_str());
    let decision = admin.host.explain_access(Some(&principal), &server, ItemKind::Tool, &tool)?;
    Ok(json(StatusCode::OK, &DecisionView::of(&client, &server, &tool, decision)))
}

pub(super) async fn history(State(admin): State<Arc<Admin>>) -> Response {
    json(StatusCode::OK, &admin.history.view())
}

pub(super) async fn run_action(
    State(admin): State<Arc<Admin>>,
    path: Result<Path<(String, String)>, PathRejection>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    // Checked first: an unauthenticated client must not learn names of servers.
    auth::require_token(&headers, &admin.token)?;
    let Path((name, action)) = path.map_err(invalid_path)?;
    let Some((_, ask)) = ACTIONS.iter().find(|(word, _)| *word == action) else {
        return Err(unknown_action(&action));
    };
    ask(&admin.host, &name)?;
    Ok(json(StatusCode::ACCEPTED, &admin.upstream_view(&admin.host.server_status(&name)?)))
}

/// Reads the config file now. Answers when the config is applied; servers may still be starting.
pub(super) async fn reload(
    State(admin): State<Arc<Admin>>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    auth::require_token(&headers, &admin.token)?;
    let Some(reloader) = admin.reloader.get() else {
        let message = "this gateway has no config file";
        return Err(ApiError::new(StatusCode::CONFLICT, "no_config", message));
    };
    let reloaded = reloader.reload().await.map_err(|error| {
        let text = format!("the config was rejected; the previous config stays in use: {error}");
        ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, "config_invalid", text)
            .with_hint(format!("`gripfast check {}` shows where the mistake is", reloader.path().display()))
    })?;
    Ok(json(StatusCode::OK, &reloaded))
}

/// Event stream. A client that reconnects with `Last-Event-ID` gets the events that it missed. A stream that was opened
/// with the admin token ends when the token is replaced. If MCP clients must authenticate, events about clients and
/// operators are sent only to a reader with the token.
pub(super) async fn events(State(admin): State<Arc<Admin>>, request: Request) -> Response {
    let last_seen = request.headers().get("last-event-id").and_then(|id| id.to_str().ok());
    let visibility = admin.event_visibility(request.headers());
    let subscriber = admin.event_log.subscribe(last_seen, visibility);
    let needs_token = request.extensions().get::<ByToken>().is_some()
        || (admin.protects_records && visibility == EventVisibility::Everything);
    let shown = needs_token.then(|| request.headers().clone());
    let frames =
        futures_util::stream::unfold((subscriber, admin, shown), async |(mut subscriber, admin, shown)| {
            let next = next_frame(&mut subscriber, &admin, KEEP_ALIVE_INTERVAL);
            let frame = match &shown {
                Some(headers) => while_token_valid(headers, &admin, next).await?,
                None => next.await?,
            };
            Some((Ok::<Bytes, Infallible>(frame), (subscriber, admin, shown)))
        });
    let mut response = Response::new(Body::from_stream(frames));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// The result of `next`, or `None` as soon as the credential in these headers is no longer valid.
async fn while_token_valid(
    headers: &HeaderMap,
    admin: &Admin,
    next: impl Future<Output = Option<Bytes>>,
) -> Option<Bytes> {
    let refused = async {
        while auth::require_token(headers, &admin.token).is_ok() {
            tokio::time::sleep(TOKEN_CHECK_INTERVAL).await;
        }
    };
    tokio::select! {
        biased;
        () = refused => None,
        frame = next => frame,
    }
}

async fn next_frame(subscriber: &mut EventSubscriber, admin: &Admin, keep_alive: Duration) -> Option<Bytes> {
    tokio::select! {
        biased;
        () = admin.shutdown.cancelled() => None,
        frame = subscriber.next() => frame,
        () = tokio::time::sleep(keep_alive) => Some(Bytes::from_static(b": still here\n\n")),
    }
}

async fn method_not_allowed(method: Method, uri: Uri) -> ApiError {
    let text = format!("`{}` does not support {method}", uri.path());
    ApiError::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", text)
        .with_hint("use GET to read and POST to act")
}

async fn not_found(uri: Uri) -> ApiError {
    let text = format!("the admin API has no path `{}`", uri.path());
    ApiError::new(StatusCode::NOT_FOUND, "not_found", text)
        .with_hint("`/api/v1/openapi.json` lists all paths")
}

fn unknown_action(action: &str) -> ApiError {
    let words = ACTIONS.map(|(word, _)| word);
    let hint = match suggest::nearest(action, words) {
        Some(near) => format!("did you mean `{near}`?"),
        None => format!("actions: {}", words.map(|word| format!("`{word}`")).join(", ")),
    };
    ApiError::new(StatusCode::NOT_FOUND, "not_found", format!("there is no action `{action}`"))
        .with_hint(hint)
}

fn body_error(failed: body::BodyError) -> ApiError {
    let (status, code, text) = match failed {
        body::BodyError::TooLarge => {
            (StatusCode::PAYLOAD_TOO_LARGE, "too_large", "the request body is larger than 16 MiB")
        }
        body::BodyError::TooSlow => {
            (StatusCode::REQUEST_TIMEOUT, "timed_out", "the request body was not complete after 60 s")
        }
        body::BodyError::Broken => {
            (StatusCode::BAD_REQUEST, "invalid_request", "the request body is incomplete or invalid")
        }
        body::BodyError::NoMemory(_) => (
            StatusCode::SERVICE_UNAVAILABLE,
            "overloaded",
            "too many large requests are in flight; try again later",
        ),
    };
    ApiError::new(status, code, text)
}

pub(super) fn invalid_path(rejection: PathRejection) -> ApiError {
    ApiError::new(StatusCode::BAD_REQUEST, "invalid_request", rejection.body_text())
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::response::IntoResponse;
    use http_body_util::BodyExt;

    #[tokio::test(start_paused = true)]
    async fn a_request_without_the_token_is_refused_unread_and_a_body_has_one_minute() {
        let state = tempfile::tempdir().unwrap();
        let admin = Arc::new(Admin::new(Host::builder().build(), Some(state.path())).unwrap());
        let token = std::fs::read_to_string(state.path().join(crate::api::TOKEN_FILE)).unwrap();
        let endless = || futures_util::stream::pending::<Result<Bytes, Infallible>>();
        let ask = async |shown: &str| {
            let mut request = Request::new(Body::from_stream(endless()));
            request.headers_mut().insert("authorization", shown.parse().unwrap());
            let started = tokio::time::Instant::now();
            let refused = call(State(Arc::clone(&admin)), Ok(Path("demo".to_owned())), request).await;
            (refused.into_response().status(), started.elapsed())
        };
        assert_eq!(ask("Bearer guessed").await, (StatusCode::UNAUTHORIZED, Duration::ZERO));
        let in_time = Duration::from_secs(60);
        assert_eq!(ask(&format!("Bearer {}", token.trim())).await, (StatusCode::REQUEST_TIMEOUT, in_time));
    }

    #[tokio::test(start_paused = true)]
    async fn g05_an_event_stream_ends_when_the_token_that_opened_it_is_replaced() {
        let state = tempfile::tempdir().unwrap();
        let admin = Arc::new(Admin::new(Host::builder().build(), Some(state.path())).unwrap());
        let token = std::fs::read_to_string(state.path().join(crate::api::TOKEN_FILE)).unwrap();
        let layer = from_fn_with_state(Arc::clone(&admin), Admin::authorize_read);
        let routes = router(Arc::clone(&admin)).layer(layer);
        let follow = async |from: [u8; 4]| {
            let mut request = Request::new(Body::empty());
            *request.uri_mut() = Uri::from_static("/api/v1/events");
            request.extensions_mut().insert(Peer::from_address(from.into()));
            let bearer = format!("Bearer {}", token.trim());
            request.headers_mut().insert("authorization", bearer.parse().unwrap());
            tower_service::Service::call(&mut routes.clone(), request).await.unwrap().into_body()
        };
        let has_ended = async |body: &mut Body| {
            let reading = async { while body.frame().await.is_some() {} };
            tokio::time::timeout(Duration::from_secs(1), reading).await.is_ok()
        };
        let (mut elsewhere, mut here) = (follow([192, 0, 2, 1]).await, follow([127, 0, 0, 1]).await);
        assert!(!has_ended(&mut elsewhere).await && !has_ended(&mut here).await);
        crate::api::rotate_token(state.path()).unwrap();
        assert!(has_ended(&mut elsewhere).await);
        assert!(!has_ended(&mut here).await, "reading is open on this machine");
    }

    #[tokio::test]
    async fn an_idle_event_stream_sends_keep_alive_comments() {
        let admin = Admin::new(Host::builder().build(), None).unwrap();
        let mut subscriber = admin.event_log.subscribe(None, EventVisibility::Everything);
        let frame = next_frame(&mut subscriber, &admin, Duration::from_millis(1)).await.unwrap();
        assert_eq!(frame, ": still here\n\n", "an SSE comment, not an event");
    }
}
