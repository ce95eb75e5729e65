//! A cheap MCP client over Streamable HTTP, of either era. It repairs nothing: what happened to a request is what
//! its caller is told.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use http::{HeaderMap, Request, StatusCode, Uri};
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::{Value, json};

use crate::{Cannot, Result, lock};

const LEGACY: &str = "2025-11-25";
const MODERN: &str = "2026-07-28";
const SESSION_ID: &str = "mcp-session-id";

/// The generations of the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Era {
    /// With `initialize` and a session.
    Legacy,
    /// Every request stands alone.
    Modern,
}

/// One client, with connections of its own.
#[derive(Debug)]
pub struct Client {
    http: hyper_util::client::legacy::Client<HttpConnector, Full<Bytes>>,
    uri: Uri,
    era: Era,
    bearer: Option<String>,
    session: Mutex<Option<String>>,
    ids: AtomicU64,
}

/// What became of a request.
#[derive(Debug)]
pub enum Reply {
    /// The method's result.
    Result(Value),
    /// A JSON-RPC error, or an HTTP status that is one.
    Error(String),
    /// The session is not known any more.
    NoSession,
    /// No connection could be made: nothing was sent.
    Unreached(String),
    /// The connection broke after it was sent.
    Broken(String),
}

impl Client {
    /// A client that has not said anything yet.
    ///
    /// # Errors
    /// The URL is none.
    pub fn new(url: &str, era: Era) -> Result<Self> {
        let uri = url.parse().map_err(|error| Cannot::because(url, &error))?;
        let http = hyper_util::client::legacy::Client::builder(TokioExecutor::new()).build_http();
        Ok(Self { http, uri, era, bearer: None, session: Mutex::default(), ids: AtomicU64::new(1) })
    }

    /// Shows this token with every request.
    #[must_use]
    pub fn with_bearer(mut self, token: &str) -> Self {
        self.bearer = Some(token.to_owned());
        self
    }

    /// Shakes hands, where its era does that; a session from before is forgotten.
    pub async fn meet(&self) -> Reply {
        if self.era == Era::Modern {
            return Reply::Result(Value::Null);
        }
        *lock(&self.session) = None;
        let client = json!({ "name": "chaos", "version": "1" });
        let params = json!({ "protocolVersion": LEGACY, "capabilities": {}, "clientInfo": client });
        let reply = self.ask("initialize", params).await;
        if matches!(reply, Reply::Result(_)) {
            let initialized = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
            // A notification has no answer that anything could be made of.
            let _ = self.post(&initialized, "notifications/initialized", None).await;
        }
        reply
    }

    /// Calls a tool.
    pub async fn call(&self, tool: &str, arguments: &Value) -> Reply {
        self.ask("tools/call", json!({ "name": tool, "arguments": arguments })).await
    }

    /// The names of all tools, from all pages; `None` if they cannot be listed.
    pub async fn tools(&self) -> Option<Vec<String>> {
        let mut names = Vec::new();
        let mut cursor = Value::Null;
        loop {
            let params = if cursor.is_null() { json!({}) } else { json!({ "cursor": cursor }) };
            let Reply::Result(mut page) = self.ask("tools/list", params).await else { return None };
            let tools = page["tools"].as_array()?;
            names.extend(tools.iter().filter_map(|tool| tool["name"].as_str().map(str::to_owned)));
            cursor = page["nextCursor"].take();
            if cursor.is_null() {
                return Some(names);
            }
        }
    }

    /// Asks anything.
    pub async fn ask(&self, method: &str, mut params: Value) -> Reply {
        if self.era == Era::Modern {
            let meta = &mut params["_meta"];
            meta["io.modelcontextprotocol/protocolVersion"] = json!(MODERN);
            meta["io.modelcontextprotocol/clientCapabilities"] = json!({});
            meta["io.modelcontextprotocol/clientInfo"] = json!({ "name": "chaos", "version": "1" });
        }
        let name = params["name"].as_str().map(str::to_owned);
        let id = self.ids.fetch_add(1, Ordering::Relaxed);
        let message = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
        let answered = match self.post(&message, method, name.as_deref()).await {
            Ok(answered) => answered,
            Err(reply) => return reply,
        };
        if answered.status == StatusCode::NOT_FOUND && self.era == Era::Legacy {
            return Reply::NoSession;
        }
        if let Some(session) = answered.headers.get(SESSION_ID).and_then(|id| id.to_str().ok()) {
            *lock(&self.session) = Some(session.to_owned());
        }
        match answered.message(id) {
            Some(mut message) if message.get("result").is_some() => Reply::Result(message["result"].take()),
            Some(message) => Reply::Error(message["error"].to_string()),
            None => Reply::Error(format!("HTTP {}: {}", answered.status, answered.text())),
        }
    }

    async fn post(
        &self,
        message: &Value,
        method: &str,
        name: Option<&str>,
    ) -> std::result::Result<Answered, Reply> {
        let mut request = Request::post(self.uri.clone())
            .header("content-type", "application/json")
            .header("accept", "application/json, text/event-stream");
        match self.era {
            Era::Legacy => {
                if let Some(session) = lock(&self.session).as_deref() {
                    request = request.header(SESSION_ID, session).header("mcp-protocol-version", LEGACY);
                }
            }
            Era::Modern => {
                request = request.header("mcp-protocol-version", MODERN).header("mcp-method", method);
                if let Some(name) = name {
                    request = request.header("mcp-name", name);
                }
            }
        }
        if let Some(token) = &self.bearer {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        let body = Full::new(Bytes::from(message.to_string()));
        let request = request.body(body).map_err(|error| Reply::Unreached(error.to_string()))?;
        let response = self.http.request(request).await.map_err(|error| {
            let text = format!("{error:?}");
            if error.is_connect() { Reply::Unreached(text) } else { Reply::Broken(text) }
        })?;
        let (head, body) = response.into_parts();
        let body = body.collect().await.map_err(|error| Reply::Broken(format!("{error:?}")))?;
        Ok(Answered { status: head.status, headers: head.headers, body: body.to_bytes() })
    }
}

/// What is at an address that is no MCP endpoint, if it is JSON.
pub async fn get(url: &str) -> Option<Value> {
    let client = Client::new(url, Era::Modern).ok()?;
    let request = Request::get(client.uri.clone()).body(Full::default()).ok()?;
    let body = client.http.request(request).await.ok()?.into_body().collect().await.ok()?;
    serde_json::from_slice(&body.to_bytes()).ok()
}

struct Answered {
    status: StatusCode,
    headers: HeaderMap,
    body: Bytes,
}

impl Answered {
    /// The response to this id: the JSON body, or the event among others that carries it.
    fn message(&self, id: u64) -> Option<Value> {
        let kind = self.headers.get("content-type").and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        let text = self.text();
        let candidates: Vec<&str> = if kind.starts_with("text/event-stream") {
            text.lines().filter_map(|line| line.strip_prefix("data:")).collect()
        } else {
            vec![&text]
        };
        let parsed = candidates.into_iter().filter_map(|text| serde_json::from_str::<Value>(text).ok());
        let mut responses = parsed.filter(|message| message.get("method").is_none());
        responses.find(|message| message["id"] == id || message["id"].is_null())
    }

    fn text(&self) -> std::borrow::Cow<'_, str> {
        String::from_utf8_lossy(&self.body)
    }
}
