//! Table of rows.

use crate::row::Row;
use gripfast_measure::table::Table;
use gripfast_measure::times::Times;

/// Columns and their meaning.
pub(super) const COLUMNS: [(&str, &str); 16] = [
    ("fault", "name of the fault, see below"),
    ("transport", "transport between gateway and server"),
    ("strikes", "number of strikes"),
    (
        "back p50",
        "milliseconds from the moment when the server itself could serve again (a killed child: from the kill) \
         until a call was answered, median",
    ),
    ("p99", "99th percentile of the same"),
    ("max", "maximum of the same"),
    (
        "baseline",
        "milliseconds that the server needs without a gateway for start, handshake and tool listing (p50), \
         measured between the strikes",
    ),
    ("answered", "calls with the right answer"),
    ("lost", "calls with an error, although waiting until their deadline would have served them"),
    ("refused", "calls with an error that waiting would not have changed"),
    (
        "unknown",
        "calls with a side effect that a fault hit in flight and whose error reports an unknown outcome",
    ),
    ("cut", "calls whose connection to the gateway broke"),
    ("hung", "calls without an answer until well past their deadline"),
    ("twice", "calls that the server executed more than once, by its own count"),
    (
        "untrue",
        "calls with the answer to another call, or with the outcome \"not sent\" although they were executed",
    ),
    ("left", "additional processes, zombies and open files, and growth of the gateway's memory"),
];

pub(super) fn of(rows: &[Row]) -> Table {
    let mut table = Table::new(2, &COLUMNS.map(|(name, _)| name));
    rows.iter().for_each(|row| table.row(cells(row)));
    table
}

fn cells(row: &Row) -> Vec<String> {
    let Times { p50, p99, max } = row.back;
    let (calls, left) = (&row.calls, &row.left);
    let back = match row {
        Row { broke_off: Some(_), .. } => ["failed"; 3].map(str::to_owned),
        Row { never_back: 1.., .. } => ["never"; 3].map(str::to_owned),
        _ => [p50, p99, max].map(millis),
    };
    let counts = [calls.answered, calls.lost, calls.refused, calls.unknown, calls.cut, calls.hung];
    let mut cells = vec![row.fault.to_owned(), row.transport.to_string(), row.repeats.to_string()];
    cells.extend(back);
    cells.push(millis(row.alone.p50));
    cells.extend(counts.map(|count| count.to_string()));
    cells.extend([calls.duplicated, calls.untrue].map(|count| count.to_string()));
    cells
        .push(format!("{}, {}, {}, {:+.0} %", left.processes, left.zombies, left.files, left.memory_percent));
    cells
}

fn millis(time: f64) -> String {
    if time < 10.0 { format!("{time:.1}") } else { format!("{time:.0}") }
}
