//! Refresh leases of an embedding program instead of file locks.

use crate::auth_test::{AuthTest, NAME, call, wait_until};
use gripfast::auth::{Leases, RefreshLease};
use gripfast::transport::BoxFuture;
use gripfast::{Host, State};
use gripfast_testkit::authority::AuthorityOptions;
use std::io;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// One lease for all hosts that share it, like a store on another machine.
#[derive(Default)]
struct CountingLeases {
    mutex: Arc<tokio::sync::Mutex<()>>,
    granted: Mutex<Vec<String>>,
    /// Number of times that the lease is unavailable.
    unavailable: AtomicU32,
}

impl Leases for CountingLeases {
    fn acquire(&self, login: &str, within: Duration) -> BoxFuture<'_, io::Result<RefreshLease>> {
        let login = login.to_owned();
        Box::pin(async move {
            let less = |times: u32| times.checked_sub(1);
            if self.unavailable.fetch_update(Ordering::SeqCst, Ordering::SeqCst, less).is_ok() {
                return Err(io::Error::other("the store is away"));
            }
            let turn = tokio::time::timeout(within, Arc::clone(&self.mutex).lock_owned()).await?;
            self.granted.lock().unwrap().push(login);
            Ok(RefreshLease::new(turn))
        })
    }
}

async fn host_with(setup: &AuthTest, turns: &Arc<CountingLeases>) -> Host {
    let leases: Arc<dyn Leases> = Arc::clone(turns) as Arc<dyn Leases>;
    let host = Host::builder().logins(Some(setup.logins().with_leases(leases))).build();
    host.spawn(NAME, setup.spec()).unwrap();
    wait_until(&host, State::Ready).await;
    host
}

#[tokio::test]
async fn e01_hosts_with_a_shared_custom_lease_never_use_a_token_twice() {
    let setup = AuthTest::logged_in(AuthorityOptions::default()).await;
    let lock = setup.login_file().with_extension("lock");
    std::fs::remove_file(&lock).unwrap();
    let turns = Arc::new(CountingLeases::default());
    let (one, other) = (host_with(&setup, &turns).await, host_with(&setup, &turns).await);
    for round in 1..=3 {
        setup.authority.expire_access_tokens();
        let (first, second) = tokio::join!(call(&one), call(&other));
        first.unwrap();
        second.unwrap();
        let counts = setup.authority.counts();
        assert_eq!((counts.refreshes, counts.reuse_detected), (round, 0), "each token is spent once");
    }
    let given_for = turns.granted.lock().unwrap().clone();
    assert!(given_for.len() >= 3 && given_for.iter().all(|login| login.starts_with(NAME)), "{given_for:?}");
    assert!(!lock.exists(), "no file is locked beside them");
}

#[tokio::test]
async fn e02_an_unavailable_lease_costs_no_login() {
    let setup = AuthTest::logged_in(AuthorityOptions::default()).await;
    let turns = Arc::new(CountingLeases::default());
    let host = host_with(&setup, &turns).await;
    turns.unavailable.store(2, Ordering::SeqCst);
    setup.authority.expire_access_tokens();
    // The call is held meanwhile.
    call(&host).await.unwrap();
    assert_eq!(turns.unavailable.load(Ordering::SeqCst), 0, "it was asked for");
    assert_eq!(setup.authority.counts().refreshes, 1);
}
