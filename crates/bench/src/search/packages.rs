//! Installation of packages from npm and PyPI, in fixed versions, each in a directory of its own.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use gripfast_measure::{MeasureError, Result};

use crate::servers::{PublicServer, Registry};

/// Later versions of dependencies are not used, so that a later run installs the same.
const BEFORE: &str = "2026-11-18";

/// Installer for PyPI packages.
const UV: &str = "uv==0.13.8";

const FASTMCP: &str = "fastmcp==4.1.2";

const TOKENIZER: &str = "gpt-tokenizer@4.0.0";

/// Installed packages.
#[derive(Debug)]
pub(crate) struct Packages {
    dir: PathBuf,
}

impl Packages {
    /// Prepares the directory and the installer for PyPI.
    pub(crate) fn prepare(dir: &Path) -> Result<Self> {
        std::fs::create_dir_all(dir)?;
        let packages = Self { dir: dir.canonicalize()? };
        let installer = packages.dir.join("installer");
        packages.once(&installer, UV, || {
            quiet(Command::new("python3").args(["-m", "venv"]).arg(&installer))?;
            quiet(Command::new(installer.join("bin/python")).args(["-m", "pip", "install", "--quiet", UV]))
        })?;
        Ok(packages)
    }

    /// Installs a server. Returns its program.
    pub(crate) fn install(&self, server: &PublicServer) -> Result<PathBuf> {
        let dir = self.dir.join("servers").join(server.name);
        match server.registry {
            Registry::Npm => {
                self.install_npm(&dir, &format!("{}@{}", server.package, server.version))?;
                Ok(dir.join("node_modules/.bin").join(server.program))
            }
            Registry::Pypi => {
                let package = format!("{}=={}", server.package, server.version);
                let packages: Vec<&str> = [package.as_str()].into_iter().chain(server.other).collect();
                self.install_python(&dir, &packages)?;
                Ok(dir.join("bin").join(server.program))
            }
        }
    }

    /// Installs FastMCP. Returns the Python that has it.
    pub(crate) fn fastmcp(&self) -> Result<PathBuf> {
        let dir = self.dir.join("fastmcp");
        self.install_python(&dir, &[FASTMCP])?;
        Ok(dir.join("bin/python"))
    }

    /// Installs the tokenizer. Returns its directory.
    pub(crate) fn tokenizer(&self) -> Result<PathBuf> {
        let dir = self.dir.join("tokenizer");
        self.install_npm(&dir, TOKENIZER)?;
        Ok(dir)
    }

    fn install_npm(&self, dir: &Path, package: &str) -> Result<()> {
        self.once(dir, package, || {
            let mut npm = Command::new("npm");
            // Scripts of packages would fetch browsers and the like; a list of tools needs none.
            npm.args(["install", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]);
            npm.args(["--before", BEFORE, "--prefix"]).arg(dir).arg(package);
            quiet(&mut npm)
        })
    }

    fn install_python(&self, dir: &Path, packages: &[&str]) -> Result<()> {
        let uv = self.dir.join("installer/bin/uv");
        self.once(dir, &packages.join(" "), || {
            quiet(Command::new(&uv).args(["venv", "--quiet", "--clear"]).arg(dir))?;
            let mut install = Command::new(&uv);
            install.args(["pip", "install", "--quiet", "--exclude-newer", BEFORE, "--python"]);
            quiet(install.arg(dir.join("bin/python")).args(packages))
        })
    }

    /// Installs unless the same was installed before.
    fn once(&self, dir: &Path, what: &str, install: impl FnOnce() -> Result<()>) -> Result<()> {
        let stamp = dir.join("installed");
        let wanted = format!("{what} {BEFORE}");
        if std::fs::read_to_string(&stamp).is_ok_and(|found| found == wanted) {
            return Ok(());
        }
        std::fs::create_dir_all(dir)?;
        install()?;
        Ok(std::fs::write(&stamp, wanted)?)
    }
}

/// Runs a command without output. An error has the end of its output.
fn quiet(command: &mut Command) -> Result<()> {
    let output = command.stdin(Stdio::null()).output()?;
    if output.status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&output.stderr);
    let end: Vec<&str> = text.lines().rev().take(3).collect();
    let shown = command.get_program().to_string_lossy().into_owned();
    Err(MeasureError::new(&shown, &end.into_iter().rev().collect::<Vec<_>>().join("; ")))
}
