//! "Did you mean …?": finds the known name nearest to a mistyped one, if any is near enough to be helpful. Used for
//! config keys and values, and by the host for server and tool names.

/// Longer names are not compared: the cost is the square of the length.
const MAX_LENGTH: usize = 80;

/// The nearest of the `known` names, if a typing mistake explains the difference: about one letter in three added,
/// lost, changed or swapped. Case and the choice of `-` or `_` are ignored.
#[must_use]
pub fn nearest<'k>(wanted: &str, known: impl IntoIterator<Item = &'k str>) -> Option<&'k str> {
    let typed = normalized(wanted);
    let length = typed.chars().count();
    if length == 0 || length > MAX_LENGTH {
        return None;
    }
    known
        .into_iter()
        .filter(|name| name.len() <= 2 * MAX_LENGTH)
        .map(|name| (strsim::damerau_levenshtein(&typed, &normalized(name)), name))
        .filter(|(distance, _)| *distance <= ((length + 1) / 3).max(1) && *distance < length)
        // `min_by_key` keeps the first of equals, so the caller's order breaks ties.
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, name)| name)
}

/// Sorts names by their distance from a mistyped one, the nearest first. The order of equals is kept.
pub fn nearest_first(wanted: &str, names: &mut [&str]) {
    let typed: String = normalized(wanted).chars().take(MAX_LENGTH).collect();
    let start = |name: &str| normalized(name).chars().take(MAX_LENGTH).collect::<String>();
    names.sort_by_cached_key(|name| strsim::damerau_levenshtein(&typed, &start(name)));
}

fn normalized(name: &str) -> String {
    name.chars().filter(|letter| !matches!(letter, '-' | '_')).flat_map(char::to_lowercase).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mistyped_name_finds_the_nearest_known_one() {
        let known = ["command", "url", "idle_timeout", "timeouts"];
        assert_eq!(nearest("comand", known), Some("command"));
        assert_eq!(nearest("ulr", known), Some("url"));
        assert_eq!(nearest("modem", ["auto", "legacy", "modern"]), Some("modern"));
        assert_eq!(nearest("idleTimeout", known), Some("idle_timeout"));
        assert_eq!(nearest("idle-timout", known), Some("idle_timeout"));
    }

    #[test]
    fn names_are_sorted_by_their_distance() {
        let mut names = ["files", "mail", "github", "gitlab"];
        nearest_first("GitHib", &mut names);
        assert_eq!(names, ["github", "gitlab", "files", "mail"]);
        nearest_first(&"x".repeat(1_000_000), &mut names);
    }

    #[test]
    fn nothing_is_offered_when_nothing_is_near() {
        assert_eq!(nearest("description", ["command", "url"]), None);
        assert_eq!(nearest("a", ["b"]), None);
        assert_eq!(nearest("", ["b"]), None);
        assert_eq!(nearest(&"x".repeat(10_000), ["b"]), None);
    }
}
