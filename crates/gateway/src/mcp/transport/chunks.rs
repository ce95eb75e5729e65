//! Splits large messages into chunks on their way to a socket. The connection then copies and buffers one chunk at a
//! time, and the message itself, which is counted, is the only large buffer in memory.

use axum::body::Body;
use bytes::Bytes;
use futures_util::{Stream, StreamExt, stream};
use gripfast::wire::sse;
use http_body::{Frame, SizeHint};
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

/// Largest chunk.
pub(crate) const CHUNK_SIZE: usize = 64 << 10;

/// Response body for a message.
pub(crate) fn body(message: Bytes) -> Body {
    if message.len() <= CHUNK_SIZE { Body::from(message) } else { Body::new(Chunks(message)) }
}

/// Rest of a message.
struct Chunks(Bytes);

impl http_body::Body for Chunks {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(next(&mut self.get_mut().0).map(|piece| Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.0.len() as u64)
    }
}

fn next(rest: &mut Bytes) -> Option<Bytes> {
    (!rest.is_empty()).then(|| rest.split_to(rest.len().min(CHUNK_SIZE)))
}

/// SSE event.
pub(crate) enum StreamEvent {
    /// Encoded event.
    Whole(Bytes),
    /// Fields before `data`, and the message as `data`.
    Message(sse::Writer, Bytes),
}

impl StreamEvent {
    /// Comment event that keeps the connection alive.
    pub(crate) fn keep_alive() -> Self {
        Self::Whole(Bytes::from_static(sse::KEEP_ALIVE))
    }

    fn into_chunks(self) -> EventChunks {
        match self {
            Self::Whole(bytes) => EventChunks { head: Some(bytes), rest: Bytes::new(), tail: None },
            Self::Message(fields, message) if message.len() <= CHUNK_SIZE => {
                let copy = fields.data(&message).finish();
                EventChunks { head: Some(tied(copy, message)), rest: Bytes::new(), tail: None }
            }
            Self::Message(fields, message) => EventChunks {
                head: Some(fields.open_data().into()),
                rest: message,
                tail: Some(Bytes::from_static(sse::END_OF_DATA)),
            },
        }
    }
}

/// Encodes events as a byte stream.
pub(crate) fn events(
    events: impl Stream<Item = StreamEvent> + Send + 'static,
) -> impl Stream<Item = Result<Bytes, Infallible>> + Send + 'static {
    events.flat_map(|event| stream::iter(event.into_chunks().map(Ok)))
}

struct EventChunks {
    head: Option<Bytes>,
    rest: Bytes,
    tail: Option<Bytes>,
}

impl Iterator for EventChunks {
    type Item = Bytes;

    fn next(&mut self) -> Option<Bytes> {
        self.head.take().or_else(|| next(&mut self.rest).map(one_line)).or_else(|| self.tail.take())
    }
}

/// Replaces line breaks by spaces. In valid JSON they only occur between tokens.
pub(crate) fn one_line(piece: Bytes) -> Bytes {
    let breaks = |byte: &u8| matches!(byte, b'\n' | b'\r');
    if !piece.iter().any(breaks) {
        return piece;
    }
    let copy = piece.iter().map(|byte| if breaks(byte) { b' ' } else { *byte }).collect();
    tied(copy, piece)
}

/// Copy that keeps the memory permit of its original message.
fn tied(copy: Vec<u8>, message: Bytes) -> Bytes {
    struct Tied(Vec<u8>, #[expect(dead_code, reason = "held for its share")] Bytes);
    impl AsRef<[u8]> for Tied {
        fn as_ref(&self) -> &[u8] {
            &self.0
        }
    }
    Bytes::from_owner(Tied(copy, message))
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::BodyExt;

    #[tokio::test]
    async fn a_large_message_is_sent_in_chunks_and_stays_the_same() {
        for length in [0, 1, CHUNK_SIZE, CHUNK_SIZE + 1, 5 * CHUNK_SIZE + 7] {
            let message: Bytes = (0..length).map(|at| b'a' + (at % 26) as u8).collect();
            let mut body = body(message.clone());
            assert_eq!(http_body::Body::size_hint(&body).exact(), Some(length as u64));
            let mut read = Vec::new();
            while let Some(frame) = body.frame().await {
                let piece = frame.unwrap().into_data().unwrap();
                assert!(piece.len() <= CHUNK_SIZE);
                read.extend_from_slice(&piece);
            }
            assert_eq!(read, message);
        }
    }

    #[tokio::test]
    async fn an_event_in_chunks_reads_like_a_single_write() {
        for length in [1, CHUNK_SIZE, CHUNK_SIZE + 1, 3 * CHUNK_SIZE] {
            let message = Bytes::from(format!("[\"{}\"\n,\r\n1]", "x".repeat(length)));
            let fields = || sse::Writer::new().id("7").event("message");
            let pieces = events(stream::iter([
                StreamEvent::Message(fields(), message.clone()),
                StreamEvent::keep_alive(),
            ]));
            let mut reader = sse::Reader::new(10 * CHUNK_SIZE);
            pieces
                .for_each(|piece| {
                    let Ok(piece) = piece;
                    assert!(piece.len() <= CHUNK_SIZE + 200);
                    reader.push(&piece);
                    std::future::ready(())
                })
                .await;
            let event = reader.next_event().unwrap().unwrap();
            assert_eq!((event.id.as_deref(), &*event.event), (Some("7"), "message"));
            let value = |text: &[u8]| serde_json::from_slice::<serde_json::Value>(text).unwrap();
            assert_eq!(value(event.data.as_bytes()), value(&message));
            assert_eq!(reader.next_event(), None);
        }
    }
}
