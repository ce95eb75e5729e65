//! Gateway without a listener; requests are passed to its router in memory.

use axum::Router;
use axum::body::{Body, BodyDataStream, Bytes};
use axum::response::Response;
use futures_util::StreamExt;
use gripfast::Host;
use gripfast_gateway::mcp::{Gateway, Limits, TokenCipher};
use http::{Method, Request};
use serde_json::{Value, json};
use tower_service::Service;

/// Router of a gateway without servers.
pub(crate) struct MemoryGateway(Router);

impl MemoryGateway {
    pub(crate) fn new(terms: &Limits) -> Self {
        let gateway = Gateway::new(Host::builder().build(), TokenCipher::ephemeral().unwrap(), terms);
        Self(gateway.router())
    }

    pub(crate) async fn send(&self, method: Method, session: &str, body: impl Into<Body>) -> Response {
        let mut request = Request::builder().method(method).uri("/mcp").body(body.into()).unwrap();
        if !session.is_empty() {
            request.headers_mut().insert("mcp-session-id", session.parse().unwrap());
        }
        self.0.clone().call(request).await.unwrap()
    }

    /// Sends `initialize` and returns the session id.
    pub(crate) async fn meet(&self) -> String {
        let params = json!({ "protocolVersion": "2025-11-25", "capabilities": {} });
        let hello = self.send(Method::POST, "", request("initialize", &params)).await;
        hello.headers()["mcp-session-id"].to_str().unwrap().to_owned()
    }

    /// HTTP status of a ping.
    pub(crate) async fn ping(&self, session: &str) -> u16 {
        self.send(Method::POST, session, request("ping", &json!({}))).await.status().as_u16()
    }

    /// Opens the GET stream.
    pub(crate) async fn listen(&self, session: &str) -> BodyDataStream {
        let response = self.send(Method::GET, session, "").await;
        assert_eq!(response.status(), 200);
        response.into_body().into_data_stream()
    }
}

/// Next bytes of a stream. Paused time advances until there are some.
pub(crate) async fn next(stream: &mut BodyDataStream) -> Option<Bytes> {
    stream.next().await.map(Result::unwrap)
}

pub(crate) fn request(method: &str, params: &Value) -> String {
    json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params }).to_string()
}
