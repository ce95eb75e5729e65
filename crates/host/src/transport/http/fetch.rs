//! Single HTTP requests with a bounded response, through the same proxies and trust store as server connections.

use super::client::{Address, HttpClient, HttpRequest};
use super::response::read_body;
use bytes::Bytes;
use gripfast_core::failure::{During, Evidence};
use http::{HeaderMap, Method, Request, Response};
use std::sync::Arc;
use url::Url;

/// Fetches the document at `url`, of at most `largest` bytes.
pub(crate) async fn get(url: &Url, largest: usize) -> Result<Response<Bytes>, Evidence> {
    let during = During::Call;
    let (client, to) = client_for(url)?;
    let http_request = HttpRequest {
        method: Method::GET,
        to,
        headers: Arc::default(),
        body: Bytes::new(),
        mirrored: Vec::new(),
        sent: None,
        safety: crate::transport::Safety::Replayable,
    };
    let (head, body) = client.send(http_request, during).await?.into_parts();
    Ok(Response::from_parts(head, read_body(body, largest, during).await?))
}

/// Sends a request to `url` and reads a response of at most `largest` bytes. Follows no redirect, because the headers
/// may be secret.
pub(crate) async fn send(
    url: &Url,
    request: Request<Bytes>,
    largest: usize,
) -> Result<Response<Bytes>, Evidence> {
    let (head, body) = request.into_parts();
    HttpEndpoint::new(url)?.send(head.method, head.headers, body, largest).await
}

/// Client for many requests to one URL, which keeps its connections.
pub(crate) struct HttpEndpoint {
    client: HttpClient,
    to: Arc<Address>,
}

impl HttpEndpoint {
    pub(crate) fn new(url: &Url) -> Result<Self, Evidence> {
        let (client, to) = client_for(url)?;
        Ok(Self { client, to })
    }

    /// Sends a request and reads a response of at most `largest` bytes. Follows no redirect.
    pub(crate) async fn send(
        &self,
        method: Method,
        headers: HeaderMap,
        body: Bytes,
        largest: usize,
    ) -> Result<Response<Bytes>, Evidence> {
        let during = During::Call;
        let http_request = HttpRequest {
            method,
            to: Arc::clone(&self.to),
            headers: headers.into(),
            body,
            mirrored: Vec::new(),
            sent: None,
            safety: crate::transport::Safety::AtMostOnce,
        };
        let (head, body) = self.client.send_without_redirects(&http_request, during).await?.into_parts();
        Ok(Response::from_parts(head, read_body(body, largest, during).await?))
    }
}

fn client_for(url: &Url) -> Result<(HttpClient, Arc<Address>), Evidence> {
    let unsent = |observed| Evidence::unsent(During::Call, observed);
    let client = HttpClient::new(url, &[], HeaderMap::new(), Default::default(), None).map_err(unsent)?;
    let to = client.address(url.clone()).map_err(unsent)?;
    Ok((client, to))
}
