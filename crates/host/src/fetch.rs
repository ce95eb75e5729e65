//! Small exchanges with the web beside MCP: the public keys of somebody who issues tokens, a report to somebody who
//! collects them.

use crate::transport::{get, send};
use bytes::Bytes;
use gripfast_core::failure::Evidence;
use gripfast_core::failure::classify::classify;
use http::{Request, Response};
use std::time::Duration;
use url::Url;

/// Fetches a document of at most `largest` bytes, with the proxies and the trust store that servers are reached
/// with.
///
/// # Errors
/// Why it is not there, for a person.
pub async fn fetch(url: &Url, largest: usize, within: Duration) -> Result<Bytes, String> {
    let answer = answer(url, within, get(url, largest)).await?;
    match answer.status() {
        status if status.is_success() => Ok(answer.into_body()),
        status => Err(format!("`{url}` answers with {status}")),
    }
}

/// Sends a request and waits for an answer of at most `largest` bytes, whatever it says, in the same way. No redirect
/// is followed.
///
/// # Errors
/// Why there is no answer, for a person.
pub async fn exchange(
    request: Request<Bytes>,
    largest: usize,
    within: Duration,
) -> Result<Response<Bytes>, String> {
    let to = request.uri().to_string();
    let url = Url::parse(&to).map_err(|error| format!("`{to}` is no address: {error}"))?;
    answer(&url, within, send(&url, request, largest)).await
}

async fn answer(
    url: &Url,
    within: Duration,
    asking: impl Future<Output = Result<Response<Bytes>, Evidence>>,
) -> Result<Response<Bytes>, String> {
    match tokio::time::timeout(within, asking).await {
        Ok(answered) => answered.map_err(|evidence| format!("`{url}`: {}", classify(&evidence))),
        Err(_) => Err(format!("`{url}` did not answer within {} s", within.as_secs())),
    }
}
