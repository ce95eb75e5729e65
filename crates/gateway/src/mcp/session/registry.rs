//! All legacy sessions: those in memory, bounded in number and in idle time, and those that are not, which
//! open by their ids alone as long as they are not over.

use super::clock::{Clock, Now};
use super::herald::Marks;
use super::pass::{Pass, random};
use super::questions::{Abilities, OpenQuestions};
use super::recall::Recall;
use super::roster::{Enrolled, Roster};
use super::seal::Seal;
use super::session::{Common, Session, SessionFacts};
use super::terms::Terms;
use crate::shares::{Exhausted, Peer, Shares};
use gripfast::wire::ProtocolVersion;
use gripfast::{Host, Principal};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::Semaphore;

/// All legacy sessions.
pub(crate) struct Sessions {
    seal: Seal,
    common: Arc<Common>,
    idle: Duration,
    recall: Arc<Recall>,
    /// Those who wait for what is remembered. A store is not faster for being asked by many at once.
    asking: Semaphore,
    roster: Mutex<Roster>,
}

/// Why there is no session.
#[derive(Debug)]
pub(crate) enum NoSession {
    /// The id is not one of ours, or its session is over.
    Unknown,
    /// There are too many, and all are in use.
    NoRoom(Exhausted),
    /// The system gave no randomness to make an id of.
    NoEntropy,
}

/// What a sealed state begins with: no session id can be taken for one.
const STATE: &str = "input ";

impl Sessions {
    /// How often a session in use is noted as such, and looked for among those that another process ended;
    /// more often where sessions may be idle for a short time only.
    const NOTED_EVERY: Duration = Duration::from_secs(60);
    /// What is remembered of sessions is kept in the store of `host`, whose servers are told when one is over.
    pub(crate) fn new(seal: Seal, host: Host, terms: &Terms, clock: Clock, memory: &Shares) -> Self {
        let store = host.store();
        let questions = Arc::new(OpenQuestions::new(
            terms.limits.questions_per_client as usize,
            terms.limits.questions as usize,
        ));
        Self {
            seal,
            common: Arc::new(Common::new(clock, host, memory, questions)),
            idle: terms.session_idle_timeout,
            recall: Arc::new(Recall::new(store)),
            asking: Semaphore::new(4),
            roster: Mutex::new(Roster::new(
                terms.limits.sessions_per_client as usize,
                terms.limits.sessions as usize,
            )),
        }
    }

    /// The questions that clients have not answered, those without a session included.
    pub(crate) fn questions(&self) -> &Arc<OpenQuestions> {
        &self.common.questions
    }

    /// A new session that speaks `version`, of a client that calls itself `name`.
    pub(crate) fn begin(
        &self,
        version: &ProtocolVersion,
        abilities: Abilities,
        name: Option<String>,
        peer: &Peer,
        told: Marks,
    ) -> Result<Arc<Session>, NoSession> {
        let now = self.common.clock.now();
        let pass = Pass::new(version, abilities, now.wall, self.idle).ok_or(NoSession::NoEntropy)?;
        let pass = pass.of(&peer.principal()).called(name);
        let id = pass.seal(&self.seal).ok_or(NoSession::NoEntropy)?;
        self.keep(Session::new(id.into(), pass, peer.clone(), told, &self.common, now), now)
    }

    /// The session of this id: in memory, or opened from the id itself. What the client of the latter was
    /// told is up to the caller.
    pub(crate) async fn find(
        &self,
        id: &str,
        peer: &Peer,
        told: impl FnOnce() -> Marks,
    ) -> Result<Arc<Session>, NoSession> {
        let now = self.common.clock.now();
        let Some(session) = self.in_memory(id, peer, now) else {
            return self.open(id, peer, told, now).await;
        };
        if session.is_due(now, self.noted_every()) {
            let (pass, wishes) = (session.pass.clone(), session.wishes());
            let seen = move |recall: &Recall| {
                let open = recall.seen(&pass, now.wall);
                if let Some(wishes) = wishes.filter(|_| open) {
                    recall.keep_wishes(&pass, now.wall, &wishes);
                }
                open
            };
            if self.ask(seen).await == Some(false) {
                self.forget(&session);
                return Err(NoSession::Unknown);
            }
        }
        Ok(session)
    }

    /// The client has said something that is to hold until the end of its session. Returns when it outlives us.
    pub(crate) async fn keep_wishes(&self, session: &Arc<Session>) {
        let (session, wall) = (Arc::clone(session), self.common.clock.now().wall);
        self.ask(move |recall| {
            let mut kept = false;
            session.note_wishes(|wishes| {
                recall.keep_wishes(&session.pass, wall, wishes);
                kept = true;
            });
            if kept {
                recall.note_seen(&session.pass, wall);
                recall.flush();
            }
        })
        .await;
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

    /// The client ended its session: what it still waits for is cancelled, and its id opens no more, here
    /// or elsewhere, now or after a restart.
    pub(crate) async fn end(&self, session: &Session) {
        self.recall.end(&session.pass, self.common.clock.now().wall);
        self.forget(session);
        self.ask(Recall::flush).await;
    }

    /// Lets go of sessions that were idle for too long, and of what is remembered of those long gone.
    pub(crate) async fn sweep(&self) {
        let now = self.common.clock.now();
        let over = {
            let mut roster = self.lock();
            let over = roster.strike_all(|session| self.is_over(session, now));
            roster.iter().for_each(|session| session.tidy(now));
            over
        };
        for session in over {
            session.end();
        }
        self.ask(move |recall| recall.tidy(now.wall)).await;
    }

    /// Ends the sessions of principals that are let in no more: their calls are cancelled, and their ids open nothing.
    pub(crate) async fn end_of(&self, gone: impl Fn(&Principal) -> bool) {
        let theirs = self.lock().strike_all(|session| gone(&session.peer.principal()));
        let now = self.common.clock.now();
        for session in &theirs {
            self.recall.end(&session.pass, now.wall);
            session.end();
        }
        if !theirs.is_empty() {
            self.ask(Recall::flush).await;
        }
    }

    /// How often to sweep.
    pub(crate) fn sweep_every(&self) -> Duration {
        (self.idle / 4).clamp(Duration::from_secs(1), Duration::from_secs(60))
    }

    /// Notes when each session was last used, for whoever comes after us.
    pub(crate) async fn note_all(&self) {
        let now = self.common.clock.now();
        let unnoted: Vec<(Arc<Session>, Duration)> = {
            let roster = self.lock();
            let used = |session: &Arc<Session>| Some((Arc::clone(session), session.unnoted_use(now)?));
            roster.iter().filter_map(used).collect()
        };
        self.ask(move |recall| {
            for (session, used) in unnoted {
                note(recall, &session, used);
            }
        })
        .await;
    }

    /// What there is to see of those in memory: those used last come first, and at most so many.
    pub(crate) fn list(&self, most: usize) -> Vec<SessionFacts> {
        let now = self.common.clock.now();
        let mut known: Vec<Arc<Session>> = self.lock().iter().cloned().collect();
        known.sort_unstable_by_key(|session| std::cmp::Reverse(session.used()));
        known.truncate(most);
        known.iter().map(|session| session.facts(now)).collect()
    }

    /// How many are in memory.
    pub(crate) fn count(&self) -> usize {
        self.lock().len()
    }

    fn in_memory(&self, id: &str, peer: &Peer, now: Now) -> Option<Arc<Session>> {
        let mut roster = self.lock();
        // Whoever got hold of another's id does not even keep it from being idle.
        let session = roster.get(id).filter(|session| session.pass.is_of(&peer.principal()))?;
        if self.is_over(session, now) {
            // Another process may have seen it since; that is asked of those who remember.
            let over = roster.strike(id);
            drop(roster);
            over.inspect(|session| session.end());
            return None;
        }
        session.touch(now.mono);
        Some(Arc::clone(session))
    }

    /// Opens a session by what its id says and what is remembered of it.
    async fn open(
        &self,
        id: &str,
        peer: &Peer,
        told: impl FnOnce() -> Marks,
        now: Now,
    ) -> Result<Arc<Session>, NoSession> {
        let pass = Pass::open(id, &self.seal).filter(|pass| pass.is_of(&peer.principal()));
        let pass = pass.ok_or(NoSession::Unknown)?;
        let (asked, idle) = (pass.clone(), self.idle);
        let opens =
            move |recall: &Recall| recall.opens(&asked, now.wall, idle).then(|| recall.wishes(&asked));
        let Some(Some(wishes)) = self.ask(opens).await else { return Err(NoSession::Unknown) };
        let session = Session::new(id.into(), pass, peer.clone(), told(), &self.common, now);
        let session = self.keep(session.wished(wishes.unwrap_or_default()), now)?;
        // Its client may have ended it while we asked.
        if self.recall.ended_here(&session.pass) {
            self.forget(&session);
            return Err(NoSession::Unknown);
        }
        Ok(session)
    }

    fn is_over(&self, session: &Session, now: Now) -> bool {
        session.idle_for(now).is_some_and(|idle| idle >= self.idle.min(session.pass.idle()))
    }

    fn keep(&self, session: Session, now: Now) -> Result<Arc<Session>, NoSession> {
        let Enrolled { session, gone } = self.lock().enrol(session, now).map_err(NoSession::NoRoom)?;
        for session in gone {
            session.end();
            if let Some(used) = session.unnoted_use(now) {
                note(&self.recall, &session, used);
            }
        }
        Ok(session)
    }

    fn forget(&self, session: &Session) {
        self.lock().strike(&session.id);
        session.end();
    }

    /// Asks those who remember, on a thread that may wait. `None` only when everything is ending.
    async fn ask<T: Send + 'static>(&self, ask: impl FnOnce(&Recall) -> T + Send + 'static) -> Option<T> {
        let _turn = self.asking.acquire().await;
        let recall = Arc::clone(&self.recall);
        tokio::task::spawn_blocking(move || ask(&recall)).await.ok()
    }

    fn noted_every(&self) -> Duration {
        Self::NOTED_EVERY.min(self.idle / 4)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Roster> {
        self.roster.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Notes when a session was used, for whoever opens it next.
fn note(recall: &Recall, session: &Session, used: Duration) {
    recall.note_seen(&session.pass, used);
    if let Some(wishes) = session.wishes() {
        recall.keep_wishes(&session.pass, used, &wishes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gripfast::store::{MemoryStore, Store};
    use gripfast::wire::log::LogLevel;
    use tempfile::TempDir;

    const HOUR: Duration = Duration::from_secs(3600);
    const MINUTE: Duration = Duration::from_secs(60);

    /// A state directory that several processes use, one after the other or at a time.
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
            self.process_with(&Terms::default())
        }

        fn process_with(&self, terms: &Terms) -> Sessions {
            let seal = Seal::in_directory(self.directory.path()).unwrap();
            let host = Host::builder().store(Arc::clone(&self.store)).build();
            let memory = Shares::new(usize::MAX, usize::MAX);
            Sessions::new(seal, host, terms, self.clock, &memory)
        }
    }

    fn begin(sessions: &Sessions) -> Arc<Session> {
        let version = ProtocolVersion::V2025_06_18;
        sessions.begin(&version, Abilities::default(), None, &Peer::here(), Marks::default()).unwrap()
    }

    async fn find(sessions: &Sessions, id: &str) -> Option<Arc<Session>> {
        sessions.find(id, &Peer::here(), Marks::default).await.ok()
    }

    #[tokio::test(start_paused = true)]
    async fn a_session_survives_a_restart_by_its_id_alone_and_does_not_survive_its_end() {
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
    async fn an_idle_session_is_over_after_its_time_here_and_after_a_restart() {
        let state = State::new();
        let process = state.process();
        let (used, unused) = (begin(&process), begin(&process));
        for _ in 0..3 {
            tokio::time::advance(50 * MINUTE).await;
            assert!(find(&process, &used.id).await.is_some());
        }
        assert!(find(&process, &unused.id).await.is_none());
        process.note_all().await;
        let next = state.process();
        assert!(find(&next, &unused.id).await.is_none());
        tokio::time::advance(59 * MINUTE).await;
        assert!(find(&next, &used.id).await.is_some(), "it was used an hour ago, not before");
        tokio::time::advance(HOUR).await;
        assert!(find(&next, &used.id).await.is_none());
        assert!(find(&state.process(), &used.id).await.is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn after_a_crash_a_session_in_use_loses_a_minute_of_its_time_and_no_more() {
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
    async fn a_session_in_use_is_not_idle_however_long_it_takes() {
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
    async fn idle_sessions_are_let_go_of_without_being_asked_for() {
        let process = State::new().process();
        let sessions: Vec<_> = (0..100).map(|_| begin(&process)).collect();
        tokio::time::advance(HOUR).await;
        let _young = begin(&process);
        process.sweep().await;
        assert_eq!(process.count(), 1);
        assert!(sessions.iter().all(|session| session.ended.is_cancelled()));
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_ended_in_one_process_is_over_within_a_minute_in_another() {
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
    async fn a_session_that_is_used_in_another_process_is_not_idle_in_this_one() {
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
    async fn when_there_are_too_many_those_unused_for_longest_make_room_and_still_open() {
        let mut terms = Terms::default();
        terms.limits.sessions = 64;
        let process = State::new().process_with(&terms);
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
    async fn a_state_is_no_session_id_and_a_session_id_is_no_state() {
        let state = State::new();
        let (process, other) = (state.process(), State::new().process());
        let (number, sealed) = process.seal_state().unwrap();
        assert_eq!(process.open_state(&sealed), Some(number));
        assert_eq!(state.process().open_state(&sealed), Some(number), "whoever has the key can read it");
        assert_eq!(other.open_state(&sealed), None);
        let session = begin(&process);
        assert_eq!(process.open_state(&session.id), None);
        assert!(find(&process, &sealed).await.is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn what_a_client_said_in_its_session_comes_back_with_it_for_as_long_as_it_is_open() {
        let state = State::new();
        let process = state.process();
        let (session, silent) = (begin(&process), begin(&process));
        session.client.level.set(LogLevel::Warning);
        session.client.follows.want(&["a:/1".to_owned()]);
        process.keep_wishes(&session).await;
        process.keep_wishes(&silent).await;
        // It is used for longer than what it said is kept without use.
        for _ in 0..200 {
            tokio::time::advance(MINUTE).await;
            assert!(find(&process, &session.id).await.is_some());
            process.sweep().await;
        }
        drop(process);
        let next = state.process();
        let found = find(&next, &session.id).await.unwrap();
        assert_eq!(found.client.level.said(), Some(LogLevel::Warning));
        assert_eq!(found.client.follows.wanted(), ["a:/1"]);
        assert!(found.take_owed() && !found.take_owed(), "carried out by one");
        let (name, peer) = (Some("inspector 1".to_owned()), Peer::here());
        let version = ProtocolVersion::V2025_06_18;
        let new = next.begin(&version, Abilities::default(), name, &peer, Marks::default()).unwrap();
        assert!(!new.take_owed() && new.client.follows.wanted().is_empty());
        next.end(&found).await;
        tokio::time::advance(2 * HOUR).await;
        next.sweep().await;
        let kept = Arc::new(Mutex::new(0));
        let count = Arc::clone(&kept);
        state.store.retain(
            "session-wishes",
            Box::new(move |_, _| {
                *count.lock().unwrap() += 1;
                true
            }),
        );
        assert_eq!(*kept.lock().unwrap(), 0, "what is over is forgotten");
    }

    #[tokio::test(start_paused = true)]
    async fn a_session_that_had_to_make_room_has_what_its_client_said_when_it_opens_again() {
        let limits = gripfast::config::ClientLimits { sessions_per_client: 1, ..Default::default() };
        let process = State::new().process_with(&Terms { limits, ..Terms::default() });
        let first = begin(&process);
        first.client.follows.want(&["a:/1".to_owned()]);
        process.keep_wishes(&first).await;
        tokio::time::advance(MINUTE).await;
        let _second = begin(&process);
        assert!(first.ended.is_cancelled());
        let again = find(&process, &first.id).await.unwrap();
        assert_eq!(again.client.follows.wanted(), ["a:/1"]);
    }
}
