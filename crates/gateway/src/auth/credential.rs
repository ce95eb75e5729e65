//! Credentials in use: a key or token that a request has shown, and what it has opened. When the credential ends, its
//! calls are cancelled and its streams are closed.

use axum::body::Body;
use axum::response::Response;
use futures_util::StreamExt;
use http::header::CONTENT_TYPE;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// A credential, for as long as something that it has opened goes on. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub(crate) struct Credential(Arc<CancellationToken>);

impl Credential {
    /// Does this while the credential is good; `None` as soon as it is not.
    pub(crate) async fn while_good<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        self.0.run_until_cancelled(work).await
    }

    /// The same response, whose stream, if it is one, ends with the credential.
    pub(crate) fn bound(&self, response: Response) -> Response {
        let is_stream = response.headers().get(CONTENT_TYPE).is_some_and(|kind| kind == "text/event-stream");
        if !is_stream {
            return response;
        }
        let ended = CancellationToken::clone(&self.0).cancelled_owned();
        response.map(|body| Body::from_stream(body.into_data_stream().take_until(ended)))
    }

    /// It is good no more.
    pub(crate) fn end(&self) {
        self.0.cancel();
    }

    #[cfg(test)]
    pub(crate) fn has_ended(&self) -> bool {
        self.0.is_cancelled()
    }

    /// Whether nothing that it has opened goes on.
    pub(crate) fn is_unused(&self) -> bool {
        Arc::strong_count(&self.0) == 1
    }
}
