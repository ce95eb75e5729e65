//! Patterns over names.

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

    /// The pattern as it was written.
    pub fn text(&self) -> &str {
        &self.0
    }
}

/// The patterns of a list in the config.
pub(super) fn patterns(texts: &[String]) -> Vec<Pattern> {
    texts.iter().map(Pattern::new).collect()
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
}
