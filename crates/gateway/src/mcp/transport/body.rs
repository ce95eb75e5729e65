//! The body of a request: read within a time, up to a size, and only as long as there is memory for it.

use super::Gateway;
use super::refusal::{self, Overload};
use crate::credential::Credential;
use crate::memory;
use crate::shares::{Exhausted, Peer, Share, Shares};
use axum::response::Response;
use bytes::{Bytes, BytesMut};
use gripfast::wire::era::meta;
use gripfast::wire::trace::TraceContext;
use http::{Extensions, HeaderMap, HeaderName, HeaderValue, StatusCode};
use http_body::Body;
use http_body_util::BodyExt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

/// The largest message a client may send.
pub(super) const LARGEST: usize = 16 << 20;
/// A body has to be complete after this.
const WITHIN: Duration = Duration::from_secs(60);
/// A message, whose it is, and the memory that it takes.
#[derive(Debug, Clone)]
pub(crate) struct Received {
    pub(crate) bytes: Bytes,
    pub(super) peer: Peer,
    memory: Arc<Share>,
    /// What it was let in by, where something has to be shown.
    credential: Option<Credential>,
}

impl Received {
    /// A message that came by another way than a body.
    pub(super) fn here(shares: &Shares, bytes: Bytes) -> Result<Self, Overload> {
        let peer = Peer::here();
        let memory = shares.take(&peer, bytes.len()).map_err(no_memory)?;
        Ok(Self { bytes, peer, memory: Arc::new(memory), credential: None })
    }

    /// The same message, with the trace that its headers speak of where it does not speak of one itself. The few
    /// bytes of it are not counted.
    pub(super) fn traced_by(mut self, headers: &HeaderMap) -> Self {
        const PARENT: HeaderName = HeaderName::from_static(meta::TRACEPARENT);
        const STATE: HeaderName = HeaderName::from_static(meta::TRACESTATE);
        if headers.contains_key(PARENT) {
            let values = |name: HeaderName| headers.get_all(name).into_iter().map(HeaderValue::as_bytes);
            let said = TraceContext::in_headers(values(PARENT), values(STATE));
            if let Some(message) = said.and_then(|said| said.written_into(&self.bytes)) {
                self.bytes = message.into();
            }
        }
        self
    }

    /// The same message, of a request that was let in by what its extensions say.
    pub(super) fn let_in_by(mut self, extensions: &Extensions) -> Self {
        self.credential = extensions.get::<Credential>().cloned();
        self
    }

    /// The message, counted for as long as it is held.
    pub(super) fn counted(&self) -> Bytes {
        memory::held(self.bytes.clone(), Arc::clone(&self.memory))
    }

    /// A part of the same message.
    pub(super) fn part(&self, bytes: Bytes) -> Self {
        Self { bytes, ..self.clone() }
    }
}

/// How often a request is in memory on its way, besides as it came: as it is kept, with the server's own names, as it is kept
/// for another round of input, and as it is written for the server.
const COPIES: usize = 4;

/// A request that there is room for.
pub(super) struct Admitted {
    _memory: Arc<Share>,
    _copies: Share,
    _slot: Share,
    credential: Option<Credential>,
}

impl Admitted {
    /// Answers the request, for as long as what it was let in by is good. The work is large, so it stays where it is.
    pub(super) async fn while_good<T>(&self, work: Pin<&mut impl Future<Output = T>>) -> Option<T> {
        match &self.credential {
            Some(credential) => credential.while_good(work).await,
            None => Some(work.await),
        }
    }
}

impl Gateway {
    /// Lets a request in, for as long as the answer lives, unless too many are under way.
    pub(super) fn admit(&self, received: &Received) -> Result<Admitted, Overload> {
        let slot = self.in_flight.take(&received.peer, 1);
        let slot = slot.map_err(|exhausted| Overload::new(exhausted, "requests are under way"))?;
        let copies = self.memory.take(&received.peer, COPIES * received.bytes.len()).map_err(no_memory)?;
        let (memory, credential) = (Arc::clone(&received.memory), received.credential.clone());
        Ok(Admitted { _memory: memory, _copies: copies, _slot: slot, credential })
    }
}

/// Reads a body as a whole, or says why not.
pub(super) async fn read(
    shares: &Shares,
    peer: Peer,
    body: impl Body<Data = Bytes> + Unpin,
) -> Result<Received, Box<Response>> {
    whole(shares, peer, body).await.map_err(|failed| {
        Box::new(match failed {
            Failed::TooLarge => {
                refusal::closing(StatusCode::PAYLOAD_TOO_LARGE, "the message is over the limit of 16 MiB\n")
            }
            Failed::Broken => {
                refusal::closing(StatusCode::BAD_REQUEST, "the body is not what its head says\n")
            }
            Failed::TooSlow => {
                refusal::closing(StatusCode::REQUEST_TIMEOUT, "the body was not complete after 60 s\n")
            }
            Failed::NoMemory(exhausted) => refusal::overloaded(None, &no_memory(exhausted)),
        })
    })
}

/// The same for those who have their own words for what went wrong.
pub(crate) async fn whole(
    shares: &Shares,
    peer: Peer,
    body: impl Body<Data = Bytes> + Unpin,
) -> Result<Received, Failed> {
    tokio::time::timeout(WITHIN, collect(shares, peer, body)).await.unwrap_or(Err(Failed::TooSlow))
}

fn no_memory(exhausted: Exhausted) -> Overload {
    Overload::of_memory(exhausted)
}

/// Why there is no body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Failed {
    /// It is over the limit.
    TooLarge,
    /// It ended before its end.
    Broken,
    /// It was not complete in time.
    TooSlow,
    /// There is no memory left for it.
    NoMemory(Exhausted),
}

async fn collect(
    shares: &Shares,
    peer: Peer,
    mut body: impl Body<Data = Bytes> + Unpin,
) -> Result<Received, Failed> {
    let mut bytes = next(&mut body).await?.unwrap_or_default();
    let mut share = shares.take(&peer, bytes.len()).map_err(Failed::NoMemory)?;
    let mut whole: Option<BytesMut> = None;
    let mut length = bytes.len();
    while let Some(more) = next(&mut body).await? {
        length += more.len();
        if length > LARGEST {
            drop((share, whole));
            return Err(Box::pin(discard(body)).await);
        }
        share.grow(more.len()).map_err(Failed::NoMemory)?;
        // Most messages come in one piece, which need not be copied.
        whole.get_or_insert_with(|| BytesMut::from(&*std::mem::take(&mut bytes))).extend_from_slice(&more);
    }
    Ok(Received {
        bytes: whole.map_or(bytes, BytesMut::freeze),
        peer,
        memory: Arc::new(share),
        credential: None,
    })
}

/// Reads on for a while and keeps nothing: a client that is still sending would not see the answer.
async fn discard(mut body: impl Body<Data = Bytes> + Unpin) -> Failed {
    let mut length = 0;
    while let Ok(Some(more)) = next(&mut body).await {
        length += more.len();
        if length > LARGEST {
            break;
        }
    }
    Failed::TooLarge
}

async fn next(body: &mut (impl Body<Data = Bytes> + Unpin)) -> Result<Option<Bytes>, Failed> {
    loop {
        match body.frame().await {
            None => return Ok(None),
            Some(Err(_)) => return Err(Failed::Broken),
            Some(Ok(frame)) => {
                // Trailers say nothing here.
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

    async fn status_of(shares: &Shares, body: Body) -> u16 {
        match read(shares, Peer::here(), body).await {
            Ok(_) => 200,
            Err(refusal) => refusal.status().as_u16(),
        }
    }

    #[tokio::test]
    async fn a_body_in_pieces_is_one_message_and_its_memory_is_given_back() {
        let shares = Shares::new(100, 100);
        let received = read(&shares, Peer::here(), Body::from_stream(pieces(4, 20))).await.unwrap();
        assert_eq!((received.bytes.len(), shares.taken()), (80, 80));
        let part = received.part(received.bytes.slice(..10));
        drop(received);
        assert_eq!(shares.taken(), 80, "a part keeps the whole");
        drop(part);
        assert_eq!(shares.taken(), 0);
        assert_eq!(status_of(&shares, Body::empty()).await, 200);
    }

    #[tokio::test]
    async fn what_there_is_no_memory_for_is_refused_and_nothing_is_held() {
        let shares = Shares::new(100, 150);
        assert_eq!(status_of(&shares, Body::from_stream(pieces(6, 20))).await, 429);
        let other = shares.take(&Peer::at([192, 0, 2, 1].into()), 100).unwrap();
        assert_eq!(status_of(&shares, Body::from_stream(pieces(3, 20))).await, 503);
        drop(other);
        assert_eq!((status_of(&shares, Body::from_stream(pieces(3, 20))).await, shares.taken()), (200, 0));
    }

    #[tokio::test]
    async fn a_body_that_is_too_large_is_a_413_and_is_not_kept() {
        let shares = Shares::new(256 << 20, 512 << 20);
        assert_eq!(status_of(&shares, Body::from_stream(pieces(17, 1 << 20))).await, 413);
        assert_eq!(status_of(&shares, Body::from_stream(pieces(16, 1 << 20))).await, 200);
        assert_eq!(shares.taken(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_does_not_come_is_a_408_after_a_minute() {
        let (shares, begun) = (Shares::new(100, 100), Instant::now());
        let slow = Body::from_stream(pieces(1, 20).chain(stream::pending()));
        assert_eq!(status_of(&shares, slow).await, 408);
        assert_eq!((begun.elapsed(), shares.taken()), (WITHIN, 0));
        let dripping = pieces(1000, 1).then(async |piece| {
            tokio::time::sleep(Duration::from_secs(1)).await;
            piece
        });
        assert_eq!(
            status_of(&shares, Body::from_stream(dripping)).await,
            408,
            "a drop now and then is not enough"
        );
    }
}
