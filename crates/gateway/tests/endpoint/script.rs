//! A server that answers with fixed bytes and writes down the bytes it was sent. The sample server reads and
//! writes JSON values, and would hide what a gateway does to their spelling.

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::{Method, StatusCode};
use serde_json::Value;
use std::sync::{Arc, Mutex};

/// A scripted server of one era.
pub(crate) struct Script {
    pub(crate) url: String,
    shared: Arc<Shared>,
}

struct Shared {
    answers: Vec<(&'static str, String)>,
    heard: Mutex<Vec<(String, String)>>,
}

const GREETING: &str = r#"{"protocolVersion":"2025-11-25","capabilities":{"tools":{},"resources":{},"prompts":{}},"serverInfo":{"name":"script","version":"1"}}"#;
const DISCOVERED: &str = r#"{"supportedVersions":["2026-07-28"],"capabilities":{"tools":{},"resources":{},"prompts":{}},"resultType":"complete","ttlMs":0,"cacheScope":"private"}"#;

impl Script {
    /// Answers each method with the result beside it, or with an error: text that begins with `{"code"`.
    pub(crate) async fn starts(answers: &[(&'static str, &str)]) -> Self {
        let mut known = vec![("initialize", GREETING.to_owned()), ("server/discover", DISCOVERED.to_owned())];
        known.extend(answers.iter().map(|(method, answer)| (*method, (*answer).to_owned())));
        let shared = Arc::new(Shared { answers: known, heard: Mutex::default() });
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/mcp", listener.local_addr().unwrap());
        let router = Router::new().fallback(answer).with_state(Arc::clone(&shared));
        // It ends with the test's runtime.
        tokio::spawn(axum::serve(listener, router).into_future());
        Self { url, shared }
    }

    /// The body of the last request for this method.
    pub(crate) fn heard(&self, method: &str) -> String {
        let heard = self.shared.heard.lock().unwrap();
        let last = heard.iter().rev().find(|(asked, _)| asked == method);
        last.unwrap_or_else(|| panic!("nobody asked for {method}")).1.clone()
    }

    /// Every body that arrived.
    pub(crate) fn everything(&self) -> Vec<String> {
        self.shared.heard.lock().unwrap().iter().map(|(_, body)| body.clone()).collect()
    }
}

async fn answer(State(shared): State<Arc<Shared>>, method: Method, body: Bytes) -> Response {
    if method != Method::POST {
        return StatusCode::METHOD_NOT_ALLOWED.into_response();
    }
    let body = String::from_utf8(body.to_vec()).unwrap();
    let message: Value = serde_json::from_str(&body).unwrap();
    let asked = message["method"].as_str().unwrap_or_default().to_owned();
    shared.heard.lock().unwrap().push((asked.clone(), body));
    let Some(id) = message.get("id") else { return StatusCode::ACCEPTED.into_response() };
    let known = shared.answers.iter().rev().find(|(method, _)| *method == asked);
    let outcome = match known {
        Some((_, error)) if error.starts_with(r#"{"code""#) => format!(r#""error":{error}"#),
        Some((_, result)) => format!(r#""result":{result}"#),
        None => r#""error":{"code":-32601,"message":"method not found"}"#.to_owned(),
    };
    let body = format!(r#"{{"jsonrpc":"2.0","id":{id},{outcome}}}"#);
    ([("content-type", "application/json")], body).into_response()
}
