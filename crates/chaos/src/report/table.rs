//! The rows, side by side.

use crate::row::{Row, Times};

/// The columns and what they mean.
pub(super) const COLUMNS: [(&str, &str); 16] = [
    ("fault", "what breaks, see below"),
    ("over", "how the gateway reaches the server"),
    ("times", "how often it struck"),
    (
        "back p50",
        "milliseconds from the moment when the server itself could serve again (a killed child: from the \
                  kill) until a call was answered, the middle one",
    ),
    ("p99", "the one that 99 of 100 do not exceed"),
    ("max", "the longest"),
    (
        "alone",
        "milliseconds that the server takes without a gateway to start, to shake hands and to list its tools \
               (p50), measured between the strikes",
    ),
    ("answered", "calls that got the right answer"),
    ("lost", "calls that got an error though waiting within their deadline would have served them"),
    ("refused", "calls that got an error that waiting would not have changed"),
    (
        "unknown",
        "calls with a side effect that a fault met on their way and that were told so: whether they were \
                 carried out, nobody can know",
    ),
    ("cut", "calls whose own connection to the gateway broke"),
    ("hung", "calls without an answer until well past their deadline"),
    ("twice", "calls that the server carried out more than once, by its own count"),
    (
        "untrue",
        "calls that got somebody else's answer, or were told \"not sent\" though they were carried out",
    ),
    (
        "left",
        "processes, zombies and open files beyond those from before, and growth of the gateway's memory",
    ),
];

pub(super) fn text(rows: &[Row]) -> String {
    let head = COLUMNS.map(|(name, _)| name.to_owned()).to_vec();
    let lines: Vec<Vec<String>> = [head].into_iter().chain(rows.iter().map(cells)).collect();
    let width = |column: usize| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..COLUMNS.len()).map(width).collect();
    let line = |cells: &Vec<String>| {
        let padded = cells.iter().zip(&widths).enumerate().map(|(column, (cell, width))| match column {
            0 | 1 => format!("{cell:width$}"),
            _ => format!("{cell:>width$}"),
        });
        padded.collect::<Vec<_>>().join("  ") + "\n"
    };
    lines.iter().map(line).collect()
}

pub(super) fn markdown(rows: &[Row]) -> String {
    let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
    let head = line(&COLUMNS.map(|(name, _)| name.to_owned()));
    let ruler = format!("|---|---|{}\n", "---:|".repeat(COLUMNS.len() - 2));
    let body: String = rows.iter().map(|row| line(&cells(row))).collect();
    head + &ruler + &body
}

fn cells(row: &Row) -> Vec<String> {
    let Times { p50, p99, max } = row.back;
    let (calls, left) = (&row.calls, &row.left);
    let back = match row {
        Row { broke_off: Some(_), .. } => ["broke off"; 3].map(str::to_owned),
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
