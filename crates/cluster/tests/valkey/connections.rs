//! Connections: lost and made again, refused, and the heartbeat thread.

use crate::{Service, place, record, settings};
use gripfast_cluster::StoreError;
use gripfast_cluster::heartbeat::{
    HeartbeatHandler, HeartbeatRequest, HeartbeatSuccess, HeartbeatThread, TakeoverNotices,
};
use gripfast_cluster::store::{Store, StoreProblem, StoreSettings};
use gripfast_core::placement::place::{BootId, OwnerEpoch, SessionId, SessionOwner};
use gripfast_core::placement::routing::{TakeoverCause, TakeoverReply};
use gripfast_core::placement::term::{LeaseNow, LeaseSpec};
use gripfast_testkit::store_server::{RunningStore, StoreServer};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

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
