//! Connection of a server: reads one request after another, has each answered by a service, and writes the responses. All
//! of it runs in one task.

mod head;
mod io;
mod request_body;
mod response_head;

pub use io::BodyError;
pub use request_body::RequestBody;

use bytes::Bytes;
use head::{HeadError, RequestHead};
use http::{Request, Response};
use http_body::Body;
use io::{ConnectionIo, Output};
use response_head::{BodyFraming, DateHeader, RequestFacts, ends_connection, write_head};
use std::future::poll_fn;
use std::io::Write as _;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::{Instant, Sleep, sleep, timeout};

/// Time for the end of a connection after its last response.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);
/// Maximum number of bytes that are discarded meanwhile.
const MAX_DISCARDED: usize = 256 << 10;

/// Limits of a connection.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Maximum size of the head of a request.
    pub head_size: usize,
    /// Time for the head of a request, counted from the end of the response before it.
    pub head_timeout: Duration,
    /// Time for a first request that is on its way when the connection is closed.
    pub last_request_timeout: Duration,
    /// Time since the Unix epoch, for the `Date` header.
    pub unix_time: fn() -> Duration,
}

/// Serves a connection until the client or a message closes it, a request is refused or not read to its end, or nothing
/// arrives in time. After `close`, the request in flight and one that has reached the socket are answered first. Dropping
/// the future closes the connection at once.
///
/// If the client closes the connection, the future of its request is dropped, unless unread bytes hide the end.
pub async fn serve<S, F, R, B>(stream: S, limits: &Limits, close: impl Future<Output = ()>, service: F)
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    F: Fn(Request<RequestBody>) -> R,
    R: Future<Output = Response<B>> + Unpin,
    B: Body<Data = Bytes> + Unpin,
{
    let mut connection = Connection {
        io: Arc::new(ConnectionIo::new(stream)),
        output: Output::default(),
        date: DateHeader::new(limits.unix_time),
    };
    let mut close = pin!(close);
    let mut head_timer = HeadTimer { sleep: pin!(sleep(limits.head_timeout)), due: Instant::now() };
    let mut phase = Phase::New;
    loop {
        head_timer.due = Instant::now() + limits.head_timeout;
        let head = tokio::select! {
            biased;
            () = &mut close, if phase != Phase::Closing => {
                let before = std::mem::replace(&mut phase, Phase::Closing);
                connection.last_head(before, limits).await
            }
            head = connection.head(limits) => head,
            () = poll_fn(|cx| head_timer.poll(cx)) => None,
        };
        let response_sent = match head {
            None => return connection.close(false).await,
            Some(Err(error)) => connection.refuse(error).await,
            Some(Ok((number, head))) => {
                phase = if phase == Phase::Closing { phase } else { Phase::Used };
                connection.answer(number, head, phase, &service).await
            }
        };
        match response_sent {
            Some(Next::Request) => {}
            Some(Next::Close) => return connection.close(true).await,
            None => return,
        }
    }
}

/// Phase of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// No request has arrived.
    New,
    Used,
    /// It closes after the next response.
    Closing,
}

/// Use of the connection after a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Next {
    Request,
    Close,
}

/// Timer that is set again only when it fires, because setting it for each request costs more than everything else in
/// waiting for a head.
struct HeadTimer<'a> {
    sleep: Pin<&'a mut Sleep>,
    due: Instant,
}

impl HeadTimer<'_> {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        while self.sleep.as_mut().poll(cx).is_ready() {
            if Instant::now() >= self.due {
                return Poll::Ready(());
            }
            self.sleep.as_mut().reset(self.due);
        }
        Poll::Pending
    }
}

struct Connection<S> {
    io: Arc<ConnectionIo<S>>,
    output: Output,
    date: DateHeader,
}

/// Next step of writing a response.
enum Step<D> {
    Data(D),
    /// The body has nothing yet, so the gathered output is written.
    Write,
    End,
    Failed,
}

impl<S: AsyncRead + AsyncWrite + Send + Unpin + 'static> Connection<S> {
    async fn head(&self, limits: &Limits) -> Option<Result<(u64, RequestHead), HeadError>> {
        poll_fn(|cx| self.io.poll_head(cx, limits.head_size)).await
    }

    /// Reads the head of a request that is on its way when the connection is closed.
    async fn last_head(
        &self,
        phase: Phase,
        limits: &Limits,
    ) -> Option<Result<(u64, RequestHead), HeadError>> {
        if phase == Phase::New {
            return timeout(limits.last_request_timeout, self.head(limits)).await.ok().flatten();
        }
        // The runtime looks for events before it continues this task, and reports a request that has reached the socket.
        tokio::task::yield_now().await;
        let mut head = pin!(self.head(limits));
        let arrived = poll_fn(|cx| Poll::Ready(head.as_mut().poll(cx))).await;
        match arrived {
            Poll::Ready(head) => head,
            Poll::Pending if self.io.has_received() => {
                timeout(limits.head_timeout, head).await.ok().flatten()
            }
            Poll::Pending => None,
        }
    }

    /// Has a request answered. `None` if the client is gone.
    async fn answer<R, B>(
        &mut self,
        number: u64,
        head: RequestHead,
        phase: Phase,
        service: impl Fn(Request<RequestBody>) -> R,
    ) -> Option<Next>
    where
        R: Future<Output = Response<B>> + Unpin,
        B: Body<Data = Bytes> + Unpin,
    {
        let facts = RequestFacts::of(head.request.method(), head.request.version());
        let io = Arc::downgrade(&self.io);
        let body = RequestBody::new(io, number);
        let response = {
            let mut answering = service(head.request.map(|()| body));
            let io = &*self.io;
            poll_fn(|cx| match Pin::new(&mut answering).poll(cx) {
                Poll::Ready(response) => Poll::Ready(Some(response)),
                Poll::Pending => io.poll_closed(cx).map(|()| None),
            })
            .await?
        };
        let is_read = poll_fn(|cx| Poll::Ready(self.io.end_request(cx))).await;
        let may_keep = is_read && head.keeps_connection && phase != Phase::Closing;
        self.respond(&facts, response, may_keep).await
    }

    /// Writes a response. `None` if the client is gone, or the body has failed.
    async fn respond<B: Body<Data = Bytes> + Unpin>(
        &mut self,
        request: &RequestFacts,
        response: Response<B>,
        may_keep: bool,
    ) -> Option<Next> {
        let (parts, mut body) = response.into_parts();
        let framing = BodyFraming::new(request, parts.status, &body.size_hint());
        let keeps = may_keep && framing != BodyFraming::UntilClose && !ends_connection(&parts.headers);
        write_head(&mut self.output.gathered, &parts, framing, keeps, &mut self.date);
        drop(parts);
        let mut left = match framing {
            BodyFraming::None | BodyFraming::Omitted => Some(0),
            BodyFraming::Length(length) => Some(length),
            BodyFraming::Chunked | BodyFraming::UntilClose => None,
        };
        while left != Some(0) {
            match self.next_step(&mut body).await? {
                Step::Write => self.write().await?,
                Step::Data(data) => {
                    if let Some(left) = &mut left {
                        *left = left.checked_sub(data.len() as u64)?;
                    }
                    let gathered = &mut self.output.gathered;
                    if framing == BodyFraming::Chunked {
                        drop(write!(gathered, "{:x}\r\n", data.len()));
                    }
                    if self.output.add(data) {
                        self.write().await?;
                    }
                    if framing == BodyFraming::Chunked {
                        self.output.gathered.extend_from_slice(b"\r\n");
                    }
                }
                // A body with a length has ended too early.
                Step::End if left.is_some() => return None,
                Step::End => break,
                // The client sees that the rest is missing, unless it speaks HTTP/1.0: then the end of the connection is the
                // only end of the body.
                Step::Failed => {
                    self.write().await?;
                    return None;
                }
            }
        }
        if framing == BodyFraming::Chunked {
            self.output.gathered.extend_from_slice(b"0\r\n\r\n");
        }
        // The body is released before the client can send its next request.
        drop(body);
        self.write().await?;
        self.io.shrink();
        self.output.shrink();
        Some(if keeps { Next::Request } else { Next::Close })
    }

    /// Waits for the next data of a body; `None` if the client closes the connection.
    async fn next_step<B: Body<Data = Bytes> + Unpin>(&mut self, body: &mut B) -> Option<Step<Bytes>> {
        let Self { io, output, .. } = self;
        poll_fn(|cx| {
            loop {
                let step = match Pin::new(&mut *body).poll_frame(cx) {
                    // Trailers are left out, and an empty chunk would be the last one.
                    Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                        Ok(data) if !data.is_empty() => Some(Step::Data(data)),
                        Ok(_) | Err(_) => continue,
                    },
                    Poll::Ready(Some(Err(_))) => Some(Step::Failed),
                    Poll::Ready(None) => Some(Step::End),
                    Poll::Pending if !output.is_empty() => Some(Step::Write),
                    Poll::Pending => {
                        output.shrink();
                        return io.poll_closed(cx).map(|()| None);
                    }
                };
                return Poll::Ready(step);
            }
        })
        .await
    }

    /// Closes the connection, after a response so that the client can read it.
    async fn close(self, has_responded: bool) {
        let ending = async {
            // The outcome only concerns this client.
            let _ = poll_fn(|cx| self.io.poll_shutdown(cx)).await;
            if has_responded && self.io.has_unread() {
                let mut left = MAX_DISCARDED;
                poll_fn(|cx| self.io.poll_discard(cx, &mut left)).await;
            }
        };
        let _ = timeout(CLOSE_TIMEOUT, ending).await;
    }

    async fn write(&mut self) -> Option<()> {
        let Self { io, output, .. } = self;
        if output.is_empty() {
            return Some(());
        }
        poll_fn(|cx| io.poll_write(cx, output)).await.ok()
    }

    /// Answers a request that is refused by its head alone.
    async fn refuse(&mut self, error: HeadError) -> Option<Next> {
        let mut response = Response::new(());
        *response.status_mut() = error.status();
        let (parts, ()) = response.into_parts();
        write_head(&mut self.output.gathered, &parts, BodyFraming::Length(0), false, &mut self.date);
        self.write().await?;
        Some(Next::Close)
    }
}

#[cfg(test)]
mod tests;
