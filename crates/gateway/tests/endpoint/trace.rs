//! Trace context: what a client says about the trace that its request belongs to reaches the server, and what a
//! server says about it reaches the client, whatever their eras.

use crate::client::{Legacy, Modern, call};
use crate::scene::{Scene, at};
use crate::script::Script;
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
        let script = Script::starts(&[("tools/list", tools), ("tools/call", &called)]).await;
        let scene = Scene::with(&at("raw", &script.url, protocol, &[])).await;
        let mut params = call("raw__t", json!({}));
        params["_meta"] = trace();
        let legacy = Legacy::meets(&scene.http).await.asks("tools/call", params.clone()).await;
        let by_legacy: Value = serde_json::from_str(&script.heard("tools/call")).unwrap();
        let modern = Modern::of(&scene.http).asks("tools/call", params).await;
        let by_modern: Value = serde_json::from_str(&script.heard("tools/call")).unwrap();
        for (answer, heard) in [(legacy, by_legacy), (modern, by_modern)] {
            for (key, said) in trace().as_object().unwrap() {
                assert_eq!(heard["params"]["_meta"][key], *said, "to a {protocol} server: {heard}");
                assert_eq!(answer["result"]["_meta"][key], *said, "from a {protocol} server: {answer}");
            }
        }
    }
}
