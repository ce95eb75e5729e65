//! Egress rules: the addresses that a client may connect to. The origins that the config names may be anywhere.
//! Everything else (redirects, and addresses in a server's metadata) has to be on the public internet, or on this
//! machine if the config names an address of this machine. The rules check the address that is connected to, so a name
//! that resolves to another address the next time gains nothing.

use crate::config::is_loopback;
use gripfast_core::address::{Zone, zone};
use http::Uri;
use std::error::Error as StdError;
use std::fmt;
use std::net::IpAddr;
use url::{Origin, Url};

/// Egress rules of one client.
pub(crate) struct Egress {
    configured: Vec<Origin>,
    loopback: bool,
}

impl Egress {
    /// Creates the rules for a server at `url` whose config also names `others`. A server on this machine may lead to
    /// other ports of this machine; a remote one may not, whatever else the config names.
    pub(crate) fn new<'a>(url: &'a Url, others: impl IntoIterator<Item = &'a Url>) -> Self {
        let named = std::iter::once(url).chain(others).map(Url::origin).collect();
        Self { configured: named, loopback: is_loopback(url) }
    }

    /// Returns whether the config names the origin of `target`, which may then be at any address.
    pub(super) fn is_configured(&self, target: &Uri) -> bool {
        Url::parse(&target.to_string()).is_ok_and(|target| self.configured.contains(&target.origin()))
    }

    /// Checks an address of a target that the config does not name.
    pub(super) fn check(&self, host: &str, address: IpAddr) -> Result<(), EgressDenied> {
        match zone(address) {
            Zone::Public => Ok(()),
            Zone::Loopback if self.loopback => Ok(()),
            Zone::Loopback | Zone::Private => Err(EgressDenied { host: host.to_owned(), address }),
        }
    }
}

/// An address that the rules forbid.
#[derive(Debug)]
pub(super) struct EgressDenied {
    host: String,
    address: IpAddr,
}

impl EgressDenied {
    /// Finds this error in a chain of causes.
    pub(super) fn find_in<'a>(error: &'a (dyn StdError + 'static)) -> Option<&'a Self> {
        let mut cause = Some(error);
        while let Some(error) = cause {
            if let Some(denied) = error.downcast_ref() {
                return Some(denied);
            }
            cause = error.source();
        }
        None
    }
}

impl fmt::Display for EgressDenied {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, address } = self;
        if *host == address.to_string() {
            write!(out, "`{host}` is not a public address, and the config does not name it")
        } else {
            write!(
                out,
                "`{host}` is at {address}, which is not a public address, and the config does not name it"
            )
        }
    }
}

impl StdError for EgressDenied {}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(text: &str) -> Url {
        Url::parse(text).unwrap()
    }

    #[test]
    fn an_origin_is_named_with_its_scheme_host_and_port() {
        let rules = Egress::new(&url("https://mcp.example/mcp"), [&url("http://10.0.0.1:8080")]);
        for (target, named) in [
            ("https://mcp.example/other", true),
            ("https://mcp.example:443/", true),
            ("http://10.0.0.1:8080/token", true),
            ("http://mcp.example/", false),
            ("https://mcp.example:8443/", false),
            ("https://10.0.0.1:8080/", false),
            ("https://id.example/", false),
        ] {
            assert_eq!(rules.is_configured(&target.parse().unwrap()), named, "{target}");
        }
    }

    #[test]
    fn an_unnamed_address_must_be_public_or_local_to_a_local_server() {
        let judge = |named: &str, address: &str| {
            Egress::new(&url(named), [&url("http://127.0.0.1:9")])
                .check("there.example", address.parse().unwrap())
                .is_ok()
        };
        let remote = "https://mcp.example/mcp";
        assert!(judge(remote, "93.184.216.34"));
        for address in ["127.0.0.1", "::1", "10.1.2.3", "169.254.169.254", "0.0.0.0", "::ffff:10.0.0.1"] {
            assert!(!judge(remote, address), "{address}");
        }
        for local in ["http://127.0.0.1:3000/mcp", "http://localhost/mcp", "http://[::1]:1/mcp"] {
            assert!(judge(local, "127.0.0.1") && judge(local, "::1"), "{local}");
            assert!(!judge(local, "10.1.2.3") && !judge(local, "0.0.0.0"), "{local}");
        }
    }
}
