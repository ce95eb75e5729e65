//! The way to authorization servers: the same proxies and certificates as to the server itself, and none of its headers.

use crate::transport::{HttpAsk, HttpClient, read_whole};
use gripfast_core::failure::classify::classify;
use gripfast_core::failure::{During, Evidence};
use rmcp::transport::auth::{
    OAuthHttpClient, OAuthHttpClientError, OAuthHttpClientFuture, OAuthHttpRedirectPolicy, OAuthHttpRequest,
};
use std::time::Duration;
use url::Url;

/// A client for authorization servers.
#[derive(Clone)]
pub(super) struct AuthHttp(pub(super) HttpClient);

/// No answer of an authorization server is longer.
const LONGEST: usize = 1 << 20;
const WITHIN: Duration = Duration::from_secs(20);

impl OAuthHttpClient for AuthHttp {
    fn execute(&self, request: OAuthHttpRequest) -> OAuthHttpClientFuture<'_> {
        Box::pin(async move {
            let OAuthHttpRequest { request, redirect_policy, .. } = request;
            let (head, body) = request.into_parts();
            let url = Url::parse(&head.uri.to_string())?;
            let to = self
                .0
                .address(url)
                .map_err(|observed| said(&Evidence::unsent(During::Handshake, observed)))?;
            let ask = HttpAsk { method: head.method, to, headers: head.headers, body: body.into() };
            let asking = async {
                let response = match redirect_policy {
                    OAuthHttpRedirectPolicy::Follow => self.0.send(ask, During::Handshake).await,
                    // Whoever asks for no redirects shows a secret.
                    _ => self.0.send_here(&ask, During::Handshake).await,
                };
                let (head, body) = response.map_err(|evidence| said(&evidence))?.into_parts();
                let body = read_whole(body, LONGEST, During::Handshake).await;
                let body = body.map_err(|evidence| said(&evidence))?;
                Ok(::http::Response::from_parts(head, body.to_vec()))
            };
            match tokio::time::timeout(WITHIN, asking).await {
                Ok(answered) => answered,
                Err(_) => Err("no answer in time".into()),
            }
        })
    }
}

fn said(evidence: &Evidence) -> OAuthHttpClientError {
    classify(evidence).to_string().into()
}
