//! OAuth 2.1 as MCP wants it. The official SDK discovers the authorization server, registers the client and makes the
//! URL for the browser; tokens are requested here. A login is bound to its issuer and token endpoint when it is made:
//! its refresh token and its client secret are sent there and nowhere else, whatever the server says later.

use super::TokenServer;
use super::http::{AuthHttp, AuthHttpError, ClientSecret, TokenReply};
use super::issuer;
use super::record::Record;
use crate::config::{Grant, endpoint};
use crate::transport::{HttpClient, TlsFiles, expand};
use gripfast_core::credential::{Complaint, scopes};
use gripfast_core::failure::Observed;
use rmcp::transport::auth::{
    AuthError, AuthorizationManager, AuthorizationMetadata, StoredCredentials, WWWAuthenticateParams,
};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use url::Url;

/// Reason why there is no token.
#[derive(Debug)]
pub(super) enum TokenError {
    /// Temporary failure; stored tokens are kept.
    Transient(String),
    /// Temporary failure, and the authorization server says how long to wait.
    RetryAfter { why: String, wait: Duration },
    /// There is nothing to refresh: a person has to log in, if the server insists.
    NeedsPerson(String),
    /// The authorization server does not accept the login any more: a person has to log in.
    Rejected(String),
    /// The config has to be changed.
    BadConfig(Observed),
}

impl fmt::Display for TokenError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Transient(why)
            | Self::RetryAfter { why, .. }
            | Self::NeedsPerson(why)
            | Self::Rejected(why) => out.write_str(why),
            Self::BadConfig(observed) => out.write_str(&config_error_text(observed)),
        }
    }
}

impl From<AuthError> for TokenError {
    fn from(error: AuthError) -> Self {
        match error {
            AuthError::AuthorizationRequired | AuthError::TokenRefreshRejected(_) => {
                Self::Rejected("the login has ended".to_owned())
            }
            other => Self::Transient(other.to_string()),
        }
    }
}

/// Connection of one server to its authorization server.
pub(super) struct Provider<'a> {
    pub(super) token_server: &'a TokenServer,
    pub(super) url: Url,
    /// Issuer that the config names.
    pub(super) issuer: Option<Url>,
    pub(super) http: AuthHttp,
}

/// A discovered authorization server.
pub(super) struct AuthorizationServer {
    pub(super) manager: AuthorizationManager,
    pub(super) metadata: AuthorizationMetadata,
}

impl<'a> Provider<'a> {
    pub(super) async fn new(token_server: &'a TokenServer) -> Result<Self, String> {
        let error_text = |observed: Observed| config_error_text(&observed);
        let url = expand(&token_server.url).await.map_err(error_text)?;
        let url = endpoint(&url).map_err(|error| format!("`url` cannot be used: {error}"))?;
        let oauth = &token_server.oauth;
        let issuer = match &oauth.issuer {
            Some(issuer) => Some(issuer::parse(&expand(issuer).await.map_err(error_text)?)?),
            None if oauth.has_secret() => return Err(issuer::MISSING_ISSUER.to_owned()),
            None => None,
        };
        let tls = TlsFiles::from_spec(&token_server.tls).await.map_err(error_text)?;
        let headers = ::http::HeaderMap::new();
        let client = HttpClient::new(&url, issuer.as_slice(), headers, tls, None).map_err(error_text)?;
        Ok(Self { token_server, url, issuer, http: AuthHttp::new(client) })
    }

    /// Returns whether the record is for the server at this URL: a variable in the URL may have changed.
    pub(super) fn matches_record(&self, record: &Record) -> bool {
        self.is_at(&record.resource)
    }

    /// Returns whether this is the URL of the server.
    pub(super) fn is_at(&self, resource: &str) -> bool {
        resource == self.url.as_str()
    }

    /// Returns whether tokens are obtained without a person.
    pub(super) fn uses_client_credentials(&self) -> bool {
        self.token_server.oauth.grant == Grant::ClientCredentials
    }

    /// Discovers the authorization server: the one that the config names, or else the one that the server names when it
    /// refuses a request.
    pub(super) async fn discover(&self, challenge: Option<&str>) -> Result<AuthorizationServer, TokenError> {
        let http = Arc::new(self.http.clone());
        let mut manager = AuthorizationManager::new_with_oauth_http_client(self.url.as_str(), http).await?;
        // With an issuer in the config the server is still asked for the scopes that it wants.
        let resolved = manager.resolve_metadata_from_challenge(challenge).await;
        let metadata = match &self.issuer {
            Some(issuer) => {
                issuer::configured_metadata(&self.http, issuer).await.map_err(TokenError::Transient)?
            }
            None => {
                let resolved = resolved?;
                match &resolved.metadata.issuer {
                    // Whatever document the server points to, only the issuer itself names its endpoints.
                    Some(issuer) if resolved.source.is_discovered() => {
                        issuer::named_metadata(&self.http, issuer).await.map_err(TokenError::Transient)?
                    }
                    None if resolved.source.is_discovered() => {
                        let text =
                            "the authorization server's metadata names no issuer, so no secret is sent to it";
                        return Err(TokenError::Transient(text.to_owned()));
                    }
                    Some(_) | None => resolved.metadata,
                }
            }
        };
        manager.set_metadata(metadata.clone());
        Ok(AuthorizationServer { manager, metadata })
    }

    /// Exchanges the refresh token of a login at the token endpoint that the login is bound to.
    pub(super) async fn refresh(&self, old: &Record) -> Result<Record, TokenError> {
        let Some(refresh_token) = &old.refresh_token else {
            return Err(TokenError::NeedsPerson("the login has ended".to_owned()));
        };
        let Some(token_endpoint) = &old.token_endpoint else {
            let text = "the login was made by gripfast 0.1, which did not record its token endpoint";
            return Err(TokenError::NeedsPerson(text.to_owned()));
        };
        if let Some(issuer) = &self.issuer
            && !old.issuer.as_deref().is_some_and(|bound| issuer::is_same(bound, issuer))
        {
            let text = "`oauth.issuer` is not the issuer of the stored login";
            return Err(TokenError::NeedsPerson(text.to_owned()));
        }
        let resource = old.audience.as_ref().unwrap_or(&old.resource);
        let mut form = vec![
            ("grant_type", "refresh_token"),
            ("refresh_token", refresh_token.as_str()),
            ("resource", resource.as_str()),
        ];
        let login = Record { client_secret: self.client_secret(old).await?, ..old.clone() };
        if login.client_secret.is_none() {
            form.push(("client_id", login.client_id.as_str()));
        }
        match self.http.post_form(token_endpoint, &form, login.client_auth()).await {
            Ok(TokenReply::Granted(tokens)) => {
                login.with_tokens(&tokens, &old.scopes).map_err(|why| refresh_spent(&why))
            }
            Ok(TokenReply::Refused(code)) => Err(match Complaint::from_code(&code) {
                Complaint::Login => TokenError::Rejected("the login has ended".to_owned()),
                // A client that registered itself can do so again, with a person.
                Complaint::Client if self.token_server.oauth.client_id.is_none() => TokenError::Rejected(
                    "the authorization server does not know this client any more".to_owned(),
                ),
                Complaint::Client => bad_client(&old.client_id, &code),
                Complaint::Request | Complaint::Other => {
                    TokenError::Transient(format!("the token endpoint `{token_endpoint}` answered {code}"))
                }
            }),
            Err(AuthHttpError::Unreadable(why)) => Err(refresh_spent(&why)),
            Err(AuthHttpError::RetryAfter { why, wait }) => Err(TokenError::RetryAfter {
                why: format!("the token endpoint `{token_endpoint}` answered {why}"),
                wait,
            }),
            Err(AuthHttpError::Transient(why)) => {
                Err(TokenError::Transient(format!("the token endpoint `{token_endpoint}`: {why}")))
            }
        }
    }

    /// Revokes the tokens of a login (RFC 7009), where the authorization server offers that. The refresh token comes
    /// first: most servers then revoke the tokens derived from it, too.
    pub(super) async fn revoke(&self, login: &Record) -> Result<bool, TokenError> {
        let Some(endpoint) = &login.revocation_endpoint else { return Ok(false) };
        let login = Record { client_secret: self.client_secret(login).await?, ..login.clone() };
        let tokens = [("refresh_token", &login.refresh_token), ("access_token", &login.access_token)];
        let mut revoked = false;
        for (kind, token) in tokens {
            let Some(token) = token else { continue };
            let mut form = vec![("token", token.as_str()), ("token_type_hint", kind)];
            if login.client_secret.is_none() {
                form.push(("client_id", login.client_id.as_str()));
            }
            match self.http.post_form(endpoint, &form, login.client_auth()).await {
                // The content of a successful answer does not matter; mostly it is empty.
                Ok(TokenReply::Granted(_)) | Err(AuthHttpError::Unreadable(_)) => revoked = true,
                Ok(TokenReply::Refused(code)) => {
                    return Err(TokenError::Transient(format!("the authorization server answered {code}")));
                }
                Err(error @ (AuthHttpError::Transient(_) | AuthHttpError::RetryAfter { .. })) => {
                    return Err(TokenError::Transient(error.to_string()));
                }
            }
        }
        Ok(revoked)
    }

    /// Returns the client secret of a login. One in the config is expanded each time.
    async fn client_secret(&self, login: &Record) -> Result<Option<String>, TokenError> {
        match &self.token_server.oauth.client_secret {
            Some(secret) => Ok(Some(expand(secret).await.map_err(TokenError::BadConfig)?)),
            None => Ok(login.client_secret.clone()),
        }
    }
}

/// Error for a refresh that was granted without a usable answer. The refresh token counts as spent: a server that sees
/// it again assumes a theft and ends the login.
fn refresh_spent(why: &impl fmt::Display) -> TokenError {
    TokenError::Rejected(format!(
        "the authorization server renewed the login, but its answer cannot be used ({why}); the \
         refresh token is not sent again"
    ))
}

pub(super) fn bad_client(client_id: &str, code: &str) -> TokenError {
    let text = format!("the authorization server rejects the client `{client_id}` of `oauth` ({code})");
    TokenError::BadConfig(Observed::BadConfig(text))
}

impl Record {
    /// Creates a login without tokens, bound to the authorization server that will issue them.
    pub(super) fn new(url: &Url, metadata: &AuthorizationMetadata, client_id: String) -> Self {
        Self {
            resource: url.to_string(),
            audience: None,
            issuer: metadata.issuer.clone(),
            token_endpoint: Some(metadata.token_endpoint.clone()),
            revocation_endpoint: revocation_endpoint(metadata),
            client_id,
            client_secret: None,
            secret_in_body: wants_secret_in_body(metadata),
            access_token: None,
            refresh_token: None,
            received_at: 0,
            expires_in: None,
            scopes: Vec::new(),
            wanted: Vec::new(),
            unknown: BTreeMap::new(),
        }
    }

    /// Returns the client id and secret, if there is a secret.
    pub(super) fn client_auth(&self) -> Option<ClientSecret<'_>> {
        let secret = self.client_secret.as_deref()?;
        Some(ClientSecret { id: &self.client_id, secret, in_body: self.secret_in_body })
    }

    /// Adds the tokens that an exchange has left in the SDK's store.
    pub(super) fn with_stored(&self, stored: Option<StoredCredentials>) -> Result<Self, TokenError> {
        let stored = stored.ok_or_else(no_token)?;
        let tokens = serde_json::to_value(stored.token_response.ok_or_else(no_token)?);
        let record = self.with_tokens(&tokens.map_err(|_| no_token())?, &[])?;
        Ok(record.with_granted_scopes(&stored.granted_scopes))
    }

    /// Adds the tokens of an answer to a request for these scopes.
    pub(super) fn with_tokens(&self, tokens: &Value, requested: &[String]) -> Result<Self, TokenError> {
        let text = |key: &str| tokens[key].as_str().map(str::to_owned);
        if text("token_type").is_some_and(|kind| !kind.eq_ignore_ascii_case("bearer")) {
            return Err(TokenError::Transient(
                "the authorization server issued a token that is not a `Bearer` token".to_owned(),
            ));
        }
        let granted = text("scope").map(|scope| scope.split_whitespace().map(str::to_owned).collect());
        let record = Self {
            access_token: Some(text("access_token").ok_or_else(no_token)?),
            // An answer without a new refresh token leaves the old one valid.
            refresh_token: text("refresh_token").or_else(|| self.refresh_token.clone()),
            expires_in: tokens["expires_in"].as_u64(),
            ..self.clone()
        };
        Ok(record.with_granted_scopes(&granted.unwrap_or_else(|| requested.to_vec())))
    }

    /// Sets the granted scopes, which need not be requested again.
    fn with_granted_scopes(mut self, granted: &[String]) -> Self {
        self.wanted.retain(|scope| !granted.contains(scope));
        self.scopes = scopes::bounded(granted.iter().map(String::as_str));
        self
    }
}

fn revocation_endpoint(metadata: &AuthorizationMetadata) -> Option<String> {
    metadata.additional_fields.get("revocation_endpoint")?.as_str().map(str::to_owned)
}

/// Returns whether the client secret is sent in the form, because the authorization server does not take it in a
/// header.
fn wants_secret_in_body(metadata: &AuthorizationMetadata) -> bool {
    let methods = metadata.additional_fields.get("token_endpoint_auth_methods_supported");
    let offers = |method: &str| {
        methods.and_then(Value::as_array).is_some_and(|methods| methods.iter().any(|known| known == method))
    };
    offers("client_secret_post") && !offers("client_secret_basic")
}

fn no_token() -> TokenError {
    TokenError::Transient("the authorization server issued no token".to_owned())
}

fn config_error_text(observed: &Observed) -> String {
    match observed {
        Observed::UnsetVariable(name) => format!("variable `{name}` is not set"),
        Observed::BadConfig(text) => text.clone(),
        other => format!("{other:?}"),
    }
}

/// Returns the additional scopes that a server asks for by its challenge, if it does.
pub(super) async fn wanted_scopes(challenge: &str, token_server: &TokenServer) -> Option<Vec<String>> {
    let url = Url::parse(&expand(&token_server.url).await.ok()?).ok()?;
    let params = WWWAuthenticateParams::parse(challenge, &url);
    let wanted = params.scope.iter().flat_map(|scope| scope.split_whitespace());
    params.is_insufficient_scope().then(|| scopes::bounded(wanted))
}
