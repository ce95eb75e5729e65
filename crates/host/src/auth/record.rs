//! What is known of a login.

use gripfast_core::credential::Lifetime;
use gripfast_core::time::Wall;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// What is known of a login. It has no `Debug`: nearly all of it is secret.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Record {
    /// The server that the tokens are for.
    pub(crate) resource: String,
    /// The name by which the authorization server knows that server, where it is not its address.
    #[serde(default)]
    pub(crate) audience: Option<String>,
    /// The authorization server that gave them; none if the server gave them itself, without any metadata.
    #[serde(default)]
    pub(crate) issuer: Option<String>,
    /// The only address that the refresh token and the client secret are sent to. Version 0.1 did not record it.
    #[serde(default)]
    pub(crate) token_endpoint: Option<String>,
    /// Where tokens of this login are revoked (RFC 7009), if the authorization server offers it.
    #[serde(default)]
    pub(crate) revocation_endpoint: Option<String>,
    pub(crate) client_id: String,
    #[serde(default)]
    pub(crate) client_secret: Option<String>,
    /// Whether the client secret goes in the form instead of a header.
    #[serde(default)]
    pub(crate) secret_in_body: bool,
    #[serde(default)]
    pub(crate) access_token: Option<String>,
    #[serde(default)]
    pub(crate) refresh_token: Option<String>,
    /// Seconds since 1970.
    #[serde(default)]
    pub(crate) received_at: u64,
    /// Seconds from then on.
    #[serde(default)]
    pub(crate) expires_in: Option<u64>,
    /// What was granted.
    #[serde(default)]
    pub(crate) scopes: Vec<String>,
    /// What the server has asked for besides; the next login asks for it.
    #[serde(default)]
    pub(crate) wanted: Vec<String>,
}

impl Record {
    pub(crate) fn lifetime(&self) -> Lifetime {
        Lifetime {
            received: Wall::at(Duration::from_secs(self.received_at)),
            lasts: self.expires_in.map(Duration::from_secs),
        }
    }
}
