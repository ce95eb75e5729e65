//! `gripfast stdio`: the same gateway for clients that only spawn commands. stdout carries MCP and nothing
//! else. Where a gateway for the same config runs already, its client is connected to that one.

use super::args::Global;
#[cfg(unix)]
use super::background::Bridge;
use super::exit::Exit;
use super::fleet::{Hangups, LEFTOVERS, Signals, no_runtime, runtime};
use super::render::Screen;
use super::serve::{Plan, keep_up, telemetry};
use super::stop::{Failure, Stop};
use clap::Args;
#[cfg(unix)]
use gripfast_gateway::downstream::bridge;
use gripfast_gateway::downstream::{Gateway, Seal};
use std::pin::pin;
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncWrite};

/// What may wait between the bridge and a gateway in the same process.
#[cfg(unix)]
const PIPE: usize = 64 << 10;

#[derive(Debug, Args)]
#[command(after_help = "\
Connects its client to the gateway that runs for the same config, state directory and version of gripfast, if there is \
one, so that several clients share one set of servers. Otherwise it serves by itself, or with --background starts that \
gateway, which ends `gateway.linger` (5m) after its last client. If the gateway goes away, the client stays connected to \
the next one.

Examples:
  gripfast stdio --config gripfast.toml
  gripfast stdio --background              shares one gateway with the other clients of this machine")]
pub(crate) struct StdioArgs {
    /// Start a gateway in the background if none runs, and share it with other clients
    #[arg(long)]
    background: bool,
}

pub(crate) fn run(global: &Global, args: &StdioArgs, screen: &mut Screen) -> Result<Exit, Stop> {
    let plan = Arc::new(Plan::from_config(global, screen)?);
    if screen.can_ask() {
        screen.talk(
            "`gripfast stdio` is meant to be started by an MCP client, which speaks MCP on its stdin and stdout; Ctrl-D \
             ends it. `gripfast connect` sets a client up, and `gripfast serve` serves HTTP.",
        )?;
    }
    let runtime = runtime()?;
    let served = runtime.block_on(share_or_serve(plan, args));
    runtime.shutdown_timeout(LEFTOVERS);
    served
}

#[cfg(not(unix))]
async fn share_or_serve(plan: Arc<Plan>, args: &StdioArgs) -> Result<Exit, Stop> {
    if args.background {
        tracing::warn!("`--background` works on Unix only; serving by itself");
    }
    serve(&plan, tokio::io::stdin(), tokio::io::stdout()).await
}

#[cfg(unix)]
async fn share_or_serve(plan: Arc<Plan>, args: &StdioArgs) -> Result<Exit, Stop> {
    let mut signals = Signals::listen().map_err(no_runtime)?;
    let (input, output) = (tokio::io::stdin(), tokio::io::stdout());
    let Some(bridge) = Bridge::of(&plan) else {
        if args.background {
            tracing::warn!("there is no state directory to share a gateway in; serving by itself");
        }
        return serve(&plan, input, output).await;
    };
    let first = async {
        Ok::<_, Stop>(match args.background {
            true => Some(bridge.find_or_start().await?),
            false => bridge.find_usable().await,
        })
    };
    let first = tokio::select! {
        first = first => first?,
        _ = signals.next() => return Ok(Exit::Ok),
    };
    let Some(first) = first else { return serve(&plan, input, output).await };
    let mut own = None;
    let reconnect = async || {
        if args.background {
            return bridge.find_or_start_again().await;
        }
        if let Some(found) = bridge.find_again().await {
            return Ok(found);
        }
        tracing::warn!("the gateway went away; serving by itself");
        let (ours, theirs) = tokio::io::duplex(PIPE);
        let (reader, writer) = tokio::io::split(theirs);
        let plan = Arc::clone(&plan);
        own = Some(tokio::spawn(async move { serve(&plan, reader, writer).await }));
        Ok::<_, Stop>(Box::new(ours) as _)
    };
    let carried = tokio::select! {
        carried = bridge::carry(input, output, first, reconnect) => carried,
        _ = signals.next() => Ok(()),
    };
    // Its client has left it, so it ends.
    if let Some(Err(error)) = match own {
        Some(own) => own.await.ok(),
        None => None,
    } {
        return Err(error);
    }
    carried.map(|()| Exit::Ok)
}

async fn serve(
    plan: &Plan,
    input: impl AsyncRead + Unpin,
    output: impl AsyncWrite + Send + Unpin + 'static,
) -> Result<Exit, Stop> {
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
    let mut serving = pin!(gateway.serve_stdio(input, output));
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
