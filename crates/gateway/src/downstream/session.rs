//! One legacy session, while it is in memory: its calls under way, the streams that its client may pick up
//! again, what it has heard, and when it was last used. What must outlive us is in its id.

use super::aside::{Aside, GetStreams};
use super::client::Client;
use super::clock::{Clock, Now};
use super::heard::Heard;
use super::herald::Marks;
use super::outbox::Outbox;
use super::pass::Pass;
use super::presence::Presence;
use super::questions::Questions;
use gripfast::wire::{ProtocolVersion, RequestId};
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::task::AbortHandle;
use tokio_util::sync::CancellationToken;

/// One legacy session.
pub(crate) struct Session {
    pub(crate) id: Arc<str>,
    pub(crate) version: ProtocolVersion,
    /// What its id says.
    pub(crate) pass: Pass,
    /// What it can be asked and wants to hear.
    pub(crate) client: Client,
    /// What it was asked and has not answered yet.
    pub(crate) questions: Arc<Questions>,
    /// Where it is told what concerns none of its calls.
    pub(crate) get_streams: Arc<GetStreams>,
    /// Once it is over: its client has ended it, or it was idle for too long.
    pub(crate) ended: CancellationToken,
    heard: Mutex<Heard>,
    state: Mutex<State>,
    clock: Clock,
    /// When it was last used, in milliseconds of the monotonic clock.
    used: AtomicU64,
    /// Requests and streams that are open now.
    open: AtomicUsize,
    /// When it was last noted, beyond this process, that it is in use.
    noted: AtomicU64,
    /// With the session end the instances that servers have for it alone.
    _presence: Presence,
}

#[derive(Default)]
struct State {
    running: HashMap<RequestId, AbortHandle>,
    streams: VecDeque<(u64, Arc<Outbox>)>,
    next_stream: u64,
}

impl Session {
    /// Finished streams that may still be picked up.
    const MOST_STREAMS: usize = 16;

    /// A session that is in use from `now` on. What its client knows of the lists is `told`.
    pub(crate) fn new(
        id: Arc<str>,
        pass: Pass,
        told: Marks,
        presence: Presence,
        clock: Clock,
        now: Now,
    ) -> Self {
        let (questions, get_streams) = (Arc::<Questions>::default(), Arc::<GetStreams>::default());
        let abilities = pass.abilities();
        let mut client = Client::with(abilities, presence.client(abilities));
        client.at_servers = client.at_servers.heard_by(Arc::new(Aside {
            way: Arc::clone(&get_streams),
            abilities,
            level: Arc::clone(&client.level),
            questions: Arc::clone(&questions),
        }));
        Self {
            id,
            version: pass.version(),
            client,
            pass,
            questions,
            get_streams,
            ended: CancellationToken::new(),
            heard: Mutex::new(Heard::of(told)),
            state: Mutex::default(),
            clock,
            used: AtomicU64::new(millis(now.mono)),
            open: AtomicUsize::new(0),
            noted: AtomicU64::new(millis(now.mono)),
            _presence: presence,
        }
    }

    /// What its client was told and may not have heard it is told again.
    pub(crate) fn take_back(&self) {
        self.heard().take_back();
        self.client.follows.take_back();
    }

    /// Keeps it from being idle for as long as the answer lives.
    pub(crate) fn in_use(self: &Arc<Self>) -> InUse {
        self.open.fetch_add(1, Ordering::AcqRel);
        InUse(Arc::clone(self))
    }

    /// It is used at this moment.
    pub(crate) fn touch(&self, now: Now) {
        self.used.fetch_max(millis(now.mono), Ordering::AcqRel);
    }

    /// How long nobody has used it; `None` while somebody does.
    pub(crate) fn idle_for(&self, now: Now) -> Option<Duration> {
        let open = self.open.load(Ordering::Acquire) > 0;
        (!open).then(|| Duration::from_millis(millis(now.mono).saturating_sub(self.used())))
    }

    /// When it was last used, in milliseconds of the monotonic clock.
    pub(crate) fn used(&self) -> u64 {
        self.used.load(Ordering::Acquire)
    }

    /// Whether it is time to note that it is in use, which is then up to whoever asked.
    pub(crate) fn is_due(&self, now: Now, every: Duration) -> bool {
        let (noted, now) = (self.noted.load(Ordering::Acquire), millis(now.mono));
        now.saturating_sub(noted) >= millis(every)
            && self.noted.compare_exchange(noted, now, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// The moment of its last use on the wall clock, if it was not noted since.
    pub(crate) fn unnoted_use(&self, now: Now) -> Option<Duration> {
        let used = self.used();
        let ago = Duration::from_millis(millis(now.mono).saturating_sub(used));
        (used > self.noted.load(Ordering::Acquire)).then(|| now.wall.saturating_sub(ago))
    }

    /// Notes a call under way, so that its client can cancel it.
    pub(crate) fn running(self: &Arc<Self>, id: RequestId, call: AbortHandle, outbox: &Outbox) {
        let session = self.in_use();
        self.lock().running.insert(id.clone(), call);
        outbox.when_done(move || session.0.finished(&id));
    }

    fn finished(&self, id: &RequestId) {
        self.lock().running.remove(id);
    }

    /// The client cancels one of its calls.
    pub(crate) fn cancel(&self, id: &RequestId) {
        let call = self.lock().running.remove(id);
        if let Some(call) = call {
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

    /// It is over: what its client still waits for is cancelled, and its streams end.
    pub(crate) fn end(&self) {
        let running: Vec<_> = self.lock().running.drain().collect();
        for (_, call) in running {
            call.abort();
        }
        self.client.follows.end();
        self.ended.cancel();
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Somebody uses a session: a request that is not answered yet, or a stream that is open.
pub(crate) struct InUse(Arc<Session>);

impl InUse {
    pub(crate) fn session(&self) -> &Arc<Session> {
        &self.0
    }
}

impl Drop for InUse {
    fn drop(&mut self) {
        self.0.touch(self.0.clock.now());
        self.0.open.fetch_sub(1, Ordering::AcqRel);
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
