//! A server that passes every scenario of the official conformance suite: the one that must not get worse when gripfast
//! stands in front of it. It shares no code with gripfast, and offers what the suite asks for and nothing else.
//!
//! It has two forms, because a server of both eras would hide which one was spoken: legacy by default, modern with
//! `--modern`. Either form listens on HTTP with `--http ADDRESS`, and says on stdout at which URL; otherwise it speaks on
//! stdin and stdout. `methods` and all below it do not know which: the suite, which speaks HTTP only, tries them there,
//! and `tests/transports.rs` shows that the same questions get the same answers on a pipe.

mod caller;
mod catalog;
mod http;
mod inputs;
mod methods;
mod rpc;
mod skills;
mod stdio;
mod subscription;
mod tasks;
mod tools;
mod world;

use std::process::ExitCode;
use std::sync::Arc;

use world::{Era, World};

#[tokio::main]
async fn main() -> ExitCode {
    let mut era = Era::Legacy;
    let mut address = None;
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        match (arg.as_str(), args.len()) {
            ("--modern", _) => era = Era::Modern,
            ("--http", 1..) => address = args.next(),
            _ => return complain("usage: conformance-server [--modern] [--http ADDRESS]"),
        }
    }
    let world = Arc::new(World::new(era));
    let served = match address {
        Some(address) => http::serve(world, &address).await,
        None => stdio::serve(world).await,
    };
    match served {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => complain(&error.to_string()),
    }
}

#[expect(clippy::print_stderr, reason = "whoever started it reads this")]
fn complain(why: &str) -> ExitCode {
    eprintln!("conformance-server: {why}");
    ExitCode::FAILURE
}
