//! Logins of a service of several replicas, on a real store.

use super::{Gateway, Workspace};
use gripfast_testkit::authority::{Authority, AuthorityOptions};
use gripfast_testkit::peers::free_port;
use gripfast_testkit::proc;
use gripfast_testkit::store_server::{RunningStore, StoreServer};
use rustix::process::Signal;
use std::io::{Read, Write};
use std::net::TcpStream;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::watch;

/// A replica with a state directory of its own.
fn replica(authority: &Authority, store: &RunningStore, name: &str) -> Workspace {
    replica_with(authority, &store.url(), name, "3s")
}

fn replica_with(authority: &Authority, store: &str, name: &str, lease: &str) -> Workspace {
    let workspace = Workspace::with(authority);
    let config = workspace.dir.path().join("gripfast.toml");
    let text = std::fs::read_to_string(&config).unwrap();
    let cluster = format!(
        "[cluster]\nstore = '{store}'\nkey = 'a secret of at least thirty-two characters'\nname = '{name}'\n\
         listen = '127.0.0.1:{}'\nlease = '{lease}'\n",
        free_port()
    );
    std::fs::write(&config, format!("{cluster}{text}")).unwrap();
    workspace
}

/// Reply of the store to a command.
fn ask(store: &RunningStore, command: &str) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", store.port())).unwrap();
    write!(stream, "{command}\r\nQUIT\r\n").unwrap();
    let mut reply = String::new();
    stream.read_to_string(&mut reply).unwrap();
    reply
}

fn text_of(output: &std::process::Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// E01, E02
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn e01_replicas_share_a_login_and_refresh_it_once() {
    if !StoreServer::Valkey.require() {
        return;
    }
    let mut store = RunningStore::start(StoreServer::Valkey);
    let authority = Authority::start(AuthorityOptions::default()).await;
    let [a, b] = ["a", "b"].map(|name| replica(&authority, &store, name));
    let gateways = [a.serve(), b.serve()];
    let both = [(&a, &gateways[0]), (&b, &gateways[1])];
    both.iter().for_each(|(workspace, gateway)| workspace.until_state(gateway, "needs_login"));
    a.log_in().await;
    both.iter().for_each(|(workspace, gateway)| workspace.until_state(gateway, "ready"));
    for round in 1..=2 {
        authority.expire_access_tokens();
        std::thread::scope(|scope| {
            let calls = both.iter().map(|(workspace, gateway)| scope.spawn(|| workspace.call(gateway)));
            for call in calls.collect::<Vec<_>>() {
                let output = call.join().unwrap();
                assert!(output.status.success(), "{}", text_of(&output));
            }
        });
        let counts = authority.counts();
        assert_eq!((counts.refreshes, counts.reuse_detected), (round, 0));
    }
    let stored = ask(&store, "HGETALL {gripfast}:table:logins");
    let copy = std::fs::read_to_string(a.dir.path().join("cluster/logins.sealed")).unwrap();
    for secret in authority.secrets() {
        assert!(!stored.contains(&secret) && !copy.contains(&secret), "{secret} can be seen");
    }
    // Without the store the present token is used until it ends.
    store.kill();
    b.until_log("the store is unreachable");
    assert!(b.call(&gateways[1]).status.success());
    authority.expire_access_tokens();
    let failed = b.call(&gateways[1]);
    assert!(text_of(&failed).contains("the store is unreachable"), "{}", text_of(&failed));
    let out = b.gripfast(&["logout", "notes"]).output().unwrap();
    assert!(!out.status.success() && text_of(&out).contains("the store is unreachable"), "{}", text_of(&out));
    assert_eq!(authority.counts().refreshes, 2);
    store.start_process();
    b.until_state(&gateways[1], "ready");
    assert_eq!(authority.counts().refreshes, 3);
    let out = b.gripfast(&["logout", "notes"]).output().unwrap();
    assert!(out.status.success(), "{}", text_of(&out));
    both.iter().for_each(|(workspace, gateway)| {
        let deadline = std::time::Instant::now() + super::STUCK;
        while workspace.call(gateway).status.success() {
            assert!(std::time::Instant::now() < deadline, "it goes on after the logout");
        }
    });
}

/// E01: only the lost replica knows the next refresh token. No replica sends the spent one while the right to refresh
/// may still be used; after that, the authorization server ends the login, and a person is asked for.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn e01_a_replica_lost_during_a_refresh_costs_at_most_the_login() {
    if !StoreServer::Valkey.require() {
        return;
    }
    let store = RunningStore::start(StoreServer::Valkey);
    let authority = Authority::start(AuthorityOptions::default()).await;
    let [a, b] = ["a", "b"].map(|name| replica(&authority, &store, name));
    let [first, second] = [a.serve(), b.serve()];
    a.log_in().await;
    a.until_state(&first, "ready");
    b.until_state(&second, "ready");
    authority.hold_token_answers(true);
    authority.expire_access_tokens();
    let mut call = a.gripfast(&["call", "notes", "whoami", "--url", &first.url]).spawn().unwrap();
    gripfast_testkit::wait::until("it is refreshed", || authority.counts().refreshes == 1).await;
    kill(first);
    let _ = call.wait();
    authority.hold_token_answers(false);
    let lease = ask(&store, "KEYS {gripfast}:lease:refresh:*");
    let lease =
        lease.lines().find(|line| line.starts_with("{gripfast}")).expect("it is still held").to_owned();
    assert_eq!((authority.counts().refreshes, authority.counts().reuse_detected), (1, 0));
    // As if its time had ended.
    assert!(ask(&store, &format!("DEL {lease}")).starts_with(":1"));
    let ended = b.call(&second);
    assert_eq!(ended.status.code(), Some(3), "{}", text_of(&ended));
    b.until_state(&second, "needs_login");
    b.log_in().await;
    b.until_state(&second, "ready");
    assert!(b.call(&second).status.success());
}

/// A proxy before the store that holds the answer to the last check before a refresh.
struct HoldingProxy {
    url: String,
    state: watch::Sender<HoldState>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum HoldState {
    PassOn,
    /// The next check is held.
    Armed,
    /// The store has answered, and the replica does not know it.
    Holds,
}

impl HoldingProxy {
    async fn start(store: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("redis://{}/0", listener.local_addr().unwrap());
        let (state, _) = watch::channel(HoldState::PassOn);
        let shared = state.clone();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let (client, to_client) = client.into_split();
                let server = tokio::net::TcpStream::connect(("127.0.0.1", store)).await.unwrap();
                let (server, to_server) = server.into_split();
                tokio::spawn(pass_on(client, to_server, shared.clone(), true));
                tokio::spawn(pass_on(server, to_client, shared.clone(), false));
            }
        });
        Self { url, state }
    }
}

async fn pass_on(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    state: watch::Sender<HoldState>,
    is_request: bool,
) {
    let mut bytes = vec![0; 65_536];
    while let Ok(read @ 1..) = from.read(&mut bytes).await {
        let text = String::from_utf8_lossy(&bytes[..read]);
        // The check names the lease and the table of the login.
        if is_request && text.contains("refresh:") && text.contains("logins") {
            state.send_if_modified(|state| {
                let is_armed = *state == HoldState::Armed;
                if is_armed {
                    *state = HoldState::Holds;
                }
                is_armed
            });
        }
        if !is_request {
            let _ = state.subscribe().wait_for(|state| *state != HoldState::Holds).await;
        }
        if to.write_all(&bytes[..read]).await.is_err() {
            return;
        }
    }
}

/// E01: the process is stopped after the last check before it sends its refresh token, for longer than its right to
/// refresh lasts. The replies of the store have no short time limit here, so that only the clock tells it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn e01_a_replica_stopped_before_it_sends_a_refresh_does_not_send_it_later() {
    if !StoreServer::Valkey.require() {
        return;
    }
    let store = RunningStore::start(StoreServer::Valkey);
    let authority = Authority::start(AuthorityOptions::default()).await;
    let proxy = HoldingProxy::start(store.port()).await;
    let a = replica_with(&authority, &proxy.url, "a", "5m");
    let b = replica_with(&authority, &store.url(), "b", "5m");
    let [first, second] = [a.serve(), b.serve()];
    // As if the replicas of a new store had reported to it.
    assert!(ask(&store, "DEL {gripfast}:grace").starts_with(":1"));
    a.log_in().await;
    a.until_state(&first, "ready");
    b.until_state(&second, "ready");
    authority.expire_access_tokens();
    assert!(a.call(&first).status.success());
    assert_eq!(authority.counts().refreshes, 1);
    proxy.state.send_replace(HoldState::Armed);
    authority.expire_access_tokens();
    let mut call = a.gripfast(&["call", "notes", "whoami", "--url", &first.url]).spawn().unwrap();
    let mut state = proxy.state.subscribe();
    let checked = state.wait_for(|state| *state == HoldState::Holds);
    gripfast_testkit::wait::within("it has the right to refresh", checked).await.unwrap();
    // Its replies wait in the proxy, then in the socket of the stopped process.
    proc::signal(first.child.id(), Signal::STOP);
    proxy.state.send_replace(HoldState::PassOn);
    gripfast_testkit::wait::until("its right to refresh has ended", || {
        !ask(&store, "KEYS {gripfast}:lease:refresh:*").contains("lease:refresh")
    })
    .await;
    let called = b.call(&second);
    assert!(called.status.success(), "{}", text_of(&called));
    assert_eq!(authority.counts().refreshes, 2);
    proc::signal(first.child.id(), Signal::CONT);
    // It may end with the new token, or as too late.
    let _ = call.wait();
    let called = a.call(&first);
    assert!(called.status.success(), "{}", text_of(&called));
    let counts = authority.counts();
    assert_eq!((counts.refreshes, counts.presented_refresh_tokens, counts.reuse_detected), (2, 2, 0));
}

fn kill(gateway: Gateway) {
    drop(gateway);
}

impl Workspace {
    fn until_log(&self, text: &str) {
        let deadline = std::time::Instant::now() + super::STUCK;
        while !std::fs::read_to_string(self.log()).unwrap().contains(text) {
            assert!(std::time::Instant::now() < deadline, "it was never logged: {text}");
            std::thread::yield_now();
        }
    }
}
