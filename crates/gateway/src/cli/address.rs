//! Which gateway is meant: the one that was named, or the one that this config would start.

use super::args::Global;
use super::config;
use super::exit::Exit;
use super::stop::Failure;
use gripfast::config::AccessConfig;
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
    origin: Origin,
}

/// Origin of an address. Secrets of the environment go only to an address that the user named.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Origin {
    /// The user: `--url` or `$GRIPFAST_URL`.
    Named,
    /// A config file, or the default.
    Derived,
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

    /// The gateway to ask: `typed`, else `$GRIPFAST_URL`, else that of the config that `serve` would take (`--config` names
    /// one), else the default.
    pub(crate) fn meant(global: &Global, typed: Option<&Self>) -> Result<Self, Failure> {
        if let Some(url) = typed {
            return Ok(url.clone());
        }
        if let Some(url) = Self::of_environment()? {
            return Ok(url);
        }
        match config::glance(global)? {
            Some(config) => Self::listening_on(config.gateway.listen, &config.gateway.access),
            None => Ok(Self::default()),
        }
    }

    /// The gateway that the environment names.
    pub(crate) fn of_environment() -> Result<Option<Self>, Failure> {
        let Some(text) = std::env::var(Self::VARIABLE).ok().filter(|text| !text.is_empty()) else {
            return Ok(None);
        };
        let wrong = |why| format!("${} is `{text}`: {why}", Self::VARIABLE);
        text.parse().map(Some).map_err(|why| Failure::new(Exit::General, wrong(why)))
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
                let base = format!("{scheme}://{}", SocketAddr::new(ip, port));
                Ok(Self { base, own, origin: Origin::Derived })
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

    /// Whether the user named it, and not only a file.
    pub(crate) fn is_named(&self) -> bool {
        self.origin == Origin::Named
    }

    /// Whether what is sent there stays on this machine.
    pub(crate) fn is_loopback(&self) -> bool {
        self.base.parse::<Uri>().is_ok_and(|uri| uri.host().is_some_and(is_loopback))
    }

    /// The addresses on this machine by which a gateway is meant: those of a loopback address, and that of the config.
    /// None if it is a gateway on another machine.
    pub(crate) fn local_addresses(&self) -> Vec<SocketAddr> {
        if self.is_named() && !self.is_loopback() {
            return Vec::new();
        }
        let Ok(uri) = self.base.parse::<Uri>() else { return Vec::new() };
        let port = uri.port_u16().unwrap_or(if self.is_encrypted() { 443 } else { 80 });
        let ips = match uri.host().map(bare).and_then(|host| host.parse::<IpAddr>().ok()) {
            Some(ip) => vec![ip],
            None => vec![Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()],
        };
        ips.into_iter().map(|ip| SocketAddr::new(ip, port)).collect()
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
        Self { base: "http://127.0.0.1:7331".to_owned(), own: None, origin: Origin::Derived }
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
                Ok(Self { base: base.to_owned(), own: None, origin: Origin::Named })
            }
            _ => Err(EXPECTED),
        }
    }
}

fn is_loopback(host: &str) -> bool {
    let host = bare(host);
    host.eq_ignore_ascii_case("localhost") || host.parse().is_ok_and(|ip: IpAddr| ip.is_loopback())
}

/// A host without the brackets of an IPv6 address.
fn bare(host: &str) -> &str {
    host.trim_start_matches('[').trim_end_matches(']')
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
            let parsed: GatewayUrl = typed.parse().unwrap();
            assert_eq!(parsed.to_string(), GatewayUrl::default().to_string(), "{typed}");
        }
        for wrong in ["", "http://", "ftp://host", "http://host/?q", "https://", "a b"] {
            assert!(wrong.parse::<GatewayUrl>().is_err(), "{wrong:?}");
        }
        let encrypted: GatewayUrl = "https://mcp.example.com/mcp".parse().unwrap();
        assert_eq!(encrypted.to_string(), "https://mcp.example.com");
        assert!(encrypted.is_encrypted() && !GatewayUrl::default().is_encrypted());
    }

    #[test]
    fn a_gateway_is_local_at_a_loopback_address_and_where_the_config_says() {
        let local = |typed: &str| -> Vec<String> {
            let url: GatewayUrl = typed.parse().unwrap();
            url.local_addresses().iter().map(ToString::to_string).collect()
        };
        assert_eq!(local("http://127.0.0.1:7331"), ["127.0.0.1:7331"]);
        assert_eq!(local("https://127.0.0.2"), ["127.0.0.2:443"]);
        assert_eq!(local("[::1]:80"), ["[::1]:80"]);
        assert_eq!(local("http://LOCALHOST"), ["127.0.0.1:80", "[::1]:80"]);
        for elsewhere in [
            "http://10.0.0.7:7331",
            "https://mcp.example.com",
            "http://localhost.example.com",
            "http://127.0.0.1@10.0.0.5:7331",
            "http://0.0.0.0:7331",
        ] {
            assert!(local(elsewhere).is_empty(), "{elsewhere}");
        }
        let listen = "10.0.0.7:7331".parse().unwrap();
        let derived = GatewayUrl::listening_on(listen, &AccessConfig::default()).unwrap();
        assert_eq!(derived.local_addresses(), [listen]);
        assert!(!derived.is_named() && !derived.is_loopback());
        assert_eq!(GatewayUrl::default().local_addresses(), ["127.0.0.1:7331".parse().unwrap()]);
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
