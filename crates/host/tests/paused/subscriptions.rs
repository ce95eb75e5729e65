//! Resources that somebody follows: asked for once, told to everybody who follows and to nobody else, and
//! put back whenever the server has a new session.

use crate::meddled::{Fate, Meddled, Meddler};
use crate::world::*;
use gripfast::config::Isolation;
use gripfast::transport::{Dialer, HttpAnswer, Listener, Outgoing, Renewed};
use gripfast::{
    CallOptions, Client, ClientKey, Code, Host, SpawnOptions, State, SubscribeOptions, Subscribed,
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

/// Somebody who hears of changes.
#[derive(Default)]
struct Ear(Mutex<Vec<Value>>);

impl Listener for Ear {
    fn said(&self, message: &[u8]) {
        self.0.lock().unwrap().push(serde_json::from_slice(message).unwrap());
    }
}

impl Ear {
    /// The resources that it has heard of since it was last asked.
    fn heard(&self) -> Vec<String> {
        let heard = std::mem::take(&mut *self.0.lock().unwrap());
        heard.iter().map(|message| message["params"]["uri"].as_str().unwrap().to_owned()).collect()
    }
}

async fn subscribe(host: &Host, uri: &str) -> (Subscription, Arc<Ear>) {
    let ear = Arc::new(Ear::default());
    let listener: Arc<dyn Listener> = Arc::clone(&ear) as _;
    match host.subscribe("it", uri, listener, SubscribeOptions::default()).await.unwrap() {
        Subscribed::Following(subscription) => (subscription, ear),
        other => panic!("{other:?}"),
    }
}

async fn modern() -> (Host, Server) {
    let (host, server) = (Host::builder().build(), Server::new(LinkKind::Remote).modern());
    add(&host, "it", spec(), &server);
    until(&host, State::Ready).await;
    (host, server)
}

fn uris(asked: &[Value]) -> Vec<&str> {
    asked.iter().map(|params| params["uri"].as_str().unwrap()).collect()
}

#[tokio::test(start_paused = true)]
async fn a_server_is_asked_once_however_many_follow_and_told_when_the_last_one_goes() {
    let (host, server) = host_with(LinkKind::Remote).await;
    let (one, _) = subscribe(&host, "mem://a").await;
    let (two, _) = subscribe(&host, "mem://a").await;
    let (other, _) = subscribe(&host, "mem://b").await;
    assert_eq!(uris(&server.asked(SUBSCRIBE)), ["mem://a", "mem://b"]);
    drop(one);
    settle().await;
    assert_eq!(server.received(UNSUBSCRIBE), 0);
    drop((two, other));
    settle().await;
    assert_eq!(uris(&server.asked(UNSUBSCRIBE)), ["mem://a", "mem://b"]);
}

#[tokio::test(start_paused = true)]
async fn fifty_followers_at_once_are_one_request() {
    let (host, server) = host_with(LinkKind::Remote).await;
    let all = futures_util::future::join_all((0..50).map(|_| subscribe(&host, "mem://a"))).await;
    assert_eq!((all.len(), server.received(SUBSCRIBE)), (50, 1));
}

#[tokio::test(start_paused = true)]
async fn a_change_is_told_to_those_who_follow_in_the_servers_own_words_and_to_nobody_else() {
    let (host, server) = host_with(LinkKind::Remote).await;
    let (_one, a) = subscribe(&host, "mem://a").await;
    let (_two, also_a) = subscribe(&host, "mem://a").await;
    let (gone, nobody) = subscribe(&host, "mem://a").await;
    let (_other, b) = subscribe(&host, "mem://b").await;
    drop(gone);
    server.update("mem://a").await;
    server.update("mem://a/part").await;
    server.update("mem://nobody").await;
    settle().await;
    assert_eq!(a.0.lock().unwrap()[0]["params"], json!({ "uri": "mem://a", "of the future": 1.0 }));
    assert_eq!(a.heard(), ["mem://a", "mem://a/part"]);
    assert_eq!(also_a.heard(), ["mem://a", "mem://a/part"]);
    assert!(nobody.heard().is_empty() && b.heard().is_empty());
}

#[tokio::test(start_paused = true)]
async fn what_the_server_declines_is_its_answer_and_leaves_nothing_behind() {
    let (host, server) = host_with(LinkKind::Remote).await;
    server.decline("mem://secret");
    let ear: Arc<dyn Listener> = Arc::new(Ear::default());
    match host.subscribe("it", "mem://secret", ear, SubscribeOptions::default()).await.unwrap() {
        Subscribed::Declined(answer) => {
            assert_eq!(answer.result().unwrap_err(), (-32002, "Resource not found".to_owned()));
        }
        other => panic!("{other:?}"),
    }
    server.forget_session();
    call(&host, "act", "").await.unwrap();
    settle().await;
    assert_eq!(server.received(SUBSCRIBE), 1, "nobody wants it any more");
}

#[tokio::test(start_paused = true)]
async fn whoever_cannot_wait_for_a_server_that_is_away_is_told_so_and_others_get_theirs() {
    let (host, server) = host_with(LinkKind::Remote).await;
    server.go_away().await;
    let ear: Arc<dyn Listener> = Arc::new(Ear::default());
    let briefly = SubscribeOptions { patience: Some(Duration::from_secs(1)), ..SubscribeOptions::default() };
    let error = host.subscribe("it", "mem://a", Arc::clone(&ear), briefly).await.unwrap_err();
    assert_eq!(error.code, Code::Reconnecting, "{error}");
    let waiting = tokio::spawn({
        let host = host.clone();
        async move { subscribe(&host, "mem://b").await }
    });
    settle().await;
    server.come_back();
    let _kept = waiting.await.unwrap();
    assert_eq!(uris(&server.asked(SUBSCRIBE)), ["mem://b"]);
    host.stop("it").unwrap();
    let error = host.subscribe("it", "mem://a", ear, SubscribeOptions::default()).await.unwrap_err();
    assert_eq!(error.code, Code::Stopped, "{error}");
}

/// D04, for a session that the server forgot.
#[tokio::test(start_paused = true)]
async fn d04_subscriptions_are_put_back_into_a_new_session_and_followers_look_again() {
    let (host, server) = host_with(LinkKind::Remote).await;
    let (_kept, a) = subscribe(&host, "mem://a").await;
    let (gone, b) = subscribe(&host, "mem://b").await;
    drop(gone);
    settle().await;
    server.forget_session();
    call(&host, "act", "").await.unwrap();
    settle().await;
    assert_eq!(uris(&server.asked(SUBSCRIBE)), ["mem://a", "mem://b", "mem://a"]);
    assert_eq!((a.heard(), b.heard()), (vec!["mem://a".to_owned()], Vec::new()));
    server.update("mem://a").await;
    settle().await;
    assert_eq!(a.heard(), ["mem://a"]);
}

/// D04, for a child that died.
#[tokio::test(start_paused = true)]
async fn d04_subscriptions_are_put_back_after_a_respawn_in_both_eras() {
    let (host, server) = host_with(LinkKind::Process).await;
    let (_kept, a) = subscribe(&host, "mem://a").await;
    server.break_link().await;
    until(&host, State::Ready).await;
    settle().await;
    assert_eq!((server.dials(), server.received(SUBSCRIBE), a.heard()), (2, 2, vec!["mem://a".to_owned()]));

    let (host, server) = modern().await;
    let (_kept, a) = subscribe(&host, "mem://a").await;
    server.break_link().await;
    until(&host, State::Ready).await;
    settle().await;
    assert_eq!(server.streams(), [["mem://a"]]);
    assert_eq!(a.heard(), ["mem://a"]);
}

#[tokio::test(start_paused = true)]
async fn a_subscription_that_met_a_bad_moment_is_asked_for_again() {
    let (host, server) = host_with(LinkKind::Remote).await;
    let (_kept, a) = subscribe(&host, "mem://a").await;
    let broken = HttpAnswer { status: 500, had_session: true, ..HttpAnswer::default() };
    server.refuse_next([broken.clone(), broken]);
    server.forget_session();
    call(&host, "act", "").await.unwrap();
    tokio::time::sleep(Duration::from_secs(4)).await;
    assert_eq!((server.received(SUBSCRIBE), a.heard()), (4, vec!["mem://a".to_owned()]));
}

/// A server that lets nobody subscribe, whatever they show, once it was told so.
#[derive(Default)]
struct NoSubscribers {
    refuses: AtomicBool,
    renewals: AtomicU32,
}

impl Meddler for NoSubscribers {
    fn meddle(&self, request: &Outgoing) -> Option<Fate> {
        if request.method != SUBSCRIBE || !self.refuses.load(Ordering::Relaxed) {
            return None;
        }
        let answer = HttpAnswer { status: 401, ..HttpAnswer::default() };
        let evidence = Evidence::sent(request.during, Observed::Http(answer));
        Some(Box::pin(std::future::ready(Err(evidence.into()))))
    }

    fn renew(&self) -> Renewed {
        self.renewals.fetch_add(1, Ordering::Relaxed);
        Renewed::Replaced
    }
}

/// B09
#[tokio::test(start_paused = true)]
async fn e01_a_subscription_that_is_refused_whatever_is_shown_costs_no_credential_and_no_session() {
    let (host, server, manners) =
        (Host::builder().build(), Server::new(LinkKind::Remote), Arc::new(NoSubscribers::default()));
    let dialer: Arc<dyn Dialer> = Arc::new(Meddled(server.clone(), Arc::clone(&manners)));
    host.spawn_with("it", spec(), SpawnOptions { dialer: Some(dialer), ..SpawnOptions::default() }).unwrap();
    until(&host, State::Ready).await;
    let (_kept, a) = subscribe(&host, "mem://a").await;
    manners.refuses.store(true, Ordering::Relaxed);
    server.forget_session();
    call(&host, "act", "").await.unwrap();
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!((manners.renewals.load(Ordering::Relaxed), server.received("initialize")), (0, 2));
    assert_eq!(host.status_of("it").unwrap().supervision.state, State::Ready);
    manners.refuses.store(false, Ordering::Relaxed);
    tokio::time::sleep(Duration::from_secs(61)).await;
    assert_eq!(a.heard(), ["mem://a"], "it was tried again");
}

#[tokio::test(start_paused = true)]
async fn a_modern_server_is_told_of_everything_on_one_stream_which_is_replaced_without_a_gap() {
    let (host, server) = modern().await;
    assert_eq!(server.streams(), [[""; 0]], "lists are listened for");
    let (one, a) = subscribe(&host, "mem://a").await;
    let (two, b) = subscribe(&host, "mem://b").await;
    let (_three, _) = subscribe(&host, "mem://b").await;
    settle().await;
    assert_eq!(server.streams(), [["mem://a", "mem://b"]], "one stream, and none left over");
    assert_eq!(server.received(LISTEN), 3);
    server.update("mem://a").await;
    settle().await;
    assert_eq!((a.heard(), b.heard()), (vec!["mem://a".to_owned()], Vec::new()));
    drop(one);
    settle().await;
    assert_eq!(server.streams(), [["mem://b"]]);
    drop(two);
    settle().await;
    assert_eq!((server.streams(), server.received(LISTEN)), (vec![vec!["mem://b".to_owned()]], 4));
    assert_eq!(server.gaps(), 0, "the new one is open before the old one is closed");
    assert_eq!(server.received(SUBSCRIBE), 0, "the modern era has no such method");
}

#[tokio::test(start_paused = true)]
async fn what_a_modern_server_does_not_acknowledge_is_declined() {
    let (host, server) = modern().await;
    server.decline("mem://secret");
    let (_kept, _) = subscribe(&host, "mem://a").await;
    let ear: Arc<dyn Listener> = Arc::new(Ear::default());
    let declined = host.subscribe("it", "mem://secret", ear, SubscribeOptions::default()).await.unwrap();
    assert!(matches!(declined, Subscribed::Declined(_)), "{declined:?}");
    settle().await;
    assert_eq!(server.streams(), [["mem://a"]]);
}

/// D04: the listen stream, and what it tells of.
#[tokio::test(start_paused = true)]
async fn d04_a_stream_that_ends_is_opened_again_and_followers_look_again() {
    let (host, server) = modern().await;
    let (_kept, a) = subscribe(&host, "mem://a").await;
    server.end_streams();
    settle().await;
    assert!(server.streams().is_empty());
    tokio::time::sleep(Duration::from_secs(5)).await;
    settle().await;
    assert_eq!((server.streams(), a.heard()), (vec![vec!["mem://a".to_owned()]], vec!["mem://a".to_owned()]));
}

#[tokio::test(start_paused = true)]
async fn a_lazy_server_is_started_by_a_follower_and_stays_up_for_it() {
    let mut spec = spec();
    spec.supervision.lazy = true;
    let (host, server) = host_with_spec(LinkKind::Process, spec).await;
    assert!(!host.tells_of_resources(), "nothing is known of it yet");
    let (kept, _) = subscribe(&host, "mem://a").await;
    assert!(host.tells_of_resources());
    tokio::time::sleep(Duration::from_secs(3600)).await;
    assert_eq!((server.dials(), host.status_of("it").unwrap().supervision.state), (1, State::Ready));
    host.stop("it").unwrap();
    until(&host, State::Stopped).await;
    host.start_again("it").unwrap();
    until(&host, State::Ready).await;
    settle().await;
    assert_eq!(server.received(SUBSCRIBE), 2, "somebody still follows it");
    drop(kept);
    tokio::time::sleep(Duration::from_secs(3600)).await;
    assert_eq!(host.status_of("it").unwrap().supervision.state, State::Idle);
}

async fn follows(host: &Host, client: &Client, uri: &str) -> (Subscription, Arc<Ear>) {
    let ear = Arc::new(Ear::default());
    let options = SubscribeOptions { client: Some(client.clone()), ..SubscribeOptions::default() };
    match host.subscribe("it", uri, Arc::clone(&ear) as _, options).await.unwrap() {
        Subscribed::Following(subscription) => (subscription, ear),
        other => panic!("{other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_with_an_instance_of_its_own_follows_there_and_keeps_it_for_that() {
    let mut spec = spec();
    spec.isolation = Isolation::PerClient;
    let (host, server) = host_with_spec(LinkKind::Process, spec).await;
    let (ada, bob) = (Client::one(ClientKey::new("ada")), Client::one(ClientKey::new("bob")));
    let (_theirs, other) = follows(&host, &bob, "mem://a").await;
    let (mine, ear) = follows(&host, &ada, "mem://a").await;
    assert_eq!(server.received(SUBSCRIBE), 2, "each at its own instance");
    server.update("mem://a").await;
    settle().await;
    assert_eq!((ear.heard().len(), other.heard().len()), (1, 0), "the last one to be made spoke");
    tokio::time::sleep(Duration::from_secs(3600)).await;
    assert_eq!(host.status_of("it").unwrap().instances.count(), 2, "nobody called, but both follow");

    // A stopped server has no instances of clients; what they follow is put back when they have one again.
    host.stop("it").unwrap();
    host.start_again("it").unwrap();
    until(&host, State::Ready).await;
    let options = CallOptions { client: Some(ada), ..CallOptions::default() };
    host.request_with("it", "resources/read", Some(raw(json!({}))), options).await.unwrap();
    settle().await;
    assert_eq!((server.received(SUBSCRIBE), ear.heard()), (3, vec!["mem://a".to_owned()]));
    drop(mine);
    settle().await;
    assert_eq!(server.received(UNSUBSCRIBE), 1);
}

#[tokio::test(start_paused = true)]
async fn d04_what_a_client_follows_is_not_lost_with_an_instance_that_leaves_while_the_next_is_in_use() {
    let mut spec = spec();
    spec.isolation = Isolation::PerClient;
    let (host, server) = host_with_spec(LinkKind::Process, spec).await;
    let ada = Client::one(ClientKey::new("ada"));
    let (_mine, ear) = follows(&host, &ada, "mem://a").await;
    let calls = |key: &'static str| {
        let (host, client) = (host.clone(), Some(ada.clone()));
        let params = raw(json!({ "name": "act", "arguments": { "key": key } }));
        async move {
            let options = CallOptions { client, ..CallOptions::default() };
            host.request_with("it", "tools/call", Some(params), options).await
        }
    };
    server.next_acts([Act::Hang]);
    let long = tokio::spawn(calls("long"));
    settle().await;
    host.stop("it").unwrap();
    host.start_again("it").unwrap();
    calls("short").await.unwrap();
    settle().await;
    assert_ne!(server.served_on("long"), server.served_on("short"), "both are there");
    assert_eq!(ear.heard(), ["mem://a"], "it is followed at the new one");
    long.await.unwrap().unwrap_err();
    settle().await;
    // The old one has left.
    let (_more, _) = follows(&host, &ada, "mem://b").await;
    let told = server.asked(SUBSCRIBE).into_iter().map(|params| params["uri"].clone());
    assert_eq!(told.collect::<Vec<_>>(), ["mem://a", "mem://a", "mem://b"]);
}

/// The status of each task that it has heard of since it was last asked.
fn statuses(ear: &Ear) -> Vec<Value> {
    let heard = std::mem::take(&mut *ear.0.lock().unwrap());
    heard.iter().map(|message| json!([message["params"]["taskId"], message["params"]["status"]])).collect()
}

async fn follow_task(host: &Host, id: &str) -> (Subscribed, Arc<Ear>) {
    let ear = Arc::new(Ear::default());
    let options = SubscribeOptions::default();
    (host.subscribe_to_task("it", id, Arc::clone(&ear) as _, options).await.unwrap(), ear)
}

async fn says(server: &Server, id: &str, status: &str) {
    let params = json!({ "taskId": id, "status": status });
    server.say(json!({ "jsonrpc": "2.0", "method": "notifications/tasks", "params": params })).await;
    settle().await;
}

#[tokio::test(start_paused = true)]
async fn a_task_is_followed_on_the_one_stream_by_whoever_wants_to_hear_of_it() {
    let (host, server) = modern().await;
    let (_resource, _) = subscribe(&host, "mem://a").await;
    let ((one, first), (two, second)) =
        (follow_task(&host, "job-1").await, follow_task(&host, "job-1").await);
    assert!(matches!((&one, &two), (Subscribed::Following(_), Subscribed::Following(_))));
    assert_eq!(server.streams(), [["mem://a", "job-1"]]);
    let asked = server.asked(LISTEN);
    let declared = &asked.last().unwrap()["_meta"]["io.modelcontextprotocol/clientCapabilities"];
    assert_eq!(declared["extensions"]["io.modelcontextprotocol/tasks"], json!({}), "{declared}");
    says(&server, "job-1", "working").await;
    says(&server, "job-2", "working").await;
    assert_eq!(
        (statuses(&first), statuses(&second)),
        (vec![json!(["job-1", "working"])], vec![json!(["job-1", "working"])])
    );
    drop(one);
    settle().await;
    assert_eq!(server.streams(), [["mem://a", "job-1"]], "somebody still follows it");
    drop(two);
    settle().await;
    assert_eq!((server.streams(), server.gaps()), (vec![vec!["mem://a".to_owned()]], 0));
    server.decline("secret");
    assert!(matches!(follow_task(&host, "secret").await.0, Subscribed::Declined(_)));
}

/// D04: tasks too. What ended meanwhile would never be told of again.
#[tokio::test(start_paused = true)]
async fn d04_whoever_follows_a_task_hears_how_it_stands_after_the_stream_was_lost() {
    let (host, server) = modern().await;
    let (_kept, ear) = follow_task(&host, "job-1").await;
    server.end_streams();
    tokio::time::sleep(Duration::from_secs(5)).await;
    settle().await;
    assert_eq!(
        (server.streams(), statuses(&ear)),
        (vec![vec!["job-1".to_owned()]], vec![json!(["job-1", "looked at"])])
    );
    server.break_link().await;
    until(&host, State::Ready).await;
    settle().await;
    assert_eq!(
        (server.streams(), statuses(&ear)),
        (vec![vec!["job-1".to_owned()]], vec![json!(["job-1", "looked at"])])
    );
}

#[tokio::test(start_paused = true)]
async fn a_legacy_server_is_not_asked_to_tell_of_a_task() {
    let (host, server) = host_with(LinkKind::Remote).await;
    assert!(matches!(follow_task(&host, "job-1").await.0, Subscribed::Unsupported));
    assert_eq!(server.received(SUBSCRIBE), 0);
}

#[tokio::test(start_paused = true)]
async fn d04_a_subscription_whose_number_comes_back_as_a_text_is_recognised() {
    let (host, server) = (Host::builder().build(), Server::new(LinkKind::Remote).modern());
    let server = server.with_numbers_as_texts();
    add(&host, "it", spec(), &server);
    until(&host, State::Ready).await;
    let (_subscription, ear) = subscribe(&host, "mem://a").await;
    server.update("mem://a").await;
    settle().await;
    assert_eq!(ear.heard(), ["mem://a"]);
}
