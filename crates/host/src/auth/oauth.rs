//! OAuth 2.1 as MCP wants it. The official SDK finds the authorization server, registers and makes the address for the
//! browser; tokens are asked for here. A login is bound to its issuer and token endpoint when it is made: its refresh token
//! and its client secret go there and nowhere else, whatever the server says later.

use super::Asked;
use super::http::{AuthHttp, ClientSecret, Posted, Unanswered};
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
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use url::Url;

/// Why there is no token.
#[derive(Debug)]
pub(super) enum Trouble {
    /// It may work the next time; nothing that is stored is given up for it.
    Passing(String),
    /// The same, and the authorization server says for how long it is not to be asked.
    Later { why: String, wait: Duration },
    /// There is nothing to refresh: somebody has to log in, if the server insists.
    NeedsPerson(String),
    /// The authorization server does not take the login any more: somebody has to log in.
    Rejected(String),
    /// Somebody has to change the config.
    BadConfig(Observed),
}

impl fmt::Display for Trouble {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Passing(why) | Self::Later { why, .. } | Self::NeedsPerson(why) | Self::Rejected(why) => {
                out.write_str(why)
            }
            Self::BadConfig(observed) => out.write_str(&worded(observed)),
        }
    }
}

impl From<AuthError> for Trouble {
    fn from(error: AuthError) -> Self {
        match error {
            AuthError::AuthorizationRequired | AuthError::TokenRefreshRejected(_) => {
                Self::Rejected("the login has ended".to_owned())
            }
            other => Self::Passing(other.to_string()),
        }
    }
}

/// The way of one server to its authorization server.
pub(super) struct Provider<'a> {
    pub(super) asked_of: &'a Asked,
    pub(super) url: Url,
    /// The issuer that the config names.
    pub(super) issuer: Option<Url>,
    pub(super) http: AuthHttp,
}

/// An authorization server that was found.
pub(super) struct Found {
    pub(super) manager: AuthorizationManager,
    pub(super) metadata: AuthorizationMetadata,
}

impl<'a> Provider<'a> {
    pub(super) async fn of(asked_of: &'a Asked) -> Result<Self, String> {
        let worded = |observed: Observed| worded(&observed);
        let url = expand(&asked_of.url).await.map_err(worded)?;
        let url = endpoint(&url).map_err(|error| format!("`url` cannot be used: {error}"))?;
        let oauth = &asked_of.oauth;
        let issuer = match &oauth.issuer {
            Some(issuer) => Some(issuer::parse(&expand(issuer).await.map_err(worded)?)?),
            None if oauth.has_secret() => return Err(issuer::MISSING.to_owned()),
            None => None,
        };
        let tls = TlsFiles::of(&asked_of.tls).await.map_err(worded)?;
        let headers = ::http::HeaderMap::new();
        let client = HttpClient::new(&url, issuer.as_slice(), headers, tls, None).map_err(worded)?;
        Ok(Self { asked_of, url, issuer, http: AuthHttp::over(client) })
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

    /// Finds the authorization server: the one that the config names, or else the one that the server names when it
    /// refuses a request.
    pub(super) async fn discover(&self, challenge: Option<&str>) -> Result<Found, Trouble> {
        let http = Arc::new(self.http.clone());
        let mut manager = AuthorizationManager::new_with_oauth_http_client(self.url.as_str(), http).await?;
        // With an issuer in the config the server is still asked for the scopes that it wants.
        let said = manager.resolve_metadata_from_challenge(challenge).await;
        let metadata = match &self.issuer {
            Some(issuer) => issuer::metadata(&self.http, issuer).await.map_err(Trouble::Passing)?,
            None => {
                let said = said?;
                match &said.metadata.issuer {
                    // Whatever document the server led to, only the issuer itself says where its endpoints are.
                    Some(issuer) if said.source.is_discovered() => {
                        issuer::named(&self.http, issuer).await.map_err(Trouble::Passing)?
                    }
                    None if said.source.is_discovered() => {
                        let text =
                            "the authorization server's metadata names no issuer, so it gets no secret";
                        return Err(Trouble::Passing(text.to_owned()));
                    }
                    Some(_) | None => said.metadata,
                }
            }
        };
        manager.set_metadata(metadata.clone());
        Ok(Found { manager, metadata })
    }

    /// Exchanges the refresh token of a login at the token endpoint that the login is bound to.
    pub(super) async fn refresh(&self, old: &Record) -> Result<Record, Trouble> {
        let Some(refresh_token) = &old.refresh_token else {
            return Err(Trouble::NeedsPerson("the login has ended".to_owned()));
        };
        let Some(token_endpoint) = &old.token_endpoint else {
            let text = "the login was made by gripfast 0.1, which did not record its token endpoint";
            return Err(Trouble::NeedsPerson(text.to_owned()));
        };
        if let Some(issuer) = &self.issuer
            && !old.issuer.as_deref().is_some_and(|bound| issuer::is_same(bound, issuer))
        {
            let text = "`oauth.issuer` is not the issuer of the stored login";
            return Err(Trouble::NeedsPerson(text.to_owned()));
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
        match self.http.post_form(token_endpoint, &form, login.proof()).await {
            Ok(Posted::Granted(tokens)) => login.with_tokens(&tokens, &old.scopes).map_err(|why| spent(&why)),
            Ok(Posted::Refused(code)) => Err(match Complaint::of(&code) {
                Complaint::Login => Trouble::Rejected("the login has ended".to_owned()),
                // A client that registered itself can do so again, with a person.
                Complaint::Client if self.asked_of.oauth.client_id.is_none() => {
                    Trouble::Rejected("the authorization server does not know us any more".to_owned())
                }
                Complaint::Client => bad_client(&old.client_id, &code),
                Complaint::Request | Complaint::Other => {
                    Trouble::Passing(format!("the token endpoint `{token_endpoint}` says {code}"))
                }
            }),
            Err(Unanswered::Unreadable(why)) => Err(spent(&why)),
            Err(Unanswered::Later { why, wait }) => {
                Err(Trouble::Later { why: format!("the token endpoint `{token_endpoint}` says {why}"), wait })
            }
            Err(Unanswered::Passing(why)) => {
                Err(Trouble::Passing(format!("the token endpoint `{token_endpoint}`: {why}")))
            }
        }
    }

    /// Has the authorization server end the tokens of a login (RFC 7009), where it offers that. The refresh token comes
    /// first: most servers end what came of it, too.
    pub(super) async fn revoke(&self, login: &Record) -> Result<bool, Trouble> {
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
            match self.http.post_form(endpoint, &form, login.proof()).await {
                // What it says besides "done" does not matter; mostly nothing.
                Ok(Posted::Granted(_)) | Err(Unanswered::Unreadable(_)) => revoked = true,
                Ok(Posted::Refused(code)) => return Err(Trouble::Passing(format!("it says {code}"))),
                Err(error @ (Unanswered::Passing(_) | Unanswered::Later { .. })) => {
                    return Err(Trouble::Passing(error.to_string()));
                }
            }
        }
        Ok(revoked)
    }

    /// The client secret of a login. One that stands in the config counts as it stands there now.
    async fn client_secret(&self, login: &Record) -> Result<Option<String>, Trouble> {
        match &self.asked_of.oauth.client_secret {
            Some(secret) => Ok(Some(expand(secret).await.map_err(Trouble::BadConfig)?)),
            None => Ok(login.client_secret.clone()),
        }
    }
}

/// A refresh that was granted and brought nothing that can be used. The refresh token is spent as far as we know: a server
/// that sees it again takes us for a thief and ends the login.
fn spent(why: &impl fmt::Display) -> Trouble {
    Trouble::Rejected(format!(
        "the authorization server renewed the login and its answer cannot be used ({why}); the refresh token is not sent again"
    ))
}

pub(super) fn bad_client(client_id: &str, code: &str) -> Trouble {
    let text =
        format!("the authorization server does not take the client `{client_id}` as `oauth` has it ({code})");
    Trouble::BadConfig(Observed::BadConfig(text))
}

impl Record {
    /// A login that has no tokens yet, bound to the authorization server that will give them.
    pub(super) fn begun(url: &Url, metadata: &AuthorizationMetadata, client_id: String) -> Self {
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
        }
    }

    /// The proof of who the client is, if it has one.
    pub(super) fn proof(&self) -> Option<ClientSecret<'_>> {
        let secret = self.client_secret.as_deref()?;
        Some(ClientSecret { id: &self.client_id, secret, in_body: self.secret_in_body })
    }

    /// The same login with the tokens that an exchange has left in the SDK's store.
    pub(super) fn with_stored(&self, stored: Option<StoredCredentials>) -> Result<Self, Trouble> {
        let stored = stored.ok_or_else(no_token)?;
        let tokens = serde_json::to_value(stored.token_response.ok_or_else(no_token)?);
        let record = self.with_tokens(&tokens.map_err(|_| no_token())?, &[])?;
        Ok(record.granted(&stored.granted_scopes))
    }

    /// The same login with the tokens of an answer, which was asked for these scopes.
    pub(super) fn with_tokens(&self, tokens: &Value, asked: &[String]) -> Result<Self, Trouble> {
        let text = |key: &str| tokens[key].as_str().map(str::to_owned);
        if text("token_type").is_some_and(|kind| !kind.eq_ignore_ascii_case("bearer")) {
            return Err(Trouble::Passing("it gave a token of another kind than `Bearer`".to_owned()));
        }
        let granted = text("scope").map(|scope| scope.split_whitespace().map(str::to_owned).collect());
        let record = Self {
            access_token: Some(text("access_token").ok_or_else(no_token)?),
            // An answer without a new one leaves the old one good.
            refresh_token: text("refresh_token").or_else(|| self.refresh_token.clone()),
            expires_in: tokens["expires_in"].as_u64(),
            ..self.clone()
        };
        Ok(record.granted(&granted.unwrap_or_else(|| asked.to_vec())))
    }

    /// What was granted need not be asked for again.
    fn granted(mut self, granted: &[String]) -> Self {
        self.wanted.retain(|scope| !granted.contains(scope));
        self.scopes = scopes::bounded(granted.iter().map(String::as_str));
        self
    }
}

fn revocation_endpoint(metadata: &AuthorizationMetadata) -> Option<String> {
    metadata.additional_fields.get("revocation_endpoint")?.as_str().map(str::to_owned)
}

/// Whether a client shows its secret in the form, because the authorization server does not take it in a header.
fn wants_secret_in_body(metadata: &AuthorizationMetadata) -> bool {
    let methods = metadata.additional_fields.get("token_endpoint_auth_methods_supported");
    let offers = |method: &str| {
        methods.and_then(Value::as_array).is_some_and(|methods| methods.iter().any(|known| known == method))
    };
    offers("client_secret_post") && !offers("client_secret_basic")
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
    let wanted = said.scope.iter().flat_map(|scope| scope.split_whitespace());
    said.is_insufficient_scope().then(|| scopes::bounded(wanted))
}
