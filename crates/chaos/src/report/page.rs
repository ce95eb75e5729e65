//! Generator of `docs/recovery.md`.

use super::{Other, Report, table};
use crate::fault::{CLOCK_JUMP, FAULTS, Loss};
use crate::plan::LANES;
use crate::row::{Row, WARM_UP_STRIKES};
use gripfast_measure::figure::Figure;

pub(super) fn page(report: &Report) -> String {
    let place = &report.place;
    let figures: String = report.figures.iter().map(Figure::to_markdown).collect();
    let columns: String =
        table::COLUMNS.iter().map(|(name, meaning)| format!("| {name} | {meaning} |\n")).collect();
    let faults: String =
        FAULTS.iter().map(|fault| format!("| `{}` | {} |\n", fault.name, fault.description)).collect();
    let jump: String = CLOCK_JUMP.iter().map(|story| format!("- `{story}`\n")).collect();
    let (unfinished, losses, other) = (unfinished(report), losses(&report.rows), other(report));
    let table = table::of(&report.rows).to_markdown();
    let (command, machine, date, load) = (&place.command, &place.machine, &place.date, &place.load);
    format!(
        "\
# Recovery

Effects on the clients of gripfast when a server fails. The command below generates this page; do not edit it by hand.

| | |
|---|---|
| command | `{command}` |
| machine | {machine} |
| load before the run | {load} |
| date | {date} |
{unfinished}
Four clients, two of each era, call at a steady rate: read-only tools, and one tool with a side effect that the server
counts by a token in every call. The deadline of a call is 10 s, except for faults with a silent server. Times depend on
this machine and this run: compare them with each other and with the server's own times without a gateway (`baseline`).
Counts do not depend on the machine; every `cargo xtask test` runs the same faults with shorter waits.

## Goals

| | goal | measured |
|---|---|---|
{figures}
Rows with a timing goal have the machine to themselves. The others check counts and run {LANES} at a time, so their times are
those of a busy machine.

Memory is the growth of the gateway's process since before the first strike. For the row with a memory goal, the first
measurement comes after five seconds of the same load, when the history of recent calls is full. A second value is the
growth since the first {WARM_UP_STRIKES} strikes: until then code for failures is paged in, and the history of a server fills up.

## Faults

{table}
{losses}
| column | meaning |
|---|---|
{columns}
| fault | description |
|---|---|
{faults}
A clock jump cannot be applied to a single process. These core tests cover it in virtual time
(`crates/core/tests/stories`):

{jump}
## Another gateway

{other}
## A longer run

`cargo xtask chaos --long` lets each fault last as long as in practice (exits at start for a minute, starts of 30 s), and
repeats quick faults a thousand times. A row ends after five minutes, and a fault is not repeated if tools are not back
after 90 s, so a run takes about an hour. With `--fault NAME` it is a soak test of that fault.

The last goal is checked by a soak test with attackers. Four honest clients send 100 calls a second in total to an honest
server. A round has three windows: without attackers, with attackers, and with the same attackers on another gateway. The
attackers are 64 connections that send half a request, wrong keys, answers of 4 MiB that their client does not read,
nested arguments, large requests, and a server that writes junk, floods stderr, answers more than `max_message`, changes
its tools and crashes. `--long` runs 20 rounds with windows of 10 s, any other run five rounds with windows of 4 s. The
gateway's byte budget is 64 MiB (`gateway.limits.memory`).
"
    )
}

/// Note about the missing parts of an incomplete run.
fn unfinished(report: &Report) -> String {
    if report.missing == 0 {
        return String::new();
    }
    let broken: String = report.broken.iter().map(|what| format!("- {what}\n")).collect();
    format!("\n**This run is incomplete: {} of its parts are missing.**\n\n{broken}", report.missing)
}

/// Table of error codes of lost calls, with the documented behaviour that allows them.
fn losses(rows: &[Row]) -> String {
    let told: String = rows.iter().filter(|row| !row.lost_as.is_empty()).map(loss).collect();
    if told.is_empty() {
        return "No call was lost.\n".to_owned();
    }
    format!(
        "\
Lost calls failed immediately, although the server was back before their deadline. The last column names the documented
behaviour that allows this; any other loss fails the run.

| fault | transport | code | calls | allowed by |
|---|---|---|---:|---|
{told}"
    )
}

fn loss(row: &Row) -> String {
    let allowed =
        FAULTS.iter().find(|fault| fault.name == row.fault).map_or(Loss::Never, |fault| fault.allowed_loss);
    let line = |(code, count): (&String, &usize)| {
        let why = match allowed {
            Loss::WithCodes { codes, why } if codes.contains(&code.as_str()) => why,
            Loss::WithCodes { .. } | Loss::Never => "**no**",
        };
        format!("| {} | {} | `{code}` | {count} | {why} |\n", row.fault, row.transport)
    };
    row.lost_as.iter().map(line).collect()
}

/// Section about another gateway: its results, and instructions for such a run.
fn other(report: &Report) -> String {
    let how = "\
The same faults can be applied to any gateway that serves Streamable HTTP and reads `mcpServers`, for example two from
PyPI, each in its own environment because they need different versions of the SDK:

```sh
pip install fastmcp
cargo xtask chaos --against 'fastmcp run {config} --transport http --port {port} --no-banner' \\
    --url http://127.0.0.1:{port}/mcp --write compared.md

pip install mcp-proxy 'mcp<2'
cargo xtask chaos --against 'mcp-proxy --port {port} --named-server-config {config}' \\
    --url http://127.0.0.1:{port}/servers/demo/mcp --transport stdio --write compared.md
```

`{config}` stands for a config file that is written for each fault, with one server called `demo`. `{port}` stands for a
free port. Tools are found under any prefix. Details that only gripfast reports, such as the outcome of a failed call,
are then unknown: an error counts as lost or refused. The other gateway gets ten calls a second in total, fewer than
gripfast, and has the machine to itself in each row. A fault is not repeated if tools are not back within 20 s. If the
other gateway does not start, lists nothing, exits or hangs, the row says so, and the next one starts a new process.
`--fault` and `--transport` select rows.
";
    match &report.other {
        None => how.to_owned(),
        Some(Other { command, rows }) => format!(
            "\
Results of the gateway that `{command}` starts, in the same run, with the same servers and faults. Faults that need a
spare, or tool names of a server that was never up, exist only for gripfast and are omitted.

{}
{}{how}",
            table::of(rows).to_markdown(),
            broken_off(rows)
        ),
    }
}

/// List of rows that failed, with the cause.
fn broken_off(rows: &[Row]) -> String {
    let line = |row: &Row| {
        let why = row.broke_off.as_ref()?;
        Some(format!("- {} over {} failed: {why}\n", row.fault, row.transport))
    };
    let lines: String = rows.iter().filter_map(line).collect();
    if lines.is_empty() { lines } else { lines + "\n" }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::fault::Transport;
    use crate::ledger::Counts;
    use crate::row::Left;
    use gripfast_measure::times::Times;

    fn row(fault: &'static str, told: &str) -> Row {
        let times = Times::default();
        Row {
            fault,
            transport: Transport::Stdio,
            repeats: 1,
            never_back: 0,
            back: times,
            away: times,
            strikes: Vec::new(),
            alone: times,
            calls: Counts::default(),
            lost_as: BTreeMap::from([(told.to_owned(), 3)]),
            sessions_lost: 0,
            left: Left::default(),
            remarks: Vec::new(),
            broke_off: None,
        }
    }

    #[test]
    fn an_incomplete_run_lists_its_missing_parts() {
        let mut report = Report::begin();
        assert!(!page(&report).contains("This run is incomplete"));
        report.missing = 2;
        report.broken.push("frozen on sse: no port".to_owned());
        let page = page(&report);
        assert!(page.contains("This run is incomplete: 2 of its parts are missing"), "{page}");
        assert!(page.contains("- frozen on sse: no port"), "{page}");
    }

    #[test]
    fn a_failed_row_of_another_gateway_is_shown_with_its_cause() {
        let mut report = Report::begin();
        let fault = &FAULTS[0];
        let row = Row::failed(fault, Transport::Stdio, "it does not listen".to_owned());
        report.other = Some(Other { command: "peer".to_owned(), rows: vec![row] });
        let page = page(&report);
        assert!(page.contains("| killed-idle | stdio | 0 | failed |"), "{page}");
        assert!(page.contains("- killed-idle over stdio failed: it does not listen\n"), "{page}");
    }

    #[test]
    fn a_loss_is_shown_with_the_behaviour_that_allows_it() {
        let shown = losses(&[row("crash-loop", "unreachable"), row("killed-idle", "reconnecting")]);
        assert!(
            shown.contains("| crash-loop | stdio | `unreachable` | 3 | calls to a parked server"),
            "{shown}"
        );
        assert!(shown.contains("| killed-idle | stdio | `reconnecting` | 3 | **no** |"), "{shown}");
    }
}
