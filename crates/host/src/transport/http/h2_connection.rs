//! A connection that carries many requests at a time, as HTTP/2 has them. A task of its own drives it, until nobody
//! holds it any more and all that it carries has arrived.
//!
//! It is not pinged: a server whose hands are full leaves a ping unanswered too, and its calls are not to be cut for
//! it. Calls have deadlines of their own. What matters is that nobody else gets onto a connection that may be dead, so
//! everything that is heard on it counts as a sign of life, and without one it is left.

use super::connect::Stream;
use super::pool::Outgoing;
use crate::clock::Clock;
use bytes::Bytes;
use gripfast_core::time::Mono;
use http::Response;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::client::conn::http2;
use hyper_util::rt::TokioExecutor;
use std::error::Error as _;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;

/// One such connection. Cloning gives another handle to the same one.
#[derive(Clone)]
pub(super) struct Trunk {
    sender: http2::SendRequest<Full<Bytes>>,
    traffic: Arc<Traffic>,
}

struct Traffic {
    origin: Arc<str>,
    clock: Clock,
    /// `None` once it has ended, for it holds those who would wait for it.
    connection: Mutex<Option<Connection>>,
    load: Mutex<Load>,
}

type Connection = http2::Connection<Stream, Full<Bytes>, TokioExecutor>;

struct Load {
    /// Requests whose answers have not been read to the end.
    under_way: usize,
    /// How many signs of life there were, and when the last one was.
    signs: u64,
    heard: Mono,
}

impl Trunk {
    /// Begins to speak HTTP/2 on a connection that agreed to it.
    pub(super) async fn over(stream: Stream, origin: Arc<str>, clock: Clock) -> hyper::Result<Self> {
        let (sender, connection) = http2::Builder::new(TokioExecutor::new()).handshake(stream).await?;
        let load = Load { under_way: 0, signs: 0, heard: clock.mono() };
        let connection = Mutex::new(Some(connection));
        let traffic = Arc::new(Traffic { origin, clock, connection, load: Mutex::new(load) });
        tokio::spawn(drive(Arc::clone(&traffic)));
        Ok(Self { sender, traffic })
    }

    pub(super) fn leads_to(&self, origin: &str) -> bool {
        *self.traffic.origin == *origin
    }

    /// Whether it is open as far as we know.
    pub(super) fn is_open(&self) -> bool {
        !self.sender.is_closed()
    }

    /// When it last showed that it is alive.
    pub(super) fn heard(&self) -> Mono {
        self.traffic.load().heard
    }

    /// How many signs of life there were.
    pub(super) fn signs(&self) -> u64 {
        self.traffic.load().signs
    }

    /// Takes another request on, unless it has as many as the server wants at a time.
    pub(super) fn board(&self) -> Option<Passenger> {
        let most = locked(&self.traffic.connection).as_ref()?.current_max_send_streams();
        let has_room = self.traffic.load().under_way < most;
        has_room.then(|| self.take_on())
    }

    /// Takes another request on. What the server cannot take at once waits, or is refused.
    pub(super) fn take_on(&self) -> Passenger {
        self.traffic.load().under_way += 1;
        Passenger { trunk: self.clone() }
    }

    pub(super) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.traffic, &other.traffic)
    }
}

impl Traffic {
    fn load(&self) -> MutexGuard<'_, Load> {
        locked(&self.load)
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn drive(traffic: Arc<Traffic>) {
    std::future::poll_fn(|cx| {
        let mut connection = locked(&traffic.connection);
        let ended = connection.as_mut().is_none_or(|connection| Pin::new(connection).poll(cx).is_ready());
        if ended {
            // Those who wait for an answer on it are told how it ended.
            *connection = None;
            return Poll::Ready(());
        }
        Poll::Pending
    })
    .await;
}

/// One request on a trunk, until its answer was read or nobody wants it any more.
pub(super) struct Passenger {
    trunk: Trunk,
}

/// A request without an answer, and the request itself if the server has not begun with it.
pub(super) type Unanswered = (hyper::Error, Option<Outgoing>);

impl Passenger {
    /// Sends the request, and returns when the head of the answer is there. Dropping the future withdraws the request
    /// and leaves the others alone.
    pub(super) async fn send(&mut self, request: Outgoing) -> Result<Response<Incoming>, Unanswered> {
        let again = request.clone();
        match self.trunk.sender.try_send_request(request).await {
            Ok(answer) => {
                self.hears();
                Ok(answer)
            }
            Err(mut failed) => match failed.take_message() {
                Some(unsent) => Err((failed.into_error(), Some(unsent))),
                None => {
                    let error = failed.into_error();
                    let untouched = is_untouched(&error);
                    Err((error, untouched.then_some(again)))
                }
            },
        }
    }

    /// Something came from the server.
    pub(super) fn hears(&self) {
        let traffic = &self.trunk.traffic;
        let now = traffic.clock.mono();
        let mut load = traffic.load();
        load.signs += 1;
        load.heard = now;
    }

    pub(super) fn trunk(&self) -> &Trunk {
        &self.trunk
    }
}

impl Drop for Passenger {
    fn drop(&mut self) {
        self.trunk.traffic.load().under_way -= 1;
    }
}

/// Whether the server itself says that it has done nothing about a request: by a farewell that names an earlier one as
/// the last that it has looked at, or by refusing to begin (RFC 9113, 8.7).
fn is_untouched(error: &hyper::Error) -> bool {
    let by_farewell = cause_of(error).is_some_and(|cause| cause.is_remote() && cause.is_go_away());
    by_farewell || is_refused(error)
}

/// Whether the server refused to begin with a request: it has too many.
pub(super) fn is_refused(error: &hyper::Error) -> bool {
    cause_of(error).is_some_and(|cause| {
        cause.is_remote() && cause.is_reset() && cause.reason() == Some(h2::Reason::REFUSED_STREAM)
    })
}

fn cause_of(error: &hyper::Error) -> Option<&h2::Error> {
    error.source()?.downcast_ref()
}
