//! One small document from the web, such as the public keys of somebody who issues tokens.

use crate::transport::get;
use bytes::Bytes;
use gripfast_core::failure::classify::classify;
use std::time::Duration;
use url::Url;

/// Fetches a document of at most `largest` bytes, with the proxies and the trust store that servers are reached
/// with.
///
/// # Errors
/// Why it is not there, for a person.
pub async fn fetch(url: &Url, largest: usize, within: Duration) -> Result<Bytes, String> {
    match tokio::time::timeout(within, get(url, largest)).await {
        Ok(Ok((status, document))) if status.is_success() => Ok(document),
        Ok(Ok((status, _))) => Err(format!("`{url}` answers with {status}")),
        Ok(Err(evidence)) => Err(format!("`{url}`: {}", classify(&evidence))),
        Err(_) => Err(format!("`{url}` did not answer within {} s", within.as_secs())),
    }
}
