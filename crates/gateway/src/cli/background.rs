//! The gateway that the clients of `gripfast stdio` share: how it is found, and how it is started in the background.

use super::exit::Exit;
use super::serve::Plan;
use super::stop::{Failure, Stop};
use gripfast::config::{Config, ConfigFile, ConfigOrigin};
use gripfast::private_files;
use gripfast::text::escaped;
use gripfast_gateway::control_socket::{self, BRIDGES};
use gripfast_gateway::downstream::bridge::{self, Connection, NotJoined};
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;
use tokio::process::{Child, Command};
use tokio::time::{sleep, timeout};

/// Time between two looks for a gateway that is about to listen.
const LOOK_AGAIN: Duration = Duration::from_millis(50);
/// Time for a gateway to listen.
const START_WITHIN: Duration = Duration::from_secs(30);
/// Time for a gateway that nobody here starts to come back, as a supervisor may start it again.
const BACK_WITHIN: Duration = Duration::from_secs(2);
/// Attempts to start a gateway after one has gone away.
const ATTEMPTS: u32 = 3;
/// A log that is larger is moved away, in place of the one moved before.
const LARGEST_LOG: u64 = 1 << 20;
const LOOK_AT_LOG: Duration = Duration::from_secs(10);
/// The part of a log that is shown when a gateway cannot start.
const SHOWN: u64 = 2048;

/// The shared gateway of a config, running or not.
pub(crate) struct Bridge {
    state_dir: PathBuf,
    name: String,
    variables: BTreeSet<String>,
    config: ConfigFile,
    linger: Duration,
}

impl Bridge {
    /// `None` without a state directory.
    pub(crate) fn of(plan: &Plan) -> Option<Self> {
        let (file, config, state_dir): (&ConfigFile, &Config, &Path) = plan.places()?;
        let absolute = |path: &Path| std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        Some(Self {
            state_dir: absolute(state_dir),
            name: bridge::name(&file.path, env!("CARGO_PKG_VERSION")),
            variables: config.variables(),
            config: ConfigFile { path: absolute(&file.path), origin: file.origin },
            linger: config.gateway.linger,
        })
    }

    pub(crate) fn state_dir(&self) -> &Path {
        &self.state_dir
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// A connection to the gateway; `None` if it does not run.
    async fn find(&self) -> Result<Option<Connection>, NotJoined> {
        let Some(found) = control_socket::find_bridge(&self.state_dir, &self.name).await? else {
            return Ok(None);
        };
        let joined = async { bridge::join(found.connect().await?, self.variables.clone()).await };
        match joined.await {
            Ok(connection) => Ok(Some(connection)),
            // It ended meanwhile.
            Err(NotJoined::Io(error)) if is_gone(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The same for a client that can do without; why one that runs is not used is logged.
    pub(crate) async fn find_usable(&self) -> Option<Connection> {
        self.find().await.unwrap_or_else(|error| {
            tracing::warn!("the running gateway is not used: {error}; serving by itself");
            None
        })
    }

    /// The same, for a while.
    pub(crate) async fn find_again(&self) -> Option<Connection> {
        let look = async {
            loop {
                if let Ok(Some(found)) = self.find().await {
                    return found;
                }
                sleep(LOOK_AGAIN).await;
            }
        };
        timeout(BACK_WITHIN, look).await.ok()
    }

    /// A connection to the gateway, which is started if it does not run.
    pub(crate) async fn find_or_start(&self) -> Result<Connection, Stop> {
        let found = self.find().await.map_err(|error| self.unusable(&error))?;
        match found {
            Some(found) => Ok(found),
            None => Ok(self.start().await?),
        }
    }

    /// The same after the gateway went away: a client that is connected is worth a few attempts.
    pub(crate) async fn find_or_start_again(&self) -> Result<Connection, Stop> {
        let mut attempt = 1;
        loop {
            match self.find_or_start().await {
                Err(_) if attempt < ATTEMPTS => sleep(LOOK_AGAIN * 10 * attempt).await,
                done => return done,
            }
            attempt += 1;
        }
    }

    /// Starts the gateway, unless another process is faster.
    async fn start(&self) -> Result<Connection, Failure> {
        let refused = |error: io::Error| {
            let text = format!("cannot start a gateway in the background: {error}");
            Failure::new(Exit::General, text)
                .with_hint("`gripfast stdio` without `--background` serves by itself")
        };
        private_files::make_part(&self.state_dir.join(BRIDGES)).map_err(refused)?;
        let lock = private_files::open_lock(&self.path("lock")).map_err(refused)?;
        // Held until this returns: only one process starts it.
        let _lock = tokio::task::spawn_blocking(move || lock.lock().map(|()| lock))
            .await
            .map_err(io::Error::other)
            .flatten()
            .map_err(refused)?;
        if let Some(found) = self.find().await.map_err(|error| self.unusable(&error))? {
            return Ok(found);
        }
        let mut log = self.open_log().map_err(refused)?;
        let mut child = self.spawn(&log.file).map_err(refused)?;
        match timeout(START_WITHIN, self.until_ready(&mut child)).await {
            Ok(Ok(found)) => Ok(found),
            Ok(Err(NotStarted::Unusable(error))) => Err(self.unusable(&error)),
            Ok(Err(NotStarted::Ended(how))) => Err(self.not_started(&how, &mut log)),
            Err(_) => {
                let _ = child.start_kill();
                Err(self.not_started(&format!("did not listen within {START_WITHIN:?}"), &mut log))
            }
        }
    }

    async fn until_ready(&self, child: &mut Child) -> Result<Connection, NotStarted> {
        loop {
            if let Some(found) = self.find().await.map_err(NotStarted::Unusable)? {
                return Ok(found);
            }
            if let Ok(Some(status)) = child.try_wait() {
                return Err(NotStarted::Ended(format!("ended with {status}")));
            }
            sleep(LOOK_AGAIN).await;
        }
    }

    fn spawn(&self, log: &File) -> io::Result<Child> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["serve", "--background", "--state-dir"]).arg(&self.state_dir);
        // A file that was found in the current directory is found there again: it is used as long as it is trusted.
        if self.config.origin != ConfigOrigin::CurrentDirectory {
            command.arg("--config").arg(&self.config.path);
        }
        // The same wherever the client that happens to start it was started.
        if let Some(directory) = self.config.path.parent() {
            command.current_dir(directory);
        }
        // The standard streams of this process belong to its client.
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log.try_clone()?);
        command.spawn()
    }

    fn path(&self, ending: &str) -> PathBuf {
        self.state_dir.join(BRIDGES).join(format!("{}.{ending}", self.name))
    }

    fn open_log(&self) -> io::Result<Log> {
        let file = private_files::open(&self.path("log"), |how| how.create(true).append(true).read(true))?;
        let begun = file.metadata()?.len();
        Ok(Log { file, begun })
    }

    /// Moves the log away whenever it has grown large. Never ends.
    pub(crate) async fn keep_log_small(&self) {
        loop {
            sleep(LOOK_AT_LOG).await;
            let (log, old) = (self.path("log"), self.path("log.old"));
            let is_large = std::fs::metadata(&log).is_ok_and(|metadata| metadata.len() > LARGEST_LOG);
            if is_large && let Ok(file) = private_files::open(&log, |how| how.write(true)) {
                // The gateway goes on writing at the end of the same file.
                let _ = std::fs::remove_file(&old);
                let _ = std::fs::copy(&log, &old);
                let _ = file.set_len(0);
            }
        }
    }

    fn not_started(&self, how: &str, log: &mut Log) -> Failure {
        let mut said = Vec::new();
        let _ = log.file.seek(SeekFrom::Start(log.begun));
        let _ = (&log.file).take(SHOWN).read_to_end(&mut said);
        let said = String::from_utf8_lossy(&said);
        let said: String = said.lines().map(|line| format!("\n  {}", escaped(line))).collect();
        let text = format!("the gateway in the background {how}{said}");
        Failure::new(Exit::General, text).with_hint(format!("its log is `{}`", self.path("log").display()))
    }

    fn unusable(&self, error: &NotJoined) -> Failure {
        let failure = Failure::new(Exit::General, error.to_string());
        match error {
            NotJoined::OtherVariables(names) => failure.exiting(Exit::ConfigInvalid).with_hint(format!(
                "start all clients with the same {}; or without `--background`, to serve by itself; the running gateway \
                 ends {:?} after its last client",
                names.join(", "),
                self.linger
            )),
            NotJoined::Io(_) => {
                failure.with_hint("`gripfast stdio` without `--background` serves by itself")
            }
        }
    }
}

/// The log of a gateway that is started.
struct Log {
    file: File,
    /// Its size before.
    begun: u64,
}

/// Why a gateway that was started cannot be used.
enum NotStarted {
    Unusable(NotJoined),
    Ended(String),
}

fn is_gone(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionRefused, ConnectionReset, NotFound, UnexpectedEof};
    matches!(error.kind(), BrokenPipe | ConnectionRefused | ConnectionReset | NotFound | UnexpectedEof)
}

/// Makes this process independent of the client that started it: signals to that client's process group and terminal do
/// not reach it.
pub(crate) fn detach() {
    // Fails only for the leader of a process group, which is independent already.
    let _ = rustix::process::setsid();
}
