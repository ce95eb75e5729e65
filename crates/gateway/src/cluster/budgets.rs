//! Call budgets of the whole service: the store counts the calls of all replicas.
//!
//! A reservation waits for the store, for a bounded time. Once the store is known to be away, `cluster.on_store_loss`
//! decides at once, until a heartbeat succeeds. Settlements are sent in batches that no call waits for.

use super::{Member, StoreState};
use gripfast::config::StoreLoss;
use gripfast::sync::Mutex;
use gripfast::transport::BoxFuture;
use gripfast::{
    BudgetCounter, BudgetExceeded, BudgetStore, BudgetWindow, Host, SettledAs, StoreReply, StoredUse,
};
use gripfast_cluster::StoreError;
use gripfast_cluster::budgets::{BudgetReply, BudgetSpan, CounterUse, Settlement, SharedBudget};
use gripfast_cluster::store::Store;
use std::collections::{BTreeMap, VecDeque};
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::sync::Notify;

/// Longest time for which a call in flight holds its unit. A settlement that the store never gets ends by it.
const LIFETIME: Duration = Duration::from_secs(3600);
/// Largest number of settlements that wait for the store.
const MAX_SETTLEMENTS: usize = 65_536;
/// Largest number of counters that are read for the status.
const MAX_ROWS: usize = 1000;
/// Largest length of a part of a counter's name. Longer names with the same beginning share a counter.
const MAX_PART: usize = 256;

/// The budgets of the service, as this replica uses them.
pub(super) struct SharedBudgets {
    member: Arc<Member>,
    on_loss: StoreLoss,
    reservations: AtomicU64,
    /// Heartbeats that had succeeded when a reservation last failed. The next one decides whether the store is back.
    failed_at: AtomicU64,
    settlements: Mutex<VecDeque<(String, Settlement)>>,
    has_settlements: Notify,
    known_use: Mutex<Option<Vec<StoredUse>>>,
}

impl SharedBudgets {
    /// Shares the budgets of a host with the other replicas.
    pub(super) fn start(member: &Arc<Member>, host: &Host) {
        let budgets = Arc::new(Self {
            member: Arc::clone(member),
            on_loss: member.settings.on_store_loss,
            reservations: AtomicU64::new(0),
            failed_at: AtomicU64::new(u64::MAX),
            settlements: Mutex::default(),
            has_settlements: Notify::new(),
            known_use: Mutex::default(),
        });
        tokio::spawn(send_settlements(Arc::downgrade(&budgets)));
        tokio::spawn(follow_store(Arc::downgrade(&budgets)));
        host.share_budgets(budgets);
    }

    /// Longest time for which a call waits for the store.
    fn time_limit(&self) -> Duration {
        self.member.settings.lease.heartbeat().min(Duration::from_secs(1))
    }

    /// The store, if it is not known to be away.
    fn store(&self) -> Result<&Store, String> {
        if let StoreState::Unreachable(reason) = &*self.member.store_state.borrow() {
            return Err(reason.clone());
        }
        if self.failed_at.load(Ordering::Acquire) == self.member.heartbeats.load(Ordering::Acquire) {
            return Err("the store did not answer the last reservation".to_owned());
        }
        self.member.joined_store().map_err(|error| error.to_string())
    }

    async fn reserve_in_store(&self, counters: &[BudgetCounter]) -> StoreReply {
        let store = match self.store() {
            Ok(store) => store,
            Err(reason) => return self.without_store(reason),
        };
        let number = self.reservations.fetch_add(1, Ordering::Relaxed);
        let id = format!("{}-{number}", self.member.place.boot);
        let (units, limits) = units_of(counters);
        let heartbeats = self.member.heartbeats.load(Ordering::Acquire);
        // The store may have reserved even if there is no reply, or the client goes away before it.
        let refund = RefundOnDrop { budgets: self, id: Some(id.clone()) };
        let attempts = async {
            match store.reserve(&id, &units, LIFETIME).await {
                // A lost connection. The same id counts once.
                Err(StoreError::Unreachable(_)) => store.reserve(&id, &units, LIFETIME).await,
                reply => reply,
            }
        };
        let reply = match tokio::time::timeout(self.time_limit(), attempts).await {
            Ok(Ok(reply)) => reply,
            Ok(Err(error)) => return self.lost(heartbeats, error.to_string()),
            Err(_) => return self.lost(heartbeats, "the store did not answer in time".to_owned()),
        };
        match reply {
            BudgetReply::Reserved => {
                refund.disarm();
                StoreReply::Reserved { id }
            }
            BudgetReply::Refused { budget, retry_after } => {
                refund.disarm();
                let Some((name, limit, is_window)) = limits.get(budget) else {
                    return self.lost(heartbeats, "the store refused an unknown budget".to_owned());
                };
                let reset_after = Some(retry_after).filter(|_| *is_window && *limit > 0);
                StoreReply::Exceeded(BudgetExceeded { budget: name.clone(), limit: *limit, reset_after })
            }
        }
    }

    /// A reservation failed: until the next heartbeat succeeds, no other call waits for the store.
    fn lost(&self, heartbeats: u64, reason: String) -> StoreReply {
        if self.failed_at.swap(heartbeats, Ordering::AcqRel) != heartbeats {
            tracing::warn!("a budget is not counted for the whole service: {reason}");
        }
        self.without_store(reason)
    }

    fn without_store(&self, reason: String) -> StoreReply {
        match self.on_loss {
            StoreLoss::Local => {
                let replicas = u32::try_from(self.member.records.lock().len()).unwrap_or(u32::MAX);
                StoreReply::Local { processes: NonZeroU32::new(replicas).unwrap_or(NonZeroU32::MIN) }
            }
            StoreLoss::Refuse => {
                StoreReply::Unavailable { reason, retry_after: self.member.settings.lease.heartbeat() }
            }
        }
    }

    fn queue_settlement(&self, id: String, settlement: Settlement) {
        let mut waiting = self.settlements.lock();
        if waiting.len() >= MAX_SETTLEMENTS {
            // Its unit in flight is free after its lifetime.
            waiting.pop_front();
            self.member.dropped_settlements.fetch_add(1, Ordering::Relaxed);
        }
        waiting.push_back((id, settlement));
        drop(waiting);
        self.has_settlements.notify_one();
    }

    /// Sends the oldest settlements. Returns whether there were any.
    async fn send_batch(&self) -> Result<bool, StoreError> {
        let batch: Vec<_> = self.settlements.lock().iter().take(Store::MAX_SETTLEMENTS).cloned().collect();
        if batch.is_empty() {
            return Ok(false);
        }
        self.member.joined_store()?.settle(&batch).await?;
        let mut waiting = self.settlements.lock();
        // Others may have been dropped meanwhile to make room.
        for (id, _) in &batch {
            if waiting.front().is_some_and(|(first, _)| first == id) {
                waiting.pop_front();
            }
        }
        Ok(true)
    }

    async fn read_use(&self) {
        let read = match self.store() {
            Ok(store) => tokio::time::timeout(self.time_limit(), store.budget_use(MAX_ROWS)).await.ok(),
            Err(_) => None,
        };
        *self.known_use.lock() = read.and_then(Result::ok).map(rows_of);
    }
}

impl BudgetStore for SharedBudgets {
    fn reserve<'a>(&'a self, counters: &'a [BudgetCounter]) -> BoxFuture<'a, StoreReply> {
        Box::pin(self.reserve_in_store(counters))
    }

    fn settle(&self, id: String, settled: SettledAs) {
        let settlement = match settled {
            SettledAs::Spent => Settlement::Keep,
            SettledAs::Refunded => Settlement::Refund,
        };
        self.queue_settlement(id, settlement);
    }

    fn known_use(&self) -> Option<Vec<StoredUse>> {
        self.store().ok()?;
        self.known_use.lock().clone()
    }

    fn refresh(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.read_use())
    }
}

/// Gives a reservation back that no call uses.
struct RefundOnDrop<'a> {
    budgets: &'a SharedBudgets,
    id: Option<String>,
}

impl RefundOnDrop<'_> {
    fn disarm(mut self) {
        self.id = None;
    }
}

impl Drop for RefundOnDrop<'_> {
    fn drop(&mut self) {
        if let Some(id) = self.id.take() {
            self.budgets.queue_settlement(id, Settlement::Refund);
        }
    }
}

/// Sends settlements, and repeats them until the store has them.
async fn send_settlements(budgets: Weak<SharedBudgets>) {
    loop {
        let Some(present) = budgets.upgrade() else { return };
        let pause = present.member.settings.lease.heartbeat();
        match present.send_batch().await {
            Ok(true) => {}
            // A permit is kept for a settlement that came meanwhile. The time limit notices the end of the host.
            Ok(false) => {
                let _ = tokio::time::timeout(pause, present.has_settlements.notified()).await;
            }
            Err(error) => {
                tracing::debug!("settlements of budgets wait for the store: {error}");
                drop(present);
                tokio::time::sleep(pause).await;
            }
        }
    }
}

/// Prepares the store for reservations whenever it comes back, and reads the use of the budgets with each heartbeat.
async fn follow_store(budgets: Weak<SharedBudgets>) {
    let Some(mut state) = budgets.upgrade().map(|budgets| budgets.member.store_state.subscribe()) else {
        return;
    };
    let mut is_prepared = false;
    loop {
        let Some(present) = budgets.upgrade() else { return };
        let pause = present.member.settings.lease.heartbeat();
        let is_reachable = *state.borrow_and_update() == StoreState::Reachable;
        is_prepared &= is_reachable;
        let has_budgets = present.member.gateway().is_some_and(|gateway| gateway.host.has_budgets());
        if is_reachable && has_budgets {
            if !is_prepared {
                is_prepared = present.member.store.load_budget_scripts().await.is_ok();
            }
            present.read_use().await;
        }
        drop(present);
        // Any change of the state, or the pause, whichever comes first.
        let _ = tokio::time::timeout(pause, state.changed()).await;
    }
}

/// The counters as the store takes them, and for each its budget, its limit and whether it is a window.
fn units_of(counters: &[BudgetCounter]) -> (Vec<SharedBudget>, Vec<(String, u32, bool)>) {
    let (mut units, mut limits) = (Vec::new(), Vec::new());
    for counter in counters {
        let name = counter_name(counter);
        let mut add = |limit: u32, span, is_window| {
            units.push(SharedBudget { name: name.clone(), limit: limit.into(), span });
            limits.push((counter.budget.clone(), limit, is_window));
        };
        if let Some((limit, window)) = counter.calls {
            let span = match window {
                BudgetWindow::Fixed(window) => BudgetSpan::Fixed(window),
                BudgetWindow::Sliding(window) => BudgetSpan::Sliding(window),
            };
            add(limit, span, true);
        }
        if let Some(limit) = counter.in_flight {
            add(limit, BudgetSpan::InFlight, false);
        }
    }
    (units, limits)
}

/// The name of a counter in the store: budget, client, server and tool as a JSON list.
fn counter_name(counter: &BudgetCounter) -> String {
    let BudgetCounter { budget, client, server, tool, .. } = counter;
    serde_json::json!([budget, bounded(client), bounded(server), bounded(tool)]).to_string()
}

fn bounded(part: &Option<String>) -> Option<&str> {
    part.as_deref().map(|part| &part[..part.floor_char_boundary(MAX_PART)])
}

/// The rows of all counters: windows and calls in flight of one counter are one row.
fn rows_of(found: Vec<CounterUse>) -> Vec<StoredUse> {
    let mut rows: BTreeMap<String, StoredUse> = BTreeMap::new();
    for CounterUse { name, span, used, retry_after } in found {
        let Ok((budget, client, server, tool)) = serde_json::from_str(&name) else { continue };
        let empty = StoredUse { budget, client, server, tool, calls: Vec::new(), in_flight: 0 };
        let row = rows.entry(name).or_insert(empty);
        let used = u32::try_from(used).unwrap_or(u32::MAX);
        match span {
            BudgetSpan::Sliding(window) => row.calls.push((BudgetWindow::Sliding(window), used, retry_after)),
            BudgetSpan::Fixed(window) => row.calls.push((BudgetWindow::Fixed(window), used, retry_after)),
            BudgetSpan::InFlight => row.in_flight = used,
        }
    }
    rows.into_values().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counter() -> BudgetCounter {
        BudgetCounter {
            budget: "minute".to_owned(),
            client: Some("a\"b".to_owned()),
            server: None,
            tool: Some("ä".repeat(300)),
            calls: Some((7, BudgetWindow::Fixed(Duration::from_secs(60)))),
            in_flight: Some(2),
        }
    }

    #[test]
    fn a_counter_is_found_again_under_its_name_in_the_store() {
        let (units, limits) = units_of(&[counter()]);
        assert_eq!(units.len(), 2);
        assert_eq!(units[0].name, units[1].name);
        assert!(units[0].name.len() < 300, "its length is bounded: {}", units[0].name);
        assert_eq!(limits, [("minute".to_owned(), 7, true), ("minute".to_owned(), 2, false)]);
        let found = units.into_iter().zip([3, 1]).map(|(unit, used)| CounterUse {
            name: unit.name,
            span: unit.span,
            used,
            retry_after: Duration::from_secs(5),
        });
        let rows = rows_of(found.collect());
        let window = BudgetWindow::Fixed(Duration::from_secs(60));
        assert_eq!(rows.len(), 1);
        assert_eq!((rows[0].budget.as_str(), rows[0].client.as_deref()), ("minute", Some("a\"b")));
        assert_eq!((&rows[0].server, rows[0].in_flight), (&None, 1));
        assert_eq!(rows[0].calls, [(window, 3, Duration::from_secs(5))]);
    }

    #[test]
    fn a_counter_of_another_version_is_left_out() {
        let strange = CounterUse {
            name: "not a list".to_owned(),
            span: BudgetSpan::InFlight,
            used: 1,
            retry_after: Duration::ZERO,
        };
        assert_eq!(rows_of(vec![strange]), []);
    }
}
