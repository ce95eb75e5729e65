//! A signal in the middle of a verb: everything is put away, and the exit code says why.

use crate::sandbox::{ALONE, Sandbox, stdio};
use crate::serving::{Serving, until};
use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use serde_json::json;
use std::io::Read;
use std::path::Path;
use std::process::Child;
use std::time::{Duration, Instant};

#[test]
fn an_interrupted_call_leaves_no_server_behind() {
    assert_eq!(code_after(Signal::INT, &["call", ALONE, "demo", "sleep", r#"{"ms": 600000}"#]), Some(130));
}

#[test]
fn a_terminated_list_leaves_no_server_behind() {
    assert_eq!(code_after(Signal::TERM, &["tools", ALONE, "--wait", "10m"]), Some(143));
}

/// C03: one deadline from SIGTERM to the end, whatever hangs.
#[test]
fn c03_a_hung_call_and_a_frozen_server_do_not_outlast_the_shutdown_timeout() {
    let sandbox = Sandbox::empty();
    let pid_file = sandbox.path("pid");
    let server = stdio("demo", &["--pid-file", pid_file.to_str().unwrap()]);
    let sandbox = sandbox.file("gripfast.toml", &format!("[gateway]\nshutdown_timeout = \"2s\"\n{server}"));
    let serving = Serving::start(&sandbox, &[]);
    let pid = until("the server runs", || {
        let pid = std::fs::read_to_string(&pid_file).ok()?.parse().ok()?;
        Pid::from_raw(pid)
    });
    let mut call = serving.client().begin("demo__sleep", json!({ "ms": 600_000 }));
    until("the call is in flight", || {
        serving.get("/api/v1/status").contains("\"in_flight\":1").then_some(())
    });
    kill_process(pid, Signal::STOP).unwrap();
    let begun = Instant::now();
    let log = serving.end(Signal::TERM);
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}: {log}", begun.elapsed());
    let mut answer = String::new();
    call.read_to_string(&mut answer).unwrap();
    assert!(answer.contains("shutting down"), "{answer}\n{log}");
    // Where the time is too short to wait for it, the watcher ends it.
    until("the server is gone", || test_kill_process(pid).is_err().then_some(()));
}

/// Runs the verb with a server that never gets anywhere, sends the signal once the server runs, and sees that
/// it is gone in the end.
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
    // A zombie would be found too: whoever starts a process waits for its end.
    assert!(test_kill_process(server).is_err(), "the server is still there");
    ran.code
}

/// Waits for the server to say that it runs.
fn pid_in(file: &Path, gripfast: &mut Child) -> Pid {
    let deadline = Instant::now() + Duration::from_secs(60);
    while Instant::now() < deadline {
        if let Some(pid) = std::fs::read_to_string(file).ok().and_then(|text| text.parse().ok()) {
            return Pid::from_raw(pid).unwrap();
        }
        assert!(gripfast.try_wait().unwrap().is_none(), "gripfast ended before the signal came");
        std::thread::sleep(Duration::from_millis(5));
    }
    panic!("the server never started");
}
