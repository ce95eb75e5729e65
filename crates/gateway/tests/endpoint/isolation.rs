//! Shared servers and dedicated instances: the state that a client sees, the recipient of a server's request, and the
//! cleanup when a client goes.

use crate::client::{
    EventStream, LegacyClient, ModernClient, call, in_context, initialize, request, text_of,
};
use crate::stdio_client::StdioClient;
use crate::test_gateway::{TestGateway, at, child, demo_with};
use gripfast_demo::{EraChoice, Options, RunningServer};
use gripfast_testkit::wait::{until, within};
use http::Method;
use serde_json::{Value, json};

const PER_CLIENT: &str = "isolation = \"per_client\"";

fn instances(gateway: &TestGateway) -> usize {
    gateway.host.server_status("demo").unwrap().instances.count()
}

fn are_apart(gateway: &TestGateway) -> bool {
    gateway.host.server_status("demo").unwrap().instances.enabled
}

fn count() -> Value {
    call("demo__counter", json!({}))
}

fn ask() -> Value {
    call("demo__ask", json!({ "question": "Sure?" }))
}

async fn can_be_asked(gateway: &TestGateway) -> LegacyClient {
    LegacyClient::with_capabilities(&gateway.http, json!({ "elicitation": {} })).await
}

async fn answers(client: &LegacyClient, question: &Value, content: Value) {
    assert_eq!(question["method"], "elicitation/create", "{question}");
    let result = json!({ "action": "accept", "content": content });
    let told = client.post(&json!({ "jsonrpc": "2.0", "id": question["id"], "result": result })).await;
    assert_eq!(told.status, 202);
}

/// Calls `ask` and accepts its elicitation.
async fn is_asked(client: &LegacyClient) -> String {
    let mut stream = client.start_request("asked", "tools/call", ask()).await;
    answers(client, &stream.message().await, json!({ "ok": true })).await;
    text_of(&stream.message().await)
}

#[tokio::test]
async fn each_session_has_a_dedicated_child_and_sessionless_callers_share_one() {
    let gateway = TestGateway::with(&child("demo", &[], &[PER_CLIENT])).await;
    let (one, two) = (LegacyClient::connect(&gateway.http).await, LegacyClient::connect(&gateway.http).await);
    let counts = async |client: &LegacyClient| text_of(&client.request("tools/call", count()).await);
    assert_eq!((counts(&one).await, counts(&two).await), ("1".to_owned(), "1".to_owned()));
    assert_eq!((counts(&one).await, counts(&two).await), ("2".to_owned(), "2".to_owned()));
    for expected in ["1", "2"] {
        // Clients without a session share one child.
        assert_eq!(ModernClient::new(&gateway.http).call_tool("demo__counter", json!({})).await, expected);
    }
    assert_eq!(instances(&gateway), 3);
    let ended = gateway.http.send(Method::DELETE, "/mcp", &[("mcp-session-id", &one.session)], "").await;
    assert_eq!(ended.status, 200);
    until("its child is not kept", || instances(&gateway) == 2).await;
    assert_eq!(counts(&two).await, "3", "the others go on");

    let status = gateway.http.send(Method::GET, "/api/v1/status", &[], "").await.message();
    let rows = status["upstreams"].as_array().unwrap();
    assert_eq!(rows.len(), 1, "{status}");
    let row = &rows[0];
    assert_eq!((&row["isolation"], &row["instances"]), (&json!("per_client"), &json!(2)), "{row}");
    assert_eq!((&row["instance_states"], &row["calls"]), (&json!({ "ready": 2 }), &json!(7)), "{row}");
    let listed = two.request("tools/list", json!({})).await;
    let counters = listed["result"]["tools"].as_array().unwrap().iter();
    assert_eq!(counters.filter(|tool| tool["name"] == "demo__counter").count(), 1);
}

#[tokio::test]
async fn stdio_and_http_sse_connections_have_dedicated_children_and_clean_up() {
    let gateway = TestGateway::with(&child("demo", &[], &[PER_CLIENT])).await;
    let mut pipe = StdioClient::to(&gateway);
    pipe.send(initialize("2025-11-25")).await;
    pipe.receive().await;
    let mut stream = EventStream::of(gateway.http.begin(Method::GET, "/sse", &[], "").await);
    let endpoint = stream.next().await.unwrap().data;
    let post = async |message: Value| {
        gateway.http.send(Method::POST, &endpoint, &[], message.to_string()).await;
    };
    post(initialize("2024-11-05")).await;
    stream.message().await;
    for expected in ["1", "2"] {
        pipe.send(request(expected, "tools/call", &count())).await;
        assert_eq!(text_of(&pipe.receive().await), expected);
        post(request(expected, "tools/call", &count())).await;
        assert_eq!(text_of(&stream.message().await), expected);
    }
    assert_eq!(instances(&gateway), 2);
    drop(stream);
    until("the connection's child is not kept", || instances(&gateway) == 1).await;
    drop(pipe);
    until("the pipe's child is not kept", || instances(&gateway) == 0).await;
}

#[tokio::test]
async fn sharing_ends_for_good_when_a_request_could_be_for_two_clients() {
    let config = child("demo", &["--era", "legacy"], &[]);
    let gateway = TestGateway::with(&config).await;
    let (one, two) = (can_be_asked(&gateway).await, can_be_asked(&gateway).await);
    let mut first = one.start_request("same", "tools/call", ask()).await;
    let question = first.message().await;
    assert_eq!(question["params"]["message"], "Sure?", "it can only be the only client's: {question}");
    let declined = two.request("tools/call", ask()).await;
    assert!(declined["result"]["isError"] == true, "it could be either's: {declined}");
    assert!(are_apart(&gateway) && instances(&gateway) == 0, "instances start with the next calls");

    assert_eq!(is_asked(&two).await, "the answer was yes");
    answers(&one, &question, json!({ "ok": false })).await;
    assert_eq!(text_of(&first.message().await), "the answer was no", "what is under way goes on");
    assert_eq!(is_asked(&one).await, "the answer was yes");
    assert_eq!(instances(&gateway), 2);
    assert_eq!(LegacyClient::connect(&gateway.http).await.call_tool("demo__counter", json!({})).await, "1");
    assert_eq!(instances(&gateway), 2, "a client without elicitation still shares");

    let gateway = gateway.restart(&config).await;
    assert!(are_apart(&gateway));
    let (one, two) = (can_be_asked(&gateway).await, can_be_asked(&gateway).await);
    let both = tokio::join!(is_asked(&one), is_asked(&two));
    assert_eq!(both, ("the answer was yes".to_owned(), "the answer was yes".to_owned()));
}

#[tokio::test]
async fn two_calls_of_one_client_on_a_shared_child_do_not_end_sharing() {
    let gateway = TestGateway::with(&child("demo", &["--era", "legacy"], &[])).await;
    let client = can_be_asked(&gateway).await;
    let mut first = client.start_request("first", "tools/call", ask()).await;
    let one = first.message().await;
    let mut second = client.start_request("second", "tools/call", ask()).await;
    let two = second.message().await;
    answers(&client, &one, json!({ "ok": true })).await;
    assert_eq!(text_of(&first.message().await), "the answer was yes");
    answers(&client, &two, json!({ "ok": false })).await;
    assert_eq!(text_of(&second.message().await), "the answer was no");
    assert!(!are_apart(&gateway));
}

#[tokio::test]
async fn list_changes_of_a_dedicated_child_reach_its_client_only() {
    let gateway = TestGateway::with(&child("demo", &[], &[PER_CLIENT])).await;
    let (one, two) = (LegacyClient::connect(&gateway.http).await, LegacyClient::connect(&gateway.http).await);
    let (mut first, mut second) = (one.open_stream(None).await, two.open_stream(None).await);
    for client in [&one, &two] {
        let subscribed = client.request("resources/subscribe", json!({ "uri": "demo://counter" })).await;
        assert_eq!(subscribed["result"], json!({}), "{subscribed}");
    }
    one.request("tools/call", count()).await;
    assert_eq!(first.message().await["params"]["uri"], "demo://counter");
    two.request("tools/call", count()).await;
    assert_eq!(second.message().await["params"]["uri"], "demo://counter");
    assert!(first.is_silent().await, "the other's counter is not this one's");
}

async fn legacy_demo() -> RunningServer {
    demo_with(Options { era: EraChoice::Legacy, ..Options::default() }).await
}

#[tokio::test]
async fn requests_of_a_dedicated_session_reach_only_its_clients_stream() {
    let demo = legacy_demo().await;
    let gateway = TestGateway::with(&at("demo", &demo.url(), "legacy", &[PER_CLIENT])).await;
    let (one, two, deaf) =
        (can_be_asked(&gateway).await, can_be_asked(&gateway).await, can_be_asked(&gateway).await);
    let (mut first, mut second) = (one.open_stream(None).await, two.open_stream(None).await);
    let mut pipe = StdioClient::to(&gateway);
    let mut hello = initialize("2025-11-25");
    hello["params"]["capabilities"] = json!({ "elicitation": {} });
    pipe.send(hello).await;
    pipe.receive().await;
    for client in [&one, &two, &deaf] {
        client.call_tool("demo__echo", json!({ "text": "here" })).await;
    }
    pipe.send(request(1, "tools/call", &call("demo__echo", json!({ "text": "here" })))).await;
    pipe.receive().await;
    assert_eq!(demo.sessions(), 5, "one for each, and one to list with");

    let asked = async {
        answers(&one, &first.message().await, json!({ "word": "one" })).await;
        answers(&two, &second.message().await, json!({ "word": "two" })).await;
        let question = pipe.receive().await;
        assert_eq!(question["params"]["message"], "Which word?", "{question}");
        let result = json!({ "action": "accept", "content": { "word": "pipe" } });
        pipe.send(json!({ "jsonrpc": "2.0", "id": question["id"], "result": result })).await;
    };
    let (said, ()) =
        within("all answers", async { tokio::join!(demo.ask_sessions("Which word?"), asked) }).await;
    let mut words: Vec<&str> =
        said.iter().map(|body| body["result"]["content"]["word"].as_str().unwrap_or("declined")).collect();
    words.sort_unstable();
    assert_eq!(words, ["declined", "declined", "one", "pipe", "two"], "two requests reached no client");
    assert!(first.is_silent().await && second.is_silent().await);
}

#[tokio::test]
async fn a_modern_client_on_stdio_gets_progress_and_can_cancel() {
    let demo = legacy_demo().await;
    let gateway = TestGateway::with(&at("demo", &demo.url(), "legacy", &[])).await;
    let mut pipe = StdioClient::to(&gateway);
    let mut params = in_context(call("demo__sleep", json!({ "ms": 60_000 })));
    params["_meta"]["progressToken"] = json!("mine");
    pipe.send(request("slow", "tools/call", &params)).await;
    assert_eq!(pipe.receive().await["params"]["progressToken"], "mine");
    let cancelled = json!({ "requestId": "slow" });
    pipe.send(json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": cancelled })).await;
    within("the server is told", demo.until_idle()).await;
}

/// Text of the answer, or the requested input, for a modern client with elicitation.
async fn asks_modern(gateway: &TestGateway, more: Value) -> Value {
    let mut params = ask();
    params.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let can = json!({ "elicitation": { "form": {} } });
    ModernClient::new(&gateway.http).request_as(can, "tools/call", params).await["result"].clone()
}

fn answer_to(wanted: &Value, ok: bool) -> Value {
    assert_eq!(wanted["resultType"], "input_required", "{wanted}");
    let (key, _) = wanted["inputRequests"].as_object().unwrap().iter().next().unwrap();
    let answer = json!({ "action": "accept", "content": { "ok": ok } });
    json!({ "inputResponses": { key: answer }, "requestState": wanted["requestState"] })
}

#[tokio::test]
async fn an_open_elicitation_on_stdio_does_not_block_those_of_other_clients() {
    let gateway = TestGateway::with(&child("demo", &["--era", "legacy"], &[])).await;
    let mut open = Vec::new();
    for _ in 0..3 {
        open.push(asks_modern(&gateway, json!({})).await);
    }
    assert_eq!(instances(&gateway), 2, "the first client uses the shared instance");
    // Each client gets its own answer, in any order.
    for (wanted, ok) in open.iter().zip([true, false, true]).rev() {
        let told = asks_modern(&gateway, answer_to(wanted, ok)).await;
        let text = if ok { "the answer was yes" } else { "the answer was no" };
        assert_eq!(told["content"][0]["text"], text, "{told}");
    }
    let again = asks_modern(&gateway, json!({})).await;
    assert_eq!(instances(&gateway), 2, "one that is free is used again");
    assert_eq!(asks_modern(&gateway, answer_to(&again, true)).await["resultType"], "complete");
}
