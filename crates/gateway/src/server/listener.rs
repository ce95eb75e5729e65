//! Accepts connections while there is room, serves them, and closes them in order at the end. A connection whose client
//! has not authenticated has a few seconds for the head of a request, and makes room for new ones; a known client that
//! is slow to send or to read costs a connection for a minute. Where TLS is spoken, a handshake comes first.

use crate::client_count::ClientCount;
use crate::connection_table::{ConnectionTable, Slot};
#[cfg(unix)]
use crate::control_socket::ControlSocket;
#[cfg(unix)]
use crate::downstream::bridge;
use crate::downstream::clock::Clock;
use crate::front::Front;
use crate::request_framing::StrictFraming;
use crate::shares::{Peer, Shares};
use crate::steady::{Part, Steady};
use crate::tls::{Tls, strict_transport};
use axum::body::Body;
use axum::response::Response;
use gripfast::{LogThrottle, Mono, file_limit};
use http::header::{CONNECTION, CONTENT_TYPE, RETRY_AFTER, STRICT_TRANSPORT_SECURITY};
use http::{HeaderValue, Request, StatusCode};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use std::convert::Infallible;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
#[cfg(unix)]
use tokio::net::UnixStream;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::Sleep;
use tokio_rustls::server::TlsStream;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// The head of a request of a known client has to be complete after this, counted from the end of the request before it.
/// So it is also how long such a connection may be idle.
pub(crate) const HEAD_WITHIN: Duration = Duration::from_secs(60);
/// A client that takes nothing of what waits for it is cut off after this.
const STALLED_FOR: Duration = Duration::from_secs(60);
/// The largest head of a request.
const LARGEST_HEAD: usize = 64 << 10;
/// What may wait in a connection for a client to read it, besides one message.
const BUFFER: usize = 64 << 10;
/// How long shaking hands may take.
const HANDSHAKE_WITHIN: Duration = Duration::from_secs(10);
/// TLS handshakes at a time, of some 20 KiB each, and those of one address. Beyond it the oldest one is closed.
const HANDSHAKES: usize = 2048;
const HANDSHAKES_OF_ONE: usize = 1024;
/// What every TLS connection begins with, and no HTTP request.
const TLS_HANDSHAKE: u8 = 0x16;
/// Bound of the connections through the control socket. More are closed.
#[cfg(unix)]
const COMMANDS: usize = 64;
/// Bound of the clients that `gripfast stdio` connects. More are closed.
#[cfg(unix)]
const BRIDGED: usize = 256;
/// Connections that are too many are told so, this many at a time; even more are just closed.
const TURNED_AWAY: usize = 64;
/// How long somebody who is turned away may take to say what for.
const TURNED_AWAY_WITHIN: Duration = Duration::from_secs(5);
/// Without file descriptors there is nothing to accept with; some may be free in a moment.
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);

/// What is served to whoever connects.
pub(crate) struct Connections {
    pub(crate) front: Front,
    pub(crate) table: ConnectionTable,
    /// Counts its connections.
    pub(crate) clients: ClientCount,
    /// Where clients speak https.
    pub(crate) tls: Option<Arc<Tls>>,
    /// How long a connection that is not known has for the head of a request.
    pub(crate) first_request_timeout: Duration,
}

impl Connections {
    /// Serves until `leaving`; then nothing new is accepted, idle connections are closed, and requests under
    /// way may finish. Returns when the last one has. Dropping the future cuts all connections.
    pub(crate) async fn serve(self, listener: TcpListener, leaving: CancellationToken) -> io::Result<()> {
        let (all, turned_away) = (TaskTracker::new(), Shares::new(TURNED_AWAY, TURNED_AWAY));
        let mut refused = AcceptErrors::default();
        let door =
            Door { tls: self.tls, handshakes: ConnectionTable::of_unknown(HANDSHAKES_OF_ONE, HANDSHAKES) };
        let cut = CancellationToken::new();
        let _cut_at_the_end = cut.clone().drop_guard();
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                () = leaving.cancelled() => break,
            };
            let (stream, address) = match accepted {
                Ok(accepted) => accepted,
                Err(error) if is_of_one_connection(&error) => continue,
                Err(error) => {
                    refused.hear("clients", &error);
                    self.table.make_room();
                    tokio::time::sleep(ACCEPT_AGAIN).await;
                    continue;
                }
            };
            // Small answers must not wait for more to send.
            let _ = stream.set_nodelay(true);
            let peer = Peer::at(address.ip());
            let close = cut.child_token();
            match self.table.admit(&peer, close.clone()) {
                Ok(slot) => {
                    let connected = self.clients.connect();
                    let (door, front, leaving) = (door.clone(), self.front.clone(), leaving.clone());
                    let client = Client {
                        peer,
                        first_request_timeout: self.first_request_timeout,
                        slot: Some(Arc::new(slot)),
                    };
                    let connection = async move {
                        let _connected = connected;
                        match leaving.run_until_cancelled(door.enter(stream, &client.peer)).await.flatten() {
                            Some(Entered::Plain(stream)) => {
                                serve(stream, Scheme::Http, client, front, leaving).await
                            }
                            Some(Entered::Encrypted(stream)) => {
                                serve(*stream, Scheme::Https, client, front, leaving).await
                            }
                            Some(Entered::NotEncrypted(stream)) => turn_away(stream, &NOT_ENCRYPTED).await,
                            None => {}
                        }
                    };
                    all.spawn(until_cut(close, connection));
                }
                Err(_) => {
                    if let Ok(share) = turned_away.take(&Peer::here(), 1) {
                        let door = door.clone();
                        let connection = async move {
                            match door.enter(stream, &peer).await {
                                Some(Entered::Encrypted(stream)) => turn_away(*stream, &NO_ROOM).await,
                                Some(Entered::Plain(stream) | Entered::NotEncrypted(stream)) => {
                                    turn_away(stream, &NO_ROOM).await;
                                }
                                None => {}
                            }
                        };
                        let connection = async move {
                            let _share = share;
                            connection.await;
                        };
                        all.spawn(until_cut(cut.clone(), connection));
                    }
                }
            }
        }
        drop(listener);
        all.close();
        all.wait().await;
        Ok(())
    }
}

/// Serves the commands of the user who runs this gateway, in the way of [`Connections::serve`]. They have connections of
/// their own, so that clients which have taken all others do not keep the operator out.
#[cfg(unix)]
pub(crate) async fn serve_socket(socket: Option<ControlSocket>, front: Front, leaving: CancellationToken) {
    let Some(socket) = socket else { return };
    let serve_one = |stream| {
        // This user needs to show nothing more.
        let client = Client { peer: Peer::here(), first_request_timeout: HEAD_WITHIN, slot: None };
        serve(Patient::new(stream), Scheme::Http, client, front.clone(), leaving.clone())
    };
    accept_each(socket, "commands", COMMANDS, &front, &leaving, serve_one).await;
}

/// Serves the clients that `gripfast stdio` connects, in the same way. They are processes of the same user, who needs to
/// show nothing more.
#[cfg(unix)]
pub(crate) async fn serve_bridges(
    socket: Option<ControlSocket>,
    front: Front,
    clients: ClientCount,
    leaving: CancellationToken,
) {
    let Some(socket) = socket else { return };
    let serve_one = |stream| {
        let (gateway, connected) = (front.gateway(), clients.connect());
        async move {
            let _connected = connected;
            // How it ended is its client's business.
            let _ = bridge::serve(&gateway, stream).await;
        }
    };
    accept_each(socket, "`gripfast stdio`", BRIDGED, &front, &leaving, serve_one).await;
}

/// Accepts connections of the same user until `leaving`, and returns when the last one has ended. A connection beyond
/// `most` is closed.
#[cfg(unix)]
async fn accept_each<F: Future<Output = ()> + Send + 'static>(
    socket: ControlSocket,
    whose: &str,
    most: usize,
    front: &Front,
    leaving: &CancellationToken,
    serve: impl Fn(UnixStream) -> F,
) {
    let (all, shares) = (TaskTracker::new(), Shares::new(most, most));
    let mut refused = AcceptErrors::default();
    let cut = CancellationToken::new();
    let _cut_at_the_end = cut.clone().drop_guard();
    loop {
        let accepted = tokio::select! {
            accepted = socket.accept() => accepted,
            () = leaving.cancelled() => break,
        };
        let (stream, checked) = match accepted {
            Ok(accepted) => accepted,
            Err(error) if is_of_one_connection(&error) => continue,
            Err(error) => {
                refused.hear(whose, &error);
                tokio::time::sleep(ACCEPT_AGAIN).await;
                continue;
            }
        };
        let Ok(share) = shares.take(&Peer::here(), 1) else { continue };
        match checked {
            Ok(()) => {
                let serving = serve(stream);
                let connection = async move {
                    let _share = share;
                    serving.await;
                };
                all.spawn(until_cut(cut.clone(), connection));
            }
            Err(other) => {
                front.refused_user(other.uid);
                let connection = async move {
                    let _share = share;
                    turn_away(stream, &OTHER_USER).await;
                };
                all.spawn(until_cut(cut.clone(), connection));
            }
        }
    }
    drop(socket);
    all.close();
    all.wait().await;
}

/// Errors of a listener, of which one a minute is logged.
struct AcceptErrors {
    clock: Clock,
    throttle: LogThrottle,
}

impl Default for AcceptErrors {
    fn default() -> Self {
        Self { clock: Clock::new(), throttle: LogThrottle::default() }
    }
}

impl AcceptErrors {
    fn hear(&mut self, whose: &str, error: &io::Error) {
        let Some(unsaid) = self.throttle.hear(Mono::at(self.clock.mono())) else { return };
        let cause = file_limit::exhausted(error).map_or_else(|| error.to_string(), str::to_owned);
        tracing::warn!(
            cause,
            unsaid,
            "cannot accept connections of {whose}: {cause}; `LimitNOFILE=` or `ulimit -n` raises the limit of open \
             files (logged once a minute)"
        );
    }
}

/// What a connection has taken is free when it has ended, in whichever way.
async fn until_cut(cut: CancellationToken, connection: impl Future<Output = ()>) {
    let _ = cut.run_until_cancelled(connection).await;
}

/// How a connection becomes a client's.
#[derive(Clone)]
struct Door {
    tls: Option<Arc<Tls>>,
    handshakes: ConnectionTable,
}

/// What came in.
enum Entered {
    /// Where no TLS is spoken.
    Plain(Patient<TcpStream>),
    /// After a handshake.
    Encrypted(Box<TlsStream<Patient<TcpStream>>>),
    /// Where TLS is spoken, and somebody speaks http.
    NotEncrypted(Patient<TcpStream>),
}

impl Door {
    /// `None` if it did not come to a handshake, in time or at all.
    async fn enter(&self, stream: TcpStream, peer: &Peer) -> Option<Entered> {
        let Some(tls) = &self.tls else { return Some(Entered::Plain(Patient::new(stream))) };
        let shake = async {
            let mut first = [0];
            match stream.peek(&mut first).await {
                Ok(1) if first == [TLS_HANDSHAKE] => {}
                Ok(1) => return Some(Entered::NotEncrypted(Patient::new(stream))),
                Ok(_) | Err(_) => return None,
            }
            // Counted from the first byte on: a client that sends nothing costs no handshake.
            let close = CancellationToken::new();
            let _slot = self.handshakes.admit(peer, close.clone()).ok()?;
            // Patience is about bytes that are taken, so it is below what makes bytes out of answers.
            let shaken = close.run_until_cancelled(tls.shake(Patient::new(stream))).await?;
            Some(Entered::Encrypted(Box::new(shaken.ok()?)))
        };
        tokio::time::timeout(HANDSHAKE_WITHIN, shake).await.ok().flatten()
    }
}

/// Whether a connection is encrypted.
#[derive(Clone, Copy)]
enum Scheme {
    Http,
    Https,
}

/// The client of one connection.
struct Client {
    peer: Peer,
    first_request_timeout: Duration,
    /// Its place in the table; connections of the control socket have none.
    slot: Option<Arc<Slot>>,
}

async fn serve(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    scheme: Scheme,
    client: Client,
    front: Front,
    leaving: CancellationToken,
) {
    let Client { peer, first_request_timeout, slot } = client;
    // One for each connection, which answers one request at a time.
    let part = Arc::new(Part::new());
    let slot_of_requests = slot.clone();
    let service = service_fn(move |request: Request<Incoming>| {
        let (front, peer, part) = (front.clone(), peer.clone(), Arc::clone(&part));
        let slot = slot_of_requests.clone();
        let strict_transport = match scheme {
            Scheme::Https => strict_transport(request.headers()),
            Scheme::Http => None,
        };
        async move {
            let begun = slot.as_ref().filter(|slot| !slot.is_known()).map(Slot::begin_request);
            let mut response = part.does(|| front.serve(request, peer, slot.clone())).await?;
            if let Some(value) = strict_transport {
                response.headers_mut().insert(STRICT_TRANSPORT_SECURITY, value);
            }
            // The request of an unknown client ends with the last byte of its answer.
            if let Some(begun) = begun.filter(|_| slot.is_some_and(|slot| !slot.is_known())) {
                response = response.map(|body| {
                    Body::new(body.map_err(move |error| {
                        let _until_dropped = &begun;
                        error
                    }))
                });
            }
            Ok::<_, Infallible>(response)
        }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_WITHIN)
        .max_header_size(LARGEST_HEAD)
        .max_buf_size(BUFFER)
        .serve_connection(TokioIo::new(StrictFraming::new(stream)), service);
    let mut connection = pin!(connection);
    // How a connection ended is its client's business; what became of the requests is told elsewhere.
    if let Some(slot) = slot {
        tokio::select! {
            biased;
            _ = Steady::new(connection.as_mut()) => return,
            known = slot.until_known(first_request_timeout) => if known.is_err() { return },
            () = leaving.cancelled() => {}
        }
    }
    tokio::select! {
        biased;
        _ = Steady::new(connection.as_mut()) => return,
        () = leaving.cancelled() => connection.as_mut().graceful_shutdown(),
    }
    let _ = Steady::new(connection).await;
}

/// What is said to those who are not served.
struct No {
    status: StatusCode,
    text: &'static str,
    retry_after: Option<HeaderValue>,
}

static NO_ROOM: No = No {
    status: StatusCode::SERVICE_UNAVAILABLE,
    text: "too many connections are open; try again in a moment\n",
    retry_after: Some(HeaderValue::from_static("1")),
};
static NOT_ENCRYPTED: No = No {
    status: StatusCode::BAD_REQUEST,
    text: "this gateway speaks https: begin the address with `https://`\n",
    retry_after: None,
};

#[cfg(unix)]
static OTHER_USER: No = No {
    status: StatusCode::FORBIDDEN,
    text: "this socket is for the user who runs the gateway\n",
    retry_after: None,
};

/// Answers one request with a no, and hangs up.
async fn turn_away(stream: impl AsyncRead + AsyncWrite + Unpin, no: &'static No) {
    let service = service_fn(async |_: Request<Incoming>| {
        let mut response = Response::new(Body::from(no.text));
        *response.status_mut() = no.status;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
        headers.extend(no.retry_after.clone().map(|after| (RETRY_AFTER, after)));
        headers.insert(CONNECTION, HeaderValue::from_static("close"));
        Ok::<_, Infallible>(response)
    });
    let connection = http1::Builder::new().keep_alive(false).serve_connection(TokioIo::new(stream), service);
    let _ = tokio::time::timeout(TURNED_AWAY_WITHIN, connection).await;
}

/// A connection that was gone before it was accepted says nothing about the next one.
fn is_of_one_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset)
}

/// A stream that waits for its reader for a while, and not for ever.
struct Patient<S> {
    stream: S,
    /// While nothing can be written.
    until: Option<Pin<Box<Sleep>>>,
}

impl<S: Unpin> Patient<S> {
    fn new(stream: S) -> Self {
        Self { stream, until: None }
    }

    fn patiently<T>(
        &mut self,
        cx: &mut Context<'_>,
        write: impl FnOnce(Pin<&mut S>, &mut Context<'_>) -> Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if let Poll::Ready(written) = write(Pin::new(&mut self.stream), cx) {
            self.until = None;
            return Poll::Ready(written);
        }
        let until = self.until.get_or_insert_with(|| Box::pin(tokio::time::sleep(STALLED_FOR)));
        ready!(until.as_mut().poll(cx));
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the client does not read")))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Patient<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Patient<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.patiently(cx, |stream, cx| stream.poll_write(cx, bytes))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.patiently(cx, |stream, cx| stream.poll_write_vectored(cx, slices))
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};
    use tokio::time::Instant;

    #[tokio::test(start_paused = true)]
    async fn a_client_that_reads_nothing_is_given_up_after_a_minute() {
        let (ours, _theirs) = duplex(16);
        let begun = Instant::now();
        let written = Patient::new(ours).write_all(&[0; 100]).await;
        assert_eq!(written.unwrap_err().kind(), io::ErrorKind::TimedOut);
        assert_eq!(begun.elapsed(), STALLED_FOR);
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_reads_slowly_is_waited_for() {
        let (ours, mut theirs) = duplex(16);
        let mut ours = Patient::new(ours);
        let reading = async {
            let mut buffer = [0; 16];
            for _ in 0..10 {
                tokio::time::sleep(STALLED_FOR / 2).await;
                theirs.read_exact(&mut buffer).await.unwrap();
            }
        };
        let (written, ()) = tokio::join!(ours.write_all(&[0; 160]), reading);
        written.unwrap();
    }

    /// Both ends of a connection.
    async fn connected() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (theirs, ours) =
            tokio::join!(TcpStream::connect(listener.local_addr().unwrap()), listener.accept());
        let theirs = theirs.unwrap();
        theirs.writable().await.unwrap();
        (theirs, ours.unwrap().0)
    }

    #[tokio::test]
    async fn g05_a_new_handshake_ends_the_oldest_of_its_address_or_of_the_one_with_the_most() {
        let directory = tempfile::tempdir().unwrap();
        let (cert, key) = (directory.path().join("cert.pem"), directory.path().join("key.pem"));
        let pair = rcgen::KeyPair::generate().unwrap();
        let params = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        std::fs::write(&cert, params.self_signed(&pair).unwrap().pem()).unwrap();
        std::fs::write(&key, pair.serialize_pem()).unwrap();
        let files = gripfast::config::ListenerTls { cert, key };
        let tls = Tls::of(&files, gripfast::private_files::StrictModes::On).unwrap();
        let door = Door { tls: Some(Arc::new(tls)), handshakes: ConnectionTable::of_unknown(2, 3) };
        let mut kept = Vec::new();
        // A handshake that has begun and does not go on.
        let mut begin = |(theirs, ours): (TcpStream, TcpStream), address: [u8; 4]| {
            assert_eq!(theirs.try_write(&[TLS_HANDSHAKE]).unwrap(), 1);
            kept.push(theirs);
            let door = door.clone();
            tokio::spawn(async move { door.enter(ours, &Peer::at(address.into())).await.is_none() })
        };
        let until_admitted = async |count| {
            let admitted = async {
                while door.handshakes.admitted() < count {
                    tokio::task::yield_now().await;
                }
            };
            tokio::time::timeout(Duration::from_secs(60), admitted).await.expect("a handshake begins");
        };
        let first = begin(connected().await, [192, 0, 2, 1]);
        until_admitted(1).await;
        let second = begin(connected().await, [192, 0, 2, 1]);
        until_admitted(2).await;
        let third = begin(connected().await, [192, 0, 2, 1]);
        assert!(first.await.unwrap(), "one address has two");
        let fourth = begin(connected().await, [192, 0, 2, 2]);
        until_admitted(4).await;
        let fifth = begin(connected().await, [192, 0, 2, 3]);
        assert!(second.await.unwrap(), "all have three, and the first address has the most");
        assert!([&third, &fourth, &fifth].iter().all(|handshake| !handshake.is_finished()));
        drop(kept);
        assert!(third.await.unwrap() && fourth.await.unwrap() && fifth.await.unwrap());
        assert_eq!(door.handshakes.taken(), 0);
    }
}
