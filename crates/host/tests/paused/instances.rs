//! Shared and dedicated instances of a server.

use crate::memory_server::*;
use bytes::Bytes;
use gripfast::JsonText;
use gripfast::config::{Isolation, ServerSpec};
use gripfast::store::{MemoryStore, Store};
use gripfast::transport::{BoxFuture, Listener};
use gripfast::{Answer, CallError, CallOptions, Client, ClientKey, Event, Host, State};
use gripfast_core::supervise::upstream::LinkKind;
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::task::JoinHandle;

/// The link of the base instance, which is opened first.
const BASE: usize = 0;

fn per_client() -> ServerSpec {
    ServerSpec { isolation: Isolation::PerClient, ..spec() }
}

fn client(name: &str) -> Client {
    Client::with_key(ClientKey::new(name))
}

pub(crate) async fn call_as(host: &Host, client: &Client, key: &str) -> Result<Answer, CallError> {
    let options = CallOptions { client: Some(client.clone()), ..CallOptions::default() };
    host.request_with("it", "tools/call", Some(&act(key)), options).await
}

fn act(key: &str) -> JsonText {
    raw(json!({ "name": "act", "arguments": { "key": key } }))
}

/// Starts a call in its own task, with this listener.
pub(crate) fn start_call(
    host: &Host,
    client: Option<&Client>,
    key: &'static str,
    named: &Arc<NamedListener>,
) -> JoinHandle<()> {
    let (host, client, listener) = (host.clone(), client.cloned(), Arc::clone(named) as Arc<dyn Listener>);
    tokio::spawn(async move {
        let options = CallOptions { client, listener: Some(listener), ..CallOptions::default() };
        let _ = host.request_with("it", "tools/call", Some(&act(key)), options).await;
    })
}

fn instances(host: &Host) -> usize {
    host.server_status("it").unwrap().instances.count()
}

/// A listener that answers every request with its own name and records all messages.
pub(crate) struct NamedListener {
    name: &'static str,
    messages: Mutex<Vec<Value>>,
}

impl NamedListener {
    pub(crate) fn named(name: &'static str) -> Arc<Self> {
        Arc::new(Self { name, messages: Mutex::default() })
    }

    pub(crate) fn messages(&self) -> Vec<Value> {
        self.messages.lock().unwrap().clone()
    }
}

impl Listener for NamedListener {
    fn on_message(&self, message: &[u8]) {
        self.messages.lock().unwrap().push(serde_json::from_slice(message).unwrap());
    }

    fn on_request(&self, request: Bytes) -> Option<BoxFuture<'static, Vec<u8>>> {
        let asked: Value = serde_json::from_slice(&request).unwrap();
        let answer = json!({ "jsonrpc": "2.0", "id": asked["id"], "result": { "by": self.name } });
        Some(Box::pin(std::future::ready(answer.to_string().into_bytes())))
    }
}

/// Link and name of the client that answered the request with this id; `None` as the name if it was declined.
pub(crate) fn answered_by(server: &MemoryServer, id: u64) -> (usize, Option<String>) {
    let answers = server.answers_to(id);
    let [(link, answer)] = answers.as_slice() else { panic!("{answers:?}") };
    (*link, answer["result"]["by"].as_str().map(str::to_owned))
}

pub(crate) fn log_message() -> Value {
    json!({ "jsonrpc": "2.0", "method": "notifications/message", "params": { "level": "info", "data": 1 } })
}

#[tokio::test(start_paused = true)]
async fn clients_get_a_dedicated_instance_on_first_use_and_others_share() {
    let (host, server) = host_with_spec(LinkKind::Process, per_client()).await;
    assert_eq!((server.connects(), instances(&host)), (1, 0), "no calls yet");
    let (a, b) = (client("a"), client("b"));
    for round in ["1", "2"] {
        for (who, client) in [("a", &a), ("b", &b)] {
            call_as(&host, client, &format!("{who}{round}")).await.unwrap();
        }
        call(&host, "act", &format!("anonymous{round}")).await.unwrap();
    }
    for who in ["a", "b", "anonymous"] {
        assert_eq!(server.served_on(&format!("{who}1")), server.served_on(&format!("{who}2")));
    }
    assert_eq!(server.served_on("anonymous1"), BASE);
    assert_ne!(server.served_on("a1"), server.served_on("b1"));
    let status = host.server_status("it").unwrap();
    assert_eq!(status.instances.states, [(State::Ready, 2)]);
    assert_eq!((status.calls.calls, server.connects()), (6, 3), "one row counts for all");
    assert_eq!(server.received("tools/list"), 3, "each is held up against what was approved");
    assert_eq!(server.received("resources/list"), 1, "what is offered is asked of the base instance alone");
}

#[tokio::test(start_paused = true)]
async fn shared_is_one_instance_for_all_clients() {
    let shared = ServerSpec { isolation: Isolation::Shared, ..spec() };
    let (host, server) = host_with_spec(LinkKind::Process, shared).await;
    server.send_message(elicitation(1)).await;
    run_ready_tasks().await;
    call_as(&host, &client("a"), "a").await.unwrap();
    call_as(&host, &client("b"), "b").await.unwrap();
    assert_eq!((server.served_on("a"), server.served_on("b"), server.connects()), (BASE, BASE, 1));
}

#[tokio::test(start_paused = true)]
async fn an_idle_instance_is_stopped_but_never_during_a_call() {
    let mut spec = per_client();
    spec.supervision.idle_timeout = Duration::from_secs(60);
    spec.supervision.timeouts.call = Duration::from_secs(3600);
    let (host, server) = host_with_spec(LinkKind::Process, spec).await;
    server.queue_actions([CallAction::AnswerAfter(Duration::from_secs(600))]);
    call_as(&host, &client("a"), "long").await.unwrap();
    let link = server.served_on("long");
    assert_eq!(server.open_links(), [BASE, link]);
    tokio::time::sleep(Duration::from_secs(59)).await;
    assert_eq!(instances(&host), 1);
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!((instances(&host), server.open_links()), (0, vec![BASE]));
    call_as(&host, &client("a"), "again").await.unwrap();
    assert_ne!(server.served_on("again"), link);
}

#[tokio::test(start_paused = true)]
async fn a_disconnected_client_frees_its_instance() {
    let spec = ServerSpec { max_instances: 2, ..per_client() };
    let (host, server) = host_with_spec(LinkKind::Process, spec).await;
    for name in ["a", "b"] {
        call_as(&host, &client(name), name).await.unwrap();
    }
    let refused = call_as(&host, &client("c"), "c").await.unwrap_err();
    assert_eq!((refused.code.as_str(), refused.outcome.as_str()), ("overloaded", "not_sent"));
    assert!(refused.retry_after.is_some_and(|wait| wait <= Duration::from_secs(600)), "{refused:?}");
    assert!(refused.hint.as_deref().is_some_and(|hint| hint.contains("max_instances")), "{refused:?}");
    host.remove_client(&ClientKey::new("a"));
    run_ready_tasks().await;
    assert_eq!(server.open_links(), [BASE, server.served_on("b")]);
    call_as(&host, &client("c"), "c").await.unwrap();
    assert_eq!(host.server_status("it").unwrap().calls.errors, 1, "the refusal counts in the server's row");
}

#[tokio::test(start_paused = true)]
async fn a_dedicated_instance_is_supervised_like_any_other() {
    let (host, server) = host_with_spec(LinkKind::Process, per_client()).await;
    call_as(&host, &client("a"), "before").await.unwrap();
    server.break_link().await;
    run_ready_tasks().await;
    call_as(&host, &client("a"), "after").await.unwrap();
    assert_ne!(server.served_on("before"), server.served_on("after"));
    let status = host.server_status("it").unwrap();
    assert_eq!(status.supervision.restarts, 2, "the base instance and the client's own");
    // A failing instance opens only its own circuit.
    server.queue_actions(std::iter::repeat_n(CallAction::Hang, 3));
    for _ in 0..3 {
        call_as(&host, &client("a"), "sick").await.unwrap_err();
    }
    assert_eq!(call_as(&host, &client("a"), "open").await.unwrap_err().code.as_str(), "unreachable");
    call_as(&host, &client("b"), "well").await.unwrap();
    call(&host, "act", "well").await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn f01_operations_act_on_all_instances() {
    let (host, server) = host_with_spec(LinkKind::Process, per_client()).await;
    call_as(&host, &client("a"), "a").await.unwrap();
    let first = server.served_on("a");
    host.reconnect("it").unwrap();
    run_ready_tasks().await;
    assert_eq!(server.open_links().len(), 2, "both were replaced");
    assert!(!server.open_links().contains(&first) && !server.open_links().contains(&BASE));
    host.reload("it").unwrap();
    run_ready_tasks().await;
    assert_eq!((server.connects(), server.open_links().len()), (6, 2));
    host.stop("it").unwrap();
    run_ready_tasks().await;
    assert_eq!(server.open_links(), [0usize; 0]);
    for name in ["a", "b"] {
        assert_eq!(call_as(&host, &client(name), name).await.unwrap_err().code.as_str(), "stopped");
    }
    assert_eq!(server.connects(), 6, "it was not started again");
    host.start("it").unwrap();
    call_as(&host, &client("a"), "a").await.unwrap();
    assert_eq!(server.open_links().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn removal_and_shutdown_return_when_no_instance_is_left() {
    let (host, server) = host_with_spec(LinkKind::Process, per_client()).await;
    let other = MemoryServer::new(LinkKind::Process);
    add(&host, "other", per_client(), &other);
    for name in ["a", "b"] {
        call_as(&host, &client(name), name).await.unwrap();
        let options = CallOptions { client: Some(client(name)), ..CallOptions::default() };
        host.request_with("other", "tools/call", Some(&act(name)), options).await.unwrap();
    }
    server.set_close_delay(Duration::from_secs(4));
    host.remove_client(&ClientKey::new("a"));
    run_ready_tasks().await;
    server.set_close_delay(Duration::ZERO);
    host.remove_server("it").await.unwrap();
    assert_eq!(server.open_links(), [0usize; 0]);
    host.shutdown().await;
    assert_eq!(other.open_links(), [0usize; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_call_in_flight_outlives_its_client_only_for_a_limited_time() {
    let (host, server) = host_with_spec(LinkKind::Process, per_client()).await;
    server.queue_actions([CallAction::AnswerAfter(Duration::from_secs(5)), CallAction::Hang]);
    let (a, b) = (client("a"), client("b"));
    let finishing = tokio::spawn({
        let (host, a) = (host.clone(), a.clone());
        async move { call_as(&host, &a, "a").await }
    });
    run_ready_tasks().await;
    let hanging = tokio::spawn({
        let (host, b) = (host.clone(), b.clone());
        async move { call_as(&host, &b, "b").await }
    });
    run_ready_tasks().await;
    host.remove_client(&ClientKey::new("a"));
    host.remove_client(&ClientKey::new("b"));
    finishing.await.unwrap().unwrap();
    tokio::time::sleep(Duration::from_secs(11)).await;
    assert_eq!(server.open_links(), [BASE]);
    hanging.abort();
}

#[tokio::test(start_paused = true)]
async fn auto_shares_until_an_ambiguous_elicitation_and_remembers_it() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
    let (host, server) = (host_on(&store), MemoryServer::new(LinkKind::Process));
    add(&host, "it", spec(), &server);
    wait_for_state(&host, State::Ready).await;
    let mut events = host.subscribe_events();
    server.set_default_action(CallAction::Hang);
    let (a, b) = (NamedListener::named("a"), NamedListener::named("b"));
    let calls =
        [start_call(&host, Some(&client("a")), "a", &a), start_call(&host, Some(&client("b")), "b", &b)];
    run_ready_tasks().await;
    assert_eq!((server.served_on("a"), server.served_on("b")), (BASE, BASE));
    server.send_message(elicitation(7)).await;
    run_ready_tasks().await;
    assert_eq!(answered_by(&server, 7), (BASE, None), "the question that revealed it is declined");
    assert_eq!(events.recv().await.unwrap().event, Event::ClientsIsolated);
    server.send_message(elicitation(8)).await;
    run_ready_tasks().await;
    assert!(events.try_recv().is_err(), "one event");
    server.set_default_action(CallAction::Answer);
    call_as(&host, &client("a"), "own").await.unwrap();
    assert_ne!(server.served_on("own"), BASE);
    assert!(host.server_status("it").unwrap().instances.enabled);
    calls.iter().for_each(JoinHandle::abort);
    host.shutdown().await;

    let (host, server) = (host_on(&store), MemoryServer::new(LinkKind::Process));
    add(&host, "it", spec(), &server);
    wait_for_state(&host, State::Ready).await;
    call_as(&host, &client("a"), "own").await.unwrap();
    assert_ne!(server.served_on("own"), BASE, "after a restart it is known from the start");
    let plain = client("plain").with_input_support(false);
    call_as(&host, &plain, "plain").await.unwrap();
    assert_eq!(server.served_on("plain"), BASE, "a client without elicitation needs no dedicated instance");
}

#[tokio::test(start_paused = true)]
async fn auto_sends_an_elicitation_to_the_only_calling_client_and_stays_shared() {
    let (host, server) = host_with(LinkKind::Process).await;
    server.set_default_action(CallAction::Hang);
    let (first, second) = (NamedListener::named("first"), NamedListener::named("second"));
    let calls = [
        start_call(&host, Some(&client("a")), "1", &first),
        start_call(&host, Some(&client("a")), "2", &second),
    ];
    run_ready_tasks().await;
    server.send_message(elicitation(7)).await;
    server.send_message(log_message()).await;
    server.send_message(json!({ "jsonrpc": "2.0", "id": 8, "method": "ping" })).await;
    run_ready_tasks().await;
    assert_eq!(answered_by(&server, 7), (BASE, Some("second".to_owned())));
    assert_eq!(server.answers_to(8)[0].1["result"], json!({}), "a ping reaches no client");
    assert_eq!(second.messages(), [log_message()]);
    assert!(!host.server_status("it").unwrap().instances.enabled);
    calls.iter().for_each(JoinHandle::abort);
}

/// A client that answers every request after this time.
struct AnswersAfter(Duration);

impl Listener for AnswersAfter {
    fn on_message(&self, _message: &[u8]) {}

    fn on_request(&self, request: Bytes) -> Option<BoxFuture<'static, Vec<u8>>> {
        let (answer, pause) = (NamedListener::named("slow").on_request(request)?, self.0);
        Some(Box::pin(async move {
            tokio::time::sleep(pause).await;
            answer.await
        }))
    }
}

#[tokio::test(start_paused = true)]
async fn an_ambiguous_elicitation_outlives_its_call_and_pauses_both_timeouts() {
    let mut spec = spec();
    spec.supervision.timeouts.call = Duration::from_secs(30);
    let (host, server) = host_with_spec(LinkKind::Process, spec).await;
    server.queue_actions([
        CallAction::AnswerAfter(Duration::from_secs(50)),
        CallAction::AnswerAfter(Duration::from_secs(1)),
    ]);
    let calls = ["waits", "is done"].map(|key| {
        let (host, listener) =
            (host.clone(), Arc::new(AnswersAfter(Duration::from_secs(40))) as Arc<dyn Listener>);
        let options =
            CallOptions { client: Some(client("a")), listener: Some(listener), ..Default::default() };
        tokio::spawn(async move { host.request_with("it", "tools/call", Some(&act(key)), options).await })
    });
    run_ready_tasks().await;
    server.send_message(elicitation(7)).await;
    for call in calls {
        call.await.unwrap().unwrap();
    }
    assert_eq!(answered_by(&server, 7), (BASE, Some("slow".to_owned())));
}

#[tokio::test(start_paused = true)]
async fn auto_separates_after_an_elicitation_outside_a_call_but_not_after_a_ping() {
    let (host, server) = host_with(LinkKind::Process).await;
    server.send_message(json!({ "jsonrpc": "2.0", "id": 1, "method": "ping" })).await;
    server.send_message(json!({ "jsonrpc": "2.0", "id": 2, "method": "no/such" })).await;
    run_ready_tasks().await;
    assert_eq!(server.answers_to(1)[0].1["result"], json!({}));
    assert!(!host.server_status("it").unwrap().instances.enabled);
    server.send_message(json!({ "jsonrpc": "2.0", "id": 3, "method": "roots/list" })).await;
    run_ready_tasks().await;
    assert_eq!(server.answers_to(3)[0].1["error"]["code"], -32601);
    assert!(host.server_status("it").unwrap().instances.enabled);
}

#[tokio::test(start_paused = true)]
async fn only_instances_that_requested_roots_get_root_changes() {
    const CHANGED: &str = "notifications/roots/list_changed";
    let (host, server) = host_with_spec(LinkKind::Process, per_client()).await;
    for name in ["a", "b"] {
        call_as(&host, &client(name), name).await.unwrap();
    }
    let change_of = async |name: &str| {
        host.notify_roots_changed(&ClientKey::new(name));
        run_ready_tasks().await;
        server.links_notified(CHANGED)
    };
    assert_eq!(change_of("a").await, [0; 0], "it never asked, and has nothing to forget");
    let a = server.served_on("a");
    for link in [BASE, a] {
        server.send_message_on(link, json!({ "jsonrpc": "2.0", "id": 3, "method": "roots/list" })).await;
    }
    run_ready_tasks().await;
    assert_eq!(change_of("a").await, [a], "the dedicated instance, not the shared one");
    assert_eq!(change_of("b").await, [a], "this one still has nothing to forget");
    assert_eq!(change_of("c").await, [a, BASE], "a client without a dedicated instance uses the shared one");
}

#[tokio::test(start_paused = true)]
async fn auto_shares_again_at_the_instance_limit() {
    let (host, server) = host_with_spec(LinkKind::Process, ServerSpec { max_instances: 1, ..spec() }).await;
    server.send_message(elicitation(1)).await;
    run_ready_tasks().await;
    call_as(&host, &client("a"), "a").await.unwrap();
    call_as(&host, &client("b"), "b").await.unwrap();
    assert_ne!(server.served_on("a"), BASE);
    assert_eq!(server.served_on("b"), BASE, "separation is optional, so no client is refused");
}

#[tokio::test(start_paused = true)]
async fn programs_of_one_client_do_not_get_each_others_elicitations() {
    let (host, server) = host_with(LinkKind::Process).await;
    server.set_default_action(CallAction::Hang);
    let many = Client::anonymous(ClientKey::new("local"));
    let (one, two) = (NamedListener::named("one"), NamedListener::named("two"));
    let both = [start_call(&host, Some(&many), "1", &one), start_call(&host, Some(&many), "2", &two)];
    run_ready_tasks().await;
    server.send_message(elicitation(2)).await;
    run_ready_tasks().await;
    assert_eq!(answered_by(&server, 2), (BASE, None), "it may be about either");
    both.iter().for_each(JoinHandle::abort);
    // From now on each of their calls is the only one in flight.
    let calls = [start_call(&host, Some(&many), "3", &one), start_call(&host, Some(&many), "4", &two)];
    run_ready_tasks().await;
    let links = [server.served_on("3"), server.served_on("4")];
    assert!(links[0] != links[1] && !links.contains(&BASE), "{links:?}");
    for (id, link, name) in [(3, links[0], "one"), (4, links[1], "two")] {
        server.send_message_on(link, elicitation(id)).await;
        run_ready_tasks().await;
        assert_eq!(answered_by(&server, id), (link, Some(name.to_owned())));
    }
    calls.iter().for_each(JoinHandle::abort);
}

#[tokio::test(start_paused = true)]
async fn a_call_beside_an_open_elicitation_gets_another_instance() {
    let (host, server) = host_with(LinkKind::Process).await;
    server.set_default_action(CallAction::Hang);
    let many = Client::anonymous(ClientKey::new("local"));
    let (slow, quick) = (Arc::new(AnswersAfter(Duration::from_secs(500))), NamedListener::named("quick"));
    let options = CallOptions { client: Some(many.clone()), listener: Some(slow), ..Default::default() };
    let asked = tokio::spawn({
        let host = host.clone();
        async move { host.request_with("it", "tools/call", Some(&act("asked")), options).await }
    });
    run_ready_tasks().await;
    server.send_message(elicitation(1)).await;
    run_ready_tasks().await;
    let second = start_call(&host, Some(&many), "second", &quick);
    run_ready_tasks().await;
    let link = server.served_on("second");
    server.send_message_on(link, elicitation(2)).await;
    run_ready_tasks().await;
    assert_eq!((link != BASE, answered_by(&server, 2)), (true, (link, Some("quick".to_owned()))));
    assert!(host.server_status("it").unwrap().instances.enabled);
    let cannot = many.with_input_support(false);
    let third = start_call(&host, Some(&cannot), "third", &quick);
    run_ready_tasks().await;
    assert_eq!(server.served_on("third"), BASE, "a client without elicitation needs no dedicated instance");
    asked.abort();
    second.abort();
    third.abort();
}

#[tokio::test(start_paused = true)]
async fn messages_of_a_dedicated_instance_are_for_its_client() {
    let (host, server) = host_with_spec(LinkKind::Process, per_client()).await;
    let (in_call, outside, other) =
        (NamedListener::named("in call"), NamedListener::named("outside"), NamedListener::named("other"));
    let a = client("a").with_listener(Arc::clone(&outside) as Arc<dyn Listener>);
    let b = client("b").with_listener(Arc::clone(&other) as Arc<dyn Listener>);
    call_as(&host, &a, "a").await.unwrap();
    call_as(&host, &b, "b").await.unwrap();
    let link = server.served_on("a");
    server.send_message_on(link, elicitation(1)).await;
    server.send_message_on(link, log_message()).await;
    run_ready_tasks().await;
    assert_eq!(answered_by(&server, 1), (link, Some("outside".to_owned())));
    assert_eq!(outside.messages(), [log_message()]);

    // A client that reconnects on another channel gets messages there.
    let later = NamedListener::named("later");
    call_as(&host, &client("a").with_listener(Arc::clone(&later) as Arc<dyn Listener>), "a").await.unwrap();
    server.send_message_on(link, elicitation(3)).await;
    run_ready_tasks().await;
    assert_eq!(answered_by(&server, 3), (link, Some("later".to_owned())));

    server.set_default_action(CallAction::Hang);
    let call = start_call(&host, Some(&a), "hangs", &in_call);
    run_ready_tasks().await;
    server.send_message_on(link, elicitation(2)).await;
    server.send_message_on(link, log_message()).await;
    run_ready_tasks().await;
    assert_eq!(answered_by(&server, 2), (link, Some("in call".to_owned())));
    assert_eq!((in_call.messages().len(), outside.messages().len(), other.messages().len()), (1, 1, 0));
    call.abort();
}

#[tokio::test(start_paused = true)]
async fn a_dedicated_instance_without_a_listener_declines_elicitations() {
    let (host, server) = host_with_spec(LinkKind::Process, per_client()).await;
    call_as(&host, &client("a"), "a").await.unwrap();
    let link = server.served_on("a");
    server.send_message_on(link, elicitation(1)).await;
    run_ready_tasks().await;
    assert_eq!(answered_by(&server, 1), (link, None));
    let many = Client::anonymous(ClientKey::new("local")).with_listener(NamedListener::named("unused"));
    call_as(&host, &many, "local").await.unwrap();
    let link = server.served_on("local");
    server.send_message_on(link, elicitation(2)).await;
    run_ready_tasks().await;
    assert_eq!(answered_by(&server, 2), (link, None), "any of several programs could be meant");
}

#[tokio::test(start_paused = true)]
async fn a_changed_list_of_a_dedicated_instance_does_not_change_the_catalog() {
    let (host, server) = host_with_spec(LinkKind::Process, per_client()).await;
    call_as(&host, &client("a"), "a").await.unwrap();
    let changed = json!({ "jsonrpc": "2.0", "method": "notifications/tools/list_changed" });
    server.send_message_on(server.served_on("a"), changed.clone()).await;
    run_ready_tasks().await;
    assert_eq!(server.received("resources/list"), 1);
    server.send_message_on(BASE, changed).await;
    run_ready_tasks().await;
    assert_eq!(server.received("resources/list"), 2);
    assert_eq!(host.catalog_snapshot().tools.len(), 2, "and nothing is there twice");
}

#[tokio::test(start_paused = true)]
async fn events_and_status_identify_a_dedicated_instance() {
    let (host, server) = host_with_spec(LinkKind::Process, per_client()).await;
    call_as(&host, &client("a"), "a").await.unwrap();
    let before = host.server_status("it").unwrap().events.len();
    let mut events = host.subscribe_events();
    server.fail_connects_with(refused());
    call_as(&host, &client("b"), "b").await.unwrap_err();
    let told = events.recv().await.unwrap();
    assert_eq!((told.server.as_deref(), told.instance), (Some("it"), Some(2)));
    let status = host.server_status("it").unwrap();
    assert_eq!(status.supervision.state, State::Ready, "the base instance is well");
    assert_eq!((status.instances.count(), status.instances.states[0]), (2, (State::Ready, 1)));
    assert!(status.instances.cause.is_some_and(|cause| cause.contains("refused")));
    assert_eq!(status.events.len(), before, "the server's own last events are not pushed out");
}
