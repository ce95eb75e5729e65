//! `gripfast stdio`: a gateway on stdin and stdout, for clients that only start commands. stdout carries only MCP. If a
//! gateway for the same config is running, the client is connected to that one.

use super::args::GlobalArgs;
#[cfg(unix)]
use super::background::Bridge;
use super::error::{CommandError, FailureReport};
use super::exit::Exit;
use super::local_host::{Hangups, SHUTDOWN_TIMEOUT, Signals, runtime_failure};
use super::render::Screen;
use super::serve::{ServePlan, telemetry, watch_config};
use clap::Args;
#[cfg(unix)]
use gripfast_gateway::mcp::transport::stdio_bridge;
use gripfast_gateway::mcp::{Gateway, TokenCipher};
use std::pin::pin;
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncWrite};

/// Buffer size between the bridge and a gateway in the same process.
#[cfg(unix)]
const PIPE_CAPACITY: usize = 64 << 10;

#[derive(Debug, Args)]
#[command(after_help = "\
Connects the client to the running gateway for the same config, state directory and version of gripfast, if there is \
one, so that several clients share one set of servers. Otherwise it serves the client by itself, or with --background \
starts such a gateway, which ends `gateway.linger` (5m) after its last client. If the gateway goes away, the client \
stays connected and is moved to the next gateway.

Examples:
  gripfast stdio --config gripfast.toml
  gripfast stdio --background              shares one gateway with the other clients of this machine")]
pub(crate) struct StdioArgs {
    /// Start a gateway in the background if none is running, and share it with other clients
    #[arg(long)]
    background: bool,
}

pub(crate) fn run(global: &GlobalArgs, args: &StdioArgs, screen: &mut Screen) -> Result<Exit, CommandError> {
    let plan = Arc::new(ServePlan::from_config(global, screen)?);
    if screen.can_ask() {
        screen.message(
            "`gripfast stdio` is started by MCP clients and speaks MCP on stdin and stdout; Ctrl-D ends it. `gripfast \
             connect` sets up a client, and `gripfast serve` serves HTTP",
        )?;
    }
    let runtime = plan.runtime()?;
    let served = runtime.block_on(share_or_serve(plan, args));
    runtime.shutdown_timeout(SHUTDOWN_TIMEOUT);
    served
}

#[cfg(not(unix))]
async fn share_or_serve(plan: Arc<ServePlan>, args: &StdioArgs) -> Result<Exit, CommandError> {
    if args.background {
        tracing::warn!("`--background` works only on Unix; this process starts its own servers");
    }
    serve(&plan, tokio::io::stdin(), tokio::io::stdout()).await
}

#[cfg(unix)]
async fn share_or_serve(plan: Arc<ServePlan>, args: &StdioArgs) -> Result<Exit, CommandError> {
    let mut signals = Signals::listen().map_err(runtime_failure)?;
    let (input, output) = (tokio::io::stdin(), tokio::io::stdout());
    let Some(bridge) = Bridge::from_plan(&plan) else {
        if args.background {
            tracing::warn!(
                "no state directory, so no gateway can be shared; this process starts its own servers"
            );
        }
        return serve(&plan, input, output).await;
    };
    let first = async {
        Ok::<_, CommandError>(match args.background {
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
            return bridge.find_or_restart().await;
        }
        if let Some(found) = bridge.wait_for_gateway().await {
            return Ok(found);
        }
        tracing::warn!("the gateway went away; this process starts its own servers");
        let (ours, theirs) = tokio::io::duplex(PIPE_CAPACITY);
        let (reader, writer) = tokio::io::split(theirs);
        let plan = Arc::clone(&plan);
        own = Some(tokio::spawn(async move { serve(&plan, reader, writer).await }));
        Ok::<_, CommandError>(Box::new(ours) as _)
    };
    let carried = tokio::select! {
        carried = stdio_bridge::run(input, output, first, reconnect) => carried,
        _ = signals.next() => Ok(()),
    };
    // Its client has disconnected, so it ends.
    if let Some(Err(error)) = match own {
        Some(own) => own.await.ok(),
        None => None,
    } {
        return Err(error);
    }
    carried.map(|()| Exit::Ok)
}

async fn serve(
    plan: &ServePlan,
    input: impl AsyncRead + Unpin,
    output: impl AsyncWrite + Send + Unpin + 'static,
) -> Result<Exit, CommandError> {
    let mut signals = Signals::listen().map_err(runtime_failure)?;
    let hangups = Hangups::listen();
    gripfast::file_limit::raise();
    let host = plan.host(None);
    plan.start_servers(&host)?;
    let reloader = plan.reloader(&host);
    let broken =
        |error: std::io::Error| FailureReport::new(Exit::General, format!("stdin or stdout failed: {error}"));
    // The gateway needs a cipher for session tokens, although there are none on a pipe.
    let cipher = TokenCipher::ephemeral().map_err(broken)?;
    let gateway = Gateway::new(host.clone(), cipher, &plan.settings(None).limits);
    if let Some(telemetry) = telemetry() {
        gateway.install_telemetry(telemetry);
    }
    let mut serving = pin!(gateway.serve_stdio(input, output));
    let served = tokio::select! {
        served = &mut serving => Some(served),
        () = watch_config(reloader.as_ref(), hangups) => None,
        _ = signals.next() => None,
    };
    let leaving = async {
        match served {
            Some(served) => {
                gateway.shut_down(std::future::ready(())).await;
                Some(served)
            }
            // A client that does not read delays the shutdown no longer than the configured timeout.
            None => gateway.shut_down(&mut serving).await,
        }
    };
    let served = tokio::select! {
        served = leaving => served,
        // A second signal: remaining child processes end with this process.
        _ = signals.next() => None,
    };
    served.unwrap_or(Ok(())).map_err(broken)?;
    Ok(Exit::Ok)
}
