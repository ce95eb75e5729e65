//! The way to authorization servers: the same proxies and certificates as to the server itself, and none of its headers.

use crate::transport::{HttpAsk, HttpClient, read_whole};
use ::http::{Method, StatusCode};
use gripfast_core::failure::classify::classify;
use gripfast_core::failure::{During, Evidence};
use rmcp::transport::auth::{
    OAuthHttpClient, OAuthHttpClientError, OAuthHttpClientFuture, OAuthHttpRedirectPolicy, OAuthHttpRequest,
};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use url::Url;

/// A client for authorization servers.
#[derive(Clone)]
pub(super) struct AuthHttp {
    pub(super) client: HttpClient,
    /// The `error` in the last answer to something that was posted: the SDK keeps it in a sentence only.
    said: Arc<Mutex<Option<String>>>,
}

/// No answer of an authorization server is longer.
const LONGEST: usize = 1 << 20;
const WITHIN: Duration = Duration::from_secs(20);

impl AuthHttp {
    pub(super) fn over(client: HttpClient) -> Self {
        Self { client, said: Arc::default() }
    }

    /// The code by which an authorization server has refused what was posted last, if it did.
    pub(super) fn refusal(&self) -> Option<String> {
        self.said.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn note(&self, refusal: Option<String>) {
        *self.said.lock().unwrap_or_else(PoisonError::into_inner) = refusal;
    }
}

impl OAuthHttpClient for AuthHttp {
    fn execute(&self, request: OAuthHttpRequest) -> OAuthHttpClientFuture<'_> {
        Box::pin(async move {
            let OAuthHttpRequest { request, redirect_policy, .. } = request;
            let (head, body) = request.into_parts();
            let url = Url::parse(&head.uri.to_string())?;
            let posted = head.method == Method::POST;
            let to = self
                .client
                .address(url)
                .map_err(|observed| said(&Evidence::unsent(During::Handshake, observed)))?;
            let ask = HttpAsk { method: head.method, to, headers: head.headers, body: body.into() };
            let asking = async {
                let response = match redirect_policy {
                    OAuthHttpRedirectPolicy::Follow => self.client.send(ask, During::Handshake).await,
                    // Whoever asks for no redirects shows a secret.
                    _ => self.client.send_here(&ask, During::Handshake).await,
                };
                let (head, body) = response.map_err(|evidence| said(&evidence))?.into_parts();
                let body = read_whole(body, LONGEST, During::Handshake).await;
                let body = body.map_err(|evidence| said(&evidence))?;
                if posted {
                    self.note(error_in(head.status, &body));
                }
                Ok(::http::Response::from_parts(head, body.to_vec()))
            };
            match tokio::time::timeout(WITHIN, asking).await {
                Ok(answered) => answered,
                Err(_) => Err("no answer in time".into()),
            }
        })
    }
}

/// The code of an answer that says no (RFC 6749, section 5.2).
fn error_in(status: StatusCode, body: &[u8]) -> Option<String> {
    if !status.is_client_error() {
        return None;
    }
    let said: serde_json::Value = serde_json::from_slice(body).ok()?;
    said.get("error")?.as_str().map(str::to_owned)
}

fn said(evidence: &Evidence) -> OAuthHttpClientError {
    classify(evidence).to_string().into()
}
