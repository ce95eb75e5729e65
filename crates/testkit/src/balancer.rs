//! Real load balancers with the configs of `deploy/`, as they are.
//!
//! The configs name fixed addresses of this machine, so only one test at a time may use a balancer. The test group
//! `balancers` in `.config/nextest.toml` sees to it.

use std::fmt;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::peers::{is_in_path, is_usable};
use crate::wait::until_some;
use tempfile::TempDir;

/// A load balancer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Balancer {
    /// HAProxy.
    Haproxy,
    /// nginx.
    Nginx,
}

impl Balancer {
    /// True if the balancer is installed; a test returns early on `false`.
    ///
    /// # Panics
    ///
    /// If it is not installed and was not left out on purpose (`cargo xtask test --allow-missing`).
    #[must_use]
    pub fn require(self) -> bool {
        let program = self.program();
        let missing = || (!is_in_path(program)).then(|| format!("there is no `{program}` in PATH"));
        is_usable(program, &self, missing)
    }

    fn program(self) -> &'static str {
        match self {
            Self::Haproxy => "haproxy",
            Self::Nginx => "nginx",
        }
    }

    /// The address of its listener, as the config names it.
    #[must_use]
    pub fn address(self) -> &'static str {
        match self {
            Self::Haproxy => "127.0.7.10:7330",
            Self::Nginx => "127.0.7.11:7330",
        }
    }
}

impl fmt::Display for Balancer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.program())
    }
}

/// File for what a balancer says.
const LOG: &str = "log";
/// The addresses of the three replicas behind the balancers.
pub const REPLICAS: [&str; 3] = ["127.0.7.1:7331", "127.0.7.2:7331", "127.0.7.3:7331"];

/// A running balancer. Dropping it ends the process.
#[derive(Debug)]
pub struct RunningBalancer {
    child: Child,
    dir: TempDir,
}

impl RunningBalancer {
    /// Starts a balancer with its config in `deploy/`.
    ///
    /// # Panics
    ///
    /// If it does not start.
    #[must_use]
    pub fn start(balancer: Balancer) -> Self {
        let deploy =
            |file: &str| -> PathBuf { Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy").join(file) };
        let dir = tempfile::tempdir().expect("there is room for a directory");
        let mut command = Command::new(balancer.program());
        match balancer {
            Balancer::Haproxy => command.arg("-db").arg("-f").arg(deploy("haproxy.cfg")),
            Balancer::Nginx => command
                .arg("-p")
                .arg(dir.path())
                .arg("-c")
                .arg(deploy("nginx.conf"))
                .args(["-g", "daemon off;"]),
        };
        let errors = File::create(dir.path().join(LOG)).expect("there is room for a file");
        let child = command.stdout(Stdio::null()).stderr(errors).spawn().expect("it is installed");
        until_some("the balancer listens", || std::net::TcpStream::connect(balancer.address()).ok());
        Self { child, dir }
    }
}

impl Drop for RunningBalancer {
    #[expect(clippy::print_stderr, reason = "the log explains a failed test")]
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", std::fs::read_to_string(self.dir.path().join(LOG)).unwrap_or_default());
        }
        // nginx ends its workers only if it is asked. Fails only if it is gone already.
        let _ = Command::new("kill").arg(self.child.id().to_string()).status();
        let _ = self.child.wait();
    }
}
