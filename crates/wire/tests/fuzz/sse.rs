//! The chunks of a stream do not change its events, written events read back, and memory stays bounded.

use std::time::Duration;

use gripfast_wire::sse::{Event, Reader, TooLarge, Writer};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};

proptest! {
    #[test]
    fn the_chunks_of_a_stream_do_not_change_its_events(
        stream in stream(),
        cuts in vec(any::<Index>(), 0..12),
        limit in prop_oneof![Just(4096_usize), 1..40_usize],
    ) {
        let whole = read(limit, [&stream[..]]);
        let mut at: Vec<usize> = cuts.iter().map(|cut| cut.index(stream.len() + 1)).collect();
        at.sort_unstable();
        let bounds: Vec<usize> = [0].into_iter().chain(at).chain([stream.len()]).collect();
        prop_assert_eq!(&read(limit, bounds.windows(2).map(|pair| &stream[pair[0]..pair[1]])), &whole);
        prop_assert_eq!(&read(limit, stream.chunks(1)), &whole);
    }

    #[test]
    fn written_events_read_back(
        blocks in vec((option_text(), option_text(), "\\PC{0,20}([\r\n]{1,2}\\PC{0,9}){0,3}"), 1..6),
    ) {
        let mut stream = Vec::new();
        let mut expected = Vec::new();
        for (id, event, data) in blocks {
            let mut writer = Writer::new().comment(&data);
            if let Some(id) = &id {
                writer = writer.id(id);
            }
            if let Some(event) = &event {
                writer = writer.event(event);
            }
            stream.extend(writer.data(data.as_bytes()).finish());
            let event = event.filter(|event| !event.is_empty()).unwrap_or_else(|| "message".to_owned());
            let data = data.replace("\r\n", "\n").replace('\r', "\n");
            expected.push(Ok(Event { id, event: event.into(), data }));
        }
        prop_assert_eq!(read(1 << 16, [&stream[..]]).0, expected);
    }

    #[test]
    fn the_buffer_never_exceeds_the_limit(
        chunks in vec(prop_oneof![stream(), vec(any::<u8>(), 0..64)], 0..12),
        limit in 0..64_usize,
    ) {
        let mut reader = Reader::new(limit);
        for chunk in chunks {
            reader.push(&chunk);
            prop_assert!(reader.buffered() <= limit, "{} bytes held", reader.buffered());
            while reader.next_event().is_some() {}
        }
    }
}

type Seen = (Vec<Result<Event, TooLarge>>, Option<String>, Option<Duration>);

fn read<'a>(limit: usize, chunks: impl IntoIterator<Item = &'a [u8]>) -> Seen {
    let mut reader = Reader::new(limit);
    let mut events = Vec::new();
    for chunk in chunks {
        reader.push(chunk);
        events.extend(std::iter::from_fn(|| reader.next_event()));
    }
    (events, reader.last_event_id().map(str::to_owned), reader.retry())
}

/// Bytes that often look like events.
fn stream() -> impl Strategy<Value = Vec<u8>> {
    let piece = select(vec![
        &b"data: {\"a\":1}"[..],
        b"data:",
        b"data",
        b"id: 1",
        b"id",
        b"id: \0",
        b"event: x",
        b"retry: 15",
        b"retry: x",
        b": comment",
        b":",
        b" ",
        b"\n",
        b"\n",
        b"\r",
        b"\r\n",
        b"\n\n",
        b"\r\n\r\n",
        b"\xef\xbb\xbf",
        b"\xef",
        b"\xff\xfe",
        b"id:\xff\xff\xff\xff\xff\xff\xff\xff\n",
        b"0123456789",
    ]);
    vec(piece, 0..30).prop_map(|pieces| pieces.concat())
}

fn option_text() -> impl Strategy<Value = Option<String>> {
    // Valid content of a single-line field: no control characters, and no leading space, which would be removed.
    prop::option::of("[^\\pC ]\\PC{0,9}|")
}
