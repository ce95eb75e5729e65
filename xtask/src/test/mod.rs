//! `cargo xtask test`: installs what the tests need, runs all steps, and prints one summary.
//!
//! A step runs even if an earlier one failed, unless it depends on that one, so that one run shows all problems.

mod peers;
mod processes;
mod report;
pub(crate) mod tools;

use std::io::{BufRead, BufReader, IsTerminal, Write};
use std::process::{Command, Stdio};
use std::thread;

#[cfg(unix)]
use crate::package;
use crate::workspace::Workspace;
use crate::{Mode, behaviours, counts, docs, layers, messages, names};
use report::{Outcome, Report, Verdict};

pub(crate) struct Options {
    missing: Missing,
    install: Install,
    /// Arguments for nextest. With a filter, only the matching tests run, and no other check.
    filter: Vec<String>,
}

/// The reaction to peers and tools that cannot be installed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Missing {
    Fails,
    LeftOut,
}

/// Whether missing tools and peers are installed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Install {
    Yes,
    No,
}

impl Options {
    pub(crate) fn parse(args: &[String]) -> Result<Self, String> {
        let mut options = Self { missing: Missing::Fails, install: Install::Yes, filter: Vec::new() };
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            match arg.as_str() {
                "--allow-missing" => options.missing = Missing::LeftOut,
                "--no-install" => options.install = Install::No,
                "--" => options.filter.extend(args.by_ref().cloned()),
                other => {
                    return Err(crate::usage(&format!(
                        "unknown argument `{other}` of test; a filter comes after `--`"
                    )));
                }
            }
        }
        Ok(options)
    }
}

pub(crate) fn run(workspace: &Workspace, options: &Options) -> Result<(), String> {
    // Peers are downloaded while the compiler uses the processors.
    let report = thread::scope(|scope| {
        let peers = scope.spawn(|| {
            let peers = peers::install(workspace, options.install);
            #[cfg(unix)]
            if options.install == Install::Yes && options.filter.is_empty() {
                package::prepare(workspace);
            }
            peers
        });
        let mut run = Run { workspace, options, report: Report::default() };
        let nextest =
            run.step("cargo-nextest", || tools::nextest(workspace, options.install).map(Outcome::Ok));
        if options.filter.is_empty() {
            run.checks();
        }
        let built = run.cargo("build", &["build", "--workspace", "--bins", "--tests", "--examples"]);
        let peers = peers.join().unwrap_or_else(|_| peers::Installed::nothing());
        run.step("peers", || peers.outcome(workspace, options.missing));
        if options.filter.is_empty() && built == Verdict::Passed {
            // Many tests wait, so there is processor time for the build that later steps need.
            scope.spawn(|| counts::build_in_background(workspace));
        }
        if built == Verdict::Passed && nextest == Verdict::Passed {
            run.step("tests", || run_nextest(workspace, options, &peers));
        } else {
            run.step("tests", || Err("not run: the build or nextest failed, see above".to_owned()));
        }
        if options.filter.is_empty() && built == Verdict::Passed {
            run.cargo("doctests", &["test", "--workspace", "--doc"]);
            run.counts();
            run.packages();
        }
        run.report
    });
    report.print(!options.filter.is_empty());
    if report.failed() { Err("cargo xtask test: failed".to_owned()) } else { Ok(()) }
}

/// The tests of `cargo xtask quick`: unit tests and tests with virtual time. They start no process and install nothing.
const QUICK: &str =
    "kind(lib) + kind(bin) + package(gripfast-core) + package(gripfast-wire) + binary(paused)";

/// Runs the checks and tests for use before a commit.
pub(crate) fn quick(workspace: &Workspace) -> Result<(), String> {
    let options = Options { missing: Missing::LeftOut, install: Install::No, filter: Vec::new() };
    let mut run = Run { workspace, options: &options, report: Report::default() };
    run.source_checks();
    run.clippy();
    run.cargo("tests", &["nextest", "run", "--workspace", "--no-fail-fast", "--filterset", QUICK]);
    run.report.print(false);
    if run.report.failed() { Err("cargo xtask quick: failed".to_owned()) } else { Ok(()) }
}

struct Run<'a> {
    workspace: &'a Workspace,
    options: &'a Options,
    report: Report,
}

impl Run<'_> {
    /// Checks of the sources that need no test run; the fast ones first.
    fn checks(&mut self) {
        self.source_checks();
        self.deny();
        self.clippy();
        let bare =
            ["clippy", "--workspace", "--lib", "--bins", "--no-default-features", "--", "-D", "warnings"];
        self.cargo("clippy without features", &bare);
        let workspace = self.workspace;
        self.step("documentation", || {
            let mut command = workspace.cargo(&["doc", "--workspace", "--no-deps"]);
            succeed(command.env("RUSTDOCFLAGS", "-D warnings"))
        });
    }

    /// Checks that read the sources and compile nothing.
    fn source_checks(&mut self) {
        let workspace = self.workspace;
        self.cargo("format", &["fmt", "--all", "--check"]);
        self.step("layers", || layers::check(workspace).map(Outcome::Ok));
        self.step("names", || names::check(workspace).map(Outcome::Ok));
        self.step("behaviours", || behaviours::run(workspace, Mode::Check).map(Outcome::Ok));
        self.step("messages", || messages::run(workspace, Mode::Check).map(Outcome::Ok));
        self.step("links", || docs::check(workspace).map(Outcome::Ok));
    }

    fn clippy(&mut self) {
        self.cargo("clippy", &["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"]);
    }

    /// Checks licences, bans and sources of all dependencies.
    fn deny(&mut self) {
        let (workspace, missing, install) = (self.workspace, self.options.missing, self.options.install);
        let mut tool = None;
        self.step("cargo-deny", || match tools::cargo_deny(workspace, install) {
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
        // Only errors: warnings about duplicate versions would hide them.
        command.args(["--log-level", "error", "check", "bans", "licenses", "sources"]);
        command.current_dir(&workspace.root).stdin(Stdio::null());
        self.step("dependencies", || succeed(&mut command));
    }

    /// Compares the instruction counts of calls and of their pure parts with their bounds.
    fn counts(&mut self) {
        let (workspace, missing, install) = (self.workspace, self.options.missing, self.options.install);
        self.step("instructions", || match tools::valgrind(install) {
            Ok(()) => counts::run(workspace, Mode::Check)
                .map(|_| Outcome::Ok("no part of a call exceeds its bound".to_owned())),
            Err(why) if missing == Missing::LeftOut => Ok(Outcome::LeftOut(why)),
            Err(why) => Err(why),
        });
    }

    /// Installs, uses and removes each package. What this machine cannot do is named.
    fn packages(&mut self) {
        #[cfg(unix)]
        {
            let (workspace, missing, install) = (self.workspace, self.options.missing, self.options.install);
            let needed = match install {
                Install::Yes => Ok(()),
                Install::No => {
                    package::missing_tool(workspace).map_or(Ok(()), |tool| tools::must_install(install, tool))
                }
            };
            self.step("packages", || match needed {
                Ok(()) => check_packages(workspace),
                Err(why) if missing == Missing::LeftOut => Ok(Outcome::LeftOut(why)),
                Err(why) => Err(why),
            });
        }
    }

    fn cargo(&mut self, name: &'static str, args: &[&str]) -> Verdict {
        let mut command = self.workspace.cargo(args);
        self.step(name, || succeed(&mut command))
    }

    fn step(&mut self, name: &'static str, work: impl FnOnce() -> Result<Outcome, String>) -> Verdict {
        self.report.step(name, work)
    }
}

#[cfg(unix)]
fn check_packages(workspace: &Workspace) -> Result<Outcome, String> {
    let packages = package::check(workspace)?;
    let summary = format!("{} packages installed, used and removed", packages.files().len());
    if packages.left_out.is_empty() {
        return Ok(Outcome::Ok(summary));
    }
    Ok(Outcome::LeftOut(format!("{}; {summary}", packages.left_out.join("; "))))
}

/// Runs a command with inherited output. The exit status decides the outcome.
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
    // Variables, so that arguments of the caller override them.
    let processors = thread::available_parallelism().map_or(1, std::num::NonZero::get);
    command.env("NEXTEST_PROFILE", "suite").env("NEXTEST_TEST_THREADS", (3 * processors).to_string());
    let run = std::process::id().to_string();
    command.env(processes::VARIABLE, &run);
    let mut child = command.spawn().map_err(|error| format!("cannot start nextest: {error}"))?;
    let summary = child.stderr.take().map(pass_through).unwrap_or_default();
    let status = child.wait().map_err(|error| format!("cannot wait for nextest: {error}"))?;
    let left = processes::after_run(&run);
    match status.success() {
        true if left.is_empty() => Ok(Outcome::Ok(summary)),
        true => Err(format!("{summary}, but these processes of tests still run:\n{}", left.join("\n"))),
        false => Err(format!("{summary} ({status})")),
    }
}

/// Forwards the output of nextest line by line and returns its summary line.
fn pass_through(stderr: impl std::io::Read) -> String {
    let mut reader = BufReader::new(stderr);
    let mut out = std::io::stderr();
    let mut line = Vec::new();
    let mut summary = String::new();
    // The tests go on even if stderr is closed.
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

/// Removes terminal colours (`ESC [ … letter`).
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
    fn everything_after_the_dashes_is_the_filter() {
        let options = parse(&["--allow-missing", "--", "-E", "test(--allow-missing)"]).unwrap();
        assert_eq!((options.missing, options.install), (Missing::LeftOut, Install::Yes));
        assert_eq!(options.filter, ["-E", "test(--allow-missing)"]);
    }

    #[test]
    fn no_install_installs_nothing() {
        assert_eq!(parse(&["--no-install"]).unwrap().install, Install::No);
    }

    #[test]
    fn an_unknown_argument_is_refused_with_a_hint() {
        let error = parse(&["circuit"]).err().unwrap();
        assert_eq!(
            error,
            "unknown argument `circuit` of test; a filter comes after `--`\nhint: `cargo xtask` lists the commands"
        );
    }

    #[test]
    fn the_summary_of_nextest_is_found_in_colour_too() {
        let output = "    Finished\n\u{1b}[32;1m     Summary\u{1b}[0m [   1.2s] \u{1b}[1m7\u{1b}[0m tests run: 7 passed, 0 skipped\n";
        assert_eq!(pass_through(output.as_bytes()), "7 tests run: 7 passed, 0 skipped");
    }
}
