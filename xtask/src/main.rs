//! The project's chores. `cargo xtask` without arguments lists them.
//!
//! This program is compiled first on every fresh machine, so it takes its arguments apart by hand and depends on nothing
//! but `serde_json` (which reads `cargo metadata`).

#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a command line program talks to its terminal"
)]

mod audit;
mod behaviours;
mod bench;
mod chaos;
mod counts;
mod layers;
mod reference;
mod source;
mod test;
mod workspace;

use std::process::ExitCode;

use workspace::Workspace;

const HELP: &str = "\
The chores of this project.

    cargo xtask test [--allow-missing] [-- FILTER…]
        Sets up what the tests need and runs everything: formatting, lints, licences, layers, the behaviours table,
        documentation, tests against scripted and real MCP servers, doctests. Ends with one summary; fails if any
        step failed. This is what CI runs.
          --allow-missing   goes on without the peers or tools that cannot be installed here; the tests that need
                            them are named and left out
          -- FILTER…        passed to nextest; runs those tests and what they need, and nothing else, for example
                            `cargo xtask test -- circuit` or `cargo xtask test -- -E 'package(gripfast-core)'`

    cargo xtask chaos [--fault NAME] [--transport T] [--seed N] [--repeats N] [--long] [-o json]
                      [--against COMMAND --url URL] [--write FILE]
        Breaks servers under a live gateway and counts what its clients lose: a table, and the figures to reach.
        `cargo xtask chaos --write docs/recovery.md` renews that page; `cargo xtask chaos --help` says more. The same
        faults run in `cargo xtask test` with shorter waits.

    cargo xtask bench [PART…] [--quick] [-o json] [--against COMMAND --url URL] [--before BINARY] [--write FILE]
        Measures what gripfast costs, beside nginx in front of the same server and beside a bare pipe: tables, and the
        figures to reach. `cargo xtask bench --write docs/performance.md` renews the sections of that page;
        `cargo xtask bench --help` says more.

    cargo xtask counts [--write]
        Counts the instructions that the pure parts of a call take, with valgrind, and fails if one takes over 5 %
        more than crates/counts/bounds.txt says. `cargo xtask test` does it too.
          --write           makes what was counted the bounds

    cargo xtask audit [--allow-missing]
        Checks all dependencies for known vulnerabilities, with the advisory database on the network. Fails if one has
        an advisory, or if the database cannot be reached.
          --allow-missing   a database that cannot be reached is said and is no failure

    cargo xtask layers
        Checks who may know whom, between crates and between modules. The rules are in xtask/src/layers/rules.rs.

    cargo xtask behaviours [--write]
        Checks that every promise of xtask/src/behaviours/list.rs has a test, that docs/behaviours.md is up to date, and
        that the tests exist which docs/eras.md names for what crosses between the eras.
          --write           writes docs/behaviours.md

    cargo xtask reference [--write]
        Checks that the pages under docs/reference say what the code says; `cargo xtask test` does too.
          --write           writes them

    cargo xtask help
        This text.
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

/// The error is a text ready for the terminal: it has been said in full, or it says what to do.
fn run(args: &[String]) -> Result<(), String> {
    let Some((command, rest)) = args.split_first() else {
        print!("{HELP}");
        return Ok(());
    };
    let asks_for_help = rest.iter().any(|arg| arg == "--help" || arg == "-h");
    let has_help = matches!(command.as_str(), "bench" | "chaos");
    if matches!(command.as_str(), "help" | "--help" | "-h") || (asks_for_help && !has_help) {
        print!("{HELP}");
        return Ok(());
    }
    match command.as_str() {
        "test" => test::run(&Workspace::find()?, &test::Options::parse(rest)?),
        "bench" => bench::run(&Workspace::find()?, rest),
        "chaos" => chaos::run(&Workspace::find()?, rest),
        "counts" => {
            let mode = match rest {
                [] => counts::Mode::Check,
                [flag] if flag == "--write" => counts::Mode::Write,
                _ => return Err(usage("counts takes `--write` or nothing")),
            };
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
            let mode = match rest {
                [] => behaviours::Mode::Check,
                [flag] if flag == "--write" => behaviours::Mode::Write,
                _ => return Err(usage("behaviours takes `--write` or nothing")),
            };
            println!("{}", behaviours::run(&Workspace::find()?, mode)?);
            Ok(())
        }
        "reference" => {
            let mode = match rest {
                [] => reference::Mode::Check,
                [flag] if flag == "--write" => reference::Mode::Write,
                _ => return Err(usage("reference takes `--write` or nothing")),
            };
            reference::run(&Workspace::find()?, mode)
        }
        unknown => Err(usage(&format!("no command `{unknown}`"))),
    }
}

fn no_arguments(command: &str, rest: &[String]) -> Result<(), String> {
    if rest.is_empty() { Ok(()) } else { Err(usage(&format!("{command} takes no arguments"))) }
}

fn usage(problem: &str) -> String {
    format!("{problem}\nhint: `cargo xtask` lists the commands")
}
