//! Replay rules of the operator: tools that may or may not be sent twice.

use super::Pattern;
use super::pattern::patterns;
use crate::failure::recovery::ReplayRule;

/// The replay rules for the tools of one server.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ReplayRules {
    safe: Vec<Pattern>,
    never: Vec<Pattern>,
}

impl ReplayRules {
    /// Rules from the patterns of the config.
    pub fn new(safe: &[String], never: &[String]) -> Self {
        Self { safe: patterns(safe), never: patterns(never) }
    }

    /// The rule for `tool`. `never` wins.
    pub fn rule_for(&self, tool: &str) -> ReplayRule {
        let named = |patterns: &[Pattern]| patterns.iter().any(|pattern| pattern.matches(tool));
        if named(&self.never) {
            ReplayRule::Never
        } else if named(&self.safe) {
            ReplayRule::Safe
        } else {
            ReplayRule::AsHinted
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c05_the_operators_never_wins_over_safe() {
        let rules = ReplayRules::new(&["search_*".to_owned()], &["search_and_buy".to_owned()]);
        assert_eq!(rules.rule_for("search_docs"), ReplayRule::Safe);
        assert_eq!(rules.rule_for("search_and_buy"), ReplayRule::Never);
        assert_eq!(rules.rule_for("buy"), ReplayRule::AsHinted);
    }
}
