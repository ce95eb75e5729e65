//! Deeply nested JSON from clients and servers: forwarded as bytes up to `gateway.limits.nesting`, refused beyond it,
//! and never parsed recursively on the stack.

use crate::client::{LegacyClient, borrowed, spoken};
use crate::scripted_server::{ScriptedChild, ScriptedServer};
use crate::test_gateway::{TestGateway, at};
use serde_json::{Value, json};

const DEEP: usize = 10_000;
/// Limit that allows [`DEEP`] levels.
const RAISED: &str = "[gateway]\nlimits = { nesting = 20000 }\n\n";

fn nest() -> String {
    nested(DEEP)
}

/// An array of this many levels.
fn nested(levels: usize) -> String {
    format!("{}{}", "[".repeat(levels), "]".repeat(levels))
}

/// An object of this many levels.
fn object(levels: usize) -> String {
    format!(r#"{{"a":{}}}"#, nested(levels - 1))
}

fn called_with(arguments: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"it__t","arguments":{arguments}}}}}"#
    )
}

fn assert_too_deep(error: &Value) {
    assert_eq!(error["code"], -32600, "{error}");
    let text = error["message"].as_str().unwrap();
    assert!(text.contains("more than 128 levels") && text.contains("gateway.limits.nesting"), "{text}");
}

const TOOLS: &str = r#"{"tools":[{"name":"t","inputSchema":{"type":"object"}}]}"#;

#[tokio::test]
async fn g07_arguments_of_128_levels_pass_and_deeper_ones_are_refused_with_the_key() {
    let server = ScriptedServer::start(&[("tools/list", TOOLS), ("tools/call", r#"{"content":[]}"#)]).await;
    let gateway = TestGateway::with(&at("it", &server.url, "legacy", &[])).await;
    let client = LegacyClient::connect_with_version(&gateway.http, "2025-03-26").await;
    let in_session = [("mcp-session-id", &*client.session)];
    let answer = gateway.http.post(&in_session, called_with(&object(128))).await;
    assert_eq!(answer.message()["result"]["content"], json!([]), "{answer:?}");
    let (headers, message) = spoken(json!(1), "tools/call", json!({ "name": "it__t", "arguments": "DEEP" }));
    let modern = |arguments: &str| message.replace("\"DEEP\"", arguments);
    let answer = gateway.http.post(&borrowed(&headers), modern(&object(128))).await;
    assert_eq!(answer.message()["result"]["content"], json!([]), "{answer:?}");
    for levels in [129, 100_000] {
        for answer in [
            gateway.http.post(&in_session, called_with(&object(levels))).await,
            gateway.http.post(&borrowed(&headers), modern(&object(levels))).await,
        ] {
            assert_eq!((answer.status, &answer.message()["id"]), (400, &json!(1)), "{levels}");
            assert_too_deep(&answer.message()["error"]);
        }
        let batch = format!("[{},{}]", called_with(&object(levels)), called_with(&object(128)));
        let answers = gateway.http.post(&in_session, batch).await.message();
        assert_too_deep(&answers[0]["error"]);
        assert_eq!(answers[1]["result"]["content"], json!([]));
    }
    assert_eq!(server.count("tools/call"), 4, "nothing that was refused was sent");
}

#[tokio::test]
async fn g07_results_of_128_levels_pass_and_deeper_ones_fail_on_http_and_stdio() {
    for (levels, passes) in [(128, true), (129, false), (100_000, false)] {
        let answers =
            [("tools/list", TOOLS), ("tools/call", &*object(levels)), ("prompts/get", &*object(levels))];
        let (over_http, piped) = (ScriptedServer::start(&answers).await, ScriptedChild::with(&answers));
        for config in [
            at("it", &over_http.url, "legacy", &[]),
            at("it", &over_http.url, "modern", &[]),
            piped.table("it", "legacy"),
        ] {
            let gateway = TestGateway::with(&config).await;
            let client = LegacyClient::connect(&gateway.http).await;
            let answer = client
                .post(&json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call",
                "params": { "name": "it__t" } }))
                .await;
            assert_eq!(answer.status, 200);
            assert_eq!(answer.text.contains(&nested(levels - 1)), passes, "{config}");
            if !passes {
                let result = &answer.message()["result"];
                let failure = &result["_meta"]["gripfast/failure"];
                let said = (&failure["code"], &failure["outcome"], &failure["server"]);
                assert_eq!(said, (&json!("upstream_protocol"), &json!("done"), &json!("it")), "{result}");
                assert!(failure["hint"].as_str().unwrap().contains("gateway.limits.nesting"), "{failure}");
            }
            let status = gateway.host.server_status("it").unwrap();
            assert_eq!((status.supervision.consecutive_failures, status.supervision.restarts), (0, 0));
        }
    }
}

#[tokio::test]
async fn g07_ten_thousand_brackets_of_a_client_arrive_unchanged_or_are_refused() {
    let tools =
        r#"{"tools":[{"name":"t","inputSchema":{"type":"object"},"annotations":{"readOnlyHint":true}}]}"#;
    let server = ScriptedServer::start(&[("tools/list", tools), ("tools/call", r#"{"content":[]}"#)]).await;
    // With features that read arguments: rules and a cache.
    let rules = ["tools = { deny = [\"x\"] }", "cache = { tools = { \"*\" = \"60s\" } }"];
    let gateway = TestGateway::with(&format!("{RAISED}{}", at("it", &server.url, "legacy", &rules))).await;
    let client = LegacyClient::connect(&gateway.http).await;
    let in_session = [("mcp-session-id", &*client.session)];
    let call = |arguments: &str| {
        format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"it__t","arguments":{arguments}}}}}"#
        )
    };
    let answer = gateway.http.post(&in_session, call(&format!(r#"{{"a":{}}}"#, nest()))).await;
    assert_eq!(answer.message()["result"]["content"], json!([]), "{answer:?}");
    assert!(server.last_request("tools/call").contains(&nest()), "as it was written");
    for odd in [
        nest(),
        "[".repeat(DEEP),
        format!(r#"{{"jsonrpc":"2.0","id":{},"method":"ping"}}"#, nest()),
        format!(r#"{{"jsonrpc":"2.0","id":1,"method":{}}}"#, nest()),
        format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{}}}"#, nest()),
        format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":{}}}}}"#, nest()),
        format!(r#"{{"jsonrpc":"2.0","id":1,"method":"resources/read","params":{{"uri":{}}}}}"#, nest()),
    ] {
        let answer = gateway.http.post(&in_session, odd.clone()).await;
        assert!(answer.message()["error"]["code"].is_i64(), "{}: {answer:?}", &odd[..60]);
    }
    let (headers, message) =
        spoken(json!(2), "tools/call", json!({ "name": "it__t", "arguments": { "a": "DEEP" } }));
    let answer = gateway.http.post(&borrowed(&headers), message.replace("\"DEEP\"", &nest())).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    assert_eq!(client.request("ping", json!({})).await["result"], json!({}));
}

#[tokio::test]
async fn g07_ten_thousand_brackets_of_a_server_arrive_unchanged() {
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
        let server = ScriptedServer::start(&[
            ("tools/list", &tools),
            ("tools/call", &called),
            ("resources/list", &resources),
            ("resources/read", &read),
        ])
        .await;
        let gateway = TestGateway::with(&format!("{RAISED}{}", at("it", &server.url, era, &[]))).await;
        let client = LegacyClient::connect(&gateway.http).await;
        let in_session = [("mcp-session-id", &*client.session)];
        for (method, params) in [
            ("tools/list", json!({})),
            ("tools/call", json!({ "name": "it__t", "arguments": {} })),
            ("resources/read", json!({ "uri": "x://a" })),
        ] {
            let body = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params }).to_string();
            let answer = gateway.http.post(&in_session, body).await;
            assert!(
                answer.status == 200 && answer.text.contains(&nest()),
                "{era} {method}: {}",
                answer.status
            );
            let (headers, message) = spoken(json!(2), method, params);
            let answer = gateway.http.post(&borrowed(&headers), message).await;
            assert!(
                answer.status == 200 && answer.text.contains(&nest()),
                "{era} {method}: {}",
                answer.status
            );
        }
        assert_eq!(client.request("ping", json!({})).await["result"], json!({}));
    }
}
