//! Bad bytes do no harm: messages that are too large, broken off or drowned in noise.

use crate::alone::alone;
use crate::proc::{memory, peak_memory};
use crate::stage::{Stage, call, millis, until};
use gripfast::Code;
use serde_json::json;

const MEBIBYTE: usize = 1 << 20;

#[test]
fn g07_a_message_over_the_limit_costs_its_own_call_only_and_memory_stays_bounded() {
    let name = "g07_a_message_over_the_limit_costs_its_own_call_only_and_memory_stays_bounded";
    alone(module_path!(), name, async {
        let stage = Stage::new();
        let mut spec = stage.demo(&["--counter-file", &stage.file("counter")]);
        spec.max_message = MEBIBYTE;
        let pid = stage.spawn_ready("demo", spec).await;
        let large = |size: usize| json!({ "how": "huge_frame", "size": size });
        let fitting = stage.call("demo", "misbehave", large(MEBIBYTE / 2)).await.unwrap();
        assert_eq!(fitting.len(), MEBIBYTE / 2);
        let before = peak_memory();
        let host = stage.host.clone();
        let other = tokio::spawn(async move { call(&host, "demo", "counter", json!({ "ms": 300 })).await });
        until(|| (stage.lines("counter").len() == 1).then_some(())).await.unwrap();
        let error = stage.call("demo", "misbehave", large(100 * MEBIBYTE)).await.unwrap_err();
        assert_eq!(error.code, Code::UpstreamProtocol, "{error}");
        assert!(error.text.contains("1048576 bytes"), "{error}");
        let grown = peak_memory() - before;
        assert!(grown < 16 * MEBIBYTE, "{grown} bytes more for a message of 100 MiB");
        assert_eq!(other.await.unwrap().as_deref(), Ok("1"), "an innocent call with a side effect");
        stage.echo("demo", "in moderation").await;
        assert_eq!(stage.status("demo").pid, Some(pid));
    });
}

#[tokio::test]
async fn g07_a_message_over_the_limit_that_names_nobody_ends_the_link_and_harmless_calls_go_on() {
    let stage = Stage::new();
    // Its first answer to a call is a batch of spaces without end to its usefulness; its successor is sane.
    let flood = format!("[{}]", " ".repeat(2 * MEBIBYTE));
    std::fs::write(stage.path("flood"), format!("{flood}\n")).unwrap();
    let mut spec = stage.shell(&format!(
        r#"if [ -e {1} ]; then exec "$GRIPFAST" demo-server; fi
        : >{1}
        "$GRIPFAST" demo-server | while read -r line; do
            case $line in *hello*) cat {0}; exec sleep 600 ;; esac
            printf '%s\n' "$line"
        done"#,
        stage.file("flood"),
        stage.file("begun")
    ));
    spec.max_message = MEBIBYTE;
    let old = stage.spawn_ready("demo", spec).await;
    stage.echo("demo", "hello").await;
    assert_ne!(stage.ready("demo").await, old);
}

#[tokio::test]
async fn g07_half_a_message_before_the_death_of_the_child_is_no_answer() {
    let stage = Stage::new();
    let old = stage.spawn_ready("demo", stage.demo(&[])).await;
    let error = stage.call("demo", "crash", json!({ "how": "half_frame" })).await.unwrap_err();
    assert_eq!(error.code, Code::OutcomeUnknown, "{error}");
    stage.replaced("demo", old).await;
    stage.echo("demo", "a whole one").await;
}

#[tokio::test]
async fn g07_a_message_in_two_pieces_is_one_message() {
    let stage = Stage::new();
    let pid = stage.spawn_ready("demo", stage.demo(&[])).await;
    let answer = stage.call("demo", "misbehave", json!({ "how": "half_frame" })).await;
    assert_eq!(answer.as_deref(), Ok("half_frame"));
    stage.echo("demo", "another one").await;
    assert_eq!(stage.status("demo").pid, Some(pid));
}

#[tokio::test]
async fn g06_a_child_that_floods_its_stderr_is_not_held_up_and_its_last_lines_are_kept() {
    let stage = Stage::new();
    let flood = (8 * MEBIBYTE).to_string();
    let pid = stage.spawn_ready("demo", stage.demo(&["--fill-stderr", &flood])).await;
    let more = json!({ "how": "stderr_flood", "size": 8 * MEBIBYTE });
    let answer = stage.call("demo", "misbehave", more).await;
    assert_eq!(answer.as_deref(), Ok("stderr_flood"));
    stage.echo("demo", "over the noise").await;
    let status = stage.status("demo");
    assert_eq!(status.pid, Some(pid));
    assert_eq!(status.stderr.len(), 20);
    assert!(status.stderr[0].starts_with("demo server: filling stderr"), "{:?}", status.stderr[0]);
}

#[tokio::test]
async fn g07_a_child_that_never_stops_talking_in_the_handshake_is_heard_out() {
    let stage = Stage::new();
    // More than fits anywhere on the way, before the first answer.
    let chatter = r#"i=0; while [ $i -lt 2000 ]; do
        echo '{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"loading"}}'
        i=$((i + 1)); done; exec "$GRIPFAST" demo-server"#;
    stage.spawn_ready("demo", stage.shell(chatter)).await;
    stage.echo("demo", "at last").await;
}

#[test]
fn g07_requests_that_were_given_up_leave_nothing_in_memory_behind_a_child_that_does_not_read() {
    let name = "g07_requests_that_were_given_up_leave_nothing_in_memory_behind_a_child_that_does_not_read";
    alone(module_path!(), name, async {
        let stage = Stage::new();
        stage.spawn_ready("demo", stage.demo(&[])).await;
        let stop = json!({ "how": "stop_reading", "ms": 60_000 });
        assert_eq!(stage.call("demo", "misbehave", stop).await.as_deref(), Ok("stop_reading"));
        let (before, text) = (memory(), "x".repeat(4 << 20));
        for _ in 0..40 {
            let calling = stage.call("demo", "echo", json!({ "text": text }));
            assert!(tokio::time::timeout(millis(20), calling).await.is_err(), "nobody reads it");
        }
        let grown = memory().saturating_sub(before) >> 20;
        assert!(grown < 64, "{grown} MiB more than before");
    });
}
