//! Modern results translated for legacy clients: structured output that is not an object, and missing client
//! capabilities.

use crate::client::{LegacyClient, ModernClient, call};
use crate::scripted_server::ScriptedServer;
use crate::test_gateway::{TestGateway, at, demo_with};
use gripfast_demo::{EraChoice, Options, RunningServer};
use serde_json::{Value, json};

async fn showcase(era: EraChoice, protocol: &str) -> (RunningServer, TestGateway) {
    let demo = demo_with(Options { era, showcase: true, ..Options::default() }).await;
    let gateway = TestGateway::with(&at("demo", &demo.url(), protocol, &[])).await;
    (demo, gateway)
}

fn output_of(listed: &Value, tool: &str) -> Value {
    let tools = listed["result"]["tools"].as_array().unwrap_or_else(|| panic!("{listed}"));
    tools.iter().find(|listed| listed["name"] == tool).unwrap()["outputSchema"].clone()
}

#[tokio::test]
async fn a_non_object_output_of_a_modern_server_is_wrapped_for_a_legacy_client() {
    let (_demo, gateway) = showcase(EraChoice::Modern, "modern").await;
    let said = call("demo__words", json!({ "text": "to be" }));

    let client = LegacyClient::connect(&gateway.http).await;
    let listed = client.request("tools/list", json!({})).await;
    let described = json!({
        "type": "object",
        "properties": { "result": {
            "type": "array",
            "items": { "$ref": "#/properties/result/$defs/word" },
            "$defs": { "word": { "type": "string", "minLength": 1 } },
        } },
        "required": ["result"],
    });
    assert_eq!(output_of(&listed, "demo__words"), described);
    assert_eq!(output_of(&listed, "demo__echo")["required"], json!(["text"]), "what is an object stays one");
    let answer = client.request("tools/call", said.clone()).await;
    assert_eq!(answer["result"]["structuredContent"], json!({ "result": ["to", "be"] }), "{answer}");
    let echoed = client.request("tools/call", call("demo__echo", json!({ "text": "hi" }))).await;
    assert_eq!(echoed["result"]["structuredContent"], json!({ "text": "hi" }), "{echoed}");

    let client = ModernClient::new(&gateway.http);
    let listed = client.request("tools/list", json!({})).await;
    assert_eq!(output_of(&listed, "demo__words")["type"], "array", "a modern client sees it as it is");
    let answer = client.request("tools/call", said).await;
    assert_eq!(answer["result"]["structuredContent"], json!(["to", "be"]), "{answer}");
}

#[tokio::test]
async fn between_legacy_peers_no_output_is_wrapped() {
    let (_demo, gateway) = showcase(EraChoice::Legacy, "legacy").await;
    let client = LegacyClient::connect(&gateway.http).await;
    let listed = client.request("tools/list", json!({})).await;
    assert_eq!(output_of(&listed, "demo__words")["type"], "array");
    let answer = client.request("tools/call", call("demo__words", json!({ "text": "to be" }))).await;
    assert_eq!(answer["result"]["structuredContent"], json!(["to", "be"]), "{answer}");
}

#[tokio::test]
async fn wrapping_an_output_changes_nothing_else() {
    let tool =
        r#"{"name":"t","inputSchema":{"type":"object"},"outputSchema":{ "anyOf":[ true ] }, "later":1.0e+5}"#;
    let tools = format!(r#"{{"tools":[{tool}],"resultType":"complete","ttlMs":0,"cacheScope":"private"}}"#);
    let called =
        r#"{"content":[ ], "structuredContent" :{ "a":1.0e+5 } ,"resultType":"complete","later":[ 1.00 ]}"#;
    let script = ScriptedServer::start(&[("tools/list", &tools), ("tools/call", called)]).await;
    let gateway = TestGateway::with(&at("raw", &script.url, "modern", &[])).await;
    let client = LegacyClient::connect(&gateway.http).await;
    let answered = client.post(&crate::client::request(1, "tools/call", &call("raw__t", json!({})))).await;
    // The schema allows non-objects, so an object is wrapped too.
    let wrapped = r#"{"content":[ ], "structuredContent" :{"result":{ "a":1.0e+5 }},"later":[ 1.00 ]}"#;
    assert_eq!(answered.text, format!(r#"{{"jsonrpc":"2.0","id":1,"result":{wrapped}}}"#));
    let listed = client.post(&crate::client::request(1, "tools/list", &json!({}))).await.text;
    let described = r#"{"type":"object","properties":{"result":{ "anyOf":[ true ] }},"required":["result"]}, "later":1.0e+5"#;
    assert!(listed.contains(&format!(r#""outputSchema":{described}"#)), "{listed}");
}

#[tokio::test]
async fn an_output_without_a_schema_is_wrapped_only_if_it_is_not_an_object() {
    let tool = r#"{"name":"t","inputSchema":{"type":"object"}}"#;
    let tools = format!(r#"{{"tools":[{tool}],"resultType":"complete","ttlMs":0,"cacheScope":"private"}}"#);
    for (output, expected) in [("7", json!({ "result": 7 })), (r#"{"a":1}"#, json!({ "a": 1 }))] {
        let called = format!(r#"{{"content":[],"structuredContent":{output},"resultType":"complete"}}"#);
        let script = ScriptedServer::start(&[("tools/list", &tools), ("tools/call", &called)]).await;
        let gateway = TestGateway::with(&at("raw", &script.url, "modern", &[])).await;
        let client = LegacyClient::connect(&gateway.http).await;
        let answer = client.request("tools/call", call("raw__t", json!({}))).await;
        assert_eq!(answer["result"]["structuredContent"], expected, "{answer}");
    }
}

#[tokio::test]
async fn c01_a_capability_that_a_legacy_client_lacks_is_a_tool_error() {
    let (_demo, gateway) = showcase(EraChoice::Modern, "modern").await;
    let client = LegacyClient::connect(&gateway.http).await;
    let answer = client.request("tools/call", call("demo__ask", json!({}))).await;
    let result = &answer["result"];
    assert_eq!(result["isError"], true, "{answer}");
    let text = result["content"][0]["text"].as_str().unwrap();
    assert!(text.contains("needs `elicitation` (form)"), "{text}");
    assert!(
        text.contains("the tool `ask` needs a client with `elicitation`"),
        "the server's own words: {text}"
    );
    let failure = &result["_meta"]["gripfast/failure"];
    assert_eq!((&failure["code"], &failure["outcome"]), (&json!("invalid_request"), &json!("refused")));
    assert_eq!(failure["server"], "demo");
}

#[tokio::test]
async fn a_capability_missing_for_a_prompt_or_resource_is_a_legacy_error() {
    let refused = r#"{"code":-32021,"message":"needs more","data":{"requiredCapabilities":{"sampling":{}}}}"#;
    let prompts = r#"{"prompts":[{"name":"p"}],"resultType":"complete","ttlMs":0,"cacheScope":"private"}"#;
    let script = ScriptedServer::start(&[("prompts/list", prompts), ("prompts/get", refused)]).await;
    let gateway = TestGateway::with(&at("raw", &script.url, "modern", &[])).await;
    let client = LegacyClient::connect(&gateway.http).await;
    let answer = client.request("prompts/get", json!({ "name": "raw__p" })).await;
    assert_eq!(answer["error"]["code"], -32603, "{answer}");
    assert_eq!(answer["error"]["message"], "needs more", "{answer}");
    assert_eq!(answer["error"]["data"]["requiredCapabilities"], json!({ "sampling": {} }), "{answer}");
}
