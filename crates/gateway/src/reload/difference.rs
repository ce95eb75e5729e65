//! What differs between two configs, and whether the newer one may be taken. Nothing is done here.

use gripfast::config::{Config, ServerEntry};

/// What has to be done to go from one config to another, server by server.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Difference {
    /// Servers that are new.
    pub(super) added: Vec<String>,
    /// Servers that are gone.
    pub(super) removed: Vec<String>,
    /// Servers that something else is said about.
    pub(super) changed: Vec<String>,
    /// How many are as they were.
    pub(super) unchanged: usize,
    /// Those that were there before follow each other otherwise.
    pub(super) reordered: bool,
    /// What is said otherwise about the gateway itself, which only a new start can make true.
    pub(super) at_next_start: Vec<String>,
}

impl Difference {
    /// What leads from `old` to `new`. A server that cannot be used is an error unless it could not be used
    /// before either: whoever mistypes a key of a server that works keeps the server.
    pub(super) fn between(old: &Config, new: &Config) -> Result<Self, String> {
        let was = |name: &str| old.servers.iter().find(|entry| entry.name == name);
        let broken_now =
            |entry: &&ServerEntry| entry.spec.is_err() && was(&entry.name).is_none_or(|old| old.spec.is_ok());
        let causes: Vec<String> = new.servers.iter().filter(broken_now).map(cause).collect();
        if !causes.is_empty() {
            return Err(causes.join("; "));
        }
        let mut difference = Self { at_next_start: at_next_start(old, new), ..Self::default() };
        for entry in &new.servers {
            match was(&entry.name) {
                None => difference.added.push(entry.name.clone()),
                Some(old) if said_alike(old, entry) => difference.unchanged += 1,
                Some(_) => difference.changed.push(entry.name.clone()),
            }
        }
        let gone = old.servers.iter().filter(|old| new.servers.iter().all(|entry| entry.name != old.name));
        difference.removed = gone.map(|entry| entry.name.clone()).collect();
        let stayed = |name: &&str| !difference.removed.iter().any(|gone| gone == name);
        let kept = |name: &&str| was(name).is_some();
        difference.reordered = !names(old).filter(stayed).eq(names(new).filter(kept));
        Ok(difference)
    }
}

fn names(config: &Config) -> impl Iterator<Item = &str> {
    config.servers.iter().map(|entry| entry.name.as_str())
}

/// Everything that is wrong with a server, in one line.
pub(super) fn cause(entry: &ServerEntry) -> String {
    let findings = entry.spec.as_ref().err().into_iter().flatten();
    findings.map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

/// Whether two tables mean the same. Where they stand in their files is no difference.
fn said_alike(old: &ServerEntry, new: &ServerEntry) -> bool {
    match (&old.spec, &new.spec) {
        (Ok(old), Ok(new)) => old == new,
        (Err(_), Err(_)) => cause(old) == cause(new),
        (Ok(_), Err(_)) | (Err(_), Ok(_)) => false,
    }
}

fn at_next_start(old: &Config, new: &Config) -> Vec<String> {
    if old.gateway == new.gateway { Vec::new() } else { vec!["gateway".to_owned()] }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(text: &str) -> Config {
        Config::parse(text, "gripfast.toml".as_ref()).unwrap()
    }

    fn list(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn only_what_is_said_otherwise_is_touched() {
        let old =
            config("[servers.a]\ncommand = 'a'\n[servers.b]\ncommand = 'b'\n[servers.c]\ncommand = 'c'\n");
        let new = config(
            "# moved\n\n[servers.d]\nurl = 'http://d/'\n[servers.b]\ncommand = 'b'\nlazy = true\n[servers.a]\ncommand = 'a'\n",
        );
        let difference = Difference::between(&old, &new).unwrap();
        let expected = Difference {
            added: list(&["d"]),
            removed: list(&["c"]),
            changed: list(&["b"]),
            unchanged: 1,
            reordered: true,
            at_next_start: Vec::new(),
        };
        assert_eq!(difference, expected);
        assert_eq!(
            Difference::between(&new, &new).unwrap(),
            Difference { unchanged: 3, ..Difference::default() }
        );
    }

    #[test]
    fn a_server_that_worked_is_not_given_up_for_a_mistake() {
        let works = config("[servers.a]\ncommand = 'a'\n");
        let mistyped = config("[servers.a]\ncomand = 'a'\n");
        let error = Difference::between(&works, &mistyped).unwrap_err();
        assert!(error.contains("did you mean `command`"), "{error}");
        assert!(Difference::between(&config(""), &mistyped).is_err(), "a new server with a mistake");
        assert_eq!(Difference::between(&mistyped, &mistyped).unwrap().unchanged, 1, "it was so before");
        let other = config("[servers.a]\ncommnd = 'a'\n");
        assert_eq!(Difference::between(&mistyped, &other).unwrap().changed, list(&["a"]));
        assert_eq!(Difference::between(&mistyped, &works).unwrap().changed, list(&["a"]));
    }

    #[test]
    fn another_order_is_a_difference_and_a_newcomer_or_a_gap_is_none() {
        let tables = |names: &str| {
            config(
                &names.chars().map(|name| format!("[servers.{name}]\ncommand = 'x'\n")).collect::<String>(),
            )
        };
        let reordered =
            |old: &str, new: &str| Difference::between(&tables(old), &tables(new)).unwrap().reordered;
        assert!(reordered("abc", "acb") && reordered("ab", "bna"));
        assert!(!reordered("abc", "abc") && !reordered("abc", "nambc") && !reordered("abc", "ac"));
    }

    #[test]
    fn what_only_a_new_start_can_change_is_named() {
        let new = config("[gateway]\nlisten = '127.0.0.1:1'\n");
        assert_eq!(Difference::between(&config(""), &new).unwrap().at_next_start, ["gateway"]);
    }
}
