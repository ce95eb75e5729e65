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
    /// Who gave them. They are shown to nobody else.
    #[serde(default)]
    pub(crate) issuer: Option<String>,
    pub(crate) client_id: String,
    #[serde(default)]
    pub(crate) client_secret: Option<String>,
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
