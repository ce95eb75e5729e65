//! The clean Debian booted with its own systemd, in which the service of the package runs, is upgraded under load and
//! killed.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::check::expect;
use super::clean_system::{NEW, OLD, apt_install, last_line};
use super::{output, runs};

/// Time for the boot, and for the service to be back.
const PATIENCE: Duration = Duration::from_secs(60);
/// Clients that call during the upgrade. Each starts a process per call.
const CALLERS: usize = 3;

/// A running Debian.
struct LiveSystem {
    nspawn: Child,
    /// Its first process, as seen from this machine.
    init: String,
}

/// Runs the service in the Debian at `root`, where the packages [`OLD`] and [`NEW`] lie. Returns the reason for which this
/// machine cannot boot it.
pub(super) fn check(root: &Path) -> Result<Option<String>, String> {
    if !runs("systemd-nspawn", "--version") && !apt_install("systemd-container") {
        return Ok(Some("the service under systemd: `systemd-nspawn` cannot be installed".to_owned()));
    }
    println!("running the service under systemd");
    match LiveSystem::boot(root) {
        Ok(system) => system.check_service().map(|()| None),
        Err(why) => Ok(Some(format!("the service under systemd: no boot here: {}", last_line(&why)))),
    }
}

impl LiveSystem {
    fn boot(root: &Path) -> Result<Self, String> {
        let mut nspawn = Command::new("systemd-nspawn");
        // This machine may have no systemd that could register it.
        nspawn.args(["--boot", "--private-network", "--register=no", "--keep-unit", "--console=pipe"]);
        nspawn.arg("--directory").arg(root);
        nspawn.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let nspawn = nspawn.spawn().map_err(|error| format!("cannot run systemd-nspawn: {error}"))?;
        let mut system = Self { nspawn, init: String::new() };
        let pid = system.nspawn.id();
        wait_for("the first process", || {
            if let Ok(Some(status)) = system.nspawn.try_wait() {
                return Some(Err(format!("systemd-nspawn ended: {status}")));
            }
            let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).ok()?;
            Some(Ok(children.split_whitespace().next()?.to_owned()))
        })
        .and_then(|found| found)
        .map(|init| system.init = init)?;
        wait_for("the boot", || system.run(&["systemctl", "is-system-running"]).ok())?;
        Ok(system)
    }

    fn run(&self, words: &[&str]) -> Result<String, String> {
        let mut enter = Command::new("nsenter");
        enter.args(["--mount", "--pid", "--uts", "--ipc", "--net", "--cgroup", "--target", &self.init]);
        output(enter.args(words).env("DEBIAN_FRONTEND", "noninteractive"))
    }

    fn install(&self, package: &str) -> Result<(), String> {
        let apt = ["apt-get", "install", "--yes", "--no-install-recommends", "--allow-downgrades", package];
        self.run(&apt).map(drop)
    }

    fn call(&self) -> Result<(), String> {
        let call = ["call", "demo", "echo", "text=hello", "--url", "http://127.0.0.1:7331"];
        let answer = self.run(&[&["gripfast"][..], &call].concat())?;
        expect("the answer of the service", answer.trim() == "hello", &answer)
    }

    /// The main process of the service.
    fn main_process(&self) -> Result<String, String> {
        self.run(&["systemctl", "is-active", "gripfast.service", "gripfast.socket"])?;
        let shown = self.run(&["systemctl", "show", "--property=MainPID", "--value", "gripfast.service"])?;
        Ok(shown.trim().to_owned())
    }

    /// The package starts the service; an upgrade under load fails no call; the service is back after its death; a purge
    /// ends it.
    fn check_service(&self) -> Result<(), String> {
        self.install(OLD)?;
        let first = self.main_process()?;
        self.call()?;
        self.call_during(|| self.install(NEW))?;
        let second = self.main_process()?;
        expect("the upgrade", second != first, "the service was not restarted")?;
        self.run(&["systemctl", "kill", "--signal=KILL", "--kill-whom=main", "gripfast.service"])?;
        wait_for("the restart", || self.main_process().ok().filter(|now| *now != second && now != "0"))?;
        self.call()?;
        self.run(&["gripfast", "service", "status"])?;
        self.run(&["apt-get", "purge", "--yes", "gripfast"])?;
        let units = self.run(&["systemctl", "list-units", "--all", "--plain", "--no-legend", "gripfast*"])?;
        expect("the end of the service", units.trim().is_empty(), &units)
    }

    /// Calls without a pause while `work` runs. All calls must succeed.
    fn call_during<T>(&self, work: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let caller = || {
                while !over.load(Ordering::Relaxed) {
                    self.call()?;
                }
                self.call()
            };
            let callers = [(); CALLERS].map(|()| scope.spawn(caller));
            let done = work();
            over.store(true, Ordering::Relaxed);
            for caller in callers {
                caller.join().map_err(|_| "a caller panicked")??;
            }
            done
        })
    }
}

impl Drop for LiveSystem {
    fn drop(&mut self) {
        // The end of its first process ends all others.
        if !self.init.is_empty() {
            let _ = output(Command::new("kill").args(["-s", "KILL", &self.init]));
        }
        let _ = self.nspawn.kill();
        let _ = self.nspawn.wait();
    }
}

/// Asks until there is an answer.
fn wait_for<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> Result<T, String> {
    let end = Instant::now() + PATIENCE;
    loop {
        if let Some(answer) = ask() {
            return Ok(answer);
        }
        if Instant::now() > end {
            return Err(format!("{what} takes longer than {} s", PATIENCE.as_secs()));
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}
