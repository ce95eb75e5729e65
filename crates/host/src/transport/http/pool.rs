//! Connection pool of one upstream. Whether an idle HTTP/1 connection is still open is checked when it is next used.
//! HTTP/2 connections drive themselves.
//!
//! The answer to a request may come as an event before the end of its stream. The caller does not wait for the end; the
//! pool reads it when the connection is next needed.
//!
//! A request that a server provably has not begun to process is sent again on another connection, unless its connection was
//! new. All others fail.

use super::client::{Address, HttpRequest};
use super::connect::{BoxError, Connector, Stream};
use super::connection_error::{ConnectionError, Unanswered};
use super::h1_connection::{H1Connection, ONE_TLS_RECORD, Readiness, RequestHead, SharedHead};
use super::h2_connection::{H2Connection, H2Stream};
use crate::clock::Clock;
use crate::sync::Mutex;
use crate::transport::Safety;
use bytes::Bytes;
use gripfast_core::time::Mono;
use http::header::{CONTENT_LENGTH, HOST};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response};
use http_body::{Frame, SizeHint};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper_util::client::legacy::connect::Connection as _;
use hyper_util::rt::TokioIo;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, MutexGuard, Weak};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::sync::Notify;

const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");

/// Connections of one client. Cloning gives another handle to the same ones.
#[derive(Clone)]
pub(super) struct Pool {
    shared: Arc<Shared>,
}

struct Shared {
    connector: Connector,
    clock: Clock,
    state: Mutex<State>,
    /// Held while a connection is opened that others wait to share.
    opening: tokio::sync::Mutex<()>,
    /// Wakes the sweeper if a connection expires before [`State::next_sweep`].
    sweep_earlier: Arc<Notify>,
}

struct State {
    /// Largest number of kept connections of each kind; beyond it the oldest is closed.
    max_kept: usize,
    /// The connection used last is at the end, and is used next.
    idle: Vec<Idle>,
    /// Connections that take further requests. A retired one finishes its requests, and closes.
    h2: Vec<H2Connection>,
    /// True if the last opened connection can be shared.
    last_was_h2: bool,
    /// The time of the next sweep; `None` if no task closes connections that are idle for too long.
    next_sweep: Option<Mono>,
}

struct Idle {
    connection: Box<PooledH1>,
    since: Mono,
}

/// HTTP/1 connection, which carries one request at a time.
struct PooledH1 {
    origin: Arc<str>,
    connection: H1Connection<TokioIo<Stream>>,
    /// A forwarding proxy needs the whole URL.
    forwarded: bool,
    /// Time for which the server says that it keeps an idle connection, less a margin.
    keep_alive: Option<Duration>,
    /// Bytes that the pool still reads of an answered event stream before it gives the connection up. They come before
    /// the next response.
    rest: Option<usize>,
}

/// A connection that can take a request.
enum PooledConnection {
    H1(Box<PooledH1>),
    H2(H2Stream),
}

/// Reason why there is no response.
pub(super) enum PoolError {
    /// No connection could be opened.
    Connect(BoxError),
    /// The connection broke before the server had begun to process the request.
    Unsent(ConnectionError),
    /// The server has too many requests to begin with this one.
    Refused(ConnectionError),
    /// The connection broke, and the server may have processed the request.
    Broken(ConnectionError),
}

impl Pool {
    /// Number of kept connections of each kind, unless [`Self::keep_up_to`] sets another one.
    const DEFAULT_KEPT: usize = 64;
    /// Maximum idle time. Shorter than what servers and load balancers usually grant, so that we close first.
    const MAX_IDLE: Duration = Duration::from_secs(50);
    /// Maximum idle time of a connection for a request that must not be sent twice. Node and uvicorn close after 5 s,
    /// the latter without notice.
    const SAFE_IDLE: Duration = Duration::from_secs(4);
    /// Time limit and size limit for the rest of an answered event stream.
    const MAX_REST: (Duration, usize) = (Duration::from_secs(2), 64 << 10);
    /// Time limit for opening a connection, with proxy and TLS.
    const CONNECT_TIMEOUT: Duration = Duration::from_secs(20);

    pub(super) fn new(connector: Connector) -> Self {
        let state = State {
            max_kept: Self::DEFAULT_KEPT,
            idle: Vec::new(),
            h2: Vec::new(),
            last_was_h2: false,
            next_sweep: None,
        };
        Self {
            shared: Arc::new(Shared {
                connector,
                clock: Clock::new(),
                state: Mutex::new(state),
                opening: tokio::sync::Mutex::default(),
                sweep_earlier: Arc::default(),
            }),
        }
    }

    /// Keeps connections for this many concurrent requests.
    pub(super) fn keep_up_to(&self, connections: usize) {
        self.shared.state.lock().max_kept = connections;
    }

    pub(super) fn connector(&self) -> &Connector {
        &self.shared.connector
    }

    /// Sends a request with all its headers, except `Content-Length` and `Transfer-Encoding`, which follow from the body,
    /// and `Host`, which follows from the address unless the headers have one. Returns when the response head has arrived.
    pub(super) async fn send(
        &self,
        request: &HttpRequest,
        headers: &HeaderMap,
    ) -> Result<Response<Body>, PoolError> {
        loop {
            let (pooled, is_fresh) = match self.shared.reusable(&request.to.origin, request.safety) {
                Some(pooled) => (pooled, false),
                None => Box::pin(self.open(&request.to, request.safety)).await?,
            };
            if let Some(sent_flag) = &request.sent {
                sent_flag.set();
            }
            let answered = match pooled {
                PooledConnection::H1(h1) => self.send_h1(h1, request, headers).await,
                PooledConnection::H2(h2_stream) => Box::pin(self.send_h2(h2_stream, request, headers)).await,
            };
            match answered {
                Ok(answer) => return Ok(answer),
                // The connection had ended before the server saw, or processed, anything of the request.
                Err(Unanswered { is_unprocessed: true, .. }) if !is_fresh => {}
                // A server that refuses on a new connection refuses on the next one too.
                Err(Unanswered { error, is_unprocessed: true }) if error.is_refused() => {
                    return Err(PoolError::Refused(error));
                }
                Err(Unanswered { error, is_unprocessed: true }) => return Err(PoolError::Unsent(error)),
                Err(Unanswered { error, is_unprocessed: false }) => return Err(PoolError::Broken(error)),
            }
        }
    }

    async fn send_h1(
        &self,
        mut h1: Box<PooledH1>,
        request: &HttpRequest,
        headers: &HeaderMap,
    ) -> Result<Response<Body>, Unanswered> {
        let to = &*request.to;
        // Headers that were changed for this request have an owner of their own.
        let is_shared = std::ptr::eq(headers, &*request.headers) && request.method == Method::POST;
        let shared = || SharedHead { headers: Arc::clone(&request.headers), to: Arc::clone(&request.to) };
        let head = RequestHead {
            method: &request.method,
            target: if h1.forwarded { &to.uri } else { &to.path },
            headers,
            host: &to.host,
            shared: is_shared.then(shared),
        };
        let answer = h1.connection.send(&head, request.body.clone()).await?;
        h1.keep_alive = keep_alive_limit(answer.headers()).or(h1.keep_alive);
        let source = BodySource::H1 { connection: h1, pool: Arc::downgrade(&self.shared) };
        Ok(answer.map(|()| Body { source: Some(source), was_cut: false }))
    }

    async fn send_h2(
        &self,
        mut h2_stream: H2Stream,
        request: &HttpRequest,
        headers: &HeaderMap,
    ) -> Result<Response<Body>, Unanswered> {
        let to = &*request.to;
        let mut h2_request = Request::new(Full::new(request.body.clone()));
        *h2_request.method_mut() = request.method.clone();
        *h2_request.uri_mut() = to.uri.clone();
        let h2_headers = h2_request.headers_mut();
        h2_headers.clone_from(headers);
        if !request.body.is_empty() {
            h2_headers.insert(CONTENT_LENGTH, HeaderValue::from(request.body.len()));
        }
        // HTTP/2 has the host in the target.
        if h2_headers.get(HOST) == Some(&to.host) {
            h2_headers.remove(HOST);
        }
        let _doubt = ConnectionDoubt::new(h2_stream.connection(), &self.shared);
        let answer = h2_stream.send(h2_request).await.inspect_err(|failed| {
            // A server that refuses one request would refuse the next.
            if failed.is_unprocessed {
                self.shared.retire_h2(h2_stream.connection());
            }
        })?;
        Ok(answer.map(|incoming| Body {
            source: Some(BodySource::H2 { incoming, stream: h2_stream }),
            was_cut: false,
        }))
    }

    /// Returns a connection that takes a request now, and whether it is new: another request may have opened one that
    /// can be shared.
    async fn open(&self, to: &Address, safety: Safety) -> Result<(PooledConnection, bool), PoolError> {
        // After a GOAWAY many requests need a new connection at once, and one suffices.
        let mut turn = match self.shared.expects_h2(&to.origin) {
            true => Some(self.shared.opening.lock().await),
            false => None,
        };
        if turn.is_some()
            && let Some(pooled) = self.shared.reusable(&to.origin, safety)
        {
            return Ok((pooled, false));
        }
        // The attempt before has failed: no request waits for this one too.
        turn.take_if(|_| !self.shared.expects_h2(&to.origin));
        let connecting = self.shared.connector.connect(to.uri.clone());
        let connected = match tokio::time::timeout(Self::CONNECT_TIMEOUT, connecting).await {
            Ok(stream) => stream.map_err(PoolError::Connect),
            Err(late) => Err(PoolError::Connect(io::Error::from(late).into())),
        };
        let stream = connected.inspect_err(|_| self.shared.state.lock().last_was_h2 = false)?;
        let (facts, origin) = (stream.connected(), Arc::clone(&to.origin));
        if facts.is_negotiated_h2() {
            let opened = H2Connection::handshake(stream, origin, self.shared.clock).await;
            let h2 = opened.map_err(|error| PoolError::Unsent(ConnectionError::H2(error)))?;
            let h2_stream = h2.reserve_stream();
            self.shared.keep_h2(h2);
            return Ok((PooledConnection::H2(h2_stream), true));
        }
        self.shared.state.lock().last_was_h2 = false;
        let unsent_limit = if stream.is_encrypted() { ONE_TLS_RECORD } else { usize::MAX };
        let connection = H1Connection::new(TokioIo::new(stream), unsent_limit);
        let h1 = PooledH1 { origin, connection, forwarded: facts.is_proxied(), keep_alive: None, rest: None };
        Ok((PooledConnection::H1(Box::new(h1)), true))
    }
}

/// Held while a request on a shared connection waits for its response. If it is dropped without any activity, the
/// connection is retired: it may be dead.
struct ConnectionDoubt<'a> {
    connection: H2Connection,
    activity_before: u64,
    pool: &'a Shared,
}

impl<'a> ConnectionDoubt<'a> {
    fn new(h2: &H2Connection, pool: &'a Shared) -> Self {
        Self { connection: h2.clone(), activity_before: h2.activity_count(), pool }
    }
}

impl Drop for ConnectionDoubt<'_> {
    fn drop(&mut self) {
        if self.connection.activity_count() == self.activity_before {
            self.pool.retire_h2(&self.connection);
        }
    }
}

impl PooledH1 {
    /// Reads what has arrived of an answered stream, and returns whether the connection can carry a request now.
    fn readiness(&mut self) -> Readiness {
        let mut bytes_left = self.rest.take().unwrap_or(Pool::MAX_REST.1);
        let readiness = self.connection.readiness(&mut bytes_left);
        if readiness == Readiness::Unfinished {
            self.rest = Some(bytes_left);
        }
        readiness
    }
}

impl Shared {
    /// Returns a pooled connection to `origin` that takes a request now.
    fn reusable(&self, origin: &Arc<str>, safety: Safety) -> Option<PooledConnection> {
        if let Some(h1) = self.idle_h1(origin, safety) {
            return Some(PooledConnection::H1(h1));
        }
        let now = self.clock.mono();
        let mut state = self.state.lock();
        state.h2.retain(|h2| is_usable(h2, now));
        let mut there = state.h2.iter().rev().filter(|h2| h2.is_for(origin));
        there.find_map(H2Connection::try_reserve_stream).map(PooledConnection::H2)
    }

    fn idle_h1(&self, origin: &Arc<str>, safety: Safety) -> Option<Box<PooledH1>> {
        let mut unfinished = Vec::new();
        let found = loop {
            let Some(mut idle) = self.take_idle(origin, safety) else { break None };
            match idle.connection.readiness() {
                Readiness::Ready => break Some(idle.connection),
                Readiness::Unfinished => unfinished.push(idle),
                Readiness::Closed => {}
            }
        };
        if !unfinished.is_empty() {
            let mut state = self.state.lock();
            unfinished.into_iter().rev().for_each(|idle| state.keep(idle));
        }
        found
    }

    /// Takes the connection to `origin` that was used last and fits.
    fn take_idle(&self, origin: &Arc<str>, safety: Safety) -> Option<Idle> {
        let now = self.clock.mono();
        let mut state = self.state.lock();
        let fits = |idle: &Idle| idle.connection.origin == *origin && idle.is_fit_for(safety, now);
        let at = state.idle.iter().rposition(fits)?;
        Some(state.idle.remove(at))
    }

    /// Returns whether the next connection to `origin` will be shared by many requests. If there is a full one, another
    /// one would not suffice for all that wait.
    fn expects_h2(&self, origin: &str) -> bool {
        let state = self.state.lock();
        state.last_was_h2 && !state.h2.iter().any(|h2| h2.is_for(origin))
    }

    fn keep_h1(self: &Arc<Self>, mut h1: Box<PooledH1>) {
        h1.connection.shrink();
        let idle = Idle { connection: h1, since: self.clock.mono() };
        let expiry = idle.expiry();
        let mut state = self.state.lock();
        state.keep(idle);
        self.ensure_sweep(state, expiry);
    }

    fn keep_h2(self: &Arc<Self>, h2: H2Connection) {
        let expiry = h2.last_activity() + Pool::MAX_IDLE;
        let mut state = self.state.lock();
        if state.h2.len() >= state.max_kept {
            state.h2.remove(0);
        }
        state.h2.push(h2);
        state.last_was_h2 = true;
        self.ensure_sweep(state, expiry);
    }

    /// Removes a connection from the pool, so that it takes no further requests.
    fn retire_h2(&self, h2: &H2Connection) {
        self.state.lock().h2.retain(|known| !known.is_same(h2));
    }

    /// Ensures that a task closes the connections that have expired at `expiry`.
    fn ensure_sweep(self: &Arc<Self>, mut state: MutexGuard<'_, State>, expiry: Mono) {
        match state.next_sweep {
            Some(next) if next <= expiry => {}
            Some(_) => {
                state.next_sweep = Some(expiry);
                self.sweep_earlier.notify_one();
            }
            None => {
                let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
                state.next_sweep = Some(expiry);
                drop(state);
                let sweep_earlier = Arc::clone(&self.sweep_earlier);
                runtime.spawn(sweep(Arc::downgrade(self), self.clock, sweep_earlier, expiry));
            }
        }
    }

    /// Closes expired connections. Returns when to check again, if any are left.
    fn close_expired(&self) -> Option<Mono> {
        let now = self.clock.mono();
        let mut state = self.state.lock();
        state.idle.retain(|idle| now < idle.expiry());
        state.h2.retain(|h2| is_usable(h2, now));
        let h2 = state.h2.iter().map(|h2| h2.last_activity() + Pool::MAX_IDLE);
        state.next_sweep = state.idle.iter().map(Idle::expiry).chain(h2).min();
        state.next_sweep
    }
}

impl State {
    /// Keeps a connection. If there are too many, the one that was kept first is closed.
    fn keep(&mut self, idle: Idle) {
        if self.idle.len() >= self.max_kept {
            self.idle.remove(0);
        }
        self.idle.push(idle);
    }
}

impl Idle {
    /// Returns the time at which it is closed.
    fn expiry(&self) -> Mono {
        self.since + self.limit_for(Safety::Replayable)
    }

    /// Returns whether it may carry a request of this kind now. The server closes a connection that is idle for too
    /// long, and the outcome of a request sent at that moment is unknown.
    fn is_fit_for(&self, safety: Safety, now: Mono) -> bool {
        now - self.since < self.limit_for(safety)
    }

    fn limit_for(&self, safety: Safety) -> Duration {
        match (&self.connection.rest, self.connection.keep_alive, safety) {
            (Some(_), ..) => Pool::MAX_REST.0,
            (None, Some(kept_for), _) => kept_for.min(Pool::MAX_IDLE),
            (None, None, Safety::AtMostOnce) => Pool::SAFE_IDLE,
            (None, None, Safety::Replayable) => Pool::MAX_IDLE,
        }
    }
}

/// Returns the time for which a server keeps an idle connection by its `Keep-Alive` header, less a margin for latency.
fn keep_alive_limit(headers: &HeaderMap) -> Option<Duration> {
    const LEAST_MARGIN: Duration = Duration::from_secs(1);
    let said = headers.get(KEEP_ALIVE)?.to_str().ok()?;
    let mut parameters = said.split(',').filter_map(|parameter| parameter.split_once('='));
    let (_, seconds) = parameters.find(|(name, _)| name.trim().eq_ignore_ascii_case("timeout"))?;
    let limit = Duration::from_secs(seconds.trim().trim_matches('"').parse().ok()?);
    Some(limit.saturating_sub(LEAST_MARGIN.max(limit / 5)))
}

/// Returns whether a shared connection may take further requests: it is open, and had recent activity.
fn is_usable(h2: &H2Connection, now: Mono) -> bool {
    h2.is_open() && now - h2.last_activity() < Pool::MAX_IDLE
}

/// Closes idle connections for as long as there are any.
async fn sweep(pool: Weak<Shared>, clock: Clock, sweep_earlier: Arc<Notify>, mut next: Mono) {
    loop {
        tokio::select! {
            () = tokio::time::sleep_until(clock.instant(next)) => {}
            () = sweep_earlier.notified() => {}
        }
        match pool.upgrade().and_then(|pool| pool.close_expired()) {
            Some(later) => next = later,
            None => return,
        }
    }
}

/// Body of a response, with the connection that it comes on, which returns to the pool once the body was read. Dropped
/// before its end, it closes the connection, unless the rest has already arrived or other requests share it.
pub(crate) struct Body {
    /// `None` after the end of the body.
    source: Option<BodySource>,
    /// True if the stream was reset before its end.
    was_cut: bool,
}

enum BodySource {
    /// A connection that this body has to itself.
    H1 {
        connection: Box<PooledH1>,
        pool: Weak<Shared>,
    },
    H2 {
        incoming: Incoming,
        stream: H2Stream,
    },
}

impl Body {
    /// Returns whether the server reset the stream before the response was complete. HTTP/2 lets a reset with
    /// `NO_ERROR` follow a complete response, so it looks like an end; before the end of the stream it is none.
    pub(super) fn was_cut(&self) -> bool {
        self.was_cut
    }

    /// Leaves the rest of a stream whose answer has arrived to the pool, which keeps the connection.
    pub(super) fn leave_rest(mut self) {
        if let Some(BodySource::H1 { connection, .. }) = &mut self.source {
            connection.rest = Some(Pool::MAX_REST.1);
        }
    }
}

impl BodySource {
    /// Gives the connection back to its pool. After a finished body the pool checks it when it is next needed; after
    /// any other one it is checked, and perhaps closed, at once.
    fn release(self, is_finished: bool) {
        let Self::H1 { connection: mut h1, pool } = self else { return };
        let is_kept = h1.connection.stays_open()
            && (is_finished
                || match (h1.rest, h1.readiness()) {
                    (_, Readiness::Ready) | (Some(_), Readiness::Unfinished) => true,
                    // The server would go on with an answer that no one reads.
                    (None, Readiness::Unfinished) | (_, Readiness::Closed) => false,
                });
        if let Some(pool) = pool.upgrade()
            && is_kept
        {
            pool.keep_h1(h1);
        }
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = ConnectionError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, ConnectionError>>> {
        let Self { source: Some(source), was_cut } = &mut *self else { return Poll::Ready(None) };
        let frame = match source {
            BodySource::H1 { connection: h1, .. } => {
                let data = ready!(h1.connection.poll_data(cx));
                data.map(|data| data.map(Frame::data))
            }
            BodySource::H2 { incoming, stream } => {
                let frame = ready!(Pin::new(&mut *incoming).poll_frame(cx));
                match &frame {
                    Some(Ok(_)) => stream.note_activity(),
                    Some(Err(_)) => {}
                    None => {
                        let is_whole = incoming.is_end_stream() || incoming.size_hint().exact() == Some(0);
                        *was_cut = !is_whole;
                    }
                }
                frame.map(|frame| frame.map_err(ConnectionError::H2))
            }
        };
        if frame.is_none()
            && let Some(source) = self.source.take()
        {
            source.release(true);
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        match &self.source {
            None => true,
            Some(BodySource::H1 { connection: h1, .. }) => h1.connection.remaining_bytes() == Some(0),
            Some(BodySource::H2 { incoming, .. }) => incoming.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.source {
            None => SizeHint::with_exact(0),
            Some(BodySource::H1 { connection: h1, .. }) => {
                h1.connection.remaining_bytes().map_or_else(SizeHint::default, SizeHint::with_exact)
            }
            Some(BodySource::H2 { incoming, .. }) => incoming.size_hint(),
        }
    }
}

impl Drop for Body {
    fn drop(&mut self) {
        // The connection skips the rest if it has arrived, and closes otherwise.
        if let Some(source) = self.source.take() {
            source.release(false);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c05_a_keep_alive_limit_is_honoured_with_a_margin() {
        let of = |said: &'static str| {
            keep_alive_limit(&HeaderMap::from_iter([(KEEP_ALIVE, HeaderValue::from_static(said))]))
        };
        assert_eq!(of("timeout=5"), Some(Duration::from_secs(4)));
        assert_eq!(of("max=100, Timeout = 75"), Some(Duration::from_secs(60)));
        assert_eq!(of("timeout=1"), Some(Duration::ZERO), "not used again");
        assert_eq!(of("timeout=0"), Some(Duration::ZERO));
        assert_eq!(of("max=100"), None);
        assert_eq!(of("timeout=soon"), None);
        assert_eq!(keep_alive_limit(&HeaderMap::new()), None);
    }
}
