//! Development commands of the project. `cargo xtask` without arguments lists them.
//!
//! This program is the first to be compiled on a new machine, so it parses its arguments by hand and depends only on
//! `serde_json` (to read `cargo metadata`) and `syn` (to read Rust sources).

#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a command line program writes to its terminal"
)]

mod audit;
mod behaviours;
mod bench;
mod chaos;
mod counts;
mod docs;
mod layers;
mod markdown;
mod messages;
mod names;
#[cfg(unix)]
mod package;
mod reference;
mod source;
mod test;
mod workspace;

use std::process::ExitCode;

use workspace::Workspace;

/// Whether a command compares generated files with the repository or updates them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    Check,
    Write,
}

const HELP: &str = "\
Development commands of this project.

    cargo xtask quick
        Runs formatting, source checks, clippy, unit tests and tests with virtual time. For use before a commit: under two
        minutes after a first build. Needs cargo-nextest and installs nothing.

    cargo xtask test [--allow-missing] [--no-install] [-- FILTER…]
        Installs everything the tests need and runs all checks: formatting, layers, names, behaviours, messages, links
        of the documentation, licences, lints, API documentation, tests against scripted and real MCP servers, doctests.
        Prints one summary at the end and fails if any step failed. CI runs this command.
          --allow-missing   continues without peers and tools that cannot be installed on this machine; lists the
                            tests that are left out
          --no-install      installs nothing; a missing peer or tool is a failure, or is left out with --allow-missing
          -- FILTER…        passed to nextest; runs only the matching tests and skips all other checks, for example
                            `cargo xtask test -- circuit` or `cargo xtask test -- -E 'package(gripfast-core)'`

    cargo xtask chaos [--fault NAME] [--transport T] [--seed N] [--repeats N] [--long] [-o json]
                      [--against COMMAND --url URL] [--write FILE]
        Breaks servers behind a running gateway and counts the calls that clients lose. Prints a table and compares it
        with the goals. `cargo xtask chaos --write docs/recovery.md` updates that page; `cargo xtask chaos --help`
        explains the options. `cargo xtask test` runs the same faults with shorter waits.

    cargo xtask bench [PART…] [--quick] [-o json] [--against COMMAND --url URL] [--before BINARY] [--write FILE]
        Measures the cost of a call through gripfast, compared with nginx in front of the same server and with a plain
        pipe. Prints tables and compares them with the goals. `cargo xtask bench --write docs/performance.md` updates the
        sections of that page; `cargo xtask bench --help` explains the options.

    cargo xtask bench search [--half tuning|judging] [--keep-catalogs] [--misses] [--write FILE]
        Measures the quality of tool search: lists the tools of public MCP servers from npm and PyPI, asks questions
        with known answers, and compares with plain BM25 and FastMCP. `cargo xtask bench search --write
        docs/search-quality.md` updates that page.

    cargo xtask counts [--write]
        Counts the instructions of the pure parts of a call, and the instructions and allocations of whole calls through
        a gateway, with valgrind. Fails if one takes over 5 % more than crates/counts/bounds.txt allows. `cargo xtask
        test` includes this check.
          --write           stores the measured values as the new bounds

    cargo xtask audit [--allow-missing]
        Checks all dependencies for known vulnerabilities. Needs network access to the advisory database. Fails if a
        dependency has an advisory or if the database is unreachable.
          --allow-missing   an unreachable database is reported and is not a failure

    cargo xtask layers
        Checks the allowed dependencies between crates and between modules. The rules are in xtask/src/layers/rules.rs.

    cargo xtask behaviours [--write]
        Checks that every promise in xtask/src/behaviours/list.rs has a test, that docs/behaviours.md and
        docs/reference/tests.md are up to date, and that every row of docs/eras.md has tests in
        docs/reference/era-tests.md.
          --write           updates docs/behaviours.md and docs/reference/tests.md

    cargo xtask docs
        Checks every link of the documentation and builds docs/ as a book with search in target/book. `cargo xtask test`
        includes the link check. Installs mdbook into target/tools if the machine has none.

    cargo xtask messages [--write]
        Checks that docs/reference/messages.md has all texts of events, errors, hints and log lines. `cargo xtask test`
        includes this check.
          --write           updates the page

    cargo xtask names
        Checks that the names of modules and types consist of common words (xtask/words.txt) or terms of
        docs/glossary.md, and that each name is used once. `cargo xtask test` includes this check.

    cargo xtask package [--check]
        Builds wheel, npm packages, Debian package and tarball into target/packages, each with an SBOM. The binary is
        optimized by a profile: it is built twice, and the first one serves a training load. It is linked by zig, so
        that it runs with glibc 2.17. Needs python3, npm, dpkg-deb, and apt-get for the tools of LLVM.
          --check           builds them from the plain release build into target/package-check, installs each in an
                            empty place, uses it and removes it; `cargo xtask test` includes this check

    cargo xtask reference [--write]
        Checks that the generated pages under docs/reference match the code. `cargo xtask test` includes this check.
          --write           updates them

    cargo xtask help
        Prints this text.
";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match run(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("{message}");
            ExitCode::FAILURE
        }
    }
}

/// Runs one command. An error is a complete text for the terminal.
fn run(args: &[String]) -> Result<(), String> {
    let Some((command, rest)) = args.split_first() else {
        print!("{HELP}");
        return Ok(());
    };
    let wants_help = rest.iter().any(|arg| arg == "--help" || arg == "-h");
    let has_own_help = matches!(command.as_str(), "bench" | "chaos");
    if matches!(command.as_str(), "help" | "--help" | "-h") || (wants_help && !has_own_help) {
        print!("{HELP}");
        return Ok(());
    }
    match command.as_str() {
        "test" => test::run(&Workspace::find()?, &test::Options::parse(rest)?),
        "quick" => {
            no_arguments(command, rest)?;
            test::quick(&Workspace::find()?)
        }
        "bench" => bench::run(&Workspace::find()?, rest),
        "chaos" => chaos::run(&Workspace::find()?, rest),
        "counts" => {
            let mode = mode(command, rest)?;
            println!("{}", counts::run(&Workspace::find()?, mode)?);
            Ok(())
        }
        "audit" => {
            let unreachable = match rest {
                [] => audit::Unreachable::Fails,
                [flag] if flag == "--allow-missing" => audit::Unreachable::LeftOut,
                _ => return Err(usage("audit takes `--allow-missing` or nothing")),
            };
            println!("{}", audit::run(&Workspace::find()?, unreachable)?);
            Ok(())
        }
        "layers" => {
            no_arguments(command, rest)?;
            println!("{}", layers::check(&Workspace::find()?)?);
            Ok(())
        }
        "behaviours" => {
            let mode = mode(command, rest)?;
            println!("{}", behaviours::run(&Workspace::find()?, mode)?);
            Ok(())
        }
        "docs" => {
            no_arguments(command, rest)?;
            println!("{}", docs::run(&Workspace::find()?)?);
            Ok(())
        }
        "messages" => {
            let mode = mode(command, rest)?;
            println!("{}", messages::run(&Workspace::find()?, mode)?);
            Ok(())
        }
        "names" => {
            no_arguments(command, rest)?;
            println!("{}", names::check(&Workspace::find()?)?);
            Ok(())
        }
        #[cfg(unix)]
        "package" => {
            let workspace = Workspace::find()?;
            let report = match rest {
                [] => package::run(&workspace)?,
                [flag] if flag == "--check" => {
                    package::summary(&workspace, &package::check(&workspace)?, "checked")
                }
                _ => return Err(usage("package takes `--check` or nothing")),
            };
            println!("{report}");
            Ok(())
        }
        "reference" => {
            let mode = mode(command, rest)?;
            reference::run(&Workspace::find()?, mode)
        }
        unknown => Err(usage(&format!("no command `{unknown}`"))),
    }
}

fn mode(command: &str, rest: &[String]) -> Result<Mode, String> {
    match rest {
        [] => Ok(Mode::Check),
        [flag] if flag == "--write" => Ok(Mode::Write),
        _ => Err(usage(&format!("{command} takes `--write` or nothing"))),
    }
}

fn no_arguments(command: &str, rest: &[String]) -> Result<(), String> {
    if rest.is_empty() { Ok(()) } else { Err(usage(&format!("{command} takes no arguments"))) }
}

fn usage(problem: &str) -> String {
    format!("{problem}\nhint: `cargo xtask` lists the commands")
}
