//! A test authorization server and a small MCP server that accepts its tokens, with configurable failures.
//!
//! Refresh tokens are valid for one use. A second use counts as theft and revokes the whole login, as real servers
//! do; that is the cost of a race between two processes. Access tokens expire after their lifetime, or when a test
//! expires them.

mod device;
mod mcp;

use std::collections::{HashMap, HashSet};
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use axum::Router;
use axum::body::Bytes;
use axum::extract::{RawQuery, State};
use axum::http::header::{AUTHORIZATION, LOCATION, RETRY_AFTER};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use base64::Engine;
use base64::prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use url::{Url, form_urlencoded};

/// Behaviour of the authorization server.
#[derive(Debug, Clone)]
pub struct AuthorityOptions {
    /// Announced lifetime of access tokens.
    pub token_lifetime: Duration,
    /// True if a 401 has a `WWW-Authenticate` header with the address of the metadata.
    pub sends_challenge: bool,
    /// True if a refresh returns a new refresh token.
    pub rotates_refresh_tokens: bool,
    /// Scope without which `tools/call` is refused.
    pub call_scope: Option<&'static str>,
    /// True if the MCP server answers `initialize` without a valid token.
    pub initialize_without_token: bool,
    /// Lifetime of device codes; `None` disables the device flow.
    pub device_code_lifetime: Option<Duration>,
}

impl Default for AuthorityOptions {
    fn default() -> Self {
        Self {
            token_lifetime: Duration::from_secs(3600),
            sends_challenge: true,
            rotates_refresh_tokens: true,
            call_scope: None,
            initialize_without_token: false,
            device_code_lifetime: None,
        }
    }
}

/// The server, listening on the loopback interface. Dropping it stops it.
#[derive(Debug)]
pub struct Authority {
    url: String,
    state: Arc<AuthorityState>,
    task: tokio::task::JoinHandle<()>,
}

/// Secret of the client `robot`, which gets tokens by the client credentials grant.
pub const CLIENT_SECRET: &str = "robots-have-secrets";

const DEVICE_GRANT: &str = "urn:ietf:params:oauth:grant-type:device_code";

#[derive(Debug)]
struct AuthorityState {
    url: String,
    options: AuthorityOptions,
    records: Mutex<Records>,
    /// True while answers to token requests are held.
    holds: watch::Sender<bool>,
}

#[derive(Debug, Default)]
struct Records {
    last_number: u64,
    clients: HashMap<String, String>,
    codes: HashMap<String, Code>,
    /// Clients that registered for the device flow.
    device_clients: HashSet<String>,
    device_codes: HashMap<String, device::DeviceCode>,
    access: HashMap<String, Token>,
    refresh: HashMap<String, Token>,
    /// Used refresh tokens, with their login.
    used_refresh_tokens: HashMap<String, u64>,
    failures_due: usize,
    /// Transformation of the answer to a successful refresh.
    refresh_answers: Option<fn(Value) -> (u16, String)>,
    /// Number of refreshes to answer with 429, and their `Retry-After`.
    busy_answers: Option<(usize, &'static str)>,
    redirects_to: Option<String>,
    /// True if the MCP server rejects all tokens.
    rejects_tokens: bool,
    /// Authorization server for `/mcp`, if it is another one.
    issuer: Option<Arc<AuthorityState>>,
    /// Resource that tokens are issued for, if it is another one.
    resource: Option<String>,
    /// True if the well-known URLs answer 404 and refusals have no challenge.
    hides_metadata: bool,
    /// Additional or replaced members of the metadata.
    metadata: HashMap<&'static str, Value>,
    /// Address of the authorization server that `/mcp` announces.
    issuer_at: Option<String>,
    /// Redirect target of the well-known URLs.
    metadata_at: Option<String>,
    /// Scopes that `insufficient_scope` asks for.
    wanted_scopes: Option<String>,
    counts: Counts,
    revoked: Vec<String>,
    presented: Vec<String>,
}

/// Counters.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Refresh tokens that were exchanged.
    pub refreshes: usize,
    /// Requests to the token endpoint.
    pub token_requests: usize,
    /// Refresh tokens that were presented, by any client.
    pub presented_refresh_tokens: usize,
    /// Refreshes that were answered with a 500.
    pub failed_refreshes: usize,
    /// Refresh tokens that were presented a second time; each revokes a login.
    pub reuse_detected: usize,
    /// Tokens issued by the client credentials grant.
    pub client_credentials: usize,
    /// Polls of the token endpoint in the device flow.
    pub device_polls: usize,
    /// Tool calls that were executed.
    pub calls: usize,
    /// Requests that were refused because of a missing or invalid token.
    pub refused: usize,
}

#[derive(Debug)]
struct Code {
    client: String,
    redirect: String,
    challenge: String,
    scopes: String,
}

#[derive(Debug, Clone)]
struct Token {
    login: u64,
    client: String,
    scopes: String,
    ends: Option<Instant>,
}

impl Authority {
    /// Starts the server on a free port.
    ///
    /// # Panics
    ///
    /// If there is none.
    pub async fn start(options: AuthorityOptions) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("there is a free port");
        let address = listener.local_addr().expect("it has an address");
        let url = format!("http://127.0.0.1:{}", address.port());
        let state = Arc::new(AuthorityState {
            url: url.clone(),
            options,
            records: Mutex::default(),
            holds: watch::Sender::default(),
        });
        let router = Router::new()
            .route("/.well-known/oauth-protected-resource/mcp", get(resource_metadata))
            .route("/.well-known/oauth-protected-resource", get(resource_metadata))
            .route("/.well-known/oauth-authorization-server", get(metadata))
            .route("/elsewhere/.well-known/anything", get(metadata))
            .route("/register", post(register))
            .route("/authorize", get(authorize))
            .route("/token", post(token))
            .route("/revoke", post(revoke))
            .route("/device", post(device::device_authorization))
            .route("/activate", get(device::activate))
            .route("/mcp", post(mcp::answer).get(mcp::no_stream).delete(mcp::no_stream))
            .with_state(Arc::clone(&state));
        let task = tokio::spawn(async move {
            axum::serve(listener, router).await.expect("it serves until it is dropped");
        });
        Self { url, state, task }
    }

    /// URL of the MCP endpoint.
    #[must_use]
    pub fn mcp_url(&self) -> String {
        format!("{}/mcp", self.url)
    }

    /// Counters so far.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.state.records().counts
    }

    /// All secrets that it has issued.
    #[must_use]
    pub fn secrets(&self) -> Vec<String> {
        let records = self.state.records();
        let given =
            records.access.keys().chain(records.refresh.keys()).chain(records.used_refresh_tokens.keys());
        given.cloned().chain([CLIENT_SECRET.to_owned()]).collect()
    }

    /// All tokens that were ever presented in an `Authorization` header.
    #[must_use]
    pub fn presented(&self) -> Vec<String> {
        self.state.records().presented.clone()
    }

    /// Tokens that clients have revoked, in order.
    #[must_use]
    pub fn revoked(&self) -> Vec<String> {
        self.state.records().revoked.clone()
    }

    /// Invalidates all access tokens immediately.
    pub fn expire_access_tokens(&self) {
        self.state.records().access.clear();
    }

    /// Makes the MCP server accept or reject issued tokens. A server that rejects them is configured for another
    /// issuer.
    pub fn accept_tokens(&self, takes: bool) {
        self.state.records().rejects_tokens = !takes;
    }

    /// Answers the next `count` refreshes with a 500.
    pub fn fail_refreshes(&self, count: usize) {
        self.state.records().failures_due = count;
    }

    /// Answers successful refreshes with the status and body that `form` returns.
    pub fn answer_refreshes(&self, form: fn(Value) -> (u16, String)) {
        self.state.records().refresh_answers = Some(form);
    }

    /// Answers the next `count` refreshes with a 429 and this `Retry-After`.
    pub fn answer_too_many_requests(&self, count: usize, retry_after: &'static str) {
        self.state.records().busy_answers = Some((count, retry_after));
    }

    /// Holds answers to token requests. The requests themselves are executed immediately.
    pub fn hold_token_answers(&self, holds: bool) {
        self.state.holds.send_replace(holds);
    }

    /// URL of the authorization server.
    #[must_use]
    pub fn issuer(&self) -> &str {
        &self.url
    }

    /// Makes `/mcp` announce another authorization server and accept its tokens.
    pub fn use_issuer(&self, other: &Self) {
        self.state.records().issuer = Some(Arc::clone(&other.state));
        other.state.records().resource = Some(self.mcp_url());
    }

    /// Hides the authorization server: refusals have no challenge, and the well-known URLs answer 404.
    pub fn hide_metadata(&self) {
        self.state.records().hides_metadata = true;
    }

    /// Sets a member of the metadata.
    pub fn set_metadata(&self, key: &'static str, value: Value) {
        self.state.records().metadata.insert(key, value);
    }

    /// Makes `/mcp` announce a URL as its authorization server that is not a well-known one.
    pub fn set_wrong_issuer(&self) {
        self.state.records().issuer_at = Some(format!("{}/elsewhere/.well-known/anything", self.url));
    }

    /// Redirects the well-known URLs.
    pub fn redirect_metadata(&self, elsewhere: &str) {
        self.state.records().metadata_at = Some(elsewhere.to_owned());
    }

    /// Sets the scopes that a refusal for missing scopes asks for.
    pub fn require_scopes(&self, scopes: String) {
        self.state.records().wanted_scopes = Some(scopes);
    }

    /// Redirects all requests to `/mcp`.
    pub fn redirect_mcp(&self, elsewhere: &str) {
        self.state.records().redirects_to = Some(elsewhere.to_owned());
    }

    /// Forgets all registered clients.
    pub fn forget_clients(&self) {
        self.state.records().clients.clear();
    }

    /// Tokens of a login in the old unsealed file format. According to the file, the access token was issued this
    /// many seconds ago.
    ///
    /// # Panics
    ///
    /// If there is no login.
    #[must_use]
    pub fn unsealed_login(&self, seconds_ago: u64) -> String {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("it is after 1970");
        let records = self.state.records();
        let (access, _) = records.access.iter().next().expect("there is a login");
        let (refresh, grant) = records.refresh.iter().next().expect("there is a login");
        let record = json!({
            "resource": format!("{}/mcp", self.url),
            "issuer": self.url,
            "token_endpoint": format!("{}/token", self.url),
            "client_id": grant.client,
            "access_token": access,
            "refresh_token": refresh,
            "received_at": now.as_secs() - seconds_ago,
            "expires_in": self.state.options.token_lifetime.as_secs(),
        });
        record.to_string()
    }

    /// A valid access token.
    ///
    /// # Panics
    ///
    /// If there is none.
    #[must_use]
    pub fn valid_access_token(&self) -> String {
        self.state.records().access.keys().next().expect("there is a login").clone()
    }

    /// Revokes all logins, as a user could.
    pub fn revoke_logins(&self) {
        let mut records = self.state.records();
        records.access.clear();
        records.refresh.clear();
    }
}

/// Acts as a browser for the URL of a login whose user consents to everything. Returns the redirect target.
///
/// # Panics
///
/// If there is no redirect.
pub async fn authorize_in_browser(url: &str) -> String {
    let answer = fetch(url).await;
    let location = answer.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("location").then(|| value.trim().to_owned())
    });
    location.unwrap_or_else(|| panic!("{url} has no redirect: {answer}"))
}

/// Same as [`authorize_in_browser`], and then follows the redirect.
///
/// # Panics
///
/// As [`authorize_in_browser`].
pub async fn complete_authorization(url: &str) {
    fetch(&authorize_in_browser(url).await).await;
}

/// Fetches a URL like a browser. Returns the raw response.
///
/// # Panics
///
/// If there is no response.
pub async fn fetch(url: &str) -> String {
    let url = Url::parse(url).expect("it is an address");
    let host = url.host_str().expect("it has a host");
    let port = url.port_or_known_default().expect("it has a port");
    let path = &url[url::Position::BeforePath..url::Position::AfterQuery];
    let mut browser = TcpStream::connect((host, port)).await.expect("the server listens");
    let request = format!("GET {path} HTTP/1.1\r\nhost: {host}:{port}\r\nconnection: close\r\n\r\n");
    browser.write_all(request.as_bytes()).await.expect("it takes a request");
    let mut answer = String::new();
    browser.read_to_string(&mut answer).await.expect("it answers");
    answer
}

impl Drop for Authority {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl AuthorityState {
    fn records(&self) -> MutexGuard<'_, Records> {
        self.records.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Resource that tokens are issued for.
    fn resource(&self, records: &Records) -> String {
        records.resource.clone().unwrap_or_else(|| format!("{}/mcp", self.url))
    }

    /// Response of a well-known URL that does not return the metadata.
    fn metadata_hidden(&self) -> Option<Response> {
        let records = self.records();
        if let Some(elsewhere) = &records.metadata_at {
            return Some((StatusCode::FOUND, [(LOCATION, elsewhere.clone())]).into_response());
        }
        records.hides_metadata.then(|| StatusCode::NOT_FOUND.into_response())
    }

    /// Issues an access token, and a refresh token if the login has a user.
    fn grant(&self, records: &mut Records, grant: Token, refreshable: bool) -> Value {
        let access = records.new_secret("access");
        let ends = Some(Instant::now() + self.options.token_lifetime);
        records.access.insert(access.clone(), Token { ends, ..grant.clone() });
        let mut answer = json!({
            "access_token": access,
            "token_type": "Bearer",
            "expires_in": self.options.token_lifetime.as_secs(),
            "scope": grant.scopes,
        });
        if refreshable {
            let refresh = records.new_secret("refresh");
            records.refresh.insert(refresh.clone(), grant);
            answer["refresh_token"] = refresh.into();
        }
        answer
    }
}

impl Records {
    fn next_number(&mut self) -> u64 {
        self.last_number += 1;
        self.last_number
    }

    fn new_secret(&mut self, what: &str) -> String {
        format!("{what}-{}-of-the-authority", self.next_number())
    }
}

async fn resource_metadata(State(state): State<Arc<AuthorityState>>) -> Response {
    if let Some(hidden) = state.metadata_hidden() {
        return hidden;
    }
    let issuer = {
        let records = state.records();
        let named = records.issuer.as_ref().map_or(&state.url, |other| &other.url);
        records.issuer_at.clone().unwrap_or_else(|| named.clone())
    };
    json_response(&json!({ "resource": format!("{}/mcp", state.url), "authorization_servers": [issuer] }))
}

async fn metadata(State(state): State<Arc<AuthorityState>>) -> Response {
    if let Some(hidden) = state.metadata_hidden() {
        return hidden;
    }
    let url = &state.url;
    let mut metadata = json!({
        "issuer": url,
        "authorization_endpoint": format!("{url}/authorize"),
        "token_endpoint": format!("{url}/token"),
        "registration_endpoint": format!("{url}/register"),
        "response_types_supported": ["code"],
        "grant_types_supported": ["authorization_code", "refresh_token", "client_credentials"],
        "code_challenge_methods_supported": ["S256"],
        "token_endpoint_auth_methods_supported": ["none", "client_secret_basic"],
        "authorization_response_iss_parameter_supported": true,
    });
    if state.options.device_code_lifetime.is_some() {
        metadata["device_authorization_endpoint"] = format!("{url}/device").into();
    }
    for (key, value) in &state.records().metadata {
        metadata[*key] = value.clone();
    }
    json_response(&metadata)
}

async fn register(State(state): State<Arc<AuthorityState>>, body: Bytes) -> Response {
    let wanted: Value = serde_json::from_slice(&body).unwrap_or_default();
    let grants = wanted["grant_types"].as_array();
    let by_device = grants.is_some_and(|grants| grants.iter().any(|grant| *grant == DEVICE_GRANT));
    let redirect = match wanted["redirect_uris"][0].as_str() {
        Some(redirect) => redirect,
        // The device flow has no redirect URI.
        None if by_device => "",
        None => return refused(StatusCode::BAD_REQUEST, "invalid_redirect_uri"),
    };
    let mut records = state.records();
    let client = records.new_secret("client");
    if by_device {
        records.device_clients.insert(client.clone());
    }
    records.clients.insert(client.clone(), redirect.to_owned());
    let answer = json!({
        "client_id": client,
        "redirect_uris": [redirect],
        "client_name": wanted["client_name"],
        "token_endpoint_auth_method": "none",
    });
    (StatusCode::CREATED, json_response(&answer)).into_response()
}

/// Authorization endpoint; the user consents immediately.
async fn authorize(State(state): State<Arc<AuthorityState>>, RawQuery(query): RawQuery) -> Response {
    let asked = form_fields(query.unwrap_or_default().as_bytes());
    let of = |key: &str| asked.get(key).cloned().unwrap_or_default();
    let mut records = state.records();
    let known = records.clients.get(&of("client_id")).cloned();
    if known.as_deref() != Some(&*of("redirect_uri")) || of("response_type") != "code" {
        return refused(StatusCode::BAD_REQUEST, "unauthorized_client");
    }
    if of("code_challenge_method") != "S256" || of("resource") != state.resource(&records) {
        return refused(StatusCode::BAD_REQUEST, "invalid_request");
    }
    let code = records.new_secret("code");
    let noted = Code {
        client: of("client_id"),
        redirect: of("redirect_uri"),
        challenge: of("code_challenge"),
        scopes: of("scope"),
    };
    let Ok(mut back) = Url::parse(&noted.redirect) else {
        return refused(StatusCode::BAD_REQUEST, "invalid_redirect_uri");
    };
    back.query_pairs_mut().append_pair("code", &code).append_pair("state", &of("state"));
    // Without metadata the client knows no issuer to compare `iss` with.
    if !records.hides_metadata {
        back.query_pairs_mut().append_pair("iss", &state.url);
    }
    records.codes.insert(code, noted);
    (StatusCode::FOUND, [(LOCATION, back.to_string())]).into_response()
}

/// Revocation endpoint. RFC 7009: revoking an unknown token succeeds.
async fn revoke(State(state): State<Arc<AuthorityState>>, body: Bytes) -> Response {
    let token = form_fields(&body).remove("token").unwrap_or_default();
    let mut records = state.records();
    records.access.remove(&token);
    records.refresh.remove(&token);
    records.revoked.push(token);
    StatusCode::OK.into_response()
}

async fn token(State(state): State<Arc<AuthorityState>>, headers: HeaderMap, body: Bytes) -> Response {
    let answer = exchange(&state, &headers, &body);
    let _ = state.holds.subscribe().wait_for(|holds| !holds).await;
    answer
}

fn exchange(state: &AuthorityState, headers: &HeaderMap, body: &[u8]) -> Response {
    let asked = form_fields(body);
    let of = |key: &str| asked.get(key).cloned().unwrap_or_default();
    let mut records = state.records();
    records.counts.token_requests += 1;
    if of("resource") != state.resource(&records) {
        return refused(StatusCode::BAD_REQUEST, "invalid_target");
    }
    match of("grant_type").as_str() {
        "authorization_code" => {
            let Some(code) = records.codes.remove(&of("code")) else {
                return refused(StatusCode::BAD_REQUEST, "invalid_grant");
            };
            let proof = BASE64_URL_SAFE_NO_PAD.encode(Sha256::digest(of("code_verifier")));
            if proof != code.challenge
                || of("redirect_uri") != code.redirect
                || of("client_id") != code.client
            {
                return refused(StatusCode::BAD_REQUEST, "invalid_grant");
            }
            let login = records.next_number();
            let grant = Token { login, client: code.client, scopes: code.scopes, ends: None };
            json_response(&state.grant(&mut records, grant, true))
        }
        DEVICE_GRANT => device::token(state, &mut records, &of("device_code"), &of("client_id")),
        "refresh_token" => refresh(state, &mut records, &of("refresh_token"), &of("client_id")),
        "client_credentials" => {
            let secret = BASE64_STANDARD.encode(format!("robot:{CLIENT_SECRET}"));
            let shown = headers.get(AUTHORIZATION).and_then(|shown| shown.to_str().ok());
            if shown != Some(&format!("Basic {secret}")) {
                return refused(StatusCode::UNAUTHORIZED, "invalid_client");
            }
            records.counts.client_credentials += 1;
            let login = records.next_number();
            let grant = Token { login, client: "robot".to_owned(), scopes: of("scope"), ends: None };
            json_response(&state.grant(&mut records, grant, false))
        }
        _ => refused(StatusCode::BAD_REQUEST, "unsupported_grant_type"),
    }
}

fn refresh(state: &AuthorityState, records: &mut Records, shown: &str, client: &str) -> Response {
    records.counts.presented_refresh_tokens += 1;
    if records.failures_due > 0 {
        records.failures_due -= 1;
        records.counts.failed_refreshes += 1;
        return (StatusCode::INTERNAL_SERVER_ERROR, "out of order").into_response();
    }
    if let Some((count, retry_after)) = records.busy_answers.take() {
        records.busy_answers = (count > 1).then_some((count - 1, retry_after));
        return (StatusCode::TOO_MANY_REQUESTS, [(RETRY_AFTER, retry_after)]).into_response();
    }
    if !records.clients.contains_key(client) {
        return refused(StatusCode::UNAUTHORIZED, "invalid_client");
    }
    if let Some(login) = records.used_refresh_tokens.get(shown).copied() {
        records.counts.reuse_detected += 1;
        records.access.retain(|_, token| token.login != login);
        records.refresh.retain(|_, token| token.login != login);
        return refused(StatusCode::BAD_REQUEST, "invalid_grant");
    }
    let Some(grant) = records.refresh.get(shown).filter(|token| token.client == client).cloned() else {
        return refused(StatusCode::BAD_REQUEST, "invalid_grant");
    };
    records.counts.refreshes += 1;
    if state.options.rotates_refresh_tokens {
        records.refresh.remove(shown);
        records.used_refresh_tokens.insert(shown.to_owned(), grant.login);
    }
    let answer = state.grant(records, grant, state.options.rotates_refresh_tokens);
    let Some(form) = records.refresh_answers else { return json_response(&answer) };
    let (status, body) = form(answer);
    (StatusCode::from_u16(status).unwrap_or_default(), body).into_response()
}

fn form_fields(form: &[u8]) -> HashMap<String, String> {
    form_urlencoded::parse(form).into_owned().collect()
}

fn refused(status: StatusCode, error: &str) -> Response {
    (status, json_response(&json!({ "error": error }))).into_response()
}

fn json_response(value: &Value) -> Response {
    ([("content-type", "application/json")], value.to_string()).into_response()
}
