//! Call budgets: a call is reserved before it is sent and settled when it ends. A call that was certainly not carried
//! out costs nothing. Without budgets this costs one atomic load.

use crate::client::Principal;
use crate::host::Host;
use crate::sync::Mutex;
use gripfast_core::failure::{CallError, CallOutcome, Code};
use gripfast_core::policy::budget::{BudgetExceeded, BudgetedCall, Budgets, Reservation, SettledAs};
pub use gripfast_core::policy::budget::{BudgetScope, BudgetSpec, BudgetUse, BudgetWindow};
use std::sync::atomic::{AtomicBool, Ordering};

/// All call budgets of a host.
pub(crate) struct CallBudgets {
    has_any: AtomicBool,
    budgets: Mutex<Budgets>,
}

/// A reserved call. If it is dropped without an outcome, the call counts as made, because it may have been.
pub(super) struct BudgetReservation<'h> {
    budgets: &'h CallBudgets,
    reservation: Option<Reservation>,
}

impl CallBudgets {
    pub(crate) fn new(specs: Vec<BudgetSpec>) -> Self {
        Self { has_any: AtomicBool::new(!specs.is_empty()), budgets: Mutex::new(Budgets::new(specs)) }
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
        let reserved = budgets.budgets.lock().reserve(self.now(), call);
        match reserved {
            Ok(reservation) => Ok(Some(BudgetReservation { budgets, reservation: Some(reservation) })),
            Err(exceeded) => Err(budget_error(server, tool, exceeded)),
        }
    }

    /// The use of the call budgets, one row per budget and scope; at most 1000 rows.
    pub fn budgets(&self) -> Vec<BudgetUse> {
        self.inner.call_budgets.budgets.lock().usage(self.now())
    }

    /// Replaces the call budgets and resets their counts.
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
        if let Some(reservation) = self.reservation.take() {
            self.budgets.budgets.lock().settle(reservation, spending);
        }
    }
}

impl Drop for BudgetReservation<'_> {
    fn drop(&mut self) {
        if let Some(reservation) = self.reservation.take() {
            self.budgets.budgets.lock().settle(reservation, SettledAs::Spent);
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
