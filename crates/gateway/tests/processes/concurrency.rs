//! Concurrent calls and servers: a slow or stuck one does not delay the others.

use crate::test_host::{TestHost, call, millis};
use gripfast::{Code, State};
use gripfast_testkit::wait::{PATIENCE, poll};
use serde_json::{Value, json};
use std::collections::BTreeMap;

#[tokio::test]
async fn c06_slow_calls_to_one_child_run_side_by_side() {
    let test_host = TestHost::new();
    test_host.spawn_ready("demo", test_host.demo(&[])).await;
    // Had they to take turns, the first would keep the others waiting for ten minutes.
    let endless = test_host.call("demo", "sleep", json!({ "ms": 600_000 }));
    let others = async {
        test_host.until("demo", |status| status.supervision.in_flight == 1).await;
        let slow = || test_host.call("demo", "sleep", json!({ "ms": 100 }));
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
    let test_host = TestHost::new();
    let counter = test_host.file("counter");
    let mut deaf = test_host.demo(&["--counter-file", &counter]);
    deaf.supervision.timeouts.call = millis(3000);
    deaf.supervision.keepalive.timeout = millis(3000);
    let old = test_host.spawn_ready("deaf", deaf).await;
    test_host.spawn_ready("fine", test_host.demo(&[])).await;
    test_host.call("deaf", "misbehave", json!({ "how": "stop_reading" })).await.unwrap();

    // Together more than the pipe takes, so that some are written, one in part, and the rest not at all.
    let calls = (0..300).map(|n| {
        let (host, ballast) = (test_host.host.clone(), "x".repeat(2000));
        let arguments = json!({ "key": format!("k{n}"), "ballast": ballast });
        tokio::spawn(async move { call(&host, "deaf", "counter", arguments).await })
    });
    let calls: Vec<_> = calls.collect();
    test_host.until("deaf", |status| status.supervision.in_flight > 1).await;
    for n in 0..20 {
        test_host.echo("fine", &format!("undisturbed {n}")).await;
    }
    let waiting = calls.iter().filter(|call| !call.is_finished()).count();
    assert_eq!(waiting, 300, "the neighbour was served before any of these had its answer");
    let mut codes: BTreeMap<&str, u32> = BTreeMap::new();
    for call in calls {
        let ended = tokio::time::timeout(PATIENCE, call).await.expect("its time is bounded");
        let code = ended.unwrap().map_or_else(|error| error.code.as_str(), |_| "served");
        *codes.entry(code).or_default() += 1;
    }
    assert!(codes.contains_key(Code::Timeout.as_str()), "{codes:?}");

    test_host.replaced("deaf", old).await;
    let next = test_host.call("deaf", "counter", json!({ "key": "next" })).await;
    assert!(next.is_ok(), "{next:?}");
    let mut done: Vec<String> = test_host.lines("counter");
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
    let test_host = TestHost::new();
    let mut spec = test_host.demo(&[]);
    spec.supervision.max_in_flight = 1;
    let pid = test_host.spawn_ready("demo", spec).await;
    let dropped =
        tokio::time::timeout(millis(100), test_host.call("demo", "sleep", json!({ "ms": 600_000 })));
    assert!(dropped.await.is_err());
    test_host.echo("demo", "free again").await;
    assert_eq!(
        (test_host.status("demo").pid, test_host.status("demo").supervision.state),
        (Some(pid), State::Ready)
    );
}

#[tokio::test]
async fn c07_a_dropped_call_sends_a_cancellation_on_its_own_line() {
    let test_host = TestHost::new();
    let spec = test_host.shell(&format!("tee {} | \"$GRIPFAST\" demo-server", test_host.file("heard")));
    test_host.spawn_ready("demo", spec).await;
    // `tee` writes a line to the server before it writes it to the file, so that the file says a little later what
    // the server has heard.
    let heard = async |wanted: &dyn Fn(&Value) -> bool| {
        let line = poll(|| {
            let lines = test_host.lines("heard");
            lines.iter().filter_map(|line| serde_json::from_str(line).ok()).find(|message| wanted(message))
        });
        line.await.expect("the child hears of it")
    };
    let asked = tokio::select! {
        answer = test_host.call("demo", "sleep", json!({ "ms": 600_000 })) => panic!("{answer:?}"),
        asked = heard(&|message| message["params"]["name"] == "sleep") => asked,
    };
    let told = heard(&|message| message["method"] == "notifications/cancelled").await;
    test_host.echo("demo", "go on").await;
    assert_eq!(told["params"]["requestId"], asked["id"]);
}

#[tokio::test]
async fn b08_a_server_that_never_comes_up_does_not_delay_the_others() {
    let test_host = TestHost::new();
    let mut mute = test_host.demo(&["--never-answer-initialize", "--ignore-stdin-close", "--ignore-sigterm"]);
    mute.supervision.timeouts.connect = 10 * PATIENCE;
    test_host.host.spawn("mute", mute).unwrap();
    test_host.host.spawn("dying", test_host.demo(&["--exit-at-start", "always"])).unwrap();
    test_host.spawn_ready("fine", test_host.demo(&[])).await;
    for n in 0..50 {
        test_host.echo("fine", &format!("undisturbed {n}")).await;
    }
    assert_eq!(test_host.status("mute").supervision.state, State::Starting, "it is still being waited for");
    test_host.host.shutdown().await;
    test_host.nothing_is_left().await;
}
