//! A real browser: Debian's Chromium, controlled by Playwright from a script of the test.
//!
//! `cargo xtask test` installs the driver under `target/peers/browser`, and Chromium if it has the permission. A
//! script finds the driver and the accessibility checker under `PEER_MODULES`, and the browser in `PEER_CHROMIUM`.

use std::fmt;
use std::path::{Path, PathBuf};

use crate::peers::{PeerCommand, find_in_path, is_in_path, is_usable, peers_dir};

/// A browser that scripts can control.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Browser {
    /// Chromium from the system.
    Chromium,
}

/// Possible program names.
const PROGRAMS: [&str; 3] = ["chromium", "chromium-browser", "google-chrome"];

impl Browser {
    /// True if the browser is installed; a test returns early on `false`.
    ///
    /// # Panics
    ///
    /// If it is not installed and was not left out on purpose (`cargo xtask test --allow-missing`).
    #[must_use]
    pub fn require(self) -> bool {
        is_usable("chromium", &self, || self.missing())
    }

    /// Command that runs a Node script with the browser.
    ///
    /// # Panics
    ///
    /// If there is no browser.
    #[must_use]
    pub fn script<'a>(self, script: &Path, args: impl IntoIterator<Item = &'a str>) -> PeerCommand {
        let script = script.display().to_string();
        let args = [script].into_iter().chain(args.into_iter().map(str::to_owned)).collect();
        let chromium = program().expect("the test began with `require`");
        let env = vec![
            ("PEER_MODULES".to_owned(), modules().display().to_string()),
            ("PEER_CHROMIUM".to_owned(), chromium.display().to_string()),
        ];
        PeerCommand { program: "node".into(), args, env }
    }

    fn missing(self) -> Option<String> {
        let driver = modules().join("node_modules/playwright-core");
        if !driver.exists() {
            return Some(format!("there is no {}", driver.display()));
        }
        if !is_in_path("node") {
            return Some("there is no `node` in PATH".to_owned());
        }
        program().is_none().then(|| "there is no `chromium` in PATH".to_owned())
    }
}

impl fmt::Display for Browser {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("chromium")
    }
}

fn modules() -> PathBuf {
    peers_dir().join("browser")
}

fn program() -> Option<PathBuf> {
    PROGRAMS.into_iter().find_map(find_in_path)
}
