//! A key or token in use. When the credential ends, its calls are cancelled and its streams are closed.

use super::active::CredentialId;
use axum::body::Body;
use axum::response::Response;
use futures_util::StreamExt;
use http::header::CONTENT_TYPE;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// Handle of a credential in use. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Credential(Arc<CredentialState>);

#[derive(Debug)]
struct CredentialState {
    id: CredentialId,
    ended: CancellationToken,
}

impl Credential {
    /// A credential that has not ended.
    pub(super) fn new(id: CredentialId) -> Self {
        Self(Arc::new(CredentialState { id, ended: CancellationToken::new() }))
    }

    /// The id for the replica that serves a forwarded request.
    pub(crate) fn forwarded(&self) -> String {
        self.0.id.to_header()
    }

    /// Runs `work` while the credential is valid; `None` as soon as it ends.
    pub(crate) async fn while_valid<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        self.0.ended.run_until_cancelled(work).await
    }

    /// Makes an event stream in the response end with the credential. Other responses are unchanged.
    pub(crate) fn bind_stream(&self, response: Response) -> Response {
        let is_stream = response.headers().get(CONTENT_TYPE).is_some_and(|kind| kind == "text/event-stream");
        if !is_stream {
            return response;
        }
        let ended = self.0.ended.clone().cancelled_owned();
        response.map(|body| Body::from_stream(body.into_data_stream().take_until(ended)))
    }

    /// Ends the credential.
    pub(crate) fn end(&self) {
        self.0.ended.cancel();
    }

    #[cfg(test)]
    pub(crate) fn has_ended(&self) -> bool {
        self.0.ended.is_cancelled()
    }

    /// True if no call or stream uses the credential.
    pub(crate) fn is_unused(&self) -> bool {
        Arc::strong_count(&self.0) == 1
    }
}
