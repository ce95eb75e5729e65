//! Body of a request, for its handler.

use super::io::{BodyError, BodySource};
use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use std::fmt;
use std::pin::Pin;
use std::sync::Weak;
use std::task::{Context, Poll};

/// Body of a request. It is read from the connection when it is polled. Reading fails once the handler has returned its
/// response, or the connection has ended.
pub struct RequestBody {
    source: Weak<dyn BodySource>,
    request: u64,
}

impl RequestBody {
    pub(super) fn new(source: Weak<dyn BodySource>, request: u64) -> Self {
        Self { source, request }
    }

    fn remaining_bytes(&self) -> Option<u64> {
        self.source.upgrade()?.remaining_bytes(self.request)
    }
}

impl Drop for RequestBody {
    fn drop(&mut self) {
        if let Some(source) = self.source.upgrade() {
            source.abandon(self.request);
        }
    }
}

impl fmt::Debug for RequestBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequestBody").field("request", &self.request).finish_non_exhaustive()
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let Some(source) = self.source.upgrade() else { return Poll::Ready(Some(Err(BodyError::Closed))) };
        source.poll_data(self.request, cx).map(|data| data.map(|data| data.map(Frame::data)))
    }

    fn is_end_stream(&self) -> bool {
        self.remaining_bytes() == Some(0)
    }

    fn size_hint(&self) -> SizeHint {
        self.remaining_bytes().map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}
