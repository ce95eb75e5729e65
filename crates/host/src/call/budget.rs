//! Call budgets: a call is reserved before it is sent and settled when it ends. A call that was certainly not carried
//! out costs nothing. Without budgets this costs one atomic load.
//!
//! If several hosts share their budgets, a [`BudgetStore`] counts the calls of all of them. The host counts its own
//! calls too, for the time in which the store is away.

use super::budget_store::{BudgetStore, StoreReply};
use crate::client::Principal;
use crate::host::Host;
use crate::sync::Mutex;
use crate::transport::BoxFuture;
use gripfast_core::failure::{CallError, CallOutcome, Code};
pub use gripfast_core::policy::budget::{
    BudgetCounter, BudgetScope, BudgetSpec, BudgetUse, BudgetWindow, SettledAs,
};
use gripfast_core::policy::budget::{BudgetExceeded, BudgetedCall, Budgets, LimitPart, Reservation};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

/// All call budgets of a host.
pub(crate) struct CallBudgets {
    has_any: AtomicBool,
    budgets: Mutex<Budgets>,
    store: OnceLock<Arc<dyn BudgetStore>>,
}

/// A reserved call. If it is dropped without an outcome, the call counts as made, because it may have been.
pub(super) struct BudgetReservation<'h> {
    budgets: &'h CallBudgets,
    reserved: Option<Box<ReservedUnits>>,
}

struct ReservedUnits {
    own: Reservation,
    /// Id of the reservation in the store.
    shared: Option<String>,
}

impl CallBudgets {
    pub(crate) fn new(specs: Vec<BudgetSpec>) -> Self {
        let has_any = AtomicBool::new(!specs.is_empty());
        Self { has_any, budgets: Mutex::new(Budgets::new(specs)), store: OnceLock::new() }
    }

    /// The store, if there are budgets and it counts them.
    fn active_store(&self) -> Option<&Arc<dyn BudgetStore>> {
        self.store.get().filter(|_| self.has_any.load(Ordering::Acquire))
    }

    fn hold(&self, own: Reservation, shared: Option<String>) -> BudgetReservation<'_> {
        BudgetReservation { budgets: self, reserved: Some(Box::new(ReservedUnits { own, shared })) }
    }

    fn settle(&self, reserved: ReservedUnits, settled: SettledAs) {
        let ReservedUnits { own, shared } = reserved;
        self.budgets.lock().settle(own, settled);
        if let (Some(id), Some(store)) = (shared, self.store.get()) {
            store.settle(id, settled);
        }
    }
}

impl Host {
    /// Reserves a tool call in all budgets that apply to it.
    pub(super) fn reserve(
        &self,
        principal: Option<&Principal>,
        server: &str,
        tool: Option<&str>,
    ) -> Result<Option<BudgetReservation<'_>>, CallError> {
        let budgets = &self.inner.call_budgets;
        let Some(tool) = tool.filter(|_| budgets.has_any.load(Ordering::Acquire)) else { return Ok(None) };
        let call = BudgetedCall { client: principal.map_or("", Principal::name), server, tool };
        self.reserve_here(call, LimitPart::Whole, None).map(Some)
    }

    /// Returns true if a store counts the budgets: then [`Host::reserve_shared`] reserves the call.
    pub(super) fn has_shared_budgets(&self) -> bool {
        self.inner.call_budgets.active_store().is_some()
    }

    /// Reserves a tool call at the store, in all budgets that apply to it. The future is on the heap, so that calls
    /// without shared budgets do not carry it.
    #[inline(never)]
    pub(super) fn reserve_shared<'a>(
        &'a self,
        principal: Option<&'a Principal>,
        server: &'a str,
        tool: Option<&'a str>,
    ) -> BoxFuture<'a, Result<Option<BudgetReservation<'a>>, CallError>> {
        Box::pin(async move {
            let budgets = &self.inner.call_budgets;
            let (Some(tool), Some(store)) = (tool, budgets.active_store()) else { return Ok(None) };
            let call = BudgetedCall { client: principal.map_or("", Principal::name), server, tool };
            let counters = budgets.budgets.lock().counters_of(call);
            if counters.is_empty() {
                return Ok(None);
            }
            let (share, id) = match store.reserve(&counters).await {
                StoreReply::Reserved { id } => (LimitPart::Unlimited, Some(id)),
                StoreReply::Exceeded(exceeded) => return Err(budget_error(server, tool, exceeded)),
                StoreReply::Local { processes } => (LimitPart::Divided(processes), None),
                StoreReply::Unavailable { reason, retry_after } => {
                    let budget = &counters[0].budget;
                    return Err(uncounted(server, tool, budget, &reason).with_retry_after(Some(retry_after)));
                }
            };
            self.reserve_here(call, share, id).map(Some)
        })
    }

    fn reserve_here(
        &self,
        call: BudgetedCall<'_>,
        share: LimitPart,
        shared: Option<String>,
    ) -> Result<BudgetReservation<'_>, CallError> {
        let budgets = &self.inner.call_budgets;
        let reserved = budgets.budgets.lock().reserve(self.now(), call, share);
        match reserved {
            Ok(own) => Ok(budgets.hold(own, shared)),
            Err(exceeded) => Err(budget_error(call.server, call.tool, exceeded)),
        }
    }

    /// The use of the call budgets, one row per budget and scope; at most 1000 rows. With a [`BudgetStore`] these are
    /// the calls of all hosts that share it, unless it is away.
    pub fn budgets(&self) -> Vec<BudgetUse> {
        let budgets = &self.inner.call_budgets;
        let shared = budgets.active_store().and_then(|store| store.known_use());
        let local = budgets.budgets.lock();
        match shared {
            None => local.usage(self.now()),
            Some(rows) => rows.into_iter().filter_map(|row| row.with_limits(local.specs())).collect(),
        }
    }

    /// Reads the use of shared budgets from their store, for [`Host::budgets`].
    pub async fn refresh_budgets(&self) {
        if let Some(store) = self.inner.call_budgets.active_store() {
            store.refresh().await;
        }
    }

    /// Returns true if there are call budgets.
    pub fn has_budgets(&self) -> bool {
        self.inner.call_budgets.has_any.load(Ordering::Acquire)
    }

    /// Shares the call budgets with other hosts. A second store is not accepted.
    pub fn share_budgets(&self, store: Arc<dyn BudgetStore>) {
        let set = self.inner.call_budgets.store.set(store);
        debug_assert!(set.is_ok(), "a host shares its budgets once");
    }

    /// Replaces the call budgets and resets their counts in this process.
    pub fn set_budgets(&self, specs: Vec<BudgetSpec>) {
        let budgets = &self.inner.call_budgets;
        let has_any = !specs.is_empty();
        budgets.budgets.lock().replace(specs);
        budgets.has_any.store(has_any, Ordering::Release);
    }
}

impl BudgetReservation<'_> {
    /// Settles the reservation with the outcome of the call.
    pub(super) fn settle<T>(mut self, outcome: &Result<T, CallError>) {
        let spending = match outcome {
            Err(error) if matches!(error.outcome, CallOutcome::NotSent | CallOutcome::Refused) => {
                SettledAs::Refunded
            }
            Ok(_) | Err(_) => SettledAs::Spent,
        };
        if let Some(reserved) = self.reserved.take() {
            self.budgets.settle(*reserved, spending);
        }
    }
}

impl Drop for BudgetReservation<'_> {
    fn drop(&mut self) {
        if let Some(reserved) = self.reserved.take() {
            self.budgets.settle(*reserved, SettledAs::Spent);
        }
    }
}

fn budget_error(server: &str, tool: &str, exceeded: BudgetExceeded) -> CallError {
    let BudgetExceeded { budget, limit, reset_after } = exceeded;
    let text = match reset_after {
        Some(_) => format!(
            "tool `{tool}` of server `{server}` was not called: all {limit} calls of the budget `{budget}` are used"
        ),
        None => format!(
            "tool `{tool}` of server `{server}` was not called: the budget `{budget}` allows {limit} calls at a time"
        ),
    };
    CallError::new(Code::BudgetExceeded, server, CallOutcome::NotSent, text)
        .with_retry_after(reset_after)
        .with_hint(format!("`budgets.{budget}` in the config sets the limit"))
}

/// The error for a call whose budgets cannot be counted.
fn uncounted(server: &str, tool: &str, budget: &str, reason: &str) -> CallError {
    let text = format!(
        "tool `{tool}` of server `{server}` was not called: the budget `{budget}` is counted for all replicas in the \
         store, and {reason}"
    );
    CallError::new(Code::Reconnecting, server, CallOutcome::NotSent, text).with_hint(
        "restore the store, or set `cluster.on_store_loss = \"local\"`: then each replica uses its part of the limit",
    )
}
