//! A minimal MCP client over Streamable HTTP, for both eras. It never retries or repairs anything: the caller sees
//! exactly what happened to its request.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use http::{HeaderMap, Request, StatusCode, Uri};
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::{Value, json};

use crate::gateway::ToolAccess;
use crate::lock;
use gripfast_measure::{Era, MeasureError, Result};

const SESSION_ID: &str = "mcp-session-id";

/// One client with its own connections.
#[derive(Debug)]
pub struct Client {
    http: hyper_util::client::legacy::Client<HttpConnector, Full<Bytes>>,
    uri: Uri,
    era: Era,
    bearer: Option<String>,
    access: ToolAccess,
    session: Mutex<Option<String>>,
    ids: AtomicU64,
}

/// Result of a request.
#[derive(Debug)]
pub enum Reply {
    /// The method's result.
    Result(Value),
    /// A JSON-RPC error or an HTTP error status.
    Error(String),
    /// The session is unknown to the server.
    NoSession,
    /// No connection was established, so nothing was sent.
    ConnectFailed(String),
    /// The connection broke after the request was sent.
    Interrupted(String),
}

impl Client {
    /// Creates a client that has sent nothing yet.
    ///
    /// # Errors
    /// The URL is invalid.
    pub fn new(url: &str, era: Era) -> Result<Self> {
        let uri = url.parse().map_err(|error| MeasureError::new(url, &error))?;
        let http = hyper_util::client::legacy::Client::builder(TokioExecutor::new()).build_http();
        let access = ToolAccess::Listed;
        Ok(Self { http, uri, era, bearer: None, access, session: Mutex::default(), ids: AtomicU64::new(1) })
    }

    /// Sends this bearer token with every request.
    #[must_use]
    pub fn with_bearer(mut self, token: &str) -> Self {
        self.bearer = Some(token.to_owned());
        self
    }

    /// Calls tools in this way.
    #[must_use]
    pub fn with_access(self, access: ToolAccess) -> Self {
        Self { access, ..self }
    }

    /// Performs the handshake if the era has one, and drops an earlier session.
    pub async fn initialize(&self) -> Reply {
        if self.era == Era::Modern {
            return Reply::Result(Value::Null);
        }
        *lock(&self.session) = None;
        let client = json!({ "name": "chaos", "version": "1" });
        let params =
            json!({ "protocolVersion": Era::Legacy.revision(), "capabilities": {}, "clientInfo": client });
        let reply = self.request("initialize", params).await;
        if matches!(reply, Reply::Result(_)) {
            let initialized = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
            // A notification has no response to evaluate.
            let _ = self.post(&initialized, "notifications/initialized", None).await;
        }
        reply
    }

    /// Calls a tool.
    pub async fn call(&self, tool: &str, arguments: &Value) -> Reply {
        let call = json!({ "name": tool, "arguments": arguments });
        let call = match self.access {
            ToolAccess::Listed => call,
            ToolAccess::Search => json!({ "name": "call_tool", "arguments": call }),
        };
        self.request("tools/call", call).await
    }

    /// Names of all tools, over all pages; `None` if they cannot be listed.
    pub async fn tools(&self) -> Option<Vec<String>> {
        let mut names = Vec::new();
        let mut cursor = Value::Null;
        loop {
            let mut params = if cursor.is_null() { json!({}) } else { json!({ "cursor": cursor }) };
            if self.access == ToolAccess::Search {
                params["_meta"]["gripfast/exposure"] = json!("all");
            }
            let Reply::Result(mut page) = self.request("tools/list", params).await else { return None };
            let tools = page["tools"].as_array()?;
            names.extend(tools.iter().filter_map(|tool| tool["name"].as_str().map(str::to_owned)));
            cursor = page["nextCursor"].take();
            if cursor.is_null() {
                return Some(names);
            }
        }
    }

    /// Sends a request with any method.
    pub async fn request(&self, method: &str, mut params: Value) -> Reply {
        if self.era == Era::Modern {
            let meta = &mut params["_meta"];
            meta["io.modelcontextprotocol/protocolVersion"] = json!(self.era.revision());
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
    ) -> std::result::Result<HttpResponse, Reply> {
        let mut request = Request::post(self.uri.clone())
            .header("content-type", "application/json")
            .header("accept", "application/json, text/event-stream");
        match self.era {
            Era::Legacy => {
                if let Some(session) = lock(&self.session).as_deref() {
                    request = request
                        .header(SESSION_ID, session)
                        .header("mcp-protocol-version", self.era.revision());
                }
            }
            Era::Modern => {
                request =
                    request.header("mcp-protocol-version", self.era.revision()).header("mcp-method", method);
                if let Some(name) = name {
                    request = request.header("mcp-name", name);
                }
            }
        }
        if let Some(token) = &self.bearer {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        let body = Full::new(Bytes::from(message.to_string()));
        let request = request.body(body).map_err(|error| Reply::ConnectFailed(error.to_string()))?;
        let response = self.http.request(request).await.map_err(|error| {
            let text = format!("{error:?}");
            if error.is_connect() { Reply::ConnectFailed(text) } else { Reply::Interrupted(text) }
        })?;
        let (head, body) = response.into_parts();
        let body = body.collect().await.map_err(|error| Reply::Interrupted(format!("{error:?}")))?;
        Ok(HttpResponse { status: head.status, headers: head.headers, body: body.to_bytes() })
    }
}

/// Fetches a URL that is not an MCP endpoint; `None` if the response is not JSON.
pub async fn get(url: &str) -> Option<Value> {
    let client = Client::new(url, Era::Modern).ok()?;
    let request = Request::get(client.uri.clone()).body(Full::default()).ok()?;
    let body = client.http.request(request).await.ok()?.into_body().collect().await.ok()?;
    serde_json::from_slice(&body.to_bytes()).ok()
}

struct HttpResponse {
    status: StatusCode,
    headers: HeaderMap,
    body: Bytes,
}

impl HttpResponse {
    /// Response with this id: the JSON body, or the matching event of an event stream.
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
