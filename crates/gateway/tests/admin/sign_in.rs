//! Sign-in links for the dashboard: a one-time code, and the session that it is exchanged for.

use crate::test_api::{ApiResponse, TestApi};
use axum::http::StatusCode;

const LINK: &str = "/api/v1/sign_in_link";
const SIGN_IN: &str = "/api/v1/sign_in";
const STOP: &str = "/api/v1/upstreams/demo/stop";

async fn posted(api: &TestApi, path: &str, bearer: &str) -> ApiResponse {
    let bearer = format!("Bearer {bearer}");
    api.post(path, &[("authorization", &bearer), ("origin", &api.base)]).await
}

async fn code(api: &TestApi) -> String {
    let answered = api.act(LINK).await;
    assert_eq!(answered.status, StatusCode::OK, "{}", answered.text);
    assert_eq!(answered.json()["valid_ms"], 60_000);
    answered.json()["code"].as_str().unwrap().to_owned()
}

async fn signed_in(api: &TestApi) -> String {
    let answered = posted(api, SIGN_IN, &code(api).await).await;
    assert_eq!(answered.status, StatusCode::OK, "{}", answered.text);
    assert_eq!(answered.headers["cache-control"], "no-store");
    answered.json()["key"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn g05_a_sign_in_code_opens_one_session_that_may_act() {
    let api = TestApi::ready().await;
    let code = code(&api).await;
    assert_eq!(posted(&api, STOP, &code).await.status, StatusCode::UNAUTHORIZED, "a code does not act");
    let answered = posted(&api, SIGN_IN, &code).await;
    let key = answered.json()["key"].as_str().unwrap().to_owned();
    assert!(key.len() >= 43 && key != code && key != api.token());
    let again = posted(&api, SIGN_IN, &code).await;
    assert_eq!(again.status, StatusCode::UNAUTHORIZED);
    assert_eq!(again.json()["error"]["hint"], "`gripfast dashboard` creates a new link");
    assert_eq!(posted(&api, STOP, &key).await.status, StatusCode::ACCEPTED);
    api.until("demo", "stopped").await;
    api.host.shutdown().await;
}

#[tokio::test]
async fn g05_only_the_admin_token_itself_makes_sign_in_links() {
    let api = TestApi::with("").await;
    assert_eq!(api.post(LINK, &[]).await.status, StatusCode::UNAUTHORIZED);
    let (code, key) = (code(&api).await, signed_in(&api).await);
    for bearer in ["guessed", &code, &key] {
        assert_eq!(posted(&api, LINK, bearer).await.status, StatusCode::UNAUTHORIZED);
    }
    let token = api.token();
    assert_eq!(posted(&api, SIGN_IN, &token).await.status, StatusCode::UNAUTHORIZED);
}

#[tokio::test]
async fn g05_a_page_of_another_origin_cannot_sign_in_or_use_up_a_code() {
    let api = TestApi::with("").await;
    let code = code(&api).await;
    let bearer = format!("Bearer {code}");
    let elsewhere = [("authorization", bearer.as_str()), ("origin", "https://evil.example")];
    assert_eq!(api.post(SIGN_IN, &elsewhere).await.status, StatusCode::FORBIDDEN);
    assert_eq!(posted(&api, SIGN_IN, &code).await.status, StatusCode::OK);
}

#[tokio::test]
async fn g05_a_new_admin_token_ends_dashboard_sessions_and_codes() {
    let api = TestApi::ready().await;
    let (code, key) = (code(&api).await, signed_in(&api).await);
    gripfast_gateway::api::rotate_token(api.token_file().parent().unwrap()).unwrap();
    assert_eq!(posted(&api, STOP, &key).await.status, StatusCode::UNAUTHORIZED);
    assert_eq!(posted(&api, SIGN_IN, &code).await.status, StatusCode::UNAUTHORIZED);
    api.host.shutdown().await;
}

#[tokio::test]
async fn g05_a_sign_in_is_an_event_without_the_code_or_the_key() {
    let api = TestApi::with("").await;
    let code = code(&api).await;
    let key = posted(&api, SIGN_IN, &code).await.json()["key"].as_str().unwrap().to_owned();
    posted(&api, SIGN_IN, &code).await;
    let told = api.get("/api/v1/status").await.text;
    assert!(
        told.contains("admin action `sign_in_link`") && told.contains("admin action `sign_in` "),
        "{told}"
    );
    assert!(told.contains("invalid sign-in code"), "{told}");
    for secret in [&code, &key, &api.token()] {
        assert!(!told.contains(secret.as_str()));
    }
}
