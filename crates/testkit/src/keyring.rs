//! A real desktop keyring: GNOME Keyring on its own D-Bus and in its own directories, isolated from the user's.
//!
//! `cargo xtask test` installs it with Debian's package manager if it has the permission.

use std::fmt;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::peers::{is_in_path, is_usable};
use tempfile::TempDir;

/// A keyring for secrets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keyring {
    /// GNOME Keyring, accessed through `secret-tool`.
    Gnome,
}

const PROGRAMS: [&str; 3] = ["dbus-daemon", "gnome-keyring-daemon", "secret-tool"];
/// A bus without service activation.
const BUS: &str = r#"<busconfig><type>session</type><listen>unix:dir=DIR</listen><auth>EXTERNAL</auth>
<policy context="default"><allow send_destination="*" eavesdrop="true"/><allow eavesdrop="true"/>
<allow own="*"/></policy></busconfig>"#;
const PASSWORD: &[u8] = b"of a test";
/// Start takes a moment; after this it has failed.
const START_TIMEOUT: Duration = Duration::from_secs(60);
/// `secret-tool` normally answers within milliseconds.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

impl Keyring {
    /// True if the keyring is installed; a test returns early on `false`.
    ///
    /// # Panics
    ///
    /// If it is not installed and was not left out on purpose (`cargo xtask test --allow-missing`).
    #[must_use]
    pub fn require(self) -> bool {
        let missing = || {
            let missing = PROGRAMS.into_iter().find(|program| !is_in_path(program))?;
            Some(format!("there is no `{missing}` in PATH"))
        };
        is_usable("gnome-keyring", &self, missing)
    }
}

impl fmt::Display for Keyring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("gnome-keyring")
    }
}

/// A running keyring. Dropping it stops it and deletes its content.
#[derive(Debug)]
pub struct RunningKeyring {
    home: TempDir,
    address: String,
    bus: Child,
    daemon: Option<Child>,
}

impl RunningKeyring {
    /// Starts an empty, unlocked keyring.
    ///
    /// # Panics
    ///
    /// If it does not start.
    #[must_use]
    pub fn start(keyring: Keyring) -> Self {
        match keyring {
            Keyring::Gnome => {}
        }
        let home = tempfile::tempdir().expect("there is room for a directory");
        let config = home.path().join("bus.conf");
        let text = BUS.replace("DIR", &home.path().display().to_string());
        std::fs::write(&config, text).expect("the directory can be written to");
        let mut bus = Command::new("dbus-daemon");
        bus.args(["--nofork", "--print-address", "--config-file"]).arg(&config);
        let mut bus = bus.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().expect("dbus-daemon starts");
        let mut address = String::new();
        let said = bus.stdout.take().expect("it is piped");
        BufReader::new(said).read_line(&mut address).expect("dbus-daemon says its address");
        let mut running = Self { home, address: address.trim().to_owned(), bus, daemon: None };
        running.unlock();
        running
    }

    /// Environment variables for programs that use the keyring.
    #[must_use]
    pub fn env(&self) -> Vec<(String, String)> {
        let home = self.home.path().display().to_string();
        let dirs = ["HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME", "XDG_RUNTIME_DIR"];
        let mut env: Vec<_> = dirs.map(|name| (name.to_owned(), home.clone())).into();
        env.push(("DBUS_SESSION_BUS_ADDRESS".to_owned(), self.address.clone()));
        env
    }

    /// Locks the keyring, as after a boot before the user logs in. Returns once it is locked.
    ///
    /// # Panics
    ///
    /// If it does not start.
    pub fn lock(&mut self) {
        self.start_daemon(None);
        self.wait_for_store("secret-tool store fails for it is locked", |said| said.contains("locked"));
    }

    /// Unlocks the keyring with the password. Returns once secrets can be stored and read.
    ///
    /// # Panics
    ///
    /// If it does not start.
    pub fn unlock(&mut self) {
        self.start_daemon(Some(PASSWORD));
        self.wait_for_store("secret-tool can store", |said| said.is_empty());
    }

    fn start_daemon(&mut self, password: Option<&[u8]>) {
        self.stop_daemon();
        let mut daemon = Command::new("gnome-keyring-daemon");
        daemon.args(["--foreground", "--components=secrets"]).args(password.map(|_| "--unlock"));
        daemon.envs(self.env()).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut daemon = daemon.spawn().expect("gnome-keyring-daemon starts");
        let mut stdin = daemon.stdin.take().expect("it is piped");
        // Without a password the daemon may not read stdin at all.
        let _ = stdin.write_all(password.unwrap_or_default());
        self.daemon = Some(daemon);
    }

    /// Stores a secret repeatedly until the output satisfies the condition.
    fn wait_for_store(&self, what: &str, is_so: impl Fn(&str) -> bool) {
        let deadline = Instant::now() + START_TIMEOUT;
        loop {
            let mut store = Command::new("secret-tool");
            store.args(["store", "--label", "a test", "application", "testkit"]).envs(self.env());
            let store = store.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
            let said = output_within_timeout(store.spawn().expect("secret-tool starts"));
            if said.as_deref().is_some_and(&is_so) {
                return;
            }
            assert!(Instant::now() < deadline, "timeout while waiting for: {what}; last output: {said:?}");
        }
    }

    fn stop_daemon(&mut self) {
        if let Some(mut daemon) = self.daemon.take() {
            let _ = daemon.kill();
            let _ = daemon.wait();
        }
    }
}

impl Drop for RunningKeyring {
    fn drop(&mut self) {
        self.stop_daemon();
        let _ = self.bus.kill();
        let _ = self.bus.wait();
    }
}

/// Waits for a `secret-tool store` and returns its stderr, which is empty on success; `None` if it hangs, or if its
/// exit status and stderr disagree, which can happen while the keyring starts or stops.
fn output_within_timeout(mut store: Child) -> Option<String> {
    let _ = store.stdin.take().expect("it is piped").write_all(b"x");
    let started = Instant::now();
    while store.try_wait().expect("it can be asked").is_none() {
        if started.elapsed() > ANSWER_TIMEOUT {
            let _ = store.kill();
            let _ = store.wait();
            return None;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let output = store.wait_with_output().expect("it has ended");
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    (output.status.success() == said.is_empty()).then_some(said)
}
