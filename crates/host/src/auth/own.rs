//! Tokens that a client has by itself, without a person: by its secret, or by its signature.

use super::assertion::SigningKey;
use super::http::Posted;
use super::oauth::{Provider, Trouble};
use super::record::Record;
use crate::config::Template;
use crate::transport::expand;
use gripfast_core::credential::Complaint;
use gripfast_core::failure::Observed;
use gripfast_core::time::Wall;
use rmcp::transport::auth::{
    AuthorizationManager, AuthorizationMetadata, ClientCredentialsConfig, CredentialStore,
    InMemoryCredentialStore,
};

const BY_SIGNATURE: &str = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer";

impl Provider<'_> {
    /// Has the client's own credentials exchanged for a token.
    pub(super) async fn client_credentials(
        &self,
        old: Option<&Record>,
        challenge: Option<String>,
        now: Wall,
    ) -> Result<Record, Trouble> {
        let config = &self.asked_of.oauth;
        let client_id = filled(config.client_id.as_ref(), "client_id").await?;
        let begun = old.cloned().unwrap_or_else(|| Record::begun(&self.url, client_id.clone()));
        let key = match &config.private_key {
            Some(key) => Some(signing_key(key).await?),
            None => None,
        };
        let (manager, metadata) = self.discover(challenge.as_deref()).await?;
        let scopes = match config.scopes.as_slice() {
            [] => manager.select_initial_scopes(&[]).await,
            scopes => scopes.to_vec(),
        };
        match key {
            Some(key) => self.by_signature(&begun, &key, client_id, &metadata, scopes, now).await,
            None => self.by_secret(&begun, manager, client_id, scopes).await,
        }
    }

    async fn by_secret(
        &self,
        begun: &Record,
        mut manager: AuthorizationManager,
        client_id: String,
        scopes: Vec<String>,
    ) -> Result<Record, Trouble> {
        let store = InMemoryCredentialStore::new();
        manager.set_credential_store(store.clone());
        let exchanged = ClientCredentialsConfig::ClientSecret {
            client_id: client_id.clone(),
            client_secret: filled(self.asked_of.oauth.client_secret.as_ref(), "client_secret").await?,
            scopes,
            resource: Some(self.url.to_string()),
        };
        manager.validate_client_credentials_metadata(&exchanged)?;
        manager.configure_client_credentials(&exchanged)?;
        let exchanged = manager.exchange_client_credentials(&exchanged).await;
        exchanged.map_err(|error| self.complained_of(&client_id).unwrap_or_else(|| error.into()))?;
        begun.with_stored(store.load().await?)
    }

    async fn by_signature(
        &self,
        begun: &Record,
        key: &SigningKey,
        client_id: String,
        metadata: &AuthorizationMetadata,
        scopes: Vec<String>,
        now: Wall,
    ) -> Result<Record, Trouble> {
        let key_id = self.asked_of.oauth.private_key_id.as_deref();
        let audience = metadata.issuer.as_deref().unwrap_or(&metadata.token_endpoint);
        let unsigned = || Trouble::Passing("the system cannot sign".to_owned());
        let signed = key.assert(&client_id, key_id, audience, now).ok_or_else(unsigned)?;
        let scope = scopes.join(" ");
        let mut form = vec![
            ("grant_type", "client_credentials"),
            ("client_assertion_type", BY_SIGNATURE),
            ("client_assertion", signed.as_str()),
            ("resource", self.url.as_str()),
        ];
        if !scope.is_empty() {
            form.push(("scope", scope.as_str()));
        }
        match self.http.post_form(&metadata.token_endpoint, &form, None).await {
            Ok(Posted::Granted(tokens)) => {
                let record = begun.with_tokens(&tokens, &scopes)?;
                Ok(Record { client_id, issuer: metadata.issuer.clone(), ..record })
            }
            Ok(Posted::Refused(code)) => {
                let passing = || Trouble::Passing(format!("the authorization server says {code}"));
                Err(self.complained_of(&client_id).unwrap_or_else(passing))
            }
            Err(why) => Err(Trouble::Passing(why)),
        }
    }

    /// What the authorization server has said no to, where the config is to blame for it.
    fn complained_of(&self, client_id: &str) -> Option<Trouble> {
        match self.complaint() {
            Complaint::Client => Some(self.bad_client(client_id)),
            Complaint::Request => {
                let code = self.http.refusal().unwrap_or_default();
                let text = format!("the authorization server does not give what `oauth` asks for ({code})");
                Some(bad_config(text))
            }
            Complaint::Login | Complaint::Other => None,
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
