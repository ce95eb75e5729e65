//! A second child beside the first: spares that take over, replacements that are started first.

use crate::proc::{is_alive, signal};
use crate::stage::{Stage, call};
use gripfast::{Event, SpareState};
use rustix::process::Signal;
use serde_json::json;

#[tokio::test]
async fn b02_a_spare_that_was_there_before_takes_over_from_a_killed_child_and_has_a_spare_again() {
    let stage = Stage::new();
    let mut spec = stage.demo(&[]);
    spec.supervision.spare = true;
    let mut first = stage.spawn_ready("demo", spec).await;
    for _ in 0..3 {
        spare_is_ready(&stage).await;
        let before = stage.processes();
        signal(first, Signal::KILL);
        let next = stage.replaced("demo", first).await;
        assert!(before.contains(&next), "{next} was started only now");
        stage.echo("demo", "hello again").await;
        first = next;
    }
    let used = stage.status("demo").events.iter().filter(|told| told.event == Event::SpareUsed).count();
    assert_eq!(used, 3);
    stage.host.remove("demo").await.unwrap();
    stage.nothing_is_left().await;
}

#[tokio::test]
async fn b02_a_spare_that_is_killed_is_replaced_and_the_first_child_does_not_notice() {
    let stage = Stage::new();
    let mut spec = stage.demo(&[]);
    spec.supervision.spare = true;
    let first = stage.spawn_ready("demo", spec).await;
    spare_is_ready(&stage).await;
    let spare = stage.processes().into_iter().find(|pid| *pid != first).unwrap();
    signal(spare, Signal::KILL);
    stage.until("demo", |status| status.supervision.spare != Some(SpareState::Ready)).await;
    spare_is_ready(&stage).await;
    assert!(is_alive(first) && stage.status("demo").pid == Some(first));
    stage.echo("demo", "as if nothing had happened").await;
}

#[tokio::test]
async fn f01_reload_starts_the_new_child_first_and_lets_the_old_one_finish_its_call() {
    let stage = Stage::new();
    let old = stage.spawn_ready("demo", stage.demo(&[])).await;
    let host = stage.host.clone();
    let sleeping = tokio::spawn(async move { call(&host, "demo", "sleep", json!({ "ms": 1500 })).await });
    stage.until("demo", |status| status.supervision.in_flight == 1).await;
    stage.host.reload("demo").unwrap();
    let new = stage.replaced("demo", old).await;
    assert!(is_alive(old), "it has a call to finish");
    stage.echo("demo", "served by the new one").await;
    sleeping.await.unwrap().unwrap();
    crate::stage::until(|| (!is_alive(old)).then_some(())).await.unwrap();
    assert!(is_alive(new));
    assert_eq!(stage.status("demo").supervision.restarts, 0);
}

async fn spare_is_ready(stage: &Stage) {
    stage.until("demo", |status| status.supervision.spare == Some(SpareState::Ready)).await;
}
