//! Messages on their way to a socket, in pieces. A connection then copies and buffers a piece at a time, and the message
//! itself, which is counted, is the only large thing in memory.

use axum::body::Body;
use bytes::Bytes;
use futures_util::{Stream, StreamExt, stream};
use gripfast::wire::sse;
use http_body::{Frame, SizeHint};
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

/// The largest piece.
pub(super) const PIECE: usize = 64 << 10;

/// A message as the body of a response.
pub(super) fn body(message: Bytes) -> Body {
    if message.len() <= PIECE { Body::from(message) } else { Body::new(Pieces(message)) }
}

/// The rest of a message.
struct Pieces(Bytes);

impl http_body::Body for Pieces {
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
    (!rest.is_empty()).then(|| rest.split_to(rest.len().min(PIECE)))
}

/// An event of a stream.
pub(super) enum Event {
    /// Its bytes.
    Whole(Bytes),
    /// The fields before its data, and a message as its data.
    Message(sse::Writer, Bytes),
}

impl Event {
    /// The event that says nothing.
    pub(super) fn keep_alive() -> Self {
        Self::Whole(Bytes::from_static(sse::KEEP_ALIVE))
    }

    fn pieces(self) -> EventPieces {
        match self {
            Self::Whole(bytes) => EventPieces { head: Some(bytes), rest: Bytes::new(), tail: None },
            Self::Message(fields, message) if message.len() <= PIECE => {
                let copy = fields.data(&message).finish();
                EventPieces { head: Some(tied(copy, message)), rest: Bytes::new(), tail: None }
            }
            Self::Message(fields, message) => EventPieces {
                head: Some(fields.open_data().into()),
                rest: message,
                tail: Some(Bytes::from_static(sse::END_OF_DATA)),
            },
        }
    }
}

/// Events as the bytes of a stream.
pub(super) fn events(
    events: impl Stream<Item = Event> + Send + 'static,
) -> impl Stream<Item = Result<Bytes, Infallible>> + Send + 'static {
    events.flat_map(|event| stream::iter(event.pieces().map(Ok)))
}

struct EventPieces {
    head: Option<Bytes>,
    rest: Bytes,
    tail: Option<Bytes>,
}

impl Iterator for EventPieces {
    type Item = Bytes;

    fn next(&mut self) -> Option<Bytes> {
        self.head.take().or_else(|| next(&mut self.rest).map(one_line)).or_else(|| self.tail.take())
    }
}

/// A piece of a message without line breaks. In valid JSON they stand between tokens only, where a space does as well.
pub(super) fn one_line(piece: Bytes) -> Bytes {
    let breaks = |byte: &u8| matches!(byte, b'\n' | b'\r');
    if !piece.iter().any(breaks) {
        return piece;
    }
    let copy = piece.iter().map(|byte| if breaks(byte) { b' ' } else { *byte }).collect();
    tied(copy, piece)
}

/// A copy that keeps the message it was made of counted.
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
    async fn a_large_message_leaves_in_pieces_and_is_the_same_in_the_end() {
        for length in [0, 1, PIECE, PIECE + 1, 5 * PIECE + 7] {
            let message: Bytes = (0..length).map(|at| b'a' + (at % 26) as u8).collect();
            let mut body = body(message.clone());
            assert_eq!(http_body::Body::size_hint(&body).exact(), Some(length as u64));
            let mut read = Vec::new();
            while let Some(frame) = body.frame().await {
                let piece = frame.unwrap().into_data().unwrap();
                assert!(piece.len() <= PIECE);
                read.extend_from_slice(&piece);
            }
            assert_eq!(read, message);
        }
    }

    #[tokio::test]
    async fn an_event_in_pieces_reads_as_the_event_that_is_written_at_once() {
        for length in [1, PIECE, PIECE + 1, 3 * PIECE] {
            let message = Bytes::from(format!("[\"{}\"\n,\r\n1]", "x".repeat(length)));
            let fields = || sse::Writer::new().id("7").event("message");
            let pieces =
                events(stream::iter([Event::Message(fields(), message.clone()), Event::keep_alive()]));
            let mut reader = sse::Reader::new(10 * PIECE);
            pieces
                .for_each(|piece| {
                    let Ok(piece) = piece;
                    assert!(piece.len() <= PIECE + 200);
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
