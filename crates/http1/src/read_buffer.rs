//! Received bytes of one connection, and the size of the next read.

use bytes::BytesMut;
use std::io;
use std::pin::pin;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncReadExt as _};

/// Free space below which the buffer is renewed.
const MIN_SPACE: usize = 1 << 10;
/// Size of the buffer at first, and largest one that an idle connection keeps.
const FIRST_READ: usize = 8 << 10;

/// Unread bytes.
#[derive(Debug)]
pub struct ReadBuffer {
    /// The bytes, in order.
    pub bytes: BytesMut,
    /// Space that the next buffer has beyond the unread bytes.
    read_size: usize,
    /// Largest such space.
    max_read: usize,
    /// The buffer may be larger than at first.
    is_large: bool,
}

impl ReadBuffer {
    /// An empty buffer. Its memory comes with the first read. Its space for further bytes grows up to `max_read` while
    /// reads fill it.
    pub fn new(max_read: usize) -> Self {
        Self { bytes: BytesMut::new(), read_size: FIRST_READ, max_read, is_large: false }
    }

    /// Reads more bytes, and returns their number; 0 at the end of the stream. `expected` is the number of bytes that are
    /// still to come, if it is known and the sender is trusted to send them.
    pub fn poll_read<S: AsyncRead + Unpin>(
        &mut self,
        stream: &mut S,
        cx: &mut Context<'_>,
        expected: Option<u64>,
    ) -> Poll<io::Result<usize>> {
        if self.bytes.capacity() - self.bytes.len() < MIN_SPACE {
            let expected = expected.and_then(|left| usize::try_from(left).ok());
            let size = expected.unwrap_or(0).clamp(self.read_size, self.max_read);
            self.bytes.reserve(size);
            self.is_large |= self.bytes.capacity() > FIRST_READ;
        }
        let space = self.bytes.capacity() - self.bytes.len();
        let count = ready!(pin!(stream.read_buf(&mut self.bytes)).poll(cx))?;
        if count == space && self.read_size < self.max_read {
            self.read_size *= 2;
        }
        Poll::Ready(Ok(count))
    }

    /// Releases what a waiting connection does not need. Bytes that were not read stay, and a buffer with many of them
    /// stays as it is, so that they are copied at most once.
    pub fn shrink(&mut self) {
        if self.is_large && self.bytes.len() <= FIRST_READ {
            self.bytes = BytesMut::from(&*self.bytes);
            self.is_large = false;
        }
        self.read_size = FIRST_READ;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Buf as _;
    use std::future::poll_fn;

    const MAX: usize = 64 << 10;

    /// A buffer that has received this many bytes.
    async fn filled(count: usize) -> ReadBuffer {
        let (mut buffer, bytes) = (ReadBuffer::new(MAX), vec![1; count]);
        let mut stream = &*bytes;
        while poll_fn(|cx| buffer.poll_read(&mut stream, cx, None)).await.unwrap() > 0 {}
        buffer
    }

    #[tokio::test]
    async fn a_large_buffer_is_released_when_it_is_read_to_its_end() {
        let mut buffer = filled(10 * MAX).await;
        let rest = buffer.bytes.split_off(buffer.bytes.len() - 3);
        buffer.bytes = rest;
        assert!(buffer.bytes.capacity() > 3, "it is the end of the large one");
        buffer.shrink();
        assert_eq!((buffer.bytes.len(), buffer.bytes.capacity(), buffer.is_large), (3, 3, false));
        let mut buffer = filled(10 * MAX).await;
        buffer.bytes.clear();
        buffer.shrink();
        assert_eq!(buffer.bytes.capacity(), 0);
    }

    #[tokio::test]
    async fn a_buffer_that_grew_by_small_pieces_is_released_too() {
        let mut buffer = ReadBuffer::new(MAX);
        while buffer.bytes.len() < 2 * FIRST_READ {
            poll_fn(|cx| buffer.poll_read(&mut &[1; 1000][..], cx, None)).await.unwrap();
        }
        assert_eq!(buffer.read_size, FIRST_READ, "no read has filled it");
        buffer.bytes.clear();
        buffer.shrink();
        assert_eq!(buffer.bytes.capacity(), 0);
    }

    #[tokio::test]
    async fn unread_bytes_are_copied_at_most_once() {
        let mut buffer = filled(10 * MAX).await;
        let mut copies = 0;
        while buffer.bytes.len() > 100 {
            buffer.bytes.advance(100);
            let before = buffer.bytes.as_ptr();
            buffer.shrink();
            copies += usize::from(buffer.bytes.as_ptr() != before);
        }
        assert_eq!(copies, 1);
    }

    #[tokio::test]
    async fn a_buffer_grows_only_while_reads_fill_it() {
        let buffer = filled(100).await;
        assert_eq!((buffer.read_size, buffer.is_large), (FIRST_READ, false));
        let buffer = filled(10 * MAX).await;
        assert_eq!((buffer.read_size, buffer.is_large), (MAX, true));
    }
}
