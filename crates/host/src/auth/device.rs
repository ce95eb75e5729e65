//! Logging in on another device (RFC 8628): a code that a person enters on a page, wherever they have a browser, while we
//! ask whether they have. For machines without a browser, and none that could come back to them.

use super::http::{AuthHttp, Posted, Unanswered};
use super::login::{Preparation, asked_of, filled, is_page, keep};
use super::record::Record;
use super::vault::{Logins, Vault};
use super::{Asked, LoginError};
use crate::clock::Clock;
use crate::config::ServerSpec;
use gripfast_core::credential::{Next, Polled, Polling};
use serde_json::{Value, json};
use std::time::Duration;

/// A login that somebody has to agree to on any device.
pub struct DeviceLogin {
    page: String,
    page_with_code: Option<String>,
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
/// For those who do not say how long a code is good, though they have to.
const USUALLY_GOOD_FOR: u64 = 600;

impl DeviceLogin {
    /// Begins to log in to the server `name`: finds its authorization server, registers with it if need be, and has it
    /// make a code.
    ///
    /// # Errors
    /// It needs no login, none is to be had, or not in this way ([`LoginError::NotOffered`]).
    pub async fn begin(name: &str, spec: &ServerSpec, logins: &Logins) -> Result<Self, LoginError> {
        let asked_of = asked_of(name, spec)?;
        let begun = Box::pin(Preparation::of(name, &asked_of, logins)).await?;
        let Some(endpoint) = begun.device_endpoint() else {
            return Err(LoginError::NotOffered(format!(
                "the authorization server of `{name}` has no logins by a code on another device"
            )));
        };
        let (client_id, client_secret) = client(&begun, &asked_of).await?;
        let resource = begun.resource.as_str();
        let scope = begun.scopes.join(" ");
        let mut form = vec![("client_id", client_id.as_str()), ("resource", resource)];
        if !scope.is_empty() {
            form.push(("scope", scope.as_str()));
        }
        let mut record = Record::begun(&begun.resource, &begun.metadata, client_id.clone());
        record.client_secret.clone_from(&client_secret);
        let said = match begun
            .http
            .post_form(endpoint, &form, record.proof())
            .await
            .map_err(LoginError::unanswered)?
        {
            Posted::Granted(said) => said,
            Posted::Refused(code) => {
                return Err(LoginError::Refused(format!("the authorization server makes no code: {code}")));
            }
        };
        let text = |key: &str| said[key].as_str().map(str::to_owned);
        let of = |key: &str| {
            let missing = || LoginError::Refused(format!("the authorization server says no `{key}`"));
            text(key).ok_or_else(missing)
        };
        let clock = Clock::new();
        let good_for = Duration::from_secs(said["expires_in"].as_u64().unwrap_or(USUALLY_GOOD_FOR));
        let interval = said["interval"].as_u64().map(Duration::from_secs);
        record.wanted = begun.known.map(|known| known.wanted).unwrap_or_default();
        let page = of("verification_uri")?;
        is_page(&page)?;
        Ok(Self {
            page,
            page_with_code: text("verification_uri_complete").filter(|page| is_page(page).is_ok()),
            user_code: of("user_code")?,
            device_code: of("device_code")?,
            polling: Polling::begin(clock.mono(), interval, good_for),
            clock,
            token_endpoint: begun.metadata.token_endpoint,
            http: begun.http,
            scopes: begun.scopes,
            record,
            vault: begun.vault,
        })
    }

    /// The page on which the code is entered.
    pub fn page(&self) -> &str {
        &self.page
    }

    /// The same page with the code in its address, where there is one.
    pub fn page_with_code(&self) -> Option<&str> {
        self.page_with_code.as_deref()
    }

    /// The scopes that the server has asked for since the last login, which this one asks for besides.
    pub fn added_scopes(&self) -> &[String] {
        &self.record.wanted
    }

    /// What to enter there.
    pub fn code(&self) -> &str {
        &self.user_code
    }

    /// Waits until somebody has agreed. From then on every gripfast process with the same logins uses it. Dropping the
    /// future ends the waiting and changes nothing.
    ///
    /// # Errors
    /// Somebody said no, nobody said anything in time, or the authorization server refuses.
    pub async fn finish(mut self) -> Result<(), LoginError> {
        let mut next = self.polling.first(self.clock.mono());
        let mut refusal = String::new();
        let tokens = loop {
            let at = match next {
                Next::AskAt(at) => at,
                Next::Denied => return Err(LoginError::Refused("the login was denied".to_owned())),
                Next::Expired => {
                    return Err(LoginError::Refused("nobody has entered the code in time".to_owned()));
                }
                Next::Failed => {
                    let text = format!("the authorization server gives no token: {refusal}");
                    return Err(LoginError::Refused(text));
                }
            };
            tokio::time::sleep_until(self.clock.instant(at)).await;
            let asked = self.ask().await;
            let now = self.clock.mono();
            next = match asked {
                Ok(Posted::Granted(tokens)) => break tokens,
                Ok(Posted::Refused(code)) => {
                    refusal = code;
                    self.polling.after(now, Polled::Refused(&refusal))
                }
                Err(_) => self.polling.after(now, Polled::Unclear),
            };
        };
        let record = self.record.with_tokens(&tokens, &self.scopes)?;
        keep(&self.vault, record, self.clock).await
    }

    async fn ask(&self) -> Result<Posted, Unanswered> {
        let client_id = self.record.client_id.as_str();
        let form = [
            ("grant_type", GRANT),
            ("device_code", self.device_code.as_str()),
            ("client_id", client_id),
            ("resource", self.record.resource.as_str()),
        ];
        self.http.post_form(&self.token_endpoint, &form, self.record.proof()).await
    }
}

/// Who we are to the authorization server: somebody whom the operator has registered, a document on the web, or a
/// newcomer who has no page to come back to.
async fn client(begun: &Preparation, asked_of: &Asked) -> Result<(String, Option<String>), LoginError> {
    let oauth = &asked_of.oauth;
    if let Some(id) = &oauth.client_id {
        let secret = match &oauth.client_secret {
            Some(secret) => Some(filled(secret, "client_secret").await?),
            None => None,
        };
        return Ok((filled(id, "client_id").await?, secret));
    }
    if let Some(document) = &oauth.client_metadata_url
        && begun.takes_documents()
    {
        return Ok((document.clone(), None));
    }
    let Some(endpoint) = &begun.metadata.registration_endpoint else {
        let text = "the authorization server registers nobody; say a `client_id` in `oauth`";
        return Err(LoginError::BadConfig(text.to_owned()));
    };
    let newcomer = json!({
        "client_name": "gripfast",
        "grant_types": [GRANT, "refresh_token"],
        "response_types": [],
        "token_endpoint_auth_method": "none",
        "application_type": "native",
        "scope": begun.scopes.join(" "),
    });
    let registered = begun.http.post_json(endpoint, &newcomer).await.map_err(LoginError::unanswered)?;
    let registered = match registered {
        Posted::Granted(registered) => registered,
        Posted::Refused(code) => {
            let text = format!("the authorization server does not register us for this: {code}");
            return Err(LoginError::Refused(text));
        }
    };
    let text = |key: &str| registered.get(key).and_then(Value::as_str).map(str::to_owned);
    let nameless = || LoginError::Refused("the authorization server gave us no `client_id`".to_owned());
    Ok((text("client_id").ok_or_else(nameless)?, text("client_secret")))
}
