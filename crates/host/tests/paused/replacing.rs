//! A config that changes while its server is in use: what is disturbed, and what is not.

use crate::world::*;
use gripfast::config::{Isolation, ServerSpec};
use gripfast::store::{Keep, MemoryStore, Store};
use gripfast::transport::{Dialer, Listener};
use gripfast::{
    CallOptions, Client, ClientKey, Code, Host, Lists, Replaced, SpawnOptions, State, SubscribeOptions,
    Subscribed,
};
use gripfast_core::supervise::upstream::LinkKind;
use serde_json::json;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// Has `it` go by `spec`, which is served by `server`.
async fn replace(host: &Host, spec: ServerSpec, server: &Server) -> Replaced {
    let dialer: Arc<dyn Dialer> = Arc::new(server.clone());
    let options = SpawnOptions { dialer: Some(dialer), ..SpawnOptions::default() };
    host.replace_with("it", spec, options).unwrap()
}

async fn until_told(host: &Host, word: &str, act: impl Future<Output = Replaced>) -> Replaced {
    let mut events = host.events();
    let replaced = act.await;
    while events.recv().await.unwrap().event.word() != word {}
    replaced
}

/// Counts what it is told.
#[derive(Default)]
struct Ear(AtomicUsize);

impl Listener for Ear {
    fn said(&self, _message: &[u8]) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[tokio::test(start_paused = true)]
async fn a_changed_server_is_made_and_listed_before_the_old_one_is_let_go() {
    for (before, after) in [(LinkKind::Process, LinkKind::Remote), (LinkKind::Remote, LinkKind::Process)] {
        let (host, old) = host_with(before).await;
        old.next_acts([Act::Slowly(Duration::from_secs(60))]);
        let running = tokio::spawn({
            let host = host.clone();
            async move { call(&host, "act", "running").await }
        });
        settle().await;
        let new = Server::new(after);
        new.offer(&["other"]);
        let replaced = until_told(&host, "replaced", replace(&host, spec(), &new)).await;
        assert_eq!((replaced, tool_names(&host).await), (Replaced::Link, vec!["other".to_owned()]));
        call(&host, "other", "").await.unwrap();
        assert!(!running.is_finished() && old.open_links().len() == 1);
        running.await.unwrap().unwrap();
        settle().await;
        assert_eq!((old.executed("running"), old.open_links().len()), (1, 0));
        let status = host.status_of("it").unwrap();
        assert_eq!((status.calls.calls, status.calls.errors, status.supervision.restarts), (2, 0, 0));
    }
}

#[tokio::test(start_paused = true)]
async fn a_changed_server_that_cannot_be_made_is_tried_again_while_the_old_one_serves() {
    let (host, old) = host_with(LinkKind::Process).await;
    let new = Server::new(LinkKind::Process);
    new.shut(refused());
    until_told(&host, "replacement_failed", replace(&host, spec(), &new)).await;
    let status = host.status_of("it").unwrap().supervision;
    assert_eq!((status.state, status.outdated), (State::Ready, true));
    call(&host, "act", "meanwhile").await.unwrap();
    assert_eq!(old.executed("meanwhile"), 1);
    new.come_back();
    tokio::time::sleep(Duration::from_secs(61)).await;
    settle().await;
    call(&host, "act", "later").await.unwrap();
    assert_eq!((new.executed("later"), host.status_of("it").unwrap().supervision.outdated), (1, false));
}

#[tokio::test(start_paused = true)]
async fn whoever_follows_a_resource_follows_it_at_the_new_server() {
    let (host, _old) = host_with(LinkKind::Remote).await;
    let ear = Arc::new(Ear::default());
    let listener: Arc<dyn Listener> = Arc::clone(&ear) as _;
    let followed = host.subscribe("it", "mem://a", listener, SubscribeOptions::default()).await.unwrap();
    let new = Server::new(LinkKind::Remote);
    until_told(&host, "replaced", replace(&host, spec(), &new)).await;
    settle().await;
    ear.0.store(0, Ordering::Relaxed);
    new.update("mem://a").await;
    settle().await;
    assert_eq!(ear.0.load(Ordering::Relaxed), 1);
    assert!(matches!(followed, Subscribed::Following(_)));
}

#[tokio::test(start_paused = true)]
async fn changed_rules_hold_from_the_next_call_on_and_nothing_is_started_for_them() {
    let (host, server) = host_with(LinkKind::Process).await;
    let mut strict = spec();
    strict.prefix = Some("p".to_owned());
    strict.policy.tools = Lists::of_server(&["*".to_owned()], &["act".to_owned()]).unwrap();
    strict.supervision.timeouts.call = Duration::from_secs(1);
    assert_eq!(host.replace("it", strict.clone()).unwrap(), Replaced::Rules);
    assert_eq!(call(&host, "act", "").await.unwrap_err().code, Code::Denied);
    strict.policy.tools = Lists::default();
    assert_eq!(host.replace("it", strict.clone()).unwrap(), Replaced::Rules);
    server.next_acts([Act::Hang]);
    assert_eq!(call(&host, "act", "").await.unwrap_err().code, Code::Timeout);
    assert!(host.menu().menu.tool("p__act").is_some());
    assert_eq!(host.replace("it", strict).unwrap(), Replaced::Nothing);
    assert_eq!(server.dials(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_server_is_switched_off_and_on_in_its_place_and_one_that_is_not_there_is_no_server() {
    let (host, server) = host_with(LinkKind::Process).await;
    add(&host, "second", spec(), &Server::new(LinkKind::Process));
    let off = ServerSpec { disabled: true, ..spec() };
    assert_eq!(host.replace("it", off.clone()).unwrap(), Replaced::Presence);
    settle().await;
    assert_eq!(server.open_links(), Vec::<usize>::new(), "nothing is left behind");
    assert_eq!(call(&host, "act", "").await.unwrap_err().code, Code::Stopped);
    assert_eq!(host.replace("it", off).unwrap(), Replaced::Nothing);
    assert_eq!(replace(&host, spec(), &server).await, Replaced::Presence);
    call(&host, "act", "").await.unwrap();
    assert_eq!(host.names(), ["it", "second"]);
    assert_eq!(host.replace("its", spec()).unwrap_err().code, Code::UnknownServer);
    host.arrange(&["second"]);
    assert_eq!(host.names(), ["second", "it"]);
}

#[tokio::test(start_paused = true)]
async fn the_instances_of_single_clients_change_with_it() {
    let per_client = ServerSpec { isolation: Isolation::PerClient, ..spec() };
    let (host, _old) = host_with_spec(LinkKind::Process, per_client.clone()).await;
    let own = async |key: &str| {
        let client = Some(Client::one(ClientKey::new("c")));
        let options = CallOptions { client, ..CallOptions::default() };
        let params = raw(json!({ "name": "act", "arguments": { "key": key } }));
        host.request_with("it", "tools/call", Some(params), options).await.unwrap();
    };
    own("before").await;
    let new = Server::new(LinkKind::Process);
    let mut events = host.events();
    replace(&host, per_client, &new).await;
    for _ in ["base", "own"] {
        while events.recv().await.unwrap().event.word() != "replaced" {}
    }
    own("after").await;
    assert_eq!((new.executed("after"), host.status_of("it").unwrap().instances.count()), (1, 1));
    until_told(&host, "replaced", replace(&host, spec(), &new)).await;
    own("shared").await;
    tokio::time::sleep(Duration::from_secs(601)).await;
    assert_eq!((new.executed("shared"), host.status_of("it").unwrap().instances.count()), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn what_a_changed_server_offers_is_known_at_the_next_start_also_if_it_is_the_same() {
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
    add(&host, "it", spec(), &Server::new(LinkKind::Process));
    until(&host, State::Ready).await;
    until_told(&host, "replaced", replace(&host, elsewhere(), &Server::new(LinkKind::Process))).await;
    host.shutdown().await;
    let again = host_on(&store);
    let away = Server::new(LinkKind::Process);
    away.shut(refused());
    add(&again, "it", elsewhere(), &away);
    assert!(!again.known_catalog("it").unwrap().tools.is_empty());
}

/// A store that tries whether its host can be used while somebody reads from it.
#[derive(Default)]
struct Curious {
    kept: MemoryStore,
    host: OnceLock<Host>,
    tried: AtomicUsize,
    in_vain: AtomicUsize,
}

impl Store for Curious {
    fn get(&self, space: &str, key: &str) -> Option<Vec<u8>> {
        if let Some(host) = self.host.get().cloned() {
            let (answer, answered) = std::sync::mpsc::channel();
            std::thread::spawn(move || answer.send(host.names()));
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

    fn retain(&self, space: &str, keep: Keep) {
        self.kept.retain(space, keep);
    }

    fn flush(&self) {}
}

/// B08
#[tokio::test(start_paused = true)]
async fn b08_a_slow_disk_under_a_server_that_is_switched_on_delays_nobody() {
    let store = Arc::new(Curious::default());
    let shared: Arc<dyn Store> = Arc::clone(&store) as Arc<dyn Store>;
    let host = Host::builder().store(shared).build();
    let server = Server::new(LinkKind::Process);
    add(&host, "it", ServerSpec { disabled: true, ..spec() }, &server);
    assert!(store.host.set(host.clone()).is_ok());
    assert_eq!(replace(&host, spec(), &server).await, Replaced::Presence);
    assert!(store.tried.load(Ordering::Relaxed) > 0);
    assert_eq!(store.in_vain.load(Ordering::Relaxed), 0);
}

/// B08: a call that is held for a server which the config has no more is not told to start it.
#[tokio::test(start_paused = true)]
async fn b08_a_held_call_to_a_removed_server_is_told_that_it_was_removed() {
    for removed in [true, false] {
        let (host, server) = host_with(LinkKind::Remote).await;
        server.go_away().await;
        until(&host, State::Reconnecting).await;
        let held = tokio::spawn({
            let host = host.clone();
            async move { call(&host, "act", "k").await }
        });
        settle().await;
        let expected = if removed {
            host.let_go("it").unwrap();
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
