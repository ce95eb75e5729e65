//! Dedicated children of clients: separate state, and no process left behind.

use crate::test_host::TestHost;
use gripfast::JsonText;
use gripfast::config::{Isolation, ServerSpec};
use gripfast::{CallOptions, Client, ClientKey, Host};
use gripfast_testkit::proc;
use gripfast_testkit::wait::poll;
use rustix::process::Signal;
use serde_json::{Value, json};

fn per_client(spec: ServerSpec) -> ServerSpec {
    ServerSpec { isolation: Isolation::PerClient, ..spec }
}

/// Increments the counter in the child of this client and returns its value.
async fn counts(host: &Host, client: &str) -> String {
    let params = json!({ "name": "counter", "arguments": {} });
    let params = JsonText::of(&params).unwrap();
    let client = Some(Client::with_key(ClientKey::new(client)));
    let options = CallOptions { client, ..CallOptions::default() };
    let answer = host.request_with("demo", "tools/call", Some(&params), options).await.unwrap();
    let result: Value = serde_json::from_str(answer.result().unwrap().get()).unwrap();
    result["content"][0]["text"].as_str().unwrap().to_owned()
}

/// The process ids of all starts, in their order.
fn starts(test_host: &TestHost) -> Vec<u32> {
    let pid = |line: &String| line.rsplit(' ').next().unwrap().parse().unwrap();
    test_host.lines("starts").iter().map(pid).collect()
}

async fn is_gone(pid: u32) -> bool {
    poll(|| (!proc::is_alive(pid)).then_some(())).await.is_some()
}

#[tokio::test]
async fn clients_with_dedicated_children_share_nothing_and_clean_up() {
    let test_host = TestHost::new();
    let spec = per_client(test_host.demo(&["--starts-file", &test_host.file("starts")]));
    let base = test_host.spawn_ready("demo", spec).await;
    for round in ["1", "2"] {
        for client in ["a", "b", "c"] {
            assert_eq!(counts(&test_host.host, client).await, round);
        }
    }
    let [first, a, b, c] = starts(&test_host)[..] else { panic!("{:?}", starts(&test_host)) };
    assert_eq!(first, base);

    // A killed child restarts with an empty state; other clients are not affected.
    proc::signal(a, Signal::KILL);
    assert!(poll(|| (starts(&test_host).len() == 5).then_some(())).await.is_some());
    assert_eq!(counts(&test_host.host, "a").await, "1");
    assert_eq!(counts(&test_host.host, "b").await, "3");

    test_host.host.remove_client(&ClientKey::new("b"));
    assert!(is_gone(b).await);
    assert_eq!(counts(&test_host.host, "c").await, "3");
    assert!(proc::is_alive(c) && proc::is_alive(base));
    assert_eq!(counts(&test_host.host, "b").await, "1", "a client that returns gets a new instance");
    test_host.host.shutdown().await;
    assert_eq!(test_host.processes(), [0u32; 0]);
}

#[tokio::test]
async fn dedicated_children_end_with_a_dropped_host() {
    let test_host = TestHost::new();
    let host = Host::builder().build();
    host.spawn("demo", per_client(test_host.demo(&[]))).unwrap();
    for client in ["a", "b"] {
        assert_eq!(counts(&host, client).await, "1");
    }
    assert!(test_host.processes().len() >= 3);
    drop(host);
    test_host.nothing_is_left().await;
}
