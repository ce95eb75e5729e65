//! Minimal MCP clients: raw HTTP, and the legacy and modern protocols on top of it.

use bytes::Bytes;
use gripfast_testkit::wait::within;
use http::{HeaderMap, Method, Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::{Value, json};
use std::sync::atomic::{AtomicU64, Ordering};

pub(crate) const LEGACY: &str = "2025-11-25";
pub(crate) const MODERN: &str = "2026-07-28";

/// HTTP client of the gateway.
#[derive(Clone)]
pub(crate) struct HttpClient {
    pub(crate) address: String,
    client: Client<HttpConnector, Full<Bytes>>,
}

/// Complete HTTP response.
#[derive(Debug)]
pub(crate) struct HttpResponse {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) text: String,
}

impl HttpResponse {
    /// The JSON body, or the last message of the events.
    pub(crate) fn message(&self) -> Value {
        let last = if self.is_events() {
            self.text.lines().rev().find_map(|line| line.strip_prefix("data: "))
        } else {
            Some(&*self.text)
        };
        let last = last.unwrap_or_else(|| panic!("no message in {self:?}"));
        serde_json::from_str(last).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    pub(crate) fn is_events(&self) -> bool {
        self.headers.get("content-type").is_some_and(|kind| kind == "text/event-stream")
    }

    /// The status, and the code of the JSON-RPC error.
    pub(crate) fn refusal(&self) -> (u16, i64) {
        (self.status, self.message()["error"]["code"].as_i64().unwrap_or_else(|| panic!("{self:?}")))
    }
}

impl HttpClient {
    pub(crate) fn at(address: &str) -> Self {
        Self { address: address.to_owned(), client: Client::builder(TokioExecutor::new()).build_http() }
    }

    /// Sends a request and waits for the head of its response. Dropping the future or the response disconnects.
    pub(crate) async fn begin(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<Bytes>,
    ) -> Response<Incoming> {
        let mut request = Request::builder().method(method).uri(format!("http://{}{path}", self.address));
        let has_kind = headers.iter().any(|(name, _)| *name == "content-type");
        for (name, value) in headers.iter().chain((!has_kind).then_some(&POSTED[0])) {
            request = request.header(*name, *value);
        }
        let request = request.body(Full::new(body.into())).unwrap();
        within("the head of a response", self.client.request(request)).await.unwrap()
    }

    pub(crate) async fn send(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<Bytes>,
    ) -> HttpResponse {
        let (head, body) = self.begin(method, path, headers, body).await.into_parts();
        let body = within("a body", body.collect()).await.unwrap().to_bytes();
        HttpResponse {
            status: head.status.as_u16(),
            headers: head.headers,
            text: String::from_utf8(body.to_vec()).unwrap(),
        }
    }

    /// POSTs one message to `/mcp`.
    pub(crate) async fn post(&self, headers: &[(&str, &str)], body: impl Into<Bytes>) -> HttpResponse {
        self.send(Method::POST, "/mcp", &[POSTED, headers].concat(), body).await
    }

    pub(crate) async fn initialize(&self, version: &str) -> HttpResponse {
        self.post(&[], initialize(version).to_string()).await
    }
}

const POSTED: &[(&str, &str)] =
    &[("content-type", "application/json"), ("accept", "application/json, text/event-stream")];

pub(crate) fn initialize(version: &str) -> Value {
    let client = json!({ "name": "endpoint", "version": "1" });
    request(0, "initialize", &json!({ "protocolVersion": version, "capabilities": {}, "clientInfo": client }))
}

pub(crate) fn request(id: impl Into<Value>, method: &str, params: &Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": id.into(), "method": method, "params": params })
}

pub(crate) fn call(tool: &str, arguments: Value) -> Value {
    json!({ "name": tool, "arguments": arguments })
}

/// A legacy client with a session.
pub(crate) struct LegacyClient {
    http: HttpClient,
    pub(crate) session: String,
    ids: AtomicU64,
}

impl LegacyClient {
    /// Initializes a session.
    pub(crate) async fn connect(http: &HttpClient) -> Self {
        Self::connect_with_version(http, LEGACY).await
    }

    pub(crate) async fn connect_with_version(http: &HttpClient, version: &str) -> Self {
        let hello = http.initialize(version).await;
        assert_eq!(hello.message()["result"]["protocolVersion"], version);
        let session = hello.headers["mcp-session-id"].to_str().unwrap();
        let client = Self::with_session(http, session);
        let told = client.post(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" })).await;
        assert_eq!((told.status, &*told.text), (202, ""));
        client
    }

    /// Initializes a session with these client capabilities.
    pub(crate) async fn with_capabilities(http: &HttpClient, capabilities: Value) -> Self {
        let mut hello = initialize(LEGACY);
        hello["params"]["capabilities"] = capabilities;
        let hello = http.post(&[], hello.to_string()).await;
        Self::with_session(http, hello.headers["mcp-session-id"].to_str().unwrap())
    }

    /// Uses an existing session.
    pub(crate) fn with_session(http: &HttpClient, session: &str) -> Self {
        Self { http: http.clone(), session: session.to_owned(), ids: AtomicU64::new(1) }
    }

    pub(crate) async fn post(&self, message: &Value) -> HttpResponse {
        self.http.post(&[("mcp-session-id", &self.session)], message.to_string()).await
    }

    /// The response to a request.
    pub(crate) async fn request(&self, method: &str, params: Value) -> Value {
        let id = self.ids.fetch_add(1, Ordering::Relaxed);
        let answered = self.post(&request(id, method, &params)).await;
        assert_eq!(answered.status, 200, "{answered:?}");
        let message = answered.message();
        assert_eq!(message["id"], id, "{message}");
        message
    }

    /// Calls a tool and returns its text.
    pub(crate) async fn call_tool(&self, tool: &str, arguments: Value) -> String {
        text_of(&self.request("tools/call", call(tool, arguments)).await)
    }

    /// Begins a request and does not wait for its end.
    pub(crate) async fn start_request(&self, id: &str, method: &str, params: Value) -> EventStream {
        let headers = [POSTED, &[("mcp-session-id", &*self.session)]].concat();
        let body = request(id, method, &params).to_string();
        EventStream::of(self.http.begin(Method::POST, "/mcp", &headers, body).await)
    }

    /// Opens the GET stream, resuming after an event if given.
    pub(crate) async fn open_stream(&self, after: Option<&str>) -> EventStream {
        let mut headers = vec![("mcp-session-id", &*self.session), ("accept", "text/event-stream")];
        headers.extend(after.map(|id| ("last-event-id", id)));
        EventStream::of(self.http.begin(Method::GET, "/mcp", &headers, "").await)
    }

    pub(crate) async fn cancel(&self, id: &str) {
        let params = json!({ "requestId": id });
        let cancelled = json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": params });
        assert_eq!(self.post(&cancelled).await.status, 202);
    }
}

/// Modern client, which sends its context with each request.
pub(crate) struct ModernClient {
    http: HttpClient,
    ids: AtomicU64,
}

impl ModernClient {
    pub(crate) fn new(http: &HttpClient) -> Self {
        Self { http: http.clone(), ids: AtomicU64::new(1) }
    }

    pub(crate) async fn send_request(&self, method: &str, params: Value) -> HttpResponse {
        let id = self.ids.fetch_add(1, Ordering::Relaxed);
        let (headers, body) = spoken(id.into(), method, params);
        self.http.post(&borrowed(&headers), body).await
    }

    /// The response to a request.
    pub(crate) async fn request(&self, method: &str, params: Value) -> Value {
        self.send_request(method, params).await.message()
    }

    /// Sends a request with these client capabilities and returns the response.
    pub(crate) async fn request_as(&self, capabilities: Value, method: &str, mut params: Value) -> Value {
        let id = self.ids.fetch_add(1, Ordering::Relaxed);
        let (headers, _) = spoken(id.into(), method, params.clone());
        params = in_context(params);
        params["_meta"]["io.modelcontextprotocol/clientCapabilities"] = capabilities;
        self.http.post(&borrowed(&headers), request(id, method, &params).to_string()).await.message()
    }

    pub(crate) async fn call_tool(&self, tool: &str, arguments: Value) -> String {
        text_of(&self.request("tools/call", call(tool, arguments)).await)
    }

    /// Starts a request with these client capabilities and returns its stream.
    pub(crate) async fn start_request_as(
        &self,
        capabilities: Value,
        id: &str,
        method: &str,
        params: Value,
    ) -> EventStream {
        let (headers, _) = spoken(id.into(), method, params.clone());
        let mut params = in_context(params);
        params["_meta"]["io.modelcontextprotocol/clientCapabilities"] = capabilities;
        let headers = [POSTED, &borrowed(&headers)].concat();
        let body = request(id, method, &params).to_string();
        EventStream::of(self.http.begin(Method::POST, "/mcp", &headers, body).await)
    }

    /// Begins a request and does not wait for its end.
    pub(crate) async fn start_request(&self, id: &str, method: &str, params: Value) -> EventStream {
        let (headers, body) = spoken(id.into(), method, params);
        let headers = [POSTED, &borrowed(&headers)].concat();
        EventStream::of(self.http.begin(Method::POST, "/mcp", &headers, body).await)
    }
}

/// The headers and the body of a modern request.
pub(crate) fn spoken(id: Value, method: &str, params: Value) -> (Vec<(String, String)>, String) {
    let mut headers = vec![
        ("mcp-protocol-version".to_owned(), MODERN.to_owned()),
        ("mcp-method".to_owned(), method.to_owned()),
    ];
    let name = match method {
        "resources/read" => &params["uri"],
        "tasks/get" | "tasks/update" | "tasks/cancel" => &params["taskId"],
        _ => &params["name"],
    };
    headers.extend(name.as_str().map(|name| ("mcp-name".to_owned(), name.to_owned())));
    (headers, request(id, method, &in_context(params)).to_string())
}

/// Parameters with the `_meta` context of a modern request.
pub(crate) fn in_context(mut params: Value) -> Value {
    params["_meta"]["io.modelcontextprotocol/protocolVersion"] = json!(MODERN);
    params["_meta"]["io.modelcontextprotocol/clientCapabilities"] = json!({});
    params["_meta"]["io.modelcontextprotocol/clientInfo"] = json!({ "name": "endpoint", "version": "1" });
    params
}

pub(crate) fn borrowed(headers: &[(String, String)]) -> Vec<(&str, &str)> {
    headers.iter().map(|(name, value)| (&**name, &**value)).collect()
}

/// Text of a tool result, which must not be an error.
pub(crate) fn text_of(response: &Value) -> String {
    let result = &response["result"];
    assert!(result["isError"] != true, "{response}");
    result["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{response}")).to_owned()
}

/// The names in a list.
pub(crate) fn names(response: &Value, list: &str, member: &str) -> Vec<String> {
    let items = response["result"][list].as_array().unwrap_or_else(|| panic!("{response}"));
    items.iter().map(|item| item[member].as_str().unwrap().to_owned()).collect()
}

/// Server-sent events of a response.
pub(crate) struct EventStream {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    /// Number of keep-alive comments so far.
    pub(crate) signs_of_life: u32,
    body: Incoming,
    unread: Vec<u8>,
}

#[derive(Debug)]
pub(crate) struct Event {
    pub(crate) id: Option<String>,
    pub(crate) kind: Option<String>,
    pub(crate) data: String,
}

impl Event {
    pub(crate) fn message(&self) -> Value {
        serde_json::from_str(&self.data).unwrap()
    }
}

impl EventStream {
    pub(crate) fn of(response: Response<Incoming>) -> Self {
        let (head, body) = response.into_parts();
        Self {
            status: head.status.as_u16(),
            headers: head.headers,
            signs_of_life: 0,
            body,
            unread: Vec::new(),
        }
    }

    /// The next event; `None` at the end of the stream.
    pub(crate) async fn next(&mut self) -> Option<Event> {
        within("an event", self.read()).await
    }

    async fn read(&mut self) -> Option<Event> {
        loop {
            if let Some(end) = self.unread.windows(2).position(|pair| pair == b"\n\n") {
                let block: Vec<u8> = self.unread.drain(..end + 2).collect();
                let block = String::from_utf8(block).unwrap();
                let field = |name: &str| {
                    let line = block.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
                    line.map(str::to_owned)
                };
                if let Some(data) = field("data") {
                    return Some(Event { id: field("id"), kind: field("event"), data });
                }
                // A comment: keep-alive.
                self.signs_of_life += 1;
                continue;
            }
            let frame = self.body.frame().await?.unwrap();
            self.unread.extend_from_slice(frame.data_ref().unwrap());
        }
    }

    /// Reads up to the end. Returns true if the connection broke instead.
    #[cfg(target_os = "linux")]
    pub(crate) async fn ends_broken(&mut self) -> bool {
        loop {
            match within("the end of a stream", self.body.frame()).await {
                None => return false,
                Some(Err(_)) => return true,
                Some(Ok(_)) => {}
            }
        }
    }

    /// The one message of a response that is no event stream.
    pub(crate) async fn body(&mut self) -> Value {
        while let Some(frame) = within("a body", self.body.frame()).await {
            self.unread.extend_from_slice(frame.unwrap().data_ref().unwrap());
        }
        serde_json::from_slice(&self.unread).unwrap()
    }

    /// Returns true if there is nothing to read. Data that was already sent has arrived, because the connection is
    /// local.
    pub(crate) async fn is_silent(&mut self) -> bool {
        tokio::select! {
            biased;
            _ = self.read() => false,
            () = tokio::task::yield_now() => true,
        }
    }

    /// Next message; the end of the stream fails the test. An event without data only carries an id for resumption.
    pub(crate) async fn message(&mut self) -> Value {
        loop {
            let event = self.next().await.expect("the stream goes on");
            if !event.data.is_empty() {
                return event.message();
            }
        }
    }
}
