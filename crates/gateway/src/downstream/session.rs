//! Legacy clients and their sessions. A session id is sealed and says everything that must outlive us; the
//! rest, calls under way and streams that may be picked up again, is kept here, bounded.

use super::client::Client;
use super::heard::Heard;
use super::herald::Marks;
use super::outbox::Outbox;
use super::questions::{Abilities, Questions};
use super::seal::Seal;

use gripfast::wire::{ProtocolVersion, RequestId};
use ring::rand::{SecureRandom, SystemRandom};
use serde::{Deserialize, Serialize};
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::task::AbortHandle;
use tokio_util::sync::CancellationToken;

/// All legacy sessions that are in memory.
pub(crate) struct Sessions {
    seal: Seal,
    table: Mutex<Table>,
    clock: AtomicU64,
}

#[derive(Default)]
struct Table {
    sessions: HashMap<String, Arc<Session>>,
    /// Ids that their clients ended; the oldest is forgotten first.
    ended: VecDeque<String>,
}

/// What a sealed id says.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Sealed {
    /// The protocol version.
    v: String,
    /// Makes every id different.
    n: u64,
    /// What the client can be asked.
    #[serde(default)]
    a: Abilities,
}

/// What a sealed state begins with: no session id can be taken for one.
const STATE: &str = "input ";

fn random() -> Option<u64> {
    let mut bytes = [0; 8];
    SystemRandom::new().fill(&mut bytes).ok()?;
    Some(u64::from_le_bytes(bytes))
}

/// One legacy session.
pub(crate) struct Session {
    pub(crate) id: String,
    pub(crate) version: ProtocolVersion,
    /// What it can be asked and wants to hear.
    pub(crate) client: Client,
    /// What it was asked and has not answered yet.
    pub(crate) questions: Arc<Questions>,
    heard: Mutex<Heard>,
    /// Once its client has ended it.
    pub(crate) ended: CancellationToken,
    state: Mutex<State>,
    used: AtomicU64,
}

#[derive(Default)]
struct State {
    running: HashMap<RequestId, AbortHandle>,
    streams: VecDeque<(u64, Arc<Outbox>)>,
    next_stream: u64,
}

impl Sessions {
    /// Sessions in memory; beyond it the one that was used longest ago makes room. Its id still opens.
    const MOST: usize = 100_000;
    const MOST_ENDED: usize = 10_000;

    pub(crate) fn new(seal: Seal) -> Self {
        Self { seal, table: Mutex::default(), clock: AtomicU64::new(0) }
    }

    /// A new session that speaks `version`.
    pub(crate) fn begin(
        &self,
        version: ProtocolVersion,
        abilities: Abilities,
        told: Marks,
    ) -> Option<Arc<Session>> {
        let sealed = Sealed { v: version.as_str().to_owned(), n: random()?, a: abilities };
        let id = self.seal.seal(&serde_json::to_vec(&sealed).ok()?)?;
        Some(self.keep(Session::new(id, version, abilities, told)))
    }

    /// The session of this id: in memory, or opened from the id itself. What the client of the latter was
    /// told is up to the caller.
    pub(crate) fn find(&self, id: &str, told: impl FnOnce() -> Marks) -> Option<Arc<Session>> {
        {
            let table = self.lock();
            if let Some(session) = table.sessions.get(id) {
                self.touch(session);
                return Some(Arc::clone(session));
            }
            if table.ended.iter().any(|ended| ended == id) {
                return None;
            }
        }
        let sealed: Sealed = serde_json::from_slice(&self.seal.open(id)?).ok()?;
        Some(self.keep(Session::new(id.to_owned(), ProtocolVersion::new(&sealed.v), sealed.a, told())))
    }

    /// A number that nobody can guess, and the state under which only its client can come back with it.
    pub(crate) fn seal_state(&self) -> Option<(u64, String)> {
        let number = random()?;
        let sealed = self.seal.seal(format!("{STATE}{number}").as_bytes())?;
        Some((number, sealed))
    }

    /// The number in a state that we gave out.
    pub(crate) fn open_state(&self, state: &str) -> Option<u64> {
        let opened = String::from_utf8(self.seal.open(state)?).ok()?;
        opened.strip_prefix(STATE)?.parse().ok()
    }

    /// The client ended its session: what it still waits for is cancelled, and its id opens no more.
    pub(crate) fn end(&self, session: &Session) {
        let mut table = self.lock();
        table.sessions.remove(&session.id);
        if table.ended.len() == Self::MOST_ENDED {
            table.ended.pop_front();
        }
        table.ended.push_back(session.id.clone());
        drop(table);
        session.cancel_all();
        session.ended.cancel();
    }

    fn keep(&self, session: Session) -> Arc<Session> {
        let session = Arc::new(session);
        self.touch(&session);
        let mut table = self.lock();
        if table.sessions.len() >= Self::MOST {
            let idle = table.sessions.values().filter(|session| session.is_idle());
            let oldest =
                idle.min_by_key(|session| session.used.load(Ordering::Relaxed)).map(|s| s.id.clone());
            if let Some(oldest) = oldest {
                table.sessions.remove(&oldest);
            }
        }
        let known = table.sessions.entry(session.id.clone()).or_insert_with(|| Arc::clone(&session));
        Arc::clone(known)
    }

    fn touch(&self, session: &Session) {
        session.used.store(self.clock.fetch_add(1, Ordering::Relaxed), Ordering::Relaxed);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Session {
    /// Finished streams that may still be picked up.
    const MOST_STREAMS: usize = 16;

    fn new(id: String, version: ProtocolVersion, abilities: Abilities, told: Marks) -> Self {
        Self {
            id,
            version,
            client: Client::with(abilities),
            questions: Arc::default(),
            heard: Mutex::new(Heard::of(told)),
            ended: CancellationToken::new(),
            state: Mutex::default(),
            used: AtomicU64::new(0),
        }
    }

    /// Notes a call under way, so that its client can cancel it.
    pub(crate) fn running(self: &Arc<Self>, id: RequestId, call: AbortHandle, outbox: &Outbox) {
        let session = Arc::downgrade(self);
        self.lock().running.insert(id.clone(), call);
        outbox.when_done(move || {
            if let Some(session) = session.upgrade() {
                session.finished(&id);
            }
        });
    }

    fn finished(&self, id: &RequestId) {
        self.lock().running.remove(id);
    }

    /// The client cancels one of its calls.
    pub(crate) fn cancel(&self, id: &RequestId) {
        if let Some(call) = self.lock().running.remove(id) {
            call.abort();
        }
    }

    /// Keeps a stream that its client may pick up again; answers with its number.
    pub(crate) fn keep_stream(&self, outbox: Arc<Outbox>) -> u64 {
        let mut state = self.lock();
        if state.streams.len() == Self::MOST_STREAMS {
            state.streams.pop_front();
        }
        let number = state.next_stream;
        state.next_stream += 1;
        state.streams.push_back((number, outbox));
        number
    }

    pub(crate) fn stream(&self, number: u64) -> Option<Arc<Outbox>> {
        let state = self.lock();
        state.streams.iter().find(|(kept, _)| *kept == number).map(|(_, outbox)| Arc::clone(outbox))
    }

    /// What the client has heard about the lists.
    pub(crate) fn heard(&self) -> std::sync::MutexGuard<'_, Heard> {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn cancel_all(&self) {
        for (_, call) in self.lock().running.drain() {
            call.abort();
        }
    }

    fn is_idle(&self) -> bool {
        self.lock().running.is_empty()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_survives_a_restart_by_its_id_alone_and_does_not_survive_its_end() {
        let directory = tempfile::tempdir().unwrap();
        let before = Sessions::new(Seal::in_directory(directory.path()).unwrap());
        let session =
            before.begin(ProtocolVersion::V2025_06_18, Abilities::default(), Marks::default()).unwrap();
        let after = Sessions::new(Seal::in_directory(directory.path()).unwrap());
        let found = after.find(&session.id, Marks::default).unwrap();
        assert_eq!(found.version, ProtocolVersion::V2025_06_18);
        after.end(&found);
        assert!(after.find(&session.id, Marks::default).is_none());
        assert!(after.find("made up", Marks::default).is_none());
    }
}
