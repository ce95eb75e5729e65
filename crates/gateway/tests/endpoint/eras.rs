//! Clients of one era with servers of the other: common features work, and no field of one era reaches the other.

use crate::client::{LEGACY, LegacyClient, ModernClient, borrowed, call, in_context, names, request, spoken};
use crate::scripted_server::ScriptedServer;
use crate::test_gateway::{TestGateway, at, demo_with};
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

/// Uses every feature that both eras have.
macro_rules! check_all {
    ($client:expr) => {{
        let client = &$client;
        assert_eq!(names(&client.request("tools/list", json!({})).await, "tools", "name"), TOOLS);
        let resources = client.request("resources/list", json!({})).await;
        assert_eq!(names(&resources, "resources", "uri"), ["demo://greeting", "demo://counter"]);
        let templates = client.request("resources/templates/list", json!({})).await;
        assert_eq!(names(&templates, "resourceTemplates", "uriTemplate"), ["demo://echo/{text}"]);
        let prompts = client.request("prompts/list", json!({})).await;
        assert_eq!(names(&prompts, "prompts", "name"), ["demo__greet"]);
        assert_eq!(client.call_tool("demo__add", json!({ "a": 2, "b": 3 })).await, "5");
        let failed = client.request("tools/call", call("demo__fail", json!({ "message": "oh" }))).await;
        assert_eq!(failed["result"]["isError"], true, "{failed}");
        let rejected = client.request("tools/call", call("demo__reject", json!({}))).await;
        assert_eq!(rejected["error"]["code"], -32602, "{rejected}");
        assert_eq!(rejected["error"]["message"], "told to reject", "{rejected}");
        let got = client.request("prompts/get", call("demo__greet", json!({ "name": "Ada" }))).await;
        let text = &got["result"]["messages"][0]["content"]["text"];
        assert_eq!(*text, "Please greet Ada in one friendly sentence.", "{got}");
        for (uri, content) in [("demo://greeting", "Hello from the sample server."), ("demo://echo/x%20y", "x%20y")] {
            let read = client.request("resources/read", json!({ "uri": uri })).await;
            assert_eq!(read["result"]["contents"][0]["text"], content, "{read}");
        }
        let references = [
            json!({ "type": "ref/prompt", "name": "demo__greet" }),
            json!({ "type": "ref/resource", "uri": "demo://echo/{text}" }),
        ];
        for reference in references {
            let argument = json!({ "name": "name", "value": "A" });
            let params = json!({ "ref": reference, "argument": argument });
            let completed = client.request("completion/complete", params).await;
            assert_eq!(completed["result"]["completion"]["values"], json!(["Ada", "Alan"]), "{completed}");
        }
    }};
}

#[tokio::test]
async fn a_legacy_client_uses_everything_of_a_modern_server() {
    let demo = server_of(EraChoice::Modern).await;
    let gateway = TestGateway::with(&at("demo", &demo.url(), "modern", &[])).await;
    for version in ["2024-11-05", "2025-03-26", "2025-06-18", LEGACY] {
        check_all!(LegacyClient::connect_with_version(&gateway.http, version).await);
    }
}

#[tokio::test]
async fn a_modern_client_uses_everything_of_a_legacy_server() {
    let demo = server_of(EraChoice::Legacy).await;
    let gateway = TestGateway::with(&at("demo", &demo.url(), "legacy", &[])).await;
    check_all!(ModernClient::new(&gateway.http));
}

#[tokio::test]
async fn clients_of_both_eras_use_servers_of_their_own_era_at_the_same_time() {
    let demo = server_of(EraChoice::Both).await;
    for protocol in ["legacy", "modern"] {
        let gateway = TestGateway::with(&at("demo", &demo.url(), protocol, &[])).await;
        check_all!(LegacyClient::connect(&gateway.http).await);
        check_all!(ModernClient::new(&gateway.http));
    }
}

#[tokio::test]
async fn a_legacy_client_gets_no_fields_of_the_modern_era() {
    let demo = server_of(EraChoice::Modern).await;
    let gateway = TestGateway::with(&at("demo", &demo.url(), "modern", &[])).await;
    let client = LegacyClient::connect(&gateway.http).await;
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
        let answer = client.request(method, params).await;
        for modern in ["resultType", "ttlMs", "cacheScope"] {
            assert!(answer["result"].is_object() && answer["result"].get(modern).is_none(), "{answer}");
        }
    }
}

#[tokio::test]
async fn a_legacy_server_gets_no_fields_of_a_modern_request() {
    let tools = r#"{"tools":[{"name":"t","inputSchema":{"type":"object"}}]}"#;
    let script = ScriptedServer::start(&[("tools/list", tools), ("tools/call", r#"{"content":[]}"#)]).await;
    let gateway = TestGateway::with(&at("raw", &script.url, "legacy", &[])).await;
    let mut params = call("raw__t", json!({}));
    params["_meta"] = json!({
        "io.modelcontextprotocol/logLevel": "debug",
        "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        "example.com/own": { "kept": true },
    });
    let answered = ModernClient::new(&gateway.http).send_request("tools/call", params).await;
    assert_eq!(answered.status, 200, "{answered:?}");
    for body in script.everything() {
        let said: Value = serde_json::from_str(&body).unwrap();
        // The gateway's handshake is for all clients and names the extensions that any of them may have.
        let part = if said["method"] == "initialize" { &said["params"]["_meta"] } else { &said };
        assert!(!part.to_string().contains("io.modelcontextprotocol/"), "{body}");
    }
    let heard: Value = serde_json::from_str(&script.last_request("tools/call")).unwrap();
    let kept = json!({
        "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        "example.com/own": { "kept": true },
    });
    assert_eq!(heard["params"]["_meta"], kept);
}

#[tokio::test]
async fn a_modern_server_gets_its_context_for_a_legacy_client() {
    let tools = r#"{"tools":[{"name":"t","inputSchema":{"type":"object"}}],"resultType":"complete","ttlMs":0,"cacheScope":"private"}"#;
    let answers = [("tools/list", tools), ("tools/call", r#"{"content":[],"resultType":"complete"}"#)];
    let script = ScriptedServer::start(&answers).await;
    let gateway = TestGateway::with(&at("raw", &script.url, "modern", &[])).await;
    let answer =
        LegacyClient::connect(&gateway.http).await.request("tools/call", call("raw__t", json!({}))).await;
    assert_eq!(answer["result"], json!({ "content": [] }));
    let heard: Value = serde_json::from_str(&script.last_request("tools/call")).unwrap();
    let meta = &heard["params"]["_meta"];
    assert_eq!(meta["io.modelcontextprotocol/protocolVersion"], "2026-07-28", "{heard}");
    assert!(meta["io.modelcontextprotocol/clientCapabilities"].is_object(), "{heard}");
}

#[tokio::test]
async fn a_call_refused_for_its_headers_is_retried_once_after_a_new_listing() {
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
        let script = ScriptedServer::start(&answers).await;
        // With enforced pins the new schema would need an approval first.
        let gateway = TestGateway::with(&at("raw", &script.url, "modern", &["pins = \"warn\""])).await;
        let region = json!({ "region": "eu" });
        let said = match legacy {
            true => LegacyClient::connect(&gateway.http).await.call_tool("raw__t", region).await,
            false => ModernClient::new(&gateway.http).call_tool("raw__t", region).await,
        };
        assert_eq!(said, "at last");
        let heard = script.everything();
        assert_eq!(heard.iter().filter(|body| body.contains("tools/call")).count(), 2);
    }
}

#[tokio::test]
async fn a_missing_resource_has_the_error_code_of_the_clients_era() {
    let legacy = server_of(EraChoice::Legacy).await;
    let modern = server_of(EraChoice::Modern).await;
    let config = at("old", &legacy.url(), "legacy", &[]) + &at("new", &modern.url(), "modern", &[]);
    let gateway = TestGateway::with(&config).await;
    // The server prefix of the URI selects the server.
    let read = |server: &str| json!({ "uri": format!("{server}+demo://nowhere") });
    let client = ModernClient::new(&gateway.http);
    for server in ["old", "new"] {
        let answer = client.request("resources/read", read(server)).await;
        assert_eq!(answer["error"]["code"], -32602, "{answer}");
        assert_eq!(answer["error"]["message"], "resource not found", "{answer}");
    }
    let client = LegacyClient::connect(&gateway.http).await;
    for server in ["old", "new"] {
        let answer = client.request("resources/read", read(server)).await;
        assert_eq!(answer["error"]["code"], -32002, "{answer}");
        assert_eq!(answer["error"]["data"]["uri"], "demo://nowhere", "{answer}");
    }
}

#[tokio::test]
async fn codes_of_the_modern_era_do_not_reach_a_legacy_client() {
    let demo = server_of(EraChoice::Modern).await;
    let gateway = TestGateway::with(&at("demo", &demo.url(), "modern", &[])).await;
    // It sends a request to the client, which is not translated: the server reports a missing capability.
    let answer =
        LegacyClient::connect(&gateway.http).await.request("tools/call", call("demo__ask", json!({}))).await;
    let code = answer["error"]["code"].as_i64();
    assert!(code.is_none_or(|code| !(-32099..=-32020).contains(&code)), "{answer}");
    let answered =
        ModernClient::new(&gateway.http).send_request("tools/call", call("demo__ask", json!({}))).await;
    assert_eq!(answered.refusal(), (400, -32021));
}

#[tokio::test]
async fn between_modern_peers_an_elicitation_and_its_answer_pass_through() {
    let demo = server_of(EraChoice::Modern).await;
    let gateway = TestGateway::with(&at("demo", &demo.url(), "modern", &[])).await;
    let ask = |more: Value| {
        let mut params = in_context(call("demo__ask", json!({ "question": "Sure?" })));
        params["_meta"]["io.modelcontextprotocol/clientCapabilities"] =
            json!({ "elicitation": { "form": {} } });
        params.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let (headers, _) = spoken(json!(1), "tools/call", call("demo__ask", json!({})));
        let body = request(1, "tools/call", &params).to_string();
        async { (gateway.http.post(&borrowed(&{ headers }), body).await).message()["result"].take() }
    };
    let asked = ask(json!({})).await;
    assert_eq!(asked["resultType"], "input_required", "{asked}");
    assert_eq!(asked["inputRequests"]["confirm"]["params"]["message"], "Sure?", "{asked}");
    let answers = json!({ "confirm": { "action": "accept", "content": { "ok": true } } });
    let told = ask(json!({ "inputResponses": answers, "requestState": asked["requestState"] })).await;
    assert_eq!(told["content"][0]["text"], "the answer was yes", "{told}");
}
