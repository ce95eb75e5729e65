//! Login with a browser: the URL that a person opens, and the callback that ends it.

use super::http::{AuthHttp, AuthHttpError};
use super::oauth::{AuthorizationServer, Provider, TokenError};
use super::record::Record;
use super::vault::{Logins, Vault};
use super::{LEASE_TIMEOUT, TokenServer};
use crate::clock::Clock;
use crate::config::{Grant, ServerSpec, Target, Template};
use crate::transport::{HttpRequest, expand};
use ::http::header::{ACCEPT, CONTENT_TYPE, WWW_AUTHENTICATE};
use ::http::{HeaderMap, HeaderName, HeaderValue, Method};
use gripfast_core::credential::scopes;
use gripfast_core::failure::classify::classify;
use gripfast_core::failure::{During, Evidence};
use rmcp::transport::auth::{
    AuthError, AuthorizationCallback, AuthorizationManager, AuthorizationMetadata, CredentialStore,
    InMemoryCredentialStore, OAuthClientConfig,
};
use std::sync::Arc;
use url::Url;

/// A login that has begun: a person has to open its URL in a browser.
pub struct Login {
    url: String,
    device_offered: bool,
    manager: AuthorizationManager,
    store: InMemoryCredentialStore,
    record: Record,
    vault: Vault,
}

/// Error of a login or logout.
#[derive(Debug, thiserror::Error)]
pub enum LoginError {
    /// The server needs no login.
    #[error("{0}")]
    NotNeeded(String),
    /// The config cannot be used as it is.
    #[error("{0}")]
    BadConfig(String),
    /// The server or its authorization server could not be reached, or refused.
    #[error("{0}")]
    Refused(String),
    /// The authorization server does not offer this kind of login.
    #[error("{0}")]
    NotOffered(String),
    /// The login could not be stored.
    #[error("the login cannot be stored: {0}")]
    NotStored(#[source] std::io::Error),
}

impl LoginError {
    pub(super) fn from_http(error: AuthHttpError) -> Self {
        Self::Refused(error.to_string())
    }
}

impl From<AuthError> for LoginError {
    fn from(error: AuthError) -> Self {
        Self::Refused(error.to_string())
    }
}

impl From<TokenError> for LoginError {
    fn from(error: TokenError) -> Self {
        match error {
            TokenError::Transient(_)
            | TokenError::RetryAfter { .. }
            | TokenError::NeedsPerson(_)
            | TokenError::Rejected(_) => Self::Refused(error.to_string()),
            TokenError::BadConfig(_) => Self::BadConfig(error.to_string()),
        }
    }
}

impl Login {
    /// Begins a login to the server `name`: discovers its authorization server, and registers a client if needed. The
    /// browser will be redirected to `redirect`.
    ///
    /// # Errors
    /// The server needs no login, or no login is possible.
    pub async fn begin(
        name: &str,
        spec: &ServerSpec,
        logins: &Logins,
        redirect: &str,
    ) -> Result<Self, LoginError> {
        let token_server = token_server(name, spec)?;
        let mut preparation = Box::pin(LoginPreparation::new(name, &token_server, logins)).await?;
        let store = InMemoryCredentialStore::new();
        preparation.manager.set_credential_store(store.clone());
        let client = client_config(&mut preparation, &token_server, redirect).await?;
        let mut record = Record::new(&preparation.resource, &preparation.metadata, client.client_id.clone());
        record.client_secret.clone_from(&client.client_secret);
        let device_offered = preparation.device_endpoint().is_some();
        record.wanted = preparation.known.map(|known| known.wanted).unwrap_or_default();
        preparation.manager.configure_client(client)?;
        let scopes: Vec<&str> = preparation.scopes.iter().map(String::as_str).collect();
        let url = preparation.manager.get_authorization_url(&scopes).await?;
        record.audience = parse_page_url(&url)?.query_pairs().find_map(|(key, value)| {
            (key == "resource" && value != preparation.resource.as_str()).then(|| value.into_owned())
        });
        Ok(Self {
            url,
            device_offered,
            manager: preparation.manager,
            store,
            record,
            vault: preparation.vault,
        })
    }

    /// Returns the URL to open in a browser.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Returns whether a device login is possible instead ([`super::DeviceLogin`]).
    pub fn supports_device_login(&self) -> bool {
        self.device_offered
    }

    /// Returns the scopes that the server has asked for since the last login and that this login requests in addition.
    /// A person should see them before they agree.
    pub fn added_scopes(&self) -> &[String] {
        &self.record.wanted
    }

    /// Ends the login with the URL to which the browser was redirected. From then on every gripfast process with the
    /// same state directory uses it, including those that already run.
    ///
    /// # Errors
    /// The authorization server refused, or the callback is not for this login.
    pub async fn finish(self, came_back_to: &str) -> Result<(), LoginError> {
        if let Some(why) = callback_error(came_back_to) {
            return Err(LoginError::Refused(format!("the authorization server refused: {why}")));
        }
        let callback = AuthorizationCallback::from_redirect_url(came_back_to)?;
        let issuer = callback.issuer.as_deref();
        self.manager
            .exchange_code_for_token_with_issuer(&callback.code, &callback.csrf_token, issuer)
            .await?;
        let record = self.record.with_stored(self.store.load().await?)?;
        store_login(&self.vault, record, Clock::new()).await
    }
}

/// Preparation of every kind of login: the server, its authorization server, and the scopes to request.
pub(super) struct LoginPreparation {
    pub(super) manager: AuthorizationManager,
    pub(super) metadata: AuthorizationMetadata,
    pub(super) resource: Url,
    pub(super) http: AuthHttp,
    pub(super) scopes: Vec<String>,
    /// The existing login.
    pub(super) known: Option<Record>,
    pub(super) vault: Vault,
}

impl LoginPreparation {
    pub(super) async fn new(
        name: &str,
        token_server: &TokenServer,
        logins: &Logins,
    ) -> Result<Self, LoginError> {
        let provider = Provider::new(token_server).await.map_err(LoginError::BadConfig)?;
        if provider.uses_client_credentials() {
            return Err(LoginError::NotNeeded(format!("server `{name}` gets its tokens by itself")));
        }
        let vault = Vault::new(logins, name, token_server.url.source());
        vault.ensure_key().await.map_err(LoginError::NotStored)?;
        let known = vault.load().await.0.login().filter(|record| provider.matches_record(record));
        let challenge = probe_challenge(&provider).await?;
        let AuthorizationServer { manager, metadata } = provider.discover(challenge.as_deref()).await?;
        let scopes = match (token_server.oauth.scopes.as_slice(), &known) {
            // The scopes that were granted at the last login, and those that the server has asked for since.
            ([], Some(known)) if !known.wanted.is_empty() => union(&known.scopes, &known.wanted),
            ([], _) => union(&manager.select_initial_scopes(&[]).await, &[]),
            (scopes, known) => union(scopes, known.as_ref().map_or(&[][..], |known| &known.wanted)),
        };
        Ok(Self { manager, metadata, resource: provider.url, http: provider.http, scopes, known, vault })
    }

    /// Returns the device authorization endpoint, if there is one.
    pub(super) fn device_endpoint(&self) -> Option<&str> {
        self.metadata.additional_fields.get("device_authorization_endpoint")?.as_str()
    }

    /// Returns whether the authorization server supports client metadata documents.
    pub(super) fn accepts_metadata_documents(&self) -> bool {
        let says = self.metadata.additional_fields.get("client_id_metadata_document_supported");
        says.and_then(serde_json::Value::as_bool).unwrap_or(false)
    }
}

/// Stores a new login.
pub(super) async fn store_login(vault: &Vault, mut record: Record, clock: Clock) -> Result<(), LoginError> {
    record.received_at = clock.now().wall.since_epoch().as_secs();
    let lease = vault.lease(LEASE_TIMEOUT).await.map_err(LoginError::NotStored)?;
    let stamp = vault.stamp().await;
    let saved = vault.save(&record, stamp.as_ref()).await;
    lease.release().await;
    saved.map_err(LoginError::NotStored)
}

/// Outcome of a logout.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LogoutOutcome {
    /// There was no login.
    NotLoggedIn,
    /// The login was removed, and its tokens were revoked at the issuer.
    Revoked,
    /// The login was removed; the issuer offers no revocation, or the login was made before gripfast recorded its
    /// endpoint.
    Forgotten,
    /// The login was removed, but the issuer did not revoke its tokens, for this reason.
    NotRevoked(String),
}

/// Removes the login of the server `name`, and revokes its tokens at the issuer where possible. Processes that use the
/// login notice with their next request.
///
/// # Errors
/// The login cannot be removed, or the server needs no login.
pub async fn logout(name: &str, spec: &ServerSpec, logins: &Logins) -> Result<LogoutOutcome, LoginError> {
    let token_server = token_server(name, spec)?;
    let vault = Vault::new(logins, name, token_server.url.source());
    let lease = vault.lease(LEASE_TIMEOUT).await.map_err(LoginError::NotStored)?;
    let known = vault.load().await.0.login();
    let removed = vault.remove().await;
    lease.release().await;
    if !removed.map_err(LoginError::NotStored)? {
        return Ok(LogoutOutcome::NotLoggedIn);
    }
    let Some(known) = known else { return Ok(LogoutOutcome::Forgotten) };
    let revoked = match Provider::new(&token_server).await {
        Ok(provider) => Box::pin(provider.revoke(&known)).await.map_err(|error| error.to_string()),
        Err(why) => Err(why),
    };
    Ok(match revoked {
        Ok(true) => LogoutOutcome::Revoked,
        Ok(false) => LogoutOutcome::Forgotten,
        Err(why) => LogoutOutcome::NotRevoked(why),
    })
}

pub(super) fn token_server(name: &str, spec: &ServerSpec) -> Result<TokenServer, LoginError> {
    match &spec.target {
        Target::Stdio { .. } => {
            Err(LoginError::NotNeeded(format!("server `{name}` is a command, which takes no login")))
        }
        Target::Url { headers, .. }
            if headers.iter().any(|(header, _)| header.eq_ignore_ascii_case("authorization")) =>
        {
            let text =
                format!("server `{name}` has an `Authorization` header in the config, which is used instead");
            Err(LoginError::NotNeeded(text))
        }
        Target::Url { url, tls, .. } => {
            let oauth = spec.oauth.clone().unwrap_or_default();
            Ok(TokenServer { url: url.clone(), tls: tls.clone(), oauth })
        }
    }
}

/// Returns the challenge that the server sends to an unauthenticated client. Some servers accept the handshake, and
/// refuse the next request.
async fn probe_challenge(provider: &Provider<'_>) -> Result<Option<String>, LoginError> {
    const HELLO: &str = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"gripfast","version":"1"}}}"#;
    const LIST: &str = r#"{"jsonrpc":"2.0","id":2,"method":"tools/list"}"#;
    const SESSION: HeaderName = HeaderName::from_static("mcp-session-id");
    let refused = |evidence: &Evidence| {
        LoginError::Refused(format!("the server gave no usable answer: {}", classify(evidence)))
    };
    let client = &provider.http.client;
    let to = client.address(provider.url.clone());
    let to = to.map_err(|observed| refused(&Evidence::unsent(During::Handshake, observed)))?;
    let mut headers = HeaderMap::new();
    headers.insert(ACCEPT, HeaderValue::from_static("application/json, text/event-stream"));
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    for body in [HELLO, LIST] {
        let (to, headers_sent) = (Arc::clone(&to), Arc::new(headers.clone()));
        let (method, body) = (Method::POST, body.as_bytes().into());
        let http_request = HttpRequest {
            method,
            to,
            headers: headers_sent,
            body,
            mirrored: Vec::new(),
            sent: None,
            safety: crate::transport::Safety::AtMostOnce,
        };
        let answer =
            client.send(http_request, During::Handshake).await.map_err(|evidence| refused(&evidence))?;
        if let Some(said) = answer.headers().get(WWW_AUTHENTICATE).and_then(|said| said.to_str().ok()) {
            return Ok(Some(said.to_owned()));
        }
        if let Some(session) = answer.headers().get(SESSION) {
            headers.insert(SESSION, session.clone());
        }
    }
    Ok(None)
}

/// Determines the client: the one that the operator has registered, a client metadata document, or a new registration.
async fn client_config(
    preparation: &mut LoginPreparation,
    token_server: &TokenServer,
    redirect: &str,
) -> Result<OAuthClientConfig, LoginError> {
    let oauth = &token_server.oauth;
    debug_assert!(oauth.grant == Grant::AuthorizationCode, "other grants need no login");
    if let Some(id) = &oauth.client_id {
        let client = OAuthClientConfig::new(expand_field(id, "client_id").await?, redirect);
        return Ok(match &oauth.client_secret {
            Some(secret) => client.with_client_secret(expand_field(secret, "client_secret").await?),
            None => client,
        });
    }
    if let Some(document) = &oauth.client_metadata_url
        && preparation.accepts_metadata_documents()
    {
        return Ok(OAuthClientConfig::new(document, redirect));
    }
    let scopes: Vec<&str> = preparation.scopes.iter().map(String::as_str).collect();
    Ok(preparation.manager.register_client("gripfast", redirect, &scopes).await?)
}

pub(super) async fn expand_field(template: &Template, key: &str) -> Result<String, LoginError> {
    let value = expand(template).await;
    value.map_err(|_| LoginError::BadConfig(format!("`oauth.{key}` cannot be expanded")))
}

/// Parses the URL of a page. Only pages are opened in a browser, because the server chooses the address.
pub(super) fn parse_page_url(address: &str) -> Result<Url, LoginError> {
    match Url::parse(address) {
        Ok(url) if matches!(url.scheme(), "https" | "http") => Ok(url),
        Ok(_) | Err(_) => Err(LoginError::Refused(
            "the authorization server named a login page that is not an http or https URL".to_owned(),
        )),
    }
}

/// Returns the parameter `state` of a URL, as it is spelled: it tells the callback of a login from other requests.
pub fn state_parameter(address: &str) -> Option<&str> {
    let (_, query) = address.split_once('?')?;
    query.split('&').find_map(|pair| pair.strip_prefix("state="))
}

/// Returns the error that an authorization server sends back instead of a code.
fn callback_error(came_back_to: &str) -> Option<String> {
    let url = Url::parse(came_back_to).ok()?;
    let of = |key: &str| url.query_pairs().find(|(name, _)| name == key).map(|(_, value)| value.into_owned());
    let error = of("error")?;
    Some(of("error_description").map_or_else(|| error.clone(), |text| format!("{text} ({error})")))
}

fn union(one: &[String], other: &[String]) -> Vec<String> {
    scopes::bounded(one.iter().chain(other).map(String::as_str))
}
