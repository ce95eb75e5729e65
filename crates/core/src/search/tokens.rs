//! Splits text into words and reduces words to stems. Scripts without spaces between words, such as Chinese, Japanese
//! and Thai, are split into overlapping pairs of characters; so is Korean, whose words carry their particles.

use std::sync::LazyLock;

use snowball_stemmers_rs::{Algorithm, Stemmer};

/// Characters of a word. Longer words are data, for example encoded keys, and are left out.
const MAX_WORD: usize = 32;

/// Characters of the longest word of several parts that is also kept as a whole, for example `PostgreSQL`.
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

/// Words that most questions could contain. They count less than other words.
const LIGHT_WORDS: &[&str] = &[
    "all",
    "back",
    "bring",
    "come",
    "different",
    "down",
    "every",
    "everything",
    "find",
    "first",
    "found",
    "get",
    "gets",
    "getting",
    "give",
    "gives",
    "go",
    "goes",
    "going",
    "good",
    "got",
    "keep",
    "know",
    "last",
    "left",
    "let",
    "look",
    "looks",
    "made",
    "make",
    "makes",
    "making",
    "many",
    "more",
    "most",
    "much",
    "new",
    "now",
    "off",
    "one",
    "other",
    "out",
    "over",
    "own",
    "put",
    "puts",
    "right",
    "same",
    "say",
    "see",
    "several",
    "show",
    "something",
    "still",
    "take",
    "takes",
    "tell",
    "thing",
    "things",
    "through",
    "too",
    "two",
    "up",
    "well",
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

/// True for a word in lower case that says little about a tool.
pub(super) fn is_light_word(word: &str) -> bool {
    LIGHT_WORDS.binary_search(&word).is_ok()
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
        let is_compound = text.chars().skip(1).any(char::is_uppercase);
        let parts: Vec<String> =
            if is_compound { parts(text).map(str::to_lowercase).collect() } else { Vec::new() };
        Self { parts: if parts.len() > 1 { parts } else { Vec::new() }, whole }
    }

    /// The words that stand for this word in the index.
    pub(super) fn forms(&self) -> impl Iterator<Item = &str> {
        let whole =
            (self.parts.is_empty() || has_at_most(MAX_COMPOUND, &self.whole)).then_some(self.whole.as_str());
        whole.into_iter().chain(self.parts.iter().map(String::as_str))
    }
}

/// Words of a text: runs of letters and digits. An apostrophe does not end a word. A run of a script without spaces is
/// the pairs of its characters, or its only character.
pub(super) fn words(text: &str) -> impl Iterator<Item = Word> {
    let ends_run = |char: char| !char.is_alphanumeric() && !is_unspaced(char) && !matches!(char, '\'' | '’');
    text.split(ends_run).flat_map(by_script).flat_map(|run| {
        let is_unspaced = run.starts_with(is_unspaced);
        let pairs = pairs(if is_unspaced { run } else { "" });
        let word = (!is_unspaced).then(|| run.chars().filter(|char| char.is_alphanumeric()).collect());
        let word = word.filter(|word: &String| !word.is_empty() && has_at_most(MAX_WORD, word));
        pairs.chain(word.map(|word| Word::new(&word)))
    })
}

fn has_at_most(most: usize, text: &str) -> bool {
    text.chars().nth(most).is_none()
}

/// Splits a run where it changes between scripts with and without spaces.
fn by_script(run: &str) -> impl Iterator<Item = &str> {
    let mut rest = run;
    std::iter::from_fn(move || {
        let first = rest.chars().next().map(is_unspaced)?;
        let end = rest.find(|char| is_unspaced(char) != first).unwrap_or(rest.len());
        let (run, others) = rest.split_at(end);
        rest = others;
        Some(run)
    })
}

/// Overlapping pairs of characters of a run; a single character stands for itself.
fn pairs(run: &str) -> impl Iterator<Item = Word> {
    let starts = run.char_indices().map(|(at, _)| at);
    let ends = run.char_indices().map(|(at, char)| at + char.len_utf8());
    let single = (run.chars().count() == 1).then_some(run);
    let pairs = starts.zip(ends.skip(1)).map(|(start, end)| &run[start..end]);
    pairs.chain(single).map(|whole| Word { whole: whole.to_owned(), parts: Vec::new() })
}

/// True for the characters of scripts that are written without spaces between words, and of Hangul.
fn is_unspaced(char: char) -> bool {
    matches!(char,
        '\u{0e01}'..='\u{0e3a}' | '\u{0e40}'..='\u{0e4e}' // Thai
        | '\u{0e81}'..='\u{0ecf}' // Lao
        | '\u{1000}'..='\u{103f}' // Burmese
        | '\u{1100}'..='\u{11ff}' | '\u{ac00}'..='\u{d7af}' // Hangul
        | '\u{1780}'..='\u{17d3}' // Khmer
        | '\u{3005}'..='\u{3007}' | '\u{3041}'..='\u{309f}' | '\u{30a1}'..='\u{30fa}' | '\u{30fc}'..='\u{30ff}' // Kana
        | '\u{ff66}'..='\u{ff9f}' // Kana of half width
        | '\u{3400}'..='\u{4dbf}' | '\u{4e00}'..='\u{9fff}' | '\u{f900}'..='\u{faff}' // Han
        | '\u{20000}'..='\u{3ffff}')
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
    fn the_length_of_a_word_is_counted_in_characters() {
        assert_eq!(forms("достопримечательность"), ["достопримечательность"]);
        assert_eq!(forms(&"ж".repeat(MAX_WORD + 1)), [""; 0]);
    }

    #[test]
    fn text_without_spaces_is_split_into_pairs_of_characters() {
        assert_eq!(forms("发送邮件。猫"), ["发送", "送邮", "邮件", "猫"]);
        assert_eq!(forms("メールを送る"), ["メー", "ール", "ルを", "を送", "送る"]);
        assert_eq!(forms("이메일을 보내"), ["이메", "메일", "일을", "보내"]);
        assert_eq!(forms("ส่งอีเมล").len(), 7, "vowels and tone marks belong to the word");
        assert_eq!(forms("用GitHub提交v2"), ["用", "github", "git", "hub", "提交", "v2"]);
        assert_eq!(forms(&"猫".repeat(1000)).len(), 999, "a long sentence is not data");
    }

    #[test]
    fn stop_words_are_sorted_for_the_lookup() {
        assert!(STOP_WORDS.is_sorted() && LIGHT_WORDS.is_sorted());
        assert!(is_stop_word("the") && !is_stop_word("issue"));
        assert!(is_light_word("make") && !is_light_word("issue"));
    }

    #[test]
    fn inflections_share_a_stem() {
        assert_eq!(stem("repositories"), stem("repository"));
        assert_eq!(stem("creating"), stem("create"));
        assert_eq!(stem("deleted"), stem("deletes"));
    }
}
