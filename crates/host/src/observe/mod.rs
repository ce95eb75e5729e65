//! Observation of events: each is logged, counted, kept among the last events of its upstream, and published to
//! subscribers. Makes no decisions.

mod ends;
mod event_counts;
mod log;
mod stats;

pub(crate) use ends::EndCounters;
pub use ends::{CallEnds, DurationHistogram};
pub(crate) use event_counts::EventCounts;
pub use stats::CallStats;
pub(crate) use stats::Stats;

use crate::clock::Clock;
use crate::sync::Mutex;
use gripfast_core::event::Event;
use gripfast_core::time::{Now, Wall};
use log::Log;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use tokio::sync::broadcast;

/// An event of one upstream, or of the gateway as a whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UpstreamEvent {
    /// The server's name; `None` for events of no server, such as a failed authentication.
    pub server: Option<Arc<str>>,
    /// Number of the dedicated instance; `None` for the shared one.
    pub instance: Option<u64>,
    /// Time of the event.
    pub at: Wall,
    /// The event.
    pub event: Event,
}

/// Broadcast channel for the events of the host and its upstreams.
#[derive(Debug, Clone)]
pub(crate) struct Feed {
    sender: broadcast::Sender<UpstreamEvent>,
}

impl Feed {
    /// A receiver that falls further behind misses the oldest events and gets a `Lagged` error.
    const CAPACITY: usize = 1024;

    pub(crate) fn new() -> Self {
        Self { sender: broadcast::channel(Self::CAPACITY).0 }
    }

    pub(crate) fn subscribe(&self) -> broadcast::Receiver<UpstreamEvent> {
        self.sender.subscribe()
    }

    pub(crate) fn publish(&self, event: UpstreamEvent) {
        // An error means that there is no subscriber.
        let _ = self.sender.send(event);
    }
}

/// Observer of one upstream.
#[derive(Debug)]
pub(crate) struct Observer {
    server: Arc<str>,
    instance: Option<u64>,
    feed: Feed,
    log: Log,
    tally: EventCounts,
    recent: Mutex<VecDeque<UpstreamEvent>>,
}

impl Observer {
    /// Number of events in the status.
    const RECENT: usize = 20;

    /// `instance` is the number of a dedicated instance; `tally` counts for all instances.
    pub(crate) fn new(
        server: Arc<str>,
        instance: Option<u64>,
        feed: Feed,
        tally: EventCounts,
        clock: Clock,
    ) -> Self {
        let log = Log::new(Arc::clone(&server), instance, clock);
        Self { server, instance, feed, log, tally, recent: Mutex::default() }
    }

    pub(crate) fn record(&self, now: Now, event: Event) {
        self.log.write(now.mono, event.clone());
        self.tally.count(&event);
        let server = Some(Arc::clone(&self.server));
        let published = UpstreamEvent { server, instance: self.instance, at: now.wall, event };
        {
            let mut recent = self.recent.lock();
            if recent.len() == Self::RECENT {
                recent.pop_front();
            }
            recent.push_back(published.clone());
        }
        self.feed.publish(published);
    }

    /// Event counts by kind, over all instances.
    pub(crate) fn counts(&self) -> BTreeMap<&'static str, u64> {
        self.tally.read()
    }

    pub(crate) fn recent(&self) -> Vec<UpstreamEvent> {
        self.recent.lock().iter().cloned().collect()
    }
}
