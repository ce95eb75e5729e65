//! Host with demo servers, its admin API on a port, and an HTTP client for it.

use axum::http::{HeaderMap, Method, Request, Response, StatusCode};
use bytes::Bytes;
use gripfast::Host;
use gripfast::config::Config;
use gripfast_gateway::api::{Admin, TOKEN_FILE};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;

pub(crate) const GRIPFAST: &str = env!("CARGO_BIN_EXE_gripfast");
/// Timeout of every wait; a test that reaches it has failed.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// A running admin API.
pub(crate) struct TestApi {
    pub(crate) host: Host,
    pub(crate) admin: Arc<Admin>,
    pub(crate) base: String,
    state: TempDir,
}

/// Status, headers and body of an answer.
pub(crate) struct ApiResponse {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) text: String,
}

impl ApiResponse {
    pub(crate) fn json(&self) -> Value {
        assert_eq!(self.headers["content-type"], "application/json", "{}", self.text);
        serde_json::from_str(&self.text).unwrap()
    }
}

impl TestApi {
    /// Starts an API with the server `demo`, which is ready.
    pub(crate) async fn ready() -> Self {
        let api = Self::with(&stdio("demo", &[])).await;
        api.host.catalog("demo", PATIENCE).await.unwrap();
        api.until("demo", "ready").await;
        api
    }

    /// Starts an API with the servers of this config.
    pub(crate) async fn with(config: &str) -> Self {
        let state = TempDir::new().unwrap();
        let host = host_of(config, state.path());
        let admin = Arc::new(Admin::new(host.clone(), Some(state.path())).unwrap());
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let base = format!("http://{}", listener.local_addr().unwrap());
        // It ends with the test's runtime.
        tokio::spawn(axum::serve(listener, Arc::clone(&admin).router()).into_future());
        Self { host, admin, base, state }
    }

    pub(crate) fn token_file(&self) -> PathBuf {
        self.state.path().join(TOKEN_FILE)
    }

    pub(crate) fn token(&self) -> String {
        std::fs::read_to_string(self.token_file()).unwrap().trim().to_owned()
    }

    pub(crate) async fn get(&self, path: &str) -> ApiResponse {
        answered(self.send(Method::GET, path, &[]).await).await
    }

    pub(crate) async fn post(&self, path: &str, headers: &[(&str, &str)]) -> ApiResponse {
        answered(self.send(Method::POST, path, headers).await).await
    }

    /// Sends a POST with the admin token.
    pub(crate) async fn act(&self, path: &str) -> ApiResponse {
        let bearer = format!("Bearer {}", self.token());
        self.post(path, &[("authorization", &bearer)]).await
    }

    /// Sends a POST with the admin token and a body.
    pub(crate) async fn act_with(&self, path: &str, body: &str) -> ApiResponse {
        let bearer = format!("Bearer {}", self.token());
        answered(self.send_with(Method::POST, path, &[("authorization", &bearer)], body).await).await
    }

    pub(crate) async fn send(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
    ) -> Response<Incoming> {
        self.send_with(method, path, headers, "").await
    }

    async fn send_with(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Response<Incoming> {
        let mut request = Request::builder().method(method).uri(format!("{}{path}", self.base));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let client = Client::builder(TokioExecutor::new()).build_http();
        let sent = client.request(request.body(Full::new(Bytes::copy_from_slice(body.as_bytes()))).unwrap());
        tokio::time::timeout(PATIENCE, sent).await.unwrap().unwrap()
    }

    /// Waits for a state of a server, checking it after each event of the host.
    pub(crate) async fn until(&self, server: &str, state: &str) {
        let mut events = self.host.subscribe_events();
        let reached = async {
            let there = || {
                let supervision = self.host.server_status(server).unwrap().supervision;
                supervision.state.as_str() == state && !supervision.replacing
            };
            while !there() {
                events.recv().await.unwrap();
            }
        };
        if tokio::time::timeout(PATIENCE, reached).await.is_err() {
            panic!("`{server}` was never {state}: {:?}", self.host.server_status(server).unwrap());
        }
    }
}

fn host_of(config: &str, state: &Path) -> Host {
    let host = Host::builder().client_info("test", "1").state_dir(Some(state.to_owned())).build();
    for server in Config::parse(config, "gripfast.toml".as_ref()).unwrap().servers {
        match server.spec {
            Ok(spec) => host.spawn(&server.name, spec).unwrap(),
            Err(causes) => host.spawn_broken(&server.name, &causes[0].to_string()).unwrap(),
        }
    }
    host
}

async fn answered(response: Response<Incoming>) -> ApiResponse {
    let (head, body) = response.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    ApiResponse {
        status: head.status,
        headers: head.headers,
        text: String::from_utf8(body.to_vec()).unwrap(),
    }
}

/// Config table of the demo server on stdio.
pub(crate) fn stdio(name: &str, flags: &[&str]) -> String {
    let args = [&["demo-server"], flags].concat();
    format!("[servers.{name}]\ncommand = {GRIPFAST:?}\nargs = {args:?}\n")
}
