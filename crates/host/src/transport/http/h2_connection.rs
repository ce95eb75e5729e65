//! HTTP/2 connection, which carries many requests at a time. A task of its own drives it until the last handle is
//! dropped and all responses have arrived.
//!
//! It is not pinged: a busy server leaves a ping unanswered too, and its calls must not be cut for it. Calls have
//! deadlines of their own. Instead, new requests avoid a connection that may be dead: all received data counts as
//! activity, and a connection without activity is retired.

use super::connect::Stream;
use super::connection_error::{ConnectionError, Unanswered};
use crate::clock::Clock;
use crate::sync::Mutex;
use bytes::Bytes;
use gripfast_core::time::Mono;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::client::conn::http2;
use hyper_util::rt::TokioExecutor;
use std::error::Error as _;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

/// One HTTP/2 connection. Cloning gives another handle to the same one.
#[derive(Clone)]
pub(super) struct H2Connection {
    sender: http2::SendRequest<Full<Bytes>>,
    traffic: Arc<Traffic>,
}

struct Traffic {
    origin: Arc<str>,
    clock: Clock,
    /// `None` once it has ended, because it holds the senders that callers wait for.
    connection: Mutex<Option<Connection>>,
    load: Mutex<Load>,
}

type Connection = http2::Connection<Stream, Full<Bytes>, TokioExecutor>;

struct Load {
    /// Requests whose responses have not been read to the end.
    active_streams: usize,
    /// Number of signs of activity, and the time of the last one.
    activity_count: u64,
    last_activity: Mono,
}

impl H2Connection {
    /// Performs the HTTP/2 handshake on a connection that has negotiated it.
    pub(super) async fn handshake(stream: Stream, origin: Arc<str>, clock: Clock) -> hyper::Result<Self> {
        let (sender, connection) = http2::Builder::new(TokioExecutor::new()).handshake(stream).await?;
        let load = Load { active_streams: 0, activity_count: 0, last_activity: clock.mono() };
        let connection = Mutex::new(Some(connection));
        let traffic = Arc::new(Traffic { origin, clock, connection, load: Mutex::new(load) });
        tokio::spawn(drive(Arc::clone(&traffic)));
        Ok(Self { sender, traffic })
    }

    pub(super) fn is_for(&self, origin: &str) -> bool {
        *self.traffic.origin == *origin
    }

    /// Returns whether it is open as far as is known.
    pub(super) fn is_open(&self) -> bool {
        !self.sender.is_closed()
    }

    /// Returns the time of the last activity.
    pub(super) fn last_activity(&self) -> Mono {
        self.traffic.load.lock().last_activity
    }

    /// Returns the number of signs of activity.
    pub(super) fn activity_count(&self) -> u64 {
        self.traffic.load.lock().activity_count
    }

    /// Reserves a stream, unless the server's limit is reached.
    pub(super) fn try_reserve_stream(&self) -> Option<H2Stream> {
        let limit = self.traffic.connection.lock().as_ref()?.current_max_send_streams();
        let has_room = self.traffic.load.lock().active_streams < limit;
        has_room.then(|| self.reserve_stream())
    }

    /// Reserves a stream. Beyond the server's limit the request waits, or is refused.
    pub(super) fn reserve_stream(&self) -> H2Stream {
        self.traffic.load.lock().active_streams += 1;
        H2Stream { connection: self.clone() }
    }

    pub(super) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.traffic, &other.traffic)
    }
}

async fn drive(traffic: Arc<Traffic>) {
    std::future::poll_fn(|cx| {
        let mut connection = traffic.connection.lock();
        let ended = connection.as_mut().is_none_or(|connection| Pin::new(connection).poll(cx).is_ready());
        if ended {
            // Requests that wait for a response on it then fail with its error.
            *connection = None;
            return Poll::Ready(());
        }
        Poll::Pending
    })
    .await;
}

/// One request on a connection, until its response was read or is no longer wanted.
pub(super) struct H2Stream {
    connection: H2Connection,
}

impl H2Stream {
    /// Sends the request, and returns when the response head has arrived. Dropping the future cancels this request and
    /// leaves the others alone.
    pub(super) async fn send(
        &mut self,
        request: Request<Full<Bytes>>,
    ) -> Result<Response<Incoming>, Unanswered> {
        match self.connection.sender.try_send_request(request).await {
            Ok(answer) => {
                self.note_activity();
                Ok(answer)
            }
            Err(mut failed) => {
                let is_unsent = failed.take_message().is_some();
                let error = failed.into_error();
                let is_unprocessed = is_unsent || is_unprocessed(&error);
                Err(Unanswered { error: ConnectionError::H2(error), is_unprocessed })
            }
        }
    }

    /// Notes that something came from the server.
    pub(super) fn note_activity(&self) {
        let traffic = &self.connection.traffic;
        let now = traffic.clock.mono();
        let mut load = traffic.load.lock();
        load.activity_count += 1;
        load.last_activity = now;
    }

    pub(super) fn connection(&self) -> &H2Connection {
        &self.connection
    }
}

impl Drop for H2Stream {
    fn drop(&mut self) {
        self.connection.traffic.load.lock().active_streams -= 1;
    }
}

/// Returns whether the server itself states that it has not processed a request: by a GOAWAY that names an earlier one
/// as the last, or by refusing the stream (RFC 9113, 8.7).
fn is_unprocessed(error: &hyper::Error) -> bool {
    let by_go_away = h2_cause(error).is_some_and(|cause| cause.is_remote() && cause.is_go_away());
    by_go_away || is_refused(error)
}

/// Returns whether the server refused to begin with a request because it has too many.
pub(super) fn is_refused(error: &hyper::Error) -> bool {
    h2_cause(error).is_some_and(|cause| {
        cause.is_remote() && cause.is_reset() && cause.reason() == Some(h2::Reason::REFUSED_STREAM)
    })
}

fn h2_cause(error: &hyper::Error) -> Option<&h2::Error> {
    error.source()?.downcast_ref()
}
