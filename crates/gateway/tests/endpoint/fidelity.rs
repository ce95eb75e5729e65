//! Byte-for-byte forwarding: spelling of numbers, order of keys, escapes, unknown fields, and large base64 data.

use crate::client::{LegacyClient, in_context};
use crate::scripted_server::{ScriptedChild, ScriptedServer};
use crate::test_gateway::{TestGateway, at};
use serde_json::{Value, json};

/// Members whose spelling would change if the JSON were parsed and written again.
const ODD: &str = r#""zebra" : 1.0e+5, "apple":12345678901234567890123 ,"minus":-0.0,"exp":1E-7, "esc\u0061ped":"\u00e9\ud83d\ude00\/ \" \\ \u2028", "raw":"é😀ﷺ 𝔘 שלום","nul":"\u0000","huge":1e400,"tiny":-1.5E-400 ,"zero":-0,"one":1.0,"big":-98765432109876543210987, "deep":[[[[{"a":{"b":[ { } , [ ] ,null,true ]}}]]]],"dup_like":{"A":1,"a":2}"#;

fn schema() -> String {
    format!(r#"{{ "type":"object" , "properties":{{"z":{{"const":1.50}},"a":{{"x-future" :[ ]}}}},{ODD} }}"#)
}

fn tool() -> String {
    format!(
        r#"{{"future":{{{ODD}}}, "name":"t","inputSchema":{},"annotations":{{ "readOnlyHint":true }}}}"#,
        schema()
    )
}

/// Every content type of the protocol.
const CONTENT: &str = r#"{"type":"text","text":"\u00e9", "annotations":{"priority":1.0,"audience" :["user"]}},{"type":"image","data":"QQ==","mimeType":"image/png"}, {"type":"audio","mimeType":"audio/wav" ,"data":"QQ=="},{"type":"resource_link","uri":"a:\/b","name":"b","size":1e3},{"type":"resource","resource":{"uri":"a:/b","text":"\t","mimeType":"text\/plain"}} ,{"type":"resource","resource":{"uri":"a:/c","blob":"QQ=="}}"#;

/// A result with all of them, a content type that is not known yet, a megabyte of base64, and `_meta` of the server.
fn result(more: &str) -> String {
    let data = "QUJD".repeat(1 << 18);
    format!(
        r#"{{"content":[ {{"type":"hologram","data":"{data}",{ODD}}} ,{CONTENT}],{more}"structuredContent":{{{ODD}}}, "_meta":{{"server.example/x" :{{{ODD}}}}},{ODD}}}"#
    )
}

fn list(more: &str) -> String {
    format!(r#"{{"tools":[{}]{more}}}"#, tool())
}

const PARAMS: &str =
    r#"{ "later" : 1.0e+5, "name":"raw__t" ,"arguments":ODD, "_meta":{ "example.com/k" :[ 1.00 ] } }"#;

fn params() -> String {
    PARAMS.replace("ODD", &format!("{{ {ODD} }}"))
}

async fn legacy_script() -> (ScriptedServer, TestGateway) {
    let script = ScriptedServer::start(&[("tools/list", &list("")), ("tools/call", &result(""))]).await;
    let gateway = TestGateway::with(&at("raw", &script.url, "legacy", &[])).await;
    (script, gateway)
}

async fn modern_script() -> (ScriptedServer, TestGateway) {
    let listed = list(r#","resultType":"complete","ttlMs":0,"cacheScope":"private""#);
    let called = result(r#" "resultType":"complete", "#);
    let script = ScriptedServer::start(&[("tools/list", &listed), ("tools/call", &called)]).await;
    let gateway = TestGateway::with(&at("raw", &script.url, "modern", &[])).await;
    (script, gateway)
}

/// Gateway with a scripted stdio server that gives the same answers.
async fn on_a_pipe(protocol: &str, listed: &str, called: &str) -> (ScriptedChild, TestGateway) {
    let piped = ScriptedChild::with(&[("tools/list", listed), ("tools/call", called)]);
    let gateway = TestGateway::with(&piped.table("raw", protocol)).await;
    (piped, gateway)
}

async fn called_by_legacy(gateway: &TestGateway) -> String {
    let client = LegacyClient::connect(&gateway.http).await;
    let body = format!(r#"{{"jsonrpc":"2.0","id":"é\u0041","method":"tools/call","params":{}}}"#, params());
    let answered = gateway.http.post(&[("mcp-session-id", &client.session)], body).await;
    assert_eq!(answered.status, 200, "{answered:?}");
    answered.text
}

async fn called_by_modern(gateway: &TestGateway) -> String {
    let context: Value = in_context(json!({}))["_meta"].take();
    let context = context.to_string();
    let context = context.strip_prefix('{').unwrap().strip_suffix('}').unwrap();
    let params = params().replace("[ 1.00 ]", &format!("[ 1.00 ],{context}"));
    let headers =
        [("mcp-protocol-version", "2026-07-28"), ("mcp-method", "tools/call"), ("mcp-name", "raw__t")];
    let body = format!(r#"{{"jsonrpc":"2.0","id":"é\u0041","method":"tools/call","params":{params}}}"#);
    let answered = gateway.http.post(&headers, body).await;
    assert_eq!(answered.status, 200, "{answered:?}");
    answered.text
}

/// Expected answer: the gateway's envelope around the exact result, with the id as the client wrote it.
fn answer(result: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":"é\u0041","result":{result}}}"#)
}

#[tokio::test]
async fn results_and_arguments_are_untouched_between_legacy_peers() {
    let (script, gateway) = legacy_script().await;
    assert_same(&called_by_legacy(&gateway).await, &answer(&result("")));
    let heard = script.last_request("tools/call");
    assert!(heard.ends_with(&format!(r#""params":{}}}"#, params().replace("raw__t", "t"))), "{heard}");
}

#[tokio::test]
async fn a_modern_client_gets_a_legacy_servers_result_with_its_kind_added() {
    let (script, gateway) = legacy_script().await;
    let whole = result("");
    let marked = format!(r#"{},"resultType":"complete"}}"#, whole.strip_suffix('}').unwrap());
    assert_same(&called_by_modern(&gateway).await, &answer(&marked));
    let heard = script.last_request("tools/call");
    assert!(heard.ends_with(&format!(r#""params":{}}}"#, params().replace("raw__t", "t"))), "{heard}");
}

#[tokio::test]
async fn a_legacy_client_gets_a_modern_servers_result_with_its_kind_removed() {
    let (script, gateway) = modern_script().await;
    let came = called_by_legacy(&gateway).await;
    let squeezed = |text: &str| text.replace(", \"structuredContent\"", ",\"structuredContent\"");
    assert_same(&squeezed(&came), &squeezed(&answer(&result(""))));
    assert!(script.last_request("tools/call").contains(&format!("\"arguments\":{{ {ODD} }}")));
}

#[tokio::test]
async fn results_and_arguments_are_untouched_between_modern_peers() {
    let (script, gateway) = modern_script().await;
    assert_same(&called_by_modern(&gateway).await, &answer(&result(r#" "resultType":"complete", "#)));
    let heard = script.last_request("tools/call");
    assert!(heard.contains(r#"{ "later" : 1.0e+5, "name":"t" ,"arguments":"#), "{heard}");
    assert!(heard.contains(&format!("\"arguments\":{{ {ODD} }}")), "{heard}");
    assert!(heard.contains(r#""example.com/k" :[ 1.00 ]"#), "{heard}");
}

#[tokio::test]
async fn results_and_arguments_of_a_legacy_child_are_untouched() {
    let (piped, gateway) = on_a_pipe("legacy", &list(""), &result("")).await;
    let sent = format!(r#""params":{}}}"#, params().replace("raw__t", "t"));
    assert_same(&called_by_legacy(&gateway).await, &answer(&result("")));
    assert!(piped.last_request("tools/call").ends_with(&sent), "{}", piped.last_request("tools/call"));
    let marked = format!(r#"{},"resultType":"complete"}}"#, result("").strip_suffix('}').unwrap());
    assert_same(&called_by_modern(&gateway).await, &answer(&marked));
    assert!(piped.last_request("tools/call").ends_with(&sent), "{}", piped.last_request("tools/call"));
}

#[tokio::test]
async fn results_and_arguments_of_a_modern_child_are_untouched() {
    let listed = list(r#","resultType":"complete","ttlMs":0,"cacheScope":"private""#);
    let called = result(r#" "resultType":"complete", "#);
    let (piped, gateway) = on_a_pipe("modern", &listed, &called).await;
    assert_same(&called_by_modern(&gateway).await, &answer(&called));
    let heard = piped.last_request("tools/call");
    assert!(heard.contains(r#"{ "later" : 1.0e+5, "name":"t" ,"arguments":"#), "{heard}");
    assert!(heard.contains(&format!("\"arguments\":{{ {ODD} }}")), "{heard}");
    let squeezed = |text: &str| text.replace(", \"structuredContent\"", ",\"structuredContent\"");
    assert_same(&squeezed(&called_by_legacy(&gateway).await), &squeezed(&answer(&result(""))));
    assert!(piped.last_request("tools/call").contains(&format!("\"arguments\":{{ {ODD} }}")));
}

#[tokio::test]
async fn a_tool_is_listed_as_its_server_wrote_it_but_for_its_name_and_origin() {
    for (_script, gateway) in [legacy_script().await, modern_script().await] {
        let client = LegacyClient::connect(&gateway.http).await;
        let body = r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#;
        let listed = gateway.http.post(&[("mcp-session-id", &client.session)], body).await.text;
        let own = tool().replace(r#""name":"t""#, r#""name":"raw__t""#);
        let own = own.strip_suffix('}').unwrap();
        let noted = format!(r#"{own},"_meta":{{"gripfast/origin":{{"name":"t","server":"raw"}}}}}}"#);
        assert_same(&listed, &format!(r#"{{"jsonrpc":"2.0","id":1,"result":{{"tools":[{noted}]}}}}"#));
    }
}

#[tokio::test]
async fn an_error_of_the_server_is_untouched() {
    let error = format!(r#"{{"code":-32055, "message":"\u00e9" ,"data":{{{ODD}}},"later":[ ]}}"#);
    let script = ScriptedServer::start(&[("tools/list", &list("")), ("tools/call", &error)]).await;
    let gateway = TestGateway::with(&at("raw", &script.url, "legacy", &[])).await;
    let whole = format!(r#"{{"jsonrpc":"2.0","id":"é\u0041","error":{error}}}"#);
    assert_same(&called_by_legacy(&gateway).await, &whole);
    assert_same(&called_by_modern(&gateway).await, &whole);
}

/// Compares two long texts and prints only the first difference.
fn assert_same(came: &str, expected: &str) {
    if came != expected {
        let at = came.bytes().zip(expected.bytes()).position(|(a, b)| a != b);
        let at = at.unwrap_or(came.len().min(expected.len()));
        let around = |text: &str| {
            String::from_utf8_lossy(&text.as_bytes()[at.saturating_sub(80)..text.len().min(at + 80)])
                .into_owned()
        };
        panic!("at byte {at}\n  came     …{}\n  expected …{}", around(came), around(expected));
    }
}
