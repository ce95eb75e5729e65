//! The gateway that clients of `gripfast stdio` share: finds it, or starts it in the background.

use super::error::{CommandError, FailureReport};
use super::exit::Exit;
use super::serve::ServePlan;
use gripfast::config::{Config, ConfigFile, ConfigOrigin};
use gripfast::private_files;
use gripfast::text::escaped;
use gripfast_gateway::mcp::transport::stdio_bridge;
use gripfast_gateway::mcp::transport::stdio_bridge::{BridgeConnection, JoinError};
use gripfast_gateway::server::control_socket;
use gripfast_gateway::server::control_socket::BRIDGES;
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;
use tokio::process::{Child, Command};
use tokio::time::{sleep, timeout};

/// Interval between checks for a gateway that is starting.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Time limit for a gateway to start and listen.
const START_TIMEOUT: Duration = Duration::from_secs(30);
/// Time for a gateway that this process does not start to come back; a service manager may restart it.
const RECONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// Attempts to start a gateway after one has gone away.
const ATTEMPTS: u32 = 3;
/// Size above which the log is moved to `log.old`.
const MAX_LOG: u64 = 1 << 20;
const LOG_CHECK_INTERVAL: Duration = Duration::from_secs(10);
/// Bytes of the log that are shown when a gateway cannot start.
const SHOWN_BYTES: u64 = 2048;

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
    pub(crate) fn from_plan(plan: &ServePlan) -> Option<Self> {
        let (file, config, state_dir): (&ConfigFile, &Config, &Path) = plan.paths()?;
        let absolute = |path: &Path| std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        Some(Self {
            state_dir: absolute(state_dir),
            name: stdio_bridge::socket_name(&file.path, env!("CARGO_PKG_VERSION")),
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

    /// Connects to the gateway; `None` if it is not running.
    async fn find(&self) -> Result<Option<BridgeConnection>, JoinError> {
        let Some(found) = control_socket::find_bridge(&self.state_dir, &self.name).await? else {
            return Ok(None);
        };
        let joined = async { stdio_bridge::join(found.connect().await?, self.variables.clone()).await };
        match joined.await {
            Ok(connection) => Ok(Some(connection)),
            // The gateway ended meanwhile.
            Err(JoinError::Io(error)) if is_gone(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The same for a client that can serve by itself: an error is logged and counts as `None`.
    pub(crate) async fn find_usable(&self) -> Option<BridgeConnection> {
        self.find().await.unwrap_or_else(|error| {
            tracing::warn!(
                "the running gateway cannot be used: {error}; this process starts its own servers"
            );
            None
        })
    }

    /// Waits a short time for a gateway and connects to it.
    pub(crate) async fn wait_for_gateway(&self) -> Option<BridgeConnection> {
        let look = async {
            loop {
                if let Ok(Some(found)) = self.find().await {
                    return found;
                }
                sleep(POLL_INTERVAL).await;
            }
        };
        timeout(RECONNECT_TIMEOUT, look).await.ok()
    }

    /// Connects to the gateway, and starts it first if it is not running.
    pub(crate) async fn find_or_start(&self) -> Result<BridgeConnection, CommandError> {
        let found = self.find().await.map_err(|error| self.unusable(&error))?;
        match found {
            Some(found) => Ok(found),
            None => Ok(self.start().await?),
        }
    }

    /// The same after the gateway went away, with a few attempts because a client is connected.
    pub(crate) async fn find_or_restart(&self) -> Result<BridgeConnection, CommandError> {
        let mut attempt = 1;
        loop {
            match self.find_or_start().await {
                Err(_) if attempt < ATTEMPTS => sleep(POLL_INTERVAL * 10 * attempt).await,
                done => return done,
            }
            attempt += 1;
        }
    }

    /// Starts the gateway, unless another process has started it meanwhile.
    async fn start(&self) -> Result<BridgeConnection, FailureReport> {
        let refused = |error: io::Error| {
            let text = format!("cannot start a gateway in the background: {error}");
            FailureReport::new(Exit::General, text)
                .with_hint("`gripfast stdio` without `--background` serves by itself")
        };
        private_files::create_subdirectory(&self.state_dir.join(BRIDGES)).map_err(refused)?;
        let lock = private_files::open_lock(&self.path("lock")).map_err(refused)?;
        // Held until this function returns, so that only one process starts the gateway.
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
        match timeout(START_TIMEOUT, self.until_ready(&mut child)).await {
            Ok(Ok(found)) => Ok(found),
            Ok(Err(StartError::Unusable(error))) => Err(self.unusable(&error)),
            Ok(Err(StartError::Ended(how))) => Err(self.not_started(&how, &mut log)),
            Err(_) => {
                let _ = child.start_kill();
                Err(self.not_started(&format!("did not listen within {START_TIMEOUT:?}"), &mut log))
            }
        }
    }

    async fn until_ready(&self, child: &mut Child) -> Result<BridgeConnection, StartError> {
        loop {
            if let Some(found) = self.find().await.map_err(StartError::Unusable)? {
                return Ok(found);
            }
            if let Ok(Some(status)) = child.try_wait() {
                return Err(StartError::Ended(format!("ended with {status}")));
            }
            sleep(POLL_INTERVAL).await;
        }
    }

    fn spawn(&self, log: &File) -> io::Result<Child> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["serve", "--background", "--state-dir"]).arg(&self.state_dir);
        // A file of the current directory is not named: the gateway finds it there and checks that it is trusted.
        if self.config.origin != ConfigOrigin::CurrentDirectory {
            command.arg("--config").arg(&self.config.path);
        }
        // Independent of the directory in which the client was started.
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
        let start = file.metadata()?.len();
        Ok(Log { file, start })
    }

    /// Moves the log to `log.old` whenever it has grown large. Never returns.
    pub(crate) async fn rotate_log(&self) {
        loop {
            sleep(LOG_CHECK_INTERVAL).await;
            let (log, old) = (self.path("log"), self.path("log.old"));
            let is_large = std::fs::metadata(&log).is_ok_and(|metadata| metadata.len() > MAX_LOG);
            if is_large && let Ok(file) = private_files::open(&log, |how| how.write(true)) {
                // The gateway keeps appending to the same file, so it is copied and truncated.
                let _ = std::fs::remove_file(&old);
                let _ = std::fs::copy(&log, &old);
                let _ = file.set_len(0);
            }
        }
    }

    fn not_started(&self, how: &str, log: &mut Log) -> FailureReport {
        let mut output = Vec::new();
        let _ = log.file.seek(SeekFrom::Start(log.start));
        let _ = (&log.file).take(SHOWN_BYTES).read_to_end(&mut output);
        let output = String::from_utf8_lossy(&output);
        let output: String = output.lines().map(|line| format!("\n  {}", escaped(line))).collect();
        let text = format!("the background gateway {how}{output}");
        FailureReport::new(Exit::General, text)
            .with_hint(format!("the full log is in `{}`", self.path("log").display()))
    }

    fn unusable(&self, error: &JoinError) -> FailureReport {
        let failure = FailureReport::new(Exit::General, error.to_string());
        match error {
            JoinError::EnvironmentMismatch(names) => failure.with_exit(Exit::ConfigInvalid).with_hint(format!(
                "start all clients with the same values of {}; or start this one without `--background`, so that it serves \
                 by itself; the running gateway ends {:?} after its last client",
                names.join(", "),
                self.linger
            )),
            JoinError::Io(_) => {
                failure.with_hint("`gripfast stdio` without `--background` serves by itself")
            }
        }
    }
}

/// The log of a gateway that is being started.
struct Log {
    file: File,
    /// Its size before the start.
    start: u64,
}

/// The reason for which a started gateway cannot be used.
enum StartError {
    Unusable(JoinError),
    Ended(String),
}

fn is_gone(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionRefused, ConnectionReset, NotFound, UnexpectedEof};
    matches!(error.kind(), BrokenPipe | ConnectionRefused | ConnectionReset | NotFound | UnexpectedEof)
}

/// Detaches this process from the client that started it: signals to the client's process group and terminal do not
/// reach it any more.
pub(crate) fn detach() {
    // Fails only for the leader of a process group, which is independent already.
    let _ = rustix::process::setsid();
}
