//! `gripfast status`: all servers, one server, JSON, and `--watch`.

use crate::in_process_gateway::InProcessGateway;
use crate::sandbox::{CommandOutput, Sandbox, UNUSED_URL, stdio, url};
use insta::assert_snapshot;
#[cfg(unix)]
use std::io::{BufRead, BufReader};
#[cfg(unix)]
use std::process::Child;

/// Output without values that differ between runs: times, process ids, and the padding that depends on them.
macro_rules! assert_shown {
    ($ran:expr, @$expected:literal) => {
        insta::with_settings!({ filters => vec![
            (r"\d+ms|\d+[sm]\b", "[T]"),
            (r"<\[T\]", "[T]"),
            (r"\[T\] ago", "[T]"),
            (r"pid \d+", "pid [PID]"),
            (r"\bnow\b", "in [T]"),
            (r" {2,}", "  "),
        ] }, { assert_snapshot!($ran, @$expected) });
    };
}

fn status(sandbox: &Sandbox, running: &InProcessGateway, words: &[&str]) -> CommandOutput {
    sandbox.run(&[&["status", "--url", &running.url], words].concat())
}

#[test]
fn all_servers_in_a_table() {
    let sandbox = Sandbox::empty();
    let locked = sandbox.serve_http(&["--require-bearer", "secret"]);
    let config = [
        &stdio("github", &[]),
        &(stdio("asleep", &[]) + "lazy = true\n"),
        &url("locked", &locked.url),
        // Its first attempts fail at once; the next one is far away.
        &(url("away", UNUSED_URL) + "restart = { backoff_min = '30s', backoff_max = '30s' }\n"),
        "[servers.missing]\ncommand = 'no-such-program'\n",
        "[servers.off]\ncommand = 'npx'\ndisabled = true\n",
        &(stdio("halted", &[]) + "lazy = true\n"),
    ];
    let running = InProcessGateway::with(&sandbox, &config.concat());
    let states = [
        ("github", "ready"),
        ("locked", "needs_login"),
        ("away", "reconnecting"),
        ("missing", "config_error"),
    ];
    states.iter().for_each(|(server, state)| running.until(server, state));
    running.call("github", "counter");
    running.call("github", "fail");
    running.host.stop("halted").unwrap();
    running.until("halted", "stopped");
    running.until("away", "reconnecting");
    assert_shown!(status(&sandbox, &running, &[]), @"
    exit 0
    --- stdout
    gripfast 0.2.0 · up [T] · 7 servers: 1 ready, 1 idle, 1 needs login, 1 reconnecting, 1 config error, 1 disabled, 1 stopped
    NAME  STATE  VIA  TOOLS  CALLS  ERR  P95  RESTARTS  LAST OK  NOTE
    github  ● ready  stdio  9  2  0  [T]  0  [T]
    asleep  ○ idle  stdio  –  0  0  –  0  –  starts on first use
    locked  ! needs login  auto  –  0  0  –  0  –  run: gripfast login locked
    away  ↻ reconnecting (next in [T])  auto  –  0  0  –  0  –  connection refused
    missing  ✗ config error  stdio  –  0  0  –  0  –  command `no-such-program` was not found on the PATH of its environment
    off  ⊘ disabled  stdio  –  0  0  –  0  –
    halted  ■ stopped  stdio  –  0  0  –  0  –  run: gripfast start halted
    ");
}

#[test]
fn one_server_in_detail() {
    let sandbox = Sandbox::empty();
    let running = InProcessGateway::with(&sandbox, &stdio("demo", &[]));
    running.until("demo", "ready");
    running.call("demo", "counter");
    assert_shown!(status(&sandbox, &running, &["demo"]), @"
    exit 0
    --- stdout
    ● demo is ready for [T]
      server: gripfast-demo 0.2.0
      via: stdio, pid [PID]
      protocol: 2026-07-28 (modern)
      session: [T] old, nothing to restore
      tools: 9
      calls: 1, 0 errors, 0 tool errors, 0 in flight, 0 waiting, p50 [T], p95 [T], last ok [T]
      circuit: closed
      restarts: 0, 0 within the window

    events
      [T]  state_changed  state changed from idle to starting
      [T]  catalog_changed  catalog changed: 13 added, 0 removed, 0 changed
      [T]  state_changed  state changed from starting to ready
    ");
}

#[test]
fn a_server_that_cannot_start_shows_its_stderr() {
    let sandbox = Sandbox::empty();
    let config =
        stdio("demo", &["--exit-at-start", "always", "--exit-code", "7"]) + "restart = { max = 1 }\n";
    let running = InProcessGateway::with(&sandbox, &config);
    running.until("demo", "parked");
    assert_shown!(status(&sandbox, &running, &["demo"]), @"
    exit 0
    --- stdout
    ✗ demo is parked for [T]
      cause: exited with code 7; stderr: demo server: exiting at start, as told
      next attempt: in [T]
      do: `gripfast doctor demo` diagnoses it
      via: stdio
      tools: –
      calls: 0, 0 errors, 0 tool errors, 0 in flight, 0 waiting
      circuit: closed
      restarts: 1, 1 within the window

    events
      [T]  state_changed  state changed from idle to starting
      [T]  restarting  is restarting (once within the window)
      [T]  state_changed  state changed from starting to parked: exited with code 7; stderr: demo server: exiting at start, as told

    stderr
      demo server: exiting at start, as told
      demo server: exiting at start, as told
    ");
}

#[test]
fn json_is_the_answer_of_the_api() {
    let sandbox = Sandbox::empty();
    let running = InProcessGateway::with(&sandbox, &stdio("demo", &[]));
    running.until("demo", "ready");
    let ran = status(&sandbox, &running, &["-o", "json"]);
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "{ran}");
    let head = format!(r#"{{"schema_version":1,"version":"{}","uptime_ms":"#, env!("CARGO_PKG_VERSION"));
    assert!(ran.stdout.starts_with(&head), "{ran}");
    assert!(
        ran.stdout.contains(r#""upstreams":[{"name":"demo","state":"ready","circuit":"closed","#),
        "{ran}"
    );
    let one = status(&sandbox, &running, &["demo", "-o", "json"]);
    assert!(
        one.stdout.starts_with(r#"{"schema_version":1,"name":"demo","state":"ready","circuit":"closed","#),
        "{one}"
    );
}

#[test]
fn no_servers() {
    let sandbox = Sandbox::empty();
    let running = InProcessGateway::with(&sandbox, "");
    assert_shown!(status(&sandbox, &running, &[]), @"
    exit 0
    --- stdout
    gripfast 0.2.0 · up [T] · 0 servers
    ");
}

#[test]
fn an_unknown_server() {
    let sandbox = Sandbox::empty();
    let running = InProcessGateway::with(&sandbox, &(stdio("demo", &[]) + "lazy = true\n"));
    assert_snapshot!(status(&sandbox, &running, &["dmeo"]), @"
    exit 1
    --- stderr
    error: there is no server named `dmeo`
      hint: did you mean `demo`?
    ");
    assert_snapshot!(status(&sandbox, &running, &["dmeo", "-o", "json"]), @r#"
    exit 1
    --- stdout
    {"schema_version":1,"error":{"code":"unknown_server","hint":"did you mean `demo`?","text":"there is no server named `dmeo`"}}
    --- stderr
    error: there is no server named `dmeo`
      hint: did you mean `demo`?
    "#);
}

#[test]
fn no_gateway_listens() {
    assert_snapshot!(Sandbox::empty().run(&["status", "--url", "127.0.0.1:1"]), @"
    exit 4
    --- stderr
    error: no gateway at http://127.0.0.1:[PORT]; start one with `gripfast serve`
      hint: `--url` names another gateway
    ");
}

#[test]
fn something_else_listens() {
    let sandbox = Sandbox::empty();
    let server = sandbox.serve_http(&[]);
    let url = server.url.replace("/mcp", "");
    assert_snapshot!(sandbox.run(&["status", "--url", &url]), @"
    exit 4
    --- stderr
    error: the program at http://127.0.0.1:[PORT] is not a gripfast gateway (HTTP 404)
      hint: `--url` names another gateway
    ");
}

#[test]
fn an_invalid_address() {
    assert_snapshot!(Sandbox::empty().run(&["status", "--url", "ftp://example.com"]), @"
    exit 1
    --- stderr
    error: invalid value 'ftp://example.com' for '--url <URL>': expected http://ADDR:PORT or https://NAME

    For more information, try '--help'.
    ");
}

#[cfg(unix)]
#[test]
fn watch_writes_a_line_per_change_and_waits_for_a_gateway_that_is_gone() {
    use rustix::process::{Pid, Signal, kill_process};
    let sandbox = Sandbox::empty();
    let mut running = InProcessGateway::with(&sandbox, &stdio("demo", &[]));
    running.until("demo", "ready");
    let mut watching = sandbox.command(&["status", "--watch", "--url", &running.url]).spawn().unwrap();
    let (mut stdout, mut stderr) = outputs(&mut watching);
    assert_eq!(stdout(), "demo  ● ready  9 tools");
    running.host.stop("demo").unwrap();
    assert_eq!(stdout(), "demo  ■ stopped  9* tools  run: gripfast start demo");

    running.go();
    assert_eq!(stderr(), format!("no gateway at {}; start one with `gripfast serve`", running.url));
    assert_eq!(stderr(), "retrying every second");
    running.come();
    assert_eq!(stderr(), format!("the gateway at {} is back", running.url));

    kill_process(Pid::from_child(&watching), Signal::INT).unwrap();
    assert_eq!(watching.wait().unwrap().code(), Some(130));
    assert_eq!((stdout(), stderr()), (String::new(), String::new()), "nothing is said twice");
}

/// Reads both streams line by line; an empty line is the end.
#[cfg(unix)]
fn outputs(child: &mut Child) -> (impl FnMut() -> String + use<>, impl FnMut() -> String + use<>) {
    fn lines(stream: impl std::io::Read) -> impl FnMut() -> String {
        let mut reader = BufReader::new(stream);
        move || {
            let mut line = String::new();
            reader.read_line(&mut line).unwrap();
            line.trim_end().to_owned()
        }
    }
    (lines(child.stdout.take().unwrap()), lines(child.stderr.take().unwrap()))
}
