//! Body of a forwarded request: it fails at its end if its digest is not the one that the seal covers. So the gateway reads
//! it like any other body, within the same memory quota, and acts only on a body that the forwarder sent.

use bytes::Bytes;
use gripfast_cluster::forward::{BodyDigest, BodyHasher};
use http_body::{Body, Frame, SizeHint};
use std::error::Error;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

/// A body with the digest that it must have.
#[derive(Debug)]
pub(super) struct SealedBody<B> {
    body: B,
    read: BodyHasher,
    expected: BodyDigest,
}

impl<B> SealedBody<B> {
    pub(super) fn new(body: B, expected: BodyDigest) -> Self {
        Self { body, read: BodyHasher::new(), expected }
    }
}

impl<B> Body for SealedBody<B>
where
    B: Body<Data = Bytes, Error: Into<Box<dyn Error + Send + Sync>>> + Unpin,
{
    type Data = Bytes;
    type Error = Box<dyn Error + Send + Sync>;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        Poll::Ready(match frame {
            Some(Ok(frame)) => {
                if let Some(part) = frame.data_ref() {
                    self.read.update(part);
                }
                Some(Ok(frame))
            }
            Some(Err(error)) => Some(Err(error.into())),
            None if self.read.digest() == self.expected => None,
            None => Some(Err("the body is not the one that was sealed".into())),
        })
    }

    // `is_end_stream` stays false until the digest is compared.

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::{BodyExt, Full};

    async fn read(sent: &'static str, sealed: &str) -> Option<Bytes> {
        let body = SealedBody::new(Full::new(Bytes::from(sent)), BodyDigest::of(sealed.as_bytes()));
        Some(body.collect().await.ok()?.to_bytes())
    }

    #[tokio::test]
    async fn a_body_that_was_not_sealed_is_broken() {
        assert_eq!(read("a body", "a body").await.unwrap(), "a body");
        assert_eq!(read("", "").await.unwrap(), "");
        assert_eq!(read("a body", "another").await, None);
        assert_eq!(read("", "a body").await, None);
        assert_eq!(read("a body", "").await, None);
    }
}
