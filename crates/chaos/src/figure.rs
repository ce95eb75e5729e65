//! The figures to reach: what was promised, what was measured, met or missed.

use serde::Serialize;

use crate::fault::Transport;
use crate::fleet::Neighbours;
use crate::renewal::Renewal;
use crate::row::{BREAK_IN, Row};

/// One promise and its measure.
#[derive(Debug, Clone, Serialize)]
pub struct Figure {
    /// What is to be reached.
    pub goal: &'static str,
    /// What was.
    pub measured: String,
    /// Whether that is enough.
    pub met: bool,
}

/// Those that can be told from rows of the table.
#[must_use]
pub fn of_rows(rows: &[Row]) -> Vec<Figure> {
    let row =
        |fault: &str, transport| rows.iter().find(|row| row.fault == fault && row.transport == transport);
    let killed = row("killed-idle", Transport::Stdio).map(|row| Figure {
        goal: "killed child: tools are back within its own start-up, handshake and listing plus 20 ms (p99)",
        measured: format!("back {:.0} ms, by itself {:.0} ms (p99)", row.back.p99, row.alone.p99),
        met: row.back.p99 <= row.alone.p99 + 20.0,
    });
    let spared = row("killed-with-spare", Transport::Stdio).map(|row| Figure {
        goal: "killed child with a spare: tools are back within 20 ms (p99)",
        measured: format!("back {:.0} ms (p99)", row.back.p99),
        met: row.back.p99 <= 20.0,
    });
    let away = row("restarted", Transport::Http).map(|row| {
        let failed = row.calls.lost + row.calls.refused + row.calls.hung + row.calls.cut;
        Figure {
            goal: "HTTP server away for two seconds at ten calls a second: no call fails but those with a side \
                   effect that were on the wire",
            measured: format!("{failed} of {} failed, {} unknown", row.calls.all(), row.calls.unknown),
            met: failed == 0,
        }
    });
    let listening = row("restarted", Transport::Http).map(|row| Figure {
        goal: "HTTP server away for two seconds: back at most 250 ms after it listens again",
        measured: format!("{:.0} ms (max)", row.back.max),
        met: row.back.max <= 250.0,
    });
    let often = row("killed-over-and-over", Transport::Stdio).map(|row| {
        let left = &row.left;
        Figure {
            goal: "1,000 kills: no zombie, no orphan, no file left, memory within 5 % of the start",
            measured: format!(
                "{} kills: {} zombies, {} orphans, {} files, memory {:+.1} % (after the first {BREAK_IN} kills, in \
                 which everything is done once, {:+.1} %)",
                row.repeats,
                left.zombies,
                left.processes,
                left.files,
                left.memory_percent,
                left.settled_percent
            ),
            met: left.zombies + left.processes + left.files == 0 && left.memory_percent <= 5.0,
        }
    });
    [killed, spared, away, listening, often].into_iter().flatten().collect()
}

/// That of an expired session.
#[must_use]
pub fn of_renewal(renewal: &Renewal) -> Figure {
    let Renewal { expiries, callers, failed, handshakes, plain, added, round_trips } = renewal;
    Figure {
        goal: "session expired in place: no call fails, one handshake however many wait, at most three round trips \
               more",
        measured: format!(
            "{expiries} × {callers} calls: {failed} failed, {handshakes} handshake, {round_trips:.2} round trips \
             ({:.1} ms in the middle and {:.1} ms at most, where a plain call takes {:.1} ms and {:.1} ms)",
            added.p50, added.max, plain.p50, plain.max
        ),
        met: *failed == 0 && *handshakes == 1 && *round_trips <= 3.0,
    }
}

/// That of a server that flaps among others.
#[must_use]
pub fn of_neighbours(neighbours: &Neighbours) -> Figure {
    let Neighbours { servers, rounds, kills, calls, quiet, flapping, flapping_ratio, beside_ratio, .. } =
        neighbours;
    let failed = calls.all() - calls.answered;
    Figure {
        goal: "one of 20 servers flaps: calls to the others all succeed, and their p99 stays within 1.3 of the quiet one",
        measured: format!(
            "{servers} servers, {kills} kills: {failed} of {} failed; p99 {:.1} ms after {:.1} ms, {flapping_ratio:.2} in \
             the middle of {rounds} rounds ({beside_ratio:.2} where the same child is started outside of the gateway)",
            calls.all(),
            flapping.p99,
            quiet.p99,
        ),
        met: failed == 0 && *flapping_ratio <= 1.3,
    }
}
