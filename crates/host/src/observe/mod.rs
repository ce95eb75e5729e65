//! One event, several views: a log line, a place among the last events of its upstream, a count, a feed for
//! whoever follows. It watches and never decides.

mod ends;
mod log;
mod stats;
mod tally;

pub(crate) use ends::Ends;
pub use ends::{CallEnds, Spread};
pub use stats::CallStats;
pub(crate) use stats::Stats;
pub(crate) use tally::Tally;

use crate::clock::Clock;
use gripfast_core::event::Event;
use gripfast_core::time::{Now, Wall};
use log::Log;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::broadcast;

/// Something that happened to one upstream, or to the gateway as a whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UpstreamEvent {
    /// The upstream's name; `None` for what belongs to no upstream, such as a failed authentication.
    pub server: Option<Arc<str>>,
    /// The number of the instance, if it is one that belongs to a single client.
    pub instance: Option<u64>,
    /// When.
    pub at: Wall,
    /// What.
    pub event: Event,
}

/// Where the host and all its upstreams tell what happens to them.
#[derive(Debug, Clone)]
pub(crate) struct Feed {
    to: broadcast::Sender<UpstreamEvent>,
}

impl Feed {
    /// Whoever follows more slowly than this many events misses the oldest, and is told so.
    const CAPACITY: usize = 1024;

    pub(crate) fn new() -> Self {
        Self { to: broadcast::channel(Self::CAPACITY).0 }
    }

    pub(crate) fn follow(&self) -> broadcast::Receiver<UpstreamEvent> {
        self.to.subscribe()
    }

    pub(crate) fn tell(&self, event: UpstreamEvent) {
        // Nobody following is fine.
        let _ = self.to.send(event);
    }
}

/// What watches one upstream.
#[derive(Debug)]
pub(crate) struct Observer {
    server: Arc<str>,
    instance: Option<u64>,
    feed: Feed,
    log: Log,
    tally: Tally,
    recent: Mutex<VecDeque<UpstreamEvent>>,
}

impl Observer {
    /// Events that status shows.
    const RECENT: usize = 20;

    /// `instance` is the number of an instance that belongs to a single client; `tally` counts for all of them.
    pub(crate) fn new(
        server: Arc<str>,
        instance: Option<u64>,
        feed: Feed,
        tally: Tally,
        clock: Clock,
    ) -> Self {
        let log = Log::new(Arc::clone(&server), instance, clock);
        Self { server, instance, feed, log, tally, recent: Mutex::default() }
    }

    pub(crate) fn tell(&self, now: Now, event: Event) {
        self.log.write(now.mono, event.clone());
        self.tally.count(&event);
        let server = Some(Arc::clone(&self.server));
        let told = UpstreamEvent { server, instance: self.instance, at: now.wall, event };
        {
            let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
            if recent.len() == Self::RECENT {
                recent.pop_front();
            }
            recent.push_back(told.clone());
        }
        self.feed.tell(told);
    }

    /// How often each kind of event happened to the server.
    pub(crate) fn counts(&self) -> BTreeMap<&'static str, u64> {
        self.tally.read()
    }

    pub(crate) fn recent(&self) -> Vec<UpstreamEvent> {
        self.recent.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
    }
}
