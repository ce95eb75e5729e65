//! A scripted server for HTTP/2 over TLS that works on frames, so that it can misbehave in ways that libraries do not
//! allow. It reads requests from DATA frames only and writes headers as literals without compression.

use crate::http_host::any_local_port;
use crate::scripted_server::{HttpRequest, ScriptedAction, respond_normally};
use crate::tls::{Clients, TestCertificates};
use gripfast::config::ServerSpec;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

/// A received request and its stream.
#[derive(Debug, Clone)]
pub(crate) struct H2Request {
    /// Number of the connection, counted from 1.
    pub(crate) connection: usize,
    pub(crate) stream: u32,
    pub(crate) request: HttpRequest,
}

/// An action on a connection.
#[derive(Debug, Clone)]
pub(crate) enum H2Action {
    /// Answer the request normally.
    Answer,
    /// Answer with an event stream that stays open without events.
    AnswerWithoutEnd,
    /// Answer, but omit the last bytes and the end of the stream.
    AnswerInPart { lacks: usize },
    /// Reset the stream with this error code.
    Reset(u32),
    /// Send GOAWAY with this last processed stream id.
    GoAway { last: u32 },
    /// Set the maximum number of concurrent streams.
    Limit(u32),
    /// Close the connection without GOAWAY.
    Close,
}

pub(crate) const NO_ERROR: u32 = 0;
pub(crate) const INTERNAL_ERROR: u32 = 2;
pub(crate) const REFUSED_STREAM: u32 = 7;
pub(crate) const CANCEL: u32 = 8;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const END_STREAM: u8 = 1;
const ACK: u8 = 1;
const END_HEADERS: u8 = 4;
const MAX_CONCURRENT_STREAMS: u8 = 3;

type Play = Arc<dyn Fn(&H2Request) -> Vec<H2Action> + Send + Sync>;
/// An action for an earlier request, and the signal that it is done.
type Order = (H2Request, H2Action, oneshot::Sender<()>);

pub(crate) struct H2Server {
    certificates: TestCertificates,
    url: String,
    shared: Arc<Shared>,
    accepting: JoinHandle<()>,
}

struct Shared {
    requests: Mutex<Vec<H2Request>>,
    /// One sender per connection; those of closed connections fail.
    orders: Mutex<Vec<mpsc::Sender<Order>>>,
    /// Unanswered pings per connection.
    pings: Mutex<BTreeMap<usize, usize>>,
    /// True if new connections hang before the TLS handshake.
    is_hanging: AtomicBool,
    play: Play,
}

impl H2Server {
    /// Creates a server that performs the actions that `play` returns for each request.
    pub(crate) async fn new(play: impl Fn(&H2Request) -> Vec<H2Action> + Send + Sync + 'static) -> Self {
        let certificates = TestCertificates::new();
        let acceptor = certificates.acceptor(Clients::Any, &["h2"]);
        let listener = TcpListener::bind(any_local_port()).await.unwrap();
        let url = format!("https://{}/mcp", listener.local_addr().unwrap());
        let shared = Shared {
            requests: Mutex::default(),
            orders: Mutex::default(),
            pings: Mutex::default(),
            is_hanging: AtomicBool::new(false),
            play: Arc::new(play),
        };
        let shared = Arc::new(shared);
        let there = Arc::clone(&shared);
        let accepting = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (acceptor, shared) = (acceptor.clone(), Arc::clone(&there));
                let (sender, orders) = mpsc::channel(64);
                let number = {
                    let mut known = shared.orders.lock().unwrap();
                    known.push(sender);
                    known.len()
                };
                tokio::spawn(async move {
                    if shared.is_hanging.load(Ordering::SeqCst) {
                        return until_closed(stream).await;
                    }
                    if let Ok(stream) = acceptor.accept(stream).await {
                        let _ = Connection { stream, number, shared, bodies: BTreeMap::new() }
                            .serve(orders)
                            .await;
                    }
                });
            }
        });
        Self { certificates, url, shared, accepting }
    }

    pub(crate) fn spec(&self) -> ServerSpec {
        crate::http_host::with_tls(crate::http_host::spec(&self.url), self.certificates.trust())
    }

    /// Number of connections so far.
    pub(crate) fn connections(&self) -> usize {
        self.shared.orders.lock().unwrap().len()
    }

    /// True if the connection is open.
    pub(crate) fn is_open(&self, connection: usize) -> bool {
        !self.shared.orders.lock().unwrap()[connection - 1].is_closed()
    }

    /// True if the client has processed everything that was sent on the connection.
    pub(crate) fn is_settled(&self, connection: usize) -> bool {
        let pings = self.shared.pings.lock().unwrap();
        pings.get(&connection).is_some_and(|open| *open == 0) || !self.is_open(connection)
    }

    /// Makes new connections hang before the TLS handshake.
    pub(crate) fn hang_tls(&self, so: bool) {
        self.shared.is_hanging.store(so, Ordering::SeqCst);
    }

    /// Requests for an event stream.
    pub(crate) fn listeners(&self) -> Vec<H2Request> {
        let received = self.shared.requests.lock().unwrap();
        received.iter().filter(|received| received.request.method == "GET").cloned().collect()
    }

    /// Requests with this JSON-RPC method, after they were handled.
    pub(crate) fn requests_for(&self, rpc: &str) -> Vec<H2Request> {
        let received = self.shared.requests.lock().unwrap();
        received.iter().filter(|received| received.request.rpc() == rpc).cloned().collect()
    }

    /// Performs an action for an earlier request. Returns when it is done.
    pub(crate) async fn perform_now(&self, about: &H2Request, act: H2Action) {
        let orders = self.shared.orders.lock().unwrap()[about.connection - 1].clone();
        let (done, is_done) = oneshot::channel();
        orders.send((about.clone(), act, done)).await.unwrap();
        is_done.await.unwrap();
    }
}

impl Drop for H2Server {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

struct Connection<S> {
    stream: S,
    number: usize,
    shared: Arc<Shared>,
    /// Received data per stream.
    bodies: BTreeMap<u32, Vec<u8>>,
}

struct Frame {
    kind: u8,
    flags: u8,
    stream: u32,
    payload: Vec<u8>,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<S> {
    async fn serve(mut self, mut orders: mpsc::Receiver<Order>) -> std::io::Result<()> {
        let mut preface = [0; 24];
        self.stream.read_exact(&mut preface).await?;
        self.write_frame(SETTINGS, 0, 0, &[]).await?;
        let mut read = Vec::new();
        loop {
            tokio::select! {
                // `read_buf` is cancel-safe if an order comes first.
                more = self.stream.read_buf(&mut read) => if more? == 0 { return Ok(()) },
                Some((received, act, done)) = orders.recv() => {
                    let closes = self.perform(&received, act).await?;
                    done.send(()).unwrap();
                    if closes {
                        return Ok(());
                    }
                }
            }
            while let Some(frame) = next_frame(&mut read) {
                if self.handle_frame(frame).await? {
                    return Ok(());
                }
            }
        }
    }

    /// Handles a frame; returns true if the connection must be closed.
    async fn handle_frame(&mut self, frame: Frame) -> std::io::Result<bool> {
        match frame.kind {
            SETTINGS if frame.flags & ACK == 0 => self.write_frame(SETTINGS, ACK, 0, &[]).await?,
            PING if frame.flags & ACK == 0 => self.write_frame(PING, ACK, 0, &frame.payload).await?,
            PING => *self.shared.pings.lock().unwrap().entry(self.number).or_default() -= 1,
            HEADERS => drop(self.bodies.insert(frame.stream, Vec::new())),
            DATA => self.bodies.entry(frame.stream).or_default().extend(frame.payload),
            _ => return Ok(false),
        }
        if !matches!(frame.kind, HEADERS | DATA) || frame.flags & END_STREAM == 0 {
            return Ok(false);
        }
        let body = self.bodies.remove(&frame.stream).unwrap_or_default();
        // Only POST requests have a body.
        let method = if body.is_empty() { "GET" } else { "POST" }.to_owned();
        let request = HttpRequest { method, target: "/mcp".to_owned(), headers: Vec::new(), body };
        let received = H2Request { connection: self.number, stream: frame.stream, request };
        let mut closes = false;
        for act in (self.shared.play)(&received) {
            closes |= self.perform(&received, act).await?;
        }
        self.shared.requests.lock().unwrap().push(received);
        Ok(closes)
    }

    async fn perform(&mut self, received: &H2Request, act: H2Action) -> std::io::Result<bool> {
        match act {
            H2Action::Answer => {
                let ScriptedAction::Respond(answer) = respond_normally(&received.request) else {
                    unreachable!("it says what it says")
                };
                let (head, body) = head_and_body(&answer);
                self.write_frame(HEADERS, END_HEADERS, received.stream, &head).await?;
                self.write_frame(DATA, END_STREAM, received.stream, &body).await?;
            }
            H2Action::AnswerInPart { lacks } => {
                let ScriptedAction::Respond(answer) = respond_normally(&received.request) else {
                    unreachable!("it says what it says")
                };
                let (_, body) = head_and_body(&answer);
                let mut head = literal(":status", "200");
                head.extend(literal("content-type", "application/json"));
                self.write_frame(HEADERS, END_HEADERS, received.stream, &head).await?;
                self.write_frame(DATA, 0, received.stream, &body[..body.len() - lacks]).await?;
            }
            H2Action::AnswerWithoutEnd => {
                let mut head = literal(":status", "200");
                head.extend(literal("content-type", "text/event-stream"));
                self.write_frame(HEADERS, END_HEADERS, received.stream, &head).await?;
            }
            H2Action::Reset(code) => {
                self.write_frame(RST_STREAM, 0, received.stream, &code.to_be_bytes()).await?
            }
            H2Action::GoAway { last } => {
                let payload = [last.to_be_bytes(), 0_u32.to_be_bytes()].concat();
                self.write_frame(GOAWAY, 0, 0, &payload).await?;
            }
            H2Action::Limit(streams) => {
                let payload = [&[0, MAX_CONCURRENT_STREAMS], streams.to_be_bytes().as_slice()].concat();
                self.write_frame(SETTINGS, 0, 0, &payload).await?;
            }
            H2Action::Close => {
                self.stream.shutdown().await?;
                return Ok(true);
            }
        }
        // Its ACK shows that the client has processed all frames before it.
        *self.shared.pings.lock().unwrap().entry(self.number).or_default() += 1;
        self.write_frame(PING, 0, 0, &[0; 8]).await?;
        Ok(false)
    }

    async fn write_frame(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) -> std::io::Result<()> {
        let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
        let mut frame = length[1..].to_vec();
        frame.extend([kind, flags]);
        frame.extend(stream.to_be_bytes());
        frame.extend(payload);
        self.stream.write_all(&frame).await?;
        self.stream.flush().await
    }
}

async fn until_closed(mut stream: TcpStream) {
    let mut rest = [0; 1024];
    while stream.read(&mut rest).await.is_ok_and(|read| read > 0) {}
}

fn next_frame(read: &mut Vec<u8>) -> Option<Frame> {
    let head: [u8; 9] = read.get(..9)?.try_into().unwrap();
    let [a, b, c, kind, flags, stream @ ..] = head;
    let end = 9 + u32::from_be_bytes([0, a, b, c]) as usize;
    let payload = read.get(9..end)?.to_vec();
    read.drain(..end);
    Some(Frame { kind, flags, stream: u32::from_be_bytes(stream), payload })
}

/// Converts an HTTP/1.1 response to header fields and body.
fn head_and_body(response: &[u8]) -> (Vec<u8>, Vec<u8>) {
    let end = response.windows(4).position(|window| window == b"\r\n\r\n").unwrap();
    let head = std::str::from_utf8(&response[..end]).unwrap();
    let mut lines = head.split("\r\n");
    let status = lines.next().unwrap().split(' ').nth(1).unwrap();
    let mut fields = literal(":status", status);
    for (name, value) in lines.filter_map(|line| line.split_once(": ")) {
        if name != "connection" {
            fields.extend(literal(name, value));
        }
    }
    (fields, response[end + 4..].to_vec())
}

/// Encodes a header field as a literal without indexing.
fn literal(name: &str, value: &str) -> Vec<u8> {
    let mut field = vec![0];
    for text in [name, value] {
        assert!(text.len() < 127, "longer ones are written otherwise");
        field.push(u8::try_from(text.len()).unwrap());
        field.extend(text.as_bytes());
    }
    field
}

/// Tool name of a `tools/call`; `None` for other requests.
pub(crate) fn tool(received: &H2Request) -> Option<String> {
    let message: Value = received.request.json();
    (message["method"] == "tools/call").then(|| message["params"]["name"].as_str().unwrap().to_owned())
}
