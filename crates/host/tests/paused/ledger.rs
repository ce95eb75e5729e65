//! Ledger rows of all calls, including those in flight when the process was killed. A killed process is simulated by
//! a copy of its state directory, whose locks have no owner.

use crate::memory_server::*;
use gripfast::RecordDetail;
use gripfast::config::{Argument, RestoreCall, ServerSpec, Template};
use gripfast::ledger::{Calls, LedgerOptions, Query, Row, RowEnd};
use gripfast::{CallOptions, Client, ClientKey, Host, State};
use gripfast_core::failure::HttpAnswer;
use gripfast_core::supervise::upstream::LinkKind;
use serde_json::json;
use std::path::Path;
use std::time::Duration;
use tempfile::TempDir;

/// A host with a server `it` and a ledger in `directory`.
async fn host_with_ledger(directory: &Path, options: LedgerOptions) -> (Host, MemoryServer) {
    let host = Host::builder().state_dir(Some(directory.to_owned())).ledger(options).build();
    let server = MemoryServer::new(LinkKind::Remote);
    add(&host, "it", spec(), &server);
    wait_for_state(&host, State::Ready).await;
    (host, server)
}

fn rows(directory: &Path) -> Vec<Row> {
    Calls::in_directory(directory, Query { limit: Query::MAX_LIMIT, ..Query::default() }).unwrap().rows
}

/// Last row: outcome, code, attempts and replays.
fn last(directory: &Path) -> (&'static str, Option<&'static str>, u32, u32) {
    let row = rows(directory).remove(0);
    let RowEnd::Settled(settled) = &row.end else { panic!("{row:?}") };
    (settled.outcome.as_str(), settled.code.map(gripfast::Code::as_str), settled.attempts, settled.replays)
}

/// Copy of the state directory, as a process that is killed now would leave it.
fn copy_as_after_kill(directory: &Path) -> TempDir {
    let left = tempfile::tempdir().unwrap();
    let ledger = left.path().join("ledger");
    std::fs::create_dir(&ledger).unwrap();
    for file in std::fs::read_dir(directory.join("ledger")).unwrap() {
        let file = file.unwrap();
        std::fs::copy(file.path(), ledger.join(file.file_name())).unwrap();
    }
    left
}

fn outcomes(rows: &[Row]) -> Vec<(String, Option<&'static str>)> {
    rows.iter()
        .map(|row| (row.subject.tool.clone(), row.outcome().map(gripfast::CallOutcome::as_str)))
        .collect()
}

#[tokio::test(start_paused = true)]
async fn every_call_outcome_has_a_row() {
    let directory = tempfile::tempdir().unwrap();
    let (host, server) = host_with_ledger(directory.path(), LedgerOptions::default()).await;
    let last = || last(directory.path());

    call(&host, "act", "").await.unwrap();
    assert_eq!(last(), ("done", None, 1, 0));
    server.queue_actions([CallAction::ToolError]);
    call(&host, "act", "").await.unwrap();
    assert_eq!(last(), ("failed", None, 1, 0));
    server.queue_actions([CallAction::Reject(-32602, "no such key")]);
    call(&host, "act", "").await.unwrap();
    assert_eq!(last(), ("failed", None, 1, 0));
    server.queue_actions([CallAction::ExecuteThenBreak]);
    call(&host, "act", "").await.unwrap_err();
    assert_eq!(last(), ("unknown", Some("outcome_unknown"), 1, 0));
    server.queue_actions([CallAction::ExecuteThenBreak]);
    call(&host, "read", "").await.unwrap();
    assert_eq!(last(), ("done", None, 2, 1), "a harmless call is sent again");
    let busy = HttpAnswer { status: 429, retry_after: Some(Duration::from_secs(4)), ..HttpAnswer::default() };
    server.queue_actions([CallAction::Refuse(busy.clone()), CallAction::Refuse(busy)]);
    call(&host, "act", "").await.unwrap_err();
    assert_eq!(last(), ("refused", Some("overloaded"), 2, 1));
    server.queue_actions([CallAction::Hang]);
    call(&host, "act", "").await.unwrap_err();
    assert_eq!(last(), ("unknown", Some("timeout"), 1, 0));
    call(&host, "act", "").await.unwrap();
    let later =
        HttpAnswer { status: 429, retry_after: Some(Duration::from_secs(99)), ..HttpAnswer::default() };
    server.queue_actions([CallAction::ExecuteThenBreak, CallAction::Refuse(later)]);
    call(&host, "read", "").await.unwrap_err();
    assert_eq!(last(), ("unknown", Some("overloaded"), 2, 2), "C05: the first attempt may have run");
    server.queue_actions([CallAction::ExecuteThenBreak, CallAction::Reject(-32602, "no such key")]);
    call(&host, "read", "").await.unwrap();
    assert_eq!(last(), ("unknown", None, 2, 1), "C05: the first attempt may have run");
    call(&host, "atc", "").await.unwrap_err();
    assert_eq!(last(), ("not_sent", Some("unknown_tool"), 0, 0));
    host.call("ti", "act", None).await.unwrap_err();
    assert_eq!(last(), ("not_sent", Some("unknown_server"), 0, 0));
    host.request("it", "tools/call", None).await.unwrap_err();
    assert_eq!(last(), ("not_sent", Some("invalid_request"), 0, 0));
    host.stop("it").unwrap();
    wait_for_state(&host, State::Stopped).await;
    call(&host, "act", "").await.unwrap_err();
    assert_eq!(last(), ("not_sent", Some("stopped"), 0, 0));

    let written = rows(directory.path());
    host.request("it", "tools/list", None).await.unwrap_err();
    assert_eq!(rows(directory.path()), written, "only tool calls are noted down");
    assert_eq!(host.calls(Query::default()).await.unwrap().rows, written);
    let status = host.ledger_status();
    assert_eq!((status.calls, status.failed_writes, status.cause), (14, 0, None));
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_call_is_unknown_if_it_was_sent() {
    let directory = tempfile::tempdir().unwrap();
    let (host, server) = host_with_ledger(directory.path(), LedgerOptions::default()).await;
    server.set_default_action(CallAction::Hang);
    let given_up = tokio::time::timeout(Duration::from_secs(1), call(&host, "act", "")).await;
    assert!(given_up.is_err());
    assert_eq!(last(directory.path()), ("unknown", Some("cancelled"), 1, 0));
    server.go_down().await;
    wait_for_state(&host, State::Reconnecting).await;
    let given_up = tokio::time::timeout(Duration::from_secs(1), call(&host, "act", "")).await;
    assert!(given_up.is_err());
    assert_eq!(last(directory.path()), ("not_sent", Some("cancelled"), 0, 0));
}

#[tokio::test(start_paused = true)]
async fn calls_in_flight_at_a_crash_are_recovered_once() {
    let directory = tempfile::tempdir().unwrap();
    let (host, server) = host_with_ledger(directory.path(), LedgerOptions::default()).await;
    call(&host, "act", "done").await.unwrap();
    server.queue_actions([CallAction::Hang]);
    let background = |tool: &'static str| {
        let host = host.clone();
        tokio::spawn(async move { call(&host, tool, "").await })
    };
    let sent = background("act");
    run_ready_tasks().await;
    server.go_down().await;
    wait_for_state(&host, State::Reconnecting).await;
    let held = background("read");
    run_ready_tasks().await;
    let expected = |open| {
        // The first call lost its link before the answer; the second one waits for a link.
        vec![("read".to_owned(), open), ("act".to_owned(), Some("unknown")), ("act".to_owned(), Some("done"))]
    };
    assert_eq!(outcomes(&rows(directory.path())), expected(None));

    let left = copy_as_after_kill(directory.path());
    assert_eq!(
        outcomes(&rows(left.path())),
        expected(Some("not_sent")),
        "also before recovery by another process"
    );
    for _ in 0..3 {
        let next = Host::builder().state_dir(Some(left.path().to_owned())).build();
        assert_eq!(outcomes(&next.calls(Query::default()).await.unwrap().rows), expected(Some("not_sent")));
        let beside = Host::builder().state_dir(Some(left.path().to_owned())).build();
        assert_eq!(outcomes(&beside.calls(Query::default()).await.unwrap().rows), expected(Some("not_sent")));
    }
    sent.abort();
    held.abort();
}

#[tokio::test(start_paused = true)]
async fn a_call_on_the_wire_at_a_crash_is_unknown() {
    let directory = tempfile::tempdir().unwrap();
    let (host, server) = host_with_ledger(directory.path(), LedgerOptions::default()).await;
    server.set_default_action(CallAction::Hang);
    let agent = Client::anonymous(ClientKey::new("agents")).with_name("an agent 1.0");
    let caller = CallOptions { client: Some(agent), ..CallOptions::default() };
    let params = raw(json!({ "name": "act", "arguments": { "to": "bob" } }));
    let sent = tokio::spawn({
        let host = host.clone();
        async move { host.request_with("it", "tools/call", Some(&params), caller).await }
    });
    run_ready_tasks().await;
    let left = copy_as_after_kill(directory.path());
    let unknown = Query { unknown: true, ..Query::default() };
    assert_eq!(Calls::in_directory(directory.path(), unknown.clone()).unwrap().rows, [], "it may end yet");
    let found = Calls::in_directory(left.path(), unknown).unwrap().rows;
    let [row] = found.as_slice() else { panic!("{found:?}") };
    assert_eq!(
        (&*row.subject.client, &*row.subject.server, &*row.subject.tool),
        ("an agent 1.0", "it", "act")
    );
    assert_eq!((row.code(), row.hint().is_some()), (Some(gripfast::Code::OutcomeUnknown), true));
    // printf '{"to":"bob"}' | sha256sum
    let digest = "7b66264d9a5b3e864eabcfcda8c9cfe0faf3a49f1a58be5aefcb41db13e01d96";
    assert_eq!(row.subject.digest.as_deref(), Some(digest));
    sent.abort();
}

#[tokio::test(start_paused = true)]
async fn arguments_are_stored_only_if_configured() {
    for (keeps, kept) in
        [(RecordDetail::Nothing, false), (RecordDetail::Digest, false), (RecordDetail::Arguments, true)]
    {
        let directory = tempfile::tempdir().unwrap();
        let options = LedgerOptions { detail: keeps, ..LedgerOptions::default() };
        let (host, _server) = host_with_ledger(directory.path(), options).await;
        call(&host, "act", "hunter2").await.unwrap();
        host.shutdown().await;
        let mut found = false;
        for file in std::fs::read_dir(directory.path().join("ledger")).into_iter().flatten() {
            let file = file.unwrap();
            found |= String::from_utf8_lossy(&std::fs::read(file.path()).unwrap()).contains("hunter2");
            #[cfg(unix)]
            {
                use std::os::unix::fs::PermissionsExt;
                assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600, "{:?}", file.path());
            }
        }
        assert_eq!(found, kept, "{keeps:?}");
        let rows = rows(directory.path());
        assert_eq!(rows.len(), usize::from(keeps != RecordDetail::Nothing));
        assert!(rows.iter().all(|row| row.subject.digest.is_some()));
        assert!(rows.iter().all(|row| row.subject.arguments.is_some() == kept), "{rows:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_full_ledger_drops_the_oldest_rows_but_never_open_ones() {
    let directory = tempfile::tempdir().unwrap();
    let options = LedgerOptions { size: 64 << 10, ..LedgerOptions::default() };
    let (host, server) = host_with_ledger(directory.path(), options).await;
    server.queue_actions([CallAction::Hang]);
    let long = tokio::spawn({
        let host = host.clone();
        async move { call(&host, "read", "").await }
    });
    run_ready_tasks().await;
    for _ in 0..2000 {
        call(&host, "act", "").await.unwrap();
        let files = std::fs::read_dir(directory.path().join("ledger")).unwrap();
        let bytes: u64 = files.map(|file| file.unwrap().metadata().unwrap().len()).sum();
        assert!(bytes <= options.size + 4096, "{bytes}");
    }
    assert_eq!(host.ledger_status().failed_writes, 0);
    let rows = rows(directory.path());
    assert!(rows.len() > 100 && rows.len() < 1000, "{}", rows.len());
    let under_way = |rows: &[Row]| rows.iter().filter(|row| row.end == RowEnd::InFlight).count();
    assert_eq!(under_way(&rows), 1);
    let left = copy_as_after_kill(directory.path());
    let orphans = Calls::in_directory(left.path(), Query { unknown: true, ..Query::default() }).unwrap().rows;
    assert_eq!(outcomes(&orphans), [("read".to_owned(), Some("unknown"))]);
    long.abort();
}

#[tokio::test(start_paused = true)]
async fn an_unwritable_ledger_fails_no_call_and_is_retried() {
    let directory = tempfile::tempdir().unwrap();
    let in_the_way = directory.path().join("ledger");
    std::fs::write(&in_the_way, "a file where a directory should be").unwrap();
    let (host, server) = host_with_ledger(directory.path(), LedgerOptions::default()).await;
    call(&host, "act", "").await.unwrap();
    let status = host.ledger_status();
    assert!(status.cause.is_some() && status.failed_writes >= 2, "{status:?}");
    assert!(host.calls(Query::default()).await.is_err(), "there is something, and it is no ledger");

    server.queue_actions([CallAction::AnswerAfter(Duration::from_secs(60))]);
    let long = tokio::spawn({
        let host = host.clone();
        async move { call(&host, "read", "").await }
    });
    run_ready_tasks().await;
    std::fs::remove_file(&in_the_way).unwrap();
    tokio::time::sleep(Duration::from_secs(31)).await;
    call(&host, "act", "").await.unwrap();
    assert_eq!(host.ledger_status().cause, None);
    // Rows that ended without a segment are written as soon as there is one, and open rows are in flight.
    let expected = |read| {
        vec![("act".to_owned(), Some("done")), ("read".to_owned(), read), ("act".to_owned(), Some("done"))]
    };
    assert_eq!(outcomes(&rows(directory.path())), expected(None));
    long.await.unwrap().unwrap();
    assert_eq!(outcomes(&rows(directory.path())), expected(Some("done")));
}

#[tokio::test(start_paused = true)]
async fn the_17th_process_has_a_ledger_and_a_place_that_came_free_is_used_again() {
    let directory = tempfile::tempdir().unwrap();
    let host = || Host::builder().state_dir(Some(directory.path().to_owned())).build();
    let mut hosts: Vec<Host> = (0..17).map(|_| host()).collect();
    assert!(hosts.iter().all(|host| host.ledger_status().cause.is_none()));
    let segments = || std::fs::read_dir(directory.path().join("ledger")).unwrap().count();
    let before = segments();
    assert_eq!(before, 2 * 17, "a lock and a segment each");
    hosts.remove(7);
    assert!(host().ledger_status().cause.is_none());
    assert_eq!(segments(), before);
}

#[tokio::test(start_paused = true)]
async fn a_host_without_a_state_directory_keeps_no_ledger() {
    let (host, _server) = host_with(LinkKind::Process).await;
    call(&host, "act", "").await.unwrap();
    assert_eq!(host.ledger_status().detail, RecordDetail::Nothing);
    assert_eq!(host.calls(Query::default()).await.unwrap(), Calls::default());
}

#[tokio::test(start_paused = true)]
async fn d04_marked_calls_have_rows_without_arguments() {
    let directory = tempfile::tempdir().unwrap();
    let options = LedgerOptions { detail: RecordDetail::Arguments, ..LedgerOptions::default() };
    let host = Host::builder().state_dir(Some(directory.path().to_owned())).ledger(options).build();
    let server = MemoryServer::new(LinkKind::Remote);
    let login = RestoreCall {
        tool: "act".to_owned(),
        arguments: Argument::Table(vec![(
            "key".to_owned(),
            Argument::Text(Template::parse("hunter2").unwrap().into_secret()),
        )]),
    };
    server.queue_actions([CallAction::AnswerAfter(Duration::ZERO), CallAction::ToolError, CallAction::Hang]);
    add(&host, "it", ServerSpec { restore: vec![login.clone(), login.clone(), login], ..spec() }, &server);
    wait_for_state(&host, State::Ready).await;
    let rows = rows(directory.path());
    let told = ["unknown", "failed", "done"].map(|outcome| ("act".to_owned(), Some(outcome)));
    assert_eq!(outcomes(&rows), told, "the newest first");
    for row in &rows {
        assert_eq!((&*row.subject.client, &*row.subject.server), ("gripfast (restore)", "it"));
        assert_eq!((&row.subject.digest, &row.subject.arguments), (&None, &None), "they may be secrets");
    }
}
