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

pub(crate) fn run(global: &Global, screen: &mut Screen) -> Result<Exit, Stop> {
    let plan = Plan::from_config(global, screen)?;
    if screen.can_ask() {
        screen.talk(
            "`gripfast stdio` is meant to be started by an MCP client, which speaks MCP on its stdin and stdout; Ctrl-D \
             ends it. `gripfast connect` sets a client up, and `gripfast serve` serves HTTP.",
        )?;
    }
    let runtime = runtime()?;
    let served = runtime.block_on(serve(&plan));
    runtime.shutdown_timeout(LEFTOVERS);
    served
}

async fn serve(plan: &Plan) -> Result<Exit, Stop> {
    let mut signals = Signals::listen().map_err(no_runtime)?;
    let hangups = Hangups::listen();
    gripfast::file_limit::raise();
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
    let served = tokio::select! {
        served = &mut serving => Some(served),
        () = keep_up(reloader.as_ref(), hangups) => None,
        _ = signals.next() => None,
    };
    let leaving = async {
        match served {
            Some(served) => {
                gateway.shut_down(std::future::ready(())).await;
                Some(served)
            }
            // A client that does not read keeps nobody: it is not waited for any longer than the config says.
            None => gateway.shut_down(&mut serving).await,
        }
    };
    let served = tokio::select! {
        served = leaving => served,
        // Somebody insists. What is left of the children ends with us.
        _ = signals.next() => None,
    };
    served.unwrap_or(Ok(())).map_err(broken)?;
    Ok(Exit::Ok)
}
