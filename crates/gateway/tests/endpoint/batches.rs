//! Batches, which one version of the protocol has: answered as a batch there, on every transport, and refused in all
//! others.

use crate::client::{Events, Http, LEGACY, Legacy, initialize, request};
use crate::news::Pipe;
use crate::scene::{Scene, at, demo};
use http::Method;
use serde_json::{Value, json};

/// The version that has them.
const BATCHES: &str = "2025-03-26";

fn echo(id: &str, text: &str) -> Value {
    request(id, "tools/call", &json!({ "name": "demo__echo", "arguments": { "text": text } }))
}

/// Requests, a notification, something that is no message, and a handshake, which stands alone.
fn batch() -> Value {
    json!([
        echo("a", "one"),
        { "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": "nobody" } },
        echo("b", "two"),
        { "jsonrpc": "2.0", "id": "c" },
        initialize(LEGACY),
    ])
}

fn assert_answered(answers: &Value) {
    let all = answers.as_array().unwrap_or_else(|| panic!("no batch: {answers}"));
    let by_id = |id: Value| all.iter().find(|answer| answer["id"] == id).unwrap();
    assert_eq!(by_id(json!("a"))["result"]["structuredContent"]["text"], "one");
    assert_eq!(by_id(json!("b"))["result"]["structuredContent"]["text"], "two");
    assert_eq!(by_id(json!(0))["error"]["code"], -32600, "a handshake stands alone");
    assert_eq!(by_id(Value::Null)["error"]["code"], -32600, "what is no message has an error of its own");
    assert_eq!(all.len(), 4, "{answers}");
}

#[tokio::test]
async fn a_batch_is_answered_as_a_batch_in_the_version_that_has_them() {
    let demo = demo().await;
    let scene = Scene::with(&at("demo", &demo.url(), "legacy", &[])).await;
    let client = Legacy::speaks(&scene.http, BATCHES).await;
    let answered = client.post(&batch()).await;
    assert_eq!(answered.status, 200);
    assert_answered(&answered.message());
    let silent = json!([{ "jsonrpc": "2.0", "method": "notifications/initialized" }]);
    assert_eq!(client.post(&silent).await.status, 202);
}

#[tokio::test]
async fn a_batch_in_a_version_without_batches_is_a_400() {
    let demo = demo().await;
    let scene = Scene::with(&at("demo", &demo.url(), "legacy", &[])).await;
    let client = Legacy::meets(&scene.http).await;
    let answered = client.post(&json!([request(1, "ping", &json!({}))])).await;
    assert_eq!(answered.refusal(), (400, -32600));
}

/// A client of one channel: a pipe, or the oldest HTTP.
enum Channel {
    Pipe(Box<Pipe>),
    Sse(Box<Sse>),
}

struct Sse {
    http: Http,
    stream: Events,
    path: String,
}

impl Channel {
    async fn both(scene: &Scene) -> [Self; 2] {
        let mut stream = Events::of(scene.http.begin(Method::GET, "/sse", &[], "").await);
        let path = stream.next().await.unwrap().data;
        [
            Self::Pipe(Box::new(Pipe::to(scene))),
            Self::Sse(Box::new(Sse { http: scene.http.clone(), stream, path })),
        ]
    }

    async fn says(&mut self, message: Value) {
        match self {
            Self::Pipe(pipe) => pipe.says(message).await,
            Self::Sse(sse) => {
                let told = sse.http.send(Method::POST, &sse.path, &[], message.to_string()).await;
                assert_eq!(told.status, 202);
            }
        }
    }

    async fn hears(&mut self) -> Value {
        match self {
            Self::Pipe(pipe) => pipe.hears().await,
            Self::Sse(sse) => sse.stream.message().await,
        }
    }
}

#[tokio::test]
async fn on_one_channel_a_batch_is_answered_as_a_batch_too() {
    let demo = demo().await;
    let scene = Scene::with(&at("demo", &demo.url(), "legacy", &[])).await;
    for mut channel in Channel::both(&scene).await {
        channel.says(initialize(BATCHES)).await;
        assert_eq!(channel.hears().await["result"]["protocolVersion"], BATCHES);
        channel.says(batch()).await;
        assert_answered(&channel.hears().await);
        // Nothing in this one wants an answer.
        channel.says(json!([{ "jsonrpc": "2.0", "method": "notifications/initialized" }])).await;
        channel.says(request("after", "ping", &json!({}))).await;
        assert_eq!(channel.hears().await["id"], "after");
    }
}

#[tokio::test]
async fn a_call_of_a_batch_that_is_cancelled_has_no_answer_and_the_others_have() {
    let demo = demo().await;
    let scene = Scene::with(&at("demo", &demo.url(), "legacy", &[])).await;
    for mut channel in Channel::both(&scene).await {
        channel.says(initialize(BATCHES)).await;
        channel.hears().await;
        let slow = json!({ "name": "demo__sleep", "arguments": { "ms": 600_000 } });
        channel.says(json!([request("slow", "tools/call", &slow), echo("a", "one")])).await;
        let cancelled = json!({ "requestId": "slow" });
        channel
            .says(json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": cancelled }))
            .await;
        let answers = channel.hears().await;
        assert_eq!(answers.as_array().unwrap().len(), 1, "{answers}");
        assert_eq!(answers[0]["id"], "a", "{answers}");
    }
}

#[tokio::test]
async fn on_one_channel_a_batch_is_refused_before_the_handshake_and_in_every_other_version() {
    let demo = demo().await;
    let scene = Scene::with(&at("demo", &demo.url(), "legacy", &[])).await;
    for mut channel in Channel::both(&scene).await {
        for version in [None, Some("2024-11-05"), Some("2025-06-18"), Some(LEGACY)] {
            if let Some(version) = version {
                channel.says(initialize(version)).await;
                assert_eq!(channel.hears().await["result"]["protocolVersion"], version);
            }
            channel.says(json!([echo("a", "one")])).await;
            let refused = channel.hears().await;
            assert_eq!(
                (&refused["error"]["code"], &refused["id"]),
                (&json!(-32600), &Value::Null),
                "{refused}"
            );
        }
    }
    assert_eq!(demo.calls(), 0);
}
