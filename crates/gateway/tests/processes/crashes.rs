//! A child that dies is brought back, and what it was doing is never done twice.

use crate::proc::{is_alive, signal};
use crate::stage::{Stage, call, until};
use gripfast::{Code, Event, Fate, State};
use rustix::process::Signal;
use serde_json::json;

#[tokio::test]
async fn b02_a_child_killed_while_idle_is_respawned_without_anybody_calling() {
    let stage = Stage::new();
    let old = stage.spawn_ready("demo", stage.demo(&[])).await;
    signal(old, Signal::KILL);
    let new = stage.replaced("demo", old).await;
    assert!(is_alive(new) && !is_alive(old));
    let revived = stage.happened("demo", |event| matches!(event, Event::Revived { .. }));
    assert!(revived, "{:?}", stage.status("demo").events);
    stage.echo("demo", "hello again").await;
}

#[tokio::test]
async fn b02_a_clean_exit_that_nobody_asked_for_is_a_death_too() {
    let stage = Stage::new();
    let old = stage.spawn_ready("demo", stage.demo(&["--exit-after", "1", "--exit-code", "0"])).await;
    stage.echo("demo", "last words").await;
    stage.replaced("demo", old).await;
}

#[tokio::test]
async fn b02_a_child_that_closes_its_stdin_is_replaced_by_the_call_that_finds_out() {
    let stage = Stage::new();
    // Answers the handshake and the list, then reads no more, closes its stdin and lives on.
    let script = format!("{SPEAK}\nanswer; answer; exec <&-; : >{}; exec sleep 600", stage.file("closed"));
    let mut spec = stage.shell(&format!(
        "if [ -e {0} ]; then exec \"$GRIPFAST\" demo-server; fi; : >{0}; {script}",
        stage.file("begun")
    ));
    spec.protocol = gripfast::config::ProtocolChoice::Legacy;
    // The two say different things about `echo`.
    spec.pins = gripfast::config::PinMode::Off;
    let old = stage.spawn_ready("half", spec).await;
    until(|| stage.path("closed").exists().then_some(())).await.unwrap();
    stage.echo("half", "is anybody there?").await;
    assert_ne!(stage.ready("half").await, old);
}

#[tokio::test]
async fn c05_a_call_with_a_side_effect_whose_child_is_killed_is_carried_out_once_and_its_outcome_unknown() {
    let stage = Stage::new();
    // Once it has counted, its answers get stuck; its successor has no such trouble.
    let spec = stage.shell(&format!(
        r#"serve() {{ "$GRIPFAST" demo-server --counter-file {0}; }}
        if [ -e {1} ]; then serve; exit; fi
        : >{1}
        serve | while read -r line; do [ -e {0} ] && exec sleep 600; printf '%s\n' "$line"; done"#,
        stage.file("counter"),
        stage.file("begun")
    ));
    let old = stage.spawn_ready("demo", spec).await;
    let host = stage.host.clone();
    let counting = tokio::spawn(async move { call(&host, "demo", "counter", json!({ "key": "a" })).await });
    // It has counted, and has not said so yet.
    until(|| (stage.lines("counter").len() == 1).then_some(())).await.unwrap();
    signal(old, Signal::KILL);
    let error = counting.await.unwrap().unwrap_err();
    assert_eq!((error.code, error.outcome), (Code::OutcomeUnknown, Fate::Unknown), "{error}");
    stage.replaced("demo", old).await;
    let next = stage.call("demo", "counter", json!({ "key": "b" })).await;
    assert_eq!(next.as_deref(), Ok("2"));
    let keys: Vec<String> = stage.lines("counter").iter().map(|line| line[..1].to_owned()).collect();
    assert_eq!(keys, ["a", "b"], "each call was carried out once");
}

#[tokio::test]
async fn c05_a_call_that_crashes_the_child_is_not_sent_to_the_next_one() {
    let stage = Stage::new();
    let starts = stage.file("starts");
    let old = stage.spawn_ready("demo", stage.demo(&["--starts-file", &starts])).await;
    let error = stage.call("demo", "crash", json!({ "code": 7 })).await.unwrap_err();
    assert_eq!((error.code, error.outcome), (Code::OutcomeUnknown, Fate::Unknown), "{error}");
    assert!(error.text.contains("code 7"), "the exit code is told: {error}");
    stage.replaced("demo", old).await;
    stage.echo("demo", "still here").await;
    assert_eq!(stage.lines("starts").len(), 2, "a second crash would have been a third start");
}

#[tokio::test]
async fn c05_a_read_only_call_is_replayed_to_the_next_child_and_served() {
    let stage = Stage::new();
    let spec = stage.shell(&format!(
        "if [ -e {0} ]; then exec \"$GRIPFAST\" demo-server; fi; : >{0}; \
         exec \"$GRIPFAST\" demo-server --exit-in-call 1",
        stage.file("begun")
    ));
    let old = stage.spawn_ready("demo", spec).await;
    stage.echo("demo", "once more").await;
    assert_ne!(stage.ready("demo").await, old);
}

#[tokio::test]
async fn c05_a_read_only_call_is_replayed_once_and_no_more() {
    let stage = Stage::new();
    let starts = stage.file("starts");
    let flags = ["--exit-in-call", "1", "--starts-file", &starts];
    stage.spawn_ready("demo", stage.demo(&flags)).await;
    let error = stage.call("demo", "echo", json!({ "text": "x" })).await.unwrap_err();
    assert_eq!(error.code, Code::OutcomeUnknown, "{error}");
    stage.until("demo", |status| status.supervision.state == State::Ready).await;
    assert_eq!(stage.lines("starts").len(), 3, "the first, the one of the replay, and the one after it");
}

#[tokio::test]
async fn b04_ten_deaths_with_good_calls_between_them_never_park_a_server() {
    let stage = Stage::new();
    let mut events = stage.host.events();
    let mut pid = stage.spawn_ready("demo", stage.demo(&[])).await;
    for death in 0..10 {
        signal(pid, Signal::KILL);
        pid = stage.replaced("demo", pid).await;
        stage.echo("demo", &format!("after death {death}")).await;
    }
    while let Ok(told) = events.try_recv() {
        let parked = matches!(told.event, Event::StateChanged { to: State::Parked, .. });
        assert!(!parked, "{told:?}");
    }
    assert_eq!(stage.status("demo").supervision.restarts, 10);
}

/// A shell that speaks just enough MCP for a handshake of the legacy era and a list of one tool.
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
