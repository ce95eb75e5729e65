//! Shared call budgets: one script counts all budgets of a call in one round trip, on the store's clock.

use crate::StoreError;
use crate::connection::Script;
use crate::store::{Store, millis};
use std::sync::LazyLock;
use std::time::Duration;

macro_rules! budget_script {
    ($file:literal) => {
        LazyLock::new(|| {
            Script::new(concat!(
                include_str!("scripts/common.lua"),
                include_str!("scripts/budget_use.lua"),
                include_str!($file)
            ))
        })
    };
}

static RESERVE: LazyLock<Script> = budget_script!("scripts/reserve.lua");
static SETTLE: LazyLock<Script> = budget_script!("scripts/settle.lua");
static COUNTERS: LazyLock<Script> = budget_script!("scripts/counters.lua");

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
        /// Its place in the list of the call.
        budget: usize,
        /// The time after which a retry is useful.
        retry_after: Duration,
    },
}

/// The use of one budget.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CounterUse {
    /// The name of the budget.
    pub name: String,
    /// The time to which its limit applies.
    pub span: BudgetSpan,
    /// Units in use.
    pub used: u64,
    /// The time after which a unit is free again; for calls in flight a guess.
    pub retry_after: Duration,
}

/// The end of a reservation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Settlement {
    /// The call was made.
    Keep,
    /// The call was not made: windows get their unit back.
    Refund,
}

impl BudgetSpan {
    fn kind(self) -> &'static str {
        match self {
            Self::Sliding(_) => "sliding",
            Self::Fixed(_) => "fixed",
            Self::InFlight => "in_flight",
        }
    }

    fn window(self) -> Duration {
        match self {
            Self::Sliding(window) | Self::Fixed(window) => window,
            Self::InFlight => Duration::ZERO,
        }
    }

    fn read(kind: &str, window: u64) -> Option<Self> {
        let window = Duration::from_millis(window);
        match kind {
            "sliding" => Some(Self::Sliding(window)),
            "fixed" => Some(Self::Fixed(window)),
            "in_flight" => Some(Self::InFlight),
            _ => None,
        }
    }
}

impl Settlement {
    fn word(self) -> &'static str {
        match self {
            Self::Keep => "keep",
            Self::Refund => "refund",
        }
    }
}

impl Store {
    /// Largest number of settlements in one [`Store::settle`]: the store does nothing else meanwhile.
    pub const MAX_SETTLEMENTS: usize = 500;

    /// Sends the scripts about budgets to the store, so that no call has to. A store forgets them when it restarts.
    ///
    /// # Errors
    ///
    /// If the store is unreachable.
    pub async fn load_budget_scripts(&self) -> Result<(), StoreError> {
        self.connection.load(&RESERVE).await?;
        self.connection.load(&SETTLE).await
    }

    /// Reserves one unit of each budget, or of none. A repeated `id` counts once, so that a retry after a lost reply is
    /// safe. `lifetime` is the longest time until the reservation is settled; then a unit in flight is free again.
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
        for SharedBudget { name, limit, span } in budgets {
            script.arg(span.kind()).arg(millis(span.window()).max(1)).arg(name).arg(limit);
        }
        let (spent, retry): (usize, u64) = self.connection.run(&script).await?;
        Ok(match spent.checked_sub(1) {
            None => BudgetReply::Reserved,
            Some(budget) => BudgetReply::Refused { budget, retry_after: Duration::from_millis(retry) },
        })
    }

    /// Ends reservations, at most [`Store::MAX_SETTLEMENTS`]. No call waits for this.
    ///
    /// # Errors
    ///
    /// If the store is unreachable. It may be repeated.
    pub async fn settle(&self, ended: &[(String, Settlement)]) -> Result<(), StoreError> {
        let mut script = SETTLE.prepare_invoke();
        script.arg(self.prefix());
        for (id, settlement) in ended {
            script.arg(id).arg(settlement.word());
        }
        self.connection.run(&script).await
    }

    /// The use of all budgets, `most` at most; those that were used last come first.
    ///
    /// # Errors
    ///
    /// If the store is unreachable.
    pub async fn budget_use(&self, most: usize) -> Result<Vec<CounterUse>, StoreError> {
        let mut script = COUNTERS.prepare_invoke();
        let found: Vec<String> = self.connection.run(script.arg(self.prefix()).arg(most)).await?;
        let read = |parts: &[String]| {
            Some(CounterUse {
                name: parts[2].clone(),
                span: BudgetSpan::read(&parts[0], parts[1].parse().ok()?)?,
                used: parts[3].parse().ok()?,
                retry_after: Duration::from_millis(parts[4].parse().ok()?),
            })
        };
        Ok(found.chunks_exact(5).filter_map(read).collect())
    }
}
