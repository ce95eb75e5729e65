//! Logins that several hosts share: one refresh for all, and none without the right to it.

use crate::auth_test::{AuthTest, NAME, call, wait_until};
use gripfast::shared_state::{SharedState, StateError, StateField, StateTable};
use gripfast::transport::BoxFuture;
use gripfast::{Host, State};
use gripfast_testkit::authority::AuthorityOptions;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::watch;

/// A store for all hosts that share it.
#[derive(Default)]
struct FakeStore {
    fields: Mutex<BTreeMap<String, StateField>>,
    holder: Mutex<Option<u64>>,
    claims: AtomicU32,
    /// Number of times that a claim is found to be lost, as after a pause of the process.
    lost_claims: AtomicU32,
    is_away: AtomicBool,
    /// Writes fail, as in an outage that begins when a refresh is answered.
    is_read_only: AtomicBool,
    /// The next write finds that another host was faster.
    is_outrun: AtomicBool,
    changed: watch::Sender<u64>,
}

impl FakeStore {
    fn reachable(&self) -> Result<(), StateError> {
        match self.is_away.load(Ordering::SeqCst) {
            true => Err(StateError::Unavailable("the store is unreachable: refused".to_owned())),
            false => Ok(()),
        }
    }

    fn logins(&self) -> Vec<StateField> {
        self.fields.lock().unwrap().values().cloned().collect()
    }

    fn write(&self, field: &str, value: Option<String>) -> u64 {
        let mut fields = self.fields.lock().unwrap();
        let entry = fields.entry(field.to_owned()).or_default();
        *entry = StateField { version: entry.version + 1, value: value.map(Into::into) };
        self.changed.send_modify(|steps| *steps += 1);
        entry.version
    }
}

impl SharedState for FakeStore {
    fn get(&self, _: StateTable, field: &str) -> StateField {
        self.fields.lock().unwrap().get(field).cloned().unwrap_or_default()
    }

    fn refresh(&self, _: StateTable) -> BoxFuture<'_, Result<(), StateError>> {
        Box::pin(std::future::ready(self.reachable()))
    }

    fn set<'a>(
        &'a self,
        table: StateTable,
        field: &'a str,
        expected: u64,
        value: Option<String>,
    ) -> BoxFuture<'a, Result<u64, StateError>> {
        Box::pin(async move {
            self.reachable()?;
            if self.is_read_only.load(Ordering::SeqCst) {
                return Err(StateError::Unavailable("the store has just started".to_owned()));
            }
            if self.is_outrun.swap(false, Ordering::SeqCst) {
                self.write(field, value.clone());
            }
            if self.get(table, field).version != expected {
                return Err(StateError::Changed);
            }
            Ok(self.write(field, value))
        })
    }

    fn claim<'a>(&'a self, _: &'a str, _: Duration) -> BoxFuture<'a, Result<Option<u64>, StateError>> {
        Box::pin(async move {
            self.reachable()?;
            let mut holder = self.holder.lock().unwrap();
            if holder.is_some() {
                return Ok(None);
            }
            *holder = Some(u64::from(self.claims.fetch_add(1, Ordering::SeqCst)));
            Ok(*holder)
        })
    }

    fn confirm<'a>(
        &'a self,
        login: &'a str,
        claim: u64,
        version: u64,
    ) -> BoxFuture<'a, Result<bool, StateError>> {
        Box::pin(async move {
            self.reachable()?;
            let less = |times: u32| times.checked_sub(1);
            let is_lost = self.lost_claims.fetch_update(Ordering::SeqCst, Ordering::SeqCst, less).is_ok();
            let is_held = *self.holder.lock().unwrap() == Some(claim);
            Ok(!is_lost && is_held && self.get(StateTable::Logins, login).version == version)
        })
    }

    fn release(self: Arc<Self>, _: String, claim: u64) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            self.holder.lock().unwrap().take_if(|holder| *holder == claim);
        })
    }

    fn changes(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }
}

async fn host_with(setup: &AuthTest, store: &Arc<FakeStore>) -> Host {
    let logins = setup.logins().with_shared_state(Arc::clone(store) as Arc<dyn SharedState>);
    let host = Host::builder().logins(Some(logins)).build();
    host.spawn(NAME, setup.spec()).unwrap();
    wait_until(&host, State::Ready).await;
    host
}

/// E01, E02
#[tokio::test]
async fn e01_hosts_with_a_shared_login_refresh_it_once_and_adopt_it() {
    let setup = AuthTest::logged_in(AuthorityOptions::default()).await;
    let store = Arc::new(FakeStore::default());
    let (one, other) = (host_with(&setup, &store).await, host_with(&setup, &store).await);
    assert_eq!(store.logins().len(), 1, "the login of the state directory was taken along");
    for round in 1..=3 {
        setup.authority.expire_access_tokens();
        let (first, second) = tokio::join!(call(&one), call(&other));
        first.unwrap();
        second.unwrap();
        let counts = setup.authority.counts();
        assert_eq!((counts.refreshes, counts.reuse_detected), (round, 0), "each token is spent once");
    }
}

/// E01: a process that was paused between its claim and the request.
#[tokio::test]
async fn e01_a_refresh_token_is_not_sent_after_the_right_to_it_was_lost() {
    let setup = AuthTest::logged_in(AuthorityOptions::default()).await;
    let store = Arc::new(FakeStore::default());
    let host = host_with(&setup, &store).await;
    store.lost_claims.store(2, Ordering::SeqCst);
    setup.authority.expire_access_tokens();
    // The call is held until the claim is confirmed.
    call(&host).await.unwrap();
    assert_eq!(store.lost_claims.load(Ordering::SeqCst), 0, "it was lost twice");
    assert!(store.claims.load(Ordering::SeqCst) >= 3, "each attempt needs a claim of its own");
    let counts = setup.authority.counts();
    assert_eq!((counts.refreshes, counts.reuse_detected), (1, 0));
}

/// E02
#[tokio::test]
async fn e02_a_login_that_another_host_stored_at_the_same_time_is_kept() {
    let setup = AuthTest::logged_in(AuthorityOptions::default()).await;
    let store = Arc::new(FakeStore::default());
    let host = host_with(&setup, &store).await;
    let before = store.logins()[0].version;
    store.is_outrun.store(true, Ordering::SeqCst);
    setup.authority.expire_access_tokens();
    call(&host).await.unwrap();
    assert_eq!(store.logins()[0].version, before + 1, "the other host's write stays");
    setup.authority.expire_access_tokens();
    call(&host).await.unwrap();
    let counts = setup.authority.counts();
    assert_eq!((counts.refreshes, counts.reuse_detected), (2, 0));
}

/// E03
#[tokio::test]
async fn e03_without_the_store_no_refresh_is_made_and_no_login_is_asked_for() {
    let setup = AuthTest::logged_in(AuthorityOptions::default()).await;
    let store = Arc::new(FakeStore::default());
    let host = host_with(&setup, &store).await;
    store.is_away.store(true, Ordering::SeqCst);
    call(&host).await.unwrap();
    setup.authority.expire_access_tokens();
    let failed = tokio::time::timeout(Duration::from_secs(60), host.call(NAME, "whoami", None)).await;
    let failed = failed.expect("it ends").map(drop).unwrap_err();
    assert!(failed.to_string().contains("the store is unreachable"), "{failed}");
    assert_ne!(failed.code, gripfast::Code::NeedsLogin, "{failed}");
    assert_eq!(setup.authority.counts().refreshes, 0);
    store.is_away.store(false, Ordering::SeqCst);
    wait_until(&host, State::Ready).await;
    call(&host).await.unwrap();
    assert_eq!(setup.authority.counts().refreshes, 1);
}

/// E02: the store is lost between the answer of the authorization server and the write.
#[tokio::test]
async fn e02_a_login_that_could_not_be_stored_is_stored_as_soon_as_it_can_be() {
    let setup = AuthTest::logged_in(AuthorityOptions::default()).await;
    let store = Arc::new(FakeStore::default());
    let (one, other) = (host_with(&setup, &store).await, host_with(&setup, &store).await);
    let before = store.logins()[0].version;
    store.is_read_only.store(true, Ordering::SeqCst);
    setup.authority.expire_access_tokens();
    call(&one).await.unwrap();
    assert_eq!(store.logins()[0].version, before, "only the first host has the new login");
    store.is_read_only.store(false, Ordering::SeqCst);
    // Neither host renews: the first one writes its login by itself.
    gripfast_testkit::wait::until("it is stored", || store.logins()[0].version > before).await;
    call(&other).await.unwrap();
    let counts = setup.authority.counts();
    assert_eq!((counts.refreshes, counts.reuse_detected), (1, 0), "the other host uses it");
}
