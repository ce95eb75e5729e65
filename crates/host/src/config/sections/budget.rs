//! Call budgets: the tables `budgets.NAME`. A mistake here is an error of the file, because a budget without effect would
//! limit nothing.

use crate::call::{BudgetScope, BudgetSpec, BudgetWindow};
use crate::config::fields::{Field, Problems};
use crate::config::keys::{Section, ValueKind, impl_codec, keys, words};
use crate::config::units::DurationRange;
use gripfast_core::policy::Pattern;
use gripfast_core::policy::budget::Budgets;
use std::time::Duration;

const WINDOW_RANGE: DurationRange =
    DurationRange::between(Duration::from_millis(1), Duration::from_secs(31 * 24 * 3600));

keys! {
    /// A budget of calls: `calls` within `within`, or `in_flight`, or both.
    pub(super) struct BudgetKeys {
        /// Clients whose calls count: a pattern over client names.
        client: String = "*".to_owned();
        /// Servers whose calls count: a pattern over server names.
        server: String = "*".to_owned();
        /// Tools whose calls count: a pattern over the servers' own names.
        tool: String = "*".to_owned();
        /// Separate counters for each client, server or tool. Without it there is one counter for all.
        per: BudgetScope = BudgetScope::default();
        /// Largest number of calls within `within`.
        calls: Option<u32> [0..=Budgets::MAX_CALLS] = None;
        /// Period for `calls`.
        within: Option<Duration> [WINDOW_RANGE] = None;
        /// `sliding` counts the calls of the last `within`, at any moment; `fixed` starts a new count every `within`.
        window: WindowChoice = WindowChoice::Sliding;
        /// Largest number of calls at a time.
        in_flight: Option<u32> [0..=1_000_000] = None;
    }
}

/// Values of the key `window`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WindowChoice {
    Sliding,
    Fixed,
}

words!(WindowChoice { Sliding = "sliding", Fixed = "fixed" });

/// Decodes all budgets.
pub(in crate::config) fn budgets(field: &Field<'_>, problems: &mut Problems) -> Vec<BudgetSpec> {
    let mut budgets = Vec::new();
    for (name, field) in field.pairs(problems) {
        let before = problems.errors.len();
        let mut keys = BudgetKeys::defaults();
        keys.read_section(&field, problems);
        match keys.into_spec(&name.name) {
            Ok(spec) => budgets.push(spec),
            Err(message) if problems.errors.len() == before => problems.error(field.error(message)),
            Err(_) => {}
        }
    }
    budgets
}

impl BudgetKeys {
    fn into_spec(self, name: &str) -> Result<BudgetSpec, &'static str> {
        let calls = match (self.calls, self.within) {
            (Some(calls), Some(within)) => Some((
                calls,
                match self.window {
                    WindowChoice::Sliding => BudgetWindow::Sliding(within),
                    WindowChoice::Fixed => BudgetWindow::Fixed(within),
                },
            )),
            (None, None) => None,
            (Some(_), None) => return Err("`calls` needs `within`, such as \"1m\""),
            (None, Some(_)) => return Err("`within` needs `calls`, the number of calls in that time"),
        };
        if calls.is_none() && self.in_flight.is_none() {
            return Err("a budget needs `calls` and `within`, or `in_flight`");
        }
        let [client, server, tool] = [self.client, self.server, self.tool].map(Pattern::new);
        Ok(BudgetSpec {
            name: name.to_owned(),
            client,
            server,
            tool,
            per: self.per,
            calls,
            in_flight: self.in_flight,
        })
    }
}

// The dimensions with separate counters.
impl_codec!(
    BudgetScope => BudgetScope,
    ValueKind::Choices(&["client", "server", "tool"]),
    read_budget_scope,
    |_| "[]".to_owned()
);

fn read_budget_scope(field: &Field<'_>, problems: &mut Problems) -> Option<BudgetScope> {
    let mut scope = BudgetScope::default();
    for element in field.elements(problems)? {
        match element.choice(&[("client", 0), ("server", 1), ("tool", 2)], problems) {
            Some(0) => scope.client = true,
            Some(1) => scope.server = true,
            Some(_) => scope.tool = true,
            None => {}
        }
    }
    Some(scope)
}
