//! The keyring of a real desktop: GNOME's, on a D-Bus and in directories of its own, so that it is nobody else's.
//!
//! `cargo xtask test` has Debian install it where it may.

use std::fmt;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::peers::{is_in_path, is_usable};
use tempfile::TempDir;

/// A keyring that programs can keep secrets in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keyring {
    /// GNOME's, which is asked by `secret-tool`.
    Gnome,
}

const PROGRAMS: [&str; 3] = ["dbus-daemon", "gnome-keyring-daemon", "secret-tool"];
/// A bus that starts nothing by itself: what is not there is not there.
const BUS: &str = r#"<busconfig><type>session</type><listen>unix:dir=DIR</listen><auth>EXTERNAL</auth>
<policy context="default"><allow send_destination="*" eavesdrop="true"/><allow eavesdrop="true"/>
<allow own="*"/></policy></busconfig>"#;
const PASSWORD: &[u8] = b"of a test";
/// It takes a moment; who has not come up by then never will.
const STUCK: Duration = Duration::from_secs(60);
/// One answer of `secret-tool` takes milliseconds.
const ONE_ANSWER: Duration = Duration::from_secs(5);

impl Keyring {
    /// Whether it can be used; a test that gets `false` ends.
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

/// A keyring that runs. Dropping it ends it, and what it kept is gone.
#[derive(Debug)]
pub struct Running {
    home: TempDir,
    address: String,
    bus: Child,
    daemon: Option<Child>,
}

impl Running {
    /// Starts one, empty and unlocked.
    ///
    /// # Panics
    ///
    /// If it does not come up.
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

    /// What programs find in their environment that are to use it.
    #[must_use]
    pub fn env(&self) -> Vec<(String, String)> {
        let home = self.home.path().display().to_string();
        let dirs = ["HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME", "XDG_RUNTIME_DIR"];
        let mut env: Vec<_> = dirs.map(|name| (name.to_owned(), home.clone())).into();
        env.push(("DBUS_SESSION_BUS_ADDRESS".to_owned(), self.address.clone()));
        env
    }

    /// As after a start of the machine, before its owner has said the password. Returns when it is so.
    ///
    /// # Panics
    ///
    /// If it does not come up.
    pub fn lock(&mut self) {
        self.serve(None);
        self.until("secret-tool store fails for it is locked", |said| said.contains("locked"));
    }

    /// Its owner says the password. Returns when secrets can be kept and had.
    ///
    /// # Panics
    ///
    /// If it does not come up.
    pub fn unlock(&mut self) {
        self.serve(Some(PASSWORD));
        self.until("secret-tool can store", |said| said.is_empty());
    }

    fn serve(&mut self, password: Option<&[u8]>) {
        self.end_daemon();
        let mut daemon = Command::new("gnome-keyring-daemon");
        daemon.args(["--foreground", "--components=secrets"]).args(password.map(|_| "--unlock"));
        daemon.envs(self.env()).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut daemon = daemon.spawn().expect("gnome-keyring-daemon starts");
        let mut stdin = daemon.stdin.take().expect("it is piped");
        // Without one it may not read at all.
        let _ = stdin.write_all(password.unwrap_or_default());
        self.daemon = Some(daemon);
    }

    /// Keeps something there until it is answered like this.
    fn until(&self, what: &str, is_so: impl Fn(&str) -> bool) {
        let deadline = Instant::now() + STUCK;
        loop {
            let mut store = Command::new("secret-tool");
            store.args(["store", "--label", "a test", "application", "testkit"]).envs(self.env());
            let store = store.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
            let said = within_its_time(store.spawn().expect("secret-tool starts"));
            if said.as_deref().is_some_and(&is_so) {
                return;
            }
            assert!(Instant::now() < deadline, "it never came to this: {what}; it says: {said:?}");
        }
    }

    fn end_daemon(&mut self) {
        if let Some(mut daemon) = self.daemon.take() {
            let _ = daemon.kill();
            let _ = daemon.wait();
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.end_daemon();
        let _ = self.bus.kill();
        let _ = self.bus.wait();
    }
}

/// Has it keep something. What it says about that, which is nothing if it did; `None` if it hangs, as it may when its
/// keyring comes and goes, or ends otherwise than it says.
fn within_its_time(mut store: Child) -> Option<String> {
    let _ = store.stdin.take().expect("it is piped").write_all(b"x");
    let begun = Instant::now();
    while store.try_wait().expect("it can be asked").is_none() {
        if begun.elapsed() > ONE_ANSWER {
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
