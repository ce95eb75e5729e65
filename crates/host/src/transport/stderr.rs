//! The last lines a child wrote to stderr, bounded in number and length: the reason of a crash is nearly
//! always among them.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

/// The last stderr lines of one upstream; they outlive the child that wrote them.
#[derive(Debug, Default)]
pub struct StderrRing {
    lines: Mutex<VecDeque<String>>,
}

impl StderrRing {
    /// Lines that are kept.
    pub const LINES: usize = 200;
    /// Bytes of one line that are kept.
    pub const LINE_BYTES: usize = 1024;

    /// Takes a line; the oldest one makes room.
    pub fn push(&self, line: &[u8]) {
        let cut = &line[..line.len().min(Self::LINE_BYTES)];
        let text = String::from_utf8_lossy(cut).trim_end().to_owned();
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        if lines.len() == Self::LINES {
            lines.pop_front();
        }
        lines.push_back(text);
    }

    /// The last `count` lines, oldest first.
    pub fn last(&self, count: usize) -> Vec<String> {
        let lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        lines.iter().skip(lines.len().saturating_sub(count)).cloned().collect()
    }

    /// The last line that says something.
    pub fn last_words(&self) -> Option<String> {
        let lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        lines.iter().rev().find(|line| !line.trim().is_empty()).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
