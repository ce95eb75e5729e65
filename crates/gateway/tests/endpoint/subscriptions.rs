//! Resource subscriptions: updates reach the subscribed clients under the URIs that they use, in all pairings of eras
//! and on every transport, and subscriptions end with their client.

use crate::client::{EventStream, HttpClient, LegacyClient, ModernClient, in_context, initialize, request};
use crate::scripted_server::ScriptedServer;
use crate::stdio_client::StdioClient;
use crate::test_gateway::{TestGateway, at, child, demo};
use gripfast_testkit::wait::{until, within};
use http::Method;
use serde_json::{Value, json};

const UPDATED: &str = "notifications/resources/updated";
const COUNTER: &str = "demo://counter";

fn told_of(uri: &str) -> Value {
    json!({ "jsonrpc": "2.0", "method": UPDATED, "params": { "uri": uri } })
}

fn listen_for(uris: &[&str]) -> Value {
    json!({ "notifications": { "resourceSubscriptions": uris } })
}

/// Calls `counter`, which updates the counter resource of that server.
async fn count(gateway: &TestGateway, server: &str) {
    ModernClient::new(&gateway.http).call_tool(&format!("{server}__counter"), json!({})).await;
}

#[tokio::test]
async fn updates_reach_only_the_get_stream_of_the_subscribed_legacy_client() {
    let demo = demo().await;
    for protocol in ["legacy", "modern"] {
        let gateway = TestGateway::with(&at("demo", &demo.url(), protocol, &[])).await;
        let hello = gateway.http.initialize("2025-11-25").await.message();
        assert_eq!(hello["result"]["capabilities"]["resources"]["subscribe"], true);
        let (client, other) =
            (LegacyClient::connect(&gateway.http).await, LegacyClient::connect(&gateway.http).await);
        let (mut stream, mut silent) = (client.open_stream(None).await, other.open_stream(None).await);
        let subscribed = client.request("resources/subscribe", json!({ "uri": COUNTER })).await;
        assert_eq!(subscribed["result"], json!({}));
        for _ in 0..2 {
            count(&gateway, "demo").await;
            assert_eq!(stream.message().await, told_of(COUNTER), "{protocol}");
        }
        assert_eq!(stream.signs_of_life, 0, "told at once, and not with the next sign of life");
        let subscribed = other.request("resources/subscribe", json!({ "uri": "demo://greeting" })).await;
        assert_eq!(subscribed["result"], json!({}));
        let left = client.request("resources/unsubscribe", json!({ "uri": COUNTER })).await;
        assert_eq!(left["result"], json!({}));
        count(&gateway, "demo").await;
        // Any other notification would have arrived before this.
        demo.add_tool(protocol).await;
        for stream in [&mut stream, &mut silent] {
            assert_eq!(stream.message().await["method"], "notifications/tools/list_changed");
        }
    }
}

#[tokio::test]
async fn a_modern_client_gets_updates_of_acknowledged_subscriptions() {
    let (demo, other) = (demo().await, demo().await);
    for protocol in ["legacy", "modern"] {
        let config = at("demo", &demo.url(), protocol, &[]) + &at("other", &other.url(), "legacy", &[]);
        let gateway = TestGateway::with(&config).await;
        let client = ModernClient::new(&gateway.http);
        let discovered = client.request("server/discover", json!({})).await;
        assert_eq!(discovered["result"]["capabilities"]["resources"]["subscribe"], true);
        let wanted = listen_for(&[COUNTER, "nowhere://else", COUNTER]);
        let mut stream = client.start_request("sub-1", "subscriptions/listen", wanted).await;
        let hello = stream.message().await;
        assert_eq!(hello["method"], "notifications/subscriptions/acknowledged");
        assert_eq!(hello["params"]["notifications"], json!({ "resourceSubscriptions": [COUNTER] }));
        let meta = json!({ "io.modelcontextprotocol/subscriptionId": "sub-1" });
        assert_eq!(hello["params"]["_meta"], meta);
        count(&gateway, "other").await;
        for _ in 0..2 {
            count(&gateway, "demo").await;
            let told = stream.message().await;
            assert_eq!(told["method"], UPDATED, "{told}");
            assert_eq!(told["params"], json!({ "uri": COUNTER, "_meta": meta }), "{protocol}");
        }
        assert!(stream.is_silent().await);
    }
}

#[tokio::test]
async fn a_uri_of_two_servers_is_subscribed_and_updated_under_its_public_name() {
    let (one, two) = (demo().await, demo().await);
    let config = at("one", &one.url(), "modern", &[]) + &at("two", &two.url(), "legacy", &[]);
    let gateway = TestGateway::with(&config).await;
    let public = "two+demo://counter";
    let client = LegacyClient::connect(&gateway.http).await;
    let mut stream = client.open_stream(None).await;
    assert_eq!(client.request("resources/subscribe", json!({ "uri": public })).await["result"], json!({}));
    count(&gateway, "one").await;
    count(&gateway, "two").await;
    assert_eq!(stream.message().await, told_of(public));
    let listener = ModernClient::new(&gateway.http);
    let mut both = listener.start_request("s", "subscriptions/listen", listen_for(&[COUNTER, public])).await;
    let hello = both.message().await;
    assert_eq!(hello["params"]["notifications"]["resourceSubscriptions"], json!([COUNTER, public]));
    count(&gateway, "one").await;
    assert_eq!(both.message().await["params"]["uri"], COUNTER);
    count(&gateway, "two").await;
    assert_eq!(both.message().await["params"]["uri"], public);
    assert_eq!(stream.message().await, told_of(public));
    assert!(stream.is_silent().await && both.is_silent().await);
}

#[tokio::test]
async fn updates_missed_without_a_stream_or_lost_with_one_are_sent_later() {
    let demo = demo().await;
    let gateway = TestGateway::with(&at("demo", &demo.url(), "legacy", &[])).await;
    let (client, witness) =
        (LegacyClient::connect(&gateway.http).await, LegacyClient::connect(&gateway.http).await);
    let mut heard = witness.open_stream(None).await;
    for follower in [&client, &witness] {
        follower.request("resources/subscribe", json!({ "uri": COUNTER })).await;
    }
    for _ in 0..2 {
        count(&gateway, "demo").await;
        assert_eq!(heard.message().await, told_of(COUNTER));
    }
    let mut late = client.open_stream(None).await;
    let told = late.next().await.unwrap();
    assert_eq!(told.message(), told_of(COUNTER), "once, however often it changed");
    drop(late);
    let before = told.id.clone().unwrap();
    count(&gateway, "demo").await;
    assert_eq!(heard.message().await, told_of(COUNTER));
    let mut again = client.open_stream(Some(&before)).await;
    let told = again.next().await.unwrap();
    assert_eq!(told.message(), told_of(COUNTER));
    // The update was sent, but the stream broke first: the client resumes from before it.
    drop(again);
    let mut again = client.open_stream(Some(&before)).await;
    assert_eq!(again.message().await, told_of(COUNTER));
    drop(again);
    let mut settled = client.open_stream(told.id.as_deref()).await;
    demo.add_tool("new").await;
    assert_eq!(settled.message().await["method"], "notifications/tools/list_changed", "nothing twice");
}

#[tokio::test]
async fn clients_on_stdio_and_http_sse_get_updates_too() {
    let demo = demo().await;
    for protocol in ["legacy", "modern"] {
        let gateway = TestGateway::with(&at("demo", &demo.url(), protocol, &[])).await;
        let subscribe = request("s", "resources/subscribe", &json!({ "uri": COUNTER }));
        let ready = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });

        let mut pipe = StdioClient::to(&gateway);
        pipe.send(initialize("2025-11-25")).await;
        pipe.receive().await;
        pipe.send(ready.clone()).await;
        pipe.send(subscribe.clone()).await;
        assert_eq!(pipe.receive().await["result"], json!({}));

        let mut modern = StdioClient::to(&gateway);
        let listen = in_context(listen_for(&[COUNTER]));
        modern.send(request("l", "subscriptions/listen", &listen)).await;
        let hello = modern.receive().await;
        assert_eq!(hello["params"]["notifications"]["resourceSubscriptions"], json!([COUNTER]));

        let (mut stream, path) = oldest(&gateway.http).await;
        for message in [initialize("2024-11-05"), ready, subscribe] {
            let sent = gateway.http.send(Method::POST, &path, &[], message.to_string()).await;
            assert_eq!(sent.status, 202);
        }
        stream.message().await;
        assert_eq!(stream.message().await["result"], json!({}));

        for _ in 0..2 {
            count(&gateway, "demo").await;
            assert_eq!(pipe.receive().await, told_of(COUNTER), "{protocol}");
            assert_eq!(stream.message().await, told_of(COUNTER), "{protocol}");
            let told = modern.receive().await;
            assert_eq!((&told["method"], &told["params"]["uri"]), (&json!(UPDATED), &json!(COUNTER)));
            assert_eq!(told["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"], "l");
        }
        // A second handshake on stdio starts a new session.
        pipe.send(initialize("2025-11-25")).await;
        assert!(pipe.receive().await["result"].is_object());
        count(&gateway, "demo").await;
        assert_eq!(modern.receive().await["method"], UPDATED);
        pipe.send(request("p", "ping", &json!({}))).await;
        assert_eq!(pipe.receive().await["id"], "p", "it follows nothing any more");
    }
}

async fn oldest(http: &HttpClient) -> (EventStream, String) {
    let mut stream = EventStream::of(http.begin(Method::GET, "/sse", &[], "").await);
    let endpoint = stream.next().await.unwrap().data;
    (stream, endpoint)
}

const GREETING: &str = r#"{"protocolVersion":"2025-11-25","capabilities":{"resources":{"subscribe":true}},"serverInfo":{"name":"script","version":"1"}}"#;
const RESOURCES: &str = r#"{"resources":[{"uri":"a://1","name":"1"},{"uri":"a://2","name":"2"}]}"#;

/// Legacy server that records its requests.
async fn scribe() -> ScriptedServer {
    ScriptedServer::start(&[
        ("initialize", GREETING),
        ("resources/list", RESOURCES),
        ("resources/templates/list", r#"{"resourceTemplates":[]}"#),
        ("resources/subscribe", "{}"),
        ("resources/unsubscribe", "{}"),
    ])
    .await
}

#[tokio::test]
async fn the_first_client_subscribes_at_the_server_and_the_last_unsubscribes() {
    let script = scribe().await;
    let gateway = TestGateway::with(&at("it", &script.url, "legacy", &[])).await;
    let subscribe = json!({ "uri": "a://1" });
    let one = LegacyClient::connect(&gateway.http).await;
    for _ in 0..2 {
        assert_eq!(one.request("resources/subscribe", subscribe.clone()).await["result"], json!({}));
    }
    let mut pipe = StdioClient::to(&gateway);
    pipe.send(initialize("2025-11-25")).await;
    pipe.receive().await;
    pipe.send(request("s", "resources/subscribe", &subscribe)).await;
    pipe.receive().await;
    let (mut stream, path) = oldest(&gateway.http).await;
    for message in [initialize("2024-11-05"), request("s", "resources/subscribe", &subscribe)] {
        gateway.http.send(Method::POST, &path, &[], message.to_string()).await;
        stream.message().await;
    }
    let client = ModernClient::new(&gateway.http);
    let mut listening = client.start_request("l", "subscriptions/listen", listen_for(&["a://1"])).await;
    listening.message().await;
    let mut modern = StdioClient::to(&gateway);
    modern.send(request("l", "subscriptions/listen", &in_context(listen_for(&["a://1"])))).await;
    modern.receive().await;
    assert_eq!(script.count("resources/subscribe"), 1, "asked once for all five");
    assert!(script.last_request("resources/subscribe").contains(r#""params":{"uri":"a://1"}"#));

    let headers = [("mcp-session-id", &*one.session)];
    assert_eq!(gateway.http.send(Method::DELETE, "/mcp", &headers, "").await.status, 200);
    drop((pipe, stream, listening));
    // The last client still gets updates, so the earlier ones did not end the server's subscription.
    let two = LegacyClient::connect(&gateway.http).await;
    two.request("resources/subscribe", json!({ "uri": "a://2" })).await;
    two.request("resources/unsubscribe", json!({ "uri": "a://2" })).await;
    until("the server is left", || script.count("resources/unsubscribe") == 1).await;
    assert!(script.last_request("resources/unsubscribe").contains("a://2"));
    let cancelled = json!({ "requestId": "l" });
    modern.send(json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": cancelled })).await;
    until("the server is left by the last one", || script.count("resources/unsubscribe") == 2).await;
    assert!(script.last_request("resources/unsubscribe").contains("a://1"));
    assert_eq!(script.count("resources/subscribe"), 2);
}

#[tokio::test]
async fn an_impossible_subscription_is_refused_as_its_era_requires() {
    let declining = ScriptedServer::start(&[
        ("initialize", GREETING),
        ("resources/list", RESOURCES),
        ("resources/subscribe", r#"{"code":-32002,"message":"no such thing","data":{"uri":"a://1"}}"#),
    ])
    .await;
    let mute =
        ScriptedServer::start(&[("resources/list", r#"{"resources":[{"uri":"b://1","name":"1"}]}"#)]).await;
    let alone = TestGateway::with(&at("mute", &mute.url, "legacy", &[])).await;
    let hello = alone.http.initialize("2025-11-25").await.message();
    assert_eq!(hello["result"]["capabilities"]["resources"], json!({ "listChanged": true }));

    let config = at("it", &declining.url, "legacy", &[]) + &at("mute", &mute.url, "legacy", &[]);
    let gateway = TestGateway::with(&config).await;
    let client = LegacyClient::connect(&gateway.http).await;
    for (params, code) in [
        (json!({ "uri": "a://1" }), -32002),
        (json!({ "uri": "b://1" }), -32601),
        (json!({ "uri": "c://1" }), -32602),
        (json!({ "uri": 7 }), -32602),
        (json!({}), -32602),
    ] {
        let refused = client.request("resources/subscribe", params).await;
        assert_eq!(refused["error"]["code"], code, "{refused}");
    }
    let refused = client.request("resources/subscribe", json!({ "uri": "a://1" })).await;
    assert_eq!(refused["error"]["message"], "no such thing", "the server's own words");
    assert_eq!(refused["error"]["data"], json!({ "uri": "a://1" }));
    let modern = ModernClient::new(&gateway.http);
    let wanted = listen_for(&["a://1", "b://1", "c://1"]);
    let mut stream = modern.start_request("l", "subscriptions/listen", wanted).await;
    assert_eq!(stream.message().await["params"]["notifications"], json!({}));
    assert_eq!(
        modern.send_request("resources/subscribe", json!({ "uri": "a://1" })).await.refusal(),
        (404, -32601)
    );
    assert_eq!(declining.count("resources/unsubscribe"), 0, "nothing was begun");
}

#[tokio::test]
async fn a_subscription_to_an_unlisted_uri_is_forwarded() {
    let (one, two) = (demo().await, demo().await);
    let alone = TestGateway::with(&at("one", &one.url(), "legacy", &[])).await;
    let client = LegacyClient::connect(&alone.http).await;
    let subscribed = client.request("resources/subscribe", json!({ "uri": "hidden://x" })).await;
    assert_eq!(subscribed["result"], json!({}), "there is only one who can know");
    let config = at("one", &one.url(), "legacy", &[]) + &at("two", &two.url(), "modern", &[]);
    let gateway = TestGateway::with(&config).await;
    let client = LegacyClient::connect(&gateway.http).await;
    for uri in ["demo://echo/hello", "two+demo://echo/hello", "two+hidden://x"] {
        let subscribed = client.request("resources/subscribe", json!({ "uri": uri })).await;
        assert_eq!(subscribed["result"], json!({}), "{uri}");
    }
}

#[tokio::test]
async fn subscriptions_of_one_client_are_limited() {
    let demo = demo().await;
    let gateway = TestGateway::with(&at("demo", &demo.url(), "modern", &[])).await;
    let mut uris: Vec<String> = (0..1001).map(|number| format!("demo://echo/{number}")).collect();
    let client = ModernClient::new(&gateway.http);
    let wanted = json!({ "notifications": { "resourceSubscriptions": uris } });
    let mut stream = client.start_request("l", "subscriptions/listen", wanted).await;
    let hello = stream.message().await;
    let granted = hello["params"]["notifications"]["resourceSubscriptions"].as_array().unwrap().len();
    assert_eq!(granted, 1000);
    // Others are not affected.
    let other = LegacyClient::connect(&gateway.http).await;
    let uri = uris.pop().unwrap();
    assert_eq!(other.request("resources/subscribe", json!({ "uri": uri })).await["result"], json!({}));
}

#[tokio::test]
async fn a_subscription_over_the_limit_is_not_sent_to_the_server() {
    let script = scribe().await;
    let gateway = TestGateway::with(&at("it", &script.url, "legacy", &[])).await;
    let uris: Vec<String> = (0..1500).map(|number| format!("a://{number}")).collect();
    let wanted = json!({ "notifications": { "resourceSubscriptions": uris } });
    let mut stream =
        ModernClient::new(&gateway.http).start_request("l", "subscriptions/listen", wanted).await;
    stream.message().await;
    assert_eq!(script.count("resources/subscribe"), 1000);
}

/// D04 with a real process: it is killed and respawned, and its clients keep their subscriptions.
#[tokio::test]
async fn d04_subscriptions_survive_a_killed_server() {
    for era in ["legacy", "modern"] {
        let gateway = TestGateway::with(&child("demo", &["--era", era], &[])).await;
        let client = LegacyClient::connect(&gateway.http).await;
        let mut stream = client.open_stream(None).await;
        client.request("resources/subscribe", json!({ "uri": COUNTER })).await;
        count(&gateway, "demo").await;
        assert_eq!(stream.message().await, told_of(COUNTER));
        let before = gateway.host.server_status("demo").unwrap().pid.unwrap();
        let killed = std::process::Command::new("kill").args(["-9", &before.to_string()]).status().unwrap();
        assert!(killed.success());
        assert_eq!(stream.message().await, told_of(COUNTER), "{era}: it may have missed something");
        count(&gateway, "demo").await;
        assert_eq!(within("a change", stream.message()).await, told_of(COUNTER), "{era}");
        assert_ne!(gateway.host.server_status("demo").unwrap().pid.unwrap(), before);
    }
}
