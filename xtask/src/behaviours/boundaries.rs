//! The tests that `SECURITY.md` names as what holds a boundary. Each has to be there, and run: otherwise the page is a
//! wish.

/// What is wrong with the table of boundaries, given the names of all tests that run.
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
            problems.push(format!("SECURITY.md: nothing is said to hold `{}`", boundary.trim()));
        }
        let absent = |name: &&str| match name.strip_suffix('…') {
            Some(beginning) => !tests.iter().any(|test| test.starts_with(beginning)),
            None => !tests.contains(name),
        };
        let absent = named.into_iter().filter(absent);
        problems
            .extend(absent.map(|name| format!("SECURITY.md names the test `{name}`, which is not there")));
    }
    problems
}

/// Names of files and keys stand in the same cells; of keys none has as many words, or ends like that.
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
            "# S\n\n## The boundaries\n\n| boundary | trusted | held by |\n|---|---|---|\n| a → b | nobody | {held_by} |\n\n## Else\n"
        )
    }

    #[test]
    fn a_boundary_is_held_by_tests_that_are_there() {
        let tests = ["g05_nobody_gets_in", "a_key_is_kept"];
        let found = |held_by: &str| problems(&page(held_by), &tests).len();
        assert_eq!(found("`g05_nobody_gets_in` (`tests/x.rs`), `a_key_is…`"), 0);
        assert_eq!(found("`g05_nobody_gets` (`tests/x.rs`)"), 1, "it has another name");
        assert_eq!(found("`g05_somebody…`, `a_key_is_kept`"), 1);
        assert_eq!(found("above"), 1, "a word is no test");
        assert_eq!(problems("# S\n", &tests).len(), 1);
    }
}
