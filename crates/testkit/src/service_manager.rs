//! Programs of a service manager that tests use without running one as the first process.
//!
//! `cargo xtask test` installs them with Debian's package manager if it has the permission.

use std::fmt;

use crate::peers::{is_in_path, is_usable};

/// A service manager.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServiceManager {
    /// `systemd-socket-activate` and `systemd-analyze` of systemd.
    Systemd,
}

const PROGRAMS: [&str; 2] = ["systemd-socket-activate", "systemd-analyze"];

impl ServiceManager {
    /// True if its programs are installed; a test returns early on `false`.
    ///
    /// # Panics
    ///
    /// If they are not installed and were not left out on purpose (`cargo xtask test --allow-missing`).
    #[must_use]
    pub fn require(self) -> bool {
        let missing = || {
            let missing = PROGRAMS.into_iter().find(|program| !is_in_path(program))?;
            Some(format!("there is no `{missing}` in PATH"))
        };
        is_usable("systemd", &self, missing)
    }
}

impl fmt::Display for ServiceManager {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("systemd")
    }
}
