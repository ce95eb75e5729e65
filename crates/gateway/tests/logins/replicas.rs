//! Logins of a service of several replicas, on a real store.

use super::{Gateway, Workspace};
use gripfast_testkit::authority::{Authority, AuthorityOptions};
use gripfast_testkit::peers::free_port;
use gripfast_testkit::store_server::{RunningStore, StoreServer};
use std::io::{Read, Write};
use std::net::TcpStream;

/// A replica with a state directory of its own.
fn replica(authority: &Authority, store: &RunningStore, name: &str) -> Workspace {
    let workspace = Workspace::with(authority);
    let config = workspace.dir.path().join("gripfast.toml");
    let text = std::fs::read_to_string(&config).unwrap();
    let cluster = format!(
        "[cluster]\nstore = '{}'\nkey = 'a secret of at least thirty-two characters'\nname = '{name}'\n\
         listen = '127.0.0.1:{}'\nlease = '3s'\n",
        store.url(),
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
