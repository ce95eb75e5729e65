//! Each peer on each of its transports, in each era that it knows: found, listed, called, read.

use crate::relay::Relay;
use crate::scene::{Scene, Way, call, listed, spec, stdio, url_of, within};
use gripfast::config::{PinMode, ProtocolChoice, UrlTransport};
use gripfast::{Host, State};
use gripfast_testkit::peers::{Peer, Transport, free_port, require};
use serde_json::json;
use std::time::Duration;

async fn is_spoken_to_in_each_era(peer: Peer) {
    if !require(peer) {
        return;
    }
    let scene = Scene::of(peer).await;
    for way in scene.ways() {
        check_status(&scene, way);
        check_offers(&scene, way.name).await;
    }
    scene.end().await;
}

fn check_status(scene: &Scene, way: Way) {
    let status = scene.status(way.name);
    let version = if way.era == "modern" { "2026-07-28" } else { "2025-11-25" };
    assert_eq!(
        (status.era, status.protocol_version.as_deref()),
        (Some(way.era), Some(version)),
        "{status:#?}"
    );
    let (word, local) = match scene.peer.transport() {
        Transport::Stdio => ("stdio", true),
        Transport::Http => ("http", false),
        Transport::Sse => ("sse", false),
    };
    assert_eq!(status.transport, Some(word), "{status:#?}");
    assert_eq!((status.pid.is_some(), status.url.is_some()), (local, !local), "{status:#?}");
    assert_eq!(status.supervision.state, State::Ready, "{status:#?}");
    assert!(status.server_info.is_some(), "{status:#?}");
}

async fn check_offers(scene: &Scene, name: &str) {
    let catalog = scene.host.catalog(name, Duration::ZERO).await.unwrap();
    assert_eq!(scene.status(name).tools, catalog.tools.len());
    scene.echoes(name, "good morning, größer").await;
    if let Peer::ServerEverything(_) = scene.peer {
        let sum = scene.text_of(name, "get-sum", json!({ "a": 2, "b": 3 })).await;
        assert_eq!(sum, "The sum of 2 and 3 is 5.");
        let document = &catalog.resources[0].key;
        let read = scene.result_of(name, "resources/read", json!({ "uri": document })).await;
        assert_eq!(read["contents"][0]["uri"], json!(document), "{read}");
        assert!(!catalog.templates.is_empty());
        let asked = scene.result_of(name, "prompts/get", json!({ "name": "simple-prompt" })).await;
        assert_eq!(asked["messages"][0]["role"], json!("user"), "{asked}");
        return;
    }
    let tools: Vec<_> = catalog.tools.iter().map(|tool| &*tool.key).collect();
    assert!(["add", "counter", "echo", "sleep"].iter().all(|tool| tools.contains(tool)), "{tools:?}");
    assert!(
        catalog.tool("echo").unwrap().hints.read_only && !catalog.tool("counter").unwrap().hints.read_only
    );
    assert_eq!(scene.text_of(name, "add", json!({ "a": 2, "b": 3 })).await, "5");
    let read = scene.result_of(name, "resources/read", json!({ "uri": "peer://greeting" })).await;
    assert!(read["contents"][0]["text"].as_str().unwrap().starts_with("hello from "), "{read}");
    let arguments = json!({ "name": "greet", "arguments": { "name": "Ada" } });
    let asked = scene.result_of(name, "prompts/get", arguments).await;
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
async fn d08_what_was_found_out_about_a_server_is_known_to_the_next_host() {
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
        assert_eq!(host.status_of("everything").unwrap().era, Some("legacy"));
        assert_eq!(relay.asked("\"server/discover\""), probes, "the first host asks, the second knows");
        within("the end", host.shutdown()).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d08_a_server_that_is_replaced_by_one_of_another_era_is_asked_anew() {
    let (modern, legacy) = (Peer::Rmcp(Transport::Http), Peer::ServerEverything(Transport::Http));
    if !(require(modern) && require(legacy)) {
        return;
    }
    let port = free_port();
    let mut running = modern.start_http(port);
    let host = Host::builder().build();
    let target = url_of(&running.url(), UrlTransport::Auto);
    let mut spec = spec(target, ProtocolChoice::Auto);
    // What it calls `echo` is another tool, which somebody would have to approve.
    spec.pins = PinMode::Warn;
    host.spawn("it", spec).unwrap();
    listed(&host, "it").await;
    within("call", call(&host, "it", "echo", json!({ "text": "hi" }))).await.unwrap();
    assert_eq!(host.status_of("it").unwrap().era, Some("modern"));
    running.kill();
    let _replacement = legacy.start_http(port);
    let answer = within("call", call(&host, "it", "echo", json!({ "message": "hi" }))).await;
    let answer = answer.unwrap_or_else(|error| panic!("{error:?}\n{:#?}", host.status()));
    assert!(answer.result().unwrap().get().contains("Echo: hi"), "{answer:?}");
    assert_eq!(host.status_of("it").unwrap().era, Some("legacy"));
    within("the end", host.shutdown()).await;
}

/// The choice that does not fit, and what a person reads about it.
async fn is_not_understood(peer: Peer, target: gripfast::config::Target, protocol: ProtocolChoice) {
    let host = Host::builder().build();
    host.spawn("it", spec(target, protocol)).unwrap();
    let error = within("listing", host.catalog("it", Duration::from_secs(60))).await.unwrap_err();
    let status = host.status_of("it").unwrap();
    assert_eq!(status.supervision.state, State::ConfigError, "{peer}: {status:#?}");
    assert!(error.text.contains("does not speak the protocol that the config asks for"), "{peer}: {error:?}");
    assert!(status.supervision.next_attempt.is_some(), "{peer}: it is tried again, slowly: {status:#?}");
    within("the end", host.shutdown()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d08_a_legacy_server_whose_config_says_modern_is_a_mistake_of_the_config() {
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
async fn d08_a_modern_server_that_has_left_initialize_behind_is_found_all_the_same() {
    let peer = Peer::TypeScriptV2(Transport::Stdio);
    if !require(peer) {
        return;
    }
    let mut command = peer.command();
    command.args.push("--modern-only".to_owned());
    let host = Host::builder().build();
    host.spawn("it", spec(stdio(&command), ProtocolChoice::Auto)).unwrap();
    listed(&host, "it").await;
    assert_eq!(host.status_of("it").unwrap().era, Some("modern"));
    within("the end", host.shutdown()).await;
    is_not_understood(peer, stdio(&command), ProtocolChoice::Legacy).await;
}

/// Longer than a probe is given.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d08_a_modern_server_is_found_however_slow_it_starts() {
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
    for name in host.names() {
        listed(&host, &name).await;
        let status = host.status_of(&name).unwrap();
        assert_eq!(status.supervision.restarts, 0, "{status:#?}");
        assert!(name.starts_with("Auto") || status.era == Some("modern"), "{status:#?}");
    }
    within("the end", host.shutdown()).await;
}
