//! Small HTTP requests outside MCP, such as the public keys of a token issuer or a report to a telemetry collector.

use crate::config::is_confidential;
use crate::transport::{get, send};
use bytes::Bytes;
use gripfast_core::failure::Evidence;
use gripfast_core::failure::classify::classify;
use http::{Request, Response};
use std::time::Duration;
use url::Url;

/// Fetches a trusted document of at most `largest` bytes with the proxies and trust store that are used for servers.
/// Plain http is allowed on loopback only; redirects must stay on the same origin.
///
/// # Errors
/// The reason, as a text for people.
pub async fn fetch(url: &Url, largest: usize, within: Duration) -> Result<Bytes, String> {
    if !is_confidential(url) {
        return Err(format!("`{url}` is plain http, which is trusted on loopback only"));
    }
    let answer = answer(url, within, get(url, largest)).await?;
    match answer.status() {
        status if status.is_success() => Ok(answer.into_body()),
        status => Err(format!("`{url}` answered with {status}")),
    }
}

/// Sends a request with the same proxies and trust store and returns the response, whatever its status, of at most
/// `largest` bytes. Follows no redirects.
///
/// # Errors
/// The reason, as a text for people.
pub async fn exchange(
    request: Request<Bytes>,
    largest: usize,
    within: Duration,
) -> Result<Response<Bytes>, String> {
    let to = request.uri().to_string();
    let url = Url::parse(&to).map_err(|error| format!("`{to}` is not a valid URL: {error}"))?;
    answer(&url, within, send(&url, request, largest)).await
}

async fn answer<T>(
    url: &Url,
    within: Duration,
    asking: impl Future<Output = Result<T, Evidence>>,
) -> Result<T, String> {
    match tokio::time::timeout(within, asking).await {
        Ok(answered) => answered.map_err(|evidence| format!("`{url}`: {}", classify(&evidence))),
        Err(_) => Err(format!("`{url}` did not answer within {} s", within.as_secs())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    /// A web server on loopback that sends the next of these answers on each connection, with its own address for
    /// `HERE`.
    async fn answers(answers: &'static [&'static str]) -> (Url, Arc<AtomicUsize>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let here = format!("http://{}", listener.local_addr().unwrap());
        let (url, asked) = (format!("{here}/jwks.json").parse().unwrap(), Arc::<AtomicUsize>::default());
        let count = Arc::clone(&asked);
        tokio::spawn(async move {
            for answer in answers {
                let (mut stream, _) = listener.accept().await.unwrap();
                count.fetch_add(1, Ordering::SeqCst);
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    head.push(stream.read_u8().await.unwrap());
                }
                let answer = answer.replace("HERE", &here);
                stream.write_all(format!("HTTP/1.1 {answer}").as_bytes()).await.unwrap();
                stream.shutdown().await.unwrap();
            }
        });
        (url, asked)
    }

    async fn fetched(url: &Url) -> Result<Bytes, String> {
        fetch(url, 1 << 20, Duration::from_secs(60)).await
    }

    #[tokio::test]
    async fn g05_a_trusted_document_is_not_fetched_over_plain_http_from_another_machine() {
        let elsewhere = Url::parse("http://192.0.2.1/jwks.json").unwrap();
        let why = fetched(&elsewhere).await.unwrap_err();
        assert_eq!(why, "`http://192.0.2.1/jwks.json` is plain http, which is trusted on loopback only");
        let redirect = &["302 Found\r\nlocation: http://192.0.2.1/keys\r\ncontent-length: 0\r\n\r\n"];
        let (url, _) = answers(redirect).await;
        let why = fetched(&url).await.unwrap_err();
        assert!(why.contains("it redirects to http://192.0.2.1, which the config does not name"), "{why}");
    }

    #[tokio::test]
    async fn redirects_on_loopback_are_followed_a_few_times() {
        let (url, asked) = answers(&[
            "301 Moved Permanently\r\nlocation: /there\r\ncontent-length: 0\r\n\r\n",
            "307 Temporary Redirect\r\nlocation: HERE/at-last\r\ncontent-length: 0\r\n\r\n",
            "200 OK\r\ncontent-length: 2\r\n\r\n{}",
        ])
        .await;
        assert_eq!(fetched(&url).await.as_deref(), Ok(&b"{}"[..]));
        assert_eq!(asked.load(Ordering::SeqCst), 3);
        const AGAIN: &str = "302 Found\r\nlocation: /again\r\ncontent-length: 0\r\n\r\n";
        let (url, asked) = answers(&[AGAIN; 9]).await;
        assert!(fetched(&url).await.unwrap_err().contains("redirects more than 5 times"));
        assert_eq!(asked.load(Ordering::SeqCst), 6);
    }
}
