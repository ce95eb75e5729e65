//! Entry point of the `gripfast` binary. The commands are in [`cli`].

mod cli;

use mimalloc::MiMalloc;
use std::process::ExitCode;

/// The system allocator returns the buffers of a large result to the kernel after each call, and then spends most of
/// the next call on page faults.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

fn main() -> ExitCode {
    cli::run(std::env::args_os())
}
