//! Session records that outlive the process: ended sessions, last use of the others, and preferences. They are kept in
//! the host's store, which several processes may share, so that a session that has ended in one process has ended in
//! all, also after a restart.
//!
//! No record is secret: a session id cannot be made from it.

use super::claims::{SessionClaims, StoredSession};
use super::preferences::SessionPreferences;
use super::retention::{RetentionLimit, keep_newest};
use gripfast::store::Store;
use gripfast::sync::Mutex;
use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Records of sessions in the store.
pub(crate) struct SessionStore {
    store: Arc<dyn Store>,
    /// Sessions that this process has ended, until their ids expire. A store that is too slow loses writes.
    own: Mutex<OwnRecords>,
    /// Uses recorded since the last trim.
    seen_written: AtomicUsize,
    /// Bytes of preferences recorded since the last trim.
    preference_bytes_written: AtomicUsize,
}

#[derive(Default)]
struct OwnRecords {
    keys: HashSet<String>,
    /// The same keys in the order of their ends, with the time at which they expire.
    order: VecDeque<(Duration, String)>,
    /// Last time the store was tidied.
    last_tidied: Duration,
}

impl SessionStore {
    /// Above this number of ended sessions within one idle time, all ids created before become invalid, and the count
    /// starts again.
    const MAX_ENDED: usize = 100_000;

    /// Maximum number of sessions whose last use is recorded. Above it the longest unused ones are forgotten; their ids
    /// then expire as if they had not been used since the handshake.
    const MAX_SEEN: RetentionLimit = RetentionLimit { entries: 100_000, bytes: 16 << 20 };
    /// Maximum size of recorded preferences. Above it the oldest are forgotten.
    const MAX_PREFERENCES: RetentionLimit = RetentionLimit { entries: 100_000, bytes: 64 << 20 };
    /// Recorded uses and bytes of preferences after which the store is trimmed.
    const TRIM_SEEN_AFTER: usize = 10_000;
    const TRIM_PREFERENCES_AFTER: usize = 8 << 20;

    const TIDY_INTERVAL: Duration = Duration::from_secs(600);

    /// Value: expiry time.
    const ENDED: &'static str = "session-ended";
    /// Value: time of the recorded use, and expiry time.
    const SEEN: &'static str = "session-seen";
    /// Value: expiry time, and preferences.
    const PREFERENCES: &'static str = "session-wishes";
    /// A single key. Value: ids created up to this time are invalid.
    const FLOOR: (&'static str, &'static str) = ("session", "floor");

    pub(crate) fn new(store: Arc<dyn Store>) -> Self {
        Self {
            store,
            own: Mutex::default(),
            seen_written: AtomicUsize::default(),
            preference_bytes_written: AtomicUsize::default(),
        }
    }

    /// Tests if a session that is not in memory is valid at `wall`, and if so records the use. Reads the store, so it
    /// may block.
    pub(crate) fn is_valid(&self, claims: &SessionClaims, wall: Duration, idle: Duration) -> bool {
        let opens = claims.is_valid(wall, idle, self.stored(claims));
        if opens {
            self.save_seen(claims, wall);
        }
        opens
    }

    /// Records a use. Returns false if the session was ended, perhaps by another process.
    pub(crate) fn seen(&self, claims: &SessionClaims, wall: Duration) -> bool {
        if self.has_ended(&claims.key()) {
            return false;
        }
        self.save_seen(claims, wall);
        true
    }

    /// Records a use.
    pub(crate) fn save_seen(&self, claims: &SessionClaims, wall: Duration) {
        let until = wall + claims.idle();
        let value = format!("{} {}", wall.as_secs(), until.as_secs());
        self.store.put(Self::SEEN, &claims.key(), value.into_bytes());
        if is_due(&self.seen_written, 1, Self::TRIM_SEEN_AFTER) {
            self.trim_seen();
        }
    }

    /// Saves the preferences of a session in use.
    pub(crate) fn save_preferences(
        &self,
        claims: &SessionClaims,
        wall: Duration,
        preferences: &SessionPreferences,
    ) {
        let until = (wall + claims.idle()).as_secs();
        if let Ok(preferences) = serde_json::to_string(preferences) {
            let value = format!("{until} {preferences}").into_bytes();
            let bytes = value.len();
            self.store.put(Self::PREFERENCES, &claims.key(), value);
            if is_due(&self.preference_bytes_written, bytes, Self::TRIM_PREFERENCES_AFTER) {
                self.trim_preferences();
            }
        }
    }

    /// Saved preferences of a session. Reads the store, so it may block.
    pub(crate) fn preferences(&self, claims: &SessionClaims) -> Option<SessionPreferences> {
        let kept = String::from_utf8(self.store.get(Self::PREFERENCES, &claims.key())?).ok()?;
        let (_, preferences) = kept.split_once(' ')?;
        serde_json::from_str(preferences).ok()
    }

    /// Records that a client has ended its session. After a flush, a restart does not revive it.
    pub(crate) fn end(&self, claims: &SessionClaims, wall: Duration) {
        let (key, until) = (claims.key(), wall + claims.idle());
        let too_many = {
            let mut own = self.own.lock();
            own.forget_until(wall);
            let too_many = own.keys.len() >= Self::MAX_ENDED;
            if too_many {
                *own = OwnRecords { last_tidied: own.last_tidied, ..OwnRecords::default() };
            }
            own.keys.insert(key.clone());
            own.order.push_back((until, key.clone()));
            too_many
        };
        if too_many {
            self.raise_floor(wall);
        }
        self.store.put(Self::ENDED, &key, until.as_secs().to_string().into_bytes());
        self.store.put(Self::PREFERENCES, &key, Vec::new());
    }

    /// Waits until all records are persisted.
    pub(crate) fn flush(&self) {
        self.store.flush();
    }

    /// Tests if this process has ended the session.
    pub(crate) fn ended_here(&self, claims: &SessionClaims) -> bool {
        self.own.lock().keys.contains(&claims.key())
    }

    /// Removes records of ids that have expired. A scan of the store is slow, so it is done at most once per
    /// `TIDY_INTERVAL`.
    pub(crate) fn tidy(&self, wall: Duration) {
        {
            let mut own = self.own.lock();
            own.forget_until(wall);
            if wall < own.last_tidied + Self::TIDY_INTERVAL {
                return;
            }
            own.last_tidied = wall;
        }
        let now = wall.as_secs();
        for space in [Self::ENDED, Self::SEEN] {
            let keep = move |_: &str, value: &[u8]| last_number(value).is_some_and(|until| until > now);
            self.store.retain(space, Box::new(keep));
        }
        let keep = move |_: &str, value: &[u8]| first_number(value).is_some_and(|until| until > now);
        self.store.retain(Self::PREFERENCES, Box::new(keep));
        self.trim_seen();
        self.trim_preferences();
    }

    fn trim_seen(&self) {
        keep_newest(&*self.store, Self::SEEN, Self::MAX_SEEN, last_number);
    }

    fn trim_preferences(&self) {
        keep_newest(&*self.store, Self::PREFERENCES, Self::MAX_PREFERENCES, first_number);
    }

    /// Raises the floor before the records are removed, so that every ended session is covered by one of the two at any
    /// time.
    fn raise_floor(&self, wall: Duration) {
        tracing::warn!(
            "too many ended sessions to store each; all older session ids are invalid from now on"
        );
        self.store.put(Self::FLOOR.0, Self::FLOOR.1, wall.as_secs().to_string().into_bytes());
        self.store.retain(Self::ENDED, Box::new(|_, _| false));
    }

    fn stored(&self, claims: &SessionClaims) -> StoredSession {
        let key = claims.key();
        let seconds = |value: Vec<u8>| first_number(&value).map(Duration::from_secs);
        StoredSession {
            ended: self.has_ended(&key),
            last_seen: self.store.get(Self::SEEN, &key).and_then(seconds),
            floor: self.store.get(Self::FLOOR.0, Self::FLOOR.1).and_then(seconds),
        }
    }

    fn has_ended(&self, key: &str) -> bool {
        self.own.lock().keys.contains(key) || self.store.get(Self::ENDED, key).is_some()
    }
}

impl OwnRecords {
    fn forget_until(&mut self, wall: Duration) {
        while let Some((_, key)) = self.order.pop_front_if(|(until, _)| *until <= wall) {
            self.keys.remove(&key);
        }
    }
}

/// Adds to a counter. Returns true, and resets it, when it reaches `enough`.
fn is_due(count: &AtomicUsize, more: usize, enough: usize) -> bool {
    let due = count.fetch_add(more, Ordering::Relaxed) + more >= enough;
    if due {
        count.store(0, Ordering::Relaxed);
    }
    due
}

fn first_number(value: &[u8]) -> Option<u64> {
    numbers(value)?.next()?.parse().ok()
}

fn last_number(value: &[u8]) -> Option<u64> {
    numbers(value)?.next_back()?.parse().ok()
}

fn numbers(value: &[u8]) -> Option<std::str::SplitAsciiWhitespace<'_>> {
    Some(std::str::from_utf8(value).ok()?.split_ascii_whitespace())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mcp::elicitation::ElicitationSupport;
    use gripfast::store::{LocalStore, MemoryStore};
    use gripfast::wire::ProtocolVersion;

    const HOUR: Duration = Duration::from_secs(3600);

    fn at(minutes: u64) -> Duration {
        Duration::from_secs(1_700_000_000 + 60 * minutes)
    }

    fn claims(minutes: u64) -> SessionClaims {
        SessionClaims::new(&ProtocolVersion::LATEST_LEGACY, ElicitationSupport::default(), at(minutes), HOUR)
            .unwrap()
    }

    fn in_memory() -> Arc<dyn Store> {
        Arc::new(MemoryStore::default())
    }

    #[test]
    fn a_session_ended_in_one_process_is_invalid_in_all_others() {
        let directory = tempfile::tempdir().unwrap();
        let process = || SessionStore::new(Arc::new(LocalStore::open(directory.path()).unwrap().0));
        let (one, other, session, bystander) = (process(), process(), claims(0), claims(0));
        assert!(other.seen(&session, at(1)) && other.seen(&bystander, at(1)));
        other.flush();
        one.end(&session, at(2));
        one.flush();
        assert!(!other.seen(&session, at(3)), "it has the session in memory and must let go of it");
        for process in [one, other, process()] {
            assert!(!process.is_valid(&session, at(3), HOUR));
            assert!(process.is_valid(&bystander, at(3), HOUR));
        }
    }

    #[test]
    fn a_session_stays_valid_across_processes_while_it_is_used() {
        let store = in_memory();
        let session = claims(0);
        for minutes in [30, 80, 130] {
            let process = SessionStore::new(Arc::clone(&store));
            assert!(process.is_valid(&session, at(minutes), HOUR), "{minutes}");
            process.tidy(at(minutes));
        }
        assert!(!SessionStore::new(store).is_valid(&session, at(190), HOUR));
    }

    #[test]
    fn expired_records_are_removed_and_their_ids_stay_invalid() {
        let store = in_memory();
        let records = SessionStore::new(Arc::clone(&store));
        let (ended, seen) = (claims(0), claims(0));
        records.end(&ended, at(5));
        records.save_seen(&seen, at(5));
        records.tidy(at(54));
        assert!(store.get(SessionStore::ENDED, &ended.key()).is_some());
        records.tidy(at(65));
        assert!(store.get(SessionStore::ENDED, &ended.key()).is_none() && records.own.lock().keys.is_empty());
        assert!(store.get(SessionStore::SEEN, &seen.key()).is_none());
        assert!(!records.is_valid(&ended, at(65), 24 * HOUR) && !records.is_valid(&seen, at(65), 24 * HOUR));
    }

    #[test]
    fn records_of_use_are_bounded_and_the_latest_are_kept() {
        let store = in_memory();
        let records = SessionStore::new(Arc::clone(&store));
        let (unused, ended, used) = (claims(0), claims(0), claims(0));
        records.save_seen(&unused, at(1));
        records.end(&ended, at(1));
        records.save_preferences(&unused, at(1), &SessionPreferences::default());
        for _ in 0..SessionStore::MAX_SEEN.entries + SessionStore::TRIM_SEEN_AFTER {
            records.save_seen(&claims(1), at(30));
        }
        records.save_seen(&used, at(31));
        let seen = Arc::new(AtomicUsize::default());
        let counting = Arc::clone(&seen);
        store.retain(
            SessionStore::SEEN,
            Box::new(move |_, _| counting.fetch_add(1, Ordering::Relaxed) < usize::MAX),
        );
        assert!(
            seen.load(Ordering::Relaxed) <= SessionStore::MAX_SEEN.entries + SessionStore::TRIM_SEEN_AFTER
        );
        assert!(store.get(SessionStore::SEEN, &unused.key()).is_none());
        assert!(records.is_valid(&unused, at(59), HOUR), "as if it had not been used since its handshake");
        assert!(records.is_valid(&used, at(80), HOUR) && !records.is_valid(&ended, at(59), HOUR));
    }

    #[test]
    fn too_many_ended_sessions_invalidate_all_older_ids() {
        let store = in_memory();
        let records = SessionStore::new(Arc::clone(&store));
        let (first, alive, younger) = (claims(0), claims(1), claims(3));
        records.end(&first, at(1));
        for _ in 0..SessionStore::MAX_ENDED {
            records.end(&claims(1), at(2));
        }
        assert!(records.own.lock().keys.len() <= SessionStore::MAX_ENDED);
        for process in [records, SessionStore::new(store)] {
            assert!(!process.is_valid(&first, at(3), HOUR), "its end is not remembered by itself any more");
            assert!(!process.is_valid(&alive, at(3), HOUR), "which costs the others a new handshake");
            assert!(process.is_valid(&younger, at(3), HOUR));
        }
    }
}
