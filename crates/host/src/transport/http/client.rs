//! One HTTP client per upstream: pooled connections, the upstream's own headers, redirects that never
//! carry a credential to another origin, and evidence instead of errors.

use super::answer::text_of;
use super::connect::{Connector, mark_sensitive, trouble_in};
use crate::auth::Credential;
use crate::transport::target::TlsFiles;
use bytes::Bytes;
use gripfast_core::failure::{DialTrouble, During, Evidence, Observed};
use http::header::{AUTHORIZATION, COOKIE, LOCATION, PROXY_AUTHORIZATION, WWW_AUTHENTICATE};
use http::{HeaderMap, HeaderValue, Method, Request, Response, Uri};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper_util::client::legacy::Client;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use std::sync::Arc;
use std::time::Duration;
use url::Url;

/// The HTTP client of one upstream. Cloning it is cheap.
#[derive(Clone)]
pub(crate) struct HttpClient {
    client: Client<Connector, Full<Bytes>>,
    connector: Arc<Connector>,
    /// Sent with every request to the upstream's own origin.
    headers: Arc<HeaderMap>,
    /// What is shown to it besides, which may change while the client lives.
    credential: Option<Arc<Credential>>,
}

/// Where requests go, with all that can be known of it before there is one.
pub(crate) struct Address {
    pub(crate) url: Url,
    uri: Uri,
    /// What a proxy on the way wants to see.
    proxy_authorization: Option<HeaderValue>,
}

/// One request, before the upstream's own headers.
pub(crate) struct Ask {
    pub(crate) method: Method,
    pub(crate) to: Arc<Address>,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl HttpClient {
    const REDIRECTS: usize = 5;
    const IDLE_CONNECTIONS: usize = 64;
    /// Shorter than what servers and load balancers usually grant, so that we close first.
    const IDLE_FOR: Duration = Duration::from_secs(50);

    /// A client for the server at `url`, with the headers that the config names.
    pub(crate) fn new(
        url: &Url,
        mut headers: HeaderMap,
        tls: TlsFiles,
        credential: Option<Arc<Credential>>,
    ) -> Result<Self, Observed> {
        let connector = Connector::new(&uri_of(url)?, tls)?;
        mark_sensitive(&mut headers);
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(Self::IDLE_FOR)
            .pool_max_idle_per_host(Self::IDLE_CONNECTIONS)
            .build(connector.clone());
        Ok(Self { client, connector: Arc::new(connector), headers: Arc::new(headers), credential })
    }

    /// An address for many requests.
    pub(crate) fn address(&self, url: Url) -> Result<Arc<Address>, Observed> {
        let uri = uri_of(&url)?;
        let proxy_authorization = self.connector.proxy_authorization(&uri);
        Ok(Arc::new(Address { url, uri, proxy_authorization }))
    }

    /// Sends a request and follows redirects, but never from https to http. Returns when the answer's head is there.
    pub(crate) async fn send(&self, mut ask: Ask, during: During) -> Result<Response<Incoming>, Evidence> {
        let home = Arc::clone(&ask.to);
        let mut own_headers = Some(&*self.headers);
        let mut shown = match &self.credential {
            Some(credential) => {
                credential.shown().await.map_err(|observed| Evidence::unsent(during, observed))?
            }
            None => None,
        };
        for _ in 0..=Self::REDIRECTS {
            let response = self.send_once(&ask, own_headers, shown.as_ref(), during).await?;
            let Some(next) = redirect(&response, &ask.to.url) else {
                self.note_refusal(&response, shown.as_ref()).await;
                return Ok(response);
            };
            if ask.to.url.scheme() == "https" && next.scheme() != "https" {
                let text = "it redirects from https to http, which is not followed".to_owned();
                return Err(Evidence::unsent(during, Observed::BadConfig(text)));
            }
            if next.origin() != home.url.origin() {
                // Another origin is another party: it gets nothing that was meant for this one. The session's id
                // stays, for it is whoever answered in the end that gave it.
                for secret in [AUTHORIZATION, COOKIE, PROXY_AUTHORIZATION] {
                    ask.headers.remove(&secret);
                }
                own_headers = None;
                shown = None;
            }
            ask.to = self.address(next).map_err(|observed| Evidence::unsent(during, observed))?;
        }
        let text = format!("it redirects more than {} times", Self::REDIRECTS);
        Err(Evidence::unsent(during, Observed::BadConfig(text)))
    }

    /// Sends a request as it is, and follows nothing.
    pub(crate) async fn send_here(&self, ask: &Ask, during: During) -> Result<Response<Incoming>, Evidence> {
        self.send_once(ask, Some(&self.headers), None, during).await
    }

    async fn note_refusal(&self, response: &Response<Incoming>, shown: Option<&HeaderValue>) {
        let status = response.status().as_u16();
        if let (Some(credential), 401 | 403) = (&self.credential, status) {
            let challenge = text_of(response.headers(), &WWW_AUTHENTICATE);
            credential.refused(shown, status, challenge).await;
        }
    }

    async fn send_once(
        &self,
        ask: &Ask,
        own_headers: Option<&HeaderMap>,
        shown: Option<&HeaderValue>,
        during: During,
    ) -> Result<Response<Incoming>, Evidence> {
        let mut request = Request::new(Full::new(ask.body.clone()));
        *request.method_mut() = ask.method.clone();
        *request.headers_mut() = ask.headers.clone();
        for (name, value) in own_headers.into_iter().flatten() {
            request.headers_mut().insert(name, value.clone());
        }
        if let Some(shown) = shown {
            request.headers_mut().insert(AUTHORIZATION, shown.clone());
        }
        if let Some(auth) = &ask.to.proxy_authorization {
            request.headers_mut().insert(PROXY_AUTHORIZATION, auth.clone());
        }
        *request.uri_mut() = ask.to.uri.clone();
        self.client.request(request).await.map_err(|error| {
            let (trouble, text) = trouble_in(&error);
            if error.is_connect() {
                return Evidence::unsent(during, Observed::Dial { trouble, text });
            }
            let what = match trouble {
                // A server may refuse our certificate, or the want of one, after its own handshake is done.
                DialTrouble::Tls => "TLS failed",
                DialTrouble::Dns | DialTrouble::Refused | DialTrouble::TimedOut | DialTrouble::Other => {
                    "the connection broke"
                }
            };
            Evidence::sent(during, Observed::Closed(format!("{what}: {text}")))
        })
    }
}

fn redirect(response: &Response<Incoming>, from: &Url) -> Option<Url> {
    // 303 says that it is done: following it, and failing, would look as if it was not. 301 and 302 may turn a POST into a GET in browsers; a JSON-RPC request must stay what it is.
    let follow = matches!(response.status().as_u16(), 301 | 302 | 307 | 308);
    let location = response.headers().get(LOCATION)?.to_str().ok()?;
    let next = from.join(location).ok()?;
    (follow && matches!(next.scheme(), "http" | "https")).then_some(next)
}

fn uri_of(url: &Url) -> Result<Uri, Observed> {
    url.as_str().parse().map_err(|error| Observed::BadConfig(format!("the URL cannot be used: {error}")))
}
