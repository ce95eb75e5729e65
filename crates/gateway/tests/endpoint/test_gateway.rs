//! Gateway in this process, on a port, with the servers of a config.

use crate::client::HttpClient;
use gripfast::config::{Config, GatewayConfig};
use gripfast::{Host, State};
use gripfast_demo::{Options, RunningServer};
use gripfast_gateway::mcp::Limits;
use gripfast_gateway::server::{Server, ServerSettings};
use gripfast_testkit::wait::{PATIENCE, until_async, within};
use http::Method;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

pub(crate) const GRIPFAST: &str = env!("CARGO_BIN_EXE_gripfast");

/// A running gateway and its host.
pub(crate) struct TestGateway {
    pub(crate) host: Host,
    pub(crate) http: HttpClient,
    state: Arc<TempDir>,
    stop: Option<oneshot::Sender<()>>,
    serving: JoinHandle<()>,
}

impl TestGateway {
    /// Starts a gateway with the servers of this config and waits until all are listed.
    pub(crate) async fn with(config: &str) -> Self {
        Self::over(config, Arc::new(tempfile::tempdir().unwrap()), PATIENCE).await
    }

    /// Starts a gateway with the servers of this config without waiting for them.
    pub(crate) async fn unlisted(config: &str) -> Self {
        Self::over(config, Arc::new(tempfile::tempdir().unwrap()), Duration::ZERO).await
    }

    async fn over(config: &str, state: Arc<TempDir>, patience: Duration) -> Self {
        let host = host_of(config, Some(state.path().to_owned()));
        host.wait_until_listed(patience).await;
        let settings = ServerSettings {
            listen: ([127, 0, 0, 1], 0).into(),
            state_dir: Some(state.path().to_owned()),
            limits: limits_of(config),
            access: gateway_of(config).access,
            cluster: None,
        };
        let server = Server::bind(host.clone(), &settings).await.unwrap();
        let http = HttpClient::at(&server.address().unwrap().to_string());
        let (stop, stopped) = oneshot::channel();
        let serving = tokio::spawn(async move {
            let stopped = async {
                let _ = stopped.await;
            };
            server.serve(stopped).await.unwrap();
        });
        Self { host, http, state, stop: Some(stop), serving }
    }

    /// State directory of the gateway.
    pub(crate) fn state_dir(&self) -> &Path {
        self.state.path()
    }

    /// Starts a graceful shutdown without waiting for its end.
    pub(crate) fn shut_down(&mut self) {
        let _ = self.stop.take().unwrap().send(());
    }

    /// Waits for the end of a shutdown.
    pub(crate) async fn ended(self) {
        within("the gateway's end", self.serving).await.unwrap();
    }

    /// Shuts this gateway down and starts another with the same state directory, as an upgrade would.
    pub(crate) async fn restart(mut self, config: &str) -> Self {
        let _ = self.stop.take().unwrap().send(());
        within("the gateway's end", &mut self.serving).await.unwrap();
        Self::over(config, self.state, PATIENCE).await
    }

    /// Current client counts of the status: connections, sessions, requests in flight.
    pub(crate) async fn clients(&self) -> Clients {
        let status = self.http.send(Method::GET, "/api/v1/status", &[("connection", "close")], "").await;
        let count = |what: &str| status.message()["clients"][what].as_u64().unwrap();
        // Without the connection of this request.
        Clients {
            connections: count("connections") - 1,
            sessions: count("sessions"),
            in_flight: count("in_flight"),
        }
    }

    /// Waits until the client counts satisfy a condition.
    pub(crate) async fn until_clients(&self, what: &str, so: impl Fn(Clients) -> bool) {
        until_async(what, async || so(self.clients().await)).await;
    }

    /// Waits for a state of a server, checking it after each event of the host.
    pub(crate) async fn until(&self, server: &str, state: State) {
        let mut events = self.host.subscribe_events();
        let reached = async {
            while self.host.server_status(server).unwrap().supervision.state != state {
                events.recv().await.unwrap();
            }
        };
        if tokio::time::timeout(PATIENCE, reached).await.is_err() {
            panic!("`{server}` was never {state:?}: {:?}", self.host.server_status(server).unwrap());
        }
    }
}

/// Client counts of the status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Clients {
    pub(crate) connections: u64,
    pub(crate) sessions: u64,
    pub(crate) in_flight: u64,
}

/// Advances the paused time.
pub(crate) async fn pass(time: Duration) {
    tokio::time::pause();
    tokio::time::advance(time).await;
    tokio::time::resume();
}

/// Client limits of a config.
fn limits_of(config: &str) -> Limits {
    Limits::from(&gateway_of(config))
}

fn gateway_of(config: &str) -> GatewayConfig {
    Config::parse(config, Path::new("gripfast.toml")).unwrap().gateway
}

/// A host with the servers of a config.
pub(crate) fn host_of(config: &str, state: Option<PathBuf>) -> Host {
    let config = Config::parse(config, Path::new("gripfast.toml")).unwrap();
    let host = Host::builder()
        .client_info("endpoint", "1")
        .capabilities(gripfast_gateway::mcp::client_capabilities())
        .state_dir(state)
        .client_policies(config.clients)
        .budgets(config.budgets)
        .exposure(config.gateway.exposure)
        .audit(config.gateway.audit)
        .embeddings(config.gateway.search.embeddings)
        .max_nesting(config.gateway.limits.nesting as usize)
        .build();
    for server in config.servers {
        match server.spec {
            Ok(spec) => host.spawn(&server.name, spec).unwrap(),
            Err(causes) => panic!("{}: {causes:?}", server.name),
        }
    }
    host
}

/// A sample server on HTTP, in this process.
pub(crate) async fn demo() -> RunningServer {
    demo_with(Options::default()).await
}

pub(crate) async fn demo_with(options: Options) -> RunningServer {
    gripfast_demo::start_http(([127, 0, 0, 1], 0).into(), options).await.unwrap()
}

/// Config table of a server at a URL, with further lines.
pub(crate) fn at(name: &str, url: &str, protocol: &str, more: &[&str]) -> String {
    let mut table =
        format!("[servers.{name}]\nurl = {url:?}\ntransport = \"http\"\nprotocol = {protocol:?}\n");
    for line in more {
        writeln!(table, "{line}").unwrap();
    }
    table
}

/// Config table of the sample server on stdio, with further lines.
pub(crate) fn child(name: &str, flags: &[&str], more: &[&str]) -> String {
    let args = [&["demo-server"], flags].concat();
    let mut table = format!("[servers.{name}]\ncommand = {GRIPFAST:?}\nargs = {args:?}\n");
    for line in more {
        writeln!(table, "{line}").unwrap();
    }
    table
}

/// Complete config file. The first list waits long enough for a busy machine to start a server.
pub(crate) fn file_of(servers: &str) -> String {
    format!("[gateway]\nstartup_wait = \"60s\"\n\n{servers}")
}
