//! Resource subscriptions: requested once per server, delivered only to subscribers, and restored in every new
//! session.

use crate::intercepting_link::{CallOutcome, InterceptedDialer, RequestInterceptor};
use crate::memory_server::*;
use gripfast::config::Isolation;
use gripfast::transport::{Dialer, HttpAnswer, Listener, Outgoing, RenewOutcome};
use gripfast::{
    CallOptions, Client, ClientKey, Code, Host, SpawnOptions, State, SubscribeOptions, SubscribeOutcome,
    Subscription,
};
use gripfast_core::failure::{Evidence, Observed};
use gripfast_core::supervise::upstream::LinkKind;
use serde_json::{Value, json};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const SUBSCRIBE: &str = "resources/subscribe";
const UNSUBSCRIBE: &str = "resources/unsubscribe";
const LISTEN: &str = "subscriptions/listen";

/// A listener that records updates.
#[derive(Default)]
struct UpdateRecorder(Mutex<Vec<Value>>);

impl Listener for UpdateRecorder {
    fn on_message(&self, message: &[u8]) {
        self.0.lock().unwrap().push(serde_json::from_slice(message).unwrap());
    }
}

impl UpdateRecorder {
    /// Takes the updated resources since the last call.
    fn updates(&self) -> Vec<String> {
        let heard = std::mem::take(&mut *self.0.lock().unwrap());
        heard.iter().map(|message| message["params"]["uri"].as_str().unwrap().to_owned()).collect()
    }
}

async fn subscribe(host: &Host, uri: &str) -> (Subscription, Arc<UpdateRecorder>) {
    let recorder = Arc::new(UpdateRecorder::default());
    let listener: Arc<dyn Listener> = Arc::clone(&recorder) as _;
    match host.subscribe("it", uri, listener, SubscribeOptions::default()).await.unwrap() {
        SubscribeOutcome::Subscribed(subscription) => (subscription, recorder),
        other => panic!("{other:?}"),
    }
}

async fn modern() -> (Host, MemoryServer) {
    let (host, server) = (Host::builder().build(), MemoryServer::new(LinkKind::Remote).modern());
    add(&host, "it", spec(), &server);
    wait_for_state(&host, State::Ready).await;
    (host, server)
}

fn uris(asked: &[Value]) -> Vec<&str> {
    asked.iter().map(|params| params["uri"].as_str().unwrap()).collect()
}

#[tokio::test(start_paused = true)]
async fn a_server_gets_one_subscription_for_all_and_one_unsubscribe_at_the_end() {
    let (host, server) = host_with(LinkKind::Remote).await;
    let (one, _) = subscribe(&host, "mem://a").await;
    let (two, _) = subscribe(&host, "mem://a").await;
    let (other, _) = subscribe(&host, "mem://b").await;
    assert_eq!(uris(&server.params_of(SUBSCRIBE)), ["mem://a", "mem://b"]);
    drop(one);
    run_ready_tasks().await;
    assert_eq!(server.received(UNSUBSCRIBE), 0);
    drop((two, other));
    run_ready_tasks().await;
    assert_eq!(uris(&server.params_of(UNSUBSCRIBE)), ["mem://a", "mem://b"]);
}

#[tokio::test(start_paused = true)]
async fn fifty_concurrent_subscribers_cause_one_request() {
    let (host, server) = host_with(LinkKind::Remote).await;
    let all = futures_util::future::join_all((0..50).map(|_| subscribe(&host, "mem://a"))).await;
    assert_eq!((all.len(), server.received(SUBSCRIBE)), (50, 1));
}

#[tokio::test(start_paused = true)]
async fn updates_reach_only_subscribers_and_unchanged() {
    let (host, server) = host_with(LinkKind::Remote).await;
    let (_one, a) = subscribe(&host, "mem://a").await;
    let (_two, also_a) = subscribe(&host, "mem://a").await;
    let (gone, unsubscribed) = subscribe(&host, "mem://a").await;
    let (_other, b) = subscribe(&host, "mem://b").await;
    drop(gone);
    server.send_resource_updated("mem://a").await;
    server.send_resource_updated("mem://a/part").await;
    server.send_resource_updated("mem://other").await;
    run_ready_tasks().await;
    assert_eq!(a.0.lock().unwrap()[0]["params"], json!({ "uri": "mem://a", "of the future": 1.0 }));
    assert_eq!(a.updates(), ["mem://a", "mem://a/part"]);
    assert_eq!(also_a.updates(), ["mem://a", "mem://a/part"]);
    assert!(unsubscribed.updates().is_empty() && b.updates().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_declined_subscription_returns_the_servers_error() {
    let (host, server) = host_with(LinkKind::Remote).await;
    server.decline("mem://secret");
    let recorder: Arc<dyn Listener> = Arc::new(UpdateRecorder::default());
    match host.subscribe("it", "mem://secret", recorder, SubscribeOptions::default()).await.unwrap() {
        SubscribeOutcome::Declined(answer) => {
            assert_eq!(answer.result().unwrap_err(), (-32002, "Resource not found".to_owned()));
        }
        other => panic!("{other:?}"),
    }
    server.forget_session();
    call(&host, "act", "").await.unwrap();
    run_ready_tasks().await;
    assert_eq!(server.received(SUBSCRIBE), 1, "there are no subscribers left");
}

#[tokio::test(start_paused = true)]
async fn a_subscriber_with_a_short_timeout_fails_and_others_succeed() {
    let (host, server) = host_with(LinkKind::Remote).await;
    server.go_down().await;
    let recorder: Arc<dyn Listener> = Arc::new(UpdateRecorder::default());
    let briefly = SubscribeOptions { timeout: Some(Duration::from_secs(1)), ..SubscribeOptions::default() };
    let error = host.subscribe("it", "mem://a", Arc::clone(&recorder), briefly).await.unwrap_err();
    assert_eq!(error.code, Code::Reconnecting, "{error}");
    let waiting = tokio::spawn({
        let host = host.clone();
        async move { subscribe(&host, "mem://b").await }
    });
    run_ready_tasks().await;
    server.come_up();
    let _kept = waiting.await.unwrap();
    assert_eq!(uris(&server.params_of(SUBSCRIBE)), ["mem://b"]);
    host.stop("it").unwrap();
    let error = host.subscribe("it", "mem://a", recorder, SubscribeOptions::default()).await.unwrap_err();
    assert_eq!(error.code, Code::Stopped, "{error}");
}

/// D04, for a session that the server forgot.
#[tokio::test(start_paused = true)]
async fn d04_subscriptions_are_restored_in_a_new_session_with_an_update() {
    let (host, server) = host_with(LinkKind::Remote).await;
    let (_kept, a) = subscribe(&host, "mem://a").await;
    let (gone, b) = subscribe(&host, "mem://b").await;
    drop(gone);
    run_ready_tasks().await;
    server.forget_session();
    call(&host, "act", "").await.unwrap();
    run_ready_tasks().await;
    assert_eq!(uris(&server.params_of(SUBSCRIBE)), ["mem://a", "mem://b", "mem://a"]);
    assert_eq!((a.updates(), b.updates()), (vec!["mem://a".to_owned()], Vec::new()));
    server.send_resource_updated("mem://a").await;
    run_ready_tasks().await;
    assert_eq!(a.updates(), ["mem://a"]);
}

/// D04, for a child that died.
#[tokio::test(start_paused = true)]
async fn d04_subscriptions_are_restored_after_a_respawn_in_both_eras() {
    let (host, server) = host_with(LinkKind::Process).await;
    let (_kept, a) = subscribe(&host, "mem://a").await;
    server.break_link().await;
    wait_for_state(&host, State::Ready).await;
    run_ready_tasks().await;
    assert_eq!(
        (server.connects(), server.received(SUBSCRIBE), a.updates()),
        (2, 2, vec!["mem://a".to_owned()])
    );

    let (host, server) = modern().await;
    let (_kept, a) = subscribe(&host, "mem://a").await;
    server.break_link().await;
    wait_for_state(&host, State::Ready).await;
    run_ready_tasks().await;
    assert_eq!(server.streams(), [["mem://a"]]);
    assert_eq!(a.updates(), ["mem://a"]);
}

#[tokio::test(start_paused = true)]
async fn a_subscription_with_a_transient_error_is_retried() {
    let (host, server) = host_with(LinkKind::Remote).await;
    let (_kept, a) = subscribe(&host, "mem://a").await;
    let broken = HttpAnswer { status: 500, had_session: true, ..HttpAnswer::default() };
    server.refuse_next([broken.clone(), broken]);
    server.forget_session();
    call(&host, "act", "").await.unwrap();
    tokio::time::sleep(Duration::from_secs(4)).await;
    assert_eq!((server.received(SUBSCRIBE), a.updates()), (4, vec!["mem://a".to_owned()]));
}

/// A server that refuses all subscriptions, whatever the credential, once it is switched on.
#[derive(Default)]
struct RefusesSubscriptions {
    refuses: AtomicBool,
    renewals: AtomicU32,
}

impl RequestInterceptor for RefusesSubscriptions {
    fn intercept(&self, request: &Outgoing<'_>) -> Option<CallOutcome> {
        if request.method != SUBSCRIBE || !self.refuses.load(Ordering::Relaxed) {
            return None;
        }
        let answer = HttpAnswer { status: 401, ..HttpAnswer::default() };
        let evidence = Evidence::sent(request.during, Observed::Http(answer));
        Some(Box::pin(std::future::ready(Err(evidence.into()))))
    }

    fn renew(&self) -> RenewOutcome {
        self.renewals.fetch_add(1, Ordering::Relaxed);
        RenewOutcome::Replaced
    }
}

/// B09
#[tokio::test(start_paused = true)]
async fn e01_a_subscription_that_is_always_refused_costs_no_credential() {
    let (host, server, manners) = (
        Host::builder().build(),
        MemoryServer::new(LinkKind::Remote),
        Arc::new(RefusesSubscriptions::default()),
    );
    let dialer: Arc<dyn Dialer> = Arc::new(InterceptedDialer(server.clone(), Arc::clone(&manners)));
    host.spawn_with("it", spec(), SpawnOptions { dialer: Some(dialer), ..SpawnOptions::default() }).unwrap();
    wait_for_state(&host, State::Ready).await;
    let (_kept, a) = subscribe(&host, "mem://a").await;
    manners.refuses.store(true, Ordering::Relaxed);
    server.forget_session();
    call(&host, "act", "").await.unwrap();
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!((manners.renewals.load(Ordering::Relaxed), server.received("initialize")), (0, 2));
    assert_eq!(host.server_status("it").unwrap().supervision.state, State::Ready);
    manners.refuses.store(false, Ordering::Relaxed);
    tokio::time::sleep(Duration::from_secs(61)).await;
    assert_eq!(a.updates(), ["mem://a"], "it was tried again");
}

#[tokio::test(start_paused = true)]
async fn a_modern_server_has_one_stream_that_is_replaced_without_a_gap() {
    let (host, server) = modern().await;
    assert_eq!(server.streams(), [[""; 0]], "lists are listened for");
    let (one, a) = subscribe(&host, "mem://a").await;
    let (two, b) = subscribe(&host, "mem://b").await;
    let (_three, _) = subscribe(&host, "mem://b").await;
    run_ready_tasks().await;
    assert_eq!(server.streams(), [["mem://a", "mem://b"]], "one stream, and none left over");
    assert_eq!(server.received(LISTEN), 3);
    server.send_resource_updated("mem://a").await;
    run_ready_tasks().await;
    assert_eq!((a.updates(), b.updates()), (vec!["mem://a".to_owned()], Vec::new()));
    drop(one);
    run_ready_tasks().await;
    assert_eq!(server.streams(), [["mem://b"]]);
    drop(two);
    run_ready_tasks().await;
    assert_eq!((server.streams(), server.received(LISTEN)), (vec![vec!["mem://b".to_owned()]], 4));
    assert_eq!(server.gaps(), 0, "the new one is open before the old one is closed");
    assert_eq!(server.received(SUBSCRIBE), 0, "the modern era has no such method");
}

#[tokio::test(start_paused = true)]
async fn resources_that_a_modern_server_does_not_acknowledge_are_declined() {
    let (host, server) = modern().await;
    server.decline("mem://secret");
    let (_kept, _) = subscribe(&host, "mem://a").await;
    let recorder: Arc<dyn Listener> = Arc::new(UpdateRecorder::default());
    let declined = host.subscribe("it", "mem://secret", recorder, SubscribeOptions::default()).await.unwrap();
    assert!(matches!(declined, SubscribeOutcome::Declined(_)), "{declined:?}");
    run_ready_tasks().await;
    assert_eq!(server.streams(), [["mem://a"]]);
}

/// D04: the listen stream, and the resources on it.
#[tokio::test(start_paused = true)]
async fn d04_an_ended_stream_is_reopened_with_an_update() {
    let (host, server) = modern().await;
    let (_kept, a) = subscribe(&host, "mem://a").await;
    server.end_streams();
    run_ready_tasks().await;
    assert!(server.streams().is_empty());
    tokio::time::sleep(Duration::from_secs(5)).await;
    run_ready_tasks().await;
    assert_eq!(
        (server.streams(), a.updates()),
        (vec![vec!["mem://a".to_owned()]], vec!["mem://a".to_owned()])
    );
}

#[tokio::test(start_paused = true)]
async fn a_lazy_server_is_started_by_a_subscription_and_stays_up_for_it() {
    let mut spec = spec();
    spec.supervision.lazy = true;
    let (host, server) = host_with_spec(LinkKind::Process, spec).await;
    assert!(!host.has_resource_updates(), "nothing is known of it yet");
    let (kept, _) = subscribe(&host, "mem://a").await;
    assert!(host.has_resource_updates());
    tokio::time::sleep(Duration::from_secs(3600)).await;
    assert_eq!((server.connects(), host.server_status("it").unwrap().supervision.state), (1, State::Ready));
    host.stop("it").unwrap();
    wait_for_state(&host, State::Stopped).await;
    host.start("it").unwrap();
    wait_for_state(&host, State::Ready).await;
    run_ready_tasks().await;
    assert_eq!(server.received(SUBSCRIBE), 2, "one subscriber is left");
    drop(kept);
    tokio::time::sleep(Duration::from_secs(3600)).await;
    assert_eq!(host.server_status("it").unwrap().supervision.state, State::Idle);
}

async fn subscribe_as(host: &Host, client: &Client, uri: &str) -> (Subscription, Arc<UpdateRecorder>) {
    let recorder = Arc::new(UpdateRecorder::default());
    let options = SubscribeOptions { client: Some(client.clone()), ..SubscribeOptions::default() };
    match host.subscribe("it", uri, Arc::clone(&recorder) as _, options).await.unwrap() {
        SubscribeOutcome::Subscribed(subscription) => (subscription, recorder),
        other => panic!("{other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_dedicated_instance_holds_its_clients_subscriptions_and_stays_up() {
    let mut spec = spec();
    spec.isolation = Isolation::PerClient;
    let (host, server) = host_with_spec(LinkKind::Process, spec).await;
    let (ada, bob) = (Client::with_key(ClientKey::new("ada")), Client::with_key(ClientKey::new("bob")));
    let (_theirs, other) = subscribe_as(&host, &bob, "mem://a").await;
    let (mine, recorder) = subscribe_as(&host, &ada, "mem://a").await;
    assert_eq!(server.received(SUBSCRIBE), 2, "each at its own instance");
    server.send_resource_updated("mem://a").await;
    run_ready_tasks().await;
    assert_eq!((recorder.updates().len(), other.updates().len()), (1, 0), "the newest instance sent it");
    tokio::time::sleep(Duration::from_secs(3600)).await;
    assert_eq!(
        host.server_status("it").unwrap().instances.count(),
        2,
        "no calls, but both have subscriptions"
    );

    // A stopped server has no dedicated instances; their subscriptions are restored with a new instance.
    host.stop("it").unwrap();
    host.start("it").unwrap();
    wait_for_state(&host, State::Ready).await;
    let options = CallOptions { client: Some(ada), ..CallOptions::default() };
    host.request_with("it", "resources/read", Some(&raw(json!({}))), options).await.unwrap();
    run_ready_tasks().await;
    assert_eq!((server.received(SUBSCRIBE), recorder.updates()), (3, vec!["mem://a".to_owned()]));
    drop(mine);
    run_ready_tasks().await;
    assert_eq!(server.received(UNSUBSCRIBE), 1);
}

#[tokio::test(start_paused = true)]
async fn d04_subscriptions_survive_the_replacement_of_a_dedicated_instance() {
    let mut spec = spec();
    spec.isolation = Isolation::PerClient;
    let (host, server) = host_with_spec(LinkKind::Process, spec).await;
    let ada = Client::with_key(ClientKey::new("ada"));
    let (_mine, recorder) = subscribe_as(&host, &ada, "mem://a").await;
    let calls = |key: &'static str| {
        let (host, client) = (host.clone(), Some(ada.clone()));
        let params = raw(json!({ "name": "act", "arguments": { "key": key } }));
        async move {
            let options = CallOptions { client, ..CallOptions::default() };
            host.request_with("it", "tools/call", Some(&params), options).await
        }
    };
    server.queue_actions([CallAction::Hang]);
    let long = tokio::spawn(calls("long"));
    run_ready_tasks().await;
    host.stop("it").unwrap();
    host.start("it").unwrap();
    calls("short").await.unwrap();
    run_ready_tasks().await;
    assert_ne!(server.served_on("long"), server.served_on("short"), "both are there");
    assert_eq!(recorder.updates(), ["mem://a"], "the subscription moved to the new one");
    long.await.unwrap().unwrap_err();
    run_ready_tasks().await;
    // The old one is gone.
    let (_more, _) = subscribe_as(&host, &ada, "mem://b").await;
    let told = server.params_of(SUBSCRIBE).into_iter().map(|params| params["uri"].clone());
    assert_eq!(told.collect::<Vec<_>>(), ["mem://a", "mem://a", "mem://b"]);
}

/// Takes the task statuses since the last call.
fn statuses(recorder: &UpdateRecorder) -> Vec<Value> {
    let heard = std::mem::take(&mut *recorder.0.lock().unwrap());
    heard.iter().map(|message| json!([message["params"]["taskId"], message["params"]["status"]])).collect()
}

async fn subscribe_task(host: &Host, id: &str) -> (SubscribeOutcome, Arc<UpdateRecorder>) {
    let recorder = Arc::new(UpdateRecorder::default());
    let options = SubscribeOptions::default();
    (host.subscribe_to_task("it", id, Arc::clone(&recorder) as _, options).await.unwrap(), recorder)
}

async fn send_task_status(server: &MemoryServer, id: &str, status: &str) {
    let params = json!({ "taskId": id, "status": status });
    server.send_message(json!({ "jsonrpc": "2.0", "method": "notifications/tasks", "params": params })).await;
    run_ready_tasks().await;
}

#[tokio::test(start_paused = true)]
async fn a_task_subscription_uses_the_same_stream() {
    let (host, server) = modern().await;
    let (_resource, _) = subscribe(&host, "mem://a").await;
    let ((one, first), (two, second)) =
        (subscribe_task(&host, "job-1").await, subscribe_task(&host, "job-1").await);
    assert!(matches!((&one, &two), (SubscribeOutcome::Subscribed(_), SubscribeOutcome::Subscribed(_))));
    assert_eq!(server.streams(), [["mem://a", "job-1"]]);
    let asked = server.params_of(LISTEN);
    let declared = &asked.last().unwrap()["_meta"]["io.modelcontextprotocol/clientCapabilities"];
    assert_eq!(declared["extensions"]["io.modelcontextprotocol/tasks"], json!({}), "{declared}");
    send_task_status(&server, "job-1", "working").await;
    send_task_status(&server, "job-2", "working").await;
    assert_eq!(
        (statuses(&first), statuses(&second)),
        (vec![json!(["job-1", "working"])], vec![json!(["job-1", "working"])])
    );
    drop(one);
    run_ready_tasks().await;
    assert_eq!(server.streams(), [["mem://a", "job-1"]], "one subscriber is left");
    drop(two);
    run_ready_tasks().await;
    assert_eq!((server.streams(), server.gaps()), (vec![vec!["mem://a".to_owned()]], 0));
    server.decline("secret");
    assert!(matches!(subscribe_task(&host, "secret").await.0, SubscribeOutcome::Declined(_)));
}

/// D04: tasks too. A task that ended meanwhile would never be reported again.
#[tokio::test(start_paused = true)]
async fn d04_a_task_subscriber_gets_the_status_after_a_lost_stream() {
    let (host, server) = modern().await;
    let (_kept, recorder) = subscribe_task(&host, "job-1").await;
    server.end_streams();
    tokio::time::sleep(Duration::from_secs(5)).await;
    run_ready_tasks().await;
    assert_eq!(
        (server.streams(), statuses(&recorder)),
        (vec![vec!["job-1".to_owned()]], vec![json!(["job-1", "looked at"])])
    );
    server.break_link().await;
    wait_for_state(&host, State::Ready).await;
    run_ready_tasks().await;
    assert_eq!(
        (server.streams(), statuses(&recorder)),
        (vec![vec!["job-1".to_owned()]], vec![json!(["job-1", "looked at"])])
    );
}

#[tokio::test(start_paused = true)]
async fn a_legacy_server_gets_no_task_subscription() {
    let (host, server) = host_with(LinkKind::Remote).await;
    assert!(matches!(subscribe_task(&host, "job-1").await.0, SubscribeOutcome::Unsupported));
    assert_eq!(server.received(SUBSCRIBE), 0);
}

#[tokio::test(start_paused = true)]
async fn d04_a_numeric_subscription_id_returned_as_a_string_is_recognized() {
    let (host, server) = (Host::builder().build(), MemoryServer::new(LinkKind::Remote).modern());
    let server = server.with_numbers_as_texts();
    add(&host, "it", spec(), &server);
    wait_for_state(&host, State::Ready).await;
    let (_subscription, recorder) = subscribe(&host, "mem://a").await;
    server.send_resource_updated("mem://a").await;
    run_ready_tasks().await;
    assert_eq!(recorder.updates(), ["mem://a"]);
}
