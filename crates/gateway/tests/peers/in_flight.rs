//! A server that dies in the middle of a call. What only reads is asked again; what may have been done is not.

use crate::scene::{Scene, call, within};
use gripfast::{Answer, CallError, Code, Fate};
use gripfast_testkit::peers::{Peer, Transport, require};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

type Calls = Vec<(&'static str, JoinHandle<Result<Answer, CallError>>)>;

/// One call in each way, all under way.
fn begin(scene: &Scene, tool: &'static str, arguments: &Value) -> Calls {
    let begin = |name: &'static str| {
        let (host, arguments) = (scene.host.clone(), arguments.clone());
        (name, tokio::spawn(async move { call(&host, name, tool, arguments).await }))
    };
    scene.ways().iter().map(|way| begin(way.name)).collect()
}

async fn asks_again_what_only_reads(peer: Peer) {
    if !require(peer) {
        return;
    }
    let mut scene = Scene::of(peer).await;
    let (tool, arguments, done) = match peer {
        Peer::ServerEverything(_) => (
            "trigger-long-running-operation",
            json!({ "duration": 1, "steps": 1 }),
            "Long running operation completed. Duration: 1 seconds, Steps: 1.",
        ),
        _ => ("sleep", json!({ "ms": 1000 }), "slept 1000 ms"),
    };
    let calls = begin(&scene, tool, &arguments);
    scene.until_all_in_flight().await;
    for way in scene.ways() {
        // What was written before this has been read before it.
        scene.echoes(way.name, "meanwhile").await;
    }
    scene.kill();
    scene.start_again();
    for (name, call) in calls {
        let answer = within(name, call).await.unwrap();
        let answer = answer.unwrap_or_else(|error| panic!("{name}: {error:?}\n{:#?}", scene.status(name)));
        assert!(answer.result().unwrap().get().contains(done), "{name}: {answer:?}");
    }
    scene.end().await;
}

async fn never_does_twice_what_may_have_been_done(peer: Peer) {
    if !require(peer) {
        return;
    }
    let mut scene = Scene::of(peer).await;
    let ways = scene.ways().len();
    let calls = begin(&scene, "counter", &json!({ "ms": 600_000 }));
    scene.until_counted(ways).await;
    scene.kill();
    scene.start_again();
    for (name, call) in calls {
        let error = within(name, call).await.unwrap().unwrap_err();
        assert_eq!((error.code, error.outcome), (Code::OutcomeUnknown, Fate::Unknown), "{name}: {error:?}");
        assert!(!error.text.is_empty() && error.server == name, "{error:?}");
    }
    for (more, way) in (1..).zip(scene.ways()) {
        scene.text_of(way.name, "counter", json!({})).await;
        assert_eq!(scene.count(), ways + more, "{}: the first calls ran once each, this one too", way.name);
    }
    scene.end().await;
}

async fn asks_again_what_the_operator_vouches_for(peer: Peer) {
    if !require(peer) {
        return;
    }
    let mut scene = Scene::with(peer, |spec| spec.replay.safe.push("counter".to_owned())).await;
    let ways = scene.ways().len();
    let calls = begin(&scene, "counter", &json!({ "ms": 1000 }));
    scene.until_counted(ways).await;
    scene.kill();
    scene.start_again();
    for (name, call) in calls {
        within(name, call).await.unwrap().unwrap();
    }
    assert_eq!(scene.count(), 2 * ways, "each ran once before and once after");
    scene.end().await;
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
