//! Replacing the spec of a running server. The difference decides what is disturbed: new rules apply from the next
//! call on; a new connection is made before the old one is closed.

use crate::config::ServerSpec;
use crate::host::{EntryKind, Host, HostEntry, SpawnOptions};
use crate::upstream::UpstreamDeps;
use gripfast_core::failure::CallError;
use gripfast_core::supervise::upstream::Revision;
use std::sync::Arc;

/// Effect of a new spec.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplaceOutcome {
    /// None: the spec is the same.
    Unchanged,
    /// New rules, which apply from the next call on. The connection stays.
    Rules,
    /// A new process or session. A working one stays in use until the new one is listed, and its calls in flight
    /// finish on it. If the new one cannot be made, the old one stays and the attempt is repeated.
    Link,
    /// The server was started because it was disabled or broken before, or ended because it is disabled now.
    StartOrStop,
}

impl Host {
    /// Gives a server a new spec under its name and in its place. Subscriptions and counters are kept.
    ///
    /// Does not wait: [`Host::subscribe_events`] and [`Host::server_status`] show the new connection, and a disabled
    /// server ends as with [`Host::remove_server_in_background`].
    ///
    /// # Errors
    /// There is no server with this name.
    pub fn replace_server(&self, server: &str, spec: ServerSpec) -> Result<ReplaceOutcome, CallError> {
        self.replace_server_with(server, spec, SpawnOptions::default())
    }

    /// [`Host::replace_server`] with options. A custom transport always makes a new connection.
    ///
    /// # Errors
    /// As [`Host::replace_server`].
    pub fn replace_server_with(
        &self,
        server: &str,
        spec: ServerSpec,
        options: SpawnOptions,
    ) -> Result<ReplaceOutcome, CallError> {
        // One replacement at a time. It reads the store, so it does not hold the lock that calls use.
        let _turn = self.inner.replace_lock.lock();
        let known = self.entry(server)?;
        let spec = Arc::new(self.singleton_spec(spec));
        let (kind, replaced) = self.revised_entry(&known, &spec, options);
        let revised = Arc::new(self.new_entry(server, spec, kind));
        if !self.swap_entry(&known, &revised) {
            // The server has been removed meanwhile, with the instances that it had then.
            if !matches!(known.kind, EntryKind::Running(_)) {
                drop(self.spawn_shutdown(revised));
            }
            return Err(self.unknown_server(server));
        }
        self.refresh_searchable();
        self.inner.change_signal.notify();
        if matches!(revised.kind, EntryKind::Disabled) {
            drop(self.spawn_shutdown(known));
        }
        Ok(replaced)
    }

    fn swap_entry(&self, known: &Arc<HostEntry>, revised: &Arc<HostEntry>) -> bool {
        let mut entries = self.inner.entries.write();
        let place = entries.iter_mut().find(|entry| Arc::ptr_eq(entry, known));
        place.map(|place| *place = Arc::clone(revised)).is_some()
    }

    /// Sets the order of the servers, which decides which one keeps a name that two of them want. Servers that are
    /// not listed come last, in their present order.
    pub fn set_server_order(&self, names: &[&str]) {
        let place = |name: &str| names.iter().position(|known| *known == name).unwrap_or(names.len());
        self.inner.entries.write().sort_by_key(|entry| place(&entry.name));
        self.inner.change_signal.notify();
    }

    fn revised_entry(
        &self,
        known: &HostEntry,
        spec: &Arc<ServerSpec>,
        options: SpawnOptions,
    ) -> (EntryKind, ReplaceOutcome) {
        match &known.kind {
            _ if spec.disabled => match known.kind {
                EntryKind::Running(_) => (EntryKind::Disabled, ReplaceOutcome::StartOrStop),
                EntryKind::Broken { .. } | EntryKind::Disabled => {
                    (EntryKind::Disabled, ReplaceOutcome::Unchanged)
                }
            },
            EntryKind::Broken { .. } | EntryKind::Disabled => {
                let instances = self.start_server(&known.name, spec, options);
                (EntryKind::Running(Arc::new(instances)), ReplaceOutcome::StartOrStop)
            }
            EntryKind::Running(instances) => {
                let kind = EntryKind::Running(Arc::clone(instances));
                let revision = match &known.spec {
                    Some(before) if options.dialer.is_none() => match difference(before, spec) {
                        Some(revision) => revision,
                        None => return (kind, ReplaceOutcome::Unchanged),
                    },
                    Some(_) | None => Revision::Link,
                };
                let present = UpstreamDeps::clone(&instances.shared().deps());
                let dialer = options.dialer.unwrap_or_else(|| match revision {
                    Revision::Rules => Arc::clone(&present.dialer),
                    Revision::Link => self.dialer(&known.name, spec),
                });
                let store = self.server_store(&known.name, spec);
                instances.apply_spec(Arc::clone(spec), UpstreamDeps { dialer, store, ..present }, revision);
                let replaced = match revision {
                    Revision::Rules => ReplaceOutcome::Rules,
                    Revision::Link => ReplaceOutcome::Link,
                };
                (kind, replaced)
            }
        }
    }
}

/// The change that a new spec requires, if it differs.
fn difference(before: &ServerSpec, after: &ServerSpec) -> Option<Revision> {
    let as_before = ServerSpec {
        target: before.target.clone(),
        oauth: before.oauth.clone(),
        protocol: before.protocol,
        max_message: before.max_message,
        restore: before.restore.clone(),
        placement: before.placement,
        ..after.clone()
    };
    match (as_before == *before, as_before == *after) {
        (true, true) => None,
        (false, true) => Some(Revision::Rules),
        (true | false, false) => Some(Revision::Link),
    }
}
