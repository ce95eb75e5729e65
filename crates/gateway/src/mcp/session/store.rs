//! What is remembered of sessions beyond this process: which ones their clients ended, and when the others
//! were last seen, and what their clients wish for. It is kept in the host's store, which several processes may share, so
//! that a session that is over in one of them is over in all, before and after a restart.
//!
//! Nothing secret is kept: an id cannot be made from what is written here.

use super::newest::{Most, keep_newest};
use super::pass::{Pass, Remembered};
use super::wishes::Wishes;
use gripfast::store::Store;
use std::collections::{HashSet, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// The memory of sessions.
pub(crate) struct Recall {
    store: Arc<dyn Store>,
    /// What this process has ended, until nobody could open it anyway. A store may take a while to show
    /// what was put.
    own: Mutex<Own>,
    /// Uses that were noted since the store was last gone through for their number.
    noted: AtomicUsize,
    /// The same for the bytes of wishes.
    wished: AtomicUsize,
}

#[derive(Default)]
struct Own {
    keys: HashSet<String>,
    /// The same in the order of their ends, with the moment from which on they need not be remembered.
    order: VecDeque<(Duration, String)>,
    /// When the store was last gone through.
    tidied: Duration,
}

impl Recall {
    /// When this many were ended within one idle time, all ids up to then open no more, and the count
    /// begins anew.
    const MOST_ENDED: usize = 100_000;

    /// Sessions of which it is remembered when they were last in use. Beyond it those unused for longest are forgotten:
    /// they open for as long after their handshake as if they had not been used since.
    const MOST_SEEN: Most = Most { entries: 100_000, bytes: 16 << 20 };
    /// What is remembered of what clients wish for. Beyond it the oldest wishes are forgotten.
    const MOST_WISHES: Most = Most { entries: 100_000, bytes: 64 << 20 };
    /// So many uses, and so many bytes of wishes, are noted before the store is gone through again.
    const NOTED_BETWEEN: usize = 10_000;
    const WISHED_BETWEEN: usize = 8 << 20;

    const TIDIED_EVERY: Duration = Duration::from_secs(600);

    /// Keys with the time from which on they need not be remembered.
    const ENDED: &'static str = "session-ended";
    /// Keys with the time when they were last seen to be used, and for how long that counts.
    const SEEN: &'static str = "session-seen";
    /// Keys with the time from which on they need not be remembered, and what their clients wish for.
    const WISHES: &'static str = "session-wishes";
    /// One key: ids from up to this time open no more.
    const FLOOR: (&'static str, &'static str) = ("session", "floor");

    pub(crate) fn new(store: Arc<dyn Store>) -> Self {
        Self { store, own: Mutex::default(), noted: AtomicUsize::default(), wished: AtomicUsize::default() }
    }

    /// Whether a session that is not in memory opens at `wall`; if so, it is in use from then on. Reads the
    /// store, which may take a moment.
    pub(crate) fn opens(&self, pass: &Pass, wall: Duration, idle: Duration) -> bool {
        let opens = pass.opens(wall, idle, self.remembered(pass));
        if opens {
            self.note_seen(pass, wall);
        }
        opens
    }

    /// A session is in use. Answers whether it still may be: another process may know that it was ended.
    pub(crate) fn seen(&self, pass: &Pass, wall: Duration) -> bool {
        if self.has_ended(&pass.key()) {
            return false;
        }
        self.note_seen(pass, wall);
        true
    }

    /// Notes that a session was in use.
    pub(crate) fn note_seen(&self, pass: &Pass, wall: Duration) {
        let until = wall + pass.idle();
        let value = format!("{} {}", wall.as_secs(), until.as_secs());
        self.store.put(Self::SEEN, &pass.key(), value.into_bytes());
        if is_due(&self.noted, 1, Self::NOTED_BETWEEN) {
            self.bound_seen();
        }
    }

    /// Remembers what the client of a session that is in use wishes for.
    pub(crate) fn keep_wishes(&self, pass: &Pass, wall: Duration, wishes: &Wishes) {
        let until = (wall + pass.idle()).as_secs();
        if let Ok(wishes) = serde_json::to_string(wishes) {
            let value = format!("{until} {wishes}").into_bytes();
            let bytes = value.len();
            self.store.put(Self::WISHES, &pass.key(), value);
            if is_due(&self.wished, bytes, Self::WISHED_BETWEEN) {
                self.bound_wishes();
            }
        }
    }

    /// What the client of a session wished for. Reads the store, which may take a moment.
    pub(crate) fn wishes(&self, pass: &Pass) -> Option<Wishes> {
        let kept = String::from_utf8(self.store.get(Self::WISHES, &pass.key())?).ok()?;
        let (_, wishes) = kept.split_once(' ')?;
        serde_json::from_str(wishes).ok()
    }

    /// The client of a session ended it. Once this was flushed, a restart does not bring it back.
    pub(crate) fn end(&self, pass: &Pass, wall: Duration) {
        let (key, until) = (pass.key(), wall + pass.idle());
        let too_many = {
            let mut own = self.lock();
            own.forget_until(wall);
            let too_many = own.keys.len() >= Self::MOST_ENDED;
            if too_many {
                *own = Own { tidied: own.tidied, ..Own::default() };
            }
            own.keys.insert(key.clone());
            own.order.push_back((until, key.clone()));
            too_many
        };
        if too_many {
            self.raise_floor(wall);
        }
        self.store.put(Self::ENDED, &key, until.as_secs().to_string().into_bytes());
        self.store.put(Self::WISHES, &key, Vec::new());
    }

    /// Waits until everything that was noted outlives us.
    pub(crate) fn flush(&self) {
        self.store.flush();
    }

    /// Whether this very process has ended it.
    pub(crate) fn ended_here(&self, pass: &Pass) -> bool {
        self.lock().keys.contains(&pass.key())
    }

    /// Forgets what nobody could open any more. Going through a store takes a while, so that is done now and
    /// then only.
    pub(crate) fn tidy(&self, wall: Duration) {
        {
            let mut own = self.lock();
            own.forget_until(wall);
            if wall < own.tidied + Self::TIDIED_EVERY {
                return;
            }
            own.tidied = wall;
        }
        let now = wall.as_secs();
        for space in [Self::ENDED, Self::SEEN] {
            let keep = move |_: &str, value: &[u8]| last_number(value).is_some_and(|until| until > now);
            self.store.retain(space, Box::new(keep));
        }
        let keep = move |_: &str, value: &[u8]| first_number(value).is_some_and(|until| until > now);
        self.store.retain(Self::WISHES, Box::new(keep));
        self.bound_seen();
        self.bound_wishes();
    }

    fn bound_seen(&self) {
        keep_newest(&*self.store, Self::SEEN, Self::MOST_SEEN, last_number);
    }

    fn bound_wishes(&self) {
        keep_newest(&*self.store, Self::WISHES, Self::MOST_WISHES, first_number);
    }

    /// The floor goes up first: at no time is something neither below it nor remembered.
    fn raise_floor(&self, wall: Duration) {
        tracing::warn!("too many sessions were ended to remember each; older ids open no more");
        self.store.put(Self::FLOOR.0, Self::FLOOR.1, wall.as_secs().to_string().into_bytes());
        self.store.retain(Self::ENDED, Box::new(|_, _| false));
    }

    fn remembered(&self, pass: &Pass) -> Remembered {
        let key = pass.key();
        let seconds = |value: Vec<u8>| first_number(&value).map(Duration::from_secs);
        Remembered {
            ended: self.has_ended(&key),
            seen: self.store.get(Self::SEEN, &key).and_then(seconds),
            floor: self.store.get(Self::FLOOR.0, Self::FLOOR.1).and_then(seconds),
        }
    }

    fn has_ended(&self, key: &str) -> bool {
        self.lock().keys.contains(key) || self.store.get(Self::ENDED, key).is_some()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Own> {
        self.own.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Own {
    fn forget_until(&mut self, wall: Duration) {
        while let Some((_, key)) = self.order.pop_front_if(|(until, _)| *until <= wall) {
            self.keys.remove(&key);
        }
    }
}

/// Counts, and says when there is enough of it.
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
    use crate::downstream::questions::Abilities;
    use gripfast::store::{LocalStore, MemoryStore};
    use gripfast::wire::ProtocolVersion;

    const HOUR: Duration = Duration::from_secs(3600);

    fn at(minutes: u64) -> Duration {
        Duration::from_secs(1_700_000_000 + 60 * minutes)
    }

    fn pass(minutes: u64) -> Pass {
        Pass::new(&ProtocolVersion::LATEST_LEGACY, Abilities::default(), at(minutes), HOUR).unwrap()
    }

    fn in_memory() -> Arc<dyn Store> {
        Arc::new(MemoryStore::default())
    }

    #[test]
    fn what_one_process_ends_is_over_in_the_next_and_in_another_one() {
        let directory = tempfile::tempdir().unwrap();
        let process = || Recall::new(Arc::new(LocalStore::open(directory.path()).unwrap().0));
        let (one, other, session, bystander) = (process(), process(), pass(0), pass(0));
        assert!(other.seen(&session, at(1)) && other.seen(&bystander, at(1)));
        other.flush();
        one.end(&session, at(2));
        one.flush();
        assert!(!other.seen(&session, at(3)), "it has the session in memory and must let go of it");
        for process in [one, other, process()] {
            assert!(!process.opens(&session, at(3), HOUR));
            assert!(process.opens(&bystander, at(3), HOUR));
        }
    }

    #[test]
    fn a_session_stays_open_from_process_to_process_as_long_as_it_is_used() {
        let store = in_memory();
        let session = pass(0);
        for minutes in [30, 80, 130] {
            let process = Recall::new(Arc::clone(&store));
            assert!(process.opens(&session, at(minutes), HOUR), "{minutes}");
            process.tidy(at(minutes));
        }
        assert!(!Recall::new(store).opens(&session, at(190), HOUR));
    }

    #[test]
    fn what_nobody_could_open_any_more_is_forgotten_and_stays_over() {
        let store = in_memory();
        let recall = Recall::new(Arc::clone(&store));
        let (ended, seen) = (pass(0), pass(0));
        recall.end(&ended, at(5));
        recall.note_seen(&seen, at(5));
        recall.tidy(at(54));
        assert!(store.get(Recall::ENDED, &ended.key()).is_some());
        recall.tidy(at(65));
        assert!(store.get(Recall::ENDED, &ended.key()).is_none() && recall.lock().keys.is_empty());
        assert!(store.get(Recall::SEEN, &seen.key()).is_none());
        assert!(!recall.opens(&ended, at(65), 24 * HOUR) && !recall.opens(&seen, at(65), 24 * HOUR));
    }

    #[test]
    fn what_is_remembered_of_sessions_in_use_is_bounded_and_those_used_last_are_known() {
        let store = in_memory();
        let recall = Recall::new(Arc::clone(&store));
        let (unused, ended, used) = (pass(0), pass(0), pass(0));
        recall.note_seen(&unused, at(1));
        recall.end(&ended, at(1));
        recall.keep_wishes(&unused, at(1), &Wishes::default());
        for _ in 0..Recall::MOST_SEEN.entries + Recall::NOTED_BETWEEN {
            recall.note_seen(&pass(1), at(30));
        }
        recall.note_seen(&used, at(31));
        let seen = Arc::new(AtomicUsize::default());
        let counting = Arc::clone(&seen);
        store.retain(
            Recall::SEEN,
            Box::new(move |_, _| counting.fetch_add(1, Ordering::Relaxed) < usize::MAX),
        );
        assert!(seen.load(Ordering::Relaxed) <= Recall::MOST_SEEN.entries + Recall::NOTED_BETWEEN);
        assert!(store.get(Recall::SEEN, &unused.key()).is_none());
        assert!(recall.opens(&unused, at(59), HOUR), "as if it had not been used since its handshake");
        assert!(recall.opens(&used, at(80), HOUR) && !recall.opens(&ended, at(59), HOUR));
    }

    #[test]
    fn when_too_many_were_ended_all_older_ids_are_over_and_memory_stays_bounded() {
        let store = in_memory();
        let recall = Recall::new(Arc::clone(&store));
        let (first, alive, younger) = (pass(0), pass(1), pass(3));
        recall.end(&first, at(1));
        for _ in 0..Recall::MOST_ENDED {
            recall.end(&pass(1), at(2));
        }
        assert!(recall.lock().keys.len() <= Recall::MOST_ENDED);
        for process in [recall, Recall::new(store)] {
            assert!(!process.opens(&first, at(3), HOUR), "its end is not remembered by itself any more");
            assert!(!process.opens(&alive, at(3), HOUR), "which costs the others a new handshake");
            assert!(process.opens(&younger, at(3), HOUR));
        }
    }
}
