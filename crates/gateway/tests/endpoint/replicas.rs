//! Several gateways as one service: real processes on a real store. A request may reach any of them.

mod attacks;
mod balanced;
mod budgets;
mod calls;
mod credentials;
mod dedicated;
mod diagnosis;
mod formats;
mod recovery;
mod rules;
mod sentinel;
mod service;
mod shared_keys;
mod shared_pins;
mod singletons;
mod store_tls;
mod tasks;

use crate::client::{EventStream, HttpClient, LegacyClient, ModernClient, call, request};
use gripfast_testkit::wait::until_async;
use http::Method;
use rustix::process::Signal;
use serde_json::{Value, json};
use service::Service;
use std::cell::Cell;

/// The same session through another replica.
fn through(client: &LegacyClient, http: &HttpClient) -> LegacyClient {
    LegacyClient::with_session(http, &client.session)
}

fn elicitation() -> Value {
    json!({ "elicitation": {} })
}

/// The question of a server on the stream of a call.
async fn question(stream: &mut EventStream) -> Value {
    loop {
        let event = stream.next().await.expect("a question");
        if event.data.contains("elicitation/create") {
            return event.message();
        }
    }
}

fn answer_to(question: &Value) -> Value {
    let result = json!({ "action": "accept", "content": { "yes": true } });
    json!({ "jsonrpc": "2.0", "id": question["id"], "result": result })
}

/// The response at the end of a stream.
async fn response(stream: &mut EventStream) -> Value {
    loop {
        let event = stream.next().await.expect("a response");
        if event.data.contains("\"result\"") || event.data.contains("\"error\"") {
            return event.message();
        }
    }
}

#[tokio::test]
async fn a_session_is_served_by_its_owner_through_every_replica() {
    let Some(service) = Service::start(&["a", "b", "c"]) else { return };
    service.until_complete().await;
    let client = LegacyClient::connect(&service.at("a").http).await;
    assert!(client.session.starts_with("a."), "{}", client.session);
    for (name, count) in [("b", "1"), ("c", "2"), ("a", "3"), ("b", "4")] {
        let client = through(&client, &service.at(name).http);
        assert_eq!(client.call_tool("demo__counter", json!({})).await, count, "through {name}");
    }
    let list = through(&client, &service.at("c").http).request("tools/list", json!({})).await;
    assert!(list["result"]["tools"].as_array().unwrap().len() > 5);
    let batch = through(&client, &service.at("b").http);
    assert_eq!(batch.post(&json!([request(1, "ping", &json!({}))])).await.status, 400, "as at the owner");
    let status = service.at("a").status().await;
    let cluster = ["replica", "store", "replicas", "cause"].map(|member| &status["cluster"][member]);
    assert_eq!(json!(cluster), json!(["a", "ok", 3, null]));
    assert!(status["cluster"]["last_contact_ms"].as_u64().unwrap() < 60_000, "{status}");
    let metrics = service.at("b").http.send(Method::GET, "/metrics", &[], "").await.text;
    for line in
        ["gripfast_cluster_replicas 3", "gripfast_cluster_store_up 1", "gripfast_cluster_takeovers_total 0"]
    {
        assert!(metrics.contains(line), "{line}: {metrics}");
    }
    assert!(!metrics.contains("gripfast_cluster_forwards_total 0"), "it has forwarded");
    let replicas = service.at("b").command(&["replicas", "-o", "json"]);
    let replicas: Value = serde_json::from_str(&replicas).unwrap();
    let all: Vec<_> =
        replicas.as_array().unwrap().iter().map(|replica| (&replica["name"], &replica["self"])).collect();
    assert_eq!(json!(all), json!([["a", false], ["b", true], ["c", false]]), "{replicas}");
    until_async("the next heartbeat has the session", async || {
        let replicas = service.at("b").http.send(Method::GET, "/api/v1/replicas", &[], "").await.message();
        replicas[0]["sessions"] == 1
    })
    .await;
    until_async("the heartbeats have the forwards and the latencies of all replicas", async || {
        let forwarded = through(&client, &service.at("b").http).request("ping", json!({})).await;
        assert!(forwarded["result"].is_object(), "{forwarded}");
        let replicas = service.at("c").replicas().await;
        let has_latency = |replica: &Value| replica["store_latency_ms"].as_f64().is_some_and(|ms| ms < 600.0);
        replicas.iter().all(has_latency)
            && replicas[1]["forwards_per_second"].as_f64().unwrap() > 0.0
            && replicas[2]["forwards_per_second"] == 0.0
    })
    .await;
    let metrics = service.at("b").http.send(Method::GET, "/metrics", &[], "").await.text;
    assert!(metrics.contains("\ngripfast_cluster_store_latency_seconds 0."), "{metrics}");
    let table = service.at("b").command(&["replicas"]);
    assert!(table.contains("FORWARDS/S") && table.contains("STORE"), "{table}");
    assert!(table.contains("b (asked)") && !table.contains("different"), "{table}");
    assert!(service.at("b").command(&["status"]).contains("replica b of 3 replicas"), "{status}");
}

/// A replica that was killed is listed as lost until it is back. One that ended in order is not listed.
#[tokio::test]
async fn a_killed_replica_is_listed_as_lost_until_it_is_back() {
    let Some(mut service) = Service::start(&["a", "b", "c"]) else { return };
    service.until_complete().await;
    service.at("c").signal(Signal::TERM);
    service.at("a").until_it_knows(2).await;
    service.kill("b");
    let states = async |service: &Service| -> Vec<String> {
        let replicas = service.at("a").replicas().await;
        replicas.iter().map(|replica| format!("{} {}", replica["name"], replica["state"])).collect()
    };
    until_async("b is lost", async || states(&service).await == [r#""a" "live""#, r#""b" "lost""#]).await;
    let (code, _, warnings) = service.at("a").asked(&["replicas"]);
    assert_eq!(code, Some(0), "{warnings}");
    assert!(warnings.contains("replica b was lost ") && !warnings.contains("different"), "{warnings}");
    assert_eq!(service.at("a").status().await["cluster"]["replicas"], 1, "live ones");
    let b = service.replica("b", "");
    service.replicas.push(b);
    until_async("b is back", async || states(&service).await == [r#""a" "live""#, r#""b" "live""#]).await;
    service.store.kill();
    until_async("it is not known whether b lives", async || {
        states(&service).await == [r#""a" "live""#, r#""b" "unknown""#]
    })
    .await;
    let (code, _, warnings) = service.at("a").asked(&["replicas"]);
    assert_eq!(code, Some(0), "{warnings}");
    assert!(warnings.contains("warning: the store is unreachable: "), "{warnings}");
}

#[tokio::test]
async fn an_elicitation_is_answered_and_a_call_cancelled_through_other_replicas() {
    let Some(service) = Service::start(&["a", "b", "c"]) else { return };
    service.until_complete().await;
    let client = LegacyClient::with_capabilities(&service.at("a").http, elicitation()).await;
    let [b, c] = ["b", "c"].map(|name| through(&client, &service.at(name).http));
    let mut stream = b.start_request("q", "tools/call", call("demo__ask", json!({}))).await;
    let asked = question(&mut stream).await;
    assert_eq!(c.post(&answer_to(&asked)).await.status, 202);
    assert_eq!(response(&mut stream).await["id"], "q");
    let mut stream =
        b.start_request("slow", "tools/call", call("demo__sleep", json!({ "ms": 60_000 }))).await;
    c.cancel("slow").await;
    while stream.next().await.is_some() {}
}

#[tokio::test]
async fn a_stream_is_resumed_and_a_session_ended_through_other_replicas() {
    let Some(service) = Service::start(&["a", "b", "c"]) else { return };
    service.until_complete().await;
    let client = LegacyClient::with_capabilities(&service.at("a").http, elicitation()).await;
    let [b, c] = ["b", "c"].map(|name| through(&client, &service.at(name).http));
    let mut stream = b.start_request("q", "tools/call", call("demo__ask", json!({}))).await;
    let first = stream.next().await.expect("the opening event").id.expect("an id");
    drop(stream);
    let mut resumed = c.open_stream(Some(&first)).await;
    let asked = question(&mut resumed).await;
    assert_eq!(b.post(&answer_to(&asked)).await.status, 202);
    assert_eq!(response(&mut resumed).await["id"], "q");
    let mut listening = c.open_stream(None).await;
    let headers = [("mcp-session-id", &*client.session)];
    assert_eq!(service.at("b").http.send(Method::DELETE, "/mcp", &headers, "").await.status, 200);
    assert!(listening.next().await.is_none(), "its streams end");
    for name in ["a", "b", "c"] {
        let gone = through(&client, &service.at(name).http).post(&request(1, "ping", &json!({}))).await;
        assert_eq!(gone.status, 404, "{name}");
    }
}

#[tokio::test]
async fn modern_input_and_sse_messages_pass_through_another_replica() {
    let Some(service) = Service::start(&["a", "b"]) else { return };
    service.until_complete().await;
    let [a, b] = ["a", "b"].map(|name| &service.at(name).http);
    let asked =
        ModernClient::new(a).request_as(elicitation(), "tools/call", call("demo__ask", json!({}))).await;
    let (key, _) = asked["result"]["inputRequests"].as_object().unwrap().iter().next().unwrap();
    let mut again = call("demo__ask", json!({}));
    again["inputResponses"] = json!({ key: { "action": "accept", "content": { "yes": true } } });
    again["requestState"] = asked["result"]["requestState"].clone();
    let answered = ModernClient::new(b).request_as(elicitation(), "tools/call", again).await;
    assert!(answered["result"]["content"][0]["text"].is_string(), "{answered}");
    let accept = [("accept", "text/event-stream")];
    let mut stream = EventStream::of(a.begin(Method::GET, "/sse", &accept, "").await);
    let endpoint = stream.next().await.expect("the endpoint").data;
    let hello = crate::client::initialize("2024-11-05").to_string();
    assert_eq!(b.send(Method::POST, &endpoint, &[], hello).await.status, 202);
    let hello = stream.next().await.expect("an answer").message();
    assert_eq!(hello["result"]["protocolVersion"], "2024-11-05");
}

#[tokio::test]
async fn a_session_survives_the_kill_of_its_owner_and_has_one_owner_then() {
    let Some(mut service) = Service::start(&["a", "b", "c"]) else { return };
    service.until_complete().await;
    let client = LegacyClient::connect(&service.at("a").http).await;
    let uri = client.request("resources/list", json!({})).await["result"]["resources"]
        .as_array()
        .unwrap()
        .iter()
        .find_map(|resource| {
            resource["uri"].as_str().filter(|uri| uri.contains("counter")).map(str::to_owned)
        })
        .expect("the counter");
    client.request("resources/subscribe", json!({ "uri": uri })).await;
    let [b, c] = ["b", "c"].map(|name| through(&client, &service.at(name).http));
    assert_eq!(b.call_tool("demo__counter", json!({})).await, "1");
    // It is recorded in the background.
    until_async("the store has the subscription", async || {
        let keys = service.store.command("KEYS {gripfast}:session:*");
        keys.lines().any(|key| service.store.command(&format!("GET {key}")).contains(&uri))
    })
    .await;
    service.kill("a");
    let (at_b, at_c) =
        tokio::join!(b.call_tool("demo__counter", json!({})), c.call_tool("demo__counter", json!({})));
    let mut counts = [at_b, at_c];
    counts.sort_unstable();
    assert_eq!(counts, ["1", "2"], "one replica has it: two takeovers at once made one owner");
    let mut stream = c.open_stream(None).await;
    // Its subscription came along: the new owner subscribes at its server in the background. The client is also told that
    // the lists may have changed.
    let (is_updated, mut count) = (Cell::new(false), 2);
    let updated = async {
        while stream.message().await["method"] != "notifications/resources/updated" {}
        is_updated.set(true);
    };
    let counting = async {
        while !is_updated.get() {
            count += 1;
            assert_eq!(b.call_tool("demo__counter", json!({})).await, count.to_string());
        }
    };
    tokio::join!(updated, counting);
    let again = service.replica("a", "");
    again.until_it_knows(3).await;
    let returned = through(&client, &again.http);
    assert_eq!(
        returned.call_tool("demo__counter", json!({})).await,
        (count + 1).to_string(),
        "the old name does not take it back"
    );
}

#[tokio::test]
async fn ids_of_a_replica_that_is_gone_end_as_unknown() {
    let Some(mut service) = Service::start(&["a", "b"]) else { return };
    service.until_complete().await;
    let client = LegacyClient::with_capabilities(&service.at("a").http, elicitation()).await;
    let b = through(&client, &service.at("b").http);
    let mut stream = b.start_request("q", "tools/call", call("demo__ask", json!({}))).await;
    let first = stream.next().await.expect("the opening event").id.expect("an id");
    let question = question(&mut stream).await;
    service.kill("a");
    assert!(stream.ends_broken().await, "a stream whose owner is lost is cut, not ended");
    b.call_tool("demo__counter", json!({})).await;
    let mut resumed = b.open_stream(Some(&first)).await;
    let lost = response(&mut resumed).await;
    assert_eq!((&lost["id"], lost["result"]["isError"].as_bool()), (&json!("q"), Some(true)), "{lost}");
    assert!(lost.to_string().contains("outcome_unknown"), "{lost}");
    assert_eq!(b.post(&answer_to(&question)).await.status, 202, "a late answer is accepted and dropped");
}

#[tokio::test]
async fn input_for_a_call_of_a_replica_that_is_gone_ends_as_unknown() {
    let Some(mut service) = Service::start(&["a", "b"]) else { return };
    service.until_complete().await;
    let asked = ModernClient::new(&service.at("a").http)
        .request_as(elicitation(), "tools/call", call("demo__ask", json!({})))
        .await;
    service.kill("a");
    let (key, _) = asked["result"]["inputRequests"].as_object().unwrap().iter().next().unwrap();
    let mut again = call("demo__ask", json!({}));
    again["inputResponses"] = json!({ key: { "action": "accept", "content": { "yes": true } } });
    again["requestState"] = asked["result"]["requestState"].clone();
    let lost = ModernClient::new(&service.at("b").http).request_as(elicitation(), "tools/call", again).await;
    assert!(lost.to_string().contains("outcome_unknown"), "{lost}");
}

#[tokio::test]
async fn a_replica_that_ends_in_order_gives_its_sessions_away_at_once() {
    let Some(mut service) = Service::start_with(&["a", "b"], "[gateway]\ndrain_wait = '0s'\n") else {
        return;
    };
    service.until_complete().await;
    let client = LegacyClient::connect(&service.at("a").http).await;
    let b = through(&client, &service.at("b").http);
    assert_eq!(b.call_tool("demo__counter", json!({})).await, "1");
    service.at("a").signal(Signal::TERM);
    service.replicas[0].wait();
    b.call_tool("demo__counter", json!({})).await;
    service.at("b").until_it_knows(1).await;
}

#[tokio::test]
async fn sessions_go_on_without_the_store_and_nothing_is_taken_over() {
    let Some(mut service) = Service::start(&["a", "b"]) else { return };
    service.until_complete().await;
    let client = LegacyClient::connect(&service.at("a").http).await;
    let b = through(&client, &service.at("b").http);
    assert_eq!(b.call_tool("demo__counter", json!({})).await, "1");
    service.store.kill();
    until_async("the replicas notice", async || {
        let states = [service.at("a").status().await, service.at("b").status().await];
        states.iter().all(|status| status["cluster"]["store"] == "unreachable")
    })
    .await;
    assert_eq!(client.call_tool("demo__counter", json!({})).await, "2");
    assert_eq!(b.call_tool("demo__counter", json!({})).await, "3", "forwarding goes on");
    assert_eq!(
        LegacyClient::connect(&service.at("b").http)
            .await
            .call_tool("demo__echo", json!({ "text": "x" }))
            .await,
        "x"
    );
    service.store.start_process();
    service.until_complete().await;
    assert_eq!(b.call_tool("demo__counter", json!({})).await, "4", "no false takeover");
}

/// The store was emptied, and a service with another key was the first to use the namespace.
#[tokio::test]
async fn a_replica_stops_writing_when_another_service_takes_the_namespace() {
    let Some(service) = Service::start(&["a", "b"]) else { return };
    service.until_complete().await;
    let client = LegacyClient::connect(&service.at("a").http).await;
    let marker = format!("SET {{gripfast}}:service 1:7:{}", "ab".repeat(32));
    assert_eq!(service.store.command(&marker), "+OK\r\n");
    for replica in &service.replicas {
        until_async("the replica has noticed", async || {
            let cluster = &replica.status().await["cluster"];
            cluster["store"] == "unreachable"
                && cluster["cause"].as_str().is_some_and(|cause| cause.contains("belongs to another service"))
        })
        .await;
    }
    let keys = "{gripfast}:replicas {gripfast}:last {gripfast}:grace";
    assert!(service.store.command(&format!("DEL {keys}")).starts_with(':'));
    for name in ["a", "b"] {
        let through = through(&client, &service.at(name).http);
        through.call_tool("demo__counter", json!({})).await;
    }
    until_async("the records of the replicas have ended", async || {
        service.store.command("KEYS {gripfast}:replica:*") == "*0\r\n"
    })
    .await;
    assert_eq!(service.store.command(&format!("EXISTS {keys}")), ":0\r\n");
    let log = service.at("a").log();
    assert!(log.contains("`cluster.namespace` to a name of its own"), "{log}");
    assert_eq!(service.store.command("DEL {gripfast}:service"), ":1\r\n");
    service.until_complete().await;
}
