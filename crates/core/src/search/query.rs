//! Turns a question into terms: stems with the related stems that they may stand for.

use super::synonyms::Synonyms;
use super::tokens::{is_stop_word, stem, words};

/// Later words of a question are left out, so that a long text costs no more than a long question.
const MAX_WORDS: usize = 48;

/// Weight of the words of a phrase, compared with the words that the phrase stands for.
const LITERAL: f32 = 0.6;

/// A word or phrase of a question.
#[derive(Debug, PartialEq)]
pub(super) struct Term {
    /// Stems that tools may have for it, each with its weight. The first is the word itself, or a word that the phrase
    /// stands for.
    pub(super) alternatives: Vec<(String, f32)>,
}

impl Term {
    fn of_word(stem: String) -> Self {
        let related = Synonyms::shared().of_word(&stem);
        let related: Vec<(String, f32)> = related.map(|(stem, weight)| (stem.to_owned(), weight)).collect();
        let mut alternatives = vec![(stem, 1.0)];
        alternatives.extend(related);
        Self { alternatives }
    }
}

/// The terms of a question. `is_known` tells whether a stem is in the index.
pub(super) fn terms(question: &str, is_known: impl Fn(&str) -> bool) -> Vec<Term> {
    let mut asked: Vec<String> = Vec::new();
    for word in words(question) {
        if word.parts.is_empty() || is_known(&stem(&word.whole)) {
            asked.push(word.whole);
        } else {
            asked.extend(word.parts);
        }
    }
    asked.truncate(MAX_WORDS);
    let stems: Vec<String> = asked.iter().map(|word| stem(word)).collect();
    let has_meaning = asked.iter().any(|word| !is_stop_word(word));
    let mut terms: Vec<Term> = Vec::new();
    let mut at = 0;
    while at < asked.len() {
        let term = match Synonyms::shared().of_phrase(&stems[at..]) {
            Some((length, related)) => {
                let mut alternatives = related.clone();
                let literal = (at..at + length).filter(|at| !is_stop_word(&asked[*at]));
                alternatives.extend(literal.map(|at| (stems[at].clone(), LITERAL)));
                at += length;
                Term { alternatives }
            }
            None => {
                at += 1;
                if has_meaning && is_stop_word(&asked[at - 1]) {
                    continue;
                }
                Term::of_word(stems[at - 1].clone())
            }
        };
        if !terms.iter().any(|known| known.alternatives[0].0 == term.alternatives[0].0) {
            terms.push(term);
        }
    }
    terms
}

#[cfg(test)]
mod tests {
    use super::*;

    fn first_stems(question: &str) -> Vec<String> {
        let terms = terms(question, |_| false);
        terms.into_iter().map(|term| term.alternatives[0].0.clone()).collect()
    }

    #[test]
    fn words_without_meaning_are_left_out() {
        assert_eq!(first_stems("please can you plot the rainfall"), ["plot", "rainfal"]);
    }

    #[test]
    fn a_question_of_words_without_meaning_is_still_a_question() {
        assert_eq!(first_stems("who is it"), ["who", "is", "it"]);
    }

    #[test]
    fn a_phrase_is_one_term() {
        let terms = terms("get rid of the rainfall", |_| false);
        assert_eq!(terms.len(), 2);
        assert_eq!(terms[0].alternatives[0], (stem("delete"), 1.0));
        assert!(terms[0].alternatives.contains(&("rid".to_owned(), LITERAL)));
    }

    #[test]
    fn a_compound_that_no_tool_has_is_split() {
        assert_eq!(first_stems("rainFall"), ["rain", "fall"]);
        let whole = terms("rainFall", |stem| stem == "rainfal");
        assert_eq!(whole[0].alternatives[0].0, "rainfal");
    }

    #[test]
    fn a_long_text_is_cut() {
        let text: String = (0..10_000).map(|number| format!("word{number} ")).collect();
        assert_eq!(terms(&text, |_| true).len(), MAX_WORDS);
    }
}
