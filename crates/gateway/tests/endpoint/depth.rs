//! JSON that is nested ten thousand deep, from either side: it goes through as bytes or is refused, and nobody's stack
//! pays for it.

use crate::client::{Legacy, borrowed, spoken};
use crate::scene::{Scene, at};
use crate::script::Script;
use serde_json::json;

const DEEP: usize = 10_000;

fn nest() -> String {
    format!("{}{}", "[".repeat(DEEP), "]".repeat(DEEP))
}

#[tokio::test]
async fn g07_ten_thousand_brackets_from_a_client_reach_the_server_as_they_are_or_are_refused() {
    let tools =
        r#"{"tools":[{"name":"t","inputSchema":{"type":"object"},"annotations":{"readOnlyHint":true}}]}"#;
    let server = Script::starts(&[("tools/list", tools), ("tools/call", r#"{"content":[]}"#)]).await;
    // With everything that looks at arguments: rules, a cache, and whatever else there is.
    let rules = ["tools = { deny = [\"x\"] }", "cache = { tools = { \"*\" = \"60s\" } }"];
    let scene = Scene::with(&at("it", &server.url, "legacy", &rules)).await;
    let client = Legacy::meets(&scene.http).await;
    let in_session = [("mcp-session-id", &*client.session)];
    let call = |arguments: &str| {
        format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"it__t","arguments":{arguments}}}}}"#
        )
    };
    let answer = scene.http.post(&in_session, call(&format!(r#"{{"a":{}}}"#, nest()))).await;
    assert_eq!(answer.message()["result"]["content"], json!([]), "{answer:?}");
    assert!(server.heard("tools/call").contains(&nest()), "as it was written");
    for odd in [
        nest(),
        "[".repeat(DEEP),
        format!(r#"{{"jsonrpc":"2.0","id":{},"method":"ping"}}"#, nest()),
        format!(r#"{{"jsonrpc":"2.0","id":1,"method":{}}}"#, nest()),
        format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{}}}"#, nest()),
        format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":{}}}}}"#, nest()),
        format!(r#"{{"jsonrpc":"2.0","id":1,"method":"resources/read","params":{{"uri":{}}}}}"#, nest()),
    ] {
        let answer = scene.http.post(&in_session, odd.clone()).await;
        assert!(answer.message()["error"]["code"].is_i64(), "{}: {answer:?}", &odd[..60]);
    }
    let (headers, message) =
        spoken(json!(2), "tools/call", json!({ "name": "it__t", "arguments": { "a": "DEEP" } }));
    let answer = scene.http.post(&borrowed(&headers), message.replace("\"DEEP\"", &nest())).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    assert_eq!(client.asks("ping", json!({})).await["result"], json!({}));
}

#[tokio::test]
async fn g07_ten_thousand_brackets_from_a_server_reach_the_client_as_they_are() {
    for era in ["legacy", "modern"] {
        let cached = if era == "modern" {
            r#","resultType":"complete","ttlMs":60000,"cacheScope":"public""#
        } else {
            ""
        };
        let tools = format!(
            r#"{{"tools":[{{"name":"t","description":"d","inputSchema":{{"type":"object","x":{}}}}}]{cached}}}"#,
            nest()
        );
        let called = format!(r#"{{"content":[],"structuredContent":{{"deep":{}}}{cached}}}"#, nest());
        let read = format!(r#"{{"contents":[],"deep":{}{cached}}}"#, nest());
        let resources = format!(r#"{{"resources":[{{"uri":"x://a","name":"a"}}]{cached}}}"#);
        let server = Script::starts(&[
            ("tools/list", &tools),
            ("tools/call", &called),
            ("resources/list", &resources),
            ("resources/read", &read),
        ])
        .await;
        let scene = Scene::with(&at("it", &server.url, era, &[])).await;
        let client = Legacy::meets(&scene.http).await;
        let in_session = [("mcp-session-id", &*client.session)];
        for (method, params) in [
            ("tools/list", json!({})),
            ("tools/call", json!({ "name": "it__t", "arguments": {} })),
            ("resources/read", json!({ "uri": "x://a" })),
        ] {
            let body = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params }).to_string();
            let answer = scene.http.post(&in_session, body).await;
            assert!(
                answer.status == 200 && answer.text.contains(&nest()),
                "{era} {method}: {}",
                answer.status
            );
            let (headers, message) = spoken(json!(2), method, params);
            let answer = scene.http.post(&borrowed(&headers), message).await;
            assert!(
                answer.status == 200 && answer.text.contains(&nest()),
                "{era} {method}: {}",
                answer.status
            );
        }
        assert_eq!(client.asks("ping", json!({})).await["result"], json!({}));
    }
}
