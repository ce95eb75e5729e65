//! Config changes of a server in use: effects on calls and subscriptions.

use crate::memory_server::*;
use gripfast::config::{Isolation, ServerSpec};
use gripfast::store::{MemoryStore, RetainFn, Store};
use gripfast::transport::{Dialer, Listener};
use gripfast::{
    CallOptions, Client, ClientKey, Code, Host, Lists, ReplaceOutcome, SpawnOptions, State, SubscribeOptions,
    SubscribeOutcome,
};
use gripfast_core::supervise::upstream::LinkKind;
use serde_json::json;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// Replaces the config of `it` with `spec`, served by `server`.
async fn replace(host: &Host, spec: ServerSpec, server: &MemoryServer) -> ReplaceOutcome {
    let dialer: Arc<dyn Dialer> = Arc::new(server.clone());
    let options = SpawnOptions { dialer: Some(dialer), ..SpawnOptions::default() };
    host.replace_server_with("it", spec, options).unwrap()
}

async fn run_until_event(
    host: &Host,
    word: &str,
    act: impl Future<Output = ReplaceOutcome>,
) -> ReplaceOutcome {
    let mut events = host.subscribe_events();
    let replaced = act.await;
    while events.recv().await.unwrap().event.kind() != word {}
    replaced
}

/// Counts messages.
#[derive(Default)]
struct CountingListener(AtomicUsize);

impl Listener for CountingListener {
    fn on_message(&self, _message: &[u8]) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[tokio::test(start_paused = true)]
async fn a_changed_server_is_connected_and_listed_before_the_old_one_stops() {
    for (before, after) in [(LinkKind::Process, LinkKind::Remote), (LinkKind::Remote, LinkKind::Process)] {
        let (host, old) = host_with(before).await;
        old.queue_actions([CallAction::AnswerAfter(Duration::from_secs(60))]);
        let running = tokio::spawn({
            let host = host.clone();
            async move { call(&host, "act", "running").await }
        });
        run_ready_tasks().await;
        let new = MemoryServer::new(after);
        new.set_tool_names(&["other"]);
        let replaced = run_until_event(&host, "replaced", replace(&host, spec(), &new)).await;
        assert_eq!((replaced, tool_names(&host).await), (ReplaceOutcome::Link, vec!["other".to_owned()]));
        call(&host, "other", "").await.unwrap();
        assert!(!running.is_finished() && old.open_links().len() == 1);
        running.await.unwrap().unwrap();
        run_ready_tasks().await;
        assert_eq!((old.executed("running"), old.open_links().len()), (1, 0));
        let status = host.server_status("it").unwrap();
        assert_eq!((status.calls.calls, status.calls.errors, status.supervision.restarts), (2, 0, 0));
    }
}

#[tokio::test(start_paused = true)]
async fn a_changed_server_that_fails_is_retried_while_the_old_one_serves() {
    let (host, old) = host_with(LinkKind::Process).await;
    let new = MemoryServer::new(LinkKind::Process);
    new.fail_connects_with(refused());
    run_until_event(&host, "replacement_failed", replace(&host, spec(), &new)).await;
    let status = host.server_status("it").unwrap().supervision;
    assert_eq!((status.state, status.outdated), (State::Ready, true));
    call(&host, "act", "meanwhile").await.unwrap();
    assert_eq!(old.executed("meanwhile"), 1);
    new.come_up();
    tokio::time::sleep(Duration::from_secs(61)).await;
    run_ready_tasks().await;
    call(&host, "act", "later").await.unwrap();
    assert_eq!((new.executed("later"), host.server_status("it").unwrap().supervision.outdated), (1, false));
}

#[tokio::test(start_paused = true)]
async fn subscriptions_move_to_the_new_server() {
    let (host, _old) = host_with(LinkKind::Remote).await;
    let counter = Arc::new(CountingListener::default());
    let listener: Arc<dyn Listener> = Arc::clone(&counter) as _;
    let followed = host.subscribe("it", "mem://a", listener, SubscribeOptions::default()).await.unwrap();
    let new = MemoryServer::new(LinkKind::Remote);
    run_until_event(&host, "replaced", replace(&host, spec(), &new)).await;
    run_ready_tasks().await;
    counter.0.store(0, Ordering::Relaxed);
    new.send_resource_updated("mem://a").await;
    run_ready_tasks().await;
    assert_eq!(counter.0.load(Ordering::Relaxed), 1);
    assert!(matches!(followed, SubscribeOutcome::Subscribed(_)));
}

#[tokio::test(start_paused = true)]
async fn changed_policy_applies_to_the_next_call_without_a_restart() {
    let (host, server) = host_with(LinkKind::Process).await;
    let mut strict = spec();
    strict.prefix = Some("p".to_owned());
    strict.policy.tools = Lists::of_server(&["*".to_owned()], &["act".to_owned()]).unwrap();
    strict.supervision.timeouts.call = Duration::from_secs(1);
    assert_eq!(host.replace_server("it", strict.clone()).unwrap(), ReplaceOutcome::Rules);
    assert_eq!(call(&host, "act", "").await.unwrap_err().code, Code::Denied);
    strict.policy.tools = Lists::default();
    assert_eq!(host.replace_server("it", strict.clone()).unwrap(), ReplaceOutcome::Rules);
    server.queue_actions([CallAction::Hang]);
    assert_eq!(call(&host, "act", "").await.unwrap_err().code, Code::Timeout);
    assert!(host.catalog_snapshot().merged.tool("p__act").is_some());
    assert_eq!(host.replace_server("it", strict).unwrap(), ReplaceOutcome::Unchanged);
    assert_eq!(server.connects(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_server_is_switched_off_and_on_in_place_and_unknown_names_fail() {
    let (host, server) = host_with(LinkKind::Process).await;
    add(&host, "second", spec(), &MemoryServer::new(LinkKind::Process));
    let off = ServerSpec { disabled: true, ..spec() };
    assert_eq!(host.replace_server("it", off.clone()).unwrap(), ReplaceOutcome::StartOrStop);
    run_ready_tasks().await;
    assert_eq!(server.open_links(), Vec::<usize>::new(), "nothing is left behind");
    assert_eq!(call(&host, "act", "").await.unwrap_err().code, Code::Stopped);
    assert_eq!(host.replace_server("it", off).unwrap(), ReplaceOutcome::Unchanged);
    assert_eq!(replace(&host, spec(), &server).await, ReplaceOutcome::StartOrStop);
    call(&host, "act", "").await.unwrap();
    assert_eq!(host.server_names(), ["it", "second"]);
    assert_eq!(host.replace_server("its", spec()).unwrap_err().code, Code::UnknownServer);
    host.set_server_order(&["second"]);
    assert_eq!(host.server_names(), ["second", "it"]);
}

#[tokio::test(start_paused = true)]
async fn dedicated_instances_change_with_the_config() {
    let per_client = ServerSpec { isolation: Isolation::PerClient, ..spec() };
    let (host, _old) = host_with_spec(LinkKind::Process, per_client.clone()).await;
    let own = async |key: &str| {
        let client = Some(Client::with_key(ClientKey::new("c")));
        let options = CallOptions { client, ..CallOptions::default() };
        let params = raw(json!({ "name": "act", "arguments": { "key": key } }));
        host.request_with("it", "tools/call", Some(&params), options).await.unwrap();
    };
    own("before").await;
    let new = MemoryServer::new(LinkKind::Process);
    let mut events = host.subscribe_events();
    replace(&host, per_client, &new).await;
    for _ in ["base", "own"] {
        while events.recv().await.unwrap().event.kind() != "replaced" {}
    }
    own("after").await;
    assert_eq!((new.executed("after"), host.server_status("it").unwrap().instances.count()), (1, 1));
    run_until_event(&host, "replaced", replace(&host, spec(), &new)).await;
    own("shared").await;
    tokio::time::sleep(Duration::from_secs(601)).await;
    assert_eq!((new.executed("shared"), host.server_status("it").unwrap().instances.count()), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn the_catalog_of_a_changed_server_is_stored_for_the_next_start() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
    let elsewhere = || {
        let command = gripfast::config::Template::parse("elsewhere").unwrap();
        let target = gripfast::config::Target::Stdio {
            command,
            args: Vec::new(),
            env: Vec::new(),
            inherit_env: Vec::new(),
            network_env: true,
            cwd: None,
        };
        ServerSpec::new(target)
    };
    let host = host_on(&store);
    add(&host, "it", spec(), &MemoryServer::new(LinkKind::Process));
    wait_for_state(&host, State::Ready).await;
    run_until_event(&host, "replaced", replace(&host, elsewhere(), &MemoryServer::new(LinkKind::Process)))
        .await;
    host.shutdown().await;
    let again = host_on(&store);
    let away = MemoryServer::new(LinkKind::Process);
    away.fail_connects_with(refused());
    add(&again, "it", elsewhere(), &away);
    assert!(!again.cached_catalog("it").unwrap().tools.is_empty());
}

/// A store that checks if its host can be used while the host reads from the store.
#[derive(Default)]
struct ReentrantStore {
    kept: MemoryStore,
    host: OnceLock<Host>,
    tried: AtomicUsize,
    in_vain: AtomicUsize,
}

impl Store for ReentrantStore {
    fn get(&self, space: &str, key: &str) -> Option<Vec<u8>> {
        if let Some(host) = self.host.get().cloned() {
            let (answer, answered) = std::sync::mpsc::channel();
            std::thread::spawn(move || answer.send(host.server_names()));
            self.tried.fetch_add(1, Ordering::Relaxed);
            if answered.recv_timeout(Duration::from_secs(10)).is_err() {
                self.in_vain.fetch_add(1, Ordering::Relaxed);
            }
        }
        self.kept.get(space, key)
    }

    fn put(&self, space: &str, key: &str, value: Vec<u8>) {
        self.kept.put(space, key, value);
    }

    fn keys(&self, space: &str) -> Vec<String> {
        self.kept.keys(space)
    }

    fn retain(&self, space: &str, keep: RetainFn) {
        self.kept.retain(space, keep);
    }

    fn flush(&self) {}
}

/// B08
#[tokio::test(start_paused = true)]
async fn b08_a_slow_disk_while_a_server_is_switched_on_blocks_no_caller() {
    let store = Arc::new(ReentrantStore::default());
    let shared: Arc<dyn Store> = Arc::clone(&store) as Arc<dyn Store>;
    let host = Host::builder().store(shared).build();
    let server = MemoryServer::new(LinkKind::Process);
    add(&host, "it", ServerSpec { disabled: true, ..spec() }, &server);
    assert!(store.host.set(host.clone()).is_ok());
    assert_eq!(replace(&host, spec(), &server).await, ReplaceOutcome::StartOrStop);
    assert!(store.tried.load(Ordering::Relaxed) > 0);
    assert_eq!(store.in_vain.load(Ordering::Relaxed), 0);
}

/// B08: a call that is held for a server that was removed from the config gets no advice to start it.
#[tokio::test(start_paused = true)]
async fn b08_a_held_call_to_a_removed_server_reports_the_removal() {
    for removed in [true, false] {
        let (host, server) = host_with(LinkKind::Remote).await;
        server.go_down().await;
        wait_for_state(&host, State::Reconnecting).await;
        let held = tokio::spawn({
            let host = host.clone();
            async move { call(&host, "act", "k").await }
        });
        run_ready_tasks().await;
        let expected = if removed {
            host.remove_server_in_background("it").unwrap();
            ("was removed from the config", "`gripfast status`")
        } else {
            host.stop("it").unwrap();
            ("was stopped", "`gripfast start it`")
        };
        let error = held.await.unwrap().unwrap_err();
        assert_eq!(error.code, Code::Stopped, "{error}");
        let (text, hint) = (error.to_string(), error.hint.unwrap());
        assert!(text.contains(expected.0) && hint.contains(expected.1), "{text}: {hint}");
    }
}
