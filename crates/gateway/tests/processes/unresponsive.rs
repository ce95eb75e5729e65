//! Children that do not answer: a hung tool fails its own call only, and a stopped child is replaced.

use crate::test_host::{TestHost, call, millis};
use gripfast::config::ServerSpec;
use gripfast::{CallOutcome, Code, Event, State};
use gripfast_testkit::proc::{is_alive, signal};
use rustix::process::Signal;
use serde_json::json;

#[tokio::test]
async fn c03_a_child_stopped_for_longer_than_the_deadline_is_killed_and_replaced() {
    let test_host = TestHost::new();
    let old = test_host.spawn_ready("demo", impatient(test_host.demo(&[]))).await;
    signal(old, Signal::STOP);
    let error = test_host.call("demo", "echo", json!({ "text": "x" })).await.unwrap_err();
    assert_eq!((error.code, error.outcome), (Code::Timeout, CallOutcome::Unknown), "{error}");
    test_host.replaced("demo", old).await;
    assert!(!is_alive(old), "a stopped process is killed all the same");
    assert!(test_host.happened("demo", |event| matches!(event, Event::ProbeFailed { .. })));
    test_host.echo("demo", "awake").await;
}

#[tokio::test]
async fn c03_a_tool_that_hangs_fails_alone_and_its_child_stays() {
    let test_host = TestHost::new();
    let old = test_host.spawn_ready("demo", impatient(test_host.demo(&[]))).await;
    let host = test_host.host.clone();
    let hanging =
        tokio::spawn(async move { call(&host, "demo", "misbehave", json!({ "how": "hang" })).await });
    test_host.until("demo", |status| status.supervision.in_flight == 1).await;
    test_host.echo("demo", "meanwhile").await;
    let error = hanging.await.unwrap().unwrap_err();
    assert_eq!((error.code, error.outcome), (Code::Timeout, CallOutcome::Unknown), "{error}");
    test_host.echo("demo", "afterwards").await;
    assert_eq!(test_host.status("demo").pid, Some(old));
    assert!(!test_host.happened("demo", |event| matches!(event, Event::ProbeFailed { .. })));
}

#[tokio::test]
async fn b03_a_child_that_never_answers_the_handshake_is_killed_and_parked() {
    let test_host = TestHost::new();
    let starts = test_host.file("starts");
    let stubborn = ["--never-answer-initialize", "--ignore-stdin-close", "--ignore-sigterm"];
    let mut spec = test_host.demo(&[&stubborn[..], &["--starts-file", &starts]].concat());
    spec.supervision.timeouts.connect = millis(300);
    spec.supervision.restart.max = 2;
    test_host.host.spawn("mute", spec).unwrap();
    let parked = test_host.state("mute", State::Parked).await;
    let cause = parked.supervision.cause.unwrap();
    assert!(cause.contains("no answer within"), "{cause}");
    assert!(parked.supervision.next_attempt.is_some());
    test_host.nothing_is_left().await;
    assert!((1..=3).contains(&test_host.lines("starts").len()), "one start and two restarts at the most");
    let error = test_host.call("mute", "echo", json!({ "text": "x" })).await.unwrap_err();
    assert_eq!((error.code, error.outcome), (Code::Unreachable, CallOutcome::NotSent), "{error}");
}

/// Long enough for a call on a busy machine, short enough for a test.
fn impatient(mut spec: ServerSpec) -> ServerSpec {
    spec.supervision.timeouts.call = millis(600);
    spec.supervision.keepalive.timeout = millis(600);
    spec
}
