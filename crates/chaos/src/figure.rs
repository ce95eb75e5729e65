//! Goals of a run: each with its measured value, met or missed.

use gripfast_measure::figure::Figure;
use std::time::Duration;

use crate::fault::Transport;
use crate::neighbours::Neighbours;
use crate::renewal::Renewal;
use crate::row::{Absence, Row, WARM_UP_STRIKES};
use crate::soak::{MEMORY_MIB, P99_RATIO, Soak};

/// Figures computed from rows of the table.
#[must_use]
pub fn of_rows(rows: &[Row]) -> Vec<Figure> {
    let row =
        |fault: &str, transport| rows.iter().find(|row| row.fault == fault && row.transport == transport);
    let killed = row("killed-idle", Transport::Stdio).map(|row| Figure {
        goal: "killed child: tools are back within its own start-up, handshake and listing plus 20 ms (p99)"
            .to_owned(),
        measured: format!("back {:.0} ms, baseline {:.0} ms (p99)", row.back.p99, row.alone.p99),
        met: row.back.p99 <= row.alone.p99 + 20.0,
    });
    let spared = row("killed-with-spare", Transport::Stdio).map(|row| Figure {
        goal: "killed child with a spare: tools are back within 20 ms (p99)".to_owned(),
        measured: format!("back {:.0} ms (p99)", row.back.p99),
        met: row.back.p99 <= 20.0,
    });
    let away = row("restarted", Transport::Http).map(|row| {
        let failed = row.calls.lost + row.calls.refused + row.calls.hung + row.calls.cut;
        Figure {
            goal: "HTTP server down for two seconds at ten calls a second: no call fails, except calls with a side \
                   effect that were on the wire".to_owned(),
            measured: format!("{failed} of {} failed, {} unknown", row.calls.total(), row.calls.unknown),
            met: failed == 0,
        }
    });
    let listening = row("restarted", Transport::Http).map(|row| of_absences(&row.strikes));
    let often = row("killed-over-and-over", Transport::Stdio).map(|row| {
        let left = &row.left;
        Figure {
            goal: "1,000 kills: no zombie, no orphan, no file left, memory within 5 % of the start"
                .to_owned(),
            measured: format!(
                "{} kills: {} zombies, {} orphans, {} files, memory {:+.1} % ({:+.1} % since the first \
                 {WARM_UP_STRIKES} kills)",
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

/// Limit between brief and longer absences.
const BRIEF: Duration = Duration::from_secs(2);
/// Recovery limit after a brief absence.
const BACK_WITHIN: Duration = Duration::from_millis(250);
/// Recovery limit after a longer absence: one backoff pause after two seconds, with its jitter, plus the handshake.
const BACK_WITHIN_A_STEP: Duration = Duration::from_millis(400 * 12 / 10 + 50);

/// Figure of a server that is away for a while. Its absence is measured per strike, because a busy machine may start
/// it late.
fn of_absences(strikes: &[Absence]) -> Figure {
    let (brief, longer): (Vec<Absence>, Vec<Absence>) =
        strikes.iter().copied().partition(|strike| strike.down < BRIEF);
    let longest = |of: &[Absence]| of.iter().map(|strike| strike.back).max().unwrap_or_default();
    let down = |of: &[Absence]| of.iter().map(|strike| strike.down).max().unwrap_or_default().as_secs_f64();
    let mut measured = format!(
        "{} times, down for {:.2} s at most: {} ms (max)",
        brief.len(),
        down(&brief),
        longest(&brief).as_millis()
    );
    if !longer.is_empty() {
        let late = longest(&longer).as_millis();
        measured += &format!("; {} times for up to {:.2} s: {late} ms (max)", longer.len(), down(&longer));
    }
    Figure {
        goal: "HTTP server down for less than two seconds: back at most 250 ms after it listens again; if it was down \
               for longer: after one backoff step".to_owned(),
        measured,
        met: !brief.is_empty() && longest(&brief) <= BACK_WITHIN && longest(&longer) <= BACK_WITHIN_A_STEP,
    }
}

/// Figure of an expired session.
#[must_use]
pub fn of_renewal(renewal: &Renewal) -> Figure {
    let Renewal { expiries, callers, failed, handshakes, plain, added, added_to_last, .. } = renewal;
    let Renewal { round_trips, round_trips_of_last, .. } = renewal;
    Figure {
        goal: "expired session: no call fails, one handshake for all waiting calls, at most three additional round \
               trips".to_owned(),
        measured: format!(
            "{expiries} × 1 and {expiries} × {callers} calls: {failed} failed, {handshakes} handshake, \
             {round_trips:.2} round trips (p50 {:.1} ms, max {:.1} ms; a plain call: {:.1} ms, {:.1} ms); \
             {round_trips_of_last:.2} for the last of {callers} concurrent calls (p50 {:.1} ms)",
            added.p50, added.max, plain.p50, plain.max, added_to_last.p50
        ),
        met: *failed == 0 && *handshakes == 1 && *round_trips <= 3.0,
    }
}

/// Figure of one flapping server among others.
#[must_use]
pub fn of_neighbours(neighbours: &Neighbours) -> Figure {
    let Neighbours { servers, rounds, kills, calls, quiet, flapping, flapping_ratio, beside_ratio, .. } =
        neighbours;
    let failed = calls.total() - calls.answered;
    Figure {
        goal: "one of 20 servers flaps: all calls to the others succeed, and their p99 stays within 1.3 × of the quiet \
               one".to_owned(),
        measured: format!(
            "{servers} servers, {kills} kills: {failed} of {} failed; p99 {:.1} ms (quiet {:.1} ms), ratio \
             {flapping_ratio:.2} (median of {rounds} rounds; {beside_ratio:.2} if another process starts the same child)",
            calls.total(),
            flapping.p99,
            quiet.p99,
        ),
        met: failed == 0 && *flapping_ratio <= 1.3,
    }
}

/// Figure of the soak with hostile clients and a hostile server.
#[must_use]
pub fn of_soak(soak: &Soak) -> Figure {
    let Soak { rounds, attempts, calls, quiet, attacked, ratio, beside_ratio, peak_mib, .. } = soak;
    let [slow, wrong, unread, floods, misbehaviours] = attempts;
    Figure {
        goal: "hostile clients and a hostile server beside honest ones: no honest call fails, the honest p99 stays \
               within 2 × of the quiet one, and the gateway below 256 MiB".to_owned(),
        measured: format!(
            "{} honest calls, {} failed; p99 {:.1} ms under attack and {:.1} ms without, ratio {ratio:.2} (median of \
             {rounds} rounds; {beside_ratio:.2} if another gateway is attacked); {peak_mib:.0} MiB; {slow} slow \
             connections, {wrong} wrong keys, {unread} unread answers of 4 MiB, {floods} hostile requests, \
             {misbehaviours} misbehaviours of the server",
            calls.total(),
            calls.total() - calls.answered,
            attacked.p99,
            quiet.p99,
        ),
        met: soak.complaints().is_empty() && *ratio <= P99_RATIO && *peak_mib <= MEMORY_MIB,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn absence(down: u64, back: u64) -> Absence {
        Absence { down: Duration::from_millis(down), back: Duration::from_millis(back) }
    }

    #[test]
    fn each_absence_has_the_recovery_limit_of_its_length() {
        let met = |strikes: &[Absence]| of_absences(strikes).met;
        assert!(met(&[absence(1960, 250), absence(1970, 3)]));
        assert!(!met(&[absence(1960, 251), absence(1970, 3)]));
        assert!(met(&[absence(1960, 250), absence(2010, 480)]), "a longer absence has a longer backoff step");
        assert!(!met(&[absence(1960, 250), absence(2010, 600)]));
        assert!(!met(&[absence(2010, 1)]), "there was no brief absence");
    }
}
