//! A server that is killed and started again under a live host: the next call works, and nobody touched the host.

use crate::scene::Scene;
use gripfast::{Event, State};
use gripfast_testkit::peers::{Peer, Transport, require};
use serde_json::json;
use std::time::Duration;

/// `kill -9` of the child, and the next call at once.
async fn comes_back_for_the_next_call(peer: Peer) {
    if !require(peer) {
        return;
    }
    let mut scene = Scene::of(peer).await;
    for way in scene.ways() {
        scene.echoes(way.name, "before").await;
    }
    let before: Vec<_> = scene.ways().iter().map(|way| (way.name, scene.status(way.name))).collect();
    scene.kill();
    for (name, before) in before {
        scene.echoes(name, "after").await;
        let status = scene.status(name);
        assert_ne!(status.pid, before.pid, "{name}");
        assert_eq!((status.era, status.protocol_version), (before.era, before.protocol_version), "{name}");
    }
    check_revived(&mut scene).await;
    scene.end().await;
}

/// `kill -9` of the child, and nobody calls.
async fn comes_back_unasked(peer: Peer) {
    if !require(peer) {
        return;
    }
    let mut scene = Scene::of(peer).await;
    scene.kill();
    check_revived(&mut scene).await;
    assert_eq!(scene.count(), 0);
    for (times, way) in (1..).zip(scene.ways()) {
        scene.text_of(way.name, "counter", json!({})).await;
        assert_eq!(scene.count(), times, "{}", way.name);
    }
    scene.end().await;
}

/// The server goes and comes back on its port; calls are made while it is away.
async fn serves_the_calls_of_its_absence(peer: Peer) {
    if !require(peer) {
        return;
    }
    let mut scene = Scene::of(peer).await;
    let tools: Vec<_> = scene.ways().iter().map(|way| scene.status(way.name).tools).collect();
    scene.kill();
    let ways = scene.ways();
    let mut running = scene.running.take();
    let back = tokio::task::spawn_blocking(move || {
        running.as_mut().unwrap().start_again();
        running
    });
    for way in &ways {
        scene.echoes(way.name, "are you there?").await;
    }
    scene.running = back.await.unwrap();
    scene.until_ready().await;
    for (way, tools) in ways.iter().zip(tools) {
        let status = scene.status(way.name);
        assert_eq!((status.era, status.tools), (Some(way.era), tools), "{status:#?}");
        scene.echoes(way.name, "again").await;
    }
    scene.end().await;
}

/// Revival is complete with the catalog: ready, and everything listed.
async fn check_revived(scene: &mut Scene) {
    for way in scene.ways() {
        scene.until_event(way.name, |event| matches!(event, Event::Revived { .. })).await;
        let status = scene.status(way.name);
        assert_eq!(status.supervision.state, State::Ready, "{status:#?}");
        let listed = scene.host.catalog(way.name, Duration::ZERO).await.unwrap();
        assert_eq!(status.tools, listed.tools.len());
        assert!(listed.tool("echo").is_some() && !listed.prompts.is_empty() && !listed.resources.is_empty());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b02_server_everything_killed_on_stdio_serves_the_next_call() {
    comes_back_for_the_next_call(Peer::ServerEverything(Transport::Stdio)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b02_python_v1_killed_on_stdio_serves_the_next_call() {
    comes_back_for_the_next_call(Peer::PythonV1(Transport::Stdio)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b02_python_v2_killed_on_stdio_serves_the_next_call() {
    comes_back_for_the_next_call(Peer::PythonV2(Transport::Stdio)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b02_typescript_v2_killed_on_stdio_serves_the_next_call() {
    comes_back_for_the_next_call(Peer::TypeScriptV2(Transport::Stdio)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b02_rmcp_killed_on_stdio_serves_the_next_call() {
    comes_back_for_the_next_call(Peer::Rmcp(Transport::Stdio)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b02_python_v1_killed_on_stdio_comes_back_unasked() {
    comes_back_unasked(Peer::PythonV1(Transport::Stdio)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b02_python_v2_killed_on_stdio_comes_back_unasked() {
    comes_back_unasked(Peer::PythonV2(Transport::Stdio)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b02_typescript_v2_killed_on_stdio_comes_back_unasked() {
    comes_back_unasked(Peer::TypeScriptV2(Transport::Stdio)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b02_rmcp_killed_on_stdio_comes_back_unasked() {
    comes_back_unasked(Peer::Rmcp(Transport::Stdio)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b02_server_everything_restarted_on_http_serves_the_calls_of_its_absence() {
    serves_the_calls_of_its_absence(Peer::ServerEverything(Transport::Http)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b02_server_everything_restarted_on_sse_serves_the_calls_of_its_absence() {
    serves_the_calls_of_its_absence(Peer::ServerEverything(Transport::Sse)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b02_python_v1_restarted_on_http_serves_the_calls_of_its_absence() {
    serves_the_calls_of_its_absence(Peer::PythonV1(Transport::Http)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b02_python_v1_restarted_on_sse_serves_the_calls_of_its_absence() {
    serves_the_calls_of_its_absence(Peer::PythonV1(Transport::Sse)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b02_python_v2_restarted_on_http_serves_the_calls_of_its_absence() {
    serves_the_calls_of_its_absence(Peer::PythonV2(Transport::Http)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b02_python_v2_restarted_on_sse_serves_the_calls_of_its_absence() {
    serves_the_calls_of_its_absence(Peer::PythonV2(Transport::Sse)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b02_typescript_v2_restarted_on_http_serves_the_calls_of_its_absence() {
    serves_the_calls_of_its_absence(Peer::TypeScriptV2(Transport::Http)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b02_rmcp_restarted_on_http_serves_the_calls_of_its_absence() {
    serves_the_calls_of_its_absence(Peer::Rmcp(Transport::Http)).await;
}
