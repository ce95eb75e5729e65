//! A server that must run once: while it lives, it appends its process id to a file.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::fault_setup::counter_file;

/// Config of the server, without timeouts.
pub(super) fn config(gripfast: &Path, dir: &Path) -> Value {
    let (gripfast, lines) = (gripfast.display(), lines_file(dir));
    let script = format!(
        "while echo $$ >>'{}'; do sleep 0.05; done & exec '{gripfast}' demo-server --counter-file '{}'",
        lines.display(),
        counter_file(dir),
    );
    json!({ "command": "sh", "args": ["-c", script], "placement": "one" })
}

fn lines_file(dir: &Path) -> PathBuf {
    dir.join("lines")
}

/// Process ids in the order in which they wrote, each as often as it wrote after another one.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct WriterLog {
    /// Of the lines that a process writes all the time.
    alive: Vec<String>,
    /// Of the records of calls.
    calls: Vec<String>,
}

impl WriterLog {
    /// Reads the files in this directory.
    pub(super) fn read(dir: &Path) -> Self {
        let read = |path: PathBuf| std::fs::read_to_string(path).unwrap_or_default();
        Self { alive: turns(&read(lines_file(dir))), calls: turns(&read(counter_file(dir).into())) }
    }

    /// Violations since an earlier state: two writers at once, or no new one.
    pub(super) fn violations_since(&self, before: &Self) -> Vec<String> {
        let repeated = |turns: &[String]| {
            let distinct: std::collections::BTreeSet<_> = turns.iter().collect();
            distinct.len() < turns.len()
        };
        let mut violations = Vec::new();
        if repeated(&self.alive) || repeated(&self.calls) {
            violations.push(format!("two writers at once: {self:?}"));
        }
        if self.alive.len() <= before.alive.len() {
            violations.push("no other replica has started the singleton server".to_owned());
        }
        violations
    }
}

/// The last word of each complete line, without repetitions of neighbours.
fn turns(text: &str) -> Vec<String> {
    let complete = text.rsplit_once('\n').map_or("", |(complete, _)| complete);
    let mut turns: Vec<String> =
        complete.lines().filter_map(|line| line.split(' ').next_back()).map(str::to_owned).collect();
    turns.dedup();
    turns
}

#[cfg(test)]
mod tests {
    use super::*;

    fn writers(alive: &str, calls: &str) -> WriterLog {
        WriterLog { alive: turns(alive), calls: turns(calls) }
    }

    #[test]
    fn writers_that_take_turns_are_noticed() {
        let before = writers("1\n1\n", "a 1 1\n");
        assert!(writers("1\n1\n2\n2\n3", "a 1 1\nb 2 2\n").violations_since(&before).is_empty());
        for (alive, calls) in [("1\n2\n1\n", ""), ("1\n2\n", "a 1 1\nb 2 2\nc 3 1\n")] {
            let found = writers(alive, calls).violations_since(&before);
            assert!(found[0].starts_with("two writers at once"), "{found:?}");
        }
        assert_eq!(before.violations_since(&before), ["no other replica has started the singleton server"]);
    }
}
