//! A server that does exactly what a story tells it, and remembers what it was asked: a few lines of HTTP/1.1,
//! one request per connection. It can also stand in front of another server and pass requests on.

use serde_json::{Value, json};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::task::JoinHandle;

/// A request as it came.
#[derive(Debug, Clone)]
pub(crate) struct Heard {
    pub(crate) method: String,
    pub(crate) target: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Heard {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }

    /// The JSON-RPC method in its body; empty without one.
    pub(crate) fn rpc(&self) -> String {
        self.json()["method"].as_str().unwrap_or_default().to_owned()
    }
}

/// What to do about a request.
pub(crate) enum Act {
    /// Say these bytes and close.
    Say(Vec<u8>),
    /// Say these bytes and keep the connection open.
    SayAndHold(Vec<u8>),
    /// Say these bytes, but not before this is so, and keep the connection open.
    SayOnceAndHold(Arc<Notify>, Vec<u8>),
    /// Say these bytes, then more and more of the same, for as long as somebody reads. Counts the bytes.
    Endless(Vec<u8>, Vec<u8>, Arc<AtomicUsize>),
    /// Pass it on, and the answer back.
    PassOn(SocketAddr),
    /// Pass it on under another path, and the answer back.
    PassOnAs(SocketAddr, &'static str),
    /// Pass it on, and the answer back, but not before this is so.
    PassOnOnce(Arc<Notify>, SocketAddr),
    /// Pass it on, and keep the answer to ourselves.
    PassOnAndHang(SocketAddr),
    /// Pass it on, wait for the whole answer, and reset the connection instead of giving it back.
    SwallowAnswerOf(SocketAddr),
}

type Play = Arc<dyn Fn(&Heard) -> Act + Send + Sync>;

pub(crate) struct Script {
    addr: SocketAddr,
    heard: Arc<Mutex<Vec<Heard>>>,
    /// Connections under way; dropping them is cutting them.
    open: Arc<Mutex<Vec<JoinHandle<()>>>>,
    accepting: JoinHandle<()>,
}

impl Script {
    pub(crate) async fn new(play: impl Fn(&Heard) -> Act + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind(crate::stage::anywhere()).await.unwrap();
        let addr = listener.local_addr().unwrap();
        let (heard, open) = (Arc::<Mutex<Vec<Heard>>>::default(), Arc::<Mutex<Vec<_>>>::default());
        let (notes, connections, play): (_, _, Play) =
            (Arc::clone(&heard), Arc::clone(&open), Arc::new(play));
        let accepting = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (notes, play) = (Arc::clone(&notes), Arc::clone(&play));
                let connection = tokio::spawn(async move { serve(stream, &notes, &play).await });
                connections.lock().unwrap().push(connection);
            }
        });
        Self { addr, heard, open, accepting }
    }

    /// Stands in front of another server and changes nothing.
    pub(crate) async fn in_front_of(addr: SocketAddr) -> Self {
        Self::new(move |_| Act::PassOn(addr)).await
    }

    pub(crate) fn addr(&self) -> SocketAddr {
        self.addr
    }

    pub(crate) fn url(&self) -> String {
        self.at("/mcp")
    }

    pub(crate) fn at(&self, path: &str) -> String {
        format!("http://{}{path}", self.addr)
    }

    pub(crate) fn heard(&self) -> Vec<Heard> {
        self.heard.lock().unwrap().clone()
    }

    /// Requests with this JSON-RPC method.
    pub(crate) fn calls_of(&self, rpc: &str) -> Vec<Heard> {
        self.heard().into_iter().filter(|heard| heard.rpc() == rpc).collect()
    }

    /// Requests with this HTTP method.
    pub(crate) fn with_method(&self, method: &str) -> Vec<Heard> {
        self.heard().into_iter().filter(|heard| heard.method == method).collect()
    }

    /// Cuts every connection that is open now.
    pub(crate) fn cut(&self) {
        for connection in self.open.lock().unwrap().drain(..) {
            connection.abort();
        }
    }
}

impl Drop for Script {
    fn drop(&mut self) {
        self.accepting.abort();
        self.cut();
    }
}

async fn serve(mut stream: TcpStream, notes: &Mutex<Vec<Heard>>, play: &Play) {
    let Some(heard) = read_request(&mut stream).await else { return };
    let act = play(&heard);
    notes.lock().unwrap().push(heard.clone());
    match act {
        Act::Say(bytes) => {
            let _ = stream.write_all(&bytes).await;
            let _ = stream.shutdown().await;
        }
        Act::SayAndHold(bytes) => {
            let _ = stream.write_all(&bytes).await;
            until_closed(&mut stream).await;
        }
        Act::SayOnceAndHold(so, bytes) => {
            so.notified().await;
            let _ = stream.write_all(&bytes).await;
            until_closed(&mut stream).await;
        }
        Act::Endless(begin, more, written) => {
            let mut piece = begin;
            while stream.write_all(&piece).await.is_ok() {
                written.fetch_add(piece.len(), Ordering::Relaxed);
                piece.clone_from(&more);
            }
        }
        Act::PassOn(addr) => pass_on(&mut stream, &heard, &heard.target, addr).await,
        Act::PassOnAs(addr, path) => pass_on(&mut stream, &heard, path, addr).await,
        Act::PassOnOnce(so, addr) => {
            so.notified().await;
            pass_on(&mut stream, &heard, &heard.target, addr).await;
        }
        Act::PassOnAndHang(addr) => {
            swallow(&heard, addr).await;
            until_closed(&mut stream).await;
        }
        Act::SwallowAnswerOf(addr) => {
            swallow(&heard, addr).await;
            stream.set_zero_linger().unwrap();
        }
    }
}

async fn swallow(heard: &Heard, addr: SocketAddr) {
    let mut answer = Vec::new();
    let mut onward = TcpStream::connect(addr).await.unwrap();
    onward.write_all(&request_bytes(heard, &heard.target)).await.unwrap();
    let _ = onward.read_to_end(&mut answer).await;
}

async fn until_closed(stream: &mut TcpStream) {
    let mut rest = [0; 1024];
    while stream.read(&mut rest).await.is_ok_and(|read| read > 0) {}
}

pub(crate) async fn pass_on(stream: &mut TcpStream, heard: &Heard, target: &str, addr: SocketAddr) {
    let Ok(mut onward) = TcpStream::connect(addr).await else { return };
    if onward.write_all(&request_bytes(heard, target)).await.is_ok() {
        let _ = tokio::io::copy_bidirectional(stream, &mut onward).await;
    }
}

/// Reads a request with a body of known length, which is all that our client sends.
pub(crate) async fn read_request(stream: &mut (impl AsyncRead + Unpin)) -> Option<Heard> {
    let mut bytes = Vec::new();
    let end = loop {
        if let Some(at) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            break at;
        }
        if stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    };
    let head = String::from_utf8(bytes[..end].to_vec()).ok()?;
    let mut lines = head.split("\r\n");
    let mut begin = lines.next()?.split(' ');
    let (method, target) = (begin.next()?.to_owned(), begin.next()?.to_owned());
    let headers: Vec<(String, String)> = lines
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
        .collect();
    let mut body = bytes.split_off(end + 4);
    let length = headers.iter().find(|(name, _)| name == "content-length");
    let length: usize = length.map_or(0, |(_, value)| value.parse().unwrap());
    while body.len() < length {
        if stream.read_buf(&mut body).await.ok()? == 0 {
            return None;
        }
    }
    Some(Heard { method, target, headers, body })
}

fn request_bytes(heard: &Heard, target: &str) -> Vec<u8> {
    let mut bytes = format!("{} {target} HTTP/1.1\r\n", heard.method).into_bytes();
    for (name, value) in heard.headers.iter().filter(|(name, _)| name != "connection") {
        bytes.extend_from_slice(format!("{name}: {value}\r\n").as_bytes());
    }
    bytes.extend_from_slice(b"connection: close\r\n\r\n");
    bytes.extend_from_slice(&heard.body);
    bytes
}

/// A whole response.
pub(crate) fn response(status: u16, headers: &[(&str, &str)], body: &str) -> Vec<u8> {
    let mut head =
        format!("HTTP/1.1 {status} As Told\r\nconnection: close\r\ncontent-length: {}\r\n", body.len());
    for (name, value) in headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    format!("{head}\r\n{body}").into_bytes()
}

/// The head of a response whose body ends with the connection.
pub(crate) fn open_ended(kind: &str) -> Vec<u8> {
    format!("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-type: {kind}\r\n\r\n").into_bytes()
}

pub(crate) fn say_json(status: u16, body: &Value) -> Act {
    Act::Say(response(status, &[("content-type", "application/json")], &body.to_string()))
}

pub(crate) fn say_text(status: u16, text: &str) -> Act {
    Act::Say(response(status, &[("content-type", "text/plain")], text))
}

pub(crate) fn redirect(status: u16, to: &str) -> Act {
    Act::Say(response(status, &[("location", to)], ""))
}

/// A result for the request.
pub(crate) fn say_result(heard: &Heard, result: Value) -> Act {
    say_json(200, &json!({ "jsonrpc": "2.0", "id": heard.json()["id"], "result": result }))
}

/// A small legacy server with good manners: a session, one tool with a side effect (`act`) and one without
/// (`look`), no stream of its own. Stories put their own answers before these.
pub(crate) fn good_manners(heard: &Heard) -> Act {
    if heard.method != "POST" {
        return say_text(405, "method not allowed");
    }
    match heard.rpc().as_str() {
        "server/discover" => {
            let error = json!({ "code": -32000, "message": "Bad Request: Server not initialized" });
            say_json(400, &json!({ "jsonrpc": "2.0", "id": null, "error": error }))
        }
        "initialize" => {
            let result = json!({
                "protocolVersion": "2025-06-18",
                "capabilities": { "tools": {} },
                "serverInfo": { "name": "script", "version": "1" },
            });
            let body = json!({ "jsonrpc": "2.0", "id": heard.json()["id"], "result": result });
            let headers = [("content-type", "application/json"), ("mcp-session-id", "s-1")];
            Act::Say(response(200, &headers, &body.to_string()))
        }
        "tools/list" => {
            let tool = |name: &str, read_only: bool| {
                json!({
                    "name": name,
                    "inputSchema": { "type": "object" },
                    "annotations": { "readOnlyHint": read_only },
                })
            };
            say_result(heard, json!({ "tools": [tool("act", false), tool("look", true)] }))
        }
        "tools/call" => say_result(heard, json!({ "content": [{ "type": "text", "text": "done" }] })),
        "ping" => say_result(heard, json!({})),
        method if method.starts_with("notifications/") => Act::Say(response(202, &[], "")),
        _ => {
            let error = json!({ "code": -32601, "message": "method not found" });
            say_json(200, &json!({ "jsonrpc": "2.0", "id": heard.json()["id"], "error": error }))
        }
    }
}

/// Copies between two ends until one of them is done.
pub(crate) async fn join(mut one: impl AsyncRead + AsyncWrite + Unpin, addr: SocketAddr) {
    if let Ok(mut other) = TcpStream::connect(addr).await {
        let _ = tokio::io::copy_bidirectional(&mut one, &mut other).await;
    }
}
