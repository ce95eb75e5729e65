//! What some may see and use and others may not: absent from lists, and unknown when asked for.

use crate::client::{Legacy, Modern, call, names};
use crate::scene::{Scene, at, demo, demo_with, file_of};
use gripfast::config::Config;
use gripfast_demo::Options;
use gripfast_gateway::reload::Reloader;
use serde_json::{Value, json};
use std::sync::Arc;

/// What is denied to the clients of this machine, in all three lists.
const LOCAL: &str = r#"
[clients.local]
tools = { allow = ["*"], deny = ["demo/c*", "*/@destructive"] }
resources = { deny = ["demo/demo://greeting"] }
prompts = { allow = ["other/*"] }
"#;

async fn asks(scene: &Scene, modern: bool, method: &str, params: Value) -> Value {
    match modern {
        true => Modern::of(&scene.http).asks(method, params).await,
        false => Legacy::meets(&scene.http).await.asks(method, params).await,
    }
}

/// An error without the name that was asked for.
fn error(answer: &Value, name: &str) -> String {
    assert!(answer["error"].is_object(), "{answer}");
    answer["error"].to_string().replace(name, "X")
}

#[tokio::test]
async fn g01_what_is_denied_to_a_client_is_absent_from_its_lists_and_unknown_when_asked_for() {
    let demo = demo().await;
    let scene = Scene::with(&(at("demo", &demo.url(), "legacy", &[]) + LOCAL)).await;
    assert!(scene.host.menu().menu.tool("demo__counter").is_some(), "others may see it");
    for modern in [false, true] {
        let tools = names(&asks(&scene, modern, "tools/list", json!({})).await, "tools", "name");
        assert!(tools.contains(&"demo__echo".to_owned()), "{tools:?}");
        assert!(!tools.iter().any(|tool| tool.starts_with("demo__c")), "{tools:?}");
        let resources = asks(&scene, modern, "resources/list", json!({})).await;
        assert!(!resources.to_string().contains("demo://greeting"), "{resources}");
        let prompts = asks(&scene, modern, "prompts/list", json!({})).await;
        assert_eq!(prompts["result"]["prompts"], json!([]));
        for (method, member, denied, unknown) in [
            ("tools/call", "name", "demo__counter", "demo__nobody"),
            ("prompts/get", "name", "demo__greet", "demo__nobody"),
            ("resources/read", "uri", "demo://greeting", "demo+demo://nobody"),
        ] {
            let denied_answer =
                asks(&scene, modern, method, json!({ member: denied, "arguments": {} })).await;
            assert_eq!(denied_answer["error"]["code"], -32602, "{method}: {denied_answer}");
            if method != "resources/read" {
                let unknown_answer =
                    asks(&scene, modern, method, json!({ member: unknown, "arguments": {} })).await;
                assert_eq!(error(&denied_answer, denied), error(&unknown_answer, unknown), "{method}");
            }
            assert!(!denied_answer.to_string().contains("denied"), "{denied_answer}");
        }
    }
    assert_eq!(demo.calls(), 0);
}

#[tokio::test]
async fn g01_a_server_that_a_client_may_not_use_says_nothing_to_it() {
    let (demo, other) = (demo().await, demo().await);
    let nothing = r#"
[clients.local]
tools = { deny = ["other/*"] }
resources = { deny = ["other/*"] }
prompts = { deny = ["other/*"] }
"#;
    let servers = at("demo", &demo.url(), "legacy", &[]) + &at("other", &other.url(), "modern", &[]);
    for (rules, others) in [("", true), (nothing, false)] {
        let scene = Scene::with(&(servers.clone() + rules)).await;
        let hello = scene.http.initialize("2025-11-25").await.message();
        let discovered = Modern::of(&scene.http).asks("server/discover", json!({})).await;
        for answer in [hello, discovered] {
            let said = answer["result"]["instructions"].as_str().unwrap();
            assert!(said.contains("# demo\n"), "{said}");
            assert_eq!(said.contains("# other\n"), others, "{said}");
        }
    }
}

#[tokio::test]
async fn g01_a_denied_tool_does_not_show_by_what_it_says_to_a_task() {
    let demo = demo().await;
    let denied = "[clients.local]\ntools = { deny = [\"demo/counter\"] }\n";
    let scene = Scene::with(&(at("demo", &demo.url(), "modern", &[]) + denied)).await;
    let client = Legacy::meets(&scene.http).await;
    let mut answers = Vec::new();
    for tool in ["demo__echo", "demo__counter", "demo__nobody"] {
        let params = json!({ "name": tool, "arguments": {}, "task": {} });
        answers.push(error(&client.asks("tools/call", params).await, tool));
    }
    assert!(answers[0].contains("-32601"), "one that it may use cannot be a task there: {}", answers[0]);
    assert_eq!(answers[1], answers[2]);
}

#[tokio::test]
async fn g01_a_denied_tool_does_not_show_by_the_headers_that_it_would_want() {
    let demo = demo_with(Options { param_headers: true, ..Options::default() }).await;
    let denied = "[clients.local]\ntools = { deny = [\"demo/route\"] }\n";
    let scene = Scene::with(&(at("demo", &demo.url(), "modern", &[]) + denied)).await;
    assert!(scene.host.menu().menu.tool("demo__route").is_some(), "others may see it");
    let client = Modern::of(&scene.http);
    for tool in ["demo__route", "demo__nobody"] {
        let answer = client.asks("tools/call", call(tool, json!({ "region": "eu" }))).await;
        assert_eq!(answer["error"]["code"], -32602, "{tool}: {answer}");
    }
}

#[tokio::test]
async fn g01_a_second_name_or_another_spelling_of_it_reaches_no_denied_tool() {
    let demo = demo().await;
    let scene = Scene::with(&(at("demo", &demo.url(), "legacy", &["prefix = \"\""]) + LOCAL)).await;
    let client = Legacy::meets(&scene.http).await;
    for params in [
        r#"{"name":"echo","name":"counter","arguments":{}}"#,
        r#"{"name":"echo","n\u0061me":"counter","arguments":{}}"#,
        r#"{"Name":"counter","name":"echo","arguments":{}}"#,
        r#"{"name":"counter","arguments":{}}"#,
    ] {
        let body = format!(r#"{{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{params}}}"#);
        let answer = scene.http.post(&[("mcp-session-id", &client.session)], body).await.message();
        assert!(answer["error"]["code"].as_i64().is_some_and(|code| code < 0), "{params}: {answer}");
    }
    // Under a method that nobody knows here, with the only server there is.
    let answer = client.asks("tools/call_later", call("counter", json!({}))).await;
    assert_eq!(answer["error"]["code"], -32601, "{answer}");
    assert_eq!(demo.calls(), 0);
}

#[tokio::test]
async fn g01_no_way_of_spelling_a_uri_leads_around_a_rule() {
    let demo = demo().await;
    let rule = r#"resources = { allow = ["demo://*"], deny = ["demo://greeting*"] }"#;
    let scene = Scene::with(&at("demo", &demo.url(), "legacy", &[rule])).await;
    let client = Legacy::meets(&scene.http).await;
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
        let answer = client.asks("resources/read", json!({ "uri": uri })).await;
        assert_eq!(answer["error"]["code"], -32602, "{uri}: {answer}");
        let followed = client.asks("resources/subscribe", json!({ "uri": uri })).await;
        assert!(followed["error"].is_object(), "{uri}: {followed}");
    }
}

#[tokio::test]
async fn g01_a_uri_with_control_characters_goes_to_no_server_also_without_rules() {
    let demo = demo().await;
    let scene = Scene::with(&at("demo", &demo.url(), "legacy", &[])).await;
    let client = Legacy::meets(&scene.http).await;
    for uri in ["demo://gree\tting", "demo+demo://greeting\n", "demo+ demo://greeting"] {
        for method in ["resources/read", "resources/subscribe"] {
            let answer = client.asks(method, json!({ "uri": uri })).await;
            assert_eq!(answer["error"]["data"]["code"], "invalid_request", "{uri:?}: {answer}");
        }
        let reference = json!({ "type": "ref/resource", "uri": uri });
        let asked = json!({ "ref": reference, "argument": { "name": "a", "value": "b" } });
        let answer = client.asks("completion/complete", asked).await;
        assert_eq!(answer["error"]["data"]["code"], "invalid_request", "{uri:?}: {answer}");
    }
    let read = client.asks("resources/read", json!({ "uri": "demo+demo://greeting" })).await;
    assert!(read["result"].is_object(), "{read}");
}

/// G01, G03
#[tokio::test]
async fn g01_g03_lists_and_budgets_of_a_changed_file_count_as_soon_as_it_is_taken() {
    let demo = demo().await;
    let before = at("demo", &demo.url(), "legacy", &[]);
    let scene = Scene::with(&before).await;
    let file = scene.state_dir().join("gripfast.toml");
    let written = |text: &str| {
        std::fs::write(&file, file_of(text)).unwrap();
        Config::load(&file).unwrap()
    };
    let reloader = Arc::new(Reloader::new(scene.host.clone(), file.clone(), written(&before)));
    let client = Legacy::meets(&scene.http).await;
    let says = |name: &str| call(name, json!({ "text": "x" }));
    assert!(client.asks("tools/call", says("demo__echo")).await["result"].is_object());
    written(&format!("{before}{LOCAL}\n[budgets.few]\ncalls = 1\nwithin = \"1h\"\n"));
    reloader.reload().await.unwrap();
    let denied = client.asks("tools/call", call("demo__counter", json!({}))).await;
    assert_eq!(denied["error"]["code"], -32602, "{denied}");
    let first = client.asks("tools/call", says("demo__echo")).await;
    assert_eq!(first["result"]["isError"], json!(null), "what was spent is forgotten: {first}");
    let second = client.asks("tools/call", says("demo__echo")).await;
    assert_eq!(second["result"]["_meta"]["gripfast/failure"]["code"], "budget_exceeded", "{second}");
    written(&before);
    reloader.reload().await.unwrap();
    let again = client.asks("tools/call", call("demo__counter", json!({}))).await;
    assert!(again["result"].is_object(), "{again}");
}
