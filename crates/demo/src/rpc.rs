//! JSON-RPC messages: kinds, eras, results and errors. Knows nothing about transports.

use serde_json::{Map, Value, json};

pub(crate) const MODERN_VERSION: &str = "2026-07-28";
pub(crate) const LEGACY_VERSIONS: [&str; 4] = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"];
/// The only revision with batches.
pub(crate) const BATCH_VERSION: &str = "2025-03-26";

pub(crate) const META_VERSION: &str = "io.modelcontextprotocol/protocolVersion";
pub(crate) const META_CLIENT_CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
pub(crate) const META_LOG_LEVEL: &str = "io.modelcontextprotocol/logLevel";
pub(crate) const META_SERVER_INFO: &str = "io.modelcontextprotocol/serverInfo";
pub(crate) const META_SUBSCRIPTION: &str = "io.modelcontextprotocol/subscriptionId";

pub(crate) const PARSE_ERROR: i64 = -32700;
pub(crate) const INVALID_REQUEST: i64 = -32600;
pub(crate) const METHOD_NOT_FOUND: i64 = -32601;
pub(crate) const INVALID_PARAMS: i64 = -32602;
pub(crate) const NOT_INITIALIZED: i64 = -32000;
pub(crate) const SESSION_NOT_FOUND: i64 = -32001;
pub(crate) const RESOURCE_NOT_FOUND: i64 = -32002;
pub(crate) const HEADER_MISMATCH: i64 = -32020;
pub(crate) const MISSING_CLIENT_CAPABILITY: i64 = -32021;
pub(crate) const UNSUPPORTED_VERSION: i64 = -32022;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Era {
    Legacy,
    Modern,
}

/// One received message.
#[derive(Debug)]
pub(crate) enum Message {
    Request(Call),
    Notification { method: String, params: Value },
    Response { id: Value, body: Value },
    Malformed(RpcError),
}

#[derive(Debug, Clone)]
pub(crate) struct Call {
    pub(crate) id: Value,
    pub(crate) method: String,
    pub(crate) params: Value,
}

impl Message {
    pub(crate) fn from_value(mut value: Value) -> Self {
        let Some(object) = value.as_object_mut() else {
            return Self::Malformed(RpcError::new(INVALID_REQUEST, "a message is a JSON object"));
        };
        if object.get("jsonrpc").and_then(Value::as_str) != Some("2.0") {
            return Self::Malformed(RpcError::new(INVALID_REQUEST, "`jsonrpc` must be \"2.0\""));
        }
        let id = object.remove("id");
        let params = object.remove("params").unwrap_or_else(|| json!({}));
        let method = object.remove("method");
        match (method, id) {
            (Some(Value::String(method)), Some(id)) if id.is_string() || id.is_number() => {
                Self::Request(Call { id, method, params })
            }
            (Some(Value::String(method)), None) => Self::Notification { method, params },
            (None, Some(id)) => Self::Response { id, body: value },
            (Some(_), _) | (None, None) => {
                Self::Malformed(RpcError::new(INVALID_REQUEST, "neither a request nor an answer"))
            }
        }
    }
}

impl Call {
    /// The era according to the message itself. The HTTP side also looks at headers.
    pub(crate) fn era(&self) -> Era {
        if self.method == "server/discover" || !self.meta(META_VERSION).is_null() {
            Era::Modern
        } else {
            Era::Legacy
        }
    }

    pub(crate) fn meta(&self, key: &str) -> &Value {
        &self.params["_meta"][key]
    }

    /// Checks what every modern request must carry: a supported version, and the client's capabilities.
    pub(crate) fn check_envelope(&self) -> Result<(), RpcError> {
        let Value::String(version) = self.meta(META_VERSION) else { return Err(missing_meta(META_VERSION)) };
        if version != MODERN_VERSION {
            return Err(unsupported_version(version));
        }
        if !self.meta(META_CLIENT_CAPABILITIES).is_object() {
            return Err(missing_meta(META_CLIENT_CAPABILITIES));
        }
        Ok(())
    }
}

fn missing_meta(key: &str) -> RpcError {
    RpcError::new(INVALID_PARAMS, format!("`params._meta[\"{key}\"]` is missing or of the wrong type"))
        .with_data(json!({ "envelope": { "missing": [key] } }))
}

pub(crate) fn unsupported_version(requested: &str) -> RpcError {
    RpcError::new(UNSUPPORTED_VERSION, format!("protocol version {requested} is not supported"))
        .with_data(json!({ "supported": [MODERN_VERSION], "requested": requested }))
}

#[derive(Debug, Clone)]
pub(crate) struct RpcError {
    pub(crate) code: i64,
    pub(crate) message: String,
    pub(crate) data: Option<Value>,
}

impl RpcError {
    pub(crate) fn new(code: i64, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), data: None }
    }

    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::new(INVALID_PARAMS, message)
    }

    pub(crate) fn with_data(mut self, data: Value) -> Self {
        self.data = Some(data);
        self
    }

    pub(crate) fn to_value(&self) -> Value {
        let mut error = json!({ "code": self.code, "message": self.message });
        if let Some(data) = &self.data {
            error["data"] = data.clone();
        }
        error
    }

    /// The whole answer, for a request with this id.
    pub(crate) fn answer(&self, id: &Value) -> Value {
        json!({ "jsonrpc": "2.0", "id": id, "error": self.to_value() })
    }
}

pub(crate) fn answer(id: &Value, outcome: Result<Value, RpcError>) -> Value {
    match outcome {
        Ok(result) => json!({ "jsonrpc": "2.0", "id": id, "result": result }),
        Err(error) => error.answer(id),
    }
}

pub(crate) fn notification(method: &str, params: Value) -> Value {
    json!({ "jsonrpc": "2.0", "method": method, "params": params })
}

/// Adds the members that the modern era requires in every result: its type, the server info, and for lists and reads
/// the cache hints.
pub(crate) fn modernise(method: &str, mut result: Value, server_info: Value) -> Value {
    let Some(object) = result.as_object_mut() else { return result };
    let complete =
        object.entry("resultType").or_insert_with(|| json!("complete")).as_str() == Some("complete");
    let cacheable = matches!(
        method,
        "server/discover"
            | "tools/list"
            | "prompts/list"
            | "resources/list"
            | "resources/templates/list"
            | "resources/read"
    );
    if cacheable && complete {
        // The counter changes with every call, so reads must not be cached.
        let ttl = if method == "resources/read" { 0 } else { 300_000 };
        object.entry("ttlMs").or_insert_with(|| json!(ttl));
        object.entry("cacheScope").or_insert_with(|| json!("public"));
    }
    let meta = object.entry("_meta").or_insert_with(|| Value::Object(Map::new()));
    if let Some(meta) = meta.as_object_mut() {
        meta.insert(META_SERVER_INFO.to_owned(), server_info);
    }
    result
}
