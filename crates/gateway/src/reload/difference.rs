//! Difference between two configs, and the servers of the newer one that cannot be used. Pure functions;
//! [`super::Reloader`] applies the result.

use gripfast::config::{Config, GatewayConfig, ServerEntry};

/// Changes from one config to another.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct ConfigDiff {
    /// New servers.
    pub(super) added: Vec<String>,
    /// Removed servers.
    pub(super) removed: Vec<String>,
    /// Servers with changed settings.
    pub(super) changed: Vec<String>,
    /// Number of unchanged servers.
    pub(super) unchanged: usize,
    /// True if the order of the remaining servers changed.
    pub(super) reordered: bool,
    /// Changed tables that take effect only at the next start of the gateway.
    pub(super) at_next_start: Vec<String>,
}

impl ConfigDiff {
    /// The changes from `old` to `new`.
    pub(super) fn between(old: &Config, new: &Config) -> Self {
        let previous = |name: &str| old.servers.iter().find(|entry| entry.name == name);
        let mut difference = Self { at_next_start: at_next_start(old, new), ..Self::default() };
        for entry in &new.servers {
            match previous(&entry.name) {
                None => difference.added.push(entry.name.clone()),
                Some(old) if is_same_server(old, entry) => difference.unchanged += 1,
                Some(_) => difference.changed.push(entry.name.clone()),
            }
        }
        let gone = old.servers.iter().filter(|old| new.servers.iter().all(|entry| entry.name != old.name));
        difference.removed = gone.map(|entry| entry.name.clone()).collect();
        let stayed = |name: &&str| !difference.removed.iter().any(|gone| gone == name);
        let kept = |name: &&str| previous(name).is_some();
        difference.reordered = !names(old).filter(stayed).eq(names(new).filter(kept));
        difference
    }
}

/// Servers of a config that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct ConfigMistakes {
    /// Servers that stay as they were, with the mistakes in their new tables.
    pub(super) kept: Vec<(String, String)>,
    /// Servers without a valid previous config, with their mistakes.
    pub(super) unusable: Vec<(String, String)>,
}

/// Replaces invalid servers of `new` with those of `old`: a typo in the table of a working server keeps that server
/// running, and the changes of all others are applied.
pub(super) fn keep_working_servers(old: &Config, new: &mut Config) -> ConfigMistakes {
    let mut mistakes = ConfigMistakes::default();
    for entry in new.servers.iter_mut().filter(|entry| entry.spec.is_err()) {
        let mistake = (entry.name.clone(), mistake_text(entry));
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

/// All mistakes of a server in one line.
pub(super) fn mistake_text(entry: &ServerEntry) -> String {
    let findings = entry.spec.as_ref().err().into_iter().flatten();
    findings.map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

/// True if two tables have the same meaning. Their position in the file does not matter.
fn is_same_server(old: &ServerEntry, new: &ServerEntry) -> bool {
    match (&old.spec, &new.spec) {
        (Ok(old), Ok(new)) => old == new,
        (Err(_), Err(_)) => mistake_text(old) == mistake_text(new),
        (Ok(_), Err(_)) | (Err(_), Ok(_)) => false,
    }
}

fn at_next_start(old: &Config, new: &Config) -> Vec<String> {
    // The exposure of tools is applied at once.
    let gateway = GatewayConfig { exposure: new.gateway.exposure.clone(), ..old.gateway.clone() };
    let tables = [("gateway", gateway != new.gateway), ("cluster", old.cluster != new.cluster)];
    tables.into_iter().filter(|(_, has_changed)| *has_changed).map(|(name, _)| name.to_owned()).collect()
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
    fn only_changed_servers_are_in_the_difference() {
        let old =
            config("[servers.a]\ncommand = 'a'\n[servers.b]\ncommand = 'b'\n[servers.c]\ncommand = 'c'\n");
        let new = config(
            "# moved\n\n[servers.d]\nurl = 'http://d/'\n[servers.b]\ncommand = 'b'\nlazy = true\n[servers.a]\ncommand = 'a'\n",
        );
        let difference = ConfigDiff::between(&old, &new);
        let expected = ConfigDiff {
            added: list(&["d"]),
            removed: list(&["c"]),
            changed: list(&["b"]),
            unchanged: 1,
            reordered: true,
            at_next_start: Vec::new(),
        };
        assert_eq!(difference, expected);
        assert_eq!(ConfigDiff::between(&new, &new), ConfigDiff { unchanged: 3, ..ConfigDiff::default() });
    }

    #[test]
    fn a_mistake_affects_its_server_only_and_a_working_server_is_kept() {
        let works = config("[servers.a]\ncommand = 'a'\n[servers.b]\ncommand = 'b'\n");
        let text = "[servers.a]\ncomand = 'a'\n[servers.b]\ncommand = 'c'\n[servers.new]\nurl = 'nonsense'\n";
        let mut mistyped = config(text);
        let mistakes = keep_working_servers(&works, &mut mistyped);
        let [(kept, why)] = mistakes.kept.as_slice() else { panic!("{mistakes:?}") };
        assert!(kept == "a" && why.contains("did you mean `command`"), "{why}");
        assert_eq!(mistakes.unusable.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), ["new"]);
        let difference = ConfigDiff::between(&works, &mistyped);
        assert_eq!((difference.changed, difference.added), (list(&["b"]), list(&["new"])));
        let mut again = config(text);
        let mistakes = keep_working_servers(&mistyped, &mut again);
        assert_eq!((mistakes.kept.len(), mistakes.unusable.len()), (1, 1), "both mistakes remain");
        assert_eq!(ConfigDiff::between(&mistyped, &again).unchanged, 3);
        assert_eq!(ConfigDiff::between(&mistyped, &works).removed, list(&["new"]));
    }

    #[test]
    fn changes_that_need_a_restart_are_listed() {
        let new = config("[gateway]\nlisten = '127.0.0.1:1'\n");
        assert_eq!(ConfigDiff::between(&config(""), &new).at_next_start, ["gateway"]);
    }
}
