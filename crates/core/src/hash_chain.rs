//! The hash chain of the audit log: each line holds the digest of itself and of the line before, so that a line that was
//! changed, taken out or put in afterwards is found. Whoever can write the files can make a new chain from some line on;
//! against that a copy of a later link, kept elsewhere, helps.

use crate::json::Digest;

/// The link that the first line of a process follows.
pub const START: &str = "0000000000000000000000000000000000000000000000000000000000000000";
const CHAIN: &str = ",\"chain\":\"";
const PREV: &str = ",\"prev\":\"";
const HEX: usize = 64;

/// The end of a chain that is being written.
#[derive(Debug, Clone)]
pub struct Chain {
    last: String,
}

impl Default for Chain {
    fn default() -> Self {
        Self { last: START.to_owned() }
    }
}

impl Chain {
    /// Adds a line, an object of JSON with members and its line break, to `out` with its link. The first line of a file
    /// says what it follows. What is no such line is added as it is.
    pub fn append(&mut self, line: &[u8], begins_file: bool, out: &mut Vec<u8>) {
        let Some(members) = line.strip_suffix(b"}\n").filter(|members| members.len() > 1) else {
            return out.extend_from_slice(line);
        };
        let mut body = members.to_vec();
        if begins_file {
            body.extend_from_slice(format!("{PREV}{}\"", self.last).as_bytes());
        }
        self.last = link(&self.last, &body);
        out.extend_from_slice(&body);
        out.extend_from_slice(format!("{CHAIN}{}\"}}\n", self.last).as_bytes());
    }
}

fn link(before: &str, body: &[u8]) -> String {
    Digest::of(&[before.as_bytes(), body].concat()).into()
}

/// What a file of the log shows about its chain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// All lines are as they were written, in their order.
    Whole {
        /// How many there are.
        lines: usize,
        /// The link that the first one follows.
        follows: String,
        /// The last link.
        last: String,
    },
    /// It has no chain: another version wrote it, or it was taken out of every line.
    Unchained,
    /// This line, counted from 1, is not what was written there.
    Broken {
        /// Its number.
        line: usize,
    },
}

/// Compares a file with its chain. A last line without its end was being written when its process ended, and is left out.
pub fn verify(text: &str) -> Verdict {
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    let lines: Vec<&str> = if whole.is_empty() { Vec::new() } else { whole.split('\n').collect() };
    if lines.iter().all(|line| linked(line).is_none()) {
        return Verdict::Unchained;
    }
    let (mut last, mut follows) = (String::new(), String::new());
    for (number, line) in lines.iter().enumerate() {
        let broken = Verdict::Broken { line: number + 1 };
        let Some((body, chain)) = linked(line) else { return broken };
        if number == 0 {
            let Some((_, prev)) = cut(body, PREV, "\"") else { return broken };
            (last, follows) = (prev.to_owned(), prev.to_owned());
        }
        if link(&last, body.as_bytes()) != chain {
            return broken;
        }
        last = chain.to_owned();
    }
    Verdict::Whole { lines: lines.len(), follows, last }
}

/// A line without its link, and the link.
fn linked(line: &str) -> Option<(&str, &str)> {
    cut(line, CHAIN, "\"}")
}

/// The text before a last member whose value is a digest, and the digest.
fn cut<'t>(text: &'t str, member: &str, end: &str) -> Option<(&'t str, &'t str)> {
    let rest = text.strip_suffix(end)?;
    let at = rest.len().checked_sub(HEX).filter(|at| rest.is_char_boundary(*at))?;
    let (before, digest) = rest.split_at(at);
    let is_hex = digest.bytes().all(|byte| byte.is_ascii_hexdigit());
    before.strip_suffix(member).filter(|_| is_hex).map(|before| (before, digest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn log(chain: &mut Chain, count: usize) -> String {
        let mut out = Vec::new();
        for number in 0..count {
            chain.append(format!("{{\"at_ms\":{number}}}\n").as_bytes(), number == 0, &mut out);
        }
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn g05_a_log_as_it_was_written_is_whole_and_its_next_file_follows_it() {
        let mut chain = Chain::default();
        let (first, second) = (log(&mut chain, 3), log(&mut chain, 2));
        let Verdict::Whole { lines: 3, follows, last } = verify(&first) else { panic!("{first}") };
        assert_eq!(follows, START);
        assert!(matches!(verify(&second), Verdict::Whole { lines: 2, follows, .. } if follows == last));
        assert!(first.lines().all(|line| serde_json::from_str::<serde_json::Value>(line).is_ok()));
        assert!(
            matches!(verify(&first[..first.len() - 5]), Verdict::Whole { lines: 2, .. }),
            "a line half written"
        );
        assert_eq!(verify("{\"at_ms\":1}\n{\"at_ms\":2}\n"), Verdict::Unchained);
        assert_eq!(verify(""), Verdict::Unchained);
    }

    #[test]
    fn g05_a_line_that_was_taken_out_put_in_or_moved_is_found() {
        let text = log(&mut Chain::default(), 4);
        let lines: Vec<&str> = text.lines().collect();
        let broken = |lines: &[&str]| match verify(&format!("{}\n", lines.join("\n"))) {
            Verdict::Broken { line } => line,
            other @ (Verdict::Whole { .. } | Verdict::Unchained) => panic!("{other:?}"),
        };
        assert_eq!(broken(&[lines[0], lines[2], lines[3]]), 2);
        assert_eq!(broken(&[lines[1], lines[2], lines[3]]), 1);
        assert_eq!(broken(&[lines[0], lines[2], lines[1], lines[3]]), 2);
        assert_eq!(broken(&[lines[0], "{\"at_ms\":9}", lines[1]]), 2);
        assert_eq!(broken(&[lines[0], lines[0], lines[1]]), 2);
    }

    proptest! {
        #[test]
        fn g05_no_changed_byte_of_a_chained_log_goes_unnoticed(at in 0_usize..200, to in 33_u8..127) {
            let text = log(&mut Chain::default(), 3);
            let at = at.min(text.len() - 2);
            let mut bytes = text.clone().into_bytes();
            prop_assume!(bytes[at] != to && bytes[at] != b'\n');
            bytes[at] = to;
            let changed = String::from_utf8(bytes).unwrap();
            let same = verify(&changed) == verify(&text);
            prop_assert!(!same, "{}", changed);
        }
    }
}
