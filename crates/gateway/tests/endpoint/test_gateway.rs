//! A gateway in this process, on a port, in front of a host with the servers of a config.

use crate::client::Http;
use gripfast::config::{Config, GatewayConfig};
use gripfast::{Host, State};
use gripfast_demo::{Options, RunningServer};
use gripfast_gateway::downstream::Terms;
use gripfast_gateway::server::{Server, Settings};
use http::Method;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

pub(crate) const GRIPFAST: &str = env!("CARGO_BIN_EXE_gripfast");
/// No wait of a test is longer. Long enough for a machine that is busy with everything else.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// A running gateway and its host.
pub(crate) struct Scene {
    pub(crate) host: Host,
    pub(crate) http: Http,
    state: Arc<TempDir>,
    stop: Option<oneshot::Sender<()>>,
    serving: JoinHandle<()>,
}

impl Scene {
    /// With the servers of this config, all of which are listed.
    pub(crate) async fn with(config: &str) -> Self {
        Self::over(config, Arc::new(tempfile::tempdir().unwrap()), PATIENCE).await
    }

    /// With the servers of this config, none of which is waited for.
    pub(crate) async fn unlisted(config: &str) -> Self {
        Self::over(config, Arc::new(tempfile::tempdir().unwrap()), Duration::ZERO).await
    }

    async fn over(config: &str, state: Arc<TempDir>, patience: Duration) -> Self {
        let host = host_of(config, Some(state.path().to_owned()));
        host.settled(patience).await;
        let settings = Settings {
            listen: ([127, 0, 0, 1], 0).into(),
            state_dir: Some(state.path().to_owned()),
            terms: terms_of(config),
            access: gateway_of(config).access,
        };
        let server = Server::bind(host.clone(), &settings).await.unwrap();
        let http = Http::at(&server.address().unwrap().to_string());
        let (stop, stopped) = oneshot::channel();
        let serving = tokio::spawn(async move {
            let stopped = async {
                let _ = stopped.await;
            };
            server.serve(stopped).await.unwrap();
        });
        Self { host, http, state, stop: Some(stop), serving }
    }

    /// Where it keeps what outlives it.
    pub(crate) fn state_dir(&self) -> &Path {
        self.state.path()
    }

    /// Tells this gateway to leave in order, and does not wait for it.
    pub(crate) fn leaves(&mut self) {
        let _ = self.stop.take().unwrap().send(());
    }

    /// Ends this gateway and starts another one with the same state directory, as an upgrade would.
    pub(crate) async fn restart(mut self, config: &str) -> Self {
        let _ = self.stop.take().unwrap().send(());
        within("the gateway's end", &mut self.serving).await.unwrap();
        Self::over(config, self.state, PATIENCE).await
    }

    /// What clients have at this moment, as the status tells it: connections, sessions, requests under way.
    pub(crate) async fn clients(&self) -> Clients {
        let status = self.http.send(Method::GET, "/api/v1/status", &[("connection", "close")], "").await;
        let count = |what: &str| status.message()["clients"][what].as_u64().unwrap();
        // The one that asks is not counted.
        Clients {
            connections: count("connections") - 1,
            sessions: count("sessions"),
            in_flight: count("in_flight"),
        }
    }

    /// Until clients have just this.
    pub(crate) async fn until_clients(&self, what: &str, so: impl Fn(Clients) -> bool) {
        within(what, async {
            while !so(self.clients().await) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        })
        .await;
    }

    /// Waits for a state. Something has to happen before it can be there, and tells when it does.
    pub(crate) async fn until(&self, server: &str, state: State) {
        let mut events = self.host.events();
        let reached = async {
            while self.host.status_of(server).unwrap().supervision.state != state {
                events.recv().await.unwrap();
            }
        };
        if tokio::time::timeout(PATIENCE, reached).await.is_err() {
            panic!("`{server}` was never {state:?}: {:?}", self.host.status_of(server).unwrap());
        }
    }
}

/// What clients have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Clients {
    pub(crate) connections: u64,
    pub(crate) sessions: u64,
    pub(crate) in_flight: u64,
}

/// Lets time pass for everybody at once.
pub(crate) async fn pass(time: Duration) {
    tokio::time::pause();
    tokio::time::advance(time).await;
    tokio::time::resume();
}

/// The terms that a config sets for clients.
fn terms_of(config: &str) -> Terms {
    Terms::from(&gateway_of(config))
}

fn gateway_of(config: &str) -> GatewayConfig {
    Config::parse(config, Path::new("gripfast.toml")).unwrap().gateway
}

/// A host with the servers of a config.
pub(crate) fn host_of(config: &str, state: Option<PathBuf>) -> Host {
    let config = Config::parse(config, Path::new("gripfast.toml")).unwrap();
    let host = Host::builder()
        .client_info("endpoint", "1")
        .capabilities(gripfast_gateway::downstream::client_capabilities())
        .state_dir(state)
        .clients(config.clients)
        .budgets(config.budgets)
        .nesting(config.gateway.limits.nesting as usize)
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

/// The table of a config for a server at a URL, with further lines.
pub(crate) fn at(name: &str, url: &str, protocol: &str, more: &[&str]) -> String {
    let mut table =
        format!("[servers.{name}]\nurl = {url:?}\ntransport = \"http\"\nprotocol = {protocol:?}\n");
    for line in more {
        writeln!(table, "{line}").unwrap();
    }
    table
}

/// The table of a config for the sample server as a child, with further lines.
pub(crate) fn child(name: &str, flags: &[&str], more: &[&str]) -> String {
    let args = [&["demo-server"], flags].concat();
    let mut table = format!("[servers.{name}]\ncommand = {GRIPFAST:?}\nargs = {args:?}\n");
    for line in more {
        writeln!(table, "{line}").unwrap();
    }
    table
}

/// A whole config file: the first list waits for as long as a busy machine needs to start a server.
pub(crate) fn file_of(servers: &str) -> String {
    format!("[gateway]\nstartup_wait = \"60s\"\n\n{servers}")
}

pub(crate) async fn within<T>(what: &str, work: impl Future<Output = T>) -> T {
    match tokio::time::timeout(PATIENCE, work).await {
        Ok(done) => done,
        Err(_) => panic!("{what}: not within {PATIENCE:?}"),
    }
}

/// Until something is so that tells nobody when it becomes so.
pub(crate) async fn until(what: &str, so: impl Fn() -> bool) {
    within(what, async {
        while !so() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}
