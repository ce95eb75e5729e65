//! Freshness of an answer: its time to live and its cache scope.

use std::time::Duration;

/// Cache scope: the clients that may get an answer that was made for one of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CacheScope {
    /// All clients.
    Public,
    /// Only the client that it was made for.
    Private,
}

/// Cache hint that a server sends with its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CacheHint {
    /// Time to live.
    pub ttl: Duration,
    /// Cache scope.
    pub scope: CacheScope,
}

/// Kind of answer, which decides about caching.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AnswerKind {
    /// A list, or a resource that was read: the server's hint counts.
    ListOrRead,
    /// The result of a tool: only the operator knows whether it can be reused.
    Tool {
        /// The operator's rule for the tool, if there is one.
        rule: Option<ToolRule>,
        /// The tool's `readOnlyHint`.
        read_only: bool,
    },
}

/// The operator's caching rule for a tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ToolRule {
    /// Results are fresh for this duration.
    Fixed(Duration),
    /// Results are fresh for as long as the server says.
    AsHinted,
}

/// Time to live and scope of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Freshness {
    /// Time to live.
    pub ttl: Duration,
    /// Cache scope.
    pub scope: CacheScope,
}

impl Freshness {
    /// Freshness of an answer without hint or rule: private, and not cached.
    pub const UNSPECIFIED: Self = Self { ttl: Duration::ZERO, scope: CacheScope::Private };

    /// The freshness that is left at this age.
    #[must_use]
    pub fn aged(self, age: Duration) -> Self {
        Self { ttl: self.ttl.saturating_sub(age), ..self }
    }

    /// The freshness of an answer that is composed of several: the shortest time to live, and private if one part is
    /// private. [`Self::UNSPECIFIED`] if there are no parts.
    #[must_use]
    pub fn combine(parts: impl IntoIterator<Item = Self>) -> Self {
        let both = |one: Self, other: Self| Self {
            ttl: one.ttl.min(other.ttl),
            scope: match (one.scope, other.scope) {
                (CacheScope::Public, CacheScope::Public) => CacheScope::Public,
                (CacheScope::Private, CacheScope::Public | CacheScope::Private)
                | (CacheScope::Public, CacheScope::Private) => CacheScope::Private,
            },
        };
        parts.into_iter().reduce(both).unwrap_or(Self::UNSPECIFIED)
    }
}

/// Upper bound of the time to live, whatever a server says.
const MAX_TTL: Duration = Duration::from_secs(24 * 3600);

/// Decides how an answer is cached; `None` if it is not cached.
pub fn freshness(source: AnswerKind, hint: Option<CacheHint>) -> Option<Freshness> {
    let hinted = hint.map(|CacheHint { ttl, scope }| Freshness { ttl, scope });
    let fresh = match source {
        AnswerKind::ListOrRead => hinted?,
        // A tool that is not read-only runs each time, whatever the rules and hints say.
        AnswerKind::Tool { read_only: false, .. } | AnswerKind::Tool { rule: None, .. } => return None,
        AnswerKind::Tool { rule: Some(ToolRule::AsHinted), .. } => hinted?,
        AnswerKind::Tool { rule: Some(ToolRule::Fixed(ttl)), .. } => {
            // The operator's rule sets the time to live; the server's scope still counts.
            let scope = hint.map_or(CacheScope::Private, |hint| hint.scope);
            Freshness { ttl, scope }
        }
    };
    let ttl = fresh.ttl.min(MAX_TTL);
    (!ttl.is_zero()).then_some(Freshness { ttl, ..fresh })
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    fn hint(scope: CacheScope) -> Option<CacheHint> {
        Some(CacheHint { ttl: MINUTE, scope })
    }

    #[test]
    fn g04_lists_and_reads_have_the_lifetime_of_the_servers_hint() {
        let fresh = freshness(AnswerKind::ListOrRead, hint(CacheScope::Public)).unwrap();
        assert_eq!((fresh.ttl, fresh.scope), (MINUTE, CacheScope::Public));
        assert_eq!(freshness(AnswerKind::ListOrRead, None), None);
        let zero = CacheHint { ttl: Duration::ZERO, scope: CacheScope::Public };
        assert_eq!(freshness(AnswerKind::ListOrRead, Some(zero)), None);
        let years = CacheHint { ttl: Duration::MAX, scope: CacheScope::Public };
        assert_eq!(freshness(AnswerKind::ListOrRead, Some(years)).unwrap().ttl, MAX_TTL);
    }

    #[test]
    fn g04_a_merged_answer_has_the_shortest_lifetime_and_strictest_scope() {
        let part = |seconds, scope| Freshness { ttl: Duration::from_secs(seconds), scope };
        let (public, private) =
            (|seconds| part(seconds, CacheScope::Public), |seconds| part(seconds, CacheScope::Private));
        assert_eq!(Freshness::combine([public(60), public(20), public(40)]), public(20));
        assert_eq!(Freshness::combine([public(60), private(90)]), private(60));
        assert_eq!(Freshness::combine([private(60), public(90)]), private(60));
        assert_eq!(Freshness::combine([public(60), Freshness::UNSPECIFIED]), private(0));
        assert_eq!(Freshness::combine([]), Freshness::UNSPECIFIED);
        assert_eq!(public(60).aged(Duration::from_secs(45)), public(15));
        assert_eq!(public(60).aged(Duration::from_secs(61)), public(0));
    }

    #[test]
    fn g04_only_read_only_tools_with_an_operator_rule_are_cached() {
        let tool =
            |rule, read_only| freshness(AnswerKind::Tool { rule, read_only }, hint(CacheScope::Public));
        assert_eq!(tool(None, true), None, "a hint alone is not enough");
        assert_eq!(tool(Some(ToolRule::AsHinted), false), None);
        assert_eq!(tool(Some(ToolRule::Fixed(MINUTE)), false), None);
        assert_eq!(tool(Some(ToolRule::AsHinted), true).unwrap().ttl, MINUTE);
        assert_eq!(tool(Some(ToolRule::Fixed(2 * MINUTE)), true).unwrap().ttl, 2 * MINUTE);
    }

    #[test]
    fn g04_a_result_without_scope_is_private() {
        let source = AnswerKind::Tool { rule: Some(ToolRule::Fixed(MINUTE)), read_only: true };
        assert_eq!(freshness(source, None).unwrap().scope, CacheScope::Private);
        assert_eq!(freshness(source, hint(CacheScope::Private)).unwrap().scope, CacheScope::Private);
        assert_eq!(freshness(source, hint(CacheScope::Public)).unwrap().scope, CacheScope::Public);
    }
}
