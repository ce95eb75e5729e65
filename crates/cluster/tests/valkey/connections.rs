//! Connections: lost and made again, refused, and the heartbeat thread.

use crate::{Service, place, record, settings};
use gripfast_cluster::StoreError;
use gripfast_cluster::heartbeat::{
    HeartbeatHandler, HeartbeatRequest, HeartbeatSuccess, HeartbeatThread, TakeoverNotices,
};
use gripfast_cluster::store::{Store, StoreProblem, StoreSettings};
use gripfast_core::placement::exclusive::ClaimReply;
use gripfast_core::placement::place::{BootId, OwnerEpoch, SessionId, SessionOwner};
use gripfast_core::placement::routing::{TakeoverCause, TakeoverReply};
use gripfast_core::placement::term::{LeaseNow, LeaseSpec};
use gripfast_testkit::store_server::{RunningStore, StoreServer};
use gripfast_testkit::unreachable_listener::UnreachableListener;
use gripfast_testkit::wait::until;
use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

#[tokio::test]
async fn a_lost_connection_is_made_again() {
    let Some(mut service) = Service::start() else { return };
    let store = service.store(1);
    assert!(store.inspect().await.is_ok());
    service.server.kill();
    let error = store.inspect().await.expect_err("it does not run");
    assert!(matches!(error, StoreError::Unreachable(_)), "{error:?}");
    assert!(matches!(store.inspect().await, Err(StoreError::Unreachable(_))));
    service.server.start_process();
    assert!(store.inspect().await.is_ok(), "the scripts are loaded again too");
    store.join().await.expect("an empty store");
}

#[tokio::test]
async fn a_wrong_password_has_an_error_of_its_own() {
    if !StoreServer::Valkey.require() {
        return;
    }
    let server = RunningStore::start_with(StoreServer::Valkey, &["--requirepass", "right"]);
    let url = |credentials: &str| format!("redis://{credentials}127.0.0.1:{}/0", server.port());
    let store = |url: &str| Store::new(settings(url, 1)).expect("settings");
    assert!(store(&url(":right@")).inspect().await.is_ok());
    for wrong in [":wrong@", ""] {
        let error = store(&url(wrong)).inspect().await.expect_err("it is wrong");
        assert!(matches!(error, StoreError::Unauthorized(_)), "{error:?}");
        assert!(!error.to_string().contains("wrong@"), "{error}");
    }
}

#[tokio::test]
async fn a_store_that_evicts_is_named() {
    if !StoreServer::Valkey.require() {
        return;
    }
    let server = RunningStore::start_with(StoreServer::Valkey, &["--maxmemory-policy", "allkeys-lru"]);
    let store = Store::new(settings(&server.url(), 1)).expect("settings");
    let problem = store.inspect().await.expect("it runs").problem();
    assert_eq!(problem, Some(StoreProblem::Evicts("allkeys-lru".to_owned())));
    let Some(service) = Service::start() else { return };
    let info = service.store(1).inspect().await.expect("it runs");
    assert_eq!((info.engine.as_str(), info.problem()), ("valkey", None));
}

#[tokio::test]
async fn sentinels_that_do_not_answer_are_an_unreachable_store() {
    let port = gripfast_testkit::peers::free_port();
    let url = format!("redis+sentinel://127.0.0.1:{port}/main");
    let store = Store::new(settings(&url, 1)).expect("settings");
    let error = store.inspect().await.expect_err("nothing listens");
    assert!(matches!(error, StoreError::Unreachable(_)), "{error:?}");
}

/// Forwards connections to a store. It records the commands of each, and can hold the replies of one.
struct StoreProxy {
    url: String,
    seen: Arc<Mutex<Vec<Vec<u8>>>>,
    held: watch::Sender<Option<usize>>,
}

impl StoreProxy {
    async fn start(store: &RunningStore) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let url = format!("redis://127.0.0.1:{}/0", listener.local_addr().expect("an address").port());
        let (seen, held) = (Arc::<Mutex<Vec<Vec<u8>>>>::default(), watch::Sender::new(None));
        let proxy = Self { url, seen: Arc::clone(&seen), held: held.clone() };
        let port = store.port();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let number = {
                    let mut seen = seen.lock().expect("no panic");
                    seen.push(Vec::new());
                    seen.len() - 1
                };
                let server = TcpStream::connect(("127.0.0.1", port)).await.expect("the store runs");
                let ((mut requests, mut to_client), (mut replies, mut to_server)) =
                    (client.into_split(), server.into_split());
                let seen = Arc::clone(&seen);
                tokio::spawn(async move {
                    let mut buffer = [0; 4_096];
                    while let Ok(length @ 1..) = requests.read(&mut buffer).await {
                        seen.lock().expect("no panic")[number].extend_from_slice(&buffer[..length]);
                        if to_server.write_all(&buffer[..length]).await.is_err() {
                            return;
                        }
                    }
                });
                let mut held = held.subscribe();
                tokio::spawn(async move {
                    let mut buffer = [0; 4_096];
                    while let Ok(length @ 1..) = replies.read(&mut buffer).await {
                        let is_open = held.wait_for(|held| *held != Some(number)).await.is_ok();
                        if !is_open || to_client.write_all(&buffer[..length]).await.is_err() {
                            return;
                        }
                    }
                });
            }
        });
        proxy
    }

    fn connections(&self) -> usize {
        self.seen.lock().expect("no panic").len()
    }

    /// The connections that this text was sent over.
    fn seen_on(&self, text: &str) -> Vec<usize> {
        let has_text = |sent: &Vec<u8>| sent.windows(text.len()).any(|part| part == text.as_bytes());
        let seen = self.seen.lock().expect("no panic");
        seen.iter().enumerate().filter(|(_, sent)| has_text(sent)).map(|(number, _)| number).collect()
    }

    /// A store behind this proxy, whose timeout is one second.
    fn store(&self) -> Arc<Store> {
        let spec = LeaseSpec { lease: Duration::from_secs(5) };
        Arc::new(Store::new(StoreSettings { spec, ..settings(&self.url, 1) }).expect("settings"))
    }
}

/// `WAIT` on another connection would confirm the writes of that one.
#[tokio::test]
async fn a_claim_is_confirmed_on_its_own_connection() {
    let Some(service) = Service::settled().await else { return };
    let proxy = StoreProxy::start(&service.server).await;
    let store = proxy.store();
    // The script is in the store from now on.
    store.claim("first", OwnerEpoch::FIRST).await.expect("the store runs");
    assert_eq!((proxy.connections(), proxy.seen_on("\r\nINFO\r\n")), (1, vec![0]));
    proxy.seen.lock().expect("no panic")[0].clear();
    proxy.held.send_replace(Some(0));
    let claim = tokio::spawn({
        let store = Arc::clone(&store);
        async move { store.claim("second", OwnerEpoch::FIRST).await }
    });
    until("the claim is sent", || proxy.seen_on("second") == [0]).await;
    // Another task replaces the connection before the reply arrives.
    store.disconnect();
    store.time().await.expect("the store runs");
    assert_eq!(proxy.connections(), 2);
    proxy.held.send_replace(None);
    let reply = claim.await.expect("no panic");
    assert!(matches!(reply, Ok(ClaimReply::Claimed { .. })), "{reply:?}");
    assert_eq!(proxy.seen_on("\r\nINFO\r\n"), [0]);
}

#[tokio::test]
async fn a_late_timeout_does_not_close_a_newer_connection() {
    let Some(service) = Service::start() else { return };
    let proxy = StoreProxy::start(&service.server).await;
    let store = proxy.store();
    store.time().await.expect("the store runs");
    proxy.held.send_replace(Some(0));
    let late = tokio::spawn({
        let store = Arc::clone(&store);
        async move { store.inspect().await }
    });
    until("the command is sent", || proxy.seen_on("\r\nINFO\r\n") == [0]).await;
    store.disconnect();
    store.time().await.expect("over the second connection");
    let error = late.await.expect("no panic").expect_err("its reply is held");
    assert!(matches!(error, StoreError::Unreachable(_)), "{error:?}");
    store.time().await.expect("over the second connection");
    assert_eq!(proxy.connections(), 2);
}

/// The system accepts connections, and no process answers.
#[tokio::test(start_paused = true)]
async fn commands_share_an_attempt_to_connect_to_a_silent_store() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    share_an_attempt(silent.local_addr().expect("an address")).await;
}

/// Packets to the store are dropped.
#[tokio::test(start_paused = true)]
async fn commands_share_an_attempt_to_connect_to_a_store_behind_dropped_packets() {
    let port = UnreachableListener::open();
    share_an_attempt(port.address()).await;
}

/// The time is virtual. One after the other, twenty attempts would take twenty seconds.
async fn share_an_attempt(address: SocketAddr) {
    let url = format!("redis://{address}/0");
    let spec = LeaseSpec { lease: Duration::from_secs(5) };
    let store = Store::new(StoreSettings { spec, ..settings(&url, 1) }).expect("settings");
    let begun = tokio::time::Instant::now();
    let results = futures_util::future::join_all((0..20).map(|_| store.time())).await;
    let took = begun.elapsed();
    assert!(results.iter().all(|result| matches!(result, Err(StoreError::Unreachable(_)))), "{results:?}");
    assert!(took < Duration::from_secs(2), "{took:?}");
    let begun = tokio::time::Instant::now();
    assert!(store.time().await.is_err(), "the next command tries again");
    assert!(begun.elapsed() >= Duration::from_secs(1));
}

/// Reports each heartbeat to the test.
struct Reporter {
    boot: u64,
    results: Sender<Result<(LeaseNow, HeartbeatSuccess), StoreError>>,
}

type Results = Receiver<Result<(LeaseNow, HeartbeatSuccess), StoreError>>;

impl HeartbeatHandler for Reporter {
    fn request(&self, acknowledged: TakeoverNotices) -> HeartbeatRequest {
        HeartbeatRequest { record: record(self.boot), leases: Vec::new(), acknowledged }
    }

    fn succeeded(&self, sent: LeaseNow, _request: &HeartbeatRequest, success: HeartbeatSuccess) {
        let _ = self.results.send(Ok((sent, success)));
    }

    fn failed(&self, error: &StoreError) {
        let _ = self.results.send(Err(error.clone()));
    }
}

/// A thread with a lease that is short enough to see several heartbeats.
fn thread(service: &Service, boot: u64) -> (HeartbeatThread, Results) {
    let spec = LeaseSpec { lease: Duration::from_secs(5) };
    let settings = StoreSettings { spec, ..service.settings(boot) };
    let (results, received) = channel();
    let handler = Arc::new(Reporter { boot, results });
    (HeartbeatThread::start(&settings, handler).expect("it starts"), received)
}

fn next_where(results: &Results, is_so: impl Fn(&Result<(LeaseNow, HeartbeatSuccess), StoreError>) -> bool) {
    loop {
        let result = results.recv_timeout(Duration::from_secs(60)).expect("heartbeats go on");
        if is_so(&result) {
            return;
        }
    }
}

#[test]
fn the_heartbeat_thread_goes_on_after_an_outage_of_the_store() {
    let Some(mut service) = Service::start() else { return };
    let (_thread, results) = thread(&service, 1);
    let (first, success) = results.recv().expect("a heartbeat").expect("the store runs");
    let since = success.reply.record_since;
    let (second, success) = results.recv().expect("a heartbeat").expect("the store runs");
    assert_eq!(success.reply.record_since, since);
    let pause = second.since(first);
    assert!(pause >= Duration::from_secs(1), "a fifth of a lease: {pause:?}");
    service.server.kill();
    next_where(&results, |result| matches!(result, Err(StoreError::Unreachable(_))));
    service.server.start_process();
    next_where(&results, |result| {
        result.as_ref().is_ok_and(|(_, success)| success.reply.record_since > since)
    });
}

#[test]
fn a_replica_that_leaves_removes_its_record_and_one_that_dies_does_not() {
    let Some(service) = Service::start() else { return };
    let (leaving, results) = thread(&service, 1);
    next_where(&results, Result::is_ok);
    let (dying, results) = thread(&service, 2);
    next_where(&results, Result::is_ok);
    let exists = |boot: u64| -> bool {
        service.raw(&["EXISTS", &format!("{{test}}:replica:{}", BootId::from_number(boot))])
    };
    assert!(exists(1) && exists(2));
    leaving.leave();
    drop(dying);
    assert!(!exists(1));
    assert!(exists(2), "it ends by time");
}

#[test]
fn the_heartbeat_thread_acknowledges_takeovers() {
    let Some(service) = Service::start() else { return };
    let (_thread, results) = thread(&service, 1);
    next_where(&results, Result::is_ok);
    service.end_grace();
    let origin = place(1);
    let session = SessionId { origin: origin.clone(), number: 7 };
    let from = SessionOwner { place: origin, epoch: OwnerEpoch::FIRST };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let store = service.store(2);
    let reply = runtime.block_on(store.take_over(&session, &from, TakeoverCause::Refused));
    assert!(matches!(reply, Ok(TakeoverReply::Taken { .. })), "{reply:?}");
    let has_notice = |result: &Result<(LeaseNow, HeartbeatSuccess), StoreError>| {
        result.as_ref().is_ok_and(|(_, success)| success.reply.taken.len() == 1)
    };
    next_where(&results, has_notice);
    let next = results.recv_timeout(Duration::from_secs(60)).expect("heartbeats go on");
    assert!(next.is_ok() && !has_notice(&next), "{next:?}");
}
