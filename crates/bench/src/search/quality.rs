//! Quality of answers: top-1, top-5 and MRR with confidence intervals.

use crate::question_set::{Half, Level, Question};

/// Quantile of the normal distribution for 95 %.
const Z: f64 = 1.96;

/// Samples of a bootstrap.
const SAMPLES: usize = 2000;

/// A share or mean with its 95 % interval.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Estimate {
    pub(crate) value: f64,
    pub(crate) low: f64,
    pub(crate) high: f64,
}

impl Estimate {
    /// Wilson interval of a share.
    fn of_share(count: usize, all: usize) -> Self {
        let (n, value) = (all.max(1) as f64, count as f64 / all.max(1) as f64);
        let scale = 1.0 + Z * Z / n;
        let middle = (value + Z * Z / (2.0 * n)) / scale;
        let width = Z * (value * (1.0 - value) / n + Z * Z / (4.0 * n * n)).sqrt() / scale;
        Self { value, low: (middle - width).max(0.0), high: (middle + width).min(1.0) }
    }

    /// Bootstrap interval of a mean.
    fn of_mean(values: &[f64]) -> Self {
        let value = values.iter().sum::<f64>() / values.len().max(1) as f64;
        let mut random = Random(0x9e37_79b9_7f4a_7c15);
        let mut sample = || {
            let sum: f64 = (0..values.len()).map(|_| values[random.below(values.len())]).sum();
            sum / values.len().max(1) as f64
        };
        let mut means: Vec<f64> = (0..SAMPLES).map(|_| sample()).collect();
        means.sort_by(f64::total_cmp);
        let at = |share: f64| means[((SAMPLES - 1) as f64 * share).round() as usize];
        Self { value, low: at(0.025), high: at(0.975) }
    }

    /// The estimate as text, in percent.
    pub(crate) fn percent(&self) -> String {
        let percent = |value: f64| value * 100.0;
        format!("{:.1} ({:.1} to {:.1})", percent(self.value), percent(self.low), percent(self.high))
    }

    /// The estimate as text.
    pub(crate) fn plain(&self) -> String {
        format!("{:.3} ({:.3} to {:.3})", self.value, self.low, self.high)
    }
}

/// Xorshift with a fixed seed: a report of the same answers is the same.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % limit.max(1) as u64) as usize
    }
}

/// The result of one search: the rank of the right answer to each question.
#[derive(Debug)]
pub(crate) struct Candidate {
    pub(crate) name: &'static str,
    ranks: Vec<(Level, Option<usize>)>,
}

impl Candidate {
    pub(crate) fn new(name: &'static str, questions: &[Question], answers: &[Vec<String>]) -> Self {
        let rank = |question: &Question, answer: &[String]| {
            answer.iter().position(|tool| question.right.contains(tool))
        };
        let pairs = questions.iter().zip(answers);
        Self {
            name,
            ranks: pairs.map(|(question, answer)| (question.level, rank(question, answer))).collect(),
        }
    }

    /// Ranks of the questions of a level, or of all.
    fn of(&self, level: Option<Level>) -> Vec<Option<usize>> {
        let fits = |(of, _): &&(Level, Option<usize>)| level.is_none_or(|level| *of == level);
        self.ranks.iter().filter(fits).map(|(_, rank)| *rank).collect()
    }

    pub(crate) fn count(&self, level: Option<Level>) -> usize {
        self.of(level).len()
    }

    /// Share of questions whose right answer is among the first `top`.
    pub(crate) fn top(&self, top: usize, level: Option<Level>) -> Estimate {
        let ranks = self.of(level);
        let found = ranks.iter().filter(|rank| rank.is_some_and(|rank| rank < top)).count();
        Estimate::of_share(found, ranks.len())
    }

    /// Mean reciprocal rank.
    pub(crate) fn mrr(&self, level: Option<Level>) -> Estimate {
        Estimate::of_mean(&reciprocals(&self.of(level)))
    }

    /// Difference of the top-5 shares of two candidates, with an interval over the same questions.
    pub(crate) fn ahead_of(&self, other: &Self, level: Option<Level>) -> Estimate {
        let found = |rank: &Option<usize>| f64::from(u8::from(rank.is_some_and(|rank| rank < 5)));
        let pairs = self.of(level).into_iter().zip(other.of(level));
        Estimate::of_mean(&pairs.map(|(ours, theirs)| found(&ours) - found(&theirs)).collect::<Vec<_>>())
    }
}

fn reciprocals(ranks: &[Option<usize>]) -> Vec<f64> {
    ranks.iter().map(|rank| rank.map_or(0.0, |rank| 1.0 / (rank + 1) as f64)).collect()
}

/// Results of all searches on one half of the questions.
#[derive(Debug)]
pub(crate) struct Quality {
    pub(crate) half: Half,
    /// gripfast first.
    pub(crate) candidates: [Candidate; 3],
}

impl Quality {
    pub(crate) fn new(half: Half, candidates: [Candidate; 3]) -> Self {
        Self { half, candidates }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_has_its_wilson_interval() {
        let estimate = Estimate::of_share(9, 10);
        assert_eq!(estimate.percent(), "90.0 (59.6 to 98.2)");
        assert_eq!(Estimate::of_share(10, 10).percent(), "100.0 (72.2 to 100.0)");
        assert_eq!(Estimate::of_share(0, 0).value, 0.0);
    }

    #[test]
    fn a_mean_has_an_interval_around_it() {
        let values: Vec<f64> = (0..100).map(|number| f64::from(number % 2)).collect();
        let estimate = Estimate::of_mean(&values);
        assert_eq!(estimate.value, 0.5);
        assert!(
            (0.38..0.43).contains(&estimate.low) && (0.57..0.62).contains(&estimate.high),
            "{estimate:?}"
        );
    }

    #[test]
    fn ranks_become_shares_and_reciprocals() {
        let question = |level| Question { level, text: String::new(), right: vec!["s/right".to_owned()] };
        let answer = |wrong: usize| {
            let mut answer = vec!["s/wrong".to_owned(); wrong];
            answer.push("s/right".to_owned());
            answer
        };
        let questions = [question(Level::Easy), question(Level::Easy), question(Level::Hard)];
        let ours = Candidate::new("ours", &questions, &[answer(0), answer(1), answer(7)]);
        assert_eq!(ours.top(1, Some(Level::Easy)).value, 0.5);
        assert_eq!(ours.top(5, Some(Level::Easy)).value, 1.0);
        assert_eq!(ours.top(5, Some(Level::Hard)).value, 0.0);
        assert_eq!(ours.mrr(Some(Level::Easy)).value, 0.75);
        let others = Candidate::new("other", &questions, &[answer(0), Vec::new(), answer(7)]);
        assert_eq!(ours.ahead_of(&others, Some(Level::Easy)).value, 0.5);
        assert_eq!(ours.ahead_of(&others, Some(Level::Hard)).value, 0.0);
    }
}
