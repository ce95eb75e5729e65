//! URL elicitation: the error that names the page to visit, and the completion notification, in all pairings of eras.

use crate::client::{LegacyClient, ModernClient, call, request};
use crate::test_gateway::{TestGateway, at, demo_with};
use gripfast_demo::{EraChoice, Options, RunningServer};
use serde_json::{Value, json};

async fn gateway_for(era: EraChoice, protocol: &str) -> (RunningServer, TestGateway) {
    let demo = demo_with(Options { era, showcase: true, ..Options::default() }).await;
    let gateway = TestGateway::with(&at("demo", &demo.url(), protocol, &[])).await;
    (demo, gateway)
}

fn visits() -> Value {
    json!({ "elicitation": { "url": {} } })
}

fn visit(page: &str) -> Value {
    call("demo__visit", json!({ "page": page }))
}

#[tokio::test]
async fn a_legacy_client_gets_the_url_error_and_alone_the_completion() {
    let (_demo, gateway) = gateway_for(EraChoice::Legacy, "legacy").await;
    let visitor = LegacyClient::with_capabilities(&gateway.http, visits()).await;
    let other = LegacyClient::with_capabilities(&gateway.http, visits()).await;
    let (mut hears, mut hears_not) = (visitor.open_stream(None).await, other.open_stream(None).await);
    let refused = visitor.request("tools/call", visit("login")).await;
    assert_eq!(refused["error"]["code"], -32042, "{refused}");
    assert_eq!(refused["error"]["data"]["elicitations"][0]["elicitationId"], "login", "{refused}");
    let finish = call("demo__finish", json!({ "id": "login", "aloud": true }));
    let finished = other.post(&request("mine", "tools/call", &finish)).await;
    assert!(!finished.text.contains("elicitation/complete"), "{finished:?}");
    let told = hears.message().await;
    assert_eq!(told["method"], "notifications/elicitation/complete", "{told}");
    assert_eq!(told["params"]["elicitationId"], "login", "{told}");
    assert!(hears_not.is_silent().await);
    assert_eq!(visitor.call_tool("demo__visit", json!({ "page": "login" })).await, "login was visited");
}

#[tokio::test]
async fn a_legacy_client_with_a_url_elicitation_gets_its_completion() {
    let (_demo, gateway) = gateway_for(EraChoice::Legacy, "legacy").await;
    let visitor = LegacyClient::with_capabilities(&gateway.http, visits()).await;
    let mut hears = visitor.open_stream(None).await;
    let mut stream = visitor
        .start_request("mine", "tools/call", call("demo__visit", json!({ "page": "p", "ask": true })))
        .await;
    let question = stream.message().await;
    assert_eq!(question["params"]["elicitationId"], "p", "{question}");
    let answer = json!({ "jsonrpc": "2.0", "id": question["id"], "result": { "action": "accept" } });
    assert_eq!(visitor.post(&answer).await.status, 202);
    assert_eq!(stream.message().await["result"]["content"][0]["text"], "accept");
    LegacyClient::connect(&gateway.http).await.call_tool("demo__finish", json!({ "id": "p" })).await;
    assert_eq!(hears.message().await["params"]["elicitationId"], "p");
}

#[tokio::test]
async fn a_modern_client_gets_the_url_error_of_a_legacy_server_as_elicitation() {
    let (_demo, gateway) = gateway_for(EraChoice::Legacy, "legacy").await;
    let client = ModernClient::new(&gateway.http);
    let wanted = client.request_as(visits(), "tools/call", visit("login")).await;
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
    let declined = client.request_as(visits(), "tools/call", retry("decline")).await;
    let failure = &declined["result"]["_meta"]["gripfast/failure"];
    assert_eq!(
        (&failure["code"], &failure["outcome"]),
        (&json!("cancelled"), &json!("refused")),
        "{declined}"
    );
    let again = client.request_as(visits(), "tools/call", retry("accept")).await;
    assert_eq!(again["result"]["resultType"], "input_required", "the person was not there yet: {again}");
    client.call_tool("demo__finish", json!({ "id": "login" })).await;
    let answer = client.request_as(visits(), "tools/call", retry("accept")).await;
    assert_eq!(answer["result"]["content"][0]["text"], "login was visited", "{answer}");
}

#[tokio::test]
async fn a_modern_client_without_url_elicitation_gets_the_missing_capability() {
    let (_demo, gateway) = gateway_for(EraChoice::Legacy, "legacy").await;
    let refused = ModernClient::new(&gateway.http).send_request("tools/call", visit("login")).await;
    assert_eq!(refused.refusal(), (400, -32021), "{refused:?}");
    assert_eq!(refused.message()["error"]["data"]["requiredCapabilities"], visits());
}

#[tokio::test]
async fn a_url_elicitation_of_a_modern_server_has_the_form_of_the_clients_era() {
    let (_demo, gateway) = gateway_for(EraChoice::Modern, "modern").await;
    let wanted = ModernClient::new(&gateway.http).request_as(visits(), "tools/call", visit("p")).await;
    assert_eq!(
        wanted["result"]["inputRequests"]["page"]["params"]["url"], "https://example.com/p",
        "{wanted}"
    );
    let legacy = LegacyClient::with_capabilities(&gateway.http, visits()).await;
    let mut stream = legacy.start_request("mine", "tools/call", visit("p")).await;
    let question = stream.message().await;
    assert_eq!(question["params"]["elicitationId"], "https://example.com/p", "{question}");
    let answer = json!({ "jsonrpc": "2.0", "id": question["id"], "result": { "action": "accept" } });
    assert_eq!(legacy.post(&answer).await.status, 202);
    assert_eq!(stream.message().await["result"]["content"][0]["text"], "p was visited");
}

#[tokio::test]
async fn a_modern_client_gets_no_legacy_elicitation_complete_notification() {
    let (_demo, gateway) = gateway_for(EraChoice::Legacy, "legacy").await;
    let client = ModernClient::new(&gateway.http);
    let mut stream = client.start_request_as(visits(), "ear", "subscriptions/listen", json!({})).await;
    assert_eq!(stream.message().await["method"], "notifications/subscriptions/acknowledged");
    let wanted = client.request_as(visits(), "tools/call", visit("login")).await;
    assert_eq!(wanted["result"]["resultType"], "input_required", "{wanted}");
    // The server sends the notification on the stream of this call.
    let finished = client
        .send_request("tools/call", call("demo__finish", json!({ "id": "login", "aloud": true })))
        .await;
    assert!(finished.status == 200 && !finished.text.contains("elicitation/complete"), "{finished:?}");
    assert!(stream.is_silent().await);
}
