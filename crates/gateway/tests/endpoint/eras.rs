//! Clients of one era and servers of the other: everything that both eras have crosses, and nothing of the
//! one shows in the other.

use crate::client::{LEGACY, Legacy, Modern, borrowed, call, in_context, names, request, spoken};
use crate::scene::{Scene, at, demo_with};
use crate::script::Script;
use gripfast_demo::{EraChoice, Options, RunningServer};
use serde_json::{Value, json};

async fn server_of(era: EraChoice) -> RunningServer {
    demo_with(Options { era, ..Options::default() }).await
}

const TOOLS: [&str; 9] = [
    "demo__echo",
    "demo__add",
    "demo__sleep",
    "demo__counter",
    "demo__fail",
    "demo__reject",
    "demo__ask",
    "demo__crash",
    "demo__misbehave",
];

/// Asks for everything that both eras have.
macro_rules! check_all {
    ($client:expr) => {{
        let client = &$client;
        assert_eq!(names(&client.asks("tools/list", json!({})).await, "tools", "name"), TOOLS);
        let resources = client.asks("resources/list", json!({})).await;
        assert_eq!(names(&resources, "resources", "uri"), ["demo://greeting", "demo://counter"]);
        let templates = client.asks("resources/templates/list", json!({})).await;
        assert_eq!(names(&templates, "resourceTemplates", "uriTemplate"), ["demo://echo/{text}"]);
        let prompts = client.asks("prompts/list", json!({})).await;
        assert_eq!(names(&prompts, "prompts", "name"), ["demo__greet"]);
        assert_eq!(client.calls("demo__add", json!({ "a": 2, "b": 3 })).await, "5");
        let failed = client.asks("tools/call", call("demo__fail", json!({ "message": "oh" }))).await;
        assert_eq!(failed["result"]["isError"], true, "{failed}");
        let rejected = client.asks("tools/call", call("demo__reject", json!({}))).await;
        assert_eq!(rejected["error"]["code"], -32602, "{rejected}");
        assert_eq!(rejected["error"]["message"], "told to reject", "{rejected}");
        let got = client.asks("prompts/get", call("demo__greet", json!({ "name": "Ada" }))).await;
        let text = &got["result"]["messages"][0]["content"]["text"];
        assert_eq!(*text, "Please greet Ada in one friendly sentence.", "{got}");
        for (uri, content) in [("demo://greeting", "Hello from the sample server."), ("demo://echo/x%20y", "x%20y")] {
            let read = client.asks("resources/read", json!({ "uri": uri })).await;
            assert_eq!(read["result"]["contents"][0]["text"], content, "{read}");
        }
        let references = [
            json!({ "type": "ref/prompt", "name": "demo__greet" }),
            json!({ "type": "ref/resource", "uri": "demo://echo/{text}" }),
        ];
        for reference in references {
            let argument = json!({ "name": "name", "value": "A" });
            let params = json!({ "ref": reference, "argument": argument });
            let completed = client.asks("completion/complete", params).await;
            assert_eq!(completed["result"]["completion"]["values"], json!(["Ada", "Alan"]), "{completed}");
        }
    }};
}

#[tokio::test]
async fn a_legacy_client_uses_everything_of_a_modern_server() {
    let demo = server_of(EraChoice::Modern).await;
    let scene = Scene::with(&at("demo", &demo.url(), "modern", &[])).await;
    for version in ["2024-11-05", "2025-03-26", "2025-06-18", LEGACY] {
        check_all!(Legacy::speaks(&scene.http, version).await);
    }
}

#[tokio::test]
async fn a_modern_client_uses_everything_of_a_legacy_server() {
    let demo = server_of(EraChoice::Legacy).await;
    let scene = Scene::with(&at("demo", &demo.url(), "legacy", &[])).await;
    check_all!(Modern::of(&scene.http));
}

#[tokio::test]
async fn clients_of_both_eras_use_servers_of_their_own_era_at_the_same_time() {
    let demo = server_of(EraChoice::Both).await;
    for protocol in ["legacy", "modern"] {
        let scene = Scene::with(&at("demo", &demo.url(), protocol, &[])).await;
        check_all!(Legacy::meets(&scene.http).await);
        check_all!(Modern::of(&scene.http));
    }
}

#[tokio::test]
async fn nothing_of_the_modern_era_shows_in_what_a_legacy_client_gets() {
    let demo = server_of(EraChoice::Modern).await;
    let scene = Scene::with(&at("demo", &demo.url(), "modern", &[])).await;
    let client = Legacy::meets(&scene.http).await;
    let asked = [
        ("tools/list", json!({})),
        ("resources/list", json!({})),
        ("resources/templates/list", json!({})),
        ("prompts/list", json!({})),
        ("tools/call", call("demo__echo", json!({ "text": "hi" }))),
        ("prompts/get", call("demo__greet", json!({ "name": "Ada" }))),
        ("resources/read", json!({ "uri": "demo://greeting" })),
    ];
    for (method, params) in asked {
        let answer = client.asks(method, params).await;
        for modern in ["resultType", "ttlMs", "cacheScope"] {
            assert!(answer["result"].is_object() && answer["result"].get(modern).is_none(), "{answer}");
        }
    }
}

#[tokio::test]
async fn nothing_of_a_modern_request_shows_in_what_a_legacy_server_gets() {
    let tools = r#"{"tools":[{"name":"t","inputSchema":{"type":"object"}}]}"#;
    let script = Script::starts(&[("tools/list", tools), ("tools/call", r#"{"content":[]}"#)]).await;
    let scene = Scene::with(&at("raw", &script.url, "legacy", &[])).await;
    let mut params = call("raw__t", json!({}));
    params["_meta"] = json!({
        "io.modelcontextprotocol/logLevel": "debug",
        "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        "example.com/own": { "kept": true },
    });
    let answered = Modern::of(&scene.http).sends("tools/call", params).await;
    assert_eq!(answered.status, 200, "{answered:?}");
    for body in script.everything() {
        let said: Value = serde_json::from_str(&body).unwrap();
        // The handshake is ours, for all clients, and names the extensions that any of them may have.
        let part = if said["method"] == "initialize" { &said["params"]["_meta"] } else { &said };
        assert!(!part.to_string().contains("io.modelcontextprotocol/"), "{body}");
    }
    let heard: Value = serde_json::from_str(&script.heard("tools/call")).unwrap();
    let kept = json!({
        "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        "example.com/own": { "kept": true },
    });
    assert_eq!(heard["params"]["_meta"], kept);
}

#[tokio::test]
async fn a_modern_server_is_told_its_context_on_behalf_of_a_legacy_client() {
    let tools = r#"{"tools":[{"name":"t","inputSchema":{"type":"object"}}],"resultType":"complete","ttlMs":0,"cacheScope":"private"}"#;
    let answers = [("tools/list", tools), ("tools/call", r#"{"content":[],"resultType":"complete"}"#)];
    let script = Script::starts(&answers).await;
    let scene = Scene::with(&at("raw", &script.url, "modern", &[])).await;
    let answer = Legacy::meets(&scene.http).await.asks("tools/call", call("raw__t", json!({}))).await;
    assert_eq!(answer["result"], json!({ "content": [] }));
    let heard: Value = serde_json::from_str(&script.heard("tools/call")).unwrap();
    let meta = &heard["params"]["_meta"];
    assert_eq!(meta["io.modelcontextprotocol/protocolVersion"], "2026-07-28", "{heard}");
    assert!(meta["io.modelcontextprotocol/clientCapabilities"].is_object(), "{heard}");
}

#[tokio::test]
async fn a_call_whose_headers_a_modern_server_refuses_goes_once_more_after_a_fresh_listing() {
    let listed = |annotation: &str| {
        let schema =
            format!(r#"{{"type":"object","properties":{{"region":{{"type":"string"{annotation}}}}}}}"#);
        format!(
            r#"{{"tools":[{{"name":"t","inputSchema":{schema}}}],"resultType":"complete","ttlMs":0,"cacheScope":"private"}}"#
        )
    };
    let (older, newer) = (listed(""), listed(r#","x-mcp-header":"Region""#));
    let refused = r#"{"code":-32020,"message":"Mcp-Param-Region is missing"}"#;
    let called = r#"{"content":[{"type":"text","text":"at last"}],"resultType":"complete"}"#;
    let answers =
        [("tools/list", &*older), ("tools/list", &newer), ("tools/call", refused), ("tools/call", called)];
    for legacy in [true, false] {
        let script = Script::starts(&answers).await;
        // Where pins are enforced, somebody would have to look at the new schema first.
        let scene = Scene::with(&at("raw", &script.url, "modern", &["pins = \"warn\""])).await;
        let region = json!({ "region": "eu" });
        let said = match legacy {
            true => Legacy::meets(&scene.http).await.calls("raw__t", region).await,
            false => Modern::of(&scene.http).calls("raw__t", region).await,
        };
        assert_eq!(said, "at last");
        let heard = script.everything();
        assert_eq!(heard.iter().filter(|body| body.contains("tools/call")).count(), 2);
    }
}

#[tokio::test]
async fn a_resource_that_the_server_does_not_find_has_the_code_of_the_clients_era() {
    let legacy = server_of(EraChoice::Legacy).await;
    let modern = server_of(EraChoice::Modern).await;
    let config = at("old", &legacy.url(), "legacy", &[]) + &at("new", &modern.url(), "modern", &[]);
    let scene = Scene::with(&config).await;
    // The name of the server leads to it, whatever the URI.
    let read = |server: &str| json!({ "uri": format!("{server}+demo://nowhere") });
    let client = Modern::of(&scene.http);
    for server in ["old", "new"] {
        let answer = client.asks("resources/read", read(server)).await;
        assert_eq!(answer["error"]["code"], -32602, "{answer}");
        assert_eq!(answer["error"]["message"], "resource not found", "{answer}");
    }
    let client = Legacy::meets(&scene.http).await;
    for server in ["old", "new"] {
        let answer = client.asks("resources/read", read(server)).await;
        assert_eq!(answer["error"]["code"], -32002, "{answer}");
        assert_eq!(answer["error"]["data"]["uri"], "demo://nowhere", "{answer}");
    }
}

#[tokio::test]
async fn codes_of_the_modern_era_do_not_reach_a_legacy_client() {
    let demo = server_of(EraChoice::Modern).await;
    let scene = Scene::with(&at("demo", &demo.url(), "modern", &[])).await;
    // It asks the client back, which does not cross: the server says that a capability is missing.
    let answer = Legacy::meets(&scene.http).await.asks("tools/call", call("demo__ask", json!({}))).await;
    let code = answer["error"]["code"].as_i64();
    assert!(code.is_none_or(|code| !(-32099..=-32020).contains(&code)), "{answer}");
    let answered = Modern::of(&scene.http).sends("tools/call", call("demo__ask", json!({}))).await;
    assert_eq!(answered.refusal(), (400, -32021));
}

#[tokio::test]
async fn between_modern_peers_a_question_and_its_answer_go_through() {
    let demo = server_of(EraChoice::Modern).await;
    let scene = Scene::with(&at("demo", &demo.url(), "modern", &[])).await;
    let ask = |more: Value| {
        let mut params = in_context(call("demo__ask", json!({ "question": "Sure?" })));
        params["_meta"]["io.modelcontextprotocol/clientCapabilities"] =
            json!({ "elicitation": { "form": {} } });
        params.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let (headers, _) = spoken(json!(1), "tools/call", call("demo__ask", json!({})));
        let body = request(1, "tools/call", &params).to_string();
        async { (scene.http.post(&borrowed(&{ headers }), body).await).message()["result"].take() }
    };
    let asked = ask(json!({})).await;
    assert_eq!(asked["resultType"], "input_required", "{asked}");
    assert_eq!(asked["inputRequests"]["confirm"]["params"]["message"], "Sure?", "{asked}");
    let answers = json!({ "confirm": { "action": "accept", "content": { "ok": true } } });
    let told = ask(json!({ "inputResponses": answers, "requestState": asked["requestState"] })).await;
    assert_eq!(told["content"][0]["text"], "the answer was yes", "{told}");
}
