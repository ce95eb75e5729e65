//! What became of every call, and what that means. Pure: times are spans since the run began, and the effects are
//! what the server itself wrote down.

use std::collections::HashMap;
use std::time::Duration;

use serde::Serialize;

/// One call, from its caller's side.
#[derive(Debug, Clone)]
pub struct Call {
    /// What it is known by, here and where the server counts.
    pub token: String,
    /// Whether doing it twice would matter.
    pub kind: Kind,
    /// When it began.
    pub began: Duration,
    /// When its caller knew, or stopped waiting.
    pub ended: Duration,
    /// What its caller was told.
    pub end: End,
}

/// What a call does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Its tool says that it only reads.
    Reads,
    /// The server counts it.
    Counts,
}

/// What a caller was told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum End {
    /// The answer to what it asked.
    Answered,
    /// An answer to something else.
    Wrong(String),
    /// An error, with the machine part where the gateway gives one.
    Failed {
        /// One of a closed set, such as `reconnecting`.
        code: Option<String>,
        /// `not_sent`, `refused`, `failed` or `unknown`.
        outcome: Option<String>,
        /// For people.
        text: String,
    },
    /// Its own connection to the gateway broke.
    Cut(String),
    /// Nothing, well past its deadline.
    Hung,
}

/// A time in which a fault was at work, from the blow until tools were back.
#[derive(Debug, Clone, Copy)]
pub struct Window {
    /// Its beginning.
    pub from: Duration,
    /// Its end.
    pub to: Duration,
}

impl Window {
    fn touches(&self, call: &Call) -> bool {
        call.began <= self.to && call.ended >= self.from
    }
}

/// How all calls of a run ended.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// With the right answer.
    pub answered: usize,
    /// With an error, though within its deadline a call just like it was served: waiting would have done.
    pub lost: usize,
    /// With an error that waiting until the deadline would not have changed.
    pub refused: usize,
    /// With the honest answer that nobody knows whether it was carried out. Only a call with a side effect that a
    /// fault met on its way may end like this, or one that two have met; any other is lost.
    pub unknown: usize,
    /// By a break of the client's own connection, which only a fault of the gateway itself excuses.
    pub cut: usize,
    /// Not at all, until well past its deadline.
    pub hung: usize,
    /// Carried out more than once.
    pub duplicated: usize,
    /// With an answer that was not true: somebody else's, or "not sent" of a call that was carried out.
    pub untrue: usize,
}

impl Counts {
    /// How many calls there were.
    #[must_use]
    pub fn all(&self) -> usize {
        let Self { answered, lost, refused, unknown, cut, hung, duplicated: _, untrue } = self;
        answered + lost + refused + unknown + cut + hung + untrue
    }

    /// Adds those of another run.
    pub fn add(&mut self, other: &Self) {
        self.answered += other.answered;
        self.lost += other.lost;
        self.refused += other.refused;
        self.unknown += other.unknown;
        self.cut += other.cut;
        self.hung += other.hung;
        self.duplicated += other.duplicated;
        self.untrue += other.untrue;
    }
}

/// The verdict, and what would explain it.
#[derive(Debug, Clone, Default)]
pub struct Verdict {
    /// In numbers.
    pub counts: Counts,
    /// The first few calls that should not have ended as they did.
    pub remarks: Vec<String>,
}

/// More would only repeat themselves.
const MOST_REMARKS: usize = 12;

/// Judges all calls of a run. `effects` says how often the server carried out each token.
#[must_use]
pub fn judge(
    calls: &[Call],
    windows: &[Window],
    effects: &HashMap<String, usize>,
    deadline: Duration,
) -> Verdict {
    let mut verdict = Verdict::default();
    let mut served: Vec<Duration> =
        calls.iter().filter(|call| call.end == End::Answered).map(|call| call.ended).collect();
    served.sort_unstable();
    for call in calls {
        let carried_out = effects.get(&call.token).copied().unwrap_or(0);
        if carried_out > 1 {
            verdict.counts.duplicated += 1;
            verdict.remark(call, "was carried out more than once");
        }
        let blows = windows.iter().filter(|window| window.touches(call)).count();
        let struck = blows > 0;
        // The first that was served after this one had failed.
        let next = served.partition_point(|at| *at <= call.ended);
        let in_time = served.get(next).is_some_and(|at| *at <= call.began + deadline);
        let counts = &mut verdict.counts;
        match &call.end {
            End::Answered if call.kind == Kind::Counts && carried_out == 0 => {
                counts.untrue += 1;
                verdict.remark(call, "was answered and never carried out");
            }
            End::Answered => counts.answered += 1,
            End::Wrong(_) => {
                counts.untrue += 1;
                verdict.remark(call, "got somebody else's answer");
            }
            End::Failed { outcome, .. } => match outcome.as_deref() {
                Some("not_sent" | "refused") if carried_out > 0 => {
                    counts.untrue += 1;
                    verdict.remark(call, "was carried out, and its caller was told that it was not");
                }
                Some("unknown") if call.kind == Kind::Counts && struck => counts.unknown += 1,
                // What only reads is sent again once; the second blow that meets it is one too many.
                Some("unknown") if blows > 1 => counts.unknown += 1,
                _ if in_time => {
                    counts.lost += 1;
                    verdict.remark(call, "is lost");
                }
                _ => counts.refused += 1,
            },
            End::Cut(_) => {
                counts.cut += 1;
                if !struck {
                    verdict.remark(call, "was cut off");
                }
            }
            End::Hung => {
                counts.hung += 1;
                verdict.remark(call, "hung");
            }
        }
    }
    verdict
}

impl Verdict {
    fn remark(&mut self, call: &Call, what: &str) {
        if self.remarks.len() < MOST_REMARKS {
            let Call { token, kind, began, ended, end } = call;
            let remark = format!("{kind:?} {token} {what}: {began:.1?} to {ended:.1?}, {end:?}");
            self.remarks.push(remark.chars().take(240).collect());
        }
    }
}

/// How often each token was carried out, from the lines that the server wrote: `TOKEN VALUE PID`.
#[must_use]
pub fn effects(lines: &str) -> HashMap<String, usize> {
    let mut effects = HashMap::new();
    for token in lines.lines().filter_map(|line| line.split(' ').next()) {
        *effects.entry(token.to_owned()).or_default() += 1;
    }
    effects
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEADLINE: Duration = Duration::from_secs(10);

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn call(token: &str, kind: Kind, began: u64, ended: u64, end: End) -> Call {
        Call { token: token.to_owned(), kind, began: at(began), ended: at(ended), end }
    }

    fn failed(outcome: &str) -> End {
        End::Failed { code: None, outcome: Some(outcome.to_owned()), text: String::new() }
    }

    fn counts(calls: &[Call], windows: &[Window], lines: &str) -> Counts {
        judge(calls, windows, &effects(lines), DEADLINE).counts
    }

    #[test]
    fn an_error_is_a_loss_if_a_call_was_served_before_its_deadline_and_a_refusal_if_not() {
        let early = call("a", Kind::Reads, 0, 1, failed("not_sent"));
        let late = call("b", Kind::Reads, 0, 1, failed("not_sent"));
        let served = |ended| call("c", Kind::Reads, 0, ended, End::Answered);
        assert_eq!(counts(&[early, served(9)], &[], "").lost, 1);
        assert_eq!(counts(&[late, served(11)], &[], "").refused, 1);
    }

    #[test]
    fn unknown_is_honest_only_of_a_side_effect_that_a_fault_met() {
        let window = Window { from: at(5), to: at(6) };
        let served = call("z", Kind::Reads, 0, 9, End::Answered);
        let met = call("a", Kind::Counts, 4, 7, failed("unknown"));
        let missed = call("b", Kind::Counts, 1, 2, failed("unknown"));
        let read = call("c", Kind::Reads, 4, 7, failed("unknown"));
        let counts = counts(&[met, missed, read, served], &[window], "");
        assert_eq!((counts.unknown, counts.lost), (1, 2));
    }

    #[test]
    fn what_only_reads_is_honestly_unknown_when_two_faults_met_it() {
        let windows = [Window { from: at(5), to: at(6) }, Window { from: at(7), to: at(8) }];
        let served = call("z", Kind::Reads, 0, 9, End::Answered);
        let once = call("a", Kind::Reads, 4, 6, failed("unknown"));
        let twice = call("b", Kind::Reads, 4, 8, failed("unknown"));
        let counts = counts(&[once, twice, served], &windows, "");
        assert_eq!((counts.unknown, counts.lost), (1, 1));
    }

    #[test]
    fn what_was_carried_out_is_known_from_the_server_and_not_from_the_answer() {
        let answered = |token| call(token, Kind::Counts, 0, 1, End::Answered);
        let denied = call("c", Kind::Counts, 0, 1, failed("not_sent"));
        let counts = counts(&[answered("a"), answered("b"), denied], &[], "a 1 7\na 2 8\nc 3 8\n");
        assert_eq!(counts.duplicated, 1, "a");
        assert_eq!(counts.untrue, 2, "b was answered for nothing, c was denied falsely");
        assert_eq!(counts.answered, 1);
    }
}
