//! Report of a run with replicas: text and the page `docs/recovery-replicas.md`.

use super::fault::{REPLICA_FAULTS, ReplicaFault};
use super::row::{MAX_PROCESSOR, ReplicaRow};
use crate::fault::Loss;
use gripfast_measure::place::Place;
use gripfast_measure::table::Table;
use serde::Serialize;

/// Report of a run.
#[derive(Debug, Serialize)]
pub struct ReplicaReport {
    place: Place,
    /// Number of rows that have not run or have failed.
    pub missing: usize,
    /// Rows, in the order of the faults.
    pub rows: Vec<ReplicaRow>,
}

const COLUMNS: [(&str, &str); 15] = [
    ("fault", "name of the fault, see below"),
    ("strikes", "number of strikes"),
    ("back p50", "milliseconds from the strike until all clients were served, median"),
    ("max", "maximum of the same"),
    ("answered", "calls with the right answer"),
    ("lost", "calls with an error, although waiting until their deadline would have served them"),
    ("refused", "calls with an error that waiting would not have changed"),
    ("unknown", "calls that the fault hit and whose error reports an unknown outcome"),
    ("cut", "calls whose connection to a replica broke"),
    ("hung", "calls without an answer until well past their deadline"),
    ("twice", "calls that the server recorded more than once"),
    (
        "untrue",
        "calls with an answer that the server's record contradicts, or with the outcome \"not sent\" although the \
         server recorded them",
    ),
    ("takeovers", "sessions that another replica took over"),
    ("broken", "other guarantees that did not hold, listed below the table"),
    ("left", "processes that were left after the end"),
];

impl ReplicaReport {
    /// Creates an empty report.
    #[must_use]
    pub fn begin() -> Self {
        let place = Place::detect("cargo xtask chaos", &["--gripfast", "--write"]);
        Self { place, missing: 0, rows: Vec::new() }
    }

    fn table(&self) -> Table {
        let mut table = Table::new(1, &COLUMNS.map(|(name, _)| name));
        for row in &self.rows {
            let calls = &row.calls;
            let back = |time: f64| if row.never_back > 0 { "never".to_owned() } else { format!("{time:.0}") };
            let mut cells = vec![row.fault.to_owned(), row.strikes.to_string()];
            cells.extend([row.back.p50, row.back.max].map(back));
            let counts = [calls.answered, calls.lost, calls.refused, calls.unknown, calls.cut, calls.hung];
            cells.extend(counts.iter().chain(&[calls.duplicated, calls.untrue]).map(ToString::to_string));
            cells.push(row.takeovers.to_string());
            cells.extend([row.violations.len(), row.left].map(|count| count.to_string()));
            table.row(cells);
        }
        table
    }

    /// Formats the report as text.
    #[must_use]
    pub fn to_text(&self) -> String {
        self.table().to_text()
    }

    /// Formats the report as JSON.
    #[must_use]
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).unwrap_or_default()
    }

    /// Formats the report as a Markdown page.
    #[must_use]
    pub fn to_markdown(&self) -> String {
        let Place { command, machine, load, date } = &self.place;
        let columns: String =
            COLUMNS.iter().map(|(name, meaning)| format!("| {name} | {meaning} |\n")).collect();
        let faults: String = REPLICA_FAULTS
            .iter()
            .map(|fault| format!("| `{}` | {} |\n", fault.name, fault.description))
            .collect();
        let unfinished = match self.missing {
            0 => String::new(),
            missing => format!("\n**This run is incomplete: {missing} of its rows are missing.**\n"),
        };
        let violations =
            self.rows.iter().flat_map(|row| row.violations.iter().map(move |what| (row.fault, what)));
        let violations: String = violations.map(|(fault, what)| format!("\n**{fault}: {what}**\n")).collect();
        let processor = processor_use(&self.rows);
        let (table, losses) = (self.table().to_markdown(), losses(&self.rows));
        format!(
            "\
# Recovery of replicas

Effects on clients when a replica, the store or a connection between them fails. The command below generates this page;
do not edit it by hand. [replicas.md](replicas.md) describes the service, [recovery.md](recovery.md) has the faults of
servers.

| | |
|---|---|
| command | `{command}` |
| machine | {machine} |
| load before the run | {load} |
| date | {date} |
{unfinished}
Three replicas on one Valkey serve one server over HTTP, or run it as a singleton (`holder-…`). Six clients, three of each
era, call at a steady rate and send their requests to several replicas in turn: read-only tools, and one tool with a side
effect. Each call of that tool has a token. The server records the token with the value that it answers, and the columns
`twice` and `untrue` are judged by that record. The column `broken` is judged by the server and the authorization server
too: by the file of the singleton server and the process ids in it, the number of calls that a budget let through, and
the refresh tokens that were sent. A client repeats a request only if its connection was refused, and resumes a stream
that breaks. The deadline of a call is 15 s (30 s with a singleton, 50 s for `replica-dropped`); the lease is 3 s where a
replica is lost, else 10 s. Times depend on this machine and this run, and on the lease where a replica is stopped or cut
off. Counts do not; every `cargo xtask test` runs the same faults with shorter waits. {processor}

{table}{violations}
{losses}
| column | meaning |
|---|---|
{columns}
| fault | description |
|---|---|
{faults}
`cargo xtask chaos --replicas --long` stops a replica for 20 s and kills the store for a minute.
"
        )
    }
}

/// The largest use of the processor by a row.
fn processor_use(rows: &[ReplicaRow]) -> String {
    let Some(most) = rows.iter().max_by(|one, other| one.processor.total_cmp(&other.processor)) else {
        return String::new();
    };
    let (share, fault) = (most.processor * 100.0, most.fault);
    let verdict = if most.processor > MAX_PROCESSOR {
        "**That is more than a third: leases may have ended for lack of it.**"
    } else {
        "A third is the limit, so that no lease ends for lack of it."
    };
    format!(
        "All\nprocesses of a row, clients included, used {share:.0} % of a processor at most (`{fault}`). {verdict}"
    )
}

/// Table of lost calls, with the documented behaviour that allows them.
fn losses(rows: &[ReplicaRow]) -> String {
    let line = |row: &ReplicaRow| {
        let allowed = ReplicaFault::by_name(row.fault).map_or(Loss::Never, |fault| fault.allowed_loss);
        let why = |code: &str| match allowed {
            Loss::WithCodes { codes, why } if codes.contains(&code) => why,
            Loss::WithCodes { .. } | Loss::Never => "**no**",
        };
        let lost = row.lost_as.iter();
        lost.map(|(code, count)| format!("| {} | `{code}` | {count} | {} |\n", row.fault, why(code)))
            .collect::<String>()
    };
    let told: String = rows.iter().map(line).collect();
    if told.is_empty() {
        return "No call was lost.\n".to_owned();
    }
    format!("| fault | code | lost calls | allowed by |\n|---|---|---:|---|\n{told}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::Counts;
    use std::collections::BTreeMap;

    #[test]
    fn the_page_names_losses_that_nothing_allows() {
        let mut report = ReplicaReport::begin();
        report.rows.push(ReplicaRow {
            fault: "owner-killed",
            strikes: 1,
            never_back: 0,
            back: gripfast_measure::times::Times::default(),
            calls: Counts { lost: 2, ..Counts::default() },
            lost_as: BTreeMap::from([("overloaded".to_owned(), 2)]),
            takeovers: 3,
            wrong_takeovers: 0,
            sessions_lost: 0,
            left: 0,
            processor: 0.4,
            violations: vec!["two writers at once".to_owned()],
            remarks: Vec::new(),
        });
        let page = report.to_markdown();
        assert!(page.contains("| owner-killed | `overloaded` | 2 | **no** |"), "{page}");
        assert!(
            page.contains("| owner-killed | 1 | 0 | 0 | 0 | 2 | 0 | 0 | 0 | 0 | 0 | 0 | 3 | 1 | 0 |"),
            "{page}"
        );
        assert!(page.contains("40 % of a processor at most (`owner-killed`). **That is more"), "{page}");
        assert!(page.contains("**owner-killed: two writers at once**"), "{page}");
    }
}
