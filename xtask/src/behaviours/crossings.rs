//! What `docs/eras.md` says that crosses between the eras, row by row, and the tests that it names for each row. A row
//! without a test, and a test that does not exist, are errors.

use std::collections::BTreeSet;

use super::Source;
use crate::source::tests_in::tests_in;

/// The page, and the title of the column that names tests.
pub(super) const PAGE: &str = "eras.md";
const COLUMN: &str = "shown by";

/// What is wrong with the page.
pub(super) fn problems(page: &str, sources: &[Source]) -> Vec<String> {
    let known: BTreeSet<String> = sources
        .iter()
        .flat_map(|(file, text)| {
            let tests = tests_in(text).into_iter().filter(|test| !test.ignored);
            tests.map(move |test| format!("{} {}", within_gateway(file), test.name))
        })
        .collect();
    let (mut problems, mut names_tests, mut rows) = (Vec::new(), false, 0);
    for line in page.lines() {
        let Some(cells) = cells_of(line) else {
            names_tests = false;
            continue;
        };
        let (first, last) = (cells[0], cells[cells.len() - 1]);
        if last == COLUMN {
            names_tests = true;
        } else if names_tests && !last.starts_with("---") {
            rows += 1;
            let shown: Vec<String> = last.split("<br>").map(|test| test.replace('`', "")).collect();
            let missing = shown.iter().filter(|test| !known.contains(*test));
            problems.extend(missing.map(|test| format!("docs/{PAGE}: {first}: there is no test `{test}`")));
        }
    }
    if rows == 0 {
        problems.push(format!("docs/{PAGE} has no table with the column \"{COLUMN}\""));
    }
    problems
}

/// The page is about the gateway, so paths begin there.
fn within_gateway(file: &str) -> &str {
    file.strip_prefix("gateway/tests/").unwrap_or(file)
}

fn cells_of(line: &str) -> Option<Vec<&str>> {
    let inside = line.trim().strip_prefix('|')?.strip_suffix('|')?;
    Some(inside.split(" | ").map(str::trim).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sources() -> Vec<Source> {
        vec![("gateway/tests/endpoint/x.rs".to_owned(), "#[test] fn it_crosses() {}".to_owned())]
    }

    #[test]
    fn a_row_names_tests_that_there_are() {
        let page =
            "| what | how | shown by |\n|---|---|---|\n| ping | answered | endpoint/x.rs `it_crosses` |\n";
        assert_eq!(problems(page, &sources()), [""; 0]);
    }

    #[test]
    fn a_row_without_a_test_or_with_one_that_is_not_there_is_a_problem() {
        let page = "| what | shown by |\n|---|---|\n| a | |\n| b | endpoint/x.rs `it_crosses`<br>endpoint/x.rs `gone` |\n";
        assert_eq!(
            problems(page, &sources()),
            [
                "docs/eras.md: a: there is no test ``",
                "docs/eras.md: b: there is no test `endpoint/x.rs gone`"
            ]
        );
    }

    #[test]
    fn tables_about_something_else_are_left_alone_and_a_page_without_ours_is_said() {
        let page = "| what | how |\n|---|---|\n| a | b |\n";
        assert_eq!(problems(page, &sources()), ["docs/eras.md has no table with the column \"shown by\""]);
    }
}
