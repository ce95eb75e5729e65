//! What differs between two configs, and what of the newer one can be taken. Nothing is done here.

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
    /// What leads from `old` to `new`.
    pub(super) fn between(old: &Config, new: &Config) -> Self {
        let was = |name: &str| old.servers.iter().find(|entry| entry.name == name);
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
        difference
    }
}

/// What of a config cannot be taken.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Mistakes {
    /// Servers that worked and go on as they were, with what is wrong with their tables now.
    pub(super) kept: Vec<(String, String)>,
    /// Servers that cannot be used, and could not before, with what is wrong.
    pub(super) unusable: Vec<(String, String)>,
}

/// Puts the tables of `old` into the place of those in `new` that cannot be used: whoever mistypes a key of a server that
/// works keeps the server, and what the file says about all others holds.
pub(super) fn keep_what_works(old: &Config, new: &mut Config) -> Mistakes {
    let mut mistakes = Mistakes::default();
    for entry in new.servers.iter_mut().filter(|entry| entry.spec.is_err()) {
        let mistake = (entry.name.clone(), cause(entry));
        match old.servers.iter().find(|old| old.name == entry.name) {
            None | Some(ServerEntry { spec: Err(_), .. }) => mistakes.unusable.push(mistake),
            Some(ServerEntry { spec: Ok(spec), .. }) => {
                entry.spec = Ok(spec.clone());
                mistakes.kept.push(mistake);
            }
        }
    }
    mistakes
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
        let difference = Difference::between(&old, &new);
        let expected = Difference {
            added: list(&["d"]),
            removed: list(&["c"]),
            changed: list(&["b"]),
            unchanged: 1,
            reordered: true,
            at_next_start: Vec::new(),
        };
        assert_eq!(difference, expected);
        assert_eq!(Difference::between(&new, &new), Difference { unchanged: 3, ..Difference::default() });
    }

    #[test]
    fn a_mistake_concerns_its_server_only_and_one_that_worked_goes_on() {
        let works = config("[servers.a]\ncommand = 'a'\n[servers.b]\ncommand = 'b'\n");
        let text = "[servers.a]\ncomand = 'a'\n[servers.b]\ncommand = 'c'\n[servers.new]\nurl = 'nonsense'\n";
        let mut mistyped = config(text);
        let mistakes = keep_what_works(&works, &mut mistyped);
        let [(kept, why)] = mistakes.kept.as_slice() else { panic!("{mistakes:?}") };
        assert!(kept == "a" && why.contains("did you mean `command`"), "{why}");
        assert_eq!(mistakes.unusable.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), ["new"]);
        let difference = Difference::between(&works, &mistyped);
        assert_eq!((difference.changed, difference.added), (list(&["b"]), list(&["new"])));
        let mut again = config(text);
        let mistakes = keep_what_works(&mistyped, &mut again);
        assert_eq!((mistakes.kept.len(), mistakes.unusable.len()), (1, 1), "both are still to be mended");
        assert_eq!(Difference::between(&mistyped, &again).unchanged, 3);
        assert_eq!(Difference::between(&mistyped, &works).removed, list(&["new"]));
    }

    #[test]
    fn what_only_a_new_start_can_change_is_named() {
        let new = config("[gateway]\nlisten = '127.0.0.1:1'\n");
        assert_eq!(Difference::between(&config(""), &new).at_next_start, ["gateway"]);
    }
}
