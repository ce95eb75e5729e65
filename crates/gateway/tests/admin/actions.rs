//! What is done: who may, and that it really happens.

use crate::scene::{Answered, Scene, stdio};
use axum::http::StatusCode;

const STOP: &str = "/api/v1/upstreams/demo/stop";

fn refused(answered: &Answered, status: StatusCode, code: &str) {
    assert_eq!(answered.status, status, "{}", answered.text);
    assert_eq!(answered.json()["error"]["code"], code);
}

#[tokio::test]
async fn without_the_token_nothing_is_done() {
    let scene = Scene::ready().await;
    let token = scene.token();
    let almost = format!("Bearer {}x", &token[..token.len() - 1]);
    let basic = format!("Basic {token}");
    for authorization in ["", "Bearer", "Bearer ", "Bearer wrong", &almost, &basic, &token] {
        let answered = scene.post(STOP, &[("authorization", authorization)]).await;
        refused(&answered, StatusCode::UNAUTHORIZED, "unauthorized");
        assert_eq!(answered.headers["www-authenticate"], "Bearer");
        let hint = answered.json()["error"]["hint"].as_str().unwrap().to_owned();
        assert!(hint.contains(scene.token_file().to_str().unwrap()), "it says where the token is: {hint}");
        assert!(!answered.text.contains(&token), "and not the token itself");
    }
    refused(&scene.post(STOP, &[]).await, StatusCode::UNAUTHORIZED, "unauthorized");
    let unknown = scene.post("/api/v1/upstreams/other/stop", &[]).await;
    refused(&unknown, StatusCode::UNAUTHORIZED, "unauthorized");
    scene.until("demo", "ready").await;
    scene.host.shutdown().await;
}

#[cfg(unix)]
#[tokio::test]
async fn the_token_is_for_its_owner_alone() {
    use std::os::unix::fs::PermissionsExt;
    let scene = Scene::with("").await;
    let mode = std::fs::metadata(scene.token_file()).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    assert!(scene.token().len() >= 43, "32 bytes of randomness");
}

#[tokio::test]
async fn a_page_from_elsewhere_may_not_act_even_with_the_token() {
    let scene = Scene::ready().await;
    let bearer = format!("Bearer {}", scene.token());
    for origin in ["https://evil.example", "http://127.0.0.1", "http://localhost:7331", "null", ""] {
        let headers = [("authorization", bearer.as_str()), ("origin", origin)];
        refused(&scene.post(STOP, &headers).await, StatusCode::FORBIDDEN, "forbidden_origin");
    }
    scene.until("demo", "ready").await;
    let own_page = [("authorization", bearer.as_str()), ("origin", scene.base.as_str())];
    assert_eq!(scene.post(STOP, &own_page).await.status, StatusCode::ACCEPTED);
    scene.until("demo", "stopped").await;
    scene.host.shutdown().await;
}

#[tokio::test]
async fn f01_stop_stops_and_start_brings_it_back() {
    let scene = Scene::ready().await;
    let stopped = scene.act(STOP).await;
    assert_eq!(stopped.status, StatusCode::ACCEPTED);
    assert_eq!(stopped.json()["name"], "demo");
    scene.until("demo", "stopped").await;
    let status = scene.get("/api/v1/upstreams/demo").await.json();
    assert_eq!(status["next_action"], "start");
    let refused = scene.host.call("demo", "counter", None).await.unwrap_err();
    assert_eq!(refused.code.word(), "stopped");

    assert_eq!(scene.act("/api/v1/upstreams/demo/start").await.status, StatusCode::ACCEPTED);
    scene.until("demo", "ready").await;
    scene.host.call("demo", "counter", None).await.unwrap();
    scene.host.shutdown().await;
}

#[tokio::test]
async fn reconnect_and_reload_replace_the_process() {
    let scene = Scene::ready().await;
    for action in ["reconnect", "reload"] {
        let before = scene.host.status_of("demo").unwrap().pid;
        let answered = scene.act(&format!("/api/v1/upstreams/demo/{action}")).await;
        assert_eq!(answered.status, StatusCode::ACCEPTED);
        let told = answered.json();
        assert!(told["state"] != "ready" || told["replacing"] == true, "it is told as it is: {told}");
        scene.until("demo", "ready").await;
        let after = scene.host.status_of("demo").unwrap().pid;
        assert!(after.is_some() && after != before, "{action}: {before:?} and {after:?}");
    }
    scene.host.shutdown().await;
}

#[tokio::test]
async fn what_cannot_be_acted_on_says_why() {
    let config = [&stdio("demo", &[]), "lazy = true\n[servers.off]\ncommand = 'npx'\ndisabled = true\n"];
    let scene = Scene::with(&config.concat()).await;
    let unknown = scene.act("/api/v1/upstreams/dmeo/stop").await;
    refused(&unknown, StatusCode::NOT_FOUND, "unknown_server");
    assert_eq!(unknown.json()["error"]["hint"], "did you mean `demo`?");
    refused(&scene.act("/api/v1/upstreams/off/start").await, StatusCode::CONFLICT, "stopped");
    let action = scene.act("/api/v1/upstreams/demo/recconect").await;
    refused(&action, StatusCode::NOT_FOUND, "not_found");
    assert_eq!(action.json()["error"]["hint"], "did you mean `reconnect`?");
    scene.host.shutdown().await;
}
