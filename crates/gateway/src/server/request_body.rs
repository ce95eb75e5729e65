//! Request body without authentication: marks its connection as known when the whole request has arrived.

use super::connection_table::ConnectionSlot;
use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

/// Body, and the connection that becomes known at its end.
pub(crate) struct RequestBody {
    body: Incoming,
    unknown: Option<Arc<ConnectionSlot>>,
}

impl RequestBody {
    pub(crate) fn new(body: Incoming, unknown: Option<Arc<ConnectionSlot>>) -> Self {
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

impl Body for RequestBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
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
