//! Malformed output of a child: messages that are too large or incomplete, and floods of stderr or notifications.

use crate::own_process::in_own_process;
use crate::test_host::{TestHost, call, millis};
use gripfast::Code;
use gripfast_testkit::proc::{memory, peak_memory};
use gripfast_testkit::wait::poll;
use serde_json::json;

const MEBIBYTE: usize = 1 << 20;

#[test]
fn g07_an_oversized_message_fails_its_own_call_only_and_memory_is_bounded() {
    let name = "g07_an_oversized_message_fails_its_own_call_only_and_memory_is_bounded";
    in_own_process(module_path!(), name, async {
        let test_host = TestHost::new();
        let mut spec = test_host.demo(&["--counter-file", &test_host.file("counter")]);
        spec.max_message = MEBIBYTE;
        let pid = test_host.spawn_ready("demo", spec).await;
        let large = |size: usize| json!({ "how": "huge_frame", "size": size });
        let fitting = test_host.call("demo", "misbehave", large(MEBIBYTE / 2)).await.unwrap();
        assert_eq!(fitting.len(), MEBIBYTE / 2);
        let before = peak_memory(std::process::id());
        let host = test_host.host.clone();
        let other = tokio::spawn(async move { call(&host, "demo", "counter", json!({ "ms": 300 })).await });
        poll(|| (test_host.lines("counter").len() == 1).then_some(())).await.unwrap();
        let error = test_host.call("demo", "misbehave", large(100 * MEBIBYTE)).await.unwrap_err();
        assert_eq!(error.code, Code::UpstreamProtocol, "{error}");
        assert!(error.text.contains("1048576 bytes"), "{error}");
        let grown = peak_memory(std::process::id()) - before;
        assert!(grown < 16 * MEBIBYTE, "{grown} bytes more for a message of 100 MiB");
        assert_eq!(other.await.unwrap().as_deref(), Ok("1"), "an innocent call with a side effect");
        test_host.echo("demo", "in moderation").await;
        assert_eq!(test_host.status("demo").pid, Some(pid));
    });
}

#[tokio::test]
async fn g07_an_oversized_message_without_an_id_ends_the_link_and_safe_calls_go_on() {
    let test_host = TestHost::new();
    // Its first answer to a call is a batch of spaces without end to its usefulness; its successor is sane.
    let flood = format!("[{}]", " ".repeat(2 * MEBIBYTE));
    std::fs::write(test_host.path("flood"), format!("{flood}\n")).unwrap();
    let mut spec = test_host.shell(&format!(
        r#"if [ -e {1} ]; then exec "$GRIPFAST" demo-server; fi
        : >{1}
        "$GRIPFAST" demo-server | while read -r line; do
            case $line in *hello*) cat {0}; exec sleep 600 ;; esac
            printf '%s\n' "$line"
        done"#,
        test_host.file("flood"),
        test_host.file("begun")
    ));
    spec.max_message = MEBIBYTE;
    let old = test_host.spawn_ready("demo", spec).await;
    test_host.echo("demo", "hello").await;
    assert_ne!(test_host.ready("demo").await, old);
}

#[tokio::test]
async fn g07_half_a_message_before_the_death_of_the_child_is_no_answer() {
    let test_host = TestHost::new();
    let old = test_host.spawn_ready("demo", test_host.demo(&[])).await;
    let error = test_host.call("demo", "crash", json!({ "how": "half_frame" })).await.unwrap_err();
    assert_eq!(error.code, Code::OutcomeUnknown, "{error}");
    test_host.replaced("demo", old).await;
    test_host.echo("demo", "a whole one").await;
}

#[tokio::test]
async fn g07_a_message_in_two_pieces_is_one_message() {
    let test_host = TestHost::new();
    let pid = test_host.spawn_ready("demo", test_host.demo(&[])).await;
    let answer = test_host.call("demo", "misbehave", json!({ "how": "half_frame" })).await;
    assert_eq!(answer.as_deref(), Ok("half_frame"));
    test_host.echo("demo", "another one").await;
    assert_eq!(test_host.status("demo").pid, Some(pid));
}

#[tokio::test]
async fn g06_a_child_that_floods_its_stderr_is_not_blocked_and_its_last_lines_stay() {
    let test_host = TestHost::new();
    let flood = (8 * MEBIBYTE).to_string();
    let pid = test_host.spawn_ready("demo", test_host.demo(&["--fill-stderr", &flood])).await;
    let more = json!({ "how": "stderr_flood", "size": 8 * MEBIBYTE });
    let answer = test_host.call("demo", "misbehave", more).await;
    assert_eq!(answer.as_deref(), Ok("stderr_flood"));
    test_host.echo("demo", "over the noise").await;
    let status = test_host.status("demo");
    assert_eq!(status.pid, Some(pid));
    assert_eq!(status.stderr.len(), 20);
    assert!(status.stderr[0].starts_with("demo server: filling stderr"), "{:?}", status.stderr[0]);
}

#[tokio::test]
async fn g07_a_child_that_floods_the_handshake_with_messages_is_read_to_the_end() {
    let test_host = TestHost::new();
    // More than fits anywhere on the way, before the first answer.
    let chatter = r#"i=0; while [ $i -lt 2000 ]; do
        echo '{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"loading"}}'
        i=$((i + 1)); done; exec "$GRIPFAST" demo-server"#;
    test_host.spawn_ready("demo", test_host.shell(chatter)).await;
    test_host.echo("demo", "at last").await;
}

#[test]
fn g07_cancelled_requests_to_a_child_that_does_not_read_free_their_memory() {
    let name = "g07_cancelled_requests_to_a_child_that_does_not_read_free_their_memory";
    in_own_process(module_path!(), name, async {
        let test_host = TestHost::new();
        test_host.spawn_ready("demo", test_host.demo(&[])).await;
        let stop = json!({ "how": "stop_reading", "ms": 60_000 });
        assert_eq!(test_host.call("demo", "misbehave", stop).await.as_deref(), Ok("stop_reading"));
        let (before, text) = (memory(std::process::id()), "x".repeat(4 << 20));
        for _ in 0..40 {
            let calling = test_host.call("demo", "echo", json!({ "text": text }));
            assert!(tokio::time::timeout(millis(20), calling).await.is_err(), "the child does not read it");
        }
        let grown = memory(std::process::id()).saturating_sub(before) >> 20;
        assert!(grown < 64, "{grown} MiB more than before");
    });
}
