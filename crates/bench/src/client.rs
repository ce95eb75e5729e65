//! One MCP client on one connection. It sends the same prepared request repeatedly and checks the answers.

use std::io::Write as _;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use memchr::memmem;
use tokio::net::TcpStream;

use crate::echo::{GIVE, STREAM};
use crate::http1::{Connection, Message, header, status};
use gripfast_measure::{Era, MeasureError, Result};

/// Kind of request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BenchRequest {
    /// Call with a result of this many bytes, as JSON.
    Call(usize),
    /// Call with a result of this many bytes, as an event stream.
    Stream(usize),
    /// Listing of all tools.
    List,
    /// GET of a file with this name: not MCP, but a baseline for a web server with as many bytes.
    File(&'static str),
}

/// Address of a server or gateway, and the prefix of its tools.
#[derive(Debug, Clone)]
pub(crate) struct Address {
    pub(crate) socket: SocketAddr,
    pub(crate) path: String,
    pub(crate) prefix: &'static str,
}

#[derive(Debug)]
pub(crate) struct Client {
    address: Address,
    era: Era,
    session: Option<String>,
    connection: Connection,
    /// Time of the last answer.
    last_answer: Instant,
    sent: u64,
    /// True if the last response ends the connection.
    closing: bool,
}

/// A request whose id can be changed in place.
#[derive(Debug)]
pub(crate) struct PreparedRequest {
    bytes: Vec<u8>,
    /// Offset of the id; `None` for a file.
    id: Option<usize>,
    at_least: usize,
}

/// Idle time after which the client reconnects, because servers close idle connections, some after a few seconds.
const RECONNECT_AFTER: Duration = Duration::from_secs(1);
/// All ids have the same number of digits, so that they can be replaced in place.
const FIRST_ID: u64 = 1_000_000_000;
const DIGITS: usize = 10;

impl Client {
    /// Connects, and performs the handshake if the era has one.
    pub(crate) async fn connect(address: &Address, era: Era) -> Result<Self> {
        let mut client = Self::connect_without_session(address).await?;
        client.era = era;
        if era == Era::Legacy {
            client.initialize().await?;
        }
        Ok(client)
    }

    /// Connects without sending anything.
    pub(crate) async fn connect_without_session(address: &Address) -> Result<Self> {
        let connection = open_connection(address).await?;
        Ok(Self {
            address: address.clone(),
            era: Era::Modern,
            session: None,
            connection,
            last_answer: Instant::now(),
            sent: FIRST_ID,
            closing: false,
        })
    }

    /// Connects the same session to another gateway.
    pub(crate) async fn through(&self, address: &Address) -> Result<Self> {
        let client = Self::connect_without_session(address).await?;
        Ok(Self { era: self.era, session: self.session.clone(), ..client })
    }

    /// Id of the session.
    pub(crate) fn session(&self) -> Option<&str> {
        self.session.as_deref()
    }

    /// True unless the peer has closed the connection.
    pub(crate) fn is_open(&self) -> bool {
        self.connection.is_open()
    }

    /// True if the last response ends the connection.
    pub(crate) fn is_closing(&self) -> bool {
        self.closing
    }

    /// Makes a small call in this session of the legacy era. Returns the status.
    pub(crate) async fn call_as(&mut self, session: &str) -> Result<u16> {
        (self.era, self.session) = (Era::Legacy, Some(session.to_owned()));
        self.call_once().await
    }

    /// Makes a small call. Returns the status of the response; 500 for a result that is an error.
    pub(crate) async fn call_once(&mut self) -> Result<u16> {
        let ready = self.prepare(BenchRequest::Call(crate::calls::SMALL));
        let answer = self.round_trip(&ready.bytes).await?;
        let answer = answer.ok_or_else(|| MeasureError::new("call", &"the connection was closed"))?;
        let (head, body) = (self.connection.head(&answer), self.connection.body(&answer));
        self.closing = header(head, "connection").is_some_and(|value| value.eq_ignore_ascii_case("close"));
        let is_error =
            memmem::find(body, b"\"isError\":true").is_some() || memmem::find(body, b"\"result\"").is_none();
        match status(head) {
            200 if is_error => {
                Err(MeasureError::new("call", &String::from_utf8_lossy(&body[..body.len().min(300)])))
            }
            status => Ok(status),
        }
    }

    /// Starts a new session and drops the old one.
    pub(crate) async fn initialize(&mut self) -> Result<()> {
        self.session = None;
        let hello = "{\"jsonrpc\":\"2.0\",\"id\":0,\"method\":\"initialize\",\"params\":{\"protocolVersion\":\"2025-11-25\",\
                     \"capabilities\":{},\"clientInfo\":{\"name\":\"bench\",\"version\":\"1\"}}}";
        self.connection.write(&self.post(hello, "initialize", None)).await?;
        let answer = self
            .connection
            .read()
            .await?
            .ok_or_else(|| MeasureError::new("handshake", &"the connection was closed"))?;
        let head = self.connection.head(&answer);
        self.session = header(head, "mcp-session-id").map(str::to_owned);
        if self.session.is_none() {
            let text = String::from_utf8_lossy(self.connection.body(&answer)).into_owned();
            return Err(MeasureError::new("handshake", &text));
        }
        let initialized = "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\"}";
        self.connection.write(&self.post(initialized, "notifications/initialized", None)).await?;
        self.connection.read().await?;
        Ok(())
    }

    /// Opens the event stream of the session and waits until it is open. It stays open until the returned connection
    /// is dropped.
    pub(crate) async fn listen(&self) -> Result<Connection> {
        let mut stream = open_connection(&self.address).await?;
        let Address { socket, path, .. } = &self.address;
        let session = self.session.as_deref().unwrap_or_default();
        let request = format!(
            "GET {path} HTTP/1.1\r\nhost: {socket}\r\naccept: text/event-stream\r\nmcp-session-id: {session}\r\n\
             mcp-protocol-version: 2025-11-25\r\n\r\n"
        );
        stream.write(request.as_bytes()).await?;
        match stream.read_head().await? {
            200 => Ok(stream),
            status => Err(MeasureError::new("event stream", &format!("status {status}"))),
        }
    }

    /// Prepares a request for repeated use.
    pub(crate) fn prepare(&self, question: BenchRequest) -> PreparedRequest {
        let prefix = self.address.prefix;
        let about_us = match self.era {
            Era::Legacy => "",
            Era::Modern => {
                ",\"_meta\":{\"io.modelcontextprotocol/protocolVersion\":\"2026-07-28\",\
                 \"io.modelcontextprotocol/clientInfo\":{\"name\":\"bench\",\"version\":\"1\"},\
                 \"io.modelcontextprotocol/clientCapabilities\":{}}"
            }
        };
        let call = |tool: &str, bytes: usize| {
            let tool = format!("{prefix}{tool}");
            let params = format!("{{\"name\":\"{tool}\",\"arguments\":{{\"bytes\":{bytes}}}{about_us}}}");
            ("tools/call", params, Some(tool), bytes)
        };
        let (method, params, name, at_least) = match question {
            BenchRequest::Call(bytes) => call(GIVE, bytes),
            BenchRequest::Stream(bytes) => call(STREAM, bytes),
            BenchRequest::List => {
                ("tools/list", format!("{{{}}}", about_us.trim_start_matches(',')), None, 1)
            }
            BenchRequest::File(file) => {
                let request = format!("GET /{file} HTTP/1.1\r\nhost: {}\r\n\r\n", self.address.socket);
                return PreparedRequest { bytes: request.into_bytes(), id: None, at_least: 1 };
            }
        };
        let body =
            format!("{{\"jsonrpc\":\"2.0\",\"id\":{FIRST_ID},\"method\":\"{method}\",\"params\":{params}}}");
        let bytes = self.post(&body, method, name.as_deref());
        let id = memmem::rfind(&bytes, b"\"id\":1000000000").map(|at| at + 5);
        PreparedRequest { bytes, id, at_least }
    }

    /// Number of tools on all pages of the list.
    pub(crate) async fn count_tools(&mut self) -> Result<usize> {
        let (mut count, mut cursor) = (0, None::<String>);
        loop {
            let params = cursor.take().map_or_else(String::new, |cursor| format!("\"cursor\":\"{cursor}\""));
            let body =
                format!("{{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/list\",\"params\":{{{params}}}}}");
            self.connection.write(&self.post(&body, "tools/list", None)).await?;
            let answer = self
                .connection
                .read()
                .await?
                .ok_or_else(|| MeasureError::new("tools/list", &"the connection was closed"))?;
            let page: serde_json::Value = serde_json::from_slice(self.connection.body(&answer))
                .map_err(|error| MeasureError::new("tools/list", &error))?;
            count += page["result"]["tools"].as_array().map_or(0, Vec::len);
            match page["result"]["nextCursor"].as_str() {
                Some(next) => cursor = Some(next.to_owned()),
                None => return Ok(count),
            }
        }
    }

    /// Body of one answer, unmodified.
    pub(crate) async fn body_of(&mut self, question: BenchRequest) -> Result<Vec<u8>> {
        let ready = self.prepare(question);
        self.connection.write(&ready.bytes).await?;
        let answer = self
            .connection
            .read()
            .await?
            .ok_or_else(|| MeasureError::new("call", &"the connection was closed"))?;
        Ok(self.connection.body(&answer).to_vec())
    }

    /// Sends the request once. Returns the duration and the number of bytes received.
    pub(crate) async fn send(&mut self, ready: &mut PreparedRequest) -> Result<(Duration, usize)> {
        self.sent += 1;
        let mut digits = [0_u8; DIGITS];
        write!(&mut digits[..], "{}", self.sent)?;
        if let Some(at) = ready.id {
            ready.bytes[at..at + DIGITS].copy_from_slice(&digits);
        }
        let rested = self.last_answer.elapsed() > RECONNECT_AFTER;
        let mut begun = Instant::now();
        let mut answer = self.round_trip(&ready.bytes).await;
        if rested && !matches!(answer, Ok(Some(_))) {
            self.connection = open_connection(&self.address).await?;
            begun = Instant::now();
            answer = self.round_trip(&ready.bytes).await;
        }
        let (answer, took) = (answer?, begun.elapsed());
        self.last_answer = Instant::now();
        let answer = answer.ok_or_else(|| MeasureError::new("call", &"the connection was closed"))?;
        let body = self.connection.body(&answer);
        // The id is near the start or the end of the body, depending on the order of members.
        let edge = body.len().min(128);
        let is_ours = ready.id.is_none()
            || memmem::find(&body[..edge], &digits).is_some()
            || memmem::find(&body[body.len() - edge..], &digits).is_some();
        let status = status(self.connection.head(&answer));
        if status != 200 || body.len() < ready.at_least || !is_ours {
            let text = String::from_utf8_lossy(&body[..body.len().min(500)]).into_owned();
            return Err(MeasureError::new("call", &format!("status {status}: {text}")));
        }
        Ok((took, body.len()))
    }

    async fn round_trip(&mut self, request: &[u8]) -> Result<Option<Message>> {
        self.connection.write(request).await?;
        Ok(self.connection.read().await?)
    }

    fn post(&self, body: &str, method: &str, name: Option<&str>) -> Vec<u8> {
        let Address { socket, path, .. } = &self.address;
        let mut more = match self.era {
            Era::Modern => format!("mcp-protocol-version: 2026-07-28\r\nmcp-method: {method}\r\n"),
            Era::Legacy => String::new(),
        };
        if let Some(name) = name.filter(|_| self.era == Era::Modern) {
            more.push_str(&format!("mcp-name: {name}\r\n"));
        }
        if let Some(session) = &self.session {
            more.push_str(&format!("mcp-session-id: {session}\r\nmcp-protocol-version: 2025-11-25\r\n"));
        }
        format!(
            "POST {path} HTTP/1.1\r\nhost: {socket}\r\ncontent-type: application/json\r\n\
             accept: application/json, text/event-stream\r\n{more}content-length: {}\r\n\r\n{body}",
            body.len()
        )
        .into_bytes()
    }
}

async fn open_connection(address: &Address) -> Result<Connection> {
    let stream = TcpStream::connect(address.socket).await?;
    stream.set_nodelay(true)?;
    Ok(Connection::new(stream))
}
