//! Streamable HTTP of the modern era: stateless, strict about headers, cancelled by closing the connection.

use crate::client::{Response, get, post};
use crate::messages::{initialize, modern};
use gripfast_demo::{EraChoice, Options, RunningServer, start_http};
use serde_json::{Value, json};

#[tokio::test]
async fn discover_list_and_call_need_no_session() {
    let server = start(Options::default()).await;
    let found = ask(&server, "server/discover", json!({})).await.json().await;
    assert_eq!(found["result"]["supportedVersions"], json!(["2026-07-28"]));
    let list = ask(&server, "tools/list", json!({})).await.json().await;
    assert_eq!(list["result"]["cacheScope"], "public");
    assert!(list["result"]["ttlMs"].is_u64());
    let echo = call(&server, "echo", json!({"text": "hi"})).await;
    assert_eq!((echo.status, echo.header("mcp-session-id")), (200, None));
    let echo = echo.json().await;
    assert_eq!((&echo["result"]["resultType"], &echo["id"]), (&json!("complete"), &json!("r")));
    assert_eq!(server.sessions(), 0);
}

#[tokio::test]
async fn headers_that_disagree_with_the_body_are_refused() {
    let server = start(Options::default()).await;
    let body = modern("r", "tools/call", json!({"name": "counter", "arguments": {}}));
    let version = ("MCP-Protocol-Version", "2026-07-28");
    let method = ("Mcp-Method", "tools/call");
    let wrong: [&[(&str, &str)]; 5] = [
        &[version, method],
        &[version, method, ("Mcp-Name", "echo")],
        &[version, ("Mcp-Method", "tools/list"), ("Mcp-Name", "counter")],
        &[("MCP-Protocol-Version", "2026-07-29"), method, ("Mcp-Name", "counter")],
        &[method, ("Mcp-Name", "counter")],
    ];
    for headers in wrong {
        let refused = post(server.addr(), "/mcp", headers, &body).await;
        assert_eq!(refused.status, 400, "{headers:?}");
        let refused = refused.json().await;
        assert_eq!((&refused["error"]["code"], &refused["id"]), (&json!(-32020), &json!("r")), "{headers:?}");
    }
    assert_eq!(server.counter(), 0);
    let wrapped = [version, method, ("Mcp-Name", "=?base64?Y291bnRlcg==?=")];
    assert_eq!(post(server.addr(), "/mcp", &wrapped, &body).await.status, 200);
    assert_eq!(server.counter(), 1);
}

#[tokio::test]
async fn annotated_arguments_must_be_mirrored_in_headers() {
    let server = start(Options { param_headers: true, ..Options::default() }).await;
    let body = modern("r", "tools/call", json!({"name": "route", "arguments": {"region": "eu"}}));
    let mut headers =
        vec![("MCP-Protocol-Version", "2026-07-28"), ("Mcp-Method", "tools/call"), ("Mcp-Name", "route")];
    assert_eq!(post(server.addr(), "/mcp", &headers, &body).await.json().await["error"]["code"], -32020);
    headers.push(("Mcp-Param-Region", "eu"));
    let routed = post(server.addr(), "/mcp", &headers, &body).await.json().await;
    assert_eq!(routed["result"]["content"][0]["text"], "routed to eu");
}

#[tokio::test]
async fn errors_set_the_http_status() {
    let server = start(Options::default()).await;
    let unknown = ask(&server, "ping", json!({})).await;
    assert_eq!(unknown.status, 404);
    assert_eq!(unknown.json().await["error"]["code"], -32601);
    assert_eq!(call(&server, "reject", json!({})).await.status, 200, "an error of the tool itself");

    let mut foreign = modern("r", "tools/list", json!({}));
    foreign["params"]["_meta"]["io.modelcontextprotocol/protocolVersion"] = json!("2031-01-01");
    let headers = [("MCP-Protocol-Version", "2031-01-01"), ("Mcp-Method", "tools/list")];
    let refused = post(server.addr(), "/mcp", &headers, &foreign).await;
    assert_eq!(refused.status, 400);
    assert_eq!(refused.json().await["error"]["code"], -32022);

    let headers = [("MCP-Protocol-Version", "2026-07-28"), ("Mcp-Method", "tools/list")];
    let bare = json!({"jsonrpc": "2.0", "id": "r", "method": "tools/list", "params": {}});
    let refused = post(server.addr(), "/mcp", &headers, &bare).await;
    assert_eq!(refused.status, 400);
    assert_eq!(refused.json().await["error"]["code"], -32602);
}

#[tokio::test]
async fn a_modern_server_has_neither_get_nor_initialize() {
    let server = start(Options { era: EraChoice::Modern, ..Options::default() }).await;
    let stream = get(server.addr(), "/mcp", &[]).await;
    assert_eq!((stream.status, stream.header("allow")), (405, Some("POST")));
    let refused = post(server.addr(), "/mcp", &[], &initialize(0, "2025-11-25")).await;
    assert_eq!(refused.status, 400);
    assert_eq!(refused.json().await["error"]["code"], -32022);
    assert_eq!(get(server.addr(), "/sse", &[]).await.status, 404);
}

#[tokio::test]
async fn a_subscription_is_acknowledged_and_then_notified() {
    let server = start(Options::default()).await;
    let filter = json!({"notifications": {
        "toolsListChanged": true, "promptsListChanged": true, "resourceSubscriptions": ["demo://counter"],
    }});
    let mut stream = ask(&server, "subscriptions/listen", filter).await;
    assert_eq!(stream.header("x-accel-buffering"), Some("no"));
    let acknowledged = stream.message().await.unwrap();
    assert_eq!(
        acknowledged["params"]["notifications"],
        json!({"toolsListChanged": true, "resourceSubscriptions": ["demo://counter"]}),
        "what the server can tell of"
    );
    server.add_tool("fresh").await;
    assert_eq!(stream.message().await.unwrap()["method"], "notifications/tools/list_changed");
    call(&server, "counter", json!({})).await;
    let updated = stream.event().await.unwrap();
    assert_eq!(updated.id, None, "modern streams cannot be resumed");
    let updated: Value = serde_json::from_str(&updated.data).unwrap();
    assert_eq!(updated["params"]["uri"], "demo://counter");
    assert_eq!(updated["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"], "r");
}

#[tokio::test]
async fn progress_turns_the_answer_into_a_stream() {
    let server = start(Options::default()).await;
    let mut body = modern("r", "tools/call", json!({"name": "sleep", "arguments": {"ms": 150}}));
    body["params"]["_meta"]["progressToken"] = json!(5);
    let mut stream = post(server.addr(), "/mcp", &headers("tools/call", "sleep"), &body).await;
    assert_eq!(stream.header("content-type"), Some("text/event-stream"));
    assert_eq!(stream.message().await.unwrap()["params"]["progressToken"], 5);
    assert_eq!(stream.message().await.unwrap()["id"], "r");
    assert!(stream.message().await.is_none());
}

#[tokio::test]
async fn closing_the_connection_cancels() {
    let server = start(Options::default()).await;
    let mut body = modern("r", "tools/call", json!({"name": "sleep", "arguments": {"ms": 3_600_000}}));
    body["params"]["_meta"]["progressToken"] = json!(1);
    let mut stream = post(server.addr(), "/mcp", &headers("tools/call", "sleep"), &body).await;
    assert_eq!(stream.message().await.unwrap()["method"], "notifications/progress");
    assert_eq!(server.in_flight(), 1);
    drop(stream);
    server.until_idle().await;
}

async fn start(options: Options) -> RunningServer {
    start_http(([127, 0, 0, 1], 0).into(), options).await.expect("a free port")
}

fn headers<'a>(method: &'a str, name: &'a str) -> Vec<(&'a str, &'a str)> {
    let mut headers = vec![("MCP-Protocol-Version", "2026-07-28"), ("Mcp-Method", method)];
    if !name.is_empty() {
        headers.push(("Mcp-Name", name));
    }
    headers
}

async fn ask(server: &RunningServer, method: &str, params: Value) -> Response {
    post(server.addr(), "/mcp", &headers(method, ""), &modern("r", method, params)).await
}

async fn call(server: &RunningServer, tool: &str, arguments: Value) -> Response {
    let body = modern("r", "tools/call", json!({"name": tool, "arguments": arguments}));
    post(server.addr(), "/mcp", &headers("tools/call", tool), &body).await
}
