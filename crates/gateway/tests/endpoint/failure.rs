//! Unavailable servers: held calls, failures with a cause and the next step, and other servers that are not affected.

use crate::client::{LegacyClient, ModernClient, call};
use crate::test_gateway::{TestGateway, at, child, demo, demo_with};
use gripfast::State;
use gripfast_demo::{Faults, Options};
use gripfast_testkit::wait::{until, within};
use serde_json::{Value, json};
use std::process::Command;

/// Checks a failed call as C01 requires: readable text and a structured part.
fn failure(answer: &Value, era_is_modern: bool) -> Value {
    let result = &answer["result"];
    assert_eq!(result["isError"], true, "{answer}");
    assert!(!result["content"][0]["text"].as_str().unwrap().is_empty(), "{answer}");
    assert_eq!(result.get("resultType").is_some(), era_is_modern, "{answer}");
    let part = result["_meta"]["gripfast/failure"].clone();
    assert_part(&part);
    part
}

fn assert_part(part: &Value) {
    assert_eq!(part["server"], "away", "{part}");
    for member in ["code", "outcome", "hint"] {
        assert!(part[member].is_string(), "{member}: {part}");
    }
    assert!(part.get("retry_after_ms").is_some(), "{part}");
}

/// Checks that another server's tools and the session still work.
async fn others_go_on(client: &LegacyClient) {
    assert_eq!(client.call_tool("here__echo", json!({ "text": "fine" })).await, "fine");
    assert_eq!(client.request("ping", json!({})).await["result"], json!({}));
}

#[tokio::test]
async fn c04_a_call_to_a_child_that_was_just_killed_is_held_and_served() {
    let gateway = TestGateway::with(&child("demo", &[], &[])).await;
    let client = LegacyClient::connect(&gateway.http).await;
    gateway.until("demo", State::Ready).await;
    for round in ["one", "two"] {
        let pid = gateway.host.server_status("demo").unwrap().pid.unwrap();
        assert!(Command::new("kill").args(["-9", &pid.to_string()]).status().unwrap().success());
        assert_eq!(client.call_tool("demo__echo", json!({ "text": round })).await, round);
    }
}

#[tokio::test]
async fn c04_a_call_to_a_server_that_is_away_is_held_until_it_is_back() {
    let away = demo().await;
    let address = away.addr();
    let wait = "timeouts = { reconnect_wait = \"60s\" }";
    let gateway = TestGateway::with(&at("away", &away.url(), "legacy", &[wait])).await;
    let (legacy, modern) = (LegacyClient::connect(&gateway.http).await, ModernClient::new(&gateway.http));
    away.stop().await;
    gateway.until("away", State::Reconnecting).await;
    let both = async {
        tokio::join!(
            legacy.call_tool("away__echo", json!({ "text": "held" })),
            modern.call_tool("away__echo", json!({ "text": "held too" })),
        )
    };
    let back = async {
        gateway.host.reconnect("away").unwrap();
        gripfast_demo::start_http(address, Options::default()).await.unwrap()
    };
    let (said, _back) = within("both calls", async { tokio::join!(both, back) }).await;
    assert_eq!(said, ("held".to_owned(), "held too".to_owned()));
}

#[tokio::test]
async fn c04_a_tool_of_a_server_never_listed_is_held_and_not_unknown() {
    let late = demo().await;
    let (address, url) = (late.addr(), late.url());
    late.stop().await;
    let wait = "timeouts = { reconnect_wait = \"60s\" }";
    let gateway = TestGateway::unlisted(&at("late", &url, "legacy", &[wait])).await;
    let (legacy, modern) = (LegacyClient::connect(&gateway.http).await, ModernClient::new(&gateway.http));
    let completion = json!({ "type": "ref/prompt", "name": "late__greet" });
    let completion = json!({ "ref": completion, "argument": { "name": "name", "value": "A" } });
    let asked = Box::pin(async {
        tokio::join!(
            legacy.call_tool("late__echo", json!({ "text": "held" })),
            modern.call_tool("late__echo", json!({ "text": "held too" })),
            legacy.request("tools/call", call("late__nothing", json!({}))),
            modern.request("prompts/get", call("late__greet", json!({ "name": "Ada" }))),
            legacy.request("resources/read", json!({ "uri": "demo://greeting" })),
            modern.request("completion/complete", completion),
        )
    });
    let comes = async {
        let late = gripfast_demo::start_http(address, Options::default()).await.unwrap();
        gateway.host.reconnect("late").unwrap();
        late
    };
    let (said, late) = within("all requests", async { tokio::join!(asked, comes) }).await;
    let (one, two, nothing, prompt, resource, completed) = said;
    assert_eq!((&*one, &*two), ("held", "held too"));
    assert_eq!(nothing["error"]["code"], -32602, "{nothing}");
    for answer in [prompt, resource, completed] {
        assert!(answer["result"].is_object(), "{answer}");
    }
    assert_eq!(late.calls(), 2, "what it does not have was not sent");
}

#[tokio::test]
async fn c04_a_lazy_server_never_listed_starts_for_a_call_that_names_it() {
    let config = child("lazy", &[], &["lazy = true"]) + &child("other", &[], &["lazy = true"]);
    let gateway = TestGateway::unlisted(&config).await;
    let client = LegacyClient::connect(&gateway.http).await;
    let unknown = client.request("tools/call", call("nobody__echo", json!({}))).await;
    assert_eq!(unknown["error"]["code"], -32602, "{unknown}");
    assert_eq!(client.call_tool("lazy__echo", json!({ "text": "up" })).await, "up");
    assert_eq!(gateway.host.server_status("other").unwrap().supervision.state, State::Idle);
}

#[tokio::test]
async fn c04_a_server_never_listed_that_does_not_start_is_a_structured_failure() {
    let away = demo().await;
    let url = away.url();
    away.stop().await;
    let none = "timeouts = { reconnect_wait = \"0s\" }";
    let gateway = TestGateway::unlisted(&at("away", &url, "legacy", &[none])).await;
    let (legacy, modern) = (LegacyClient::connect(&gateway.http).await, ModernClient::new(&gateway.http));
    let echo = call("away__echo", json!({ "text": "hi" }));
    let part = failure(&legacy.request("tools/call", echo.clone()).await, false);
    assert_eq!((&part["code"], &part["outcome"]), (&json!("reconnecting"), &json!("not_sent")));
    failure(&modern.request("tools/call", echo).await, true);
    let prompt = legacy.request("prompts/get", call("away__greet", json!({}))).await;
    assert_eq!(prompt["error"]["code"], -32603, "{prompt}");
    assert_part(&prompt["error"]["data"]);
}

#[tokio::test]
async fn b08_calls_to_a_stopped_server_fail_at_once_and_others_are_unaffected() {
    let (away, here) = (demo().await, demo().await);
    let config = at("away", &away.url(), "legacy", &[]) + &at("here", &here.url(), "modern", &[]);
    let gateway = TestGateway::with(&config).await;
    let (legacy, modern) = (LegacyClient::connect(&gateway.http).await, ModernClient::new(&gateway.http));
    gateway.host.stop("away").unwrap();
    gateway.until("away", State::Stopped).await;
    let echo = call("away__echo", json!({ "text": "hi" }));
    let part = failure(&legacy.request("tools/call", echo.clone()).await, false);
    assert_eq!((&part["code"], &part["outcome"]), (&json!("stopped"), &json!("not_sent")));
    failure(&modern.request("tools/call", echo).await, true);
    let others = [
        ("prompts/get", call("away__greet", json!({ "name": "Ada" }))),
        ("resources/read", json!({ "uri": "demo://greeting" })),
    ];
    for (method, params) in others {
        let answer = legacy.request(method, params.clone()).await;
        assert_eq!(answer["error"]["code"], -32603, "{answer}");
        assert_part(&answer["error"]["data"]);
        let answered = modern.send_request(method, params).await;
        assert_eq!(answered.refusal(), (200, -32603));
    }
    others_go_on(&legacy).await;
    gateway.host.start("away").unwrap();
    gateway.until("away", State::Ready).await;
    assert_eq!(legacy.call_tool("away__echo", json!({ "text": "again" })).await, "again");
}

#[tokio::test]
async fn c04_a_call_that_wakes_a_parked_server_is_held_until_it_is_ready() {
    let here = demo().await;
    let restart = "restart = { max = 1, window = \"5m\", parked_probe = \"1h\" }";
    let config = child("away", &[], &[restart]) + &at("here", &here.url(), "legacy", &[]);
    let gateway = TestGateway::with(&config).await;
    let client = LegacyClient::connect(&gateway.http).await;
    let mut seen = Vec::new();
    while gateway.host.server_status("away").unwrap().supervision.state != State::Parked {
        assert!(seen.len() < 20, "never parked: {seen:?}");
        // Each call crashes it; the calls are not sent twice.
        let part = failure(&client.request("tools/call", call("away__crash", json!({}))).await, false);
        seen.push(part["code"].as_str().unwrap().to_owned());
    }
    let answer = client.request("tools/call", call("away__echo", json!({ "text": "hi" }))).await;
    assert_eq!(answer["result"]["content"][0]["text"], "hi", "{answer}");
    others_go_on(&client).await;
}

#[tokio::test]
async fn a_server_that_needs_a_login_says_so_and_others_are_unaffected() {
    let (away, here) = (demo().await, demo().await);
    let config = at("away", &away.url(), "legacy", &[]) + &at("here", &here.url(), "legacy", &[]);
    let gateway = TestGateway::with(&config).await;
    let client = LegacyClient::connect(&gateway.http).await;
    away.set_faults(Faults { require_bearer: Some("secret".to_owned()), ..Faults::default() });
    let part =
        failure(&client.request("tools/call", call("away__echo", json!({ "text": "hi" }))).await, false);
    assert_eq!(part["code"], "needs_login", "{part}");
    others_go_on(&client).await;
}

#[tokio::test]
async fn b06_tools_stay_listed_byte_for_byte_while_their_server_is_away() {
    let away = demo_with(Options { extra_tools: 5, ..Options::default() }).await;
    let config = at("away", &away.url(), "legacy", &[]);
    let gateway = TestGateway::with(&config).await;
    let client = LegacyClient::connect(&gateway.http).await;
    let lists = ["tools/list", "prompts/list", "resources/list", "resources/templates/list"];
    let mut before = Vec::new();
    for list in lists {
        before.push(client.post(&crate::client::request(1, list, &json!({}))).await.text);
    }
    away.stop().await;
    gateway.until("away", State::Reconnecting).await;
    // While it is away, and after a restart of the gateway in which it never connected.
    for (list, before) in lists.iter().zip(&before) {
        assert_eq!(client.post(&crate::client::request(1, list, &json!({}))).await.text, *before);
    }
    let gateway = gateway.restart(&config).await;
    let client = LegacyClient::with_session(&gateway.http, &client.session);
    for (list, before) in lists.iter().zip(&before) {
        assert_eq!(client.post(&crate::client::request(1, list, &json!({}))).await.text, *before);
    }
}

#[tokio::test]
async fn d02_a_session_lost_by_the_server_is_hidden_from_the_client() {
    let demo = demo().await;
    let gateway = TestGateway::with(&at("demo", &demo.url(), "legacy", &[])).await;
    let (legacy, modern) = (LegacyClient::connect(&gateway.http).await, ModernClient::new(&gateway.http));
    demo.forget_sessions();
    assert_eq!(legacy.call_tool("demo__counter", json!({})).await, "1");
    demo.forget_sessions();
    assert_eq!(modern.call_tool("demo__counter", json!({})).await, "2");
}

#[tokio::test]
async fn c05_a_call_whose_server_died_has_an_unknown_outcome_and_is_not_resent() {
    let dir = tempfile::tempdir().unwrap();
    let starts = dir.path().join("starts");
    let flags = ["--exit-in-call", "1", "--starts-file", starts.to_str().unwrap()];
    let gateway = TestGateway::with(&child("away", &flags, &[])).await;
    let client = LegacyClient::connect(&gateway.http).await;
    let part = failure(&client.request("tools/call", call("away__counter", json!({}))).await, false);
    assert_eq!((&part["code"], &part["outcome"]), (&json!("outcome_unknown"), &json!("unknown")));
    let started = || std::fs::read_to_string(&starts).unwrap().lines().count();
    until("it is started again", || started() > 1).await;
    gateway.until("away", State::Ready).await;
    // The same call would have crashed the next process too.
    assert_eq!(started(), 2);
}
