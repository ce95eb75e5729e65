//! `gripfast logs`: stderr of a server of a running gateway.

use super::admin_client::{AdminClient, upstream_path};
use super::args::{GlobalArgs, LogsArgs, OutputFormat};
use super::error::{CommandError, FailureReport};
use super::exit::Exit;
use super::local_host;
use super::local_host::{Signals, runtime_failure};
use super::render::Screen;
use gripfast_gateway::api::types::LogView;
use serde::Serialize;
use std::time::Duration;

/// Poll interval of `--follow`.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// One line as JSON.
#[derive(Serialize)]
struct Line<'l> {
    server: &'l str,
    number: u64,
    text: &'l str,
}

/// Prints the last lines and, with `--follow`, new ones.
pub(crate) fn run(global: &GlobalArgs, args: &LogsArgs, screen: &mut Screen) -> Result<Exit, CommandError> {
    let url = args.gateway.resolve(global)?;
    local_host::runtime()?.block_on(async {
        let gateway = AdminClient::connect(global, &url).await?;
        let mut signals = Signals::listen().map_err(runtime_failure)?;
        let mut written = fetch(&gateway, &args.name, 0).await?;
        if written.next == 0 && !args.follow {
            screen.message(&format!("server `{}` has written nothing to stderr", args.name))?;
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
                exit = signals.next() => return Err(CommandError::Reported(exit)),
                asked = async {
                    tokio::time::sleep(POLL_INTERVAL).await;
                    fetch(&gateway, &args.name, next).await
                } => asked?,
            };
            if written.first > next {
                screen.message(&format!("{} lines were missed", written.first - next))?;
            }
        }
    })
}

async fn fetch(gateway: &AdminClient<'_>, name: &str, from: u64) -> Result<LogView, FailureReport> {
    Ok(gateway.get(&upstream_path(name, &format!("/log?from={from}"))).await?.value)
}

fn show(args: &LogsArgs, written: &LogView, screen: &mut Screen) -> Result<(), CommandError> {
    for (number, text) in (written.first..).zip(&written.lines) {
        match args.output.form {
            OutputFormat::Text => screen.line(text)?,
            OutputFormat::Json => screen.json(&Line { server: &args.name, number, text })?,
        }
    }
    Ok(())
}
