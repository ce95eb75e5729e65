//! Calls of a lost replica: the others show those whose outcome is unknown, even if its disk is lost too.

use super::budgets::hold;
use super::service::Service;
use crate::client::ModernClient;
use gripfast_testkit::wait::until_async;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Number of replicas with calls in the store.
async fn replicas_with_calls(service: &Service) -> usize {
    let mut store = TcpStream::connect(("127.0.0.1", service.store.port())).await.unwrap();
    store.write_all(b"SCARD {gripfast}:calls\r\n").await.unwrap();
    let mut reply = [0; 16];
    let read = store.read(&mut reply).await.unwrap();
    let reply = std::str::from_utf8(&reply[..read]).unwrap();
    reply.trim().trim_start_matches(':').parse().unwrap()
}

fn unknown_calls(service: &Service, replica: &str) -> Value {
    let listed = service.at(replica).command(&["calls", "--unknown", "-o", "json"]);
    serde_json::from_str::<Value>(&listed).unwrap()["calls"].clone()
}

#[tokio::test]
async fn calls_of_a_lost_replica_and_disk_are_shown_as_unknown_by_another() {
    let Some(mut service) = Service::start(&["a", "b", "c"]) else { return };
    service.until_complete().await;
    let client = ModernClient::new(&service.at("a").http);
    // A call that ends is removed from the store.
    let ended = client.call_tool("demo__counter", json!({ "ms": 300 })).await;
    assert!(!ended.is_empty());
    until_async("it is removed", async || replicas_with_calls(&service).await == 0).await;
    let _running = hold(service.at("a"), "demo__counter");
    // One that only reads is not entered.
    let _reading = hold(service.at("c"), "demo__sleep");
    until_async("the call is in the store", async || replicas_with_calls(&service).await > 0).await;
    assert_eq!(unknown_calls(&service, "b"), json!([]), "its replica lives");
    let state = service.state_dir("a");
    service.kill("a");
    std::fs::remove_dir_all(state).unwrap();
    until_async("another replica shows it", async || unknown_calls(&service, "b") != json!([])).await;
    let calls = unknown_calls(&service, "c");
    assert_eq!(calls.as_array().unwrap().len(), 1, "{calls}");
    let lost = &calls[0];
    assert_eq!((&lost["replica"], &lost["outcome"]), (&json!("a"), &json!("unknown")), "{lost}");
    assert_eq!((&lost["server"], &lost["tool"]), (&json!("demo"), &json!("counter")), "{lost}");
    let table = service.at("b").command(&["calls"]);
    assert!(table.contains("replica a was lost"), "{table}");
    assert_eq!(replicas_with_calls(&service).await, 1, "the call that only reads is not there");
}
