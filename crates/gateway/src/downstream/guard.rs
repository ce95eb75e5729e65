//! Who may speak to a listener without authentication: programs of this machine, not web pages that a
//! browser was tricked into sending here.

use axum::body::Body;
use axum::extract::Request;
use axum::middleware::Next;
use axum::response::Response;
use http::header::{HOST, ORIGIN};
use http::{HeaderMap, StatusCode, Uri};
use std::sync::Arc;

/// The names under which a listener may be addressed.
#[derive(Debug, Clone)]
pub struct Guard {
    names: Arc<Vec<String>>,
}

impl Guard {
    /// Loopback names only, and the address it listens on.
    pub fn loopback(listen: std::net::SocketAddr) -> Self {
        let mut names = vec!["localhost".to_owned(), "127.0.0.1".to_owned(), "[::1]".to_owned()];
        names.push(match listen.ip() {
            std::net::IpAddr::V4(ip) => ip.to_string(),
            std::net::IpAddr::V6(ip) => format!("[{ip}]"),
        });
        Self { names: Arc::new(names) }
    }

    /// Turns others away before anything looks at their request.
    pub fn layer(self) -> axum::middleware::FromFnLayer<Check, Self, (axum::extract::State<Self>, Request)> {
        axum::middleware::from_fn_with_state(self, check as Check)
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
        if known.is_some_and(|authority| self.knows(authority)) {
            return None;
        }
        Some("the Origin header names another site")
    }

    fn knows(&self, authority: &str) -> bool {
        let name = match authority.rsplit_once(':') {
            Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
            Some(_) | None => authority,
        };
        self.names.iter().any(|known| known.eq_ignore_ascii_case(name))
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
        match guard.refuses(request.uri(), request.headers()) {
            None => next.run(request).await,
            Some(why) => {
                let mut response = Response::new(Body::from(format!("{why}\n")));
                *response.status_mut() = StatusCode::FORBIDDEN;
                response
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(host: &str, origin: Option<&str>) -> bool {
        let guard = Guard::loopback("127.0.0.1:7331".parse().unwrap());
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
    }
}
