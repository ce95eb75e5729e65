//! `cargo xtask behaviours`: checks that every promise has a test, and generates the pages that show it.
//!
//! A test carries the number of its promise as a word of its name (`b07_…`, `…_c05_…`) or in its doc comment (`B07`). An
//! `#[ignore]`d test does not count. Two hand-written tables name their tests themselves, and this check verifies that
//! those tests exist: the boundaries in `SECURITY.md` and the rows of `docs/eras.md`.

mod boundaries;
mod crossings;
mod list;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use crate::Mode;
use crate::source::tests_in::{TestFn, tests_in};
use crate::workspace::{Workspace, read, rust_files};
use list::Behaviour;

/// The generated pages, from the root of the repository.
const PROMISES: &str = "docs/behaviours.md";
const TESTS: &str = "docs/reference/tests.md";

/// Checks or writes everything. The result is a summary, or all problems.
pub(crate) fn run(workspace: &Workspace, mode: Mode) -> Result<String, String> {
    let sources = test_sources(workspace)?;
    let evidence = Evidence::gather(&sources);
    let page = |path: &str| read(&workspace.root.join(path));
    let mut problems = evidence.problems();
    problems.extend(crossings::problems(&page(crossings::ROWS)?, &page(crossings::SECTIONS)?, &sources));
    let names: Vec<&str> =
        sources.iter().flat_map(|(_, tests)| tests).map(|test| test.name.as_str()).collect();
    problems.extend(boundaries::problems(&page("SECURITY.md")?, &names));
    for (path, text) in [(PROMISES, render_promises(&evidence)), (TESTS, render_tests(&evidence))] {
        let file = workspace.root.join(path);
        match mode {
            Mode::Write => std::fs::write(&file, &text)
                .map_err(|error| format!("cannot write {}: {error}", file.display()))?,
            Mode::Check if std::fs::read_to_string(&file).ok().as_deref() != Some(text.as_str()) => {
                problems.push(format!("{path} is out of date; `cargo xtask behaviours --write` updates it"));
            }
            Mode::Check => {}
        }
    }
    if problems.is_empty() {
        return Ok(evidence.summary());
    }
    Err(format!("{} problem(s) with the behaviours\n{}", problems.len(), problems.join("\n")))
}

/// The path of a file below `crates/`, with slashes, and the tests in it that run.
type Source = (String, Vec<TestFn>);

fn running_tests(text: &str) -> Vec<TestFn> {
    tests_in(text).into_iter().filter(|test| !test.ignored).collect()
}

/// All Rust files under `crates/`. The tests of xtask show no promise.
fn test_sources(workspace: &Workspace) -> Result<Vec<Source>, String> {
    let mut sources = Vec::new();
    for package in workspace.packages.iter().filter(|package| package.name != "xtask") {
        for path in rust_files(&package.dir)? {
            let shown = workspace.display(&path);
            let below = shown.strip_prefix("crates/").unwrap_or(&shown).to_owned();
            sources.push((below, running_tests(&read(&path)?)));
        }
    }
    sources.sort_by(|(one, _), (other, _)| one.cmp(other));
    Ok(sources)
}

/// The tests of each promise.
struct Evidence {
    by_number: BTreeMap<&'static str, Vec<Shown>>,
    /// Tests that name an unknown number.
    strays: Vec<String>,
}

struct Shown {
    file: String,
    test: String,
}

impl Evidence {
    fn gather(sources: &[Source]) -> Self {
        let known: BTreeMap<&str, &'static str> = list::all().map(|b| (b.number, b.number)).collect();
        let mut evidence = Self { by_number: BTreeMap::new(), strays: Vec::new() };
        for (file, tests) in sources {
            for test in tests {
                for number in numbers_of(test) {
                    let Some(number) = known.get(number.as_str()) else {
                        let stray =
                            format!("{file}: test `{}` names {number}, which is not a promise", test.name);
                        evidence.strays.push(stray);
                        continue;
                    };
                    let shown = Shown { file: file.clone(), test: test.name.clone() };
                    evidence.by_number.entry(number).or_default().push(shown);
                }
            }
        }
        evidence
    }

    fn of(&self, number: &str) -> &[Shown] {
        self.by_number.get(number).map_or(&[], Vec::as_slice)
    }

    fn problems(&self) -> Vec<String> {
        let untested = list::all()
            .filter(|behaviour| self.of(behaviour.number).is_empty())
            .map(|behaviour| format!("{} has no test: {}", behaviour.number, behaviour.promise));
        untested.chain(self.strays.iter().cloned()).collect()
    }

    fn summary(&self) -> String {
        let tests: BTreeSet<_> =
            self.by_number.values().flatten().map(|shown| (&shown.file, &shown.test)).collect();
        let promised = list::all().count();
        format!("{} tests show {promised} behaviours", tests.len())
    }
}

/// The numbers in the name and the documentation of a test, each once.
fn numbers_of(test: &TestFn) -> BTreeSet<String> {
    let in_name = test.name.split('_').enumerate().filter(|(position, word)| {
        // `f32` inside a name is a type; at the beginning it is the number of a promise.
        is_number(&word.to_ascii_uppercase())
            && (*position == 0 || list::all().any(|b| b.number.eq_ignore_ascii_case(word)))
    });
    let in_doc = test.doc.split(|char: char| !char.is_ascii_alphanumeric()).filter(|word| is_number(word));
    in_name.map(|(_, word)| word.to_ascii_uppercase()).chain(in_doc.map(str::to_owned)).collect()
}

fn is_number(word: &str) -> bool {
    matches!(word.as_bytes(), [b'B'..=b'H', tens, ones] if tens.is_ascii_digit() && ones.is_ascii_digit())
}

/// The page with all promises. The number of tests links to the section of the other page.
fn render_promises(evidence: &Evidence) -> String {
    let mut page = String::from(
        "<!-- Generated by `cargo xtask behaviours --write`. Edit the promises in xtask/src/behaviours/list.rs. -->\n\
         # Promises\n\n\
         Everything that gripfast promises, with the tests that show it. A test carries the number of its promise in its\n\
         name or in its doc comment. `cargo xtask test` fails if a promise has no test or if this page is out of date.\n",
    );
    for section in list::SECTIONS {
        // Writing into a String cannot fail.
        let _ = write!(page, "\n## {}\n\n| # | promise | tests |\n|---|---|---|\n", section.title);
        for Behaviour { number, promise } in section.behaviours {
            let count = evidence.of(number).len();
            let tests = if count == 1 { "test" } else { "tests" };
            let anchor = number.to_lowercase();
            let _ =
                writeln!(page, "| {number} | {promise} | [{count} {tests}](reference/tests.md#{anchor}) |");
        }
    }
    page
}

/// The page with the tests of each promise, one per line.
fn render_tests(evidence: &Evidence) -> String {
    let mut page = String::from(
        "<!-- Generated by `cargo xtask behaviours --write`. -->\n\
         # Tests of the promises\n\n\
         The tests that show each of the [promises](../behaviours.md). Paths are below `crates/`.\n",
    );
    for Behaviour { number, promise } in list::all() {
        // Writing into a String cannot fail.
        let _ = write!(page, "\n## {number}\n\n{promise}.\n\n");
        for Shown { file, test } in evidence.of(number) {
            let _ = writeln!(page, "- `{file}` `{test}`");
        }
    }
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    fn evidence(text: &str) -> Evidence {
        Evidence::gather(&[("host/tests/x.rs".to_owned(), running_tests(text))])
    }

    fn shown(evidence: &Evidence, number: &str) -> Vec<String> {
        evidence.of(number).iter().map(|shown| shown.test.clone()).collect()
    }

    #[test]
    fn a_number_in_the_name_or_in_the_documentation_counts() {
        let found = evidence(
            "#[test] fn b07_late_server_comes_in() {}\n\
             #[tokio::test] async fn story_c05_once() {}\n\
             /// B07, and D01 as well: not B070, not XB07.\n#[test] fn other() {}",
        );
        assert_eq!(shown(&found, "B07"), ["b07_late_server_comes_in", "other"]);
        assert_eq!(shown(&found, "C05"), ["story_c05_once"]);
        assert_eq!(shown(&found, "D01"), ["other"]);
        assert!(found.strays.is_empty());
    }

    #[test]
    fn helpers_and_ignored_tests_do_not_count() {
        let found = evidence("fn b07_helper() {} #[test] #[ignore] fn b07_slow() {} #[test] fn f32_not() {}");
        assert_eq!(shown(&found, "B07"), [""; 0]);
    }

    #[test]
    fn a_type_in_a_name_is_no_number_but_an_unknown_number_is_reported() {
        let found =
            evidence("#[test] fn parses_f32() {} #[test] fn b99_x() {} /// See G08.\n#[test] fn y() {}");
        assert_eq!(
            found.strays,
            [
                "host/tests/x.rs: test `b99_x` names B99, which is not a promise",
                "host/tests/x.rs: test `y` names G08, which is not a promise"
            ]
        );
    }

    #[test]
    fn a_promise_without_test_is_a_problem() {
        let problems = evidence("#[test] fn b01_x() {}").problems();
        assert!(!problems.iter().any(|problem| problem.starts_with("B01 ")), "B01 has a test");
        assert!(problems.iter().any(|problem| problem.starts_with("B02 has no test: ")));
    }

    #[test]
    fn the_promises_link_to_the_tests() {
        let found = evidence("#[test] fn b01_x() {} #[test] fn b01_y() {} #[test] fn b02_z() {}");
        let promises = render_promises(&found);
        assert!(promises.contains("| [2 tests](reference/tests.md#b01) |\n| B02 | "), "{promises}");
        assert!(promises.contains(" | [1 test](reference/tests.md#b02) |\n"), "{promises}");
        let tests = render_tests(&found);
        assert!(
            tests.contains("\n\n- `host/tests/x.rs` `b01_x`\n- `host/tests/x.rs` `b01_y`\n\n## B02\n"),
            "{tests}"
        );
    }
}
