//! Pins of a service: one table for all replicas.

use super::service::{Replica, Service};
use crate::client::{LegacyClient, call, names, request};
use gripfast_testkit::wait::until_async;
use serde_json::{Value, json};

const GRIPFAST: &str = env!("CARGO_BIN_EXE_gripfast");

/// Config of a server with these arguments.
pub(super) fn server(args: &str) -> String {
    format!("[servers.tool]\ncommand = '{GRIPFAST}'\nargs = ['demo-server', {args}]\nprotocol = 'legacy'\n")
}

async fn tools(replica: &Replica) -> Vec<String> {
    let client = LegacyClient::connect(&replica.http).await;
    names(&client.request("tools/list", json!({})).await, "tools", "name")
}

async fn until_offered(replica: &Replica, tool: &str) {
    let what = format!("{} offers {tool}", replica.name);
    until_async(&what, async || tools(replica).await.iter().any(|offered| offered == tool)).await;
}

/// State of a tool in the pins of a replica.
fn state(replica: &Replica, tool: &str) -> String {
    let pins: Value = serde_json::from_str(&replica.command(&["pins", "ls", "tool", "-o", "json"])).unwrap();
    let tools = pins["servers"][0]["tools"].as_array().cloned().unwrap_or_default();
    let pin = tools.iter().find(|pin| pin["tool"] == tool);
    pin.map_or_else(String::new, |pin| pin["state"].as_str().unwrap().to_owned())
}

async fn until_state(replica: &Replica, tool: &str, wanted: &str) {
    let what = format!("`{tool}` is {wanted} at {}", replica.name);
    until_async(&what, async || state(replica, tool) == wanted).await;
}

#[tokio::test]
async fn a_tool_is_pinned_once_and_an_approval_holds_at_all_replicas() {
    let Some(service) = Service::without_replicas() else { return };
    // Both see the tool for the first time, with different descriptions.
    let a = service.replica("a", &server("'--changed-schema'"));
    let b = service.replica("b", &server(""));
    for replica in [&a, &b] {
        until_offered(replica, "tool__counter").await;
    }
    let states = [state(&a, "echo"), state(&b, "echo")];
    let (winner, loser) = match &states {
        [first, second] if first == "approved" && second == "changed" => (&a, &b),
        [first, second] if first == "changed" && second == "approved" => (&b, &a),
        other => panic!("one of them was first: {other:?}"),
    };
    let client = LegacyClient::connect(&loser.http).await;
    let refused = client.request("tools/call", call("tool__echo", json!({ "text": "x" }))).await;
    assert!(refused.to_string().contains("has changed since it was approved"), "{refused}");
    loser.command(&["pins", "approve", "tool", "echo"]);
    assert_eq!(state(loser, "echo"), "approved");
    until_state(winner, "echo", "changed").await;
    // A restart keeps it, and a new replica knows it from the start.
    let c = service.replica("c", &server(""));
    until_offered(&c, "tool__counter").await;
    assert_eq!(state(&c, "echo"), state(&b, "echo"), "it has the same form of the tool");
}

#[tokio::test]
async fn nothing_new_is_trusted_without_the_store_and_known_tools_go_on() {
    let Some(mut service) = Service::start_with(&["a"], &server("")) else { return };
    until_offered(service.at("a"), "tool__echo").await;
    until_offered(service.at("a"), "demo__echo").await;
    service.store.kill();
    until_async("the replica notices", async || {
        service.at("a").status().await["cluster"]["store"] == "unreachable"
    })
    .await;
    service.kill("a");
    // The same server has one more tool, and its pins are in the copy of the replica.
    let again = service.replica("a", &server("'--tools', '1'"));
    until_offered(&again, "tool__echo").await;
    let client = LegacyClient::connect(&again.http).await;
    assert_eq!(client.call_tool("tool__echo", json!({ "text": "x" })).await, "x");
    assert!(!tools(&again).await.contains(&"tool__extra_1".to_owned()), "a new tool");
    let refused = client.post(&request("n", "tools/call", &call("tool__extra_1", json!({})))).await.text;
    assert!(refused.contains("unknown") || refused.contains("cannot be pinned yet"), "{refused}");
    // A replica that knows nothing offers nothing.
    let other = service.replica("b", "");
    until_async("its server has started", async || {
        other.status().await["upstreams"].to_string().contains("\"ready\"")
    })
    .await;
    assert!(tools(&other).await.is_empty(), "nothing is pinned");
    service.store.start_process();
    until_offered(&again, "tool__extra_1").await;
    until_offered(&other, "demo__echo").await;
}
