//! What a config says about who may use the gateway, and how it is reached from elsewhere.

use crate::private_files::StrictModes;
use std::path::PathBuf;
use url::Url;

/// Who may use the gateway, and by which way: the keys `public_url`, `auth`, `tls` and `strict_modes` of the table
/// `gateway`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AccessConfig {
    /// What clients call the gateway, if that is not the address it listens on: behind a proxy, or by a name. Its
    /// host is accepted in the headers `Host` and `Origin`, and clients that look for where to log in are told
    /// this address. Wrong, and they are turned away or log in for something else. Default: none.
    pub public_url: Option<Url>,
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
}

/// Where the public keys of an issuer are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Jwks {
    /// At a URL.
    Url(Url),
    /// In a file.
    File(PathBuf),
}
