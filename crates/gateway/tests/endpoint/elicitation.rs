//! Elicitation, sampling and other requests of servers to clients, in all pairings of eras, over HTTP and stdio, and
//! with clients that lack the capability.

use crate::client::{
    EventStream, HttpClient, LegacyClient, ModernClient, borrowed, call, in_context, initialize, request,
    spoken,
};
use crate::scripted_server::ScriptedServer;
use crate::test_gateway::{TestGateway, at, demo_with};
use gripfast_demo::{EraChoice, Options, RunningServer};
use gripfast_testkit::wait::{until, within};
use serde_json::{Value, json};

const CAN_BE_ASKED: &str = "elicitation";

async fn gateway_for(era: EraChoice, protocol: &str) -> (RunningServer, TestGateway) {
    let demo = demo_with(Options { era, ..Options::default() }).await;
    let gateway = TestGateway::with(&at("demo", &demo.url(), protocol, &[])).await;
    (demo, gateway)
}

async fn both_eras() -> [(RunningServer, TestGateway); 2] {
    [gateway_for(EraChoice::Legacy, "legacy").await, gateway_for(EraChoice::Modern, "modern").await]
}

async fn legacy_client(http: &HttpClient, ability: Option<&str>) -> LegacyClient {
    let mut capabilities = json!({});
    if let Some(ability) = ability {
        capabilities[ability] = json!({});
    }
    LegacyClient::with_capabilities(http, capabilities).await
}

fn ask() -> Value {
    call("demo__ask", json!({ "question": "Sure?" }))
}

fn yes() -> Value {
    json!({ "action": "accept", "content": { "ok": true } })
}

/// Waits for the elicitation on a legacy client's stream and returns its id.
async fn question(stream: &mut EventStream) -> Value {
    let asked = stream.message().await;
    assert_eq!(asked["method"], "elicitation/create", "{asked}");
    assert_eq!(asked["params"]["message"], "Sure?", "{asked}");
    asked["id"].clone()
}

#[tokio::test]
async fn a_legacy_client_gets_elicitations_on_the_stream_of_its_call() {
    for (_demo, gateway) in both_eras().await {
        let client = legacy_client(&gateway.http, Some(CAN_BE_ASKED)).await;
        let mut stream = client.start_request("mine", "tools/call", ask()).await;
        let id = question(&mut stream).await;
        let told = client.post(&json!({ "jsonrpc": "2.0", "id": id, "result": yes() })).await;
        assert_eq!(told.status, 202);
        let answer = stream.message().await;
        assert_eq!(answer["id"], "mine", "{answer}");
        assert_eq!(answer["result"]["content"][0]["text"], "the answer was yes", "{answer}");
    }
}

#[tokio::test]
async fn two_clients_get_separate_elicitations_and_only_their_own_answer_counts() {
    let (_demo, gateway) = gateway_for(EraChoice::Legacy, "legacy").await;
    let (one, two) = (
        legacy_client(&gateway.http, Some(CAN_BE_ASKED)).await,
        legacy_client(&gateway.http, Some(CAN_BE_ASKED)).await,
    );
    let mut first = one.start_request("same", "tools/call", ask()).await;
    let first_id = question(&mut first).await;
    let mut second = two.start_request("same", "tools/call", ask()).await;
    let second_id = question(&mut second).await;
    // An answer of one client with its own id does not decide the elicitation of the other.
    let no = json!({ "action": "decline" });
    two.post(&json!({ "jsonrpc": "2.0", "id": second_id, "result": no })).await;
    let refused = second.message().await;
    assert!(refused["result"]["content"][0]["text"].as_str().unwrap().contains("decline"), "{refused}");
    one.post(&json!({ "jsonrpc": "2.0", "id": first_id, "result": yes() })).await;
    let agreed = first.message().await;
    assert_eq!(agreed["result"]["content"][0]["text"], "the answer was yes", "{agreed}");
}

#[tokio::test]
async fn elicitations_for_a_legacy_client_without_the_capability_are_declined() {
    let (_demo, gateway) = gateway_for(EraChoice::Legacy, "legacy").await;
    let client = legacy_client(&gateway.http, None).await;
    let answer = client.request("tools/call", ask()).await;
    let text = answer["result"]["content"][0]["text"].as_str().unwrap();
    assert!(text.contains("decline"), "{answer}");

    let (_demo, gateway) = gateway_for(EraChoice::Modern, "modern").await;
    let client = legacy_client(&gateway.http, None).await;
    let answer = client.request("tools/call", ask()).await;
    assert_eq!(answer["result"]["isError"], true, "the server's own refusal, in the client's era: {answer}");
}

async fn modern_ask(http: &HttpClient, id: u64, capabilities: Value, more: Value) -> Value {
    let mut params = in_context(ask());
    params["_meta"]["io.modelcontextprotocol/clientCapabilities"] = capabilities;
    params.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let (headers, _) = spoken(json!(id), "tools/call", ask());
    http.post(&borrowed(&headers), request(id, "tools/call", &params).to_string()).await.message()
}

/// A server that asks, and a config with a gateway that ends quickly.
async fn restartable() -> (RunningServer, String) {
    let demo = demo_with(Options { era: EraChoice::Legacy, ..Options::default() }).await;
    let config = at("demo", &demo.url(), "legacy", &[]);
    (demo, format!("[gateway]\nshutdown_timeout = \"1s\"\n\n{config}"))
}

#[tokio::test]
async fn c05_input_for_a_call_from_before_a_restart_ends_as_unknown() {
    let (_demo, config) = restartable().await;
    let gateway = TestGateway::with(&config).await;
    let can = json!({ "elicitation": { "form": {} } });
    let asked = modern_ask(&gateway.http, 1, can.clone(), json!({})).await;
    let (key, _) = asked["result"]["inputRequests"].as_object().unwrap().iter().next().unwrap();
    let back = json!({ "inputResponses": { key: yes() }, "requestState": asked["result"]["requestState"] });
    let gateway = gateway.restart(&config).await;
    let told = modern_ask(&gateway.http, 2, can, back).await;
    assert_eq!((&told["id"], &told["result"]["isError"]), (&json!(2), &json!(true)), "{told}");
    let failure = &told["result"]["_meta"]["gripfast/failure"];
    assert_eq!((&failure["code"], &failure["outcome"]), (&json!("outcome_unknown"), &json!("unknown")));
    assert_eq!(told["result"]["resultType"], "complete");
}

#[tokio::test]
async fn an_answer_from_before_a_restart_answers_no_later_elicitation() {
    let (_demo, config) = restartable().await;
    let gateway = TestGateway::with(&config).await;
    let client = legacy_client(&gateway.http, Some(CAN_BE_ASKED)).await;
    let mut lost = client.start_request("lost", "tools/call", ask()).await;
    let earlier = question(&mut lost).await;
    let gateway = gateway.restart(&config).await;
    let client = LegacyClient::with_session(&gateway.http, &client.session);
    let mut stream = client.start_request("next", "tools/call", ask()).await;
    let id = question(&mut stream).await;
    assert_ne!(id, earlier);
    let no = json!({ "action": "decline" });
    let late = client.post(&json!({ "jsonrpc": "2.0", "id": earlier, "result": no })).await;
    assert_eq!(late.status, 202);
    client.post(&json!({ "jsonrpc": "2.0", "id": id, "result": yes() })).await;
    let answer = stream.message().await;
    assert_eq!(answer["result"]["content"][0]["text"], "the answer was yes", "{answer}");
}

#[tokio::test]
async fn a_modern_client_answers_an_elicitation_of_a_legacy_server() {
    let (demo, gateway) = gateway_for(EraChoice::Legacy, "legacy").await;
    let can = json!({ "elicitation": { "form": {} } });
    let asked = modern_ask(&gateway.http, 1, can.clone(), json!({})).await;
    let result = &asked["result"];
    assert_eq!(result["resultType"], "input_required", "{asked}");
    let (key, wanted) = result["inputRequests"].as_object().unwrap().iter().next().unwrap();
    assert_eq!(
        (&wanted["method"], &wanted["params"]["message"]),
        (&json!("elicitation/create"), &json!("Sure?"))
    );
    assert_eq!(demo.in_flight(), 1, "the call waits behind us");
    let back = json!({ "inputResponses": { key: yes() }, "requestState": result["requestState"] });
    let told = modern_ask(&gateway.http, 2, can.clone(), back.clone()).await;
    assert_eq!(told["id"], 2, "{told}");
    assert_eq!(told["result"]["content"][0]["text"], "the answer was yes", "{told}");
    assert_eq!(told["result"]["resultType"], "complete", "{told}");
    let again = modern_ask(&gateway.http, 3, can, back).await;
    assert_eq!(again["error"]["code"], -32602, "an answer counts once: {again}");
}

#[tokio::test]
async fn a_forged_request_state_is_refused() {
    let (demo, gateway) = gateway_for(EraChoice::Legacy, "legacy").await;
    let can = json!({ "elicitation": { "form": {} } });
    let asked = modern_ask(&gateway.http, 1, can.clone(), json!({})).await;
    let state = asked["result"]["requestState"].as_str().unwrap();
    let forged = json!({ "inputResponses": { "input-1": yes() }, "requestState": format!("{state}x") });
    let refused = modern_ask(&gateway.http, 2, can, forged).await;
    assert_eq!(refused["error"]["code"], -32602, "{refused}");
    assert_eq!(demo.in_flight(), 1, "only the call that really waits");
}

#[tokio::test]
async fn a_request_state_is_valid_only_for_its_own_request() {
    let (demo, gateway) = gateway_for(EraChoice::Legacy, "legacy").await;
    let can = json!({ "elicitation": { "form": {} } });
    let asked = modern_ask(&gateway.http, 1, can.clone(), json!({})).await;
    let state = &asked["result"]["requestState"];
    let back = json!({ "inputResponses": { "input-1": yes() }, "requestState": state });
    let mut other = call("demo__echo", json!({ "text": "harmless" }));
    other.as_object_mut().unwrap().extend(back.as_object().unwrap().clone());
    let refused = ModernClient::new(&gateway.http).request_as(can.clone(), "tools/call", other).await;
    assert_eq!(refused["error"]["code"], -32602, "{refused}");
    assert_eq!(demo.in_flight(), 1, "the call waits on");
    let told = modern_ask(&gateway.http, 2, can, back).await;
    assert_eq!(told["result"]["content"][0]["text"], "the answer was yes", "{told}");
}

#[tokio::test]
async fn elicitations_for_a_modern_client_without_the_capability_are_declined() {
    let (demo, gateway) = gateway_for(EraChoice::Legacy, "legacy").await;
    let answer = modern_ask(&gateway.http, 1, json!({}), json!({})).await;
    let text = answer["result"]["content"][0]["text"].as_str().unwrap();
    assert!(text.contains("decline"), "{answer}");
    until("nothing is left", || demo.in_flight() == 0).await;
}

#[tokio::test]
async fn other_calls_go_on_while_an_elicitation_is_open() {
    let (_demo, gateway) = gateway_for(EraChoice::Legacy, "legacy").await;
    let client = legacy_client(&gateway.http, Some(CAN_BE_ASKED)).await;
    let mut stream = client.start_request("mine", "tools/call", ask()).await;
    let id = question(&mut stream).await;
    assert_eq!(client.call_tool("demo__add", json!({ "a": 2, "b": 3 })).await, "5");
    assert_eq!(ModernClient::new(&gateway.http).call_tool("demo__add", json!({ "a": 2, "b": 3 })).await, "5");
    client.post(&json!({ "jsonrpc": "2.0", "id": id, "result": yes() })).await;
    assert_eq!(stream.message().await["result"]["content"][0]["text"], "the answer was yes");
}

#[tokio::test]
async fn elicitations_within_a_batch_are_declined() {
    let (_demo, gateway) = gateway_for(EraChoice::Legacy, "legacy").await;
    let mut hello = initialize("2025-03-26");
    hello["params"]["capabilities"] = json!({ "elicitation": {} });
    let hello = gateway.http.post(&[], hello.to_string()).await;
    let client = LegacyClient::with_session(&gateway.http, hello.headers["mcp-session-id"].to_str().unwrap());
    let batch = json!([request(1, "tools/call", &ask())]);
    let answers: Value = serde_json::from_str(&client.post(&batch).await.text).unwrap();
    let text = answers[0]["result"]["content"][0]["text"].as_str().unwrap();
    assert!(text.contains("decline"), "{answers}");
}

fn sample() -> Value {
    call("demo__sample", json!({}))
}

fn words() -> Value {
    json!({ "role": "assistant", "model": "m", "content": { "type": "text", "text": "Good day" } })
}

#[tokio::test]
async fn sampling_works_between_clients_and_servers_of_all_eras() {
    for (era, protocol) in [(EraChoice::Legacy, "legacy"), (EraChoice::Modern, "modern")] {
        let demo = demo_with(Options { era, showcase: true, ..Options::default() }).await;
        let gateway = TestGateway::with(&at("demo", &demo.url(), protocol, &[])).await;
        let client = legacy_client(&gateway.http, Some("sampling")).await;
        let mut stream = client.start_request("mine", "tools/call", sample()).await;
        let asked = stream.message().await;
        assert_eq!(asked["method"], "sampling/createMessage", "{asked}");
        assert_eq!(asked["params"]["maxTokens"], 9, "as the server asked: {asked}");
        client.post(&json!({ "jsonrpc": "2.0", "id": asked["id"], "result": words() })).await;
        assert_eq!(stream.message().await["result"]["content"][0]["text"], "Good day", "{protocol}");

        let (client, can) = (ModernClient::new(&gateway.http), json!({ "sampling": {} }));
        let asked = client.request_as(can.clone(), "tools/call", sample()).await;
        let (key, wanted) = asked["result"]["inputRequests"].as_object().unwrap().iter().next().unwrap();
        assert_eq!(wanted["method"], "sampling/createMessage", "{asked}");
        let mut back = sample();
        back["inputResponses"] = json!({ key: words() });
        if let Some(state) = asked["result"].get("requestState") {
            back["requestState"] = state.clone();
        }
        let told = client.request_as(can, "tools/call", back).await;
        assert_eq!(told["result"]["content"][0]["text"], "Good day", "{protocol}: {told}");

        // The gateway cannot answer for a model, so the server gets an error and the call does not hang.
        let silent = legacy_client(&gateway.http, None).await.request("tools/call", sample()).await;
        assert_eq!(silent["result"]["isError"], true, "{protocol}: {silent}");
    }
}

#[tokio::test]
async fn a_call_of_a_legacy_client_has_at_most_eight_elicitation_rounds() {
    let form =
        r#"{"method":"elicitation/create","params":{"message":"Sure?","requestedSchema":{"type":"object"}}}"#;
    let wants =
        format!(r#"{{"resultType":"input_required","inputRequests":{{"q":{form}}},"requestState":"s"}}"#);
    let tools = r#"{"tools":[{"name":"again","inputSchema":{"type":"object"}}],"resultType":"complete"}"#;
    let script = ScriptedServer::start(&[("tools/list", tools), ("tools/call", &wants)]).await;
    let gateway = TestGateway::with(&at("demo", &script.url, "modern", &[])).await;
    let client = legacy_client(&gateway.http, Some(CAN_BE_ASKED)).await;
    let mut stream = client.start_request("mine", "tools/call", call("demo__again", json!({}))).await;
    for _ in 0..8 {
        let id = question(&mut stream).await;
        client.post(&json!({ "jsonrpc": "2.0", "id": id, "result": yes() })).await;
    }
    let answer = stream.message().await;
    let failure = failure_of(&answer);
    assert_eq!((&failure["code"], &failure["outcome"]), (&json!("upstream_protocol"), &json!("refused")));
    assert_eq!(script.count("tools/call"), 8);
    let last: Value = serde_json::from_str(&script.last_request("tools/call")).unwrap();
    assert_eq!(
        (&last["params"]["requestState"], &last["params"]["inputResponses"]["q"]),
        (&json!("s"), &yes())
    );
}

/// Structured part of a failure result.
fn failure_of(answer: &Value) -> &Value {
    assert_eq!((&answer["id"], &answer["result"]["isError"]), (&json!("mine"), &json!(true)), "{answer}");
    &answer["result"]["_meta"]["gripfast/failure"]
}

#[tokio::test]
async fn c01_a_client_that_answers_with_an_error_gets_a_readable_failure() {
    let (_demo, gateway) = gateway_for(EraChoice::Modern, "modern").await;
    let client = legacy_client(&gateway.http, Some(CAN_BE_ASKED)).await;
    let mut stream = client.start_request("mine", "tools/call", ask()).await;
    let id = question(&mut stream).await;
    let error = json!({ "code": -1, "message": "User rejected" });
    client.post(&json!({ "jsonrpc": "2.0", "id": id, "error": error })).await;
    let answer = stream.message().await;
    let failure = failure_of(&answer);
    assert_eq!((&failure["code"], &failure["server"]), (&json!("cancelled"), &json!("demo")), "{answer}");
    assert_eq!(failure["outcome"], "refused", "{answer}");
    let text = answer["result"]["content"][0]["text"].as_str().unwrap();
    assert!(text.contains("User rejected") && text.contains("requires input that it did not get"), "{text}");
}

#[tokio::test]
async fn a_legacy_servers_request_outside_calls_is_refused_for_modern_clients() {
    let (demo, gateway) = gateway_for(EraChoice::Legacy, "legacy").await;
    let client = ModernClient::new(&gateway.http);
    let can = json!({ "elicitation": {} });
    let mut stream = client.start_request_as(can.clone(), "ear", "subscriptions/listen", json!({})).await;
    assert_eq!(stream.message().await["method"], "notifications/subscriptions/acknowledged");
    client.request_as(can, "tools/call", call("demo__add", json!({ "a": 2, "b": 3 }))).await;
    let said = within("an answer", demo.ask_sessions("Anybody there?")).await;
    let codes: Vec<&Value> = said.iter().map(|body| &body["error"]["code"]).collect();
    assert_eq!(codes, [&json!(-32601)], "{said:?}");
    assert!(stream.is_silent().await);
}
