//! What became of every call, and what that means. Pure: times are spans since the run began, and the effects are
//! what the server itself wrote down.
//!
//! Two ends need more than a look at the call itself:
//!
//! - **Lost or refused.** An error is a loss if any call was answered between it and its own deadline: a gateway that
//!   had waited would have served it. So is the error of a call that lived while no fault was at work, whatever its
//!   deadline. Otherwise it is a refusal. The code that the caller was told is kept, because
//!   for some states a gateway promises to answer at once; which code may be lost in which fault stands with the fault.
//! - **Unknown.** That nobody knows whether a call was carried out is honest only if a fault can have met it on the
//!   wire. A call with a side effect must have lived in a [`Window`], which begins with the blow and ends when the
//!   fault is over *and* a call was answered, and not when the load has drained: calls that begin later meet nothing.
//!   A call that only reads is sent again after the first blow, so two must have fallen within its own life: counted
//!   by the [`Blow`]s themselves, not by windows, of which two that follow each other both touch a call that only
//!   one blow has met. Everything else that is told "unknown" is lost.

use std::collections::{BTreeMap, HashMap};
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

/// A time in which a fault was at work, from the blow until it was over and tools were back.
#[derive(Debug, Clone)]
pub struct Window {
    /// Its beginning.
    pub from: Duration,
    /// Its end.
    pub to: Duration,
    /// When it struck.
    pub blows: Vec<Blow>,
}

/// From the moment of a blow until what it hit was gone: a process that is being killed still takes what is written
/// to it.
#[derive(Debug, Clone, Copy)]
pub struct Blow {
    /// The moment.
    pub at: Duration,
    /// The end.
    pub over: Duration,
}

impl Window {
    fn touches(&self, call: &Call) -> bool {
        call.began <= self.to && call.ended >= self.from
    }

    fn blows_within(&self, call: &Call) -> usize {
        self.blows.iter().filter(|blow| call.began <= blow.over && blow.at <= call.ended).count()
    }
}

/// How all calls of a run ended.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// With the right answer.
    pub answered: usize,
    /// With an error, though within its deadline a call just like it was served: waiting would have done. Or though
    /// no fault was at work.
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
    /// What the callers of lost calls were told, and how many of them.
    pub lost_as: BTreeMap<String, usize>,
    /// The first few calls that should not have ended as they did.
    pub remarks: Vec<String>,
}

/// What is told by an error without a machine part.
const NO_CODE: &str = "an error without a code";
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
        let struck = windows.iter().any(|window| window.touches(call));
        let blows: usize = windows.iter().map(|window| window.blows_within(call)).sum();
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
            End::Failed { code, outcome, .. } => match outcome.as_deref() {
                Some("not_sent" | "refused") if carried_out > 0 => {
                    counts.untrue += 1;
                    verdict.remark(call, "was carried out, and its caller was told that it was not");
                }
                Some("unknown") if call.kind == Kind::Counts && struck => counts.unknown += 1,
                // What only reads is sent again once; the second blow that meets it is one too many.
                Some("unknown") if blows > 1 => counts.unknown += 1,
                _ if in_time || !struck => {
                    counts.lost += 1;
                    let told = code.clone().unwrap_or_else(|| NO_CODE.to_owned());
                    *verdict.lost_as.entry(told).or_default() += 1;
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
            let remark = format!("{kind:?} {token} {what}: {began:.3?} to {ended:.3?}, {end:?}");
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

    /// One blow, at its beginning.
    fn window(from: u64, to: u64) -> Window {
        Window { from: at(from), to: at(to), blows: vec![Blow { at: at(from), over: at(from) }] }
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
        let window = window(0, 11);
        assert_eq!(counts(&[early, served(9)], std::slice::from_ref(&window), "").lost, 1);
        assert_eq!(counts(&[late, served(11)], &[window], "").refused, 1);
    }

    #[test]
    fn an_error_that_no_fault_explains_is_a_loss_even_at_its_deadline() {
        let hopeless = call("a", Kind::Counts, 2, 12, failed("unknown"));
        assert_eq!(counts(&[hopeless], &[window(0, 1)], "").lost, 1);
    }

    #[test]
    fn unknown_is_honest_only_of_a_side_effect_that_a_fault_met() {
        let window = window(5, 6);
        let served = call("z", Kind::Reads, 0, 9, End::Answered);
        let met = call("a", Kind::Counts, 4, 7, failed("unknown"));
        let missed = call("b", Kind::Counts, 1, 2, failed("unknown"));
        let read = call("c", Kind::Reads, 4, 7, failed("unknown"));
        let counts = counts(&[met, missed, read, served], &[window], "");
        assert_eq!((counts.unknown, counts.lost), (1, 2));
    }

    #[test]
    fn what_only_reads_is_honestly_unknown_when_two_blows_fell_in_its_life() {
        let windows = [window(5, 7), window(7, 9)];
        let served = call("z", Kind::Reads, 0, 10, End::Answered);
        let twice = call("a", Kind::Reads, 4, 8, failed("unknown"));
        let touched_twice_and_met_once = call("b", Kind::Reads, 6, 8, failed("unknown"));
        let counts = counts(&[twice, touched_twice_and_met_once, served], &windows, "");
        assert_eq!((counts.unknown, counts.lost), (1, 1));
    }

    #[test]
    fn a_loss_is_known_by_what_its_caller_was_told() {
        let told = |code: Option<&str>| End::Failed {
            code: code.map(str::to_owned),
            outcome: Some("not_sent".to_owned()),
            text: String::new(),
        };
        let calls = [
            call("a", Kind::Reads, 0, 1, told(Some("unreachable"))),
            call("b", Kind::Counts, 0, 1, told(Some("unreachable"))),
            call("c", Kind::Reads, 0, 1, told(None)),
            call("z", Kind::Reads, 0, 9, End::Answered),
        ];
        let lost_as = judge(&calls, &[], &effects(""), DEADLINE).lost_as;
        assert_eq!(lost_as, BTreeMap::from([("unreachable".to_owned(), 2), (NO_CODE.to_owned(), 1)]));
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
