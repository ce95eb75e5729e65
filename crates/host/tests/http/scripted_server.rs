//! A scripted HTTP/1.1 server with one request per connection that records its requests. It can also forward requests
//! to another server.

use serde_json::{Value, json};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::task::JoinHandle;

/// A received request.
#[derive(Debug, Clone)]
pub(crate) struct HttpRequest {
    pub(crate) method: String,
    pub(crate) target: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl HttpRequest {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }

    /// JSON-RPC method in the body; empty without one.
    pub(crate) fn rpc(&self) -> String {
        self.json()["method"].as_str().unwrap_or_default().to_owned()
    }
}

/// Action for a request.
pub(crate) enum ScriptedAction {
    /// Send these bytes and close.
    Respond(Vec<u8>),
    /// Send these bytes and keep the connection open.
    RespondAndHold(Vec<u8>),
    /// Send these bytes after the notification, and keep the connection open.
    RespondWhenNotified(Arc<Notify>, Vec<u8>),
    /// Send the first bytes, then the second ones repeatedly as long as the peer reads. Counts the bytes.
    Endless(Vec<u8>, Vec<u8>, Arc<AtomicUsize>),
    /// Forward the request and return the answer.
    Forward(SocketAddr),
    /// Forward the request to another path and return the answer.
    ForwardTo(SocketAddr, &'static str),
    /// Forward the request after the notification and return the answer.
    ForwardWhenNotified(Arc<Notify>, SocketAddr),
    /// Forward the request and never return the answer.
    ForwardAndHang(SocketAddr),
    /// Forward the request, wait for the whole answer, and reset the connection.
    ForwardAndReset(SocketAddr),
}

type Play = Arc<dyn Fn(&HttpRequest) -> ScriptedAction + Send + Sync>;

pub(crate) struct ScriptedServer {
    addr: SocketAddr,
    requests: Arc<Mutex<Vec<HttpRequest>>>,
    /// Open connections; aborting their tasks cuts them.
    open: Arc<Mutex<Vec<JoinHandle<()>>>>,
    accepting: JoinHandle<()>,
}

impl ScriptedServer {
    pub(crate) async fn new(play: impl Fn(&HttpRequest) -> ScriptedAction + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind(crate::http_host::any_local_port()).await.unwrap();
        let addr = listener.local_addr().unwrap();
        let (requests, open) = (Arc::<Mutex<Vec<HttpRequest>>>::default(), Arc::<Mutex<Vec<_>>>::default());
        let (notes, connections, play): (_, _, Play) =
            (Arc::clone(&requests), Arc::clone(&open), Arc::new(play));
        let accepting = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (notes, play) = (Arc::clone(&notes), Arc::clone(&play));
                let connection = tokio::spawn(async move { serve(stream, &notes, &play).await });
                connections.lock().unwrap().push(connection);
            }
        });
        Self { addr, requests, open, accepting }
    }

    /// A proxy to another server that changes nothing.
    pub(crate) async fn in_front_of(addr: SocketAddr) -> Self {
        Self::new(move |_| ScriptedAction::Forward(addr)).await
    }

    pub(crate) fn addr(&self) -> SocketAddr {
        self.addr
    }

    pub(crate) fn url(&self) -> String {
        self.url_for("/mcp")
    }

    pub(crate) fn url_for(&self, path: &str) -> String {
        format!("http://{}{path}", self.addr)
    }

    pub(crate) fn requests(&self) -> Vec<HttpRequest> {
        self.requests.lock().unwrap().clone()
    }

    /// Requests with this JSON-RPC method.
    pub(crate) fn requests_for(&self, rpc: &str) -> Vec<HttpRequest> {
        self.requests().into_iter().filter(|request| request.rpc() == rpc).collect()
    }

    /// Requests with this HTTP method.
    pub(crate) fn with_method(&self, method: &str) -> Vec<HttpRequest> {
        self.requests().into_iter().filter(|request| request.method == method).collect()
    }

    /// Cuts all open connections.
    pub(crate) fn cut(&self) {
        for connection in self.open.lock().unwrap().drain(..) {
            connection.abort();
        }
    }
}

impl Drop for ScriptedServer {
    fn drop(&mut self) {
        self.accepting.abort();
        self.cut();
    }
}

async fn serve(mut stream: TcpStream, notes: &Mutex<Vec<HttpRequest>>, play: &Play) {
    let Some(request) = read_request(&mut stream).await else { return };
    let act = play(&request);
    notes.lock().unwrap().push(request.clone());
    match act {
        ScriptedAction::Respond(bytes) => {
            let _ = stream.write_all(&bytes).await;
            let _ = stream.shutdown().await;
        }
        ScriptedAction::RespondAndHold(bytes) => {
            let _ = stream.write_all(&bytes).await;
            until_closed(&mut stream).await;
        }
        ScriptedAction::RespondWhenNotified(so, bytes) => {
            so.notified().await;
            let _ = stream.write_all(&bytes).await;
            until_closed(&mut stream).await;
        }
        ScriptedAction::Endless(begin, more, written) => {
            let mut piece = begin;
            while stream.write_all(&piece).await.is_ok() {
                written.fetch_add(piece.len(), Ordering::Relaxed);
                piece.clone_from(&more);
            }
        }
        ScriptedAction::Forward(addr) => forward(&mut stream, &request, &request.target, addr).await,
        ScriptedAction::ForwardTo(addr, path) => forward(&mut stream, &request, path, addr).await,
        ScriptedAction::ForwardWhenNotified(so, addr) => {
            so.notified().await;
            forward(&mut stream, &request, &request.target, addr).await;
        }
        ScriptedAction::ForwardAndHang(addr) => {
            forward_and_discard(&request, addr).await;
            until_closed(&mut stream).await;
        }
        ScriptedAction::ForwardAndReset(addr) => {
            forward_and_discard(&request, addr).await;
            stream.set_zero_linger().unwrap();
        }
    }
}

async fn forward_and_discard(request: &HttpRequest, addr: SocketAddr) {
    let mut answer = Vec::new();
    let mut onward = TcpStream::connect(addr).await.unwrap();
    onward.write_all(&request_bytes(request, &request.target)).await.unwrap();
    let _ = onward.read_to_end(&mut answer).await;
}

async fn until_closed(stream: &mut TcpStream) {
    let mut rest = [0; 1024];
    while stream.read(&mut rest).await.is_ok_and(|read| read > 0) {}
}

pub(crate) async fn forward(stream: &mut TcpStream, request: &HttpRequest, target: &str, addr: SocketAddr) {
    let Ok(mut onward) = TcpStream::connect(addr).await else { return };
    if onward.write_all(&request_bytes(request, target)).await.is_ok() {
        let _ = tokio::io::copy_bidirectional(stream, &mut onward).await;
    }
}

/// Reads a request with a Content-Length, which is all that our client sends.
pub(crate) async fn read_request(stream: &mut (impl AsyncRead + Unpin)) -> Option<HttpRequest> {
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
    Some(HttpRequest { method, target, headers, body })
}

fn request_bytes(request: &HttpRequest, target: &str) -> Vec<u8> {
    let mut bytes = format!("{} {target} HTTP/1.1\r\n", request.method).into_bytes();
    for (name, value) in request.headers.iter().filter(|(name, _)| name != "connection") {
        bytes.extend_from_slice(format!("{name}: {value}\r\n").as_bytes());
    }
    bytes.extend_from_slice(b"connection: close\r\n\r\n");
    bytes.extend_from_slice(&request.body);
    bytes
}

/// A complete response.
pub(crate) fn response(status: u16, headers: &[(&str, &str)], body: &str) -> Vec<u8> {
    let mut head =
        format!("HTTP/1.1 {status} As Told\r\nconnection: close\r\ncontent-length: {}\r\n", body.len());
    for (name, value) in headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    format!("{head}\r\n{body}").into_bytes()
}

/// Head of a response whose body ends with the connection.
pub(crate) fn open_ended(kind: &str) -> Vec<u8> {
    format!("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-type: {kind}\r\n\r\n").into_bytes()
}

pub(crate) fn respond_json(status: u16, body: &Value) -> ScriptedAction {
    ScriptedAction::Respond(response(status, &[("content-type", "application/json")], &body.to_string()))
}

pub(crate) fn respond_text(status: u16, text: &str) -> ScriptedAction {
    ScriptedAction::Respond(response(status, &[("content-type", "text/plain")], text))
}

pub(crate) fn redirect(status: u16, to: &str) -> ScriptedAction {
    ScriptedAction::Respond(response(status, &[("location", to)], ""))
}

/// A JSON-RPC result for the request.
pub(crate) fn respond_result(request: &HttpRequest, result: Value) -> ScriptedAction {
    respond_json(200, &json!({ "jsonrpc": "2.0", "id": request.json()["id"], "result": result }))
}

/// A small well-behaved legacy server: a session, one tool with a side effect (`act`) and one without (`look`), no
/// event stream. Tests handle their own cases first.
pub(crate) fn respond_normally(request: &HttpRequest) -> ScriptedAction {
    if request.method != "POST" {
        return respond_text(405, "method not allowed");
    }
    match request.rpc().as_str() {
        "server/discover" => {
            let error = json!({ "code": -32000, "message": "Bad Request: Server not initialized" });
            respond_json(400, &json!({ "jsonrpc": "2.0", "id": null, "error": error }))
        }
        "initialize" => {
            let result = json!({
                "protocolVersion": "2025-06-18",
                "capabilities": { "tools": {} },
                "serverInfo": { "name": "script", "version": "1" },
            });
            let body = json!({ "jsonrpc": "2.0", "id": request.json()["id"], "result": result });
            let headers = [("content-type", "application/json"), ("mcp-session-id", "s-1")];
            ScriptedAction::Respond(response(200, &headers, &body.to_string()))
        }
        "tools/list" => {
            let tool = |name: &str, read_only: bool| {
                json!({
                    "name": name,
                    "inputSchema": { "type": "object" },
                    "annotations": { "readOnlyHint": read_only },
                })
            };
            respond_result(request, json!({ "tools": [tool("act", false), tool("look", true)] }))
        }
        "tools/call" => respond_result(request, json!({ "content": [{ "type": "text", "text": "done" }] })),
        "ping" => respond_result(request, json!({})),
        method if method.starts_with("notifications/") => ScriptedAction::Respond(response(202, &[], "")),
        _ => {
            let error = json!({ "code": -32601, "message": "method not found" });
            respond_json(200, &json!({ "jsonrpc": "2.0", "id": request.json()["id"], "error": error }))
        }
    }
}

/// Copies in both directions until one side ends.
pub(crate) async fn join(mut one: impl AsyncRead + AsyncWrite + Unpin, addr: SocketAddr) {
    if let Ok(mut other) = TcpStream::connect(addr).await {
        let _ = tokio::io::copy_bidirectional(&mut one, &mut other).await;
    }
}
