//! Tables of the report.

use crate::calls::Calls;
use crate::instructions::CallCost;
use crate::lists::Lists;
use crate::load::Sample;
use crate::observing::Observing;
use crate::replicas::{Replicas, ServiceTraffic};
use crate::scale::Scale;
use crate::startup::Startup;
use gripfast_measure::Era;
use gripfast_measure::table::Table;
use gripfast_measure::times::median;

/// A table and its title.
pub(super) struct ReportTable {
    title: String,
    table: Table,
}

impl ReportTable {
    fn new(title: impl Into<String>, text_columns: usize, head: &[&str]) -> Self {
        Self { title: title.into(), table: Table::new(text_columns, head) }
    }

    pub(super) fn to_text(&self) -> String {
        format!("\n{}\n{}", self.title, self.table.to_text())
    }

    pub(super) fn to_markdown(&self) -> String {
        format!("{}\n\n{}\n", self.title, self.table.to_markdown())
    }
}

pub(super) fn of_calls(calls: &Calls) -> Vec<ReportTable> {
    let head = ["client", "server", "result", "format", "at once", "p50 µs", "p99 µs", "calls/s", "CPU"];
    let mut tables: Vec<(Vec<&str>, ReportTable)> = Vec::new();
    for row in &calls.rows {
        let lanes: Vec<&str> = row.lanes.iter().map(|(lane, _)| *lane).collect();
        if tables.last().is_none_or(|(of, _)| *of != lanes) {
            let title = format!(
                "Each cell: {}. CPU: milliseconds of the gateway per 1,000 calls.",
                lanes.join(" / ")
            );
            tables.push((lanes, ReportTable::new(title, 4, &head)));
        }
        let case = row.case;
        let [client, server] = [case.era, case.server].map(|era| match era {
            Era::Legacy => "legacy",
            Era::Modern => "modern",
        });
        let form = if case.events { "SSE" } else { "JSON" };
        let mut cells =
            [client, server, &size(case.bytes), form, &case.at_once.to_string()].map(str::to_owned).to_vec();
        let values: Vec<[String; 5]> = row.lanes.iter().map(|(_, samples)| figures(samples)).collect();
        for column in [0, 2, 3, 4] {
            let known = values.iter().map(|values| values[column].as_str()).filter(|value| !value.is_empty());
            cells.push(known.collect::<Vec<_>>().join(" / "));
        }
        if let Some((_, table)) = tables.last_mut() {
            table.table.row(cells);
        }
    }
    let memory = &calls.memory;
    let mut weights =
        ReportTable::new("Resident memory in MB (nginx: all processes)", 1, &["when", "gripfast", "nginx"]);
    let mb = |bytes: u64| format!("{:.1}", bytes as f64 / 1e6);
    let rows = [
        ("idle, one server", memory.gripfast_idle, Some(memory.nginx_idle)),
        ("after the calls above", memory.gripfast_loaded, Some(memory.nginx_loaded)),
        ("after more results of 1 MB, concurrency 16", memory.gripfast_large[0], None),
        ("after as many again", memory.gripfast_large[1], None),
    ];
    for (when, ours, theirs) in rows {
        weights.table.row(vec![when.to_owned(), mb(ours), theirs.map(mb).unwrap_or_default()]);
    }
    if let Some(other) = memory.other_loaded {
        weights.table.row(vec![
            format!("the other gateway, after the calls above: {} MB", mb(other)),
            String::new(),
            String::new(),
        ]);
    }
    tables.into_iter().map(|(_, table)| table).chain([weights]).collect()
}

pub(super) fn of_lists(lists: &Lists) -> ReportTable {
    let title = format!(
        "Listing of {} tools ({} bytes) from gripfast's catalog, compared with a file served by nginx",
        lists.tools, lists.bytes
    );
    let mut table = ReportTable::new(
        title,
        2,
        &["concurrency", "path", "p50 µs", "p95", "p99", "lists/s", "CPU ms per 1,000 lists"],
    );
    for row in &lists.rows {
        for (lane, samples) in &row.lanes {
            let mut cells = vec![row.at_once.to_string(), (*lane).to_owned()];
            cells.extend(figures(samples));
            table.table.row(cells);
        }
    }
    table
}

pub(super) fn of_startup(startup: &Startup) -> ReportTable {
    let mut table = ReportTable::new("Time from exec to the first complete `tools/list`", 1, &["case", "ms"]);
    let Startup { nothing, lazy_servers, lazy, started, eager_servers, eager, one, .. } = startup;
    let lines = [
        ("`true` (no list)".to_owned(), *nothing),
        (format!("{lazy_servers} lazy servers with a stored catalog; {started} were started"), *lazy),
        ("one sample server, started, no stored catalog".to_owned(), *one),
        (format!("{eager_servers} sample servers, started, no stored catalog"), *eager),
    ];
    for (what, time) in lines {
        table.table.row(vec![what, format!("{time:.1}")]);
    }
    table
}

pub(super) fn of_observing(observing: &Observing) -> ReportTable {
    let title = format!("With and without ledger and audit log; concurrency {}", observing.at_once);
    let mut table =
        ReportTable::new(title, 1, &["records", "p50 µs", "p95", "p99", "calls/s", "CPU ms per 1,000 calls"]);
    for (name, samples) in [("on", &observing.on), ("off", &observing.off)] {
        let mut cells = vec![name.to_owned()];
        cells.extend(figures(samples));
        table.table.row(cells);
    }
    table
}

pub(super) fn of_instructions(costs: &[CallCost]) -> ReportTable {
    let head = ["build", "server and answer", "instructions", "cache lines", "allocations"];
    let mut table = ReportTable::new("One call of a legacy client, 100 B", 2, &head);
    for cost in costs {
        let counts = [Some(cost.instructions), Some(cost.cache_lines), cost.allocations];
        let mut cells = vec![cost.build.to_owned(), cost.case.to_owned()];
        cells.extend(counts.map(|count| count.map(|count| format!("{count:.0}")).unwrap_or_default()));
        table.table.row(cells);
    }
    table
}

pub(super) fn of_scale(scale: &Scale) -> Vec<ReportTable> {
    let mut weights = ReportTable::new("Memory", 1, &["items", "count", "KB each"]);
    for (what, weight) in
        [("idle legacy sessions", &scale.sessions), ("open streams, each with its session", &scale.streams)]
    {
        weights.table.row(vec![
            what.to_owned(),
            weight.count.to_string(),
            format!("{:.1}", weight.each / 1024.0),
        ]);
    }
    let mut flat = ReportTable::new(
        "Calls without concurrency, compared with a gateway with one of each",
        1,
        &["gateway with", "p50", "CPU time"],
    );
    for row in &scale.flat {
        flat.table.row(vec![
            row.what.clone(),
            format!("{:.2} ×", row.ratio(|sample| sample.p50)),
            format!("{:.2} ×", row.ratio(|sample| sample.processor)),
        ]);
    }
    let mut tables = vec![weights, flat];
    for growth in &scale.growth {
        let over = growth.over.label();
        let head = [over, "p50 µs", "CPU ms per 1,000 calls", "MB", "ms to the first complete list"];
        let mut table = ReportTable::new(format!("Growth with {over}"), 0, &head);
        for point in &growth.points {
            table.table.row(vec![
                point.count.to_string(),
                format!("{:.0}", point.call),
                format!("{:.1}", point.processor),
                format!("{:.1}", point.memory as f64 / 1e6),
                point.ready.map(|ready| format!("{ready:.0}")).unwrap_or_default(),
            ]);
        }
        tables.push(table);
    }
    tables
}

fn figures(samples: &[Sample]) -> [String; 5] {
    let of = |figure: fn(&Sample) -> f64| median(samples.iter().map(figure));
    let processor = of(|sample| sample.processor);
    [
        format!("{:.0}", of(|sample| sample.p50)),
        format!("{:.0}", of(|sample| sample.p95)),
        format!("{:.0}", of(|sample| sample.p99)),
        format!("{:.0}", of(|sample| sample.per_second)),
        if processor > 0.0 { format!("{processor:.1}") } else { String::new() },
    ]
}

fn size(bytes: usize) -> String {
    match bytes {
        0..1_000 => format!("{bytes} B"),
        1_000..1_000_000 => format!("{} KB", bytes / 1_000),
        _ => format!("{} MB", bytes / 1_000_000),
    }
}
pub(super) fn of_replicas(replicas: &Replicas) -> Vec<ReportTable> {
    let Replicas { overhead, heartbeats, takeovers, restarts } = replicas;
    let head = ["path", "p50 µs", "p95", "p99", "calls/s", "CPU ms per 1,000 calls"];
    let mut calls = ReportTable::new("Calls of 100 B by a legacy client", 1, &head);
    let mut row = |what: String, samples: &[Sample]| {
        let mut cells = vec![what];
        cells.extend(figures(samples));
        calls.table.row(cells);
    };
    for pair in &overhead.rows {
        row(format!("without `[cluster]`, concurrency {}", pair.at_once), pair.off.as_flattened());
        row(format!("with `[cluster]`, concurrency {}", pair.at_once), pair.on.as_flattened());
    }
    row("two replicas, at the owner".to_owned(), &overhead.owner);
    row("two replicas, forwarded (CPU of both)".to_owned(), &overhead.forwarded);
    let head = [
        "records",
        "bytes to the store",
        "bytes from it",
        "µs of the script",
        "CPU µs of the store",
        "CPU µs of the replica",
    ];
    let mut traffic = ReportTable::new("One heartbeat of an idle replica", 0, &head);
    for ServiceTraffic { replicas, sent, received, script, store_processor, replica_processor } in
        [&heartbeats.one, &heartbeats.several, &heartbeats.many]
    {
        let mut cells = vec![replicas.to_string()];
        let values = [sent, received, script, store_processor, replica_processor];
        cells.extend(values.map(|value| format!("{value:.0}")));
        traffic.table.row(cells);
    }
    let mut loss = ReportTable::new("Loss of a replica, and a rolling restart", 1, &["what", "value"]);
    let rows = [
        ("sessions of the killed replica", takeovers.sessions.to_string()),
        ("time until the last one was served, ms", format!("{:.0}", takeovers.last_served)),
        ("answers 503 meanwhile", takeovers.retried.to_string()),
        ("store memory per session, B", format!("{:.0}", takeovers.memory)),
        ("CPU of the other replicas per session with its call, µs", format!("{:.0}", takeovers.processor)),
        ("CPU of the store per session, µs", format!("{:.0}", takeovers.store_processor)),
        ("calls during the rolling restart", restarts.calls.to_string()),
        ("failed calls", restarts.failed.to_string()),
        ("refused connections, sent to the next replica", restarts.refused.to_string()),
    ];
    for (what, value) in rows {
        loss.table.row(vec![what.to_owned(), value]);
    }
    vec![calls, traffic, loss]
}
