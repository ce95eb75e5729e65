//! Which tools of a server may be seen and called, and which may be replayed: patterns over names.
//! Deny wins.

use crate::failure::recovery::ReplayRule;

/// A pattern over a name: `*` stands for any run of characters, `?` for any one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pattern(String);

impl Pattern {
    /// A pattern; every text is one.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// Whether `name` matches, case and all.
    pub fn matches(&self, name: &str) -> bool {
        let (pattern, name): (Vec<char>, Vec<char>) = (self.0.chars().collect(), name.chars().collect());
        let (mut p, mut n) = (0, 0);
        // After a `*`: where the pattern goes on, and how much of the name the star has taken.
        let mut star: Option<(usize, usize)> = None;
        while n < name.len() {
            if pattern.get(p) == Some(&'*') {
                star = Some((p + 1, n));
                p += 1;
            } else if pattern.get(p).is_some_and(|c| *c == '?' || *c == name[n]) {
                p += 1;
                n += 1;
            } else if let Some((after, taken)) = star {
                star = Some((after, taken + 1));
                (p, n) = (after, taken + 1);
            } else {
                return false;
            }
        }
        pattern[p..].iter().all(|c| *c == '*')
    }
}

/// Which tools of one server may be seen and called.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolFilter {
    allow: Vec<Pattern>,
    deny: Vec<Pattern>,
}

impl ToolFilter {
    /// A filter from the config's patterns. No `allow` pattern means that none is allowed.
    pub fn new(allow: &[String], deny: &[String]) -> Self {
        let patterns = |texts: &[String]| texts.iter().map(Pattern::new).collect();
        Self { allow: patterns(allow), deny: patterns(deny) }
    }

    /// Whether `tool` may be seen and called.
    pub fn admits(&self, tool: &str) -> bool {
        let denied = self.deny.iter().any(|pattern| pattern.matches(tool));
        let allowed = self.allow.iter().any(|pattern| pattern.matches(tool));
        allowed && !denied
    }
}

impl Default for ToolFilter {
    fn default() -> Self {
        Self::new(&["*".to_owned()], &[])
    }
}

/// Which tools of one server the operator has an opinion on replaying.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ReplayRules {
    safe: Vec<Pattern>,
    never: Vec<Pattern>,
}

impl ReplayRules {
    /// Rules from the config's patterns.
    pub fn new(safe: &[String], never: &[String]) -> Self {
        let patterns = |texts: &[String]| texts.iter().map(Pattern::new).collect();
        Self { safe: patterns(safe), never: patterns(never) }
    }

    /// The operator's opinion on replaying `tool`. `never` wins.
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
    fn patterns_match_as_people_expect() {
        let matches = |pattern: &str, name| Pattern::new(pattern).matches(name);
        assert!(matches("*", "anything") && matches("*", ""));
        assert!(matches("delete_*", "delete_repo") && !matches("delete_*", "undelete_repo"));
        assert!(matches("*_file", "read_file") && !matches("*_file", "read_files"));
        assert!(matches("a*b*c", "a1b2b3c") && !matches("a*b*c", "a1b2b3"));
        assert!(matches("get_?", "get_x") && !matches("get_?", "get_"));
        assert!(matches("über*", "überall"));
    }

    #[test]
    fn g01_deny_wins_over_allow() {
        let filter = ToolFilter::new(&["*".to_owned()], &["delete_*".to_owned()]);
        assert!(filter.admits("read") && !filter.admits("delete_all"));
        let filter = ToolFilter::new(&["read_*".to_owned()], &[]);
        assert!(filter.admits("read_file") && !filter.admits("write_file"));
        assert!(ToolFilter::default().admits("anything") && !ToolFilter::new(&[], &[]).admits("anything"));
    }

    #[test]
    fn c05_the_operators_never_wins_over_safe() {
        let rules = ReplayRules::new(&["search_*".to_owned()], &["search_and_buy".to_owned()]);
        assert_eq!(rules.rule_for("search_docs"), ReplayRule::Safe);
        assert_eq!(rules.rule_for("search_and_buy"), ReplayRule::Never);
        assert_eq!(rules.rule_for("buy"), ReplayRule::AsHinted);
    }
}
