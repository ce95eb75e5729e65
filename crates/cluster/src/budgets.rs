//! Shared call budgets: one script counts all budgets of a call in one round trip, on the store's clock.

use crate::StoreError;
use crate::store::{Store, millis};
use redis::Script;
use std::sync::LazyLock;
use std::time::Duration;

static RESERVE: LazyLock<Script> = LazyLock::new(|| {
    Script::new(concat!(include_str!("scripts/common.lua"), include_str!("scripts/reserve.lua")))
});
static SETTLE: LazyLock<Script> = LazyLock::new(|| {
    Script::new(concat!(include_str!("scripts/common.lua"), include_str!("scripts/settle.lua")))
});

/// A shared budget.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SharedBudget {
    /// Its name: calls with the same name share it.
    pub name: String,
    /// The largest number of calls.
    pub limit: u64,
    /// The time to which the limit applies.
    pub span: BudgetSpan,
}

/// The time to which the limit of a budget applies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BudgetSpan {
    /// Calls within the last duration up to now, counted in 60 buckets.
    Sliding(Duration),
    /// Calls from the first one on, for this duration; then a new window starts.
    Fixed(Duration),
    /// Calls at the same time. The calls of a replica that is gone do not count.
    InFlight,
}

/// The result of a reservation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BudgetReply {
    /// One unit of each budget is reserved.
    Reserved,
    /// A budget is spent; nothing was reserved.
    Refused {
        /// The name of the budget.
        name: String,
        /// The time after which a retry is useful.
        retry_after: Duration,
    },
}

/// The end of a reservation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Settlement {
    /// The call was made.
    Keep,
    /// The call was not made: windows get their unit back.
    Refund,
}

impl Store {
    /// Reserves one unit of each budget, or of none. A repeated `id` counts once, so that a retry after a lost reply is
    /// safe. `lifetime` is the longest time until the reservation is settled.
    ///
    /// # Errors
    ///
    /// If the store is unreachable.
    pub async fn reserve(
        &self,
        id: &str,
        budgets: &[SharedBudget],
        lifetime: Duration,
    ) -> Result<BudgetReply, StoreError> {
        let mut script = RESERVE.prepare_invoke();
        script.arg(self.prefix()).arg(self.place()).arg(id).arg(millis(lifetime));
        for budget in budgets {
            let (kind, window) = match budget.span {
                BudgetSpan::Sliding(window) => ("sliding", window),
                BudgetSpan::Fixed(window) => ("fixed", window),
                BudgetSpan::InFlight => ("in_flight", Duration::ZERO),
            };
            script.arg(&budget.name).arg(kind).arg(millis(window).max(1)).arg(budget.limit);
        }
        let (result, name, retry): (String, String, u64) = self.connection.run(&script).await?;
        if result == "reserved" {
            return Ok(BudgetReply::Reserved);
        }
        Ok(BudgetReply::Refused { name, retry_after: Duration::from_millis(retry) })
    }

    /// Ends a reservation. The call does not wait for this.
    ///
    /// # Errors
    ///
    /// If the store is unreachable. A unit in flight is then given back when the replica restarts.
    pub async fn settle(&self, id: &str, settlement: Settlement) -> Result<(), StoreError> {
        let settlement = match settlement {
            Settlement::Keep => "keep",
            Settlement::Refund => "refund",
        };
        let mut script = SETTLE.prepare_invoke();
        self.connection.run(script.arg(self.prefix()).arg(id).arg(settlement)).await
    }
}
