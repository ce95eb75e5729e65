//! A child that does not answer costs the one call that waits for it, and is replaced if it hears nothing at all.

use crate::proc::{is_alive, signal};
use crate::stage::{Stage, call, millis};
use gripfast::config::ServerSpec;
use gripfast::{Code, Event, Fate, State};
use rustix::process::Signal;
use serde_json::json;

#[tokio::test]
async fn c03_a_child_stopped_for_longer_than_the_deadline_is_killed_and_replaced() {
    let stage = Stage::new();
    let old = stage.spawn_ready("demo", impatient(stage.demo(&[]))).await;
    signal(old, Signal::STOP);
    let error = stage.call("demo", "echo", json!({ "text": "x" })).await.unwrap_err();
    assert_eq!((error.code, error.outcome), (Code::Timeout, Fate::Unknown), "{error}");
    stage.replaced("demo", old).await;
    assert!(!is_alive(old), "a stopped process is killed all the same");
    assert!(stage.happened("demo", |event| matches!(event, Event::ProbeFailed { .. })));
    stage.echo("demo", "awake").await;
}

#[tokio::test]
async fn c03_a_tool_that_hangs_fails_alone_and_its_child_stays() {
    let stage = Stage::new();
    let old = stage.spawn_ready("demo", impatient(stage.demo(&[]))).await;
    let host = stage.host.clone();
    let hanging =
        tokio::spawn(async move { call(&host, "demo", "misbehave", json!({ "how": "hang" })).await });
    stage.until("demo", |status| status.supervision.in_flight == 1).await;
    stage.echo("demo", "meanwhile").await;
    let error = hanging.await.unwrap().unwrap_err();
    assert_eq!((error.code, error.outcome), (Code::Timeout, Fate::Unknown), "{error}");
    stage.echo("demo", "afterwards").await;
    assert_eq!(stage.status("demo").pid, Some(old));
    assert!(!stage.happened("demo", |event| matches!(event, Event::ProbeFailed { .. })));
}

#[tokio::test]
async fn b03_a_child_that_never_answers_the_handshake_is_given_up_and_leaves_nothing_behind() {
    let stage = Stage::new();
    let starts = stage.file("starts");
    let stubborn = ["--never-answer-initialize", "--ignore-stdin-close", "--ignore-sigterm"];
    let mut spec = stage.demo(&[&stubborn[..], &["--starts-file", &starts]].concat());
    spec.supervision.timeouts.connect = millis(300);
    spec.supervision.restart.max = 2;
    stage.host.spawn("mute", spec).unwrap();
    let parked = stage.state("mute", State::Parked).await;
    let cause = parked.supervision.cause.unwrap();
    assert!(cause.contains("no answer within"), "{cause}");
    assert!(parked.supervision.next_attempt.is_some());
    stage.nothing_is_left().await;
    assert!((1..=3).contains(&stage.lines("starts").len()), "one start and two restarts at the most");
    let error = stage.call("mute", "echo", json!({ "text": "x" })).await.unwrap_err();
    assert_eq!((error.code, error.outcome), (Code::Unreachable, Fate::NotSent), "{error}");
}

/// Long enough for a call on a busy machine, short enough for a test.
fn impatient(mut spec: ServerSpec) -> ServerSpec {
    spec.supervision.timeouts.call = millis(600);
    spec.supervision.keepalive.timeout = millis(600);
    spec
}
