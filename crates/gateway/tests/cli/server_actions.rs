//! `gripfast reconnect`, `reload`, `stop`, `start`: their effect, and the token that they need.

use crate::in_process_gateway::{InProcessGateway, STATE, ask, demo_gateway};
use crate::sandbox::{Sandbox, stdio};
use insta::assert_snapshot;

#[test]
fn f01_stop_and_start() {
    let (sandbox, running) = demo_gateway();
    assert_snapshot!(ask(&sandbox, &running, &["stop", "demo"]), @"
    exit 0
    --- stderr
    server `demo` is stopped
    ");
    running.until("demo", "stopped");
    assert_snapshot!(ask(&sandbox, &running, &["start", "demo"]), @"
    exit 0
    --- stderr
    server `demo` is reconnecting
    ");
    running.until("demo", "ready");
}

#[test]
fn f01_reconnect_and_reload() {
    let (sandbox, running) = demo_gateway();
    let pid = || running.host.server_status("demo").unwrap().pid;
    for verb in ["reconnect", "reload"] {
        let before = pid();
        let ran = ask(&sandbox, &running, &[verb, "demo"]);
        assert!(verb == "reconnect" || ran.stderr.contains("a new connection is being opened"), "{ran}");
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), ""), "{ran}");
        running.until("demo", "ready");
        assert!(pid().is_some() && pid() != before, "{verb}");
    }
}

#[test]
fn an_unknown_server() {
    let (sandbox, running) = demo_gateway();
    assert_snapshot!(ask(&sandbox, &running, &["stop", "dmeo"]), @"
    exit 1
    --- stderr
    error: there is no server named `dmeo`
      hint: did you mean `demo`?
    ");
}

#[test]
fn a_disabled_server() {
    let sandbox = Sandbox::empty();
    let running = InProcessGateway::with(&sandbox, "[servers.off]\ncommand = 'npx'\ndisabled = true\n");
    assert_snapshot!(ask(&sandbox, &running, &["start", "off"]), @"
    exit 4
    --- stderr
    error: server `off` is disabled in the config
      hint: remove `disabled` from `off` in the config
    ");
}

#[test]
fn without_a_gateway() {
    assert_snapshot!(Sandbox::empty().run(&["reconnect", "demo", "--url", "http://127.0.0.1:1"]), @"
    exit 4
    --- stderr
    error: no gateway at http://127.0.0.1:[PORT]; start one with `gripfast serve`
      hint: `--url` names another gateway
    ");
}

#[test]
fn with_another_state_directory() {
    let (sandbox, running) = demo_gateway();
    assert_snapshot!(ask(&sandbox, &running, &["stop", "demo", "--state-dir", "elsewhere"]), @"
    exit 4
    --- stderr
    error: the admin token was not sent to http://127.0.0.1:[PORT]: no gateway with the state directory `elsewhere` listens there
      hint: `--state-dir` names the state directory of the gateway that listens there
    ");
    running.until("demo", "ready");
}

#[test]
fn the_token_of_another_state_directory_is_not_sent() {
    let (sandbox, running) = demo_gateway();
    let sandbox = sandbox.file("admin.token", &"x".repeat(43));
    assert_snapshot!(ask(&sandbox, &running, &["stop", "demo", "--state-dir", "."]), @"
    exit 4
    --- stderr
    error: the admin token was not sent to http://127.0.0.1:[PORT]: no gateway with the state directory `.` listens there
      hint: `--state-dir` names the state directory of the gateway that listens there
    ");
    running.until("demo", "ready");
}

#[test]
fn the_token_is_found_where_the_config_says() {
    let (sandbox, running) = demo_gateway();
    let moved = sandbox.path("moved");
    std::fs::rename(sandbox.path(STATE), &moved).unwrap();
    assert_eq!(ask(&sandbox, &running, &["stop", "demo"]).code, Some(4));
    let sandbox = sandbox.file("gripfast.toml", &format!("[gateway]\nstate_dir = {moved:?}\n"));
    assert_eq!(ask(&sandbox, &running, &["stop", "demo"]).code, Some(0));
    running.until("demo", "stopped");
}

#[test]
fn a_server_can_be_stopped_while_the_config_is_broken() {
    let (sandbox, running) = demo_gateway();
    let sandbox = sandbox.file("gripfast.toml", "[servers.a\n");
    assert_eq!(ask(&sandbox, &running, &["stop", "demo"]).code, Some(0));
    running.until("demo", "stopped");
    let named = ask(&sandbox, &running, &["start", "demo", "--config", "gripfast.toml"]);
    assert_eq!(named.code, Some(2), "unless it was named: {named}");
}

#[test]
fn a_token_that_the_gateway_could_not_use() {
    let sandbox = Sandbox::empty();
    let running = InProcessGateway::with(&sandbox, &(stdio("demo", &[]) + "lazy = true\n"));
    std::fs::write(sandbox.path(STATE).join("admin.token"), "short").unwrap();
    assert_snapshot!(ask(&sandbox, &running, &["stop", "demo"]), @"
    exit 6
    --- stderr
    error: the gateway at http://127.0.0.1:[PORT] refused the admin token in `[DIR]/home/.local/state/gripfast/admin.token`
      hint: this gateway cannot use the token file `[DIR]/home/.local/state/gripfast/admin.token` (it contains no token of 32 characters or more); `gripfast token rotate` creates a new token; `--state-dir` names the state directory of that gateway
    ");
}
