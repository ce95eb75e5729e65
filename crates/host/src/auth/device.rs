//! Device login (RFC 8628): a person enters a code on a page, on any device with a browser, while we poll for the
//! tokens. For machines without a browser, and that no browser can be redirected to.

use super::http::{AuthHttp, AuthHttpError, TokenReply};
use super::login::{LoginPreparation, expand_field, parse_page_url, store_login, token_server};
use super::record::Record;
use super::vault::{Logins, Vault};
use super::{LoginError, TokenServer};
use crate::clock::Clock;
use crate::config::ServerSpec;
use gripfast_core::credential::{PollStep, Polled, Polling};
use serde_json::{Value, json};
use std::time::Duration;

/// A login that a person has to confirm on any device.
pub struct DeviceLogin {
    verification_uri: String,
    verification_uri_complete: Option<String>,
    user_code: String,
    device_code: String,
    polling: Polling,
    clock: Clock,
    token_endpoint: String,
    http: AuthHttp,
    scopes: Vec<String>,
    record: Record,
    vault: Vault,
}

const GRANT: &str = "urn:ietf:params:oauth:grant-type:device_code";
/// Default for authorization servers that omit `expires_in`, which is required.
const DEFAULT_EXPIRY_SECS: u64 = 600;

impl DeviceLogin {
    /// Begins a login to the server `name`: discovers its authorization server, registers a client if needed, and
    /// requests a code.
    ///
    /// # Errors
    /// The server needs no login, no login is possible, or not in this way ([`LoginError::NotOffered`]).
    pub async fn begin(name: &str, spec: &ServerSpec, logins: &Logins) -> Result<Self, LoginError> {
        let token_server = token_server(name, spec)?;
        let preparation = Box::pin(LoginPreparation::new(name, &token_server, logins)).await?;
        let Some(endpoint) = preparation.device_endpoint() else {
            return Err(LoginError::NotOffered(format!(
                "the authorization server of `{name}` does not offer device logins"
            )));
        };
        let (client_id, client_secret) = client_identity(&preparation, &token_server).await?;
        let resource = preparation.resource.as_str();
        let scope = preparation.scopes.join(" ");
        let mut form = vec![("client_id", client_id.as_str()), ("resource", resource)];
        if !scope.is_empty() {
            form.push(("scope", scope.as_str()));
        }
        let mut record = Record::new(&preparation.resource, &preparation.metadata, client_id.clone());
        record.client_secret.clone_from(&client_secret);
        let response = match preparation
            .http
            .post_form(endpoint, &form, record.client_auth())
            .await
            .map_err(LoginError::from_http)?
        {
            TokenReply::Granted(response) => response,
            TokenReply::Refused(code) => {
                return Err(LoginError::Refused(format!("the authorization server issued no code: {code}")));
            }
        };
        let text = |key: &str| response[key].as_str().map(str::to_owned);
        let required = |key: &str| {
            let missing = || LoginError::Refused(format!("the authorization server omitted `{key}`"));
            text(key).ok_or_else(missing)
        };
        let clock = Clock::new();
        let good_for = Duration::from_secs(response["expires_in"].as_u64().unwrap_or(DEFAULT_EXPIRY_SECS));
        let interval = response["interval"].as_u64().map(Duration::from_secs);
        record.wanted = preparation.known.map(|known| known.wanted).unwrap_or_default();
        let page = required("verification_uri")?;
        parse_page_url(&page)?;
        Ok(Self {
            verification_uri: page,
            verification_uri_complete: text("verification_uri_complete")
                .filter(|page| parse_page_url(page).is_ok()),
            user_code: required("user_code")?,
            device_code: required("device_code")?,
            polling: Polling::new(clock.mono(), interval, good_for),
            clock,
            token_endpoint: preparation.metadata.token_endpoint,
            http: preparation.http,
            scopes: preparation.scopes,
            record,
            vault: preparation.vault,
        })
    }

    /// Returns the URL of the page on which the code is entered.
    pub fn verification_uri(&self) -> &str {
        &self.verification_uri
    }

    /// Returns the URL of the same page with the code included, if there is one.
    pub fn verification_uri_complete(&self) -> Option<&str> {
        self.verification_uri_complete.as_deref()
    }

    /// Returns the scopes that the server has asked for since the last login and that this login requests in addition.
    pub fn added_scopes(&self) -> &[String] {
        &self.record.wanted
    }

    /// Returns the code to enter on the page.
    pub fn user_code(&self) -> &str {
        &self.user_code
    }

    /// Waits until a person has confirmed the login. From then on every gripfast process with the same logins uses it.
    /// Dropping the future stops waiting and changes nothing.
    ///
    /// # Errors
    /// The login was denied or not confirmed in time, or the authorization server refuses.
    pub async fn finish(mut self) -> Result<(), LoginError> {
        let mut next = self.polling.first_poll(self.clock.mono());
        let mut refusal = String::new();
        let tokens = loop {
            let at = match next {
                PollStep::PollAt(at) => at,
                PollStep::Denied => return Err(LoginError::Refused("the login was denied".to_owned())),
                PollStep::Expired => {
                    return Err(LoginError::Refused("the code was not entered in time".to_owned()));
                }
                PollStep::Failed => {
                    let text = format!("the authorization server issued no token: {refusal}");
                    return Err(LoginError::Refused(text));
                }
            };
            tokio::time::sleep_until(self.clock.instant(at)).await;
            let answer = self.poll_token().await;
            let now = self.clock.mono();
            next = match answer {
                Ok(TokenReply::Granted(tokens)) => break tokens,
                Ok(TokenReply::Refused(code)) => {
                    refusal = code;
                    self.polling.next_step(now, Polled::Refused(&refusal))
                }
                Err(_) => self.polling.next_step(now, Polled::Unclear),
            };
        };
        let record = self.record.with_tokens(&tokens, &self.scopes)?;
        store_login(&self.vault, record, self.clock).await
    }

    async fn poll_token(&self) -> Result<TokenReply, AuthHttpError> {
        let client_id = self.record.client_id.as_str();
        let form = [
            ("grant_type", GRANT),
            ("device_code", self.device_code.as_str()),
            ("client_id", client_id),
            ("resource", self.record.resource.as_str()),
        ];
        self.http.post_form(&self.token_endpoint, &form, self.record.client_auth()).await
    }
}

/// Determines the client: the one that the operator has registered, a client metadata document, or a new registration
/// without a redirect URI.
async fn client_identity(
    preparation: &LoginPreparation,
    token_server: &TokenServer,
) -> Result<(String, Option<String>), LoginError> {
    let oauth = &token_server.oauth;
    if let Some(id) = &oauth.client_id {
        let secret = match &oauth.client_secret {
            Some(secret) => Some(expand_field(secret, "client_secret").await?),
            None => None,
        };
        return Ok((expand_field(id, "client_id").await?, secret));
    }
    if let Some(document) = &oauth.client_metadata_url
        && preparation.accepts_metadata_documents()
    {
        return Ok((document.clone(), None));
    }
    let Some(endpoint) = &preparation.metadata.registration_endpoint else {
        let text = "the authorization server does not register clients; set `client_id` in `oauth`";
        return Err(LoginError::BadConfig(text.to_owned()));
    };
    let registration = json!({
        "client_name": "gripfast",
        "grant_types": [GRANT, "refresh_token"],
        "response_types": [],
        "token_endpoint_auth_method": "none",
        "application_type": "native",
        "scope": preparation.scopes.join(" "),
    });
    let registered =
        preparation.http.post_json(endpoint, &registration).await.map_err(LoginError::from_http)?;
    let registered = match registered {
        TokenReply::Granted(registered) => registered,
        TokenReply::Refused(code) => {
            let text = format!("the authorization server refused to register gripfast: {code}");
            return Err(LoginError::Refused(text));
        }
    };
    let text = |key: &str| registered.get(key).and_then(Value::as_str).map(str::to_owned);
    let missing_id = || LoginError::Refused("the authorization server issued no `client_id`".to_owned());
    Ok((text("client_id").ok_or_else(missing_id)?, text("client_secret")))
}
