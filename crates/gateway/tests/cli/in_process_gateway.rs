//! Gateway in this process for the binary under test: a host with demo servers, and its MCP endpoint and admin API on a
//! port and on a control socket. Its state is in the default directory of the sandbox, where the binary finds socket
//! and token.

use crate::sandbox::{CommandOutput, Sandbox, stdio};
use gripfast::Host;
use gripfast::config::Config;
use gripfast_gateway::api::Admin;
use gripfast_gateway::mcp::{Gateway, Limits, TokenCipher};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;

pub(crate) const STATE: &str = "home/.local/state/gripfast";
/// Sandbox and a running gateway with the server `demo`, which is ready.
pub(crate) fn demo_gateway() -> (Sandbox, InProcessGateway) {
    gateway_with(&stdio("demo", &[]))
}

/// Sandbox and a running gateway with this config, in which `demo` is ready.
pub(crate) fn gateway_with(config: &str) -> (Sandbox, InProcessGateway) {
    let sandbox = Sandbox::empty();
    let running = InProcessGateway::with(&sandbox, config);
    running.until("demo", "ready");
    (sandbox, running)
}

/// Runs the binary with these arguments and the URL of this gateway.
pub(crate) fn ask(sandbox: &Sandbox, running: &InProcessGateway, words: &[&str]) -> CommandOutput {
    sandbox.run(&[words, &["--url", &running.url]].concat())
}

const PATIENCE: Duration = Duration::from_secs(30);
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// Running gateway; dropping it ends it and its servers.
pub(crate) struct InProcessGateway {
    pub(crate) host: Host,
    pub(crate) url: String,
    admin: Arc<Admin>,
    gateway: Arc<Gateway>,
    address: SocketAddr,
    state: PathBuf,
    /// Runtime of the servers.
    hosting: Runtime,
    /// Runtime of the listener and its connections; `None` while the gateway does not listen.
    listening: Option<Runtime>,
}

impl InProcessGateway {
    /// Starts a gateway with the servers of this config.
    pub(crate) fn with(sandbox: &Sandbox, config: &str) -> Self {
        let (hosting, state) = (runtime(), sandbox.path(STATE));
        let (host, admin, gateway) = hosting.block_on(async {
            let config = Config::parse(config, "gripfast.toml".as_ref()).unwrap();
            let builder = Host::builder().exposure(config.gateway.exposure);
            let host = builder.embeddings(config.gateway.search.embeddings).build();
            for server in config.servers {
                match server.spec {
                    Ok(spec) => host.spawn(&server.name, spec).unwrap(),
                    Err(causes) => host.spawn_broken(&server.name, &causes[0].to_string()).unwrap(),
                }
            }
            let admin = Admin::new(host.clone(), Some(&state)).unwrap();
            let gateway = Gateway::new(host.clone(), TokenCipher::ephemeral().unwrap(), &Limits::default());
            (host, Arc::new(admin), gateway)
        });
        let address = SocketAddr::from(([127, 0, 0, 1], 0));
        let mut running =
            Self { host, url: String::new(), admin, gateway, address, state, hosting, listening: None };
        running.come();
        running
    }

    /// Stops listening.
    pub(crate) fn go(&mut self) {
        self.listening = None;
    }

    /// Starts listening, on the previous address if there was one.
    pub(crate) fn come(&mut self) {
        let listening = runtime();
        let router = Arc::clone(&self.gateway).router().merge(Arc::clone(&self.admin).router());
        let listener = listening.block_on(TcpListener::bind(self.address)).unwrap();
        self.address = listener.local_addr().unwrap();
        self.url = format!("http://{}", self.address);
        #[cfg(unix)]
        listening.spawn(axum::serve(self.socket(&listening), router.clone()).into_future());
        listening.spawn(axum::serve(listener, router).into_future());
        self.listening = Some(listening);
    }

    /// Creates the control socket, replacing the previous one.
    #[cfg(unix)]
    fn socket(&self, runtime: &Runtime) -> tokio::net::UnixListener {
        use std::os::unix::fs::PermissionsExt;
        let path = gripfast_gateway::server::control_socket::path(&self.state, self.address);
        let folder = path.parent().unwrap();
        std::fs::create_dir_all(folder).unwrap();
        std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o700)).unwrap();
        let _ = std::fs::remove_file(&path);
        let _runtime = runtime.enter();
        tokio::net::UnixListener::bind(path).unwrap()
    }

    pub(crate) fn until(&self, server: &str, state: &str) {
        self.hosting.block_on(async {
            let mut events = self.host.subscribe_events();
            let reached = async {
                let there = || {
                    let status = self.host.server_status(server).unwrap();
                    let told = status.session_age.is_none() || status.restored.is_some();
                    status.supervision.state.as_str() == state && !status.supervision.replacing && told
                };
                while !there() {
                    // Not every awaited change has an event.
                    let _ = tokio::time::timeout(LOOK_AGAIN, events.recv()).await;
                }
            };
            if tokio::time::timeout(PATIENCE, reached).await.is_err() {
                panic!("`{server}` was never {state}: {:?}", self.host.server_status(server).unwrap());
            }
        });
    }

    pub(crate) fn call(&self, server: &str, tool: &str) {
        self.hosting.block_on(self.host.call(server, tool, None)).unwrap();
    }
}

impl Drop for InProcessGateway {
    fn drop(&mut self) {
        self.hosting.block_on(self.host.shutdown());
    }
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap()
}
