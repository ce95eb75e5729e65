//! Client authentication, TLS and the public address of the gateway, as the config sets them.

use crate::private_files::StrictModes;
use gripfast_core::address::{Zone, zone};
use std::path::PathBuf;
use url::{Host, Url};

/// Access to the gateway: the keys `public_url`, `allowed_origins`, `auth`, `tls` and `strict_modes` of the table
/// `gateway`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AccessConfig {
    /// URL that clients use for the gateway, if it differs from the listen address: behind a proxy, or with a host
    /// name. The gateway accepts its host in the headers `Host` and `Origin`, and names this URL to clients that look
    /// for the authorization server. If it is wrong, clients are refused, or get tokens for another service. Default:
    /// none.
    pub public_url: Option<Url>,
    /// Origins whose web pages may send requests to the gateway, besides its own: `http://localhost:6274`. Every page
    /// of such an origin can use everything that the gateway offers to clients without a credential. Default: none.
    pub allowed_origins: Vec<String>,
    /// Accept API keys that were created with `gripfast keys`. Default: false.
    pub keys: bool,
    /// Issuer whose signed tokens are accepted. Default: none.
    pub jwt: Option<JwtConfig>,
    /// Certificate of the listener. With it clients must use `https`, without it `http`. Default: none.
    pub tls: Option<ListenerTls>,
    /// Refuse a config, key file or state directory that another user could have changed: one that is owned neither by
    /// the user nor by root, or that its group or others can write. Default: on.
    pub strict_modes: StrictModes,
}

impl AccessConfig {
    /// Returns whether clients must authenticate.
    pub fn requires_auth(&self) -> bool {
        self.keys || self.jwt.is_some()
    }
}

/// The table `gateway.tls`: the listener's certificate. The gateway checks both files every second and uses changed
/// files for new connections. If they cannot be used, it keeps the current certificate, and `status` shows the reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListenerTls {
    /// PEM file with the certificate, followed by its intermediate certificates, without the root certificate.
    pub cert: PathBuf,
    /// PEM file with the private key of the certificate.
    pub key: PathBuf,
}

/// The table `gateway.auth.jwt`: the signed tokens that are accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JwtConfig {
    /// Issuer of the tokens: the required value of the claim `iss`, and the authorization server where clients log in.
    pub issuer: String,
    /// Required value of the claim `aud`. Without it a token for any other service of the issuer would be accepted.
    pub audience: String,
    /// Public keys of the issuer: a URL, fetched again for an unknown key and at least every hour, or a file, read
    /// again when it changes.
    pub jwks: Jwks,
    /// Claim that identifies the client. Default `sub`.
    pub name: String,
    /// Scopes that a token must have. Default: none.
    pub scopes: Vec<String>,
    /// Token types that are accepted, by the header `typ`. Default: access tokens and untyped ones.
    pub typ: TokenTypes,
}

/// The key `typ` of the table `gateway.auth.jwt`: the token types that are accepted, by the header `typ`. ID tokens are
/// refused in both cases.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TokenTypes {
    /// `at+jwt`, `JWT` or no type: many authorization servers do not type their access tokens.
    #[default]
    Any,
    /// `at+jwt` alone (RFC 9068).
    AccessToken,
}

/// Returns whether requests to this URL can neither be read nor changed on the network: https, or http that does not
/// leave this machine.
pub fn is_confidential(url: &Url) -> bool {
    url.scheme() == "https" || (url.scheme() == "http" && is_loopback(url))
}

/// Returns whether the host of a URL is a loopback address or `localhost`, without a DNS lookup.
pub(crate) fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(Host::Ipv4(address)) => zone(address.into()) == Zone::Loopback,
        Some(Host::Ipv6(address)) => zone(address.into()) == Zone::Loopback,
        Some(Host::Domain(name)) => name == "localhost" || name.ends_with(".localhost"),
        None => false,
    }
}

/// Location of an issuer's public keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Jwks {
    /// At a URL.
    Url(Url),
    /// In a file.
    File(PathBuf),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_sent_over_https_or_on_this_machine_only() {
        for (address, confidential) in [
            ("https://id.example.com/token", true),
            ("http://127.0.0.1:8080/token", true),
            ("http://[::1]/token", true),
            ("http://localhost/token", true),
            ("http://id.example.com/token", false),
            ("http://192.168.1.1/token", false),
            ("http://localhost.example.com/token", false),
            ("ftp://127.0.0.1/token", false),
        ] {
            assert_eq!(is_confidential(&Url::parse(address).unwrap()), confidential, "{address}");
        }
    }
}
