//! Servers that are shared, and servers of which each client has its own: whose state a client meets, whom a
//! question reaches, and what is left when a client goes.

use crate::client::{Events, Legacy, Modern, call, in_context, initialize, request, text_of};
use crate::news::Pipe;
use crate::scene::{Scene, at, child, demo_with, until, within};
use gripfast_demo::{EraChoice, Options, RunningServer};
use http::Method;
use serde_json::{Value, json};

const PER_CLIENT: &str = "isolation = \"per_client\"";

fn instances(scene: &Scene) -> usize {
    scene.host.status_of("demo").unwrap().instances.count()
}

fn are_apart(scene: &Scene) -> bool {
    scene.host.status_of("demo").unwrap().instances.are_apart
}

fn count() -> Value {
    call("demo__counter", json!({}))
}

fn ask() -> Value {
    call("demo__ask", json!({ "question": "Sure?" }))
}

async fn can_be_asked(scene: &Scene) -> Legacy {
    Legacy::with_capabilities(&scene.http, json!({ "elicitation": {} })).await
}

async fn answers(client: &Legacy, question: &Value, content: Value) {
    assert_eq!(question["method"], "elicitation/create", "{question}");
    let result = json!({ "action": "accept", "content": content });
    let told = client.post(&json!({ "jsonrpc": "2.0", "id": question["id"], "result": result })).await;
    assert_eq!(told.status, 202);
}

/// Calls `ask` and says yes.
async fn is_asked(client: &Legacy) -> String {
    let mut stream = client.begins("asked", "tools/call", ask()).await;
    answers(client, &stream.message().await, json!({ "ok": true })).await;
    text_of(&stream.message().await)
}

#[tokio::test]
async fn each_session_has_a_child_of_its_own_and_callers_without_one_share_theirs() {
    let scene = Scene::with(&child("demo", &[], &[PER_CLIENT])).await;
    let (one, two) = (Legacy::meets(&scene.http).await, Legacy::meets(&scene.http).await);
    let counts = async |client: &Legacy| text_of(&client.asks("tools/call", count()).await);
    assert_eq!((counts(&one).await, counts(&two).await), ("1".to_owned(), "1".to_owned()));
    assert_eq!((counts(&one).await, counts(&two).await), ("2".to_owned(), "2".to_owned()));
    for expected in ["1", "2"] {
        // Another client, for all that can be told.
        assert_eq!(Modern::of(&scene.http).calls("demo__counter", json!({})).await, expected);
    }
    assert_eq!(instances(&scene), 3);
    let ended = scene.http.send(Method::DELETE, "/mcp", &[("mcp-session-id", &one.session)], "").await;
    assert_eq!(ended.status, 200);
    until("its child is not kept", || instances(&scene) == 2).await;
    assert_eq!(counts(&two).await, "3", "the others go on");

    let status = scene.http.send(Method::GET, "/api/v1/status", &[], "").await.message();
    let rows = status["upstreams"].as_array().unwrap();
    assert_eq!(rows.len(), 1, "{status}");
    let row = &rows[0];
    assert_eq!((&row["isolation"], &row["instances"]), (&json!("per_client"), &json!(2)), "{row}");
    assert_eq!((&row["instance_states"], &row["calls"]), (&json!({ "ready": 2 }), &json!(7)), "{row}");
    let listed = two.asks("tools/list", json!({})).await;
    let counters = listed["result"]["tools"].as_array().unwrap().iter();
    assert_eq!(counters.filter(|tool| tool["name"] == "demo__counter").count(), 1);
}

#[tokio::test]
async fn a_pipe_and_a_connection_of_the_oldest_http_are_clients_too_and_leave_nothing_behind() {
    let scene = Scene::with(&child("demo", &[], &[PER_CLIENT])).await;
    let mut pipe = Pipe::to(&scene);
    pipe.says(initialize("2025-11-25")).await;
    pipe.hears().await;
    let mut stream = Events::of(scene.http.begin(Method::GET, "/sse", &[], "").await);
    let endpoint = stream.next().await.unwrap().data;
    let post = async |message: Value| {
        scene.http.send(Method::POST, &endpoint, &[], message.to_string()).await;
    };
    post(initialize("2024-11-05")).await;
    stream.message().await;
    for expected in ["1", "2"] {
        pipe.says(request(expected, "tools/call", &count())).await;
        assert_eq!(text_of(&pipe.hears().await), expected);
        post(request(expected, "tools/call", &count())).await;
        assert_eq!(text_of(&stream.message().await), expected);
    }
    assert_eq!(instances(&scene), 2);
    drop(stream);
    until("the connection's child is not kept", || instances(&scene) == 1).await;
    drop(pipe);
    until("the pipe's child is not kept", || instances(&scene) == 0).await;
}

#[tokio::test]
async fn a_shared_pipe_is_given_up_when_a_question_could_be_for_two_clients_and_that_is_remembered() {
    let config = child("demo", &["--era", "legacy"], &[]);
    let scene = Scene::with(&config).await;
    let (one, two) = (can_be_asked(&scene).await, can_be_asked(&scene).await);
    let mut first = one.begins("same", "tools/call", ask()).await;
    let question = first.message().await;
    assert_eq!(question["params"]["message"], "Sure?", "it can only be the only client's: {question}");
    let declined = two.asks("tools/call", ask()).await;
    assert!(declined["result"]["isError"] == true, "it could be either's: {declined}");
    assert!(are_apart(&scene) && instances(&scene) == 0, "from now on, and for those who call");

    assert_eq!(is_asked(&two).await, "the answer was yes");
    answers(&one, &question, json!({ "ok": false })).await;
    assert_eq!(text_of(&first.message().await), "the answer was no", "what is under way goes on");
    assert_eq!(is_asked(&one).await, "the answer was yes");
    assert_eq!(instances(&scene), 2);
    assert_eq!(Legacy::meets(&scene.http).await.calls("demo__counter", json!({})).await, "1");
    assert_eq!(instances(&scene), 2, "whoever cannot be asked still shares");

    let scene = scene.restart(&config).await;
    assert!(are_apart(&scene));
    let (one, two) = (can_be_asked(&scene).await, can_be_asked(&scene).await);
    let both = tokio::join!(is_asked(&one), is_asked(&two));
    assert_eq!(both, ("the answer was yes".to_owned(), "the answer was yes".to_owned()));
}

#[tokio::test]
async fn two_calls_of_one_client_on_a_shared_pipe_are_no_reason_to_give_it_up() {
    let scene = Scene::with(&child("demo", &["--era", "legacy"], &[])).await;
    let client = can_be_asked(&scene).await;
    let mut first = client.begins("first", "tools/call", ask()).await;
    let one = first.message().await;
    let mut second = client.begins("second", "tools/call", ask()).await;
    let two = second.message().await;
    answers(&client, &one, json!({ "ok": true })).await;
    assert_eq!(text_of(&first.message().await), "the answer was yes");
    answers(&client, &two, json!({ "ok": false })).await;
    assert_eq!(text_of(&second.message().await), "the answer was no");
    assert!(!are_apart(&scene));
}

#[tokio::test]
async fn what_changes_in_a_clients_own_child_is_told_to_that_client_alone() {
    let scene = Scene::with(&child("demo", &[], &[PER_CLIENT])).await;
    let (one, two) = (Legacy::meets(&scene.http).await, Legacy::meets(&scene.http).await);
    let (mut first, mut second) = (one.listens(None).await, two.listens(None).await);
    for client in [&one, &two] {
        let subscribed = client.asks("resources/subscribe", json!({ "uri": "demo://counter" })).await;
        assert_eq!(subscribed["result"], json!({}), "{subscribed}");
    }
    one.asks("tools/call", count()).await;
    assert_eq!(first.message().await["params"]["uri"], "demo://counter");
    two.asks("tools/call", count()).await;
    assert_eq!(second.message().await["params"]["uri"], "demo://counter");
    assert!(first.is_silent().await, "the other's counter is not this one's");
}

async fn legacy_demo() -> RunningServer {
    demo_with(Options { era: EraChoice::Legacy, ..Options::default() }).await
}

#[tokio::test]
async fn what_a_clients_own_session_asks_outside_any_call_comes_on_its_stream_and_on_nobody_elses() {
    let demo = legacy_demo().await;
    let scene = Scene::with(&at("demo", &demo.url(), "legacy", &[PER_CLIENT])).await;
    let (one, two, deaf) =
        (can_be_asked(&scene).await, can_be_asked(&scene).await, can_be_asked(&scene).await);
    let (mut first, mut second) = (one.listens(None).await, two.listens(None).await);
    let mut pipe = Pipe::to(&scene);
    let mut hello = initialize("2025-11-25");
    hello["params"]["capabilities"] = json!({ "elicitation": {} });
    pipe.says(hello).await;
    pipe.hears().await;
    for client in [&one, &two, &deaf] {
        client.calls("demo__echo", json!({ "text": "here" })).await;
    }
    pipe.says(request(1, "tools/call", &call("demo__echo", json!({ "text": "here" })))).await;
    pipe.hears().await;
    assert_eq!(demo.sessions(), 5, "one for each, and one to list with");

    let asked = async {
        answers(&one, &first.message().await, json!({ "word": "one" })).await;
        answers(&two, &second.message().await, json!({ "word": "two" })).await;
        let question = pipe.hears().await;
        assert_eq!(question["params"]["message"], "Which word?", "{question}");
        let result = json!({ "action": "accept", "content": { "word": "pipe" } });
        pipe.says(json!({ "jsonrpc": "2.0", "id": question["id"], "result": result })).await;
    };
    let (said, ()) =
        within("all answers", async { tokio::join!(demo.ask_sessions("Which word?"), asked) }).await;
    let mut words: Vec<&str> =
        said.iter().map(|body| body["result"]["content"]["word"].as_str().unwrap_or("declined")).collect();
    words.sort_unstable();
    assert_eq!(words, ["declined", "declined", "one", "pipe", "two"], "nobody heard the other two");
    assert!(first.is_silent().await && second.is_silent().await);
}

#[tokio::test]
async fn a_modern_client_on_a_pipe_hears_of_progress_and_can_cancel() {
    let demo = legacy_demo().await;
    let scene = Scene::with(&at("demo", &demo.url(), "legacy", &[])).await;
    let mut pipe = Pipe::to(&scene);
    let mut params = in_context(call("demo__sleep", json!({ "ms": 60_000 })));
    params["_meta"]["progressToken"] = json!("mine");
    pipe.says(request("slow", "tools/call", &params)).await;
    assert_eq!(pipe.hears().await["params"]["progressToken"], "mine");
    let cancelled = json!({ "requestId": "slow" });
    pipe.says(json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": cancelled })).await;
    within("the server is told", demo.until_idle()).await;
}

/// The text of the answer, or what is wanted before there is one, to a modern client that can be asked.
async fn asks_modern(scene: &Scene, more: Value) -> Value {
    let mut params = ask();
    params.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let can = json!({ "elicitation": { "form": {} } });
    Modern::of(&scene.http).asks_as(can, "tools/call", params).await["result"].clone()
}

fn answer_to(wanted: &Value, ok: bool) -> Value {
    assert_eq!(wanted["resultType"], "input_required", "{wanted}");
    let (key, _) = wanted["inputRequests"].as_object().unwrap().iter().next().unwrap();
    let answer = json!({ "action": "accept", "content": { "ok": ok } });
    json!({ "inputResponses": { key: answer }, "requestState": wanted["requestState"] })
}

#[tokio::test]
async fn a_modern_client_that_leaves_a_question_open_keeps_nobody_else_from_being_asked_on_a_pipe() {
    let scene = Scene::with(&child("demo", &["--era", "legacy"], &[])).await;
    let mut open = Vec::new();
    for _ in 0..3 {
        open.push(asks_modern(&scene, json!({})).await);
    }
    assert_eq!(instances(&scene), 2, "the first one is with everybody's");
    // Each comes back to its own, in any order.
    for (wanted, ok) in open.iter().zip([true, false, true]).rev() {
        let told = asks_modern(&scene, answer_to(wanted, ok)).await;
        let text = if ok { "the answer was yes" } else { "the answer was no" };
        assert_eq!(told["content"][0]["text"], text, "{told}");
    }
    let again = asks_modern(&scene, json!({})).await;
    assert_eq!(instances(&scene), 2, "one that is free is used again");
    assert_eq!(asks_modern(&scene, answer_to(&again, true)).await["resultType"], "complete");
}
