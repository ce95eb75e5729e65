//! What a server offers, trying it, and its last day.

use crate::scene::{Scene, stdio};
use axum::http::StatusCode;
use serde_json::json;

#[tokio::test]
async fn the_tools_of_a_server_are_told_with_their_schemas_and_looking_starts_nothing() {
    let scene = Scene::ready().await;
    let told = scene.get("/api/v1/upstreams/demo/tools").await.json();
    let echo = told["tools"].as_array().unwrap().iter().find(|tool| tool["name"] == "echo").unwrap();
    assert_eq!(echo["marks"], json!(["read_only", "idempotent"]));
    assert_eq!(echo["inputSchema"]["required"], json!(["text"]));
    assert!(echo["description"].is_string());
    assert_eq!(scene.get("/api/v1/upstreams/nobody/tools").await.status, StatusCode::NOT_FOUND);
    scene.host.shutdown().await;

    let asleep = Scene::with(&[&stdio("demo", &[]), "lazy = true\n"].concat()).await;
    assert_eq!(asleep.get("/api/v1/upstreams/demo/tools").await.json()["tools"], json!([]));
    assert_eq!(asleep.host.status_of("demo").unwrap().supervision.state.word(), "idle");
    asleep.host.shutdown().await;
}

#[tokio::test]
async fn a_tool_is_tried_with_the_token_and_not_without() {
    let scene = Scene::ready().await;
    let path = "/api/v1/upstreams/demo/call";
    assert_eq!(scene.post(path, &[]).await.status, StatusCode::UNAUTHORIZED);
    assert_eq!(scene.host.status_of("demo").unwrap().calls.calls, 0);
    let answered = scene.act_with(path, r#"{"tool":"echo","arguments":{"text":"hello"}}"#).await.json();
    assert_eq!(answered["result"]["content"][0]["text"], "hello");
    for (body, status, code) in [
        ("{", StatusCode::BAD_REQUEST, "invalid_request"),
        (r#"{"tool":"ecko"}"#, StatusCode::NOT_FOUND, "unknown_tool"),
        (r#"{"tool":"reject"}"#, StatusCode::BAD_GATEWAY, "server_error"),
    ] {
        let refused = scene.act_with(path, body).await;
        assert_eq!(
            (refused.status, refused.json()["error"]["code"].as_str()),
            (status, Some(code)),
            "{body}"
        );
    }
    scene.host.shutdown().await;
}

#[tokio::test]
async fn a_tool_is_tried_with_as_much_as_any_client_may_send_and_no_more() {
    let scene = Scene::ready().await;
    let path = "/api/v1/upstreams/demo/call";
    let of_size =
        |mib: usize| json!({ "tool": "echo", "arguments": { "text": "x".repeat(mib << 20) } }).to_string();
    let answered = scene.act_with(path, &of_size(3)).await.json();
    assert_eq!(answered["result"]["content"][0]["text"].as_str().map(str::len), Some(3 << 20));
    let refused = scene.act_with(path, &of_size(17)).await;
    let told = refused.json();
    assert_eq!(
        (refused.status, told["error"]["code"].as_str()),
        (StatusCode::PAYLOAD_TOO_LARGE, Some("too_large"))
    );
    scene.host.shutdown().await;
}

#[tokio::test]
async fn a_servers_states_are_remembered() {
    let scene = Scene::ready().await;
    scene.host.stop("demo").unwrap();
    scene.until("demo", "stopped").await;
    let states = || async {
        let told = scene.get("/api/v1/history").await.json();
        let states = told["servers"][0]["states"].as_array().cloned().unwrap_or_default();
        states.iter().map(|since| since["state"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    // The event is told to the history as to anybody, in its own time.
    while states().await.last().map(String::as_str) != Some("stopped") {
        tokio::task::yield_now().await;
    }
    assert!(states().await.contains(&"ready".to_owned()));
    scene.host.shutdown().await;
}
