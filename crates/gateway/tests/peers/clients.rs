//! Official clients with `gripfast serve` and `gripfast stdio`, in front of two sample servers, one of each era. One
//! test for each client and each feature, in every mode and over every transport of the client.

use crate::gateway::Gateway;
use futures_util::future::join_all;
use gripfast_demo::{EraChoice, Options, RunningServer};
use gripfast_testkit::clients::{Client, ClientProcess, Mode};
use gripfast_testkit::peers::Transport;
use gripfast_testkit::wait::within;
use serde_json::{Value, json};

/// The names of the servers in the config, which are those of their eras.
pub(crate) const SERVERS: [&str; 2] = ["legacy", "modern"];

/// Gateway with one sample server of each era.
pub(crate) struct TwoEraGateway {
    demos: Vec<RunningServer>,
    pub(crate) gateway: Gateway,
}

impl TwoEraGateway {
    pub(crate) async fn start() -> Self {
        Self::with("").await
    }

    /// Starts it with these keys of the table `gateway`.
    pub(crate) async fn with(keys: &str) -> Self {
        let mut demos = Vec::new();
        let mut config = format!("{keys}\n");
        for (name, era) in SERVERS.into_iter().zip([EraChoice::Legacy, EraChoice::Modern]) {
            let options = Options { era, ..Options::default() };
            let demo = gripfast_demo::start_http(([127, 0, 0, 1], 0).into(), options).await.unwrap();
            config += &format!("[servers.{name}]\nurl = {:?}\nprotocol = {name:?}\n\n", demo.url());
            demos.push(demo);
        }
        Self { demos, gateway: Gateway::with(&config) }
    }

    /// Waits until no server has a call in flight.
    pub(crate) async fn until_no_calls(&self) {
        for demo in &self.demos {
            within("the end of what was cancelled", demo.until_no_calls()).await;
        }
    }
}

/// Runs `actions` with the client in all of these modes and transports concurrently.
async fn play(client: Client, ways: Vec<(Mode, Transport)>, actions: impl AsyncFn(&mut ClientProcess, Mode)) {
    let fixture = TwoEraGateway::start().await;
    let actions = &actions;
    let played = join_all(ways.into_iter().map(|(mode, over)| {
        let mut driven = client.start(mode, over, &fixture.gateway.target(over));
        async move {
            actions(&mut driven, mode).await;
            driven
        }
    }))
    .await;
    // The clients are still connected, so that no call ends because of a disconnect.
    fixture.until_no_calls().await;
    join_all(played.into_iter().map(ClientProcess::close)).await;
}

fn call(server: &str, tool: &str, arguments: Value) -> Value {
    json!({ "do": "call", "tool": format!("{server}__{tool}"), "arguments": arguments })
}

async fn meets(client: Client) {
    if !client.require() {
        return;
    }
    play(client, [client.modes(), client.auto_modes()].concat(), async |driven, mode| {
        let met = driven.run(json!({ "do": "meet" })).await;
        let version = if mode == Mode::Legacy { "2025-11-25" } else { "2026-07-28" };
        assert_eq!(met["version"], version, "{driven}: {met}");
        // A client that assumes a version does not have to ask for the server.
        assert!(
            met["server"] == "gripfast" || met["server"].is_null() && mode == Mode::Modern,
            "{driven}: {met}"
        );
    })
    .await;
}

async fn lists(client: Client) {
    if !client.require() {
        return;
    }
    play(client, client.modes(), async |driven, _| {
        let tools = ["echo", "add", "sleep", "counter", "fail", "reject", "ask", "crash", "misbehave"];
        let named = |server: &'static str| tools.map(|tool| format!("{server}__{tool}"));
        let expected = json!({
            "tools": SERVERS.map(named).concat(),
            // The same URI at two servers: the later one says whose it is.
            "resources": ["demo://greeting", "demo://counter", "modern+demo://greeting", "modern+demo://counter"],
            "prompts": ["legacy__greet", "modern__greet"],
        });
        assert_eq!(driven.run(json!({ "do": "list" })).await, expected, "{driven}");
    })
    .await;
}

async fn calls(client: Client) {
    if !client.require() {
        return;
    }
    play(client, client.modes(), async |driven, _| {
        for server in SERVERS {
            let echo = driven.run(call(server, "echo", json!({ "text": "größer\n🙂" }))).await;
            assert_eq!(echo["structured"], json!({ "text": "größer\n🙂" }), "{driven}: {server}: {echo}");
            let add = driven.run(call(server, "add", json!({ "a": 2, "b": 3 }))).await;
            assert_eq!(
                (&add["text"], &add["failed"]),
                (&json!("5"), &json!(false)),
                "{driven}: {server}: {add}"
            );
            let failed = driven.run(call(server, "fail", json!({ "message": "as told" }))).await;
            assert_eq!(
                (&failed["text"], &failed["failed"]),
                (&json!("as told"), &json!(true)),
                "{driven}: {failed}"
            );
            let rejected = driven.run(call(server, "reject", json!({}))).await;
            assert_eq!(rejected["error"]["code"], -32602, "{driven}: {server}: {rejected}");
            let prompt =
                json!({ "do": "prompt", "name": format!("{server}__greet"), "arguments": { "name": "Ada" } });
            let prompt = driven.run(prompt).await;
            assert_eq!(prompt["text"], "Please greet Ada in one friendly sentence.", "{driven}: {server}");
        }
        for uri in ["demo://greeting", "modern+demo://greeting"] {
            let read = driven.run(json!({ "do": "read", "uri": uri })).await;
            assert_eq!(read["text"], "Hello from the sample server.", "{driven}: {uri}");
        }
    })
    .await;
}

async fn hears_of_progress(client: Client) {
    if !client.require() {
        return;
    }
    play(client, client.modes(), async |driven, _| {
        for server in SERVERS {
            let slept = driven.run(call(server, "sleep", json!({ "ms": 1000 }))).await;
            assert_eq!(slept["text"], "slept 1000 ms", "{driven}: {server}: {slept}");
            // The clients decide how much of it they report, and in which order: some drop what they read in one go
            // with the answer, and some have each message handled by a task of its own.
            assert!(!slept["progress"].as_array().unwrap().is_empty(), "{driven}: {server}: {slept}");
        }
    })
    .await;
}

async fn is_asked(client: Client) {
    if !client.require() {
        return;
    }
    play(client, client.modes(), async |driven, _| {
        for server in SERVERS {
            let mut ask = call(server, "ask", json!({ "question": "Sure?" }));
            let agreed = driven.run(ask.clone()).await;
            assert_eq!(agreed["text"], "the answer was yes", "{driven}: {server}: {agreed}");
            assert_eq!(agreed["asked"], json!(["Sure?"]), "{driven}: {server}");
            ask["answer"] = json!("decline");
            let declined = driven.run(ask).await;
            assert_eq!(declined["text"], "there was no answer: decline", "{driven}: {server}: {declined}");
        }
    })
    .await;
}

/// `play` waits at the end until the servers have received the cancellation.
async fn cancels(client: Client) {
    if !client.require() {
        return;
    }
    play(client, client.modes(), async |driven, _| {
        for server in SERVERS {
            let mut sleep = call(server, "sleep", json!({ "ms": 3_600_000 }));
            sleep["do"] = json!("abandon");
            assert_eq!(driven.run(sleep).await, json!({ "abandoned": true }), "{driven}: {server}");
            let add = driven.run(call(server, "add", json!({ "a": 2, "b": 3 }))).await;
            assert_eq!(add["text"], "5", "{driven}: {server}: another call is not affected: {add}");
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn python_v1_meets_the_gateway() {
    meets(Client::PythonV1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn python_v1_lists() {
    lists(Client::PythonV1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn python_v1_calls() {
    calls(Client::PythonV1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn python_v1_hears_of_progress() {
    hears_of_progress(Client::PythonV1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn python_v1_is_asked() {
    is_asked(Client::PythonV1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c07_python_v1_cancels() {
    cancels(Client::PythonV1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn python_v2_meets_the_gateway() {
    meets(Client::PythonV2).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn python_v2_lists() {
    lists(Client::PythonV2).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn python_v2_calls() {
    calls(Client::PythonV2).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn python_v2_hears_of_progress() {
    hears_of_progress(Client::PythonV2).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn python_v2_is_asked() {
    is_asked(Client::PythonV2).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c07_python_v2_cancels() {
    cancels(Client::PythonV2).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn typescript_v1_meets_the_gateway() {
    meets(Client::TypeScriptV1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn typescript_v1_lists() {
    lists(Client::TypeScriptV1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn typescript_v1_calls() {
    calls(Client::TypeScriptV1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn typescript_v1_hears_of_progress() {
    hears_of_progress(Client::TypeScriptV1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn typescript_v1_is_asked() {
    is_asked(Client::TypeScriptV1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c07_typescript_v1_cancels() {
    cancels(Client::TypeScriptV1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn typescript_v2_meets_the_gateway() {
    meets(Client::TypeScriptV2).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn typescript_v2_lists() {
    lists(Client::TypeScriptV2).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn typescript_v2_calls() {
    calls(Client::TypeScriptV2).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn typescript_v2_hears_of_progress() {
    hears_of_progress(Client::TypeScriptV2).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn typescript_v2_is_asked() {
    is_asked(Client::TypeScriptV2).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c07_typescript_v2_cancels() {
    cancels(Client::TypeScriptV2).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rmcp_meets_the_gateway() {
    meets(Client::Rmcp).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rmcp_lists() {
    lists(Client::Rmcp).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rmcp_calls() {
    calls(Client::Rmcp).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rmcp_hears_of_progress() {
    hears_of_progress(Client::Rmcp).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rmcp_is_asked() {
    is_asked(Client::Rmcp).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c07_rmcp_cancels() {
    cancels(Client::Rmcp).await;
}
