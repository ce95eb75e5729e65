//! Summary of a test run: one line per step.

use std::time::{Duration, Instant};

#[derive(Default)]
pub(super) struct Report {
    lines: Vec<Line>,
}

struct Line {
    step: &'static str,
    result: Result<Outcome, String>,
    took: Duration,
}

/// The result of a step that did not fail.
pub(super) enum Outcome {
    /// Success, with a remark that may be empty.
    Ok(String),
    /// Parts that were left out, with the reason.
    LeftOut(String),
}

/// Whether a step passed, for the steps that depend on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    Passed,
    Failed,
}

impl Report {
    /// Prints the name of a step, runs it, prints a failure at once, and keeps the result for the summary.
    pub(super) fn step(
        &mut self,
        step: &'static str,
        work: impl FnOnce() -> Result<Outcome, String>,
    ) -> Verdict {
        println!("── {step}");
        let start = Instant::now();
        let result = work();
        match &result {
            Ok(Outcome::Ok(_)) => {}
            Ok(Outcome::LeftOut(what)) => eprintln!("left out: {what}"),
            Err(why) => eprintln!("failed: {why}"),
        }
        let verdict = if result.is_ok() { Verdict::Passed } else { Verdict::Failed };
        self.lines.push(Line { step, result, took: start.elapsed() });
        verdict
    }

    pub(super) fn failed(&self) -> bool {
        self.lines.iter().any(|line| line.result.is_err())
    }

    pub(super) fn print(&self, filtered: bool) {
        println!("\n── summary");
        print!("{}", self.render());
        if filtered {
            println!("with a filter: only the matching tests ran, and no other check");
        }
    }

    fn render(&self) -> String {
        let width = self.lines.iter().map(|line| line.step.len()).max().unwrap_or_default();
        let mut text = String::new();
        for Line { step, result, took } in &self.lines {
            let (word, remark) = match result {
                Ok(Outcome::Ok(remark)) => ("ok", remark),
                Ok(Outcome::LeftOut(what)) => ("left out", what),
                Err(why) => ("FAILED", why),
            };
            // Only the first line: the whole message was printed when the step ended.
            let remark = remark.lines().next().unwrap_or_default();
            let row = format!("{step:width$}  {word:8}  {:>7.1} s  {remark}", took.as_secs_f64());
            text.push_str(row.trim_end());
            text.push('\n');
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_fails_if_one_step_fails_and_shows_all_steps() {
        let mut report = Report::default();
        assert_eq!(report.step("format", || Ok(Outcome::Ok(String::new()))), Verdict::Passed);
        assert_eq!(report.step("peers", || Ok(Outcome::LeftOut("no node".to_owned()))), Verdict::Passed);
        assert!(!report.failed());
        assert_eq!(report.step("tests", || Err("1 failed\nmore".to_owned())), Verdict::Failed);
        assert!(report.failed());
        for line in &mut report.lines {
            line.took = Duration::from_millis(1_250);
        }
        assert_eq!(
            report.render(),
            "format  ok            1.2 s\npeers   left out      1.2 s  no node\ntests   FAILED        1.2 s  1 failed\n"
        );
    }
}
