//! Installs each package in an empty place, uses it through the command that it installs, and removes it.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use super::clean_system::CleanSystem;
use super::{Packages, container, empty, live_system, output, wheel, write};
use crate::workspace::Workspace;

/// An installed gripfast.
pub(super) struct InstalledPackage<'a> {
    pub(super) workspace: &'a Workspace,
    /// The package, for messages.
    pub(super) name: &'static str,
    /// Words that start gripfast from this machine.
    pub(super) words: Vec<String>,
    /// Its path, as seen by itself.
    pub(super) program: String,
    /// An empty directory, from this machine and as seen by gripfast.
    pub(super) scratch: (PathBuf, String),
}

pub(super) fn all(workspace: &Workspace, packages: &mut Packages, place: &Path) -> Result<(), String> {
    if !python_client(workspace).exists() {
        let why = "the SDK client is not installed; `cargo xtask test` installs it";
        packages.left_out.push(format!("`gripfast stdio` with an SDK client: {why}"));
    }
    check_wheel(workspace, &packages.wheel, &fresh(place, "wheel")?)?;
    check_npm(workspace, &packages.npm, &fresh(place, "npm")?)?;
    check_tarball(workspace, &packages.tarball, &fresh(place, "tarball")?)?;
    // The build has named a missing Debian package.
    let Some(deb) = &packages.deb else { return Ok(()) };
    match CleanSystem::create(place) {
        Ok(system) => {
            system.check(workspace, deb)?;
            packages.left_out.extend(live_system::check(&system.path)?);
            packages.left_out.extend(container::check(workspace, &system.base, place)?);
        }
        Err(why) => packages.left_out.push(format!("installation of the Debian package: {why}")),
    }
    Ok(())
}

fn check_wheel(workspace: &Workspace, wheel: &Path, place: &Path) -> Result<(), String> {
    let venv = place.join("venv");
    output(Command::new("python3").args(["-m", "venv"]).arg(&venv))?;
    let pip = |words: &[&str]| {
        let mut pip = Command::new(venv.join("bin/pip"));
        pip.args(["--quiet", "--disable-pip-version-check"]);
        pip.args(words);
        pip
    };
    output(pip(&["install", "--no-index"]).arg(wheel))?;
    let program = venv.join("bin/gripfast");
    InstalledPackage::at("wheel", workspace, &program, place)?.use_all()?;
    output(&mut pip(&["uninstall", "--yes", "gripfast"]))?;
    gone(&program)?;
    let mut uvx = Command::new(wheel::tools(workspace)?.join("uvx"));
    uvx.args(["--offline", "--from"]).arg(wheel).args(["gripfast", "--version"]);
    let version =
        output(uvx.env("UV_CACHE_DIR", place.join("uv")).env("UV_TOOL_DIR", place.join("uv-tools")))?;
    expect("uvx", version.starts_with("gripfast "), &version)
}

fn check_npm(workspace: &Workspace, packages: &[PathBuf; 2], place: &Path) -> Result<(), String> {
    let npm = |words: &[&str]| {
        let mut npm = Command::new("npm");
        npm.args(["--offline", "--ignore-scripts", "--no-audit", "--no-fund", "--prefix"]).arg(place);
        npm.args(words).current_dir(place).env("npm_config_cache", place.join("cache"));
        npm
    };
    write(&place.join("package.json"), "{}")?;
    // Without the registry, the platform's package has to be named too.
    output(npm(&["install"]).args(packages))?;
    let program = place.join("node_modules/.bin/gripfast");
    let installed = InstalledPackage::at("npm", workspace, &program, place)?;
    installed.use_all()?;
    installed.send_signals()?;
    let mut npx = Command::new("npx");
    let version = output(npx.args(["--no", "--offline", "gripfast", "--version"]).current_dir(place))?;
    expect("npx", version.starts_with("gripfast "), &version)?;
    output(&mut npm(&["uninstall", "gripfast", "@gripfast/linux-x64"]))?;
    gone(&program)
}

fn check_tarball(workspace: &Workspace, tarball: &Path, place: &Path) -> Result<(), String> {
    let sums = tarball.with_added_extension("sha256");
    output(
        Command::new("sha256sum").arg("--check").arg(&sums).current_dir(tarball.parent().unwrap_or(place)),
    )?;
    output(Command::new("tar").args(["--strip-components=1", "-xzf"]).arg(tarball).current_dir(place))?;
    InstalledPackage::at("tarball", workspace, &place.join("bin/gripfast"), place)?.use_all()
}

impl<'a> InstalledPackage<'a> {
    fn at(
        name: &'static str,
        workspace: &'a Workspace,
        program: &Path,
        place: &Path,
    ) -> Result<Self, String> {
        let program = program.display().to_string();
        let scratch = fresh(place, "scratch")?;
        let seen = scratch.display().to_string();
        Ok(Self { workspace, name, words: vec![program.clone()], program, scratch: (scratch, seen) })
    }

    pub(super) fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(&self.words[0]);
        command.args(&self.words[1..]).args(words);
        command.env("HOME", &self.scratch.1).env_remove("GRIPFAST_CONFIG").env_remove("GRIPFAST_URL");
        // The launcher treats Ctrl-C differently at a terminal.
        command.stdin(Stdio::null()).stderr(Stdio::null());
        command
    }

    /// Version, `check`, an exit code, `serve --demo` with a call, and `stdio` with an SDK client.
    pub(super) fn use_all(&self) -> Result<(), String> {
        println!("using the {}", self.name);
        let version = output(&mut self.command(&["--version"]))?;
        expect(self.name, version.starts_with("gripfast "), &version)?;
        let config = format!("[servers.demo]\ncommand = {:?}\nargs = [\"demo-server\"]\n", self.program);
        write(&self.scratch.0.join("gripfast.toml"), &config)?;
        let config = format!("{}/gripfast.toml", self.scratch.1);
        output(&mut self.command(&["check", &config]))?;
        let missing = self.command(&["check", "/no/such/file"]).stderr(Stdio::null()).status();
        let missing = missing.map_err(|error| error.to_string())?;
        expect("the exit code of `check` without a file", missing.code() == Some(2), &missing.to_string())?;
        self.serve_demo()?;
        self.serve_stdio(&config)
    }

    fn serve_demo(&self) -> Result<(), String> {
        let (mut demo, url) = self.start_demo()?;
        self.call_demo(&url)?;
        // A server crashes after some seconds, and is back.
        demo.line("crashing: lost")?;
        demo.end("TERM")
    }

    /// Starts `serve --demo`. Returns it with its base URL.
    fn start_demo(&self) -> Result<(Running, String), String> {
        let state = format!("{}/state", self.scratch.1);
        let mut command =
            self.command(&["serve", "--demo", "--listen", "127.0.0.1:0", "--state-dir", &state]);
        let mut demo = Running::start(&mut command)?;
        let line = demo.line("serves MCP at ")?;
        let url = line.split_whitespace().find_map(|word| word.strip_suffix("/mcp")).unwrap_or_default();
        Ok((demo, url.to_owned()))
    }

    fn call_demo(&self, url: &str) -> Result<(), String> {
        let state = format!("{}/state", self.scratch.1);
        let words = ["call", "steady", "echo", "text=hello", "--url", url, "--state-dir", &state];
        let answer = output(&mut self.command(&words))?;
        expect("the answer of a call", answer.trim() == "hello", &answer)
    }

    /// The launcher passes signals to the binary, and ends by the signal that ended the binary.
    fn send_signals(&self) -> Result<(), String> {
        let (demo, url) = self.start_demo()?;
        // A reload, after which it still serves.
        demo.signal("HUP")?;
        self.call_demo(&url)?;
        demo.end("INT")?;
        let (mut demo, _) = self.start_demo()?;
        let launcher = demo.child.id().to_string();
        output(Command::new("pkill").args(["-KILL", "--parent", &launcher]))?;
        let ended = demo.child.wait().map_err(|error| error.to_string())?;
        expect("the end after the binary was killed", ended.signal() == Some(9), &ended.to_string())
    }

    fn serve_stdio(&self, config: &str) -> Result<(), String> {
        let python = python_client(self.workspace);
        if !python.exists() {
            return Ok(());
        }
        let mut client = Command::new(python);
        client.arg(self.workspace.root.join("crates/testkit/peers/client_v1.py")).args(["legacy", "stdio"]);
        client.args(&self.words).args(["stdio", "--config", config, "--state-dir"]).arg(&self.scratch.1);
        let mut client = Running::start(client.stdin(Stdio::piped()))?;
        let ask = "{\"do\":\"call\",\"tool\":\"demo__echo\",\"arguments\":{\"text\":\"hello\"}}\n";
        let stdin = client.child.stdin.take();
        stdin
            .map(|mut stdin| stdin.write_all(ask.as_bytes()))
            .transpose()
            .map_err(|error| error.to_string())?;
        let answer = client.line("")?;
        expect("the answer to the SDK client", answer.contains("\"hello\""), &answer)
    }
}

/// A process that is killed on drop.
struct Running {
    child: Child,
    shown: String,
    lines: std::io::Lines<BufReader<std::process::ChildStdout>>,
}

impl Running {
    fn start(command: &mut Command) -> Result<Self, String> {
        let shown = format!("{command:?}");
        let mut child =
            command.stdout(Stdio::piped()).spawn().map_err(|error| format!("cannot run {shown}: {error}"))?;
        let stdout = child.stdout.take().ok_or("no stdout")?;
        Ok(Self { child, shown, lines: BufReader::new(stdout).lines() })
    }

    /// Reads up to a line with this text.
    fn line(&mut self, wanted: &str) -> Result<String, String> {
        let found = self.lines.by_ref().map_while(Result::ok).find(|line| line.contains(wanted));
        found.ok_or_else(|| format!("{} ended without the line `{wanted}`", self.shown))
    }

    fn signal(&self, signal: &str) -> Result<(), String> {
        output(Command::new("kill").args(["-s", signal]).arg(self.child.id().to_string())).map(drop)
    }

    /// Stops it with a signal, and expects the exit code 0.
    fn end(mut self, signal: &str) -> Result<(), String> {
        self.signal(signal)?;
        let ended = self.child.wait().map_err(|error| error.to_string())?;
        expect(&format!("the exit code after SIG{signal}"), ended.success(), &ended.to_string())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn python_client(workspace: &Workspace) -> PathBuf {
    workspace.target.join("peers/py1/bin/python")
}

pub(super) fn fresh(place: &Path, name: &str) -> Result<PathBuf, String> {
    let directory = place.join(name);
    empty(&directory)?;
    Ok(directory)
}

pub(super) fn expect(what: &str, is_right: bool, found: &str) -> Result<(), String> {
    if is_right { Ok(()) } else { Err(format!("{what} is wrong: {found}")) }
}

fn gone(path: &Path) -> Result<(), String> {
    expect("the removal", !path.exists(), &format!("{} is still there", path.display()))
}
