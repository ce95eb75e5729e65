//! Table of all metrics: name, kind, labels, help text and source of the values. The reference page, the Grafana
//! dashboard and the alerts in `deploy/` are checked against this table.
//!
//! Label values come from closed sets, except `server` and `budget`, whose values are the names in the config.

use gripfast::ledger::LedgerStatus;
use gripfast::{
    AuditStatus, BudgetUse, CacheCounts, CircuitView, DurationHistogram, SecurityCounts, ServerStatus, State,
};
use std::collections::BTreeMap;
use std::time::Duration;

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
    /// The service that the gateway is a replica of.
    pub cluster: Option<ClusterFacts>,
}

/// Values of a replica.
#[derive(Debug, Clone, Copy)]
pub struct ClusterFacts {
    /// Live replicas, this one included.
    pub replicas: usize,
    /// Whether the last heartbeat reached the store.
    pub is_store_reachable: bool,
    /// Round trip of the last heartbeat that succeeded.
    pub store_latency: Option<Duration>,
    /// Requests that this replica forwarded to others.
    pub forwards: u64,
    /// Client sessions that this replica took over.
    pub takeovers: u64,
    /// Settlements of budgets that the store did not get.
    pub dropped_settlements: u64,
    /// Calls in flight that the store did not get.
    pub dropped_calls: u64,
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
    source: Source,
}

/// Source of the series of a metric.
#[derive(Debug, Clone, Copy)]
enum Source {
    /// One value.
    Gateway(fn(&Facts) -> Value),
    /// One value per server.
    Server(fn(&ServerStatus) -> Value),
    Series(fn(&Facts) -> Vec<Series>),
}

impl Family {
    /// A metric without labels.
    const fn of_gateway(kind: Kind, name: &'static str, read: fn(&Facts) -> Value) -> Self {
        Self { name, kind, labels: &[], help: "", source: Source::Gateway(read) }
    }

    /// A metric with the label `server`.
    const fn of_server(kind: Kind, name: &'static str, read: fn(&ServerStatus) -> Value) -> Self {
        Self { name, kind, labels: &["server"], help: "", source: Source::Server(read) }
    }

    const fn labelled(
        kind: Kind,
        name: &'static str,
        labels: &'static [&'static str],
        read: fn(&Facts) -> Vec<Series>,
    ) -> Self {
        Self { name, kind, labels, help: "", source: Source::Series(read) }
    }

    const fn about(self, help: &'static str) -> Self {
        Self { help, ..self }
    }

    /// Reads the series of a scrape.
    pub(crate) fn read(&self, facts: &Facts) -> Vec<Series> {
        match self.source {
            Source::Gateway(read) => vec![series([], read(facts))],
            Source::Server(read) => per_server(facts, |server| [series([&server.name], read(server))]),
            Source::Series(read) => read(facts),
        }
    }
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
    Family::labelled(Kind::Info, "gripfast_build", &["version"], |facts| {
        vec![series([facts.version], Value::Count(1))]
    })
    .about("Version of the running gateway."),
    Family::of_gateway(Kind::Gauge, "gripfast_start_time_seconds", |facts| Value::Number(facts.started_at))
        .about("Start of the gateway, in seconds since the Unix epoch."),
    Family::labelled(Kind::Gauge, "gripfast_upstream_state", &["server", "state"], |facts| {
        per_server(facts, |server| {
            State::ALL
                .map(|state| series([&server.name, state.as_str()], flag(server.supervision.state == state)))
        })
    })
    .about("1 for the current state of the server, 0 for all other states."),
    Family::labelled(Kind::Gauge, "gripfast_upstream_circuit", &["server", "circuit"], |facts| {
        per_server(facts, |server| {
            CircuitView::ALL.map(|circuit| {
                series([&server.name, circuit.as_str()], flag(server.supervision.circuit == circuit))
            })
        })
    })
    .about("1 for the current state of the server's circuit, 0 for all other states."),
    Family::of_server(Kind::Counter, "gripfast_upstream_restarts", |server| {
        Value::Count(server.supervision.restarts)
    })
    .about("Restarted child processes and lost links of remote servers."),
    Family::labelled(Kind::Counter, "gripfast_upstream_events", &["server", "kind"], |facts| {
        per_server(facts, |server| {
            let counts = server.event_counts.iter();
            counts
                .map(|(kind, count)| series([server.name.as_str(), kind], Value::Count(*count)))
                .collect::<Vec<_>>()
        })
    })
    .about("Events of the server by kind, as in `/api/v1/events`."),
    Family::labelled(Kind::Counter, "gripfast_upstream_calls", &["server", "outcome", "code"], |facts| {
        per_server(facts, |server| {
            let counts = server.ends.counts.iter();
            let written = counts.map(|(outcome, code, count)| {
                let code = code.map_or("none", gripfast::Code::as_str);
                series([&server.name, outcome.as_str(), code], Value::Count(*count))
            });
            written.collect::<Vec<_>>()
        })
    })
    .about("Completed client requests, by outcome and error code (`none` if the server answered)."),
    Family::labelled(
        Kind::Histogram,
        "gripfast_upstream_call_duration_seconds",
        &["server", "outcome"],
        |facts| {
            per_server(facts, |server| {
                let took = server.ends.durations.iter();
                let written = took.map(|(outcome, spread)| {
                    series([&server.name, outcome.as_str()], Value::Histogram(spread.clone()))
                });
                written.collect::<Vec<_>>()
            })
        },
    )
    .about("Duration of client requests, including waits and all attempts."),
    Family::of_server(Kind::Gauge, "gripfast_upstream_in_flight", |server| {
        count(server.supervision.in_flight)
    })
    .about("Requests that the server is processing."),
    Family::of_server(Kind::Gauge, "gripfast_upstream_waiting", |server| count(server.supervision.waiting))
        .about("Requests that wait for a link to the server or for a free slot."),
    Family::of_server(Kind::Gauge, "gripfast_upstream_consecutive_failures", |server| {
        count(server.supervision.consecutive_failures)
    })
    .about("Consecutive transport failures; the circuit opens at its threshold."),
    Family::of_server(Kind::Gauge, "gripfast_upstream_tools", |server| count(server.tools as u64))
        .about("Tools that are visible to clients."),
    Family::of_server(Kind::Gauge, "gripfast_upstream_changed_tools", |server| {
        count(server.pins.changed as u64)
    })
    .about("Tools whose definition differs from the approved one."),
    Family::of_server(Kind::Counter, "gripfast_upstream_cache_hits", |server| {
        Value::Count(server.cache.hits)
    })
    .about("Requests answered from the cache."),
    Family::of_server(Kind::Counter, "gripfast_upstream_cache_misses", |server| {
        Value::Count(server.cache.misses)
    })
    .about("Cacheable requests that were not answered from the cache."),
    Family::of_server(Kind::Gauge, "gripfast_upstream_instances", |server| {
        count(server.instances.count() as u64)
    })
    .about("Dedicated instances, each of one client."),
    Family::of_server(Kind::Counter, "gripfast_upstream_dropped_notifications", |server| {
        Value::Count(server.calls.dropped)
    })
    .about(
        "Notifications without a request id or progress token on a link that several principals share. \
         They are not delivered.",
    ),
    Family::of_gateway(Kind::Gauge, "gripfast_sessions", |facts| count(facts.sessions as u64))
        .about("Sessions of legacy clients in memory."),
    Family::of_gateway(Kind::Gauge, "gripfast_cache_entries", |facts| count(facts.cache.entries as u64))
        .about("Entries of the result cache."),
    Family::of_gateway(Kind::Gauge, "gripfast_cache_size_bytes", |facts| count(facts.cache.bytes as u64))
        .about("Memory of the result cache."),
    Family::labelled(Kind::Gauge, "gripfast_budget_used", &["budget"], |facts| {
        let used = highest_use(&facts.budgets).into_iter();
        used.map(|(budget, used)| series([budget], Value::Number(used))).collect()
    })
    .about(
        "Used share of the budget, for the client, server or tool that has used most of it. At 1, its \
         calls are refused.",
    ),
    Family::labelled(Kind::Counter, "gripfast_auth_failures", &["target", "reason"], |facts| {
        let counts = facts.security.auth_failures.iter();
        counts
            .map(|((target, reason), count)| series([target.as_str(), reason.as_str()], Value::Count(*count)))
            .collect()
    })
    .about("Failed authentications. Clients that look for the login start with `no_credential`."),
    Family::labelled(Kind::Counter, "gripfast_admin_actions", &["action"], |facts| {
        let counts = facts.security.admin_actions.iter();
        counts.map(|(action, count)| series([action.as_str()], Value::Count(*count))).collect()
    })
    .about("Admin API actions with a valid admin token."),
    Family::labelled(Kind::Counter, "gripfast_key_changes", &["change"], |facts| {
        let counts = facts.security.key_changes.iter();
        counts.map(|(change, count)| series([change.as_str()], Value::Count(*count))).collect()
    })
    .about("Changed client keys and replaced admin tokens that this gateway noticed in the state directory."),
    Family::labelled(Kind::Counter, "gripfast_trust_decisions", &["decision"], |facts| {
        let counts = facts.security.trust_decisions.iter();
        counts.map(|(decision, count)| series([decision.as_str()], Value::Count(*count))).collect()
    })
    .about("Decisions to trust or not to trust the config file of this gateway."),
    Family::of_gateway(Kind::Counter, "gripfast_audit_lines", |facts| Value::Count(facts.audit.lines))
        .about("Lines written to the audit log."),
    Family::of_gateway(Kind::Counter, "gripfast_audit_lost_lines", |facts| Value::Count(facts.audit.lost))
        .about("Lines missing from the audit log."),
    Family::labelled(Kind::Gauge, "gripfast_cluster_replicas", &[], |facts| {
        of_cluster(facts, |cluster| count(cluster.replicas as u64))
    })
    .about("Live replicas of the service. Missing if the gateway runs alone."),
    Family::labelled(Kind::Gauge, "gripfast_cluster_store_up", &[], |facts| {
        of_cluster(facts, |cluster| flag(cluster.is_store_reachable))
    })
    .about("Whether the last heartbeat reached the store of the service."),
    Family::labelled(Kind::Gauge, "gripfast_cluster_store_latency_seconds", &[], |facts| {
        let latency = facts.cluster.iter().filter_map(|cluster| cluster.store_latency);
        latency.map(|latency| series([], Value::Number(latency.as_secs_f64()))).collect()
    })
    .about("Round trip of the last heartbeat that reached the store of the service."),
    Family::labelled(Kind::Counter, "gripfast_cluster_forwards", &[], |facts| {
        of_cluster(facts, |cluster| Value::Count(cluster.forwards))
    })
    .about("Client requests that this replica forwarded to another one."),
    Family::labelled(Kind::Counter, "gripfast_cluster_takeovers", &[], |facts| {
        of_cluster(facts, |cluster| Value::Count(cluster.takeovers))
    })
    .about("Client sessions that this replica took over from a lost one."),
    Family::labelled(Kind::Counter, "gripfast_cluster_dropped", &["record"], |facts| {
        let dropped = facts.cluster.iter().flat_map(|cluster| {
            [("settlement", cluster.dropped_settlements), ("call", cluster.dropped_calls)]
        });
        dropped.map(|(record, count)| series([record], Value::Count(count))).collect()
    })
    .about(
        "Records for the store that were dropped. `settlement`: the end of a call that a budget counts, while the \
         store was away for too long. `call`: a call in flight, because there were too many.",
    ),
    Family::of_gateway(Kind::Counter, "gripfast_ledger_calls", |facts| Value::Count(facts.ledger.calls))
        .about("Tool calls reported to the ledger."),
    Family::of_gateway(Kind::Counter, "gripfast_ledger_failed_writes", |facts| {
        Value::Count(facts.ledger.failed_writes)
    })
    .about("Failed writes to the ledger. Calls continue without it."),
];

fn per_server<Many: IntoIterator<Item = Series>>(
    facts: &Facts,
    read: impl Fn(&ServerStatus) -> Many,
) -> Vec<Series> {
    facts.servers.iter().flat_map(read).collect()
}

fn of_cluster(facts: &Facts, read: impl Fn(&ClusterFacts) -> Value) -> Vec<Series> {
    facts.cluster.iter().map(|cluster| series([], read(cluster))).collect()
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
