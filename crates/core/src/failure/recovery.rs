//! Recovery of a call after a failure: the at-most-once rule (C05) as a pure function.
//!
//! A request is sent again only if the server provably did not act on it, or if acting twice is safe. The upstream
//! machine decides how the link reacts.

use super::{CallOutcome, Failure, Sent};
use std::time::Duration;

/// Replay safety of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Safety {
    /// It only reads, is idempotent, or the operator declared it safe.
    Replayable,
    /// It may have a side effect.
    AtMostOnce,
}

/// Hints of a tool about itself. A hint counts only if it is `true`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
pub struct ToolHints {
    /// `readOnlyHint`: it changes nothing.
    pub read_only: bool,
    /// `idempotentHint`: a second execution changes nothing more.
    pub idempotent: bool,
    /// `destructiveHint`: it may destroy something.
    pub destructive: bool,
}

/// The operator's replay rule for one tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ReplayRule {
    /// No rule: the tool's own hints decide.
    #[default]
    AsHinted,
    /// `replay.safe`: replaying is safe, whatever the hints say.
    Safe,
    /// `replay.never`: never replay, whatever the hints say.
    Never,
}

impl Safety {
    /// The safety of calling a tool.
    pub fn of_tool(hints: ToolHints, rule: ReplayRule) -> Self {
        match rule {
            ReplayRule::Never => Self::AtMostOnce,
            ReplayRule::Safe => Self::Replayable,
            ReplayRule::AsHinted if hints.read_only || hints.idempotent => Self::Replayable,
            ReplayRule::AsHinted => Self::AtMostOnce,
        }
    }

    /// The safety of a request that is not a tool call. An unknown method may do anything.
    pub fn of_method(method: &str) -> Self {
        match method {
            "ping"
            | "server/discover"
            | "tools/list"
            | "resources/list"
            | "resources/read"
            | "resources/templates/list"
            | "resources/subscribe"
            | "resources/unsubscribe"
            | "prompts/list"
            | "prompts/get"
            | "completion/complete"
            | "tasks/get"
            | "tasks/result"
            | "logging/setLevel" => Self::Replayable,
            _ => Self::AtMostOnce,
        }
    }
}

/// Replays that one call has used up: one per cause of a refusal, and one for all other failures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Replays {
    session: bool,
    credential: bool,
    busy: bool,
    headers: bool,
    other: bool,
}

impl Replays {
    /// Number of times that the request was sent again.
    pub fn count(&self) -> u32 {
        [self.session, self.credential, self.busy, self.headers, self.other].into_iter().map(u32::from).sum()
    }
}

/// The next step of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NextStep {
    /// Ask for admission again, which may wait for the link, and send it again.
    Retry,
    /// The same, after this pause.
    RetryAfter(Duration),
    /// The same, after the catalog was listed again.
    RetryAfterListing,
    /// Return an error with this outcome.
    GiveUp(CallOutcome),
}

/// Pause after a busy server that names none.
pub const DEFAULT_BUSY_PAUSE: Duration = Duration::from_secs(1);

/// Pause before an attempt that lacked a file descriptor, memory or process is repeated. The attempt costs little.
pub const RESOURCE_RETRY_PAUSE: Duration = Duration::from_millis(250);

/// Decides the next step after `failure`, by what was sent, whether a second execution is safe, and which replays are
/// used up. Uses up the replay that it grants.
pub fn next_step(failure: &Failure, sent: Sent, safety: Safety, replays: &mut Replays) -> NextStep {
    let refused = NextStep::GiveUp(CallOutcome::Refused);
    match failure {
        Failure::SessionExpired(_) => grant(&mut replays.session, NextStep::Retry, refused),
        Failure::CredentialRefused(_) => grant(&mut replays.credential, NextStep::Retry, refused),
        Failure::Busy { retry_after, .. } => {
            let pause = retry_after.unwrap_or(DEFAULT_BUSY_PAUSE);
            grant(&mut replays.busy, NextStep::RetryAfter(pause), refused)
        }
        Failure::HeaderMismatch(_) => grant(&mut replays.headers, NextStep::RetryAfterListing, refused),
        Failure::Unreachable(_) | Failure::Lost(_) | Failure::ServerFault(_) => match (sent, safety) {
            // Waiting and connecting are not replays: the call timeout bounds them.
            (Sent::No, _) => NextStep::Retry,
            (Sent::Yes, Safety::Replayable) => {
                grant(&mut replays.other, NextStep::Retry, NextStep::GiveUp(CallOutcome::Unknown))
            }
            (Sent::Yes, Safety::AtMostOnce) => NextStep::GiveUp(CallOutcome::Unknown),
        },
        Failure::OutOfResources(_) => match sent {
            // As above. The link is still there, and other calls may free what is missing.
            Sent::No => NextStep::RetryAfter(RESOURCE_RETRY_PAUSE),
            Sent::Yes => NextStep::GiveUp(CallOutcome::Unknown),
        },
        // The time is up, or the answer is invalid: another attempt would not help.
        Failure::TimedOut(_) | Failure::InvalidResponse(_) => match sent {
            Sent::No => NextStep::GiveUp(CallOutcome::NotSent),
            Sent::Yes => NextStep::GiveUp(CallOutcome::Unknown),
        },
        Failure::InsufficientScope(_) => refused,
        Failure::Declined(_) => NextStep::GiveUp(CallOutcome::Failed),
        Failure::Blocked(_) => NextStep::GiveUp(CallOutcome::NotSent),
    }
}

/// The possible outcome of an attempt that ended like this; `None` if nothing was sent.
pub fn attempt_outcome(failure: &Failure, sent: Sent) -> Option<CallOutcome> {
    match (sent, failure) {
        (Sent::No, _) => None,
        (
            Sent::Yes,
            Failure::SessionExpired(_)
            | Failure::CredentialRefused(_)
            | Failure::InsufficientScope(_)
            | Failure::Busy { .. }
            | Failure::HeaderMismatch(_),
        ) => Some(CallOutcome::Refused),
        (
            Sent::Yes,
            Failure::Unreachable(_)
            | Failure::OutOfResources(_)
            | Failure::Lost(_)
            | Failure::TimedOut(_)
            | Failure::ServerFault(_)
            | Failure::InvalidResponse(_)
            | Failure::Declined(_)
            | Failure::Blocked(_),
        ) => Some(CallOutcome::Unknown),
    }
}

/// The outcome of a call whose last attempt ended with `last` and whose earlier attempts ended with `earlier`. If one
/// attempt may have been executed, the outcome is unknown.
pub fn final_outcome(last: CallOutcome, earlier: Option<CallOutcome>) -> CallOutcome {
    match (earlier, last) {
        (_, CallOutcome::Done) => CallOutcome::Done,
        (Some(CallOutcome::Unknown), _) | (_, CallOutcome::Unknown) => CallOutcome::Unknown,
        (Some(CallOutcome::Refused), CallOutcome::NotSent) => CallOutcome::Refused,
        (
            Some(CallOutcome::NotSent | CallOutcome::Refused | CallOutcome::Failed | CallOutcome::Done)
            | None,
            CallOutcome::NotSent | CallOutcome::Refused | CallOutcome::Failed,
        ) => last,
    }
}

fn grant(used: &mut bool, next: NextStep, otherwise: NextStep) -> NextStep {
    if std::mem::replace(used, true) { otherwise } else { next }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const NO_HINTS: ToolHints = ToolHints { read_only: false, idempotent: false, destructive: false };

    fn lost() -> Failure {
        Failure::Lost("connection reset".to_owned())
    }

    #[test]
    fn c05_a_call_that_was_sent_and_not_answered_is_never_sent_again() {
        for failure in [lost(), Failure::ServerFault("HTTP 500".to_owned())] {
            let next = next_step(&failure, Sent::Yes, Safety::AtMostOnce, &mut Replays::default());
            assert_eq!(next, NextStep::GiveUp(CallOutcome::Unknown));
        }
    }

    #[test]
    fn c05_an_unsent_call_is_retried_without_using_up_a_replay() {
        let mut replays = Replays::default();
        for _ in 0..5 {
            assert_eq!(next_step(&lost(), Sent::No, Safety::AtMostOnce, &mut replays), NextStep::Retry);
        }
        assert_eq!(replays.count(), 0);
    }

    #[test]
    fn c05_a_refused_call_is_replayed_once_per_cause() {
        let mut replays = Replays::default();
        let mut again = |failure| next_step(&failure, Sent::Yes, Safety::AtMostOnce, &mut replays);
        let expired = || Failure::SessionExpired("gone".to_owned());
        let refused = || Failure::CredentialRefused("401".to_owned());
        assert_eq!(again(expired()), NextStep::Retry);
        assert_eq!(again(refused()), NextStep::Retry);
        assert_eq!(again(expired()), NextStep::GiveUp(CallOutcome::Refused));
        assert_eq!(again(refused()), NextStep::GiveUp(CallOutcome::Refused));
    }

    #[test]
    fn c05_a_header_mismatch_is_retried_once_after_a_new_listing() {
        let mut replays = Replays::default();
        let outdated = Failure::HeaderMismatch("Mcp-Param-Region is missing".to_owned());
        let next = next_step(&outdated, Sent::Yes, Safety::AtMostOnce, &mut replays);
        assert_eq!(next, NextStep::RetryAfterListing);
        let next = next_step(&outdated, Sent::Yes, Safety::AtMostOnce, &mut replays);
        assert_eq!(next, NextStep::GiveUp(CallOutcome::Refused));
    }

    #[test]
    fn c05_a_busy_server_gets_one_retry_after_its_retry_after() {
        let mut replays = Replays::default();
        let busy = Failure::Busy { retry_after: Some(Duration::from_secs(3)), text: String::new() };
        let next = next_step(&busy, Sent::Yes, Safety::AtMostOnce, &mut replays);
        assert_eq!(next, NextStep::RetryAfter(Duration::from_secs(3)));
        let next = next_step(&busy, Sent::Yes, Safety::AtMostOnce, &mut replays);
        assert_eq!(next, NextStep::GiveUp(CallOutcome::Refused));
    }

    #[test]
    fn c05_a_replayable_call_is_replayed_at_most_once() {
        let mut replays = Replays::default();
        assert_eq!(next_step(&lost(), Sent::Yes, Safety::Replayable, &mut replays), NextStep::Retry);
        let next = next_step(&lost(), Sent::Yes, Safety::Replayable, &mut replays);
        assert_eq!(next, NextStep::GiveUp(CallOutcome::Unknown));
    }

    #[test]
    fn c05_hints_and_operator_rules_decide_what_is_replayable() {
        let read_only = ToolHints { read_only: true, ..NO_HINTS };
        let idempotent = ToolHints { idempotent: true, ..NO_HINTS };
        assert_eq!(Safety::of_tool(NO_HINTS, ReplayRule::AsHinted), Safety::AtMostOnce);
        assert_eq!(Safety::of_tool(read_only, ReplayRule::AsHinted), Safety::Replayable);
        assert_eq!(Safety::of_tool(idempotent, ReplayRule::AsHinted), Safety::Replayable);
        assert_eq!(Safety::of_tool(NO_HINTS, ReplayRule::Safe), Safety::Replayable);
        assert_eq!(Safety::of_tool(read_only, ReplayRule::Never), Safety::AtMostOnce);
    }

    #[test]
    fn d03_read_methods_are_replayable_and_unknown_ones_are_not() {
        for method in [
            "tools/list",
            "resources/read",
            "prompts/get",
            "completion/complete",
            "tasks/get",
            "tasks/result",
        ] {
            assert_eq!(Safety::of_method(method), Safety::Replayable);
        }
        assert_eq!(Safety::of_method("vendor/launch"), Safety::AtMostOnce);
    }

    #[test]
    fn c01_a_possibly_executed_attempt_has_an_unknown_outcome() {
        assert_eq!(attempt_outcome(&lost(), Sent::No), None);
        assert_eq!(attempt_outcome(&lost(), Sent::Yes), Some(CallOutcome::Unknown));
        assert_eq!(
            attempt_outcome(&Failure::SessionExpired(String::new()), Sent::Yes),
            Some(CallOutcome::Refused)
        );
    }

    #[test]
    fn c05_one_possibly_executed_attempt_makes_the_outcome_unknown() {
        for later in [CallOutcome::NotSent, CallOutcome::Refused, CallOutcome::Failed, CallOutcome::Unknown] {
            assert_eq!(final_outcome(later, Some(CallOutcome::Unknown)), CallOutcome::Unknown);
            assert_eq!(final_outcome(later, None), later);
        }
        assert_eq!(final_outcome(CallOutcome::Done, Some(CallOutcome::Unknown)), CallOutcome::Done);
        assert_eq!(final_outcome(CallOutcome::NotSent, Some(CallOutcome::Refused)), CallOutcome::Refused);
        assert_eq!(final_outcome(CallOutcome::Unknown, Some(CallOutcome::Refused)), CallOutcome::Unknown);
    }

    fn any_failure() -> impl Strategy<Value = Failure> {
        prop_oneof![
            Just(Failure::Unreachable(String::new())),
            Just(Failure::Lost(String::new())),
            Just(Failure::TimedOut(Duration::from_secs(1))),
            Just(Failure::SessionExpired(String::new())),
            Just(Failure::CredentialRefused(String::new())),
            Just(Failure::InsufficientScope(String::new())),
            Just(Failure::Busy { retry_after: None, text: String::new() }),
            Just(Failure::ServerFault(String::new())),
            Just(Failure::InvalidResponse(String::new())),
            Just(Failure::HeaderMismatch(String::new())),
            Just(Failure::Declined(String::new())),
        ]
    }

    proptest! {
        /// C05: in any sequence of failures of one call, a request with a side effect is executed at most once. Every
        /// failure after sending, except a refusal, counts as possibly executed.
        #[test]
        fn c05_no_history_executes_a_side_effect_twice(history in prop::collection::vec(any_failure(), 0..12)) {
            let mut replays = Replays::default();
            let mut executions = 0;
            for failure in &history {
                let refused = matches!(
                    failure,
                    Failure::SessionExpired(_)
                        | Failure::CredentialRefused(_)
                        | Failure::InsufficientScope(_)
                        | Failure::Busy { .. }
                        | Failure::HeaderMismatch(_)
                );
                executions += u32::from(!refused);
                match next_step(failure, Sent::Yes, Safety::AtMostOnce, &mut replays) {
                    NextStep::Retry | NextStep::RetryAfter(_) | NextStep::RetryAfterListing => {}
                    NextStep::GiveUp(_) => break,
                }
            }
            prop_assert!(executions <= 1, "{history:?}");
            prop_assert!(replays.count() <= 4);
        }
    }
}
