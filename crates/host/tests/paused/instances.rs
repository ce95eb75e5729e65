//! Clients that share one instance of a server, and clients that have their own.

use crate::world::*;
use bytes::Bytes;
use gripfast::config::{Isolation, ServerSpec};
use gripfast::store::{MemoryStore, Store};
use gripfast::transport::{BoxFuture, Listener};
use gripfast::{Answer, CallError, CallOptions, Client, ClientKey, Event, Host, State};
use gripfast_core::supervise::upstream::LinkKind;
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::task::JoinHandle;

/// The link of the base instance, which is the first to be opened.
const BASE: usize = 0;

fn per_client() -> ServerSpec {
    ServerSpec { isolation: Isolation::PerClient, ..spec() }
}

fn client(name: &str) -> Client {
    Client::one(ClientKey::new(name))
}

pub(crate) async fn calls_as(host: &Host, client: &Client, key: &str) -> Result<Answer, CallError> {
    let options = CallOptions { client: Some(client.clone()), ..CallOptions::default() };
    host.request_with("it", "tools/call", Some(act(key)), options).await
}

fn act(key: &str) -> Box<gripfast::RawValue> {
    raw(json!({ "name": "act", "arguments": { "key": key } }))
}

/// A call in a task of its own, heard by `ear`.
pub(crate) fn begin(
    host: &Host,
    client: Option<&Client>,
    key: &'static str,
    ear: &Arc<Ear>,
) -> JoinHandle<()> {
    let (host, client, listener) = (host.clone(), client.cloned(), Arc::clone(ear) as Arc<dyn Listener>);
    tokio::spawn(async move {
        let options = CallOptions { client, listener: Some(listener), ..CallOptions::default() };
        let _ = host.request_with("it", "tools/call", Some(act(key)), options).await;
    })
}

fn instances(host: &Host) -> usize {
    host.status_of("it").unwrap().instances.count()
}

/// Somebody who answers every question with its own name, and remembers what it was told.
pub(crate) struct Ear {
    name: &'static str,
    heard: Mutex<Vec<Value>>,
}

impl Ear {
    pub(crate) fn named(name: &'static str) -> Arc<Self> {
        Arc::new(Self { name, heard: Mutex::default() })
    }

    pub(crate) fn heard(&self) -> Vec<Value> {
        self.heard.lock().unwrap().clone()
    }
}

impl Listener for Ear {
    fn said(&self, message: &[u8]) {
        self.heard.lock().unwrap().push(serde_json::from_slice(message).unwrap());
    }

    fn asked(&self, request: Bytes) -> Option<BoxFuture<'static, Vec<u8>>> {
        let asked: Value = serde_json::from_slice(&request).unwrap();
        let answer = json!({ "jsonrpc": "2.0", "id": asked["id"], "result": { "by": self.name } });
        Some(Box::pin(std::future::ready(answer.to_string().into_bytes())))
    }
}

/// Who answered the question with this id, and on which link; nobody if it was declined.
pub(crate) fn answered_by(server: &Server, id: u64) -> (usize, Option<String>) {
    let answers = server.answers_to(id);
    let [(link, answer)] = answers.as_slice() else { panic!("{answers:?}") };
    (*link, answer["result"]["by"].as_str().map(str::to_owned))
}

pub(crate) fn log_message() -> Value {
    json!({ "jsonrpc": "2.0", "method": "notifications/message", "params": { "level": "info", "data": 1 } })
}

#[tokio::test(start_paused = true)]
async fn each_client_has_an_instance_of_its_own_made_on_first_use_and_callers_without_one_share() {
    let (host, server) = host_with_spec(LinkKind::Process, per_client()).await;
    assert_eq!((server.dials(), instances(&host)), (1, 0), "nobody has called yet");
    let (a, b) = (client("a"), client("b"));
    for round in ["1", "2"] {
        for (who, client) in [("a", &a), ("b", &b)] {
            calls_as(&host, client, &format!("{who}{round}")).await.unwrap();
        }
        call(&host, "act", &format!("nobody{round}")).await.unwrap();
    }
    for who in ["a", "b", "nobody"] {
        assert_eq!(server.served_on(&format!("{who}1")), server.served_on(&format!("{who}2")));
    }
    assert_eq!(server.served_on("nobody1"), BASE);
    assert_ne!(server.served_on("a1"), server.served_on("b1"));
    let status = host.status_of("it").unwrap();
    assert_eq!(status.instances.states, [(State::Ready, 2)]);
    assert_eq!((status.calls.calls, server.dials()), (6, 3), "one row counts for all");
    assert_eq!(server.received("tools/list"), 3, "each is held up against what was approved");
    assert_eq!(server.received("resources/list"), 1, "what is offered is asked of the base instance alone");
}

#[tokio::test(start_paused = true)]
async fn shared_is_one_instance_for_everybody() {
    let shared = ServerSpec { isolation: Isolation::Shared, ..spec() };
    let (host, server) = host_with_spec(LinkKind::Process, shared).await;
    server.say(question(1)).await;
    settle().await;
    calls_as(&host, &client("a"), "a").await.unwrap();
    calls_as(&host, &client("b"), "b").await.unwrap();
    assert_eq!((server.served_on("a"), server.served_on("b"), server.dials()), (BASE, BASE, 1));
}

#[tokio::test(start_paused = true)]
async fn an_instance_that_nobody_uses_is_ended_and_never_under_a_call() {
    let mut spec = per_client();
    spec.supervision.idle_timeout = Duration::from_secs(60);
    spec.supervision.timeouts.call = Duration::from_secs(3600);
    let (host, server) = host_with_spec(LinkKind::Process, spec).await;
    server.next_acts([Act::Slowly(Duration::from_secs(600))]);
    calls_as(&host, &client("a"), "long").await.unwrap();
    let link = server.served_on("long");
    assert_eq!(server.open_links(), [BASE, link]);
    tokio::time::sleep(Duration::from_secs(59)).await;
    assert_eq!(instances(&host), 1);
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!((instances(&host), server.open_links()), (0, vec![BASE]));
    calls_as(&host, &client("a"), "again").await.unwrap();
    assert_ne!(server.served_on("again"), link);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_is_gone_takes_its_instance_along_and_makes_room() {
    let spec = ServerSpec { max_instances: 2, ..per_client() };
    let (host, server) = host_with_spec(LinkKind::Process, spec).await;
    for name in ["a", "b"] {
        calls_as(&host, &client(name), name).await.unwrap();
    }
    let refused = calls_as(&host, &client("c"), "c").await.unwrap_err();
    assert_eq!((refused.code.word(), refused.outcome.word()), ("overloaded", "not_sent"));
    assert!(refused.retry_after.is_some_and(|wait| wait <= Duration::from_secs(600)), "{refused:?}");
    assert!(refused.hint.as_deref().is_some_and(|hint| hint.contains("max_instances")), "{refused:?}");
    host.client_gone(&ClientKey::new("a"));
    settle().await;
    assert_eq!(server.open_links(), [BASE, server.served_on("b")]);
    calls_as(&host, &client("c"), "c").await.unwrap();
    assert_eq!(host.status_of("it").unwrap().calls.errors, 1, "the refusal counts in the server's row");
}

#[tokio::test(start_paused = true)]
async fn an_instance_is_kept_like_any_other() {
    let (host, server) = host_with_spec(LinkKind::Process, per_client()).await;
    calls_as(&host, &client("a"), "before").await.unwrap();
    server.break_link().await;
    settle().await;
    calls_as(&host, &client("a"), "after").await.unwrap();
    assert_ne!(server.served_on("before"), server.served_on("after"));
    let status = host.status_of("it").unwrap();
    assert_eq!(status.supervision.restarts, 2, "the base instance and the client's own");
    // A sick one opens its own circuit and nobody else's.
    server.next_acts(std::iter::repeat_n(Act::Hang, 3));
    for _ in 0..3 {
        calls_as(&host, &client("a"), "sick").await.unwrap_err();
    }
    assert_eq!(calls_as(&host, &client("a"), "open").await.unwrap_err().code.word(), "unreachable");
    calls_as(&host, &client("b"), "well").await.unwrap();
    call(&host, "act", "well").await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn f01_the_verbs_act_on_all_instances() {
    let (host, server) = host_with_spec(LinkKind::Process, per_client()).await;
    calls_as(&host, &client("a"), "a").await.unwrap();
    let first = server.served_on("a");
    host.reconnect("it").unwrap();
    settle().await;
    assert_eq!(server.open_links().len(), 2, "both were replaced");
    assert!(!server.open_links().contains(&first) && !server.open_links().contains(&BASE));
    host.reload("it").unwrap();
    settle().await;
    assert_eq!((server.dials(), server.open_links().len()), (6, 2));
    host.stop("it").unwrap();
    settle().await;
    assert_eq!(server.open_links(), [0usize; 0]);
    for name in ["a", "b"] {
        assert_eq!(calls_as(&host, &client(name), name).await.unwrap_err().code.word(), "stopped");
    }
    assert_eq!(server.dials(), 6, "nobody started it");
    host.start_again("it").unwrap();
    calls_as(&host, &client("a"), "a").await.unwrap();
    assert_eq!(server.open_links().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn removal_and_shutdown_return_when_no_instance_is_left() {
    let (host, server) = host_with_spec(LinkKind::Process, per_client()).await;
    let other = Server::new(LinkKind::Process);
    add(&host, "other", per_client(), &other);
    for name in ["a", "b"] {
        calls_as(&host, &client(name), name).await.unwrap();
        let options = CallOptions { client: Some(client(name)), ..CallOptions::default() };
        host.request_with("other", "tools/call", Some(act(name)), options).await.unwrap();
    }
    server.end_slowly(Duration::from_secs(4));
    host.client_gone(&ClientKey::new("a"));
    settle().await;
    server.end_slowly(Duration::ZERO);
    host.remove("it").await.unwrap();
    assert_eq!(server.open_links(), [0usize; 0]);
    host.shutdown().await;
    assert_eq!(other.open_links(), [0usize; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_call_under_way_outlives_its_client_for_a_while_and_no_longer() {
    let (host, server) = host_with_spec(LinkKind::Process, per_client()).await;
    server.next_acts([Act::Slowly(Duration::from_secs(5)), Act::Hang]);
    let (a, b) = (client("a"), client("b"));
    let finishing = tokio::spawn({
        let (host, a) = (host.clone(), a.clone());
        async move { calls_as(&host, &a, "a").await }
    });
    settle().await;
    let hanging = tokio::spawn({
        let (host, b) = (host.clone(), b.clone());
        async move { calls_as(&host, &b, "b").await }
    });
    settle().await;
    host.client_gone(&ClientKey::new("a"));
    host.client_gone(&ClientKey::new("b"));
    finishing.await.unwrap().unwrap();
    tokio::time::sleep(Duration::from_secs(11)).await;
    assert_eq!(server.open_links(), [BASE]);
    hanging.abort();
}

#[tokio::test(start_paused = true)]
async fn auto_shares_until_a_question_that_could_be_for_two_clients_and_remembers_across_a_restart() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
    let (host, server) = (host_on(&store), Server::new(LinkKind::Process));
    add(&host, "it", spec(), &server);
    until(&host, State::Ready).await;
    let mut events = host.events();
    server.always(Act::Hang);
    let (a, b) = (Ear::named("a"), Ear::named("b"));
    let calls = [begin(&host, Some(&client("a")), "a", &a), begin(&host, Some(&client("b")), "b", &b)];
    settle().await;
    assert_eq!((server.served_on("a"), server.served_on("b")), (BASE, BASE));
    server.say(question(7)).await;
    settle().await;
    assert_eq!(answered_by(&server, 7), (BASE, None), "the question that revealed it is declined");
    assert_eq!(events.recv().await.unwrap().event, Event::ClientsSeparated);
    server.say(question(8)).await;
    settle().await;
    assert!(events.try_recv().is_err(), "told once");
    server.always(Act::Answer);
    calls_as(&host, &client("a"), "own").await.unwrap();
    assert_ne!(server.served_on("own"), BASE);
    assert!(host.status_of("it").unwrap().instances.are_apart);
    calls.iter().for_each(JoinHandle::abort);
    host.shutdown().await;

    let (host, server) = (host_on(&store), Server::new(LinkKind::Process));
    add(&host, "it", spec(), &server);
    until(&host, State::Ready).await;
    calls_as(&host, &client("a"), "own").await.unwrap();
    assert_ne!(server.served_on("own"), BASE, "after a restart it is known from the start");
    let plain = client("plain").can_be_asked(false);
    calls_as(&host, &plain, "plain").await.unwrap();
    assert_eq!(server.served_on("plain"), BASE, "one that cannot be asked gains nothing from its own");
}

#[tokio::test(start_paused = true)]
async fn auto_puts_a_question_to_the_client_whose_calls_are_the_only_ones_and_stays_shared() {
    let (host, server) = host_with(LinkKind::Process).await;
    server.always(Act::Hang);
    let (first, second) = (Ear::named("first"), Ear::named("second"));
    let calls =
        [begin(&host, Some(&client("a")), "1", &first), begin(&host, Some(&client("a")), "2", &second)];
    settle().await;
    server.say(question(7)).await;
    server.say(log_message()).await;
    server.say(json!({ "jsonrpc": "2.0", "id": 8, "method": "ping" })).await;
    settle().await;
    assert_eq!(answered_by(&server, 7), (BASE, Some("second".to_owned())));
    assert_eq!(server.answers_to(8)[0].1["result"], json!({}), "nobody is bothered with a ping");
    assert_eq!(second.heard(), [log_message()]);
    assert!(!host.status_of("it").unwrap().instances.are_apart);
    calls.iter().for_each(JoinHandle::abort);
}

/// Somebody who thinks for a while about every question.
struct Slow(Duration);

impl Listener for Slow {
    fn said(&self, _message: &[u8]) {}

    fn asked(&self, request: Bytes) -> Option<BoxFuture<'static, Vec<u8>>> {
        let (answer, pause) = (Ear::named("slow").asked(request)?, self.0);
        Some(Box::pin(async move {
            tokio::time::sleep(pause).await;
            answer.await
        }))
    }
}

#[tokio::test(start_paused = true)]
async fn a_question_that_may_be_about_either_of_two_calls_outlives_the_one_it_was_put_on_and_stops_their_time()
 {
    let mut spec = spec();
    spec.supervision.timeouts.call = Duration::from_secs(30);
    let (host, server) = host_with_spec(LinkKind::Process, spec).await;
    server.next_acts([Act::Slowly(Duration::from_secs(50)), Act::Slowly(Duration::from_secs(1))]);
    let calls = ["waits", "is done"].map(|key| {
        let (host, listener) = (host.clone(), Arc::new(Slow(Duration::from_secs(40))) as Arc<dyn Listener>);
        let options =
            CallOptions { client: Some(client("a")), listener: Some(listener), ..Default::default() };
        tokio::spawn(async move { host.request_with("it", "tools/call", Some(act(key)), options).await })
    });
    settle().await;
    server.say(question(7)).await;
    for call in calls {
        call.await.unwrap().unwrap();
    }
    assert_eq!(answered_by(&server, 7), (BASE, Some("slow".to_owned())));
}

#[tokio::test(start_paused = true)]
async fn auto_separates_after_a_question_outside_any_call_but_not_after_a_ping() {
    let (host, server) = host_with(LinkKind::Process).await;
    server.say(json!({ "jsonrpc": "2.0", "id": 1, "method": "ping" })).await;
    server.say(json!({ "jsonrpc": "2.0", "id": 2, "method": "no/such" })).await;
    settle().await;
    assert_eq!(server.answers_to(1)[0].1["result"], json!({}));
    assert!(!host.status_of("it").unwrap().instances.are_apart);
    server.say(json!({ "jsonrpc": "2.0", "id": 3, "method": "roots/list" })).await;
    settle().await;
    assert_eq!(server.answers_to(3)[0].1["error"]["code"], -32601);
    assert!(host.status_of("it").unwrap().instances.are_apart);
}

#[tokio::test(start_paused = true)]
async fn whoever_has_asked_for_roots_is_told_that_they_have_changed_and_nobody_else() {
    const CHANGED: &str = "notifications/roots/list_changed";
    let (host, server) = host_with_spec(LinkKind::Process, per_client()).await;
    for name in ["a", "b"] {
        calls_as(&host, &client(name), name).await.unwrap();
    }
    let change_of = async |name: &str| {
        host.roots_changed(&ClientKey::new(name));
        settle().await;
        server.told(CHANGED)
    };
    assert_eq!(change_of("a").await, [0; 0], "it never asked, and has nothing to forget");
    let a = server.served_on("a");
    for link in [BASE, a] {
        server.say_on(link, json!({ "jsonrpc": "2.0", "id": 3, "method": "roots/list" })).await;
    }
    settle().await;
    assert_eq!(change_of("a").await, [a], "its own instance, and not everybody's");
    assert_eq!(change_of("b").await, [a], "this one still has nothing to forget");
    assert_eq!(change_of("c").await, [a, BASE], "one that has no own instance is served by everybody's");
}

#[tokio::test(start_paused = true)]
async fn auto_shares_again_when_there_are_as_many_instances_as_there_may_be() {
    let (host, server) = host_with_spec(LinkKind::Process, ServerSpec { max_instances: 1, ..spec() }).await;
    server.say(question(1)).await;
    settle().await;
    calls_as(&host, &client("a"), "a").await.unwrap();
    calls_as(&host, &client("b"), "b").await.unwrap();
    assert_ne!(server.served_on("a"), BASE);
    assert_eq!(server.served_on("b"), BASE, "nobody asked for separation, so nobody is refused for it");
}

#[tokio::test(start_paused = true)]
async fn programs_that_count_as_one_client_are_not_asked_for_each_other() {
    let (host, server) = host_with(LinkKind::Process).await;
    server.always(Act::Hang);
    let many = Client::many(ClientKey::new("local"));
    let (one, two) = (Ear::named("one"), Ear::named("two"));
    let both = [begin(&host, Some(&many), "1", &one), begin(&host, Some(&many), "2", &two)];
    settle().await;
    server.say(question(2)).await;
    settle().await;
    assert_eq!(answered_by(&server, 2), (BASE, None), "it may be about either");
    both.iter().for_each(JoinHandle::abort);
    // From now on each of their calls is alone while it is under way.
    let calls = [begin(&host, Some(&many), "3", &one), begin(&host, Some(&many), "4", &two)];
    settle().await;
    let links = [server.served_on("3"), server.served_on("4")];
    assert!(links[0] != links[1] && !links.contains(&BASE), "{links:?}");
    for (id, link, name) in [(3, links[0], "one"), (4, links[1], "two")] {
        server.say_on(link, question(id)).await;
        settle().await;
        assert_eq!(answered_by(&server, id), (link, Some(name.to_owned())));
    }
    calls.iter().for_each(JoinHandle::abort);
}

#[tokio::test(start_paused = true)]
async fn a_call_beside_one_that_was_asked_something_is_served_elsewhere_before_anything_is_declined() {
    let (host, server) = host_with(LinkKind::Process).await;
    server.always(Act::Hang);
    let many = Client::many(ClientKey::new("local"));
    let (slow, quick) = (Arc::new(Slow(Duration::from_secs(500))), Ear::named("quick"));
    let options = CallOptions { client: Some(many.clone()), listener: Some(slow), ..Default::default() };
    let asked = tokio::spawn({
        let host = host.clone();
        async move { host.request_with("it", "tools/call", Some(act("asked")), options).await }
    });
    settle().await;
    server.say(question(1)).await;
    settle().await;
    let second = begin(&host, Some(&many), "second", &quick);
    settle().await;
    let link = server.served_on("second");
    server.say_on(link, question(2)).await;
    settle().await;
    assert_eq!((link != BASE, answered_by(&server, 2)), (true, (link, Some("quick".to_owned()))));
    assert!(host.status_of("it").unwrap().instances.are_apart);
    let cannot = many.can_be_asked(false);
    let third = begin(&host, Some(&cannot), "third", &quick);
    settle().await;
    assert_eq!(server.served_on("third"), BASE, "one that cannot be asked gains nothing from its own");
    asked.abort();
    second.abort();
    third.abort();
}

#[tokio::test(start_paused = true)]
async fn what_an_own_instance_asks_or_says_is_for_its_client_in_a_call_or_outside_of_one() {
    let (host, server) = host_with_spec(LinkKind::Process, per_client()).await;
    let (in_call, outside, other) = (Ear::named("in call"), Ear::named("outside"), Ear::named("other"));
    let a = client("a").heard_by(Arc::clone(&outside) as Arc<dyn Listener>);
    let b = client("b").heard_by(Arc::clone(&other) as Arc<dyn Listener>);
    calls_as(&host, &a, "a").await.unwrap();
    calls_as(&host, &b, "b").await.unwrap();
    let link = server.served_on("a");
    server.say_on(link, question(1)).await;
    server.say_on(link, log_message()).await;
    settle().await;
    assert_eq!(answered_by(&server, 1), (link, Some("outside".to_owned())));
    assert_eq!(outside.heard(), [log_message()]);

    // A client that comes back on another way is heard there.
    let later = Ear::named("later");
    calls_as(&host, &client("a").heard_by(Arc::clone(&later) as Arc<dyn Listener>), "a").await.unwrap();
    server.say_on(link, question(3)).await;
    settle().await;
    assert_eq!(answered_by(&server, 3), (link, Some("later".to_owned())));

    server.always(Act::Hang);
    let call = begin(&host, Some(&a), "hangs", &in_call);
    settle().await;
    server.say_on(link, question(2)).await;
    server.say_on(link, log_message()).await;
    settle().await;
    assert_eq!(answered_by(&server, 2), (link, Some("in call".to_owned())));
    assert_eq!((in_call.heard().len(), outside.heard().len(), other.heard().len()), (1, 1, 0));
    call.abort();
}

#[tokio::test(start_paused = true)]
async fn an_own_instance_with_nobody_to_ask_declines_and_nothing_hangs() {
    let (host, server) = host_with_spec(LinkKind::Process, per_client()).await;
    calls_as(&host, &client("a"), "a").await.unwrap();
    let link = server.served_on("a");
    server.say_on(link, question(1)).await;
    settle().await;
    assert_eq!(answered_by(&server, 1), (link, None));
    let many = Client::many(ClientKey::new("local")).heard_by(Ear::named("nobody"));
    calls_as(&host, &many, "local").await.unwrap();
    let link = server.served_on("local");
    server.say_on(link, question(2)).await;
    settle().await;
    assert_eq!(answered_by(&server, 2), (link, None), "any of several programs could be meant");
}

#[tokio::test(start_paused = true)]
async fn a_changed_list_of_an_own_instance_changes_nothing_on_offer() {
    let (host, server) = host_with_spec(LinkKind::Process, per_client()).await;
    calls_as(&host, &client("a"), "a").await.unwrap();
    let changed = json!({ "jsonrpc": "2.0", "method": "notifications/tools/list_changed" });
    server.say_on(server.served_on("a"), changed.clone()).await;
    settle().await;
    assert_eq!(server.received("resources/list"), 1);
    server.say_on(BASE, changed).await;
    settle().await;
    assert_eq!(server.received("resources/list"), 2);
    assert_eq!(host.menu().tools.len(), 2, "and nothing is there twice");
}

#[tokio::test(start_paused = true)]
async fn events_of_an_own_instance_say_so_and_status_shows_its_trouble() {
    let (host, server) = host_with_spec(LinkKind::Process, per_client()).await;
    calls_as(&host, &client("a"), "a").await.unwrap();
    let before = host.status_of("it").unwrap().events.len();
    let mut events = host.events();
    server.shut(refused());
    calls_as(&host, &client("b"), "b").await.unwrap_err();
    let told = events.recv().await.unwrap();
    assert_eq!((told.server.as_deref(), told.instance), (Some("it"), Some(2)));
    let status = host.status_of("it").unwrap();
    assert_eq!(status.supervision.state, State::Ready, "the base instance is well");
    assert_eq!((status.instances.count(), status.instances.states[0]), (2, (State::Ready, 1)));
    assert!(status.instances.cause.is_some_and(|cause| cause.contains("refused")));
    assert_eq!(status.events.len(), before, "the server's own last events are not pushed out");
}
