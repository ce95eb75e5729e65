//! Event counts of a server by kind, over all its instances.

use crate::sync::Mutex;
use gripfast_core::event::Event;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Event counts of one server. Clones share their counts.
#[derive(Debug, Clone, Default)]
pub(crate) struct EventCounts {
    counts: Arc<Mutex<BTreeMap<&'static str, u64>>>,
}

impl EventCounts {
    pub(super) fn count(&self, event: &Event) {
        *self.counts.lock().entry(event.kind()).or_default() += 1;
    }

    pub(super) fn read(&self) -> BTreeMap<&'static str, u64> {
        self.counts.lock().clone()
    }
}
