//! Servers killed during a call. Read-only calls are repeated; calls with possible side effects are not.

use crate::peer_host::{PeerHost, call};
use gripfast::{Answer, CallError, CallOutcome, Code};
use gripfast_testkit::peers::{Peer, Transport, require};
use gripfast_testkit::wait::within;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

type Calls = Vec<(&'static str, JoinHandle<Result<Answer, CallError>>)>;

/// Starts one call in each mode and waits until all are in flight.
fn begin(peer_host: &PeerHost, tool: &'static str, arguments: &Value) -> Calls {
    let begin = |name: &'static str| {
        let (host, arguments) = (peer_host.host.clone(), arguments.clone());
        (name, tokio::spawn(async move { call(&host, name, tool, arguments).await }))
    };
    peer_host.modes().iter().map(|mode| begin(mode.name)).collect()
}

async fn asks_again_what_only_reads(peer: Peer) {
    if !require(peer) {
        return;
    }
    let mut peer_host = PeerHost::of(peer).await;
    let (tool, arguments, done) = match peer {
        Peer::ServerEverything(_) => (
            "trigger-long-running-operation",
            json!({ "duration": 1, "steps": 1 }),
            "Long running operation completed. Duration: 1 seconds, Steps: 1.",
        ),
        _ => ("sleep", json!({ "ms": 1000 }), "slept 1000 ms"),
    };
    let calls = begin(&peer_host, tool, &arguments);
    peer_host.until_all_in_flight().await;
    for mode in peer_host.modes() {
        // The server has read everything that was written before this.
        peer_host.echoes(mode.name, "meanwhile").await;
    }
    peer_host.kill();
    peer_host.start_again();
    for (name, call) in calls {
        let answer = within(name, call).await.unwrap();
        let answer =
            answer.unwrap_or_else(|error| panic!("{name}: {error:?}\n{:#?}", peer_host.status(name)));
        assert!(answer.result().unwrap().get().contains(done), "{name}: {answer:?}");
    }
    peer_host.end().await;
}

async fn never_does_twice_what_may_have_been_done(peer: Peer) {
    if !require(peer) {
        return;
    }
    let mut peer_host = PeerHost::of(peer).await;
    let modes = peer_host.modes().len();
    let calls = begin(&peer_host, "counter", &json!({ "ms": 600_000 }));
    peer_host.until_counted(modes).await;
    peer_host.kill();
    peer_host.start_again();
    for (name, call) in calls {
        let error = within(name, call).await.unwrap().unwrap_err();
        assert_eq!(
            (error.code, error.outcome),
            (Code::OutcomeUnknown, CallOutcome::Unknown),
            "{name}: {error:?}"
        );
        assert!(!error.text.is_empty() && error.server == name, "{error:?}");
    }
    for (more, mode) in (1..).zip(peer_host.modes()) {
        peer_host.text_of(mode.name, "counter", json!({})).await;
        assert_eq!(
            peer_host.count(),
            modes + more,
            "{}: the first calls ran once each, this one too",
            mode.name
        );
    }
    peer_host.end().await;
}

async fn asks_again_what_the_operator_vouches_for(peer: Peer) {
    if !require(peer) {
        return;
    }
    let mut peer_host = PeerHost::with(peer, |spec| spec.replay.safe.push("counter".to_owned())).await;
    let modes = peer_host.modes().len();
    let calls = begin(&peer_host, "counter", &json!({ "ms": 1000 }));
    peer_host.until_counted(modes).await;
    peer_host.kill();
    peer_host.start_again();
    for (name, call) in calls {
        within(name, call).await.unwrap().unwrap();
    }
    assert_eq!(peer_host.count(), 2 * modes, "each ran once before and once after");
    peer_host.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c05_server_everything_killed_on_stdio_is_asked_again_what_only_reads() {
    asks_again_what_only_reads(Peer::ServerEverything(Transport::Stdio)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c05_server_everything_killed_on_http_is_asked_again_what_only_reads() {
    asks_again_what_only_reads(Peer::ServerEverything(Transport::Http)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c05_server_everything_killed_on_sse_is_asked_again_what_only_reads() {
    asks_again_what_only_reads(Peer::ServerEverything(Transport::Sse)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c05_python_v1_killed_on_stdio_is_asked_again_what_only_reads() {
    asks_again_what_only_reads(Peer::PythonV1(Transport::Stdio)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c05_python_v1_killed_on_http_is_asked_again_what_only_reads() {
    asks_again_what_only_reads(Peer::PythonV1(Transport::Http)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c05_python_v1_killed_on_sse_is_asked_again_what_only_reads() {
    asks_again_what_only_reads(Peer::PythonV1(Transport::Sse)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c05_python_v2_killed_on_stdio_is_asked_again_what_only_reads() {
    asks_again_what_only_reads(Peer::PythonV2(Transport::Stdio)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c05_python_v2_killed_on_http_is_asked_again_what_only_reads() {
    asks_again_what_only_reads(Peer::PythonV2(Transport::Http)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c05_python_v2_killed_on_sse_is_asked_again_what_only_reads() {
    asks_again_what_only_reads(Peer::PythonV2(Transport::Sse)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c05_typescript_v2_killed_on_stdio_is_asked_again_what_only_reads() {
    asks_again_what_only_reads(Peer::TypeScriptV2(Transport::Stdio)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c05_typescript_v2_killed_on_http_is_asked_again_what_only_reads() {
    asks_again_what_only_reads(Peer::TypeScriptV2(Transport::Http)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c05_rmcp_killed_on_stdio_is_asked_again_what_only_reads() {
    asks_again_what_only_reads(Peer::Rmcp(Transport::Stdio)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c05_rmcp_killed_on_http_is_asked_again_what_only_reads() {
    asks_again_what_only_reads(Peer::Rmcp(Transport::Http)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c05_python_v1_killed_on_stdio_never_does_twice_what_may_have_been_done() {
    never_does_twice_what_may_have_been_done(Peer::PythonV1(Transport::Stdio)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c05_python_v1_killed_on_http_never_does_twice_what_may_have_been_done() {
    never_does_twice_what_may_have_been_done(Peer::PythonV1(Transport::Http)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c05_python_v1_killed_on_sse_never_does_twice_what_may_have_been_done() {
    never_does_twice_what_may_have_been_done(Peer::PythonV1(Transport::Sse)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c05_python_v2_killed_on_stdio_never_does_twice_what_may_have_been_done() {
    never_does_twice_what_may_have_been_done(Peer::PythonV2(Transport::Stdio)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c05_python_v2_killed_on_http_never_does_twice_what_may_have_been_done() {
    never_does_twice_what_may_have_been_done(Peer::PythonV2(Transport::Http)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c05_python_v2_killed_on_sse_never_does_twice_what_may_have_been_done() {
    never_does_twice_what_may_have_been_done(Peer::PythonV2(Transport::Sse)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c05_typescript_v2_killed_on_stdio_never_does_twice_what_may_have_been_done() {
    never_does_twice_what_may_have_been_done(Peer::TypeScriptV2(Transport::Stdio)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c05_typescript_v2_killed_on_http_never_does_twice_what_may_have_been_done() {
    never_does_twice_what_may_have_been_done(Peer::TypeScriptV2(Transport::Http)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c05_rmcp_killed_on_stdio_never_does_twice_what_may_have_been_done() {
    never_does_twice_what_may_have_been_done(Peer::Rmcp(Transport::Stdio)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c05_rmcp_killed_on_http_never_does_twice_what_may_have_been_done() {
    never_does_twice_what_may_have_been_done(Peer::Rmcp(Transport::Http)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c05_python_v2_killed_on_stdio_is_asked_again_what_the_operator_vouches_for() {
    asks_again_what_the_operator_vouches_for(Peer::PythonV2(Transport::Stdio)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c05_python_v2_killed_on_http_is_asked_again_what_the_operator_vouches_for() {
    asks_again_what_the_operator_vouches_for(Peer::PythonV2(Transport::Http)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c05_rmcp_killed_on_stdio_is_asked_again_what_the_operator_vouches_for() {
    asks_again_what_the_operator_vouches_for(Peer::Rmcp(Transport::Stdio)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c05_rmcp_killed_on_http_is_asked_again_what_the_operator_vouches_for() {
    asks_again_what_the_operator_vouches_for(Peer::Rmcp(Transport::Http)).await;
}
