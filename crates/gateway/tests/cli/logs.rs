//! `gripfast logs` and `gripfast events`: past entries, and following new ones.

#[cfg(unix)]
use crate::gateway_process::GatewayProcess;
use crate::in_process_gateway::{InProcessGateway, ask};
use crate::sandbox::{Sandbox, stdio};
use insta::assert_snapshot;
use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdout};

/// Server that prints two lines, exits, and is parked soon.
fn failing() -> (Sandbox, InProcessGateway) {
    let sandbox = Sandbox::empty();
    let config = stdio("demo", &["--exit-at-start", "always"]) + "restart = { max = 1 }\n";
    let running = InProcessGateway::with(&sandbox, &config);
    running.until("demo", "parked");
    (sandbox, running)
}

/// Running command that follows; killed on drop.
struct FollowCommand {
    child: Child,
    stdout: BufReader<ChildStdout>,
}

impl FollowCommand {
    fn of(sandbox: &Sandbox, running: &InProcessGateway, words: &[&str]) -> Self {
        let mut child = sandbox.command(&[words, &["--url", &running.url]].concat()).spawn().unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        Self { child, stdout }
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.stdout.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }
}

impl Drop for FollowCommand {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn the_last_lines_of_a_server_that_died() {
    let (sandbox, running) = failing();
    assert_snapshot!(ask(&sandbox, &running, &["logs", "demo"]), @"
    exit 0
    --- stdout
    demo server: exiting at start, as told
    demo server: exiting at start, as told
    ");
    assert_snapshot!(ask(&sandbox, &running, &["logs", "demo", "-n", "1", "-o", "json"]), @r#"
    exit 0
    --- stdout
    {"schema_version":1,"server":"demo","number":1,"text":"demo server: exiting at start, as told"}
    "#);
}

#[test]
fn a_server_that_wrote_nothing() {
    let sandbox = Sandbox::empty();
    let running = InProcessGateway::with(&sandbox, &(stdio("demo", &[]) + "lazy = true\n"));
    assert_snapshot!(ask(&sandbox, &running, &["logs", "demo"]), @"
    exit 0
    --- stderr
    server `demo` has written nothing to stderr
    ");
    assert_snapshot!(ask(&sandbox, &running, &["logs", "dmeo"]), @"
    exit 1
    --- stderr
    error: there is no server named `dmeo`
      hint: did you mean `demo`?
    ");
}

#[test]
fn every_command_prints_the_error_code_of_the_gateway_as_json() {
    let sandbox = Sandbox::empty();
    let running = InProcessGateway::with(&sandbox, &(stdio("demo", &[]) + "lazy = true\n"));
    for command in ["logs", "events", "status", "stop"] {
        let printed = ask(&sandbox, &running, &[command, "dmeo", "-o", "json"]).stdout;
        let printed: serde_json::Value = serde_json::from_str(&printed).unwrap();
        assert_eq!(printed["error"]["code"], "unknown_server", "{command}: {printed}");
        assert_eq!(printed["error"]["hint"], "did you mean `demo`?", "{command}: {printed}");
    }
}

#[test]
fn a_log_is_followed_across_a_crash_of_its_server() {
    let (sandbox, running) = failing();
    let mut following = FollowCommand::of(&sandbox, &running, &["logs", "demo", "-f", "-n", "1"]);
    let said = "demo server: exiting at start, as told";
    assert_eq!(following.line(), said);
    running.host.reconnect("demo").unwrap();
    assert_eq!(following.line(), said, "of the next child");
}

#[test]
fn the_last_events_in_their_order() {
    let (sandbox, running) = failing();
    let filters = vec![(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", "[TIME]")];
    insta::with_settings!({ filters => filters }, {
        assert_snapshot!(ask(&sandbox, &running, &["events"]), @"
        exit 0
        --- stdout
        [TIME]  demo  state changed from idle to starting
        [TIME]  demo  is restarting (once within the window)
        [TIME]  demo  state changed from starting to parked: exited with code 1; stderr: demo server: exiting at start, as told
        ");
    });
    let json = ask(&sandbox, &running, &["events", "demo", "-o", "json"]);
    let first: serde_json::Value = serde_json::from_str(json.stdout.lines().next().unwrap()).unwrap();
    assert_eq!((&first["server"], &first["kind"]), (&"demo".into(), &"state_changed".into()));
}

#[test]
fn events_are_followed_without_repeats() {
    let sandbox = Sandbox::empty();
    let running = InProcessGateway::with(&sandbox, &stdio("demo", &[]));
    running.until("demo", "ready");
    let mut following = FollowCommand::of(&sandbox, &running, &["events", "-f"]);
    let text = |line: String| line.split_once("  ").map(|(_, text)| text.to_owned()).unwrap_or_default();
    assert_eq!(text(following.line()), "demo  state changed from idle to starting");
    assert!(following.line().contains("catalog changed"));
    assert_eq!(text(following.line()), "demo  state changed from starting to ready");
    running.host.stop("demo").unwrap();
    assert_eq!(text(following.line()), "demo  state changed from ready to stopped");
}

#[cfg(unix)]
#[test]
fn g05_events_show_the_operator_what_was_done_through_the_control_socket() {
    let config = format!("[gateway]\nauth = {{ keys = true }}\n\n{}", stdio("demo", &[]));
    let sandbox = Sandbox::with(&config);
    let gateway = GatewayProcess::start(&sandbox, &[]);
    let run = |words: &[&str]| {
        let ran = sandbox.run(&[words, &["--url", &gateway.url]].concat());
        assert_eq!(ran.code, Some(0), "{ran}");
        ran.stdout
    };
    run(&["stop", "demo"]);
    let done = "(gateway)  admin action `stop` on server `demo` from control socket: HTTP 202";
    let told = run(&["events"]);
    assert!(told.lines().any(|line| line.ends_with(done)), "{told}");
    let told = run(&["events", "demo"]);
    assert!(told.contains("demo  ") && !told.contains("(gateway)"), "one server is asked about: {told}");
}
