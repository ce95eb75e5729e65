//! Trace context: forwarded from client to server and back, in all pairings of eras.

use crate::client::{EventStream, LegacyClient, ModernClient, borrowed, call, initialize, request, spoken};
use crate::scripted_server::ScriptedServer;
use crate::test_gateway::{TestGateway, at};
use http::Method;
use serde_json::{Value, json};

fn trace() -> Value {
    json!({
        "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        "tracestate": "vendor=opaque:value,other=1",
        "baggage": "user=%C3%A9,tier=gold",
    })
}

#[tokio::test]
async fn trace_context_crosses_both_ways_in_all_pairings_of_eras() {
    let tools = r#"{"tools":[{"name":"t","inputSchema":{"type":"object"}}],"resultType":"complete","ttlMs":0,"cacheScope":"private"}"#;
    let called = format!(r#"{{"content":[],"_meta":{}}}"#, trace());
    for protocol in ["legacy", "modern"] {
        let script = ScriptedServer::start(&[("tools/list", tools), ("tools/call", &called)]).await;
        let gateway = TestGateway::with(&at("raw", &script.url, protocol, &[])).await;
        let mut params = call("raw__t", json!({}));
        params["_meta"] = trace();
        let legacy = LegacyClient::connect(&gateway.http).await.request("tools/call", params.clone()).await;
        let by_legacy: Value = serde_json::from_str(&script.last_request("tools/call")).unwrap();
        let modern = ModernClient::new(&gateway.http).request("tools/call", params).await;
        let by_modern: Value = serde_json::from_str(&script.last_request("tools/call")).unwrap();
        for (answer, heard) in [(legacy, by_legacy), (modern, by_modern)] {
            for (key, said) in trace().as_object().unwrap() {
                assert_eq!(heard["params"]["_meta"][key], *said, "to a {protocol} server: {heard}");
                assert_eq!(answer["result"]["_meta"][key], *said, "from a {protocol} server: {answer}");
            }
        }
    }
}

const TOOLS: &str = r#"{"tools":[{"name":"t","inputSchema":{"type":"object"}}],"resultType":"complete","ttlMs":0,"cacheScope":"private"}"#;

/// `traceparent` with this span id.
fn parent(span: u8) -> String {
    format!("00-0af7651916cd43dd8448eb211c80319c-b7ad6b71692033{span:02x}-01")
}

/// Trace context of the last call at the server: `_meta` and headers.
#[track_caller]
fn assert_told(script: &ScriptedServer, parent: &str, state: &str) {
    let heard: Value = serde_json::from_str(&script.last_request("tools/call")).unwrap();
    let meta = &heard["params"]["_meta"];
    assert_eq!((&meta["traceparent"], &meta["tracestate"]), (&parent.into(), &state.into()), "{heard}");
    let shown = script.shown();
    let of_call = shown.iter().find(|headers| headers.get("traceparent").is_some_and(|said| said == parent));
    let of_call = of_call.unwrap_or_else(|| panic!("no header has {parent}: {shown:?}"));
    assert_eq!(of_call["tracestate"], state);
}

#[tokio::test]
async fn trace_context_in_headers_reaches_servers_of_both_eras_unless_meta_has_another() {
    for protocol in ["legacy", "modern"] {
        let script =
            ScriptedServer::start(&[("tools/list", TOOLS), ("tools/call", r#"{"content":[]}"#)]).await;
        let gateway = TestGateway::with(&at("raw", &script.url, protocol, &[])).await;
        let http = &gateway.http;
        let params = call("raw__t", json!({}));
        let session = LegacyClient::connect(http).await.session;

        let (by_legacy, by_modern, by_meta) = (parent(1), parent(2), parent(3));
        let headers = [("mcp-session-id", &*session), ("traceparent", &by_legacy), ("tracestate", "a=1")];
        let answer = http.post(&headers, request(1, "tools/call", &params).to_string()).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        assert_told(&script, &by_legacy, "a=1");

        let (own, body) = spoken(2.into(), "tools/call", params.clone());
        let trace = [("traceparent", &*by_modern), ("tracestate", "a=1"), ("tracestate", "b=2")];
        let answer = http.post(&[&borrowed(&own)[..], &trace].concat(), body).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        assert_told(&script, &by_modern, "a=1,b=2");

        let mut params = params;
        params["_meta"] = json!({ "traceparent": by_meta, "tracestate": "c=3" });
        let (own, body) = spoken(3.into(), "tools/call", params);
        let answer = http.post(&[&borrowed(&own)[..], &trace].concat(), body).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        assert_told(&script, &by_meta, "c=3");
    }
}

#[tokio::test]
async fn trace_context_in_headers_is_taken_from_http_sse_clients() {
    let script = ScriptedServer::start(&[("tools/list", TOOLS), ("tools/call", r#"{"content":[]}"#)]).await;
    let gateway = TestGateway::with(&at("raw", &script.url, "legacy", &[])).await;
    let mut stream = EventStream::of(gateway.http.begin(Method::GET, "/sse", &[], "").await);
    let place = stream.next().await.unwrap().data;
    let (by_header, called) = (parent(4), request(1, "tools/call", &call("raw__t", json!({}))));
    for message in [initialize("2024-11-05"), called] {
        let trace = [("traceparent", &*by_header), ("tracestate", "a=1")];
        let taken = gateway.http.send(Method::POST, &place, &trace, message.to_string()).await;
        assert_eq!(taken.status, 202, "{taken:?}");
        let answer = stream.next().await.unwrap().message();
        assert!(answer["error"].is_null(), "{answer}");
    }
    assert_told(&script, &by_header, "a=1");
}
