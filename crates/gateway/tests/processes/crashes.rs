//! Crashes of a child: it is restarted, and a call with side effects is never repeated.

use crate::test_host::{TestHost, call};
use gripfast::{CallOutcome, Code, Event, State};
use gripfast_testkit::proc::{is_alive, signal};
use gripfast_testkit::wait::poll;
use rustix::process::Signal;
use serde_json::json;

#[tokio::test]
async fn b02_a_child_killed_while_idle_is_respawned_without_a_call() {
    let test_host = TestHost::new();
    let old = test_host.spawn_ready("demo", test_host.demo(&[])).await;
    signal(old, Signal::KILL);
    let new = test_host.replaced("demo", old).await;
    assert!(is_alive(new) && !is_alive(old));
    let revived = test_host.happened("demo", |event| matches!(event, Event::Revived { .. }));
    assert!(revived, "{:?}", test_host.status("demo").events);
    test_host.echo("demo", "hello again").await;
}

#[tokio::test]
async fn b02_an_unrequested_clean_exit_is_treated_as_a_crash() {
    let test_host = TestHost::new();
    let old = test_host.spawn_ready("demo", test_host.demo(&["--exit-after", "1", "--exit-code", "0"])).await;
    test_host.echo("demo", "last words").await;
    test_host.replaced("demo", old).await;
}

#[tokio::test]
async fn b02_a_child_that_closes_its_stdin_is_replaced_by_the_call_that_finds_out() {
    let test_host = TestHost::new();
    // Answers the handshake and the list, then reads no more, closes its stdin and lives on.
    let script =
        format!("{SPEAK}\nanswer; answer; exec <&-; : >{}; exec sleep 600", test_host.file("closed"));
    let mut spec = test_host.shell(&format!(
        "if [ -e {0} ]; then exec \"$GRIPFAST\" demo-server; fi; : >{0}; {script}",
        test_host.file("begun")
    ));
    spec.protocol = gripfast::config::ProtocolChoice::Legacy;
    // The two say different things about `echo`.
    spec.pins = gripfast::config::PinMode::Off;
    let old = test_host.spawn_ready("half", spec).await;
    poll(|| test_host.path("closed").exists().then_some(())).await.unwrap();
    test_host.echo("half", "is anybody there?").await;
    assert_ne!(test_host.ready("half").await, old);
}

#[tokio::test]
async fn c05_a_side_effect_whose_child_is_killed_runs_once_with_unknown_outcome() {
    let test_host = TestHost::new();
    // Once it has counted, its answers get stuck; its successor has no such trouble.
    let spec = test_host.shell(&format!(
        r#"serve() {{ "$GRIPFAST" demo-server --counter-file {0}; }}
        if [ -e {1} ]; then serve; exit; fi
        : >{1}
        serve | while read -r line; do [ -e {0} ] && exec sleep 600; printf '%s\n' "$line"; done"#,
        test_host.file("counter"),
        test_host.file("begun")
    ));
    let old = test_host.spawn_ready("demo", spec).await;
    let host = test_host.host.clone();
    let counting = tokio::spawn(async move { call(&host, "demo", "counter", json!({ "key": "a" })).await });
    // It has counted, and has not said so yet.
    poll(|| (test_host.lines("counter").len() == 1).then_some(())).await.unwrap();
    signal(old, Signal::KILL);
    let error = counting.await.unwrap().unwrap_err();
    assert_eq!((error.code, error.outcome), (Code::OutcomeUnknown, CallOutcome::Unknown), "{error}");
    test_host.replaced("demo", old).await;
    let next = test_host.call("demo", "counter", json!({ "key": "b" })).await;
    assert_eq!(next.as_deref(), Ok("2"));
    let keys: Vec<String> = test_host.lines("counter").iter().map(|line| line[..1].to_owned()).collect();
    assert_eq!(keys, ["a", "b"], "each call was carried out once");
}

#[tokio::test]
async fn c05_a_call_that_crashes_the_child_is_not_sent_to_the_next_one() {
    let test_host = TestHost::new();
    let starts = test_host.file("starts");
    let old = test_host.spawn_ready("demo", test_host.demo(&["--starts-file", &starts])).await;
    let error = test_host.call("demo", "crash", json!({ "code": 7 })).await.unwrap_err();
    assert_eq!((error.code, error.outcome), (Code::OutcomeUnknown, CallOutcome::Unknown), "{error}");
    assert!(error.text.contains("code 7"), "the exit code is told: {error}");
    test_host.replaced("demo", old).await;
    test_host.echo("demo", "still here").await;
    assert_eq!(test_host.lines("starts").len(), 2, "a second crash would have been a third start");
}

#[tokio::test]
async fn c05_a_read_only_call_is_replayed_to_the_next_child_and_served() {
    let test_host = TestHost::new();
    let spec = test_host.shell(&format!(
        "if [ -e {0} ]; then exec \"$GRIPFAST\" demo-server; fi; : >{0}; \
         exec \"$GRIPFAST\" demo-server --exit-in-call 1",
        test_host.file("begun")
    ));
    let old = test_host.spawn_ready("demo", spec).await;
    test_host.echo("demo", "once more").await;
    assert_ne!(test_host.ready("demo").await, old);
}

#[tokio::test]
async fn c05_a_read_only_call_is_replayed_once_and_no_more() {
    let test_host = TestHost::new();
    let starts = test_host.file("starts");
    let flags = ["--exit-in-call", "1", "--starts-file", &starts];
    test_host.spawn_ready("demo", test_host.demo(&flags)).await;
    let error = test_host.call("demo", "echo", json!({ "text": "x" })).await.unwrap_err();
    assert_eq!(error.code, Code::OutcomeUnknown, "{error}");
    test_host.until("demo", |status| status.supervision.state == State::Ready).await;
    assert_eq!(test_host.lines("starts").len(), 3, "the first, the one of the replay, and the one after it");
}

#[tokio::test]
async fn b04_ten_deaths_with_good_calls_between_them_never_park_a_server() {
    let test_host = TestHost::new();
    let mut events = test_host.host.subscribe_events();
    let mut pid = test_host.spawn_ready("demo", test_host.demo(&[])).await;
    for death in 0..10 {
        signal(pid, Signal::KILL);
        pid = test_host.replaced("demo", pid).await;
        test_host.echo("demo", &format!("after death {death}")).await;
    }
    while let Ok(told) = events.try_recv() {
        let parked = matches!(told.event, Event::StateChanged { to: State::Parked, .. });
        assert!(!parked, "{told:?}");
    }
    assert_eq!(test_host.status("demo").supervision.restarts, 10);
}

/// Shell script with just enough MCP for a legacy handshake and a list of one tool.
const SPEAK: &str = r#"
answer() {
    while read -r line; do
        case $line in
        *'"method":"initialize"'*) result='{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"sh","version":"1"}}' ;;
        *'"method":"tools/list"'*) result='{"tools":[{"name":"echo","inputSchema":{"type":"object"}}]}' ;;
        *) continue ;;
        esac
        id=${line#*'"id":'}
        echo "{\"jsonrpc\":\"2.0\",\"id\":${id%%[,\}]*},\"result\":$result}"
        return
    done
}
"#;
