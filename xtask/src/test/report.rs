//! The summary at the end: one line per step.

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

/// How a step ended that did not fail.
pub(super) enum Outcome {
    /// With a remark, or an empty one.
    Ok(String),
    /// What was left out, and why.
    LeftOut(String),
}

/// What the steps that build on this one want to know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    Passed,
    Failed,
}

impl Report {
    /// Announces the step, does it, says at once why it failed, and remembers it for the summary.
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
            println!("a filter was given: only those tests ran, nothing else was checked");
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
            // The rest of a long message was printed when the step ended.
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
    fn a_report_fails_with_its_worst_step_and_shows_all() {
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
