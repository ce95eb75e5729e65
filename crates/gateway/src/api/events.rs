//! What happened, numbered, so that whoever follows knows what was missed and can go on after a break.
//!
//! Followers read at their own pace from a bounded ring; nobody waits for them. A number that is gone from
//! the ring when a follower comes for it was missed, and the follower is told how many were.

use super::view::EventView;
use axum::body::Bytes;
use gripfast::{Event, UpstreamEvent};
use serde::Serialize;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{broadcast, watch};
use tokio_util::task::AbortOnDropHandle;

/// The last events of all upstreams and of the gateway itself.
pub(super) struct Journal {
    ring: Arc<Ring>,
    _writer: AbortOnDropHandle<()>,
}

struct Ring {
    /// Tells this run's numbers from those of an earlier one.
    run: String,
    entries: Mutex<VecDeque<Entry>>,
    /// The number of the last event.
    latest: watch::Sender<u64>,
}

#[derive(Clone)]
struct Entry {
    number: u64,
    frame: Bytes,
    /// Whether it tells about clients and operators.
    is_record: bool,
}

/// Which events a follower may see.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sees {
    /// All of them.
    Everything,
    /// What happens to servers, and nothing about clients and operators.
    Servers,
}

/// One who reads along.
pub(super) struct Follower {
    ring: Arc<Ring>,
    latest: watch::Receiver<u64>,
    next: u64,
    sees: Sees,
}

impl Journal {
    pub(super) fn following(events: broadcast::Receiver<UpstreamEvent>) -> Self {
        let begun = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let ring = Arc::new(Ring {
            run: format!("{:x}", begun.as_millis()),
            entries: Mutex::default(),
            latest: watch::Sender::new(0),
        });
        let writer = tokio::spawn(write(Arc::clone(&ring), events));
        Self { ring, _writer: AbortOnDropHandle::new(writer) }
    }

    /// Follows from now on, or from after the event of this id if it is one of ours.
    pub(super) fn follow(&self, last_seen: Option<&str>, sees: Sees) -> Follower {
        let latest = self.ring.latest.subscribe();
        let now = *latest.borrow();
        let seen = last_seen.and_then(|id| self.ring.number_of(id)).filter(|seen| *seen <= now);
        Follower { ring: Arc::clone(&self.ring), latest, next: seen.unwrap_or(now) + 1, sees }
    }
}

async fn write(ring: Arc<Ring>, mut events: broadcast::Receiver<UpstreamEvent>) {
    loop {
        match events.recv().await {
            Ok(event) => ring.write(&event),
            // Numbers that nobody will ever find: they count as missed for everybody.
            Err(RecvError::Lagged(lost)) => ring.latest.send_modify(|latest| *latest += lost),
            Err(RecvError::Closed) => return,
        }
    }
}

impl Ring {
    /// A break of a few minutes in a bad hour fits.
    const CAPACITY: usize = 512;

    fn write(&self, event: &UpstreamEvent) {
        let number = *self.latest.borrow() + 1;
        let frame = self.frame(number, &EventView::from(event));
        {
            let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
            if entries.len() == Self::CAPACITY {
                entries.pop_front();
            }
            let is_record = matches!(event.event, Event::Security(_));
            entries.push_back(Entry { number, frame, is_record });
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
        let id = format!("{}-{number}", self.run);
        frame(Some(&id), &Numbered { id: &id, event })
    }

    fn number_of(&self, id: &str) -> Option<u64> {
        let (run, number) = id.split_once('-')?;
        if run == self.run { number.parse().ok() } else { None }
    }

    fn first_from(&self, number: u64) -> Option<Entry> {
        let entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let at = entries.partition_point(|entry| entry.number < number);
        entries.get(at).cloned()
    }
}

impl Follower {
    /// The next frame; `None` when there will be none. Dropping the future loses nothing.
    pub(super) async fn next(&mut self) -> Option<Bytes> {
        loop {
            let next = self.next;
            let latest = *self.latest.wait_for(|latest| *latest >= next).await.ok()?;
            match self.ring.first_from(next) {
                Some(entry) if entry.number == next => {
                    self.next += 1;
                    if !entry.is_record || self.sees == Sees::Everything {
                        return Some(entry.frame);
                    }
                }
                later => {
                    let found = later.map_or(latest + 1, |entry| entry.number);
                    self.next = found;
                    return Some(missed(found - next));
                }
            }
        }
    }
}

/// What a follower is told that was too slow, or away for too long. It has no id: there is nothing to go
/// back to.
fn missed(count: u64) -> Bytes {
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
    // JSON has no line breaks of its own, so it is one line of the frame.
    let data = serde_json::to_string(data).expect("views have text for keys and no values that can fail");
    frame.push_str(&format!("data: {data}\n\n"));
    frame.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use gripfast::{Host, SecurityEvent};

    fn ring() -> (Journal, UpstreamEvent) {
        let (_, events) = broadcast::channel(1);
        let journal = Journal::following(events);
        (
            journal,
            UpstreamEvent {
                server: Some("demo".into()),
                instance: None,
                at: Default::default(),
                event: Event::Slept,
            },
        )
    }

    async fn told(follower: &mut Follower) -> String {
        String::from_utf8(follower.next().await.unwrap().to_vec()).unwrap()
    }

    #[tokio::test]
    async fn a_follower_goes_on_after_the_event_it_saw_last() {
        let (journal, event) = ring();
        let mut live = journal.follow(None, Sees::Everything);
        (0..3).for_each(|_| journal.ring.write(&event));
        let first = told(&mut live).await;
        let id = first.lines().next().unwrap().strip_prefix("id: ").unwrap();
        let mut again = journal.follow(Some(id), Sees::Everything);
        assert_eq!(told(&mut again).await, told(&mut live).await);
        assert!(told(&mut again).await.contains("-3\n"));
    }

    #[tokio::test]
    async fn an_id_of_another_run_means_from_now_on() {
        let (journal, event) = ring();
        journal.ring.write(&event);
        for id in ["1-1", "", "nonsense", &format!("{}-99", journal.ring.run)] {
            assert_eq!(journal.follow(Some(id), Sees::Everything).next, 2, "{id}");
        }
    }

    #[tokio::test]
    async fn a_slow_follower_is_told_how_many_it_missed() {
        let (journal, event) = ring();
        let mut slow = journal.follow(None, Sees::Everything);
        (0..Ring::CAPACITY + 7).for_each(|_| journal.ring.write(&event));
        assert_eq!(
            told(&mut slow).await,
            "data: {\"kind\":\"missed\",\"text\":\"7 events were missed\",\"count\":7}\n\n"
        );
        assert!(told(&mut slow).await.contains("-8\n"));
    }

    #[tokio::test]
    async fn g05_events_about_clients_are_left_out_for_a_follower_that_may_not_see_them() {
        let (journal, event) = ring();
        let mut followers = [Sees::Everything, Sees::Servers].map(|sees| journal.follow(None, sees));
        let names = vec!["laptop".to_owned()];
        let keys = SecurityEvent::KeysChanged { change: gripfast::KeyChange::Added, names, actor: None };
        journal.ring.write(&UpstreamEvent { server: None, event: Event::Security(keys), ..event.clone() });
        journal.ring.write(&event);
        let [all, servers] = &mut followers;
        let first = told(all).await;
        assert!(first.contains("\"server\":null,\"kind\":\"keys_changed\""), "{first}");
        assert_eq!(told(all).await, told(servers).await, "it is neither told nor counted as missed");
    }

    #[tokio::test]
    async fn the_writer_ends_with_the_journal() {
        let host = Host::builder().build();
        let journal = Journal::following(host.events());
        let ring = Arc::downgrade(&journal.ring);
        drop(journal);
        while ring.strong_count() > 0 {
            tokio::task::yield_now().await;
        }
    }
}
