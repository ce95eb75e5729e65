//! A server whose config has changed. What differs decides how much is disturbed: rules hold from the next call
//! on, and only what the old config made otherwise (a child, a session) is made anew, before it is let go.

use crate::config::ServerSpec;
use crate::host::{Entry, EntryKind, Host, SpawnOptions};
use gripfast_core::failure::CallError;
use gripfast_core::supervise::upstream::Revision;
use std::sync::{Arc, PoisonError};

/// What a changed config asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Replaced {
    /// Nothing: it says what it said before.
    Nothing,
    /// Rules, which hold from the next call on. The server's link stays.
    Rules,
    /// A new child or session. One that works stays in use until the new one is listed, and calls under way
    /// finish on it; if the new one cannot be made, the old one stays, and the new one is tried again.
    Link,
    /// The server was started, or ended, for it was or is to be switched off.
    Presence,
}

impl Host {
    /// Has a server go by another config, under its name and in its place. Nobody who follows its resources
    /// has to do so anew, and nothing that was counted is lost.
    ///
    /// Waits for nothing: what comes of a new link is told by [`Host::events`] and [`Host::status_of`], and a server
    /// that is to be switched off ends as with [`Host::let_go`].
    ///
    /// # Errors
    /// There is none of this name.
    pub fn replace(&self, server: &str, spec: ServerSpec) -> Result<Replaced, CallError> {
        self.replace_with(server, spec, SpawnOptions::default())
    }

    /// [`Host::replace`] with options. A transport of the program's own makes a new link in any case.
    ///
    /// # Errors
    /// As [`Host::replace`].
    pub fn replace_with(
        &self,
        server: &str,
        spec: ServerSpec,
        options: SpawnOptions,
    ) -> Result<Replaced, CallError> {
        // One at a time. What is stored of a server is read meanwhile, which no call is to wait for.
        let _turn = self.inner.replacing.lock().unwrap_or_else(PoisonError::into_inner);
        let known = self.entry(server)?;
        let (kind, replaced) = self.revised(&known, &spec, options);
        let revised = Arc::new(self.entry_of(server, spec, kind));
        if !self.put_in_place(&known, &revised) {
            // Somebody has removed it meanwhile, with what it had then.
            if !matches!(known.kind, EntryKind::Running(_)) {
                drop(self.ends(revised));
            }
            return Err(self.unknown_server(server));
        }
        self.inner.bell.ring();
        if matches!(revised.kind, EntryKind::Disabled) {
            drop(self.ends(known));
        }
        Ok(replaced)
    }

    fn put_in_place(&self, known: &Arc<Entry>, revised: &Arc<Entry>) -> bool {
        let mut entries = self.inner.entries.write().unwrap_or_else(PoisonError::into_inner);
        let place = entries.iter_mut().find(|entry| Arc::ptr_eq(entry, known));
        place.map(|place| *place = Arc::clone(revised)).is_some()
    }

    /// Puts the servers into this order, which decides who keeps a name that two of them want. Those that are
    /// not named come last, as they were.
    pub fn arrange(&self, names: &[&str]) {
        let place = |name: &str| names.iter().position(|known| *known == name).unwrap_or(names.len());
        self.inner
            .entries
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .sort_by_key(|entry| place(&entry.name));
        self.inner.bell.ring();
    }

    fn revised(&self, known: &Entry, spec: &ServerSpec, options: SpawnOptions) -> (EntryKind, Replaced) {
        match &known.kind {
            _ if spec.disabled => match known.kind {
                EntryKind::Running(_) => (EntryKind::Disabled, Replaced::Presence),
                EntryKind::Broken { .. } | EntryKind::Disabled => (EntryKind::Disabled, Replaced::Nothing),
            },
            EntryKind::Broken { .. } | EntryKind::Disabled => {
                let instances = self.start(&known.name, spec, options);
                (EntryKind::Running(Arc::new(instances)), Replaced::Presence)
            }
            EntryKind::Running(instances) => {
                let kind = EntryKind::Running(Arc::clone(instances));
                let revision = match &known.spec {
                    Some(before) if options.dialer.is_none() => match difference(before, spec) {
                        Some(revision) => revision,
                        None => return (kind, Replaced::Nothing),
                    },
                    Some(_) | None => Revision::Link,
                };
                let present = instances.base().settings();
                let dialer = options.dialer.or(match revision {
                    Revision::Rules => Some(Arc::clone(&present.dialer)),
                    Revision::Link => None,
                });
                let settings = self.settings(&known.name, spec, dialer);
                instances.revise(settings, spec.isolation, spec.max_instances as usize, revision);
                let replaced = match revision {
                    Revision::Rules => Replaced::Rules,
                    Revision::Link => Replaced::Link,
                };
                (kind, replaced)
            }
        }
    }
}

/// What it takes to go from one config to the other, if they differ.
fn difference(before: &ServerSpec, after: &ServerSpec) -> Option<Revision> {
    let as_before = ServerSpec {
        target: before.target.clone(),
        oauth: before.oauth.clone(),
        protocol: before.protocol,
        max_message: before.max_message,
        restore: before.restore.clone(),
        ..after.clone()
    };
    match (as_before == *before, as_before == *after) {
        (true, true) => None,
        (false, true) => Some(Revision::Rules),
        (true | false, false) => Some(Revision::Link),
    }
}
