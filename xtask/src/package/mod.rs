//! `cargo xtask package`: builds wheel, npm packages, Debian package and tarball from one binary into
//! `target/packages`, each with an SBOM. With `--check`, it builds them from the plain release binary, installs each in
//! an empty place, uses it and removes it.

mod check;
mod clean_system;
mod container;
mod deb;
mod live_system;
mod npm;
mod profile;
mod sbom;
mod tarball;
mod wheel;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::workspace::Workspace;
use sbom::Sbom;

/// Goal for the size of the packaged binary.
const MAX_BINARY: u64 = 20 << 20;
/// Target of the packaged binary.
const TARGET: &str = "x86_64-unknown-linux-gnu";

/// The packages, and the parts of the command that this machine cannot do.
pub(crate) struct Packages {
    wheel: PathBuf,
    /// The platform's package and the launcher.
    npm: [PathBuf; 2],
    deb: Option<PathBuf>,
    tarball: PathBuf,
    pub(crate) left_out: Vec<String>,
}

impl Packages {
    pub(crate) fn files(&self) -> Vec<&PathBuf> {
        let others = self.npm.iter().chain(&self.deb).chain([&self.tarball]);
        std::iter::once(&self.wheel).chain(others).collect()
    }
}

/// Directories and values that all packages share.
struct Parts<'a> {
    workspace: &'a Workspace,
    /// Files of the repository for packages.
    sources: PathBuf,
    /// Directory of the finished packages.
    out: PathBuf,
    /// Directory for files that go into a package.
    staging: PathBuf,
    version: String,
    binary: PathBuf,
    build: Build,
}

/// The build that the packages are made from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Build {
    /// Optimized by a profile, linked by zig for glibc 2.17, stripped.
    Portable,
    /// The plain release build, for this machine.
    Plain,
}

/// Builds the packages and returns a summary.
pub(crate) fn run(workspace: &Workspace) -> Result<String, String> {
    let packages = build(workspace, Build::Portable, &workspace.target.join("packages"))?;
    Ok(summary(workspace, &packages, "built"))
}

/// Builds the packages from the plain release binary, and installs, uses and removes each.
pub(crate) fn check(workspace: &Workspace) -> Result<Packages, String> {
    let place = place_of_check(workspace);
    let mut packages = build(workspace, Build::Plain, &place.join("packages"))?;
    check::all(workspace, &mut packages, &place)?;
    Ok(packages)
}

/// Downloads what the check needs, while the compiler uses the processors. The check repeats what fails here, and reports
/// it.
pub(crate) fn prepare(workspace: &Workspace) {
    let _ = wheel::tools(workspace);
    let _ = clean_system::base(&place_of_check(workspace));
}

fn place_of_check(workspace: &Workspace) -> PathBuf {
    workspace.target.join("package-check")
}

/// A tool that the check would install on this machine.
pub(crate) fn missing_tool(workspace: &Workspace) -> Option<&'static str> {
    if !wheel::has_tools(workspace) {
        return Some("maturin");
    }
    ["debootstrap", "buildah", "systemd-nspawn"].into_iter().find(|tool| !runs(tool, "--version"))
}

/// One line for each package, and for each part that was left out.
pub(crate) fn summary(workspace: &Workspace, packages: &Packages, done: &str) -> String {
    let files = packages.files();
    let mut text = format!("{} packages {done}", files.len());
    for file in files {
        let size = fs::metadata(file).map_or(0, |found| found.len());
        text += &format!("\n  {} ({:.1} MB)", workspace.display(file), size as f64 / 1e6);
    }
    for part in &packages.left_out {
        text += &format!("\nleft out: {part}");
    }
    text
}

fn build(workspace: &Workspace, build: Build, out: &Path) -> Result<Packages, String> {
    if std::env::consts::OS != "linux" || std::env::consts::ARCH != "x86_64" {
        return Err("packages are built on Linux on x86_64 only".to_owned());
    }
    let sbom = Sbom::read(workspace)?;
    empty(out)?;
    let staging = workspace.target.join("package-staging");
    empty(&staging)?;
    let sources = workspace.root.join("packages");
    let wheel = wheel::build(workspace, build, &sources, out)?;
    let binary = match build {
        Build::Portable => workspace.target.join(TARGET).join("dist/gripfast"),
        Build::Plain => workspace.target.join("release/gripfast"),
    };
    let version = sbom.version().to_owned();
    let parts = Parts { workspace, sources, out: out.to_owned(), staging, version, binary, build };
    let size = fs::metadata(&parts.binary).map_err(|error| cannot("read", &parts.binary, &error))?.len();
    println!("binary: {:.1} MB", size as f64 / 1e6);
    let mut left_out = Vec::new();
    if build == Build::Portable && size > MAX_BINARY {
        println!("the binary is above the goal of {} MB", MAX_BINARY >> 20);
    }
    let deb = if runs("dpkg-deb", "--version") {
        Some(deb::build(&parts)?)
    } else {
        left_out.push("the Debian package: this machine has no `dpkg-deb`".to_owned());
        None
    };
    let (npm, tarball) = (npm::build(&parts)?, tarball::build(&parts)?);
    let packages = Packages { wheel, npm, deb, tarball, left_out };
    packages.files().into_iter().try_for_each(|file| sbom.write_beside(file))?;
    Ok(packages)
}

impl Parts<'_> {
    /// An empty directory for the content of a package.
    fn staged(&self, name: &str) -> Result<PathBuf, String> {
        let directory = self.staging.join(name);
        empty(&directory)?;
        Ok(directory)
    }

    /// Puts binary, man pages, completions, licences and changelog below `root`, in the directories of a Unix prefix.
    fn stage_prefix(&self, root: &Path) -> Result<(), String> {
        install(&self.binary, &root.join("bin/gripfast"), 0o755)?;
        output(Command::new(&self.binary).arg("man").arg(root.join("share/man/man1")))?;
        for (shell, path) in [
            ("bash", "bash-completion/completions/gripfast"),
            ("zsh", "zsh/vendor-completions/_gripfast"),
            ("fish", "fish/vendor_completions.d/gripfast.fish"),
        ] {
            let script = output(Command::new(&self.binary).args(["completions", shell]))?;
            write(&root.join("share").join(path), &script)?;
        }
        let doc = root.join("share/doc/gripfast");
        for file in ["LICENSE-MIT", "LICENSE-APACHE", "README.md", "CHANGELOG.md"] {
            install(&self.workspace.root.join(file), &doc.join(file), 0o644)?;
        }
        install(&self.sources.join("gripfast.toml"), &doc.join("examples/gripfast.toml"), 0o644)
    }

    /// A template of the repository with its `@NAME@` replaced.
    fn template(&self, path: &str, values: &[(&str, &str)]) -> Result<String, String> {
        let mut text = crate::workspace::read(&self.sources.join(path))?;
        for (name, value) in values {
            text = text.replace(&format!("@{name}@"), value);
        }
        Ok(text)
    }
}

/// Runs a command and returns its stdout. An error has the whole output.
fn output(command: &mut Command) -> Result<String, String> {
    let shown = format!("{command:?}");
    let output =
        command.stdin(Stdio::null()).output().map_err(|error| format!("cannot run {shown}: {error}"))?;
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() {
        return Ok(stdout);
    }
    Err(format!("{shown} failed ({}):\n{stdout}{}", output.status, String::from_utf8_lossy(&output.stderr)))
}

/// Runs a command whose output goes to the terminal.
fn run_shown(command: &mut Command) -> Result<(), String> {
    let status = command.status().map_err(|error| format!("cannot run {command:?}: {error}"))?;
    if status.success() { Ok(()) } else { Err(format!("{command:?} failed ({status}); its output is above")) }
}

/// Tests if a program is on this machine.
fn runs(program: &str, argument: &str) -> bool {
    output(Command::new(program).arg(argument)).is_ok()
}

fn empty(directory: &Path) -> Result<(), String> {
    match fs::remove_dir_all(directory) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
        _ => fs::create_dir_all(directory),
    }
    .map_err(|error| cannot("empty", directory, &error))
}

/// Copies a file with this mode, and creates its directory.
fn install(from: &Path, to: &Path, mode: u32) -> Result<(), String> {
    let copied = fs::create_dir_all(to.parent().unwrap_or(to)).and_then(|()| fs::copy(from, to));
    let copied = copied.and_then(|_| fs::set_permissions(to, fs::Permissions::from_mode(mode)));
    copied.map_err(|error| cannot("copy", from, &error))
}

/// Writes a file that everyone can read, and creates its directory.
fn write(path: &Path, text: &str) -> Result<(), String> {
    let written = fs::create_dir_all(path.parent().unwrap_or(path)).and_then(|()| fs::write(path, text));
    let written = written.and_then(|()| fs::set_permissions(path, fs::Permissions::from_mode(0o644)));
    written.map_err(|error| cannot("write", path, &error))
}

fn cannot(what: &str, path: &Path, error: &std::io::Error) -> String {
    format!("cannot {what} {}: {error}", path.display())
}
