//! OAuth 2.1 as MCP wants it, done by the official SDK: finding the authorization server, registering, exchanging. What
//! this file adds is who asks (one server of the config), what is remembered of it (a [`Record`]), and what its troubles
//! mean: some pass by themselves, some need a person.

use super::Asked;
use super::http::AuthHttp;
use super::record::Record;
use crate::config::{Grant, endpoint};
use crate::transport::{HttpClient, TlsFiles, expand};
use gripfast_core::credential::Complaint;
use gripfast_core::failure::Observed;
use rmcp::transport::auth::{
    AuthError, AuthorizationManager, AuthorizationMetadata, CredentialStore, InMemoryCredentialStore,
    OAuthClientConfig, OAuthTokenResponse, StoredCredentials, WWWAuthenticateParams,
};
use serde_json::{Value, json};
use std::fmt;
use std::sync::Arc;
use url::Url;

/// Why there is no token.
#[derive(Debug)]
pub(super) enum Trouble {
    /// It may work the next time; nothing that is stored is given up for it.
    Passing(String),
    /// Somebody has to log in.
    NeedsPerson(String),
    /// Somebody has to change the config.
    BadConfig(Observed),
}

impl fmt::Display for Trouble {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Passing(why) | Self::NeedsPerson(why) => out.write_str(why),
            Self::BadConfig(observed) => out.write_str(&worded(observed)),
        }
    }
}

impl From<AuthError> for Trouble {
    fn from(error: AuthError) -> Self {
        match error {
            AuthError::AuthorizationRequired | AuthError::TokenRefreshRejected(_) => {
                Self::NeedsPerson("the login has ended".to_owned())
            }
            AuthError::AuthorizationServerMismatch { .. } => Self::NeedsPerson(
                "the server has another authorization server than at the last login".to_owned(),
            ),
            other => Self::Passing(other.to_string()),
        }
    }
}

/// The authorization server of one server, which is found when it is needed.
pub(super) struct Provider<'a> {
    pub(super) asked_of: &'a Asked,
    pub(super) url: Url,
    pub(super) http: AuthHttp,
}

impl<'a> Provider<'a> {
    pub(super) async fn of(asked_of: &'a Asked) -> Result<Self, String> {
        let worded = |observed: Observed| worded(&observed);
        let url = expand(&asked_of.url).await.map_err(worded)?;
        let url = endpoint(&url).map_err(|error| format!("`url` cannot be used: {error}"))?;
        let tls = TlsFiles::of(&asked_of.tls).await.map_err(worded)?;
        let client = HttpClient::new(&url, ::http::HeaderMap::new(), tls, None).map_err(worded)?;
        Ok(Self { asked_of, url, http: AuthHttp::over(client) })
    }

    /// Whether the record is about the server at this address: a variable in the address may have changed.
    pub(super) fn owns(&self, record: &Record) -> bool {
        self.is_at(&record.resource)
    }

    /// Whether this is the address of the server.
    pub(super) fn is_at(&self, resource: &str) -> bool {
        resource == self.url.as_str()
    }

    /// Whether tokens are to be had without a person.
    pub(super) fn by_itself(&self) -> bool {
        self.asked_of.oauth.grant == Grant::ClientCredentials
    }

    /// Finds the authorization server, from what the server said when it refused a request.
    pub(super) async fn discover(
        &self,
        challenge: Option<&str>,
    ) -> Result<(AuthorizationManager, AuthorizationMetadata), AuthError> {
        let http = Arc::new(self.http.clone());
        let mut manager = AuthorizationManager::new_with_oauth_http_client(self.url.as_str(), http).await?;
        let found = manager.resolve_metadata_from_challenge(challenge).await?;
        manager.set_metadata(found.metadata.clone());
        Ok((manager, found.metadata))
    }

    /// Has the refresh token exchanged for a new token.
    pub(super) async fn refresh(&self, old: &Record, challenge: Option<String>) -> Result<Record, Trouble> {
        if old.refresh_token.is_none() {
            return Err(Trouble::NeedsPerson("the login has ended".to_owned()));
        }
        let (mut manager, _) = self.discover(challenge.as_deref()).await?;
        let store = InMemoryCredentialStore::new();
        store.save(old.to_stored()?).await?;
        manager.set_credential_store(store.clone());
        // It tells an authorization server that is not the one of the login.
        if !manager.initialize_from_store().await? {
            return Err(Trouble::NeedsPerson(
                "the server has another authorization server than at the last login".to_owned(),
            ));
        }
        let mut client = OAuthClientConfig::new(&old.client_id, self.url.as_str());
        client.client_secret.clone_from(&old.client_secret);
        manager.configure_client(client)?;
        manager.refresh_token().await.map_err(|error| match self.complaint() {
            // Who registers by itself can do so again, with a person.
            Complaint::Client if self.asked_of.oauth.client_id.is_none() => {
                Trouble::NeedsPerson("the authorization server does not know us any more".to_owned())
            }
            Complaint::Client => self.bad_client(&old.client_id),
            Complaint::Login | Complaint::Request | Complaint::Other => error.into(),
        })?;
        old.with_stored(store.load().await?)
    }

    /// What the authorization server has complained about last.
    pub(super) fn complaint(&self) -> Complaint {
        self.http.refusal().map_or(Complaint::Other, |code| Complaint::of(&code))
    }

    pub(super) fn bad_client(&self, client_id: &str) -> Trouble {
        let code = self.http.refusal().unwrap_or_default();
        let text = format!(
            "the authorization server does not take the client `{client_id}` as `oauth` has it ({code})"
        );
        Trouble::BadConfig(Observed::BadConfig(text))
    }
}

impl Record {
    /// A login that has no tokens yet.
    pub(super) fn begun(url: &Url, client_id: String) -> Self {
        Self {
            resource: url.to_string(),
            issuer: None,
            client_id,
            client_secret: None,
            access_token: None,
            refresh_token: None,
            received_at: 0,
            expires_in: None,
            scopes: Vec::new(),
            wanted: Vec::new(),
        }
    }

    fn to_stored(&self) -> Result<StoredCredentials, Trouble> {
        let tokens = json!({
            "access_token": self.access_token.as_deref().unwrap_or_default(),
            "token_type": "bearer",
            "refresh_token": self.refresh_token,
            "expires_in": self.expires_in,
        });
        let tokens: OAuthTokenResponse = serde_json::from_value(tokens)
            .map_err(|_| Trouble::NeedsPerson("the stored login is damaged".to_owned()))?;
        let stored = StoredCredentials::new(
            self.client_id.clone(),
            Some(tokens),
            self.scopes.clone(),
            Some(self.received_at),
        );
        Ok(stored.with_issuer(self.issuer.clone()))
    }

    /// The same login with the tokens that an exchange has left in the SDK's store.
    pub(super) fn with_stored(&self, stored: Option<StoredCredentials>) -> Result<Self, Trouble> {
        let stored = stored.ok_or_else(no_token)?;
        let tokens = serde_json::to_value(stored.token_response.ok_or_else(no_token)?);
        let record = self.with_tokens(&tokens.map_err(|_| no_token())?, &[])?;
        let record = record.granted(stored.granted_scopes);
        Ok(Self {
            issuer: stored.issuer,
            client_id: stored.client_id,
            received_at: stored.token_received_at.unwrap_or_default(),
            ..record
        })
    }

    /// The same login with the tokens of an answer, which was asked for these scopes.
    pub(super) fn with_tokens(&self, tokens: &Value, asked: &[String]) -> Result<Self, Trouble> {
        let text = |key: &str| tokens[key].as_str().map(str::to_owned);
        if text("token_type").is_some_and(|kind| !kind.eq_ignore_ascii_case("bearer")) {
            return Err(Trouble::Passing("the authorization server gave a token of another kind".to_owned()));
        }
        let granted = text("scope").map(|scope| scope.split_whitespace().map(str::to_owned).collect());
        let record = Self {
            access_token: Some(text("access_token").ok_or_else(no_token)?),
            // An answer without a new one leaves the old one good.
            refresh_token: text("refresh_token").or_else(|| self.refresh_token.clone()),
            expires_in: tokens["expires_in"].as_u64(),
            ..self.clone()
        };
        Ok(record.granted(granted.unwrap_or_else(|| asked.to_vec())))
    }

    /// What was granted need not be asked for again.
    fn granted(mut self, scopes: Vec<String>) -> Self {
        self.wanted.retain(|scope| !scopes.contains(scope));
        self.scopes = scopes;
        self
    }
}

fn no_token() -> Trouble {
    Trouble::Passing("the authorization server gave no token".to_owned())
}

fn worded(observed: &Observed) -> String {
    match observed {
        Observed::UnsetVariable(name) => format!("variable `{name}` is not set"),
        Observed::BadConfig(text) => text.clone(),
        other => format!("{other:?}"),
    }
}

/// The scopes that a server wants besides, if that is what its challenge says.
pub(super) async fn wanted_scopes(challenge: &str, asked_of: &Asked) -> Option<Vec<String>> {
    let url = Url::parse(&expand(&asked_of.url).await.ok()?).ok()?;
    let said = WWWAuthenticateParams::parse(challenge, &url);
    said.is_insufficient_scope()
        .then(|| said.scope.iter().flat_map(|scope| scope.split_whitespace()).map(str::to_owned).collect())
}
