//! Temporary directory with a config, in which the binary runs with only PATH of the outer environment.

use crate::in_process_gateway::STATE;
use gripfast_gateway::trust_list::TrustList;
use std::fmt;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use tempfile::TempDir;

pub(crate) const GRIPFAST: &str = env!("CARGO_BIN_EXE_gripfast");

/// Argument that makes `tools` and `call` connect to servers without a gateway.
pub(crate) const WITHOUT_GATEWAY: &str = "--config=gripfast.toml";

/// Timeout of a run of the binary.
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(60);

/// Directory of one test.
pub(crate) struct Sandbox {
    dir: TempDir,
    /// If true, `gripfast.toml` is trusted before each run. For tests that are not about trust.
    trusts: bool,
}

/// Exit code and output of a run. `Display` leaves out values that differ between runs.
pub(crate) struct CommandOutput {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    dir: PathBuf,
}

impl Sandbox {
    /// Creates a sandbox without a config.
    pub(crate) fn empty() -> Self {
        let dir = TempDir::new().unwrap();
        std::fs::create_dir(dir.path().join("home")).unwrap();
        Self { dir, trusts: true }
    }

    /// Makes a sandbox in which `gripfast.toml` is not trusted automatically.
    pub(crate) fn wary(self) -> Self {
        Self { trusts: false, ..self }
    }

    /// Trusts the current content of `gripfast.toml`.
    pub(crate) fn trust(&self) {
        let file = self.path("gripfast.toml");
        if let Ok(content) = std::fs::read(&file) {
            TrustList::in_directory(self.path(STATE)).trust(&file, &content).unwrap();
        }
    }

    /// Creates a sandbox with this `gripfast.toml`.
    pub(crate) fn with(config: &str) -> Self {
        Self::empty().file("gripfast.toml", config)
    }

    /// Creates a sandbox with the server `demo`, the demo server on stdio.
    pub(crate) fn with_demo(flags: &[&str]) -> Self {
        Self::with(&stdio("demo", flags))
    }

    pub(crate) fn file(self, name: &str, text: &str) -> Self {
        std::fs::write(self.path(name), text).unwrap();
        self
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn command(&self, words: &[&str]) -> Command {
        if self.trusts {
            self.trust();
        }
        let mut command = Command::new(GRIPFAST);
        command.args(words).current_dir(self.dir.path()).env_clear().env("HOME", self.path("home"));
        // A gateway that runs on this machine must not be used.
        command.env("GRIPFAST_URL", "http://127.0.0.1:1");
        if let Some(path) = std::env::var_os("PATH") {
            command.env("PATH", path);
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    pub(crate) fn run(&self, words: &[&str]) -> CommandOutput {
        self.finish(&mut self.command(words))
    }

    pub(crate) fn run_with(&self, words: &[&str], variables: &[(&str, &str)]) -> CommandOutput {
        self.finish(self.command(words).envs(variables.iter().copied()))
    }

    /// Runs a command to its end. After the timeout it is killed and has no exit code.
    pub(crate) fn finish(&self, command: &mut Command) -> CommandOutput {
        let child = command.spawn().unwrap();
        let (ended, end) = std::sync::mpsc::channel::<()>();
        #[cfg(unix)]
        let process = rustix::process::Pid::from_child(&child);
        let watch = std::thread::spawn(move || {
            if end.recv_timeout(PATIENCE) == Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
                #[cfg(unix)]
                let _ = rustix::process::kill_process(process, rustix::process::Signal::KILL);
            }
        });
        let output = child.wait_with_output().unwrap();
        drop(ended);
        watch.join().unwrap();
        self.ran(output)
    }

    pub(crate) fn run_on_stdin(&self, words: &[&str], stdin: &str) -> CommandOutput {
        let mut child = self.command(words).stdin(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(stdin.as_bytes()).unwrap();
        self.ran(child.wait_with_output().unwrap())
    }

    pub(crate) fn ran(&self, output: Output) -> CommandOutput {
        CommandOutput {
            code: output.status.code(),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
            dir: self.dir.path().to_owned(),
        }
    }

    /// Starts the demo server on HTTP.
    pub(crate) fn serve_http(&self, flags: &[&str]) -> HttpServer {
        let words = [&["demo-server", "--http", "127.0.0.1:0"], flags].concat();
        let mut child = self.command(&words).spawn().unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let mut url = String::new();
        stdout.read_line(&mut url).unwrap();
        HttpServer { child, url: url.trim_end().to_owned(), stdout }
    }
}

impl fmt::Display for CommandOutput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.code {
            Some(code) => writeln!(f, "exit {code}")?,
            None => writeln!(f, "killed")?,
        }
        for (name, text) in [("stdout", &self.stdout), ("stderr", &self.stderr)] {
            if !text.is_empty() {
                write!(f, "--- {name}\n{}", steady(text, &self.dir))?;
            }
        }
        Ok(())
    }
}

/// Text without the paths, ports and times of this run.
fn steady(text: &str, dir: &Path) -> String {
    let text = text.replace(&dir.display().to_string(), "[DIR]").replace(GRIPFAST, "[GRIPFAST]");
    let text = without_number(&text, "127.0.0.1:", "[PORT]");
    let text = without_number(&text, "https://0.0.0.0:", "[PORT]");
    without_number(&text, r#""retry_after_ms":"#, "[MS]")
}

/// Replaces each number after `label` by `name`.
fn without_number(text: &str, label: &str, name: &str) -> String {
    let mut pieces = text.split(label);
    let mut steady = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        let rest = piece.trim_start_matches(|letter: char| letter.is_ascii_digit());
        let shown = if rest.len() < piece.len() { name } else { "" };
        steady += &format!("{label}{shown}{rest}");
    }
    steady
}

/// Config table of the demo server on stdio.
pub(crate) fn stdio(name: &str, flags: &[&str]) -> String {
    let args = [&["demo-server"], flags].concat();
    format!("[servers.{name}]\ncommand = {GRIPFAST:?}\nargs = {args:?}\n")
}

/// Config table of a server at a URL.
pub(crate) fn url(name: &str, url: &str) -> String {
    format!("[servers.{name}]\nurl = {url:?}\n")
}

/// URL with a port without a listener: port 1 is reserved, and only root could use it.
pub(crate) const UNUSED_URL: &str = "http://127.0.0.1:1/mcp";

/// Demo server on HTTP; ended on drop.
pub(crate) struct HttpServer {
    child: Child,
    pub(crate) url: String,
    stdout: BufReader<ChildStdout>,
}

impl HttpServer {
    /// Ends the server and returns the rest of its stdout, and its stderr.
    pub(crate) fn end(mut self) -> (String, String) {
        self.child.kill().unwrap();
        let mut texts = (String::new(), String::new());
        self.stdout.read_to_string(&mut texts.0).unwrap();
        self.child.stderr.take().unwrap().read_to_string(&mut texts.1).unwrap();
        texts
    }
}

impl Drop for HttpServer {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
