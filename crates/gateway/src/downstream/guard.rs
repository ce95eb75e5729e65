//! Under which names a listener may be addressed: its own, so that no web page can send a browser here under a
//! name that it has pointed at us.

use axum::body::Body;
use axum::extract::Request;
use axum::middleware::Next;
use axum::response::Response;
use gripfast::transport::HOST_ID;
use http::header::{HOST, ORIGIN};
use http::{HeaderMap, StatusCode, Uri};
use std::sync::Arc;

/// The names under which a listener may be addressed.
#[derive(Debug, Clone)]
pub struct Guard {
    names: Arc<Vec<String>>,
    /// Whether any IP address will do: a name that was pointed at us is none.
    addresses: bool,
    /// The id of the host behind this listener. A request that carries it comes from that host.
    host_id: Arc<str>,
}

impl Guard {
    /// Loopback names, the address it listens on, and what the operator says that clients call it. One that
    /// listens for other machines does not know all of its addresses, and may be called by any.
    pub fn new(listen: std::net::SocketAddr, public: Option<&str>, host_id: &str) -> Self {
        let mut names = vec!["localhost".to_owned(), "127.0.0.1".to_owned(), "[::1]".to_owned()];
        names.push(match listen.ip() {
            std::net::IpAddr::V4(ip) => ip.to_string(),
            std::net::IpAddr::V6(ip) => format!("[{ip}]"),
        });
        names.extend(public.map(str::to_owned));
        Self { names: Arc::new(names), addresses: !listen.ip().is_loopback(), host_id: host_id.into() }
    }

    /// Turns others away before anything looks at their request.
    pub fn layer(self) -> axum::middleware::FromFnLayer<Check, Self, (axum::extract::State<Self>, Request)> {
        axum::middleware::from_fn_with_state(self, check as Check)
    }

    /// What a request is turned away with, if it is.
    pub(crate) fn refusal(&self, uri: &Uri, headers: &HeaderMap) -> Option<Response> {
        let refused = |status: StatusCode, why: &str| {
            let mut response = Response::new(Body::from(format!("{why}\n")));
            *response.status_mut() = status;
            response
        };
        if headers.get(HOST_ID).is_some_and(|id| *id == *self.host_id) {
            let why = "this is the gateway that asks: it cannot be a server of itself";
            return Some(refused(StatusCode::MISDIRECTED_REQUEST, why));
        }
        self.refuses(uri, headers).map(|why| refused(StatusCode::FORBIDDEN, why))
    }

    /// Why a request is turned away.
    fn refuses(&self, uri: &Uri, headers: &HeaderMap) -> Option<&'static str> {
        let host = headers
            .get(HOST)
            .and_then(|host| host.to_str().ok())
            .or_else(|| uri.authority().map(|a| a.as_str()));
        if !host.is_some_and(|host| self.knows(host)) {
            return Some("the Host header names another machine (DNS rebinding?)");
        }
        let origin = headers.get(ORIGIN)?;
        let known = origin
            .to_str()
            .ok()
            .and_then(|origin| origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://")));
        // A page at an address is ours only at the address that this request is for.
        if known.is_some_and(|authority| self.names(authority) || Some(authority) == host) {
            return None;
        }
        Some("the Origin header names another site")
    }

    fn knows(&self, authority: &str) -> bool {
        let is_address = || {
            let name = name_in(authority);
            let inner = name.strip_prefix('[').and_then(|name| name.strip_suffix(']'));
            inner.unwrap_or(name).parse::<std::net::IpAddr>().is_ok()
        };
        self.names(authority) || (self.addresses && is_address())
    }

    fn names(&self, authority: &str) -> bool {
        let name = name_in(authority);
        self.names.iter().any(|known| known.eq_ignore_ascii_case(name))
    }
}

fn name_in(authority: &str) -> &str {
    match authority.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        Some(_) | None => authority,
    }
}

type Check = fn(
    axum::extract::State<Guard>,
    Request,
    Next,
) -> std::pin::Pin<Box<dyn Future<Output = Response> + Send>>;

fn check(
    axum::extract::State(guard): axum::extract::State<Guard>,
    request: Request,
    next: Next,
) -> std::pin::Pin<Box<dyn Future<Output = Response> + Send>> {
    Box::pin(async move {
        match guard.refusal(request.uri(), request.headers()) {
            None => next.run(request).await,
            Some(refusal) => refusal,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(host: &str, origin: Option<&str>) -> bool {
        refused_at("127.0.0.1:7331", None, host, origin)
    }

    fn refused_at(listen: &str, public: Option<&str>, host: &str, origin: Option<&str>) -> bool {
        let guard = Guard::new(listen.parse().unwrap(), public, "host");
        let mut headers = HeaderMap::new();
        headers.insert(HOST, host.parse().unwrap());
        if let Some(origin) = origin {
            headers.insert(ORIGIN, origin.parse().unwrap());
        }
        guard.refuses(&Uri::from_static("/mcp"), &headers).is_some()
    }

    #[test]
    fn g05_programs_of_this_machine_pass_and_rebound_names_and_foreign_sites_do_not() {
        assert!(!refused("127.0.0.1:7331", None));
        assert!(!refused("localhost:9", None));
        assert!(!refused("[::1]:7331", None));
        assert!(!refused("LOCALHOST", Some("http://localhost:3000")));
        assert!(refused("evil.example", None));
        assert!(refused("127.0.0.1.evil.example:7331", None));
        assert!(refused("localhost", Some("https://evil.example")));
        assert!(refused("localhost", Some("null")));
        assert!(refused("192.0.2.7:7331", None), "nobody else can reach it");
    }

    #[test]
    fn g05_a_listener_for_other_machines_goes_by_its_addresses_and_its_public_name() {
        let refused = |host, origin| refused_at("0.0.0.0:7331", Some("mcp.example.com"), host, origin);
        assert!(!refused("192.0.2.7:7331", None) && !refused("[2001:db8::7]:7331", None));
        assert!(!refused("mcp.example.com", Some("https://mcp.example.com")));
        assert!(!refused("192.0.2.7:7331", Some("http://192.0.2.7:7331")));
        assert!(refused("evil.example:7331", None), "a name that was pointed at us");
        assert!(refused("192.0.2.7:7331", Some("http://192.0.2.8")) && refused("192.0.2.7", Some("null")));
    }

    #[test]
    fn a_gateway_that_was_made_its_own_server_refuses_itself() {
        let guard = Guard::new("127.0.0.1:7331".parse().unwrap(), None, "host");
        let asked_by = |id: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(HOST, "127.0.0.1:7331".parse().unwrap());
            headers.insert(HOST_ID, id.parse().unwrap());
            guard.refusal(&Uri::from_static("/mcp"), &headers).map(|response| response.status())
        };
        assert_eq!(asked_by("host"), Some(StatusCode::MISDIRECTED_REQUEST));
        assert_eq!(asked_by("another"), None);
    }
}
