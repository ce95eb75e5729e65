//! All legacy sessions: those in memory, bounded in number and idle time, and those that are restored from their id as
//! long as it is valid.

use super::claims::SessionClaims;
use super::state::{Session, SessionInfo, SharedState};
use super::store::SessionStore;
use super::table::{InsertedSession, SessionTable};
use super::token::TokenCipher;
use crate::cluster::{Member, RemoteSession};
use crate::mcp::elicitation::{ElicitationSupport, OpenElicitations};
use crate::mcp::limits::Limits;
use crate::mcp::notify::list_changes::ListVersions;
use crate::server::quota::{Peer, Quota, QuotaExceeded};
use gripfast::placement::place::SessionId;
use gripfast::sync::Mutex;
use gripfast::wire::ProtocolVersion;
use gripfast::{Clock, Now};
use gripfast::{Host, Principal};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

/// All legacy sessions.
pub(crate) struct Sessions {
    cipher: Arc<TokenCipher>,
    shared: Arc<SharedState>,
    idle: Duration,
    store: Arc<SessionStore>,
    /// Number of the last session that this process opened.
    last_number: AtomicU64,
    /// Limits concurrent accesses to the store: more would not make it faster.
    store_slots: Semaphore,
    table: Mutex<SessionTable>,
    /// Sessions that another replica has taken over, by id. Calls that were sent before still end here.
    released: Mutex<HashMap<Arc<str>, Arc<Session>>>,
    /// The service that this gateway is a replica of, if there is one.
    member: OnceLock<Arc<Member>>,
}

/// Reason why there is no session.
#[derive(Debug)]
pub(crate) enum SessionError {
    /// The id was not issued here, or its session has ended.
    Unknown,
    /// Too many sessions exist, and all are in use.
    NoRoom(QuotaExceeded),
    /// The system provided no random numbers for an id.
    NoEntropy,
}

impl Sessions {
    /// Interval at which a session in use is recorded in the store and checked for an end in another process; shorter
    /// if the idle timeout is short.
    const SAVE_INTERVAL: Duration = Duration::from_secs(60);
    /// Time that a client waits until its preferences are in the store of the service.
    const REMOTE_SAVE_WAIT: Duration = Duration::from_millis(250);

    /// Creates the sessions. Records are kept in the store of `host`, which is notified when a session ends.
    pub(crate) fn new(
        cipher: Arc<TokenCipher>,
        host: Host,
        limits: &Limits,
        clock: Clock,
        memory: &Quota,
    ) -> Self {
        let store = host.store();
        let elicitations = Arc::new(OpenElicitations::new(
            cipher.boot(),
            limits.client.questions_per_client as usize,
            limits.client.questions as usize,
        ));
        Self {
            cipher,
            shared: Arc::new(SharedState::new(clock, host, memory, elicitations)),
            idle: limits.session_idle_timeout,
            store: Arc::new(SessionStore::new(store)),
            last_number: AtomicU64::new(0),
            store_slots: Semaphore::new(4),
            table: Mutex::new(SessionTable::new(
                limits.client.sessions_per_client as usize,
                limits.client.sessions as usize,
            )),
            released: Mutex::default(),
            member: OnceLock::new(),
        }
    }

    /// Makes the sessions those of a replica.
    pub(crate) fn join(&self, member: Arc<Member>) {
        let set = self.member.set(member);
        debug_assert!(set.is_ok(), "a gateway is one replica");
    }

    /// The service that this gateway is a replica of.
    pub(crate) fn member(&self) -> Option<&Arc<Member>> {
        self.member.get()
    }

    /// The session with this id, as replicas know it; `None` if the id does not open, or no replica issued it.
    pub(crate) fn session_id(&self, id: &str) -> Option<SessionId> {
        let known = self.table.lock().get(id).map(|session| session.claims.session_id());
        known.unwrap_or_else(|| SessionClaims::decode(id, &self.cipher)?.session_id())
    }

    /// Returns whether the session is in memory, also one that another replica has taken over.
    pub(crate) fn has(&self, id: &str) -> bool {
        self.table.lock().get(id).is_some() || self.released.lock().contains_key(id)
    }

    /// Opens a session that another replica recorded in the store, before its next request is served here.
    pub(crate) async fn restore_remote(&self, id: &str, peer: &Peer, stored: RemoteSession) {
        let now = self.shared.clock.steady_now();
        let Some(claims) =
            SessionClaims::decode(id, &self.cipher).filter(|claims| claims.belongs_to(&peer.principal()))
        else {
            return;
        };
        match stored {
            RemoteSession::Unrecorded => {}
            RemoteSession::Ended => {
                let known = self.table.lock().remove(id);
                known.inspect(|session| session.end());
                self.store.end(&claims, now.wall.since_epoch());
            }
            RemoteSession::Recorded { last_seen, preferences } => {
                let wall = now.wall.since_epoch();
                let save = move |store: &SessionStore| {
                    // The local record may be newer, if this replica owned the session before.
                    if !store.is_valid(&claims, wall, claims.idle()) {
                        store.save_seen(&claims, last_seen);
                    }
                    store.save_preferences(&claims, wall, &preferences);
                };
                if self.table.lock().get(id).is_none() {
                    self.with_store(save).await;
                }
            }
        }
    }

    /// Stops to serve a session that another replica has taken over. Calls that were sent before go on.
    pub(crate) fn release(&self, session: &SessionId) {
        let taken = self.table.lock().remove_if(|known| known.claims.is(session));
        let mut released = self.released.lock();
        for session in taken {
            session.release();
            released.insert(Arc::clone(&session.id), session);
        }
    }

    /// Unanswered requests to all clients, with or without a session.
    pub(crate) fn elicitations(&self) -> &Arc<OpenElicitations> {
        &self.shared.elicitations
    }

    /// Starts a session with protocol `version`, for a client with this name.
    pub(crate) fn begin(
        &self,
        version: &ProtocolVersion,
        abilities: ElicitationSupport,
        name: Option<String>,
        peer: &Peer,
        sent: ListVersions,
    ) -> Result<Arc<Session>, SessionError> {
        let now = self.shared.clock.steady_now();
        let claims = SessionClaims::new(version, abilities, now.wall.since_epoch(), self.idle)
            .ok_or(SessionError::NoEntropy)?;
        let number = self.last_number.fetch_add(1, Ordering::Relaxed) + 1;
        let claims = claims.opened_by(self.cipher.own(), number);
        let claims = claims.with_principal(&peer.principal()).with_client_name(name);
        if let (Some(member), Some(session)) = (self.member(), claims.session_id()) {
            member.session_opened(&session);
        }
        let id = claims.encode(&self.cipher).ok_or(SessionError::NoEntropy)?;
        self.insert(Session::new(id.into(), claims, peer.clone(), sent, &self.shared, now), now)
    }

    /// Finds a session by id: in memory, or restored from the id. For a restored one, `sent` returns the list versions
    /// that its client is assumed to know.
    pub(crate) async fn find(
        &self,
        id: &str,
        peer: &Peer,
        sent: impl FnOnce() -> ListVersions,
    ) -> Result<Arc<Session>, SessionError> {
        let now = self.shared.clock.steady_now();
        let Some(session) = self.in_memory(id, peer, now) else {
            return match self.released(id, peer) {
                Some(session) => Ok(session),
                None => self.open(id, peer, sent, now).await,
            };
        };
        if session.is_save_due(now, self.save_interval()) {
            drop(self.save_remotely(&session, now));
            let (claims, preferences) = (session.claims.clone(), session.preferences());
            let seen = move |store: &SessionStore| {
                let open = store.seen(&claims, now.wall.since_epoch());
                if let Some(preferences) = preferences.filter(|_| open) {
                    store.save_preferences(&claims, now.wall.since_epoch(), &preferences);
                }
                open
            };
            if self.with_store(seen).await == Some(false) {
                self.remove(&session);
                return Err(SessionError::Unknown);
            }
        }
        Ok(session)
    }

    /// Saves changed preferences of a session. Returns when they are persisted.
    pub(crate) async fn save_preferences(&self, session: &Arc<Session>) {
        let now = self.shared.clock.steady_now();
        let (changed, wall) = (Arc::clone(session), now.wall.since_epoch());
        let kept = self.with_store(move |store| {
            let mut kept = false;
            changed.record_preferences(|preferences| {
                store.save_preferences(&changed.claims, wall, preferences);
                kept = true;
            });
            if kept {
                store.save_seen(&changed.claims, wall);
                store.flush();
            }
            kept
        });
        if kept.await == Some(true)
            && let Some(saving) = self.save_remotely(session, now)
        {
            // A slow store does not delay the client further; the record is written in the background.
            let _ = tokio::time::timeout(Self::REMOTE_SAVE_WAIT, saving).await;
        }
    }

    /// Records a session in the store of the service, in the background.
    fn save_remotely(&self, session: &Session, now: Now) -> Option<JoinHandle<()>> {
        let (member, id) = (self.member()?, session.claims.session_id()?);
        let (wall, preferences) = (now.wall.since_epoch(), session.preferences().unwrap_or_default());
        Some(member.save_sessions(wall, vec![(id, preferences, session.claims.idle())]))
    }

    /// Ends a session at the request of its client: cancels its calls, and makes the id invalid in all processes, also
    /// after a restart.
    pub(crate) async fn end(&self, session: &Session) {
        self.store.end(&session.claims, self.shared.clock.steady_now().wall.since_epoch());
        self.remove(session);
        self.with_store(SessionStore::flush).await;
        if let Some(ending) = self.end_remotely([&session.claims]) {
            // A slow store does not delay the client further.
            let _ = tokio::time::timeout(Self::REMOTE_SAVE_WAIT, ending).await;
        }
    }

    /// Records the end of sessions in the store of the service, in the background.
    fn end_remotely<'a>(&self, ended: impl IntoIterator<Item = &'a SessionClaims>) -> Option<JoinHandle<()>> {
        let member = self.member()?;
        let ended = ended.into_iter().filter_map(|claims| Some((claims.session_id()?, claims.idle())));
        Some(member.end_sessions(ended.collect()))
    }

    /// Removes idle sessions from memory and expired records from the store.
    pub(crate) async fn sweep(&self) {
        let now = self.shared.clock.steady_now();
        let over = {
            let mut table = self.table.lock();
            let over = table.remove_if(|session| self.is_over(session, now));
            table.iter().for_each(|session| session.tidy(now));
            over
        };
        for session in over {
            session.end();
        }
        self.released.lock().retain(|_, session| {
            let is_over = self.is_over(session, now) || session.is_idle_without_streams(now);
            if is_over {
                session.end();
            }
            !is_over
        });
        if let Some(member) = self.member() {
            let open =
                || self.table.lock().iter().filter_map(|session| session.claims.session_id()).collect();
            member.retain_sessions(open);
        }
        self.renew_listening(now).await;
        self.with_store(move |store| store.tidy(now.wall.since_epoch())).await;
    }

    /// Records the use of sessions that have a stream or a call open and send no requests.
    async fn renew_listening(&self, now: Now) {
        let due: Vec<Arc<Session>> = {
            let table = self.table.lock();
            let is_due = |session: &&Arc<Session>| {
                session.idle_for(now).is_none() && session.is_save_due(now, self.save_interval())
            };
            table.iter().filter(is_due).cloned().collect()
        };
        if due.is_empty() {
            return;
        }
        if let Some(member) = self.member() {
            let remote = due.iter().filter_map(|session| {
                let preferences = session.preferences().unwrap_or_default();
                Some((session.claims.session_id()?, preferences, session.claims.idle()))
            });
            drop(member.save_sessions(now.wall.since_epoch(), remote.collect()));
        }
        self.with_store(move |store| {
            due.iter().for_each(|session| save(store, session, now.wall.since_epoch()))
        })
        .await;
    }

    /// Ends the sessions of principals that have lost access: cancels their calls, and makes their ids invalid.
    pub(crate) async fn end_matching(&self, gone: impl Fn(&Principal) -> bool) {
        let theirs = self.table.lock().remove_if(|session| gone(&session.peer.principal()));
        let now = self.shared.clock.steady_now();
        for session in &theirs {
            self.store.end(&session.claims, now.wall.since_epoch());
            session.end();
        }
        if !theirs.is_empty() {
            self.with_store(SessionStore::flush).await;
        }
        // Not waited for: the end of a credential does not depend on the store.
        drop(self.end_remotely(theirs.iter().map(|session| &session.claims)));
    }

    /// Interval between two sweeps.
    pub(crate) fn sweep_interval(&self) -> Duration {
        (self.idle / 4).clamp(Duration::from_secs(1), Duration::from_secs(60))
    }

    /// Saves the last use of each session for the next process.
    pub(crate) async fn save_all(&self) {
        let now = self.shared.clock.steady_now();
        let unsaved: Vec<(Arc<Session>, Duration)> = {
            let table = self.table.lock();
            let used = |session: &Arc<Session>| Some((Arc::clone(session), session.unsaved_use(now)?));
            table.iter().filter_map(used).collect()
        };
        self.with_store(move |store| {
            for (session, used) in unsaved {
                save(store, &session, used);
            }
        })
        .await;
    }

    /// Sessions in memory for the operator, last used first, at most `most`.
    pub(crate) fn list(&self, most: usize) -> Vec<SessionInfo> {
        let now = self.shared.clock.steady_now();
        let mut known: Vec<Arc<Session>> = self.table.lock().iter().cloned().collect();
        known.sort_unstable_by_key(|session| std::cmp::Reverse(session.last_used()));
        known.truncate(most);
        known.iter().map(|session| session.info(now)).collect()
    }

    /// Number of sessions in memory.
    pub(crate) fn count(&self) -> usize {
        self.table.lock().len()
    }

    /// A session that another replica has taken over. Only a request that concerns this process gets here.
    fn released(&self, id: &str, peer: &Peer) -> Option<Arc<Session>> {
        let released = self.released.lock();
        let session = released.get(id).filter(|session| session.claims.belongs_to(&peer.principal()))?;
        Some(Arc::clone(session))
    }

    fn in_memory(&self, id: &str, peer: &Peer, now: Now) -> Option<Arc<Session>> {
        let mut table = self.table.lock();
        // A request with the id of another principal does not count as a use.
        let session = table.get(id).filter(|session| session.claims.belongs_to(&peer.principal()))?;
        if self.is_over(session, now) {
            // Another process may have recorded a later use; `open` checks the store.
            let over = table.remove(id);
            drop(table);
            over.inspect(|session| session.end());
            return None;
        }
        session.touch(now.mono);
        Some(Arc::clone(session))
    }

    /// Restores a session from its id and its stored record.
    async fn open(
        &self,
        id: &str,
        peer: &Peer,
        sent: impl FnOnce() -> ListVersions,
        now: Now,
    ) -> Result<Arc<Session>, SessionError> {
        let claims =
            SessionClaims::decode(id, &self.cipher).filter(|claims| claims.belongs_to(&peer.principal()));
        let claims = claims.ok_or(SessionError::Unknown)?;
        let (wanted, idle) = (claims.clone(), self.idle);
        let opens = move |store: &SessionStore| {
            store.is_valid(&wanted, now.wall.since_epoch(), idle).then(|| store.preferences(&wanted))
        };
        let Some(Some(preferences)) = self.with_store(opens).await else { return Err(SessionError::Unknown) };
        let session = Session::new(id.into(), claims, peer.clone(), sent(), &self.shared, now);
        let session = self.insert(session.with_preferences(preferences.unwrap_or_default()), now)?;
        self.released.lock().remove(id);
        // The client may have ended it during the store access.
        if self.store.ended_here(&session.claims) {
            self.remove(&session);
            return Err(SessionError::Unknown);
        }
        Ok(session)
    }

    fn is_over(&self, session: &Session, now: Now) -> bool {
        session.idle_for(now).is_some_and(|idle| idle >= self.idle.min(session.claims.idle()))
    }

    fn insert(&self, session: Session, now: Now) -> Result<Arc<Session>, SessionError> {
        let InsertedSession { session, evicted: gone } =
            self.table.lock().insert(session, now).map_err(SessionError::NoRoom)?;
        for session in gone {
            session.end();
            if let Some(used) = session.unsaved_use(now) {
                save(&self.store, &session, used);
            }
        }
        Ok(session)
    }

    fn remove(&self, session: &Session) {
        self.table.lock().remove(&session.id);
        session.end();
    }

    /// Runs `access` on a blocking thread. `None` only when the runtime shuts down.
    async fn with_store<T: Send + 'static>(
        &self,
        access: impl FnOnce(&SessionStore) -> T + Send + 'static,
    ) -> Option<T> {
        let _turn = self.store_slots.acquire().await;
        let store = Arc::clone(&self.store);
        tokio::task::spawn_blocking(move || access(&store)).await.ok()
    }

    fn save_interval(&self) -> Duration {
        Self::SAVE_INTERVAL.min(self.idle / 4)
    }
}

/// Saves the last use and the preferences of a session.
fn save(store: &SessionStore, session: &Session, used: Duration) {
    store.save_seen(&session.claims, used);
    if let Some(preferences) = session.preferences() {
        store.save_preferences(&session.claims, used, &preferences);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gripfast::ReplicaName;
    use gripfast::store::{MemoryStore, Store};
    use gripfast::wire::log::LogLevel;
    use tempfile::TempDir;

    const HOUR: Duration = Duration::from_secs(3600);
    const MINUTE: Duration = Duration::from_secs(60);

    /// State directory that several processes use, one after the other or at the same time.
    struct State {
        directory: TempDir,
        store: Arc<dyn Store>,
        clock: Clock,
    }

    impl State {
        fn new() -> Self {
            let directory = tempfile::tempdir().unwrap();
            Self { directory, store: Arc::new(MemoryStore::default()), clock: Clock::new() }
        }

        fn process(&self) -> Sessions {
            self.process_with(&Limits::default())
        }

        fn process_with(&self, limits: &Limits) -> Sessions {
            self.process_of(TokenCipher::load_or_create(self.directory.path()).unwrap(), limits)
        }

        fn replica(&self, name: &str) -> Sessions {
            let cipher = TokenCipher::load_or_create(self.directory.path()).unwrap();
            self.process_of(cipher.with_name(ReplicaName::new(name).unwrap()), &Limits::default())
        }

        fn process_of(&self, cipher: TokenCipher, limits: &Limits) -> Sessions {
            let host = Host::builder().store(Arc::clone(&self.store)).build();
            let memory = Quota::new(usize::MAX, usize::MAX);
            Sessions::new(Arc::new(cipher), host, limits, self.clock, &memory)
        }
    }

    fn begin(sessions: &Sessions) -> Arc<Session> {
        let version = ProtocolVersion::V2025_06_18;
        sessions
            .begin(&version, ElicitationSupport::default(), None, &Peer::local(), ListVersions::default())
            .unwrap()
    }

    async fn find(sessions: &Sessions, id: &str) -> Option<Arc<Session>> {
        sessions.find(id, &Peer::local(), ListVersions::default).await.ok()
    }

    #[tokio::test(start_paused = true)]
    async fn a_session_survives_a_restart_by_its_id_but_not_its_end() {
        let state = State::new();
        let (before, after) = (state.process(), state.process());
        let session = begin(&before);
        let found = find(&after, &session.id).await.unwrap();
        assert_eq!(found.version, ProtocolVersion::V2025_06_18);
        after.end(&found).await;
        assert!(find(&after, &session.id).await.is_none());
        assert!(find(&state.process(), &session.id).await.is_none(), "nor in the next process");
        assert!(find(&after, "made up").await.is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn a_session_id_starts_with_the_name_of_its_replica_and_opens_in_all_others() {
        let state = State::new();
        let (one, other, unnamed) = (state.replica("web-1"), state.replica("web-2"), state.process());
        let session = begin(&one);
        assert!(session.id.starts_with("web-1."), "{}", session.id);
        for process in [&one, &other, &unnamed] {
            let found = find(process, &session.id).await.unwrap();
            assert_eq!(found.claims.key(), session.claims.key());
        }
        let forged = session.id.replacen("web-1", "web-2", 1);
        assert!(find(&other, &forged).await.is_none(), "the name is part of the id");
        let session = begin(&unnamed);
        assert!(!session.id.contains('.'));
        assert!(find(&one, &session.id).await.is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn an_idle_session_expires_in_this_process_and_after_a_restart() {
        let state = State::new();
        let process = state.process();
        let (used, unused) = (begin(&process), begin(&process));
        for _ in 0..3 {
            tokio::time::advance(50 * MINUTE).await;
            assert!(find(&process, &used.id).await.is_some());
        }
        assert!(find(&process, &unused.id).await.is_none());
        process.save_all().await;
        let next = state.process();
        assert!(find(&next, &unused.id).await.is_none());
        tokio::time::advance(59 * MINUTE).await;
        assert!(find(&next, &used.id).await.is_some(), "it was used an hour ago, not before");
        tokio::time::advance(HOUR).await;
        assert!(find(&next, &used.id).await.is_none());
        assert!(find(&state.process(), &used.id).await.is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn after_a_crash_a_session_loses_at_most_a_minute_of_idle_time() {
        let state = State::new();
        let process = state.process();
        let session = begin(&process);
        for _ in 0..180 {
            tokio::time::advance(MINUTE / 2).await;
            assert!(find(&process, &session.id).await.is_some());
        }
        drop(process);
        tokio::time::advance(58 * MINUTE).await;
        assert!(find(&state.process(), &session.id).await.is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn a_session_in_use_never_becomes_idle() {
        let process = State::new().process();
        let session = begin(&process);
        let stream = session.in_use();
        tokio::time::advance(48 * HOUR).await;
        process.sweep().await;
        assert!(find(&process, &session.id).await.is_some());
        drop(stream);
        tokio::time::advance(59 * MINUTE).await;
        assert!(find(&process, &session.id).await.is_some(), "its time begins when the stream ends");
    }

    #[tokio::test(start_paused = true)]
    async fn the_sweep_removes_idle_sessions() {
        let process = State::new().process();
        let sessions: Vec<_> = (0..100).map(|_| begin(&process)).collect();
        tokio::time::advance(HOUR).await;
        let _young = begin(&process);
        process.sweep().await;
        assert_eq!(process.count(), 1);
        assert!(sessions.iter().all(|session| session.ended.is_cancelled()));
    }

    #[tokio::test(start_paused = true)]
    async fn a_session_ended_in_one_process_ends_within_a_minute_in_another() {
        let state = State::new();
        let (one, other) = (state.process(), state.process());
        let session = begin(&one);
        let elsewhere = find(&other, &session.id).await.unwrap();
        one.end(&session).await;
        tokio::time::advance(MINUTE).await;
        assert!(find(&other, &session.id).await.is_none());
        assert!(elsewhere.ended.is_cancelled(), "its streams end too");
    }

    #[tokio::test(start_paused = true)]
    async fn a_session_used_in_another_process_is_not_idle_in_this_one() {
        let state = State::new();
        let (one, other) = (state.process(), state.process());
        let session = begin(&one);
        for _ in 0..4 {
            tokio::time::advance(20 * MINUTE).await;
            assert!(find(&other, &session.id).await.is_some());
        }
        one.sweep().await;
        assert_eq!(one.count(), 0);
        assert!(find(&one, &session.id).await.is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn the_longest_unused_sessions_are_evicted_and_can_be_restored() {
        let mut limits = Limits::default();
        limits.client.sessions = 64;
        let process = State::new().process_with(&limits);
        let first = begin(&process);
        let busy = begin(&process);
        let _call = busy.in_use();
        for _ in 0..1000 {
            tokio::time::advance(Duration::from_millis(10)).await;
            let _ = begin(&process);
            assert!(process.count() <= 64);
        }
        assert!(find(&process, &busy.id).await.is_some_and(|found| Arc::ptr_eq(&found, &busy)));
        assert!(first.ended.is_cancelled(), "it made room");
        assert!(find(&process, &first.id).await.is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn preferences_are_restored_as_long_as_the_session_is_valid() {
        let state = State::new();
        let process = state.process();
        let (session, silent) = (begin(&process), begin(&process));
        session.client.level.set(LogLevel::Warning);
        session.client.subscriptions.restore(&["a:/1".to_owned()]);
        process.save_preferences(&session).await;
        process.save_preferences(&silent).await;
        // Longer than the preferences are kept without use.
        for _ in 0..200 {
            tokio::time::advance(MINUTE).await;
            assert!(find(&process, &session.id).await.is_some());
            process.sweep().await;
        }
        drop(process);
        let next = state.process();
        let found = find(&next, &session.id).await.unwrap();
        assert_eq!(found.client.level.get(), Some(LogLevel::Warning));
        assert_eq!(found.client.subscriptions.uris(), ["a:/1"]);
        assert!(found.take_restore_pending() && !found.take_restore_pending(), "carried out by one");
        let (name, peer) = (Some("inspector 1".to_owned()), Peer::local());
        let version = ProtocolVersion::V2025_06_18;
        let new = next
            .begin(&version, ElicitationSupport::default(), name, &peer, ListVersions::default())
            .unwrap();
        assert!(!new.take_restore_pending() && new.client.subscriptions.uris().is_empty());
        next.end(&found).await;
        tokio::time::advance(2 * HOUR).await;
        next.sweep().await;
        let kept = Arc::new(Mutex::new(0));
        let count = Arc::clone(&kept);
        state.store.retain(
            "session-wishes",
            Box::new(move |_, _| {
                *count.lock() += 1;
                true
            }),
        );
        assert_eq!(*kept.lock(), 0, "what is over is forgotten");
    }

    #[tokio::test(start_paused = true)]
    async fn an_evicted_session_has_its_preferences_when_it_is_restored() {
        let limits = gripfast::config::ClientLimits { sessions_per_client: 1, ..Default::default() };
        let process = State::new().process_with(&Limits { client: limits, ..Limits::default() });
        let first = begin(&process);
        first.client.subscriptions.restore(&["a:/1".to_owned()]);
        process.save_preferences(&first).await;
        tokio::time::advance(MINUTE).await;
        let _second = begin(&process);
        assert!(first.ended.is_cancelled());
        let again = find(&process, &first.id).await.unwrap();
        assert_eq!(again.client.subscriptions.uris(), ["a:/1"]);
    }
}
