//! Reciprocal rank fusion: one ranking out of several, by the ranks of the hits. Scores of different searches cannot be
//! compared, ranks can.

use std::collections::BTreeMap;

use super::Hit;

/// Damping of the first ranks: with it, two good ranks are worth more than one first rank.
const DAMPING: f32 = 60.0;

/// Hits in the middle of a ranking, with their ranks in the others.
#[derive(Default)]
struct Ranks {
    score: f32,
    /// Rank in the earliest ranking that has the tool, to break ties.
    first: (usize, usize),
}

/// Merges rankings of keys, each best first. Equal scores are ordered by the earlier ranking. A key that a ranking
/// repeats counts once.
#[must_use]
pub fn fuse(rankings: &[Vec<String>], limit: usize) -> Vec<Hit> {
    let mut merged: BTreeMap<&str, Ranks> = BTreeMap::new();
    for (number, ranking) in rankings.iter().enumerate() {
        let mut seen: std::collections::BTreeSet<&str> = std::collections::BTreeSet::new();
        for (rank, key) in ranking.iter().enumerate().filter(|(_, key)| seen.insert(key)) {
            let ranks =
                merged.entry(key).or_insert_with(|| Ranks { first: (number, rank), ..Ranks::default() });
            ranks.score += 1.0 / (DAMPING + 1.0 + rank as f32);
        }
    }
    let mut merged: Vec<(&str, Ranks)> = merged.into_iter().collect();
    merged.sort_by(|(_, left), (_, right)| {
        right.score.total_cmp(&left.score).then_with(|| left.first.cmp(&right.first))
    });
    merged.truncate(limit);
    merged.into_iter().map(|(key, ranks)| Hit { key: key.to_owned(), score: ranks.score }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fused(rankings: &[&[&str]], limit: usize) -> Vec<String> {
        let rankings: Vec<Vec<String>> =
            rankings.iter().map(|keys| keys.iter().map(|key| (*key).to_owned()).collect()).collect();
        fuse(&rankings, limit).into_iter().map(|hit| hit.key).collect()
    }

    #[test]
    fn a_tool_that_both_searches_find_is_before_one_that_only_one_finds() {
        assert_eq!(fused(&[&["a", "both"], &["b", "both"]], 9), ["both", "a", "b"]);
    }

    #[test]
    fn equal_scores_keep_the_order_of_the_first_ranking() {
        assert_eq!(fused(&[&["x", "y"], &["y", "x"]], 9), ["x", "y"]);
        assert_eq!(fused(&[&["x"], &["y"]], 9), ["x", "y"]);
    }

    #[test]
    fn one_ranking_alone_is_not_changed() {
        assert_eq!(fused(&[&["c", "a", "b"], &[]], 9), ["c", "a", "b"]);
        assert_eq!(fused(&[&[], &["c", "a", "b"]], 2), ["c", "a"]);
        assert_eq!(fused(&[], 9), [""; 0]);
    }

    #[test]
    fn a_repeated_key_counts_once() {
        assert_eq!(fused(&[&["a", "b", "b", "b"], &["a"]], 9), ["a", "b"]);
        let hits = fuse(&[vec!["b".to_owned(), "b".to_owned()]], 9);
        assert_eq!(hits.len(), 1);
        assert!((hits[0].score - 1.0 / 61.0).abs() < 1e-6, "{hits:?}");
    }

    proptest::proptest! {
        #[test]
        fn every_key_of_any_rankings_is_ranked_once_with_falling_scores(
            rankings in proptest::collection::vec(proptest::collection::vec("[a-f]", 0..8), 0..4),
        ) {
            let hits = fuse(&rankings, usize::MAX);
            let mut keys: Vec<&str> = hits.iter().map(|hit| hit.key.as_str()).collect();
            proptest::prop_assert!(hits.is_sorted_by(|left, right| left.score >= right.score));
            keys.sort_unstable();
            let mut all: Vec<&str> = rankings.iter().flatten().map(String::as_str).collect();
            all.sort_unstable();
            all.dedup();
            proptest::prop_assert_eq!(keys, all);
        }
    }
}
