//! The parts of JSON-RPC that this server needs.

use serde_json::{Map, Value, json};

pub(crate) const LEGACY_VERSIONS: [&str; 2] = ["2025-11-25", "2025-06-18"];
pub(crate) const MODERN_VERSION: &str = "2026-07-28";

pub(crate) const PARSE_ERROR: i64 = -32700;
pub(crate) const INVALID_REQUEST: i64 = -32600;
pub(crate) const METHOD_NOT_FOUND: i64 = -32601;
pub(crate) const INVALID_PARAMS: i64 = -32602;
pub(crate) const INTERNAL_ERROR: i64 = -32603;
pub(crate) const RESOURCE_NOT_FOUND: i64 = -32002;
pub(crate) const HEADER_MISMATCH: i64 = -32020;
pub(crate) const MISSING_CAPABILITY: i64 = -32021;
pub(crate) const UNSUPPORTED_VERSION: i64 = -32022;

pub(crate) const META_VERSION: &str = "io.modelcontextprotocol/protocolVersion";
pub(crate) const META_CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
pub(crate) const META_LOG_LEVEL: &str = "io.modelcontextprotocol/logLevel";
pub(crate) const META_SERVER_INFO: &str = "io.modelcontextprotocol/serverInfo";
pub(crate) const META_SUBSCRIPTION: &str = "io.modelcontextprotocol/subscriptionId";

/// A message from a client.
#[derive(Debug)]
pub(crate) enum Message {
    Request(Request),
    /// Notifications have no effect in this server.
    Notification,
    Response {
        id: Value,
        outcome: Result<Value, RpcError>,
    },
}

#[derive(Debug, Clone)]
pub(crate) struct Request {
    pub(crate) id: Value,
    pub(crate) method: String,
    pub(crate) params: Value,
}

#[derive(Debug, Clone)]
pub(crate) struct RpcError {
    pub(crate) code: i64,
    pub(crate) message: String,
    pub(crate) data: Option<Value>,
}

impl Message {
    pub(crate) fn read(text: &[u8]) -> Result<Self, RpcError> {
        let mut value: Value =
            serde_json::from_slice(text).map_err(|error| RpcError::new(PARSE_ERROR, error.to_string()))?;
        let method = value["method"].as_str().map(str::to_owned);
        let id = value.get_mut("id").map(Value::take);
        match (method, id) {
            (Some(method), Some(id)) => {
                let params = value.get_mut("params").map_or_else(|| json!({}), Value::take);
                Ok(Self::Request(Request { id, method, params }))
            }
            (Some(_), None) => Ok(Self::Notification),
            (None, Some(id)) => {
                let outcome = match value.get_mut("result") {
                    Some(result) => Ok(result.take()),
                    None => Err(RpcError::new(
                        value["error"]["code"].as_i64().unwrap_or(INTERNAL_ERROR),
                        value["error"]["message"].as_str().unwrap_or("no message"),
                    )),
                };
                Ok(Self::Response { id, outcome })
            }
            (None, None) => Err(RpcError::new(INVALID_REQUEST, "neither a request nor an answer")),
        }
    }
}

impl Request {
    pub(crate) fn meta(&self, key: &str) -> &Value {
        &self.params["_meta"][key]
    }

    /// Required string member of the parameters.
    pub(crate) fn text(&self, member: &str) -> Result<&str, RpcError> {
        let missing = || RpcError::new(INVALID_PARAMS, format!("`{member}` is missing"));
        self.params[member].as_str().ok_or_else(missing)
    }

    /// Required protocol version of a modern request. Support for that version is checked elsewhere.
    pub(crate) fn modern_version(&self) -> Result<&str, RpcError> {
        let missing = |key| RpcError::new(INVALID_PARAMS, format!("`_meta` lacks `{key}`"));
        let version = self.meta(META_VERSION).as_str().ok_or_else(|| missing(META_VERSION))?;
        if !self.meta(META_CAPABILITIES).is_object() {
            return Err(missing(META_CAPABILITIES));
        }
        Ok(version)
    }
}

impl RpcError {
    pub(crate) fn new(code: i64, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), data: None }
    }

    pub(crate) fn with(mut self, data: Value) -> Self {
        self.data = Some(data);
        self
    }

    pub(crate) fn method_not_found(method: &str) -> Self {
        Self::new(METHOD_NOT_FOUND, format!("method not found: {method}"))
    }

    pub(crate) fn missing_capability(capabilities: Value) -> Self {
        let text = "the client did not declare a capability that this needs";
        Self::new(MISSING_CAPABILITY, text).with(json!({ "requiredCapabilities": capabilities }))
    }

    pub(crate) fn unsupported_version(requested: &str) -> Self {
        Self::new(UNSUPPORTED_VERSION, format!("protocol version {requested} is not spoken here"))
            .with(json!({ "supported": [MODERN_VERSION], "requested": requested }))
    }
}

pub(crate) fn response(id: &Value, outcome: Result<Value, RpcError>) -> Value {
    match outcome {
        Ok(result) => json!({ "jsonrpc": "2.0", "id": id, "result": result }),
        Err(error) => {
            let mut body = Map::new();
            body.insert("code".to_owned(), error.code.into());
            body.insert("message".to_owned(), error.message.into());
            body.extend(error.data.map(|data| ("data".to_owned(), data)));
            json!({ "jsonrpc": "2.0", "id": id, "error": body })
        }
    }
}

pub(crate) fn notification(method: &str, params: &Value) -> Value {
    json!({ "jsonrpc": "2.0", "method": method, "params": params })
}
