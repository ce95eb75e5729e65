//! `cargo xtask chaos`: runs the faults and reports the results.

#[cfg(target_os = "linux")]
mod run;

#[cfg(target_os = "linux")]
fn main() -> std::process::ExitCode {
    run::main()
}

#[cfg(not(target_os = "linux"))]
fn main() {
    panic!("chaos reads what processes hold from /proc, which only Linux has");
}
