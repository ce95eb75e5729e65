//! Calls beside calls, servers beside servers: nobody waits for somebody else's trouble.

use crate::stage::{LONG_ENOUGH, Stage, call, millis, until};
use gripfast::{Code, State};
use serde_json::{Value, json};
use std::collections::BTreeMap;

#[tokio::test]
async fn c06_slow_calls_to_one_child_run_side_by_side() {
    let stage = Stage::new();
    stage.spawn_ready("demo", stage.demo(&[])).await;
    // Had they to take turns, the first would keep the others waiting for ten minutes.
    let endless = stage.call("demo", "sleep", json!({ "ms": 600_000 }));
    let others = async {
        stage.until("demo", |status| status.supervision.in_flight == 1).await;
        let slow = || stage.call("demo", "sleep", json!({ "ms": 100 }));
        tokio::join!(slow(), slow())
    };
    let (one, two) = tokio::select! {
        answer = endless => panic!("{answer:?}"),
        answers = others => answers,
    };
    assert_eq!((one.as_deref(), two.as_deref()), (Ok("slept 100 ms"), Ok("slept 100 ms")));
}

#[tokio::test]
async fn c06_a_child_that_stops_reading_costs_bounded_time_and_nothing_is_done_twice() {
    let stage = Stage::new();
    let counter = stage.file("counter");
    let mut deaf = stage.demo(&["--counter-file", &counter]);
    deaf.supervision.timeouts.call = millis(3000);
    deaf.supervision.keepalive.timeout = millis(3000);
    let old = stage.spawn_ready("deaf", deaf).await;
    stage.spawn_ready("fine", stage.demo(&[])).await;
    stage.call("deaf", "misbehave", json!({ "how": "stop_reading" })).await.unwrap();

    // Together more than the pipe takes, so that some are written, one in part, and the rest not at all.
    let calls = (0..300).map(|n| {
        let (host, ballast) = (stage.host.clone(), "x".repeat(2000));
        let arguments = json!({ "key": format!("k{n}"), "ballast": ballast });
        tokio::spawn(async move { call(&host, "deaf", "counter", arguments).await })
    });
    let calls: Vec<_> = calls.collect();
    stage.until("deaf", |status| status.supervision.in_flight > 1).await;
    for n in 0..20 {
        stage.echo("fine", &format!("undisturbed {n}")).await;
    }
    let waiting = calls.iter().filter(|call| !call.is_finished()).count();
    assert_eq!(waiting, 300, "the neighbour was served before any of these had its answer");
    let mut codes: BTreeMap<&str, u32> = BTreeMap::new();
    for call in calls {
        let ended = tokio::time::timeout(LONG_ENOUGH, call).await.expect("its time is bounded");
        let code = ended.unwrap().map_or_else(|error| error.code.word(), |_| "served");
        *codes.entry(code).or_default() += 1;
    }
    assert!(codes.contains_key(Code::Timeout.word()), "{codes:?}");

    stage.replaced("deaf", old).await;
    let next = stage.call("deaf", "counter", json!({ "key": "next" })).await;
    assert!(next.is_ok(), "{next:?}");
    let mut done: Vec<String> = stage.lines("counter");
    done.iter_mut().for_each(|line| line.truncate(line.find(' ').unwrap()));
    done.sort();
    let distinct = {
        let mut keys = done.clone();
        keys.dedup();
        keys
    };
    assert_eq!(done, distinct, "each was carried out once at the most");
}

#[tokio::test]
async fn c07_a_call_that_is_dropped_frees_its_slot_and_its_child_goes_on() {
    let stage = Stage::new();
    let mut spec = stage.demo(&[]);
    spec.supervision.max_in_flight = 1;
    let pid = stage.spawn_ready("demo", spec).await;
    let dropped = tokio::time::timeout(millis(100), stage.call("demo", "sleep", json!({ "ms": 600_000 })));
    assert!(dropped.await.is_err());
    stage.echo("demo", "free again").await;
    assert_eq!((stage.status("demo").pid, stage.status("demo").supervision.state), (Some(pid), State::Ready));
}

#[tokio::test]
async fn c07_a_child_is_told_that_nobody_waits_any_more_in_a_line_of_its_own() {
    let stage = Stage::new();
    let spec = stage.shell(&format!("tee {} | \"$GRIPFAST\" demo-server", stage.file("heard")));
    stage.spawn_ready("demo", spec).await;
    // `tee` writes a line to the server before it writes it to the file, so that the file says a little later what
    // the server has heard.
    let heard = async |wanted: &dyn Fn(&Value) -> bool| {
        let line = until(|| {
            let lines = stage.lines("heard");
            lines.iter().filter_map(|line| serde_json::from_str(line).ok()).find(|message| wanted(message))
        });
        line.await.expect("the child hears of it")
    };
    let asked = tokio::select! {
        answer = stage.call("demo", "sleep", json!({ "ms": 600_000 })) => panic!("{answer:?}"),
        asked = heard(&|message| message["params"]["name"] == "sleep") => asked,
    };
    let told = heard(&|message| message["method"] == "notifications/cancelled").await;
    stage.echo("demo", "go on").await;
    assert_eq!(told["params"]["requestId"], asked["id"]);
}

#[tokio::test]
async fn b08_a_server_that_never_comes_up_does_not_delay_the_others() {
    let stage = Stage::new();
    let mut mute = stage.demo(&["--never-answer-initialize", "--ignore-stdin-close", "--ignore-sigterm"]);
    mute.supervision.timeouts.connect = 10 * LONG_ENOUGH;
    stage.host.spawn("mute", mute).unwrap();
    stage.host.spawn("dying", stage.demo(&["--exit-at-start", "always"])).unwrap();
    stage.spawn_ready("fine", stage.demo(&[])).await;
    for n in 0..50 {
        stage.echo("fine", &format!("undisturbed {n}")).await;
    }
    assert_eq!(stage.status("mute").supervision.state, State::Starting, "it is still being waited for");
    stage.host.shutdown().await;
    stage.nothing_is_left().await;
}
