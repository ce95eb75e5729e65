//! `gripfast logs`: what a server of a running gateway wrote to stderr.

use super::args::{Form, Global, LogsArgs};
use super::exit::Exit;
use super::fleet::{self, Signals, no_runtime};
use super::gateway::{Gateway, piece};
use super::render::Screen;
use super::stop::{Failure, Stop};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// How often a log that is followed is asked for more.
const EVERY: Duration = Duration::from_millis(500);

/// What the gateway answers.
#[derive(Debug, Deserialize)]
struct Written {
    lines: Vec<String>,
    /// The number of the first of them.
    first: u64,
    /// The number that the next line will have.
    next: u64,
}

/// One line for programs.
#[derive(Serialize)]
struct Line<'l> {
    server: &'l str,
    number: u64,
    text: &'l str,
}

/// Prints what is there, and goes on with what comes.
pub(crate) fn run(global: &Global, args: &LogsArgs, screen: &mut Screen) -> Result<Exit, Stop> {
    let url = args.gateway.address(global)?;
    fleet::runtime()?.block_on(async {
        let gateway = Gateway::at(global, &url).await?;
        let mut signals = Signals::listen().map_err(no_runtime)?;
        let mut written = ask(&gateway, &args.name, 0).await?;
        if written.next == 0 && !args.follow {
            screen.talk(&format!("`{}` has written nothing to stderr", args.name))?;
        }
        let skipped = written.lines.len().saturating_sub(args.lines);
        written.lines.drain(..skipped);
        written.first += skipped as u64;
        loop {
            show(args, &written, screen)?;
            screen.flush()?;
            if !args.follow {
                return Ok(Exit::Ok);
            }
            let next = written.next;
            written = tokio::select! {
                biased;
                exit = signals.next() => return Err(Stop::Told(exit)),
                asked = async {
                    tokio::time::sleep(EVERY).await;
                    ask(&gateway, &args.name, next).await
                } => asked?,
            };
            if written.first > next {
                screen.talk(&format!("{} lines were missed", written.first - next))?;
            }
        }
    })
}

async fn ask(gateway: &Gateway<'_>, name: &str, from: u64) -> Result<Written, Failure> {
    let reply = gateway.get(&format!("/api/v1/upstreams/{}/log?from={from}", piece(name))).await?;
    match reply.refusal() {
        Some(refusal) => Err(refusal.into()),
        None => gateway.read(&reply),
    }
}

fn show(args: &LogsArgs, written: &Written, screen: &mut Screen) -> Result<(), Stop> {
    for (number, text) in (written.first..).zip(&written.lines) {
        match args.output.form {
            Form::Text => screen.line(text)?,
            Form::Json => screen.json(&Line { server: &args.name, number, text })?,
        }
    }
    Ok(())
}
