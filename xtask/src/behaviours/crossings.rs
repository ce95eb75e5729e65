//! The tests behind `docs/eras.md`. The last column of its tables links each row to a section of
//! `docs/reference/era-tests.md`, which lists the tests of that row.
//!
//! A row without a section, a section without a row or without tests, and a test that does not exist are errors.

use std::collections::{BTreeMap, BTreeSet};

use super::Source;

/// The two pages, from the root of the repository.
pub(super) const ROWS: &str = "docs/eras.md";
pub(super) const SECTIONS: &str = "docs/reference/era-tests.md";
/// The title of the column with the links.
const COLUMN: &str = "tests";

/// Everything that is wrong with the two pages.
pub(super) fn problems(rows: &str, sections: &str, sources: &[Source]) -> Vec<String> {
    let (ids, mut problems) = row_ids(rows);
    let sections = sections_of(sections);
    let known = Known::gather(sources);
    for id in &ids {
        match sections.get(id.as_str()) {
            None => problems.push(format!("{ROWS}: row {id} has no section in {SECTIONS}")),
            Some(tests) if tests.is_empty() => problems.push(format!("{SECTIONS}: {id} lists no test")),
            Some(_) => {}
        }
    }
    for (id, tests) in sections {
        if !ids.contains(id) {
            problems.push(format!("{SECTIONS}: {id} is not a row of {ROWS}"));
        }
        let problem = |(file, name)| Some(format!("{SECTIONS}: {id}: {}", known.problem(file, name)?));
        problems.extend(tests.into_iter().filter_map(problem));
    }
    problems
}

/// The ids of all rows, and what is wrong with their links.
fn row_ids(page: &str) -> (BTreeSet<String>, Vec<String>) {
    let (mut ids, mut problems, mut links_tests) = (BTreeSet::new(), Vec::new(), false);
    for line in page.lines() {
        let Some(cells) = cells_of(line) else {
            links_tests = false;
            continue;
        };
        let (first, last) = (cells[0], cells[cells.len() - 1]);
        if last == COLUMN {
            links_tests = true;
        } else if links_tests && !last.starts_with("---") {
            match linked_id(last) {
                Some(id) if ids.insert(id.to_owned()) => {}
                Some(id) => problems.push(format!("{ROWS}: {first}: {id} is already used by another row")),
                None => problems.push(format!(
                    "{ROWS}: {first}: the last cell must be a link such as `[L01](reference/era-tests.md#l01)`"
                )),
            }
        }
    }
    if ids.is_empty() {
        problems.push(format!("{ROWS} has no table with the column \"{COLUMN}\""));
    }
    (ids, problems)
}

/// `L01` of `[L01](reference/era-tests.md#l01)`.
fn linked_id(cell: &str) -> Option<&str> {
    let (id, target) = cell.strip_prefix('[')?.strip_suffix(')')?.split_once("](")?;
    let anchor = target.strip_prefix("reference/era-tests.md#")?;
    (anchor == id.to_lowercase()).then_some(id)
}

fn cells_of(line: &str) -> Option<Vec<&str>> {
    let inside = line.trim().strip_prefix('|')?.strip_suffix('|')?;
    Some(inside.split(" | ").map(str::trim).collect())
}

/// The sections by id, each with the file and name of its tests: `` - `path` `name` `` lines under `## ID`.
fn sections_of(page: &str) -> BTreeMap<&str, Vec<(&str, &str)>> {
    let mut sections: BTreeMap<&str, Vec<_>> = BTreeMap::new();
    let mut current = None;
    for line in page.lines() {
        if let Some(id) = line.strip_prefix("## ") {
            current = Some(id.trim());
            sections.entry(id.trim()).or_default();
        } else if let Some(tests) = current.and_then(|id| sections.get_mut(id))
            && let Some(test) = line.strip_prefix("- ")
        {
            let mut code = test.split('`').skip(1).step_by(2);
            tests.push((code.next().unwrap_or_default(), code.next().unwrap_or_default()));
        }
    }
    sections
}

/// The tests that run, by name, each with the files that have a test of that name.
struct Known(BTreeMap<String, Vec<String>>);

impl Known {
    fn gather(sources: &[Source]) -> Self {
        let mut known: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for (file, tests) in sources {
            for test in tests {
                known.entry(test.name.clone()).or_default().push(file.clone());
            }
        }
        Self(known)
    }

    fn problem(&self, file: &str, name: &str) -> Option<String> {
        if name.is_empty() {
            return Some("a test is one line: - `path` `name`".to_owned());
        }
        let files = self.0.get(name).map_or(&[][..], Vec::as_slice);
        if files.iter().any(|known| known == file) {
            return None;
        }
        let elsewhere = files.first().map(|file| format!("; one of that name is in `{file}`"));
        Some(format!("there is no test `{file}` `{name}`{}", elsewhere.unwrap_or_default()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::behaviours::running_tests;

    const ROW: &str =
        "| what | how | tests |\n|---|---|---|\n| ping | answered | [L01](reference/era-tests.md#l01) |\n";

    fn sources() -> Vec<Source> {
        vec![("gateway/tests/x.rs".to_owned(), running_tests("#[test] fn it_crosses() {}"))]
    }

    #[test]
    fn a_row_has_a_section_with_existing_tests() {
        let section = "# Tests\n\n## L01\n\nping\n\n- `gateway/tests/x.rs` `it_crosses`\n";
        assert_eq!(problems(ROW, section, &sources()), [""; 0]);
    }

    #[test]
    fn a_row_without_a_section_and_a_section_without_a_row_are_problems() {
        let section = "## M01\n\n- `gateway/tests/x.rs` `it_crosses`\n";
        assert_eq!(
            problems(ROW, section, &sources()),
            [
                "docs/eras.md: row L01 has no section in docs/reference/era-tests.md",
                "docs/reference/era-tests.md: M01 is not a row of docs/eras.md",
            ]
        );
    }

    #[test]
    fn a_section_without_tests_or_with_a_missing_test_is_a_problem() {
        assert_eq!(problems(ROW, "## L01\n", &sources()), ["docs/reference/era-tests.md: L01 lists no test"]);
        let section = "## L01\n\n- `gateway/tests/x.rs` `it_crosses`\n- `gateway/tests/x.rs` `gone`\n\
                       - `gateway/tests/y.rs` `it_crosses`\n- not a test\n";
        assert_eq!(
            problems(ROW, section, &sources()),
            [
                "docs/reference/era-tests.md: L01: there is no test `gateway/tests/x.rs` `gone`",
                "docs/reference/era-tests.md: L01: there is no test `gateway/tests/y.rs` `it_crosses`; \
                 one of that name is in `gateway/tests/x.rs`",
                "docs/reference/era-tests.md: L01: a test is one line: - `path` `name`",
            ]
        );
    }

    #[test]
    fn an_ignored_test_does_not_count() {
        let sources = [("x.rs".to_owned(), running_tests("#[test] #[ignore] fn it_crosses() {}"))];
        let section = "## L01\n\n- `x.rs` `it_crosses`\n";
        assert_eq!(
            problems(ROW, section, &sources),
            ["docs/reference/era-tests.md: L01: there is no test `x.rs` `it_crosses`"]
        );
    }

    #[test]
    fn a_row_has_a_valid_link_of_its_own() {
        let rows = format!("{ROW}| b | x | [L01](reference/era-tests.md#l01) |\n| c | x | L02 |\n");
        let section = "## L01\n\n- `gateway/tests/x.rs` `it_crosses`\n";
        assert_eq!(
            problems(&rows, section, &sources()),
            [
                "docs/eras.md: b: L01 is already used by another row",
                "docs/eras.md: c: the last cell must be a link such as `[L01](reference/era-tests.md#l01)`",
            ]
        );
    }

    #[test]
    fn other_tables_are_ignored_and_a_page_without_rows_is_a_problem() {
        let rows = "| what | how |\n|---|---|\n| a | b |\n";
        assert_eq!(problems(rows, "", &sources()), ["docs/eras.md has no table with the column \"tests\""]);
    }
}
