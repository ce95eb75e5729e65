//! Client authentication, TLS and the public address of the gateway, as the config sets them.

use crate::config::fields::{Field, Problems};
use crate::config::keys::{Codec, NonEmpty, ValueKind, impl_codec, keys, words};
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

keys! {
    /// Credentials that clients must present. Without `keys` and `jwt` only programs on this machine may use the
    /// gateway, and they need no credential.
    impl AccessConfig {
        /// Accept API keys that were created with `gripfast keys`.
        keys: bool;
        /// Accept signed tokens (JWT) of this issuer.
        jwt: Option<JwtConfig>;
    }
}

keys! {
    /// Certificate of the listener. The gateway checks both files every second and uses changed files for new
    /// connections. If they cannot be used, it keeps the current certificate, and `status` shows the reason.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct ListenerTls, check require_files {
        /// PEM file with the certificate, followed by its intermediate certificates, without the root certificate.
        pub cert: PathBuf = PathBuf::new(), required;
        /// PEM file with the private key of the certificate.
        pub key: PathBuf = PathBuf::new(), required;
    }
}

fn require_files(_: &mut ListenerTls, field: &Field<'_>, _is_clean: bool, problems: &mut Problems) {
    if field.get("cert").is_none() || field.get("key").is_none() {
        let hint = "the PEM files of the certificate chain and of its private key";
        problems.error(field.error("expected `cert` and `key`").with_hint(hint));
    }
}

keys! {
    /// Signed tokens (JWT) that clients may present.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct JwtConfig, check require_claims {
        /// Issuer of the tokens: the required value of the claim `iss`, and the authorization server where clients log
        /// in. A URL must be https, or http on loopback.
        pub issuer: String as Confidential = String::new(), required;
        /// Required value of the claim `aud`. Without it a token for any other service of the issuer would be accepted
        /// here too.
        pub audience: String as NonEmpty = String::new(), required;
        /// Public keys of the issuer: a URL, fetched again for an unknown key and at least every hour, or a file, read
        /// again when it changes. A URL, and every address that it redirects to, must be https, or http on loopback.
        pub jwks: Jwks = Jwks::File(PathBuf::new()), required;
        /// Claim that identifies the client.
        pub name: String as NonEmpty = "sub".to_owned();
        /// Scopes that a token must have.
        pub scopes: Vec<String> = Vec::new();
        /// Token types that are accepted, by the header `typ`. `any` accepts `at+jwt`, `JWT` and tokens without a type,
        /// for authorization servers that do not type their access tokens. `at+jwt` accepts nothing else (RFC 9068);
        /// set it if your authorization server follows RFC 9068, so that no other kind of token is accepted as an
        /// access token. ID tokens are refused in both cases.
        pub typ: TokenTypes = TokenTypes::default();
    }
}

impl JwtConfig {
    /// Returns whether all required keys were read.
    pub(super) fn is_complete(&self) -> bool {
        !self.issuer.is_empty() && !self.audience.is_empty() && self.jwks != Jwks::File(PathBuf::new())
    }
}

fn require_claims(_: &mut JwtConfig, field: &Field<'_>, _is_clean: bool, problems: &mut Problems) {
    if ["issuer", "audience", "jwks"].iter().any(|name| field.get(name).is_none()) {
        let hint = "the values of the claims `iss` and `aud`, and the URL or file of the issuer's keys";
        problems.error(field.error("expected `issuer`, `audience` and `jwks`").with_hint(hint));
    }
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

words!(TokenTypes { Any = "any", AccessToken = "at+jwt" });

impl_codec!(Jwks => Jwks, ValueKind::Text, read_jwks);

fn read_jwks(field: &Field<'_>, problems: &mut Problems) -> Option<Jwks> {
    let text = Confidential::read(field, (), problems)?;
    match http_url(&text) {
        Some(url) => Some(Jwks::Url(url)),
        None if text.contains("://") => {
            problems.refuse(field.error("expected the URL or the file of the issuer's keys in `jwks`"))
        }
        None => Some(Jwks::File(PathBuf::from(text))),
    }
}

/// Codec of a string that, if it is a URL, must be https, or http on loopback.
struct Confidential;

impl_codec!(Confidential => String, ValueKind::Text, read_confidential);

fn read_confidential(field: &Field<'_>, problems: &mut Problems) -> Option<String> {
    let text = field.nonempty_text(problems)?;
    if http_url(text).is_some_and(|url| !is_confidential(&url)) {
        problems.error(
            field
                .error("plain http is accepted for loopback addresses only")
                .with_hint("use `https://`: plain http can be read and changed on the network"),
        );
    }
    Some(text.to_owned())
}

/// Codec of `public_url`.
pub(super) struct ClientUrl;

impl_codec!(ClientUrl => Url, ValueKind::Text, read_client_url);

fn read_client_url(field: &Field<'_>, problems: &mut Problems) -> Option<Url> {
    let url = http_url(field.text(problems)?);
    if url.is_none() {
        let hint = "for example \"https://mcp.example.com\", without `/mcp`";
        problems.error(field.error("expected the URL that clients use").with_hint(hint));
    }
    url
}

/// Codec of `allowed_origins`.
pub(super) struct Origins;

impl_codec!(Origins => Vec<String>, ValueKind::TextList, read_origins);

fn read_origins(field: &Field<'_>, problems: &mut Problems) -> Option<Vec<String>> {
    let mut origins = Vec::new();
    for element in field.elements(problems)? {
        let Some(text) = element.text(problems) else { continue };
        // As browsers write it: without the default port, and without a path.
        let origin = http_url(text).map(|url| url.origin().ascii_serialization());
        match origin.filter(|origin| text.trim_end_matches('/').eq_ignore_ascii_case(origin)) {
            Some(origin) => origins.push(origin),
            None => problems.error(
                element
                    .error("expected an origin as browsers send it: scheme, host and a port that is not the default one")
                    .with_hint("for example \"http://localhost:6274\""),
            ),
        }
    }
    Some(origins)
}

fn http_url(text: &str) -> Option<Url> {
    let url = Url::parse(text).ok()?;
    (matches!(url.scheme(), "http" | "https") && url.has_host()).then_some(url)
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
