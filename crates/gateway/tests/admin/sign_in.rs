//! Sign-in links for the dashboard: a one-time code, and the session that it is exchanged for.

use crate::scene::{Answered, Scene};
use axum::http::StatusCode;

const LINK: &str = "/api/v1/sign_in_link";
const SIGN_IN: &str = "/api/v1/sign_in";
const STOP: &str = "/api/v1/upstreams/demo/stop";

async fn posted(scene: &Scene, path: &str, bearer: &str) -> Answered {
    let bearer = format!("Bearer {bearer}");
    scene.post(path, &[("authorization", &bearer), ("origin", &scene.base)]).await
}

async fn code(scene: &Scene) -> String {
    let answered = scene.act(LINK).await;
    assert_eq!(answered.status, StatusCode::OK, "{}", answered.text);
    assert_eq!(answered.json()["valid_ms"], 60_000);
    answered.json()["code"].as_str().unwrap().to_owned()
}

async fn signed_in(scene: &Scene) -> String {
    let answered = posted(scene, SIGN_IN, &code(scene).await).await;
    assert_eq!(answered.status, StatusCode::OK, "{}", answered.text);
    assert_eq!(answered.headers["cache-control"], "no-store");
    answered.json()["key"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn g05_a_sign_in_code_opens_one_session_that_may_act() {
    let scene = Scene::ready().await;
    let code = code(&scene).await;
    assert_eq!(posted(&scene, STOP, &code).await.status, StatusCode::UNAUTHORIZED, "a code does not act");
    let answered = posted(&scene, SIGN_IN, &code).await;
    let key = answered.json()["key"].as_str().unwrap().to_owned();
    assert!(key.len() >= 43 && key != code && key != scene.token());
    let again = posted(&scene, SIGN_IN, &code).await;
    assert_eq!(again.status, StatusCode::UNAUTHORIZED);
    assert_eq!(again.json()["error"]["hint"], "`gripfast dashboard` makes a new one");
    assert_eq!(posted(&scene, STOP, &key).await.status, StatusCode::ACCEPTED);
    scene.until("demo", "stopped").await;
    scene.host.shutdown().await;
}

#[tokio::test]
async fn g05_only_the_admin_token_itself_makes_sign_in_links() {
    let scene = Scene::with("").await;
    assert_eq!(scene.post(LINK, &[]).await.status, StatusCode::UNAUTHORIZED);
    let (code, key) = (code(&scene).await, signed_in(&scene).await);
    for bearer in ["guessed", &code, &key] {
        assert_eq!(posted(&scene, LINK, bearer).await.status, StatusCode::UNAUTHORIZED);
    }
    let token = scene.token();
    assert_eq!(posted(&scene, SIGN_IN, &token).await.status, StatusCode::UNAUTHORIZED);
}

#[tokio::test]
async fn g05_a_page_of_another_origin_cannot_sign_in_and_uses_no_code_up() {
    let scene = Scene::with("").await;
    let code = code(&scene).await;
    let bearer = format!("Bearer {code}");
    let elsewhere = [("authorization", bearer.as_str()), ("origin", "https://evil.example")];
    assert_eq!(scene.post(SIGN_IN, &elsewhere).await.status, StatusCode::FORBIDDEN);
    assert_eq!(posted(&scene, SIGN_IN, &code).await.status, StatusCode::OK);
}

#[tokio::test]
async fn g05_a_new_admin_token_ends_dashboard_sessions_and_codes() {
    let scene = Scene::ready().await;
    let (code, key) = (code(&scene).await, signed_in(&scene).await);
    gripfast_gateway::admin::rotate_token(scene.token_file().parent().unwrap()).unwrap();
    assert_eq!(posted(&scene, STOP, &key).await.status, StatusCode::UNAUTHORIZED);
    assert_eq!(posted(&scene, SIGN_IN, &code).await.status, StatusCode::UNAUTHORIZED);
    scene.host.shutdown().await;
}

#[tokio::test]
async fn g05_a_sign_in_is_an_event_without_the_code_or_the_key() {
    let scene = Scene::with("").await;
    let code = code(&scene).await;
    let key = posted(&scene, SIGN_IN, &code).await.json()["key"].as_str().unwrap().to_owned();
    posted(&scene, SIGN_IN, &code).await;
    let told = scene.get("/api/v1/status").await.text;
    assert!(
        told.contains("admin action `sign_in_link`") && told.contains("admin action `sign_in` "),
        "{told}"
    );
    assert!(told.contains("invalid sign-in code"), "{told}");
    for secret in [&code, &key, &scene.token()] {
        assert!(!told.contains(secret.as_str()));
    }
}
