//! The tests that `SECURITY.md` names for each trust boundary. Every named test must exist and run.

/// Everything that is wrong with the table of boundaries. `tests` are the names of all tests that run.
pub(super) fn problems(page: &str, tests: &[&str]) -> Vec<String> {
    let rows: Vec<&str> = page
        .lines()
        .skip_while(|line| *line != "## The boundaries")
        .skip(1)
        .take_while(|line| !line.starts_with("## "))
        .filter(|line| line.starts_with("| ") && !line.starts_with("| boundary"))
        .collect();
    if rows.is_empty() {
        return vec!["SECURITY.md has no table under `## The boundaries`".to_owned()];
    }
    let mut problems = Vec::new();
    for row in rows {
        let cells: Vec<&str> = row.trim_matches('|').split(" | ").collect();
        let [boundary, .., held_by] = cells.as_slice() else { continue };
        let named: Vec<&str> = held_by.split('`').skip(1).step_by(2).filter(|name| is_test(name)).collect();
        if named.is_empty() {
            problems.push(format!("SECURITY.md names no test for `{}`", boundary.trim()));
        }
        let absent = |name: &&str| match name.strip_suffix('…') {
            Some(beginning) => !tests.iter().any(|test| test.starts_with(beginning)),
            None => !tests.contains(name),
        };
        let absent = named.into_iter().filter(absent);
        problems
            .extend(absent.map(|name| format!("SECURITY.md names the test `{name}`, which does not exist")));
    }
    problems
}

/// Distinguishes tests from files and config keys in the same cell: a test has three words or more, or ends with `…`.
fn is_test(name: &str) -> bool {
    let plain = |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '_';
    match name.strip_suffix('…') {
        Some(beginning) => beginning.chars().all(plain),
        None => name.chars().all(plain) && name.matches('_').count() >= 2,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(held_by: &str) -> String {
        format!(
            "# S\n\n## The boundaries\n\n| boundary | trusted | held by |\n|---|---|---|\n| a → b | none | {held_by} |\n\n## Else\n"
        )
    }

    #[test]
    fn a_boundary_names_tests_that_exist() {
        let tests = ["g05_access_is_denied", "a_key_is_kept"];
        let found = |held_by: &str| problems(&page(held_by), &tests).len();
        assert_eq!(found("`g05_access_is_denied` (`tests/x.rs`), `a_key_is…`"), 0);
        assert_eq!(found("`g05_access_is` (`tests/x.rs`)"), 1, "the name is incomplete");
        assert_eq!(found("`g05_other…`, `a_key_is_kept`"), 1);
        assert_eq!(found("above"), 1, "a word is not a test");
        assert_eq!(problems("# S\n", &tests).len(), 1);
    }
}
