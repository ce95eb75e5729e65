//! Classification of every call of a run. Pure: times are offsets from the start of the run, and side effects are
//! read from the server's own counter file.
//!
//! Two classifications need more than the call itself:
//!
//! - **Lost or refused.** An error is a loss if any call was answered between it and its own deadline, because a
//!   gateway that had waited would have served it. The error of a call that ran while no fault was active is a loss
//!   too, whatever its deadline. Every other error is a refusal. The error code is recorded, because for some states
//!   the gateway documents an immediate error; each fault lists the codes that it allows.
//! - **Unknown.** An unknown outcome is legitimate only if a fault can have hit the call on the wire. A call with a
//!   side effect must overlap a [`Window`], which begins with the strike and ends when the fault is over *and* a call
//!   was answered, not when the load has drained: calls that begin later are not affected. A read-only call is
//!   retried after the first strike, so two must have hit it during its own lifetime. They are counted by
//!   [`StrikeSpan`], not by window, because two consecutive windows can both overlap a call that only one strike has
//!   hit. Every other call that reports "unknown" is lost.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use serde::Serialize;

/// One call, as its caller saw it.
#[derive(Debug, Clone)]
pub struct Call {
    /// Token that identifies the call, also in the server's counter file.
    pub token: String,
    /// Read-only call or call with a side effect.
    pub kind: Kind,
    /// Start time.
    pub began: Duration,
    /// Time of the answer, or of giving up.
    pub ended: Duration,
    /// Result for the caller.
    pub end: End,
    /// Value in the answer to a call with a side effect, to compare with the server's record.
    pub answer: Option<String>,
}

/// Kind of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The tool is annotated as read-only.
    Read,
    /// The call has a side effect that the server counts.
    SideEffect,
}

/// Result of a call for its caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum End {
    /// The expected answer.
    Answered,
    /// The answer to another request.
    WrongAnswer(String),
    /// An error, with its machine-readable part if the gateway sends one.
    Failed {
        /// Error code of a closed set, such as `reconnecting`.
        code: Option<String>,
        /// `not_sent`, `refused`, `failed` or `unknown`.
        outcome: Option<String>,
        /// Text for people.
        text: String,
    },
    /// The caller's own connection to the gateway broke.
    ConnectionLost(String),
    /// No answer until well past the deadline.
    Hung,
}

/// Time span in which a fault was active: from the strike until the fault was over and tools were back.
#[derive(Debug, Clone)]
pub struct Window {
    /// Start.
    pub from: Duration,
    /// End.
    pub to: Duration,
    /// Strikes within the window.
    pub strikes: Vec<StrikeSpan>,
    /// True if the fault hits a replica of the gateway. It cannot repeat a request that it has forwarded, not even a
    /// read-only one, so that one strike makes the outcome of any call unknown.
    pub of_replica: bool,
}

/// Time span from a strike until its target was gone: a process that is being killed still accepts input.
#[derive(Debug, Clone, Copy)]
pub struct StrikeSpan {
    /// Start.
    pub at: Duration,
    /// End.
    pub ended: Duration,
}

impl Window {
    fn overlaps(&self, call: &Call) -> bool {
        call.began <= self.to && call.ended >= self.from
    }

    fn strikes_during(&self, call: &Call) -> usize {
        self.strikes.iter().filter(|strike| call.began <= strike.ended && strike.at <= call.ended).count()
    }
}

/// Number of calls per outcome.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// Right answer.
    pub answered: usize,
    /// Error, although an equal call was served within the deadline (waiting would have helped) or no fault was
    /// active.
    pub lost: usize,
    /// Error that waiting until the deadline would not have changed.
    pub refused: usize,
    /// Unknown outcome. Allowed only for a call with a side effect that a fault hit, or a read-only call that two
    /// strikes hit; any other one is lost.
    pub unknown: usize,
    /// Broken connection between client and gateway, allowed only for faults of the gateway itself.
    pub cut: usize,
    /// No answer until well past the deadline.
    pub hung: usize,
    /// Executed more than once.
    pub duplicated: usize,
    /// Wrong statement: the answer to another request, or "not sent" for a call that was executed.
    pub untrue: usize,
}

impl Counts {
    /// Number of calls.
    #[must_use]
    pub fn total(&self) -> usize {
        let Self { answered, lost, refused, unknown, cut, hung, duplicated: _, untrue } = self;
        answered + lost + refused + unknown + cut + hung + untrue
    }

    /// Adds the counts of another run.
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

/// Classification of all calls, with explanations.
#[derive(Debug, Clone, Default)]
pub struct CallVerdict {
    /// Number of calls per outcome.
    pub counts: Counts,
    /// Error codes of lost calls, with counts.
    pub lost_as: BTreeMap<String, usize>,
    /// The first calls that ended in an unexpected way.
    pub remarks: Vec<String>,
}

/// Key for errors without a machine-readable part.
const NO_CODE: &str = "no code";
/// Limit of remarks; further ones would only repeat them.
const MAX_REMARKS: usize = 12;

/// Classifies all calls of a run. `effects` has the server's record.
#[must_use]
pub fn judge(calls: &[Call], windows: &[Window], effects: &ServerRecord, deadline: Duration) -> CallVerdict {
    let mut verdict = CallVerdict::default();
    let mut served: Vec<Duration> =
        calls.iter().filter(|call| call.end == End::Answered).map(|call| call.ended).collect();
    served.sort_unstable();
    for call in calls {
        let values = effects.get(&call.token).map_or(&[][..], Vec::as_slice);
        let carried_out = values.len();
        if carried_out > 1 {
            verdict.counts.duplicated += 1;
            verdict.remark(call, "was executed more than once");
        }
        let struck = windows.iter().any(|window| window.overlaps(call));
        let struck_replica = windows.iter().any(|window| window.of_replica && window.overlaps(call));
        let hits: usize = windows.iter().map(|window| window.strikes_during(call)).sum();
        // First call that was served after this one had failed.
        let next = served.partition_point(|at| *at <= call.ended);
        let in_time = served.get(next).is_some_and(|at| *at <= call.began + deadline);
        let counts = &mut verdict.counts;
        match &call.end {
            End::Answered if call.kind == Kind::SideEffect && carried_out == 0 => {
                counts.untrue += 1;
                verdict.remark(call, "was answered but never executed");
            }
            End::Answered if call.answer.as_ref().is_some_and(|answer| !values.contains(answer)) => {
                counts.untrue += 1;
                verdict.remark(call, &format!("was answered, but the server recorded {values:?}"));
            }
            End::Answered => counts.answered += 1,
            End::WrongAnswer(_) => {
                counts.untrue += 1;
                verdict.remark(call, "got the answer to another call");
            }
            End::Failed { code, outcome, .. } => match outcome.as_deref() {
                Some("not_sent" | "refused") if carried_out > 0 => {
                    counts.untrue += 1;
                    verdict.remark(call, "was executed, but its caller was told that it was not");
                }
                Some("unknown") if call.kind == Kind::SideEffect && struck => counts.unknown += 1,
                // A read-only call is retried once; a second strike exceeds that.
                Some("unknown") if hits > 1 || struck_replica => counts.unknown += 1,
                _ if in_time || !struck => {
                    counts.lost += 1;
                    let told = code.clone().unwrap_or_else(|| NO_CODE.to_owned());
                    *verdict.lost_as.entry(told).or_default() += 1;
                    verdict.remark(call, "was lost");
                }
                _ => counts.refused += 1,
            },
            End::ConnectionLost(_) => {
                counts.cut += 1;
                if !struck {
                    verdict.remark(call, "lost its connection");
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

impl CallVerdict {
    fn remark(&mut self, call: &Call, what: &str) {
        if self.remarks.len() < MAX_REMARKS {
            let Call { token, kind, began, ended, end, answer: _ } = call;
            let remark = format!("{kind:?} {token} {what}: {began:.3?} to {ended:.3?}, {end:?}");
            self.remarks.push(remark.chars().take(240).collect());
        }
    }
}

/// Executions per token, as the server recorded them: each with the value that it answered.
pub type ServerRecord = HashMap<String, Vec<String>>;

/// Executions per token, from the lines that the server wrote: `TOKEN VALUE PID`.
#[must_use]
pub fn effects(lines: &str) -> ServerRecord {
    let mut effects = ServerRecord::new();
    for line in lines.lines() {
        let mut words = line.split(' ').map(str::to_owned);
        if let Some(token) = words.next() {
            effects.entry(token).or_default().push(words.next().unwrap_or_default());
        }
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
        Call { token: token.to_owned(), kind, began: at(began), ended: at(ended), end, answer: None }
    }

    /// A window with one strike at its start.
    fn window(from: u64, to: u64) -> Window {
        let strikes = vec![StrikeSpan { at: at(from), ended: at(from) }];
        Window { from: at(from), to: at(to), strikes, of_replica: false }
    }

    fn failed(outcome: &str) -> End {
        End::Failed { code: None, outcome: Some(outcome.to_owned()), text: String::new() }
    }

    fn counts(calls: &[Call], windows: &[Window], lines: &str) -> Counts {
        judge(calls, windows, &effects(lines), DEADLINE).counts
    }

    #[test]
    fn an_error_is_a_loss_only_if_another_call_was_served_before_its_deadline() {
        let early = call("a", Kind::Read, 0, 1, failed("not_sent"));
        let late = call("b", Kind::Read, 0, 1, failed("not_sent"));
        let served = |ended| call("c", Kind::Read, 0, ended, End::Answered);
        let window = window(0, 11);
        assert_eq!(counts(&[early, served(9)], std::slice::from_ref(&window), "").lost, 1);
        assert_eq!(counts(&[late, served(11)], &[window], "").refused, 1);
    }

    #[test]
    fn an_error_without_an_active_fault_is_a_loss_even_at_its_deadline() {
        let hopeless = call("a", Kind::SideEffect, 2, 12, failed("unknown"));
        assert_eq!(counts(&[hopeless], &[window(0, 1)], "").lost, 1);
    }

    #[test]
    fn unknown_is_allowed_only_for_a_side_effect_during_a_fault() {
        let window = window(5, 6);
        let served = call("z", Kind::Read, 0, 9, End::Answered);
        let met = call("a", Kind::SideEffect, 4, 7, failed("unknown"));
        let missed = call("b", Kind::SideEffect, 1, 2, failed("unknown"));
        let read = call("c", Kind::Read, 4, 7, failed("unknown"));
        let counts = counts(&[met, missed, read, served], &[window], "");
        assert_eq!((counts.unknown, counts.lost), (1, 2));
    }

    #[test]
    fn a_read_only_call_may_be_unknown_after_two_strikes() {
        let windows = [window(5, 7), window(7, 9)];
        let served = call("z", Kind::Read, 0, 10, End::Answered);
        let twice = call("a", Kind::Read, 4, 8, failed("unknown"));
        let touched_twice_and_met_once = call("b", Kind::Read, 6, 8, failed("unknown"));
        let counts = counts(&[twice, touched_twice_and_met_once, served], &windows, "");
        assert_eq!((counts.unknown, counts.lost), (1, 1));
    }

    #[test]
    fn any_call_may_be_unknown_after_one_strike_at_a_replica() {
        let window = Window { of_replica: true, ..window(5, 6) };
        let met = call("a", Kind::Read, 4, 7, failed("unknown"));
        let missed = call("b", Kind::Read, 1, 2, failed("unknown"));
        let counts = counts(&[met, missed], &[window], "");
        assert_eq!((counts.unknown, counts.lost), (1, 1));
    }

    #[test]
    fn an_answer_that_the_record_contradicts_is_untrue() {
        let answered = |token, value: &str| Call {
            answer: Some(value.to_owned()),
            ..call(token, Kind::SideEffect, 0, 1, End::Answered)
        };
        let counts = counts(&[answered("a", "1"), answered("b", "1")], &[], "a 1 7\nb 2 7\n");
        assert_eq!((counts.answered, counts.untrue), (1, 1));
    }

    #[test]
    fn a_loss_is_recorded_with_its_error_code() {
        let told = |code: Option<&str>| End::Failed {
            code: code.map(str::to_owned),
            outcome: Some("not_sent".to_owned()),
            text: String::new(),
        };
        let calls = [
            call("a", Kind::Read, 0, 1, told(Some("unreachable"))),
            call("b", Kind::SideEffect, 0, 1, told(Some("unreachable"))),
            call("c", Kind::Read, 0, 1, told(None)),
            call("z", Kind::Read, 0, 9, End::Answered),
        ];
        let lost_as = judge(&calls, &[], &effects(""), DEADLINE).lost_as;
        assert_eq!(lost_as, BTreeMap::from([("unreachable".to_owned(), 2), (NO_CODE.to_owned(), 1)]));
    }

    #[test]
    fn executions_are_counted_by_the_server_not_by_answers() {
        let answered = |token| call(token, Kind::SideEffect, 0, 1, End::Answered);
        let denied = call("c", Kind::SideEffect, 0, 1, failed("not_sent"));
        let counts = counts(&[answered("a"), answered("b"), denied], &[], "a 1 7\na 2 8\nc 3 8\n");
        assert_eq!(counts.duplicated, 1, "a");
        assert_eq!(counts.untrue, 2, "b was answered for nothing, c was denied falsely");
        assert_eq!(counts.answered, 1);
    }
}
