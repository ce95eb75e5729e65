//! JSON-RPC batches: answered as a batch in the one protocol version that has them, on every transport, and refused in
//! all others.

use crate::client::{EventStream, HttpClient, LEGACY, LegacyClient, initialize, request};
use crate::stdio_client::StdioClient;
use crate::test_gateway::{TestGateway, at, demo};
use http::Method;
use serde_json::{Value, json};

/// Protocol version with batches.
const BATCHES: &str = "2025-03-26";

fn echo(id: &str, text: &str) -> Value {
    request(id, "tools/call", &json!({ "name": "demo__echo", "arguments": { "text": text } }))
}

/// Batch of requests, a notification, an invalid message, and an `initialize`, which must not be in a batch.
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
async fn a_batch_is_answered_as_a_batch_in_the_version_that_has_batches() {
    let demo = demo().await;
    let gateway = TestGateway::with(&at("demo", &demo.url(), "legacy", &[])).await;
    let client = LegacyClient::connect_with_version(&gateway.http, BATCHES).await;
    let answered = client.post(&batch()).await;
    assert_eq!(answered.status, 200);
    assert_answered(&answered.message());
    let silent = json!([{ "jsonrpc": "2.0", "method": "notifications/initialized" }]);
    assert_eq!(client.post(&silent).await.status, 202);
}

#[tokio::test]
async fn a_batch_in_a_version_without_batches_is_a_400() {
    let demo = demo().await;
    let gateway = TestGateway::with(&at("demo", &demo.url(), "legacy", &[])).await;
    let client = LegacyClient::connect(&gateway.http).await;
    let answered = client.post(&json!([request(1, "ping", &json!({}))])).await;
    assert_eq!(answered.refusal(), (400, -32600));
}

/// Client of a transport with a single channel: stdio or HTTP+SSE.
enum Channel {
    Stdio(Box<StdioClient>),
    Sse(Box<Sse>),
}

struct Sse {
    http: HttpClient,
    stream: EventStream,
    path: String,
}

impl Channel {
    async fn both(gateway: &TestGateway) -> [Self; 2] {
        let mut stream = EventStream::of(gateway.http.begin(Method::GET, "/sse", &[], "").await);
        let path = stream.next().await.unwrap().data;
        [
            Self::Stdio(Box::new(StdioClient::to(gateway))),
            Self::Sse(Box::new(Sse { http: gateway.http.clone(), stream, path })),
        ]
    }

    async fn send(&mut self, message: Value) {
        match self {
            Self::Stdio(pipe) => pipe.send(message).await,
            Self::Sse(sse) => {
                let told = sse.http.send(Method::POST, &sse.path, &[], message.to_string()).await;
                assert_eq!(told.status, 202);
            }
        }
    }

    async fn receive(&mut self) -> Value {
        match self {
            Self::Stdio(pipe) => pipe.receive().await,
            Self::Sse(sse) => sse.stream.message().await,
        }
    }
}

#[tokio::test]
async fn on_stdio_and_sse_a_batch_is_answered_as_a_batch_too() {
    let demo = demo().await;
    let gateway = TestGateway::with(&at("demo", &demo.url(), "legacy", &[])).await;
    for mut channel in Channel::both(&gateway).await {
        channel.send(initialize(BATCHES)).await;
        assert_eq!(channel.receive().await["result"]["protocolVersion"], BATCHES);
        channel.send(batch()).await;
        assert_answered(&channel.receive().await);
        // This batch contains no request, so it has no answer.
        channel.send(json!([{ "jsonrpc": "2.0", "method": "notifications/initialized" }])).await;
        channel.send(request("after", "ping", &json!({}))).await;
        assert_eq!(channel.receive().await["id"], "after");
    }
}

#[tokio::test]
async fn a_call_of_a_batch_that_is_cancelled_has_no_answer_and_the_others_have() {
    let demo = demo().await;
    let gateway = TestGateway::with(&at("demo", &demo.url(), "legacy", &[])).await;
    for mut channel in Channel::both(&gateway).await {
        channel.send(initialize(BATCHES)).await;
        channel.receive().await;
        let slow = json!({ "name": "demo__sleep", "arguments": { "ms": 600_000 } });
        channel.send(json!([request("slow", "tools/call", &slow), echo("a", "one")])).await;
        let cancelled = json!({ "requestId": "slow" });
        channel
            .send(json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": cancelled }))
            .await;
        let answers = channel.receive().await;
        assert_eq!(answers.as_array().unwrap().len(), 1, "{answers}");
        assert_eq!(answers[0]["id"], "a", "{answers}");
    }
}

#[tokio::test]
async fn on_stdio_and_sse_a_batch_is_refused_before_initialize_and_in_other_versions() {
    let demo = demo().await;
    let gateway = TestGateway::with(&at("demo", &demo.url(), "legacy", &[])).await;
    for mut channel in Channel::both(&gateway).await {
        for version in [None, Some("2024-11-05"), Some("2025-06-18"), Some(LEGACY)] {
            if let Some(version) = version {
                channel.send(initialize(version)).await;
                assert_eq!(channel.receive().await["result"]["protocolVersion"], version);
            }
            channel.send(json!([echo("a", "one")])).await;
            let refused = channel.receive().await;
            assert_eq!(
                (&refused["error"]["code"], &refused["id"]),
                (&json!(-32600), &Value::Null),
                "{refused}"
            );
        }
    }
    assert_eq!(demo.calls(), 0);
}
