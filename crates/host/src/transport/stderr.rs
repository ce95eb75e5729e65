//! Ring of the last lines that a child wrote to stderr, bounded in number and length. The reason of a crash is nearly
//! always among them.

use crate::sync::Mutex;
use gripfast_core::failure::cause_line::cause_line;
use gripfast_core::redact;
use std::collections::VecDeque;

/// Last stderr lines of one server; they outlive the child that wrote them.
#[derive(Debug, Default)]
pub struct StderrRing {
    state: Mutex<RingState>,
}

#[derive(Debug, Default)]
struct RingState {
    lines: VecDeque<String>,
    /// Number of lines dropped before the first kept one.
    dropped: u64,
    /// Number of the first line after the last result.
    since_answer: u64,
}

/// Consecutive lines of a stderr log, numbered from zero.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StderrLines {
    /// Number of the first of these lines, or of the next line if there are none.
    pub first: u64,
    /// Lines, oldest first.
    pub lines: Vec<String>,
}

impl StderrLines {
    /// Returns the number of the line after these.
    #[must_use]
    pub fn next(&self) -> u64 {
        self.first + self.lines.len() as u64
    }
}

impl StderrRing {
    /// Maximum number of kept lines.
    pub const LINES: usize = 200;
    /// Maximum bytes kept of one line.
    pub const LINE_BYTES: usize = 1024;

    /// Appends a line; drops the oldest one if the ring is full.
    pub fn push(&self, line: &[u8]) {
        let cut = &line[..line.len().min(Self::LINE_BYTES)];
        let text = redact::text(&String::from_utf8_lossy(cut)).trim_end().to_owned();
        let mut kept = self.state.lock();
        if kept.lines.len() == Self::LINES {
            kept.lines.pop_front();
            kept.dropped += 1;
        }
        kept.lines.push_back(text);
    }

    /// Returns the last `count` lines, oldest first.
    pub fn last(&self, count: usize) -> Vec<String> {
        let lines = &self.state.lock().lines;
        lines.iter().skip(lines.len().saturating_sub(count)).cloned().collect()
    }

    /// Returns the kept lines from number `from` on. A reader that follows the log sees by `first` whether it missed
    /// lines.
    pub fn lines_from(&self, from: u64) -> StderrLines {
        let kept = self.state.lock();
        let known = kept.dropped + kept.lines.len() as u64;
        let first = from.clamp(kept.dropped, known);
        let skipped = usize::try_from(first - kept.dropped).unwrap_or(usize::MAX);
        StderrLines { first, lines: kept.lines.iter().skip(skipped).cloned().collect() }
    }

    /// Marks that the server has answered with a result: earlier lines cannot be the cause of its exit.
    pub fn mark_answered(&self) {
        let mut kept = self.state.lock();
        kept.since_answer = kept.dropped + kept.lines.len() as u64;
    }

    /// Returns the number of kept lines after the last result.
    pub fn lines_since_answer(&self) -> usize {
        self.state.lock().new_lines().count()
    }

    /// Returns the line since the last result that most probably explains the exit.
    pub fn likely_cause(&self) -> Option<String> {
        cause_line(self.state.lock().new_lines().map(String::as_str)).map(str::to_owned)
    }
}

impl RingState {
    fn new_lines(&self) -> impl Iterator<Item = &String> {
        let old = usize::try_from(self.since_answer.saturating_sub(self.dropped)).unwrap_or(usize::MAX);
        self.lines.iter().skip(old)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reader_sees_each_line_once_and_notices_missed_lines() {
        let ring = StderrRing::default();
        assert_eq!(ring.lines_from(0), StderrLines::default());
        ["a", "b"].iter().for_each(|line| ring.push(line.as_bytes()));
        let seen = ring.lines_from(0);
        assert_eq!((seen.first, seen.next(), seen.lines), (0, 2, vec!["a".to_owned(), "b".to_owned()]));
        ring.push(b"c");
        assert_eq!(ring.lines_from(2), StderrLines { first: 2, lines: vec!["c".to_owned()] });
        assert_eq!(
            ring.lines_from(99),
            StderrLines { first: 3, lines: Vec::new() },
            "a number beyond the last line"
        );
        (0..StderrRing::LINES).for_each(|_| ring.push(b"x"));
        assert_eq!(ring.lines_from(2).first, 3, "one was missed");
    }

    #[test]
    fn a_line_before_the_last_result_is_no_cause() {
        let ring = StderrRing::default();
        ring.push(b"error: no cache yet");
        assert_eq!(ring.likely_cause().as_deref(), Some("error: no cache yet"));
        ring.mark_answered();
        assert_eq!((ring.likely_cause(), ring.last(5).len()), (None, 1), "it is still shown");
        ["Error: out of disk space", "bye"].iter().for_each(|line| ring.push(line.as_bytes()));
        assert_eq!(ring.likely_cause().as_deref(), Some("Error: out of disk space"));
        assert_eq!(ring.lines_since_answer(), 2);
        (0..StderrRing::LINES).for_each(|_| ring.push(b"x"));
        assert_eq!(ring.lines_since_answer(), StderrRing::LINES);
    }

    #[test]
    fn a_token_in_stderr_is_redacted() {
        let ring = StderrRing::default();
        ring.push(b"cannot log in with ghp_0123456789abcdef\n");
        let shown = "cannot log in with ********************";
        assert_eq!((ring.last(1), ring.likely_cause().as_deref()), (vec![shown.to_owned()], Some(shown)));
        assert_eq!(ring.lines_from(0).lines, [shown]);
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
