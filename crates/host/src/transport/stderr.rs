//! The last lines a child wrote to stderr, bounded in number and length: the reason of a crash is nearly
//! always among them.

use gripfast_core::failure::cause_line::cause_line;
use gripfast_core::redact;
use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The last stderr lines of one upstream; they outlive the child that wrote them.
#[derive(Debug, Default)]
pub struct StderrRing {
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    lines: VecDeque<String>,
    /// How many there were before the first of them.
    gone: u64,
    /// The number of the first line after the last answer.
    since_answer: u64,
}

/// Lines out of a log that goes on, numbered from zero.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StderrLines {
    /// The number of the first of these lines, or of the next one that will come.
    pub first: u64,
    /// The lines, oldest first.
    pub lines: Vec<String>,
}

impl StderrLines {
    /// The number of the line that comes after these.
    #[must_use]
    pub fn next(&self) -> u64 {
        self.first + self.lines.len() as u64
    }
}

impl StderrRing {
    /// Lines that are kept.
    pub const LINES: usize = 200;
    /// Bytes of one line that are kept.
    pub const LINE_BYTES: usize = 1024;

    /// Takes a line; the oldest one makes room.
    pub fn push(&self, line: &[u8]) {
        let cut = &line[..line.len().min(Self::LINE_BYTES)];
        let text = redact::text(&String::from_utf8_lossy(cut)).trim_end().to_owned();
        let mut kept = self.kept();
        if kept.lines.len() == Self::LINES {
            kept.lines.pop_front();
            kept.gone += 1;
        }
        kept.lines.push_back(text);
    }

    /// The last `count` lines, oldest first.
    pub fn last(&self, count: usize) -> Vec<String> {
        let lines = &self.kept().lines;
        lines.iter().skip(lines.len().saturating_sub(count)).cloned().collect()
    }

    /// The lines from number `from` on, as far as they are kept. Whoever asks for those after the last ones it
    /// got sees by `first` whether any were missed.
    pub fn from(&self, from: u64) -> StderrLines {
        let kept = self.kept();
        let known = kept.gone + kept.lines.len() as u64;
        let first = from.clamp(kept.gone, known);
        let skipped = usize::try_from(first - kept.gone).unwrap_or(usize::MAX);
        StderrLines { first, lines: kept.lines.iter().skip(skipped).cloned().collect() }
    }

    /// The server has answered with a result: nothing that it wrote before can be why it ends.
    pub fn answered(&self) {
        let mut kept = self.kept();
        kept.since_answer = kept.gone + kept.lines.len() as u64;
    }

    /// How many of the lines that are kept came after the last answer.
    pub fn since_answer(&self) -> usize {
        self.kept().new_lines().count()
    }

    /// The line since the last answer that most probably says why it ended.
    pub fn last_words(&self) -> Option<String> {
        cause_line(self.kept().new_lines().map(String::as_str)).map(str::to_owned)
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Kept {
    fn new_lines(&self) -> impl Iterator<Item = &String> {
        let old = usize::try_from(self.since_answer.saturating_sub(self.gone)).unwrap_or(usize::MAX);
        self.lines.iter().skip(old)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_follows_sees_each_line_once_and_what_was_missed() {
        let ring = StderrRing::default();
        assert_eq!(ring.from(0), StderrLines::default());
        ["a", "b"].iter().for_each(|line| ring.push(line.as_bytes()));
        let seen = ring.from(0);
        assert_eq!((seen.first, seen.next(), seen.lines), (0, 2, vec!["a".to_owned(), "b".to_owned()]));
        ring.push(b"c");
        assert_eq!(ring.from(2), StderrLines { first: 2, lines: vec!["c".to_owned()] });
        assert_eq!(ring.from(99), StderrLines { first: 3, lines: Vec::new() }, "of a later run, or nonsense");
        (0..StderrRing::LINES).for_each(|_| ring.push(b"x"));
        assert_eq!(ring.from(2).first, 3, "one was missed");
    }

    #[test]
    fn a_line_from_before_the_last_answer_is_no_cause() {
        let ring = StderrRing::default();
        ring.push(b"error: no cache yet");
        assert_eq!(ring.last_words().as_deref(), Some("error: no cache yet"));
        ring.answered();
        assert_eq!((ring.last_words(), ring.last(5).len()), (None, 1), "it is still shown");
        ["Error: out of disk space", "bye"].iter().for_each(|line| ring.push(line.as_bytes()));
        assert_eq!(ring.last_words().as_deref(), Some("Error: out of disk space"));
        assert_eq!(ring.since_answer(), 2);
        (0..StderrRing::LINES).for_each(|_| ring.push(b"x"));
        assert_eq!(ring.since_answer(), StderrRing::LINES);
    }

    #[test]
    fn what_looks_like_a_token_is_kept_nowhere() {
        let ring = StderrRing::default();
        ring.push(b"cannot log in with ghp_0123456789abcdef\n");
        let shown = "cannot log in with ********************";
        assert_eq!((ring.last(1), ring.last_words().as_deref()), (vec![shown.to_owned()], Some(shown)));
        assert_eq!(ring.from(0).lines, [shown]);
    }

    #[test]
    fn g06_a_child_that_floods_stderr_costs_a_bounded_amount_of_memory() {
        let ring = StderrRing::default();
        for n in 0..10_000 {
            ring.push(format!("{n} {}", "x".repeat(5000)).as_bytes());
        }
        assert_eq!(ring.last(usize::MAX).len(), StderrRing::LINES);
        assert!(ring.last(1)[0].starts_with("9999 ") && ring.last(1)[0].len() <= StderrRing::LINE_BYTES);
    }
}
