//! Input and output of one connection. The connection and the body of its current request share it; both run in one task.

use super::head::{HeadError, HeadReader, RequestHead};
use crate::{BodyReader, BodyStep, Malformed, ReadBuffer};
use bytes::{Buf as _, Bytes};
use std::io;
use std::io::IoSlice;
use std::pin::Pin;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncWrite};

const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";
/// Maximum size of an unread body that is skipped to keep the connection open.
const MAX_SKIPPED: usize = 64 << 10;
/// Largest size of a read.
const MAX_READ: usize = 64 << 10;

/// Reason why the body of a request could not be read to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum BodyError {
    /// The client closed the connection, or the request has its response already.
    #[error("the connection or the request ended before the end of the body")]
    Closed,
    /// Its framing is invalid.
    #[error("{0}")]
    Malformed(Malformed),
}

/// The body of the current request.
pub(super) trait BodySource: Send + Sync {
    /// Returns the next bytes of the body of this request.
    fn poll_data(&self, request: u64, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, BodyError>>>;

    /// Remaining bytes of the body of this request, if they are known.
    fn remaining_bytes(&self, request: u64) -> Option<u64>;

    /// Notes that the rest of the body of this request will not be read.
    fn abandon(&self, request: u64);
}

/// Connection to a client.
#[derive(Debug)]
pub(super) struct ConnectionIo<S>(Mutex<Io<S>>);

#[derive(Debug)]
struct Io<S> {
    stream: S,
    received: ReadBuffer,
    head: HeadReader,
    /// Rest of the body of the current request.
    body: BodyReader,
    /// The rest of the body will not be read.
    is_abandoned: bool,
    /// Bytes of it that are read nevertheless, to keep the connection open.
    skippable: usize,
    /// Number of the current request. The bodies of earlier ones read nothing more.
    request: u64,
    /// Rest of the interim response that the client waits for.
    interim: &'static [u8],
    /// It was written, and is not flushed yet.
    flushes_interim: bool,
}

/// Bytes that are written together.
#[derive(Debug, Default)]
pub(super) struct Output {
    /// Heads, small pieces of data, and lines around chunks.
    pub(super) gathered: Vec<u8>,
    /// A large piece of data, which comes after them.
    pub(super) data: Bytes,
    written: usize,
}

impl Output {
    /// Size up to which pieces of data are copied.
    const SMALL: usize = 4 << 10;
    /// Size from which the gathered bytes are written.
    const FULL: usize = 32 << 10;

    pub(super) fn is_empty(&self) -> bool {
        self.gathered.is_empty() && self.data.is_empty()
    }

    /// Adds data. It has to be written before other bytes are added if the result is `true`.
    pub(super) fn add(&mut self, data: Bytes) -> bool {
        if data.len() > Self::SMALL {
            self.data = data;
            return true;
        }
        self.gathered.extend_from_slice(&data);
        self.gathered.len() >= Self::FULL
    }

    fn clear(&mut self) {
        self.gathered.clear();
        (self.data, self.written) = (Bytes::new(), 0);
    }

    /// Releases what an idle connection does not need.
    pub(super) fn shrink(&mut self) {
        if self.gathered.capacity() > 2 * Self::SMALL {
            self.gathered = Vec::new();
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> ConnectionIo<S> {
    pub(super) fn new(stream: S) -> Self {
        Self(Mutex::new(Io {
            stream,
            received: ReadBuffer::new(MAX_READ),
            head: HeadReader::default(),
            body: BodyReader::Ended,
            is_abandoned: false,
            skippable: 0,
            request: 0,
            interim: &[],
            flushes_interim: false,
        }))
    }

    fn lock(&self) -> MutexGuard<'_, Io<S>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads the head of the next request, and returns the number of that request; `None` if the client has closed the
    /// connection.
    pub(super) fn poll_head(
        &self,
        cx: &mut Context<'_>,
        max: usize,
    ) -> Poll<Option<Result<(u64, RequestHead), HeadError>>> {
        let mut io = self.lock();
        let io = &mut *io;
        loop {
            match io.head.next(&mut io.received.bytes, max) {
                Ok(Some(head)) => {
                    io.request += 1;
                    (io.body, io.is_abandoned, io.skippable) = (head.body, false, MAX_SKIPPED);
                    let waits = head.expects_continue && head.body != BodyReader::Ended;
                    io.interim = if waits { CONTINUE } else { &[] };
                    return Poll::Ready(Some(Ok((io.request, head))));
                }
                Ok(None) => {}
                Err(error) => {
                    io.body = BodyReader::Failed(Malformed("the head was refused"));
                    return Poll::Ready(Some(Err(error)));
                }
            }
            if !matches!(ready!(io.received.poll_read(&mut io.stream, cx, None)), Ok(1..)) {
                return Poll::Ready(None);
            }
        }
    }

    /// Completes when the client closes the connection. That is not noticed while a body waits for its reader, a further
    /// request has arrived, or an abandoned body is too large or invalid.
    pub(super) fn poll_closed(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut io = self.lock();
        let io = &mut *io;
        if io.is_abandoned && ready!(io.poll_skip(cx)) == Err(BodyError::Closed) {
            return Poll::Ready(());
        }
        if io.body != BodyReader::Ended {
            return Poll::Pending;
        }
        io.received.shrink();
        loop {
            // Some clients send an empty line after a body.
            while io.received.bytes.starts_with(b"\r\n") {
                io.received.bytes.advance(2);
            }
            if !io.received.bytes.is_empty() {
                return Poll::Pending;
            }
            if !matches!(ready!(io.received.poll_read(&mut io.stream, cx, None)), Ok(1..)) {
                return Poll::Ready(());
            }
        }
    }

    /// Returns whether bytes of a further request have arrived.
    pub(super) fn has_received(&self) -> bool {
        !self.lock().received.bytes.is_empty()
    }

    /// Ends the current request before its response is written: reads what has arrived of a body that the handler did not
    /// read, and returns whether that is all of it. The body reads nothing more.
    pub(super) fn end_request(&self, cx: &mut Context<'_>) -> bool {
        let mut io = self.lock();
        io.is_abandoned = true;
        io.request += 1;
        matches!(io.poll_skip(cx), Poll::Ready(Ok(true)))
    }

    /// Returns whether the client may still be sending a request that is not read.
    pub(super) fn has_unread(&self) -> bool {
        let io = self.lock();
        io.body != BodyReader::Ended || !io.received.bytes.is_empty()
    }

    /// Discards what the client still sends, up to a limit, until it closes the connection. Closing with unread bytes would
    /// make the system drop the response before the client has read it.
    pub(super) fn poll_discard(&self, cx: &mut Context<'_>, left: &mut usize) -> Poll<()> {
        let mut io = self.lock();
        let io = &mut *io;
        loop {
            io.received.bytes.clear();
            match ready!(io.received.poll_read(&mut io.stream, cx, None)) {
                Ok(count @ 1..) if count < *left => *left -= count,
                Ok(_) | Err(_) => return Poll::Ready(()),
            }
        }
    }

    /// Writes everything, and clears the output.
    pub(super) fn poll_write(&self, cx: &mut Context<'_>, output: &mut Output) -> Poll<io::Result<()>> {
        let mut io = self.lock();
        ready!(io.poll_output(cx, output))?;
        output.clear();
        Poll::Ready(Ok(()))
    }

    /// Ends the stream in its own way, for example with a message of TLS.
    pub(super) fn poll_shutdown(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.lock().stream).poll_shutdown(cx)
    }

    /// Releases what an idle connection does not need.
    pub(super) fn shrink(&self) {
        self.lock().received.shrink();
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Io<S> {
    /// Reads the body to its end, and returns whether it was small enough for that.
    fn poll_skip(&mut self, cx: &mut Context<'_>) -> Poll<Result<bool, BodyError>> {
        loop {
            match ready!(self.poll_body(cx))? {
                None => return Poll::Ready(Ok(true)),
                Some(data) if data.len() <= self.skippable => self.skippable -= data.len(),
                Some(_) => return Poll::Ready(Ok(false)),
            }
        }
    }

    fn poll_body(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>, BodyError>> {
        loop {
            match self.body.next(&mut self.received.bytes).map_err(BodyError::Malformed)? {
                BodyStep::Data(data) => return Poll::Ready(Ok(Some(data))),
                BodyStep::End => return Poll::Ready(Ok(None)),
                BodyStep::NeedsMore => {}
            }
            match ready!(self.received.poll_read(&mut self.stream, cx, None)) {
                Ok(1..) => {}
                Ok(0) | Err(_) => return Poll::Ready(Err(BodyError::Closed)),
            }
        }
    }

    /// Writes the interim response, unless the client has begun to send the body without it.
    fn poll_interim(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.interim.len() == CONTINUE.len() && !self.received.bytes.is_empty() {
            self.interim = &[];
        }
        while !self.interim.is_empty() {
            match ready!(Pin::new(&mut self.stream).poll_write(cx, self.interim))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                written => self.interim = &self.interim[written..],
            }
            self.flushes_interim = true;
        }
        if self.flushes_interim {
            ready!(Pin::new(&mut self.stream).poll_flush(cx))?;
            self.flushes_interim = false;
        }
        Poll::Ready(Ok(()))
    }

    fn poll_output(&mut self, cx: &mut Context<'_>, output: &mut Output) -> Poll<io::Result<()>> {
        // One that was written in part comes first; one that was not begun is superseded by the response.
        if self.interim.len() < CONTINUE.len() {
            ready!(self.poll_interim(cx))?;
        }
        let mut stream = Pin::new(&mut self.stream);
        let Output { gathered, data, written } = output;
        while *written < gathered.len() + data.len() {
            let first = &gathered[(*written).min(gathered.len())..];
            let second = &data[written.saturating_sub(gathered.len())..];
            match ready!(
                stream.as_mut().poll_write_vectored(cx, &[IoSlice::new(first), IoSlice::new(second)])
            )? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                count => *written += count,
            }
        }
        stream.poll_flush(cx)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> BodySource for ConnectionIo<S> {
    fn poll_data(&self, request: u64, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, BodyError>>> {
        let mut io = self.lock();
        if io.request != request {
            return Poll::Ready(Some(Err(BodyError::Closed)));
        }
        if ready!(io.poll_interim(cx)).is_err() {
            return Poll::Ready(Some(Err(BodyError::Closed)));
        }
        io.poll_body(cx).map(Result::transpose)
    }

    fn remaining_bytes(&self, request: u64) -> Option<u64> {
        let io = self.lock();
        (io.request == request).then(|| io.body.remaining_bytes()).flatten()
    }

    fn abandon(&self, request: u64) {
        let mut io = self.lock();
        io.is_abandoned |= io.request == request;
    }
}
