//! Servers killed and restarted under a live host: the next call works without any action on the host.

use crate::peer_host::PeerHost;
use gripfast::{Event, State};
use gripfast_testkit::peers::{Peer, Transport, require};
use serde_json::json;
use std::time::Duration;

/// `kill -9` of the child, and the next call at once.
async fn comes_back_for_the_next_call(peer: Peer) {
    if !require(peer) {
        return;
    }
    let mut peer_host = PeerHost::of(peer).await;
    for mode in peer_host.modes() {
        peer_host.echoes(mode.name, "before").await;
    }
    let before: Vec<_> =
        peer_host.modes().iter().map(|mode| (mode.name, peer_host.status(mode.name))).collect();
    peer_host.kill();
    for (name, before) in before {
        peer_host.echoes(name, "after").await;
        let status = peer_host.status(name);
        assert_ne!(status.pid, before.pid, "{name}");
        assert_eq!((status.era, status.protocol_version), (before.era, before.protocol_version), "{name}");
    }
    check_revived(&mut peer_host).await;
    peer_host.end().await;
}

/// `kill -9` of the child, without a call.
async fn comes_back_unasked(peer: Peer) {
    if !require(peer) {
        return;
    }
    let mut peer_host = PeerHost::of(peer).await;
    peer_host.kill();
    check_revived(&mut peer_host).await;
    assert_eq!(peer_host.count(), 0);
    for (times, mode) in (1..).zip(peer_host.modes()) {
        peer_host.text_of(mode.name, "counter", json!({})).await;
        assert_eq!(peer_host.count(), times, "{}", mode.name);
    }
    peer_host.end().await;
}

/// The server goes and comes back on its port; calls are made while it is away.
async fn serves_the_calls_of_its_absence(peer: Peer) {
    if !require(peer) {
        return;
    }
    let mut peer_host = PeerHost::of(peer).await;
    let tools: Vec<_> = peer_host.modes().iter().map(|mode| peer_host.status(mode.name).tools).collect();
    peer_host.kill();
    let modes = peer_host.modes();
    let mut running = peer_host.running.take();
    let back = tokio::task::spawn_blocking(move || {
        running.as_mut().unwrap().start_process();
        running
    });
    for mode in &modes {
        peer_host.echoes(mode.name, "are you there?").await;
    }
    peer_host.running = back.await.unwrap();
    peer_host.until_ready().await;
    for (mode, tools) in modes.iter().zip(tools) {
        let status = peer_host.status(mode.name);
        assert_eq!((status.era, status.tools), (Some(mode.era), tools), "{status:#?}");
        peer_host.echoes(mode.name, "again").await;
    }
    peer_host.end().await;
}

/// Revival is complete with the catalog: ready, and everything listed.
async fn check_revived(peer_host: &mut PeerHost) {
    for mode in peer_host.modes() {
        peer_host.until_event(mode.name, |event| matches!(event, Event::Revived { .. })).await;
        let status = peer_host.status(mode.name);
        assert_eq!(status.supervision.state, State::Ready, "{status:#?}");
        let listed = peer_host.host.catalog(mode.name, Duration::ZERO).await.unwrap();
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
