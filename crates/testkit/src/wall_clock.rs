//! Processes whose wall clock is wrong, by the program `faketime`.
//!
//! `cargo xtask test` installs it with Debian's package manager if it has the permission.

use std::fmt;
use std::process::Command;

use crate::peers::{is_in_path, is_usable};

/// A program that shifts the wall clock of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WallClock {
    /// `faketime` of libfaketime.
    Faketime,
}

impl WallClock {
    /// True if it is installed; a test returns early on `false`.
    ///
    /// # Panics
    ///
    /// If it is not installed and was not left out on purpose (`cargo xtask test --allow-missing`).
    #[must_use]
    pub fn require(self) -> bool {
        let missing = || (!is_in_path("faketime")).then(|| "there is no `faketime` in PATH".to_owned());
        is_usable("faketime", &self, missing)
    }

    /// A command that runs `program` with its wall clock shifted by this offset, such as `+300s`. Clocks that only count
    /// time keep their values.
    ///
    /// # Panics
    ///
    /// If `faketime` does not name its library.
    #[must_use]
    pub fn shifted(self, offset: &str, program: &str) -> Command {
        // With the library alone: `faketime` itself would stay the parent of the program, and a signal to it would leave
        // the program behind.
        let named = Command::new("faketime").args(["-f", offset, "printenv", "LD_PRELOAD"]).output();
        let library = String::from_utf8(named.expect("faketime runs").stdout).expect("a path");
        assert!(library.contains("faketime"), "not a library of faketime: {library}");
        let mut command = Command::new(program);
        command.env("LD_PRELOAD", library.trim()).env("FAKETIME", offset).env("DONT_FAKE_MONOTONIC", "1");
        command
    }
}

impl fmt::Display for WallClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("faketime")
    }
}
