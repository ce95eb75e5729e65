//! HTTP client of one upstream: pooled connections, the upstream's own headers, redirects that never carry a credential
//! to another origin, and evidence instead of errors.

use super::cancel;
use super::connect::{Connector, connect_failure, mark_sensitive};
use super::connection_error::ConnectionError;
use super::egress::{Egress, EgressDenied};
use super::pool::{Body, Pool, PoolError};
use super::proxy::{ForwardedBy, ProxyError};
use super::response::header_text;
use crate::auth::Credential;
use crate::singleton::ReplicaSigner;
use crate::transport::target::TlsFiles;
use crate::transport::{Safety, Secrets, SentFlag};
use bytes::Bytes;
use gripfast_core::failure::{ConnectStepFailed, During, Evidence, Observed};
use http::header::{
    ACCEPT_ENCODING, AUTHORIZATION, COOKIE, HOST, LOCATION, PROXY_AUTHORIZATION, WWW_AUTHENTICATE,
};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode, Uri};
use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use tokio::sync::Semaphore;
use url::{Origin, Url};

pub(super) const IDENTITY: HeaderValue = HeaderValue::from_static("identity");

/// The HTTP client of one upstream. Cloning it is cheap.
#[derive(Clone)]
pub(crate) struct HttpClient {
    pool: Pool,
    /// Other origins that redirects may lead to.
    redirect_origins: Arc<[Origin]>,
    /// Sent with every request to the upstream's own origin.
    headers: Arc<HeaderMap>,
    /// Credential that requests carry; it may change while the client lives.
    credential: Option<Arc<Credential>>,
    /// Learns the credential, so that it is redacted from what the server says.
    secrets: Arc<Secrets>,
    /// Seals requests to another replica.
    signer: Option<Arc<dyn ReplicaSigner>>,
    /// Permits for cancellations in delivery.
    pub(super) cancel_permits: Arc<Semaphore>,
}

/// Precomputed address for many requests.
pub(crate) struct Address {
    pub(crate) url: Url,
    pub(super) uri: Uri,
    /// The same without the origin, for a server that gets the origin in the `Host` header.
    pub(super) path: Uri,
    pub(super) host: HeaderValue,
    pub(super) origin: Arc<str>,
    /// `Proxy-Authorization` header for a forwarding proxy.
    proxy_authorization: Option<HeaderValue>,
    /// The forwarding proxy, if there is one.
    proxy: Option<Arc<str>>,
}

/// One request, without the upstream's own headers.
#[derive(Clone)]
pub(crate) struct HttpRequest {
    pub(crate) method: Method,
    pub(crate) to: Arc<Address>,
    pub(crate) headers: Arc<HeaderMap>,
    /// Further headers, which mirror parts of the body.
    pub(crate) mirrored: Vec<(HeaderName, HeaderValue)>,
    pub(crate) body: Bytes,
    /// Set when the first byte may have been sent.
    pub(crate) sent: Option<Arc<SentFlag>>,
    /// Replay safety of the request.
    pub(crate) safety: Safety,
}

impl HttpClient {
    const MAX_REDIRECTS: usize = 5;

    /// Creates a client for the server at `url`, with the headers of the config. `named` are other URLs of the config:
    /// redirects to their origins are followed, and they may be at any address.
    pub(crate) fn new(
        url: &Url,
        named: &[Url],
        mut headers: HeaderMap,
        tls: TlsFiles,
        credential: Option<Arc<Credential>>,
    ) -> Result<Self, Observed> {
        let egress = Egress::new(url, named);
        let connector = Connector::new(&uri_of(url)?, egress, tls)?;
        mark_sensitive(&mut headers);
        Ok(Self {
            pool: Pool::new(connector),
            redirect_origins: named.iter().map(Url::origin).collect(),
            headers: Arc::new(headers),
            credential,
            secrets: Arc::default(),
            signer: None,
            cancel_permits: Arc::new(Semaphore::new(cancel::MAX_PENDING)),
        })
    }

    /// Creates a client for another replica. It uses no proxy, and seals each request.
    pub(crate) fn for_replica(url: &Url, signer: Arc<dyn ReplicaSigner>) -> Result<Self, Observed> {
        let connector = Connector::new(&uri_of(url)?, Egress::new(url, []), TlsFiles::default())?;
        Ok(Self {
            pool: Pool::new(connector.without_proxies()),
            redirect_origins: Arc::default(),
            headers: Arc::default(),
            credential: None,
            secrets: Arc::default(),
            signer: Some(signer),
            cancel_permits: Arc::new(Semaphore::new(cancel::MAX_PENDING)),
        })
    }

    /// Sets where credentials are registered for redaction.
    pub(crate) fn with_secrets(self, secrets: Arc<Secrets>) -> Self {
        Self { secrets, ..self }
    }

    /// Keeps connections for this many concurrent requests.
    pub(crate) fn with_kept_connections(self, connections: usize) -> Self {
        self.pool.keep_up_to(connections);
        self
    }

    /// Creates an address for many requests.
    pub(crate) fn address(&self, url: Url) -> Result<Arc<Address>, Observed> {
        let uri = uri_of(&url)?;
        let unusable = |error: &dyn fmt::Display| Observed::BadConfig(format!("the URL is invalid: {error}"));
        let path = uri.path_and_query().map_or("/", |path| path.as_str());
        let path = path.parse().map_err(|error| unusable(&error))?;
        // `Url` omits the default port too.
        let name = url.host_str().ok_or_else(|| unusable(&"it has no host"))?;
        let host = url.port().map_or_else(|| name.to_owned(), |port| format!("{name}:{port}"));
        let origin = format!("{}://{host}", url.scheme()).into();
        let host = HeaderValue::try_from(host).map_err(|error| unusable(&error))?;
        let proxy_authorization = self.pool.connector().proxy_authorization(&uri);
        let proxy = self.pool.connector().forwarding_proxy(&uri);
        Ok(Arc::new(Address { url, uri, path, host, origin, proxy_authorization, proxy }))
    }

    /// Sends a request and follows redirects: on the same origin, from http to https on the same host, and to origins
    /// that the config names. Returns when the response head has arrived.
    pub(crate) async fn send(
        &self,
        mut http_request: HttpRequest,
        during: During,
    ) -> Result<Response<Body>, Evidence> {
        let start = Arc::clone(&http_request.to);
        let mut own_headers = Some(&*self.headers);
        if let Some(credential) = self.credential.as_ref().filter(|credential| credential.is_due()) {
            // Boxed, because the future is large and most requests do not need it.
            let fresh = Box::pin(credential.refresh_if_due()).await;
            fresh.map_err(|observed| Evidence::unsent(during, observed))?;
        }
        let mut auth_header = self.credential.as_ref().and_then(|credential| credential.header());
        if let Some(Ok(auth_header)) = auth_header.as_ref().map(HeaderValue::to_str) {
            self.secrets.set_credential(auth_header);
        }
        for _ in 0..=Self::MAX_REDIRECTS {
            let response = self.send_once(&http_request, own_headers, auth_header.as_ref(), during).await?;
            let Some(next) = redirect_target(&response, &http_request.to.url) else {
                if own_headers.is_none() && response.status() == StatusCode::UNAUTHORIZED {
                    // Neither a login nor a renewal would help: the credential is not sent there.
                    let there = http_request.to.url.origin().ascii_serialization();
                    let text = format!(
                        "it redirects to {there}, which wants a credential, and credentials are not sent to another \
                         origin; use that address as `url`"
                    );
                    return Err(Evidence::unsent(during, Observed::BadConfig(text)));
                }
                self.report_refusal(&response, auth_header.as_ref()).await;
                return Ok(response);
            };
            if http_request.to.url.scheme() == "https" && next.scheme() != "https" {
                let text = "it redirects from https to http, which is refused".to_owned();
                return Err(Evidence::unsent(during, Observed::BadConfig(text)));
            }
            if !self.may_redirect(&start.url, &next) {
                let there = next.origin().ascii_serialization();
                let text = format!(
                    "it redirects to {there}, which the config does not name; if that is right, set it as `url` or add \
                     it to `redirects`"
                );
                return Err(Evidence::unsent(during, Observed::BadConfig(text)));
            }
            if next.origin() != start.url.origin() {
                // Another origin is another party and gets no credential of this one. The session id stays, because the
                // origin that answered in the end assigned it.
                for secret in [AUTHORIZATION, COOKIE, PROXY_AUTHORIZATION] {
                    Arc::make_mut(&mut http_request.headers).remove(&secret);
                }
                own_headers = None;
                auth_header = None;
            }
            Arc::make_mut(&mut http_request.headers).remove(HOST);
            http_request.to = self.address(next).map_err(|observed| Evidence::unsent(during, observed))?;
        }
        let text = format!("it redirects more than {} times", Self::MAX_REDIRECTS);
        Err(Evidence::unsent(during, Observed::BadConfig(text)))
    }

    fn may_redirect(&self, start: &Url, next: &Url) -> bool {
        let is_upgrade = start.scheme() == "http" && next.scheme() == "https" && start.host() == next.host();
        next.origin() == start.origin() || is_upgrade || self.redirect_origins.contains(&next.origin())
    }

    /// Sends a request without following redirects.
    pub(crate) async fn send_without_redirects(
        &self,
        http_request: &HttpRequest,
        during: During,
    ) -> Result<Response<Body>, Evidence> {
        self.send_once(http_request, Some(&self.headers), None, during).await
    }

    async fn report_refusal(&self, response: &Response<Body>, auth_header: Option<&HeaderValue>) {
        let status = response.status().as_u16();
        if let (Some(credential), 401 | 403) = (&self.credential, status) {
            let challenge = header_text(response.headers(), &WWW_AUTHENTICATE);
            Box::pin(credential.on_refused(auth_header, status, challenge)).await;
        }
    }

    async fn send_once(
        &self,
        http_request: &HttpRequest,
        own_headers: Option<&HeaderMap>,
        auth_header: Option<&HeaderValue>,
        during: During,
    ) -> Result<Response<Body>, Evidence> {
        let mut headers = Cow::Borrowed(&*http_request.headers);
        // A proxy may compress for clients that do not send this, and nothing here decompresses.
        if headers.get(ACCEPT_ENCODING) != Some(&IDENTITY) {
            headers.to_mut().insert(ACCEPT_ENCODING, IDENTITY);
        }
        if !http_request.mirrored.is_empty() {
            headers.to_mut().extend(http_request.mirrored.iter().cloned());
        }
        for (name, value) in own_headers.into_iter().flatten() {
            headers.to_mut().insert(name, value.clone());
        }
        if let Some(auth_header) = auth_header {
            headers.to_mut().insert(AUTHORIZATION, auth_header.clone());
        }
        if let Some(auth) = &http_request.to.proxy_authorization {
            headers.to_mut().insert(PROXY_AUTHORIZATION, auth.clone());
        }
        let sealed = self.signer.as_ref().map(|signer| {
            let path = http_request.to.path.path();
            let seal = signer.seal(http_request.method.as_str(), path, &headers, &http_request.body);
            headers.to_mut().extend(seal.iter().cloned());
            (signer, seal)
        });
        let sent = self.pool.send(http_request, &headers).await;
        if let (Some((signer, seal)), Ok(response)) = (&sealed, &sent)
            && !signer.is_authentic(seal, response.status(), response.headers())
        {
            // Another process at that address. Whether the replica got the request is not known.
            let text = "the answer is not that of the replica that runs the server";
            return Err(Evidence::sent(during, Observed::Closed(text.to_owned())));
        }
        let sent = sent.map(|mut response| {
            if let Some(proxy) = &http_request.to.proxy {
                response.extensions_mut().insert(ForwardedBy(Arc::clone(proxy)));
            }
            response
        });
        sent.map_err(|failed| match failed {
            PoolError::Connect(error) => {
                if let Some(proxy) = ProxyError::find_in(&*error).filter(|error| error.needs_credentials) {
                    return Evidence::unsent(during, Observed::BadConfig(proxy.to_string()));
                }
                if let Some(denied) = EgressDenied::find_in(&*error) {
                    let text = format!("it leads to a forbidden address: {denied}");
                    return Evidence::unsent(during, Observed::BadConfig(text));
                }
                let (step, text) = connect_failure(&*error);
                Evidence::unsent(during, Observed::Connect { step, text })
            }
            PoolError::Refused(error) => {
                let (_, text) = connect_failure(&error);
                Evidence::sent(during, Observed::RefusedByPeer(text))
            }
            PoolError::Unsent(error) => Evidence::unsent(during, connection_error(&error, &http_request.to)),
            PoolError::Broken(error) => Evidence::sent(during, connection_error(&error, &http_request.to)),
        })
    }
}

fn connection_error(error: &ConnectionError, to: &Address) -> Observed {
    let (step, mut text) = connect_failure(error);
    match &to.proxy {
        Some(proxy) => text = format!("{text} (through the proxy `{proxy}`)"),
        None if error.is_malformed() && to.url.scheme() == "http" => {
            text = format!(
                "{text}; it does not answer in plain HTTP: if it speaks TLS, `url` must begin with `https://`"
            );
        }
        None => {}
    }
    let what = match step {
        // A server may refuse our certificate, or its absence, after its own handshake is done.
        ConnectStepFailed::Tls => "TLS failed",
        ConnectStepFailed::Dns
        | ConnectStepFailed::Refused
        | ConnectStepFailed::TimedOut
        | ConnectStepFailed::OutOfResources
        | ConnectStepFailed::Other => "the connection broke",
    };
    Observed::Closed(format!("{what}: {text}"))
}

fn redirect_target(response: &Response<Body>, from: &Url) -> Option<Url> {
    // A 303 means that the request is done: following it, and failing, would look as if it was not. Browsers may turn a
    // POST into a GET on 301 and 302; a JSON-RPC request must keep its method.
    if !matches!(response.status().as_u16(), 301 | 302 | 307 | 308) {
        return None;
    }
    let location = response.headers().get(LOCATION)?.to_str().ok()?;
    let next = from.join(location).ok()?;
    matches!(next.scheme(), "http" | "https").then_some(next)
}

fn uri_of(url: &Url) -> Result<Uri, Observed> {
    url.as_str().parse().map_err(|error| Observed::BadConfig(format!("the URL is invalid: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redirects_stay_on_the_origin_upgrade_to_https_or_lead_to_named_origins() {
        let url = |text: &str| Url::parse(text).unwrap();
        let named = [url("https://eu.example.com")];
        let start = url("http://example.com/mcp");
        let client = HttpClient::new(&start, &named, HeaderMap::new(), TlsFiles::default(), None).unwrap();
        for (next, followed) in [
            ("http://example.com/other", true),
            ("https://example.com/mcp", true),
            ("https://example.com:8443/mcp", true),
            ("https://eu.example.com/anything", true),
            ("http://example.com:8080/mcp", false),
            ("http://eu.example.com/", false),
            ("https://eu.example.com:8443/", false),
            ("https://us.example.com/", false),
        ] {
            assert_eq!(client.may_redirect(&start, &url(next)), followed, "{next}");
        }
        assert!(!client.may_redirect(&url("https://example.com"), &url("http://example.com")));
    }
}
