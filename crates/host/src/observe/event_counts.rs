//! How often each kind of event happened to a server, all its instances together.

use gripfast_core::event::Event;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// How often each kind of event happened to one server. A clone counts in the same place.
#[derive(Debug, Clone, Default)]
pub(crate) struct Tally {
    counts: Arc<Mutex<BTreeMap<&'static str, u64>>>,
}

impl Tally {
    pub(super) fn count(&self, event: &Event) {
        *self.counts.lock().unwrap_or_else(PoisonError::into_inner).entry(event.word()).or_default() += 1;
    }

    pub(super) fn read(&self) -> BTreeMap<&'static str, u64> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
