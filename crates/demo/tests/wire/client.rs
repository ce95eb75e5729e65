//! A small HTTP/1.1 client over a plain socket, so that the tests see the bytes without corrections of a library.

use std::net::SocketAddr;

use serde_json::Value;
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::TcpStream,
};

/// One response on its own connection; dropping it closes the connection.
pub(crate) struct Response {
    pub(crate) status: u16,
    headers: Vec<(String, String)>,
    socket: BufReader<TcpStream>,
    decoded: Vec<u8>,
}

pub(crate) struct Event {
    pub(crate) event: String,
    pub(crate) id: Option<String>,
    pub(crate) data: String,
}

pub(crate) async fn post(addr: SocketAddr, path: &str, headers: &[(&str, &str)], body: &Value) -> Response {
    let accept = ("Accept", "application/json, text/event-stream");
    let mut all = vec![accept, ("Content-Type", "application/json")];
    all.extend_from_slice(headers);
    send(addr, "POST", path, &all, &body.to_string()).await.expect("a response")
}

pub(crate) async fn get(addr: SocketAddr, path: &str, headers: &[(&str, &str)]) -> Response {
    let mut all = vec![("Accept", "text/event-stream")];
    all.extend_from_slice(headers);
    send(addr, "GET", path, &all, "").await.expect("a response")
}

/// `None` if the connection ends before there is a status line.
pub(crate) async fn send(
    addr: SocketAddr,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> Option<Response> {
    let mut socket = BufReader::new(TcpStream::connect(addr).await.expect("the server listens"));
    let mut request =
        format!("{method} {path} HTTP/1.1\r\nHost: {addr}\r\nContent-Length: {}\r\n", body.len());
    for (name, value) in headers {
        request.push_str(&format!("{name}: {value}\r\n"));
    }
    request.push_str("\r\n");
    request.push_str(body);
    socket.write_all(request.as_bytes()).await.ok()?;

    let status_line = line(&mut socket).await?;
    let status = status_line.split(' ').nth(1)?.parse().ok()?;
    let mut headers = Vec::new();
    loop {
        let line = line(&mut socket).await?;
        let Some((name, value)) = line.split_once(':') else { break };
        headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
    }
    Some(Response { status, headers, socket, decoded: Vec::new() })
}

async fn line(socket: &mut BufReader<TcpStream>) -> Option<String> {
    let mut line = String::new();
    match socket.read_line(&mut line).await {
        Ok(0) | Err(_) => None,
        Ok(_) => Some(line.trim_end().to_owned()),
    }
}

/// Result of reading more of a body.
#[derive(Debug, PartialEq, Eq)]
enum More {
    Bytes,
    End,
    /// The connection ended before the body was complete.
    Broken,
}

impl Response {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    pub(crate) async fn text(mut self) -> String {
        if let Some(length) = self.header("content-length") {
            let mut body = vec![0; length.parse().expect("a length")];
            self.socket.read_exact(&mut body).await.expect("the whole body");
            return String::from_utf8(body).expect("text");
        }
        while self.more().await == More::Bytes {}
        String::from_utf8(self.decoded).expect("text")
    }

    pub(crate) async fn json(self) -> Value {
        assert_eq!(self.header("content-type"), Some("application/json"), "status {}", self.status);
        serde_json::from_str(&self.text().await).expect("JSON")
    }

    /// The next event that is not a comment; `None` if the stream ended, cleanly or not.
    pub(crate) async fn event(&mut self) -> Option<Event> {
        loop {
            if let Some(end) = self.decoded.windows(2).position(|pair| pair == b"\n\n") {
                let block: Vec<u8> = self.decoded.drain(..end + 2).collect();
                let block = String::from_utf8_lossy(&block).into_owned();
                let field = |name: &str| {
                    let prefix = format!("{name}: ");
                    block.lines().find_map(|line| line.strip_prefix(&prefix).map(str::to_owned))
                };
                if let Some(data) = field("data") {
                    let event = field("event").unwrap_or_default();
                    return Some(Event { event, id: field("id"), data });
                }
                continue;
            }
            if self.more().await != More::Bytes {
                return None;
            }
        }
    }

    /// The next message of an event stream.
    pub(crate) async fn message(&mut self) -> Option<Value> {
        loop {
            let event = self.event().await?;
            if !event.data.is_empty() {
                return Some(serde_json::from_str(&event.data).expect("a message"));
            }
        }
    }

    /// Reads to the end. Returns the rest after the last complete event, and whether the end was clean.
    pub(crate) async fn rest(mut self) -> (String, bool) {
        loop {
            match self.more().await {
                More::Bytes => {}
                end => return (String::from_utf8_lossy(&self.decoded).into_owned(), end == More::End),
            }
        }
    }

    /// Reads one chunk.
    async fn more(&mut self) -> More {
        let Some(size) = line(&mut self.socket).await else { return More::Broken };
        let size = usize::from_str_radix(&size, 16).expect("a chunk size");
        let mut chunk = vec![0; size + 2];
        if self.socket.read_exact(&mut chunk).await.is_err() {
            return More::Broken;
        }
        self.decoded.extend_from_slice(&chunk[..size]);
        if size == 0 { More::End } else { More::Bytes }
    }
}
