//! Legacy sessions, by `Mcp-Session-Id` or `sessionId`, until they expire.

use std::{
    collections::{HashMap, VecDeque},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
};

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::socket::Connections;
use crate::{
    options::Faults,
    peer::{MessageSink, Peer, lock},
    stream::Stream,
};

/// Beyond this number the oldest session is dropped. Clients that never delete their session are common.
const MAX_SESSIONS: usize = 4096;

/// Streams of a session that can still be resumed.
const MAX_STREAMS: usize = 64;

#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) id: String,
    pub(crate) peer: Arc<Peer>,
    /// Messages that belong to no request, for the GET stream.
    pub(super) background: Arc<Stream>,
    streams: Mutex<VecDeque<Arc<Stream>>>,
    streams_opened: AtomicU64,
    born: Instant,
    requests: AtomicU64,
}

impl Session {
    fn new(id: String, life: CancellationToken) -> Self {
        let background = Arc::new(Stream::new(0));
        Self {
            id,
            peer: Arc::new(Peer::new(MessageSink::Stream(Arc::clone(&background)), life)),
            background,
            streams: Mutex::default(),
            streams_opened: AtomicU64::new(0),
            born: Instant::now(),
            requests: AtomicU64::new(0),
        }
    }

    pub(super) fn open_stream(&self) -> Arc<Stream> {
        let number = self.streams_opened.fetch_add(1, Ordering::Relaxed) + 1;
        let stream = Arc::new(Stream::new(number));
        let mut streams = lock(&self.streams);
        streams.push_back(Arc::clone(&stream));
        if streams.len() > MAX_STREAMS {
            streams.pop_front();
        }
        stream
    }

    pub(super) fn stream(&self, id: u64) -> Option<Arc<Stream>> {
        if id == self.background.id() {
            return Some(Arc::clone(&self.background));
        }
        lock(&self.streams).iter().find(|stream| stream.id() == id).cloned()
    }

    /// Counts a request and returns whether the session is still valid.
    fn admits(&self, faults: &Faults, use_: Use) -> bool {
        let counted = match use_ {
            Use::Request => self.requests.fetch_add(1, Ordering::Relaxed) + 1,
            Use::Other => self.requests.load(Ordering::Relaxed),
        };
        faults.session_ttl.is_none_or(|ttl| self.born.elapsed() < ttl)
            && faults.session_requests.is_none_or(|limit| counted <= limit)
    }
}

/// Purpose of a session lookup.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Use {
    Request,
    /// Notifications, answers, GET and DELETE, which do not count for the expiry.
    Other,
}

/// All sessions of a server, and its open connections.
#[derive(Debug, Default)]
pub(crate) struct Sessions {
    alive: Mutex<Alive>,
    pub(super) connections: Connections,
}

#[derive(Debug, Default)]
struct Alive {
    by_id: HashMap<String, Arc<Session>>,
    oldest_first: VecDeque<String>,
}

impl Sessions {
    /// Opens a session. It replaces one with the same id.
    pub(super) fn open(&self, id: String, life: CancellationToken) -> Arc<Session> {
        let session = Arc::new(Session::new(id.clone(), life));
        let mut alive = lock(&self.alive);
        if alive.by_id.insert(id.clone(), Arc::clone(&session)).is_none() {
            alive.oldest_first.push_back(id);
        }
        if alive.oldest_first.len() > MAX_SESSIONS
            && let Some(oldest) = alive.oldest_first.pop_front()
        {
            alive.by_id.remove(&oldest);
        }
        session
    }

    /// The valid session with this id. An expired one is removed.
    pub(super) fn find(&self, id: &str, faults: &Faults, use_: Use) -> Option<Arc<Session>> {
        let session = lock(&self.alive).by_id.get(id).cloned()?;
        if session.admits(faults, use_) {
            return Some(session);
        }
        self.forget(id);
        None
    }

    pub(super) fn forget(&self, id: &str) -> Option<Arc<Session>> {
        let mut alive = lock(&self.alive);
        alive.oldest_first.retain(|known| known != id);
        alive.by_id.remove(id)
    }

    /// Drops all sessions. Calls in flight are still answered; GET streams end.
    pub(crate) fn forget_all(&self) {
        *lock(&self.alive) = Alive::default();
    }

    pub(crate) fn all(&self) -> Vec<Arc<Session>> {
        lock(&self.alive).by_id.values().cloned().collect()
    }
}
