//! The page of the reference that describes the metrics.

use super::families::{Kind, families};
use gripfast::{
    AdminAction, AuthFailure, AuthTarget, CircuitView, Code, Fate, KeyChange, Spread, State, TrustDecision,
};
use std::fmt::Write;

/// The page, in Markdown.
pub fn page() -> String {
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
        words(&State::ALL.map(State::word)),
        words(&CircuitView::ALL.map(CircuitView::word)),
        words(&Fate::ALL.map(Fate::word)),
        words(&Code::ALL.map(Code::word)),
        words(&AuthTarget::ALL.map(AuthTarget::word)),
        words(&AuthFailure::ALL.map(AuthFailure::word)),
        words(&AdminAction::ALL.map(AdminAction::word)),
        words(&KeyChange::ALL.map(KeyChange::word)),
        words(&TrustDecision::ALL.map(TrustDecision::word)),
        Spread::BOUNDS.map(|bound| bound.to_string()).join(", "),
    );
    page
}

const INTRODUCTION: &str = "\
# Metrics

`/metrics` is OpenMetrics text. It is read from the same facts as `status`, at the moment of the scrape; reading it is open
on loopback, like status. A Grafana dashboard and alert rules are in [`deploy/`](../../deploy).

`status` counts as calls what got past the rules; `gripfast_upstream_calls_total` also has what a rule turned away
(`denied`, `unknown_tool`, …) and what its caller gave up (`cancelled`).

This page is made from the code; `cargo xtask reference --write` renews it.

| metric | kind | labels | meaning |
|---|---|---|---|
";
