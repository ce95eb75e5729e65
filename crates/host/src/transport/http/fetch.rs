//! One document, fetched as a whole, with the proxies and the trust store that servers are reached with.

use super::answer::whole;
use super::client::{Ask, HttpClient};
use bytes::Bytes;
use gripfast_core::failure::{During, Evidence};
use http::{HeaderMap, Method, StatusCode};
use url::Url;

/// The document at `url`, of at most `largest` bytes, and the status it came with.
pub(crate) async fn get(url: &Url, largest: usize) -> Result<(StatusCode, Bytes), Evidence> {
    let during = During::Call;
    let client = HttpClient::new(url, HeaderMap::new(), Default::default(), None)
        .map_err(|observed| Evidence::unsent(during, observed))?;
    let to = client.address(url.clone()).map_err(|observed| Evidence::unsent(during, observed))?;
    let ask = Ask { method: Method::GET, to, headers: HeaderMap::new(), body: Bytes::new() };
    let response = client.send(ask, during).await?;
    let status = response.status();
    Ok((status, whole(response.into_body(), largest, during).await?))
}
