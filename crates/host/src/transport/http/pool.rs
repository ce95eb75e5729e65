//! Connections to one upstream. Whoever has a request drives its connection: what the server says wakes the
//! caller and nobody in between. An idle connection is driven by nobody; whether it still holds is found out when
//! it is next wanted.

use super::client::Address;
use super::connect::{BoxError, Connector, Stream};
use crate::clock::Clock;
use bytes::Bytes;
use gripfast_core::time::Mono;
use http::header::HOST;
use http::{Request, Response};
use http_body::{Frame, SizeHint};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::client::legacy::connect::Connection as _;
use hyper_util::rt::TokioExecutor;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;
use tokio::task::unconstrained;

type Outgoing = Request<Full<Bytes>>;

/// The connections of one client. Cloning gives another handle to the same ones.
#[derive(Clone)]
pub(super) struct Pool {
    shared: Arc<Shared>,
}

struct Shared {
    connector: Connector,
    clock: Clock,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The one that was used last is at the end, and is used next.
    idle: Vec<Idle>,
    /// Those that carry many requests at a time, one for each origin at the most.
    shared: Vec<(Arc<str>, http2::SendRequest<Full<Bytes>>)>,
    /// Whether somebody looks after those that are idle for too long.
    is_swept: bool,
}

struct Idle {
    line: Box<Line>,
    since: Mono,
}

/// One connection that carries one request at a time.
struct Line {
    origin: Arc<str>,
    sender: http1::SendRequest<Full<Bytes>>,
    connection: http1::Connection<Stream, Full<Bytes>>,
    /// A proxy on the way wants to be told the whole address.
    forwarded: bool,
}

/// Why there is no answer.
pub(super) enum Failed {
    /// No connection could be made.
    Connecting(BoxError),
    /// There was one, and it broke.
    Talking(hyper::Error),
}

impl Pool {
    /// Those that may be idle at a time, beyond which they are closed.
    const MOST_IDLE: usize = 64;
    /// Shorter than what servers and load balancers usually grant, so that we close first.
    const IDLE_FOR: Duration = Duration::from_secs(50);

    pub(super) fn new(connector: Connector) -> Self {
        Self { shared: Arc::new(Shared { connector, clock: Clock::new(), state: Mutex::default() }) }
    }

    pub(super) fn connector(&self) -> &Connector {
        &self.shared.connector
    }

    /// Sends a request to `to`. Returns when the head of the answer is there.
    pub(super) async fn send(&self, to: &Address, mut request: Outgoing) -> Result<Response<Body>, Failed> {
        loop {
            if let Some(mut line) = self.shared.idle_line(&to.origin) {
                line.address(to, &mut request);
                match self.on_line(line, request).await {
                    // The server closed it before it saw anything of the request.
                    Err((_, Some(unsent))) => request = unsent,
                    Err((error, None)) => return Err(Failed::Talking(error)),
                    Ok(answer) => return Ok(answer),
                }
                continue;
            }
            let opened = match self.shared.shared_line(&to.origin) {
                Some(sender) => Opened::Shared(sender),
                None => Box::pin(self.open(to)).await?,
            };
            return match opened {
                Opened::Own(mut line) => {
                    line.address(to, &mut request);
                    self.on_line(line, request).await.map_err(|(error, _)| Failed::Talking(error))
                }
                Opened::Shared(mut sender) => {
                    *request.uri_mut() = to.uri.clone();
                    let answer = Box::pin(sender.send_request(request)).await.map_err(Failed::Talking)?;
                    Ok(answer.map(|incoming| Body { incoming: Some(incoming), carrier: None }))
                }
            };
        }
    }

    async fn on_line(
        &self,
        mut line: Box<Line>,
        request: Outgoing,
    ) -> Result<Response<Body>, (hyper::Error, Option<Outgoing>)> {
        // All that happens to the answer happens while the connection is driven, so it wakes nobody itself. It must
        // not ask for a pause either, since nobody would hear of its end.
        let mut answer = pin!(unconstrained(line.sender.try_send_request(request)));
        let answered = std::future::poll_fn(|cx| {
            let _ = line.drive(cx);
            answer.as_mut().poll(&mut Context::from_waker(Waker::noop()))
        });
        let answer = answered.await.map_err(|mut error| {
            let unsent = error.take_message();
            (error.into_error(), unsent)
        })?;
        let carrier = Some(Carrier { line, pool: Arc::downgrade(&self.shared) });
        Ok(answer.map(|incoming| Body { incoming: Some(incoming), carrier }))
    }

    async fn open(&self, to: &Address) -> Result<Opened, Failed> {
        let stream = self.shared.connector.connect(to.uri.clone()).await.map_err(Failed::Connecting)?;
        let facts = stream.connected();
        if facts.is_negotiated_h2() {
            let builder = http2::Builder::new(TokioExecutor::new());
            let (sender, connection) = builder.handshake(stream).await.map_err(Failed::Talking)?;
            tokio::spawn(async move {
                // Those who wait for an answer on it are told how it ended.
                let _ = connection.await;
            });
            self.shared.keep_shared(&to.origin, &sender);
            return Ok(Opened::Shared(sender));
        }
        let (sender, connection) = http1::handshake(stream).await.map_err(Failed::Talking)?;
        let (origin, forwarded) = (Arc::clone(&to.origin), facts.is_proxied());
        Ok(Opened::Own(Box::new(Line { origin, sender, connection, forwarded })))
    }
}

enum Opened {
    Own(Box<Line>),
    Shared(http2::SendRequest<Full<Bytes>>),
}

impl Line {
    fn drive(&mut self, cx: &mut Context<'_>) -> Poll<hyper::Result<()>> {
        Pin::new(&mut self.connection).poll(cx)
    }

    /// Whether it can carry a request now. Looking is enough to notice that the server has closed it.
    fn is_ready(&mut self) -> bool {
        let ended = self.drive(&mut Context::from_waker(Waker::noop())).is_ready();
        !ended && self.sender.is_ready()
    }

    /// Puts the address into a request as this connection wants it.
    fn address(&mut self, to: &Address, request: &mut Outgoing) {
        *request.uri_mut() = if self.forwarded { to.uri.clone() } else { to.path.clone() };
        request.headers_mut().entry(HOST).or_insert_with(|| to.host.clone());
    }
}

impl Shared {
    fn idle_line(&self, origin: &Arc<str>) -> Option<Box<Line>> {
        loop {
            let Idle { mut line, since } = {
                let mut state = self.lock();
                let at = state.idle.iter().rposition(|idle| idle.line.origin == *origin)?;
                state.idle.remove(at)
            };
            if self.clock.mono() - since < Pool::IDLE_FOR && line.is_ready() {
                return Some(line);
            }
        }
    }

    fn shared_line(&self, origin: &Arc<str>) -> Option<http2::SendRequest<Full<Bytes>>> {
        let mut state = self.lock();
        state.shared.retain(|(_, sender)| !sender.is_closed());
        state.shared.iter().find(|(known, _)| known == origin).map(|(_, sender)| sender.clone())
    }

    fn keep_shared(&self, origin: &Arc<str>, sender: &http2::SendRequest<Full<Bytes>>) {
        let mut state = self.lock();
        state.shared.retain(|(known, _)| known != origin);
        state.shared.push((Arc::clone(origin), sender.clone()));
    }

    fn keep(self: &Arc<Self>, line: Box<Line>) {
        let since = self.clock.mono();
        let mut state = self.lock();
        if state.idle.len() == Pool::MOST_IDLE {
            state.idle.remove(0);
        }
        state.idle.push(Idle { line, since });
        if !state.is_swept
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            state.is_swept = true;
            drop(state);
            runtime.spawn(sweep(Arc::downgrade(self), self.clock, since + Pool::IDLE_FOR));
        }
    }

    /// Closes what was idle for too long; answers with when to look again, if anything is left.
    fn close_old(&self) -> Option<Mono> {
        let now = self.clock.mono();
        let mut state = self.lock();
        state.idle.retain(|idle| now - idle.since < Pool::IDLE_FOR);
        let next = state.idle.iter().map(|idle| idle.since).min();
        state.is_swept = next.is_some();
        next.map(|since| since + Pool::IDLE_FOR)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Looks after idle connections for as long as there are any.
async fn sweep(pool: Weak<Shared>, clock: Clock, mut next: Mono) {
    loop {
        tokio::time::sleep_until(clock.instant(next)).await;
        match pool.upgrade().and_then(|pool| pool.close_old()) {
            Some(later) => next = later,
            None => return,
        }
    }
}

/// The body of an answer, and the connection that it comes on, which is free for others once it was read. Dropped
/// before its end, it takes the connection along, unless the rest of it was there already.
pub(crate) struct Body {
    incoming: Option<Incoming>,
    /// Of a connection that is ours alone.
    carrier: Option<Carrier>,
}

struct Carrier {
    line: Box<Line>,
    pool: Weak<Shared>,
}

impl Carrier {
    fn give_back(mut self) {
        if let Some(pool) = self.pool.upgrade()
            && self.line.is_ready()
        {
            pool.keep(self.line);
        }
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let Self { incoming: Some(incoming), carrier } = &mut *self else { return Poll::Ready(None) };
        let frame = match carrier {
            None => ready!(Pin::new(incoming).poll_frame(cx)),
            Some(carrier) => {
                // As with the head: it is the connection that wakes.
                let mut quietly = Context::from_waker(Waker::noop());
                match Pin::new(&mut *incoming).poll_frame(&mut quietly) {
                    Poll::Ready(frame) => frame,
                    Poll::Pending => {
                        let _ = carrier.line.drive(cx);
                        ready!(Pin::new(incoming).poll_frame(&mut quietly))
                    }
                }
            }
        };
        if frame.is_none() {
            self.incoming = None;
            if let Some(carrier) = self.carrier.take() {
                carrier.give_back();
            }
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.incoming.as_ref().is_none_or(http_body::Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.incoming.as_ref().map_or_else(|| SizeHint::with_exact(0), http_body::Body::size_hint)
    }
}

impl Drop for Body {
    fn drop(&mut self) {
        // The connection reads over the rest if it is there, and closes otherwise.
        self.incoming = None;
        if let Some(carrier) = self.carrier.take() {
            carrier.give_back();
        }
    }
}
