//! Client credentials grant: tokens without a person, by the client's secret or signature.

use super::assertion::SigningKey;
use super::http::{AuthHttpError, TokenReply};
use super::oauth::{AuthorizationServer, Provider, TokenError, bad_client};
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
    ) -> Result<Record, TokenError> {
        let config = &self.token_server.oauth;
        let client_id = expand_field(config.client_id.as_ref(), "client_id").await?;
        let (secret, key) = match &config.private_key {
            Some(key) => (None, Some(signing_key(key).await?)),
            None => (Some(expand_field(config.client_secret.as_ref(), "client_secret").await?), None),
        };
        let AuthorizationServer { manager, metadata } = self.discover(challenge.as_deref()).await?;
        let requested = match config.scopes.as_slice() {
            [] => scopes::bounded(manager.select_initial_scopes(&[]).await.iter().map(String::as_str)),
            scopes => scopes.to_vec(),
        };
        let scope = requested.join(" ");
        let mut form = vec![("grant_type", "client_credentials"), ("resource", self.url.as_str())];
        if !scope.is_empty() {
            form.push(("scope", scope.as_str()));
        }
        let audience = metadata.issuer.as_deref().unwrap_or(&metadata.token_endpoint);
        let unsigned = || TokenError::Transient("the client assertion cannot be signed".to_owned());
        let sign = |key: SigningKey| {
            key.sign_assertion(&client_id, config.private_key_id.as_deref(), audience, now)
                .ok_or_else(unsigned)
        };
        let signed = key.map(sign).transpose()?;
        if let Some(signed) = &signed {
            form.extend([("client_assertion_type", BY_SIGNATURE), ("client_assertion", signed.as_str())]);
        }
        let mut record = Record::new(&self.url, &metadata, client_id.clone());
        record.wanted = old.map(|old| old.wanted.clone()).unwrap_or_default();
        record.client_secret = secret;
        match self.http.post_form(&metadata.token_endpoint, &form, record.client_auth()).await {
            Ok(TokenReply::Granted(tokens)) => {
                // The secret stays in the config.
                Record { client_secret: None, ..record }.with_tokens(&tokens, &requested)
            }
            Ok(TokenReply::Refused(code)) => Err(match Complaint::from_code(&code) {
                Complaint::Client => bad_client(&client_id, &code),
                Complaint::Request => {
                    bad_config(format!("the authorization server refuses the request of `oauth` ({code})"))
                }
                Complaint::Login | Complaint::Other => {
                    TokenError::Transient(format!("the authorization server answered {code}"))
                }
            }),
            Err(AuthHttpError::RetryAfter { why, wait }) => Err(TokenError::RetryAfter { why, wait }),
            // A retry spends no token.
            Err(AuthHttpError::Transient(why) | AuthHttpError::Unreadable(why)) => {
                Err(TokenError::Transient(why))
            }
        }
    }
}

async fn signing_key(template: &Template) -> Result<SigningKey, TokenError> {
    let pem = expand(template).await.map_err(TokenError::BadConfig)?;
    SigningKey::from_pem(&pem).map_err(|why| bad_config(format!("`oauth.private_key` {why}")))
}

async fn expand_field(template: Option<&Template>, key: &str) -> Result<String, TokenError> {
    let template = template.ok_or_else(|| bad_config(format!("`oauth.{key}` is missing")))?;
    expand(template).await.map_err(TokenError::BadConfig)
}

fn bad_config(text: String) -> TokenError {
    TokenError::BadConfig(Observed::BadConfig(text))
}
