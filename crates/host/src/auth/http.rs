//! The way to authorization servers: the same proxies and certificates as to the server itself, and none of its headers.
//! The SDK asks through it, and so do we where the SDK has no words for it.

use super::token_answer;
use crate::config::is_confidential;
use crate::transport::{HttpAsk, HttpClient, read_whole, retry_after};
use ::http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE};
use ::http::{HeaderMap, HeaderValue, Method, Response, StatusCode};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use gripfast_core::credential::Complaint;
use gripfast_core::failure::classify::classify;
use gripfast_core::failure::{During, Evidence};
use gripfast_core::text;
use rmcp::transport::auth::{
    OAuthHttpClient, OAuthHttpClientFuture, OAuthHttpRedirectPolicy, OAuthHttpRequest,
};
use serde_json::Value;
use std::fmt;
use std::time::Duration;
use url::{Url, form_urlencoded};

/// A client for authorization servers.
#[derive(Clone)]
pub(super) struct AuthHttp {
    pub(super) client: HttpClient,
}

/// What an authorization server answers to what is posted to it.
pub(super) enum Posted {
    Granted(Value),
    /// The code by which it refuses (RFC 6749, section 5.2).
    Refused(String),
}

/// Why there is no answer that counts.
#[derive(Debug)]
pub(super) enum Unanswered {
    /// It may work the next time.
    Passing(String),
    /// The authorization server asks for patience (`Retry-After`).
    Later { why: String, wait: Duration },
    /// The authorization server did what it was asked, and said so in a way that cannot be read: what was sent may be spent.
    Unreadable(String),
}

impl fmt::Display for Unanswered {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Passing(why) | Self::Unreadable(why) => out.write_str(why),
            Self::Later { why, wait } => write!(out, "{why}, try again in {}", text::duration(*wait)),
        }
    }
}

impl From<String> for Unanswered {
    fn from(why: String) -> Self {
        Self::Passing(why)
    }
}

/// The secret by which a client proves itself.
#[derive(Clone, Copy)]
pub(super) struct ClientSecret<'a> {
    pub(super) id: &'a str,
    pub(super) secret: &'a str,
    /// Whether it goes in the form (`client_secret_post`) instead of a header (`client_secret_basic`).
    pub(super) in_body: bool,
}

/// No answer of an authorization server is longer.
const LONGEST: usize = 1 << 20;
const WITHIN: Duration = Duration::from_secs(20);

impl AuthHttp {
    pub(super) fn over(client: HttpClient) -> Self {
        Self { client }
    }

    /// Posts a form, with the secret of the client if it has one.
    pub(super) async fn post_form(
        &self,
        to: &str,
        form: &[(&str, &str)],
        client: Option<ClientSecret<'_>>,
    ) -> Result<Posted, Unanswered> {
        let mut form = form.to_vec();
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/x-www-form-urlencoded"));
        match client {
            None => {}
            Some(ClientSecret { id, secret, in_body: true }) => {
                form.extend([("client_id", id), ("client_secret", secret)]);
            }
            Some(ClientSecret { id, secret, in_body: false }) => {
                let encoded =
                    |text: &str| form_urlencoded::byte_serialize(text.as_bytes()).collect::<String>();
                let both = STANDARD.encode(format!("{}:{}", encoded(id), encoded(secret)));
                let mut basic =
                    HeaderValue::try_from(format!("Basic {both}")).map_err(|error| error.to_string())?;
                basic.set_sensitive(true);
                headers.insert(AUTHORIZATION, basic);
            }
        }
        let body: String = form_urlencoded::Serializer::new(String::new()).extend_pairs(form).finish();
        self.post(to, headers, body.into_bytes()).await
    }

    /// Fetches a JSON document. `None` if there is none.
    pub(super) async fn get_json(&self, url: Url) -> Result<Option<Value>, String> {
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
        let asked = self.ask(url, Method::GET, headers, Vec::new(), Redirects::Followed).await;
        let asked = asked.map_err(|error| error.to_string())?;
        match asked.status() {
            StatusCode::OK => Ok(serde_json::from_slice(asked.body()).ok()),
            status if status.is_server_error() => Err(format!("HTTP {}", status.as_u16())),
            _ => Ok(None),
        }
    }

    /// Posts a JSON document.
    pub(super) async fn post_json(&self, to: &str, document: &Value) -> Result<Posted, Unanswered> {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        self.post(to, headers, document.to_string().into_bytes()).await
    }

    async fn post(&self, to: &str, mut headers: HeaderMap, body: Vec<u8>) -> Result<Posted, Unanswered> {
        let url = Url::parse(to).map_err(|error| format!("`{to}` is no address: {error}"))?;
        headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
        let asked = self.ask(url, Method::POST, headers, body, Redirects::Refused).await?;
        let (head, body) = asked.into_parts();
        let status = head.status;
        if status.is_success() {
            return serde_json::from_slice(&body).map(Posted::Granted).map_err(|_| {
                Unanswered::Unreadable(format!("the answer (HTTP {}) is not JSON", status.as_u16()))
            });
        }
        let code = token_answer::refusal(&body);
        let is_definite = code.as_deref().is_some_and(|code| Complaint::of(code) != Complaint::Other);
        if let (StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE, false, Some(wait)) =
            (status, is_definite, retry_after(&head.headers))
        {
            let why = code.unwrap_or_else(|| format!("HTTP {}", status.as_u16()));
            return Err(Unanswered::Later { why, wait });
        }
        code.map(Posted::Refused).ok_or_else(|| format!("HTTP {}", status.as_u16()).into())
    }

    async fn ask(
        &self,
        url: Url,
        method: Method,
        headers: HeaderMap,
        body: Vec<u8>,
        redirects: Redirects,
    ) -> Result<Response<Vec<u8>>, Unanswered> {
        let posted = method == Method::POST;
        if posted && !is_confidential(&url) {
            return Err(format!("`{url}` is not an `https` address, so nothing secret is sent there").into());
        }
        let to = self.client.address(url);
        let to = to.map_err(|observed| said(&Evidence::unsent(During::Handshake, observed)))?;
        let ask = HttpAsk {
            method,
            to,
            headers: headers.into(),
            body: body.into(),
            sent: None,
            safety: crate::transport::Safety::AtMostOnce,
        };
        let asking = async {
            let response = match redirects {
                Redirects::Followed => self.client.send(ask, During::Handshake).await,
                Redirects::Refused => self.client.send_here(&ask, During::Handshake).await,
            };
            let (mut head, body) = response.map_err(|evidence| said(&evidence))?.into_parts();
            let read = read_whole(body, LONGEST, During::Handshake).await;
            let mut body = match read {
                Ok(body) => body.to_vec(),
                Err(evidence) if head.status.is_success() => {
                    return Err(Unanswered::Unreadable(said(&evidence)));
                }
                Err(evidence) => return Err(said(&evidence).into()),
            };
            if posted {
                (head.status, body) = token_answer::standard(head.status, body);
            }
            Ok(Response::from_parts(head, body))
        };
        match tokio::time::timeout(WITHIN, asking).await {
            Ok(answered) => answered,
            Err(_) => Err("no answer in time".to_owned().into()),
        }
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
            let asked = self.ask(url, head.method, head.headers, body, redirects).await;
            Ok(asked.map_err(|error| error.to_string())?)
        })
    }
}

fn said(evidence: &Evidence) -> String {
    classify(evidence).to_string()
}
