//! Roots that change while servers remember them: whoever has asked is told, and asks again.

use crate::client::{Events, Legacy, call, initialize, request, text_of};
use crate::news::Pipe;
use crate::scene::{Scene, at, child, demo_with, until, within};
use gripfast_demo::{EraChoice, Options};
use serde_json::{Value, json};

const FLAGS: &[&str] = &["--showcase", "--era", "legacy"];
const PER_CLIENT: &str = "isolation = \"per_client\"";

fn changed() -> Value {
    json!({ "jsonrpc": "2.0", "method": "notifications/roots/list_changed" })
}

fn roots() -> Value {
    call("demo__roots", json!({}))
}

/// The answer to a question for roots.
fn are(question: &Value, uri: &str) -> Value {
    assert_eq!(question["method"], "roots/list", "{question}");
    json!({ "jsonrpc": "2.0", "id": question["id"], "result": { "roots": [{ "uri": uri }] } })
}

async fn client_of(scene: &Scene) -> Legacy {
    Legacy::with_capabilities(&scene.http, json!({ "roots": { "listChanged": true } })).await
}

/// Calls a server that wants to know the roots, and says that they are these.
async fn is_asked(client: &Legacy, uri: &str) {
    let mut stream = client.begins("mine", "tools/call", roots()).await;
    let question = stream.message().await;
    assert_eq!(client.post(&are(&question, uri)).await.status, 202);
    assert_eq!(text_of(&stream.message().await), uri);
}

#[tokio::test]
async fn a_legacy_server_that_remembers_the_roots_of_its_client_hears_that_they_have_changed() {
    let scene = Scene::with(&child("demo", FLAGS, &[PER_CLIENT])).await;
    let client = client_of(&scene).await;
    is_asked(&client, "file:///a").await;
    assert_eq!(client.calls("demo__roots", json!({})).await, "file:///a", "it is not asked twice");
    let mut stream: Events = client.listens(None).await;
    assert_eq!(client.post(&changed()).await.status, 202);
    let question = stream.message().await;
    assert_eq!(client.post(&are(&question, "file:///b")).await.status, 202);
    let knows = async { while client.calls("demo__roots", json!({})).await != "file:///b" {} };
    within("the server knows the new ones", knows).await;
}

#[tokio::test]
async fn a_client_on_a_pipe_says_so_too() {
    let scene = Scene::with(&child("demo", FLAGS, &[PER_CLIENT])).await;
    let mut pipe = Pipe::to(&scene);
    let mut hello = initialize("2025-11-25");
    hello["params"]["capabilities"] = json!({ "roots": { "listChanged": true } });
    pipe.says(hello).await;
    pipe.hears().await;
    pipe.says(request("mine", "tools/call", &roots())).await;
    let question = pipe.hears().await;
    pipe.says(are(&question, "file:///a")).await;
    assert_eq!(text_of(&pipe.hears().await), "file:///a");
    pipe.says(changed()).await;
    let question = pipe.hears().await;
    are(&question, "file:///b");
}

#[tokio::test]
async fn a_shared_server_that_asks_again_has_nobody_to_ask_and_each_client_has_its_own_from_then_on() {
    let demo = demo_with(Options { era: EraChoice::Legacy, showcase: true, ..Options::default() }).await;
    let scene = Scene::with(&at("demo", &demo.url(), "legacy", &[])).await;
    let client = client_of(&scene).await;
    is_asked(&client, "file:///a").await;
    assert_eq!(client.post(&changed()).await.status, 202);
    until("they are kept apart", || scene.host.status_of("demo").unwrap().instances.are_apart).await;
    is_asked(&client, "file:///b").await;
}

#[tokio::test]
async fn a_modern_server_is_given_the_roots_of_that_moment_whenever_it_asks() {
    let demo = demo_with(Options { era: EraChoice::Modern, showcase: true, ..Options::default() }).await;
    let scene = Scene::with(&at("demo", &demo.url(), "modern", &[])).await;
    let client = client_of(&scene).await;
    is_asked(&client, "file:///a").await;
    assert_eq!(client.post(&changed()).await.status, 202, "taken, and nothing to be done");
    is_asked(&client, "file:///b").await;
}
