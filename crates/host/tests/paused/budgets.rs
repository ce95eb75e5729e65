//! How many calls there may be, of whom, to what.

use crate::world::*;
use gripfast::{
    Answer, BudgetSpec, CallError, CallOptions, Client, ClientKey, Code, Host, Pattern, Per, Principal,
    State, ToolRule, Window,
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
        per: Per { client: true, ..Per::default() },
        calls: calls.map(|calls| (calls, Window::Sliding(MINUTE))),
        in_flight,
    }
}

async fn host(budget: BudgetSpec) -> (Host, Server) {
    let (host, server) = (Host::builder().budgets(vec![budget]).build(), Server::new(LinkKind::Process));
    let mut spec = spec();
    spec.cache.tools = vec![("read".to_owned(), ToolRule::For(MINUTE * 10))];
    add(&host, "it", spec, &server);
    until(&host, State::Ready).await;
    (host, server)
}

async fn calls(host: &Host, name: &str, tool: &str, key: &str) -> Result<Answer, CallError> {
    let client = Client::one(ClientKey::new(name)).on_behalf_of(Principal::named(name));
    let options = CallOptions { client: Some(client), ..CallOptions::default() };
    let params = raw(json!({ "name": tool, "arguments": { "key": key } }));
    host.request_with("it", "tools/call", Some(params), options).await
}

#[tokio::test(start_paused = true)]
async fn g03_calls_beyond_a_budget_are_refused_with_the_time_at_which_there_is_room() {
    let (host, server) = host(budget(Some(2), None)).await;
    calls(&host, "ann", "act", "1").await.unwrap();
    tokio::time::sleep(Duration::from_secs(20)).await;
    calls(&host, "ann", "act", "2").await.unwrap();
    let error = calls(&host, "ann", "act", "3").await.unwrap_err();
    assert_eq!((error.code, error.outcome.word()), (Code::BudgetExceeded, "not_sent"));
    assert_eq!(error.retry_after, Some(Duration::from_secs(40)));
    assert_eq!(server.executed("3"), 0);
    calls(&host, "ben", "act", "4").await.expect("each client has a counter of its own");
    let rows = host.budgets();
    let ann = rows.iter().find(|row| row.client.as_deref() == Some("ann")).unwrap();
    assert_eq!((ann.calls, ann.most_calls), (2, Some(2)));
    tokio::time::sleep(Duration::from_secs(40)).await;
    calls(&host, "ann", "act", "5").await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn g03_what_was_not_carried_out_and_what_was_cached_costs_nothing() {
    let (host, server) = host(budget(Some(1), None)).await;
    host.stop("it").unwrap();
    assert_eq!(calls(&host, "ann", "act", "1").await.unwrap_err().code, Code::Stopped);
    host.start_again("it").unwrap();
    until(&host, State::Ready).await;
    calls(&host, "ann", "read", "2").await.unwrap();
    for _ in 0..5 {
        calls(&host, "ann", "read", "2").await.unwrap();
    }
    assert_eq!(server.executed("2"), 1);
    assert_eq!(calls(&host, "ann", "act", "3").await.unwrap_err().code, Code::BudgetExceeded);
}

#[tokio::test(start_paused = true)]
async fn g03_calls_at_a_time_are_counted_until_they_end_or_are_given_up() {
    let (host, server) = host(budget(None, Some(1))).await;
    server.next_acts([Act::Hang]);
    let mut hanging = Box::pin(calls(&host, "ann", "act", "1"));
    tokio::select! {
        _ = &mut hanging => panic!("it hangs"),
        () = settle() => {}
    }
    let error = calls(&host, "ann", "act", "2").await.unwrap_err();
    assert_eq!((error.code, error.retry_after), (Code::BudgetExceeded, None));
    drop(hanging);
    calls(&host, "ann", "act", "3").await.unwrap();
    host.set_budgets(Vec::new());
    assert_eq!(host.budgets(), []);
}

#[tokio::test(start_paused = true)]
async fn c05_a_refusal_after_an_attempt_that_may_have_run_is_not_refunded() {
    let (host, server) = host(budget(Some(1), None)).await;
    let retry_after = Some(Duration::from_secs(99));
    let later = HttpAnswer { status: 429, retry_after, ..HttpAnswer::default() };
    server.next_acts([Act::DoThenBreak, Act::Refuse(later)]);
    calls(&host, "ann", "read", "1").await.unwrap_err();
    let error = calls(&host, "ann", "act", "2").await.unwrap_err();
    assert_eq!(error.code, Code::BudgetExceeded);
}
