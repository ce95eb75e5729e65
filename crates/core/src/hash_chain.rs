//! The hash chain of the audit log: each line contains the digest of itself and the line before, so that a changed,
//! removed or inserted line is detected. A user who can write the files can build a new chain from some line on; a copy
//! of a later link that is kept elsewhere detects that.

use crate::json::Digest;

/// The link before the first line of a process.
pub const START: &str = "0000000000000000000000000000000000000000000000000000000000000000";
const CHAIN: &str = ",\"chain\":\"";
const PREV: &str = ",\"prev\":\"";
const HEX: usize = 64;

/// The end of a chain that is being written.
#[derive(Debug, Clone)]
pub struct HashChain {
    last: String,
}

impl Default for HashChain {
    fn default() -> Self {
        Self { last: START.to_owned() }
    }
}

impl HashChain {
    /// Appends a line, a non-empty JSON object with its line break, to `out` with its link. The first line of a file
    /// also contains the previous link. Anything else is appended unchanged.
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

/// Result of verifying a log file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ChainVerdict {
    /// All lines are as they were written, in order.
    Intact {
        /// Number of lines.
        lines: usize,
        /// The link before the first line.
        previous: String,
        /// The last link.
        last: String,
    },
    /// No line has a link: another version wrote the file, or the links were removed from every line.
    Unchained,
    /// This line, counted from 1, does not match the chain.
    Broken {
        /// Its number.
        line: usize,
    },
}

/// Verifies a file. A last line without its line break was being written when the process ended, and is ignored.
pub fn verify(text: &str) -> ChainVerdict {
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    let lines: Vec<&str> = if whole.is_empty() { Vec::new() } else { whole.split('\n').collect() };
    if lines.iter().all(|line| split_link(line).is_none()) {
        return ChainVerdict::Unchained;
    }
    let (mut last, mut previous) = (String::new(), String::new());
    for (number, line) in lines.iter().enumerate() {
        let broken = ChainVerdict::Broken { line: number + 1 };
        let Some((body, chain)) = split_link(line) else { return broken };
        if number == 0 {
            let Some((_, prev)) = cut(body, PREV, "\"") else { return broken };
            (last, previous) = (prev.to_owned(), prev.to_owned());
        }
        if link(&last, body.as_bytes()) != chain {
            return broken;
        }
        last = chain.to_owned();
    }
    ChainVerdict::Intact { lines: lines.len(), previous, last }
}

/// Splits a line into its text and its link.
fn split_link(line: &str) -> Option<(&str, &str)> {
    cut(line, CHAIN, "\"}")
}

/// Splits off a last member whose value is a digest.
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

    fn log(chain: &mut HashChain, count: usize) -> String {
        let mut out = Vec::new();
        for number in 0..count {
            chain.append(format!("{{\"at_ms\":{number}}}\n").as_bytes(), number == 0, &mut out);
        }
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn g05_an_unchanged_log_is_intact_and_links_to_its_next_file() {
        let mut chain = HashChain::default();
        let (first, second) = (log(&mut chain, 3), log(&mut chain, 2));
        let ChainVerdict::Intact { lines: 3, previous, last } = verify(&first) else { panic!("{first}") };
        assert_eq!(previous, START);
        assert!(
            matches!(verify(&second), ChainVerdict::Intact { lines: 2, previous, .. } if previous == last)
        );
        assert!(first.lines().all(|line| serde_json::from_str::<serde_json::Value>(line).is_ok()));
        assert!(
            matches!(verify(&first[..first.len() - 5]), ChainVerdict::Intact { lines: 2, .. }),
            "a line half written"
        );
        assert_eq!(verify("{\"at_ms\":1}\n{\"at_ms\":2}\n"), ChainVerdict::Unchained);
        assert_eq!(verify(""), ChainVerdict::Unchained);
    }

    #[test]
    fn g05_a_removed_inserted_or_moved_line_is_detected() {
        let text = log(&mut HashChain::default(), 4);
        let lines: Vec<&str> = text.lines().collect();
        let broken = |lines: &[&str]| match verify(&format!("{}\n", lines.join("\n"))) {
            ChainVerdict::Broken { line } => line,
            other @ (ChainVerdict::Intact { .. } | ChainVerdict::Unchained) => panic!("{other:?}"),
        };
        assert_eq!(broken(&[lines[0], lines[2], lines[3]]), 2);
        assert_eq!(broken(&[lines[1], lines[2], lines[3]]), 1);
        assert_eq!(broken(&[lines[0], lines[2], lines[1], lines[3]]), 2);
        assert_eq!(broken(&[lines[0], "{\"at_ms\":9}", lines[1]]), 2);
        assert_eq!(broken(&[lines[0], lines[0], lines[1]]), 2);
    }

    proptest! {
        #[test]
        fn g05_any_changed_byte_of_a_chained_log_is_detected(at in 0_usize..200, to in 33_u8..127) {
            let text = log(&mut HashChain::default(), 3);
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
