//! What a config says about who may use the gateway, and how it is reached from elsewhere.

use crate::private_files::StrictModes;
use gripfast_core::address::{Zone, zone};
use std::path::PathBuf;
use url::{Host, Url};

/// Who may use the gateway, and by which way: the keys `public_url`, `allowed_origins`, `auth`, `tls` and `strict_modes` of
/// the table `gateway`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AccessConfig {
    /// What clients call the gateway, if that is not the address it listens on: behind a proxy, or by a name. Its
    /// host is accepted in the headers `Host` and `Origin`, and clients that look for where to log in are told
    /// this address. Wrong, and they are turned away or log in for something else. Default: none.
    pub public_url: Option<Url>,
    /// Origins whose web pages may speak to the gateway, besides its own: `http://localhost:6274`. Every page of such
    /// an origin can use whatever the gateway gives to clients without a credential. Default: none.
    pub allowed_origins: Vec<String>,
    /// Whether clients may show an API key of `gripfast keys`. Default: false.
    pub keys: bool,
    /// Whose tokens clients may show. Default: nobody's.
    pub jwt: Option<JwtConfig>,
    /// What the listener proves itself with. With it, clients speak `https` and nothing else; without it, `http`.
    /// Default: none.
    pub tls: Option<ListenerTls>,
    /// Whether a config, key file or state directory that another user could have changed is refused: one that belongs
    /// neither to the user nor to root, or that its group or others may write. Default: it is. The key `strict_modes`.
    pub strict_modes: StrictModes,
}

impl AccessConfig {
    /// Whether clients have to show who they are.
    pub fn asks(&self) -> bool {
        self.keys || self.jwt.is_some()
    }
}

/// The table `gateway.tls`: the listener's certificate. Both files are looked at every second and taken when they
/// have changed, for new connections; if they cannot be used, the certificate in use stays, and `status` says why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListenerTls {
    /// A file in PEM form: the certificate, and behind it those that vouch for it, up to but not including the
    /// authority that clients know.
    pub cert: PathBuf,
    /// A file in PEM form: the private key of the certificate.
    pub key: PathBuf,
}

/// The table `gateway.auth.jwt`: whose signed tokens are good here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JwtConfig {
    /// Who issues them: what they have to say in `iss`, and where clients are sent to log in.
    pub issuer: String,
    /// Whom they have to be for, in `aud`. Without this, a token for any other service of the issuer would be
    /// good here too.
    pub audience: String,
    /// The issuer's public keys: a URL, which is asked again for a key that is not known and at least every
    /// hour, or a file, which is read again when it changes.
    pub jwks: Jwks,
    /// The claim that says who it is. Default `sub`.
    pub name: String,
    /// The scopes that a token needs. Default: none.
    pub scopes: Vec<String>,
    /// Which types of tokens are accepted, by the header `typ`. Default: access tokens and untyped ones.
    pub typ: TokenTypes,
}

/// The key `typ` of the table `gateway.auth.jwt`: which types of tokens are accepted, by their header `typ`. ID tokens
/// are refused in either case.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TokenTypes {
    /// `at+jwt`, `JWT` or no type: many authorization servers do not type their access tokens.
    #[default]
    Any,
    /// `at+jwt` alone (RFC 9068).
    AccessToken,
}

/// Whether what is exchanged with this URL can neither be read nor changed on the way: https, or http that does not
/// leave this machine.
pub fn is_confidential(url: &Url) -> bool {
    url.scheme() == "https" || (url.scheme() == "http" && is_loopback(url))
}

/// Whether a URL says by itself that it is on this machine.
pub(crate) fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(Host::Ipv4(address)) => zone(address.into()) == Zone::Loopback,
        Some(Host::Ipv6(address)) => zone(address.into()) == Zone::Loopback,
        Some(Host::Domain(name)) => name == "localhost" || name.ends_with(".localhost"),
        None => false,
    }
}

/// Where the public keys of an issuer are.
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
