//! One HTTP client per upstream: pooled connections, the upstream's own headers, redirects that never
//! carry a credential to another origin, and evidence instead of errors.

use super::answer::text_of;
use super::connect::{Connector, mark_sensitive, trouble_in};
use super::egress::{Egress, Forbidden};
use super::pool::{Body, Failed, Pool};
use super::proxy::{ForwardedBy, ProxyError};
use super::withdraw;
use crate::auth::Credential;
use crate::transport::target::TlsFiles;
use crate::transport::{Safety, Secrets, SentMark};
use bytes::Bytes;
use gripfast_core::failure::{DialTrouble, During, Evidence, Observed};
use http::header::{ACCEPT_ENCODING, AUTHORIZATION, COOKIE, LOCATION, PROXY_AUTHORIZATION, WWW_AUTHENTICATE};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Uri};
use http_body_util::Full;
use std::fmt;
use std::sync::Arc;
use tokio::sync::Semaphore;
use url::{Origin, Url};

const IDENTITY: HeaderValue = HeaderValue::from_static("identity");

/// The HTTP client of one upstream. Cloning it is cheap.
#[derive(Clone)]
pub(crate) struct HttpClient {
    pool: Pool,
    /// Other origins that redirects may lead to.
    named: Arc<[Origin]>,
    /// Sent with every request to the upstream's own origin.
    headers: Arc<HeaderMap>,
    /// What is shown to it besides, which may change while the client lives.
    credential: Option<Arc<Credential>>,
    /// What nothing that the server says is shown with.
    secrets: Arc<Secrets>,
    /// Room for those who withdraw a request.
    pub(super) withdrawals: Arc<Semaphore>,
}

/// Where requests go, with all that can be known of it before there is one.
pub(crate) struct Address {
    pub(crate) url: Url,
    pub(super) uri: Uri,
    /// The same without the origin, as a server wants it that is told it in the `Host` header.
    pub(super) path: Uri,
    pub(super) host: HeaderValue,
    pub(super) origin: Arc<str>,
    /// What a proxy on the way wants to see.
    proxy_authorization: Option<HeaderValue>,
    /// The proxy that reads the requests, if there is one.
    proxy: Option<Arc<str>>,
}

/// One request, before the upstream's own headers.
#[derive(Clone)]
pub(crate) struct Ask {
    pub(crate) method: Method,
    pub(crate) to: Arc<Address>,
    pub(crate) headers: Arc<HeaderMap>,
    pub(crate) body: Bytes,
    /// Set when the first byte may have left us.
    pub(crate) sent: Option<Arc<SentMark>>,
    /// Whether a second execution does harm.
    pub(crate) safety: Safety,
}

impl HttpClient {
    const REDIRECTS: usize = 5;

    /// A client for the server at `url`, with the headers that the config names. `named` are other URLs that the config
    /// names: their origins may be redirected to, and may be at any address.
    pub(crate) fn new(
        url: &Url,
        named: &[Url],
        mut headers: HeaderMap,
        tls: TlsFiles,
        credential: Option<Arc<Credential>>,
    ) -> Result<Self, Observed> {
        let egress = Egress::naming(url, named);
        let connector = Connector::new(&uri_of(url)?, egress, tls)?;
        mark_sensitive(&mut headers);
        Ok(Self {
            pool: Pool::new(connector),
            named: named.iter().map(Url::origin).collect(),
            headers: Arc::new(headers),
            credential,
            secrets: Arc::default(),
            withdrawals: Arc::new(Semaphore::new(withdraw::MOST)),
        })
    }

    /// The same, which tells `secrets` what the server is shown.
    pub(crate) fn telling(self, secrets: Arc<Secrets>) -> Self {
        Self { secrets, ..self }
    }

    /// An address for many requests.
    pub(crate) fn address(&self, url: Url) -> Result<Arc<Address>, Observed> {
        let uri = uri_of(&url)?;
        let unusable =
            |error: &dyn fmt::Display| Observed::BadConfig(format!("the URL cannot be used: {error}"));
        let path = uri.path_and_query().map_or("/", |path| path.as_str());
        let path = path.parse().map_err(|error| unusable(&error))?;
        // A port that goes without saying is not said by `Url` either.
        let name = url.host_str().ok_or_else(|| unusable(&"it names no host"))?;
        let host = url.port().map_or_else(|| name.to_owned(), |port| format!("{name}:{port}"));
        let origin = format!("{}://{host}", url.scheme()).into();
        let host = HeaderValue::try_from(host).map_err(|error| unusable(&error))?;
        let proxy_authorization = self.pool.connector().proxy_authorization(&uri);
        let proxy = self.pool.connector().forwarding_proxy(&uri);
        Ok(Arc::new(Address { url, uri, path, host, origin, proxy_authorization, proxy }))
    }

    /// Sends a request and follows redirects: on its own origin, from http to https on its host, and to origins that the
    /// config names. Returns when the answer's head is there.
    pub(crate) async fn send(&self, mut ask: Ask, during: During) -> Result<Response<Body>, Evidence> {
        let home = Arc::clone(&ask.to);
        let mut own_headers = Some(&*self.headers);
        if let Some(credential) = self.credential.as_ref().filter(|credential| credential.is_due()) {
            // That takes a large future, which most requests need not carry along.
            let fresh = Box::pin(credential.freshen()).await;
            fresh.map_err(|observed| Evidence::unsent(during, observed))?;
        }
        let mut shown = self.credential.as_ref().and_then(|credential| credential.shown());
        if let Some(Ok(shown)) = shown.as_ref().map(HeaderValue::to_str) {
            self.secrets.shown(shown);
        }
        for _ in 0..=Self::REDIRECTS {
            let response = self.send_once(&ask, own_headers, shown.as_ref(), during).await?;
            let Some(next) = redirect(&response, &ask.to.url) else {
                if own_headers.is_none() && response.status() == StatusCode::UNAUTHORIZED {
                    // No login and no renewal would help: it will not be shown there.
                    let there = ask.to.url.origin().ascii_serialization();
                    let text = format!(
                        "it redirects to {there}, which wants a credential, and none goes to another origin; \
                         name that address in the config"
                    );
                    return Err(Evidence::unsent(during, Observed::BadConfig(text)));
                }
                self.note_refusal(&response, shown.as_ref()).await;
                return Ok(response);
            };
            if ask.to.url.scheme() == "https" && next.scheme() != "https" {
                let text = "it redirects from https to http, which is not followed".to_owned();
                return Err(Evidence::unsent(during, Observed::BadConfig(text)));
            }
            if !self.may_redirect(&home.url, &next) {
                let there = next.origin().ascii_serialization();
                let text = format!(
                    "it redirects to {there}, which the config does not name; if that is right, make it the `url`, or \
                     add it to `redirects`"
                );
                return Err(Evidence::unsent(during, Observed::BadConfig(text)));
            }
            if next.origin() != home.url.origin() {
                // Another origin is another party: it gets nothing that was meant for this one. The session's id
                // stays, for it is whoever answered in the end that gave it.
                for secret in [AUTHORIZATION, COOKIE, PROXY_AUTHORIZATION] {
                    Arc::make_mut(&mut ask.headers).remove(&secret);
                }
                own_headers = None;
                shown = None;
            }
            ask.to = self.address(next).map_err(|observed| Evidence::unsent(during, observed))?;
        }
        let text = format!("it redirects more than {} times", Self::REDIRECTS);
        Err(Evidence::unsent(during, Observed::BadConfig(text)))
    }

    fn may_redirect(&self, home: &Url, next: &Url) -> bool {
        let is_upgrade = home.scheme() == "http" && next.scheme() == "https" && home.host() == next.host();
        next.origin() == home.origin() || is_upgrade || self.named.contains(&next.origin())
    }

    /// Sends a request as it is, and follows nothing.
    pub(crate) async fn send_here(&self, ask: &Ask, during: During) -> Result<Response<Body>, Evidence> {
        self.send_once(ask, Some(&self.headers), None, during).await
    }

    async fn note_refusal(&self, response: &Response<Body>, shown: Option<&HeaderValue>) {
        let status = response.status().as_u16();
        if let (Some(credential), 401 | 403) = (&self.credential, status) {
            let challenge = text_of(response.headers(), &WWW_AUTHENTICATE);
            Box::pin(credential.refused(shown, status, challenge)).await;
        }
    }

    async fn send_once(
        &self,
        ask: &Ask,
        own_headers: Option<&HeaderMap>,
        shown: Option<&HeaderValue>,
        during: During,
    ) -> Result<Response<Body>, Evidence> {
        let mut request = Request::new(Full::new(ask.body.clone()));
        *request.method_mut() = ask.method.clone();
        *request.headers_mut() = HeaderMap::clone(&ask.headers);
        // A proxy on the way may compress for everybody who does not say this, and nothing here unpacks.
        request.headers_mut().insert(ACCEPT_ENCODING, IDENTITY);
        for (name, value) in own_headers.into_iter().flatten() {
            request.headers_mut().insert(name, value.clone());
        }
        if let Some(shown) = shown {
            request.headers_mut().insert(AUTHORIZATION, shown.clone());
        }
        if let Some(auth) = &ask.to.proxy_authorization {
            request.headers_mut().insert(PROXY_AUTHORIZATION, auth.clone());
        }
        let sent = self.pool.send(&ask.to, request, ask.sent.as_deref(), ask.safety).await;
        let sent = sent.map(|mut response| {
            if let Some(proxy) = &ask.to.proxy {
                response.extensions_mut().insert(ForwardedBy(Arc::clone(proxy)));
            }
            response
        });
        sent.map_err(|failed| match failed {
            Failed::Connecting(error) => {
                if let Some(proxy) = ProxyError::among(&*error).filter(|error| error.wants_credentials) {
                    return Evidence::unsent(during, Observed::BadConfig(proxy.to_string()));
                }
                if let Some(forbidden) = Forbidden::among(&*error) {
                    let text = format!("it leads to another address: {forbidden}");
                    return Evidence::unsent(during, Observed::BadConfig(text));
                }
                let (trouble, text) = trouble_in(&*error);
                Evidence::unsent(during, Observed::Dial { trouble, text })
            }
            Failed::Refused(error) => {
                let (_, text) = trouble_in(&error);
                Evidence::sent(during, Observed::TurnedAway(text))
            }
            Failed::Unsent(error) => Evidence::unsent(during, broken(&error, &ask.to)),
            Failed::Talking(error) => Evidence::sent(during, broken(&error, &ask.to)),
        })
    }
}

fn broken(error: &hyper::Error, to: &Address) -> Observed {
    let (trouble, mut text) = trouble_in(error);
    match &to.proxy {
        Some(proxy) => text = format!("{text} (through the proxy `{proxy}`)"),
        None if error.is_parse() && to.url.scheme() == "http" => {
            text = format!(
                "{text}; it does not answer in plain HTTP: if it speaks TLS, `url` begins with `https://`"
            );
        }
        None => {}
    }
    let what = match trouble {
        // A server may refuse our certificate, or the want of one, after its own handshake is done.
        DialTrouble::Tls => "TLS failed",
        DialTrouble::Dns
        | DialTrouble::Refused
        | DialTrouble::TimedOut
        | DialTrouble::LacksResources
        | DialTrouble::Other => "the connection broke",
    };
    Observed::Closed(format!("{what}: {text}"))
}

fn redirect(response: &Response<Body>, from: &Url) -> Option<Url> {
    // 303 says that it is done: following it, and failing, would look as if it was not. 301 and 302 may turn a POST into
    // a GET in browsers; a JSON-RPC request must stay what it is.
    if !matches!(response.status().as_u16(), 301 | 302 | 307 | 308) {
        return None;
    }
    let location = response.headers().get(LOCATION)?.to_str().ok()?;
    let next = from.join(location).ok()?;
    matches!(next.scheme(), "http" | "https").then_some(next)
}

fn uri_of(url: &Url) -> Result<Uri, Observed> {
    url.as_str().parse().map_err(|error| Observed::BadConfig(format!("the URL cannot be used: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redirects_lead_to_the_own_origin_to_https_on_the_own_host_and_to_named_origins() {
        let url = |text: &str| Url::parse(text).unwrap();
        let named = [url("https://eu.example.com")];
        let home = url("http://example.com/mcp");
        let client = HttpClient::new(&home, &named, HeaderMap::new(), TlsFiles::default(), None).unwrap();
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
            assert_eq!(client.may_redirect(&home, &url(next)), followed, "{next}");
        }
        assert!(!client.may_redirect(&url("https://example.com"), &url("http://example.com")));
    }
}
