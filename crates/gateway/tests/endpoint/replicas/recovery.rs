//! Sessions and streams after the loss of a replica, and around the start of one.

use super::service::Service;
use super::{elicitation, question, response, through};
use crate::client::{EventStream, LegacyClient, ModernClient, call, request};
use futures_util::future::join_all;
use gripfast_testkit::proc;
use gripfast_testkit::wait::until_async;
use gripfast_testkit::wall_clock::WallClock;
use http::Method;
use rustix::process::Signal;
use serde_json::json;
use std::time::{Duration, Instant};

/// Resumes a stream. The replica takes the session over first, and the client waits as long.
async fn resumed(client: &LegacyClient, after: &str) -> EventStream {
    let stream = client.open_stream(Some(after)).await;
    assert_eq!(stream.status, 200);
    stream
}

/// The client resumes the stream of its call before it sends anything else.
#[tokio::test]
async fn a_stream_that_is_resumed_first_after_a_kill_ends_as_unknown() {
    let Some(mut service) = Service::start(&["a", "b"]) else { return };
    service.until_complete().await;
    let client = LegacyClient::with_capabilities(&service.at("a").http, elicitation()).await;
    let mut stream = client.start_request("q", "tools/call", call("demo__ask", json!({}))).await;
    let first = stream.next().await.expect("the opening event").id.expect("an id");
    question(&mut stream).await;
    service.kill("a");
    let b = through(&client, &service.at("b").http);
    let lost = response(&mut resumed(&b, &first).await).await;
    assert_eq!(lost["id"], "q", "{lost}");
    assert!(lost.to_string().contains("outcome_unknown"), "{lost}");
    let metrics = service.at("b").http.send(Method::GET, "/metrics", &[], "").await.text;
    assert!(metrics.contains("gripfast_cluster_takeovers_total 1"), "{metrics}");
    assert_eq!(b.call_tool("demo__counter", json!({})).await, "1", "its session is here now");
}

/// A lease of a minute: no heartbeat tells the first replica of the second one during the test.
#[tokio::test]
async fn a_new_replica_is_reached_before_the_next_heartbeat() {
    let Some(mut service) = Service::start(&[]) else { return };
    service.lease = "60s";
    for name in ["a", "b"] {
        // Its store refuses new pins for longer than the test runs.
        let replica = service.replica(name, "[defaults]\npins = 'off'\n");
        service.replicas.push(replica);
    }
    let client = LegacyClient::with_capabilities(&service.at("b").http, elicitation()).await;
    let a = &service.at("a").http;
    assert_eq!(service.at("a").status().await["cluster"]["replicas"], 1, "it does not know the new one");
    // A call that waits for input is at the new replica too.
    let asked = ModernClient::new(&service.at("b").http)
        .request_as(elicitation(), "tools/call", call("demo__ask", json!({})))
        .await;
    let (key, _) = asked["result"]["inputRequests"].as_object().unwrap().iter().next().unwrap();
    let mut again = call("demo__ask", json!({}));
    again["inputResponses"] = json!({ key: { "action": "accept", "content": { "yes": true } } });
    again["requestState"] = asked["result"]["requestState"].clone();
    let answered = ModernClient::new(a).request_as(elicitation(), "tools/call", again).await;
    assert!(answered["result"]["content"][0]["text"].is_string(), "{answered}");
    assert_eq!(through(&client, a).call_tool("demo__counter", json!({})).await, "1");
    let mut stream = through(&client, a).open_stream(None).await;
    assert_eq!(stream.status, 200);
    assert!(stream.is_silent().await, "its stream stays open");
}

#[tokio::test]
async fn a_client_that_only_listens_keeps_its_session_after_a_kill() {
    let config = "[gateway]\nsession_idle_timeout = '10s'\n";
    let Some(mut service) = Service::start_with(&["a", "b"], config) else { return };
    service.until_complete().await;
    let client = LegacyClient::connect(&service.at("a").http).await;
    let mut stream = client.open_stream(None).await;
    until_async("it has listened for longer than the idle timeout", async || {
        let sessions = service.at("a").http.send(Method::GET, "/api/v1/sessions", &[], "").await.message();
        sessions["sessions"][0]["age_ms"].as_u64().expect("an age") > 13_000
    })
    .await;
    service.kill("a");
    assert!(stream.ends_broken().await);
    let b = through(&client, &service.at("b").http);
    b.call_tool("demo__counter", json!({})).await;
    assert_eq!(b.post(&request(2, "ping", &json!({}))).await.status, 200);
}

/// One after the other, twenty attempts to connect would take twenty seconds.
#[tokio::test]
async fn requests_of_a_lost_owner_do_not_queue_at_a_store_that_hangs() {
    let Some(mut service) = Service::without_replicas() else { return };
    service.lease = "5s";
    service.replicas = ["a", "b"].map(|name| service.replica(name, "")).into();
    service.until_complete().await;
    let client = LegacyClient::connect(&service.at("a").http).await;
    proc::signal(service.store.pid().expect("it runs"), Signal::STOP);
    service.kill("a");
    let b = through(&client, &service.at("b").http);
    until_async("the store counts as unreachable", async || {
        service.at("b").status().await["cluster"]["store"] == "unreachable"
    })
    .await;
    let begun = Instant::now();
    let ping = request(1, "ping", &json!({}));
    let replies = join_all((0..20).map(|_| b.post(&ping))).await;
    let took = begun.elapsed();
    for reply in &replies {
        assert_eq!(reply.status, 503, "{}", reply.text);
        assert!(reply.text.contains("and so is the store"), "{}", reply.text);
    }
    assert!(took < Duration::from_secs(5), "{took:?}");
    proc::signal(service.store.pid().expect("it runs"), Signal::CONT);
    until_async("the session is taken over", async || b.post(&ping).await.status == 200).await;
}

/// Leases and seals count time and do not compare wall clocks.
#[tokio::test]
async fn replicas_whose_wall_clocks_differ_by_ten_minutes_serve_and_replace_each_other() {
    let Some(mut service) = Service::start(&["a"]) else { return };
    if !WallClock::Faketime.require() {
        return;
    }
    for (name, offset) in [("fast", "+300s"), ("slow", "-300s")] {
        service.clock_offset = Some(offset);
        let replica = service.replica(name, "");
        service.replicas.push(replica);
    }
    service.until_complete().await;
    for owner in ["fast", "slow"] {
        let client = LegacyClient::connect(&service.at(owner).http).await;
        // Longer than a lease, so that a wrong clock would have ended one.
        let begun = Instant::now();
        let mut calls = 0;
        until_async("a lease has passed", async || {
            for replica in &service.replicas {
                calls += 1;
                let counted = through(&client, &replica.http).call_tool("demo__counter", json!({})).await;
                assert_eq!(counted, calls.to_string(), "through {}", replica.name);
            }
            begun.elapsed() > Duration::from_secs(4)
        })
        .await;
        for replica in &service.replicas {
            let metrics = replica.http.send(Method::GET, "/metrics", &[], "").await.text;
            assert!(metrics.contains("gripfast_cluster_takeovers_total 0"), "{}: {metrics}", replica.name);
        }
    }
    let client = LegacyClient::connect(&service.at("fast").http).await;
    service.kill("fast");
    through(&client, &service.at("slow").http).call_tool("demo__counter", json!({})).await;
}
