//! The routes of the admin API: reading is open, acting is guarded.

use super::answer::{Refusal, json, text};
use super::calls::LedgerView;
use super::journal::{Follower, Sees};
use super::operations::OPERATIONS;
use super::tools::{AnswerView, DecisionView, ToolsView, Wanted, not_called};
use super::view::{BudgetView, ConfigView, DetailView, EventView, FleetView, LogView, TlsView, millis};
use super::{Admin, ByToken, acting, guard};
use crate::downstream::body;
use crate::shares::Peer;
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
use gripfast::{CallError, Host, Kind, Principal};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

/// Proxies close what is silent for a minute, and a follower that is gone is noticed when it is written to.
const SIGN_OF_LIFE: Duration = Duration::from_secs(15);

/// Interval at which an event stream checks that the token which opened it is still valid.
const LOOK_AT_TOKEN: Duration = Duration::from_millis(500);

type Ask = fn(&Host, &str) -> Result<(), CallError>;

/// What can be asked of an upstream.
const ACTIONS: [(&str, Ask); 4] = [
    ("reconnect", Host::reconnect),
    ("reload", Host::reload),
    ("stop", Host::stop),
    ("start", Host::start_again),
];

pub(super) fn router(admin: Arc<Admin>) -> Router {
    let served = OPERATIONS
        .iter()
        .fold(Router::new(), |router, operation| router.route(operation.path, (operation.serve)()));
    let acting = from_fn_with_state(Arc::clone(&admin), acting::admit);
    // Those who ask for what there is not are not asked for a token.
    let api = served.route_layer(acting).method_not_allowed_fallback(wrong_method).fallback(no_such_path);
    Router::new()
        .route("/healthz", get(healthz))
        .route("/readyz", get(readyz))
        .nest("/api/v1", api)
        // What a nested router does not see.
        .route("/api/v1/", get(no_such_path))
        .with_state(admin)
}

async fn healthz() -> Response {
    text(StatusCode::OK, "ok")
}

async fn readyz(State(admin): State<Arc<Admin>>) -> Result<Response, Refusal> {
    if admin.serves() {
        return Ok(text(StatusCode::OK, "ok"));
    }
    let what = "the gateway is starting, or about to end";
    Err(Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "not_ready", what))
}

pub(super) async fn fleet(State(admin): State<Arc<Admin>>, headers: HeaderMap) -> Response {
    let events = match admin.sees(&headers) {
        Sees::Everything => admin.host.security_events(),
        Sees::Servers => Vec::new(),
    };
    let fleet = FleetView {
        version: env!("CARGO_PKG_VERSION"),
        uptime_ms: millis(admin.begun.elapsed()),
        upstreams: admin.host.status().iter().map(|status| admin.shown(status)).collect(),
        ledger: LedgerView::from(&admin.host.ledger_status()),
        cache: admin.host.cache_counts().into(),
        events: events.iter().map(EventView::from).collect(),
        audit: admin.host.audit_status().into(),
        budgets: admin.host.budgets().into_iter().map(BudgetView::from).collect(),
        clients: admin.clients.as_ref().map(|count| count()),
        config: admin.reloader.get().map(|reloader| ConfigView::of(reloader)),
        tls: admin.tls.as_deref().map(TlsView::of),
        set_aside: admin.set_aside(),
    };
    json(StatusCode::OK, &fleet)
}

pub(super) async fn upstream(
    State(admin): State<Arc<Admin>>,
    name: Result<Path<String>, PathRejection>,
    headers: HeaderMap,
) -> Result<Response, Refusal> {
    let Path(name) = name.map_err(unreadable)?;
    let mut status = admin.host.status_of(&name)?;
    if admin.sees(&headers) == Sees::Servers {
        // These lines are the log, which needs the token.
        status.stderr.clear();
    }
    Ok(json(StatusCode::OK, &DetailView::of(&status, admin.shown(&status))))
}

/// What a server wrote to stderr, from the line on that is asked for.
pub(super) async fn log(
    State(admin): State<Arc<Admin>>,
    name: Result<Path<String>, PathRejection>,
    uri: Uri,
) -> Result<Response, Refusal> {
    let Path(name) = name.map_err(unreadable)?;
    // Other parameters change nothing.
    let mut pairs = uri.query().unwrap_or_default().split('&');
    let from = pairs.find_map(|pair| pair.strip_prefix("from=")).map_or(Ok(0), str::parse);
    let from = from.map_err(|_| {
        let text = "`from` is the number of the first line of the log";
        Refusal::new(StatusCode::BAD_REQUEST, "invalid_request", text)
    })?;
    Ok(json(StatusCode::OK, &LogView::of(&name, admin.host.stderr_of(&name, from)?)))
}

/// What a server is known to offer. Looking does not start it.
pub(super) async fn tools(
    State(admin): State<Arc<Admin>>,
    name: Result<Path<String>, PathRejection>,
) -> Result<Response, Refusal> {
    let Path(name) = name.map_err(unreadable)?;
    let known = admin.host.known_catalog(&name)?;
    admin.host.secrets_known().await;
    let redact = |text: &str| admin.host.redact(&name, text).unwrap_or_default();
    Ok(json(StatusCode::OK, &ToolsView::of(&name, &known, redact)))
}

/// Calls a tool for whoever has the token, as any client would.
pub(super) async fn call(
    State(admin): State<Arc<Admin>>,
    name: Result<Path<String>, PathRejection>,
    request: Request,
) -> Result<Response, Refusal> {
    // Before its body: a stranger has no say in what is read here.
    guard::admit(request.headers(), &admin.token)?;
    let Path(name) = name.map_err(unreadable)?;
    let received = body::whole(&admin.bodies, Peer::here(), request.into_body()).await.map_err(no_body)?;
    let wanted: Wanted = serde_json::from_slice(&received.bytes).map_err(|error| {
        Refusal::new(StatusCode::BAD_REQUEST, "invalid_request", format!("the body cannot be read: {error}"))
            .with_hint("send `{\"tool\": \"…\", \"arguments\": {…}}`")
    })?;
    if wanted.arguments.as_ref().is_some_and(|arguments| !matches!(arguments.get().as_bytes(), [b'{', ..])) {
        let text = "the arguments of a tool are an object";
        return Err(Refusal::new(StatusCode::BAD_REQUEST, "invalid_request", text));
    }
    let answer =
        admin.host.call_by_operator(&name, &wanted.tool, wanted.arguments).await.map_err(not_called)?;
    Ok(json(StatusCode::OK, &AnswerView::of(&answer)?))
}

/// What the lists say about a client and a tool.
pub(super) async fn policy(
    State(admin): State<Arc<Admin>>,
    path: Result<Path<(String, String, String)>, PathRejection>,
) -> Result<Response, Refusal> {
    let Path((client, server, tool)) = path.map_err(unreadable)?;
    let principal = Principal::named(client.as_str());
    let decision = admin.host.explain(Some(&principal), &server, Kind::Tool, &tool)?;
    Ok(json(StatusCode::OK, &DecisionView::of(&client, &server, &tool, &decision)))
}

pub(super) async fn history(State(admin): State<Arc<Admin>>) -> Response {
    json(StatusCode::OK, &admin.history.view())
}

pub(super) async fn act(
    State(admin): State<Arc<Admin>>,
    path: Result<Path<(String, String)>, PathRejection>,
    headers: HeaderMap,
) -> Result<Response, Refusal> {
    // First of all: a stranger learns nothing about names.
    guard::admit(&headers, &admin.token)?;
    let Path((name, action)) = path.map_err(unreadable)?;
    let Some((_, ask)) = ACTIONS.iter().find(|(word, _)| *word == action) else {
        return Err(no_such_action(&action));
    };
    ask(&admin.host, &name)?;
    Ok(json(StatusCode::ACCEPTED, &admin.shown(&admin.host.status_of(&name)?)))
}

/// Looks at the config file now. Answers when what it says holds, but for servers that are still starting.
pub(super) async fn reload(State(admin): State<Arc<Admin>>, headers: HeaderMap) -> Result<Response, Refusal> {
    guard::admit(&headers, &admin.token)?;
    let Some(reloader) = admin.reloader.get() else {
        let what = "this gateway has no config file to look at";
        return Err(Refusal::new(StatusCode::CONFLICT, "no_config", what));
    };
    let reloaded = reloader.reload().await.map_err(|error| {
        let text = format!("the config was refused, and the one in use stays: {error}");
        Refusal::new(StatusCode::UNPROCESSABLE_ENTITY, "config_invalid", text)
            .with_hint(format!("`gripfast check {}` shows the place", reloader.path().display()))
    })?;
    Ok(json(StatusCode::OK, &reloaded))
}

/// The event stream. A client that comes back with `Last-Event-ID` gets the events that it missed. A stream that the
/// admin token opened ends when that token is replaced. Where clients have to authenticate, what tells about clients and
/// operators is left out for a client without the token.
pub(super) async fn events(State(admin): State<Arc<Admin>>, request: Request) -> Response {
    let last_seen = request.headers().get("last-event-id").and_then(|id| id.to_str().ok());
    let sees = admin.sees(request.headers());
    let follower = admin.journal.follow(last_seen, sees);
    let needs_token =
        request.extensions().get::<ByToken>().is_some() || (admin.guards_records && sees == Sees::Everything);
    let shown = needs_token.then(|| request.headers().clone());
    let frames =
        futures_util::stream::unfold((follower, admin, shown), async |(mut follower, admin, shown)| {
            let next = next_frame(&mut follower, &admin, SIGN_OF_LIFE);
            let frame = match &shown {
                Some(headers) => while_admitted(headers, &admin, next).await?,
                None => next.await?,
            };
            Some((Ok::<Bytes, Infallible>(frame), (follower, admin, shown)))
        });
    let mut response = Response::new(Body::from_stream(frames));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// The result of `next`, or `None` as soon as these headers are not admitted any more.
async fn while_admitted(
    headers: &HeaderMap,
    admin: &Admin,
    next: impl Future<Output = Option<Bytes>>,
) -> Option<Bytes> {
    let refused = async {
        while guard::admit(headers, &admin.token).is_ok() {
            tokio::time::sleep(LOOK_AT_TOKEN).await;
        }
    };
    tokio::select! {
        biased;
        () = refused => None,
        frame = next => frame,
    }
}

async fn next_frame(follower: &mut Follower, admin: &Admin, patience: Duration) -> Option<Bytes> {
    tokio::select! {
        biased;
        () = admin.leaving.cancelled() => None,
        frame = follower.next() => frame,
        () = tokio::time::sleep(patience) => Some(Bytes::from_static(b": still here\n\n")),
    }
}

async fn wrong_method(method: Method, uri: Uri) -> Refusal {
    let text = format!("`{}` does not answer {method}", uri.path());
    Refusal::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", text)
        .with_hint("status, calls and events are read with GET, a server is operated with POST")
}

async fn no_such_path(uri: Uri) -> Refusal {
    let text = format!("the admin API has no `{}`", uri.path());
    Refusal::new(StatusCode::NOT_FOUND, "not_found", text)
        .with_hint("`/api/v1/openapi.json` describes what there is")
}

fn no_such_action(action: &str) -> Refusal {
    let words = ACTIONS.map(|(word, _)| word);
    let hint = match suggest::nearest(action, words) {
        Some(near) => format!("did you mean `{near}`?"),
        None => format!("there are {}", words.map(|word| format!("`{word}`")).join(", ")),
    };
    Refusal::new(StatusCode::NOT_FOUND, "not_found", format!("there is no action `{action}`")).with_hint(hint)
}

fn no_body(failed: body::Failed) -> Refusal {
    let (status, code, text) = match failed {
        body::Failed::TooLarge => {
            (StatusCode::PAYLOAD_TOO_LARGE, "too_large", "the body is over the limit of 16 MiB")
        }
        body::Failed::TooSlow => {
            (StatusCode::REQUEST_TIMEOUT, "timed_out", "the body was not complete after 60 s")
        }
        body::Failed::Broken => {
            (StatusCode::BAD_REQUEST, "invalid_request", "the body is not what its head says")
        }
        body::Failed::NoMemory(_) => {
            (StatusCode::SERVICE_UNAVAILABLE, "overloaded", "too many large messages are under way")
        }
    };
    Refusal::new(status, code, text)
}

pub(super) fn unreadable(rejection: PathRejection) -> Refusal {
    Refusal::new(StatusCode::BAD_REQUEST, "invalid_request", rejection.body_text())
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::response::IntoResponse;
    use http_body_util::BodyExt;

    #[tokio::test(start_paused = true)]
    async fn a_stranger_is_turned_away_before_its_body_and_whoever_has_the_token_has_a_minute_for_it() {
        let state = tempfile::tempdir().unwrap();
        let admin = Arc::new(Admin::new(Host::builder().build(), Some(state.path())).unwrap());
        let token = std::fs::read_to_string(state.path().join(crate::admin::TOKEN_FILE)).unwrap();
        let endless = || futures_util::stream::pending::<Result<Bytes, Infallible>>();
        let ask = async |shown: &str| {
            let mut request = Request::new(Body::from_stream(endless()));
            request.headers_mut().insert("authorization", shown.parse().unwrap());
            let begun = tokio::time::Instant::now();
            let refused = call(State(Arc::clone(&admin)), Ok(Path("demo".to_owned())), request).await;
            (refused.into_response().status(), begun.elapsed())
        };
        assert_eq!(ask("Bearer guessed").await, (StatusCode::UNAUTHORIZED, Duration::ZERO));
        let in_time = Duration::from_secs(60);
        assert_eq!(ask(&format!("Bearer {}", token.trim())).await, (StatusCode::REQUEST_TIMEOUT, in_time));
    }

    #[tokio::test(start_paused = true)]
    async fn g05_an_event_stream_that_a_token_opened_ends_within_a_second_when_the_token_is_replaced() {
        let state = tempfile::tempdir().unwrap();
        let admin = Arc::new(Admin::new(Host::builder().build(), Some(state.path())).unwrap());
        let token = std::fs::read_to_string(state.path().join(crate::admin::TOKEN_FILE)).unwrap();
        let layer = from_fn_with_state(Arc::clone(&admin), Admin::let_read);
        let routes = router(Arc::clone(&admin)).layer(layer);
        let follow = async |from: [u8; 4]| {
            let mut request = Request::new(Body::empty());
            *request.uri_mut() = Uri::from_static("/api/v1/events");
            request.extensions_mut().insert(Peer::at(from.into()));
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
        crate::admin::rotate_token(state.path()).unwrap();
        assert!(has_ended(&mut elsewhere).await);
        assert!(!has_ended(&mut here).await, "reading is open here");
    }

    #[tokio::test]
    async fn silence_is_broken_by_a_sign_of_life() {
        let admin = Admin::new(Host::builder().build(), None).unwrap();
        let mut follower = admin.journal.follow(None, Sees::Everything);
        let frame = next_frame(&mut follower, &admin, Duration::from_millis(1)).await.unwrap();
        assert_eq!(frame, ": still here\n\n", "a comment, which is no event to anybody");
    }
}
