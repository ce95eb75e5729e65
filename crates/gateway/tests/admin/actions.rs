//! Actions of the admin API: authorization, and their effect on the server.

use crate::test_api::{ApiResponse, TestApi, stdio};
use axum::http::StatusCode;

const STOP: &str = "/api/v1/upstreams/demo/stop";

fn refused(answered: &ApiResponse, status: StatusCode, code: &str) {
    assert_eq!(answered.status, status, "{}", answered.text);
    assert_eq!(answered.json()["error"]["code"], code);
}

#[tokio::test]
async fn actions_without_the_token_are_refused() {
    let api = TestApi::ready().await;
    let token = api.token();
    let almost = format!("Bearer {}x", &token[..token.len() - 1]);
    let basic = format!("Basic {token}");
    for authorization in ["", "Bearer", "Bearer ", "Bearer wrong", &almost, &basic, &token] {
        let answered = api.post(STOP, &[("authorization", authorization)]).await;
        refused(&answered, StatusCode::UNAUTHORIZED, "unauthorized");
        assert_eq!(answered.headers["www-authenticate"], "Bearer");
        let hint = answered.json()["error"]["hint"].as_str().unwrap().to_owned();
        assert!(hint.contains(api.token_file().to_str().unwrap()), "it says where the token is: {hint}");
        assert!(!answered.text.contains(&token), "and not the token itself");
    }
    refused(&api.post(STOP, &[]).await, StatusCode::UNAUTHORIZED, "unauthorized");
    let unknown = api.post("/api/v1/upstreams/other/stop", &[]).await;
    refused(&unknown, StatusCode::UNAUTHORIZED, "unauthorized");
    api.until("demo", "ready").await;
    api.host.shutdown().await;
}

#[cfg(unix)]
#[tokio::test]
async fn the_token_file_is_readable_by_its_owner_only() {
    use std::os::unix::fs::PermissionsExt;
    let api = TestApi::with("").await;
    let mode = std::fs::metadata(api.token_file()).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    assert!(api.token().len() >= 43, "32 bytes of randomness");
}

#[tokio::test]
async fn a_page_of_another_origin_may_not_act_even_with_the_token() {
    let api = TestApi::ready().await;
    let bearer = format!("Bearer {}", api.token());
    for origin in ["https://evil.example", "http://127.0.0.1", "http://localhost:7331", "null", ""] {
        let headers = [("authorization", bearer.as_str()), ("origin", origin)];
        refused(&api.post(STOP, &headers).await, StatusCode::FORBIDDEN, "forbidden_origin");
    }
    api.until("demo", "ready").await;
    let own_page = [("authorization", bearer.as_str()), ("origin", api.base.as_str())];
    assert_eq!(api.post(STOP, &own_page).await.status, StatusCode::ACCEPTED);
    api.until("demo", "stopped").await;
    api.host.shutdown().await;
}

#[tokio::test]
async fn f01_stop_stops_a_server_and_start_starts_it_again() {
    let api = TestApi::ready().await;
    let stopped = api.act(STOP).await;
    assert_eq!(stopped.status, StatusCode::ACCEPTED);
    assert_eq!(stopped.json()["name"], "demo");
    api.until("demo", "stopped").await;
    let status = api.get("/api/v1/upstreams/demo").await.json();
    assert_eq!(status["next_action"], "start");
    let refused = api.host.call("demo", "counter", None).await.unwrap_err();
    assert_eq!(refused.code.as_str(), "stopped");

    assert_eq!(api.act("/api/v1/upstreams/demo/start").await.status, StatusCode::ACCEPTED);
    api.until("demo", "ready").await;
    api.host.call("demo", "counter", None).await.unwrap();
    api.host.shutdown().await;
}

#[tokio::test]
async fn reconnect_and_reload_replace_the_process() {
    let api = TestApi::ready().await;
    for action in ["reconnect", "reload"] {
        let before = api.host.server_status("demo").unwrap().pid;
        let answered = api.act(&format!("/api/v1/upstreams/demo/{action}")).await;
        assert_eq!(answered.status, StatusCode::ACCEPTED);
        let told = answered.json();
        assert!(told["state"] != "ready" || told["replacing"] == true, "it is told as it is: {told}");
        api.until("demo", "ready").await;
        let after = api.host.server_status("demo").unwrap().pid;
        assert!(after.is_some() && after != before, "{action}: {before:?} and {after:?}");
    }
    api.host.shutdown().await;
}

#[tokio::test]
async fn an_action_that_is_not_possible_says_why() {
    let config = [&stdio("demo", &[]), "lazy = true\n[servers.off]\ncommand = 'npx'\ndisabled = true\n"];
    let api = TestApi::with(&config.concat()).await;
    let unknown = api.act("/api/v1/upstreams/dmeo/stop").await;
    refused(&unknown, StatusCode::NOT_FOUND, "unknown_server");
    assert_eq!(unknown.json()["error"]["hint"], "did you mean `demo`?");
    refused(&api.act("/api/v1/upstreams/off/start").await, StatusCode::CONFLICT, "stopped");
    let action = api.act("/api/v1/upstreams/demo/recconect").await;
    refused(&action, StatusCode::NOT_FOUND, "not_found");
    assert_eq!(action.json()["error"]["hint"], "did you mean `reconnect`?");
    api.host.shutdown().await;
}
