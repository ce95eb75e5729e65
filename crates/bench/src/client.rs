//! One MCP client on one connection: it asks the same thing again and again, from bytes that were made ready before,
//! and looks whether it got what it asked for.

use std::io::Write as _;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use memchr::memmem;
use tokio::net::TcpStream;

use crate::echo::{GIVE, STREAM};
use crate::http1::{Connection, Message, header, status};
use crate::{Cannot, Result};

/// The protocol era that a client speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Era {
    Legacy,
    Modern,
}

/// What is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Question {
    /// So many bytes, as JSON.
    Give(usize),
    /// So many bytes, as an event stream.
    Stream(usize),
    /// All tools.
    List,
    /// The file of this name: no MCP, but what a web server does with bytes of that size.
    File(&'static str),
}

/// Where a server or gateway is, and under which prefix it has the tools.
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
    /// When the last answer came.
    answered: Instant,
    asked: u64,
}

/// A request whose id can be changed in place.
#[derive(Debug)]
pub(crate) struct Ready {
    bytes: Vec<u8>,
    /// Where the id stands; a file has none.
    id: Option<usize>,
    at_least: usize,
}

/// Servers close connections that are idle, some after a few seconds; their clients make new ones.
const MAY_BE_CLOSED_AFTER: Duration = Duration::from_secs(1);
/// All ids have as many digits, so that one fits where another was.
const FIRST_ID: u64 = 1_000_000_000;
const DIGITS: usize = 10;

impl Client {
    /// Connects, and shakes hands where the era wants that.
    pub(crate) async fn connect(address: &Address, era: Era) -> Result<Self> {
        let connection = dial(address).await?;
        let mut client = Self {
            address: address.clone(),
            era,
            session: None,
            connection,
            answered: Instant::now(),
            asked: FIRST_ID,
        };
        if era == Era::Legacy {
            client.begin_session().await?;
        }
        Ok(client)
    }

    /// Connects without a word.
    pub(crate) async fn silent(address: &Address) -> Result<Self> {
        let connection = dial(address).await?;
        Ok(Self {
            address: address.clone(),
            era: Era::Modern,
            session: None,
            connection,
            answered: Instant::now(),
            asked: FIRST_ID,
        })
    }

    /// Begins a session, and forgets the one before.
    pub(crate) async fn begin_session(&mut self) -> Result<()> {
        self.session = None;
        let hello = "{\"jsonrpc\":\"2.0\",\"id\":0,\"method\":\"initialize\",\"params\":{\"protocolVersion\":\"2025-11-25\",\
                     \"capabilities\":{},\"clientInfo\":{\"name\":\"bench\",\"version\":\"1\"}}}";
        self.connection.write(&self.post(hello, "initialize", None)).await?;
        let answer =
            self.connection.read().await?.ok_or_else(|| Cannot::because("a handshake", &"closed"))?;
        let head = self.connection.head(&answer);
        self.session = header(head, "mcp-session-id").map(str::to_owned);
        if self.session.is_none() {
            let text = String::from_utf8_lossy(self.connection.body(&answer)).into_owned();
            return Err(Cannot::because("a handshake", &text));
        }
        let initialized = "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\"}";
        self.connection.write(&self.post(initialized, "notifications/initialized", None)).await?;
        self.connection.read().await?;
        Ok(())
    }

    /// Opens the stream of its session and waits until it is open. It stays so until the answer is dropped.
    pub(crate) async fn listen(&self) -> Result<Connection> {
        let mut stream = dial(&self.address).await?;
        let Address { socket, path, .. } = &self.address;
        let session = self.session.as_deref().unwrap_or_default();
        let request = format!(
            "GET {path} HTTP/1.1\r\nhost: {socket}\r\naccept: text/event-stream\r\nmcp-session-id: {session}\r\n\
             mcp-protocol-version: 2025-11-25\r\n\r\n"
        );
        stream.write(request.as_bytes()).await?;
        match stream.read_head().await? {
            200 => Ok(stream),
            status => Err(Cannot::because("a stream", &format!("status {status}"))),
        }
    }

    /// Makes a question ready to be asked often.
    pub(crate) fn ready(&self, question: Question) -> Ready {
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
            Question::Give(bytes) => call(GIVE, bytes),
            Question::Stream(bytes) => call(STREAM, bytes),
            Question::List => ("tools/list", format!("{{{}}}", about_us.trim_start_matches(',')), None, 1),
            Question::File(file) => {
                let request = format!("GET /{file} HTTP/1.1\r\nhost: {}\r\n\r\n", self.address.socket);
                return Ready { bytes: request.into_bytes(), id: None, at_least: 1 };
            }
        };
        let body =
            format!("{{\"jsonrpc\":\"2.0\",\"id\":{FIRST_ID},\"method\":\"{method}\",\"params\":{params}}}");
        let bytes = self.post(&body, method, name.as_deref());
        let id = memmem::rfind(&bytes, b"\"id\":1000000000").map(|at| at + 5);
        Ready { bytes, id, at_least }
    }

    /// How many tools there are, on all pages of the list.
    pub(crate) async fn count_tools(&mut self) -> Result<usize> {
        let (mut count, mut cursor) = (0, None::<String>);
        loop {
            let params = cursor.take().map_or_else(String::new, |cursor| format!("\"cursor\":\"{cursor}\""));
            let body =
                format!("{{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/list\",\"params\":{{{params}}}}}");
            self.connection.write(&self.post(&body, "tools/list", None)).await?;
            let answer = self.connection.read().await?.ok_or_else(|| Cannot::because("a list", &"closed"))?;
            let page: serde_json::Value = serde_json::from_slice(self.connection.body(&answer))
                .map_err(|error| Cannot::because("a list", &error))?;
            count += page["result"]["tools"].as_array().map_or(0, Vec::len);
            match page["result"]["nextCursor"].as_str() {
                Some(next) => cursor = Some(next.to_owned()),
                None => return Ok(count),
            }
        }
    }

    /// The body of one answer, as it came.
    pub(crate) async fn body_of(&mut self, question: Question) -> Result<Vec<u8>> {
        let ready = self.ready(question);
        self.connection.write(&ready.bytes).await?;
        let answer = self.connection.read().await?.ok_or_else(|| Cannot::because("a call", &"closed"))?;
        Ok(self.connection.body(&answer).to_vec())
    }

    /// Asks once. Answers with how long it took and how many bytes came.
    pub(crate) async fn ask(&mut self, ready: &mut Ready) -> Result<(Duration, usize)> {
        self.asked += 1;
        let mut digits = [0_u8; DIGITS];
        write!(&mut digits[..], "{}", self.asked)?;
        if let Some(at) = ready.id {
            ready.bytes[at..at + DIGITS].copy_from_slice(&digits);
        }
        let rested = self.answered.elapsed() > MAY_BE_CLOSED_AFTER;
        let mut begun = Instant::now();
        let mut answer = self.exchange(&ready.bytes).await;
        if rested && !matches!(answer, Ok(Some(_))) {
            self.connection = dial(&self.address).await?;
            begun = Instant::now();
            answer = self.exchange(&ready.bytes).await;
        }
        let (answer, took) = (answer?, begun.elapsed());
        self.answered = Instant::now();
        let answer = answer.ok_or_else(|| Cannot::because("a call", &"the connection was closed"))?;
        let body = self.connection.body(&answer);
        // The id is near one of the ends, wherever its member stands.
        let edge = body.len().min(128);
        let is_ours = ready.id.is_none()
            || memmem::find(&body[..edge], &digits).is_some()
            || memmem::find(&body[body.len() - edge..], &digits).is_some();
        let status = status(self.connection.head(&answer));
        if status != 200 || body.len() < ready.at_least || !is_ours {
            let text = String::from_utf8_lossy(&body[..body.len().min(500)]).into_owned();
            return Err(Cannot::because("a call", &format!("status {status}: {text}")));
        }
        Ok((took, body.len()))
    }

    async fn exchange(&mut self, request: &[u8]) -> Result<Option<Message>> {
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

async fn dial(address: &Address) -> Result<Connection> {
    let stream = TcpStream::connect(address.socket).await?;
    stream.set_nodelay(true)?;
    Ok(Connection::new(stream))
}
