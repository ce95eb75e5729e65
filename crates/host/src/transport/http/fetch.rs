//! One small exchange over HTTP, as a whole, with the proxies and the trust store that servers are reached with.

use super::answer::whole;
use super::client::{Address, Ask, HttpClient};
use bytes::Bytes;
use gripfast_core::failure::{During, Evidence};
use http::{HeaderMap, Method, Request, Response};
use std::sync::Arc;
use url::Url;

/// The document at `url`, of at most `largest` bytes.
pub(crate) async fn get(url: &Url, largest: usize) -> Result<Response<Bytes>, Evidence> {
    let during = During::Call;
    let (client, to) = way_to(url)?;
    let ask = Ask {
        method: Method::GET,
        to,
        headers: Arc::default(),
        body: Bytes::new(),
        sent: None,
        safety: crate::transport::Safety::Replayable,
    };
    let (head, body) = client.send(ask, during).await?.into_parts();
    Ok(Response::from_parts(head, whole(body, largest, during).await?))
}

/// The answer to a request for `url`, of at most `largest` bytes. No redirect is followed: its headers may be secret.
pub(crate) async fn send(
    url: &Url,
    request: Request<Bytes>,
    largest: usize,
) -> Result<Response<Bytes>, Evidence> {
    let during = During::Call;
    let (client, to) = way_to(url)?;
    let (head, body) = request.into_parts();
    let ask = Ask {
        method: head.method,
        to,
        headers: head.headers.into(),
        body,
        sent: None,
        safety: crate::transport::Safety::AtMostOnce,
    };
    let (head, body) = client.send_here(&ask, during).await?.into_parts();
    Ok(Response::from_parts(head, whole(body, largest, during).await?))
}

fn way_to(url: &Url) -> Result<(HttpClient, Arc<Address>), Evidence> {
    let unsent = |observed| Evidence::unsent(During::Call, observed);
    let client = HttpClient::new(url, &[], HeaderMap::new(), Default::default(), None).map_err(unsent)?;
    let to = client.address(url.clone()).map_err(unsent)?;
    Ok((client, to))
}
