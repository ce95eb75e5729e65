//! Reachability of a server's address: resolves the host name and connects to the port.

use gripfast::config::{Lookup, Target, endpoint};
use std::net::SocketAddr;
use std::time::Duration;
use tokio::net::{TcpStream, lookup_host};

/// Time limit for a lookup or a connection.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Result of a probe.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Reachability {
    /// Not probed: the server is a command, its URL cannot be expanded, or it is reached through a proxy.
    NotTried,
    /// The host name does not resolve.
    NoSuchName { host: String, why: String },
    /// The host name resolves, but no connection is possible.
    Closed { address: String, why: String },
    /// The port accepts connections. The probe does not check for MCP.
    Open,
}

pub(crate) async fn probe(target: &Target, lookup: &dyn Lookup) -> Reachability {
    let Target::Url { url, .. } = target else { return Reachability::NotTried };
    let proxied = ["HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"];
    if proxied.iter().any(|name| lookup.variable(name).is_some_and(|value| !value.is_empty())) {
        return Reachability::NotTried;
    }
    let filled = url.expand(lookup).ok().map(gripfast::config::Expanded::into_revealed);
    let Some(url) = filled.and_then(|text| endpoint(&text).ok()) else { return Reachability::NotTried };
    let (Some(host), Some(port)) = (url.host_str(), url.port_or_known_default()) else {
        return Reachability::NotTried;
    };
    let host = host.trim_matches(['[', ']']).to_owned();
    let found = tokio::time::timeout(TIMEOUT, lookup_host((host.clone(), port))).await;
    let addresses: Vec<SocketAddr> = match found {
        Ok(Ok(addresses)) => addresses.collect(),
        Ok(Err(error)) => return Reachability::NoSuchName { host, why: os_error_text(&error) },
        Err(_) => return Reachability::NoSuchName { host, why: "no answer from the DNS server".to_owned() },
    };
    let mut why = "the name has no address".to_owned();
    for address in addresses {
        match tokio::time::timeout(TIMEOUT, TcpStream::connect(address)).await {
            Ok(Ok(_)) => return Reachability::Open,
            Ok(Err(error)) => why = os_error_text(&error),
            Err(_) => why = format!("no answer within {} s", TIMEOUT.as_secs()),
        }
    }
    Reachability::Closed { address: format!("{host}:{port}"), why }
}

/// The text of a system error, without the error number and the prefix of the lookup.
fn os_error_text(error: &std::io::Error) -> String {
    let text = error.to_string();
    let text = text.split(" (os error").next().unwrap_or_default();
    text.strip_prefix("failed to lookup address information: ").unwrap_or(text).to_lowercase()
}

/// Returns true if the address accepts connections.
pub(super) async fn is_open(address: &str) -> bool {
    tokio::time::timeout(TIMEOUT, TcpStream::connect(address)).await.is_ok_and(|connected| connected.is_ok())
}
