//! Accepts connections up to the limits, serves them, and closes them in order at shutdown. An unauthenticated
//! connection has a few seconds for the head of a request, and is closed first to make room; a slow known client keeps
//! a connection for at most a minute. With TLS, the handshake comes first.

use super::client_count::ClientCount;
use super::connection_table::{ConnectionSlot, ConnectionTable};
#[cfg(unix)]
use super::control_socket::ControlSocket;
use super::dispatcher::Dispatcher;
use super::quota::{Peer, Quota};
use super::tls::{Tls, strict_transport};
#[cfg(unix)]
use crate::mcp::transport::stdio_bridge;
use axum::body::Body;
use axum::response::Response;
use gripfast::transport::box_future;
use gripfast::{Clock, LogThrottle, file_limit, unix_time};
use gripfast_http1::server as http1;
use gripfast_http1::server::RequestBody;
use http::header::{CONNECTION, CONTENT_TYPE, RETRY_AFTER, STRICT_TRANSPORT_SECURITY};
use http::{HeaderValue, Request, StatusCode};
use http_body_util::BodyExt;
use std::future::{pending, ready};
use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
#[cfg(unix)]
use tokio::net::UnixStream;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::Sleep;
use tokio_rustls::server::TlsStream;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Timeout for the head of a request of a known client, counted from the end of the previous request; so it is also the
/// idle timeout of such a connection.
pub(crate) const HEAD_TIMEOUT: Duration = Duration::from_secs(60);
/// Timeout for a client that reads nothing of a pending answer.
const WRITE_TIMEOUT: Duration = Duration::from_secs(60);
/// Maximum size of a request head.
const MAX_HEAD: usize = 64 << 10;
/// Timeout for a TLS handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum number of concurrent TLS handshakes, of about 20 KiB each, in total and per address. Above it the oldest one
/// is closed.
const MAX_HANDSHAKES: usize = 2048;
const MAX_HANDSHAKES_PER_CLIENT: usize = 1024;
/// First byte of every TLS connection, and of no HTTP request.
const TLS_HANDSHAKE: u8 = 0x16;
/// Maximum number of connections through the control socket. More are closed.
#[cfg(unix)]
const MAX_CONTROL_CONNECTIONS: usize = 64;
/// Maximum number of clients of `gripfast stdio`. More are closed.
#[cfg(unix)]
const MAX_BRIDGES: usize = 256;
/// Maximum number of rejected connections that get an error response at a time. More are closed without one.
const MAX_REJECTIONS: usize = 64;
/// Timeout for a rejected connection to send its request.
const REJECTION_TIMEOUT: Duration = Duration::from_secs(5);
/// Time for the first request of a connection that was accepted shortly before the listener closed.
const LAST_REQUEST_TIMEOUT: Duration = Duration::from_millis(250);
/// Delay after a failed accept: without free file descriptors the next attempt would fail too.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(100);

/// The steps of a shutdown, as tokens. `drain` is cancelled first, `close` last.
#[derive(Clone)]
pub(crate) struct ShutdownSteps {
    /// Connections are closed after their next answer, so that a request that is on its way is answered.
    pub(crate) drain: CancellationToken,
    /// No more connections are accepted.
    pub(crate) stop_accepting: CancellationToken,
    /// Connections that are in the queue of the listener then.
    pub(crate) queue: QueueEnd,
    /// Idle connections are closed.
    pub(crate) close: CancellationToken,
}

/// End of the queue of a listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum QueueEnd {
    /// The queue ends with this process, so its connections are accepted and get an answer.
    Accepted,
    /// The next process accepts them.
    Left,
}

impl ShutdownSteps {
    /// The same steps for one connection. Each request checks them, and clones of a token share a lock.
    fn for_connection(&self) -> Self {
        Self { drain: self.drain.child_token(), close: self.close.child_token(), ..self.clone() }
    }

    /// All steps at once.
    pub(crate) fn at_once(shutdown: CancellationToken) -> Self {
        Self {
            drain: shutdown.clone(),
            stop_accepting: shutdown.clone(),
            queue: QueueEnd::Left,
            close: shutdown,
        }
    }
}

/// Serves the connections of a listener.
pub(crate) struct ConnectionServer {
    pub(crate) dispatcher: Dispatcher,
    pub(crate) table: ConnectionTable,
    /// Counts the connections.
    pub(crate) clients: ClientCount,
    /// Certificate, if the listener uses TLS.
    pub(crate) tls: Option<Arc<Tls>>,
    /// Timeout of an unknown connection for the head of a request.
    pub(crate) first_request_timeout: Duration,
}

impl ConnectionServer {
    /// Serves until the steps of `shutdown`; then it accepts nothing new, closes idle connections, and waits for
    /// requests in flight.
    /// Returns when the last connection has ended. Dropping the future closes all connections.
    pub(crate) async fn serve(self, listener: TcpListener, shutdown: ShutdownSteps) -> io::Result<()> {
        let mut refused = AcceptErrors::default();
        let close_all = CancellationToken::new();
        let _close_all_on_drop = close_all.clone().drop_guard();
        let accepting = AcceptedConnections {
            all: TaskTracker::new(),
            rejections: Quota::new(MAX_REJECTIONS, MAX_REJECTIONS),
            acceptor: ConnectionAcceptor {
                tls: self.tls.clone(),
                handshakes: ConnectionTable::of_unknown(MAX_HANDSHAKES_PER_CLIENT, MAX_HANDSHAKES),
            },
            close_all,
            shutdown: shutdown.clone(),
        };
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                () = shutdown.stop_accepting.cancelled() => break,
            };
            match accepted {
                Ok((stream, address)) => self.begin(stream, address, &accepting),
                Err(error) if is_of_one_connection(&error) => {}
                Err(error) => {
                    refused.log("clients", &error);
                    self.table.make_room();
                    tokio::time::sleep(ACCEPT_RETRY_DELAY).await;
                }
            }
        }
        let listener = listener.into_std()?;
        if shutdown.queue == QueueEnd::Accepted {
            // A connection in the queue would be reset, although its request may be on its way.
            while let Ok((stream, address)) = listener.accept() {
                let stream = stream.set_nonblocking(true).and_then(|()| TcpStream::from_std(stream));
                if let Ok(stream) = stream {
                    self.begin(stream, address, &accepting);
                }
            }
        }
        drop(listener);
        accepting.all.close();
        accepting.all.wait().await;
        Ok(())
    }

    /// Serves an accepted connection in a task of its own, or refuses it.
    fn begin(&self, stream: TcpStream, address: SocketAddr, accepting: &AcceptedConnections) {
        let AcceptedConnections { all, rejections, acceptor, close_all, shutdown } = accepting;
        // Without Nagle's algorithm, small answers are sent at once.
        let _ = stream.set_nodelay(true);
        let peer = Peer::from_address(address.ip());
        let close = close_all.child_token();
        match self.table.admit(&peer, close.clone()) {
            Ok(slot) => {
                let connected = self.clients.connect();
                let (acceptor, dispatcher, shutdown) =
                    (acceptor.clone(), self.dispatcher.clone(), shutdown.for_connection());
                let client = Client {
                    peer,
                    first_request_timeout: self.first_request_timeout,
                    slot: Some(Arc::new(slot)),
                };
                let connection = async move {
                    let _connected = connected;
                    let accepted = tokio::select! {
                        // Without TLS it takes no time, and a request that is on its way is answered.
                        biased;
                        accepted = acceptor.accept(stream, &client.peer) => accepted,
                        () = shutdown.close.cancelled() => None,
                    };
                    match accepted {
                        Some(AcceptedConnection::Plain(stream)) => {
                            serve(stream, Scheme::Http, client, dispatcher, shutdown).await
                        }
                        Some(AcceptedConnection::Encrypted(stream)) => {
                            serve(*stream, Scheme::Https, client, dispatcher, shutdown).await
                        }
                        Some(AcceptedConnection::NotEncrypted(stream)) => {
                            reject(stream, &NOT_ENCRYPTED).await
                        }
                        None => {}
                    }
                };
                all.spawn(until_cancelled(close, connection));
            }
            Err(_) => {
                if let Ok(permit) = rejections.acquire(&Peer::local(), 1) {
                    let acceptor = acceptor.clone();
                    let connection = async move {
                        match acceptor.accept(stream, &peer).await {
                            Some(AcceptedConnection::Encrypted(stream)) => reject(*stream, &NO_ROOM).await,
                            Some(
                                AcceptedConnection::Plain(stream) | AcceptedConnection::NotEncrypted(stream),
                            ) => {
                                reject(stream, &NO_ROOM).await;
                            }
                            None => {}
                        }
                    };
                    let connection = async move {
                        let _permit = permit;
                        connection.await;
                    };
                    all.spawn(until_cancelled(close_all.clone(), connection));
                }
            }
        }
    }
}

/// The accepted connections of a listener.
struct AcceptedConnections {
    all: TaskTracker,
    /// Rejected connections that get an error response.
    rejections: Quota,
    acceptor: ConnectionAcceptor,
    close_all: CancellationToken,
    shutdown: ShutdownSteps,
}

/// Serves CLI commands of the same user on the control socket, like [`ConnectionServer::serve`]. They have connections
/// of their own, so that clients which use up all others do not lock out the operator.
#[cfg(unix)]
pub(crate) async fn serve_socket(
    socket: Option<ControlSocket>,
    dispatcher: Dispatcher,
    shutdown: CancellationToken,
) {
    let Some(socket) = socket else { return };
    let serve_one = |stream| {
        // The user of the process is checked, so no credential is needed.
        let client = Client { peer: Peer::local(), first_request_timeout: HEAD_TIMEOUT, slot: None };
        let shutdown = ShutdownSteps::at_once(shutdown.clone());
        serve(WriteTimeoutIo::new(stream), Scheme::Http, client, dispatcher.clone(), shutdown)
    };
    accept_each(socket, "commands", MAX_CONTROL_CONNECTIONS, &dispatcher, &shutdown, serve_one).await;
}

/// Serves clients of `gripfast stdio` in the same way. They are processes of the same user, so no credential is needed.
#[cfg(unix)]
pub(crate) async fn serve_bridges(
    socket: Option<ControlSocket>,
    dispatcher: Dispatcher,
    clients: ClientCount,
    shutdown: CancellationToken,
) {
    let Some(socket) = socket else { return };
    let serve_one = |stream| {
        let (gateway, connected) = (dispatcher.gateway(), clients.connect());
        async move {
            let _connected = connected;
            // The error only concerns this client.
            let _ = stdio_bridge::serve(&gateway, stream).await;
        }
    };
    accept_each(socket, "`gripfast stdio`", MAX_BRIDGES, &dispatcher, &shutdown, serve_one).await;
}

/// Accepts connections of the same user until `shutdown`, and returns when the last one has ended. Connections above
/// `max` are closed.
#[cfg(unix)]
async fn accept_each<F: Future<Output = ()> + Send + 'static>(
    socket: ControlSocket,
    clients: &str,
    max: usize,
    dispatcher: &Dispatcher,
    shutdown: &CancellationToken,
    serve: impl Fn(UnixStream) -> F,
) {
    let (all, quota) = (TaskTracker::new(), Quota::new(max, max));
    let mut refused = AcceptErrors::default();
    let close_all = CancellationToken::new();
    let _close_all_on_drop = close_all.clone().drop_guard();
    loop {
        let accepted = tokio::select! {
            accepted = socket.accept() => accepted,
            () = shutdown.cancelled() => break,
        };
        let (stream, checked) = match accepted {
            Ok(accepted) => accepted,
            Err(error) if is_of_one_connection(&error) => continue,
            Err(error) => {
                refused.log(clients, &error);
                tokio::time::sleep(ACCEPT_RETRY_DELAY).await;
                continue;
            }
        };
        let Ok(permit) = quota.acquire(&Peer::local(), 1) else { continue };
        match checked {
            Ok(()) => {
                let serving = serve(stream);
                let connection = async move {
                    let _permit = permit;
                    serving.await;
                };
                all.spawn(until_cancelled(close_all.clone(), connection));
            }
            Err(other) => {
                dispatcher.log_refused_user(other.uid);
                let connection = async move {
                    let _permit = permit;
                    reject(stream, &OTHER_USER).await;
                };
                all.spawn(until_cancelled(close_all.clone(), connection));
            }
        }
    }
    drop(socket);
    all.close();
    all.wait().await;
}

/// Accept errors, logged once a minute.
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
    fn log(&mut self, clients: &str, error: &io::Error) {
        let Some(suppressed) = self.throttle.record(self.clock.mono()) else { return };
        let cause = file_limit::exhausted(error).map_or_else(|| error.to_string(), str::to_owned);
        tracing::warn!(
            cause,
            suppressed,
            "cannot accept connections of {clients}: {cause}; `LimitNOFILE=` or `ulimit -n` raises the limit of open \
             files (logged once a minute)"
        );
    }
}

/// Runs a connection until it ends or is cancelled; either way its resources are released.
async fn until_cancelled(cancel: CancellationToken, connection: impl Future<Output = ()>) {
    let _ = cancel.run_until_cancelled(connection).await;
}

/// Turns an accepted socket into a connection, with a TLS handshake if configured.
#[derive(Clone)]
struct ConnectionAcceptor {
    tls: Option<Arc<Tls>>,
    handshakes: ConnectionTable,
}

/// Accepted connection.
enum AcceptedConnection {
    /// Without TLS.
    Plain(WriteTimeoutIo<TcpStream>),
    /// After a TLS handshake.
    Encrypted(Box<TlsStream<WriteTimeoutIo<TcpStream>>>),
    /// Plain HTTP on a TLS listener.
    NotEncrypted(WriteTimeoutIo<TcpStream>),
}

impl ConnectionAcceptor {
    /// Returns `None` if the handshake fails or times out.
    async fn accept(&self, stream: TcpStream, peer: &Peer) -> Option<AcceptedConnection> {
        let Some(tls) = &self.tls else {
            return Some(AcceptedConnection::Plain(WriteTimeoutIo::new(stream)));
        };
        let shake = async {
            let mut first = [0];
            match stream.peek(&mut first).await {
                Ok(1) if first == [TLS_HANDSHAKE] => {}
                Ok(1) => return Some(AcceptedConnection::NotEncrypted(WriteTimeoutIo::new(stream))),
                Ok(_) | Err(_) => return None,
            }
            // Counted from the first byte: a client that sends nothing costs no handshake.
            let close = CancellationToken::new();
            let _slot = self.handshakes.admit(peer, close.clone()).ok()?;
            // The write timeout is about bytes on the socket, so it is below TLS.
            let shaken = close.run_until_cancelled(tls.accept(WriteTimeoutIo::new(stream))).await?;
            Some(AcceptedConnection::Encrypted(Box::new(shaken.ok()?)))
        };
        tokio::time::timeout(HANDSHAKE_TIMEOUT, shake).await.ok().flatten()
    }
}

/// URL scheme of a connection.
#[derive(Clone, Copy)]
enum Scheme {
    Http,
    Https,
}

/// Client of one connection.
struct Client {
    peer: Peer,
    first_request_timeout: Duration,
    /// Slot in the table; connections of the control socket have none.
    slot: Option<Arc<ConnectionSlot>>,
}

/// Limits of a connection to a client.
pub(crate) const CONNECTION_LIMITS: http1::Limits = http1::Limits {
    head_size: MAX_HEAD,
    head_timeout: HEAD_TIMEOUT,
    last_request_timeout: LAST_REQUEST_TIMEOUT,
    unix_time,
};

async fn serve(
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    scheme: Scheme,
    client: Client,
    dispatcher: Dispatcher,
    ShutdownSteps { drain, close, .. }: ShutdownSteps,
) {
    let Client { peer, first_request_timeout, slot } = client;
    let service = |request: Request<RequestBody>| {
        let (dispatcher, peer, slot, drain) = (&dispatcher, &peer, &slot, &drain);
        let strict_transport = match scheme {
            Scheme::Https => strict_transport(request.headers()),
            Scheme::Http => None,
        };
        // Boxed, so that an idle connection needs no memory for a request.
        box_future(|| async move {
            let begun = slot.as_ref().filter(|slot| !slot.is_known()).map(ConnectionSlot::begin_request);
            let mut response = dispatcher.serve(request, peer.clone(), slot.as_ref()).await;
            if let Some(value) = strict_transport {
                response.headers_mut().insert(STRICT_TRANSPORT_SECURITY, value);
            }
            if drain.is_cancelled() {
                response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
            }
            // The request of an unknown client ends with the last byte of its answer.
            if let Some(begun) = begun.filter(|_| slot.as_ref().is_some_and(|slot| !slot.is_known())) {
                response = response.map(|body| {
                    Body::new(body.map_err(move |error| {
                        let _until_dropped = &begun;
                        error
                    }))
                });
            }
            response
        })
    };
    let mut connection = pin!(http1::serve(stream, &CONNECTION_LIMITS, close.cancelled(), service));
    if let Some(slot) = &slot {
        tokio::select! {
            biased;
            () = connection.as_mut() => return,
            known = slot.until_known(first_request_timeout) => if known.is_err() { return },
        }
    }
    connection.await;
}

/// Error response for a connection that is not served.
struct Rejection {
    status: StatusCode,
    text: &'static str,
    retry_after: Option<HeaderValue>,
}

static NO_ROOM: Rejection = Rejection {
    status: StatusCode::SERVICE_UNAVAILABLE,
    text: "too many connections are open; try again in a moment\n",
    retry_after: Some(HeaderValue::from_static("1")),
};
static NOT_ENCRYPTED: Rejection = Rejection {
    status: StatusCode::BAD_REQUEST,
    text: "this gateway uses TLS; its address begins with `https://`\n",
    retry_after: None,
};

#[cfg(unix)]
static OTHER_USER: Rejection = Rejection {
    status: StatusCode::FORBIDDEN,
    text: "this socket is for the user who runs the gateway\n",
    retry_after: None,
};

/// Answers one request with an error, and closes the connection.
async fn reject(stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static, rejection: &'static Rejection) {
    let service = |_: Request<RequestBody>| {
        let mut response = Response::new(Body::from(rejection.text));
        *response.status_mut() = rejection.status;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
        headers.extend(rejection.retry_after.clone().map(|after| (RETRY_AFTER, after)));
        headers.insert(CONNECTION, HeaderValue::from_static("close"));
        ready(response)
    };
    let connection = http1::serve(stream, &CONNECTION_LIMITS, pending(), service);
    let _ = tokio::time::timeout(REJECTION_TIMEOUT, connection).await;
}

/// Tests if an accept error concerns a single connection, which was closed before it was accepted.
fn is_of_one_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset)
}

/// Stream with a timeout for writes.
struct WriteTimeoutIo<S> {
    stream: S,
    /// Set while nothing can be written.
    deadline: Option<Pin<Box<Sleep>>>,
}

impl<S: Unpin> WriteTimeoutIo<S> {
    fn new(stream: S) -> Self {
        Self { stream, deadline: None }
    }

    fn poll_with_deadline<T>(
        &mut self,
        cx: &mut Context<'_>,
        write: impl FnOnce(Pin<&mut S>, &mut Context<'_>) -> Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if let Poll::Ready(written) = write(Pin::new(&mut self.stream), cx) {
            self.deadline = None;
            return Poll::Ready(written);
        }
        let until = self.deadline.get_or_insert_with(|| Box::pin(tokio::time::sleep(WRITE_TIMEOUT)));
        std::task::ready!(until.as_mut().poll(cx));
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the client does not read")))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for WriteTimeoutIo<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for WriteTimeoutIo<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_with_deadline(cx, |stream, cx| stream.poll_write(cx, bytes))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.poll_with_deadline(cx, |stream, cx| stream.poll_write_vectored(cx, slices))
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
    async fn a_client_that_reads_nothing_times_out_after_a_minute() {
        let (ours, _theirs) = duplex(16);
        let begun = Instant::now();
        let written = WriteTimeoutIo::new(ours).write_all(&[0; 100]).await;
        assert_eq!(written.unwrap_err().kind(), io::ErrorKind::TimedOut);
        assert_eq!(begun.elapsed(), WRITE_TIMEOUT);
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_reads_slowly_does_not_time_out() {
        let (ours, mut theirs) = duplex(16);
        let mut ours = WriteTimeoutIo::new(ours);
        let reading = async {
            let mut buffer = [0; 16];
            for _ in 0..10 {
                tokio::time::sleep(WRITE_TIMEOUT / 2).await;
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
    async fn a_request_that_has_reached_the_socket_is_answered_before_the_connection_closes() {
        let (mut theirs, ours) = connected().await;
        let close = CancellationToken::new();
        let closing = close.clone();
        let served = tokio::spawn(async move {
            let answer = |_: Request<RequestBody>| ready(Response::new(Body::from("answered")));
            http1::serve(ours, &CONNECTION_LIMITS, closing.cancelled(), answer).await;
        });
        let request = b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n";
        theirs.write_all(request).await.unwrap();
        let mut head = [0; 1024];
        assert!(theirs.read(&mut head).await.unwrap() > 0, "the first answer");
        // Without an await between both, so that the runtime learns of the request after the cancellation.
        assert_eq!(theirs.try_write(request).unwrap(), request.len());
        close.cancel();
        let mut rest = String::new();
        theirs.read_to_string(&mut rest).await.unwrap();
        assert!(rest.ends_with("answered"), "{rest:?}");
        served.await.unwrap();
    }

    #[tokio::test]
    async fn g05_a_new_handshake_closes_the_oldest_of_the_address_with_the_most() {
        let directory = tempfile::tempdir().unwrap();
        let (cert, key) = (directory.path().join("cert.pem"), directory.path().join("key.pem"));
        let pair = rcgen::KeyPair::generate().unwrap();
        let params = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        std::fs::write(&cert, params.self_signed(&pair).unwrap().pem()).unwrap();
        std::fs::write(&key, pair.serialize_pem()).unwrap();
        let files = gripfast::config::ListenerTls { cert, key };
        let tls = Tls::load(&files, gripfast::private_files::StrictModes::On).unwrap();
        let acceptor =
            ConnectionAcceptor { tls: Some(Arc::new(tls)), handshakes: ConnectionTable::of_unknown(2, 3) };
        let mut kept = Vec::new();
        // Starts a handshake that stalls.
        let mut begin = |(theirs, ours): (TcpStream, TcpStream), address: [u8; 4]| {
            assert_eq!(theirs.try_write(&[TLS_HANDSHAKE]).unwrap(), 1);
            kept.push(theirs);
            let acceptor = acceptor.clone();
            tokio::spawn(
                async move { acceptor.accept(ours, &Peer::from_address(address.into())).await.is_none() },
            )
        };
        let until_admitted = async |count| {
            let admitted = async {
                while acceptor.handshakes.admitted() < count {
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
        assert_eq!(acceptor.handshakes.len(), 0);
    }
}
