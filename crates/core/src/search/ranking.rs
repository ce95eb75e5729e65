//! Ranks the tools of an index for a question, like BM25F.
//!
//! Every figure comes from tools that the client may see: the number of tools, the number of tools with a stem, and the
//! stems that stand for a misspelt word. So a score says nothing about tools that are hidden from the client.

use super::index::{FULL, Hit, Postings, ToolIndex};
use super::query::{Term, terms};

/// Effect of the share of the name's words that a question contains.
const NAME_COVERAGE: f32 = 0.3;

/// Effect of the share of the question's words that a tool contains.
const QUESTION_COVERAGE: f32 = 0.6;

/// Weight of a stem that differs from the word of the question by a letter.
const TYPO: f32 = 0.8;

/// Unknown words of a question that stand for similar stems. Each is compared with all stems.
const MAX_TYPOS: usize = 8;

/// Stems that a misspelt word is compared with letter by letter: the first ones in the order of the alphabet.
const MAX_COMPARED: usize = 4096;

/// Tools of an index that a client may see, with the figures that the ranking takes from them. Valid until the index
/// changes.
#[derive(Debug, Clone)]
pub struct VisibleTools {
    /// By the place of a tool.
    tools: Vec<bool>,
    count: usize,
    /// Number of visible tools that have a stem, by the number of the stem.
    frequencies: Vec<u32>,
    generation: u64,
}

impl VisibleTools {
    /// True until the index changes.
    #[must_use]
    pub fn is_valid_for(&self, index: &ToolIndex) -> bool {
        self.generation == index.generation
    }
}

impl ToolIndex {
    /// The tools that a client may see. The result is worth keeping: it costs more than a search.
    #[must_use]
    pub fn visible_tools(&self, is_visible: impl Fn(&str) -> bool) -> VisibleTools {
        let mut visible = VisibleTools {
            tools: vec![false; self.tools.len()],
            count: 0,
            frequencies: vec![0; self.postings.len()],
            generation: self.generation,
        };
        for (place, tool) in self.tools.iter().enumerate() {
            let Some(tool) = tool.as_ref().filter(|tool| is_visible(&tool.key)) else { continue };
            visible.tools[place] = true;
            visible.count += 1;
            for number in &tool.stems {
                visible.frequencies[*number as usize] += 1;
            }
        }
        visible
    }

    /// The best tools for a question, best first. `visible` has the tools that the client may see; `None` means all.
    /// Tools from before the last change of the index are not found. `is_wanted` limits the hits further, without an
    /// effect on scores.
    #[must_use]
    pub fn search(
        &self,
        query: &str,
        limit: usize,
        visible: Option<&VisibleTools>,
        is_wanted: impl Fn(&str) -> bool,
    ) -> Vec<Hit> {
        if visible.is_some_and(|visible| !visible.is_valid_for(self)) {
            return Vec::new();
        }
        let ranking = Ranking { index: self, visible };
        let scores = ranking.scores(&terms(query, |stem| ranking.stem(stem).is_some()));
        let tools = scores.iter().enumerate().filter(|(_, score)| **score > 0.0);
        let mut ranked: Vec<(f32, &str)> =
            tools.filter_map(|(place, score)| Some((*score, &*self.tools[place].as_ref()?.key))).collect();
        let mut hits = Vec::new();
        // Only the best are sorted. If the caller does not want them, the next best follow.
        let mut rest = ranked.as_mut_slice();
        while hits.len() < limit && !rest.is_empty() {
            let count = (limit * 2).clamp(16, 1024).min(rest.len());
            if count < rest.len() {
                rest.select_nth_unstable_by(count, best_first);
            }
            let (best, others) = rest.split_at_mut(count);
            best.sort_unstable_by(best_first);
            let wanted = best.iter().filter(|(_, key)| is_wanted(key));
            hits.extend(
                wanted.take(limit - hits.len()).map(|&(score, key)| Hit { key: key.to_owned(), score }),
            );
            rest = others;
        }
        hits
    }
}

fn best_first(left: &(f32, &str), right: &(f32, &str)) -> std::cmp::Ordering {
    right.0.total_cmp(&left.0).then_with(|| left.1.cmp(right.1))
}

/// An index as one client sees it.
struct Ranking<'a> {
    index: &'a ToolIndex,
    visible: Option<&'a VisibleTools>,
}

/// A stem that visible tools have.
#[derive(Clone, Copy)]
struct VisibleStem<'a> {
    postings: &'a Postings,
    rarity: f32,
}

impl<'a> Ranking<'a> {
    /// The score of each tool by its place.
    fn scores(&self, terms: &[Term]) -> Vec<f32> {
        let count = self.index.tools.len();
        let mut scores = vec![0.0_f32; count];
        let mut covered = vec![0.0_f32; count];
        let mut named = vec![0.0_f32; count];
        let mut best = vec![(0.0_f32, 0.0_f32, 0.0_f32); count];
        let mut touched: Vec<u32> = Vec::new();
        let mut asked = 0.0;
        let mut typos = 0;
        for term in terms {
            let alternatives = self.alternatives(term, &mut typos);
            // A rare word of the same meaning is not worth more than the word of the question.
            let rarity = alternatives.first().map_or(0.0, |(stem, _)| stem.rarity);
            asked += rarity;
            for (stem, weight) in &alternatives {
                let worth = stem.rarity.min(rarity) * weight;
                for posting in stem.postings.tools.iter().filter(|posting| self.sees(posting.tool)) {
                    let score = worth * f32::from(posting.effect) / FULL;
                    let best = &mut best[posting.tool as usize];
                    if best.0 == 0.0 {
                        touched.push(posting.tool);
                    }
                    if score > best.0 {
                        *best = (score, *weight, if posting.in_name { *weight } else { 0.0 });
                    }
                }
            }
            for place in touched.drain(..) {
                let place = place as usize;
                let (score, weight, in_name) = std::mem::take(&mut best[place]);
                scores[place] += score;
                covered[place] += rarity * weight;
                named[place] += in_name;
            }
        }
        for (place, tool) in self.index.tools.iter().enumerate() {
            if let Some(tool) = tool.as_ref().filter(|_| scores[place] > 0.0) {
                let of_name = named[place] / f32::from(tool.name_stems.max(1));
                let of_question = covered[place] / asked;
                scores[place] *= (1.0 + NAME_COVERAGE * of_name.min(1.0))
                    * (1.0 - QUESTION_COVERAGE + QUESTION_COVERAGE * of_question);
            }
        }
        scores
    }

    /// The stems for a term. A term that no visible tool has stands for similar stems, and counts as a typing error.
    fn alternatives(&self, term: &Term, typos: &mut usize) -> Vec<(VisibleStem<'a>, f32)> {
        let known = |(stem, weight): &(String, f32)| Some((self.stem(stem)?, *weight));
        let found: Vec<_> = term.alternatives.iter().filter_map(known).collect();
        if !found.is_empty() || *typos == MAX_TYPOS {
            return found;
        }
        *typos += 1;
        self.similar(&term.alternatives[0].0)
    }

    /// Stems that differ from a misspelt one by a letter, or by two if it is long.
    fn similar(&self, stem: &str) -> Vec<(VisibleStem<'a>, f32)> {
        let length = stem.chars().count();
        let allowed = match length {
            0..4 => return Vec::new(),
            4..8 => 1,
            _ => 2,
        };
        let wanted = letters(stem);
        // Each changed letter changes two bits at most.
        let near = self.index.letters.iter().enumerate();
        let near = near.filter(|(_, letters)| (*letters ^ wanted).count_ones() <= 2 * allowed);
        let near = near.filter_map(|(number, _)| self.visible_stem(number));
        let has_length =
            |near: &VisibleStem<'_>| near.postings.stem.chars().count().abs_diff(length) <= allowed as usize;
        let mut near: Vec<VisibleStem<'a>> = near.filter(has_length).collect();
        if near.len() > MAX_COMPARED {
            near.select_nth_unstable_by(MAX_COMPARED, |left, right| {
                left.postings.stem.cmp(&right.postings.stem)
            });
            near.truncate(MAX_COMPARED);
        }
        let near = near.into_iter().filter_map(|near| {
            let distance = strsim::osa_distance(stem, &near.postings.stem);
            (distance <= allowed as usize).then(|| (near, TYPO / distance.max(1) as f32))
        });
        let mut near: Vec<_> = near.collect();
        near.sort_by(|(left, left_weight), (right, right_weight)| {
            right_weight.total_cmp(left_weight).then_with(|| left.postings.stem.cmp(&right.postings.stem))
        });
        near
    }

    fn stem(&self, stem: &str) -> Option<VisibleStem<'a>> {
        self.index.stems.get(stem).and_then(|number| self.visible_stem(*number as usize))
    }

    /// The stem with this number, if a visible tool has it. The fewer tools have it, the more it says.
    fn visible_stem(&self, number: usize) -> Option<VisibleStem<'a>> {
        let postings = &self.index.postings[number];
        let (all, with) = match self.visible {
            Some(visible) => (visible.count, visible.frequencies[number] as usize),
            None => (self.index.len(), postings.tools.len()),
        };
        let (all, with) = (all as f32, with as f32);
        (with > 0.0).then(|| VisibleStem { postings, rarity: (1.0 + (all - with + 0.5) / (with + 0.5)).ln() })
    }

    fn sees(&self, place: u32) -> bool {
        self.visible.is_none_or(|visible| visible.tools[place as usize])
    }
}

/// The characters of a stem, one bit each, to find similar stems quickly.
pub(super) fn letters(stem: &str) -> u64 {
    stem.chars().fold(0, |bits, char| bits | 1 << (u32::from(char) & 63))
}
