//! Pages that a person has to visit before a server goes on: the refusal that names them, and the word that one was
//! visited, in all pairings of eras.

use crate::client::{Legacy, Modern, call, request};
use crate::scene::{Scene, at, demo_with};
use gripfast_demo::{EraChoice, Options, RunningServer};
use serde_json::{Value, json};

async fn scene_of(era: EraChoice, protocol: &str) -> (RunningServer, Scene) {
    let demo = demo_with(Options { era, showcase: true, ..Options::default() }).await;
    let scene = Scene::with(&at("demo", &demo.url(), protocol, &[])).await;
    (demo, scene)
}

fn visits() -> Value {
    json!({ "elicitation": { "url": {} } })
}

fn visit(page: &str) -> Value {
    call("demo__visit", json!({ "page": page }))
}

#[tokio::test]
async fn a_legacy_client_is_refused_in_the_servers_words_and_it_alone_hears_that_the_page_was_visited() {
    let (_demo, scene) = scene_of(EraChoice::Legacy, "legacy").await;
    let visitor = Legacy::with_capabilities(&scene.http, visits()).await;
    let other = Legacy::with_capabilities(&scene.http, visits()).await;
    let (mut hears, mut hears_not) = (visitor.listens(None).await, other.listens(None).await);
    let refused = visitor.asks("tools/call", visit("login")).await;
    assert_eq!(refused["error"]["code"], -32042, "{refused}");
    assert_eq!(refused["error"]["data"]["elicitations"][0]["elicitationId"], "login", "{refused}");
    let finish = call("demo__finish", json!({ "id": "login", "aloud": true }));
    let finished = other.post(&request("mine", "tools/call", &finish)).await;
    assert!(!finished.text.contains("elicitation/complete"), "{finished:?}");
    let told = hears.message().await;
    assert_eq!(told["method"], "notifications/elicitation/complete", "{told}");
    assert_eq!(told["params"]["elicitationId"], "login", "{told}");
    assert!(hears_not.is_silent().await);
    assert_eq!(visitor.calls("demo__visit", json!({ "page": "login" })).await, "login was visited");
}

#[tokio::test]
async fn a_legacy_client_that_was_asked_to_visit_a_page_hears_that_it_was_visited() {
    let (_demo, scene) = scene_of(EraChoice::Legacy, "legacy").await;
    let visitor = Legacy::with_capabilities(&scene.http, visits()).await;
    let mut hears = visitor.listens(None).await;
    let mut stream =
        visitor.begins("mine", "tools/call", call("demo__visit", json!({ "page": "p", "ask": true }))).await;
    let question = stream.message().await;
    assert_eq!(question["params"]["elicitationId"], "p", "{question}");
    let answer = json!({ "jsonrpc": "2.0", "id": question["id"], "result": { "action": "accept" } });
    assert_eq!(visitor.post(&answer).await.status, 202);
    assert_eq!(stream.message().await["result"]["content"][0]["text"], "accept");
    Legacy::meets(&scene.http).await.calls("demo__finish", json!({ "id": "p" })).await;
    assert_eq!(hears.message().await["params"]["elicitationId"], "p");
}

#[tokio::test]
async fn a_modern_client_is_asked_to_visit_the_page_that_a_legacy_server_refuses_without() {
    let (_demo, scene) = scene_of(EraChoice::Legacy, "legacy").await;
    let client = Modern::of(&scene.http);
    let wanted = client.asks_as(visits(), "tools/call", visit("login")).await;
    assert_eq!(wanted["result"]["resultType"], "input_required", "{wanted}");
    let (key, question) = wanted["result"]["inputRequests"].as_object().unwrap().iter().next().unwrap();
    assert_eq!(question["method"], "elicitation/create", "{wanted}");
    let page =
        json!({ "mode": "url", "url": "https://example.com/login", "message": "Please visit this page" });
    assert_eq!(question["params"], page, "without the id that its era does not have");
    let retry = |action: &str| {
        let mut params = visit("login");
        params["inputResponses"] = json!({ key: { "action": action } });
        params
    };
    let declined = client.asks_as(visits(), "tools/call", retry("decline")).await;
    let failure = &declined["result"]["_meta"]["gripfast/failure"];
    assert_eq!(
        (&failure["code"], &failure["outcome"]),
        (&json!("cancelled"), &json!("refused")),
        "{declined}"
    );
    let again = client.asks_as(visits(), "tools/call", retry("accept")).await;
    assert_eq!(again["result"]["resultType"], "input_required", "the person was not there yet: {again}");
    client.calls("demo__finish", json!({ "id": "login" })).await;
    let answer = client.asks_as(visits(), "tools/call", retry("accept")).await;
    assert_eq!(answer["result"]["content"][0]["text"], "login was visited", "{answer}");
}

#[tokio::test]
async fn a_modern_client_that_can_send_nobody_to_a_page_is_told_what_it_lacks() {
    let (_demo, scene) = scene_of(EraChoice::Legacy, "legacy").await;
    let refused = Modern::of(&scene.http).sends("tools/call", visit("login")).await;
    assert_eq!(refused.refusal(), (400, -32021), "{refused:?}");
    assert_eq!(refused.message()["error"]["data"]["requiredCapabilities"], visits());
}

#[tokio::test]
async fn a_modern_servers_page_is_asked_for_in_the_words_of_each_client() {
    let (_demo, scene) = scene_of(EraChoice::Modern, "modern").await;
    let wanted = Modern::of(&scene.http).asks_as(visits(), "tools/call", visit("p")).await;
    assert_eq!(
        wanted["result"]["inputRequests"]["page"]["params"]["url"], "https://example.com/p",
        "{wanted}"
    );
    let legacy = Legacy::with_capabilities(&scene.http, visits()).await;
    let mut stream = legacy.begins("mine", "tools/call", visit("p")).await;
    let question = stream.message().await;
    assert_eq!(question["params"]["elicitationId"], "https://example.com/p", "{question}");
    let answer = json!({ "jsonrpc": "2.0", "id": question["id"], "result": { "action": "accept" } });
    assert_eq!(legacy.post(&answer).await.status, 202);
    assert_eq!(stream.message().await["result"]["content"][0]["text"], "p was visited");
}

#[tokio::test]
async fn a_modern_client_is_not_told_in_the_words_of_the_other_era_that_a_page_was_visited() {
    let (_demo, scene) = scene_of(EraChoice::Legacy, "legacy").await;
    let client = Modern::of(&scene.http);
    let mut stream = client.begins_as(visits(), "ear", "subscriptions/listen", json!({})).await;
    assert_eq!(stream.message().await["method"], "notifications/subscriptions/acknowledged");
    let wanted = client.asks_as(visits(), "tools/call", visit("login")).await;
    assert_eq!(wanted["result"]["resultType"], "input_required", "{wanted}");
    // The server says so on the stream of this call.
    let finished =
        client.sends("tools/call", call("demo__finish", json!({ "id": "login", "aloud": true }))).await;
    assert!(finished.status == 200 && !finished.text.contains("elicitation/complete"), "{finished:?}");
    assert!(stream.is_silent().await);
}
