//! Request body without authentication: marks its connection as known when the whole request has arrived.

use super::connection_table::ConnectionSlot;
use bytes::Bytes;
use gripfast_http1::server::{BodyError, RequestBody};
use http_body::{Body, Frame, SizeHint};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

/// Body, and the connection that becomes known at its end.
pub(crate) struct TrackedBody {
    body: RequestBody,
    unknown: Option<Arc<ConnectionSlot>>,
}

impl TrackedBody {
    pub(crate) fn new(body: RequestBody, unknown: Option<Arc<ConnectionSlot>>) -> Self {
        let mut body = Self { body, unknown };
        body.check_end();
        body
    }

    fn check_end(&mut self) {
        if self.body.is_end_stream()
            && let Some(slot) = self.unknown.take()
        {
            slot.mark_known();
        }
    }
}

impl Body for TrackedBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let frame = Pin::new(&mut self.body).poll_frame(cx);
        match &frame {
            Poll::Ready(None) => self.unknown.take().into_iter().for_each(|slot| slot.mark_known()),
            Poll::Ready(Some(Ok(_))) => self.check_end(),
            Poll::Ready(Some(Err(_))) | Poll::Pending => {}
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
