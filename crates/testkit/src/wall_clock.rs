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
    #[must_use]
    pub fn shifted(self, offset: &str, program: &str) -> Command {
        let mut command = Command::new("faketime");
        command.args(["-f", offset, program]).env("DONT_FAKE_MONOTONIC", "1");
        command
    }
}

impl fmt::Display for WallClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("faketime")
    }
}
