//! Standby children: a spare that takes over, and a reload that starts the replacement first.

use crate::test_host::{TestHost, call};
use gripfast::{Event, SpareState};
use gripfast_testkit::proc::{is_alive, signal};
use gripfast_testkit::wait::poll;
use rustix::process::Signal;
use serde_json::json;

#[tokio::test]
async fn b02_a_standby_takes_over_from_a_killed_child_and_is_replaced() {
    let test_host = TestHost::new();
    let mut spec = test_host.demo(&[]);
    spec.supervision.spare = true;
    let mut first = test_host.spawn_ready("demo", spec).await;
    for _ in 0..3 {
        spare_is_ready(&test_host).await;
        let before = test_host.processes();
        signal(first, Signal::KILL);
        let next = test_host.replaced("demo", first).await;
        assert!(before.contains(&next), "{next} was started only now");
        test_host.echo("demo", "hello again").await;
        first = next;
    }
    let used = test_host.status("demo").events.iter().filter(|told| told.event == Event::SpareUsed).count();
    assert_eq!(used, 3);
    test_host.host.remove_server("demo").await.unwrap();
    test_host.nothing_is_left().await;
}

#[tokio::test]
async fn b02_a_killed_standby_is_replaced_without_affecting_the_active_child() {
    let test_host = TestHost::new();
    let mut spec = test_host.demo(&[]);
    spec.supervision.spare = true;
    let first = test_host.spawn_ready("demo", spec).await;
    spare_is_ready(&test_host).await;
    let spare = test_host.processes().into_iter().find(|pid| *pid != first).unwrap();
    signal(spare, Signal::KILL);
    test_host.until("demo", |status| status.supervision.spare != Some(SpareState::Ready)).await;
    spare_is_ready(&test_host).await;
    assert!(is_alive(first) && test_host.status("demo").pid == Some(first));
    test_host.echo("demo", "as if nothing had happened").await;
}

#[tokio::test]
async fn f01_reload_starts_the_new_child_first_and_lets_the_old_one_finish_its_call() {
    let test_host = TestHost::new();
    let old = test_host.spawn_ready("demo", test_host.demo(&[])).await;
    let host = test_host.host.clone();
    let sleeping = tokio::spawn(async move { call(&host, "demo", "sleep", json!({ "ms": 1500 })).await });
    test_host.until("demo", |status| status.supervision.in_flight == 1).await;
    test_host.host.reload("demo").unwrap();
    let new = test_host.replaced("demo", old).await;
    assert!(is_alive(old), "it has a call to finish");
    test_host.echo("demo", "served by the new one").await;
    sleeping.await.unwrap().unwrap();
    poll(|| (!is_alive(old)).then_some(())).await.unwrap();
    assert!(is_alive(new));
    assert_eq!(test_host.status("demo").supervision.restarts, 0);
}

async fn spare_is_ready(test_host: &TestHost) {
    test_host.until("demo", |status| status.supervision.spare == Some(SpareState::Ready)).await;
}
