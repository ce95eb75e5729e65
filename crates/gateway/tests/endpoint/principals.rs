//! Several principals at one server: a hostile one does not block the others, and its elicitations and held calls are
//! limited.

use crate::client::{LegacyClient, ModernClient, borrowed, call, spoken, text_of};
use crate::test_gateway::{TestGateway, at, child, demo};
use gripfast::State;
use gripfast_demo::RunningServer;
use gripfast_gateway::auth::keys;
use gripfast_testkit::wait::within;
use serde_json::{Value, json};

/// Client with its key.
struct KeyHolder<'a> {
    gateway: &'a TestGateway,
    key: String,
}

impl<'a> KeyHolder<'a> {
    fn of(gateway: &'a TestGateway, name: &str) -> Self {
        Self { gateway, key: format!("Bearer {}", keys::add(gateway.state_dir(), name).unwrap()) }
    }

    async fn call_tool(&self, tool: &str, arguments: Value) -> Value {
        let (headers, body) = spoken(json!(1), "tools/call", call(tool, arguments));
        let headers = [&[("authorization", &*self.key)][..], &borrowed(&headers)].concat();
        within(tool, self.gateway.http.post(&headers, body)).await.message()
    }

    async fn echoes(&self) -> String {
        text_of(&self.call_tool("demo__echo", json!({ "text": "hi" })).await)
    }
}

#[tokio::test]
async fn c05_a_key_that_crashes_the_server_over_and_over_is_refused_and_others_go_on() {
    let config = format!("[gateway]\nauth = {{ keys = true }}\n\n{}", child("demo", &[], &[]));
    let gateway = TestGateway::with(&config).await;
    let (honest, hostile) = (KeyHolder::of(&gateway, "honest"), KeyHolder::of(&gateway, "hostile"));
    assert_eq!(honest.echoes().await, "hi");
    let mut outcomes = Vec::new();
    for code in 0..10 {
        // A different request each time, so that none is refused because of its own crashes.
        let answer = hostile.call_tool("demo__crash", json!({ "code": code })).await;
        let part = &answer["result"]["_meta"]["gripfast/failure"];
        outcomes.push(part["outcome"].as_str().unwrap_or_else(|| panic!("{answer}")).to_owned());
        if code >= 3 {
            assert_eq!(part["code"], "unreachable", "{answer}");
            assert!(part["retry_after_ms"].as_u64().is_some_and(|wait| wait <= 60_000), "{answer}");
            let text = answer["result"]["content"][0]["text"].as_str().unwrap();
            assert!(text.contains("server `demo` died 3 times within 10 min"), "{text}");
            assert!(!answer.to_string().contains("honest"), "{answer}");
        }
        assert_ne!(gateway.host.server_status("demo").unwrap().supervision.state, State::Parked);
    }
    let expected: Vec<_> = [&["unknown"; 3][..], &["not_sent"; 7]].concat();
    assert_eq!(outcomes, expected);
    for _ in 0..5 {
        assert_eq!(honest.echoes().await, "hi");
    }
    let shown = gateway.host.server_status("demo").unwrap();
    assert_eq!((shown.supervision.state, shown.supervision.restarts_in_window), (State::Ready, 0));
}

/// Gateway with these limits and the sample server.
async fn limited(limits: &str) -> (RunningServer, TestGateway) {
    let demo = demo().await;
    let config = format!("[gateway]\nlimits = {{ {limits} }}\n\n{}", at("demo", &demo.url(), "legacy", &[]));
    let gateway = TestGateway::with(&config).await;
    (demo, gateway)
}

fn ask() -> Value {
    call("demo__ask", json!({ "question": "Sure?" }))
}

#[tokio::test]
async fn beyond_questions_per_client_the_oldest_elicitation_is_cancelled() {
    let (_demo, gateway) = limited("questions_per_client = 1").await;
    let can = || json!({ "elicitation": {} });
    let first = LegacyClient::with_capabilities(&gateway.http, can()).await;
    let second = LegacyClient::with_capabilities(&gateway.http, can()).await;
    let mut asked_first = first.start_request("one", "tools/call", ask()).await;
    assert_eq!(asked_first.message().await["method"], "elicitation/create");
    let mut asked_second = second.start_request("two", "tools/call", ask()).await;
    let question = asked_second.message().await;
    assert_eq!(asked_first.message().await["method"], "notifications/cancelled");
    assert_eq!(asked_first.message().await["id"], "one", "its call ends");
    let yes = json!({ "action": "accept", "content": { "ok": true } });
    second.post(&json!({ "jsonrpc": "2.0", "id": question["id"], "result": yes })).await;
    assert_eq!(text_of(&asked_second.message().await), "the answer was yes");
}

#[tokio::test]
async fn beyond_suspended_calls_per_client_the_oldest_call_is_cancelled() {
    let (_demo, gateway) = limited("suspended_calls_per_client = 1").await;
    let client = ModernClient::new(&gateway.http);
    let asks =
        async |params: Value| client.request_as(json!({ "elicitation": {} }), "tools/call", params).await;
    let (first, second) = (asks(ask()).await, asks(ask()).await);
    let comes_back = async |suspended: &Value| {
        let result = &suspended["result"];
        assert_eq!(result["resultType"], "input_required", "{suspended}");
        let mut params = ask();
        params["requestState"] = result["requestState"].clone();
        for key in result["inputRequests"].as_object().unwrap().keys() {
            params["inputResponses"][key] = json!({ "action": "accept", "content": { "ok": true } });
        }
        asks(params).await
    };
    let ended = comes_back(&first).await;
    assert!(ended["error"]["message"].as_str().unwrap().contains("has ended; start it again"), "{ended}");
    assert_eq!(text_of(&comes_back(&second).await), "the answer was yes");
}
