//! Reads request bodies with a timeout, a size limit and a memory quota, and admits requests.

use crate::auth::credential::Credential;
use crate::mcp::Gateway;
use crate::mcp::request::overload;
use crate::mcp::request::overload::Overload;
use crate::server::memory;
use crate::server::quota::{Peer, Quota, QuotaExceeded, QuotaPermit};
use axum::response::Response;
use bytes::{Bytes, BytesMut};
use gripfast::wire::era::meta;
use gripfast::wire::trace::TraceContext;
use http::{Extensions, HeaderMap, HeaderName, HeaderValue, StatusCode};
use http_body::Body;
use http_body_util::BodyExt;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

/// Maximum size of a message from a client.
pub(crate) const MAX_BODY: usize = 16 << 20;
/// Time within which a body must be complete.
const READ_TIMEOUT: Duration = Duration::from_secs(60);
/// A message from a client, with the memory permit for it.
#[derive(Debug, Clone)]
pub(crate) struct ReceivedMessage {
    pub(crate) bytes: Bytes,
    pub(crate) peer: Peer,
    memory: Arc<QuotaPermit>,
    /// Credential of the request, if authentication is on.
    credential: Option<Credential>,
}

impl ReceivedMessage {
    /// Message that did not come in an HTTP body (stdio).
    pub(crate) fn local(quota: &Quota, bytes: Bytes) -> Result<Self, Overload> {
        let peer = Peer::local();
        let memory = quota.acquire(&peer, bytes.len()).map_err(no_memory)?;
        Ok(Self { bytes, peer, memory: Arc::new(memory), credential: None })
    }

    /// Adds the trace context of the headers, unless the message has its own. These few bytes are not counted.
    pub(crate) fn with_trace_headers(mut self, headers: &HeaderMap) -> Self {
        const PARENT: HeaderName = HeaderName::from_static(meta::TRACEPARENT);
        const STATE: HeaderName = HeaderName::from_static(meta::TRACESTATE);
        if headers.contains_key(PARENT) {
            let values = |name: HeaderName| headers.get_all(name).into_iter().map(HeaderValue::as_bytes);
            let context = TraceContext::from_headers(values(PARENT), values(STATE));
            if let Some(message) = context.and_then(|context| context.inject(&self.bytes)) {
                self.bytes = message.into();
            }
        }
        self
    }

    /// Sets the credential from the extensions of the request.
    pub(crate) fn with_credential(mut self, extensions: &Extensions) -> Self {
        self.credential = extensions.get::<Credential>().cloned();
        self
    }

    /// The message with its memory permit.
    pub(crate) fn counted(&self) -> Bytes {
        memory::with_permit(self.bytes.clone(), Arc::clone(&self.memory))
    }

    /// Part of the same message, which shares the permit.
    pub(crate) fn part(&self, bytes: Bytes) -> Self {
        Self { bytes, ..self.clone() }
    }
}

/// Copies of a request on its way, besides the received one: as kept for the call, with the server's own names, as kept
/// for another round of input, and as written to the server.
const COPIES: usize = 4;

/// Permits of an admitted request.
pub(crate) struct AdmittedRequest {
    _memory: Arc<QuotaPermit>,
    _copies: QuotaPermit,
    _slot: QuotaPermit,
    credential: Option<Credential>,
}

impl AdmittedRequest {
    /// Runs `work` for as long as the credential is valid. Pinned by the caller, because the future is large.
    pub(crate) async fn while_authorized<T>(&self, work: Pin<&mut impl Future<Output = T>>) -> Option<T> {
        match &self.credential {
            Some(credential) => credential.while_valid(work).await,
            None => Some(work.await),
        }
    }
}

impl Gateway {
    /// Admits a request until the returned value is dropped, unless too many are in flight.
    pub(crate) fn admit(&self, received: &ReceivedMessage) -> Result<AdmittedRequest, Overload> {
        let slot = self.in_flight.acquire(&received.peer, 1);
        let slot = slot.map_err(|exhausted| Overload::new(exhausted, "requests are in flight"))?;
        let copies = self.memory.acquire(&received.peer, COPIES * received.bytes.len()).map_err(no_memory)?;
        let (memory, credential) = (Arc::clone(&received.memory), received.credential.clone());
        Ok(AdmittedRequest { _memory: memory, _copies: copies, _slot: slot, credential })
    }
}

/// Reads a whole body, or returns the error response.
pub(crate) async fn read(
    quota: &Quota,
    peer: Peer,
    body: impl Body<Data = Bytes> + Unpin,
) -> Result<ReceivedMessage, Box<Response>> {
    read_bytes(quota, peer, body).await.map_err(|failed| {
        Box::new(match failed {
            BodyError::TooLarge => {
                overload::closing(StatusCode::PAYLOAD_TOO_LARGE, "the message exceeds the limit of 16 MiB\n")
            }
            BodyError::Broken => {
                overload::closing(StatusCode::BAD_REQUEST, "the request body is incomplete or invalid\n")
            }
            BodyError::TooSlow => overload::closing(
                StatusCode::REQUEST_TIMEOUT,
                "the request body was not complete after 60 s\n",
            ),
            BodyError::NoMemory(exhausted) => overload::overloaded(None, &no_memory(exhausted)),
        })
    })
}

/// Reads a whole body, for callers with their own error texts.
pub(crate) async fn read_bytes(
    quota: &Quota,
    peer: Peer,
    body: impl Body<Data = Bytes> + Unpin,
) -> Result<ReceivedMessage, BodyError> {
    let mut collecting = pin!(collect(quota, peer, body));
    // Most bodies came with their head, so the first poll has them, and no timer is needed.
    match poll_fn(|cx| Poll::Ready(collecting.as_mut().poll(cx))).await {
        Poll::Ready(collected) => collected,
        Poll::Pending => {
            tokio::time::timeout(READ_TIMEOUT, collecting).await.unwrap_or(Err(BodyError::TooSlow))
        }
    }
}

fn no_memory(exhausted: QuotaExceeded) -> Overload {
    Overload::memory(exhausted)
}

/// Reason why a body could not be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BodyError {
    /// Above the size limit.
    TooLarge,
    /// Broken off before its end.
    Broken,
    /// Not complete in time.
    TooSlow,
    /// No memory left.
    NoMemory(QuotaExceeded),
}

async fn collect(
    quota: &Quota,
    peer: Peer,
    mut body: impl Body<Data = Bytes> + Unpin,
) -> Result<ReceivedMessage, BodyError> {
    let mut bytes = next(&mut body).await?.unwrap_or_default();
    let mut permit = quota.acquire(&peer, bytes.len()).map_err(BodyError::NoMemory)?;
    let mut whole: Option<BytesMut> = None;
    let mut length = bytes.len();
    while let Some(more) = next(&mut body).await? {
        length += more.len();
        if length > MAX_BODY {
            drop((permit, whole));
            return Err(Box::pin(discard(body)).await);
        }
        permit.grow(more.len()).map_err(BodyError::NoMemory)?;
        // Most messages come in one piece, which is not copied.
        whole.get_or_insert_with(|| BytesMut::from(&*std::mem::take(&mut bytes))).extend_from_slice(&more);
    }
    Ok(ReceivedMessage {
        bytes: whole.map_or(bytes, BytesMut::freeze),
        peer,
        memory: Arc::new(permit),
        credential: None,
    })
}

/// Discards the rest for a while: a client that is still sending would not read the answer.
async fn discard(mut body: impl Body<Data = Bytes> + Unpin) -> BodyError {
    let mut length = 0;
    while let Ok(Some(more)) = next(&mut body).await {
        length += more.len();
        if length > MAX_BODY {
            break;
        }
    }
    BodyError::TooLarge
}

async fn next(body: &mut (impl Body<Data = Bytes> + Unpin)) -> Result<Option<Bytes>, BodyError> {
    loop {
        match body.frame().await {
            None => return Ok(None),
            Some(Err(_)) => return Err(BodyError::Broken),
            Some(Ok(frame)) => {
                // Trailers are ignored.
                if let Ok(data) = frame.into_data() {
                    return Ok(Some(data));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::body::Body;
    use futures_util::{Stream, StreamExt, stream};
    use std::convert::Infallible;
    use tokio::time::Instant;

    fn pieces(count: usize, length: usize) -> impl Stream<Item = Result<Bytes, Infallible>> {
        stream::iter((0..count).map(move |_| Ok(Bytes::from(vec![b'x'; length]))))
    }

    async fn status_of(quota: &Quota, body: Body) -> u16 {
        match read(quota, Peer::local(), body).await {
            Ok(_) => 200,
            Err(refusal) => refusal.status().as_u16(),
        }
    }

    #[tokio::test]
    async fn a_body_in_pieces_is_one_message_and_its_memory_is_released() {
        let quota = Quota::new(100, 100);
        let received = read(&quota, Peer::local(), Body::from_stream(pieces(4, 20))).await.unwrap();
        assert_eq!((received.bytes.len(), quota.used()), (80, 80));
        let part = received.part(received.bytes.slice(..10));
        drop(received);
        assert_eq!(quota.used(), 80, "a part keeps the whole");
        drop(part);
        assert_eq!(quota.used(), 0);
        assert_eq!(status_of(&quota, Body::empty()).await, 200);
    }

    #[tokio::test]
    async fn a_body_without_memory_is_refused_and_holds_nothing() {
        let quota = Quota::new(100, 150);
        assert_eq!(status_of(&quota, Body::from_stream(pieces(6, 20))).await, 429);
        let other = quota.acquire(&Peer::from_address([192, 0, 2, 1].into()), 100).unwrap();
        assert_eq!(status_of(&quota, Body::from_stream(pieces(3, 20))).await, 503);
        drop(other);
        assert_eq!((status_of(&quota, Body::from_stream(pieces(3, 20))).await, quota.used()), (200, 0));
    }

    #[tokio::test]
    async fn a_body_that_is_too_large_is_a_413_and_is_not_kept() {
        let quota = Quota::new(256 << 20, 512 << 20);
        assert_eq!(status_of(&quota, Body::from_stream(pieces(17, 1 << 20))).await, 413);
        assert_eq!(status_of(&quota, Body::from_stream(pieces(16, 1 << 20))).await, 200);
        assert_eq!(quota.used(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn an_incomplete_body_is_a_408_after_a_minute() {
        let (quota, started) = (Quota::new(100, 100), Instant::now());
        let slow = Body::from_stream(pieces(1, 20).chain(stream::pending()));
        assert_eq!(status_of(&quota, slow).await, 408);
        assert_eq!((started.elapsed(), quota.used()), (READ_TIMEOUT, 0));
        let dripping = pieces(1000, 1).then(async |piece| {
            tokio::time::sleep(Duration::from_secs(1)).await;
            piece
        });
        assert_eq!(
            status_of(&quota, Body::from_stream(dripping)).await,
            408,
            "a drop now and then is not enough"
        );
    }
}
