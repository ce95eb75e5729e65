//! `gripfast serve`: the demo, refused addresses, and logs.

use crate::sandbox::{Sandbox, stdio};
use gripfast_testkit::wait::until_some;
#[cfg(unix)]
use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead, BufReader};

#[cfg(unix)]
#[cfg(unix)]
#[test]
fn stdio_at_a_terminal_explains_its_purpose() {
    let sandbox = Sandbox::with_demo(&[]);
    let (code, shown) = crate::trust::at_a_terminal(&sandbox, &["stdio"], "\u{4}");
    assert!(code == Some(0) && shown.contains("is started by MCP clients"), "{code:?}: {shown}");
    let ran = sandbox.run(&["stdio"]);
    assert!(ran.code == Some(0) && ran.stderr.is_empty(), "only at a terminal: {ran}");
}

#[test]
fn the_demo_shows_recovery_without_a_config_and_exits_cleanly() {
    let sandbox = Sandbox::empty();
    let mut demo = sandbox.command(&["serve", "--demo", "--listen", "127.0.0.1:0"]).spawn().unwrap();
    let mut lines = BufReader::new(demo.stdout.take().unwrap()).lines().map(Result::unwrap);
    let first = lines.next().unwrap();
    assert!(first.contains("serves MCP at http://127.0.0.1:") && first.contains("/mcp"), "{first}");
    assert!(first.contains("dashboard: http://127.0.0.1:"), "{first}");
    let command = lines.next().unwrap();
    assert!(command.contains("dashboard, run: gripfast dashboard --state-dir "), "{command}");
    let (_, words) = command.split_once("gripfast ").unwrap();
    let ran = sandbox.run(&words.split(' ').collect::<Vec<_>>());
    assert!(ran.code == Some(0) && ran.stdout.contains("/#/sign-in/"), "{ran}");
    let token = lines.next().unwrap();
    let token = token.rsplit(' ').next().unwrap().to_owned();
    assert!(std::path::Path::new(&token).exists(), "{token}");
    // One line for each recovery.
    let is_crash = |line: &str| line.starts_with("  crashing: lost (") && line.contains("), back after ");
    let is_lapse = |line: &str| line.starts_with("  forgetful: forgot its session");
    let (mut crashes, mut lapses) = (0, 0);
    while crashes < 2 || lapses == 0 {
        let line = lines.next().unwrap();
        assert!(is_crash(&line) || is_lapse(&line), "{line}");
        crashes += usize::from(is_crash(&line));
        lapses += usize::from(is_lapse(&line));
    }
    let pid = Pid::from_raw(i32::try_from(demo.id()).unwrap()).unwrap();
    kill_process(pid, Signal::TERM).unwrap();
    assert_eq!(demo.wait().unwrap().code(), Some(0), "being told to stop is how it ends well");
    assert!(!sandbox.path("home").join(".local").exists(), "the demo keeps nothing");
    assert!(!std::path::Path::new(&token).exists(), "nor what it had meanwhile");
}

#[test]
fn an_address_that_others_could_reach() {
    insta::assert_snapshot!(Sandbox::empty().run(&["serve", "--demo", "--listen", "0.0.0.0:0"]), @"
    exit 1
    --- stderr
    error: `0.0.0.0:0` is not a loopback address, and client authentication is off
      hint: require keys with `auth = { keys = true }` in the table `gateway`, and create one with `gripfast keys add NAME`; or listen on 127.0.0.1 or [::1]
    ");
}

#[test]
fn an_address_that_is_taken_starts_no_server() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let sandbox = Sandbox::empty();
    let servers: Vec<String> = (0..20).map(|number| leaves_a_mark(&sandbox, number)).collect();
    let sandbox = sandbox.file("gripfast.toml", &servers.concat());
    let ran = sandbox.run(&["serve", "--listen", &address]);
    assert_eq!(ran.code, Some(1));
    assert!(ran.stderr.contains("cannot listen on") && ran.stderr.contains("hint:"), "{}", ran.stderr);
    assert!((0..20).all(|number| !sandbox.path(&format!("started-{number}")).exists()));
}

/// Server that writes a file when it starts.
fn leaves_a_mark(sandbox: &Sandbox, number: u32) -> String {
    let mark = sandbox.path(&format!("started-{number}"));
    format!("[servers.s{number}]\ncommand = \"touch\"\nargs = [{mark:?}]\n")
}

#[cfg(unix)]
#[test]
fn a_gateway_logs_state_changes_of_its_servers() {
    let sandbox = Sandbox::with(&stdio("demo", &[]));
    let mut serving = sandbox.command(&["serve", "--listen", "127.0.0.1:0"]).spawn().unwrap();
    let mut lines = BufReader::new(serving.stderr.take().unwrap()).lines().map(Result::unwrap);
    assert!(lines.any(|line| line.contains("INFO") && line.contains("demo") && line.contains("ready")));
    kill_process(Pid::from_child(&serving), Signal::TERM).unwrap();
    assert_eq!(serving.wait().unwrap().code(), Some(0));
}

#[cfg(unix)]
#[test]
fn with_log_format_json_everything_on_stderr_is_json() {
    use crate::gateway_process::GatewayProcess;
    use rustix::process::Signal;
    let warned = "[gateway]\nlog_format = 'json'\n";
    let sandbox = Sandbox::with(&format!("{warned}{}", stdio("demo", &["--exit-at-start", "always"])));
    let serving = GatewayProcess::start(&sandbox, &["--state-dir", "state"]);
    until_some("restarted", || serving.get("/api/v1/status").contains("\"state\":\"parked\"").then_some(()));
    let log = serving.end(Signal::TERM);
    let lines: Vec<serde_json::Value> = log
        .lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}")))
        .collect();
    let parked = lines.iter().find(|line| line["to"] == "parked").unwrap_or_else(|| panic!("{log}"));
    assert_eq!((&parked["level"], &parked["server"]), (&"warn".into(), &"demo".into()), "{parked}");
    assert!(
        parked["timestamp"].is_string() && parked["message"].as_str().unwrap().contains("`demo`"),
        "{parked}"
    );
}
