//! A minimal MCP client over Streamable HTTP, for both eras. It never retries or repairs anything: the caller sees
//! exactly what happened to its request.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, Request, StatusCode, Uri};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::{Value, json};

use crate::gateway::ToolAccess;
use crate::lock;
use gripfast_measure::{Era, MeasureError, Result};

const SESSION_ID: &str = "mcp-session-id";
/// Pause of a client that cannot resume a stream yet.
const RESUME_INTERVAL: Duration = Duration::from_millis(50);

/// One client with its own connections.
#[derive(Debug)]
pub struct Client {
    http: hyper_util::client::legacy::Client<HttpConnector, Full<Bytes>>,
    uris: Vec<Uri>,
    route: Mutex<Route>,
    turn: AtomicUsize,
    era: Era,
    bearer: Option<String>,
    access: ToolAccess,
    session: Mutex<Option<String>>,
    ids: AtomicU64,
}

/// Gateways that a client of several replicas uses, as indices of its URLs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
    /// Replica of the handshake.
    pub home: usize,
    /// Replicas that get the other requests in turn.
    pub through: Vec<usize>,
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
        Self::of_replicas(&[url.to_owned()], era)
    }

    /// Creates a client of several gateways that act as one service. It sends its requests to all of them in turn, until
    /// it gets another route, and resumes streams that break.
    ///
    /// # Errors
    /// A URL is invalid.
    pub fn of_replicas(urls: &[String], era: Era) -> Result<Self> {
        let parse = |url: &String| url.parse().map_err(|error| MeasureError::new(url, &error));
        let uris: Vec<Uri> = urls.iter().map(parse).collect::<Result<_>>()?;
        let route = Mutex::new(Route { home: 0, through: (0..uris.len()).collect() });
        Ok(Self {
            http: hyper_util::client::legacy::Client::builder(TokioExecutor::new()).build_http(),
            uris,
            route,
            turn: AtomicUsize::new(0),
            era,
            bearer: None,
            access: ToolAccess::Listed,
            session: Mutex::default(),
            ids: AtomicU64::new(1),
        })
    }

    /// Sends the following requests on this route.
    pub fn set_route(&self, route: Route) {
        *lock(&self.route) = route;
    }

    /// Era of the client.
    #[must_use]
    pub fn era(&self) -> Era {
        self.era
    }

    /// URL of the next request.
    fn next_uri(&self, method: &str) -> Uri {
        let route = lock(&self.route);
        let at = if method == "initialize" {
            route.home
        } else {
            route.through[self.turn.fetch_add(1, Ordering::Relaxed) % route.through.len()]
        };
        self.uris[at].clone()
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
        let mut answered = match self.post(&message, method, name.as_deref()).await {
            Ok(answered) => answered,
            Err(reply) => return reply,
        };
        if let Some(resumed) = self.resume(&answered, id).await {
            answered = resumed;
        }
        if let Some(text) = answered.broken.take() {
            return Reply::Interrupted(text);
        }
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
        let mut request = self
            .request_to(Method::POST, self.next_uri(method))
            .header("content-type", "application/json")
            .header("accept", "application/json, text/event-stream");
        if self.era == Era::Modern {
            request = request.header("mcp-method", method);
            if let Some(name) = name {
                request = request.header("mcp-name", name);
            }
        }
        let body = Full::new(Bytes::from(message.to_string()));
        self.send(request.body(body)).await
    }

    /// A request with the headers that all requests of the client have.
    fn request_to(&self, method: Method, uri: Uri) -> http::request::Builder {
        let mut request = Request::builder().method(method).uri(uri);
        match (self.era, lock(&self.session).as_deref()) {
            (Era::Legacy, None) => {}
            (Era::Legacy, Some(session)) => {
                request =
                    request.header(SESSION_ID, session).header("mcp-protocol-version", self.era.revision());
            }
            (Era::Modern, _) => request = request.header("mcp-protocol-version", self.era.revision()),
        }
        match &self.bearer {
            Some(token) => request.header("authorization", format!("Bearer {token}")),
            None => request,
        }
    }

    /// Sends a request and reads the whole response, or as much of it as comes.
    async fn send(
        &self,
        request: http::Result<Request<Full<Bytes>>>,
    ) -> std::result::Result<HttpResponse, Reply> {
        let request = request.map_err(|error| Reply::ConnectFailed(error.to_string()))?;
        let response = self.http.request(request).await.map_err(|error| {
            let text = format!("{error:?}");
            if error.is_connect() { Reply::ConnectFailed(text) } else { Reply::Interrupted(text) }
        })?;
        let (head, mut parts) = response.into_parts();
        let (mut body, mut broken) = (Vec::new(), None);
        while let Some(frame) = parts.frame().await {
            match frame {
                Ok(frame) => body.extend_from_slice(frame.data_ref().map_or(&[][..], |data| data)),
                Err(error) => {
                    broken = Some(format!("{error:?}"));
                    break;
                }
            }
        }
        Ok(HttpResponse { status: head.status, headers: head.headers, body: body.into(), broken })
    }

    /// Resumes the stream of a response that ended before it had the answer, as often as it takes. `None` if there is
    /// nothing to resume. Only a client of replicas does this.
    async fn resume(&self, cut: &HttpResponse, id: u64) -> Option<HttpResponse> {
        if self.uris.len() < 2 || self.era != Era::Legacy || cut.message(id).is_some() {
            return None;
        }
        let mut last = cut.last_event_id()?;
        loop {
            let request = self
                .request_to(Method::GET, self.next_uri("resume"))
                .header("accept", "text/event-stream")
                .header("last-event-id", &last);
            match self.send(request.body(Full::default())).await {
                Ok(resumed) if resumed.message(id).is_some() => {
                    return Some(HttpResponse { broken: None, ..resumed });
                }
                Ok(resumed) if resumed.status == StatusCode::OK => {
                    last = resumed.last_event_id().unwrap_or(last);
                }
                // Nothing was done: it comes back.
                Ok(resumed) if resumed.status == StatusCode::SERVICE_UNAVAILABLE => {}
                Ok(resumed) => {
                    let text = format!("HTTP {} to a resumed stream", resumed.status);
                    return Some(HttpResponse { broken: Some(text), ..resumed });
                }
                Err(_) => {}
            }
            tokio::time::sleep(RESUME_INTERVAL).await;
        }
    }

    /// Opens the stream for messages outside of calls. `None` if it is refused.
    pub async fn listen(&self) -> Option<Incoming> {
        let request =
            self.request_to(Method::GET, self.next_uri("listen")).header("accept", "text/event-stream");
        let response = self.http.request(request.body(Full::default()).ok()?).await.ok()?;
        (response.status() == StatusCode::OK).then(|| response.into_body())
    }
}

/// Fetches a URL that is not an MCP endpoint; `None` if the response is not JSON.
pub async fn get(url: &str) -> Option<Value> {
    let client = Client::new(url, Era::Modern).ok()?;
    serde_json::from_slice(&get_bytes(&client).await?).ok()
}

/// Fetches a URL as text.
pub async fn get_text(url: &str) -> Option<String> {
    let client = Client::new(url, Era::Modern).ok()?;
    Some(String::from_utf8_lossy(&get_bytes(&client).await?).into_owned())
}

async fn get_bytes(client: &Client) -> Option<Bytes> {
    let request = Request::get(client.uris[0].clone()).body(Full::default()).ok()?;
    Some(client.http.request(request).await.ok()?.into_body().collect().await.ok()?.to_bytes())
}

struct HttpResponse {
    status: StatusCode,
    headers: HeaderMap,
    body: Bytes,
    /// Cause, if the connection broke before the end.
    broken: Option<String>,
}

impl HttpResponse {
    fn is_stream(&self) -> bool {
        let kind = self.headers.get("content-type").and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        kind.starts_with("text/event-stream")
    }

    /// Id of the last event of a stream.
    fn last_event_id(&self) -> Option<String> {
        let text = self.is_stream().then(|| self.text())?;
        text.lines().filter_map(|line| line.strip_prefix("id:")).next_back().map(|id| id.trim().to_owned())
    }

    /// Response with this id: the JSON body, or the matching event of an event stream.
    fn message(&self, id: u64) -> Option<Value> {
        let text = self.text();
        let candidates: Vec<&str> = if self.is_stream() {
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
