//! Running gateway with a few demo servers, and a browser for its dashboard.

use gripfast::config::Config;
use gripfast::{Host, State};
use gripfast_gateway::api::TOKEN_FILE;
use gripfast_gateway::mcp::Limits;
use gripfast_gateway::reload::Reloader;
use gripfast_gateway::server::{Server, ServerSettings};
use gripfast_testkit::browser::Browser;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

/// Timeout of every wait: a browser is slow on a machine that compiles.
const PATIENCE: Duration = Duration::from_secs(120);

/// Secret of the config, which no page may show.
const SECRET: &str = "sk-0123456789-nobody-may-see";

pub(crate) struct TestGateway {
    pub(crate) host: Host,
    url: String,
    state: tempfile::TempDir,
}

impl TestGateway {
    /// Starts a gateway with `steady`, which is ready, `upgraded`, whose tools can change, and `broken`, which cannot
    /// be started.
    pub(crate) async fn start() -> Self {
        let state = tempfile::tempdir().unwrap();
        let host = Host::builder().state_dir(Some(state.path().to_owned())).build();
        let program = env!("CARGO_BIN_EXE_gripfast");
        let config = format!(
            "[servers.steady]\ncommand = {program:?}\nargs = ['demo-server', '--fill-stderr', '200']\n\
             env = {{ API_KEY = '{SECRET}' }}\n\
             [servers.upgraded]\ncommand = {program:?}\nargs = ['demo-server', '${{file:{}}}']\n\
             [servers.broken]\ncommand = 'no-such-program'\n",
            flag(&state).display()
        );
        std::fs::write(flag(&state), "--page-size=50").unwrap();
        let file = state.path().join("gripfast.toml");
        std::fs::write(&file, &config).unwrap();
        for server in Config::load(&file).unwrap().servers {
            host.spawn(&server.name, server.spec.unwrap()).unwrap();
        }
        let reloader = Reloader::new(host.clone(), file.clone(), Config::load(&file).unwrap());
        let settings = ServerSettings {
            listen: ([127, 0, 0, 1], 0).into(),
            state_dir: Some(state.path().to_owned()),
            limits: Limits::default(),
            access: gripfast::config::AccessConfig::default(),
            cluster: None,
        };
        let server = Server::bind(host.clone(), &settings).await.unwrap();
        server.set_reloader(Arc::new(reloader));
        let url = format!("http://{}", server.address().unwrap());
        // It ends with the test's runtime.
        tokio::spawn(server.serve(std::future::pending()));
        host.catalog("steady", PATIENCE).await.unwrap();
        let gateway = Self { host, url, state };
        gateway.until("steady", State::Ready).await;
        gateway.host.catalog("upgraded", PATIENCE).await.unwrap();
        gateway.until("upgraded", State::Ready).await;
        gateway.until("broken", State::ConfigError).await;
        gateway
    }

    /// Restarts the server with another description and schema of `echo`.
    pub(crate) async fn change(&self, server: &str) {
        std::fs::write(flag(&self.state), "--changed-schema").unwrap();
        self.host.reconnect(server).unwrap();
        self.until(server, State::NeedsApproval).await;
    }

    /// Adds a server that needs a login.
    pub(crate) async fn wants_login(&self, name: &str, url: &str) {
        let config = format!("[servers.{name}]\nurl = {url:?}\ntransport = 'http'\n");
        for server in Config::parse(&config, "gripfast.toml".as_ref()).unwrap().servers {
            self.host.spawn(&server.name, server.spec.unwrap()).unwrap();
        }
        self.until(name, State::NeedsLogin).await;
    }

    /// Runs one story of `drive.mjs` in the browser.
    pub(crate) async fn run_story(&self, story: &str) {
        run_story_at(story, &self.url, self.state.path()).await;
        self.until("steady", State::Ready).await;
    }

    pub(crate) fn pid(&self, server: &str) -> Option<u32> {
        self.host.server_status(server).unwrap().pid
    }

    async fn until(&self, server: &str, state: State) {
        let mut events = self.host.subscribe_events();
        let reached = async {
            let there = || {
                let supervision = self.host.server_status(server).unwrap().supervision;
                supervision.state == state && !supervision.replacing
            };
            while !there() {
                events.recv().await.unwrap();
            }
        };
        if tokio::time::timeout(PATIENCE, reached).await.is_err() {
            panic!("`{server}` was never {state:?}: {:?}", self.host.server_status(server).unwrap());
        }
    }
}

/// Runs one story in the browser at the gateway with this URL and state directory; a failure prints its output.
pub(crate) async fn run_story_at(story: &str, url: &str, state: &Path) {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/browser/drive.mjs");
    let pictures = Path::new(env!("CARGO_TARGET_TMPDIR")).join("../browser");
    std::fs::create_dir_all(&pictures).unwrap();
    let token = std::fs::read_to_string(state.join(TOKEN_FILE)).unwrap();
    let pictures = pictures.display().to_string();
    let command = Browser::Chromium.script(&script, [story, url, token.trim(), &pictures]);
    let mut process = tokio::process::Command::new(command.program);
    process.args(command.args).envs(command.env).stdin(Stdio::null()).kill_on_drop(true);
    let played = tokio::time::timeout(PATIENCE, process.output()).await.unwrap().unwrap();
    assert!(
        played.status.success(),
        "{story}: {}\n{}{}",
        played.status,
        String::from_utf8_lossy(&played.stdout),
        String::from_utf8_lossy(&played.stderr)
    );
}

/// The last argument of `upgraded`.
fn flag(state: &tempfile::TempDir) -> std::path::PathBuf {
    state.path().join("flag")
}
