//! A session that the server has forgotten, found out by the very call that carries it. Each server has its own way
//! of saying so; the call is refused, and goes out once more in a new session.

use crate::scene::Scene;
use gripfast::{Event, State};
use gripfast_testkit::peers::{Peer, Transport, require};
use serde_json::{Value, json};

/// The server is another process now, and nothing has told the host.
async fn forgets(peer: Peer) -> Scene {
    let mut scene = Scene::behind_relay(peer).await;
    scene.echoes("legacy", "before").await;
    scene.kill();
    scene.start_again();
    assert_eq!(scene.status("legacy").supervision.state, State::Ready, "it has not heard of it");
    scene
}

async fn renews_in_place(peer: Peer, refusal: &str) -> Option<Scene> {
    if !require(peer) {
        return None;
    }
    let mut scene = forgets(peer).await;
    let (lists, link) = (listings(&scene), scene.status("legacy").supervision.restarts);
    if let Peer::ServerEverything(_) = peer {
        scene.echoes("legacy", "after").await;
    } else {
        scene.text_of("legacy", "counter", json!({})).await;
        assert_eq!(scene.count(), 1, "refused once, carried out once");
    }
    let relay = scene.relay.as_ref().unwrap();
    assert!(relay.answered(refusal) > 0, "the session was not refused like this: {refusal}");
    scene.until_event("legacy", |event| *event == Event::SessionRenewed).await;
    scene.until_ready().await;
    assert!(listings(&scene) > lists, "its tools were not listed again");
    assert_eq!(scene.status("legacy").supervision.restarts, link, "a new session needs no new link");
    Some(scene)
}

fn listings(scene: &Scene) -> usize {
    scene.relay.as_ref().unwrap().asked("\"tools/list\"")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d01_server_everything_says_400_with_an_error_without_id() {
    let refusal = "HTTP/1.1 400 Bad Request";
    let Some(scene) = renews_in_place(Peer::ServerEverything(Transport::Http), refusal).await else { return };
    let relay = scene.relay.as_ref().unwrap();
    let said = relay.answer_from(refusal).unwrap();
    // The body of the first one; others may follow it.
    let mut body = serde_json::Deserializer::from_str(said.split_once("\r\n\r\n").unwrap().1).into_iter();
    let error: Value = body.next().unwrap().unwrap();
    assert_eq!(error["error"]["message"], json!("Bad Request: No valid session ID provided"));
    assert_eq!(error.get("id"), None, "{error}");
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d01_python_v1_says_404() {
    if let Some(scene) = renews_in_place(Peer::PythonV1(Transport::Http), "HTTP/1.1 404 Not Found").await {
        scene.end().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d01_python_v2_says_404() {
    if let Some(scene) = renews_in_place(Peer::PythonV2(Transport::Http), "HTTP/1.1 404 Not Found").await {
        scene.end().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d01_rmcp_says_404_in_plain_text() {
    if let Some(scene) = renews_in_place(Peer::Rmcp(Transport::Http), "HTTP/1.1 404 Not Found").await {
        scene.end().await;
    }
}

/// Over HTTP+SSE the session is the stream: a new one is a new link.
async fn dials_anew(peer: Peer) {
    if !require(peer) {
        return;
    }
    let mut scene = forgets(peer).await;
    scene.text_of("legacy", "counter", json!({})).await;
    assert_eq!(scene.count(), 1, "refused once, carried out once");
    assert!(scene.relay.as_ref().unwrap().answered("HTTP/1.1 404 Not Found") > 0);
    scene.until_event("legacy", |event| matches!(event, Event::Revived { .. })).await;
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d01_python_v1_on_sse_says_404_to_a_post() {
    dials_anew(Peer::PythonV1(Transport::Sse)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d01_python_v2_on_sse_says_404_to_a_post() {
    dials_anew(Peer::PythonV2(Transport::Sse)).await;
}
