//! HTTP client for authorization servers: the same proxies and certificates as for the server itself, and none of its
//! headers. The SDK uses it, and so do we where the SDK lacks a request.

use super::token_response;
use crate::config::is_confidential;
use crate::transport::{HttpClient, HttpRequest, read_body, retry_after};
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

/// HTTP client for authorization servers.
#[derive(Clone)]
pub(super) struct AuthHttp {
    pub(super) client: HttpClient,
}

/// Answer of an authorization server to a POST.
pub(super) enum TokenReply {
    Granted(Value),
    /// Error code of the refusal (RFC 6749, section 5.2).
    Refused(String),
}

/// Reason why there is no usable answer.
#[derive(Debug)]
pub(super) enum AuthHttpError {
    /// Temporary failure; a retry may succeed.
    Transient(String),
    /// The authorization server asks to wait (`Retry-After`).
    RetryAfter { why: String, wait: Duration },
    /// The authorization server accepted the request, but its answer cannot be read: the token that was sent may be
    /// spent.
    Unreadable(String),
}

impl fmt::Display for AuthHttpError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Transient(why) | Self::Unreadable(why) => out.write_str(why),
            Self::RetryAfter { why, wait } => write!(out, "{why}, try again in {}", text::duration(*wait)),
        }
    }
}

impl From<String> for AuthHttpError {
    fn from(why: String) -> Self {
        Self::Transient(why)
    }
}

/// Client id and secret.
#[derive(Clone, Copy)]
pub(super) struct ClientSecret<'a> {
    pub(super) id: &'a str,
    pub(super) secret: &'a str,
    /// True if it is sent in the form (`client_secret_post`) instead of a header (`client_secret_basic`).
    pub(super) in_body: bool,
}

/// Maximum size of an answer of an authorization server.
const MAX_RESPONSE_BYTES: usize = 1 << 20;
pub(super) const REQUEST_TIMEOUT: Duration = Duration::from_secs(20);

impl AuthHttp {
    pub(super) fn new(client: HttpClient) -> Self {
        Self { client }
    }

    /// Posts a form, with the client secret if there is one.
    pub(super) async fn post_form(
        &self,
        to: &str,
        form: &[(&str, &str)],
        client: Option<ClientSecret<'_>>,
    ) -> Result<TokenReply, AuthHttpError> {
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

    /// Fetches a JSON document; `None` if there is none.
    pub(super) async fn get_json(&self, url: Url) -> Result<Option<Value>, String> {
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
        let response = self.send(url, Method::GET, headers, Vec::new(), Redirects::Followed).await;
        let response = response.map_err(|error| error.to_string())?;
        match response.status() {
            StatusCode::OK => Ok(serde_json::from_slice(response.body()).ok()),
            status if status.is_server_error() => Err(format!("HTTP {}", status.as_u16())),
            _ => Ok(None),
        }
    }

    /// Posts a JSON document.
    pub(super) async fn post_json(&self, to: &str, document: &Value) -> Result<TokenReply, AuthHttpError> {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        self.post(to, headers, document.to_string().into_bytes()).await
    }

    async fn post(
        &self,
        to: &str,
        mut headers: HeaderMap,
        body: Vec<u8>,
    ) -> Result<TokenReply, AuthHttpError> {
        let url = Url::parse(to).map_err(|error| format!("`{to}` is not a URL: {error}"))?;
        headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
        let response = self.send(url, Method::POST, headers, body, Redirects::Refused).await?;
        let (head, body) = response.into_parts();
        let status = head.status;
        if status.is_success() {
            return serde_json::from_slice(&body).map(TokenReply::Granted).map_err(|_| {
                AuthHttpError::Unreadable(format!("the answer (HTTP {}) is not JSON", status.as_u16()))
            });
        }
        let code = token_response::error_code(&body);
        let is_definite = code.as_deref().is_some_and(|code| Complaint::from_code(code) != Complaint::Other);
        if let (StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE, false, Some(wait)) =
            (status, is_definite, retry_after(&head.headers))
        {
            let why = code.unwrap_or_else(|| format!("HTTP {}", status.as_u16()));
            return Err(AuthHttpError::RetryAfter { why, wait });
        }
        code.map(TokenReply::Refused).ok_or_else(|| format!("HTTP {}", status.as_u16()).into())
    }

    async fn send(
        &self,
        url: Url,
        method: Method,
        headers: HeaderMap,
        body: Vec<u8>,
        redirects: Redirects,
    ) -> Result<Response<Vec<u8>>, AuthHttpError> {
        let posted = method == Method::POST;
        if posted && !is_confidential(&url) {
            return Err(format!("`{url}` is not an `https` address, so no secret is sent there").into());
        }
        let to = self.client.address(url);
        let to = to.map_err(|observed| error_text(&Evidence::unsent(During::Handshake, observed)))?;
        let http_request = HttpRequest {
            method,
            to,
            headers: headers.into(),
            body: body.into(),
            mirrored: Vec::new(),
            sent: None,
            safety: crate::transport::Safety::AtMostOnce,
        };
        let sending = async {
            let response = match redirects {
                Redirects::Followed => self.client.send(http_request, During::Handshake).await,
                Redirects::Refused => {
                    self.client.send_without_redirects(&http_request, During::Handshake).await
                }
            };
            let (mut head, body) = response.map_err(|evidence| error_text(&evidence))?.into_parts();
            let read = read_body(body, MAX_RESPONSE_BYTES, During::Handshake).await;
            let mut body = match read {
                Ok(body) => body.to_vec(),
                Err(evidence) if head.status.is_success() => {
                    return Err(AuthHttpError::Unreadable(error_text(&evidence)));
                }
                Err(evidence) => return Err(error_text(&evidence).into()),
            };
            if posted {
                (head.status, body) = token_response::normalize(head.status, body);
            }
            Ok(Response::from_parts(head, body))
        };
        match tokio::time::timeout(REQUEST_TIMEOUT, sending).await {
            Ok(answered) => answered,
            Err(_) => Err("no answer in time".to_owned().into()),
        }
    }
}

enum Redirects {
    Followed,
    /// For requests that carry a secret.
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
            let response = self.send(url, head.method, head.headers, body, redirects).await;
            Ok(response.map_err(|error| error.to_string())?)
        })
    }
}

fn error_text(evidence: &Evidence) -> String {
    classify(evidence).to_string()
}
