//! Which metrics there are: one entry each, with what it means and where its values come from. The reference,
//! the dashboard and the alerts in `deploy/` are checked against this table.
//!
//! Labels take their values from closed sets, but for `server` and `budget`, of which there are as many as the config
//! has.

use gripfast::ledger::LedgerStatus;
use gripfast::{
    AuditStatus, BudgetUse, CacheCounts, CircuitView, SecurityCounts, ServerStatus, Spread, State,
};
use std::collections::BTreeMap;

/// All that a scrape knows.
#[derive(Debug)]
pub struct Facts {
    /// The version of gripfast.
    pub version: &'static str,
    /// When it began, in seconds since the Unix epoch.
    pub begun: f64,
    /// The facts about each server.
    pub servers: Vec<ServerStatus>,
    /// How the ledger does.
    pub ledger: LedgerStatus,
    /// Legacy sessions of clients in memory.
    pub sessions: usize,
    /// How the cache of answers does.
    pub cache: CacheCounts,
    /// What is spent of the call budgets.
    pub budgets: Vec<BudgetUse>,
    /// How the audit log does.
    pub audit: AuditStatus,
    /// How often things of security happened.
    pub security: SecurityCounts,
}

/// One metric with all its labels.
#[derive(Debug)]
pub struct Family {
    /// As it is written, without the suffixes that its kind brings along.
    pub name: &'static str,
    /// What it is.
    pub kind: Kind,
    /// The labels of each of its series.
    pub labels: &'static [&'static str],
    /// What it means.
    pub help: &'static str,
    /// Its series at one moment.
    pub(crate) read: fn(&Facts) -> Vec<Series>,
}

/// What a metric is, and so how it is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Only grows; written with `_total`.
    Counter,
    /// Is what it is at this moment.
    Gauge,
    /// Written with `_bucket`, `_sum` and `_count`, in seconds.
    Histogram,
    /// Always 1, with facts for labels; written with `_info`.
    Info,
}

impl Kind {
    /// The suffixes of the series as a query names them.
    pub fn suffixes(self) -> &'static [&'static str] {
        match self {
            Self::Counter => &["_total"],
            Self::Gauge => &[""],
            Self::Histogram => &["_bucket", "_sum", "_count"],
            Self::Info => &["_info"],
        }
    }

    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
            Self::Info => "info",
        }
    }
}

/// One series: the values of the family's labels, and its own.
#[derive(Debug)]
pub(crate) struct Series {
    pub(crate) labels: Vec<String>,
    pub(crate) value: Value,
}

#[derive(Debug)]
pub(crate) enum Value {
    Count(u64),
    Number(f64),
    Spread(Spread),
}

/// Every metric, in the order in which they are written.
pub fn families() -> &'static [Family] {
    FAMILIES
}

const FAMILIES: &[Family] = &[
    Family {
        name: "gripfast_build",
        kind: Kind::Info,
        labels: &["version"],
        help: "The version that runs.",
        read: |facts| vec![series([facts.version], Value::Count(1))],
    },
    Family {
        name: "gripfast_start_time_seconds",
        kind: Kind::Gauge,
        labels: &[],
        help: "When the gateway began, in seconds since the Unix epoch.",
        read: |facts| vec![series([], Value::Number(facts.begun))],
    },
    Family {
        name: "gripfast_upstream_state",
        kind: Kind::Gauge,
        labels: &["server", "state"],
        help: "1 for the state that the server is in, 0 for all others.",
        read: |facts| {
            each(facts, |server| {
                State::ALL
                    .map(|state| series([&server.name, state.word()], is(server.supervision.state == state)))
            })
        },
    },
    Family {
        name: "gripfast_upstream_circuit",
        kind: Kind::Gauge,
        labels: &["server", "circuit"],
        help: "1 for the position that the server's circuit is in, 0 for all others.",
        read: |facts| {
            each(facts, |server| {
                CircuitView::ALL.map(|circuit| {
                    series([&server.name, circuit.word()], is(server.supervision.circuit == circuit))
                })
            })
        },
    },
    Family {
        name: "gripfast_upstream_restarts",
        kind: Kind::Counter,
        labels: &["server"],
        help: "Children that were started anew, and established links that were lost.",
        read: |facts| each(facts, |server| [of(server, Value::Count(server.supervision.restarts))]),
    },
    Family {
        name: "gripfast_upstream_events",
        kind: Kind::Counter,
        labels: &["server", "kind"],
        help: "What happened to the server, by the kind of event, as in `/api/v1/events`.",
        read: |facts| {
            each(facts, |server| {
                let counts = server.event_counts.iter();
                counts
                    .map(|(kind, count)| series([server.name.as_str(), kind], Value::Count(*count)))
                    .collect::<Vec<_>>()
            })
        },
    },
    Family {
        name: "gripfast_upstream_calls",
        kind: Kind::Counter,
        labels: &["server", "outcome", "code"],
        help: "Requests of clients that have ended, by what is known of their fate, and by the code of the \
               failure (`none` if the server answered).",
        read: |facts| {
            each(facts, |server| {
                let counts = server.ends.counts.iter();
                let written = counts.map(|(outcome, code, count)| {
                    let code = code.map_or("none", gripfast::Code::word);
                    series([&server.name, outcome.word(), code], Value::Count(*count))
                });
                written.collect::<Vec<_>>()
            })
        },
    },
    Family {
        name: "gripfast_upstream_call_duration_seconds",
        kind: Kind::Histogram,
        labels: &["server", "outcome"],
        help: "How long requests of clients took, with all their waits and attempts.",
        read: |facts| {
            each(facts, |server| {
                let took = server.ends.took.iter();
                let written = took.map(|(outcome, spread)| {
                    series([&server.name, outcome.word()], Value::Spread(spread.clone()))
                });
                written.collect::<Vec<_>>()
            })
        },
    },
    Family {
        name: "gripfast_upstream_in_flight",
        kind: Kind::Gauge,
        labels: &["server"],
        help: "Requests that the server is at.",
        read: |facts| each(facts, |server| [of(server, count(server.supervision.in_flight))]),
    },
    Family {
        name: "gripfast_upstream_waiting",
        kind: Kind::Gauge,
        labels: &["server"],
        help: "Requests that wait for the server's link, or for a slot.",
        read: |facts| each(facts, |server| [of(server, count(server.supervision.waiting))]),
    },
    Family {
        name: "gripfast_upstream_consecutive_failures",
        kind: Kind::Gauge,
        labels: &["server"],
        help: "Transport failures in a row; the circuit opens at its threshold.",
        read: |facts| each(facts, |server| [of(server, count(server.supervision.consecutive_failures))]),
    },
    Family {
        name: "gripfast_upstream_tools",
        kind: Kind::Gauge,
        labels: &["server"],
        help: "Tools that clients may see.",
        read: |facts| each(facts, |server| [of(server, count(server.tools as u64))]),
    },
    Family {
        name: "gripfast_upstream_changed_tools",
        kind: Kind::Gauge,
        labels: &["server"],
        help: "Tools that say something else than what was approved.",
        read: |facts| each(facts, |server| [of(server, count(server.pins.changed as u64))]),
    },
    Family {
        name: "gripfast_upstream_cache_hits",
        kind: Kind::Counter,
        labels: &["server"],
        help: "Requests that were answered from the cache.",
        read: |facts| each(facts, |server| [of(server, Value::Count(server.cache.hits))]),
    },
    Family {
        name: "gripfast_upstream_cache_misses",
        kind: Kind::Counter,
        labels: &["server"],
        help: "Requests that could have been answered from the cache, and were not.",
        read: |facts| each(facts, |server| [of(server, Value::Count(server.cache.misses))]),
    },
    Family {
        name: "gripfast_upstream_instances",
        kind: Kind::Gauge,
        labels: &["server"],
        help: "Instances that belong to one client each.",
        read: |facts| each(facts, |server| [of(server, count(server.instances.count() as u64))]),
    },
    Family {
        name: "gripfast_upstream_dropped_notifications",
        kind: Kind::Counter,
        labels: &["server"],
        help: "Notifications without a request or progress token on a link that had served several principals: \
               delivered to no client.",
        read: |facts| each(facts, |server| [of(server, Value::Count(server.calls.dropped))]),
    },
    Family {
        name: "gripfast_sessions",
        kind: Kind::Gauge,
        labels: &[],
        help: "Sessions of legacy clients in memory.",
        read: |facts| vec![series([], count(facts.sessions as u64))],
    },
    Family {
        name: "gripfast_cache_entries",
        kind: Kind::Gauge,
        labels: &[],
        help: "Answers that are kept to be given again.",
        read: |facts| vec![series([], count(facts.cache.entries as u64))],
    },
    Family {
        name: "gripfast_cache_size_bytes",
        kind: Kind::Gauge,
        labels: &[],
        help: "The memory that these answers take.",
        read: |facts| vec![series([], count(facts.cache.bytes as u64))],
    },
    Family {
        name: "gripfast_budget_used",
        kind: Kind::Gauge,
        labels: &["budget"],
        help: "The part of the budget that is used up, for the client, server or tool that has used most of it; \
               1 means that its calls are refused.",
        read: |facts| {
            let used = fullest(&facts.budgets).into_iter();
            used.map(|(budget, used)| series([budget], Value::Number(used))).collect()
        },
    },
    Family {
        name: "gripfast_auth_failures",
        kind: Kind::Counter,
        labels: &["target", "reason"],
        help: "Requests that did not authenticate, each of them. `no_credential` is how clients begin that look for the \
               way to log in.",
        read: |facts| {
            let counts = facts.security.auth_failures.iter();
            counts
                .map(|((target, reason), count)| series([target.word(), reason.word()], Value::Count(*count)))
                .collect()
        },
    },
    Family {
        name: "gripfast_admin_actions",
        kind: Kind::Counter,
        labels: &["action"],
        help: "Actions of the admin API that showed the admin token.",
        read: |facts| {
            let counts = facts.security.admin_actions.iter();
            counts.map(|(action, count)| series([action.word()], Value::Count(*count))).collect()
        },
    },
    Family {
        name: "gripfast_key_changes",
        kind: Kind::Counter,
        labels: &["change"],
        help: "Keys of clients that changed in the state directory, and replaced admin tokens, as this gateway noticed \
               them.",
        read: |facts| {
            let counts = facts.security.key_changes.iter();
            counts.map(|(change, count)| series([change.word()], Value::Count(*count))).collect()
        },
    },
    Family {
        name: "gripfast_trust_decisions",
        kind: Kind::Counter,
        labels: &["decision"],
        help: "Decisions to trust the config file of this gateway, or not to.",
        read: |facts| {
            let counts = facts.security.trust_decisions.iter();
            counts.map(|(decision, count)| series([decision.word()], Value::Count(*count))).collect()
        },
    },
    Family {
        name: "gripfast_audit_lines",
        kind: Kind::Counter,
        labels: &[],
        help: "Lines of the audit log.",
        read: |facts| vec![series([], Value::Count(facts.audit.lines))],
    },
    Family {
        name: "gripfast_audit_lost_lines",
        kind: Kind::Counter,
        labels: &[],
        help: "Lines that should be in the audit log and are not.",
        read: |facts| vec![series([], Value::Count(facts.audit.lost))],
    },
    Family {
        name: "gripfast_ledger_calls",
        kind: Kind::Counter,
        labels: &[],
        help: "Tool calls that the ledger was told of.",
        read: |facts| vec![series([], Value::Count(facts.ledger.calls))],
    },
    Family {
        name: "gripfast_ledger_failed_writes",
        kind: Kind::Counter,
        labels: &[],
        help: "Writes to the ledger that failed. Calls go on without it.",
        read: |facts| vec![series([], Value::Count(facts.ledger.failed_writes))],
    },
];

fn each<Many: IntoIterator<Item = Series>>(facts: &Facts, read: fn(&ServerStatus) -> Many) -> Vec<Series> {
    facts.servers.iter().flat_map(read).collect()
}

/// How far each budget is used up where it is used most.
fn fullest(budgets: &[BudgetUse]) -> BTreeMap<&str, f64> {
    let mut fullest = BTreeMap::new();
    for spent in budgets {
        let part =
            |used: u32, most: Option<u32>| most.map_or(0.0, |most| f64::from(used) / f64::from(most.max(1)));
        let used = part(spent.calls, spent.most_calls).max(part(spent.in_flight, spent.most_in_flight));
        let most: &mut f64 = fullest.entry(spent.budget.as_str()).or_default();
        *most = most.max(used);
    }
    fullest
}

fn series<const N: usize>(labels: [&str; N], value: Value) -> Series {
    Series { labels: labels.map(str::to_owned).to_vec(), value }
}

fn of(server: &ServerStatus, value: Value) -> Series {
    series([&server.name], value)
}

fn is(yes: bool) -> Value {
    Value::Count(u64::from(yes))
}

fn count(number: impl Into<u64>) -> Value {
    Value::Count(number.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_is_as_full_as_where_it_is_fullest() {
        let spent = |budget: &str, calls, in_flight| BudgetUse {
            budget: budget.to_owned(),
            client: None,
            server: None,
            tool: None,
            calls,
            most_calls: Some(10),
            reset_after: None,
            in_flight,
            most_in_flight: Some(4),
        };
        let spent = [spent("a", 2, 1), spent("a", 5, 0), spent("b", 0, 4)];
        assert_eq!(fullest(&spent).into_iter().collect::<Vec<_>>(), [("a", 0.5), ("b", 1.0)]);
    }
}
