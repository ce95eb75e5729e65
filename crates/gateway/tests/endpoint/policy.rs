//! Per-client rules: denied items are absent from lists and unknown when requested.

use crate::client::{LegacyClient, ModernClient, call, names};
use crate::test_gateway::{TestGateway, at, demo, demo_with, file_of};
use gripfast::config::Config;
use gripfast_demo::Options;
use gripfast_gateway::reload::Reloader;
use serde_json::{Value, json};
use std::sync::Arc;

/// Rules that deny items of all three lists to clients of this machine.
const LOCAL: &str = r#"
[clients.local]
tools = { allow = ["*"], deny = ["demo/c*", "*/@destructive"] }
resources = { deny = ["demo/demo://greeting"] }
prompts = { allow = ["other/*"] }
"#;

async fn request_in_era(gateway: &TestGateway, modern: bool, method: &str, params: Value) -> Value {
    match modern {
        true => ModernClient::new(&gateway.http).request(method, params).await,
        false => LegacyClient::connect(&gateway.http).await.request(method, params).await,
    }
}

/// Error without the requested name.
fn error(answer: &Value, name: &str) -> String {
    assert!(answer["error"].is_object(), "{answer}");
    answer["error"].to_string().replace(name, "X")
}

#[tokio::test]
async fn g01_denied_items_are_absent_from_lists_and_unknown_when_called() {
    let demo = demo().await;
    let gateway = TestGateway::with(&(at("demo", &demo.url(), "legacy", &[]) + LOCAL)).await;
    assert!(gateway.host.catalog_snapshot().merged.tool("demo__counter").is_some(), "others may see it");
    for modern in [false, true] {
        let tools = names(&request_in_era(&gateway, modern, "tools/list", json!({})).await, "tools", "name");
        assert!(tools.contains(&"demo__echo".to_owned()), "{tools:?}");
        assert!(!tools.iter().any(|tool| tool.starts_with("demo__c")), "{tools:?}");
        let resources = request_in_era(&gateway, modern, "resources/list", json!({})).await;
        assert!(!resources.to_string().contains("demo://greeting"), "{resources}");
        let prompts = request_in_era(&gateway, modern, "prompts/list", json!({})).await;
        assert_eq!(prompts["result"]["prompts"], json!([]));
        for (method, member, denied, unknown) in [
            ("tools/call", "name", "demo__counter", "demo__nobody"),
            ("prompts/get", "name", "demo__greet", "demo__nobody"),
            ("resources/read", "uri", "demo://greeting", "demo+demo://nobody"),
        ] {
            let denied_answer =
                request_in_era(&gateway, modern, method, json!({ member: denied, "arguments": {} })).await;
            assert_eq!(denied_answer["error"]["code"], -32602, "{method}: {denied_answer}");
            if method != "resources/read" {
                let unknown_answer =
                    request_in_era(&gateway, modern, method, json!({ member: unknown, "arguments": {} }))
                        .await;
                assert_eq!(error(&denied_answer, denied), error(&unknown_answer, unknown), "{method}");
            }
            assert!(!denied_answer.to_string().contains("denied"), "{denied_answer}");
        }
    }
    assert_eq!(demo.calls(), 0);
}

#[tokio::test]
async fn g01_a_denied_server_sends_nothing_to_the_client() {
    let (demo, other) = (demo().await, demo().await);
    let nothing = r#"
[clients.local]
tools = { deny = ["other/*"] }
resources = { deny = ["other/*"] }
prompts = { deny = ["other/*"] }
"#;
    let servers = at("demo", &demo.url(), "legacy", &[]) + &at("other", &other.url(), "modern", &[]);
    for (rules, others) in [("", true), (nothing, false)] {
        let gateway = TestGateway::with(&(servers.clone() + rules)).await;
        let hello = gateway.http.initialize("2025-11-25").await.message();
        let discovered = ModernClient::new(&gateway.http).request("server/discover", json!({})).await;
        for answer in [hello, discovered] {
            let said = answer["result"]["instructions"].as_str().unwrap();
            assert!(said.contains("# demo\n"), "{said}");
            assert_eq!(said.contains("# other\n"), others, "{said}");
        }
    }
}

#[tokio::test]
async fn g01_a_task_request_does_not_reveal_a_denied_tool() {
    let demo = demo().await;
    let denied = "[clients.local]\ntools = { deny = [\"demo/counter\"] }\n";
    let gateway = TestGateway::with(&(at("demo", &demo.url(), "modern", &[]) + denied)).await;
    let client = LegacyClient::connect(&gateway.http).await;
    let mut answers = Vec::new();
    for tool in ["demo__echo", "demo__counter", "demo__nobody"] {
        let params = json!({ "name": tool, "arguments": {}, "task": {} });
        answers.push(error(&client.request("tools/call", params).await, tool));
    }
    assert!(answers[0].contains("-32601"), "one that it may use cannot be a task there: {}", answers[0]);
    assert_eq!(answers[1], answers[2]);
}

#[tokio::test]
async fn g01_header_checks_do_not_reveal_a_denied_tool() {
    let demo = demo_with(Options { param_headers: true, ..Options::default() }).await;
    let denied = "[clients.local]\ntools = { deny = [\"demo/route\"] }\n";
    let gateway = TestGateway::with(&(at("demo", &demo.url(), "modern", &[]) + denied)).await;
    assert!(gateway.host.catalog_snapshot().merged.tool("demo__route").is_some(), "others may see it");
    let client = ModernClient::new(&gateway.http);
    for tool in ["demo__route", "demo__nobody"] {
        let answer = client.request("tools/call", call(tool, json!({ "region": "eu" }))).await;
        assert_eq!(answer["error"]["code"], -32602, "{tool}: {answer}");
    }
}

#[tokio::test]
async fn g01_a_second_name_or_another_spelling_of_it_reaches_no_denied_tool() {
    let demo = demo().await;
    let gateway = TestGateway::with(&(at("demo", &demo.url(), "legacy", &["prefix = \"\""]) + LOCAL)).await;
    let client = LegacyClient::connect(&gateway.http).await;
    for params in [
        r#"{"name":"echo","name":"counter","arguments":{}}"#,
        r#"{"name":"echo","n\u0061me":"counter","arguments":{}}"#,
        r#"{"Name":"counter","name":"echo","arguments":{}}"#,
        r#"{"name":"counter","arguments":{}}"#,
    ] {
        let body = format!(r#"{{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{params}}}"#);
        let answer = gateway.http.post(&[("mcp-session-id", &client.session)], body).await.message();
        assert!(answer["error"]["code"].as_i64().is_some_and(|code| code < 0), "{params}: {answer}");
    }
    // With an unknown method, which goes to the only server.
    let answer = client.request("tools/call_later", call("counter", json!({}))).await;
    assert_eq!(answer["error"]["code"], -32601, "{answer}");
    assert_eq!(demo.calls(), 0);
}

#[tokio::test]
async fn g01_no_way_of_spelling_a_uri_leads_around_a_rule() {
    let demo = demo().await;
    let rule = r#"resources = { allow = ["demo://*"], deny = ["demo://greeting*"] }"#;
    let gateway = TestGateway::with(&at("demo", &demo.url(), "legacy", &[rule])).await;
    let client = LegacyClient::connect(&gateway.http).await;
    for uri in [
        "demo://greeting",
        "demo+demo://greeting",
        "demo+demo://x/../../greeting",
        "demo+demo://%67reeting",
        "demo+demo://%2567reeting",
        "demo+DEMO://greeting",
        "demo+file:///etc/passwd",
        "demo+demo://Greeting",
        "demo+demo://u:p@greeting",
        "demo+demo://greeting:",
        "demo+demo://greeting#x",
    ] {
        let answer = client.request("resources/read", json!({ "uri": uri })).await;
        assert_eq!(answer["error"]["code"], -32602, "{uri}: {answer}");
        let followed = client.request("resources/subscribe", json!({ "uri": uri })).await;
        assert!(followed["error"].is_object(), "{uri}: {followed}");
    }
}

#[tokio::test]
async fn g01_a_uri_with_control_characters_reaches_no_server_even_without_rules() {
    let demo = demo().await;
    let gateway = TestGateway::with(&at("demo", &demo.url(), "legacy", &[])).await;
    let client = LegacyClient::connect(&gateway.http).await;
    for uri in ["demo://gree\tting", "demo+demo://greeting\n", "demo+ demo://greeting"] {
        for method in ["resources/read", "resources/subscribe"] {
            let answer = client.request(method, json!({ "uri": uri })).await;
            assert_eq!(answer["error"]["data"]["code"], "invalid_request", "{uri:?}: {answer}");
        }
        let reference = json!({ "type": "ref/resource", "uri": uri });
        let asked = json!({ "ref": reference, "argument": { "name": "a", "value": "b" } });
        let answer = client.request("completion/complete", asked).await;
        assert_eq!(answer["error"]["data"]["code"], "invalid_request", "{uri:?}: {answer}");
    }
    let read = client.request("resources/read", json!({ "uri": "demo+demo://greeting" })).await;
    assert!(read["result"].is_object(), "{read}");
}

/// G01, G03
#[tokio::test]
async fn g01_g03_rules_and_budgets_of_a_changed_file_apply_once_it_is_loaded() {
    let demo = demo().await;
    let before = at("demo", &demo.url(), "legacy", &[]);
    let gateway = TestGateway::with(&before).await;
    let file = gateway.state_dir().join("gripfast.toml");
    let written = |text: &str| {
        std::fs::write(&file, file_of(text)).unwrap();
        Config::load(&file).unwrap()
    };
    let reloader = Arc::new(Reloader::new(gateway.host.clone(), file.clone(), written(&before)));
    let client = LegacyClient::connect(&gateway.http).await;
    let says = |name: &str| call(name, json!({ "text": "x" }));
    assert!(client.request("tools/call", says("demo__echo")).await["result"].is_object());
    written(&format!("{before}{LOCAL}\n[budgets.few]\ncalls = 1\nwithin = \"1h\"\n"));
    reloader.reload().await.unwrap();
    let denied = client.request("tools/call", call("demo__counter", json!({}))).await;
    assert_eq!(denied["error"]["code"], -32602, "{denied}");
    let first = client.request("tools/call", says("demo__echo")).await;
    assert_eq!(first["result"]["isError"], json!(null), "what was spent is forgotten: {first}");
    let second = client.request("tools/call", says("demo__echo")).await;
    assert_eq!(second["result"]["_meta"]["gripfast/failure"]["code"], "budget_exceeded", "{second}");
    written(&before);
    reloader.reload().await.unwrap();
    let again = client.request("tools/call", call("demo__counter", json!({}))).await;
    assert!(again["result"].is_object(), "{again}");
}
