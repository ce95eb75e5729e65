//! Interface to a store that counts the call budgets of several hosts together.

use crate::transport::BoxFuture;
use gripfast_core::policy::budget::{
    BudgetCounter, BudgetExceeded, BudgetSpec, BudgetUse, BudgetWindow, SettledAs,
};
use std::num::NonZeroU32;
use std::time::Duration;

/// A store that counts calls for several hosts.
pub trait BudgetStore: Send + Sync {
    /// Reserves one unit of each counter, or of none. It decides in bounded time even if the store does not answer.
    fn reserve<'a>(&'a self, counters: &'a [BudgetCounter]) -> BoxFuture<'a, StoreReply>;

    /// Ends a reservation. No call waits for it.
    fn settle(&self, id: String, settled: SettledAs);

    /// The use of all counters as it was last read; `None` while the store is away.
    fn known_use(&self) -> Option<Vec<StoredUse>>;

    /// Reads the use of all counters again, in bounded time.
    fn refresh(&self) -> BoxFuture<'_, ()>;
}

/// The result of a reservation at the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoreReply {
    /// One unit of each counter is reserved, until the reservation with this id is settled.
    Reserved {
        /// The id.
        id: String,
    },
    /// A budget is spent.
    Exceeded(BudgetExceeded),
    /// The store is away. The host decides alone, with its part of each limit.
    Local {
        /// Number of hosts that share the budgets, as far as is known.
        processes: NonZeroU32,
    },
    /// The store is away, and no call may be made without it.
    Unavailable {
        /// The cause.
        reason: String,
        /// The time after which a retry is useful.
        retry_after: Duration,
    },
}

/// The use of one counter in the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredUse {
    /// The name of the budget.
    pub budget: String,
    /// The client, if the counter is per client.
    pub client: Option<String>,
    /// The server, if the counter is per server.
    pub server: Option<String>,
    /// The tool, if the counter is per tool.
    pub tool: Option<String>,
    /// Calls in each window, with the time until one is free again.
    pub calls: Vec<(BudgetWindow, u32, Duration)>,
    /// Calls in flight.
    pub in_flight: u32,
}

impl StoredUse {
    /// The row of this counter; `None` if the config has no such budget any more.
    pub(super) fn with_limits(self, specs: &[BudgetSpec]) -> Option<BudgetUse> {
        let spec = specs.iter().find(|spec| spec.name == self.budget)?;
        let present = spec.calls.and_then(|(_, window)| self.calls.iter().find(|calls| calls.0 == window));
        Some(BudgetUse {
            budget: self.budget,
            client: self.client,
            server: self.server,
            tool: self.tool,
            calls: present.map_or(0, |(_, calls, _)| *calls),
            max_calls: spec.calls.map(|(most, _)| most),
            reset_after: present.map(|(.., reset)| *reset),
            in_flight: self.in_flight,
            max_in_flight: spec.in_flight,
        })
    }
}
