//! `gripfast demo-server`: the sample MCP server as a process. Its flags map one to one to the fields of
//! [`gripfast_demo::Options`] and [`gripfast_demo::Faults`].

use super::duration;
use super::error::{CommandError, FailureReport};
use super::exit::Exit;
use super::local_host;
use super::render::Screen;
use clap::Args;
use gripfast_demo::{EndpointForm, EraChoice, ExitAtStart, Faults, Options, Refusal, SessionExpiry};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

const FAULTS_HEADING: &str = "Faults";

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
    shape: ShapeArgs,
    #[command(flatten)]
    faults: FaultArgs,
}

/// Features of the server.
#[derive(Debug, Args)]
struct ShapeArgs {
    /// Server name in `serverInfo`
    #[arg(long, default_value = "gripfast-demo")]
    name: String,
    /// Supported protocol eras: both, legacy or modern
    #[arg(long, default_value = "both")]
    era: EraChoice,
    /// Newest protocol revision that `initialize` accepts
    #[arg(long, value_name = "DATE", default_value = "2025-11-25")]
    legacy_version: String,
    /// Items per page of a list; 0 puts everything on one page
    #[arg(long, value_name = "N", value_parser = whole::<usize>, default_value_t = 50)]
    page_size: usize,
    /// Offer this many additional tools: extra_1, extra_2, …
    #[arg(long, value_name = "N", value_parser = whole::<usize>, default_value_t = 0)]
    tools: usize,
    /// Offer the tool `route`, one argument of which modern clients mirror in a header
    #[arg(long)]
    param_headers: bool,
    /// Offer examples of less common features: list output, apps, tasks, URL elicitation
    #[arg(long)]
    showcase: bool,
    /// Offer `echo` with another description and schema, as an upgraded server would
    #[arg(long)]
    changed_schema: bool,
    /// Answer every POST with an event stream
    #[arg(long)]
    sse_answers: bool,
    /// Issue no session ids
    #[arg(long)]
    sessionless: bool,
    /// Serve legacy HTTP+SSE only, nothing at /mcp
    #[arg(long)]
    sse_only: bool,
    /// Append a line `KEY VALUE PID` for every `counter` call
    #[arg(long, value_name = "FILE")]
    counter_file: Option<PathBuf>,
    /// Write the process id to this file
    #[arg(long, value_name = "FILE")]
    pid_file: Option<PathBuf>,
    /// Append a line `UNIX_MILLIS PID` at every start
    #[arg(long, value_name = "FILE")]
    starts_file: Option<PathBuf>,
}

/// Faults of the server.
#[derive(Debug, Args)]
#[command(next_help_heading = FAULTS_HEADING)]
struct FaultArgs {
    /// Wait before every answer
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    answer_delay: Option<Duration>,
    /// Never answer `initialize` nor `server/discover`
    #[arg(long)]
    never_answer_initialize: bool,
    /// Never answer `server/discover`
    #[arg(long)]
    ignore_discover: bool,
    /// Answer `ping` with -32601
    #[arg(long)]
    no_ping: bool,
    /// Exit after answering this many calls
    #[arg(long, value_name = "N", value_parser = whole::<u64>)]
    exit_after: Option<u64>,
    /// Exit in the middle of this call, counted from 1
    #[arg(long, value_name = "N", value_parser = whole::<u64>)]
    exit_in_call: Option<u64>,
    /// Wait before reading or listening
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    start_delay: Option<Duration>,
    /// Exit at start: always, the first 3 times (3x), or within a time of the first start (60s); the latter
    /// two count in --starts-file
    #[arg(long, value_name = "WHEN")]
    exit_at_start: Option<ExitAtStart>,
    /// Exit after this time, busy or not
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    live_for: Option<Duration>,
    /// Exit code for all of these exits
    #[arg(long, value_name = "CODE", value_parser = whole::<i32>, default_value_t = 1)]
    exit_code: i32,
    /// Write this much to stderr at start
    #[arg(long, value_name = "BYTES", value_parser = whole::<usize>, default_value_t = 0)]
    fill_stderr: usize,
    /// Leave a child process behind that holds the pipes open
    #[arg(long)]
    fork_grandchild: bool,
    /// Ignore SIGTERM
    #[arg(long)]
    ignore_sigterm: bool,
    /// Keep running when stdin closes
    #[arg(long)]
    ignore_stdin_close: bool,
    /// Write lines that are not JSON between the messages
    #[arg(long)]
    junk_on_stdout: bool,
    /// Exit on any request before `initialize`
    #[arg(long)]
    exit_on_discover: bool,
    /// Answer to an expired session: 404, 404-text, 400-no-id, 400-server-error, 400-plain or 200-error
    #[arg(long, value_name = "FORM", default_value = "404")]
    session_expiry_form: SessionExpiry,
    /// Expire sessions at this age
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    session_ttl: Option<Duration>,
    /// Expire sessions after this many requests
    #[arg(long, value_name = "N", value_parser = whole::<u64>)]
    session_requests: Option<u64>,
    /// Refuse requests with a status: always (503), for a time (503:2s), a number of times (503:3x)
    #[arg(long, value_name = "STATUS[:HOW_LONG]")]
    status_for_a_while: Option<Refusal>,
    /// The `Retry-After` of these refusals, in whole seconds
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    retry_after: Option<Duration>,
    /// Refuse every request without this bearer token with 401
    #[arg(long, value_name = "TOKEN")]
    require_bearer: Option<String>,
    /// Leave `WWW-Authenticate` off the 401
    #[arg(long)]
    no_challenge: bool,
    /// Close every connection right after accepting it
    #[arg(long)]
    drop_after_accept: bool,
    /// The form of the `endpoint` event: relative, absolute, query or foreign
    #[arg(long, value_name = "FORM", default_value = "relative")]
    sse_endpoint: EndpointForm,
    /// Never answer a POST to an expired HTTP+SSE session
    #[arg(long)]
    silent_dead_sse_post: bool,
}

// The parse errors of the standard library ("invalid digit found in string") are for programmers.

fn address(text: &str) -> Result<SocketAddr, &'static str> {
    text.parse().map_err(|_| "expected an IP address and a port such as 127.0.0.1:8080")
}

fn whole<N: FromStr>(text: &str) -> Result<N, &'static str> {
    text.parse().map_err(|_| "expected a whole number")
}

/// Serves until stdin closes or, with HTTP, until the process is killed.
pub(crate) fn run(args: &DemoServerArgs, screen: &mut Screen) -> Result<Exit, CommandError> {
    let options = options(&args.shape, &args.faults);
    // Tests and demos run many of these processes, and each mostly waits for its one client.
    let runtime = local_host::small_runtime()?;
    let path = if options.streamable_http { "/mcp" } else { "/sse" };
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

fn options(shape: &ShapeArgs, fault_args: &FaultArgs) -> Options {
    Options {
        name: shape.name.clone(),
        era: shape.era,
        legacy_version: shape.legacy_version.clone(),
        page_size: shape.page_size,
        extra_tools: shape.tools,
        param_headers: shape.param_headers,
        showcase: shape.showcase,
        changed_schema: shape.changed_schema,
        sse_answers: shape.sse_answers,
        sessionless: shape.sessionless,
        streamable_http: !shape.sse_only,
        counter_file: shape.counter_file.clone(),
        pid_file: shape.pid_file.clone(),
        starts_file: shape.starts_file.clone(),
        faults: faults(fault_args),
    }
}

fn faults(args: &FaultArgs) -> Faults {
    Faults {
        answer_delay: args.answer_delay.unwrap_or_default(),
        never_answer_initialize: args.never_answer_initialize,
        ignore_discover: args.ignore_discover,
        no_ping: args.no_ping,
        exit_after: args.exit_after,
        exit_in_call: args.exit_in_call,
        start_delay: args.start_delay.unwrap_or_default(),
        exit_at_start: args.exit_at_start,
        live_for: args.live_for,
        exit_code: Some(args.exit_code),
        fill_stderr: args.fill_stderr,
        fork_grandchild: args.fork_grandchild,
        ignore_sigterm: args.ignore_sigterm,
        ignore_stdin_close: args.ignore_stdin_close,
        junk_on_stdout: args.junk_on_stdout,
        exit_on_discover: args.exit_on_discover,
        session_expiry: args.session_expiry_form,
        session_ttl: args.session_ttl,
        session_requests: args.session_requests,
        refuse: args.status_for_a_while,
        retry_after: args.retry_after,
        require_bearer: args.require_bearer.clone(),
        bare_unauthorized: args.no_challenge,
        drop_after_accept: args.drop_after_accept,
        endpoint: args.sse_endpoint,
        silent_dead_sse_post: args.silent_dead_sse_post,
    }
}
