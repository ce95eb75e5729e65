//! The table of related words, `synonyms.txt`: words of one meaning, related words, and phrases of everyday language.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use super::tokens::stem;

const TABLE: &str = include_str!("synonyms.txt");

/// Weight of a word with the same meaning, compared with the word of the question itself.
const SAME: f32 = 0.8;

/// Weight of a related word.
const NEAR: f32 = 0.45;

/// Weight of a word that tools use for a word or phrase of everyday language.
const EVERYDAY: f32 = 0.6;

/// Related stems with their weights.
pub(super) type Related = Vec<(String, f32)>;

/// The table by stems.
#[derive(Debug, Default)]
pub(super) struct Synonyms {
    words: BTreeMap<String, BTreeMap<String, f32>>,
    /// Phrases by their first stem, the longest first.
    phrases: BTreeMap<String, Vec<(Vec<String>, Related)>>,
}

static SYNONYMS: LazyLock<Synonyms> = LazyLock::new(|| Synonyms::parse(TABLE));

impl Synonyms {
    /// The table of this build.
    pub(super) fn shared() -> &'static Self {
        &SYNONYMS
    }

    fn parse(table: &str) -> Self {
        let mut synonyms = Self::default();
        for line in table.lines() {
            let stems: Vec<String> = line.split_whitespace().skip(1).map(stem).collect();
            match line.split_whitespace().next() {
                Some("same") => synonyms.relate_all(&stems, SAME),
                Some("near") => synonyms.relate_all(&stems, NEAR),
                Some("from") => synonyms.add_everyday(&stems),
                _ => {}
            }
        }
        for phrases in synonyms.phrases.values_mut() {
            phrases.sort_by_key(|(phrase, _)| std::cmp::Reverse(phrase.len()));
        }
        synonyms
    }

    fn relate_all(&mut self, stems: &[String], weight: f32) {
        for from in stems {
            for to in stems {
                self.relate(from, to, weight);
            }
        }
    }

    fn relate(&mut self, from: &str, to: &str, weight: f32) {
        if from != to {
            let known = self.words.entry(from.to_owned()).or_default().entry(to.to_owned()).or_insert(weight);
            *known = known.max(weight);
        }
    }

    /// Adds `PHRASE to WORDS`. The last `to` divides them, since a phrase may contain the word.
    fn add_everyday(&mut self, stems: &[String]) {
        let Some(at) = stems.iter().rposition(|stem| stem == "to") else { return };
        let (phrase, targets) = (&stems[..at], &stems[at + 1..]);
        match phrase {
            [] => {}
            [word] => targets.iter().for_each(|target| self.relate(word, target, EVERYDAY)),
            [first, ..] => {
                let targets = targets.iter().map(|target| (target.clone(), 1.0)).collect();
                self.phrases.entry(first.clone()).or_default().push((phrase.to_vec(), targets));
            }
        }
    }

    /// Stems that a stem of a question may stand for.
    pub(super) fn of_word(&self, stem: &str) -> impl Iterator<Item = (&str, f32)> {
        self.words.get(stem).into_iter().flatten().map(|(stem, weight)| (stem.as_str(), *weight))
    }

    /// The longest phrase at the beginning of these stems: its length and the stems that it stands for.
    pub(super) fn of_phrase(&self, stems: &[String]) -> Option<(usize, &Related)> {
        let phrases = self.phrases.get(stems.first()?)?;
        let (phrase, related) = phrases.iter().find(|(phrase, _)| stems.starts_with(phrase))?;
        Some((phrase.len(), related))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_of_the_table_has_a_known_form() {
        for line in TABLE.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
            let words: Vec<&str> = line.split_whitespace().collect();
            match words[0] {
                "same" | "near" => assert!(words.len() > 2, "{line}"),
                "from" => {
                    let at = words.iter().rposition(|word| *word == "to");
                    assert!(at.is_some_and(|at| at > 1 && at + 1 < words.len()), "{line}");
                }
                _ => panic!("{line}"),
            }
        }
    }

    #[test]
    fn a_word_stands_for_words_of_the_same_meaning_in_any_inflection() {
        let synonyms = Synonyms::parse("same delete remove\nnear delete drop\nfrom scrap to delete");
        let removed: Vec<_> = synonyms.of_word(&stem("removed")).collect();
        assert_eq!(removed, [(stem("delete").as_str(), SAME)]);
        let deleting: Vec<_> = synonyms.of_word(&stem("deleting")).collect();
        assert_eq!(deleting, [("drop", NEAR), (stem("remove").as_str(), SAME)]);
        assert_eq!(synonyms.of_word("scrap").count(), 1);
    }

    #[test]
    fn the_longest_phrase_wins() {
        let synonyms = Synonyms::parse("from go to to open\nfrom go to bed to sleep");
        let stems = |text: &str| text.split(' ').map(stem).collect::<Vec<_>>();
        assert_eq!(synonyms.of_phrase(&stems("go to bed now")).unwrap().0, 3);
        assert_eq!(synonyms.of_phrase(&stems("go to work")).unwrap().0, 2);
        assert!(synonyms.of_phrase(&stems("go away")).is_none());
    }
}
