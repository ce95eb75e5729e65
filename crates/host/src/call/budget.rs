//! Call budgets: a call is reserved before it goes and settled on whatever way it ends. What was certainly not
//! carried out costs nothing. Where there are no budgets, nothing is looked at.

use crate::client::Principal;
use crate::host::Host;
use gripfast_core::failure::{CallError, Code, Outcome as Fate};
pub use gripfast_core::policy::budget::{BudgetSpec, BudgetUse, Per, Window};
use gripfast_core::policy::budget::{Budgets, Call, Exceeded, Reservation, Spending};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// All call budgets of a host.
pub(crate) struct Purse {
    has_any: AtomicBool,
    budgets: Mutex<Budgets>,
}

/// A call that was reserved. One that is given up counts as made: it may have been.
pub(super) struct Spend<'h> {
    purse: &'h Purse,
    reservation: Option<Reservation>,
}

impl Purse {
    pub(crate) fn new(specs: Vec<BudgetSpec>) -> Self {
        Self { has_any: AtomicBool::new(!specs.is_empty()), budgets: Mutex::new(Budgets::new(specs)) }
    }

    fn lock(&self) -> MutexGuard<'_, Budgets> {
        self.budgets.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Host {
    /// Reserves a call of a tool in the budgets that it concerns.
    pub(super) fn reserve(
        &self,
        principal: Option<&Principal>,
        server: &str,
        tool: Option<&str>,
    ) -> Result<Option<Spend<'_>>, CallError> {
        let purse = self.purse();
        let Some(tool) = tool.filter(|_| purse.has_any.load(Ordering::Acquire)) else { return Ok(None) };
        let call = Call { client: principal.map_or("", Principal::name), server, tool };
        let reserved = purse.lock().reserve(self.now(), call);
        match reserved {
            Ok(reservation) => Ok(Some(Spend { purse, reservation: Some(reservation) })),
            Err(exceeded) => Err(spent(server, tool, exceeded)),
        }
    }

    /// What is spent of the call budgets, for whatever each of them tells apart. At most a thousand rows.
    pub fn budgets(&self) -> Vec<BudgetUse> {
        self.purse().lock().usage(self.now())
    }

    /// Replaces the call budgets. What was spent is forgotten.
    pub fn set_budgets(&self, specs: Vec<BudgetSpec>) {
        let purse = self.purse();
        let has_any = !specs.is_empty();
        purse.lock().replace(specs);
        purse.has_any.store(has_any, Ordering::Release);
    }
}

impl Spend<'_> {
    /// The call has ended.
    pub(super) fn settle<T>(mut self, outcome: &Result<T, CallError>) {
        let spending = match outcome {
            Err(error) if matches!(error.outcome, Fate::NotSent | Fate::Refused) => Spending::Refunded,
            Ok(_) | Err(_) => Spending::Spent,
        };
        if let Some(reservation) = self.reservation.take() {
            self.purse.lock().settle(reservation, spending);
        }
    }
}

impl Drop for Spend<'_> {
    fn drop(&mut self) {
        if let Some(reservation) = self.reservation.take() {
            self.purse.lock().settle(reservation, Spending::Spent);
        }
    }
}

fn spent(server: &str, tool: &str, exceeded: Exceeded) -> CallError {
    let Exceeded { budget, limit, reset_after } = exceeded;
    let text = match reset_after {
        Some(_) => format!(
            "tool `{tool}` of upstream `{server}` is not called: the {limit} calls of the budget `{budget}` are spent"
        ),
        None => format!(
            "tool `{tool}` of upstream `{server}` is not called: the budget `{budget}` allows {limit} at a time"
        ),
    };
    CallError::new(Code::BudgetExceeded, server, Fate::NotSent, text)
        .retry_after(reset_after)
        .hint(format!("`budgets.{budget}` in the config says how many"))
}
