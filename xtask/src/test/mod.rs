//! `cargo xtask test`: sets up what is needed, runs everything, and says once at the end how it went.
//!
//! Every step runs even if an earlier one failed, unless it needs that one: a person wants to know all that is wrong.

mod peers;
mod report;
pub(crate) mod tools;

use std::io::{BufRead, BufReader, IsTerminal, Write};
use std::process::{Command, Stdio};
use std::thread;

use crate::workspace::Workspace;
use crate::{behaviours, counts, layers};
use report::{Outcome, Report, Verdict};

pub(crate) struct Options {
    missing: Missing,
    /// For nextest. With a filter only those tests run, and what they need.
    filter: Vec<String>,
}

/// What to do about peers and tools that cannot be installed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Missing {
    Fails,
    LeftOut,
}

impl Options {
    pub(crate) fn parse(args: &[String]) -> Result<Self, String> {
        let mut options = Self { missing: Missing::Fails, filter: Vec::new() };
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            match arg.as_str() {
                "--allow-missing" => options.missing = Missing::LeftOut,
                "--" => options.filter.extend(args.by_ref().cloned()),
                other => {
                    return Err(crate::usage(&format!(
                        "test does not know `{other}`; a filter comes after `--`"
                    )));
                }
            }
        }
        Ok(options)
    }
}

pub(crate) fn run(workspace: &Workspace, options: &Options) -> Result<(), String> {
    // The peers come over the network while the compiler keeps the processors busy.
    let report = thread::scope(|scope| {
        let peers = scope.spawn(|| peers::install(workspace));
        let mut run = Run { workspace, options, report: Report::default() };
        let nextest = run.step("cargo-nextest", || tools::nextest(workspace).map(Outcome::Ok));
        if options.filter.is_empty() {
            run.checks();
        }
        let built = run.cargo("build", &["build", "--workspace", "--bins", "--tests", "--examples"]);
        let peers = peers.join().unwrap_or_else(|_| peers::Installed::nothing());
        run.step("peers", || peers.outcome(workspace, options.missing));
        if built == Verdict::Passed && nextest == Verdict::Passed {
            run.step("tests", || run_nextest(workspace, options, &peers));
        } else {
            run.step("tests", || Err("not run: what they need is missing, see above".to_owned()));
        }
        if options.filter.is_empty() && built == Verdict::Passed {
            run.cargo("doctests", &["test", "--workspace", "--doc"]);
            run.counts();
        }
        run.report
    });
    report.print(!options.filter.is_empty());
    if report.failed() { Err("cargo xtask test: failed".to_owned()) } else { Ok(()) }
}

struct Run<'a> {
    workspace: &'a Workspace,
    options: &'a Options,
    report: Report,
}

impl Run<'_> {
    /// What is true of the sources, before any test runs; the quick ones first.
    fn checks(&mut self) {
        let workspace = self.workspace;
        self.cargo("format", &["fmt", "--all", "--check"]);
        self.step("layers", || layers::check(workspace).map(Outcome::Ok));
        self.step("behaviours", || behaviours::run(workspace, behaviours::Mode::Check).map(Outcome::Ok));
        self.deny();
        self.cargo("clippy", &["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"]);
        let bare = ["clippy", "--workspace", "--lib", "--no-default-features", "--", "-D", "warnings"];
        self.cargo("clippy without features", &bare);
        self.step("documentation", || {
            let mut command = workspace.cargo(&["doc", "--workspace", "--no-deps"]);
            succeed(command.env("RUSTDOCFLAGS", "-D warnings"))
        });
    }

    /// Licences, bans and sources of all that we depend on.
    fn deny(&mut self) {
        let (workspace, missing) = (self.workspace, self.options.missing);
        let mut tool = None;
        self.step("cargo-deny", || match tools::cargo_deny(workspace) {
            Ok(path) => {
                tool = Some(path);
                Ok(Outcome::Ok(String::new()))
            }
            Err(why) if missing == Missing::LeftOut => Ok(Outcome::LeftOut(why)),
            Err(why) => Err(why),
        });
        let Some(tool) = tool else {
            return;
        };
        let mut command = Command::new(tool);
        // Only errors: the duplicated versions that are warned of would drown them.
        command.args(["--log-level", "error", "check", "bans", "licenses", "sources"]);
        command.current_dir(&workspace.root).stdin(Stdio::null());
        self.step("dependencies", || succeed(&mut command));
    }

    /// What the pure parts of a call take.
    fn counts(&mut self) {
        let (workspace, missing) = (self.workspace, self.options.missing);
        self.step("instructions", || match tools::valgrind() {
            Ok(()) => counts::run(workspace, counts::Mode::Check)
                .map(|_| Outcome::Ok("no part of a call takes more than it did".to_owned())),
            Err(why) if missing == Missing::LeftOut => Ok(Outcome::LeftOut(why)),
            Err(why) => Err(why),
        });
    }

    fn cargo(&mut self, name: &'static str, args: &[&str]) -> Verdict {
        let mut command = self.workspace.cargo(args);
        self.step(name, || succeed(&mut command))
    }

    fn step(&mut self, name: &'static str, work: impl FnOnce() -> Result<Outcome, String>) -> Verdict {
        self.report.step(name, work)
    }
}

/// Runs it with our own output, and takes its exit for the outcome.
fn succeed(command: &mut Command) -> Result<Outcome, String> {
    let status = command.status().map_err(|error| format!("cannot start {command:?}: {error}"))?;
    if status.success() {
        Ok(Outcome::Ok(String::new()))
    } else {
        Err(format!("{status}; its output is above"))
    }
}

fn run_nextest(
    workspace: &Workspace,
    options: &Options,
    peers: &peers::Installed,
) -> Result<Outcome, String> {
    let mut command = workspace.cargo(&["nextest", "run", "--workspace", "--no-fail-fast"]);
    command.args(&options.filter).stderr(Stdio::piped());
    if std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none() {
        command.env("CARGO_TERM_COLOR", "always");
    }
    if options.missing == Missing::LeftOut && !peers.missing().is_empty() {
        command.env("GRIPFAST_MISSING_PEERS", peers.missing().join(","));
    }
    let mut child = command.spawn().map_err(|error| format!("cannot start nextest: {error}"))?;
    let summary = child.stderr.take().map(pass_through).unwrap_or_default();
    let status = child.wait().map_err(|error| format!("lost nextest: {error}"))?;
    if status.success() { Ok(Outcome::Ok(summary)) } else { Err(format!("{summary} ({status})")) }
}

/// Repeats nextest's output as it comes and remembers its summary line.
fn pass_through(stderr: impl std::io::Read) -> String {
    let mut reader = BufReader::new(stderr);
    let mut out = std::io::stderr();
    let mut line = Vec::new();
    let mut summary = String::new();
    // Our own stderr being gone is no reason to stop the tests.
    while reader.read_until(b'\n', &mut line).is_ok_and(|read| read > 0) {
        let _ = out.write_all(&line);
        let text = plain(&String::from_utf8_lossy(&line));
        if let Some((_, counts)) = text.split_once("Summary [").and_then(|(_, rest)| rest.split_once(']')) {
            summary = counts.trim().to_owned();
        }
        line.clear();
    }
    summary
}

/// Without terminal colours: `ESC [ … letter`.
fn plain(text: &str) -> String {
    let mut pieces = text.split("\u{1b}[");
    let mut plain = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        let coloured =
            piece.find(|char: char| char.is_ascii_alphabetic()).map_or("", |end| &piece[end + 1..]);
        plain.push_str(coloured);
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(args: &[&str]) -> Result<Options, String> {
        Options::parse(&args.iter().map(|arg| (*arg).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn a_filter_is_everything_after_the_dashes() {
        let options = parse(&["--allow-missing", "--", "-E", "test(--allow-missing)"]).unwrap();
        assert_eq!(options.missing, Missing::LeftOut);
        assert_eq!(options.filter, ["-E", "test(--allow-missing)"]);
    }

    #[test]
    fn an_unknown_argument_is_refused_with_the_way_out() {
        let error = parse(&["circuit"]).err().unwrap();
        assert_eq!(
            error,
            "test does not know `circuit`; a filter comes after `--`\nhint: `cargo xtask` lists the commands"
        );
    }

    #[test]
    fn the_summary_of_nextest_is_found_in_colour_too() {
        let output = "    Finished\n\u{1b}[32;1m     Summary\u{1b}[0m [   1.2s] \u{1b}[1m7\u{1b}[0m tests run: 7 passed, 0 skipped\n";
        assert_eq!(pass_through(output.as_bytes()), "7 tests run: 7 passed, 0 skipped");
    }
}
