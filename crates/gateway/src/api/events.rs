//! Event log of the admin API: a bounded ring of numbered events, from which a subscriber can resume after a
//! disconnect.
//!
//! Subscribers read at their own pace, and the writer never waits for them. Events that left the ring before a
//! subscriber read them count as missed; the subscriber gets their number.

use super::types::EventView;
use axum::body::Bytes;
use gripfast::sync::Mutex;
use gripfast::{Event, UpstreamEvent};
use serde::Serialize;
use std::collections::VecDeque;
use std::sync::Arc;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{broadcast, watch};
use tokio_util::task::AbortOnDropHandle;

/// The last events of all servers and of the gateway.
pub(super) struct EventLog {
    ring: Arc<Ring>,
    _writer: AbortOnDropHandle<()>,
}

struct Ring {
    /// Prefix of event ids, which distinguishes this run of the gateway from earlier ones.
    run_id: String,
    entries: Mutex<VecDeque<Entry>>,
    /// Number of the last event.
    latest: watch::Sender<u64>,
}

#[derive(Clone)]
struct Entry {
    number: u64,
    frame: Bytes,
    /// True for an event about clients or operators.
    is_security: bool,
}

/// The events that a subscriber may see.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EventVisibility {
    /// All events.
    Everything,
    /// Events of servers; no events about clients and operators.
    Servers,
}

/// A reader of the event log.
pub(super) struct EventSubscriber {
    ring: Arc<Ring>,
    latest: watch::Receiver<u64>,
    next: u64,
    visibility: EventVisibility,
}

impl EventLog {
    pub(super) fn spawn(events: broadcast::Receiver<UpstreamEvent>) -> Self {
        let started = gripfast::unix_time();
        let ring = Arc::new(Ring {
            run_id: format!("{:x}", started.as_millis()),
            entries: Mutex::default(),
            latest: watch::Sender::new(0),
        });
        let writer = tokio::spawn(record_events(Arc::clone(&ring), events));
        Self { ring, _writer: AbortOnDropHandle::new(writer) }
    }

    /// Subscribes to the events after the event with id `last_seen`, or to new events if the id is not of this run.
    pub(super) fn subscribe(&self, last_seen: Option<&str>, visibility: EventVisibility) -> EventSubscriber {
        let latest = self.ring.latest.subscribe();
        let now = *latest.borrow();
        let seen = last_seen.and_then(|id| self.ring.number_of(id)).filter(|seen| *seen <= now);
        EventSubscriber { ring: Arc::clone(&self.ring), latest, next: seen.unwrap_or(now) + 1, visibility }
    }
}

async fn record_events(ring: Arc<Ring>, mut events: broadcast::Receiver<UpstreamEvent>) {
    loop {
        match events.recv().await {
            Ok(event) => ring.push(&event),
            // These events are lost: all subscribers count them as missed.
            Err(RecvError::Lagged(lost)) => ring.latest.send_modify(|latest| *latest += lost),
            Err(RecvError::Closed) => return,
        }
    }
}

impl Ring {
    /// Enough for a disconnect of a few minutes while many events happen.
    const CAPACITY: usize = 512;

    fn push(&self, event: &UpstreamEvent) {
        let number = *self.latest.borrow() + 1;
        let frame = self.frame(number, &EventView::from(event));
        {
            let mut entries = self.entries.lock();
            if entries.len() == Self::CAPACITY {
                entries.pop_front();
            }
            let is_record = matches!(event.event, Event::Security(_));
            entries.push_back(Entry { number, frame, is_security: is_record });
        }
        self.latest.send_replace(number);
    }

    fn frame(&self, number: u64, event: &EventView) -> Bytes {
        #[derive(Serialize)]
        struct Numbered<'e> {
            id: &'e str,
            #[serde(flatten)]
            event: &'e EventView,
        }
        let id = format!("{}-{number}", self.run_id);
        frame(Some(&id), &Numbered { id: &id, event })
    }

    fn number_of(&self, id: &str) -> Option<u64> {
        let (run, number) = id.split_once('-')?;
        if run == self.run_id { number.parse().ok() } else { None }
    }

    fn first_from(&self, number: u64) -> Option<Entry> {
        let entries = self.entries.lock();
        let at = entries.partition_point(|entry| entry.number < number);
        entries.get(at).cloned()
    }
}

impl EventSubscriber {
    /// The next frame, or `None` at the end. Dropping the future loses no event.
    pub(super) async fn next(&mut self) -> Option<Bytes> {
        loop {
            let next = self.next;
            let latest = *self.latest.wait_for(|latest| *latest >= next).await.ok()?;
            match self.ring.first_from(next) {
                Some(entry) if entry.number == next => {
                    self.next += 1;
                    if !entry.is_security || self.visibility == EventVisibility::Everything {
                        return Some(entry.frame);
                    }
                }
                later => {
                    let found = later.map_or(latest + 1, |entry| entry.number);
                    self.next = found;
                    return Some(missed_frame(found - next));
                }
            }
        }
    }
}

/// Message to a subscriber that was too slow or disconnected for too long. It has no id, because a client cannot
/// resume from it.
fn missed_frame(count: u64) -> Bytes {
    #[derive(Serialize)]
    struct Missed {
        kind: &'static str,
        text: String,
        count: u64,
    }
    let events = if count == 1 { "event was" } else { "events were" };
    frame(None, &Missed { kind: "missed", text: format!("{count} {events} missed"), count })
}

fn frame(id: Option<&str>, data: &impl Serialize) -> Bytes {
    let mut frame = id.map_or(String::new(), |id| format!("id: {id}\n"));
    // Serialized JSON contains no line breaks, so that it is one line of the frame.
    let data = serde_json::to_string(data).expect("views have text for keys and no values that can fail");
    frame.push_str(&format!("data: {data}\n\n"));
    frame.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use gripfast::{Host, SecurityEvent};

    fn ring() -> (EventLog, UpstreamEvent) {
        let (_, events) = broadcast::channel(1);
        let log = EventLog::spawn(events);
        (
            log,
            UpstreamEvent {
                server: Some("demo".into()),
                instance: None,
                at: Default::default(),
                event: Event::MachineSlept,
            },
        )
    }

    async fn frame_of(subscriber: &mut EventSubscriber) -> String {
        String::from_utf8(subscriber.next().await.unwrap().to_vec()).unwrap()
    }

    #[tokio::test]
    async fn a_subscriber_resumes_after_the_last_event_it_saw() {
        let (log, event) = ring();
        let mut live = log.subscribe(None, EventVisibility::Everything);
        (0..3).for_each(|_| log.ring.push(&event));
        let first = frame_of(&mut live).await;
        let id = first.lines().next().unwrap().strip_prefix("id: ").unwrap();
        let mut again = log.subscribe(Some(id), EventVisibility::Everything);
        assert_eq!(frame_of(&mut again).await, frame_of(&mut live).await);
        assert!(frame_of(&mut again).await.contains("-3\n"));
    }

    #[tokio::test]
    async fn an_event_id_of_another_run_starts_with_new_events() {
        let (log, event) = ring();
        log.ring.push(&event);
        for id in ["1-1", "", "nonsense", &format!("{}-99", log.ring.run_id)] {
            assert_eq!(log.subscribe(Some(id), EventVisibility::Everything).next, 2, "{id}");
        }
    }

    #[tokio::test]
    async fn a_slow_subscriber_gets_the_number_of_missed_events() {
        let (log, event) = ring();
        let mut slow = log.subscribe(None, EventVisibility::Everything);
        (0..Ring::CAPACITY + 7).for_each(|_| log.ring.push(&event));
        assert_eq!(
            frame_of(&mut slow).await,
            "data: {\"kind\":\"missed\",\"text\":\"7 events were missed\",\"count\":7}\n\n"
        );
        assert!(frame_of(&mut slow).await.contains("-8\n"));
    }

    #[tokio::test]
    async fn g05_events_about_clients_are_hidden_from_a_subscriber_without_access() {
        let (log, event) = ring();
        let mut subscribers = [EventVisibility::Everything, EventVisibility::Servers]
            .map(|visibility| log.subscribe(None, visibility));
        let names = vec!["laptop".to_owned()];
        let keys = SecurityEvent::KeysChanged { change: gripfast::KeyChange::Added, names, actor: None };
        log.ring.push(&UpstreamEvent { server: None, event: Event::Security(keys), ..event.clone() });
        log.ring.push(&event);
        let [all, servers] = &mut subscribers;
        let first = frame_of(all).await;
        assert!(first.contains("\"server\":null,\"kind\":\"keys_changed\""), "{first}");
        assert_eq!(frame_of(all).await, frame_of(servers).await, "it is neither sent nor counted as missed");
    }

    #[tokio::test]
    async fn the_writer_ends_with_the_event_log() {
        let host = Host::builder().build();
        let log = EventLog::spawn(host.subscribe_events());
        let ring = Arc::downgrade(&log.ring);
        drop(log);
        while ring.strong_count() > 0 {
            tokio::task::yield_now().await;
        }
    }
}
