//! A server that passes every scenario of the official conformance suite, as the reference for runs with gripfast in
//! front of it. It shares no code with gripfast and offers only what the suite needs.
//!
//! It has two modes, because a server of both eras would hide which one was used: legacy by default, modern with
//! `--modern`. Both listen on HTTP with `--http ADDRESS` and print the URL to stdout; otherwise they use stdin and
//! stdout. `methods` and the modules below it do not depend on the transport: the suite, which supports only HTTP,
//! tests them there, and `tests/transports.rs` shows that stdio gives the same answers.

mod caller;
mod catalog;
mod http;
mod inputs;
mod methods;
mod rpc;
mod skills;
mod state;
mod stdio;
mod subscription;
mod tasks;
mod tools;

use std::process::ExitCode;
use std::sync::Arc;

use state::{Era, ServerState};

#[tokio::main]
async fn main() -> ExitCode {
    let mut era = Era::Legacy;
    let mut address = None;
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        match (arg.as_str(), args.len()) {
            ("--modern", _) => era = Era::Modern,
            ("--http", 1..) => address = args.next(),
            _ => return fail("usage: conformance-server [--modern] [--http ADDRESS]"),
        }
    }
    let shared = Arc::new(ServerState::new(era));
    let served = match address {
        Some(address) => http::serve(shared, &address).await,
        None => stdio::serve(shared).await,
    };
    match served {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(&error.to_string()),
    }
}

#[expect(clippy::print_stderr, reason = "errors go to the parent process")]
fn fail(why: &str) -> ExitCode {
    eprintln!("conformance-server: {why}");
    ExitCode::FAILURE
}
