//! Call budgets per client and server.

use crate::memory_server::*;
use gripfast::{
    Answer, BudgetScope, BudgetSpec, BudgetWindow, CallError, CallOptions, Client, ClientKey, Code, Host,
    Pattern, Principal, State, ToolRule,
};
use gripfast_core::failure::HttpAnswer;
use gripfast_core::supervise::upstream::LinkKind;
use serde_json::json;
use std::time::Duration;

const MINUTE: Duration = Duration::from_secs(60);

fn budget(calls: Option<u32>, in_flight: Option<u32>) -> BudgetSpec {
    let any = || Pattern::new("*");
    BudgetSpec {
        name: "few".to_owned(),
        client: any(),
        server: any(),
        tool: any(),
        per: BudgetScope { client: true, ..BudgetScope::default() },
        calls: calls.map(|calls| (calls, BudgetWindow::Sliding(MINUTE))),
        in_flight,
    }
}

async fn host(budget: BudgetSpec) -> (Host, MemoryServer) {
    let (host, server) =
        (Host::builder().budgets(vec![budget]).build(), MemoryServer::new(LinkKind::Process));
    let mut spec = spec();
    spec.cache.tools = vec![("read".to_owned(), ToolRule::Fixed(MINUTE * 10))];
    add(&host, "it", spec, &server);
    wait_for_state(&host, State::Ready).await;
    (host, server)
}

async fn call_tool(host: &Host, name: &str, tool: &str, key: &str) -> Result<Answer, CallError> {
    let client = Client::with_key(ClientKey::new(name)).with_principal(Principal::new(name));
    let options = CallOptions { client: Some(client), ..CallOptions::default() };
    let params = raw(json!({ "name": tool, "arguments": { "key": key } }));
    host.request_with("it", "tools/call", Some(params), options).await
}

#[tokio::test(start_paused = true)]
async fn g03_calls_over_budget_are_refused_with_the_time_of_the_next_slot() {
    let (host, server) = host(budget(Some(2), None)).await;
    call_tool(&host, "ann", "act", "1").await.unwrap();
    tokio::time::sleep(Duration::from_secs(20)).await;
    call_tool(&host, "ann", "act", "2").await.unwrap();
    let error = call_tool(&host, "ann", "act", "3").await.unwrap_err();
    assert_eq!((error.code, error.outcome.as_str()), (Code::BudgetExceeded, "not_sent"));
    assert_eq!(error.retry_after, Some(Duration::from_secs(40)));
    assert_eq!(server.executed("3"), 0);
    call_tool(&host, "ben", "act", "4").await.expect("each client has a counter of its own");
    let rows = host.budgets();
    let ann = rows.iter().find(|row| row.client.as_deref() == Some("ann")).unwrap();
    assert_eq!((ann.calls, ann.max_calls), (2, Some(2)));
    tokio::time::sleep(Duration::from_secs(40)).await;
    call_tool(&host, "ann", "act", "5").await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn g03_unexecuted_and_cached_calls_cost_no_budget() {
    let (host, server) = host(budget(Some(1), None)).await;
    host.stop("it").unwrap();
    assert_eq!(call_tool(&host, "ann", "act", "1").await.unwrap_err().code, Code::Stopped);
    host.start("it").unwrap();
    wait_for_state(&host, State::Ready).await;
    call_tool(&host, "ann", "read", "2").await.unwrap();
    for _ in 0..5 {
        call_tool(&host, "ann", "read", "2").await.unwrap();
    }
    assert_eq!(server.executed("2"), 1);
    assert_eq!(call_tool(&host, "ann", "act", "3").await.unwrap_err().code, Code::BudgetExceeded);
}

#[tokio::test(start_paused = true)]
async fn g03_concurrent_calls_are_counted_until_they_end_or_are_cancelled() {
    let (host, server) = host(budget(None, Some(1))).await;
    server.queue_actions([CallAction::Hang]);
    let mut hanging = Box::pin(call_tool(&host, "ann", "act", "1"));
    tokio::select! {
        _ = &mut hanging => panic!("it hangs"),
        () = run_ready_tasks() => {}
    }
    let error = call_tool(&host, "ann", "act", "2").await.unwrap_err();
    assert_eq!((error.code, error.retry_after), (Code::BudgetExceeded, None));
    drop(hanging);
    call_tool(&host, "ann", "act", "3").await.unwrap();
    host.set_budgets(Vec::new());
    assert_eq!(host.budgets(), []);
}

#[tokio::test(start_paused = true)]
async fn c05_a_refusal_after_an_attempt_that_may_have_run_is_not_refunded() {
    let (host, server) = host(budget(Some(1), None)).await;
    let retry_after = Some(Duration::from_secs(99));
    let later = HttpAnswer { status: 429, retry_after, ..HttpAnswer::default() };
    server.queue_actions([CallAction::ExecuteThenBreak, CallAction::Refuse(later)]);
    call_tool(&host, "ann", "read", "1").await.unwrap_err();
    let error = call_tool(&host, "ann", "act", "2").await.unwrap_err();
    assert_eq!(error.code, Code::BudgetExceeded);
}
