//! What a call does after a failure: the at-most-once rule (C05) as a pure function.
//!
//! A request goes out again only if the server provably did not act on it, or if acting twice does no
//! harm. What the link does about the failure is decided by the upstream machine.

use super::{Failure, Outcome, Sent};
use std::time::Duration;

/// Whether executing a request twice does harm.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Safety {
    /// It only reads, is idempotent, or the operator vouches for it.
    Replayable,
    /// It may have a side effect.
    AtMostOnce,
}

/// What a tool says about itself. A hint counts only when it is `true`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
pub struct ToolHints {
    /// `readOnlyHint`: it changes nothing.
    pub read_only: bool,
    /// `idempotentHint`: a second execution changes nothing more.
    pub idempotent: bool,
    /// `destructiveHint`: it may destroy something.
    pub destructive: bool,
}

/// What the operator says about replaying one tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ReplayRule {
    /// Nothing: the tool's own hints decide.
    #[default]
    AsHinted,
    /// `replay.safe`: replaying does no harm, whatever the hints say.
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

    /// The safety of a request that is not a tool call. A method we do not know may do anything.
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

/// The replays that one call has used up: once per cause of a refusal, and once for anything else.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Replays {
    session: bool,
    credential: bool,
    patience: bool,
    headers: bool,
    other: bool,
}

impl Replays {
    /// How many times the request went out again.
    pub fn count(&self) -> u32 {
        [self.session, self.credential, self.patience, self.headers, self.other]
            .into_iter()
            .map(u32::from)
            .sum()
    }
}

/// What the call does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// Ask for admission again, which waits for the link if need be, and send it again.
    Again,
    /// The same, but not before this pause has passed.
    AgainAfter(Duration),
    /// The same, but not before what the server offers was listed anew.
    AgainOnceListed,
    /// Tell the caller, with this outcome.
    GiveUp(Outcome),
}

/// A server that asks for patience without saying how much gets this.
pub const UNSPECIFIED_PATIENCE: Duration = Duration::from_secs(1);

/// How soon something is tried again for which there was no file descriptor, memory or process. The attempt costs little.
pub const RESOURCES_AGAIN_AFTER: Duration = Duration::from_millis(250);

/// What a call does after `failure`, given how much was sent, how harmful a second execution would be,
/// and which replays it has used up already. Uses up the replay that it grants.
pub fn after(failure: &Failure, sent: Sent, safety: Safety, replays: &mut Replays) -> Next {
    let refused = Next::GiveUp(Outcome::Refused);
    match failure {
        Failure::SessionExpired(_) => grant(&mut replays.session, Next::Again, refused),
        Failure::CredentialRefused(_) => grant(&mut replays.credential, Next::Again, refused),
        Failure::Busy { retry_after, .. } => {
            let pause = retry_after.unwrap_or(UNSPECIFIED_PATIENCE);
            grant(&mut replays.patience, Next::AgainAfter(pause), refused)
        }
        Failure::Outdated(_) => grant(&mut replays.headers, Next::AgainOnceListed, refused),
        Failure::Unreachable(_) | Failure::Lost(_) | Failure::ServerFault(_) => match (sent, safety) {
            // Waiting and dialing are not replays: the caller's patience bounds them.
            (Sent::No, _) => Next::Again,
            (Sent::Yes, Safety::Replayable) => {
                grant(&mut replays.other, Next::Again, Next::GiveUp(Outcome::Unknown))
            }
            (Sent::Yes, Safety::AtMostOnce) => Next::GiveUp(Outcome::Unknown),
        },
        Failure::LacksResources(_) => match sent {
            // As above, and the link is still there: others may free what is missing.
            Sent::No => Next::AgainAfter(RESOURCES_AGAIN_AFTER),
            Sent::Yes => Next::GiveUp(Outcome::Unknown),
        },
        // Its time is up, or the answer makes no sense: asking again would not be heard better.
        Failure::TimedOut(_) | Failure::Nonsense(_) => match sent {
            Sent::No => Next::GiveUp(Outcome::NotSent),
            Sent::Yes => Next::GiveUp(Outcome::Unknown),
        },
        Failure::BeyondScope(_) => refused,
        Failure::Declined(_) => Next::GiveUp(Outcome::Failed),
        Failure::Blocked(_) => Next::GiveUp(Outcome::NotSent),
    }
}

/// What an attempt that ended like this may have done; `None` if it never left us.
pub fn fate_of(failure: &Failure, sent: Sent) -> Option<Outcome> {
    match (sent, failure) {
        (Sent::No, _) => None,
        (
            Sent::Yes,
            Failure::SessionExpired(_)
            | Failure::CredentialRefused(_)
            | Failure::BeyondScope(_)
            | Failure::Busy { .. }
            | Failure::Outdated(_),
        ) => Some(Outcome::Refused),
        (
            Sent::Yes,
            Failure::Unreachable(_)
            | Failure::LacksResources(_)
            | Failure::Lost(_)
            | Failure::TimedOut(_)
            | Failure::ServerFault(_)
            | Failure::Nonsense(_)
            | Failure::Declined(_)
            | Failure::Blocked(_),
        ) => Some(Outcome::Unknown),
    }
}

/// The outcome of a call whose last attempt ended with `last`, given what is known of the attempts before it. An attempt
/// that may have run makes it unknown, whatever a later one says.
pub fn final_outcome(last: Outcome, earlier: Option<Outcome>) -> Outcome {
    match (earlier, last) {
        (_, Outcome::Done) => Outcome::Done,
        (Some(Outcome::Unknown), _) | (_, Outcome::Unknown) => Outcome::Unknown,
        (Some(Outcome::Refused), Outcome::NotSent) => Outcome::Refused,
        (
            Some(Outcome::NotSent | Outcome::Refused | Outcome::Failed | Outcome::Done) | None,
            Outcome::NotSent | Outcome::Refused | Outcome::Failed,
        ) => last,
    }
}

fn grant(used: &mut bool, next: Next, otherwise: Next) -> Next {
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
            let next = after(&failure, Sent::Yes, Safety::AtMostOnce, &mut Replays::default());
            assert_eq!(next, Next::GiveUp(Outcome::Unknown));
        }
    }

    #[test]
    fn c05_a_call_that_never_left_goes_again_without_using_up_a_replay() {
        let mut replays = Replays::default();
        for _ in 0..5 {
            assert_eq!(after(&lost(), Sent::No, Safety::AtMostOnce, &mut replays), Next::Again);
        }
        assert_eq!(replays.count(), 0);
    }

    #[test]
    fn c05_a_refused_call_is_replayed_once_per_cause() {
        let mut replays = Replays::default();
        let mut again = |failure| after(&failure, Sent::Yes, Safety::AtMostOnce, &mut replays);
        let expired = || Failure::SessionExpired("gone".to_owned());
        let refused = || Failure::CredentialRefused("401".to_owned());
        assert_eq!(again(expired()), Next::Again);
        assert_eq!(again(refused()), Next::Again);
        assert_eq!(again(expired()), Next::GiveUp(Outcome::Refused));
        assert_eq!(again(refused()), Next::GiveUp(Outcome::Refused));
    }

    #[test]
    fn c05_a_call_with_outdated_headers_goes_once_more_after_a_fresh_listing() {
        let mut replays = Replays::default();
        let outdated = Failure::Outdated("Mcp-Param-Region is missing".to_owned());
        let next = after(&outdated, Sent::Yes, Safety::AtMostOnce, &mut replays);
        assert_eq!(next, Next::AgainOnceListed);
        let next = after(&outdated, Sent::Yes, Safety::AtMostOnce, &mut replays);
        assert_eq!(next, Next::GiveUp(Outcome::Refused));
    }

    #[test]
    fn c05_a_busy_server_is_asked_once_more_after_the_time_it_named() {
        let mut replays = Replays::default();
        let busy = Failure::Busy { retry_after: Some(Duration::from_secs(3)), text: String::new() };
        let next = after(&busy, Sent::Yes, Safety::AtMostOnce, &mut replays);
        assert_eq!(next, Next::AgainAfter(Duration::from_secs(3)));
        let next = after(&busy, Sent::Yes, Safety::AtMostOnce, &mut replays);
        assert_eq!(next, Next::GiveUp(Outcome::Refused));
    }

    #[test]
    fn c05_a_harmless_call_is_replayed_at_most_once() {
        let mut replays = Replays::default();
        assert_eq!(after(&lost(), Sent::Yes, Safety::Replayable, &mut replays), Next::Again);
        let next = after(&lost(), Sent::Yes, Safety::Replayable, &mut replays);
        assert_eq!(next, Next::GiveUp(Outcome::Unknown));
    }

    #[test]
    fn c05_hints_and_operator_decide_what_is_harmless() {
        let read_only = ToolHints { read_only: true, ..NO_HINTS };
        let idempotent = ToolHints { idempotent: true, ..NO_HINTS };
        assert_eq!(Safety::of_tool(NO_HINTS, ReplayRule::AsHinted), Safety::AtMostOnce);
        assert_eq!(Safety::of_tool(read_only, ReplayRule::AsHinted), Safety::Replayable);
        assert_eq!(Safety::of_tool(idempotent, ReplayRule::AsHinted), Safety::Replayable);
        assert_eq!(Safety::of_tool(NO_HINTS, ReplayRule::Safe), Safety::Replayable);
        assert_eq!(Safety::of_tool(read_only, ReplayRule::Never), Safety::AtMostOnce);
    }

    #[test]
    fn d03_every_method_that_reads_may_be_asked_again_and_an_unknown_one_may_not() {
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
    fn c01_an_attempt_that_may_have_been_carried_out_is_remembered_as_such() {
        assert_eq!(fate_of(&lost(), Sent::No), None);
        assert_eq!(fate_of(&lost(), Sent::Yes), Some(Outcome::Unknown));
        assert_eq!(fate_of(&Failure::SessionExpired(String::new()), Sent::Yes), Some(Outcome::Refused));
    }

    #[test]
    fn c05_an_attempt_that_may_have_run_makes_the_outcome_unknown_whatever_a_later_one_says() {
        for later in [Outcome::NotSent, Outcome::Refused, Outcome::Failed, Outcome::Unknown] {
            assert_eq!(final_outcome(later, Some(Outcome::Unknown)), Outcome::Unknown);
            assert_eq!(final_outcome(later, None), later);
        }
        assert_eq!(final_outcome(Outcome::Done, Some(Outcome::Unknown)), Outcome::Done);
        assert_eq!(final_outcome(Outcome::NotSent, Some(Outcome::Refused)), Outcome::Refused);
        assert_eq!(final_outcome(Outcome::Unknown, Some(Outcome::Refused)), Outcome::Unknown);
    }

    fn any_failure() -> impl Strategy<Value = Failure> {
        prop_oneof![
            Just(Failure::Unreachable(String::new())),
            Just(Failure::Lost(String::new())),
            Just(Failure::TimedOut(Duration::from_secs(1))),
            Just(Failure::SessionExpired(String::new())),
            Just(Failure::CredentialRefused(String::new())),
            Just(Failure::BeyondScope(String::new())),
            Just(Failure::Busy { retry_after: None, text: String::new() }),
            Just(Failure::ServerFault(String::new())),
            Just(Failure::Nonsense(String::new())),
            Just(Failure::Outdated(String::new())),
            Just(Failure::Declined(String::new())),
        ]
    }

    proptest! {
        /// C05: whatever sequence of failures one call meets, a request with a side effect is executed at
        /// most once, where "may have been executed" is every failure after sending that is no refusal.
        #[test]
        fn c05_no_history_executes_a_side_effect_twice(history in prop::collection::vec(any_failure(), 0..12)) {
            let mut replays = Replays::default();
            let mut executions = 0;
            for failure in &history {
                let refused = matches!(
                    failure,
                    Failure::SessionExpired(_)
                        | Failure::CredentialRefused(_)
                        | Failure::BeyondScope(_)
                        | Failure::Busy { .. }
                        | Failure::Outdated(_)
                );
                executions += u32::from(!refused);
                match after(failure, Sent::Yes, Safety::AtMostOnce, &mut replays) {
                    Next::Again | Next::AgainAfter(_) | Next::AgainOnceListed => {}
                    Next::GiveUp(_) => break,
                }
            }
            prop_assert!(executions <= 1, "{history:?}");
            prop_assert!(replays.count() <= 4);
        }
    }
}
