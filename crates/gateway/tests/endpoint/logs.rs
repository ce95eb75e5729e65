//! Log messages: only on the stream of their call, at the level that its client set, in all pairings of eras.

use crate::client::{HttpResponse, LegacyClient, ModernClient, call, request};
use crate::test_gateway::{TestGateway, at, child, demo_with};
use gripfast_demo::{EraChoice, Options, RunningServer};
use serde_json::{Value, json};

async fn both_eras() -> [(RunningServer, TestGateway); 2] {
    let one = async |era, protocol| {
        let demo = demo_with(Options { era, ..Options::default() }).await;
        let gateway = TestGateway::with(&at("demo", &demo.url(), protocol, &[])).await;
        (demo, gateway)
    };
    [one(EraChoice::Legacy, "legacy").await, one(EraChoice::Modern, "modern").await]
}

fn echo() -> Value {
    call("demo__echo", json!({ "text": "hi" }))
}

fn logged(level: &str) -> Value {
    let mut params = echo();
    params["_meta"] = json!({ "io.modelcontextprotocol/logLevel": level });
    params
}

/// Levels of the log messages before the answer.
fn levels(answered: &HttpResponse) -> Vec<String> {
    let data = answered.text.lines().filter_map(|line| line.strip_prefix("data: "));
    let messages =
        data.filter(|data| !data.is_empty()).map(|data| serde_json::from_str::<Value>(data).unwrap());
    let logs = messages.filter(|message| message["method"] == "notifications/message");
    logs.map(|message| message["params"]["level"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn log_messages_of_a_call_reach_its_legacy_client_if_they_are_severe_enough() {
    for (_demo, gateway) in both_eras().await {
        let (client, silent) =
            (LegacyClient::connect(&gateway.http).await, LegacyClient::connect(&gateway.http).await);
        let echo = request(7, "tools/call", &echo());
        silent.request("logging/setLevel", json!({ "level": "error" })).await;
        let set = client.request("logging/setLevel", json!({ "level": "info" })).await;
        assert_eq!(set["result"], json!({}), "{set}");
        let answered = client.post(&echo).await;
        assert_eq!(levels(&answered), ["info"], "from the very next call on: {answered:?}");
        assert_eq!(answered.message()["id"], 7, "the answer comes last: {answered:?}");
        assert!(!silent.post(&echo).await.is_events(), "a client with level `error` gets no log messages");
        let wrong = client.request("logging/setLevel", json!({ "level": "loud" })).await;
        assert_eq!(wrong["error"]["code"], -32602, "{wrong}");
    }
}

#[tokio::test]
async fn log_messages_of_a_modern_request_follow_its_level_or_are_not_sent() {
    for (_demo, gateway) in both_eras().await {
        let client = ModernClient::new(&gateway.http);
        let answered = client.send_request("tools/call", logged("debug")).await;
        assert_eq!(levels(&answered), ["info"], "{answered:?}");
        assert_eq!(answered.message()["result"]["content"][0]["text"], "hi", "{answered:?}");
        assert_eq!(levels(&client.send_request("tools/call", logged("warning")).await), [""; 0]);
        assert!(!client.send_request("tools/call", echo()).await.is_events());
        assert_eq!(client.send_request("tools/call", logged("loud")).await.refusal(), (400, -32602));
    }
}

#[tokio::test]
async fn d04_the_log_level_is_set_again_in_a_new_session_with_a_legacy_server() {
    let [(demo, gateway), _] = both_eras().await;
    let client = ModernClient::new(&gateway.http);
    assert_eq!(levels(&client.send_request("tools/call", logged("info")).await), ["info"]);
    demo.forget_sessions();
    assert_eq!(levels(&client.send_request("tools/call", logged("info")).await), ["info"]);
    assert_eq!(demo.initializes(), 2);
}

#[tokio::test]
async fn on_stdio_a_log_message_belongs_to_the_only_call_in_flight() {
    let gateway = TestGateway::with(&child("demo", &["--era", "legacy"], &[])).await;
    let client = ModernClient::new(&gateway.http);
    assert_eq!(levels(&client.send_request("tools/call", logged("info")).await), ["info"]);
}
