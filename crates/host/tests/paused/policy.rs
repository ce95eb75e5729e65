//! Who may see and use what, as a program that embeds the host sees it.

use crate::world::*;
use gripfast::transport::Listener;
use gripfast::{
    CallOptions, Client, ClientKey, ClientPolicy, Code, Host, Kind, Lists, Policy, Principal, State,
    SubscribeOptions, Verdict,
};
use gripfast_core::policy::Pattern;
use gripfast_core::supervise::upstream::LinkKind;
use serde_json::{Value, json};
use std::sync::Arc;

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

fn client(name: &str) -> Client {
    Client::one(ClientKey::new(name)).on_behalf_of(Principal::named(name))
}

async fn up(host: &Host) -> Server {
    let server = Server::new(LinkKind::Process);
    add(host, "it", spec(), &server);
    until(host, State::Ready).await;
    server
}

async fn asks(host: &Host, name: &str, method: &str, params: Value) -> Result<(), gripfast::CallError> {
    let options = CallOptions { client: Some(client(name)), ..CallOptions::default() };
    host.request_with("it", method, Some(raw(params)), options).await.map(drop)
}

/// A host on which `ci` may only read, and nobody whose name begins with `bot` may do anything.
async fn with_clients() -> (Host, Server) {
    let only_reading = Policy {
        tools: Lists::of_client(&words(&["it/@read_only"]), &[]).unwrap(),
        resources: Lists::of_client(&words(&["it/file:///srv/*"]), &[]).unwrap(),
        ..Policy::default()
    };
    let nothing = Policy { tools: Lists::of_client(&[], &[]).unwrap(), ..Policy::default() };
    let host = Host::builder()
        .clients(vec![
            ClientPolicy { clients: "ci".to_owned(), policy: only_reading },
            ClientPolicy { clients: "bot*".to_owned(), policy: nothing },
        ])
        .build();
    let server = up(&host).await;
    (host, server)
}

#[tokio::test(start_paused = true)]
async fn g01_what_a_guard_denies_is_not_listed_and_not_called_and_the_error_has_its_reason() {
    let host = Host::builder()
        .guard(|server, tool| match (server, tool) {
            ("it", "act") => Verdict::Deny("not on Sundays".to_owned()),
            _ => Verdict::Allow,
        })
        .build();
    let server = up(&host).await;
    assert_eq!(tool_names(&host).await, ["read"]);
    assert!(host.menu().menu.tool("it__act").is_none());
    assert_eq!(host.status_of("it").unwrap().tools, 1);
    let error = call(&host, "act", "k").await.unwrap_err();
    assert_eq!(error.code, Code::Denied);
    assert_eq!(error.text, "tool `act` of upstream `it` is denied by the program: not on Sundays");
    assert_eq!(server.executed("k"), 0);
    call(&host, "read", "k").await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn g01_each_client_sees_and_calls_what_its_lists_allow() {
    let (host, server) = with_clients().await;
    let sees = |name: &str| {
        let menu = host.menu_for(&Principal::named(name));
        let names: Vec<String> = menu.menu.tools.entries.iter().map(|entry| entry.public.clone()).collect();
        assert_eq!(names.len(), menu.tools.len(), "what is rendered is what is there");
        names
    };
    assert_eq!(sees("ann"), ["it__act", "it__read"]);
    assert_eq!(sees("ci"), ["it__read"]);
    assert_eq!(sees("bot-7"), Vec::<String>::new());
    let act = json!({ "name": "act", "arguments": { "key": "a" } });
    let error = asks(&host, "ci", "tools/call", act.clone()).await.unwrap_err();
    assert_eq!(error.code, Code::Denied);
    assert!(error.text.ends_with("is not allowed by anything in clients.ci.tools.allow"), "{error}");
    assert_eq!(server.executed("a"), 0);
    asks(&host, "ann", "tools/call", act).await.unwrap();
    asks(&host, "ci", "tools/call", json!({ "name": "read", "arguments": {} })).await.unwrap();
    call(&host, "act", "b").await.unwrap();
    let reason = host.explain(Some(&Principal::named("bot-1")), "it", Kind::Tool, "read").unwrap().reason;
    assert_eq!(reason, "not allowed by anything in clients.bot*.tools.allow");
}

/// A method that no list knows did whatever it does for a client that may only read.
#[tokio::test(start_paused = true)]
async fn g01_unknown_methods_are_refused_under_an_allow_list_unless_methods_names_them() {
    let (host, server) = with_clients().await;
    let run = json!({ "program": "rm" });
    for name in ["ci", "bot-1"] {
        let error = asks(&host, name, "shell/run", run.clone()).await.unwrap_err();
        assert_eq!(error.code, Code::Denied, "{name}");
        let list = if name == "ci" { "ci" } else { "bot*" };
        assert!(error.text.ends_with(&format!("by anything in clients.{list}.methods")), "{error}");
    }
    assert_eq!(server.received("shell/run"), 0);
    asks(&host, "ann", "shell/run", run.clone()).await.unwrap();
    asks(&host, "ci", "tasks/get", json!({ "taskId": "1" })).await.unwrap();
    assert_eq!(server.received("shell/run"), 1);

    let tools = Lists::of_client(&words(&["it/@read_only"]), &[]).unwrap();
    let methods = Some(vec![Pattern::new("skills/*")]);
    let policy = Policy { tools, methods, ..Policy::default() };
    host.set_clients(vec![ClientPolicy { clients: "ci".to_owned(), policy }]);
    asks(&host, "ci", "skills/list", json!({})).await.unwrap();
    assert_eq!(asks(&host, "ci", "shell/run", run).await.unwrap_err().code, Code::Denied);

    // What a server allows holds for everybody.
    let mut restricted = spec();
    restricted.policy.tools = Lists::of_server(&words(&["read"]), &[]).unwrap();
    host.replace("it", restricted).unwrap();
    assert_eq!(asks(&host, "ann", "skills/list", json!({})).await.unwrap_err().code, Code::Denied);
}

#[tokio::test(start_paused = true)]
async fn g01_clients_with_the_same_lists_share_one_view_until_the_menu_changes() {
    let (host, server) = with_clients().await;
    let view = |name: &str| host.menu_for(&Principal::named(name));
    assert!(Arc::ptr_eq(&view("bot-1"), &view("bot-2")));
    assert!(Arc::ptr_eq(&view("ann"), &host.menu()), "whoever has no lists sees what there is");
    let before = view("ci");
    server.offer(&["other"]);
    host.reconnect("it").unwrap();
    let mut changes = host.menu_changes();
    while host.menu().tools.len() != 1 {
        changes.changed().await.unwrap();
    }
    assert!(view("ci").tools.is_empty(), "it does not say that it only reads");
    assert!(view("ci").revision > before.revision);
    host.set_clients(Vec::new());
    assert_eq!(view("ci").tools.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn g01_no_other_request_leads_to_what_is_denied() {
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
        let error = asks(&host, "ci", method, params.clone()).await.unwrap_err();
        assert_eq!(error.code, Code::Denied, "{method} {params}: {error}");
        assert_eq!(server.received(method), before);
        asks(&host, "ann", method, params).await.unwrap();
    }
    asks(&host, "ci", "resources/read", json!({ "uri": "file:///srv/a" })).await.unwrap();
    let options = SubscribeOptions { client: Some(client("ci")), ..SubscribeOptions::default() };
    let denied = host.subscribe("it", "file:///etc/x", Arc::new(Deaf), options).await.unwrap_err();
    assert_eq!(denied.code, Code::Denied);
    assert_eq!(server.received("resources/subscribe"), 0);
}

#[tokio::test(start_paused = true)]
async fn g01_a_request_that_can_be_read_in_two_ways_is_refused() {
    let (host, server) = with_clients().await;
    for params in [r#"{"name":"read","name":"act"}"#, r#"{"name":"read","NAME":"act"}"#] {
        let options = CallOptions { client: Some(client("ci")), ..CallOptions::default() };
        let params = gripfast::RawValue::from_string(params.to_owned()).unwrap();
        let error = host.request_with("it", "tools/call", Some(params), options).await.unwrap_err();
        assert_eq!(error.code, Code::InvalidRequest, "{error}");
    }
    assert_eq!(server.received("tools/call"), 0);
}

struct Deaf;

impl Listener for Deaf {
    fn said(&self, _message: &[u8]) {}
}
