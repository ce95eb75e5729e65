//! For how long an answer is good, and for whom.

use std::time::Duration;

/// Who may be given an answer that was made for somebody.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// Everybody.
    Public,
    /// Whoever it was made for.
    Private,
}

/// What a server says about its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hint {
    /// For how long it is good.
    pub ttl: Duration,
    /// For whom.
    pub scope: Scope,
}

/// What kind of answer it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// A list, or a resource that was read: a server's hint counts.
    ListOrRead,
    /// The result of a tool: only an operator knows whether it may be given again.
    Tool {
        /// How long the operator lets it live, if the operator has a rule for it.
        rule: Option<ToolRule>,
        /// Whether the tool says that it changes nothing.
        read_only: bool,
    },
}

/// What an operator says about a tool's results.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ToolRule {
    /// They are good for so long.
    For(Duration),
    /// They are good for as long as the server says.
    AsHinted,
}

/// For how long an answer is good, and for whom.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Freshness {
    /// How long.
    pub ttl: Duration,
    /// For whom.
    pub scope: Scope,
}

impl Freshness {
    /// What nobody said anything about is good for nothing but the one who asked.
    pub const UNSAID: Self = Self { ttl: Duration::ZERO, scope: Scope::Private };

    /// What is left of it after a while.
    #[must_use]
    pub fn after(self, age: Duration) -> Self {
        Self { ttl: self.ttl.saturating_sub(age), ..self }
    }

    /// What is put together from several answers is good for no longer than the first of them to end, and private if
    /// one of them is. What is put together from nothing is [`Self::UNSAID`].
    #[must_use]
    pub fn of_all(parts: impl IntoIterator<Item = Self>) -> Self {
        let both = |one: Self, other: Self| Self {
            ttl: one.ttl.min(other.ttl),
            scope: match (one.scope, other.scope) {
                (Scope::Public, Scope::Public) => Scope::Public,
                (Scope::Private, Scope::Public | Scope::Private) | (Scope::Public, Scope::Private) => {
                    Scope::Private
                }
            },
        };
        parts.into_iter().reduce(both).unwrap_or(Self::UNSAID)
    }
}

/// No answer is kept longer than this, whatever a server says.
const LONGEST: Duration = Duration::from_secs(24 * 3600);

/// Decides; `None` is an answer that is given once.
pub fn freshness(source: Source, hint: Option<Hint>) -> Option<Freshness> {
    let hinted = hint.map(|Hint { ttl, scope }| Freshness { ttl, scope });
    let fresh = match source {
        Source::ListOrRead => hinted?,
        // A tool that does something is done again each time, whoever says otherwise.
        Source::Tool { read_only: false, .. } | Source::Tool { rule: None, .. } => return None,
        Source::Tool { rule: Some(ToolRule::AsHinted), .. } => hinted?,
        Source::Tool { rule: Some(ToolRule::For(ttl)), .. } => {
            // What the server calls private stays private, for however long.
            let scope = hint.map_or(Scope::Private, |hint| hint.scope);
            Freshness { ttl, scope }
        }
    };
    let ttl = fresh.ttl.min(LONGEST);
    (!ttl.is_zero()).then_some(Freshness { ttl, ..fresh })
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    fn hint(scope: Scope) -> Option<Hint> {
        Some(Hint { ttl: MINUTE, scope })
    }

    #[test]
    fn g04_lists_and_reads_live_as_long_as_their_server_says() {
        let fresh = freshness(Source::ListOrRead, hint(Scope::Public)).unwrap();
        assert_eq!((fresh.ttl, fresh.scope), (MINUTE, Scope::Public));
        assert_eq!(freshness(Source::ListOrRead, None), None);
        let zero = Hint { ttl: Duration::ZERO, scope: Scope::Public };
        assert_eq!(freshness(Source::ListOrRead, Some(zero)), None);
        let years = Hint { ttl: Duration::MAX, scope: Scope::Public };
        assert_eq!(freshness(Source::ListOrRead, Some(years)).unwrap().ttl, LONGEST);
    }

    #[test]
    fn g04_what_is_merged_lives_as_long_as_its_shortest_part_and_is_private_if_one_is() {
        let part = |seconds, scope| Freshness { ttl: Duration::from_secs(seconds), scope };
        let (public, private) =
            (|seconds| part(seconds, Scope::Public), |seconds| part(seconds, Scope::Private));
        assert_eq!(Freshness::of_all([public(60), public(20), public(40)]), public(20));
        assert_eq!(Freshness::of_all([public(60), private(90)]), private(60));
        assert_eq!(Freshness::of_all([private(60), public(90)]), private(60));
        assert_eq!(Freshness::of_all([public(60), Freshness::UNSAID]), private(0));
        assert_eq!(Freshness::of_all([]), Freshness::UNSAID);
        assert_eq!(public(60).after(Duration::from_secs(45)), public(15));
        assert_eq!(public(60).after(Duration::from_secs(61)), public(0));
    }

    #[test]
    fn g04_a_tools_result_lives_only_if_the_operator_says_so_and_the_tool_changes_nothing() {
        let tool = |rule, read_only| freshness(Source::Tool { rule, read_only }, hint(Scope::Public));
        assert_eq!(tool(None, true), None, "a hint alone is not enough");
        assert_eq!(tool(Some(ToolRule::AsHinted), false), None);
        assert_eq!(tool(Some(ToolRule::For(MINUTE)), false), None);
        assert_eq!(tool(Some(ToolRule::AsHinted), true).unwrap().ttl, MINUTE);
        assert_eq!(tool(Some(ToolRule::For(2 * MINUTE)), true).unwrap().ttl, 2 * MINUTE);
    }

    #[test]
    fn g04_a_result_that_nobody_called_public_is_private() {
        let source = Source::Tool { rule: Some(ToolRule::For(MINUTE)), read_only: true };
        assert_eq!(freshness(source, None).unwrap().scope, Scope::Private);
        assert_eq!(freshness(source, hint(Scope::Private)).unwrap().scope, Scope::Private);
        assert_eq!(freshness(source, hint(Scope::Public)).unwrap().scope, Scope::Public);
    }
}
