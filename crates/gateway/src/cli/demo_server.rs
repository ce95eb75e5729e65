//! `gripfast demo-server`: the sample MCP server as a process. Its flags are the fields of [`gripfast_demo::Options`].

use super::error::{CommandError, FailureReport};
use super::exit::Exit;
use super::local_host;
use super::render::Screen;
use clap::Args;
use gripfast_demo::Options;
use std::net::SocketAddr;

#[derive(Debug, Args)]
#[command(after_help = "\
Without --http, it speaks MCP on stdin and stdout until stdin closes. With --http, it prints its URL to stdout once it \
listens: Streamable HTTP at /mcp, legacy HTTP+SSE at /sse. Tools: echo, add, sleep, counter, fail, reject, ask, crash, \
misbehave; resources and a prompt as well.

Durations are written 1500ms, 2s, 1m30s.

Examples:
  gripfast demo-server --http 127.0.0.1:0
  gripfast demo-server --exit-after 3                      exits after every third call
  gripfast demo-server --http 127.0.0.1:8080 --session-ttl 5s --session-expiry-form 400-no-id")]
pub(crate) struct DemoServerArgs {
    /// Serve HTTP at this address; port 0 picks a free port
    #[arg(long, value_name = "ADDR:PORT", value_parser = address)]
    http: Option<SocketAddr>,
    #[command(flatten)]
    options: Options,
}

// The parse error of the standard library is for programmers.
fn address(text: &str) -> Result<SocketAddr, &'static str> {
    text.parse().map_err(|_| "expected an IP address and a port such as 127.0.0.1:8080")
}

/// Serves until stdin closes or, with HTTP, until the process is killed.
pub(crate) fn run(args: &DemoServerArgs, screen: &mut Screen) -> Result<Exit, CommandError> {
    let options = args.options.clone();
    // Tests and demos run many of these processes, and each mostly waits for its one client.
    let runtime = local_host::small_runtime()?;
    let path = if options.sse_only { "/sse" } else { "/mcp" };
    let served = match args.http {
        None => runtime.block_on(gripfast_demo::serve_stdio(options)),
        Some(addr) => runtime.block_on(gripfast_demo::serve_http(addr, options, |listening| {
            let url = format!("http://{listening}{path}");
            // The URL comes last: a reader of stdout may act on it at once. A failed write does not end the server.
            let _ = screen.message(&format!("listening on {url}"));
            let _ = screen.line(&url).and_then(|()| screen.flush());
        })),
    };
    // A thread may still be blocked in reading stdin.
    runtime.shutdown_background();
    match served {
        Ok(()) => Ok(Exit::Ok),
        Err(error) => {
            let what = match args.http {
                Some(addr) => format!("the demo server cannot serve at {addr}: {error}"),
                None => format!("the demo server stopped: {error}"),
            };
            Err(FailureReport::new(Exit::General, what).into())
        }
    }
}
