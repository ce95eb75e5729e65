//! The page `docs/recovery.md`.

use super::{Report, table};
use crate::fault::{CLOCK_JUMP, FAULTS};
use crate::figure::Figure;

pub(super) fn page(report: &Report) -> String {
    let place = &report.place;
    let subject = match &report.against {
        Some(command) => format!("the gateway that `{command}` starts"),
        None => "gripfast".to_owned(),
    };
    let figures: String = report.figures.iter().map(figure).collect();
    let columns: String =
        table::COLUMNS.iter().map(|(name, meaning)| format!("| {name} | {meaning} |\n")).collect();
    let faults: String =
        FAULTS.iter().map(|fault| format!("| `{}` | {} |\n", fault.name, fault.what)).collect();
    let jump: String = CLOCK_JUMP.iter().map(|story| format!("- `{story}`\n")).collect();
    let table = table::markdown(&report.rows);
    let (command, machine, date, load) = (&place.command, &place.machine, &place.date, &place.load);
    format!(
        "\
# Recovery

What the clients of {subject} notice when a server behind it breaks. This page is written by the command below and
never by hand.

| | |
|---|---|
| command | `{command}` |
| machine | {machine} |
| load before the run | {load} |
| date | {date} |

Four clients, two of each era, call steadily: tools that only read, and one whose side effect the server counts by a
token that is in every call. The deadline of a call is 10 s unless the fault is about silence. Times belong to this
machine and this run: compare them with each other, and with what the server takes without a gateway. Counts hold
everywhere, and the same faults run in every `cargo xtask test` with shorter waits.

## Figures to reach

| | goal | measured |
|---|---|---|
{figures}
## Faults

{table}
| column | means |
|---|---|
{columns}
| fault | what happens |
|---|---|
{faults}
A clock that jumps cannot be had for one process. It is told in virtual time by stories of the core:

{jump}
## Another gateway

The same faults strike any gateway that serves Streamable HTTP and reads `mcpServers`:

```sh
cargo xtask chaos --against 'COMMAND with {{config}}' --url http://127.0.0.1:PORT/mcp
```

`{{config}}` stands for a file that the command gets for each fault; the one server in it is called `demo`. Its tools are
found under whatever prefix. What only gripfast says, such as the outcome of a failed call, is then not known: an error
is lost or refused.

## A longer run

`cargo xtask chaos --long` takes about an hour: a child that exits at start for a whole minute, starts of half a minute,
and a thousand strikes where one is quick. It is bounded: a fault whose tools are not back after 90 s is not repeated.
"
    )
}

fn figure(Figure { goal, measured, met }: &Figure) -> String {
    format!("| {} | {goal} | {measured} |\n", if *met { "met" } else { "**missed**" })
}
