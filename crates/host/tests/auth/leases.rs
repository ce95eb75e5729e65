//! Leases that a program brings, in the place of locks on files.

use crate::stage::{NAME, Stage, call, until};
use gripfast::auth::{Lease, Leases};
use gripfast::transport::BoxFuture;
use gripfast::{Host, State};
use gripfast_testkit::authority::Manners;
use std::io;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// One right for all hosts that share it, as a store on another machine would give it.
#[derive(Default)]
struct Turns {
    turn: Arc<tokio::sync::Mutex<()>>,
    given_for: Mutex<Vec<String>>,
    /// How often it is not to be had.
    away: AtomicU32,
}

impl Leases for Turns {
    fn acquire(&self, login: &str, within: Duration) -> BoxFuture<'_, io::Result<Lease>> {
        let login = login.to_owned();
        Box::pin(async move {
            let less = |times: u32| times.checked_sub(1);
            if self.away.fetch_update(Ordering::SeqCst, Ordering::SeqCst, less).is_ok() {
                return Err(io::Error::other("the store is away"));
            }
            let turn = tokio::time::timeout(within, Arc::clone(&self.turn).lock_owned()).await?;
            self.given_for.lock().unwrap().push(login);
            Ok(Lease::of(turn))
        })
    }
}

async fn host_with(stage: &Stage, turns: &Arc<Turns>) -> Host {
    let leases: Arc<dyn Leases> = Arc::clone(turns) as Arc<dyn Leases>;
    let host = Host::builder().logins(Some(stage.logins().leased_by(leases))).build();
    host.spawn(NAME, stage.spec()).unwrap();
    until(&host, State::Ready).await;
    host
}

#[tokio::test]
async fn e01_hosts_that_share_leases_of_their_own_never_spend_a_token_twice() {
    let stage = Stage::logged_in(Manners::default()).await;
    let lock = stage.kept().with_extension("lock");
    std::fs::remove_file(&lock).unwrap();
    let turns = Arc::new(Turns::default());
    let (one, other) = (host_with(&stage, &turns).await, host_with(&stage, &turns).await);
    for round in 1..=3 {
        stage.authority.end_tokens();
        let (first, second) = tokio::join!(call(&one), call(&other));
        first.unwrap();
        second.unwrap();
        let counts = stage.authority.counts();
        assert_eq!((counts.refreshes, counts.thefts), (round, 0), "each token is spent once");
    }
    let given_for = turns.given_for.lock().unwrap().clone();
    assert!(given_for.len() >= 3 && given_for.iter().all(|login| login.starts_with(NAME)), "{given_for:?}");
    assert!(!lock.exists(), "no file is locked beside them");
}

#[tokio::test]
async fn e02_a_lease_that_is_not_to_be_had_for_now_costs_no_login() {
    let stage = Stage::logged_in(Manners::default()).await;
    let turns = Arc::new(Turns::default());
    let host = host_with(&stage, &turns).await;
    turns.away.store(2, Ordering::SeqCst);
    stage.authority.end_tokens();
    // It is held meanwhile.
    call(&host).await.unwrap();
    assert_eq!(turns.away.load(Ordering::SeqCst), 0, "it was asked for");
    assert_eq!(stage.authority.counts().refreshes, 1);
}
