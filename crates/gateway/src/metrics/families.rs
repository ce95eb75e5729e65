//! Table of all metrics: name, kind, labels, help text and source of the values. The reference page, the Grafana
//! dashboard and the alerts in `deploy/` are checked against this table.
//!
//! Label values come from closed sets, except `server` and `budget`, whose values are the names in the config.

use gripfast::ledger::LedgerStatus;
use gripfast::{
    AuditStatus, BudgetUse, CacheCounts, CircuitView, DurationHistogram, SecurityCounts, ServerStatus, State,
};
use std::collections::BTreeMap;

/// Values of one scrape.
#[derive(Debug)]
pub struct Facts {
    /// Version of gripfast.
    pub version: &'static str,
    /// Start of the gateway, in seconds since the Unix epoch.
    pub started_at: f64,
    /// Status of each server.
    pub servers: Vec<ServerStatus>,
    /// State of the ledger.
    pub ledger: LedgerStatus,
    /// Legacy sessions of clients in memory.
    pub sessions: usize,
    /// Counts of the result cache.
    pub cache: CacheCounts,
    /// Use of the call budgets.
    pub budgets: Vec<BudgetUse>,
    /// State of the audit log.
    pub audit: AuditStatus,
    /// Counts of security events.
    pub security: SecurityCounts,
}

/// A metric with its labels.
#[derive(Debug)]
pub struct Family {
    /// Name without the suffixes of its kind.
    pub name: &'static str,
    /// Kind of the metric.
    pub kind: Kind,
    /// Labels of each series.
    pub labels: &'static [&'static str],
    /// Help text.
    pub help: &'static str,
    /// Reads the series of a scrape.
    pub(crate) read: fn(&Facts) -> Vec<Series>,
}

/// Kind of a metric, which determines its suffixes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Monotonic counter; suffix `_total`.
    Counter,
    /// Current value.
    Gauge,
    /// Durations in seconds; suffixes `_bucket`, `_sum` and `_count`.
    Histogram,
    /// Always 1, with the information in its labels; suffix `_info`.
    Info,
}

impl Kind {
    /// Suffixes of the series in queries.
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

/// One series: label values and the value.
#[derive(Debug)]
pub(crate) struct Series {
    pub(crate) labels: Vec<String>,
    pub(crate) value: Value,
}

#[derive(Debug)]
pub(crate) enum Value {
    Count(u64),
    Number(f64),
    Histogram(DurationHistogram),
}

/// All metrics, in the order of the output.
pub fn families() -> &'static [Family] {
    FAMILIES
}

const FAMILIES: &[Family] = &[
    Family {
        name: "gripfast_build",
        kind: Kind::Info,
        labels: &["version"],
        help: "Version of the running gateway.",
        read: |facts| vec![series([facts.version], Value::Count(1))],
    },
    Family {
        name: "gripfast_start_time_seconds",
        kind: Kind::Gauge,
        labels: &[],
        help: "Start of the gateway, in seconds since the Unix epoch.",
        read: |facts| vec![series([], Value::Number(facts.started_at))],
    },
    Family {
        name: "gripfast_upstream_state",
        kind: Kind::Gauge,
        labels: &["server", "state"],
        help: "1 for the current state of the server, 0 for all other states.",
        read: |facts| {
            per_server(facts, |server| {
                State::ALL.map(|state| {
                    series([&server.name, state.as_str()], flag(server.supervision.state == state))
                })
            })
        },
    },
    Family {
        name: "gripfast_upstream_circuit",
        kind: Kind::Gauge,
        labels: &["server", "circuit"],
        help: "1 for the current state of the server's circuit, 0 for all other states.",
        read: |facts| {
            per_server(facts, |server| {
                CircuitView::ALL.map(|circuit| {
                    series([&server.name, circuit.as_str()], flag(server.supervision.circuit == circuit))
                })
            })
        },
    },
    Family {
        name: "gripfast_upstream_restarts",
        kind: Kind::Counter,
        labels: &["server"],
        help: "Restarted child processes and lost links of remote servers.",
        read: |facts| {
            per_server(facts, |server| [server_series(server, Value::Count(server.supervision.restarts))])
        },
    },
    Family {
        name: "gripfast_upstream_events",
        kind: Kind::Counter,
        labels: &["server", "kind"],
        help: "Events of the server by kind, as in `/api/v1/events`.",
        read: |facts| {
            per_server(facts, |server| {
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
        help: "Completed client requests, by outcome and error code (`none` if the server answered).",
        read: |facts| {
            per_server(facts, |server| {
                let counts = server.ends.counts.iter();
                let written = counts.map(|(outcome, code, count)| {
                    let code = code.map_or("none", gripfast::Code::as_str);
                    series([&server.name, outcome.as_str(), code], Value::Count(*count))
                });
                written.collect::<Vec<_>>()
            })
        },
    },
    Family {
        name: "gripfast_upstream_call_duration_seconds",
        kind: Kind::Histogram,
        labels: &["server", "outcome"],
        help: "Duration of client requests, including waits and all attempts.",
        read: |facts| {
            per_server(facts, |server| {
                let took = server.ends.durations.iter();
                let written = took.map(|(outcome, spread)| {
                    series([&server.name, outcome.as_str()], Value::Histogram(spread.clone()))
                });
                written.collect::<Vec<_>>()
            })
        },
    },
    Family {
        name: "gripfast_upstream_in_flight",
        kind: Kind::Gauge,
        labels: &["server"],
        help: "Requests that the server is processing.",
        read: |facts| {
            per_server(facts, |server| [server_series(server, count(server.supervision.in_flight))])
        },
    },
    Family {
        name: "gripfast_upstream_waiting",
        kind: Kind::Gauge,
        labels: &["server"],
        help: "Requests that wait for a link to the server or for a free slot.",
        read: |facts| per_server(facts, |server| [server_series(server, count(server.supervision.waiting))]),
    },
    Family {
        name: "gripfast_upstream_consecutive_failures",
        kind: Kind::Gauge,
        labels: &["server"],
        help: "Consecutive transport failures; the circuit opens at its threshold.",
        read: |facts| {
            per_server(facts, |server| {
                [server_series(server, count(server.supervision.consecutive_failures))]
            })
        },
    },
    Family {
        name: "gripfast_upstream_tools",
        kind: Kind::Gauge,
        labels: &["server"],
        help: "Tools that are visible to clients.",
        read: |facts| per_server(facts, |server| [server_series(server, count(server.tools as u64))]),
    },
    Family {
        name: "gripfast_upstream_changed_tools",
        kind: Kind::Gauge,
        labels: &["server"],
        help: "Tools whose definition differs from the approved one.",
        read: |facts| per_server(facts, |server| [server_series(server, count(server.pins.changed as u64))]),
    },
    Family {
        name: "gripfast_upstream_cache_hits",
        kind: Kind::Counter,
        labels: &["server"],
        help: "Requests answered from the cache.",
        read: |facts| per_server(facts, |server| [server_series(server, Value::Count(server.cache.hits))]),
    },
    Family {
        name: "gripfast_upstream_cache_misses",
        kind: Kind::Counter,
        labels: &["server"],
        help: "Cacheable requests that were not answered from the cache.",
        read: |facts| per_server(facts, |server| [server_series(server, Value::Count(server.cache.misses))]),
    },
    Family {
        name: "gripfast_upstream_instances",
        kind: Kind::Gauge,
        labels: &["server"],
        help: "Dedicated instances, each of one client.",
        read: |facts| {
            per_server(facts, |server| [server_series(server, count(server.instances.count() as u64))])
        },
    },
    Family {
        name: "gripfast_upstream_dropped_notifications",
        kind: Kind::Counter,
        labels: &["server"],
        help: "Notifications without a request id or progress token on a link that several principals share. \
               They are not delivered.",
        read: |facts| per_server(facts, |server| [server_series(server, Value::Count(server.calls.dropped))]),
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
        help: "Entries of the result cache.",
        read: |facts| vec![series([], count(facts.cache.entries as u64))],
    },
    Family {
        name: "gripfast_cache_size_bytes",
        kind: Kind::Gauge,
        labels: &[],
        help: "Memory of the result cache.",
        read: |facts| vec![series([], count(facts.cache.bytes as u64))],
    },
    Family {
        name: "gripfast_budget_used",
        kind: Kind::Gauge,
        labels: &["budget"],
        help: "Used share of the budget, for the client, server or tool that has used most of it. At 1, its \
               calls are refused.",
        read: |facts| {
            let used = highest_use(&facts.budgets).into_iter();
            used.map(|(budget, used)| series([budget], Value::Number(used))).collect()
        },
    },
    Family {
        name: "gripfast_auth_failures",
        kind: Kind::Counter,
        labels: &["target", "reason"],
        help: "Failed authentications. Clients that look for the login start with `no_credential`.",
        read: |facts| {
            let counts = facts.security.auth_failures.iter();
            counts
                .map(|((target, reason), count)| {
                    series([target.as_str(), reason.as_str()], Value::Count(*count))
                })
                .collect()
        },
    },
    Family {
        name: "gripfast_admin_actions",
        kind: Kind::Counter,
        labels: &["action"],
        help: "Admin API actions with a valid admin token.",
        read: |facts| {
            let counts = facts.security.admin_actions.iter();
            counts.map(|(action, count)| series([action.as_str()], Value::Count(*count))).collect()
        },
    },
    Family {
        name: "gripfast_key_changes",
        kind: Kind::Counter,
        labels: &["change"],
        help: "Changed client keys and replaced admin tokens that this gateway noticed in the state directory.",
        read: |facts| {
            let counts = facts.security.key_changes.iter();
            counts.map(|(change, count)| series([change.as_str()], Value::Count(*count))).collect()
        },
    },
    Family {
        name: "gripfast_trust_decisions",
        kind: Kind::Counter,
        labels: &["decision"],
        help: "Decisions to trust or not to trust the config file of this gateway.",
        read: |facts| {
            let counts = facts.security.trust_decisions.iter();
            counts.map(|(decision, count)| series([decision.as_str()], Value::Count(*count))).collect()
        },
    },
    Family {
        name: "gripfast_audit_lines",
        kind: Kind::Counter,
        labels: &[],
        help: "Lines written to the audit log.",
        read: |facts| vec![series([], Value::Count(facts.audit.lines))],
    },
    Family {
        name: "gripfast_audit_lost_lines",
        kind: Kind::Counter,
        labels: &[],
        help: "Lines missing from the audit log.",
        read: |facts| vec![series([], Value::Count(facts.audit.lost))],
    },
    Family {
        name: "gripfast_ledger_calls",
        kind: Kind::Counter,
        labels: &[],
        help: "Tool calls reported to the ledger.",
        read: |facts| vec![series([], Value::Count(facts.ledger.calls))],
    },
    Family {
        name: "gripfast_ledger_failed_writes",
        kind: Kind::Counter,
        labels: &[],
        help: "Failed writes to the ledger. Calls continue without it.",
        read: |facts| vec![series([], Value::Count(facts.ledger.failed_writes))],
    },
];

fn per_server<Many: IntoIterator<Item = Series>>(
    facts: &Facts,
    read: fn(&ServerStatus) -> Many,
) -> Vec<Series> {
    facts.servers.iter().flat_map(read).collect()
}

/// Highest used share of each budget.
fn highest_use(budgets: &[BudgetUse]) -> BTreeMap<&str, f64> {
    let mut fullest = BTreeMap::new();
    for spent in budgets {
        let part =
            |used: u32, most: Option<u32>| most.map_or(0.0, |most| f64::from(used) / f64::from(most.max(1)));
        let used = part(spent.calls, spent.max_calls).max(part(spent.in_flight, spent.max_in_flight));
        let most: &mut f64 = fullest.entry(spent.budget.as_str()).or_default();
        *most = most.max(used);
    }
    fullest
}

fn series<const N: usize>(labels: [&str; N], value: Value) -> Series {
    Series { labels: labels.map(str::to_owned).to_vec(), value }
}

fn server_series(server: &ServerStatus, value: Value) -> Series {
    series([&server.name], value)
}

fn flag(yes: bool) -> Value {
    Value::Count(u64::from(yes))
}

fn count(number: impl Into<u64>) -> Value {
    Value::Count(number.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_use_of_a_budget_is_that_of_its_heaviest_user() {
        let spent = |budget: &str, calls, in_flight| BudgetUse {
            budget: budget.to_owned(),
            client: None,
            server: None,
            tool: None,
            calls,
            max_calls: Some(10),
            reset_after: None,
            in_flight,
            max_in_flight: Some(4),
        };
        let spent = [spent("a", 2, 1), spent("a", 5, 0), spent("b", 0, 4)];
        assert_eq!(highest_use(&spent).into_iter().collect::<Vec<_>>(), [("a", 0.5), ("b", 1.0)]);
    }
}
