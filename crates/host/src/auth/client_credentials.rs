//! Tokens that a client has by itself, without a person: by its secret, or by its signature.

use super::assertion::SigningKey;
use super::http::{Posted, Unanswered};
use super::oauth::{Found, Provider, Trouble, bad_client};
use super::record::Record;
use crate::config::Template;
use crate::transport::expand;
use gripfast_core::credential::{Complaint, scopes};
use gripfast_core::failure::Observed;
use gripfast_core::time::Wall;

const BY_SIGNATURE: &str = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer";

impl Provider<'_> {
    /// Exchanges the client's own credentials for a token, at the issuer that the config names.
    pub(super) async fn client_credentials(
        &self,
        old: Option<&Record>,
        challenge: Option<String>,
        now: Wall,
    ) -> Result<Record, Trouble> {
        let config = &self.asked_of.oauth;
        let client_id = filled(config.client_id.as_ref(), "client_id").await?;
        let (secret, key) = match &config.private_key {
            Some(key) => (None, Some(signing_key(key).await?)),
            None => (Some(filled(config.client_secret.as_ref(), "client_secret").await?), None),
        };
        let Found { manager, metadata } = self.discover(challenge.as_deref()).await?;
        let asked = match config.scopes.as_slice() {
            [] => scopes::bounded(manager.select_initial_scopes(&[]).await.iter().map(String::as_str)),
            scopes => scopes.to_vec(),
        };
        let scope = asked.join(" ");
        let mut form = vec![("grant_type", "client_credentials"), ("resource", self.url.as_str())];
        if !scope.is_empty() {
            form.push(("scope", scope.as_str()));
        }
        let audience = metadata.issuer.as_deref().unwrap_or(&metadata.token_endpoint);
        let unsigned = || Trouble::Passing("the system cannot sign".to_owned());
        let sign = |key: SigningKey| {
            key.assert(&client_id, config.private_key_id.as_deref(), audience, now).ok_or_else(unsigned)
        };
        let signed = key.map(sign).transpose()?;
        if let Some(signed) = &signed {
            form.extend([("client_assertion_type", BY_SIGNATURE), ("client_assertion", signed.as_str())]);
        }
        let mut record = Record::begun(&self.url, &metadata, client_id.clone());
        record.wanted = old.map(|old| old.wanted.clone()).unwrap_or_default();
        record.client_secret = secret;
        match self.http.post_form(&metadata.token_endpoint, &form, record.proof()).await {
            Ok(Posted::Granted(tokens)) => {
                // The secret stands in the config.
                Record { client_secret: None, ..record }.with_tokens(&tokens, &asked)
            }
            Ok(Posted::Refused(code)) => Err(match Complaint::of(&code) {
                Complaint::Client => bad_client(&client_id, &code),
                Complaint::Request => bad_config(format!(
                    "the authorization server does not give what `oauth` asks for ({code})"
                )),
                Complaint::Login | Complaint::Other => {
                    Trouble::Passing(format!("the authorization server says {code}"))
                }
            }),
            Err(Unanswered::Later { why, wait }) => Err(Trouble::Later { why, wait }),
            // No token of ours is spent by asking again.
            Err(Unanswered::Passing(why) | Unanswered::Unreadable(why)) => Err(Trouble::Passing(why)),
        }
    }
}

async fn signing_key(template: &Template) -> Result<SigningKey, Trouble> {
    let pem = expand(template).await.map_err(Trouble::BadConfig)?;
    SigningKey::from_pem(&pem).map_err(|why| bad_config(format!("`oauth.private_key` {why}")))
}

async fn filled(template: Option<&Template>, key: &str) -> Result<String, Trouble> {
    let template = template.ok_or_else(|| bad_config(format!("`oauth.{key}` is missing")))?;
    expand(template).await.map_err(Trouble::BadConfig)
}

fn bad_config(text: String) -> Trouble {
    Trouble::BadConfig(Observed::BadConfig(text))
}
