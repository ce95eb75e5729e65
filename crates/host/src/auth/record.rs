//! Stored data of a login.

use gripfast_core::credential::Lifetime;
use gripfast_core::time::Wall;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use std::time::Duration;

/// Stored data of a login. It has no `Debug`: nearly all of it is secret.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Record {
    /// Server that the tokens are for.
    pub(crate) resource: String,
    /// Name of that server at the authorization server, where it is not its URL.
    #[serde(default)]
    pub(crate) audience: Option<String>,
    /// Authorization server that issued them; `None` if the server issued them itself, without any metadata.
    #[serde(default)]
    pub(crate) issuer: Option<String>,
    /// The only URL that the refresh token and the client secret are sent to. Version 0.1 did not record it.
    #[serde(default)]
    pub(crate) token_endpoint: Option<String>,
    /// URL at which tokens of this login are revoked (RFC 7009), if the authorization server offers it.
    #[serde(default)]
    pub(crate) revocation_endpoint: Option<String>,
    pub(crate) client_id: String,
    #[serde(default)]
    pub(crate) client_secret: Option<String>,
    /// True if the client secret is sent in the form instead of a header.
    #[serde(default)]
    pub(crate) secret_in_body: bool,
    #[serde(default)]
    pub(crate) access_token: Option<String>,
    #[serde(default)]
    pub(crate) refresh_token: Option<String>,
    /// Seconds since 1970.
    #[serde(default)]
    pub(crate) received_at: u64,
    /// Lifetime in seconds.
    #[serde(default)]
    pub(crate) expires_in: Option<u64>,
    /// Granted scopes.
    #[serde(default)]
    pub(crate) scopes: Vec<String>,
    /// Scopes that the server has asked for in addition; the next login requests them.
    #[serde(default)]
    pub(crate) wanted: Vec<String>,
    /// Members that a newer version has added. A refresh keeps them.
    #[serde(flatten)]
    pub(crate) unknown: BTreeMap<String, Value>,
}

impl Record {
    pub(crate) fn lifetime(&self) -> Lifetime {
        Lifetime {
            received: Wall::from_unix_epoch(Duration::from_secs(self.received_at)),
            expires_in: self.expires_in.map(Duration::from_secs),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn e01_members_that_a_newer_version_has_added_survive_a_refresh() {
        let stored =
            json!({ "resource": "https://a", "client_id": "me", "refresh_token": "r", "tomorrow": [1] });
        let record: Record = serde_json::from_value(stored).unwrap();
        let tokens = json!({ "access_token": "new", "token_type": "Bearer" });
        let Ok(refreshed) = record.with_tokens(&tokens, &[]) else { panic!("it has a token") };
        let refreshed = serde_json::to_value(&refreshed).unwrap();
        assert_eq!((&refreshed["tomorrow"], &refreshed["access_token"]), (&json!([1]), &json!("new")));
    }
}
