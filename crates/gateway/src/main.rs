//! The `gripfast` binary. Everything is in [`cli`]; this is only where the process begins and ends.

mod cli;

use mimalloc::MiMalloc;
use std::process::ExitCode;

/// The system's allocator gives the buffers of a large result back to the kernel after each call, and then spends
/// most of the next one on page faults.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

fn main() -> ExitCode {
    cli::run(std::env::args_os())
}
