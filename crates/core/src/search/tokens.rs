//! Splits text into words and reduces words to stems.

use std::sync::LazyLock;

use snowball_stemmers_rs::{Algorithm, Stemmer};

/// Longer words are data, for example encoded keys, and are left out.
const MAX_WORD: usize = 32;

/// The longest word of several parts that is also kept as a whole, for example `PostgreSQL`.
const MAX_COMPOUND: usize = 16;

/// Words without meaning for the choice of a tool.
const STOP_WORDS: &[&str] = &[
    "a", "about", "after", "again", "also", "am", "an", "and", "any", "are", "as", "at", "be", "been",
    "before", "being", "but", "by", "can", "could", "did", "do", "does", "doing", "each", "for", "from",
    "had", "has", "have", "having", "he", "help", "her", "here", "him", "his", "how", "i", "id", "if", "im",
    "in", "into", "is", "it", "its", "ive", "just", "lets", "like", "ll", "may", "me", "might", "must", "my",
    "need", "needs", "no", "not", "of", "on", "or", "our", "please", "re", "she", "should", "so", "some",
    "such", "than", "that", "the", "their", "them", "then", "there", "these", "they", "this", "those", "to",
    "us", "use", "used", "using", "ve", "very", "via", "want", "wants", "was", "we", "were", "what", "when",
    "where", "which", "while", "who", "whom", "whose", "why", "will", "with", "within", "without", "would",
    "you", "your",
];

static STEMMER: LazyLock<Stemmer> = LazyLock::new(|| Stemmer::create(Algorithm::English));

/// The stem of a word in lower case.
pub(super) fn stem(word: &str) -> String {
    STEMMER.stem(word).into_owned()
}

/// True for a word in lower case that says nothing about a tool.
pub(super) fn is_stop_word(word: &str) -> bool {
    STOP_WORDS.binary_search(&word).is_ok()
}

/// A word of a text in lower case. `parts` has the words of a compound, for example `get` and `user` of `getUser`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Word {
    pub(super) whole: String,
    pub(super) parts: Vec<String>,
}

impl Word {
    fn new(text: &str) -> Self {
        let whole = text.to_lowercase();
        let parts = parts(text).map(str::to_lowercase).collect::<Vec<_>>();
        Self { parts: if parts.len() > 1 { parts } else { Vec::new() }, whole }
    }

    /// The words that stand for this word in the index.
    pub(super) fn forms(&self) -> impl Iterator<Item = &str> {
        let whole =
            (self.parts.is_empty() || self.whole.len() <= MAX_COMPOUND).then_some(self.whole.as_str());
        whole.into_iter().chain(self.parts.iter().map(String::as_str))
    }
}

/// Words of a text: runs of letters and digits. An apostrophe does not end a word.
pub(super) fn words(text: &str) -> impl Iterator<Item = Word> {
    let runs = text.split(|char: char| !char.is_alphanumeric() && !matches!(char, '\'' | '’'));
    runs.filter_map(|run| {
        let run: String = run.chars().filter(|char| char.is_alphanumeric()).collect();
        (!run.is_empty() && run.len() <= MAX_WORD).then(|| Word::new(&run))
    })
}

/// Parts of a word in camel case. `HTTPServer` has two, `OAuth2` has two.
fn parts(word: &str) -> impl Iterator<Item = &str> {
    let chars: Vec<(usize, char)> = word.char_indices().collect();
    let starts = |at: &usize| {
        let at = *at;
        let (before, here) = (chars[at - 1].1, chars[at].1);
        let next_is_lower = chars.get(at + 1).is_some_and(|(_, next)| next.is_lowercase());
        here.is_uppercase() && (!before.is_uppercase() || next_is_lower)
    };
    let mut cuts: Vec<usize> = (1..chars.len()).filter(starts).map(|at| chars[at].0).collect();
    cuts.push(word.len());
    let mut from = 0;
    cuts.into_iter().map(move |to| &word[std::mem::replace(&mut from, to)..to])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn forms(text: &str) -> Vec<String> {
        words(text).flat_map(|word| word.forms().map(str::to_owned).collect::<Vec<_>>()).collect()
    }

    #[test]
    fn names_are_split_on_case_and_separators() {
        assert_eq!(forms("create_issue"), ["create", "issue"]);
        assert_eq!(forms("API-get.user/v2"), ["api", "get", "user", "v2"]);
        assert_eq!(forms("getUser"), ["getuser", "get", "user"]);
        assert_eq!(forms("HTTPServer"), ["httpserver", "http", "server"]);
        assert_eq!(forms("searchJiraIssuesUsingJql"), ["search", "jira", "issues", "using", "jql"]);
    }

    #[test]
    fn a_compound_is_found_whole_and_by_its_parts() {
        assert_eq!(forms("GitHub"), ["github", "git", "hub"]);
        assert_eq!(forms("github"), ["github"]);
    }

    #[test]
    fn encoded_data_is_no_word() {
        assert_eq!(forms(&format!("key {}", "x".repeat(MAX_WORD + 1))), ["key"]);
        assert_eq!(forms("what's up — don’t"), ["whats", "up", "dont"]);
    }

    #[test]
    fn stop_words_are_sorted_for_the_lookup() {
        assert!(STOP_WORDS.is_sorted());
        assert!(is_stop_word("the") && !is_stop_word("issue"));
    }

    #[test]
    fn inflections_share_a_stem() {
        assert_eq!(stem("repositories"), stem("repository"));
        assert_eq!(stem("creating"), stem("create"));
        assert_eq!(stem("deleted"), stem("deletes"));
    }
}
