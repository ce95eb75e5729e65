//! Signals during a verb: no process is left behind, and the exit code shows the signal.

use crate::gateway_process::GatewayProcess;
use crate::sandbox::{Sandbox, WITHOUT_GATEWAY, stdio};
use gripfast_testkit::wait::until_some;
use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use serde_json::json;
use std::io::Read;
use std::path::Path;
use std::process::Child;
use std::time::{Duration, Instant};

#[test]
fn an_interrupted_call_leaves_no_server_behind() {
    assert_eq!(
        code_after(Signal::INT, &["call", WITHOUT_GATEWAY, "demo", "sleep", r#"{"ms": 600000}"#]),
        Some(130)
    );
}

#[test]
fn a_terminated_list_leaves_no_server_behind() {
    assert_eq!(code_after(Signal::TERM, &["tools", WITHOUT_GATEWAY, "--wait", "10m"]), Some(143));
}

/// C03: one deadline from SIGTERM to the end, even if calls and servers hang.
#[test]
fn c03_a_hung_call_and_a_frozen_server_do_not_outlast_the_shutdown_timeout() {
    let sandbox = Sandbox::empty();
    let pid_file = sandbox.path("pid");
    let server = stdio("demo", &["--pid-file", pid_file.to_str().unwrap()]);
    let sandbox = sandbox.file("gripfast.toml", &format!("[gateway]\nshutdown_timeout = \"2s\"\n{server}"));
    let serving = GatewayProcess::start(&sandbox, &[]);
    let pid = until_some("the server runs", || {
        let pid = std::fs::read_to_string(&pid_file).ok()?.parse().ok()?;
        Pid::from_raw(pid)
    });
    let mut call = serving.client().begin("demo__sleep", json!({ "ms": 600_000 }));
    until_some("the call is in flight", || {
        serving.get("/api/v1/status").contains("\"in_flight\":1").then_some(())
    });
    kill_process(pid, Signal::STOP).unwrap();
    let begun = Instant::now();
    let log = serving.end(Signal::TERM);
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}: {log}", begun.elapsed());
    let mut answer = String::new();
    call.read_to_string(&mut answer).unwrap();
    assert!(answer.contains("shutting down"), "{answer}\n{log}");
    // If the timeout is too short to wait for it, the orphan reaper ends it.
    until_some("the server is gone", || test_kill_process(pid).is_err().then_some(()));
}

#[test]
fn the_first_signal_names_what_serve_waits_for_and_the_second_ends_it() {
    let config = format!("[gateway]\nshutdown_timeout = \"10m\"\n{}", stdio("demo", &[]));
    let sandbox = Sandbox::with(&config);
    let mut serving = GatewayProcess::start(&sandbox, &[]);
    until_some("the server runs", || {
        serving.get("/api/v1/status").contains("\"state\":\"ready\"").then_some(())
    });
    let _call = serving.client().begin("demo__sleep", json!({ "ms": 600_000 }));
    until_some("the call is in flight", || {
        serving.get("/api/v1/status").contains("\"in_flight\":1").then_some(())
    });
    kill_process(serving.pid(), Signal::TERM).unwrap();
    serving.hears(
        "stopping: waiting for 1 call in flight (demo: 1), for at most 10 min; a second signal stops at once",
    );
    serving.end(Signal::TERM);
}

#[test]
fn a_call_whose_gateway_is_killed_says_where_to_look() {
    let sandbox = Sandbox::with_demo(&[]);
    let serving = GatewayProcess::start(&sandbox, &[]);
    until_some("the server runs", || {
        serving.get("/api/v1/status").contains("\"state\":\"ready\"").then_some(())
    });
    let words = ["call", "demo", "sleep", "ms=600000", "-o", "json", "--url", &serving.url];
    let call = sandbox.command(&words).spawn().unwrap();
    until_some("the call is in flight", || {
        serving.get("/api/v1/status").contains("\"in_flight\":1").then_some(())
    });
    serving.end(Signal::KILL);
    insta::assert_snapshot!(sandbox.ran(call.wait_with_output().unwrap()), @r#"
    exit 4
    --- stdout
    {"schema_version":1,"error":{"code":"outcome_unknown","hint":"`gripfast calls --server demo` shows its outcome","outcome":"unknown","retry_after_ms":null,"server":"demo","text":"the connection to the gateway was lost during the call; it may have been carried out"}}
    --- stderr
    error: the connection to the gateway was lost during the call; it may have been carried out
      hint: `gripfast calls --server demo` shows its outcome
    "#);
}

/// Runs the verb with a server that never becomes ready, sends the signal once the server runs, and checks that the
/// server has ended.
fn code_after(signal: Signal, words: &[&str]) -> Option<i32> {
    let sandbox = Sandbox::empty();
    let pid_file = sandbox.path("pid");
    let flags = ["--never-answer-initialize", "--pid-file", pid_file.to_str().unwrap()];
    let sandbox = sandbox.file("gripfast.toml", &stdio("demo", &flags));
    let mut gripfast = sandbox.command(words).spawn().unwrap();
    let server = pid_in(&pid_file, &mut gripfast);
    kill_process(Pid::from_child(&gripfast), signal).unwrap();
    let ran = sandbox.ran(gripfast.wait_with_output().unwrap());
    assert_eq!((ran.stdout.as_str(), ran.stderr.as_str()), ("", ""));
    // A zombie would be found too: the parent must reap its child.
    assert!(test_kill_process(server).is_err(), "the server is still there");
    ran.code
}

/// Waits until the server reports that it runs.
fn pid_in(file: &Path, gripfast: &mut Child) -> Pid {
    until_some("the server runs", || {
        assert!(gripfast.try_wait().unwrap().is_none(), "gripfast ended before the signal came");
        std::fs::read_to_string(file).ok().and_then(|text| Pid::from_raw(text.parse().ok()?))
    })
}
