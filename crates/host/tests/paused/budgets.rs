//! Call budgets per client and server.

use crate::memory_server::*;
use gripfast::sync::Mutex;
use gripfast::transport::BoxFuture;
use gripfast::{
    Answer, BudgetCounter, BudgetExceeded, BudgetScope, BudgetSpec, BudgetStore, BudgetWindow, CallError,
    CallOptions, Client, ClientKey, Code, Host, Pattern, Principal, SettledAs, State, StoreReply, StoredUse,
    ToolRule,
};
use gripfast_core::failure::HttpAnswer;
use gripfast_core::supervise::upstream::LinkKind;
use serde_json::json;
use std::collections::VecDeque;
use std::num::NonZeroU32;
use std::sync::Arc;
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
    host.request_with("it", "tools/call", Some(&params), options).await
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

/// A store of budgets that replies as the test says.
struct ScriptedStore {
    replies: Mutex<VecDeque<StoreReply>>,
    asked: Mutex<Vec<Vec<BudgetCounter>>>,
    settled: Mutex<Vec<(String, SettledAs)>>,
}

impl ScriptedStore {
    fn share(host: &Host, replies: impl IntoIterator<Item = StoreReply>) -> Arc<Self> {
        let replies = Mutex::new(replies.into_iter().collect());
        let store = Arc::new(Self { replies, asked: Mutex::default(), settled: Mutex::default() });
        host.share_budgets(Arc::clone(&store) as Arc<dyn BudgetStore>);
        store
    }
}

impl BudgetStore for ScriptedStore {
    fn reserve<'a>(&'a self, counters: &'a [BudgetCounter]) -> BoxFuture<'a, StoreReply> {
        self.asked.lock().push(counters.to_vec());
        let reply = self.replies.lock().pop_front().expect("a call that the test does not expect");
        Box::pin(std::future::ready(reply))
    }

    fn settle(&self, id: String, settled: SettledAs) {
        self.settled.lock().push((id, settled));
    }

    fn known_use(&self) -> Option<Vec<StoredUse>> {
        let calls = vec![(BudgetWindow::Sliding(MINUTE), 7, Duration::from_secs(3))];
        let row = |budget: &str| StoredUse {
            budget: budget.to_owned(),
            client: Some("eve".to_owned()),
            server: None,
            tool: None,
            calls: calls.clone(),
            in_flight: 1,
        };
        Some(vec![row("few"), row("removed from the config")])
    }

    fn refresh(&self) -> BoxFuture<'_, ()> {
        Box::pin(std::future::ready(()))
    }
}

fn reserved(id: &str) -> StoreReply {
    StoreReply::Reserved { id: id.to_owned() }
}

#[tokio::test(start_paused = true)]
async fn g03_a_shared_budget_is_settled_once_and_a_cached_answer_costs_nothing() {
    let (host, server) = host(budget(Some(1), None)).await;
    let store = ScriptedStore::share(&host, [reserved("r1"), reserved("r2"), reserved("r3"), reserved("r4")]);
    for _ in 0..3 {
        call_tool(&host, "ann", "read", "1").await.unwrap();
    }
    assert_eq!(server.executed("1"), 1);
    assert_eq!(*store.settled.lock(), [("r1".to_owned(), SettledAs::Spent)]);
    let asked = store.asked.lock().clone();
    assert_eq!((asked.len(), asked[0].len()), (1, 1), "cached answers cost nothing");
    assert_eq!((asked[0][0].client.as_deref(), asked[0][0].calls.unwrap().0), (Some("ann"), 1));
    call_tool(&host, "ann", "act", "2").await.expect("the store decides, not the count of this process");
    host.stop("it").unwrap();
    call_tool(&host, "ann", "act", "3").await.unwrap_err();
    assert_eq!(store.settled.lock()[2], ("r3".to_owned(), SettledAs::Refunded), "it was not carried out");
    host.start("it").unwrap();
    wait_for_state(&host, State::Ready).await;
    server.queue_actions([CallAction::Hang]);
    let mut hanging = Box::pin(call_tool(&host, "ann", "act", "4"));
    tokio::select! {
        _ = &mut hanging => panic!("it hangs"),
        () = run_ready_tasks() => {}
    }
    drop(hanging);
    assert_eq!(store.settled.lock()[3], ("r4".to_owned(), SettledAs::Spent), "it may have been carried out");
    let rows = host.budgets();
    assert_eq!((rows.len(), rows[0].client.as_deref(), rows[0].calls), (1, Some("eve"), 7), "those of all");
}

#[tokio::test(start_paused = true)]
async fn g03_without_the_store_a_host_uses_its_part_of_a_limit_or_refuses() {
    let (host, server) = host(budget(Some(5), None)).await;
    let local = StoreReply::Local { processes: NonZeroU32::new(2).unwrap() };
    let away = StoreReply::Unavailable { reason: "it is unreachable".to_owned(), retry_after: MINUTE };
    let exceeded = BudgetExceeded { budget: "few".to_owned(), limit: 5, reset_after: Some(MINUTE) };
    let replies = [reserved("r"), local.clone(), local, away, StoreReply::Exceeded(exceeded)];
    let store = ScriptedStore::share(&host, replies);
    call_tool(&host, "ann", "act", "1").await.unwrap();
    call_tool(&host, "ann", "act", "2").await.unwrap();
    assert_eq!(call_tool(&host, "ann", "act", "3").await.unwrap_err().code, Code::BudgetExceeded);
    let error = call_tool(&host, "ann", "act", "4").await.unwrap_err();
    assert_eq!((error.code, error.outcome.as_str()), (Code::Reconnecting, "not_sent"));
    assert_eq!(error.retry_after, Some(MINUTE));
    assert!(error.text.ends_with("in the store, and it is unreachable"), "{}", error.text);
    assert!(error.hint.unwrap().contains("cluster.on_store_loss"));
    let error = call_tool(&host, "ann", "act", "5").await.unwrap_err();
    assert_eq!((error.code, error.retry_after), (Code::BudgetExceeded, Some(MINUTE)));
    assert_eq!(store.settled.lock().len(), 1, "only the reservation that the store made");
    assert_eq!(["3", "4", "5"].map(|key| server.executed(key)), [0, 0, 0]);
}
