//! An authorization server of our own, and a small MCP server that takes its tokens: strict where real ones are strict,
//! and unkind on demand.
//!
//! Refresh tokens are good for one use. Who shows one for the second time is taken for a thief, and everything that came
//! of the same login ends: that is what a race between two processes costs with a real server. Access tokens end when
//! their time is over, or when a test says so.

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

/// How it behaves.
#[derive(Debug, Clone)]
pub struct Manners {
    /// How long an access token is good, as it says.
    pub lasts: Duration,
    /// Whether a refused request is told where to go (`WWW-Authenticate`).
    pub challenges: bool,
    /// Whether a refresh answers with a new refresh token.
    pub rotates: bool,
    /// The scope without which `tools/call` is refused.
    pub call_scope: Option<&'static str>,
    /// Whether its server shakes hands with those who show no token, or one that it does not take.
    pub greets_anybody: bool,
    /// How long codes for logins on another device are good, if it makes any.
    pub device_codes_last: Option<Duration>,
}

impl Default for Manners {
    fn default() -> Self {
        Self {
            lasts: Duration::from_secs(3600),
            challenges: true,
            rotates: true,
            call_scope: None,
            greets_anybody: false,
            device_codes_last: None,
        }
    }
}

/// The server, listening on the loopback interface. Dropping it ends it.
#[derive(Debug)]
pub struct Authority {
    url: String,
    books: Arc<Books>,
    task: tokio::task::JoinHandle<()>,
}

/// The secret of the client `robot`, which may have tokens without a person.
pub const ROBOT_SECRET: &str = "robots-have-secrets";

const DEVICE_GRANT: &str = "urn:ietf:params:oauth:grant-type:device_code";

#[derive(Debug)]
struct Books {
    url: String,
    manners: Manners,
    pages: Mutex<Pages>,
    /// Whether what it answers about tokens is kept back.
    holds: watch::Sender<bool>,
}

#[derive(Debug, Default)]
struct Pages {
    last_number: u64,
    clients: HashMap<String, String>,
    codes: HashMap<String, Code>,
    /// Those who have registered for logins on other devices.
    device_clients: HashSet<String>,
    device_codes: HashMap<String, device::Code>,
    access: HashMap<String, Token>,
    refresh: HashMap<String, Token>,
    /// Refresh tokens that were used, with the login they came of.
    spent: HashMap<String, u64>,
    failures_due: usize,
    /// What becomes of the answer to a refresh that was granted.
    refresh_answers: Option<fn(Value) -> (u16, String)>,
    /// The next so many token requests are answered with a 429 and this `Retry-After`.
    busy: Option<(usize, &'static str)>,
    redirects_to: Option<String>,
    /// Its server takes none of the tokens that are given out.
    takes_no_token: bool,
    /// The authorization server that gives tokens for `/mcp`, if it is another one.
    issuer: Option<Arc<Books>>,
    /// The server that tokens are given for, if it is another one.
    resource: Option<String>,
    /// Whether the well-known addresses answer with 404, and refusals are bare.
    hides_metadata: bool,
    /// What the metadata says besides, or instead.
    metadata: HashMap<&'static str, Value>,
    /// Where `/mcp` says that the metadata is.
    issuer_at: Option<String>,
    /// Where the well-known addresses redirect to.
    metadata_at: Option<String>,
    /// What `insufficient_scope` asks for.
    wanted_scopes: Option<String>,
    counts: Counts,
    revoked: Vec<String>,
    shown: Vec<String>,
}

/// What has happened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Refresh tokens that were exchanged.
    pub refreshes: usize,
    /// Requests to the token endpoint.
    pub token_requests: usize,
    /// Refresh tokens that were shown, whoever they are of.
    pub shown_refresh_tokens: usize,
    /// Refreshes that were answered with a 500.
    pub failed_refreshes: usize,
    /// Refresh tokens that were shown a second time; each ends a login.
    pub thefts: usize,
    /// Tokens that a client had by its own secret.
    pub by_secret: usize,
    /// How often it was asked whether somebody has entered a code.
    pub device_polls: usize,
    /// Calls that were carried out.
    pub calls: usize,
    /// Requests that were refused for want of a token.
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
    /// Starts it on a free port.
    ///
    /// # Panics
    ///
    /// If there is none.
    pub async fn start(manners: Manners) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("there is a free port");
        let address = listener.local_addr().expect("it has an address");
        let url = format!("http://127.0.0.1:{}", address.port());
        let books = Arc::new(Books {
            url: url.clone(),
            manners,
            pages: Mutex::default(),
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
            .route("/device", post(device::begin))
            .route("/activate", get(device::activate))
            .route("/mcp", post(mcp::answer).get(mcp::no_stream).delete(mcp::no_stream))
            .with_state(Arc::clone(&books));
        let task = tokio::spawn(async move {
            axum::serve(listener, router).await.expect("it serves until it is dropped");
        });
        Self { url, books, task }
    }

    /// The MCP endpoint.
    #[must_use]
    pub fn mcp(&self) -> String {
        format!("{}/mcp", self.url)
    }

    /// What has happened so far.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.books.pages().counts
    }

    /// Every secret that it has given out.
    #[must_use]
    pub fn secrets(&self) -> Vec<String> {
        let pages = self.books.pages();
        let given = pages.access.keys().chain(pages.refresh.keys()).chain(pages.spent.keys());
        given.cloned().chain([ROBOT_SECRET.to_owned()]).collect()
    }

    /// Everything that was ever shown in an `Authorization` header.
    #[must_use]
    pub fn shown(&self) -> Vec<String> {
        self.books.pages().shown.clone()
    }

    /// The tokens that clients had revoked, in that order.
    #[must_use]
    pub fn revoked(&self) -> Vec<String> {
        self.books.pages().revoked.clone()
    }

    /// All access tokens end now, before their time.
    pub fn end_tokens(&self) {
        self.books.pages().access.clear();
    }

    /// Whether the server takes the tokens that are given out. One that does not is set up for others.
    pub fn take_tokens(&self, takes: bool) {
        self.books.pages().takes_no_token = !takes;
    }

    /// The next so many refreshes are answered with a 500.
    pub fn fail_refreshes(&self, count: usize) {
        self.books.pages().failures_due = count;
    }

    /// From now on refreshes that are granted are answered in this form: a status and a body.
    pub fn answer_refreshes(&self, form: fn(Value) -> (u16, String)) {
        self.books.pages().refresh_answers = Some(form);
    }

    /// The next so many refreshes are answered with a 429 that has this `Retry-After`.
    pub fn be_busy(&self, count: usize, retry_after: &'static str) {
        self.books.pages().busy = Some((count, retry_after));
    }

    /// Whether those who ask for a token are kept waiting for the answer. What they asked for is done at once.
    pub fn hold_answers(&self, holds: bool) {
        self.books.holds.send_replace(holds);
    }

    /// The address of the authorization server.
    #[must_use]
    pub fn issuer(&self) -> &str {
        &self.url
    }

    /// From now on `/mcp` says that tokens for it are given by another authorization server, and takes those.
    pub fn hand_over_to(&self, other: &Self) {
        self.books.pages().issuer = Some(Arc::clone(&other.books));
        other.books.pages().resource = Some(self.mcp());
    }

    /// From now on nothing says which authorization server there is: refusals are bare, and well-known addresses answer
    /// with 404.
    pub fn hide_metadata(&self) {
        self.books.pages().hides_metadata = true;
    }

    /// From now on the metadata has this.
    pub fn say_in_metadata(&self, key: &'static str, value: Value) {
        self.books.pages().metadata.insert(key, value);
    }

    /// From now on `/mcp` names an address that is no well-known one as its authorization server.
    pub fn name_odd_issuer(&self) {
        self.books.pages().issuer_at = Some(format!("{}/elsewhere/.well-known/anything", self.url));
    }

    /// From now on the well-known addresses redirect there.
    pub fn redirect_metadata(&self, elsewhere: &str) {
        self.books.pages().metadata_at = Some(elsewhere.to_owned());
    }

    /// From now on a refusal for want of scopes asks for these.
    pub fn want_scopes(&self, scopes: String) {
        self.books.pages().wanted_scopes = Some(scopes);
    }

    /// From now on `/mcp` sends everybody there.
    pub fn redirect(&self, elsewhere: &str) {
        self.books.pages().redirects_to = Some(elsewhere.to_owned());
    }

    /// It does not know anybody any more who has registered.
    pub fn forget_clients(&self) {
        self.books.pages().clients.clear();
    }

    /// The tokens of a login as gripfast once kept it: in a file, for everybody to read who can read the file. The
    /// access token was given out so many seconds ago, as far as the file says.
    ///
    /// # Panics
    ///
    /// If nobody has logged in.
    #[must_use]
    pub fn unsealed_login(&self, seconds_ago: u64) -> String {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("it is after 1970");
        let pages = self.books.pages();
        let (access, _) = pages.access.iter().next().expect("somebody has logged in");
        let (refresh, grant) = pages.refresh.iter().next().expect("somebody has logged in");
        let record = json!({
            "resource": format!("{}/mcp", self.url),
            "issuer": self.url,
            "token_endpoint": format!("{}/token", self.url),
            "client_id": grant.client,
            "access_token": access,
            "refresh_token": refresh,
            "received_at": now.as_secs() - seconds_ago,
            "expires_in": self.books.manners.lasts.as_secs(),
        });
        record.to_string()
    }

    /// An access token that is good now.
    ///
    /// # Panics
    ///
    /// If there is none.
    #[must_use]
    pub fn good_token(&self) -> String {
        self.books.pages().access.keys().next().expect("somebody has logged in").clone()
    }

    /// All logins end now, as if a person had withdrawn them.
    pub fn end_logins(&self) {
        let mut pages = self.books.pages();
        pages.access.clear();
        pages.refresh.clear();
    }
}

/// What a browser does with the address of a login, where the person agrees to everything: it goes there, and is sent
/// back to whoever asked. Returns where it was sent.
///
/// # Panics
///
/// If it is not sent anywhere.
pub async fn visit(url: &str) -> String {
    let answer = fetch(url).await;
    let location = answer.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("location").then(|| value.trim().to_owned())
    });
    location.unwrap_or_else(|| panic!("{url} leads nowhere: {answer}"))
}

/// The same, to the end: goes where it was sent.
///
/// # Panics
///
/// As [`visit`].
pub async fn visit_and_return(url: &str) {
    fetch(&visit(url).await).await;
}

/// What a browser does with the address of a page: it goes there. Returns the answer as it came.
///
/// # Panics
///
/// If nobody answers there.
pub async fn fetch(url: &str) -> String {
    let url = Url::parse(url).expect("it is an address");
    let host = url.host_str().expect("it has a host");
    let port = url.port_or_known_default().expect("it has a port");
    let path = &url[url::Position::BeforePath..url::Position::AfterQuery];
    let mut browser = TcpStream::connect((host, port)).await.expect("somebody listens there");
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

impl Books {
    fn pages(&self) -> MutexGuard<'_, Pages> {
        self.pages.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The server that tokens are given for.
    fn resource(&self, pages: &Pages) -> String {
        pages.resource.clone().unwrap_or_else(|| format!("{}/mcp", self.url))
    }

    /// The answer of a well-known address where it does not say what it should.
    fn hidden(&self) -> Option<Response> {
        let pages = self.pages();
        if let Some(elsewhere) = &pages.metadata_at {
            return Some((StatusCode::FOUND, [(LOCATION, elsewhere.clone())]).into_response());
        }
        pages.hides_metadata.then(|| StatusCode::NOT_FOUND.into_response())
    }

    /// What a client gets: an access token, and a refresh token if a person is behind it.
    fn grant(&self, pages: &mut Pages, grant: Token, refreshable: bool) -> Value {
        let access = pages.name("access");
        let ends = Some(Instant::now() + self.manners.lasts);
        pages.access.insert(access.clone(), Token { ends, ..grant.clone() });
        let mut answer = json!({
            "access_token": access,
            "token_type": "Bearer",
            "expires_in": self.manners.lasts.as_secs(),
            "scope": grant.scopes,
        });
        if refreshable {
            let refresh = pages.name("refresh");
            pages.refresh.insert(refresh.clone(), grant);
            answer["refresh_token"] = refresh.into();
        }
        answer
    }
}

impl Pages {
    fn number(&mut self) -> u64 {
        self.last_number += 1;
        self.last_number
    }

    fn name(&mut self, what: &str) -> String {
        format!("{what}-{}-of-the-authority", self.number())
    }
}

async fn resource_metadata(State(books): State<Arc<Books>>) -> Response {
    if let Some(hidden) = books.hidden() {
        return hidden;
    }
    let issuer = {
        let pages = books.pages();
        let named = pages.issuer.as_ref().map_or(&books.url, |other| &other.url);
        pages.issuer_at.clone().unwrap_or_else(|| named.clone())
    };
    axum_json(&json!({ "resource": format!("{}/mcp", books.url), "authorization_servers": [issuer] }))
}

async fn metadata(State(books): State<Arc<Books>>) -> Response {
    if let Some(hidden) = books.hidden() {
        return hidden;
    }
    let url = &books.url;
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
    if books.manners.device_codes_last.is_some() {
        metadata["device_authorization_endpoint"] = format!("{url}/device").into();
    }
    for (key, value) in &books.pages().metadata {
        metadata[*key] = value.clone();
    }
    axum_json(&metadata)
}

async fn register(State(books): State<Arc<Books>>, body: Bytes) -> Response {
    let wanted: Value = serde_json::from_slice(&body).unwrap_or_default();
    let grants = wanted["grant_types"].as_array();
    let by_device = grants.is_some_and(|grants| grants.iter().any(|grant| *grant == DEVICE_GRANT));
    let redirect = match wanted["redirect_uris"][0].as_str() {
        Some(redirect) => redirect,
        // Who has no browser has no place to come back to.
        None if by_device => "",
        None => return refused(StatusCode::BAD_REQUEST, "invalid_redirect_uri"),
    };
    let mut pages = books.pages();
    let client = pages.name("client");
    if by_device {
        pages.device_clients.insert(client.clone());
    }
    pages.clients.insert(client.clone(), redirect.to_owned());
    let answer = json!({
        "client_id": client,
        "redirect_uris": [redirect],
        "client_name": wanted["client_name"],
        "token_endpoint_auth_method": "none",
    });
    (StatusCode::CREATED, axum_json(&answer)).into_response()
}

/// The person at the browser agrees at once.
async fn authorize(State(books): State<Arc<Books>>, RawQuery(query): RawQuery) -> Response {
    let asked = pairs(query.unwrap_or_default().as_bytes());
    let of = |key: &str| asked.get(key).cloned().unwrap_or_default();
    let mut pages = books.pages();
    let known = pages.clients.get(&of("client_id")).cloned();
    if known.as_deref() != Some(&*of("redirect_uri")) || of("response_type") != "code" {
        return refused(StatusCode::BAD_REQUEST, "unauthorized_client");
    }
    if of("code_challenge_method") != "S256" || of("resource") != books.resource(&pages) {
        return refused(StatusCode::BAD_REQUEST, "invalid_request");
    }
    let code = pages.name("code");
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
    // Where no metadata names an issuer, there is none to compare it with.
    if !pages.hides_metadata {
        back.query_pairs_mut().append_pair("iss", &books.url);
    }
    pages.codes.insert(code, noted);
    (StatusCode::FOUND, [(LOCATION, back.to_string())]).into_response()
}

/// RFC 7009: a token that is not known is as good as revoked.
async fn revoke(State(books): State<Arc<Books>>, body: Bytes) -> Response {
    let token = pairs(&body).remove("token").unwrap_or_default();
    let mut pages = books.pages();
    pages.access.remove(&token);
    pages.refresh.remove(&token);
    pages.revoked.push(token);
    StatusCode::OK.into_response()
}

async fn token(State(books): State<Arc<Books>>, headers: HeaderMap, body: Bytes) -> Response {
    let answer = exchange(&books, &headers, &body);
    let _ = books.holds.subscribe().wait_for(|holds| !holds).await;
    answer
}

fn exchange(books: &Books, headers: &HeaderMap, body: &[u8]) -> Response {
    let asked = pairs(body);
    let of = |key: &str| asked.get(key).cloned().unwrap_or_default();
    let mut pages = books.pages();
    pages.counts.token_requests += 1;
    if of("resource") != books.resource(&pages) {
        return refused(StatusCode::BAD_REQUEST, "invalid_target");
    }
    match of("grant_type").as_str() {
        "authorization_code" => {
            let Some(code) = pages.codes.remove(&of("code")) else {
                return refused(StatusCode::BAD_REQUEST, "invalid_grant");
            };
            let proof = BASE64_URL_SAFE_NO_PAD.encode(Sha256::digest(of("code_verifier")));
            if proof != code.challenge
                || of("redirect_uri") != code.redirect
                || of("client_id") != code.client
            {
                return refused(StatusCode::BAD_REQUEST, "invalid_grant");
            }
            let login = pages.number();
            let grant = Token { login, client: code.client, scopes: code.scopes, ends: None };
            axum_json(&books.grant(&mut pages, grant, true))
        }
        DEVICE_GRANT => device::token(books, &mut pages, &of("device_code"), &of("client_id")),
        "refresh_token" => refresh(books, &mut pages, &of("refresh_token"), &of("client_id")),
        "client_credentials" => {
            let secret = BASE64_STANDARD.encode(format!("robot:{ROBOT_SECRET}"));
            let shown = headers.get(AUTHORIZATION).and_then(|shown| shown.to_str().ok());
            if shown != Some(&format!("Basic {secret}")) {
                return refused(StatusCode::UNAUTHORIZED, "invalid_client");
            }
            pages.counts.by_secret += 1;
            let login = pages.number();
            let grant = Token { login, client: "robot".to_owned(), scopes: of("scope"), ends: None };
            axum_json(&books.grant(&mut pages, grant, false))
        }
        _ => refused(StatusCode::BAD_REQUEST, "unsupported_grant_type"),
    }
}

fn refresh(books: &Books, pages: &mut Pages, shown: &str, client: &str) -> Response {
    pages.counts.shown_refresh_tokens += 1;
    if pages.failures_due > 0 {
        pages.failures_due -= 1;
        pages.counts.failed_refreshes += 1;
        return (StatusCode::INTERNAL_SERVER_ERROR, "out of order").into_response();
    }
    if let Some((count, retry_after)) = pages.busy.take() {
        pages.busy = (count > 1).then_some((count - 1, retry_after));
        return (StatusCode::TOO_MANY_REQUESTS, [(RETRY_AFTER, retry_after)]).into_response();
    }
    if !pages.clients.contains_key(client) {
        return refused(StatusCode::UNAUTHORIZED, "invalid_client");
    }
    if let Some(login) = pages.spent.get(shown).copied() {
        pages.counts.thefts += 1;
        pages.access.retain(|_, token| token.login != login);
        pages.refresh.retain(|_, token| token.login != login);
        return refused(StatusCode::BAD_REQUEST, "invalid_grant");
    }
    let Some(grant) = pages.refresh.get(shown).filter(|token| token.client == client).cloned() else {
        return refused(StatusCode::BAD_REQUEST, "invalid_grant");
    };
    pages.counts.refreshes += 1;
    if books.manners.rotates {
        pages.refresh.remove(shown);
        pages.spent.insert(shown.to_owned(), grant.login);
    }
    let answer = books.grant(pages, grant, books.manners.rotates);
    let Some(form) = pages.refresh_answers else { return axum_json(&answer) };
    let (status, body) = form(answer);
    (StatusCode::from_u16(status).unwrap_or_default(), body).into_response()
}

fn pairs(form: &[u8]) -> HashMap<String, String> {
    form_urlencoded::parse(form).into_owned().collect()
}

fn refused(status: StatusCode, error: &str) -> Response {
    (status, axum_json(&json!({ "error": error }))).into_response()
}

fn axum_json(value: &Value) -> Response {
    ([("content-type", "application/json")], value.to_string()).into_response()
}
