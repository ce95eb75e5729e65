//! Address of a replica for forwarded requests: scheme, host and port, and nothing else, so that a forged record cannot
//! add a path, a query or a user.

use std::fmt;
use std::sync::Arc;
use url::{Host, Url};

/// `http://HOST:PORT`. Cheap to clone.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReplicaAddress(Arc<str>);

/// Reason why a text is not the address of a replica.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    /// Not a URL.
    #[error("it is not a URL of the form `http://HOST:PORT`")]
    Malformed,
    /// https, which the listener for other replicas does not have.
    #[error(
        "its scheme is https, and replicas do not use TLS between them: write http, and use a private network"
    )]
    Tls,
    /// Not http.
    #[error("its scheme is not http")]
    Scheme,
    /// A port is missing.
    #[error("it names no port")]
    NoPort,
    /// More than scheme, host and port.
    #[error("it has more than scheme, host and port")]
    Surplus,
    /// An address that means every interface, which another replica cannot connect to.
    #[error("it is the address of all interfaces, which no other replica can connect to")]
    Unspecified,
}

/// The port of http.
const DEFAULT_PORT: u16 = 80;

impl ReplicaAddress {
    /// Reads an address. The only spelling that is accepted is the one that [`fmt::Display`] writes; a default port
    /// must be written too.
    pub fn parse(text: &str) -> Result<Self, AddressError> {
        let url = Url::parse(text).map_err(|_| AddressError::Malformed)?;
        match url.scheme() {
            "http" => {}
            "https" => return Err(AddressError::Tls),
            _ => return Err(AddressError::Scheme),
        }
        let host = url.host().ok_or(AddressError::Malformed)?;
        let is_unspecified = match &host {
            Host::Domain(_) => false,
            Host::Ipv4(ip) => ip.is_unspecified(),
            Host::Ipv6(ip) => ip.is_unspecified(),
        };
        if is_unspecified {
            return Err(AddressError::Unspecified);
        }
        // `Url` leaves out a default port, so its presence is seen in the text only.
        let port = url.port().unwrap_or(DEFAULT_PORT);
        if port == 0 {
            return Err(AddressError::NoPort);
        }
        let plain = format!("{}://{host}:{port}", url.scheme());
        if text == plain {
            return Ok(Self(plain.into()));
        }
        let without_port = format!("{}://{host}", url.scheme());
        let is_bare = text == without_port || text.strip_suffix('/') == Some(&without_port);
        Err(if is_bare { AddressError::NoPort } else { AddressError::Surplus })
    }

    /// The address.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ReplicaAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_scheme_host_and_port_only() {
        for accepted in ["http://10.0.0.7:7332", "http://gateway-0.example:80", "http://[::1]:7332"] {
            assert_eq!(
                ReplicaAddress::parse(accepted).map(|address| address.to_string()),
                Ok(accepted.into())
            );
        }
        for (refused, why) in [
            ("", AddressError::Malformed),
            ("gateway-0:7332", AddressError::Scheme),
            ("10.0.0.7:7332", AddressError::Malformed),
            ("redis://10.0.0.7:7332", AddressError::Scheme),
            ("https://10.0.0.7:7332", AddressError::Tls),
            ("http://10.0.0.7", AddressError::NoPort),
            ("http://10.0.0.7/", AddressError::NoPort),
            ("http://10.0.0.7:0", AddressError::NoPort),
            ("http://10.0.0.7:7332/", AddressError::Surplus),
            ("http://10.0.0.7:7332/admin", AddressError::Surplus),
            ("http://10.0.0.7:7332?x=1", AddressError::Surplus),
            ("http://10.0.0.7:7332#x", AddressError::Surplus),
            ("http://me:secret@10.0.0.7:7332", AddressError::Surplus),
            ("http://10.0.0.7:7332\n", AddressError::Surplus),
            ("http://0.0.0.0:7332", AddressError::Unspecified),
            ("http://[::]:7332", AddressError::Unspecified),
        ] {
            assert_eq!(ReplicaAddress::parse(refused), Err(why), "{refused:?}");
        }
    }
}
