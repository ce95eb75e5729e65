//! `cargo xtask behaviours`: the table from promise to test, generated, and red when a promise has no test.
//!
//! A test carries the number of its behaviour as a word of its name (`b07_…`, `…_c05_…`) or in its doc comment (`B07`).
//! A test that is `#[ignore]`d proves nothing and does not count. What crosses between the eras has a table of its own, which
//! names its tests itself, and so have the boundaries in `SECURITY.md`; that they exist is checked here.

mod boundaries;
mod crossings;
mod list;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use crate::source::tests_in::{TestFn, tests_in};
use crate::workspace::{Workspace, read, rust_files};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    Check,
    Write,
}

/// What was checked, for the summary; or what is missing.
pub(crate) fn run(workspace: &Workspace, mode: Mode) -> Result<String, String> {
    let sources = test_sources(workspace)?;
    let evidence = Evidence::gather(&sources);
    let table = render(&evidence);
    let path = workspace.root.join("docs").join("behaviours.md");
    let mut problems = evidence.problems();
    problems
        .extend(crossings::problems(&read(&workspace.root.join("docs").join(crossings::PAGE))?, &sources));
    let tests: Vec<TestFn> = sources.iter().flat_map(|(_, text)| tests_in(text)).collect();
    let names: Vec<&str> = tests.iter().filter(|test| !test.ignored).map(|test| test.name.as_str()).collect();
    problems.extend(boundaries::problems(&read(&workspace.root.join("SECURITY.md"))?, &names));
    match mode {
        Mode::Write => std::fs::create_dir_all(workspace.root.join("docs"))
            .and_then(|()| std::fs::write(&path, &table))
            .map_err(|error| format!("cannot write {}: {error}", path.display()))?,
        Mode::Check if std::fs::read_to_string(&path).ok().as_deref() != Some(table.as_str()) => {
            problems.push(
                "docs/behaviours.md is out of date; `cargo xtask behaviours --write` renews it".to_owned(),
            );
        }
        Mode::Check => {}
    }
    if problems.is_empty() {
        return Ok(evidence.summary());
    }
    Err(format!("{} problem(s) with the behaviours\n{}", problems.len(), problems.join("\n")))
}

/// A file as people write its path, and its text.
type Source = (String, String);

/// Everything under `crates/`. The tests of xtask itself are about xtask.
fn test_sources(workspace: &Workspace) -> Result<Vec<Source>, String> {
    let mut sources = Vec::new();
    for package in workspace.packages.iter().filter(|package| package.name != "xtask") {
        for path in rust_files(&package.dir)? {
            let shown = workspace.display(&path);
            sources.push((shown.strip_prefix("crates/").unwrap_or(&shown).to_owned(), read(&path)?));
        }
    }
    sources.sort();
    Ok(sources)
}

/// Which tests show which behaviour.
struct Evidence {
    by_number: BTreeMap<&'static str, Vec<Shown>>,
    /// Tests that name a number nobody promised.
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
        for (file, text) in sources {
            for test in tests_in(text).into_iter().filter(|test| !test.ignored) {
                for number in numbers_of(&test) {
                    let Some(number) = known.get(number.as_str()) else {
                        let stray =
                            format!("{file}: test `{}` names {number}, which nobody promised", test.name);
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
        format!("{promised} behaviours are shown by {} tests", tests.len())
    }
}

/// The numbers in a test's name and documentation, each once.
fn numbers_of(test: &TestFn) -> BTreeSet<String> {
    let in_name = test.name.split('_').enumerate().filter(|(position, word)| {
        // `f32` in the middle of a name is a type; at its start it is a claim.
        is_number(&word.to_ascii_uppercase())
            && (*position == 0 || list::all().any(|b| b.number.eq_ignore_ascii_case(word)))
    });
    let in_doc = test.doc.split(|char: char| !char.is_ascii_alphanumeric()).filter(|word| is_number(word));
    in_name.map(|(_, word)| word.to_ascii_uppercase()).chain(in_doc.map(str::to_owned)).collect()
}

fn is_number(word: &str) -> bool {
    matches!(word.as_bytes(), [b'B'..=b'G', tens, ones] if tens.is_ascii_digit() && ones.is_ascii_digit())
}

fn render(evidence: &Evidence) -> String {
    let mut page = String::from(
        "<!-- Generated by `cargo xtask behaviours --write`. Promises are edited in xtask/src/behaviours/list.rs. -->\n\
         # What gripfast promises, and the tests that show it\n\n\
         A test carries the number of its behaviour in its name or in its doc comment. `cargo xtask test` fails when a\n\
         promise has no test, and when this page is out of date.\n",
    );
    for section in list::SECTIONS {
        // Writing into a String does not fail.
        let _ = write!(page, "\n## {}\n\n| # | promise | shown by |\n|---|---|---|\n", section.title);
        for behaviour in section.behaviours {
            let tests =
                evidence.of(behaviour.number).iter().map(|shown| format!("{} `{}`", shown.file, shown.test));
            let cell: Vec<_> = tests.collect();
            let _ =
                writeln!(page, "| {} | {} | {} |", behaviour.number, behaviour.promise, cell.join("<br>"));
        }
    }
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    fn evidence(text: &str) -> Evidence {
        Evidence::gather(&[("host/tests/x.rs".to_owned(), text.to_owned())])
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
    fn a_type_in_a_name_is_not_a_claim_but_an_unknown_number_is_said() {
        let found =
            evidence("#[test] fn parses_f32() {} #[test] fn b99_x() {} /// See G08.\n#[test] fn y() {}");
        assert_eq!(
            found.strays,
            [
                "host/tests/x.rs: test `b99_x` names B99, which nobody promised",
                "host/tests/x.rs: test `y` names G08, which nobody promised"
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
    fn the_page_names_tests() {
        let page = render(&evidence("#[test] fn b01_x() {} #[test] fn b01_y() {}"));
        assert!(page.contains("| host/tests/x.rs `b01_x`<br>host/tests/x.rs `b01_y` |"), "{page}");
    }
}
