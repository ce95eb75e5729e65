//! Whether the address of a server leads anywhere: its name, and its port.

use gripfast::config::{Lookup, Target, endpoint};
use std::net::SocketAddr;
use std::time::Duration;
use tokio::net::{TcpStream, lookup_host};

/// Longer than any handshake, shorter than anybody's patience.
const PATIENCE: Duration = Duration::from_secs(5);

/// What came of trying.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Reach {
    /// It is a command, or its address is not known before something is set, or a proxy leads there.
    NotTried,
    /// Nobody knows its name.
    NoSuchName { host: String, why: String },
    /// The name is known, and nobody answers.
    Closed { address: String, why: String },
    /// Somebody answers. Whether it is MCP is another question.
    Open,
}

pub(crate) async fn of(target: &Target, lookup: &dyn Lookup) -> Reach {
    let Target::Url { url, .. } = target else { return Reach::NotTried };
    let proxied = ["HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"];
    if proxied.iter().any(|name| lookup.variable(name).is_some_and(|value| !value.is_empty())) {
        return Reach::NotTried;
    }
    let filled = url.expand(lookup).ok().map(gripfast::config::Expanded::into_revealed);
    let Some(url) = filled.and_then(|text| endpoint(&text).ok()) else { return Reach::NotTried };
    let (Some(host), Some(port)) = (url.host_str(), url.port_or_known_default()) else {
        return Reach::NotTried;
    };
    let host = host.trim_matches(['[', ']']).to_owned();
    let found = tokio::time::timeout(PATIENCE, lookup_host((host.clone(), port))).await;
    let addresses: Vec<SocketAddr> = match found {
        Ok(Ok(addresses)) => addresses.collect(),
        Ok(Err(error)) => return Reach::NoSuchName { host, why: said(&error) },
        Err(_) => return Reach::NoSuchName { host, why: "nobody answers who knows names".to_owned() },
    };
    let mut why = "it has no address".to_owned();
    for address in addresses {
        match tokio::time::timeout(PATIENCE, TcpStream::connect(address)).await {
            Ok(Ok(_)) => return Reach::Open,
            Ok(Err(error)) => why = said(&error),
            Err(_) => why = format!("no answer within {} s", PATIENCE.as_secs()),
        }
    }
    Reach::Closed { address: format!("{host}:{port}"), why }
}

/// What the system says, without its number for it and without what was tried.
fn said(error: &std::io::Error) -> String {
    let text = error.to_string();
    let text = text.split(" (os error").next().unwrap_or_default();
    text.strip_prefix("failed to lookup address information: ").unwrap_or(text).to_lowercase()
}

/// Whether anybody listens there.
pub(super) async fn is_open(address: &str) -> bool {
    tokio::time::timeout(PATIENCE, TcpStream::connect(address)).await.is_ok_and(|connected| connected.is_ok())
}
