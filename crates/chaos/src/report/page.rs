//! The page `docs/recovery.md`.

use super::{Other, Report, table};
use crate::fault::{CLOCK_JUMP, FAULTS, Loss};
use crate::figure::Figure;
use crate::plan::LANES;
use crate::row::{BREAK_IN, Row};

pub(super) fn page(report: &Report) -> String {
    let place = &report.place;
    let figures: String = report.figures.iter().map(figure).collect();
    let columns: String =
        table::COLUMNS.iter().map(|(name, meaning)| format!("| {name} | {meaning} |\n")).collect();
    let faults: String =
        FAULTS.iter().map(|fault| format!("| `{}` | {} |\n", fault.name, fault.what)).collect();
    let jump: String = CLOCK_JUMP.iter().map(|story| format!("- `{story}`\n")).collect();
    let (unfinished, losses, other) = (unfinished(report), losses(&report.rows), other(report));
    let table = table::markdown(&report.rows);
    let (command, machine, date, load) = (&place.command, &place.machine, &place.date, &place.load);
    format!(
        "\
# Recovery

What the clients of gripfast notice when a server behind it breaks. This page is written by the command below and never
by hand.

| | |
|---|---|
| command | `{command}` |
| machine | {machine} |
| load before the run | {load} |
| date | {date} |
{unfinished}
Four clients, two of each era, call steadily: tools that only read, and one whose side effect the server counts by a
token that is in every call. The deadline of a call is 10 s unless the fault is about silence. Times belong to this
machine and this run: compare them with each other, and with what the server takes without a gateway. Counts hold
everywhere, and the same faults run in every `cargo xtask test` with shorter waits.

## Figures to reach

| | goal | measured |
|---|---|---|
{figures}
Rows that a figure is read from have the machine to themselves. The others are about counts and run {LANES} at a time, so
their times are those of a busy machine.

Memory is that of the gateway's process, held against what it was before the first strike: where a figure is read from
it, after five seconds of the same load, by which time what is kept of the last calls is full. There it is also held
against what it was after the first {BREAK_IN} strikes: until then code is paged in that nothing but a fault runs, and what is kept
of the past of a server fills up to its bound.

## Faults

{table}
{losses}
| column | means |
|---|---|
{columns}
| fault | what happens |
|---|---|
{faults}
A clock that jumps cannot be had for one process. It is told in virtual time by stories of the core
(`crates/core/tests/stories`):

{jump}
## Another gateway

{other}
## A longer run

`cargo xtask chaos --long` lets each fault last as long as it is known for (exits at start for a whole minute, starts of
half a minute), and strikes a thousand times where one strike is quick. It is bounded: no row goes on for more than five
minutes, and a fault whose tools are not back after 90 s is not repeated, so a run ends after about an hour. With
`--fault NAME` it is a soak of that fault alone.

The last figure comes from a soak with attackers. Four honest clients call an honest server 100 times a second in all.
In every second window the attackers run beside them: 64 connections that send half a request, wrong keys, answers of
4 MiB that their client does not read, nested arguments, large requests, and a server that writes junk, floods stderr, answers more
than `max_message`, changes its tools and crashes. `--long` runs 20 pairs of windows of 10 s, any other run five pairs of
4 s. The gateway's byte budget is 64 MiB there (`gateway.limits.memory`).
"
    )
}

fn figure(Figure { goal, measured, met }: &Figure) -> String {
    format!("| {} | {goal} | {measured} |\n", if *met { "met" } else { "**missed**" })
}

/// What is missing in a run that did not come to its end.
fn unfinished(report: &Report) -> String {
    if report.missing == 0 {
        return String::new();
    }
    let broken: String = report.broken.iter().map(|what| format!("- {what}\n")).collect();
    format!("\n**This run is not complete: {} of its parts are missing.**\n\n{broken}", report.missing)
}

/// What the callers of lost calls were told, and why that is as promised.
fn losses(rows: &[Row]) -> String {
    let told: String = rows.iter().filter(|row| !row.lost_as.is_empty()).map(loss).collect();
    if told.is_empty() {
        return "No call was lost.\n".to_owned();
    }
    format!(
        "\
Lost calls are those that were answered at once, though by their deadline the server was back. Where that is a promise
it is named; anything else fails the run.

| fault | over | told | calls | as promised |
|---|---|---|---:|---|
{told}"
    )
}

fn loss(row: &Row) -> String {
    let allowed = FAULTS.iter().find(|fault| fault.name == row.fault).map_or(Loss::Never, |fault| fault.lost);
    let line = |(code, count): (&String, &usize)| {
        let why = match allowed {
            Loss::As { codes, why } if codes.contains(&code.as_str()) => why,
            Loss::As { .. } | Loss::Never => "**no**",
        };
        format!("| {} | {} | `{code}` | {count} | {why} |\n", row.fault, row.transport)
    };
    row.lost_as.iter().map(line).collect()
}

/// The section about another gateway: what came of it, or how to have it.
fn other(report: &Report) -> String {
    let how = "\
The same faults strike any gateway that serves Streamable HTTP and reads `mcpServers`, for example two from PyPI, each in
an environment of its own because they want different versions of the SDK:

```sh
pip install fastmcp
cargo xtask chaos --against 'fastmcp run {config} --transport http --port {port} --no-banner' \\
    --url http://127.0.0.1:{port}/mcp --write compared.md

pip install mcp-proxy 'mcp<2'
cargo xtask chaos --against 'mcp-proxy --port {port} --named-server-config {config}' \\
    --url http://127.0.0.1:{port}/servers/demo/mcp --transport stdio --write compared.md
```

`{config}` stands for a file that the command gets for each fault; the one server in it is called `demo`. `{port}` stands
for a free port. Tools are found under whatever prefix. What only gripfast says, such as the outcome of a failed call, is
then not known: an error is lost or refused. It is called ten times a second in all, ours more often, and has the
machine to itself in each row. A fault after which tools are not back within 20 s is not repeated. A row that the other
gateway does not come through, because it does not start, lists nothing, ends or hangs, says so, and the next one begins
with a fresh one. `--fault` and `--transport` choose.
";
    match &report.other {
        None => how.to_owned(),
        Some(Other { command, rows }) => format!(
            "\
The gateway that `{command}` starts, in the same run, with the same servers and faults. Left out is what only
gripfast has (a spare) or says (the names of tools before their server was ever there).

{}
{}{how}",
            table::markdown(rows),
            broken_off(rows)
        ),
    }
}

/// The rows that broke off, and why.
fn broken_off(rows: &[Row]) -> String {
    let line = |row: &Row| {
        let why = row.broke_off.as_ref()?;
        Some(format!("- {} over {} broke off: {why}\n", row.fault, row.transport))
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
    use crate::row::{Left, Times};

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
    fn a_run_that_was_broken_off_says_what_is_missing() {
        let mut report = Report::begin();
        assert!(!page(&report).contains("not complete"));
        report.missing = 2;
        report.broken.push("frozen on sse: no port".to_owned());
        let page = page(&report);
        assert!(page.contains("not complete: 2 of its parts are missing"), "{page}");
        assert!(page.contains("- frozen on sse: no port"), "{page}");
    }

    #[test]
    fn a_row_that_another_gateway_did_not_come_through_is_shown_with_the_reason() {
        let mut report = Report::begin();
        let fault = &FAULTS[0];
        let row = Row::broken_off(fault, Transport::Stdio, "it does not listen".to_owned());
        report.other = Some(Other { command: "peer".to_owned(), rows: vec![row] });
        let page = page(&report);
        assert!(page.contains("| killed-idle | stdio | 0 | broke off |"), "{page}");
        assert!(page.contains("- killed-idle over stdio broke off: it does not listen\n"), "{page}");
    }

    #[test]
    fn a_loss_is_shown_with_the_promise_behind_it_or_as_none() {
        let shown = losses(&[row("crash-loop", "unreachable"), row("killed-idle", "reconnecting")]);
        assert!(shown.contains("| crash-loop | stdio | `unreachable` | 3 | a parked server"), "{shown}");
        assert!(shown.contains("| killed-idle | stdio | `reconnecting` | 3 | **no** |"), "{shown}");
    }
}
