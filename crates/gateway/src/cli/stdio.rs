//! `gripfast stdio`: the same gateway for clients that only spawn commands. stdout carries MCP and nothing
//! else.

use super::args::Global;
use super::exit::Exit;
use super::fleet::{Hangups, LEFTOVERS, Signals, no_runtime, runtime};
use super::render::Screen;
use super::serve::{Plan, keep_up, telemetry};
use super::stop::{Failure, Stop};
use gripfast_gateway::downstream::{Gateway, Seal};
use std::pin::pin;
use std::time::Duration;

/// As long as calls under way and the reading of their answers may take together.
const LEAVES_WITHIN: Duration = Duration::from_secs(20);

pub(crate) fn run(global: &Global, screen: &mut Screen) -> Result<Exit, Stop> {
    let plan = Plan::from_config(global, screen)?;
    let runtime = runtime()?;
    let served = runtime.block_on(serve(&plan));
    runtime.shutdown_timeout(LEFTOVERS);
    served
}

async fn serve(plan: &Plan) -> Result<Exit, Stop> {
    let mut signals = Signals::listen().map_err(no_runtime)?;
    let hangups = Hangups::listen();
    let host = plan.host();
    plan.start_servers(&host)?;
    let reloader = plan.reloader(&host);
    let broken =
        |error: std::io::Error| Failure::new(Exit::General, format!("stdin or stdout broke: {error}"));
    // There are no session ids on a pipe; the seal is for whoever asks.
    let seal = Seal::of_this_process().map_err(broken)?;
    let gateway = Gateway::new(host.clone(), seal, &plan.settings(None).terms);
    if let Some(telemetry) = telemetry() {
        gateway.tell(telemetry);
    }
    let mut serving = pin!(gateway.serve_stdio(tokio::io::stdin(), tokio::io::stdout()));
    let mut served = tokio::select! {
        served = &mut serving => Some(served),
        () = keep_up(reloader.as_ref(), hangups) => None,
        _ = signals.next() => None,
    };
    if served.is_none() {
        gateway.leave();
        served = tokio::select! {
            served = &mut serving => Some(served),
            // Somebody insists, or a client that does not read keeps us from its next message.
            _ = signals.next() => None,
            () = tokio::time::sleep(LEAVES_WITHIN) => None,
        };
    }
    host.shutdown().await;
    gateway.finish_telling().await;
    served.unwrap_or(Ok(())).map_err(broken)?;
    Ok(Exit::Ok)
}
