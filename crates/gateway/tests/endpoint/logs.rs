//! Log messages: on the stream of the call that they belong to, at the level that its client asked for, in all
//! pairings of eras; and nowhere else.

use crate::client::{Answered, Legacy, Modern, call, request};
use crate::scene::{Scene, at, child, demo_with};
use gripfast_demo::{EraChoice, Options, RunningServer};
use serde_json::{Value, json};

async fn both_eras() -> [(RunningServer, Scene); 2] {
    let one = async |era, protocol| {
        let demo = demo_with(Options { era, ..Options::default() }).await;
        let scene = Scene::with(&at("demo", &demo.url(), protocol, &[])).await;
        (demo, scene)
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

/// The levels of the log messages before the answer.
fn levels(answered: &Answered) -> Vec<String> {
    let data = answered.text.lines().filter_map(|line| line.strip_prefix("data: "));
    let messages =
        data.filter(|data| !data.is_empty()).map(|data| serde_json::from_str::<Value>(data).unwrap());
    let logs = messages.filter(|message| message["method"] == "notifications/message");
    logs.map(|message| message["params"]["level"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn log_messages_of_a_call_reach_its_legacy_client_if_they_are_severe_enough() {
    for (_demo, scene) in both_eras().await {
        let (client, silent) = (Legacy::meets(&scene.http).await, Legacy::meets(&scene.http).await);
        let echo = request(7, "tools/call", &echo());
        silent.asks("logging/setLevel", json!({ "level": "error" })).await;
        let set = client.asks("logging/setLevel", json!({ "level": "info" })).await;
        assert_eq!(set["result"], json!({}), "{set}");
        let answered = client.post(&echo).await;
        assert_eq!(levels(&answered), ["info"], "from the very next call on: {answered:?}");
        assert_eq!(answered.message()["id"], 7, "the answer comes last: {answered:?}");
        assert!(!silent.post(&echo).await.is_events(), "whoever wants errors only hears nothing");
        let wrong = client.asks("logging/setLevel", json!({ "level": "loud" })).await;
        assert_eq!(wrong["error"]["code"], -32602, "{wrong}");
    }
}

#[tokio::test]
async fn log_messages_of_a_modern_request_come_at_the_level_that_it_names_and_without_one_not_at_all() {
    for (_demo, scene) in both_eras().await {
        let client = Modern::of(&scene.http);
        let answered = client.sends("tools/call", logged("debug")).await;
        assert_eq!(levels(&answered), ["info"], "{answered:?}");
        assert_eq!(answered.message()["result"]["content"][0]["text"], "hi", "{answered:?}");
        assert_eq!(levels(&client.sends("tools/call", logged("warning")).await), [""; 0]);
        assert!(!client.sends("tools/call", echo()).await.is_events());
        assert_eq!(client.sends("tools/call", logged("loud")).await.refusal(), (400, -32602));
    }
}

#[tokio::test]
async fn d04_a_new_session_with_a_legacy_server_is_told_the_level_again() {
    let [(demo, scene), _] = both_eras().await;
    let client = Modern::of(&scene.http);
    assert_eq!(levels(&client.sends("tools/call", logged("info")).await), ["info"]);
    demo.forget_sessions();
    assert_eq!(levels(&client.sends("tools/call", logged("info")).await), ["info"]);
    assert_eq!(demo.initializes(), 2);
}

#[tokio::test]
async fn on_a_pipe_a_log_message_belongs_to_the_only_call_under_way() {
    let scene = Scene::with(&child("demo", &["--era", "legacy"], &[])).await;
    let client = Modern::of(&scene.http);
    assert_eq!(levels(&client.sends("tools/call", logged("info")).await), ["info"]);
}
