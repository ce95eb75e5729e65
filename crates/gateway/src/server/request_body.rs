//! The body of a request where nobody has to authenticate: its connection is known once the whole request has come.

use crate::connection_table::Slot;
use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

/// A body, and the connection that becomes known at its end.
pub(crate) struct RequestBody {
    body: Incoming,
    unknown: Option<Arc<Slot>>,
}

impl RequestBody {
    pub(crate) fn new(body: Incoming, unknown: Option<Arc<Slot>>) -> Self {
        let mut body = Self { body, unknown };
        body.look_for_end();
        body
    }

    fn look_for_end(&mut self) {
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
            Poll::Ready(Some(Ok(_))) => self.look_for_end(),
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
