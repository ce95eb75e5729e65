//! What a config says about who may use the gateway, and how it is reached from elsewhere.

use url::Url;

/// Who may use the gateway: the keys `public_url` and `auth` of the table `gateway`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AccessConfig {
    /// What clients call the gateway, if that is not the address it listens on: behind a proxy, or by a name. Its
    /// host is accepted in the headers `Host` and `Origin`, and clients that look for where to log in are told
    /// this address. Wrong, and they are turned away or log in for something else. Default: none.
    pub public_url: Option<Url>,
    /// Whether clients may show an API key of `gripfast keys`. Default: false.
    pub keys: bool,
}

impl AccessConfig {
    /// Whether clients have to show who they are.
    pub fn asks(&self) -> bool {
        self.keys
    }
}
