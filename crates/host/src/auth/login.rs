//! Logging in, for whoever has a person at hand: an address for their browser, and what comes back from it.

use super::http::{AuthHttp, Unanswered};
use super::oauth::{Found, Provider, Trouble};
use super::record::Record;
use super::vault::{Logins, Vault};
use super::{Asked, LEASED_WITHIN};
use crate::clock::Clock;
use crate::config::{Grant, ServerSpec, Target, Template};
use crate::transport::{HttpAsk, expand};
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

/// A login that has begun: somebody has to open its address in a browser.
pub struct Login {
    url: String,
    by_device: bool,
    manager: AuthorizationManager,
    store: InMemoryCredentialStore,
    record: Record,
    vault: Vault,
}

/// Why nobody could be logged in.
#[derive(Debug, thiserror::Error)]
pub enum LoginError {
    /// There is nothing to log in to.
    #[error("{0}")]
    NotNeeded(String),
    /// The config cannot be used as it is.
    #[error("{0}")]
    BadConfig(String),
    /// The server or its authorization server could not be reached, or said no.
    #[error("{0}")]
    Refused(String),
    /// The authorization server does not have this way to log in.
    #[error("{0}")]
    NotOffered(String),
    /// The login could not be kept.
    #[error("the login cannot be kept: {0}")]
    NotKept(#[source] std::io::Error),
}

impl LoginError {
    pub(super) fn unanswered(error: Unanswered) -> Self {
        Self::Refused(error.to_string())
    }
}

impl From<AuthError> for LoginError {
    fn from(error: AuthError) -> Self {
        Self::Refused(error.to_string())
    }
}

impl From<Trouble> for LoginError {
    fn from(trouble: Trouble) -> Self {
        match trouble {
            Trouble::Passing(_) | Trouble::Later { .. } | Trouble::NeedsPerson(_) | Trouble::Rejected(_) => {
                Self::Refused(trouble.to_string())
            }
            Trouble::BadConfig(_) => Self::BadConfig(trouble.to_string()),
        }
    }
}

impl Login {
    /// Begins to log in to the server `name`: finds its authorization server, and registers with it if need be. The
    /// browser will come back to `redirect`.
    ///
    /// # Errors
    /// It needs no login, or none is to be had.
    pub async fn begin(
        name: &str,
        spec: &ServerSpec,
        logins: &Logins,
        redirect: &str,
    ) -> Result<Self, LoginError> {
        let asked_of = asked_of(name, spec)?;
        let mut begun = Box::pin(Preparation::of(name, &asked_of, logins)).await?;
        let store = InMemoryCredentialStore::new();
        begun.manager.set_credential_store(store.clone());
        let client = client(&mut begun, &asked_of, redirect).await?;
        let mut record = Record::begun(&begun.resource, &begun.metadata, client.client_id.clone());
        record.client_secret.clone_from(&client.client_secret);
        let by_device = begun.device_endpoint().is_some();
        record.wanted = begun.known.map(|known| known.wanted).unwrap_or_default();
        begun.manager.configure_client(client)?;
        let scopes: Vec<&str> = begun.scopes.iter().map(String::as_str).collect();
        let url = begun.manager.get_authorization_url(&scopes).await?;
        record.audience = is_page(&url)?.query_pairs().find_map(|(key, value)| {
            (key == "resource" && value != begun.resource.as_str()).then(|| value.into_owned())
        });
        Ok(Self { url, by_device, manager: begun.manager, store, record, vault: begun.vault })
    }

    /// What to open in a browser.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Whether it can be made on another device instead ([`super::DeviceLogin`]).
    pub fn is_offered_by_device(&self) -> bool {
        self.by_device
    }

    /// The scopes that the server has asked for since the last login, which this one asks for besides. A person should
    /// see them before they agree.
    pub fn added_scopes(&self) -> &[String] {
        &self.record.wanted
    }

    /// Ends the login with the address to which the browser came back. From then on every gripfast process with the same
    /// state directory uses it, those that run already too.
    ///
    /// # Errors
    /// The authorization server said no, or the answer is not for this login.
    pub async fn finish(self, came_back_to: &str) -> Result<(), LoginError> {
        if let Some(why) = refusal_in(came_back_to) {
            return Err(LoginError::Refused(format!("the authorization server says: {why}")));
        }
        let callback = AuthorizationCallback::from_redirect_url(came_back_to)?;
        let issuer = callback.issuer.as_deref();
        self.manager
            .exchange_code_for_token_with_issuer(&callback.code, &callback.csrf_token, issuer)
            .await?;
        let record = self.record.with_stored(self.store.load().await?)?;
        keep(&self.vault, record, Clock::new()).await
    }
}

/// What every way to log in begins with: who the server and its authorization server are, and what to ask for.
pub(super) struct Preparation {
    pub(super) manager: AuthorizationManager,
    pub(super) metadata: AuthorizationMetadata,
    pub(super) resource: Url,
    pub(super) http: AuthHttp,
    pub(super) scopes: Vec<String>,
    /// The login that there is.
    pub(super) known: Option<Record>,
    pub(super) vault: Vault,
}

impl Preparation {
    pub(super) async fn of(name: &str, asked_of: &Asked, logins: &Logins) -> Result<Self, LoginError> {
        let provider = Provider::of(asked_of).await.map_err(LoginError::BadConfig)?;
        if provider.by_itself() {
            return Err(LoginError::NotNeeded(format!("server `{name}` gets its tokens by itself")));
        }
        let vault = Vault::of(logins, name, asked_of.url.source());
        vault.has_key().await.map_err(LoginError::NotKept)?;
        let known = vault.load().await.0.login().filter(|record| provider.owns(record));
        let challenge = challenge(&provider).await?;
        let Found { manager, metadata } = provider.discover(challenge.as_deref()).await?;
        let scopes = match (asked_of.oauth.scopes.as_slice(), &known) {
            // What the server has asked for since the last login, and what was granted then.
            ([], Some(known)) if !known.wanted.is_empty() => union(&known.scopes, &known.wanted),
            ([], _) => union(&manager.select_initial_scopes(&[]).await, &[]),
            (scopes, known) => union(scopes, known.as_ref().map_or(&[][..], |known| &known.wanted)),
        };
        Ok(Self { manager, metadata, resource: provider.url, http: provider.http, scopes, known, vault })
    }

    /// Where codes for other devices are made, if they are.
    pub(super) fn device_endpoint(&self) -> Option<&str> {
        self.metadata.additional_fields.get("device_authorization_endpoint")?.as_str()
    }

    /// Whether the authorization server knows clients by documents on the web.
    pub(super) fn takes_documents(&self) -> bool {
        let says = self.metadata.additional_fields.get("client_id_metadata_document_supported");
        says.and_then(serde_json::Value::as_bool).unwrap_or(false)
    }
}

/// Keeps a login that was just made.
pub(super) async fn keep(vault: &Vault, mut record: Record, clock: Clock) -> Result<(), LoginError> {
    record.received_at = clock.now().wall.since_epoch().as_secs();
    let _lease = vault.lease(LEASED_WITHIN).await.map_err(LoginError::NotKept)?;
    vault.save(&record).await.map_err(LoginError::NotKept)
}

/// What came of a logout.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LoggedOut {
    /// There was no login.
    WasNot,
    /// The login is gone from here, and its tokens are revoked at the issuer.
    Revoked,
    /// The login is gone from here; the issuer offers no revocation, or the login was made before gripfast recorded where.
    Forgotten,
    /// The login is gone from here, and the issuer did not revoke its tokens, for this reason.
    NotRevoked(String),
}

/// Forgets the login of the server `name`, and has its issuer revoke the tokens where it can. Processes that use the login
/// notice with their next request.
///
/// # Errors
/// It cannot be removed, or there is nothing to log in to.
pub async fn logout(name: &str, spec: &ServerSpec, logins: &Logins) -> Result<LoggedOut, LoginError> {
    let asked_of = asked_of(name, spec)?;
    let vault = Vault::of(logins, name, asked_of.url.source());
    let known = {
        let _lease = vault.lease(LEASED_WITHIN).await.map_err(LoginError::NotKept)?;
        let known = vault.load().await.0.login();
        if !vault.remove().await.map_err(LoginError::NotKept)? {
            return Ok(LoggedOut::WasNot);
        }
        known
    };
    let Some(known) = known else { return Ok(LoggedOut::Forgotten) };
    let revoked = match Provider::of(&asked_of).await {
        Ok(provider) => Box::pin(provider.revoke(&known)).await.map_err(|trouble| trouble.to_string()),
        Err(why) => Err(why),
    };
    Ok(match revoked {
        Ok(true) => LoggedOut::Revoked,
        Ok(false) => LoggedOut::Forgotten,
        Err(why) => LoggedOut::NotRevoked(why),
    })
}

pub(super) fn asked_of(name: &str, spec: &ServerSpec) -> Result<Asked, LoginError> {
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
            Ok(Asked { url: url.clone(), tls: tls.clone(), oauth })
        }
    }
}

/// What the server says to somebody whom it does not know. Some shake hands with anybody and ask who it is afterwards.
async fn challenge(provider: &Provider<'_>) -> Result<Option<String>, LoginError> {
    const HELLO: &str = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"gripfast","version":"1"}}}"#;
    const LIST: &str = r#"{"jsonrpc":"2.0","id":2,"method":"tools/list"}"#;
    const SESSION: HeaderName = HeaderName::from_static("mcp-session-id");
    let refused = |evidence: &Evidence| {
        LoginError::Refused(format!("the server cannot be asked: {}", classify(evidence)))
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
        let ask = HttpAsk {
            method,
            to,
            headers: headers_sent,
            body,
            sent: None,
            safety: crate::transport::Safety::AtMostOnce,
        };
        let answer = client.send(ask, During::Handshake).await.map_err(|evidence| refused(&evidence))?;
        if let Some(said) = answer.headers().get(WWW_AUTHENTICATE).and_then(|said| said.to_str().ok()) {
            return Ok(Some(said.to_owned()));
        }
        if let Some(session) = answer.headers().get(SESSION) {
            headers.insert(SESSION, session.clone());
        }
    }
    Ok(None)
}

/// Who we are to the authorization server: somebody whom the operator has registered, a document on the web, or a newcomer.
async fn client(
    begun: &mut Preparation,
    asked_of: &Asked,
    redirect: &str,
) -> Result<OAuthClientConfig, LoginError> {
    let oauth = &asked_of.oauth;
    debug_assert!(oauth.grant == Grant::AuthorizationCode, "others need no login");
    if let Some(id) = &oauth.client_id {
        let client = OAuthClientConfig::new(filled(id, "client_id").await?, redirect);
        return Ok(match &oauth.client_secret {
            Some(secret) => client.with_client_secret(filled(secret, "client_secret").await?),
            None => client,
        });
    }
    if let Some(document) = &oauth.client_metadata_url
        && begun.takes_documents()
    {
        return Ok(OAuthClientConfig::new(document, redirect));
    }
    let scopes: Vec<&str> = begun.scopes.iter().map(String::as_str).collect();
    Ok(begun.manager.register_client("gripfast", redirect, &scopes).await?)
}

pub(super) async fn filled(template: &Template, key: &str) -> Result<String, LoginError> {
    let value = expand(template).await;
    value.map_err(|_| LoginError::BadConfig(format!("`oauth.{key}` cannot be filled in")))
}

/// A browser is sent to pages only: what else an address may name, the server had no business to choose.
pub(super) fn is_page(address: &str) -> Result<Url, LoginError> {
    match Url::parse(address) {
        Ok(url) if matches!(url.scheme(), "https" | "http") => Ok(url),
        Ok(_) | Err(_) => {
            Err(LoginError::Refused("the authorization server names a page that is none".to_owned()))
        }
    }
}

/// The parameter `state` of an address, as it is spelled: it tells whoever comes back from a login from a stranger.
pub fn state_of(address: &str) -> Option<&str> {
    let (_, query) = address.split_once('?')?;
    query.split('&').find_map(|pair| pair.strip_prefix("state="))
}

/// The error that an authorization server sends back instead of a code.
fn refusal_in(came_back_to: &str) -> Option<String> {
    let url = Url::parse(came_back_to).ok()?;
    let of = |key: &str| url.query_pairs().find(|(name, _)| name == key).map(|(_, value)| value.into_owned());
    let error = of("error")?;
    Some(of("error_description").map_or_else(|| error.clone(), |text| format!("{text} ({error})")))
}

fn union(one: &[String], other: &[String]) -> Vec<String> {
    scopes::bounded(one.iter().chain(other).map(String::as_str))
}
