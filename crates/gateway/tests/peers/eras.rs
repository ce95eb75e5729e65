//! Each peer on each of its transports and in each era that it supports: detected, listed, called, read.

use crate::peer_host::{PeerHost, ProtocolMode, call, listed, spec, stdio, url_of};
use crate::relay::Relay;
use gripfast::config::{PinMode, ProtocolChoice, UrlTransport};
use gripfast::{Host, State};
use gripfast_testkit::peers::{Peer, Transport, free_port, require};
use gripfast_testkit::wait::within;
use serde_json::json;
use std::time::Duration;

async fn is_spoken_to_in_each_era(peer: Peer) {
    if !require(peer) {
        return;
    }
    let peer_host = PeerHost::of(peer).await;
    for mode in peer_host.modes() {
        check_status(&peer_host, mode);
        check_offers(&peer_host, mode.name).await;
    }
    peer_host.end().await;
}

fn check_status(peer_host: &PeerHost, mode: ProtocolMode) {
    let status = peer_host.status(mode.name);
    let version = if mode.era == "modern" { "2026-07-28" } else { "2025-11-25" };
    assert_eq!(
        (status.era, status.protocol_version.as_deref()),
        (Some(mode.era), Some(version)),
        "{status:#?}"
    );
    let (word, local) = match peer_host.peer.transport() {
        Transport::Stdio => ("stdio", true),
        Transport::Http => ("http", false),
        Transport::Sse => ("sse", false),
    };
    assert_eq!(status.transport, Some(word), "{status:#?}");
    assert_eq!((status.pid.is_some(), status.url.is_some()), (local, !local), "{status:#?}");
    assert_eq!(status.supervision.state, State::Ready, "{status:#?}");
    assert!(status.server_info.is_some(), "{status:#?}");
}

async fn check_offers(peer_host: &PeerHost, name: &str) {
    let catalog = peer_host.host.catalog(name, Duration::ZERO).await.unwrap();
    assert_eq!(peer_host.status(name).tools, catalog.tools.len());
    peer_host.echoes(name, "good morning, größer").await;
    if let Peer::ServerEverything(_) = peer_host.peer {
        let sum = peer_host.text_of(name, "get-sum", json!({ "a": 2, "b": 3 })).await;
        assert_eq!(sum, "The sum of 2 and 3 is 5.");
        let document = &catalog.resources[0].key;
        let read = peer_host.result_of(name, "resources/read", json!({ "uri": document })).await;
        assert_eq!(read["contents"][0]["uri"], json!(document), "{read}");
        assert!(!catalog.templates.is_empty());
        let asked = peer_host.result_of(name, "prompts/get", json!({ "name": "simple-prompt" })).await;
        assert_eq!(asked["messages"][0]["role"], json!("user"), "{asked}");
        return;
    }
    let tools: Vec<_> = catalog.tools.iter().map(|tool| &*tool.key).collect();
    assert!(["add", "counter", "echo", "sleep"].iter().all(|tool| tools.contains(tool)), "{tools:?}");
    assert!(
        catalog.tool("echo").unwrap().hints.read_only && !catalog.tool("counter").unwrap().hints.read_only
    );
    assert_eq!(peer_host.text_of(name, "add", json!({ "a": 2, "b": 3 })).await, "5");
    let read = peer_host.result_of(name, "resources/read", json!({ "uri": "peer://greeting" })).await;
    assert!(read["contents"][0]["text"].as_str().unwrap().starts_with("hello from "), "{read}");
    let arguments = json!({ "name": "greet", "arguments": { "name": "Ada" } });
    let asked = peer_host.result_of(name, "prompts/get", arguments).await;
    assert_eq!(asked["messages"][0]["content"]["text"], json!("Greet Ada."), "{asked}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d08_server_everything_on_stdio_is_spoken_to_in_each_era_it_knows() {
    is_spoken_to_in_each_era(Peer::ServerEverything(Transport::Stdio)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d08_server_everything_on_http_is_spoken_to_in_each_era_it_knows() {
    is_spoken_to_in_each_era(Peer::ServerEverything(Transport::Http)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d08_server_everything_on_sse_is_spoken_to_in_each_era_it_knows() {
    is_spoken_to_in_each_era(Peer::ServerEverything(Transport::Sse)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d08_python_v1_on_stdio_is_spoken_to_in_each_era_it_knows() {
    is_spoken_to_in_each_era(Peer::PythonV1(Transport::Stdio)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d08_python_v1_on_http_is_spoken_to_in_each_era_it_knows() {
    is_spoken_to_in_each_era(Peer::PythonV1(Transport::Http)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d08_python_v1_on_sse_is_spoken_to_in_each_era_it_knows() {
    is_spoken_to_in_each_era(Peer::PythonV1(Transport::Sse)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d08_python_v2_on_stdio_is_spoken_to_in_each_era_it_knows() {
    is_spoken_to_in_each_era(Peer::PythonV2(Transport::Stdio)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d08_python_v2_on_http_is_spoken_to_in_each_era_it_knows() {
    is_spoken_to_in_each_era(Peer::PythonV2(Transport::Http)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d08_python_v2_on_sse_is_spoken_to_in_each_era_it_knows() {
    is_spoken_to_in_each_era(Peer::PythonV2(Transport::Sse)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d08_typescript_v2_on_stdio_is_spoken_to_in_each_era_it_knows() {
    is_spoken_to_in_each_era(Peer::TypeScriptV2(Transport::Stdio)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d08_typescript_v2_on_http_is_spoken_to_in_each_era_it_knows() {
    is_spoken_to_in_each_era(Peer::TypeScriptV2(Transport::Http)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d08_rmcp_on_stdio_is_spoken_to_in_each_era_it_knows() {
    is_spoken_to_in_each_era(Peer::Rmcp(Transport::Stdio)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d08_rmcp_on_http_is_spoken_to_in_each_era_it_knows() {
    is_spoken_to_in_each_era(Peer::Rmcp(Transport::Http)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d08_the_detected_era_of_a_server_is_known_to_the_next_host() {
    let peer = Peer::ServerEverything(Transport::Http);
    if !require(peer) {
        return;
    }
    let port = free_port();
    let _running = peer.start_http(port);
    let relay = Relay::to(port).await;
    let dir = tempfile::tempdir().unwrap();
    for probes in [1, 1] {
        let host = Host::builder().state_dir(Some(dir.path().to_owned())).build();
        let target = url_of(&relay.url("mcp"), UrlTransport::Auto);
        host.spawn("everything", spec(target, ProtocolChoice::Auto)).unwrap();
        listed(&host, "everything").await;
        within("call", call(&host, "everything", "echo", json!({ "message": "hi" }))).await.unwrap();
        assert_eq!(host.server_status("everything").unwrap().era, Some("legacy"));
        assert_eq!(relay.asked("\"server/discover\""), probes, "the first host asks, the second knows");
        within("the end", host.shutdown()).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d08_a_server_replaced_by_one_of_another_era_is_probed_again() {
    let (modern, legacy) = (Peer::Rmcp(Transport::Http), Peer::ServerEverything(Transport::Http));
    if !(require(modern) && require(legacy)) {
        return;
    }
    let port = free_port();
    let mut running = modern.start_http(port);
    let host = Host::builder().build();
    let target = url_of(&running.url(), UrlTransport::Auto);
    let mut spec = spec(target, ProtocolChoice::Auto);
    // Its `echo` is another tool, which would need an approval.
    spec.pins = PinMode::Warn;
    host.spawn("it", spec).unwrap();
    listed(&host, "it").await;
    within("call", call(&host, "it", "echo", json!({ "text": "hi" }))).await.unwrap();
    assert_eq!(host.server_status("it").unwrap().era, Some("modern"));
    running.kill();
    let _replacement = legacy.start_http(port);
    let answer = within("call", call(&host, "it", "echo", json!({ "message": "hi" }))).await;
    let answer = answer.unwrap_or_else(|error| panic!("{error:?}\n{:#?}", host.status()));
    assert!(answer.result().unwrap().get().contains("Echo: hi"), "{answer:?}");
    assert_eq!(host.server_status("it").unwrap().era, Some("legacy"));
    within("the end", host.shutdown()).await;
}

/// Protocol setting that does not fit the server, and the error for it.
async fn is_not_understood(peer: Peer, target: gripfast::config::Target, protocol: ProtocolChoice) {
    let host = Host::builder().build();
    host.spawn("it", spec(target, protocol)).unwrap();
    let error = within("listing", host.catalog("it", Duration::from_secs(60))).await.unwrap_err();
    let status = host.server_status("it").unwrap();
    assert_eq!(status.supervision.state, State::ConfigError, "{peer}: {status:#?}");
    assert!(error.text.contains("does not speak the configured protocol"), "{peer}: {error:?}");
    assert!(status.supervision.next_attempt.is_some(), "{peer}: it is tried again, slowly: {status:#?}");
    within("the end", host.shutdown()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d08_a_legacy_server_configured_as_modern_is_a_config_error() {
    let peer = Peer::ServerEverything(Transport::Http);
    if !require(peer) {
        return;
    }
    let running = peer.start_http(free_port());
    is_not_understood(peer, url_of(&running.url(), UrlTransport::Http), ProtocolChoice::Modern).await;
    let peer = Peer::ServerEverything(Transport::Stdio);
    is_not_understood(peer, stdio(&peer.command()), ProtocolChoice::Modern).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d08_a_modern_server_without_initialize_is_detected() {
    let peer = Peer::TypeScriptV2(Transport::Stdio);
    if !require(peer) {
        return;
    }
    let mut command = peer.command();
    command.args.push("--modern-only".to_owned());
    let host = Host::builder().build();
    host.spawn("it", spec(stdio(&command), ProtocolChoice::Auto)).unwrap();
    listed(&host, "it").await;
    assert_eq!(host.server_status("it").unwrap().era, Some("modern"));
    within("the end", host.shutdown()).await;
    is_not_understood(peer, stdio(&command), ProtocolChoice::Legacy).await;
}

/// Longer than the timeout of a probe.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d08_a_modern_server_that_starts_slowly_is_detected() {
    let peers = [
        Peer::PythonV2(Transport::Stdio),
        Peer::TypeScriptV2(Transport::Stdio),
        Peer::Rmcp(Transport::Stdio),
    ];
    let host = Host::builder().build();
    for peer in peers.into_iter().filter(|peer| require(*peer)) {
        let mut command = peer.command();
        let program = std::mem::replace(&mut command.program, "sh".into());
        let slowly = ["-c", "sleep 6; exec \"$@\"", "sh"].map(str::to_owned).into_iter();
        command.args = slowly.chain([program.display().to_string()]).chain(command.args).collect();
        for protocol in [ProtocolChoice::Auto, ProtocolChoice::Modern] {
            let name = format!("{protocol:?} {}", peer.name());
            host.spawn(&name, spec(stdio(&command), protocol)).unwrap();
        }
    }
    for name in host.server_names() {
        listed(&host, &name).await;
        let status = host.server_status(&name).unwrap();
        assert_eq!(status.supervision.restarts, 0, "{status:#?}");
        assert!(name.starts_with("Auto") || status.era == Some("modern"), "{status:#?}");
    }
    within("the end", host.shutdown()).await;
}
