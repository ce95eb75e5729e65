//! HTTP/1 connection to a server, which carries one request at a time. The request that uses it drives it: incoming
//! data wakes the caller directly, and an idle connection is not driven.

use super::client::Address;
use super::connection_error::{ConnectionError, Unanswered};
use super::h1_response::{HeadReader, ResponseHead};
use bytes::Bytes;
use gripfast_http1::{BodyReader, BodyStep, ReadBuffer};
use http::header::{CONTENT_LENGTH, HOST, TRANSFER_ENCODING};
use http::{HeaderMap, HeaderValue, Method, Response, Uri};
use std::fmt;
use std::future::poll_fn;
use std::io::{self, IoSlice, Write as _};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::task::unconstrained;

/// Largest request that TLS sends as one record, which a server cannot read before it is complete.
pub(super) const ONE_TLS_RECORD: usize = 16 << 10;

/// Largest size of a read.
const MAX_READ: usize = 256 << 10;

/// HTTP/1 connection.
#[derive(Debug)]
pub(super) struct H1Connection<S> {
    stream: S,
    /// Size of the largest request that counts as unsent if the stream fails before it takes a byte.
    unsent_limit: usize,
    /// Head of the request, which is written before the body.
    head: Vec<u8>,
    /// Headers of the last request and its address, if others may be sent with the same ones; and the size of its head
    /// without the length of its body.
    template: Option<(SharedHead, usize)>,
    body: Bytes,
    /// Bytes of both that were written.
    written: usize,
    /// Everything that was written has left our buffers.
    is_flushed: bool,
    /// Error of writing the request. The server may have answered before it stopped reading.
    write_error: Option<io::Error>,
    /// Unread bytes.
    received: ReadBuffer,
    reader: HeadReader,
    /// Rest of the response.
    response_body: BodyReader,
    /// The connection can carry another request after the response.
    keeps_open: bool,
}

/// Whether a connection can carry a request now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Readiness {
    Ready,
    /// The end of the previous response has not arrived.
    Unfinished,
    Closed,
}

/// Request without its body.
pub(super) struct RequestHead<'a> {
    pub(super) method: &'a Method,
    /// Path, or whole URL for a forwarding proxy.
    pub(super) target: &'a Uri,
    /// Headers about the length of the body are left out, because it follows from the body.
    pub(super) headers: &'a HeaderMap,
    /// `Host`, unless the headers have one.
    pub(super) host: &'a HeaderValue,
    /// The owners of these headers and this address, if other requests share both.
    pub(super) shared: Option<SharedHead>,
}

/// Headers and address that many requests share. Two are equal only if they are the same objects.
#[derive(Clone)]
pub(super) struct SharedHead {
    pub(super) headers: Arc<HeaderMap>,
    pub(super) to: Arc<Address>,
}

impl fmt::Debug for SharedHead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedHead").finish_non_exhaustive()
    }
}

impl PartialEq for SharedHead {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.headers, &other.headers) && Arc::ptr_eq(&self.to, &other.to)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> H1Connection<S> {
    /// `unsent_limit` is the size of the largest request that counts as unsent if the stream fails before it takes a byte. A
    /// TLS stream may have sent complete records of a larger request.
    pub(super) fn new(stream: S, unsent_limit: usize) -> Self {
        Self {
            stream,
            unsent_limit,
            head: Vec::new(),
            template: None,
            body: Bytes::new(),
            written: 0,
            is_flushed: true,
            write_error: None,
            received: ReadBuffer::new(MAX_READ),
            reader: HeadReader::default(),
            response_body: BodyReader::Ended,
            keeps_open: true,
        }
    }

    /// Sends a request. Returns when the response head has arrived.
    ///
    /// A failed request is `is_unprocessed` only if the server cannot have received any of it.
    pub(super) async fn send(
        &mut self,
        request: &RequestHead<'_>,
        body: Bytes,
    ) -> Result<Response<()>, Unanswered> {
        match &self.template {
            Some((shared, size)) if request.shared.as_ref() == Some(shared) => self.head.truncate(*size),
            _ => {
                self.write_head(request);
                self.template = request.shared.clone().map(|shared| (shared, self.head.len()));
            }
        }
        self.write_length(request.method, body.len());
        self.body = body;
        (self.written, self.is_flushed, self.write_error) = (0, false, None);
        self.reader.begin();
        let ResponseHead { response, body, keeps_connection } =
            poll_fn(|cx| self.poll_head(cx, request.method)).await?;
        self.response_body = body;
        self.keeps_open = keeps_connection;
        Ok(response)
    }

    fn write_head(&mut self, request: &RequestHead<'_>) {
        let RequestHead { method, target, headers, host, .. } = *request;
        let head = &mut self.head;
        head.clear();
        head.extend_from_slice(method.as_str().as_bytes());
        head.push(b' ');
        match (target.authority(), target.path_and_query()) {
            (None, Some(path)) => head.extend_from_slice(path.as_str().as_bytes()),
            (Some(_), _) | (None, None) => drop(write!(head, "{target}")),
        }
        head.extend_from_slice(b" HTTP/1.1\r\n");
        let host = Some((&HOST, host)).filter(|_| !headers.contains_key(HOST));
        let fixed = headers.iter().filter(|(name, _)| ![CONTENT_LENGTH, TRANSFER_ENCODING].contains(name));
        for (name, value) in host.into_iter().chain(fixed) {
            head.extend_from_slice(name.as_str().as_bytes());
            head.extend_from_slice(b": ");
            head.extend_from_slice(value.as_bytes());
            head.extend_from_slice(b"\r\n");
        }
    }

    /// Ends the head with the length of the body.
    fn write_length(&mut self, method: &Method, length: usize) {
        let head = &mut self.head;
        let may_have_body = !matches!(*method, Method::GET | Method::HEAD | Method::DELETE);
        if length > 0 || may_have_body {
            head.extend_from_slice(b"content-length: ");
            head.extend_from_slice(itoa::Buffer::new().format(length).as_bytes());
            head.extend_from_slice(b"\r\n");
        }
        head.extend_from_slice(b"\r\n");
    }

    fn poll_head(&mut self, cx: &mut Context<'_>, method: &Method) -> Poll<Result<ResponseHead, Unanswered>> {
        self.write_rest(cx);
        let failed = |error, is_unprocessed| Poll::Ready(Err(Unanswered { error, is_unprocessed }));
        let is_unsent = self.written == 0 && self.head.len() + self.body.len() <= self.unsent_limit;
        if let Some(error) = self.write_error.take_if(|_| is_unsent) {
            return failed(ConnectionError::Io(error), true);
        }
        loop {
            let error = match ready!(self.poll_read(cx)) {
                Ok(0) => self.write_error.take().map_or(ConnectionError::Closed, ConnectionError::Io),
                Err(error) => ConnectionError::Io(error),
                Ok(_) => match self.reader.next(&mut self.received.bytes, method) {
                    Ok(Some(head)) => return Poll::Ready(Ok(head)),
                    Ok(None) => continue,
                    Err(malformed) => ConnectionError::Malformed(malformed),
                },
            };
            return failed(error, false);
        }
    }

    /// Returns the next bytes of the response. Nothing follows an error.
    pub(super) fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, ConnectionError>>> {
        self.write_rest(cx);
        let data = ready!(self.poll_body(cx));
        if data.is_err() {
            (self.response_body, self.keeps_open) = (BodyReader::Ended, false);
        }
        Poll::Ready(data.transpose())
    }

    fn poll_body(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>, ConnectionError>> {
        loop {
            match self
                .response_body
                .next(&mut self.received.bytes)
                .map_err(|fault| ConnectionError::Malformed(fault.into()))?
            {
                BodyStep::Data(data) => return Poll::Ready(Ok(Some(data))),
                BodyStep::End => return Poll::Ready(Ok(None)),
                BodyStep::NeedsMore => {}
            }
            match ready!(self.poll_read(cx)).map_err(ConnectionError::Io)? {
                0 if self.response_body.may_end_with_connection() => {
                    self.response_body = BodyReader::Ended;
                    return Poll::Ready(Ok(None));
                }
                0 => return Poll::Ready(Err(ConnectionError::Closed)),
                _ => {}
            }
        }
    }

    /// Remaining bytes of the response, if it says how many there are.
    pub(super) fn remaining_bytes(&self) -> Option<u64> {
        self.response_body.remaining_bytes()
    }

    /// Reads what has arrived of the previous response, up to `rest` bytes, and returns whether the connection can carry
    /// a request now. Reading is enough to notice that the server has closed it.
    pub(super) fn readiness(&mut self, rest: &mut usize) -> Readiness {
        // Without a budget of the scheduler, which would make an ended connection look open.
        let mut checked = pin!(unconstrained(poll_fn(|cx| Poll::Ready(self.check_readiness(cx, rest)))));
        match checked.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(readiness) => readiness,
            Poll::Pending => Readiness::Closed,
        }
    }

    fn check_readiness(&mut self, cx: &mut Context<'_>, rest: &mut usize) -> Readiness {
        while self.response_body != BodyReader::Ended {
            match self.poll_data(cx) {
                Poll::Ready(Some(Ok(data))) => match rest.checked_sub(data.len()) {
                    Some(left) => *rest = left,
                    None => return Readiness::Closed,
                },
                Poll::Ready(Some(Err(_))) => return Readiness::Closed,
                Poll::Ready(None) => {}
                Poll::Pending => return Readiness::Unfinished,
            }
        }
        if self.stays_open() && self.poll_read(cx).is_pending() {
            Readiness::Ready
        } else {
            Readiness::Closed
        }
    }

    /// Returns whether the connection can carry another request once the response was read, unless the server closes it.
    pub(super) fn stays_open(&self) -> bool {
        let has_more = self.response_body == BodyReader::Ended && !self.received.bytes.is_empty();
        self.keeps_open && self.is_flushed && !has_more
    }

    /// Releases what an idle connection does not need.
    pub(super) fn shrink(&mut self) {
        self.received.shrink();
    }

    /// Writes what is left of the request.
    fn write_rest(&mut self, cx: &mut Context<'_>) {
        if self.is_flushed || self.write_error.is_some() {
            return;
        }
        match self.poll_write(cx) {
            Poll::Ready(Ok(())) => {
                self.is_flushed = true;
                // The response may take long.
                self.body = Bytes::new();
            }
            Poll::Ready(Err(error)) => self.write_error = Some(error),
            Poll::Pending => {}
        }
    }

    fn poll_write(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut stream = Pin::new(&mut self.stream);
        while self.written < self.head.len() + self.body.len() {
            let head = &self.head[self.written.min(self.head.len())..];
            let body = &self.body[self.written.saturating_sub(self.head.len())..];
            let slices = [IoSlice::new(head), IoSlice::new(body)];
            match ready!(stream.as_mut().poll_write_vectored(cx, &slices))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                count => self.written += count,
            }
        }
        stream.poll_flush(cx)
    }

    fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let expected = self.response_body.remaining_bytes();
        self.received.poll_read(&mut self.stream, cx, expected)
    }
}

#[cfg(test)]
mod tests {
    use super::super::client::HttpClient;
    use super::*;
    use crate::transport::target::TlsFiles;
    use bytes::BytesMut;
    use http_body_util::{BodyExt as _, Full};
    use hyper_util::rt::TokioIo;
    use proptest::prelude::*;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, ReadBuf, duplex};
    use url::Url;

    const SERVER: HeaderValue = HeaderValue::from_static("server");

    fn connected() -> (H1Connection<DuplexStream>, DuplexStream) {
        let (ours, theirs) = duplex(1 << 20);
        (H1Connection::new(ours, usize::MAX), theirs)
    }

    async fn post(h1: &mut H1Connection<DuplexStream>) -> Result<Response<()>, Unanswered> {
        let (method, headers) = (&Method::POST, &HeaderMap::new());
        h1.send(
            &RequestHead { method, target: &Uri::from_static("/mcp"), headers, host: &SERVER, shared: None },
            Bytes::from("{}"),
        )
        .await
    }

    async fn read(h1: &mut H1Connection<DuplexStream>) -> Result<Vec<u8>, ConnectionError> {
        let mut whole = Vec::new();
        while let Some(data) = poll_fn(|cx| h1.poll_data(cx)).await {
            whole.extend_from_slice(&data?);
        }
        Ok(whole)
    }

    async fn received(theirs: &mut DuplexStream) -> String {
        let mut bytes = BytesMut::with_capacity(4096);
        theirs.read_buf(&mut bytes).await.unwrap();
        String::from_utf8(bytes.to_vec()).unwrap()
    }

    #[tokio::test]
    async fn a_connection_carries_one_request_after_another() {
        let (mut h1, mut theirs) = connected();
        for text in ["first", "second"] {
            assert_eq!(h1.readiness(&mut 0), Readiness::Ready);
            let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{text}", text.len());
            let (response, ()) = tokio::join!(post(&mut h1), async {
                let request = received(&mut theirs).await;
                assert_eq!(request, "POST /mcp HTTP/1.1\r\nhost: server\r\ncontent-length: 2\r\n\r\n{}");
                theirs.write_all(answer.as_bytes()).await.unwrap();
            });
            assert_eq!(response.unwrap().status(), 200);
            assert_eq!(h1.remaining_bytes(), Some(text.len() as u64));
            assert_eq!(read(&mut h1).await.unwrap(), text.as_bytes());
        }
    }

    #[tokio::test]
    async fn c05_bytes_that_no_request_asked_for_close_a_connection() {
        let (mut h1, mut theirs) = connected();
        theirs.write_all(b"HTTP/1.1 408 Request Timeout\r\n\r\n").await.unwrap();
        assert_eq!(h1.readiness(&mut 0), Readiness::Closed);
        let (mut h1, mut theirs) = connected();
        theirs
            .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\naHTTP/1.1 200 OK\r\n\r\n")
            .await
            .unwrap();
        post(&mut h1).await.unwrap();
        assert_eq!(read(&mut h1).await.unwrap(), b"a");
        assert_eq!(h1.readiness(&mut 0), Readiness::Closed, "a second response");
    }

    #[tokio::test]
    async fn c05_a_closed_connection_is_noticed_without_a_budget_of_the_scheduler() {
        let (mut h1, theirs) = connected();
        drop(theirs);
        while tokio::task::coop::has_budget_remaining() {
            tokio::task::coop::consume_budget().await;
        }
        assert_eq!(h1.readiness(&mut 0), Readiness::Closed);
    }

    #[tokio::test]
    async fn c05_a_request_is_unsent_only_if_not_one_byte_was_written() {
        let (mut h1, theirs) = connected();
        drop(theirs);
        assert!(post(&mut h1).await.unwrap_err().is_unprocessed);
        let (ours, mut theirs) = duplex(10);
        let mut h1 = H1Connection::new(ours, usize::MAX);
        let (failed, ()) = tokio::join!(post(&mut h1), async {
            assert_eq!(received(&mut theirs).await.len(), 10);
            drop(theirs);
        });
        assert!(!failed.unwrap_err().is_unprocessed);
    }

    #[tokio::test]
    async fn an_answer_before_the_end_of_the_request_counts_and_ends_the_connection() {
        let (ours, mut theirs) = duplex(10);
        let mut h1 = H1Connection::new(ours, usize::MAX);
        let (response, theirs) = tokio::join!(post(&mut h1), async {
            let answer = b"HTTP/1.1 413 Content Too Large\r\ncontent-length: 0\r\n\r\n";
            theirs.write_all(answer).await.unwrap();
            theirs
        });
        assert_eq!(response.unwrap().status(), 413);
        assert!(!h1.stays_open(), "the rest of the request is missing");
        drop(theirs);
    }

    #[tokio::test]
    async fn the_rest_of_a_response_is_read_up_to_a_limit() {
        let (mut h1, mut theirs) = connected();
        theirs.write_all(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n").await.unwrap();
        post(&mut h1).await.unwrap();
        let mut rest = 10;
        assert_eq!((h1.readiness(&mut rest), rest), (Readiness::Unfinished, 7));
        theirs.write_all(b"3\r\ndef\r\n0\r\n\r\n").await.unwrap();
        assert_eq!((h1.readiness(&mut rest), rest), (Readiness::Ready, 4));
        theirs.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nabcde").await.unwrap();
        post(&mut h1).await.unwrap();
        assert_eq!(h1.readiness(&mut rest), Readiness::Closed, "more than that");
    }

    #[tokio::test]
    async fn an_incomplete_response_is_an_error() {
        for text in [
            "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nabcd",
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n",
        ] {
            let (mut h1, mut theirs) = connected();
            theirs.write_all(text.as_bytes()).await.unwrap();
            post(&mut h1).await.unwrap();
            drop(theirs);
            assert!(matches!(read(&mut h1).await, Err(ConnectionError::Closed)), "{text:?}");
        }
        let (mut h1, mut theirs) = connected();
        let (failed, ()) = tokio::join!(post(&mut h1), async {
            received(&mut theirs).await;
            theirs.write_all(b"HTTP/1.1 200").await.unwrap();
            drop(theirs);
        });
        let Unanswered { error, is_unprocessed } = failed.unwrap_err();
        assert!(matches!(error, ConnectionError::Closed) && !is_unprocessed);
    }

    #[tokio::test]
    async fn c05_releasing_memory_keeps_the_bytes_that_were_not_read() {
        let (mut h1, mut theirs) = connected();
        let large = "x".repeat(10_000);
        let head = "HTTP/1.1 200 OK\r\ncontent-length: 10000\r\n\r\n";
        theirs.write_all(format!("{head}{large}HTTP/1.1 200 OK\r\n").as_bytes()).await.unwrap();
        post(&mut h1).await.unwrap();
        assert_eq!(read(&mut h1).await.unwrap().len(), 10_000);
        assert!(!h1.stays_open(), "the pool does not keep it");
        h1.shrink();
        assert_eq!(h1.readiness(&mut 0), Readiness::Closed, "a second response");

        let (mut h1, mut theirs) = connected();
        let head = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2710\r\n";
        theirs.write_all(format!("{head}{large}\r\n1").as_bytes()).await.unwrap();
        post(&mut h1).await.unwrap();
        let mut rest = 20_000;
        assert_eq!(h1.readiness(&mut rest), Readiness::Unfinished);
        h1.shrink();
        theirs.write_all(b"0\r\nt: 1\r\n\r\n").await.unwrap();
        assert_eq!(h1.readiness(&mut rest), Readiness::Unfinished, "a chunk of 16 bytes");
    }

    #[tokio::test]
    async fn c05_a_response_with_an_error_ends_the_connection() {
        for body in ["zz\r\n0\r\n\r\n", "1\r\nabc\r\n0\r\n\r\n"] {
            let (mut h1, mut theirs) = connected();
            let head = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
            theirs.write_all(format!("{head}{body}").as_bytes()).await.unwrap();
            post(&mut h1).await.unwrap();
            assert!(matches!(read(&mut h1).await, Err(ConnectionError::Malformed(_))), "{body:?}");
            assert!(poll_fn(|cx| h1.poll_data(cx)).await.is_none(), "nothing after the error");
            assert_eq!(h1.readiness(&mut 1000), Readiness::Closed);
        }
    }

    /// Stream whose writes and reads do what a test tells.
    struct Scripted {
        writes: Vec<io::Result<usize>>,
        reads: Vec<Option<&'static [u8]>>,
    }

    impl AsyncWrite for Scripted {
        fn poll_write(mut self: Pin<&mut Self>, _: &mut Context<'_>, _: &[u8]) -> Poll<io::Result<usize>> {
            Poll::Ready(self.writes.remove(0))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    impl AsyncRead for Scripted {
        fn poll_read(
            mut self: Pin<&mut Self>,
            cx: &mut Context<'_>,
            buffer: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            match self.reads.remove(0) {
                Some(bytes) => {
                    buffer.put_slice(bytes);
                    Poll::Ready(Ok(()))
                }
                None => {
                    cx.waker().wake_by_ref();
                    Poll::Pending
                }
            }
        }
    }

    async fn post_large(stream: Scripted, unsent_limit: usize) -> Result<Response<()>, Unanswered> {
        let (method, headers) = (&Method::POST, &HeaderMap::new());
        let head =
            RequestHead { method, target: &Uri::from_static("/mcp"), headers, host: &SERVER, shared: None };
        H1Connection::new(stream, unsent_limit).send(&head, vec![b'x'; 40_000].into()).await
    }

    #[tokio::test]
    async fn c05_a_request_that_tls_may_have_sent_in_part_counts_as_sent() {
        let broken =
            || Scripted { writes: vec![Err(io::ErrorKind::ConnectionReset.into())], reads: vec![Some(b"")] };
        assert!(post_large(broken(), usize::MAX).await.unwrap_err().is_unprocessed);
        assert!(!post_large(broken(), ONE_TLS_RECORD).await.unwrap_err().is_unprocessed);
    }

    #[tokio::test]
    async fn an_answer_that_arrives_after_a_failed_write_counts() {
        let answer: &[u8] = b"HTTP/1.1 413 Content Too Large\r\ncontent-length: 0\r\n\r\n";
        let stream = Scripted {
            writes: vec![Ok(10), Err(io::ErrorKind::BrokenPipe.into())],
            reads: vec![None, Some(answer)],
        };
        assert_eq!(post_large(stream, usize::MAX).await.unwrap().status(), 413);
        let stream = Scripted {
            writes: vec![Ok(10), Err(io::ErrorKind::BrokenPipe.into())],
            reads: vec![None, Some(b"")],
        };
        let failed = post_large(stream, usize::MAX).await.unwrap_err();
        assert!(matches!(failed.error, ConnectionError::Io(_)) && !failed.is_unprocessed);
    }

    #[tokio::test]
    async fn a_written_request_uses_no_memory_while_its_answer_is_awaited() {
        let (mut h1, mut theirs) = connected();
        theirs.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n").await.unwrap();
        post(&mut h1).await.unwrap();
        assert!(h1.body.is_empty() && !h1.head.is_empty());
        assert!(futures_util::poll!(pin!(poll_fn(|cx| h1.poll_data(cx)))).is_pending());
    }

    #[tokio::test]
    async fn a_head_is_written_again_unless_headers_and_address_are_the_same() {
        let client = HttpClient::new(
            &Url::parse("http://server/mcp").unwrap(),
            &[],
            HeaderMap::new(),
            TlsFiles::default(),
            None,
        );
        let client = client.unwrap();
        let address = |path: &str| client.address(Url::parse("http://server").unwrap().join(path).unwrap());
        let headers = |value| {
            let mut headers = HeaderMap::new();
            headers.insert("x", HeaderValue::from_static(value));
            Arc::new(headers)
        };
        let (first, second) = (headers("1"), headers("2"));
        let (mcp, other) = (address("/mcp").unwrap(), address("/other").unwrap());
        let (mut h1, mut theirs) = connected();
        for (headers, to, is_shared, body) in [
            (&first, &mcp, true, "{}"),
            (&first, &mcp, true, "[1, 2, 3, 4]"),
            (&second, &mcp, true, "{}"),
            (&second, &other, true, "{}"),
            (&first, &mcp, false, "{}"),
            (&first, &mcp, true, "{}"),
        ] {
            theirs.write_all(b"HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n").await.unwrap();
            let shared = SharedHead { headers: Arc::clone(headers), to: Arc::clone(to) };
            let (method, target, host) = (&Method::POST, &to.path, &to.host);
            let head = RequestHead { method, target, headers, host, shared: is_shared.then_some(shared) };
            h1.send(&head, Bytes::from(body)).await.unwrap();
            let expected = format!(
                "POST {target} HTTP/1.1\r\nhost: server\r\nx: {}\r\ncontent-length: {}\r\n\r\n{body}",
                headers["x"].to_str().unwrap(),
                body.len()
            );
            assert_eq!(received(&mut theirs).await, expected);
        }
    }

    #[tokio::test]
    async fn a_transfer_encoding_of_the_config_is_not_sent() {
        let (mut h1, mut theirs) = connected();
        theirs.write_all(b"HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n").await.unwrap();
        let mut headers = HeaderMap::new();
        headers.insert(TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
        headers.insert(CONTENT_LENGTH, HeaderValue::from_static("7"));
        let (method, target) = (&Method::POST, &Uri::from_static("/mcp"));
        let head = RequestHead { method, target, headers: &headers, host: &SERVER, shared: None };
        h1.send(&head, Bytes::from("{}")).await.unwrap();
        let sent = received(&mut theirs).await;
        assert_eq!(sent, "POST /mcp HTTP/1.1\r\nhost: server\r\ncontent-length: 2\r\n\r\n{}");
    }

    /// Status, headers and body of a response, as our connection reads it.
    async fn ours(pieces: &[&[u8]]) -> Option<(u16, HeaderMap, Vec<u8>)> {
        let (mut h1, mut theirs) = connected();
        let reading = async {
            let response = post(&mut h1).await.ok()?;
            let body = read(&mut h1).await.ok()?;
            Some((response.status().as_u16(), response.headers().clone(), body))
        };
        tokio::join!(reading, send(&mut theirs, pieces)).0
    }

    /// The same, as hyper reads it.
    async fn by_hyper(pieces: &[&[u8]]) -> Option<(u16, HeaderMap, Vec<u8>)> {
        let (ours, mut theirs) = duplex(1 << 20);
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(ours)).await.unwrap();
        let reading = async {
            let request = http::Request::post("/mcp").header("host", "server");
            let request = request.body(Full::new(Bytes::from("{}"))).unwrap();
            let (head, body) = sender.send_request(request).await.ok()?.into_parts();
            let body = body.collect().await.ok()?.to_bytes();
            Some((head.status.as_u16(), head.headers, body.to_vec()))
        };
        let serving = async { tokio::join!(connection, send(&mut theirs, pieces)) };
        tokio::join!(reading, serving).0
    }

    async fn send(theirs: &mut DuplexStream, pieces: &[&[u8]]) {
        received(theirs).await;
        for piece in pieces {
            // A peer that has seen enough may be gone.
            let _ = theirs.write_all(piece).await;
            tokio::task::yield_now().await;
        }
        let _ = theirs.shutdown().await;
    }

    /// Lines that matter for the framing of a response, valid and not.
    fn header_line() -> impl Strategy<Value = String> {
        let known = prop::sample::select(vec![
            "content-length: 3",
            "content-length: 3",
            "Content-Length: 12",
            "content-length: x",
            "content-length: 3,3",
            "transfer-encoding: chunked",
            "Transfer-Encoding: Chunked",
            "transfer-encoding: gzip",
            "transfer-encoding: gzip, chunked",
            "connection: close",
            "connection: keep-alive",
            "x: y",
            "x : y",
            "content-type: text/event-stream",
            " folded",
            "",
        ]);
        (known, prop::sample::select(vec!["\r\n", "\r\n", "\r\n", "\r\n", "\n", "\r"]))
            .prop_map(|(line, end)| format!("{line}{end}"))
    }

    fn response_text() -> impl Strategy<Value = String> {
        let status = prop::sample::select(vec![
            "HTTP/1.1 200 OK\r\n",
            "HTTP/1.1 200 OK\r\n",
            "HTTP/1.0 200 OK\r\n",
            "HTTP/1.1 204 No Content\r\n",
            "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n",
            "HTTP/1.1 404\r\n",
            "HTTP/2.0 200 OK\r\n",
            "HTTP/1.1 99 x\r\n",
        ]);
        let body = prop::collection::vec(
            prop::sample::select(vec![
                "3\r\nabc\r\n",
                "3\r\nabc\r\n",
                "3;x=y\r\nabc\r\n",
                "c\r\nabcdefghijkl\r\n",
                "0\r\n\r\n",
                "0\r\n\r\n",
                "0\r\nt: 1\r\n\r\n",
                "0\r\nt\r\n\r\n",
                "0\r\nt : 1\r\n\r\n",
                "abc",
                "3\nabc\r\n",
                "\r\n",
                "zz\r\n",
                "0",
            ]),
            0..5,
        );
        (status, prop::collection::vec(header_line(), 0..4), body)
            .prop_map(|(status, lines, body)| format!("{status}{}\r\n{}", lines.concat(), body.concat()))
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4096))]

        /// hyper's client is the reference: it was tested by many. Ours may refuse more, and never reads another response.
        #[test]
        fn a_response_is_read_as_hyper_reads_it_or_refused(text in response_text(), piece in 1_usize..60) {
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            let pieces: Vec<&[u8]> = text.as_bytes().chunks(piece).collect();
            let (ours, theirs) = runtime.block_on(async { (ours(&pieces).await, by_hyper(&pieces).await) });
            if let Some(ours) = ours {
                prop_assert_eq!(Some(ours), theirs);
            }
        }
    }
}
