//! The way to authorization servers: the same proxies and certificates as to the server itself, and none of its headers.
//! The SDK asks through it, and so do we where the SDK has no words for it.

use super::token_answer;
use crate::config::is_confidential;
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
    ) -> Result<Posted, String> {
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
        let asked = self.ask(url, Method::GET, headers, Vec::new(), Redirects::Followed).await?;
        match asked.status() {
            StatusCode::OK => Ok(serde_json::from_slice(asked.body()).ok()),
            status if status.is_server_error() => Err(format!("HTTP {}", status.as_u16())),
            _ => Ok(None),
        }
    }

    /// Posts a JSON document.
    pub(super) async fn post_json(&self, to: &str, document: &Value) -> Result<Posted, String> {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        self.post(to, headers, document.to_string().into_bytes()).await
    }

    async fn post(&self, to: &str, mut headers: HeaderMap, body: Vec<u8>) -> Result<Posted, String> {
        let url = Url::parse(to).map_err(|error| format!("`{to}` is no address: {error}"))?;
        headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
        let asked = self.ask(url, Method::POST, headers, body, Redirects::Refused).await?;
        let (head, body) = asked.into_parts();
        if head.status.is_success() {
            let said = serde_json::from_slice(&body).map_err(|_| "the answer is not JSON".to_owned())?;
            return Ok(Posted::Granted(said));
        }
        token_answer::refusal(&body)
            .map(Posted::Refused)
            .ok_or_else(|| format!("HTTP {}", head.status.as_u16()))
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
        if posted && !is_confidential(&url) {
            return Err(format!("`{url}` is not an `https` address, so nothing secret is sent there"));
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
            let body = read_whole(body, LONGEST, During::Handshake).await;
            let mut body = body.map_err(|evidence| said(&evidence))?.to_vec();
            if posted {
                (head.status, body) = token_answer::standard(head.status, body);
            }
            Ok(Response::from_parts(head, body))
        };
        match tokio::time::timeout(WITHIN, asking).await {
            Ok(answered) => answered,
            Err(_) => Err("no answer in time".to_owned()),
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
            Ok(self.ask(url, head.method, head.headers, body, redirects).await?)
        })
    }
}

fn said(evidence: &Evidence) -> String {
    classify(evidence).to_string()
}
