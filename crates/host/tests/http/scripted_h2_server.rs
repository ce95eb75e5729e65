//! A server that speaks HTTP/2 over TLS frame by frame, so that it can do what well-behaved ones never do. It looks at
//! nothing but frames: what is asked stands in their data, and what it says needs no more of header compression than
//! literals.

use crate::script::{Act, Heard, good_manners};
use crate::stage::anywhere;
use crate::tls::{Clients, Papers};
use gripfast::config::ServerSpec;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

/// A request that came, and where.
#[derive(Debug, Clone)]
pub(crate) struct Asked {
    /// Connections are counted from 1.
    pub(crate) connection: usize,
    pub(crate) stream: u32,
    pub(crate) heard: Heard,
}

/// What to do on a connection.
#[derive(Debug, Clone)]
pub(crate) enum Do {
    /// Answer the request with good manners.
    Answer,
    /// Answer it with an event stream that says nothing and does not end.
    AnswerWithoutEnd,
    /// Answer it, but leave out so many bytes and the end of the stream.
    AnswerInPart { lacks: usize },
    /// End its stream with this error.
    Reset(u32),
    /// Say farewell, and that this stream was the last that was looked at.
    Farewell { last: u32 },
    /// Say how many streams may be open at a time.
    Limit(u32),
    /// Close the connection without a word.
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

type Play = Arc<dyn Fn(&Asked) -> Vec<Do> + Send + Sync>;
/// What is to be done about a request that has come before, and who waits until it is done.
type Order = (Asked, Do, oneshot::Sender<()>);

pub(crate) struct Peer {
    papers: Papers,
    url: String,
    shared: Arc<Shared>,
    accepting: JoinHandle<()>,
}

struct Shared {
    asked: Mutex<Vec<Asked>>,
    /// One for each connection that was made; those that are closed take no more orders.
    orders: Mutex<Vec<mpsc::Sender<Order>>>,
    /// Pings that were not answered, of each connection.
    pings: Mutex<BTreeMap<usize, usize>>,
    /// Whether those who come are kept waiting before anything is agreed on.
    is_hanging: AtomicBool,
    play: Play,
}

impl Peer {
    /// A server that does about each request what `play` says, and nothing if it says nothing.
    pub(crate) async fn new(play: impl Fn(&Asked) -> Vec<Do> + Send + Sync + 'static) -> Self {
        let papers = Papers::new();
        let acceptor = papers.acceptor(Clients::Anybody, &["h2"]);
        let listener = TcpListener::bind(anywhere()).await.unwrap();
        let url = format!("https://{}/mcp", listener.local_addr().unwrap());
        let shared = Shared {
            asked: Mutex::default(),
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
        Self { papers, url, shared, accepting }
    }

    pub(crate) fn spec(&self) -> ServerSpec {
        crate::stage::with_tls(crate::stage::spec(&self.url), self.papers.trust())
    }

    /// Connections that were made so far.
    pub(crate) fn connections(&self) -> usize {
        self.shared.orders.lock().unwrap().len()
    }

    /// Whether a connection is still open.
    pub(crate) fn is_open(&self, connection: usize) -> bool {
        !self.shared.orders.lock().unwrap()[connection - 1].is_closed()
    }

    /// Whether all that was said on a connection has been heard there.
    pub(crate) fn is_settled(&self, connection: usize) -> bool {
        let pings = self.shared.pings.lock().unwrap();
        pings.get(&connection).is_some_and(|open| *open == 0) || !self.is_open(connection)
    }

    /// Whether whoever connects from here on is kept waiting.
    pub(crate) fn hang(&self, so: bool) {
        self.shared.is_hanging.store(so, Ordering::SeqCst);
    }

    /// Requests to listen.
    pub(crate) fn listeners(&self) -> Vec<Asked> {
        let asked = self.shared.asked.lock().unwrap();
        asked.iter().filter(|asked| asked.heard.method == "GET").cloned().collect()
    }

    /// Requests with this JSON-RPC method, once they were dealt with.
    pub(crate) fn calls_of(&self, rpc: &str) -> Vec<Asked> {
        let asked = self.shared.asked.lock().unwrap();
        asked.iter().filter(|asked| asked.heard.rpc() == rpc).cloned().collect()
    }

    /// Does something later, about a request that has come. Returns when it is done.
    pub(crate) async fn now(&self, about: &Asked, act: Do) {
        let orders = self.shared.orders.lock().unwrap()[about.connection - 1].clone();
        let (done, is_done) = oneshot::channel();
        orders.send((about.clone(), act, done)).await.unwrap();
        is_done.await.unwrap();
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

struct Connection<S> {
    stream: S,
    number: usize,
    shared: Arc<Shared>,
    /// What has come of each request.
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
        self.say(SETTINGS, 0, 0, &[]).await?;
        let mut read = Vec::new();
        loop {
            tokio::select! {
                // Whatever is read stays read if an order comes first.
                more = self.stream.read_buf(&mut read) => if more? == 0 { return Ok(()) },
                Some((asked, act, done)) = orders.recv() => {
                    let closes = self.perform(&asked, act).await?;
                    done.send(()).unwrap();
                    if closes {
                        return Ok(());
                    }
                }
            }
            while let Some(frame) = next_frame(&mut read) {
                if self.take(frame).await? {
                    return Ok(());
                }
            }
        }
    }

    /// Takes a frame; answers whether the connection is to be closed.
    async fn take(&mut self, frame: Frame) -> std::io::Result<bool> {
        match frame.kind {
            SETTINGS if frame.flags & ACK == 0 => self.say(SETTINGS, ACK, 0, &[]).await?,
            PING if frame.flags & ACK == 0 => self.say(PING, ACK, 0, &frame.payload).await?,
            PING => *self.shared.pings.lock().unwrap().entry(self.number).or_default() -= 1,
            HEADERS => drop(self.bodies.insert(frame.stream, Vec::new())),
            DATA => self.bodies.entry(frame.stream).or_default().extend(frame.payload),
            _ => return Ok(false),
        }
        if !matches!(frame.kind, HEADERS | DATA) || frame.flags & END_STREAM == 0 {
            return Ok(false);
        }
        let body = self.bodies.remove(&frame.stream).unwrap_or_default();
        // Only what is posted has a body.
        let method = if body.is_empty() { "GET" } else { "POST" }.to_owned();
        let heard = Heard { method, target: "/mcp".to_owned(), headers: Vec::new(), body };
        let asked = Asked { connection: self.number, stream: frame.stream, heard };
        let mut closes = false;
        for act in (self.shared.play)(&asked) {
            closes |= self.perform(&asked, act).await?;
        }
        self.shared.asked.lock().unwrap().push(asked);
        Ok(closes)
    }

    async fn perform(&mut self, asked: &Asked, act: Do) -> std::io::Result<bool> {
        match act {
            Do::Answer => {
                let Act::Say(answer) = good_manners(&asked.heard) else {
                    unreachable!("it says what it says")
                };
                let (head, body) = head_and_body(&answer);
                self.say(HEADERS, END_HEADERS, asked.stream, &head).await?;
                self.say(DATA, END_STREAM, asked.stream, &body).await?;
            }
            Do::AnswerInPart { lacks } => {
                let Act::Say(answer) = good_manners(&asked.heard) else {
                    unreachable!("it says what it says")
                };
                let (_, body) = head_and_body(&answer);
                let mut head = literal(":status", "200");
                head.extend(literal("content-type", "application/json"));
                self.say(HEADERS, END_HEADERS, asked.stream, &head).await?;
                self.say(DATA, 0, asked.stream, &body[..body.len() - lacks]).await?;
            }
            Do::AnswerWithoutEnd => {
                let mut head = literal(":status", "200");
                head.extend(literal("content-type", "text/event-stream"));
                self.say(HEADERS, END_HEADERS, asked.stream, &head).await?;
            }
            Do::Reset(code) => self.say(RST_STREAM, 0, asked.stream, &code.to_be_bytes()).await?,
            Do::Farewell { last } => {
                let payload = [last.to_be_bytes(), 0_u32.to_be_bytes()].concat();
                self.say(GOAWAY, 0, 0, &payload).await?;
            }
            Do::Limit(streams) => {
                let payload = [&[0, MAX_CONCURRENT_STREAMS], streams.to_be_bytes().as_slice()].concat();
                self.say(SETTINGS, 0, 0, &payload).await?;
            }
            Do::Close => {
                self.stream.shutdown().await?;
                return Ok(true);
            }
        }
        // Its answer shows that the other side has heard all this.
        *self.shared.pings.lock().unwrap().entry(self.number).or_default() += 1;
        self.say(PING, 0, 0, &[0; 8]).await?;
        Ok(false)
    }

    async fn say(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) -> std::io::Result<()> {
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

/// A response in the words of HTTP/1.1, as header fields and body.
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

/// A header field as it is, in the one form that needs no table.
fn literal(name: &str, value: &str) -> Vec<u8> {
    let mut field = vec![0];
    for text in [name, value] {
        assert!(text.len() < 127, "longer ones are written otherwise");
        field.push(u8::try_from(text.len()).unwrap());
        field.extend(text.as_bytes());
    }
    field
}

/// The tool that a call is for; nothing for any other request.
pub(crate) fn tool(asked: &Asked) -> Option<String> {
    let message: Value = asked.heard.json();
    (message["method"] == "tools/call").then(|| message["params"]["name"].as_str().unwrap().to_owned())
}
