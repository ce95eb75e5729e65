//! Guarantees of a service that need a certain order of events: subscriptions, hang-ups, takeovers from a live owner,
//! and a start without the store.

use super::service::Service;
use super::{answer_to, elicitation, question, response, through};
use crate::client::{EventStream, LegacyClient, ModernClient, call, initialize, request};
use crate::test_gateway::demo;
use gripfast_testkit::wait::{until, until_async, within};
use http::Method;
use rustix::process::Signal;
use serde_json::json;

/// The owner lives, and never sees the client itself.
#[tokio::test]
async fn a_subscription_and_its_updates_pass_through_other_replicas() {
    let Some(service) = Service::start(&["a", "b", "c"]) else { return };
    service.until_complete().await;
    let client = LegacyClient::connect(&service.at("a").http).await;
    let [b, c] = ["b", "c"].map(|name| through(&client, &service.at(name).http));
    let list = b.request("resources/list", json!({})).await;
    let mut uris =
        list["result"]["resources"].as_array().unwrap().iter().filter_map(|each| each["uri"].as_str());
    let uri = uris.find(|uri| uri.contains("counter")).expect("the counter");
    let mut stream = b.open_stream(None).await;
    assert_eq!(b.request("resources/subscribe", json!({ "uri": uri })).await["result"], json!({}));
    for count in ["1", "2"] {
        assert_eq!(c.call_tool("demo__counter", json!({})).await, count);
        let updated = stream.message().await;
        let updated = (&updated["method"], &updated["params"]["uri"]);
        assert_eq!(updated, (&json!("notifications/resources/updated"), &json!(uri)));
    }
    assert_eq!(c.request("resources/unsubscribe", json!({ "uri": uri })).await["result"], json!({}));
    assert_eq!(c.call_tool("demo__counter", json!({})).await, "3");
    assert!(stream.is_silent().await, "it has left");
    for name in ["a", "b", "c"] {
        let metrics = service.at(name).http.send(Method::GET, "/metrics", &[], "").await.text;
        assert!(metrics.contains("gripfast_cluster_takeovers_total 0"), "{name}: {metrics}");
    }
}

/// The replica with the client's instance sees only the connection of the forwarder.
#[tokio::test]
async fn a_modern_client_that_hangs_up_at_a_forwarder_has_cancelled() {
    let server = demo().await;
    let config =
        format!("[servers.web]\nurl = '{}'\nprotocol = 'legacy'\nisolation = 'per_client'\n", server.url());
    let Some(service) = Service::start_with(&["a", "b"], &config) else { return };
    service.until_complete().await;
    let sleep = || call("web__sleep", json!({ "ms": 60_000 }));
    let mut forwarders = 0;
    for name in ["a", "b"] {
        let forwards = async || {
            let metrics = service.at(name).http.send(Method::GET, "/metrics", &[], "").await.text;
            metrics.contains("gripfast_cluster_forwards_total 0")
        };
        let client = ModernClient::new(&service.at(name).http);
        {
            // Before anything was answered.
            let asking = client.send_request("tools/call", sleep());
            tokio::select! {
                answered = asking => panic!("too early: {answered:?}"),
                () = until("the call is in flight", || server.in_flight() == 1) => {}
            }
        }
        within("the server is idle", server.until_idle()).await;
        // And in the middle of its stream.
        let mut params = sleep();
        params["_meta"]["progressToken"] = json!(1);
        let mut stream = client.start_request("left", "tools/call", params).await;
        stream.next().await.expect("progress");
        assert_eq!(server.in_flight(), 1);
        drop(stream);
        within("the server is idle", server.until_idle()).await;
        forwarders += u32::from(!forwards().await);
    }
    assert_eq!(forwarders, 1, "one of the two has forwarded");
}

/// The owner is stopped for longer than a lease, with a call in flight, and goes on after the takeover.
#[tokio::test]
async fn a_call_of_an_owner_that_lost_its_session_ends_on_its_own_stream() {
    let Some(service) = Service::start(&["a", "b"]) else { return };
    service.until_complete().await;
    let client = LegacyClient::with_capabilities(&service.at("a").http, elicitation()).await;
    assert_eq!(client.call_tool("demo__counter", json!({})).await, "1");
    let mut call_stream = client.start_request("q", "tools/call", call("demo__ask", json!({}))).await;
    let asked = question(&mut call_stream).await;
    let mut listening = client.open_stream(None).await;
    service.at("a").signal(Signal::STOP);
    service.at("b").until_it_knows(1).await;
    let b = through(&client, &service.at("b").http);
    assert_eq!(b.call_tool("demo__counter", json!({})).await, "1", "it has another server");
    service.at("a").signal(Signal::CONT);
    // The old owner learns of it with a heartbeat, and ends the GET stream.
    within("the end of the GET stream", async { while listening.next().await.is_some() {} }).await;
    assert_eq!(b.post(&answer_to(&asked)).await.status, 202, "the answer finds the process that asked");
    let answer = response(&mut call_stream).await;
    assert_eq!(answer["id"], "q", "{answer}");
    assert!(answer["result"]["content"][0]["text"].is_string(), "{answer}");
    let again = through(&client, &service.at("a").http);
    assert_eq!(again.call_tool("demo__counter", json!({})).await, "2", "nothing more is admitted there");
}

/// It has not joined, and cannot know whether another replica runs the server.
#[tokio::test]
async fn a_replica_that_starts_without_the_store_runs_no_singleton_server() {
    let Some(mut service) = Service::without_replicas() else { return };
    let writer = super::singletons::Writer::new();
    service.store.kill();
    service.replicas.push(service.replica("a", &writer.config("")));
    let a = service.at("a");
    until_async("the ordinary server is ready", async || {
        let status = a.status().await;
        let servers = status["upstreams"].as_array().cloned().unwrap_or_default();
        servers.iter().any(|server| server["name"] == "demo" && server["state"] == "ready")
    })
    .await;
    let status = a.status().await;
    let one = status["upstreams"].as_array().unwrap().iter().find(|server| server["name"] == "one").unwrap();
    assert_ne!(one["state"], "ready", "{one}");
    assert!(one.to_string().contains("store is unreachable"), "{one}");
    assert_eq!(writer.count(), 0);
    service.store.start_process();
    super::singletons::holder(&service).await;
    until("it has started once", || writer.count() == 1).await;
}

#[tokio::test]
async fn a_session_of_http_sse_ends_with_its_replica() {
    let Some(mut service) = Service::start(&["a", "b"]) else { return };
    service.until_complete().await;
    let accept = [("accept", "text/event-stream")];
    let mut stream = EventStream::of(service.at("a").http.begin(Method::GET, "/sse", &accept, "").await);
    let endpoint = stream.next().await.expect("the endpoint").data;
    let hello = initialize("2024-11-05").to_string();
    assert_eq!(service.at("b").http.send(Method::POST, &endpoint, &[], hello).await.status, 202);
    stream.next().await.expect("an answer");
    service.kill("a");
    assert!(stream.ends_broken().await);
    let ping = request(2, "ping", &json!({})).to_string();
    let refused = service.at("b").http.send(Method::POST, &endpoint, &[], ping).await;
    assert_eq!(refused.status, 404, "{}", refused.text);
}
