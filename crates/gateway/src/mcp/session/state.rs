//! State of one legacy session in memory: calls in flight, resumable streams, delivered notifications and last use. The
//! part that must survive a restart is in its id (`claims`) and in the store.

use super::claims::SessionClaims;
use super::preferences::SessionPreferences;
use crate::mcp::client::Client;
use crate::mcp::elicitation::{OpenElicitations, PendingElicitations};
use crate::mcp::in_flight::{CallNumber, InFlightCalls};
use crate::mcp::notify::delivered::DeliveredVersions;
use crate::mcp::notify::list_changes::ListVersions;
use crate::mcp::notify::push::{GetStreams, Push};
use crate::mcp::registration::ClientRegistration;
use crate::mcp::request::overload::Overload;
use crate::mcp::transport::dropped_messages::DroppedMessages;
use crate::mcp::transport::replay_buffer::ReplayBuffer;
use crate::server::memory::ClientMemory;
use crate::server::quota::{Peer, Quota, QuotaPermit};
use futures_util::future::AbortHandle;
use gripfast::Host;
use gripfast::sync::Mutex;
use gripfast::wire::{ProtocolVersion, RequestId};
use gripfast::{Clock, Mono, Now};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// One legacy session.
pub(crate) struct Session {
    pub(crate) id: Arc<str>,
    pub(crate) version: ProtocolVersion,
    /// Content of the session id.
    pub(crate) claims: SessionClaims,
    /// Client against whose quotas the session counts.
    pub(crate) peer: Peer,
    /// Capabilities and identity of the client.
    pub(crate) client: Arc<Client>,
    /// Unanswered requests to the client.
    pub(crate) elicitations: Arc<PendingElicitations>,
    /// GET streams for messages outside calls.
    pub(crate) get_streams: Arc<GetStreams>,
    /// Cancelled when the session ends: by its client, or after the idle timeout.
    pub(crate) ended: CancellationToken,
    delivered: Mutex<DeliveredVersions>,
    /// Preferences as stored.
    preferences: Mutex<SessionPreferences>,
    /// Preferences were restored and have to be applied to the servers.
    restore_pending: AtomicBool,
    state: Mutex<State>,
    shared: Arc<SharedState>,
    /// Last use, in milliseconds of the monotonic clock.
    last_used: AtomicU64,
    /// Number of open requests and streams.
    active: AtomicUsize,
    /// Number of open GET streams among them.
    listening: AtomicUsize,
    /// Last time the use was saved in the store, in milliseconds of the monotonic clock.
    last_saved: AtomicU64,
    /// Ends the instances that are dedicated to the client together with the session.
    _registration: ClientRegistration,
}

/// Summary of a session for the operator.
pub(crate) struct SessionInfo {
    /// Key of the session in the store; not usable as a session id.
    pub(crate) number: String,
    /// Name that the client gives itself.
    pub(crate) name: Option<String>,
    /// Name of the principal.
    pub(crate) client: String,
    pub(crate) version: String,
    pub(crate) age: Duration,
    /// Time since the last use; `None` while it is in use.
    pub(crate) idle: Option<Duration>,
    /// Calls in flight.
    pub(crate) in_flight: usize,
    /// Open GET streams.
    pub(crate) listening: usize,
}

/// State that all sessions share.
pub(crate) struct SharedState {
    pub(crate) clock: Clock,
    /// Notified when a session ends.
    pub(crate) host: Host,
    /// Memory quota for messages to clients.
    memory: Quota,
    /// Part of it for ended streams that can still be resumed.
    retained: Quota,
    /// Unanswered requests to all clients.
    pub(crate) elicitations: Arc<OpenElicitations>,
    /// Number of the next stream. Unique in the process: a session that was evicted and restored must not resume an
    /// earlier stream with the same number.
    streams: AtomicU64,
}

impl SharedState {
    /// Ended streams may use a quarter of the memory, so that they leave room for answers.
    const RETAINED_FRACTION: usize = 4;

    pub(crate) fn new(clock: Clock, host: Host, memory: &Quota, elicitations: Arc<OpenElicitations>) -> Self {
        let retained = memory.fraction(Self::RETAINED_FRACTION);
        Self { clock, host, memory: memory.clone(), retained, elicitations, streams: AtomicU64::new(0) }
    }
}

#[derive(Default)]
struct State {
    in_flight: InFlightCalls<AbortHandle>,
    /// In the order in which they started.
    streams: VecDeque<ResumableStream>,
}

/// Stream that the client can resume.
struct ResumableStream {
    number: u64,
    replay_buffer: Arc<ReplayBuffer>,
    /// End of the stream in milliseconds of the monotonic clock, and its memory permit.
    ended: Option<(Mono, QuotaPermit)>,
}

impl Session {
    /// Maximum number of open GET streams.
    const MAX_LISTENING: usize = 16;
    /// Maximum number of ended streams that can be resumed.
    const MAX_ENDED: usize = 16;
    /// Time for which an ended stream can be resumed, and maximum size of all ended streams of a session.
    const RETENTION: Duration = Duration::from_secs(300);
    const MAX_RETAINED_BYTES: usize = 16 << 20;

    /// Creates a session that is used from `now` on. Its client knows the lists at the versions `sent`.
    pub(crate) fn new(
        id: Arc<str>,
        claims: SessionClaims,
        peer: Peer,
        sent: ListVersions,
        shared: &Arc<SharedState>,
        now: Now,
    ) -> Self {
        let elicitations = Arc::new(PendingElicitations::new(peer.principal(), &shared.elicitations));
        let get_streams = Arc::<GetStreams>::default();
        let (registration, abilities) =
            (ClientRegistration::new(&shared.host, peer.principal()), claims.abilities());
        let memory = Arc::new(ClientMemory::new(&shared.memory, &peer));
        let mut client = Client::legacy(abilities, registration.client(abilities), Arc::clone(&memory));
        client.has_tasks = claims.version().has_tasks();
        if let Some(name) = claims.client_name() {
            client.host_client = client.host_client.with_name(name);
        }
        client.host_client = client.host_client.with_listener(Arc::new(Push {
            channel: Arc::clone(&get_streams),
            dropped: DroppedMessages::default(),
            abilities,
            level: Arc::clone(&client.level),
            elicitations: Arc::clone(&elicitations),
            memory,
        }));
        Self {
            id,
            version: claims.version(),
            client: Arc::new(client),
            claims,
            peer,
            elicitations,
            get_streams,
            ended: CancellationToken::new(),
            delivered: Mutex::new(DeliveredVersions::new(sent)),
            preferences: Mutex::default(),
            restore_pending: AtomicBool::new(false),
            state: Mutex::default(),
            shared: Arc::clone(shared),
            last_used: AtomicU64::new(millis(now.mono.since_origin())),
            active: AtomicUsize::new(0),
            listening: AtomicUsize::new(0),
            last_saved: AtomicU64::new(millis(now.mono.since_origin())),
            _registration: registration,
        }
    }

    /// Restores stored preferences.
    pub(crate) fn with_preferences(self, preferences: SessionPreferences) -> Self {
        preferences.restore_to(&self.client);
        Self {
            restore_pending: AtomicBool::new(!preferences.is_empty()),
            preferences: Mutex::new(preferences),
            ..self
        }
    }

    /// Returns true once if preferences were restored; the caller then applies them to the servers.
    pub(crate) fn take_restore_pending(&self) -> bool {
        self.restore_pending.load(Ordering::Acquire) && self.restore_pending.swap(false, Ordering::AcqRel)
    }

    /// Passes the client's preferences to `save` if they have changed. Holds a lock, so that the last ones saved are
    /// the latest.
    pub(crate) fn record_preferences(&self, save: impl FnOnce(&SessionPreferences)) {
        let mut known = self.preferences.lock();
        let preferences = SessionPreferences::from_client(&self.client).with_unknown_of(&known);
        if *known != preferences {
            save(&preferences);
            *known = preferences;
        }
    }

    /// Stored preferences, if there are any.
    pub(crate) fn preferences(&self) -> Option<SessionPreferences> {
        let known = self.preferences.lock();
        (!known.is_empty()).then(|| known.clone())
    }

    /// Summary for the operator, without the session id.
    pub(crate) fn info(&self, now: Now) -> SessionInfo {
        SessionInfo {
            number: self.claims.key(),
            name: self.client.host_client.name().map(str::to_owned),
            client: self.peer.principal().name().to_owned(),
            version: self.version.to_string(),
            age: now.wall.since_epoch().saturating_sub(self.claims.created()),
            idle: self.idle_for(now),
            in_flight: self.state.lock().in_flight.len(),
            listening: self.listening.load(Ordering::Acquire),
        }
    }

    /// Marks notifications that may not have arrived as unsent.
    pub(crate) fn rewind_to_acked(&self) {
        self.delivered().rewind_to_acked();
        self.client.subscriptions.rewind_to_acked();
    }

    /// Keeps the session from being idle until the guard is dropped.
    pub(crate) fn in_use(self: &Arc<Self>) -> SessionUse {
        self.active.fetch_add(1, Ordering::AcqRel);
        SessionUse(Arc::clone(self))
    }

    /// Records a use at this time of the monotonic clock.
    pub(crate) fn touch(&self, now: Mono) {
        self.last_used.fetch_max(millis(now.since_origin()), Ordering::AcqRel);
    }

    /// Time since the last use; `None` while it is in use.
    pub(crate) fn idle_for(&self, now: Now) -> Option<Duration> {
        let open = self.active.load(Ordering::Acquire) > 0;
        (!open)
            .then(|| Duration::from_millis(millis(now.mono.since_origin()).saturating_sub(self.last_used())))
    }

    /// Last use, in milliseconds of the monotonic clock.
    pub(crate) fn last_used(&self) -> u64 {
        self.last_used.load(Ordering::Acquire)
    }

    /// Returns true if it is time to save the use; the caller then does so.
    pub(crate) fn is_save_due(&self, now: Now, every: Duration) -> bool {
        let (saved, now) = (self.last_saved.load(Ordering::Acquire), millis(now.mono.since_origin()));
        now.saturating_sub(saved) >= millis(every)
            && self.last_saved.compare_exchange(saved, now, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Wall-clock time of the last use, if it was not saved yet.
    pub(crate) fn unsaved_use(&self, now: Now) -> Option<Duration> {
        let used = self.last_used();
        let ago = Duration::from_millis(millis(now.mono.since_origin()).saturating_sub(used));
        (used > self.last_saved.load(Ordering::Acquire)).then(|| now.wall.since_epoch().saturating_sub(ago))
    }

    /// Tests if one more call may be in flight.
    pub(crate) fn has_room(&self) -> Result<(), Overload> {
        let room = self.state.lock().in_flight.len() < InFlightCalls::<AbortHandle>::MAX;
        if room { Ok(()) } else { Err(Overload::session("requests are in flight")) }
    }

    /// Registers a call until the guard is dropped, so that its client can cancel it.
    pub(crate) fn track_call(self: &Arc<Self>, id: RequestId, call: AbortHandle) -> SessionCall {
        let number = self.state.lock().in_flight.insert(id, |_| call);
        SessionCall { in_use: self.in_use(), number }
    }

    /// Cancels a call at the request of its client.
    pub(crate) fn cancel(&self, id: &RequestId) {
        let calls = self.state.lock().in_flight.take(id);
        calls.iter().for_each(AbortHandle::abort);
    }

    /// Keeps a stream that the client can resume, and returns its number. Streams of calls in flight are all kept:
    /// there are no more of them than calls.
    pub(crate) fn keep_stream(&self, replay_buffer: Arc<ReplayBuffer>) -> u64 {
        let now = self.shared.clock.mono();
        let mut state = self.state.lock();
        let number = self.shared.streams.fetch_add(1, Ordering::Relaxed);
        state.streams.push_back(ResumableStream { number, replay_buffer, ended: None });
        state.note_ends(now, &self.shared.retained, &self.peer);
        number
    }

    /// Stream that can be resumed.
    pub(crate) fn stream(&self, number: u64) -> Option<Arc<ReplayBuffer>> {
        let mut state = self.state.lock();
        state.forget_old(self.shared.clock.mono());
        state
            .streams
            .iter()
            .find(|stream| stream.number == number)
            .map(|stream| Arc::clone(&stream.replay_buffer))
    }

    /// Removes streams that ended too long ago to be resumed.
    pub(crate) fn tidy(&self, now: Now) {
        self.state.lock().forget_old(now.mono);
    }

    /// Opens a GET stream, unless there are too many.
    pub(crate) fn listen(in_use: SessionUse) -> Result<OpenStream, Overload> {
        let listening = OpenStream(in_use);
        if listening.0.0.listening.fetch_add(1, Ordering::AcqRel) >= Self::MAX_LISTENING {
            return Err(Overload::session("streams are open"));
        }
        Ok(listening)
    }

    /// List versions that were delivered to the client.
    pub(crate) fn delivered(&self) -> std::sync::MutexGuard<'_, DeliveredVersions> {
        self.delivered.lock()
    }

    /// Stops to serve the session, because another replica owns it: its GET streams end. Calls go on, and their
    /// streams can be resumed.
    pub(crate) fn release(&self) {
        self.client.subscriptions.end();
        self.ended.cancel();
    }

    /// Tests if a released session has nothing left that its client could come back for.
    pub(crate) fn is_idle_without_streams(&self, now: Now) -> bool {
        let mut state = self.state.lock();
        state.forget_old(now.mono);
        state.streams.is_empty() && self.active.load(Ordering::Acquire) == 0
    }

    /// Ends the session: cancels its calls and ends its streams.
    pub(crate) fn end(&self) {
        let running = self.state.lock().in_flight.take_all();
        running.iter().for_each(AbortHandle::abort);
        self.client.subscriptions.end();
        self.ended.cancel();
    }
}

impl State {
    /// Records which streams have ended. A stream for which there is no memory is dropped.
    fn note_ends(&mut self, now: Mono, memory: &Quota, peer: &Peer) {
        for stream in self.streams.iter_mut().filter(|stream| stream.ended.is_none()) {
            let permit = stream.replay_buffer.end().and_then(|bytes| memory.acquire(peer, bytes).ok());
            stream.ended = permit.map(|permit| (now, permit));
        }
        self.streams.retain(|stream| stream.ended.is_some() || stream.replay_buffer.end().is_none());
        self.forget_old(now);
        let mut bytes: usize = self.streams.iter().map(ResumableStream::bytes).sum();
        let mut ended = self.streams.iter().filter(|stream| stream.ended.is_some()).count();
        while bytes > Session::MAX_RETAINED_BYTES || ended > Session::MAX_ENDED {
            ended = ended.saturating_sub(1);
            let Some(oldest) = self.streams.iter().position(|stream| stream.ended.is_some()) else { return };
            bytes -= self.streams.remove(oldest).map_or(0, |stream| stream.bytes());
        }
    }

    fn forget_old(&mut self, now: Mono) {
        let is_old = |stream: &ResumableStream| {
            stream.ended.as_ref().is_some_and(|(ended, _)| *ended + Session::RETENTION < now)
        };
        self.streams.retain(|stream| !is_old(stream));
    }
}

impl ResumableStream {
    fn bytes(&self) -> usize {
        self.ended.as_ref().map_or(0, |(_, permit)| permit.amount())
    }
}

/// Guard for a use of a session: an unanswered request or an open stream.
pub(crate) struct SessionUse(Arc<Session>);

impl SessionUse {
    pub(crate) fn session(&self) -> &Arc<Session> {
        &self.0
    }
}

impl Drop for SessionUse {
    fn drop(&mut self) {
        self.0.touch(self.0.shared.clock.mono());
        self.0.active.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Guard for a call in flight. Dropped after its replay buffer has ended, if it has a stream.
pub(crate) struct SessionCall {
    in_use: SessionUse,
    number: CallNumber,
}

impl Drop for SessionCall {
    fn drop(&mut self) {
        let session = self.in_use.session();
        let mut state = session.state.lock();
        state.in_flight.remove(self.number);
        // Few calls have a stream.
        if !state.streams.is_empty() {
            state.note_ends(session.shared.clock.mono(), &session.shared.retained, &session.peer);
        }
    }
}

/// Guard for an open GET stream.
pub(crate) struct OpenStream(SessionUse);

impl OpenStream {
    pub(crate) fn session(&self) -> &Arc<Session> {
        &self.0.0
    }
}

impl Drop for OpenStream {
    fn drop(&mut self) {
        self.0.0.listening.fetch_sub(1, Ordering::AcqRel);
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mcp::elicitation::ElicitationSupport;
    use bytes::Bytes;

    fn session(memory: usize) -> Arc<Session> {
        let memory = memory.saturating_mul(SharedState::RETAINED_FRACTION);
        let memory = Quota::new(memory, memory);
        let shared =
            Arc::new(SharedState::new(Clock::new(), Host::builder().build(), &memory, Arc::default()));
        let (now, version) = (shared.clock.steady_now(), ProtocolVersion::LATEST_LEGACY);
        let claims = SessionClaims::new(
            &version,
            ElicitationSupport::default(),
            now.wall.since_epoch(),
            Duration::from_secs(3600),
        )
        .unwrap();
        Arc::new(Session::new("id".into(), claims, Peer::local(), ListVersions::default(), &shared, now))
    }

    /// Stream that has sent `bytes` and ended.
    fn ended(bytes: usize) -> Arc<ReplayBuffer> {
        let replay_buffer = Arc::new(ReplayBuffer::default());
        replay_buffer.finish(Some(Bytes::from(vec![b'x'; bytes])));
        replay_buffer
    }

    #[tokio::test]
    async fn a_call_can_be_cancelled_until_it_ends_even_with_a_duplicate_id() {
        let session = session(1000);
        let begin = |id: &str| {
            let (call, _) = AbortHandle::new_pair();
            (session.track_call(RequestId::from(id), call.clone()), call)
        };
        let (mut tracked, calls): (Vec<SessionCall>, Vec<AbortHandle>) =
            ["a", "a", "b"].map(begin).into_iter().unzip();
        drop(tracked.remove(1));
        session.cancel(&RequestId::from("a"));
        let aborted: Vec<bool> = calls.iter().map(AbortHandle::is_aborted).collect();
        assert_eq!(aborted, [true, false, false], "one has ended, and one is another");
        drop(tracked);
        assert!(session.state.lock().in_flight.len() == 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_stream_can_be_resumed_for_five_minutes_after_its_end() {
        let session = session(1000);
        let (finished, unfinished) = (session.keep_stream(ended(10)), session.keep_stream(Arc::default()));
        tokio::time::advance(Session::RETENTION).await;
        assert!(session.stream(finished).is_some() && session.stream(unfinished).is_some());
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(session.stream(finished).is_none(), "it was kept for long enough");
        assert!(session.stream(unfinished).is_some(), "its time has not begun");
        assert_eq!(session.shared.retained.used(), 0);
    }

    #[tokio::test]
    async fn a_restored_session_does_not_reuse_stream_numbers() {
        let before = session(1000);
        let lost = before.keep_stream(ended(10));
        let again = Session::new(
            "id".into(),
            before.claims.clone(),
            Peer::local(),
            ListVersions::default(),
            &before.shared,
            before.shared.clock.steady_now(),
        );
        again.keep_stream(Arc::default());
        assert!(before.stream(lost).is_some() && again.stream(lost).is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn the_retention_of_a_stream_begins_when_its_call_ends() {
        let session = session(1000);
        let replay_buffer = Arc::new(ReplayBuffer::default());
        let (call, _) = AbortHandle::new_pair();
        let tracked = session.track_call(RequestId::from("one"), call);
        let number = session.keep_stream(Arc::clone(&replay_buffer));
        tokio::time::advance(Session::RETENTION * 2).await;
        replay_buffer.finish(Some(Bytes::from_static(b"answer")));
        drop(tracked);
        tokio::time::advance(Session::RETENTION).await;
        assert!(session.stream(number).is_some());
        tokio::time::advance(Duration::from_secs(1)).await;
        session.tidy(session.shared.clock.steady_now());
        assert!(session.state.lock().streams.is_empty() && session.state.lock().in_flight.len() == 0);
    }

    #[tokio::test(start_paused = true)]
    async fn c03_streams_in_flight_are_all_kept_and_ended_ones_are_bounded() {
        let session = session(1000);
        let running: Vec<u64> = (0..100).map(|_| session.keep_stream(Arc::default())).collect();
        let finished: Vec<u64> = (0..20).map(|_| session.keep_stream(ended(1))).collect();
        assert!(running.iter().all(|number| session.stream(*number).is_some()));
        let left = finished.iter().filter(|number| session.stream(**number).is_some());
        assert_eq!(left.count(), Session::MAX_ENDED);
    }

    #[tokio::test(start_paused = true)]
    async fn ended_streams_are_bounded_in_bytes_per_session_and_in_total() {
        let one = session(usize::MAX);
        let large = one.keep_stream(ended(Session::MAX_RETAINED_BYTES));
        assert!(one.stream(large).is_some());
        let next = one.keep_stream(ended(10));
        assert!(one.stream(large).is_none() && one.stream(next).is_some());
        let other = session(15);
        let (first, second) = (other.keep_stream(ended(10)), other.keep_stream(ended(10)));
        assert!(other.stream(first).is_some() && other.stream(second).is_none(), "there is no memory for it");
        drop(other);
    }

    #[tokio::test]
    async fn a_client_may_have_sixteen_streams_open() {
        let session = session(0);
        let mut open: Vec<OpenStream> =
            (0..16).map(|_| Session::listen(session.in_use()).ok().unwrap()).collect();
        assert!(Session::listen(session.in_use()).is_err());
        open.pop();
        assert!(Session::listen(session.in_use()).is_ok());
        drop(open);
        assert_eq!(session.active.load(Ordering::Acquire), 0);
    }
}
