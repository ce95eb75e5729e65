//! Generates the reference page of the metrics.

use super::families::{Kind, families};
use gripfast::{
    AdminAction, AuthFailure, AuthTarget, CallOutcome, CircuitView, Code, DurationHistogram, KeyChange,
    State, TrustDecision,
};
use std::fmt::Write;

/// The page, in Markdown.
pub fn reference_page() -> String {
    let mut page = String::from(INTRODUCTION);
    for family in families() {
        let labels: Vec<String> = family.labels.iter().map(|label| format!("`{label}`")).collect();
        let suffix = match family.kind {
            Kind::Histogram => "",
            Kind::Counter | Kind::Gauge | Kind::Info => family.kind.suffixes()[0],
        };
        let help = family.help.replace('|', "\\|");
        // Writing to a string does not fail.
        let _ = writeln!(
            page,
            "| `{}{suffix}` | {} | {} | {help} |",
            family.name,
            family.kind.word(),
            labels.join(", ")
        );
    }
    let words = |words: &[&str]| words.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(" ");
    let _ = write!(
        page,
        "\n## Labels\n\n\
         | label | values |\n|---|---|\n\
         | `server` | the names of the servers in the config |\n\
         | `state` | {} |\n\
         | `circuit` | {} |\n\
         | `outcome` | {} |\n\
         | `code` | `none` {} |\n\
         | `kind` | the kinds of `/api/v1/events` |\n\
         | `target` | {} |\n\
         | `reason` | {} |\n\
         | `action` | {} |\n\
         | `change` | {} |\n\
         | `decision` | {} |\n\
         | `budget` | the names of the budgets in the config |\n\
         | `version` | the version of gripfast |\n\n\
         Durations have these upper bounds, in seconds: {}.\n",
        words(&State::ALL.map(State::as_str)),
        words(&CircuitView::ALL.map(CircuitView::as_str)),
        words(&CallOutcome::ALL.map(CallOutcome::as_str)),
        words(&Code::ALL.map(Code::as_str)),
        words(&AuthTarget::ALL.map(AuthTarget::as_str)),
        words(&AuthFailure::ALL.map(AuthFailure::as_str)),
        words(&AdminAction::ALL.map(AdminAction::as_str)),
        words(&KeyChange::ALL.map(KeyChange::as_str)),
        words(&TrustDecision::ALL.map(TrustDecision::as_str)),
        DurationHistogram::BOUNDS.map(|bound| bound.to_string()).join(", "),
    );
    page
}

const INTRODUCTION: &str = "\
# Metrics

`/metrics` answers in Prometheus text format 0.0.4, or in OpenMetrics 1.0.0 if the `Accept` header asks for
`application/openmetrics-text`. The values are those of `status` at the moment of the scrape. Reading is open on
loopback, as for `status`. A Grafana dashboard and alert rules are in `deploy/`.

`status` counts the calls that policy admitted. `gripfast_upstream_calls_total` also counts calls that policy refused
(`denied`, `unknown_tool`, …) and calls that the client cancelled (`cancelled`).

This page is generated from the code; `cargo xtask reference --write` updates it.

| metric | kind | labels | meaning |
|---|---|---|---|
";
