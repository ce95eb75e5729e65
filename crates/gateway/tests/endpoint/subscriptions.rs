//! Resources that clients follow: told to those who follow them, under the names that they use, in every
//! pairing of eras and on every channel; given back when a client goes, however it goes.

use crate::client::{Events, Http, Legacy, Modern, in_context, initialize, request};
use crate::news::Pipe;
use crate::scene::{Scene, at, child, demo, until, within};
use crate::script::Script;
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

/// Counts, which changes the counter of that server.
async fn count(scene: &Scene, server: &str) {
    Modern::of(&scene.http).calls(&format!("{server}__counter"), json!({})).await;
}

#[tokio::test]
async fn a_legacy_client_is_told_of_what_it_follows_on_its_get_stream_and_nobody_else_is() {
    let demo = demo().await;
    for protocol in ["legacy", "modern"] {
        let scene = Scene::with(&at("demo", &demo.url(), protocol, &[])).await;
        let hello = scene.http.initialize("2025-11-25").await.message();
        assert_eq!(hello["result"]["capabilities"]["resources"]["subscribe"], true);
        let (client, other) = (Legacy::meets(&scene.http).await, Legacy::meets(&scene.http).await);
        let (mut stream, mut silent) = (client.listens(None).await, other.listens(None).await);
        let subscribed = client.asks("resources/subscribe", json!({ "uri": COUNTER })).await;
        assert_eq!(subscribed["result"], json!({}));
        for _ in 0..2 {
            count(&scene, "demo").await;
            assert_eq!(stream.message().await, told_of(COUNTER), "{protocol}");
        }
        assert_eq!(stream.signs_of_life, 0, "told at once, and not with the next sign of life");
        let subscribed = other.asks("resources/subscribe", json!({ "uri": "demo://greeting" })).await;
        assert_eq!(subscribed["result"], json!({}));
        let left = client.asks("resources/unsubscribe", json!({ "uri": COUNTER })).await;
        assert_eq!(left["result"], json!({}));
        count(&scene, "demo").await;
        // Whatever else was told would have come before this.
        demo.add_tool(protocol).await;
        for stream in [&mut stream, &mut silent] {
            assert_eq!(stream.message().await["method"], "notifications/tools/list_changed");
        }
    }
}

#[tokio::test]
async fn a_modern_client_is_told_of_what_was_acknowledged() {
    let (demo, other) = (demo().await, demo().await);
    for protocol in ["legacy", "modern"] {
        let config = at("demo", &demo.url(), protocol, &[]) + &at("other", &other.url(), "legacy", &[]);
        let scene = Scene::with(&config).await;
        let client = Modern::of(&scene.http);
        let discovered = client.asks("server/discover", json!({})).await;
        assert_eq!(discovered["result"]["capabilities"]["resources"]["subscribe"], true);
        let wanted = listen_for(&[COUNTER, "nowhere://else", COUNTER]);
        let mut stream = client.begins("sub-1", "subscriptions/listen", wanted).await;
        let hello = stream.message().await;
        assert_eq!(hello["method"], "notifications/subscriptions/acknowledged");
        assert_eq!(hello["params"]["notifications"], json!({ "resourceSubscriptions": [COUNTER] }));
        let meta = json!({ "io.modelcontextprotocol/subscriptionId": "sub-1" });
        assert_eq!(hello["params"]["_meta"], meta);
        count(&scene, "other").await;
        for _ in 0..2 {
            count(&scene, "demo").await;
            let told = stream.message().await;
            assert_eq!(told["method"], UPDATED, "{told}");
            assert_eq!(told["params"], json!({ "uri": COUNTER, "_meta": meta }), "{protocol}");
        }
        assert!(stream.is_silent().await);
    }
}

#[tokio::test]
async fn a_uri_that_two_servers_share_is_followed_and_told_under_its_public_name() {
    let (one, two) = (demo().await, demo().await);
    let config = at("one", &one.url(), "modern", &[]) + &at("two", &two.url(), "legacy", &[]);
    let scene = Scene::with(&config).await;
    let public = "two+demo://counter";
    let client = Legacy::meets(&scene.http).await;
    let mut stream = client.listens(None).await;
    assert_eq!(client.asks("resources/subscribe", json!({ "uri": public })).await["result"], json!({}));
    count(&scene, "one").await;
    count(&scene, "two").await;
    assert_eq!(stream.message().await, told_of(public));
    let listener = Modern::of(&scene.http);
    let mut both = listener.begins("s", "subscriptions/listen", listen_for(&[COUNTER, public])).await;
    let hello = both.message().await;
    assert_eq!(hello["params"]["notifications"]["resourceSubscriptions"], json!([COUNTER, public]));
    count(&scene, "one").await;
    assert_eq!(both.message().await["params"]["uri"], COUNTER);
    count(&scene, "two").await;
    assert_eq!(both.message().await["params"]["uri"], public);
    assert_eq!(stream.message().await, told_of(public));
    assert!(stream.is_silent().await && both.is_silent().await);
}

#[tokio::test]
async fn a_client_that_did_not_listen_is_told_later_and_one_that_lost_its_stream_again() {
    let demo = demo().await;
    let scene = Scene::with(&at("demo", &demo.url(), "legacy", &[])).await;
    let (client, witness) = (Legacy::meets(&scene.http).await, Legacy::meets(&scene.http).await);
    let mut heard = witness.listens(None).await;
    for follower in [&client, &witness] {
        follower.asks("resources/subscribe", json!({ "uri": COUNTER })).await;
    }
    for _ in 0..2 {
        count(&scene, "demo").await;
        assert_eq!(heard.message().await, told_of(COUNTER));
    }
    let mut late = client.listens(None).await;
    let told = late.next().await.unwrap();
    assert_eq!(told.message(), told_of(COUNTER), "once, however often it changed");
    drop(late);
    let before = told.id.clone().unwrap();
    count(&scene, "demo").await;
    assert_eq!(heard.message().await, told_of(COUNTER));
    let mut again = client.listens(Some(&before)).await;
    let told = again.next().await.unwrap();
    assert_eq!(told.message(), told_of(COUNTER));
    // It was told, but its stream broke before it heard: it comes back from before.
    drop(again);
    let mut again = client.listens(Some(&before)).await;
    assert_eq!(again.message().await, told_of(COUNTER));
    drop(again);
    let mut settled = client.listens(told.id.as_deref()).await;
    demo.add_tool("new").await;
    assert_eq!(settled.message().await["method"], "notifications/tools/list_changed", "nothing twice");
}

#[tokio::test]
async fn clients_on_a_pipe_and_on_the_oldest_http_are_told_too() {
    let demo = demo().await;
    for protocol in ["legacy", "modern"] {
        let scene = Scene::with(&at("demo", &demo.url(), protocol, &[])).await;
        let subscribe = request("s", "resources/subscribe", &json!({ "uri": COUNTER }));
        let ready = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });

        let mut pipe = Pipe::to(&scene);
        pipe.says(initialize("2025-11-25")).await;
        pipe.hears().await;
        pipe.says(ready.clone()).await;
        pipe.says(subscribe.clone()).await;
        assert_eq!(pipe.hears().await["result"], json!({}));

        let mut modern = Pipe::to(&scene);
        let listen = in_context(listen_for(&[COUNTER]));
        modern.says(request("l", "subscriptions/listen", &listen)).await;
        let hello = modern.hears().await;
        assert_eq!(hello["params"]["notifications"]["resourceSubscriptions"], json!([COUNTER]));

        let (mut stream, path) = oldest(&scene.http).await;
        for message in [initialize("2024-11-05"), ready, subscribe] {
            let sent = scene.http.send(Method::POST, &path, &[], message.to_string()).await;
            assert_eq!(sent.status, 202);
        }
        stream.message().await;
        assert_eq!(stream.message().await["result"], json!({}));

        for _ in 0..2 {
            count(&scene, "demo").await;
            assert_eq!(pipe.hears().await, told_of(COUNTER), "{protocol}");
            assert_eq!(stream.message().await, told_of(COUNTER), "{protocol}");
            let told = modern.hears().await;
            assert_eq!((&told["method"], &told["params"]["uri"]), (&json!(UPDATED), &json!(COUNTER)));
            assert_eq!(told["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"], "l");
        }
        // A pipe on which somebody shakes hands again begins anew.
        pipe.says(initialize("2025-11-25")).await;
        assert!(pipe.hears().await["result"].is_object());
        count(&scene, "demo").await;
        assert_eq!(modern.hears().await["method"], UPDATED);
        pipe.says(request("p", "ping", &json!({}))).await;
        assert_eq!(pipe.hears().await["id"], "p", "it follows nothing any more");
    }
}

async fn oldest(http: &Http) -> (Events, String) {
    let mut stream = Events::of(http.begin(Method::GET, "/sse", &[], "").await);
    let endpoint = stream.next().await.unwrap().data;
    (stream, endpoint)
}

const GREETING: &str = r#"{"protocolVersion":"2025-11-25","capabilities":{"resources":{"subscribe":true}},"serverInfo":{"name":"script","version":"1"}}"#;
const RESOURCES: &str = r#"{"resources":[{"uri":"a://1","name":"1"},{"uri":"a://2","name":"2"}]}"#;

/// A legacy server that writes down what it is asked.
async fn scribe() -> Script {
    Script::starts(&[
        ("initialize", GREETING),
        ("resources/list", RESOURCES),
        ("resources/templates/list", r#"{"resourceTemplates":[]}"#),
        ("resources/subscribe", "{}"),
        ("resources/unsubscribe", "{}"),
    ])
    .await
}

#[tokio::test]
async fn a_server_is_asked_by_the_first_client_and_left_by_the_last_however_they_go() {
    let script = scribe().await;
    let scene = Scene::with(&at("it", &script.url, "legacy", &[])).await;
    let subscribe = json!({ "uri": "a://1" });
    let one = Legacy::meets(&scene.http).await;
    for _ in 0..2 {
        assert_eq!(one.asks("resources/subscribe", subscribe.clone()).await["result"], json!({}));
    }
    let mut pipe = Pipe::to(&scene);
    pipe.says(initialize("2025-11-25")).await;
    pipe.hears().await;
    pipe.says(request("s", "resources/subscribe", &subscribe)).await;
    pipe.hears().await;
    let (mut stream, path) = oldest(&scene.http).await;
    for message in [initialize("2024-11-05"), request("s", "resources/subscribe", &subscribe)] {
        scene.http.send(Method::POST, &path, &[], message.to_string()).await;
        stream.message().await;
    }
    let client = Modern::of(&scene.http);
    let mut listening = client.begins("l", "subscriptions/listen", listen_for(&["a://1"])).await;
    listening.message().await;
    let mut modern = Pipe::to(&scene);
    modern.says(request("l", "subscriptions/listen", &in_context(listen_for(&["a://1"])))).await;
    modern.hears().await;
    assert_eq!(script.count("resources/subscribe"), 1, "asked once for all five");
    assert!(script.heard("resources/subscribe").contains(r#""params":{"uri":"a://1"}"#));

    let headers = [("mcp-session-id", &*one.session)];
    assert_eq!(scene.http.send(Method::DELETE, "/mcp", &headers, "").await.status, 200);
    drop((pipe, stream, listening));
    // The last one is still told, so the server was not left by those who went before it.
    let two = Legacy::meets(&scene.http).await;
    two.asks("resources/subscribe", json!({ "uri": "a://2" })).await;
    two.asks("resources/unsubscribe", json!({ "uri": "a://2" })).await;
    until("the server is left", || script.count("resources/unsubscribe") == 1).await;
    assert!(script.heard("resources/unsubscribe").contains("a://2"));
    let cancelled = json!({ "requestId": "l" });
    modern.says(json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": cancelled })).await;
    until("the server is left by the last one", || script.count("resources/unsubscribe") == 2).await;
    assert!(script.heard("resources/unsubscribe").contains("a://1"));
    assert_eq!(script.count("resources/subscribe"), 2);
}

#[tokio::test]
async fn what_cannot_be_followed_is_refused_in_the_words_of_the_era() {
    let declining = Script::starts(&[
        ("initialize", GREETING),
        ("resources/list", RESOURCES),
        ("resources/subscribe", r#"{"code":-32002,"message":"no such thing","data":{"uri":"a://1"}}"#),
    ])
    .await;
    let mute = Script::starts(&[("resources/list", r#"{"resources":[{"uri":"b://1","name":"1"}]}"#)]).await;
    let alone = Scene::with(&at("mute", &mute.url, "legacy", &[])).await;
    let hello = alone.http.initialize("2025-11-25").await.message();
    assert_eq!(hello["result"]["capabilities"]["resources"], json!({ "listChanged": true }));

    let config = at("it", &declining.url, "legacy", &[]) + &at("mute", &mute.url, "legacy", &[]);
    let scene = Scene::with(&config).await;
    let client = Legacy::meets(&scene.http).await;
    for (params, code) in [
        (json!({ "uri": "a://1" }), -32002),
        (json!({ "uri": "b://1" }), -32601),
        (json!({ "uri": "c://1" }), -32602),
        (json!({ "uri": 7 }), -32602),
        (json!({}), -32602),
    ] {
        let refused = client.asks("resources/subscribe", params).await;
        assert_eq!(refused["error"]["code"], code, "{refused}");
    }
    let refused = client.asks("resources/subscribe", json!({ "uri": "a://1" })).await;
    assert_eq!(refused["error"]["message"], "no such thing", "the server's own words");
    assert_eq!(refused["error"]["data"], json!({ "uri": "a://1" }));
    let modern = Modern::of(&scene.http);
    let wanted = listen_for(&["a://1", "b://1", "c://1"]);
    let mut stream = modern.begins("l", "subscriptions/listen", wanted).await;
    assert_eq!(stream.message().await["params"]["notifications"], json!({}));
    assert_eq!(modern.sends("resources/subscribe", json!({ "uri": "a://1" })).await.refusal(), (404, -32601));
    assert_eq!(declining.count("resources/unsubscribe"), 0, "nothing was begun");
}

#[tokio::test]
async fn an_unlisted_uri_is_for_its_server_to_judge() {
    let (one, two) = (demo().await, demo().await);
    let alone = Scene::with(&at("one", &one.url(), "legacy", &[])).await;
    let client = Legacy::meets(&alone.http).await;
    let subscribed = client.asks("resources/subscribe", json!({ "uri": "hidden://x" })).await;
    assert_eq!(subscribed["result"], json!({}), "there is only one who can know");
    let config = at("one", &one.url(), "legacy", &[]) + &at("two", &two.url(), "modern", &[]);
    let scene = Scene::with(&config).await;
    let client = Legacy::meets(&scene.http).await;
    for uri in ["demo://echo/hello", "two+demo://echo/hello", "two+hidden://x"] {
        let subscribed = client.asks("resources/subscribe", json!({ "uri": uri })).await;
        assert_eq!(subscribed["result"], json!({}), "{uri}");
    }
}

#[tokio::test]
async fn one_client_cannot_follow_without_end() {
    let demo = demo().await;
    let scene = Scene::with(&at("demo", &demo.url(), "modern", &[])).await;
    let mut uris: Vec<String> = (0..1001).map(|number| format!("demo://echo/{number}")).collect();
    let client = Modern::of(&scene.http);
    let wanted = json!({ "notifications": { "resourceSubscriptions": uris } });
    let mut stream = client.begins("l", "subscriptions/listen", wanted).await;
    let hello = stream.message().await;
    let granted = hello["params"]["notifications"]["resourceSubscriptions"].as_array().unwrap().len();
    assert_eq!(granted, 1000);
    // Others are not affected.
    let other = Legacy::meets(&scene.http).await;
    let uri = uris.pop().unwrap();
    assert_eq!(other.asks("resources/subscribe", json!({ "uri": uri })).await["result"], json!({}));
}

#[tokio::test]
async fn what_one_client_cannot_follow_its_server_is_not_asked_for() {
    let script = scribe().await;
    let scene = Scene::with(&at("it", &script.url, "legacy", &[])).await;
    let uris: Vec<String> = (0..1500).map(|number| format!("a://{number}")).collect();
    let wanted = json!({ "notifications": { "resourceSubscriptions": uris } });
    let mut stream = Modern::of(&scene.http).begins("l", "subscriptions/listen", wanted).await;
    stream.message().await;
    assert_eq!(script.count("resources/subscribe"), 1000);
}

/// D04 with a real process: killed, respawned, and its clients go on hearing of what they follow.
#[tokio::test]
async fn d04_a_killed_servers_clients_go_on_hearing_of_what_they_follow() {
    for era in ["legacy", "modern"] {
        let scene = Scene::with(&child("demo", &["--era", era], &[])).await;
        let client = Legacy::meets(&scene.http).await;
        let mut stream = client.listens(None).await;
        client.asks("resources/subscribe", json!({ "uri": COUNTER })).await;
        count(&scene, "demo").await;
        assert_eq!(stream.message().await, told_of(COUNTER));
        let before = scene.host.status_of("demo").unwrap().pid.unwrap();
        let killed = std::process::Command::new("kill").args(["-9", &before.to_string()]).status().unwrap();
        assert!(killed.success());
        assert_eq!(stream.message().await, told_of(COUNTER), "{era}: it may have missed something");
        count(&scene, "demo").await;
        assert_eq!(within("a change", stream.message()).await, told_of(COUNTER), "{era}");
        assert_ne!(scene.host.status_of("demo").unwrap().pid.unwrap(), before);
    }
}
