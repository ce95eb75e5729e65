//! Tools of a server, test calls of a tool, and the state history of a server.

use crate::test_api::{TestApi, stdio};
use axum::http::StatusCode;
use serde_json::json;

#[tokio::test]
async fn listing_a_servers_tools_with_their_schemas_does_not_start_it() {
    let api = TestApi::ready().await;
    let told = api.get("/api/v1/upstreams/demo/tools").await.json();
    let echo = told["tools"].as_array().unwrap().iter().find(|tool| tool["name"] == "echo").unwrap();
    assert_eq!(echo["marks"], json!(["read_only", "idempotent"]));
    assert_eq!(echo["inputSchema"]["required"], json!(["text"]));
    assert!(echo["description"].is_string());
    assert_eq!(api.get("/api/v1/upstreams/nobody/tools").await.status, StatusCode::NOT_FOUND);
    api.host.shutdown().await;

    let asleep = TestApi::with(&[&stdio("demo", &[]), "lazy = true\n"].concat()).await;
    assert_eq!(asleep.get("/api/v1/upstreams/demo/tools").await.json()["tools"], json!([]));
    assert_eq!(asleep.host.server_status("demo").unwrap().supervision.state.as_str(), "idle");
    asleep.host.shutdown().await;
}

#[tokio::test]
async fn a_tool_call_needs_the_token() {
    let api = TestApi::ready().await;
    let path = "/api/v1/upstreams/demo/call";
    assert_eq!(api.post(path, &[]).await.status, StatusCode::UNAUTHORIZED);
    assert_eq!(api.host.server_status("demo").unwrap().calls.calls, 0);
    let answered = api.act_with(path, r#"{"tool":"echo","arguments":{"text":"hello"}}"#).await.json();
    assert_eq!(answered["result"]["content"][0]["text"], "hello");
    for (body, status, code) in [
        ("{", StatusCode::BAD_REQUEST, "invalid_request"),
        (r#"{"tool":"ecko"}"#, StatusCode::NOT_FOUND, "unknown_tool"),
        (r#"{"tool":"reject"}"#, StatusCode::BAD_GATEWAY, "server_error"),
    ] {
        let refused = api.act_with(path, body).await;
        assert_eq!(
            (refused.status, refused.json()["error"]["code"].as_str()),
            (status, Some(code)),
            "{body}"
        );
    }
    api.host.shutdown().await;
}

#[tokio::test]
async fn a_tool_call_has_the_same_body_limit_as_a_client() {
    let api = TestApi::ready().await;
    let path = "/api/v1/upstreams/demo/call";
    let of_size =
        |mib: usize| json!({ "tool": "echo", "arguments": { "text": "x".repeat(mib << 20) } }).to_string();
    let answered = api.act_with(path, &of_size(3)).await.json();
    assert_eq!(answered["result"]["content"][0]["text"].as_str().map(str::len), Some(3 << 20));
    let refused = api.act_with(path, &of_size(17)).await;
    let told = refused.json();
    assert_eq!(
        (refused.status, told["error"]["code"].as_str()),
        (StatusCode::PAYLOAD_TOO_LARGE, Some("too_large"))
    );
    api.host.shutdown().await;
}

#[tokio::test]
async fn the_state_history_of_a_server_is_kept() {
    let api = TestApi::ready().await;
    api.host.stop("demo").unwrap();
    api.until("demo", "stopped").await;
    let states = || async {
        let told = api.get("/api/v1/history").await.json();
        let states = told["servers"][0]["states"].as_array().cloned().unwrap_or_default();
        states.iter().map(|since| since["state"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    // The history receives the event asynchronously, like every subscriber.
    while states().await.last().map(String::as_str) != Some("stopped") {
        tokio::task::yield_now().await;
    }
    assert!(states().await.contains(&"ready".to_owned()));
    api.host.shutdown().await;
}
