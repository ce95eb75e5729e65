//! Clients that have to show who they are: what gets in, as whom, and what those are told who do not get in.

use crate::client::{Events, LEGACY, borrowed, call, initialize, names, request, spoken};
use crate::scene::{Scene, at, demo};
use gripfast::config::AccessConfig;
use gripfast_gateway::auth::keys;
use gripfast_gateway::downstream::Terms;
use gripfast_gateway::server::{CannotListen, Server, Settings};
use http::Method;
use serde_json::json;

/// A gateway that asks for keys, in front of the sample server.
async fn asking() -> (gripfast_demo::RunningServer, Scene) {
    let demo = demo().await;
    let scene = Scene::with(&config(&demo)).await;
    (demo, scene)
}

fn config(demo: &gripfast_demo::RunningServer) -> String {
    format!("[gateway]\nauth = {{ keys = true }}\n\n{}", at("demo", &demo.url(), "legacy", &[]))
}

/// The header of somebody to whom a key was given.
fn given(scene: &Scene, name: &str) -> String {
    format!("Bearer {}", keys::add(scene.state_dir(), name).unwrap())
}

#[tokio::test]
async fn g05_nobody_gets_in_without_a_key_by_any_way() {
    let (_demo, scene) = asking().await;
    let bodies =
        [(Method::POST, "/mcp"), (Method::GET, "/mcp"), (Method::DELETE, "/mcp"), (Method::GET, "/sse")];
    for (method, path) in bodies.into_iter().chain([(Method::POST, "/message?sessionId=1")]) {
        let told = scene.http.send(method.clone(), path, &[], initialize(LEGACY).to_string()).await;
        assert_eq!(told.status, 401, "{path}");
        assert_eq!(told.headers["www-authenticate"], "Bearer realm=\"gripfast\"");
        let shown = [("authorization", "Bearer gfk_made-up")];
        let told = scene.http.send(method, path, &shown, initialize(LEGACY).to_string()).await;
        let asked = told.headers["www-authenticate"].to_str().unwrap();
        assert!(told.status == 401 && asked.contains("error=\"invalid_token\""), "{path}: {told:?}");
        assert!(!told.text.contains("made-up"), "what was shown is not repeated");
    }
    assert_eq!(scene.clients().await.sessions, 0);
    assert_eq!(scene.http.send(Method::GET, "/healthz", &[], "").await.status, 200);
}

#[tokio::test]
async fn g05_whoever_shows_a_key_is_served_in_both_eras_until_it_is_removed() {
    let (_demo, scene) = asking().await;
    let key = given(&scene, "laptop");
    let shown = [("authorization", &*key)];
    let hello = scene.http.post(&shown, initialize(LEGACY).to_string()).await;
    let session = hello.headers["mcp-session-id"].to_str().unwrap();
    let in_session = [("authorization", &*key), ("mcp-session-id", session)];
    let echo = request(1, "tools/call", &call("demo__echo", json!({ "text": "hello" }))).to_string();
    let told = scene.http.post(&in_session, echo.clone()).await.message();
    assert_eq!(told["result"]["content"][0]["text"], "hello", "{told}");
    let (headers, message) = spoken(json!(2), "tools/list", json!({}));
    let listed = scene.http.post(&[&shown[..], &borrowed(&headers)].concat(), message).await;
    assert_eq!(listed.status, 200, "{listed:?}");
    assert!(keys::remove(scene.state_dir(), "laptop").unwrap());
    assert_eq!(scene.http.post(&in_session, echo).await.status, 401, "also within a session");
}

#[tokio::test]
async fn g05_a_session_of_another_client_is_unknown_here_and_after_a_restart() {
    let (demo, scene) = asking().await;
    let (hers, his) = (given(&scene, "alice"), given(&scene, "bob"));
    let hello = scene.http.post(&[("authorization", &hers)], initialize(LEGACY).to_string()).await;
    let session = hello.headers["mcp-session-id"].to_str().unwrap();
    let (hers, his) = (
        [("authorization", &*hers), ("mcp-session-id", session)],
        [("authorization", &*his), ("mcp-session-id", session)],
    );
    let ping = request(1, "ping", &json!({})).to_string();
    only_hers(&scene, &hers, &his, &ping).await;
    let scene = scene.restart(&config(&demo)).await;
    only_hers(&scene, &hers, &his, &ping).await;
}

async fn only_hers(scene: &Scene, hers: &[(&str, &str)], his: &[(&str, &str)], ping: &str) {
    assert_eq!(scene.http.post(his, ping.to_owned()).await.status, 404);
    assert_eq!(scene.http.send(Method::GET, "/mcp", his, "").await.status, 404);
    assert_eq!(scene.http.send(Method::DELETE, "/mcp", his, "").await.status, 404);
    assert_eq!(scene.http.post(hers, ping.to_owned()).await.status, 200, "it is still hers");
}

#[tokio::test]
async fn g05_an_open_channel_of_the_oldest_http_takes_messages_of_its_own_client_only() {
    let (_demo, scene) = asking().await;
    let (hers, his) = (given(&scene, "alice"), given(&scene, "bob"));
    let mut stream = Events::of(scene.http.begin(Method::GET, "/sse", &[("authorization", &hers)], "").await);
    let path = stream.next().await.unwrap().data;
    let ping = request(1, "ping", &json!({})).to_string();
    let send = async |key: &str| {
        let headers = [("authorization", key), ("content-type", "application/json")];
        scene.http.send(Method::POST, &path, &headers, ping.clone()).await.status
    };
    assert_eq!((send(&his).await, send(&hers).await), (404, 202));
}

#[tokio::test]
async fn g05_only_a_gateway_that_asks_may_listen_for_other_machines() {
    let (_demo, scene) = asking().await;
    let mut settings = Settings {
        listen: ([0, 0, 0, 0], 0).into(),
        state_dir: Some(scene.state_dir().to_owned()),
        terms: Terms::default(),
        access: AccessConfig::default(),
    };
    let refused = Server::bind(scene.host.clone(), &settings).await.err();
    assert!(matches!(refused, Some(CannotListen::NotLoopback(_))), "{refused:?}");
    settings.access.keys = true;
    assert!(Server::bind(scene.host.clone(), &settings).await.is_ok());
}

#[tokio::test]
async fn g05_what_a_client_may_see_goes_by_its_key_in_both_eras() {
    let demo = demo().await;
    let lists = "\n[clients.guest]\ntools = { allow = [\"demo/echo\"] }\n";
    let scene = Scene::with(&(config(&demo) + lists)).await;
    for (name, sees_all) in [("guest", false), ("laptop", true)] {
        let key = given(&scene, name);
        let hello = scene.http.post(&[("authorization", &key)], initialize(LEGACY).to_string()).await;
        let session = hello.headers["mcp-session-id"].to_str().unwrap();
        let legacy = [("authorization", &*key), ("mcp-session-id", session)];
        let listed = scene.http.post(&legacy, request(1, "tools/list", &json!({})).to_string()).await;
        let (headers, message) = spoken(json!(2), "tools/list", json!({}));
        let modern = [&[("authorization", &*key)][..], &borrowed(&headers)].concat();
        for listed in [listed.message(), scene.http.post(&modern, message).await.message()] {
            let tools = names(&listed, "tools", "name");
            assert!(tools.contains(&"demo__echo".to_owned()), "{name}: {tools:?}");
            assert_eq!(tools.len() > 1, sees_all, "{name}: {tools:?}");
        }
    }
}
