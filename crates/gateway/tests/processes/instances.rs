//! Children of single clients: each has its own, with a state of its own, and none is left behind.

use crate::proc;
use crate::stage::{Stage, until};
use gripfast::config::{Isolation, ServerSpec};
use gripfast::{CallOptions, Client, ClientKey, Host};
use rustix::process::Signal;
use serde_json::{Value, json};

fn per_client(spec: ServerSpec) -> ServerSpec {
    ServerSpec { isolation: Isolation::PerClient, ..spec }
}

/// Counts one up in the child of this client, and gives what it has counted to.
async fn counts(host: &Host, client: &str) -> String {
    let params = json!({ "name": "counter", "arguments": {} });
    let params = serde_json::value::to_raw_value(&params).unwrap();
    let client = Some(Client::one(ClientKey::new(client)));
    let options = CallOptions { client, ..CallOptions::default() };
    let answer = host.request_with("demo", "tools/call", Some(params), options).await.unwrap();
    let result: Value = serde_json::from_str(answer.result().unwrap().get()).unwrap();
    result["content"][0]["text"].as_str().unwrap().to_owned()
}

/// The process ids of all starts, in their order.
fn starts(stage: &Stage) -> Vec<u32> {
    let pid = |line: &String| line.rsplit(' ').next().unwrap().parse().unwrap();
    stage.lines("starts").iter().map(pid).collect()
}

async fn is_gone(pid: u32) -> bool {
    until(|| (!proc::is_alive(pid)).then_some(())).await.is_some()
}

#[tokio::test]
async fn clients_with_children_of_their_own_share_nothing_and_leave_nothing_behind() {
    let stage = Stage::new();
    let spec = per_client(stage.demo(&["--starts-file", &stage.file("starts")]));
    let base = stage.spawn_ready("demo", spec).await;
    for round in ["1", "2"] {
        for client in ["a", "b", "c"] {
            assert_eq!(counts(&stage.host, client).await, round);
        }
    }
    let [first, a, b, c] = starts(&stage)[..] else { panic!("{:?}", starts(&stage)) };
    assert_eq!(first, base);

    // One that is killed comes back by itself and with nothing; nobody else notices.
    proc::signal(a, Signal::KILL);
    assert!(until(|| (starts(&stage).len() == 5).then_some(())).await.is_some());
    assert_eq!(counts(&stage.host, "a").await, "1");
    assert_eq!(counts(&stage.host, "b").await, "3");

    stage.host.client_gone(&ClientKey::new("b"));
    assert!(is_gone(b).await);
    assert_eq!(counts(&stage.host, "c").await, "3");
    assert!(proc::is_alive(c) && proc::is_alive(base));
    assert_eq!(counts(&stage.host, "b").await, "1", "who comes back begins anew");
    stage.host.shutdown().await;
    assert_eq!(stage.processes(), [0u32; 0]);
}

#[tokio::test]
async fn children_of_clients_end_with_a_host_that_is_merely_dropped() {
    let stage = Stage::new();
    let host = Host::builder().build();
    host.spawn("demo", per_client(stage.demo(&[]))).unwrap();
    for client in ["a", "b"] {
        assert_eq!(counts(&host, client).await, "1");
    }
    assert!(stage.processes().len() >= 3);
    drop(host);
    stage.nothing_is_left().await;
}
