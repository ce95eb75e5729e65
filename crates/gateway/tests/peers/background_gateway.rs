//! Official clients that share one gateway: each starts `gripfast stdio --background`.

use crate::peer_host::kill_9;
use gripfast_testkit::clients::{Client, ClientProcess, Mode};
use gripfast_testkit::peers::Transport;
use gripfast_testkit::proc;
use gripfast_testkit::wait::until;
use serde_json::json;
use std::path::Path;

const GRIPFAST: &str = env!("CARGO_BIN_EXE_gripfast");

/// Process ids of the gateways that started the server, in order: the parents of its processes.
fn starters(starts: &Path) -> Vec<u32> {
    let text = std::fs::read_to_string(starts).unwrap_or_default();
    text.lines().map(|line| line.parse().unwrap()).collect()
}

/// Waits until a process has ended, also if its parent has not reaped it. Its main thread can be a zombie while other
/// threads still hold its sockets open.
async fn until_ended(pid: u32) {
    until("the end of a gateway", || proc::has_ended(pid)).await;
}

async fn adds(client: &mut ClientProcess) {
    let call = json!({ "do": "call", "tool": "demo__add", "arguments": { "a": 2, "b": 3 } });
    let added = client.run(call).await;
    assert_eq!(added["text"], "5", "{client}: {added}");
}

#[tokio::test]
async fn three_clients_share_one_gateway_and_go_on_when_it_is_killed() {
    let kinds = [
        (Client::PythonV1, Mode::Legacy),
        (Client::PythonV2, Mode::Modern),
        (Client::TypeScriptV1, Mode::Legacy),
    ];
    if !kinds.iter().all(|(client, _)| client.require()) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).display().to_string();
    let (config, starts) = (path("gripfast.toml"), dir.path().join("starts"));
    let script = format!("echo $PPID >> {}; exec {GRIPFAST} demo-server", starts.display());
    let text = format!(
        "[gateway]\nlisten = \"127.0.0.1:0\"\nlinger = \"1s\"\nstartup_wait = \"60s\"\n\
         [servers.demo]\ncommand = \"sh\"\nargs = [\"-c\", {script:?}]\n"
    );
    std::fs::write(&config, text).unwrap();
    let state = path("state");
    let target = [GRIPFAST, "stdio", "--background", "--config", &config, "--state-dir", &state];
    let target = target.map(str::to_owned);
    let mut clients: Vec<ClientProcess> =
        kinds.iter().map(|(client, mode)| client.start(*mode, Transport::Stdio, &target)).collect();
    for client in &mut clients {
        adds(client).await;
    }
    let first = starters(&starts);
    assert_eq!(first.len(), 1, "one process of the server for all clients");
    kill_9(first[0]);
    until_ended(first[0]).await;
    for client in &mut clients {
        adds(client).await;
    }
    let gateways = starters(&starts);
    assert_eq!(gateways.len(), 2, "one process of the server again: {gateways:?}");
    assert_ne!(gateways[0], gateways[1]);
    for client in clients {
        client.close().await;
    }
    // `linger` after the last of them.
    until_ended(gateways[1]).await;
}
