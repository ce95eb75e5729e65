//! Decodes call budgets. A mistake here is an error of the file, because a budget without effect would limit nothing.

use super::fields::{Field, Fields, Problems};
use crate::call::{BudgetScope, BudgetSpec, BudgetWindow};
use crate::config::keys::BUDGET;
use crate::config::keys::choices::{BUDGET_SCOPES, WINDOWS, WindowChoice};
use crate::config::node::{KeyNode, Node};
use gripfast_core::policy::Pattern;

pub(super) fn budgets(key: &KeyNode, node: &Node, problems: &mut Problems) -> Vec<BudgetSpec> {
    let mut budgets = Vec::new();
    for (name, field) in Field::top(key, node).pairs(problems) {
        let Some(fields) = Fields::open(&field, &BUDGET, problems) else { continue };
        budgets.extend(budget(&name.name, &field, fields, problems));
    }
    budgets
}

fn budget(
    name: &str,
    field: &Field<'_>,
    mut fields: Fields<'_>,
    problems: &mut Problems,
) -> Option<BudgetSpec> {
    let mut pattern = |name: &'static str| {
        let text = fields.take(name).and_then(|field| field.text(problems));
        Pattern::new(text.unwrap_or("*"))
    };
    let (client, server, tool) = (pattern("client"), pattern("server"), pattern("tool"));
    let per = per(&mut fields, problems);
    let calls = fields.optional_number("calls", problems);
    let within = fields.optional_duration("within", problems);
    let mut counting = WindowChoice::Sliding;
    fields.choice("window", WINDOWS, &mut counting, problems);
    let in_flight = fields.optional_number("in_flight", problems);
    fields.finish(problems);
    let calls = match (calls, within) {
        (Some(calls), Some(within)) => Some((
            calls,
            match counting {
                WindowChoice::Sliding => BudgetWindow::Sliding(within),
                WindowChoice::Fixed => BudgetWindow::Fixed(within),
            },
        )),
        (None, None) => None,
        (Some(_), None) => {
            problems.error(field.error("`calls` needs `within`, such as \"1m\""));
            return None;
        }
        (None, Some(_)) => {
            problems.error(field.error("`within` needs `calls`, the number of calls in that time"));
            return None;
        }
    };
    if calls.is_none() && in_flight.is_none() {
        problems.error(field.error("a budget needs `calls` and `within`, or `in_flight`"));
        return None;
    }
    Some(BudgetSpec { name: name.to_owned(), client, server, tool, per, calls, in_flight })
}

/// The dimensions with separate counters.
fn per(fields: &mut Fields<'_>, problems: &mut Problems) -> BudgetScope {
    let mut per = BudgetScope::default();
    let Some(field) = fields.take("per") else { return per };
    for element in field.elements(problems).unwrap_or_default() {
        let subjects: Vec<_> = BUDGET_SCOPES.iter().map(|subject| (*subject, *subject)).collect();
        match element.choice(&subjects, problems) {
            Some("client") => per.client = true,
            Some("server") => per.server = true,
            Some(_) => per.tool = true,
            None => {}
        }
    }
    per
}
