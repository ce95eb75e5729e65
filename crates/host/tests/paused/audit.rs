//! What is written down of requests and decisions.

use crate::world::*;
use gripfast::{
    AuditFinding, AuditKeeps, AuditOptions, BudgetSpec, CallOptions, Client, ClientKey, Code, Host, Pattern,
    Per, Principal, State, ToolRule, Verdict, Window,
};
use gripfast_core::supervise::upstream::LinkKind;
use serde_json::{Value, json};
use std::path::Path;
use std::time::Duration;

async fn host(directory: &Path, keeps: AuditKeeps, fail_closed: bool) -> (Host, Server) {
    let options = AuditOptions { keeps, fail_closed, ..AuditOptions::default() };
    let guard = |_: &str, tool: &str| match tool {
        "act" => Verdict::Deny("never".to_owned()),
        _ => Verdict::Allow,
    };
    let host = Host::builder().state_dir(Some(directory.to_owned())).audit(options).guard(guard).build();
    let server = Server::new(LinkKind::Process);
    add(&host, "it", spec(), &server);
    until(&host, State::Ready).await;
    (host, server)
}

async fn calls(host: &Host, tool: &str, arguments: Value) -> Result<(), gripfast::CallError> {
    let client = Client::one(ClientKey::new("a")).on_behalf_of(Principal::named("ann")).named("editor 1.0");
    let options = CallOptions { client: Some(client), ..CallOptions::default() };
    let params = raw(json!({ "name": tool, "arguments": arguments }));
    host.request_with("it", "tools/call", Some(params), options).await.map(drop)
}

fn lines(directory: &Path) -> Vec<Value> {
    let files = std::fs::read_dir(directory.join("audit")).unwrap();
    let texts = files.map(|file| std::fs::read_to_string(file.unwrap().path()).unwrap());
    let all: Vec<String> = texts.collect();
    all.iter().flat_map(|text| text.lines()).map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[tokio::test(start_paused = true)]
async fn g05_every_request_is_written_down_with_what_was_decided_and_no_argument() {
    let directory = tempfile::tempdir().unwrap();
    let (host, server) = host(directory.path(), AuditKeeps::Digest, false).await;
    calls(&host, "read", json!({ "key": "k", "note": "private words" })).await.unwrap();
    assert_eq!(calls(&host, "act", json!({})).await.unwrap_err().code, Code::Denied);
    server.next_acts([Act::Hang]);
    let given_up = calls(&host, "read", json!({}));
    tokio::select! {
        _ = given_up => panic!("it hangs"),
        () = settle() => {}
    }
    host.shutdown().await;
    assert_eq!((host.audit_status().lines, host.audit_status().lost), (3, 0));
    let lines = lines(directory.path());
    let shape: Vec<_> = lines
        .iter()
        .map(|line| {
            let word = |member: &str| line[member].as_str().unwrap_or("-").to_owned();
            ["client", "says_it_is", "server", "item", "decision", "outcome", "code"].map(word).join(" ")
        })
        .collect();
    assert_eq!(
        shape,
        [
            "ann editor 1.0 it read allowed done -",
            "ann editor 1.0 it act denied not_sent denied",
            "ann editor 1.0 it read allowed - cancelled",
        ]
    );
    assert_eq!(lines[1]["reason"], "tool `act` of upstream `it` is denied by the program: never");
    assert_eq!(lines[0]["sha256"].as_str().unwrap().len(), 64);
    assert!(!format!("{lines:?}").contains("private words"));
}

#[tokio::test(start_paused = true)]
async fn g05_ledger_and_audit_name_the_principal_and_apart_from_it_what_the_client_calls_itself() {
    let directory = tempfile::tempdir().unwrap();
    let (host, _server) = host(directory.path(), AuditKeeps::Digest, false).await;
    let ann = || Client::many(ClientKey::new("a")).on_behalf_of(Principal::named("ann"));
    let meta = json!({ "io.modelcontextprotocol/clientInfo": { "name": "bob", "version": "1" } });
    for (client, params) in
        [(ann().named("admin"), json!({ "name": "read" })), (ann(), json!({ "name": "read", "_meta": meta }))]
    {
        let options = CallOptions { client: Some(client), ..CallOptions::default() };
        host.request_with("it", "tools/call", Some(raw(params)), options).await.unwrap();
    }
    host.call_by_operator("it", "read", None).await.unwrap();
    host.call("it", "read", None).await.unwrap();
    host.shutdown().await;
    let told = |line: &Value| (line["client"].clone(), line["says_it_is"].clone());
    let audited: Vec<_> = lines(directory.path()).iter().map(told).collect();
    let expected = [("ann", "admin"), ("ann", "bob 1"), ("admin", ""), ("", "")];
    let or_null = |text: &str| if text.is_empty() { Value::Null } else { json!(text) };
    assert_eq!(audited, expected.map(|(principal, client)| (or_null(principal), or_null(client))));
    let mut rows =
        gripfast::ledger::Calls::in_directory(directory.path(), gripfast::ledger::Query::default())
            .unwrap()
            .rows;
    rows.reverse();
    let noted: Vec<_> =
        rows.iter().map(|row| (row.subject.principal.as_str(), row.subject.client.as_str())).collect();
    assert_eq!(noted, expected);
}

#[tokio::test(start_paused = true)]
async fn g05_a_line_that_is_changed_or_taken_out_of_the_audit_log_is_found() {
    let directory = tempfile::tempdir().unwrap();
    assert_eq!(gripfast::verify_audit(directory.path()).unwrap(), []);
    let (host, _server) = host(directory.path(), AuditKeeps::Digest, false).await;
    for _ in 0..3 {
        calls(&host, "read", json!({})).await.unwrap();
    }
    host.shutdown().await;
    let finding = || gripfast::verify_audit(directory.path()).unwrap().remove(0).finding;
    assert_eq!(finding(), AuditFinding::Whole { lines: 3 });
    let path = gripfast::verify_audit(directory.path()).unwrap().remove(0).path;
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, text.replacen("\"ann\"", "\"bob\"", 2)).unwrap();
    assert_eq!(finding(), AuditFinding::Broken { line: 1 });
    let lines: Vec<&str> = text.lines().collect();
    std::fs::write(&path, format!("{}\n{}\n", lines[0], lines[2])).unwrap();
    assert_eq!(finding(), AuditFinding::Broken { line: 2 });
}

#[tokio::test(start_paused = true)]
async fn g05_what_the_cache_a_budget_or_a_pin_decided_has_a_line_too() {
    let directory = tempfile::tempdir().unwrap();
    let options = AuditOptions { keeps: AuditKeeps::Digest, ..AuditOptions::default() };
    let any = || Pattern::new("*");
    let budget = BudgetSpec {
        name: "few".to_owned(),
        client: any(),
        server: any(),
        tool: any(),
        per: Per::default(),
        calls: Some((1, Window::Fixed(Duration::from_secs(60)))),
        in_flight: None,
    };
    let host = Host::builder()
        .state_dir(Some(directory.path().to_owned()))
        .audit(options)
        .budgets(vec![budget])
        .build();
    let server = Server::new(LinkKind::Process);
    let mut spec = spec();
    spec.cache.tools = vec![("read".to_owned(), ToolRule::For(Duration::from_secs(60)))];
    add(&host, "it", spec, &server);
    until(&host, State::Ready).await;
    calls(&host, "read", json!({ "key": "k" })).await.unwrap();
    calls(&host, "read", json!({ "key": "k" })).await.unwrap();
    assert_eq!(calls(&host, "read", json!({ "key": "other" })).await.unwrap_err().code, Code::BudgetExceeded);
    server.offer_tools(vec![json!({ "name": "read", "description": "other words", "inputSchema": {} })]);
    server.say(json!({ "jsonrpc": "2.0", "method": "notifications/tools/list_changed" })).await;
    until(&host, State::NeedsApproval).await;
    assert_eq!(calls(&host, "read", json!({ "key": "k" })).await.unwrap_err().code, Code::SchemaChanged);
    host.approve("it", None).unwrap();
    host.shutdown().await;
    let shape: Vec<_> = lines(directory.path())
        .iter()
        .map(|line| {
            let word = |member: &str| line[member].as_str().unwrap_or("-").to_owned();
            let cached = line["cached"].as_bool().unwrap_or(false);
            format!("{} {} {} {} {cached}", word("event"), word("decision"), word("outcome"), word("code"))
        })
        .collect();
    assert_eq!(
        shape,
        [
            "request allowed done - false",
            "request allowed done - true",
            "request denied not_sent budget_exceeded false",
            "request denied not_sent schema_changed false",
            "approved - - - false",
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn g05_arguments_are_written_only_if_asked_for_and_without_secrets() {
    let directory = tempfile::tempdir().unwrap();
    let (host, _server) = host(directory.path(), AuditKeeps::Arguments, false).await;
    calls(&host, "read", json!({ "to": "bob", "token": "hunter2" })).await.unwrap();
    host.shutdown().await;
    assert_eq!(lines(directory.path())[0]["arguments"], json!({ "to": "bob", "token": "[redacted]" }));
}

#[tokio::test(start_paused = true)]
async fn g05_a_log_that_cannot_be_written_stops_calls_only_if_the_operator_says_so() {
    for fail_closed in [false, true] {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("audit"), "in the way").unwrap();
        let (host, server) = host(directory.path(), AuditKeeps::Digest, fail_closed).await;
        // The thread that writes finds out by itself; only its word counts.
        while host.audit_status().cause.is_none() {
            std::thread::yield_now();
        }
        let called = calls(&host, "read", json!({ "key": "k" })).await;
        assert_eq!(called.is_err(), fail_closed);
        assert_eq!(server.executed("k"), u32::from(!fail_closed));
        std::fs::remove_file(directory.path().join("audit")).unwrap();
        while calls(&host, "read", json!({})).await.is_err() || host.audit_status().cause.is_some() {
            std::thread::yield_now();
        }
        host.shutdown().await;
        assert!(!lines(directory.path()).is_empty());
    }
}
