//! Call budgets. A mistake here is one of the file: a budget that is not understood would limit nobody.

use super::Origin;
use super::fields::{Field, Fields, Problems};
use super::units::Span;
use crate::call::{BudgetSpec, Per, Window};
use crate::config::node::{Key, Node};
use gripfast_core::policy::Pattern;
use gripfast_core::policy::budget::Budgets;
use std::time::Duration;

#[derive(Clone, Copy)]
enum Kind {
    Sliding,
    Fixed,
}

pub(super) fn budgets(key: &Key, node: &Node, problems: &mut Problems) -> Vec<BudgetSpec> {
    let mut budgets = Vec::new();
    for (name, field) in Field::top(key, node).pairs(problems) {
        let Some(fields) = Fields::open(&field, Origin::Native, problems) else { continue };
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
    let calls = fields.take("calls").and_then(|field| field.whole_number(0..=Budgets::MOST_CALLS, problems));
    let span = Span::between(Duration::from_millis(1), Duration::from_secs(31 * 24 * 3600));
    let within = fields.take("within").and_then(|field| field.duration(span, problems));
    let mut kind = Kind::Sliding;
    fields.choice("window", &[("sliding", Kind::Sliding), ("fixed", Kind::Fixed)], &mut kind, problems);
    let in_flight = fields.take("in_flight").and_then(|field| field.whole_number(0..=1_000_000, problems));
    fields.finish(problems);
    let calls = match (calls, within) {
        (Some(calls), Some(within)) => Some((
            calls,
            match kind {
                Kind::Sliding => Window::Sliding(within),
                Kind::Fixed => Window::Fixed(within),
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

/// What has a counter of its own.
fn per(fields: &mut Fields<'_>, problems: &mut Problems) -> Per {
    let mut per = Per::default();
    let Some(field) = fields.take("per") else { return per };
    for element in field.elements(problems).unwrap_or_default() {
        match element.choice(&[("client", 0), ("server", 1), ("tool", 2)], problems) {
            Some(0) => per.client = true,
            Some(1) => per.server = true,
            Some(_) => per.tool = true,
            None => {}
        }
    }
    per
}
