//! Tools that a legacy client has found by search and that are in its own list since then (`gateway.load`). Bounded:
//! the tools that were found or called longest ago are removed first.

use tokio::sync::watch;

/// Loaded tools of one client.
#[derive(Debug)]
pub(crate) struct LoadedTools {
    /// Public names, those found or called longest ago first.
    names: watch::Sender<Vec<String>>,
}

impl Default for LoadedTools {
    fn default() -> Self {
        Self { names: watch::Sender::new(Vec::new()) }
    }
}

impl LoadedTools {
    /// Maximum number of loaded tools. Their definitions take up the context that search saves.
    pub(crate) const MAX: usize = 32;

    /// Adds tools, the best first. A tool that is loaded already counts as found now.
    pub(crate) fn load(&self, found: &[String]) {
        self.names.send_if_modified(|names| {
            let before = names.clone();
            for name in found.iter().rev() {
                names.retain(|known| known != name);
                names.push(name.clone());
            }
            names.drain(..names.len().saturating_sub(Self::MAX));
            names.iter().any(|name| !before.contains(name))
        });
    }

    /// Notes that a tool is called, if it is loaded. This is no change of the list.
    pub(crate) fn note_call(&self, name: &str) {
        self.names.send_if_modified(|names| {
            if let Some(at) = names.iter().position(|known| known == name) {
                names[at..].rotate_left(1);
            }
            false
        });
    }

    /// Names of the loaded tools.
    pub(crate) fn names(&self) -> Vec<String> {
        self.names.borrow().clone()
    }

    /// Subscribes to the names of the loaded tools.
    pub(crate) fn subscribe(&self) -> watch::Receiver<Vec<String>> {
        self.names.subscribe()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(numbers: std::ops::Range<usize>) -> Vec<String> {
        numbers.map(|number| format!("t{number}")).collect()
    }

    #[test]
    fn h06_the_tools_found_or_called_longest_ago_are_removed_first() {
        let loaded = LoadedTools::default();
        loaded.load(&names(0..LoadedTools::MAX));
        let worst = |place: usize| format!("t{}", LoadedTools::MAX - place);
        loaded.load(&[worst(1)]);
        loaded.note_call(&worst(2));
        loaded.note_call("unknown");
        loaded.load(&["new".to_owned()]);
        let kept = loaded.names();
        assert_eq!(kept.len(), LoadedTools::MAX);
        assert!(kept.contains(&worst(1)), "found again: {kept:?}");
        assert!(kept.contains(&worst(2)), "called: {kept:?}");
        assert!(!kept.contains(&worst(3)), "the worst of the others: {kept:?}");
    }

    #[test]
    fn only_other_tools_are_a_change() {
        let loaded = LoadedTools::default();
        let mut changes = loaded.subscribe();
        loaded.load(&names(0..3));
        assert!(changes.has_changed().unwrap());
        changes.mark_unchanged();
        loaded.load(&names(1..3));
        assert!(!changes.has_changed().unwrap(), "the same tools");
        assert_eq!(loaded.names(), ["t0", "t2", "t1"], "in another order");
    }
}
