//! Which gateway is meant: the one that was named, or the one that this config would start.

use super::args::Global;
use super::config;
use super::exit::Exit;
use super::stop::Failure;
use gripfast::config::{AccessConfig, Config};
use http::Uri;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;

/// Where a gateway listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct GatewayUrl {
    base: String,
    own: Option<OwnCertificate>,
    /// On this machine, as far as its address or the config says.
    here: bool,
}

/// What the gateway of this config proves itself with, if it speaks https.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OwnCertificate {
    /// Its file.
    pub(crate) cert: PathBuf,
    /// `public_url`, for whose name it was probably made: clients know no other reason to believe it.
    public: Option<String>,
}

impl GatewayUrl {
    /// Names the gateway to ask, for those who do not want to type it every time.
    const VARIABLE: &str = "GRIPFAST_URL";

    /// The gateway to ask: `typed`, else that of the config that was named, else `$GRIPFAST_URL`, else that of
    /// the config that `serve` would take, else the default. A config that was not named and cannot be used
    /// says nothing: whoever looks for what is wrong should find the gateway all the same.
    pub(crate) fn meant(global: &Global, typed: Option<&Self>) -> Result<Self, Failure> {
        if let Some(url) = typed {
            return Ok(url.clone());
        }
        let named = global.config.is_some();
        match std::env::var(Self::VARIABLE) {
            Ok(text) if !text.is_empty() && !named => {
                let wrong = |why| format!("${} is `{text}`: {why}", Self::VARIABLE);
                return text.parse().map_err(|why| Failure::new(Exit::General, wrong(why)));
            }
            Ok(_) | Err(_) => {}
        }
        let loaded = config::find(global.config.as_deref())
            .and_then(|path| Config::load(&path).map_err(|error| config::unusable(&error)));
        match loaded {
            Ok(config) => Self::listening_on(config.gateway.listen, &config.gateway.access),
            Err(failure) if named => Err(failure),
            Err(_) => Ok(Self::default()),
        }
    }

    /// How the address that a gateway listens on is reached from this machine.
    fn listening_on(listen: SocketAddr, access: &AccessConfig) -> Result<Self, Failure> {
        let ip = match listen.ip() {
            IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
            IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
            ip => ip,
        };
        match listen.port() {
            0 => Err(Failure::new(Exit::General, "`gateway.listen` picks a new port at every start")
                .with_hint("`--url` names the one that `gripfast serve` has printed")),
            port => {
                let public = access.public_url.as_ref();
                let own = access.tls.as_ref().map(|tls| OwnCertificate {
                    cert: tls.cert.clone(),
                    public: public.map(|url| url.as_str().trim_end_matches('/').to_owned()),
                });
                let scheme = if own.is_some() { "https" } else { "http" };
                Ok(Self { base: format!("{scheme}://{}", SocketAddr::new(ip, port)), own, here: true })
            }
        }
    }

    /// Host and port.
    pub(crate) fn authority(&self) -> &str {
        self.base.split_once("://").map_or(self.base.as_str(), |(_, rest)| rest)
    }

    pub(crate) fn is_encrypted(&self) -> bool {
        self.base.starts_with("https://")
    }

    /// Whether it is on this machine, so that what is sent there crosses no network.
    pub(crate) fn is_here(&self) -> bool {
        self.here
    }

    /// What an MCP client is to be told.
    pub(crate) fn for_clients(&self) -> &str {
        self.own.as_ref().and_then(|own| own.public.as_deref()).unwrap_or(&self.base)
    }

    /// What it has to prove itself with, if that is known from its config.
    pub(crate) fn own_certificate(&self) -> Option<&OwnCertificate> {
        self.own.as_ref()
    }
}

impl Default for GatewayUrl {
    fn default() -> Self {
        Self { base: "http://127.0.0.1:7331".to_owned(), own: None, here: true }
    }
}

impl FromStr for GatewayUrl {
    type Err = &'static str;

    /// Takes the address alone as well, and the URL that MCP clients are given.
    fn from_str(typed: &str) -> Result<Self, Self::Err> {
        const EXPECTED: &str = "expected http://ADDR:PORT or https://NAME";
        let full = if typed.contains("://") { typed.to_owned() } else { format!("http://{typed}") };
        let base = full.trim_end_matches('/');
        let base = base.strip_suffix("/mcp").unwrap_or(base);
        let uri: Uri = base.parse().map_err(|_| EXPECTED)?;
        match (uri.scheme_str(), uri.host(), uri.query()) {
            (Some("http" | "https"), Some(host), None) if !host.is_empty() => {
                Ok(Self { base: base.to_owned(), own: None, here: is_loopback(host) })
            }
            _ => Err(EXPECTED),
        }
    }
}

fn is_loopback(host: &str) -> bool {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    bare.eq_ignore_ascii_case("localhost") || bare.parse().is_ok_and(|ip: IpAddr| ip.is_loopback())
}

impl fmt::Display for GatewayUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.base)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gripfast::config::ListenerTls;

    #[test]
    fn an_address_may_be_typed_in_the_ways_it_is_seen() {
        for typed in
            ["http://127.0.0.1:7331", "http://127.0.0.1:7331/", "127.0.0.1:7331", "127.0.0.1:7331/mcp"]
        {
            assert_eq!(typed.parse(), Ok(GatewayUrl::default()), "{typed}");
        }
        for wrong in ["", "http://", "ftp://host", "http://host/?q", "https://", "a b"] {
            assert!(wrong.parse::<GatewayUrl>().is_err(), "{wrong:?}");
        }
        let encrypted: GatewayUrl = "https://mcp.example.com/mcp".parse().unwrap();
        assert_eq!(encrypted.to_string(), "https://mcp.example.com");
        assert!(encrypted.is_encrypted() && !GatewayUrl::default().is_encrypted());
    }

    #[test]
    fn a_gateway_that_listens_everywhere_is_found_on_this_machine() {
        let mut access = AccessConfig::default();
        let reached = |listen: &str| {
            GatewayUrl::listening_on(listen.parse().unwrap(), &access).map(|url| url.to_string())
        };
        assert_eq!(reached("0.0.0.0:80"), Ok("http://127.0.0.1:80".to_owned()));
        assert_eq!(reached("[::]:80"), Ok("http://[::1]:80".to_owned()));
        assert_eq!(reached("10.0.0.7:80"), Ok("http://10.0.0.7:80".to_owned()));
        assert!(reached("127.0.0.1:0").is_err(), "nobody knows which port that became");
        access.tls = Some(ListenerTls { cert: "cert.pem".into(), key: "key.pem".into() });
        access.public_url = Some("https://mcp.example.com".parse().unwrap());
        let encrypted = GatewayUrl::listening_on("0.0.0.0:443".parse().unwrap(), &access).unwrap();
        assert_eq!(encrypted.to_string(), "https://127.0.0.1:443");
        assert_eq!(encrypted.own_certificate().unwrap().cert, std::path::Path::new("cert.pem"));
        assert_eq!(encrypted.for_clients(), "https://mcp.example.com");
    }
}
