//! Changed roots of a client: servers that listed them are notified and list them again.

use crate::client::{EventStream, LegacyClient, call, initialize, request, text_of};
use crate::stdio_client::StdioClient;
use crate::test_gateway::{TestGateway, at, child, demo_with};
use gripfast_demo::{EraChoice, Options};
use gripfast_testkit::wait::{until, within};
use serde_json::{Value, json};

const FLAGS: &[&str] = &["--showcase", "--era", "legacy"];
const PER_CLIENT: &str = "isolation = \"per_client\"";

fn changed() -> Value {
    json!({ "jsonrpc": "2.0", "method": "notifications/roots/list_changed" })
}

fn roots() -> Value {
    call("demo__roots", json!({}))
}

/// Answer to `roots/list`.
fn are(question: &Value, uri: &str) -> Value {
    assert_eq!(question["method"], "roots/list", "{question}");
    json!({ "jsonrpc": "2.0", "id": question["id"], "result": { "roots": [{ "uri": uri }] } })
}

async fn client_of(gateway: &TestGateway) -> LegacyClient {
    LegacyClient::with_capabilities(&gateway.http, json!({ "roots": { "listChanged": true } })).await
}

/// Calls a tool that lists the roots, and answers with this URI.
async fn is_asked(client: &LegacyClient, uri: &str) {
    let mut stream = client.start_request("mine", "tools/call", roots()).await;
    let question = stream.message().await;
    assert_eq!(client.post(&are(&question, uri)).await.status, 202);
    assert_eq!(text_of(&stream.message().await), uri);
}

#[tokio::test]
async fn a_legacy_server_that_listed_the_roots_is_notified_of_changes() {
    let gateway = TestGateway::with(&child("demo", FLAGS, &[PER_CLIENT])).await;
    let client = client_of(&gateway).await;
    is_asked(&client, "file:///a").await;
    assert_eq!(client.call_tool("demo__roots", json!({})).await, "file:///a", "it is not asked twice");
    let mut stream: EventStream = client.open_stream(None).await;
    assert_eq!(client.post(&changed()).await.status, 202);
    let question = stream.message().await;
    assert_eq!(client.post(&are(&question, "file:///b")).await.status, 202);
    let knows = async { while client.call_tool("demo__roots", json!({})).await != "file:///b" {} };
    within("the server knows the new ones", knows).await;
}

#[tokio::test]
async fn a_client_on_stdio_reports_changed_roots_too() {
    let gateway = TestGateway::with(&child("demo", FLAGS, &[PER_CLIENT])).await;
    let mut pipe = StdioClient::to(&gateway);
    let mut hello = initialize("2025-11-25");
    hello["params"]["capabilities"] = json!({ "roots": { "listChanged": true } });
    pipe.send(hello).await;
    pipe.receive().await;
    pipe.send(request("mine", "tools/call", &roots())).await;
    let question = pipe.receive().await;
    pipe.send(are(&question, "file:///a")).await;
    assert_eq!(text_of(&pipe.receive().await), "file:///a");
    pipe.send(changed()).await;
    let question = pipe.receive().await;
    are(&question, "file:///b");
}

#[tokio::test]
async fn a_shared_server_that_lists_roots_again_ends_sharing() {
    let demo = demo_with(Options { era: EraChoice::Legacy, showcase: true, ..Options::default() }).await;
    let gateway = TestGateway::with(&at("demo", &demo.url(), "legacy", &[])).await;
    let client = client_of(&gateway).await;
    is_asked(&client, "file:///a").await;
    assert_eq!(client.post(&changed()).await.status, 202);
    until("they are kept apart", || gateway.host.server_status("demo").unwrap().instances.enabled).await;
    is_asked(&client, "file:///b").await;
}

#[tokio::test]
async fn a_modern_server_gets_the_current_roots_on_every_request() {
    let demo = demo_with(Options { era: EraChoice::Modern, showcase: true, ..Options::default() }).await;
    let gateway = TestGateway::with(&at("demo", &demo.url(), "modern", &[])).await;
    let client = client_of(&gateway).await;
    is_asked(&client, "file:///a").await;
    assert_eq!(client.post(&changed()).await.status, 202, "taken, and nothing to be done");
    is_asked(&client, "file:///b").await;
}
