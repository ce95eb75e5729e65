//! Audit log of requests and decisions.

use crate::memory_server::*;
use gripfast::{
    AuditFinding, AuditOptions, BudgetScope, BudgetSpec, BudgetWindow, CallOptions, Client, ClientKey, Code,
    GuardVerdict, Host, Pattern, Principal, RecordDetail, State, ToolRule,
};
use gripfast_core::supervise::upstream::LinkKind;
use serde_json::{Value, json};
use std::path::Path;
use std::time::Duration;

async fn host(directory: &Path, keeps: RecordDetail, fail_closed: bool) -> (Host, MemoryServer) {
    let options = AuditOptions { detail: keeps, fail_closed, ..AuditOptions::default() };
    let guard = |_: &str, tool: &str| match tool {
        "act" => GuardVerdict::Deny("never".to_owned()),
        _ => GuardVerdict::Allow,
    };
    let host = Host::builder().state_dir(Some(directory.to_owned())).audit(options).guard(guard).build();
    let server = MemoryServer::new(LinkKind::Process);
    add(&host, "it", spec(), &server);
    wait_for_state(&host, State::Ready).await;
    (host, server)
}

async fn call_tool(host: &Host, tool: &str, arguments: Value) -> Result<(), gripfast::CallError> {
    let client =
        Client::with_key(ClientKey::new("a")).with_principal(Principal::new("ann")).with_name("editor 1.0");
    let options = CallOptions { client: Some(client), ..CallOptions::default() };
    let params = raw(json!({ "name": tool, "arguments": arguments }));
    host.request_with("it", "tools/call", Some(&params), options).await.map(drop)
}

fn lines(directory: &Path) -> Vec<Value> {
    let files = std::fs::read_dir(directory.join("audit")).unwrap();
    let texts = files.map(|file| std::fs::read_to_string(file.unwrap().path()).unwrap());
    let all: Vec<String> = texts.collect();
    all.iter().flat_map(|text| text.lines()).map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[tokio::test(start_paused = true)]
async fn g05_every_request_has_an_audit_line_with_its_decision_and_no_arguments() {
    let directory = tempfile::tempdir().unwrap();
    let (host, server) = host(directory.path(), RecordDetail::Digest, false).await;
    call_tool(&host, "read", json!({ "key": "k", "note": "private words" })).await.unwrap();
    assert_eq!(call_tool(&host, "act", json!({})).await.unwrap_err().code, Code::Denied);
    server.queue_actions([CallAction::Hang]);
    let given_up = call_tool(&host, "read", json!({}));
    tokio::select! {
        _ = given_up => panic!("it hangs"),
        () = run_ready_tasks() => {}
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
    assert_eq!(lines[1]["reason"], "tool `act` of server `it` is denied by the program: never");
    assert_eq!(lines[0]["sha256"].as_str().unwrap().len(), 64);
    assert!(!format!("{lines:?}").contains("private words"));
}

#[tokio::test(start_paused = true)]
async fn g05_ledger_and_audit_have_the_principal_and_the_client_name() {
    let directory = tempfile::tempdir().unwrap();
    let (host, _server) = host(directory.path(), RecordDetail::Digest, false).await;
    let ann = || Client::anonymous(ClientKey::new("a")).with_principal(Principal::new("ann"));
    let meta = json!({ "io.modelcontextprotocol/clientInfo": { "name": "bob", "version": "1" } });
    for (client, params) in [
        (ann().with_name("admin"), json!({ "name": "read" })),
        (ann(), json!({ "name": "read", "_meta": meta })),
    ] {
        let options = CallOptions { client: Some(client), ..CallOptions::default() };
        host.request_with("it", "tools/call", Some(&raw(params)), options).await.unwrap();
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
async fn g05_a_changed_or_removed_audit_line_is_detected() {
    let directory = tempfile::tempdir().unwrap();
    assert_eq!(gripfast::verify_audit(directory.path()).unwrap(), []);
    let (host, _server) = host(directory.path(), RecordDetail::Digest, false).await;
    for _ in 0..3 {
        call_tool(&host, "read", json!({})).await.unwrap();
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
async fn g05_decisions_of_cache_budgets_and_pins_have_an_audit_line() {
    let directory = tempfile::tempdir().unwrap();
    let options = AuditOptions { detail: RecordDetail::Digest, ..AuditOptions::default() };
    let any = || Pattern::new("*");
    let budget = BudgetSpec {
        name: "few".to_owned(),
        client: any(),
        server: any(),
        tool: any(),
        per: BudgetScope::default(),
        calls: Some((1, BudgetWindow::Fixed(Duration::from_secs(60)))),
        in_flight: None,
    };
    let host = Host::builder()
        .state_dir(Some(directory.path().to_owned()))
        .audit(options)
        .budgets(vec![budget])
        .build();
    let server = MemoryServer::new(LinkKind::Process);
    let mut spec = spec();
    spec.cache.tools = vec![("read".to_owned(), ToolRule::Fixed(Duration::from_secs(60)))];
    add(&host, "it", spec, &server);
    wait_for_state(&host, State::Ready).await;
    call_tool(&host, "read", json!({ "key": "k" })).await.unwrap();
    call_tool(&host, "read", json!({ "key": "k" })).await.unwrap();
    assert_eq!(
        call_tool(&host, "read", json!({ "key": "other" })).await.unwrap_err().code,
        Code::BudgetExceeded
    );
    server.set_tools(vec![json!({ "name": "read", "description": "other words", "inputSchema": {} })]);
    server.send_message(json!({ "jsonrpc": "2.0", "method": "notifications/tools/list_changed" })).await;
    wait_for_state(&host, State::NeedsApproval).await;
    assert_eq!(call_tool(&host, "read", json!({ "key": "k" })).await.unwrap_err().code, Code::SchemaChanged);
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
async fn g05_arguments_are_logged_only_if_configured_and_without_secrets() {
    let directory = tempfile::tempdir().unwrap();
    let (host, _server) = host(directory.path(), RecordDetail::Arguments, false).await;
    call_tool(&host, "read", json!({ "to": "bob", "token": "hunter2" })).await.unwrap();
    host.shutdown().await;
    assert_eq!(lines(directory.path())[0]["arguments"], json!({ "to": "bob", "token": "[redacted]" }));
}

#[tokio::test(start_paused = true)]
async fn g05_an_unwritable_audit_log_stops_calls_only_if_configured() {
    for fail_closed in [false, true] {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("audit"), "in the way").unwrap();
        let (host, server) = host(directory.path(), RecordDetail::Digest, fail_closed).await;
        // The writer thread detects the error itself; only its status counts.
        while host.audit_status().cause.is_none() {
            std::thread::yield_now();
        }
        let called = call_tool(&host, "read", json!({ "key": "k" })).await;
        assert_eq!(called.is_err(), fail_closed);
        assert_eq!(server.executed("k"), u32::from(!fail_closed));
        std::fs::remove_file(directory.path().join("audit")).unwrap();
        while call_tool(&host, "read", json!({})).await.is_err() || host.audit_status().cause.is_some() {
            std::thread::yield_now();
        }
        host.shutdown().await;
        assert!(!lines(directory.path()).is_empty());
    }
}
