//! URL of the gateway that a command talks to: the one that the user named, or the one that this config would start.

use super::args::GlobalArgs;
use super::config;
use super::error::FailureReport;
use super::exit::Exit;
use gripfast::config::AccessConfig;
use http::Uri;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;

/// The base URL of a gateway.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct GatewayUrl {
    base: String,
    own: Option<OwnCertificate>,
    origin: AddressOrigin,
}

/// Origin of an address. Secrets of the environment go only to an address that the user named.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AddressOrigin {
    /// The user: `--url` or `$GRIPFAST_URL`.
    Named,
    /// A config file, or the default.
    Derived,
}

/// The certificate of the gateway of this config, if it uses https.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OwnCertificate {
    /// The certificate file.
    pub(crate) cert: PathBuf,
    /// `public_url`: clients trust the certificate only for the name that it was issued for.
    public: Option<String>,
}

impl GatewayUrl {
    /// Environment variable that names the gateway.
    const VARIABLE: &str = "GRIPFAST_URL";

    /// The gateway to ask: `typed`, else `$GRIPFAST_URL`, else that of the config that `serve` would use (`--config`
    /// names one), else the default.
    pub(crate) fn resolve(global: &GlobalArgs, typed: Option<&Self>) -> Result<Self, FailureReport> {
        if let Some(url) = typed {
            return Ok(url.clone());
        }
        if let Some(url) = Self::from_env()? {
            return Ok(url);
        }
        match config::load_optional(global)? {
            Some(config) => Self::from_listen_address(config.gateway.listen, &config.gateway.access),
            None => Ok(Self::default()),
        }
    }

    /// The gateway that `$GRIPFAST_URL` names.
    pub(crate) fn from_env() -> Result<Option<Self>, FailureReport> {
        let Some(text) = std::env::var(Self::VARIABLE).ok().filter(|text| !text.is_empty()) else {
            return Ok(None);
        };
        let wrong = |why| format!("${} is `{text}`: {why}", Self::VARIABLE);
        text.parse().map(Some).map_err(|why| FailureReport::new(Exit::General, wrong(why)))
    }

    /// The URL at which a gateway with this `listen` address is reached from this machine.
    fn from_listen_address(listen: SocketAddr, access: &AccessConfig) -> Result<Self, FailureReport> {
        let ip = match listen.ip() {
            IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
            IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
            ip => ip,
        };
        match listen.port() {
            0 => Err(FailureReport::new(
                Exit::General,
                "`gateway.listen` has port 0, so each start picks another port",
            )
            .with_hint("pass the address that `gripfast serve` printed with `--url`")),
            port => {
                let public = access.public_url.as_ref();
                let own = access.tls.as_ref().map(|tls| OwnCertificate {
                    cert: tls.cert.clone(),
                    public: public.map(|url| url.as_str().trim_end_matches('/').to_owned()),
                });
                let scheme = if own.is_some() { "https" } else { "http" };
                let base = format!("{scheme}://{}", SocketAddr::new(ip, port));
                Ok(Self { base, own, origin: AddressOrigin::Derived })
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

    /// Returns true if the user named the URL, as opposed to a config file or the default.
    pub(crate) fn is_named(&self) -> bool {
        self.origin == AddressOrigin::Named
    }

    /// Returns true if the host is a loopback address or `localhost`.
    pub(crate) fn is_loopback(&self) -> bool {
        self.base.parse::<Uri>().is_ok_and(|uri| uri.host().is_some_and(is_loopback))
    }

    /// The addresses on this machine at which the gateway listens: those of a loopback host, or that of the config.
    /// Empty for a gateway on another machine.
    pub(crate) fn local_addresses(&self) -> Vec<SocketAddr> {
        if self.is_named() && !self.is_loopback() {
            return Vec::new();
        }
        let Ok(uri) = self.base.parse::<Uri>() else { return Vec::new() };
        let port = uri.port_u16().unwrap_or(if self.is_encrypted() { 443 } else { 80 });
        let ips = match uri.host().map(without_brackets).and_then(|host| host.parse::<IpAddr>().ok()) {
            Some(ip) => vec![ip],
            None => vec![Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()],
        };
        ips.into_iter().map(|ip| SocketAddr::new(ip, port)).collect()
    }

    /// The base URL to write into the config of an MCP client.
    pub(crate) fn for_clients(&self) -> &str {
        self.own.as_ref().and_then(|own| own.public.as_deref()).unwrap_or(&self.base)
    }

    /// The certificate that the config of the gateway names, if known.
    pub(crate) fn own_certificate(&self) -> Option<&OwnCertificate> {
        self.own.as_ref()
    }
}

impl Default for GatewayUrl {
    fn default() -> Self {
        Self { base: "http://127.0.0.1:7331".to_owned(), own: None, origin: AddressOrigin::Derived }
    }
}

impl FromStr for GatewayUrl {
    type Err = &'static str;

    /// Accepts a bare address as well, and the URL with `/mcp` that MCP clients use.
    fn from_str(typed: &str) -> Result<Self, Self::Err> {
        const EXPECTED: &str = "expected http://ADDR:PORT or https://NAME";
        let full = if typed.contains("://") { typed.to_owned() } else { format!("http://{typed}") };
        let base = full.trim_end_matches('/');
        let base = base.strip_suffix("/mcp").unwrap_or(base);
        let uri: Uri = base.parse().map_err(|_| EXPECTED)?;
        match (uri.scheme_str(), uri.host(), uri.query()) {
            (Some("http" | "https"), Some(host), None) if !host.is_empty() => {
                Ok(Self { base: base.to_owned(), own: None, origin: AddressOrigin::Named })
            }
            _ => Err(EXPECTED),
        }
    }
}

fn is_loopback(host: &str) -> bool {
    let host = without_brackets(host);
    host.eq_ignore_ascii_case("localhost") || host.parse().is_ok_and(|ip: IpAddr| ip.is_loopback())
}

/// The host without the brackets of an IPv6 address.
fn without_brackets(host: &str) -> &str {
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
    fn a_gateway_url_may_be_a_bare_address_or_end_in_mcp() {
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
    fn a_gateway_is_local_at_a_loopback_address_or_the_configured_address() {
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
        let derived = GatewayUrl::from_listen_address(listen, &AccessConfig::default()).unwrap();
        assert_eq!(derived.local_addresses(), [listen]);
        assert!(!derived.is_named() && !derived.is_loopback());
        assert_eq!(GatewayUrl::default().local_addresses(), ["127.0.0.1:7331".parse().unwrap()]);
    }

    #[test]
    fn a_gateway_that_listens_on_all_addresses_is_reached_over_loopback() {
        let mut access = AccessConfig::default();
        let reached = |listen: &str| {
            GatewayUrl::from_listen_address(listen.parse().unwrap(), &access).map(|url| url.to_string())
        };
        assert_eq!(reached("0.0.0.0:80"), Ok("http://127.0.0.1:80".to_owned()));
        assert_eq!(reached("[::]:80"), Ok("http://[::1]:80".to_owned()));
        assert_eq!(reached("10.0.0.7:80"), Ok("http://10.0.0.7:80".to_owned()));
        assert!(reached("127.0.0.1:0").is_err(), "port 0 does not tell the actual port");
        access.tls = Some(ListenerTls { cert: "cert.pem".into(), key: "key.pem".into() });
        access.public_url = Some("https://mcp.example.com".parse().unwrap());
        let encrypted = GatewayUrl::from_listen_address("0.0.0.0:443".parse().unwrap(), &access).unwrap();
        assert_eq!(encrypted.to_string(), "https://127.0.0.1:443");
        assert_eq!(encrypted.own_certificate().unwrap().cert, std::path::Path::new("cert.pem"));
        assert_eq!(encrypted.for_clients(), "https://mcp.example.com");
    }
}
