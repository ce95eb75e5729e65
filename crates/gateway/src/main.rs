//! The `gripfast` binary. Everything is in [`cli`]; this is only where the process begins and ends.

mod cli;

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::run(std::env::args_os())
}
