//! The way to authorization servers: the same proxies and certificates as to the server itself, and none of its headers.
//! The SDK asks through it, and so do we where the SDK has no words for it.

use crate::transport::{HttpAsk, HttpClient, read_whole};
use ::http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE};
use ::http::{HeaderMap, HeaderValue, Method, Response, StatusCode};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use gripfast_core::failure::classify::classify;
use gripfast_core::failure::{During, Evidence};
use rmcp::transport::auth::{
    OAuthHttpClient, OAuthHttpClientFuture, OAuthHttpRedirectPolicy, OAuthHttpRequest,
};
use serde_json::Value;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use url::{Host, Url, form_urlencoded};

/// A client for authorization servers.
#[derive(Clone)]
pub(super) struct AuthHttp {
    pub(super) client: HttpClient,
    /// The `error` in the last answer to something that was posted: the SDK keeps it in a sentence only.
    said: Arc<Mutex<Option<String>>>,
}

/// What an authorization server answers to what is posted to it.
pub(super) enum Posted {
    Granted(Value),
    /// The code by which it refuses (RFC 6749, section 5.2).
    Refused(String),
}

/// No answer of an authorization server is longer.
const LONGEST: usize = 1 << 20;
const WITHIN: Duration = Duration::from_secs(20);

impl AuthHttp {
    pub(super) fn over(client: HttpClient) -> Self {
        Self { client, said: Arc::default() }
    }

    /// Posts a form, by a client that has this name and secret or none. Secrets go to where nobody can listen only.
    pub(super) async fn post_form(
        &self,
        to: &str,
        form: &[(&str, &str)],
        client: Option<(&str, &str)>,
    ) -> Result<Posted, String> {
        let body: String = form_urlencoded::Serializer::new(String::new()).extend_pairs(form).finish();
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/x-www-form-urlencoded"));
        if let Some((name, secret)) = client {
            let encoded = |text: &str| form_urlencoded::byte_serialize(text.as_bytes()).collect::<String>();
            let both = STANDARD.encode(format!("{}:{}", encoded(name), encoded(secret)));
            let mut basic =
                HeaderValue::try_from(format!("Basic {both}")).map_err(|error| error.to_string())?;
            basic.set_sensitive(true);
            headers.insert(AUTHORIZATION, basic);
        }
        self.post(to, headers, body.into_bytes()).await
    }

    /// Posts a JSON document.
    pub(super) async fn post_json(&self, to: &str, document: &Value) -> Result<Posted, String> {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        self.post(to, headers, document.to_string().into_bytes()).await
    }

    async fn post(&self, to: &str, mut headers: HeaderMap, body: Vec<u8>) -> Result<Posted, String> {
        let url = Url::parse(to).map_err(|error| format!("`{to}` is no address: {error}"))?;
        if !is_private(&url) {
            return Err(format!("`{to}` is not an `https` address"));
        }
        headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
        let asked = self.ask(url, Method::POST, headers, body, Redirects::Refused).await?;
        let (head, body) = asked.into_parts();
        if head.status.is_success() {
            let said = serde_json::from_slice(&body).map_err(|_| "the answer is not JSON".to_owned())?;
            return Ok(Posted::Granted(said));
        }
        self.refusal().map(Posted::Refused).ok_or_else(|| format!("HTTP {}", head.status.as_u16()))
    }

    async fn ask(
        &self,
        url: Url,
        method: Method,
        headers: HeaderMap,
        body: Vec<u8>,
        redirects: Redirects,
    ) -> Result<Response<Vec<u8>>, String> {
        let posted = method == Method::POST;
        let to = self.client.address(url);
        let to = to.map_err(|observed| said(&Evidence::unsent(During::Handshake, observed)))?;
        let ask = HttpAsk { method, to, headers: headers.into(), body: body.into(), sent: None };
        let asking = async {
            let response = match redirects {
                Redirects::Followed => self.client.send(ask, During::Handshake).await,
                Redirects::Refused => self.client.send_here(&ask, During::Handshake).await,
            };
            let (head, body) = response.map_err(|evidence| said(&evidence))?.into_parts();
            let body = read_whole(body, LONGEST, During::Handshake).await;
            let body = body.map_err(|evidence| said(&evidence))?;
            if posted {
                self.note(error_in(head.status, &body));
            }
            Ok(Response::from_parts(head, body.to_vec()))
        };
        match tokio::time::timeout(WITHIN, asking).await {
            Ok(answered) => answered,
            Err(_) => Err("no answer in time".to_owned()),
        }
    }

    /// The code by which an authorization server has refused what was posted last, if it did.
    pub(super) fn refusal(&self) -> Option<String> {
        self.said.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn note(&self, refusal: Option<String>) {
        *self.said.lock().unwrap_or_else(PoisonError::into_inner) = refusal;
    }
}

enum Redirects {
    Followed,
    /// Whoever asks for no redirects shows a secret.
    Refused,
}

impl OAuthHttpClient for AuthHttp {
    fn execute(&self, request: OAuthHttpRequest) -> OAuthHttpClientFuture<'_> {
        Box::pin(async move {
            let OAuthHttpRequest { request, redirect_policy, .. } = request;
            let (head, body) = request.into_parts();
            let url = Url::parse(&head.uri.to_string())?;
            let redirects = match redirect_policy {
                OAuthHttpRedirectPolicy::Follow => Redirects::Followed,
                _ => Redirects::Refused,
            };
            Ok(self.ask(url, head.method, head.headers, body, redirects).await?)
        })
    }
}

/// Whether nobody can listen to what is sent there.
fn is_private(url: &Url) -> bool {
    let is_here = match url.host() {
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        Some(Host::Domain(name)) => name == "localhost",
        None => false,
    };
    url.scheme() == "https" || (url.scheme() == "http" && is_here)
}

/// The code of an answer that says no (RFC 6749, section 5.2).
fn error_in(status: StatusCode, body: &[u8]) -> Option<String> {
    if !status.is_client_error() {
        return None;
    }
    let said: Value = serde_json::from_slice(body).ok()?;
    said.get("error")?.as_str().map(str::to_owned)
}

fn said(evidence: &Evidence) -> String {
    classify(evidence).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_posted_to_where_nobody_can_listen() {
        for (address, private) in [
            ("https://id.example.com/token", true),
            ("http://127.0.0.1:8080/token", true),
            ("http://[::1]/token", true),
            ("http://localhost/token", true),
            ("http://id.example.com/token", false),
            ("http://192.168.1.1/token", false),
            ("http://localhost.example.com/token", false),
            ("ftp://127.0.0.1/token", false),
        ] {
            assert_eq!(is_private(&Url::parse(address).unwrap()), private, "{address}");
        }
    }

    #[test]
    fn a_refusal_is_told_by_its_code() {
        let said = |status: u16, body: &str| error_in(StatusCode::from_u16(status).unwrap(), body.as_bytes());
        assert_eq!(said(400, r#"{"error":"invalid_grant"}"#).as_deref(), Some("invalid_grant"));
        assert_eq!(said(500, r#"{"error":"invalid_grant"}"#), None, "it is out of order");
        assert_eq!(said(400, "<html>"), None);
        assert_eq!(said(401, r#"{"error":42}"#), None);
    }
}
