//! Official clients that find and call tools by search (`exposure = "search"`), in every mode and over every transport
//! of the client, with one sample server of each era behind the gateway. And servers killed meanwhile.

use crate::clients::{SERVERS, TwoEraGateway};
use crate::gateway::Gateway;
use crate::peer_host::{kill_9, listed, spec, stdio};
use futures_util::future::join_all;
use gripfast::Host;
use gripfast::config::ProtocolChoice;
use gripfast::exposure::{Exposure, ExposureSettings};
use gripfast_testkit::clients::{Client, ClientProcess};
use gripfast_testkit::packages::Package;
use gripfast_testkit::peers::{Peer, PeerCommand, Transport, require};
use gripfast_testkit::wait::until;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::Write;
use std::process::{Command, Stdio};

const SEARCH: &str = "exposure = \"search\"";
const OURS: [&str; 4] = ["search_tools", "describe_tools", "call_read_only_tool", "call_tool"];

fn own(tool: &str, arguments: Value) -> Value {
    json!({ "do": "call", "tool": tool, "arguments": arguments })
}

/// A call of a server's tool through `call_tool`.
fn through(server: &str, tool: &str, arguments: Value) -> Value {
    own("call_tool", json!({ "name": format!("{server}__{tool}"), "arguments": arguments }))
}

async fn finds_and_calls(client: Client) {
    if !client.require() {
        return;
    }
    let fixture = TwoEraGateway::with(SEARCH).await;
    let clients = join_all(client.modes().into_iter().map(|(mode, over)| {
        let start = || client.start(mode, over, &fixture.gateway.target(over));
        let (mut driven, mut cancelling) = (start(), start());
        async move {
            finds(&mut driven).await;
            calls(&mut driven).await;
            cancels(&mut cancelling).await;
            [driven, cancelling]
        }
    }))
    .await;
    // The clients are still connected, so that no call ends because of a disconnect.
    fixture.until_no_calls().await;
    join_all(clients.into_iter().flatten().map(ClientProcess::close)).await;
}

async fn finds(driven: &mut ClientProcess) {
    let listed = driven.run(json!({ "do": "list" })).await;
    assert_eq!(listed["tools"], json!(OURS), "{driven}");
    let found = driven.run(own("search_tools", json!({ "query": "add two numbers", "limit": 2 }))).await;
    let mut names: Vec<&str> = found["structured"]["tools"]
        .as_array()
        .unwrap_or_else(|| panic!("{driven}: {found}"))
        .iter()
        .filter_map(|tool| tool["name"].as_str())
        .collect();
    names.sort_unstable();
    assert_eq!(names, ["legacy__add", "modern__add"], "{driven}: {found}");
    let described = driven.run(own("describe_tools", json!({ "names": names }))).await;
    let required = &described["structured"]["tools"][0]["inputSchema"]["required"];
    assert_eq!(*required, json!(["a", "b"]), "{driven}: {described}");
}

/// With a client that has not received any progress yet: rmcp would take that for progress of the call.
async fn cancels(driven: &mut ClientProcess) {
    for server in SERVERS {
        let mut abandoned = through(server, "sleep", json!({ "ms": 3_600_000 }));
        abandoned["do"] = json!("abandon");
        assert_eq!(driven.run(abandoned).await, json!({ "abandoned": true }), "{driven}: {server}");
        let add = driven.run(through(server, "add", json!({ "a": 4, "b": 5 }))).await;
        assert_eq!(add["text"], "9", "{driven}: {server}: another call is not affected: {add}");
    }
}

async fn calls(driven: &mut ClientProcess) {
    for server in SERVERS {
        let echo = driven.run(through(server, "echo", json!({ "text": "größer\n🙂" }))).await;
        assert_eq!(echo["structured"], json!({ "text": "größer\n🙂" }), "{driven}: {server}: {echo}");
        let name = format!("{server}__add");
        let read_only = json!({ "name": name, "arguments": { "a": 2, "b": 3 } });
        let add = driven.run(own("call_read_only_tool", read_only)).await;
        assert_eq!(add["text"], "5", "{driven}: {server}: {add}");
        let failed = driven.run(through(server, "fail", json!({ "message": "as told" }))).await;
        assert_eq!(
            (&failed["text"], &failed["failed"]),
            (&json!("as told"), &json!(true)),
            "{driven}: {failed}"
        );
        let rejected = driven.run(through(server, "reject", json!({}))).await;
        assert_eq!(rejected["error"]["code"], -32602, "{driven}: {server}: {rejected}");
        let slept = driven.run(through(server, "sleep", json!({ "ms": 1000 }))).await;
        assert!(!slept["progress"].as_array().unwrap().is_empty(), "{driven}: {server}: {slept}");
        let agreed = driven.run(through(server, "ask", json!({ "question": "Sure?" }))).await;
        assert_eq!(agreed["text"], "the answer was yes", "{driven}: {server}: {agreed}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn h02_python_v1_finds_and_calls_tools_by_search() {
    finds_and_calls(Client::PythonV1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn h02_python_v2_finds_and_calls_tools_by_search() {
    finds_and_calls(Client::PythonV2).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn h02_typescript_v1_finds_and_calls_tools_by_search() {
    finds_and_calls(Client::TypeScriptV1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn h02_typescript_v2_finds_and_calls_tools_by_search() {
    finds_and_calls(Client::TypeScriptV2).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn h02_rmcp_finds_and_calls_tools_by_search() {
    finds_and_calls(Client::Rmcp).await;
}

/// `kill -9` of the server between two calls, and during one, through a client that uses search.
async fn survives_kills(client: Client) {
    if !client.require() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let counter = dir.path().join("count");
    let gripfast = env!("CARGO_BIN_EXE_gripfast");
    let config = format!(
        "{SEARCH}\n[servers.files]\ncommand = {gripfast:?}\nargs = [\"demo-server\", \"--counter-file\", {counter:?}]\n"
    );
    let gateway = Gateway::with(&config);
    let pid = || u32::try_from(gateway.status()["upstreams"][0]["pid"].as_u64()?).ok();
    let modes = client.modes().into_iter().filter(|(_, over)| *over == Transport::Http);
    for (mode, over) in modes {
        let mut driven = client.start(mode, over, &gateway.target(over));
        let before = driven.run(through("files", "echo", json!({ "text": "before" }))).await;
        assert_eq!(before["text"], "before", "{driven}: {before}");
        kill_9(pid().unwrap());
        let found = driven.run(own("search_tools", json!({ "query": "add numbers", "limit": 1 }))).await;
        assert_eq!(
            found["structured"]["tools"][0]["name"], "files__add",
            "{driven}: while it is down: {found}"
        );
        let after = driven.run(through("files", "echo", json!({ "text": "after" }))).await;
        assert_eq!(after["text"], "after", "{driven}: {after}");
        let asked = driven.run(through("files", "crash", json!({}))).await;
        assert_eq!(
            asked["failed"], true,
            "{driven}: a call that may have been carried out is not repeated: {asked}"
        );
        let counted = driven.run(through("files", "counter", json!({}))).await;
        assert_eq!(counted["failed"], false, "{driven}: {counted}");
        driven.close().await;
    }
    let counts = || std::fs::read_to_string(&counter).map_or(0, |text| text.lines().count());
    let modes = client.modes().into_iter().filter(|(_, over)| *over == Transport::Http).count();
    until("every call is counted once", || counts() == modes).await;
}

/// H02
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b02_calls_by_search_survive_kills_with_python() {
    survives_kills(Client::PythonV2).await;
}

/// H02
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b02_calls_by_search_survive_kills_with_typescript() {
    survives_kills(Client::TypeScriptV2).await;
}

/// A server alone behind a host that estimates its tokens.
async fn tokens_of(command: &PeerCommand) -> (u64, Vec<String>) {
    let host = Host::builder().client_info("peers", "1").build();
    let settings = ExposureSettings { exposure: Exposure::Search, ..ExposureSettings::default() };
    host.set_exposure(settings);
    host.spawn("server", spec(stdio(command), ProtocolChoice::Auto)).unwrap();
    listed(&host, "server").await;
    let snapshot = host.catalog_snapshot();
    let (estimated, _) = snapshot.estimated_tokens();
    let tools: Vec<Value> = serde_json::from_str(&format!("[{}]", snapshot.tools.page(0, 1000).0)).unwrap();
    let given = tools.iter().map(|tool| {
        let given = json!({
            "name": tool["name"],
            "description": tool["description"],
            "inputSchema": tool["inputSchema"],
        });
        given.to_string()
    });
    let given = given.collect();
    host.shutdown().await;
    (estimated, given)
}

/// Tokens of each text by the tokenizer, with both of its encodings.
fn count_tokens(texts: &[&String]) -> BTreeMap<String, Vec<u64>> {
    let PeerCommand { program, args, env } = Package::Tokenizer.command([]);
    let mut command = Command::new(program);
    command.args(args).envs(env);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(json!(texts).to_string().as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    serde_json::from_slice(&output.stdout).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn h05_estimated_tokens_are_within_10_percent_of_a_tokenizer() {
    let packages = [Package::Filesystem, Package::Memory, Package::Time, Package::Git, Package::Sqlite];
    let everything = Peer::ServerEverything(Transport::Stdio);
    if !(packages.into_iter().all(Package::require) && require(everything) && Package::Tokenizer.require()) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let place = |name: &str| dir.path().join(name).display().to_string();
    let commands = [
        everything.command(),
        Package::Filesystem.command([&*dir.path().display().to_string()]),
        Package::Memory.command([]),
        Package::Time.command([]),
        Package::Git.command([]),
        Package::Sqlite.command(["--db-path", &*place("test.db")]),
        PeerCommand {
            program: env!("CARGO_BIN_EXE_gripfast").into(),
            args: vec!["demo-server".to_owned()],
            env: Vec::new(),
        },
    ];
    let estimates = join_all(commands.iter().map(tokens_of)).await;
    let texts: Vec<&String> = estimates.iter().flat_map(|(_, texts)| texts).collect();
    for (encoding, counts) in count_tokens(&texts) {
        let mut counts = counts.into_iter();
        for (command, (estimated, texts)) in commands.iter().zip(&estimates) {
            let counted: u64 = counts.by_ref().take(texts.len()).sum();
            let error = estimated.abs_diff(counted) * 100 / counted;
            assert!(error < 10, "{encoding}: {estimated} estimated, {counted} counted: {command:?}");
        }
    }
}
