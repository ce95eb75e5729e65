//! Wildcard patterns over names.

/// A pattern over a name: `*` matches any run of characters, `?` any single character.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pattern(String);

impl Pattern {
    /// A pattern; every text is a valid one.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// Returns whether it is the pattern `*`.
    pub fn is_everything(&self) -> bool {
        self.0 == "*"
    }

    /// Returns whether `name` matches; case counts.
    pub fn matches(&self, name: &str) -> bool {
        let (mut pattern, mut name) = (self.0.as_str(), name);
        // After a `*`: the rest of the pattern, and the rest of the name after the text that the star has matched.
        let mut star: Option<(&str, &str)> = None;
        while let Some(letter) = name.chars().next() {
            let after_letter = &name[letter.len_utf8()..];
            match pattern.chars().next() {
                Some('*') => {
                    pattern = &pattern[1..];
                    star = Some((pattern, name));
                }
                Some(wanted) if wanted == '?' || wanted == letter => {
                    pattern = &pattern[wanted.len_utf8()..];
                    name = after_letter;
                }
                Some(_) | None => {
                    let Some((after, taken)) = star else { return false };
                    let taken = &taken[taken.chars().next().map_or(0, char::len_utf8)..];
                    star = Some((after, taken));
                    (pattern, name) = (after, taken);
                }
            }
        }
        pattern.bytes().all(|letter| letter == b'*')
    }

    /// The pattern as written.
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
