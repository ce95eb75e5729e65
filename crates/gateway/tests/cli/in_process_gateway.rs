//! A gateway in this process, for the binary to ask: a host over demo servers, its MCP endpoint and its admin
//! API on a port and on a control socket. Its state is where the sandbox's platform keeps it, so that the binary finds
//! socket and token by itself.

use crate::sandbox::{Ran, Sandbox, stdio};
use gripfast::Host;
use gripfast::config::Config;
use gripfast_gateway::admin::Admin;
use gripfast_gateway::downstream::{Gateway, Seal, Terms};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;

pub(crate) const STATE: &str = "home/.local/state/gripfast";
/// A sandbox with a running gateway that has the server `demo`, which is ready.
pub(crate) fn scene() -> (Sandbox, Running) {
    scene_of(&stdio("demo", &[]))
}

/// The same with a config that has it among others.
pub(crate) fn scene_of(config: &str) -> (Sandbox, Running) {
    let sandbox = Sandbox::empty();
    let running = Running::with(&sandbox, config);
    running.until("demo", "ready");
    (sandbox, running)
}

/// Runs the binary with the words for this gateway.
pub(crate) fn ask(sandbox: &Sandbox, running: &Running, words: &[&str]) -> Ran {
    sandbox.run(&[words, &["--url", &running.url]].concat())
}

const PATIENCE: Duration = Duration::from_secs(30);
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// A running gateway; gone with this value, and its servers with it.
pub(crate) struct Running {
    pub(crate) host: Host,
    pub(crate) url: String,
    admin: Arc<Admin>,
    gateway: Arc<Gateway>,
    address: SocketAddr,
    state: PathBuf,
    /// Where the servers live.
    hosting: Runtime,
    /// Where connections live: without it nobody listens.
    listening: Option<Runtime>,
}

impl Running {
    /// The servers of this config.
    pub(crate) fn with(sandbox: &Sandbox, config: &str) -> Self {
        let (hosting, state) = (runtime(), sandbox.path(STATE));
        let (host, admin, gateway) = hosting.block_on(async {
            let host = Host::builder().build();
            for server in Config::parse(config, "gripfast.toml".as_ref()).unwrap().servers {
                match server.spec {
                    Ok(spec) => host.spawn(&server.name, spec).unwrap(),
                    Err(causes) => host.spawn_broken(&server.name, &causes[0].to_string()).unwrap(),
                }
            }
            let admin = Admin::new(host.clone(), Some(&state)).unwrap();
            let gateway = Gateway::new(host.clone(), Seal::of_this_process().unwrap(), &Terms::default());
            (host, Arc::new(admin), gateway)
        });
        let address = SocketAddr::from(([127, 0, 0, 1], 0));
        let mut running =
            Self { host, url: String::new(), admin, gateway, address, state, hosting, listening: None };
        running.come();
        running
    }

    /// Nobody listens any more.
    pub(crate) fn go(&mut self) {
        self.listening = None;
    }

    /// Listens, where it did before if it did.
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

    /// A control socket as a gateway has it, in the place of the one before.
    #[cfg(unix)]
    fn socket(&self, runtime: &Runtime) -> tokio::net::UnixListener {
        use std::os::unix::fs::PermissionsExt;
        let path = gripfast_gateway::control_socket::path(&self.state, self.address);
        let folder = path.parent().unwrap();
        std::fs::create_dir_all(folder).unwrap();
        std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o700)).unwrap();
        let _ = std::fs::remove_file(&path);
        let _runtime = runtime.enter();
        tokio::net::UnixListener::bind(path).unwrap()
    }

    pub(crate) fn until(&self, server: &str, state: &str) {
        self.hosting.block_on(async {
            let mut events = self.host.events();
            let reached = async {
                let there = || {
                    let status = self.host.status_of(server).unwrap();
                    let told = status.session_age.is_none() || status.restored.is_some();
                    status.supervision.state.word() == state && !status.supervision.replacing && told
                };
                while !there() {
                    // Not everything that is waited for is told.
                    let _ = tokio::time::timeout(LOOK_AGAIN, events.recv()).await;
                }
            };
            if tokio::time::timeout(PATIENCE, reached).await.is_err() {
                panic!("`{server}` was never {state}: {:?}", self.host.status_of(server).unwrap());
            }
        });
    }

    pub(crate) fn call(&self, server: &str, tool: &str) {
        self.hosting.block_on(self.host.call(server, tool, None)).unwrap();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.hosting.block_on(self.host.shutdown());
    }
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap()
}
