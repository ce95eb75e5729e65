//! What a modern server can say and the legacy era has no words for, as a legacy client gets it: output that is no
//! object, and a client that lacks what a tool needs.

use crate::client::{Legacy, Modern, call};
use crate::scene::{Scene, at, demo_with};
use crate::script::Script;
use gripfast_demo::{EraChoice, Options, RunningServer};
use serde_json::{Value, json};

async fn showcase(era: EraChoice, protocol: &str) -> (RunningServer, Scene) {
    let demo = demo_with(Options { era, showcase: true, ..Options::default() }).await;
    let scene = Scene::with(&at("demo", &demo.url(), protocol, &[])).await;
    (demo, scene)
}

fn output_of(listed: &Value, tool: &str) -> Value {
    let tools = listed["result"]["tools"].as_array().unwrap_or_else(|| panic!("{listed}"));
    tools.iter().find(|listed| listed["name"] == tool).unwrap()["outputSchema"].clone()
}

#[tokio::test]
async fn an_output_that_is_no_object_is_wrapped_for_a_legacy_client_of_a_modern_server() {
    let (_demo, scene) = showcase(EraChoice::Modern, "modern").await;
    let said = call("demo__words", json!({ "text": "to be" }));

    let client = Legacy::meets(&scene.http).await;
    let listed = client.asks("tools/list", json!({})).await;
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
    let answer = client.asks("tools/call", said.clone()).await;
    assert_eq!(answer["result"]["structuredContent"], json!({ "result": ["to", "be"] }), "{answer}");
    let echoed = client.asks("tools/call", call("demo__echo", json!({ "text": "hi" }))).await;
    assert_eq!(echoed["result"]["structuredContent"], json!({ "text": "hi" }), "{echoed}");

    let client = Modern::of(&scene.http);
    let listed = client.asks("tools/list", json!({})).await;
    assert_eq!(output_of(&listed, "demo__words")["type"], "array", "a modern client sees it as it is");
    let answer = client.asks("tools/call", said).await;
    assert_eq!(answer["result"]["structuredContent"], json!(["to", "be"]), "{answer}");
}

#[tokio::test]
async fn between_legacy_peers_no_output_is_wrapped() {
    let (_demo, scene) = showcase(EraChoice::Legacy, "legacy").await;
    let client = Legacy::meets(&scene.http).await;
    let listed = client.asks("tools/list", json!({})).await;
    assert_eq!(output_of(&listed, "demo__words")["type"], "array");
    let answer = client.asks("tools/call", call("demo__words", json!({ "text": "to be" }))).await;
    assert_eq!(answer["result"]["structuredContent"], json!(["to", "be"]), "{answer}");
}

#[tokio::test]
async fn only_the_output_itself_is_touched_by_its_wrapping() {
    let tool =
        r#"{"name":"t","inputSchema":{"type":"object"},"outputSchema":{ "anyOf":[ true ] }, "later":1.0e+5}"#;
    let tools = format!(r#"{{"tools":[{tool}],"resultType":"complete","ttlMs":0,"cacheScope":"private"}}"#);
    let called =
        r#"{"content":[ ], "structuredContent" :{ "a":1.0e+5 } ,"resultType":"complete","later":[ 1.00 ]}"#;
    let script = Script::starts(&[("tools/list", &tools), ("tools/call", called)]).await;
    let scene = Scene::with(&at("raw", &script.url, "modern", &[])).await;
    let client = Legacy::meets(&scene.http).await;
    let answered = client.post(&crate::client::request(1, "tools/call", &call("raw__t", json!({})))).await;
    // It may be no object, so it is wrapped even where it is one.
    let wrapped = r#"{"content":[ ], "structuredContent" :{"result":{ "a":1.0e+5 }},"later":[ 1.00 ]}"#;
    assert_eq!(answered.text, format!(r#"{{"jsonrpc":"2.0","id":1,"result":{wrapped}}}"#));
    let listed = client.post(&crate::client::request(1, "tools/list", &json!({}))).await.text;
    let described = r#"{"type":"object","properties":{"result":{ "anyOf":[ true ] }},"required":["result"]}, "later":1.0e+5"#;
    assert!(listed.contains(&format!(r#""outputSchema":{described}"#)), "{listed}");
}

#[tokio::test]
async fn an_output_that_nothing_was_said_about_is_wrapped_only_where_the_legacy_era_could_not_take_it() {
    let tool = r#"{"name":"t","inputSchema":{"type":"object"}}"#;
    let tools = format!(r#"{{"tools":[{tool}],"resultType":"complete","ttlMs":0,"cacheScope":"private"}}"#);
    for (output, expected) in [("7", json!({ "result": 7 })), (r#"{"a":1}"#, json!({ "a": 1 }))] {
        let called = format!(r#"{{"content":[],"structuredContent":{output},"resultType":"complete"}}"#);
        let script = Script::starts(&[("tools/list", &tools), ("tools/call", &called)]).await;
        let scene = Scene::with(&at("raw", &script.url, "modern", &[])).await;
        let client = Legacy::meets(&scene.http).await;
        let answer = client.asks("tools/call", call("raw__t", json!({}))).await;
        assert_eq!(answer["result"]["structuredContent"], expected, "{answer}");
    }
}

#[tokio::test]
async fn c01_a_tool_that_needs_more_than_a_legacy_client_offers_says_so_in_its_result() {
    let (_demo, scene) = showcase(EraChoice::Modern, "modern").await;
    let client = Legacy::meets(&scene.http).await;
    let answer = client.asks("tools/call", call("demo__ask", json!({}))).await;
    let result = &answer["result"];
    assert_eq!(result["isError"], true, "{answer}");
    let text = result["content"][0]["text"].as_str().unwrap();
    assert!(text.contains("needs `elicitation` (form)"), "{text}");
    assert!(
        text.contains("the tool `ask` needs a client that can be asked"),
        "the server's own words: {text}"
    );
    let failure = &result["_meta"]["gripfast/failure"];
    assert_eq!((&failure["code"], &failure["outcome"]), (&json!("invalid_request"), &json!("refused")));
    assert_eq!(failure["server"], "demo");
}

#[tokio::test]
async fn what_a_prompt_or_resource_needs_and_a_legacy_client_lacks_is_an_error_of_its_own_era() {
    let refused = r#"{"code":-32021,"message":"needs more","data":{"requiredCapabilities":{"sampling":{}}}}"#;
    let prompts = r#"{"prompts":[{"name":"p"}],"resultType":"complete","ttlMs":0,"cacheScope":"private"}"#;
    let script = Script::starts(&[("prompts/list", prompts), ("prompts/get", refused)]).await;
    let scene = Scene::with(&at("raw", &script.url, "modern", &[])).await;
    let client = Legacy::meets(&scene.http).await;
    let answer = client.asks("prompts/get", json!({ "name": "raw__p" })).await;
    assert_eq!(answer["error"]["code"], -32603, "{answer}");
    assert_eq!(answer["error"]["message"], "needs more", "{answer}");
    assert_eq!(answer["error"]["data"]["requiredCapabilities"], json!({ "sampling": {} }), "{answer}");
}
