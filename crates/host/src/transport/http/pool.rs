//! Connections to one upstream. Whoever has a request drives its connection: what the server says wakes the
//! caller and nobody in between. An idle connection is driven by nobody; whether it still holds is found out when
//! it is next wanted. Connections that carry many requests at a time drive themselves.
//!
//! A request that a server provably did not begin with goes again on another connection. All others fail as they are.

use super::client::Address;
use super::connect::{BoxError, Connector, Stream};
use super::trunk::{self, Passenger, Trunk, Unanswered};
use crate::clock::Clock;
use crate::transport::{Safety, SentMark};
use bytes::Bytes;
use gripfast_core::time::Mono;
use http::header::HOST;
use http::{HeaderMap, HeaderName, Request, Response};
use http_body::{Frame, SizeHint};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::client::legacy::connect::Connection as _;
use std::io;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;
use tokio::task::unconstrained;

const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");

pub(super) type Outgoing = Request<Full<Bytes>>;

/// The connections of one client. Cloning gives another handle to the same ones.
#[derive(Clone)]
pub(super) struct Pool {
    shared: Arc<Shared>,
}

struct Shared {
    connector: Connector,
    clock: Clock,
    state: Mutex<State>,
    /// Whoever opens a connection that others wait to share.
    opening: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct State {
    /// The one that was used last is at the end, and is used next.
    idle: Vec<Idle>,
    /// Those that take further requests. One that is left finishes what it carries, and closes.
    trunks: Vec<Trunk>,
    /// Whether the last connection that was opened can be shared.
    shares: bool,
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
    /// For how long the server said that it keeps an idle connection, less a margin.
    kept_for: Option<Duration>,
}

/// A connection that can take a request.
enum Way {
    Own(Box<Line>),
    Among(Passenger),
}

/// Why there is no answer.
pub(super) enum Failed {
    /// No connection could be made.
    Connecting(BoxError),
    /// There was one, and it broke before the server has begun with the request.
    Unsent(hyper::Error),
    /// There was one, and the server has too many requests to begin with this one.
    Refused(hyper::Error),
    /// There was one, and it broke.
    Talking(hyper::Error),
}

impl Pool {
    /// Those that may be kept at a time, of each kind, beyond which they are closed.
    const MOST: usize = 64;
    /// Shorter than what servers and load balancers usually grant, so that we close first.
    const IDLE_FOR: Duration = Duration::from_secs(50);
    /// Node and uvicorn close after 5 s, the latter without a word. A request that may not be sent twice does not go on a
    /// connection that was idle for longer than this.
    const SURELY_KEPT_FOR: Duration = Duration::from_secs(4);
    /// A connection that takes longer to be ready, with proxy and TLS, is no connection.
    const OPEN_WITHIN: Duration = Duration::from_secs(20);

    pub(super) fn new(connector: Connector) -> Self {
        let (clock, state, opening) = (Clock::new(), Mutex::default(), tokio::sync::Mutex::default());
        Self { shared: Arc::new(Shared { connector, clock, state, opening }) }
    }

    pub(super) fn connector(&self) -> &Connector {
        &self.shared.connector
    }

    /// Sends a request to `to`. Returns when the head of the answer is there. The mark is set once there is a connection
    /// to send it on.
    pub(super) async fn send(
        &self,
        to: &Address,
        mut request: Outgoing,
        mark: Option<&SentMark>,
        safety: Safety,
    ) -> Result<Response<Body>, Failed> {
        loop {
            let (way, is_fresh) = match self.shared.way(&to.origin, safety) {
                Some(way) => (way, false),
                None => Box::pin(self.open(to, safety)).await?,
            };
            if let Some(mark) = mark {
                mark.set();
            }
            let answered = match way {
                Way::Own(line) => self.on_line(line, to, request).await,
                Way::Among(passenger) => Box::pin(self.among_others(passenger, to, request)).await,
            };
            match answered {
                Ok(answer) => return Ok(answer),
                // The connection had come to its end before the server saw, or looked at, anything of the request.
                Err((_, Some(unsent))) if !is_fresh => request = unsent,
                // Whoever does so to a new one does it to the next one too.
                Err((error, Some(_))) if trunk::is_refused(&error) => return Err(Failed::Refused(error)),
                Err((error, Some(_))) => return Err(Failed::Unsent(error)),
                Err((error, None)) => return Err(Failed::Talking(error)),
            }
        }
    }

    async fn on_line(
        &self,
        mut line: Box<Line>,
        to: &Address,
        mut request: Outgoing,
    ) -> Result<Response<Body>, Unanswered> {
        line.address(to, &mut request);
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
        line.kept_for = kept_for(answer.headers()).or(line.kept_for);
        let carrier = Carrier::Own { line, pool: Arc::downgrade(&self.shared) };
        Ok(answer.map(|incoming| Body { incoming: Some(incoming), carrier: Some(carrier), was_cut: false }))
    }

    async fn among_others(
        &self,
        mut passenger: Passenger,
        to: &Address,
        mut request: Outgoing,
    ) -> Result<Response<Body>, Unanswered> {
        *request.uri_mut() = to.uri.clone();
        let _doubt = Doubt::about(passenger.trunk(), &self.shared);
        let answer = passenger.send(request).await.inspect_err(|(_, unsent)| {
            // Whoever turns one away would turn away the next.
            if unsent.is_some() {
                self.shared.leave(passenger.trunk());
            }
        })?;
        let carrier = Some(Carrier::Among(passenger));
        Ok(answer.map(|incoming| Body { incoming: Some(incoming), carrier, was_cut: false }))
    }

    /// A connection that takes a request now, and whether it is a new one: somebody else may have opened one that can
    /// be shared.
    async fn open(&self, to: &Address, safety: Safety) -> Result<(Way, bool), Failed> {
        // After a farewell many want a new one at once, and one will do.
        let mut turn = match self.shared.expects_to_share(&to.origin) {
            true => Some(self.shared.opening.lock().await),
            false => None,
        };
        if turn.is_some()
            && let Some(way) = self.shared.way(&to.origin, safety)
        {
            return Ok((way, false));
        }
        // The one before could not be opened: nobody waits for this one too.
        turn.take_if(|_| !self.shared.expects_to_share(&to.origin));
        let connecting = self.shared.connector.connect(to.uri.clone());
        let connected = match tokio::time::timeout(Self::OPEN_WITHIN, connecting).await {
            Ok(stream) => stream.map_err(Failed::Connecting),
            Err(late) => Err(Failed::Connecting(io::Error::from(late).into())),
        };
        let stream = connected.inspect_err(|_| self.shared.lock().shares = false)?;
        let (facts, origin) = (stream.connected(), Arc::clone(&to.origin));
        if facts.is_negotiated_h2() {
            let opened = Trunk::over(stream, origin, self.shared.clock).await;
            let trunk = opened.map_err(Failed::Unsent)?;
            let passenger = trunk.take_on();
            self.shared.keep_trunk(trunk);
            return Ok((Way::Among(passenger), true));
        }
        self.shared.lock().shares = false;
        let (sender, connection) = http1::handshake(stream).await.map_err(Failed::Unsent)?;
        let line = Line { origin, sender, connection, forwarded: facts.is_proxied(), kept_for: None };
        Ok((Way::Own(Box::new(line)), true))
    }
}

/// Held while a request on a shared connection waits for its answer. Whoever stops waiting without a sign of life keeps
/// others from that connection: it may be dead.
struct Doubt<'a> {
    trunk: Trunk,
    signs: u64,
    pool: &'a Shared,
}

impl<'a> Doubt<'a> {
    fn about(trunk: &Trunk, pool: &'a Shared) -> Self {
        Self { trunk: trunk.clone(), signs: trunk.signs(), pool }
    }
}

impl Drop for Doubt<'_> {
    fn drop(&mut self) {
        if self.trunk.signs() == self.signs {
            self.pool.leave(&self.trunk);
        }
    }
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
    /// A connection to `origin` that is there and takes a request now.
    fn way(&self, origin: &Arc<str>, safety: Safety) -> Option<Way> {
        if let Some(line) = self.idle_line(origin, safety) {
            return Some(Way::Own(line));
        }
        let now = self.clock.mono();
        let mut state = self.lock();
        state.trunks.retain(|trunk| is_trusted(trunk, now));
        let mut there = state.trunks.iter().rev().filter(|trunk| trunk.leads_to(origin));
        there.find_map(Trunk::board).map(Way::Among)
    }

    fn idle_line(&self, origin: &Arc<str>, safety: Safety) -> Option<Box<Line>> {
        loop {
            let now = self.clock.mono();
            let mut idle = {
                let mut state = self.lock();
                let fits = |idle: &Idle| idle.line.origin == *origin && idle.is_fit_for(safety, now);
                let at = state.idle.iter().rposition(fits)?;
                state.idle.remove(at)
            };
            if idle.line.is_ready() {
                return Some(idle.line);
            }
        }
    }

    /// Whether the next connection to `origin` will do for many. If there is one that is full, it will not do for those
    /// who wait either.
    fn expects_to_share(&self, origin: &str) -> bool {
        let state = self.lock();
        state.shares && !state.trunks.iter().any(|trunk| trunk.leads_to(origin))
    }

    fn keep(self: &Arc<Self>, line: Box<Line>) {
        let since = self.clock.mono();
        let mut state = self.lock();
        if state.idle.len() == Pool::MOST {
            state.idle.remove(0);
        }
        state.idle.push(Idle { line, since });
        self.have_swept(state, since);
    }

    fn keep_trunk(self: &Arc<Self>, trunk: Trunk) {
        let since = trunk.heard();
        let mut state = self.lock();
        if state.trunks.len() == Pool::MOST {
            state.trunks.remove(0);
        }
        state.trunks.push(trunk);
        state.shares = true;
        self.have_swept(state, since);
    }

    /// Nobody gets onto this one any more.
    fn leave(&self, trunk: &Trunk) {
        self.lock().trunks.retain(|known| !known.is(trunk));
    }

    /// Has somebody look after what was kept at `since`.
    fn have_swept(self: &Arc<Self>, mut state: MutexGuard<'_, State>, since: Mono) {
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
        state.idle.retain(|idle| idle.is_fit_for(Safety::Replayable, now));
        state.trunks.retain(|trunk| is_trusted(trunk, now));
        let (idle, trunks) =
            (state.idle.iter().map(|idle| idle.since), state.trunks.iter().map(Trunk::heard));
        let next = idle.chain(trunks).min();
        state.is_swept = next.is_some();
        next.map(|since| since + Pool::IDLE_FOR)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Idle {
    /// Whether it may carry a request of this kind at this moment. The server closes a connection that is idle for too
    /// long, and nobody can tell whether it has begun with a request that was on its way then.
    fn is_fit_for(&self, safety: Safety, now: Mono) -> bool {
        let limit = match (self.line.kept_for, safety) {
            (Some(kept_for), _) => kept_for.min(Pool::IDLE_FOR),
            (None, Safety::AtMostOnce) => Pool::SURELY_KEPT_FOR,
            (None, Safety::Replayable) => Pool::IDLE_FOR,
        };
        now - self.since < limit
    }
}

/// For how long a server keeps an idle connection, as its `Keep-Alive` header says, less a margin for the way.
fn kept_for(headers: &HeaderMap) -> Option<Duration> {
    const LEAST_MARGIN: Duration = Duration::from_secs(1);
    let said = headers.get(KEEP_ALIVE)?.to_str().ok()?;
    let mut parameters = said.split(',').filter_map(|parameter| parameter.split_once('='));
    let (_, seconds) = parameters.find(|(name, _)| name.trim().eq_ignore_ascii_case("timeout"))?;
    let limit = Duration::from_secs(seconds.trim().trim_matches('"').parse().ok()?);
    Some(limit.saturating_sub(LEAST_MARGIN.max(limit / 5)))
}

/// Whether others may get onto a shared connection: nobody has hung up, and it was heard of lately.
fn is_trusted(trunk: &Trunk, now: Mono) -> bool {
    trunk.is_open() && now - trunk.heard() < Pool::IDLE_FOR
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
/// before its end, it takes the connection along, unless the rest of it was there already or others use it.
pub(crate) struct Body {
    incoming: Option<Incoming>,
    carrier: Option<Carrier>,
    /// Whether it ended before its end.
    was_cut: bool,
}

impl Body {
    /// Whether the server reset the stream before the answer was whole. HTTP/2 lets a reset with `NO_ERROR` follow a whole
    /// answer, so it looks like an end; before the end of the stream it is none.
    pub(super) fn was_cut(&self) -> bool {
        self.was_cut
    }
}

enum Carrier {
    /// A connection that is ours alone until then.
    Own {
        line: Box<Line>,
        pool: Weak<Shared>,
    },
    Among(Passenger),
}

impl Carrier {
    fn give_back(self) {
        match self {
            Self::Own { mut line, pool } => {
                if let Some(pool) = pool.upgrade()
                    && line.is_ready()
                {
                    pool.keep(line);
                }
            }
            Self::Among(passenger) => drop(passenger),
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
        let Self { incoming: Some(incoming), carrier, was_cut } = &mut *self else {
            return Poll::Ready(None);
        };
        let frame = match carrier {
            None => ready!(Pin::new(incoming).poll_frame(cx)),
            Some(Carrier::Among(passenger)) => {
                let frame = ready!(Pin::new(&mut *incoming).poll_frame(cx));
                match &frame {
                    Some(Ok(_)) => passenger.hears(),
                    Some(Err(_)) => {}
                    None => {
                        let is_whole = incoming.is_end_stream() || incoming.size_hint().exact() == Some(0);
                        *was_cut = !is_whole;
                    }
                }
                frame
            }
            Some(Carrier::Own { line, .. }) => {
                // As with the head: it is the connection that wakes.
                let mut quietly = Context::from_waker(Waker::noop());
                match Pin::new(&mut *incoming).poll_frame(&mut quietly) {
                    Poll::Ready(frame) => frame,
                    Poll::Pending => {
                        let _ = line.drive(cx);
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

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    #[test]
    fn c05_a_keep_alive_limit_is_honoured_with_a_margin() {
        let of = |said: &'static str| {
            kept_for(&HeaderMap::from_iter([(KEEP_ALIVE, HeaderValue::from_static(said))]))
        };
        assert_eq!(of("timeout=5"), Some(Duration::from_secs(4)));
        assert_eq!(of("max=100, Timeout = 75"), Some(Duration::from_secs(60)));
        assert_eq!(of("timeout=1"), Some(Duration::ZERO), "not used again");
        assert_eq!(of("timeout=0"), Some(Duration::ZERO));
        assert_eq!(of("max=100"), None);
        assert_eq!(of("timeout=soon"), None);
        assert_eq!(kept_for(&HeaderMap::new()), None);
    }
}
