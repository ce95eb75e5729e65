//! Access policy, as an embedding program sees it.

use crate::memory_server::*;
use gripfast::JsonText;
use gripfast::transport::Listener;
use gripfast::{
    CallOptions, Client, ClientKey, ClientPolicy, Code, GuardVerdict, Host, ItemKind, Lists, Policy,
    Principal, State, SubscribeOptions,
};
use gripfast_core::policy::Pattern;
use gripfast_core::supervise::upstream::LinkKind;
use serde_json::{Value, json};
use std::sync::Arc;

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

fn client(name: &str) -> Client {
    Client::with_key(ClientKey::new(name)).with_principal(Principal::new(name))
}

async fn add_ready_server(host: &Host) -> MemoryServer {
    let server = MemoryServer::new(LinkKind::Process);
    add(host, "it", spec(), &server);
    wait_for_state(host, State::Ready).await;
    server
}

async fn send_request(
    host: &Host,
    name: &str,
    method: &str,
    params: Value,
) -> Result<(), gripfast::CallError> {
    let options = CallOptions { client: Some(client(name)), ..CallOptions::default() };
    host.request_with("it", method, Some(&raw(params)), options).await.map(drop)
}

/// A host on which `ci` may only read, and clients whose name begins with `bot` may do nothing.
async fn with_clients() -> (Host, MemoryServer) {
    let only_reading = Policy {
        tools: Lists::of_client(&words(&["it/@read_only"]), &[]).unwrap(),
        resources: Lists::of_client(&words(&["it/file:///srv/*"]), &[]).unwrap(),
        ..Policy::default()
    };
    let nothing = Policy { tools: Lists::of_client(&[], &[]).unwrap(), ..Policy::default() };
    let host = Host::builder()
        .client_policies(vec![
            ClientPolicy { clients: "ci".to_owned(), policy: only_reading },
            ClientPolicy { clients: "bot*".to_owned(), policy: nothing },
        ])
        .build();
    let server = add_ready_server(&host).await;
    (host, server)
}

#[tokio::test(start_paused = true)]
async fn g01_tools_denied_by_a_guard_are_hidden_and_refused_with_the_reason() {
    let host = Host::builder()
        .guard(|server, tool| match (server, tool) {
            ("it", "act") => GuardVerdict::Deny("not on Sundays".to_owned()),
            _ => GuardVerdict::Allow,
        })
        .build();
    let server = add_ready_server(&host).await;
    assert_eq!(tool_names(&host).await, ["read"]);
    assert!(host.catalog_snapshot().merged.tool("it__act").is_none());
    assert_eq!(host.server_status("it").unwrap().tools, 1);
    let error = call(&host, "act", "k").await.unwrap_err();
    assert_eq!(error.code, Code::Denied);
    assert_eq!(error.text, "tool `act` of server `it` is denied by the program: not on Sundays");
    assert_eq!(server.executed("k"), 0);
    call(&host, "read", "k").await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn g01_each_client_sees_and_calls_what_its_lists_allow() {
    let (host, server) = with_clients().await;
    let sees = |name: &str| {
        let menu = host.catalog_snapshot_for(&Principal::new(name));
        let names: Vec<String> = menu.merged.tools.entries.iter().map(|entry| entry.public.clone()).collect();
        assert_eq!(names.len(), menu.tools.len(), "what is rendered is what is there");
        names
    };
    assert_eq!(sees("ann"), ["it__act", "it__read"]);
    assert_eq!(sees("ci"), ["it__read"]);
    assert_eq!(sees("bot-7"), Vec::<String>::new());
    let act = json!({ "name": "act", "arguments": { "key": "a" } });
    let error = send_request(&host, "ci", "tools/call", act.clone()).await.unwrap_err();
    assert_eq!(error.code, Code::Denied);
    assert!(error.text.ends_with("is not allowed by any entry of clients.ci.tools.allow"), "{error}");
    assert_eq!(server.executed("a"), 0);
    send_request(&host, "ann", "tools/call", act).await.unwrap();
    send_request(&host, "ci", "tools/call", json!({ "name": "read", "arguments": {} })).await.unwrap();
    call(&host, "act", "b").await.unwrap();
    let reason =
        host.explain_access(Some(&Principal::new("bot-1")), "it", ItemKind::Tool, "read").unwrap().reason;
    assert_eq!(reason, "not allowed by any entry of clients.bot*.tools.allow");
}

/// Regression: a method that no list covers was executed for a read-only client.
#[tokio::test(start_paused = true)]
async fn g01_unknown_methods_are_refused_under_an_allow_list_unless_methods_names_them() {
    let (host, server) = with_clients().await;
    let run = json!({ "program": "rm" });
    for name in ["ci", "bot-1"] {
        let error = send_request(&host, name, "shell/run", run.clone()).await.unwrap_err();
        assert_eq!(error.code, Code::Denied, "{name}");
        let list = if name == "ci" { "ci" } else { "bot*" };
        assert!(error.text.ends_with(&format!("by any entry of clients.{list}.methods")), "{error}");
    }
    assert_eq!(server.received("shell/run"), 0);
    send_request(&host, "ann", "shell/run", run.clone()).await.unwrap();
    send_request(&host, "ci", "tasks/get", json!({ "taskId": "1" })).await.unwrap();
    assert_eq!(server.received("shell/run"), 1);

    let tools = Lists::of_client(&words(&["it/@read_only"]), &[]).unwrap();
    let methods = Some(vec![Pattern::new("skills/*")]);
    let policy = Policy { tools, methods, ..Policy::default() };
    host.set_client_policies(vec![ClientPolicy { clients: "ci".to_owned(), policy }]);
    send_request(&host, "ci", "skills/list", json!({})).await.unwrap();
    assert_eq!(send_request(&host, "ci", "shell/run", run).await.unwrap_err().code, Code::Denied);

    // Restrictions of a server apply to all clients.
    let mut restricted = spec();
    restricted.policy.tools = Lists::of_server(&words(&["read"]), &[]).unwrap();
    host.replace_server("it", restricted).unwrap();
    assert_eq!(send_request(&host, "ann", "skills/list", json!({})).await.unwrap_err().code, Code::Denied);
}

#[tokio::test(start_paused = true)]
async fn g01_clients_with_equal_lists_share_one_view_until_the_catalog_changes() {
    let (host, server) = with_clients().await;
    let view = |name: &str| host.catalog_snapshot_for(&Principal::new(name));
    assert!(Arc::ptr_eq(&view("bot-1"), &view("bot-2")));
    assert!(Arc::ptr_eq(&view("ann"), &host.catalog_snapshot()), "a client without lists sees everything");
    let before = view("ci");
    server.set_tool_names(&["other"]);
    host.reconnect("it").unwrap();
    let mut changes = host.catalog_changes();
    while host.catalog_snapshot().tools.len() != 1 {
        changes.changed().await.unwrap();
    }
    assert!(view("ci").tools.is_empty(), "it does not say that it only reads");
    assert!(view("ci").revision > before.revision);
    host.set_client_policies(Vec::new());
    assert_eq!(view("ci").tools.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn g01_no_other_request_reaches_denied_items() {
    let (host, server) = with_clients().await;
    for (method, params) in [
        ("resources/read", json!({ "uri": "file:///etc/passwd" })),
        ("resources/read", json!({ "uri": "file:///srv/../etc/passwd" })),
        ("resources/read", json!({ "uri": "file:///srv/%2e%2e/etc/passwd" })),
        ("completion/complete", json!({ "ref": { "uri": "file:///{path}" } })),
        ("tools/call_later", json!({ "name": "act" })),
        ("vendor/look", json!({ "ref": { "uri": "file:///etc/passwd" } })),
    ] {
        let before = server.received(method);
        let error = send_request(&host, "ci", method, params.clone()).await.unwrap_err();
        assert_eq!(error.code, Code::Denied, "{method} {params}: {error}");
        assert_eq!(server.received(method), before);
        send_request(&host, "ann", method, params).await.unwrap();
    }
    send_request(&host, "ci", "resources/read", json!({ "uri": "file:///srv/a" })).await.unwrap();
    let options = SubscribeOptions { client: Some(client("ci")), ..SubscribeOptions::default() };
    let denied = host.subscribe("it", "file:///etc/x", Arc::new(IgnoresMessages), options).await.unwrap_err();
    assert_eq!(denied.code, Code::Denied);
    assert_eq!(server.received("resources/subscribe"), 0);
}

#[tokio::test(start_paused = true)]
async fn g01_an_ambiguous_request_is_refused() {
    let (host, server) = with_clients().await;
    for params in [r#"{"name":"read","name":"act"}"#, r#"{"name":"read","NAME":"act"}"#] {
        let options = CallOptions { client: Some(client("ci")), ..CallOptions::default() };
        let params = JsonText::parse(params.to_owned()).unwrap();
        let error = host.request_with("it", "tools/call", Some(&params), options).await.unwrap_err();
        assert_eq!(error.code, Code::InvalidRequest, "{error}");
    }
    assert_eq!(server.received("tools/call"), 0);
}

struct IgnoresMessages;

impl Listener for IgnoresMessages {
    fn on_message(&self, _message: &[u8]) {}
}
