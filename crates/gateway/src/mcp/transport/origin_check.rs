//! First check of every request: allowed Host names (against DNS rebinding, where a web page reaches the gateway under
//! a name of its own), allowed origins, and headers that occur twice and could be read in two ways.

use axum::body::Body;
use axum::response::Response;
use gripfast::transport::HOST_ID;
use http::header::{AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE, HOST, ORIGIN, TRANSFER_ENCODING};
use http::{HeaderMap, HeaderValue, Method, StatusCode, Uri};
use std::sync::Arc;

/// Names and origins under which a listener accepts requests.
#[derive(Debug, Clone)]
pub struct OriginCheck {
    names: Arc<Vec<String>>,
    /// Port of the listener: a page from another port of this machine belongs to another program.
    port: u16,
    /// Further allowed origins (`allowed_origins`, `public_url`).
    origins: Arc<Vec<String>>,
    /// Accepts any IP address as Host: DNS rebinding needs a name.
    addresses: bool,
    /// Id of the host behind this listener. A request with this id comes from the gateway itself.
    host_id: Arc<str>,
}

impl OriginCheck {
    /// Allows loopback names, the listen address and the public name. A listener on a non-loopback address does not
    /// know all of its addresses, so it accepts every IP address. Allowed origins are its own pages and `origins`.
    pub fn new(
        listen: std::net::SocketAddr,
        public: Option<&str>,
        origins: Vec<String>,
        host_id: &str,
    ) -> Self {
        let mut names = vec!["localhost".to_owned(), "127.0.0.1".to_owned(), "[::1]".to_owned()];
        names.push(match listen.ip() {
            std::net::IpAddr::V4(ip) => ip.to_string(),
            std::net::IpAddr::V6(ip) => format!("[{ip}]"),
        });
        names.extend(public.map(str::to_owned));
        Self {
            names: Arc::new(names),
            port: listen.port(),
            origins: Arc::new(origins),
            addresses: !listen.ip().is_loopback(),
            host_id: host_id.into(),
        }
    }

    /// Error response for a request that is not allowed.
    pub(crate) fn refusal(&self, method: &Method, uri: &Uri, headers: &HeaderMap) -> Option<Response> {
        let refused = |status: StatusCode, why: &str| {
            let mut response = Response::new(Body::from(format!("{why}\n")));
            *response.status_mut() = status;
            response
        };
        let headers = CheckedHeaders::read(headers);
        if headers.host_id.is_some_and(|id| *id == *self.host_id) {
            let why = "this request comes from the same gateway: it cannot be a server of itself";
            return Some(refused(StatusCode::MISDIRECTED_REQUEST, why));
        }
        // Load balancers and kubelets name the address of the replica, or no host. The answer has nothing to protect.
        if *method == Method::GET && is_health(uri.path()) {
            return None;
        }
        self.refuses(method, uri, &headers).map(|(status, why)| refused(status, why))
    }

    /// Status and text of the refusal.
    fn refuses(
        &self,
        method: &Method,
        uri: &Uri,
        headers: &CheckedHeaders<'_>,
    ) -> Option<(StatusCode, &'static str)> {
        let Ok(named) = headers.host.single() else {
            return Some((StatusCode::BAD_REQUEST, "the request has more than one Host header"));
        };
        let target = uri.authority().map(|authority| authority.as_str());
        let host = match (named, target) {
            (None, None) => return Some((StatusCode::BAD_REQUEST, "the request has no Host header")),
            (Some(named), Some(target)) if !named.eq_ignore_ascii_case(target) => {
                return Some((StatusCode::BAD_REQUEST, "the Host header differs from the request target"));
            }
            (Some(host), _) | (None, Some(host)) => host,
        };
        if !self.allows_host(host) {
            return Some((
                StatusCode::FORBIDDEN,
                "the Host header names another machine (DNS rebinding?); `public_url` in the table `gateway` names \
                 the address that clients use",
            ));
        }
        let Ok(origin) = headers.origin.single() else {
            return Some((StatusCode::BAD_REQUEST, "the request has more than one Origin header"));
        };
        if origin.is_some_and(|origin| !self.allows_origin(origin, host)) {
            return Some((
                StatusCode::FORBIDDEN,
                "the Origin header names another site; `allowed_origins` in the table `gateway` allows its pages",
            ));
        }
        if headers.authorization.single().is_err() {
            return Some((StatusCode::BAD_REQUEST, "the request has more than one Authorization header"));
        }
        if method == Method::POST && headers.announce_body() && !headers.are_of_json() {
            let why = "the Content-Type of a POST must be application/json";
            return Some((StatusCode::UNSUPPORTED_MEDIA_TYPE, why));
        }
        None
    }

    /// Tests if pages of `origin` may send requests to the listener under the name `host`.
    fn allows_origin(&self, origin: &str, host: &str) -> bool {
        if self.origins.iter().any(|known| known.eq_ignore_ascii_case(origin)) {
            return true;
        }
        let (authority, usual) = match (origin.strip_prefix("http://"), origin.strip_prefix("https://")) {
            (Some(authority), _) => (authority, 80),
            (None, Some(authority)) => (authority, 443),
            (None, None) => return false,
        };
        // A page at an IP address is only our own at the address of this request.
        let is_own = || self.is_known_name(authority) && port_in(authority).unwrap_or(usual) == self.port;
        authority.eq_ignore_ascii_case(host) || is_own()
    }

    fn allows_host(&self, authority: &str) -> bool {
        let is_address = || {
            let name = name_in(authority);
            let inner = name.strip_prefix('[').and_then(|name| name.strip_suffix(']'));
            inner.unwrap_or(name).parse::<std::net::IpAddr>().is_ok()
        };
        self.is_known_name(authority) || (self.addresses && is_address())
    }

    fn is_known_name(&self, authority: &str) -> bool {
        let name = name_in(authority);
        self.names.iter().any(|known| known.eq_ignore_ascii_case(name))
    }
}

const JSON: &str = "application/json";

/// The headers that decide whether a request is allowed, read in one pass.
#[derive(Default)]
struct CheckedHeaders<'h> {
    host: HeaderField<'h>,
    origin: HeaderField<'h>,
    authorization: HeaderField<'h>,
    content_type: HeaderField<'h>,
    content_length: HeaderField<'h>,
    transfer_encoding: HeaderField<'h>,
    host_id: Option<&'h HeaderValue>,
}

impl<'h> CheckedHeaders<'h> {
    fn read(headers: &'h HeaderMap) -> Self {
        let mut read = Self::default();
        for (name, value) in headers {
            let field = match name {
                name if name == HOST => &mut read.host,
                name if name == ORIGIN => &mut read.origin,
                name if name == AUTHORIZATION => &mut read.authorization,
                name if name == CONTENT_TYPE => &mut read.content_type,
                name if name == CONTENT_LENGTH => &mut read.content_length,
                name if name == TRANSFER_ENCODING => &mut read.transfer_encoding,
                name if name == HOST_ID => {
                    read.host_id.get_or_insert(value);
                    continue;
                }
                _ => continue,
            };
            field.is_repeated = field.first.is_some();
            field.first.get_or_insert(value);
        }
        read
    }

    fn announce_body(&self) -> bool {
        self.transfer_encoding.first.is_some()
            || self.content_length.first.is_some_and(|length| length != "0")
    }

    fn are_of_json(&self) -> bool {
        let kind = self.content_type.single().ok().flatten();
        let essence = |kind: &'h str| kind.split_once(';').map_or(kind, |(essence, _)| essence).trim();
        kind.is_some_and(|kind| kind == JSON || essence(kind).eq_ignore_ascii_case(JSON))
    }
}

/// Values of one header.
#[derive(Default)]
struct HeaderField<'h> {
    first: Option<&'h HeaderValue>,
    is_repeated: bool,
}

impl<'h> HeaderField<'h> {
    /// Value of a header that may occur at most once; `Err` if it occurs more often. A value that is not text becomes
    /// empty, which matches nothing.
    fn single(&self) -> Result<Option<&'h str>, ()> {
        if self.is_repeated {
            return Err(());
        }
        Ok(self.first.map(|value| value.to_str().unwrap_or_default()))
    }
}

fn port_in(authority: &str) -> Option<u16> {
    authority.rsplit_once(':').and_then(|(_, port)| port.parse().ok())
}

fn name_in(authority: &str) -> &str {
    match authority.bytes().rposition(|byte| !byte.is_ascii_digit()) {
        Some(colon) if authority.as_bytes()[colon] == b':' => &authority[..colon],
        Some(_) | None => authority,
    }
}

/// Health checks. They are not limited: a load balancer would remove a gateway that does not answer them, and they cost
/// nothing.
pub(crate) fn is_health(path: &str) -> bool {
    matches!(path, "/healthz" | "/readyz")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(host: &str, origin: Option<&str>) -> Option<u16> {
        refused_at("127.0.0.1:7331", None, host, origin)
    }

    fn refused_at(listen: &str, public: Option<&str>, host: &str, origin: Option<&str>) -> Option<u16> {
        let headers: Vec<_> = [("host", host)].into_iter().chain(origin.map(|o| ("origin", o))).collect();
        check(listen, public, "GET", "/mcp", &headers)
    }

    fn check(
        listen: &str,
        public: Option<&str>,
        method: &str,
        target: &str,
        headers: &[(&str, &str)],
    ) -> Option<u16> {
        let mut origins = vec!["http://localhost:6274".to_owned()];
        origins.extend(public.map(|name| format!("https://{name}")));
        let origin_check = OriginCheck::new(listen.parse().unwrap(), public, origins, "host");
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(name.parse::<http::HeaderName>().unwrap(), value.parse().unwrap());
        }
        let headers = CheckedHeaders::read(&map);
        let refusal = origin_check.refuses(&method.parse().unwrap(), &target.parse().unwrap(), &headers);
        refusal.map(|(status, _)| status.as_u16())
    }

    #[test]
    fn g05_local_names_pass_and_rebound_names_and_foreign_origins_do_not() {
        assert_eq!(refused("127.0.0.1:7331", None), None);
        assert_eq!(refused("localhost:9", None), None);
        assert_eq!(refused("[::1]:7331", None), None);
        assert_eq!(refused("LOCALHOST", Some("http://localhost:7331")), None);
        for (host, origin) in [
            ("evil.example", None),
            ("127.0.0.1.evil.example:7331", None),
            ("localhost", Some("https://evil.example")),
            ("localhost", Some("null")),
            ("localhost", Some("ftp://localhost")),
            // An address that is not this listener's.
            ("192.0.2.7:7331", None),
        ] {
            assert_eq!(refused(host, origin), Some(403), "{host} {origin:?}");
        }
    }

    #[test]
    fn g05_an_origin_on_another_local_port_needs_allowed_origins() {
        let own =
            ["http://localhost:7331", "http://127.0.0.1:7331", "http://[::1]:7331", "HTTP://LOCALHOST:6274"];
        for origin in own {
            assert_eq!(refused("127.0.0.1:7331", Some(origin)), None, "{origin}");
        }
        for origin in
            ["http://localhost:3000", "http://localhost", "https://localhost", "http://127.0.0.1:6274"]
        {
            assert_eq!(refused("127.0.0.1:7331", Some(origin)), Some(403), "{origin}");
        }
        assert_eq!(
            refused("localhost:9000", Some("http://localhost:9000")),
            None,
            "through a forwarded port"
        );
    }

    #[test]
    fn g05_a_remote_listener_accepts_its_addresses_and_its_public_name() {
        let refused = |host, origin| refused_at("0.0.0.0:7331", Some("mcp.example.com"), host, origin);
        assert_eq!(refused("192.0.2.7:7331", None), None);
        assert_eq!(refused("[2001:db8::7]:7331", None), None);
        assert_eq!(refused("mcp.example.com", Some("https://mcp.example.com")), None);
        assert_eq!(
            refused("10.0.0.1:7331", Some("https://mcp.example.com")),
            None,
            "a proxy may rewrite Host"
        );
        assert_eq!(refused("192.0.2.7:7331", Some("http://192.0.2.7:7331")), None);
        assert_eq!(refused("evil.example:7331", None), Some(403), "a name that was pointed at us");
        assert_eq!(refused("192.0.2.7:7331", Some("http://192.0.2.8")), Some(403));
        assert_eq!(refused("192.0.2.7:7331", Some("https://mcp.example.com:8443")), Some(403));
        assert_eq!(refused("192.0.2.7", Some("null")), Some(403));
    }

    #[test]
    fn g05_a_request_that_names_two_hosts_or_two_origins_is_refused() {
        let check = |target, headers: &[(&str, &str)]| check("127.0.0.1:7331", None, "GET", target, headers);
        let (host, origin) = (("host", "localhost:7331"), ("origin", "http://localhost:7331"));
        assert_eq!(check("/mcp", &[host, origin]), None);
        assert_eq!(check("http://localhost:7331/mcp", &[host]), None);
        assert_eq!(check("http://localhost:7331/mcp", &[]), None);
        assert_eq!(check("/mcp", &[]), Some(400));
        assert_eq!(check("/mcp", &[host, host]), Some(400));
        assert_eq!(check("/mcp", &[host, origin, origin]), Some(400));
        assert_eq!(
            check("/mcp", &[host, ("authorization", "Bearer a"), ("authorization", "Bearer b")]),
            Some(400)
        );
        assert_eq!(check("http://127.0.0.1:7331/mcp", &[host]), Some(400));
        assert_eq!(check("http://evil.example/mcp", &[host]), Some(400));
        assert_eq!(check("http://evil.example/mcp", &[]), Some(403));
    }

    #[test]
    fn g05_a_post_body_without_a_json_content_type_is_refused() {
        let posted = |headers: &[(&str, &str)]| {
            let headers = [&[("host", "localhost"), ("content-length", "2")], headers].concat();
            check("127.0.0.1:7331", None, "POST", "/mcp", &headers)
        };
        assert_eq!(posted(&[("content-type", "application/json")]), None);
        assert_eq!(posted(&[("content-type", "Application/JSON ; charset=utf-8")]), None);
        assert_eq!(posted(&[]), Some(415));
        for kind in ["text/plain", "application/x-www-form-urlencoded", "application/jsonp", ""] {
            assert_eq!(posted(&[("content-type", kind)]), Some(415), "{kind:?}");
        }
        assert_eq!(
            posted(&[("content-type", "application/json"), ("content-type", "text/plain")]),
            Some(415)
        );
        let empty = [("host", "localhost"), ("content-length", "0")];
        assert_eq!(check("127.0.0.1:7331", None, "POST", "/api/v1/upstreams/x/stop", &empty), None);
    }

    #[test]
    fn a_gateway_configured_as_its_own_server_refuses_itself() {
        let origin_check = OriginCheck::new("127.0.0.1:7331".parse().unwrap(), None, Vec::new(), "host");
        let check_from = |id: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(HOST, "127.0.0.1:7331".parse().unwrap());
            headers.insert(HOST_ID, id.parse().unwrap());
            origin_check
                .refusal(&Method::GET, &Uri::from_static("/mcp"), &headers)
                .map(|response| response.status())
        };
        assert_eq!(check_from("host"), Some(StatusCode::MISDIRECTED_REQUEST));
        assert_eq!(check_from("another"), None);
    }
}
