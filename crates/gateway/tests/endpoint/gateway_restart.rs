//! Gateway killed and restarted: the session of a legacy client keeps its log level and subscriptions.

use crate::client::{HttpClient, LEGACY, LegacyClient, call, request};
use crate::test_gateway::{GRIPFAST, at, demo_with, file_of};
use gripfast_demo::{EraChoice, Options};
use gripfast_testkit::wait::within;
use serde_json::{Value, json};
use std::path::Path;
use std::process::Stdio;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

const COUNTER: &str = "demo://counter";
const GREETING: &str = "demo://greeting";

/// `gripfast serve` as a process of its own.
struct GatewayProcess {
    process: Child,
    http: HttpClient,
}

impl GatewayProcess {
    async fn with(directory: &Path) -> Self {
        let mut command = Command::new(GRIPFAST);
        command.args(["serve", "--listen", "127.0.0.1:0", "--config"]).arg(directory.join("gripfast.toml"));
        command.arg("--state-dir").arg(directory.join("state"));
        let mut process =
            command.stdout(Stdio::piped()).stderr(Stdio::null()).kill_on_drop(true).spawn().unwrap();
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let line = within("the gateway's start", lines.next_line()).await.unwrap().unwrap();
        let address = line.split_whitespace().find_map(|word| word.strip_suffix("/mcp"));
        let http = HttpClient::at(address.unwrap().trim_start_matches("http://"));
        Self { process, http }
    }

    async fn killed(mut self) {
        self.process.kill().await.unwrap();
    }
}

/// URI of the next resource update, after the list changes that a new process sends.
async fn updated(stream: &mut crate::client::EventStream) -> Value {
    loop {
        let told = stream.message().await;
        if told["method"] == "notifications/resources/updated" {
            return told["params"]["uri"].clone();
        }
    }
}

#[tokio::test]
async fn d04_log_level_and_subscriptions_of_a_client_survive_a_killed_gateway() {
    for (era, protocol) in [(EraChoice::Legacy, "legacy"), (EraChoice::Modern, "modern")] {
        let demo = demo_with(Options { era, ..Options::default() }).await;
        let directory = tempfile::tempdir().unwrap();
        let config = file_of(&at("demo", &demo.url(), protocol, &[]));
        std::fs::write(directory.path().join("gripfast.toml"), config).unwrap();

        let serving = GatewayProcess::with(directory.path()).await;
        let (client, quiet) =
            (LegacyClient::connect(&serving.http).await, LegacyClient::connect(&serving.http).await);
        client.request("logging/setLevel", json!({ "level": "info" })).await;
        quiet.request("logging/setLevel", json!({ "level": "error" })).await;
        for uri in [COUNTER, GREETING] {
            let subscribed = client.request("resources/subscribe", json!({ "uri": uri })).await;
            assert_eq!(subscribed["result"], json!({}), "{subscribed}");
        }
        client.request("resources/unsubscribe", json!({ "uri": GREETING })).await;
        serving.killed().await;

        let serving = GatewayProcess::with(directory.path()).await;
        let came_back = |session: &str| LegacyClient::with_session(&serving.http, session);
        let (client, quiet) = (came_back(&client.session), came_back(&quiet.session));
        let mut stream = client.open_stream(None).await;
        assert_eq!(stream.status, 200);
        assert_eq!(updated(&mut stream).await, COUNTER, "{protocol}: it may have missed a change");
        quiet.call_tool("demo__counter", json!({})).await;
        assert_eq!(updated(&mut stream).await, COUNTER, "{protocol}: and goes on hearing of it");
        let echo = request(7, "tools/call", &call("demo__echo", json!({ "text": "hi" })));
        let told = client.post(&echo).await;
        assert!(told.text.contains("notifications/message"), "{protocol}: {told:?}");
        let told = quiet.post(&echo).await;
        assert!(!told.text.contains("notifications/message"), "{protocol}: {told:?}");

        // A new client has none of these settings.
        let hello = serving.http.initialize(LEGACY).await;
        let new = came_back(hello.headers["mcp-session-id"].to_str().unwrap());
        let mut silent = new.open_stream(None).await;
        client.call_tool("demo__counter", json!({})).await;
        assert_eq!(updated(&mut stream).await, COUNTER);
        assert!(silent.is_silent().await);
    }
}
