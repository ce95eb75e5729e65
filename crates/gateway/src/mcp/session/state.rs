//! One legacy session, while it is in memory: its calls under way, the streams that its client may pick up
//! again, what it has heard, and when it was last used. What must outlive us is in its id.

use super::aside::{Aside, GetStreams};
use super::client::Client;
use super::clock::{Clock, Now};
use super::heard::Heard;
use super::herald::Marks;
use super::left_out::LeftOut;
use super::outbox::Outbox;
use super::pass::Pass;
use super::presence::Presence;
use super::questions::{OpenQuestions, Questions};
use super::refusal::Overload;
use super::under_way::{Number, UnderWay};
use super::wishes::Wishes;
use crate::memory::ClientMemory;
use crate::shares::{Peer, Share, Shares};
use futures_util::future::AbortHandle;
use gripfast::Host;
use gripfast::wire::{ProtocolVersion, RequestId};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// One legacy session.
pub(crate) struct Session {
    pub(crate) id: Arc<str>,
    pub(crate) version: ProtocolVersion,
    /// What its id says.
    pub(crate) pass: Pass,
    /// Who has it in memory here.
    pub(crate) peer: Peer,
    /// What it can be asked and wants to hear.
    pub(crate) client: Client,
    /// What it was asked and has not answered yet.
    pub(crate) questions: Arc<Questions>,
    /// Where it is told what concerns none of its calls.
    pub(crate) get_streams: Arc<GetStreams>,
    /// Once it is over: its client has ended it, or it was idle for too long.
    pub(crate) ended: CancellationToken,
    heard: Mutex<Heard>,
    /// What is remembered of its client's wishes.
    wishes: Mutex<Wishes>,
    /// Some of them are to be carried out again.
    owed: AtomicBool,
    state: Mutex<State>,
    common: Arc<Common>,
    /// When it was last used, in milliseconds of the monotonic clock.
    used: AtomicU64,
    /// Requests and streams that are open now.
    open: AtomicUsize,
    /// Of these, streams that its client opened to listen.
    listening: AtomicUsize,
    /// When it was last noted, beyond this process, that it is in use.
    noted: AtomicU64,
    /// With the session end the instances that servers have for it alone.
    _presence: Presence,
}

/// What there is to see of a session.
pub(crate) struct SessionFacts {
    /// Tells it from others; it opens nothing.
    pub(crate) number: String,
    /// What its client says that it is.
    pub(crate) name: Option<String>,
    /// On whose behalf it calls.
    pub(crate) client: String,
    pub(crate) version: String,
    pub(crate) age: Duration,
    /// How long nobody has used it; `None` while somebody does.
    pub(crate) idle: Option<Duration>,
    /// Calls under way.
    pub(crate) running: usize,
    /// Streams that its client has open to listen.
    pub(crate) listening: usize,
}

/// What all sessions have in common.
pub(crate) struct Common {
    pub(crate) clock: Clock,
    /// Whose servers are told when one is over.
    pub(crate) host: Host,
    /// The memory that messages to clients are counted against.
    memory: Shares,
    /// The part of it that streams which have ended may take, so that they can be picked up.
    kept: Shares,
    /// The questions that clients have not answered.
    pub(crate) questions: Arc<OpenQuestions>,
    /// How many streams there were. A number is given once: a session that made room and came back has no stream under
    /// the number of an earlier one.
    streams: AtomicU64,
}

impl Common {
    /// Ended streams may take a fourth, so that what nobody may ever read leaves room for answers.
    const KEPT_PART: usize = 4;

    pub(crate) fn new(clock: Clock, host: Host, memory: &Shares, questions: Arc<OpenQuestions>) -> Self {
        let kept = memory.part(Self::KEPT_PART);
        Self { clock, host, memory: memory.clone(), kept, questions, streams: AtomicU64::new(0) }
    }
}

#[derive(Default)]
struct State {
    running: UnderWay<AbortHandle>,
    /// In the order in which they began.
    streams: VecDeque<Kept>,
}

/// A stream that may be picked up again.
struct Kept {
    number: u64,
    outbox: Arc<Outbox>,
    /// Since when nothing more will come, in milliseconds of the monotonic clock, and the memory for it.
    ended: Option<(u64, Share)>,
}

impl Session {
    /// Streams that its client may have open to listen.
    const MOST_LISTENING: usize = 16;
    /// Streams of calls that have ended and may be picked up again.
    const MOST_ENDED: usize = 16;
    /// How long one may be picked up after its end, and what those that ended may take together.
    const KEPT_FOR: Duration = Duration::from_secs(300);
    const KEPT_BYTES: usize = 16 << 20;

    /// A session that is in use from `now` on. What its client knows of the lists is `told`.
    pub(crate) fn new(
        id: Arc<str>,
        pass: Pass,
        peer: Peer,
        told: Marks,
        common: &Arc<Common>,
        now: Now,
    ) -> Self {
        let questions = Arc::new(Questions::of(peer.principal(), &common.questions));
        let get_streams = Arc::<GetStreams>::default();
        let (presence, abilities) = (Presence::begin(&common.host, peer.principal()), pass.abilities());
        let memory = Arc::new(ClientMemory::new(&common.memory, &peer));
        let mut client = Client::with(abilities, presence.client(abilities), Arc::clone(&memory));
        client.has_tasks = pass.version().has_tasks();
        if let Some(name) = pass.name() {
            client.at_servers = client.at_servers.named(name);
        }
        client.at_servers = client.at_servers.heard_by(Arc::new(Aside {
            way: Arc::clone(&get_streams),
            left_out: LeftOut::default(),
            abilities,
            level: Arc::clone(&client.level),
            questions: Arc::clone(&questions),
            memory,
        }));
        Self {
            id,
            version: pass.version(),
            client,
            pass,
            peer,
            questions,
            get_streams,
            ended: CancellationToken::new(),
            heard: Mutex::new(Heard::of(told)),
            wishes: Mutex::default(),
            owed: AtomicBool::new(false),
            state: Mutex::default(),
            common: Arc::clone(common),
            used: AtomicU64::new(millis(now.mono)),
            open: AtomicUsize::new(0),
            listening: AtomicUsize::new(0),
            noted: AtomicU64::new(millis(now.mono)),
            _presence: presence,
        }
    }

    /// Its client wished for this before it was in memory here.
    pub(crate) fn wished(self, wishes: Wishes) -> Self {
        wishes.give_back(&self.client);
        Self { owed: AtomicBool::new(!wishes.is_empty()), wishes: Mutex::new(wishes), ..self }
    }

    /// Whether there are wishes to carry out again, which is then up to whoever asked.
    pub(crate) fn take_owed(&self) -> bool {
        self.owed.load(Ordering::Acquire) && self.owed.swap(false, Ordering::AcqRel)
    }

    /// Hands what its client wishes for to `keep` if that is not what is remembered. One at a time, so that what is
    /// kept last is what was wished last.
    pub(crate) fn note_wishes(&self, keep: impl FnOnce(&Wishes)) {
        let mut known = self.wishes.lock().unwrap_or_else(PoisonError::into_inner);
        let wishes = Wishes::of(&self.client);
        if *known != wishes {
            keep(&wishes);
            *known = wishes;
        }
    }

    /// What is remembered of its client's wishes, if there are any.
    pub(crate) fn wishes(&self) -> Option<Wishes> {
        let known = self.wishes.lock().unwrap_or_else(PoisonError::into_inner);
        (!known.is_empty()).then(|| known.clone())
    }

    /// What there is to see of it at this moment. Its id is its client's alone.
    pub(crate) fn facts(&self, now: Now) -> SessionFacts {
        SessionFacts {
            number: self.pass.key(),
            name: self.client.at_servers.name().map(str::to_owned),
            client: self.peer.principal().name().to_owned(),
            version: self.version.to_string(),
            age: now.wall.saturating_sub(self.pass.created()),
            idle: self.idle_for(now),
            running: self.lock().running.len(),
            listening: self.listening.load(Ordering::Acquire),
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

    /// It is used at this moment of the monotonic clock.
    pub(crate) fn touch(&self, now: Duration) {
        self.used.fetch_max(millis(now), Ordering::AcqRel);
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

    /// Whether one more call may be under way.
    pub(super) fn has_room(&self) -> Result<(), Overload> {
        let room = self.lock().running.len() < UnderWay::<AbortHandle>::MOST;
        if room { Ok(()) } else { Err(Overload::of_session("requests are under way")) }
    }

    /// Notes a call under way, so that its client can cancel it.
    pub(crate) fn running(self: &Arc<Self>, id: RequestId, call: AbortHandle, outbox: &Outbox) {
        let session = self.in_use();
        let number = self.lock().running.begin(id, |_| call);
        outbox.when_done(move || session.0.finished(number));
    }

    fn finished(&self, number: Number) {
        let mut state = self.lock();
        state.running.end(number);
        // Few calls have a stream.
        if !state.streams.is_empty() {
            state.note_ends(self.common.clock.mono(), &self.common.kept, &self.peer);
        }
    }

    /// The client cancels one of its calls.
    pub(crate) fn cancel(&self, id: &RequestId) {
        let calls = self.lock().running.take(id);
        calls.iter().for_each(AbortHandle::abort);
    }

    /// Keeps a stream that its client may pick up again; answers with its number. Those of calls that go on are all kept:
    /// there are no more of them than calls.
    pub(crate) fn keep_stream(&self, outbox: Arc<Outbox>) -> u64 {
        let now = self.common.clock.mono();
        let mut state = self.lock();
        let number = self.common.streams.fetch_add(1, Ordering::Relaxed);
        state.streams.push_back(Kept { number, outbox, ended: None });
        state.note_ends(now, &self.common.kept, &self.peer);
        number
    }

    /// A stream that can be picked up.
    pub(crate) fn stream(&self, number: u64) -> Option<Arc<Outbox>> {
        let mut state = self.lock();
        state.forget_old(self.common.clock.mono());
        state.streams.iter().find(|kept| kept.number == number).map(|kept| Arc::clone(&kept.outbox))
    }

    /// Forgets streams that ended too long ago to be picked up.
    pub(crate) fn tidy(&self, now: Now) {
        self.lock().forget_old(now.mono);
    }

    /// Its client opens a stream to listen, unless it has too many.
    pub(super) fn listen(in_use: InUse) -> Result<Listening, Overload> {
        let listening = Listening(in_use);
        if listening.0.0.listening.fetch_add(1, Ordering::AcqRel) >= Self::MOST_LISTENING {
            return Err(Overload::of_session("streams are open"));
        }
        Ok(listening)
    }

    /// What the client has heard about the lists.
    pub(crate) fn heard(&self) -> std::sync::MutexGuard<'_, Heard> {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// It is over: what its client still waits for is cancelled, and its streams end.
    pub(crate) fn end(&self) {
        let running = self.lock().running.take_all();
        running.iter().for_each(AbortHandle::abort);
        self.client.follows.end();
        self.ended.cancel();
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Notes which streams have ended. What there is no memory for is not kept.
    fn note_ends(&mut self, now: Duration, memory: &Shares, peer: &Peer) {
        for kept in self.streams.iter_mut().filter(|kept| kept.ended.is_none()) {
            let share = kept.outbox.end().and_then(|bytes| memory.take(peer, bytes).ok());
            kept.ended = share.map(|share| (millis(now), share));
        }
        self.streams.retain(|kept| kept.ended.is_some() || kept.outbox.end().is_none());
        self.forget_old(now);
        let mut bytes: usize = self.streams.iter().map(Kept::bytes).sum();
        let mut ended = self.streams.iter().filter(|kept| kept.ended.is_some()).count();
        while bytes > Session::KEPT_BYTES || ended > Session::MOST_ENDED {
            ended = ended.saturating_sub(1);
            let Some(oldest) = self.streams.iter().position(|kept| kept.ended.is_some()) else { return };
            bytes -= self.streams.remove(oldest).map_or(0, |kept| kept.bytes());
        }
    }

    fn forget_old(&mut self, now: Duration) {
        let since = millis(now.saturating_sub(Session::KEPT_FOR));
        let is_old = |kept: &Kept| kept.ended.as_ref().is_some_and(|(ended, _)| *ended < since);
        self.streams.retain(|kept| !is_old(kept));
    }
}

impl Kept {
    fn bytes(&self) -> usize {
        self.ended.as_ref().map_or(0, |(_, share)| share.amount())
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
        self.0.touch(self.0.common.clock.mono());
        self.0.open.fetch_sub(1, Ordering::AcqRel);
    }
}

/// A stream that a client has opened to listen.
pub(crate) struct Listening(InUse);

impl Listening {
    pub(crate) fn session(&self) -> &Arc<Session> {
        &self.0.0
    }
}

impl Drop for Listening {
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
    use crate::downstream::questions::Abilities;
    use bytes::Bytes;

    fn session(memory: usize) -> Arc<Session> {
        let memory = memory.saturating_mul(Common::KEPT_PART);
        let memory = Shares::new(memory, memory);
        let common = Arc::new(Common::new(Clock::new(), Host::builder().build(), &memory, Arc::default()));
        let (now, version) = (common.clock.now(), ProtocolVersion::LATEST_LEGACY);
        let pass = Pass::new(&version, Abilities::default(), now.wall, Duration::from_secs(3600)).unwrap();
        Arc::new(Session::new("id".into(), pass, Peer::here(), Marks::default(), &common, now))
    }

    /// A stream that has told `bytes` and ended.
    fn ended(bytes: usize) -> Arc<Outbox> {
        let outbox = Arc::new(Outbox::default());
        outbox.finish(Some(Bytes::from(vec![b'x'; bytes])));
        outbox
    }

    #[tokio::test]
    async fn a_call_can_be_cancelled_until_it_has_ended_also_where_two_have_the_same_id() {
        let session = session(1000);
        let outboxes = [Outbox::default(), Outbox::default(), Outbox::default()];
        let calls: Vec<AbortHandle> = ["a", "a", "b"]
            .into_iter()
            .zip(&outboxes)
            .map(|(id, outbox)| {
                let (call, _) = AbortHandle::new_pair();
                session.running(RequestId::from(id), call.clone(), outbox);
                call
            })
            .collect();
        outboxes[1].finish(None);
        session.cancel(&RequestId::from("a"));
        let aborted: Vec<bool> = calls.iter().map(AbortHandle::is_aborted).collect();
        assert_eq!(aborted, [true, false, false], "one has ended, and one is another");
        outboxes[2].finish(None);
        assert!(session.lock().running.len() == 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_stream_can_be_picked_up_for_five_minutes_after_its_end() {
        let session = session(1000);
        let (finished, unfinished) = (session.keep_stream(ended(10)), session.keep_stream(Arc::default()));
        tokio::time::advance(Session::KEPT_FOR).await;
        assert!(session.stream(finished).is_some() && session.stream(unfinished).is_some());
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(session.stream(finished).is_none(), "it was kept for long enough");
        assert!(session.stream(unfinished).is_some(), "its time has not begun");
        assert_eq!(session.common.kept.taken(), 0);
    }

    #[tokio::test]
    async fn a_session_that_comes_back_has_no_stream_under_the_number_of_an_earlier_one() {
        let before = session(1000);
        let lost = before.keep_stream(ended(10));
        let again = Session::new(
            "id".into(),
            before.pass.clone(),
            Peer::here(),
            Marks::default(),
            &before.common,
            before.common.clock.now(),
        );
        again.keep_stream(Arc::default());
        assert!(before.stream(lost).is_some() && again.stream(lost).is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn the_time_begins_when_the_call_ends() {
        let session = session(1000);
        let outbox = Arc::new(Outbox::default());
        let (call, _) = AbortHandle::new_pair();
        session.running(RequestId::from("one"), call, &outbox);
        let number = session.keep_stream(Arc::clone(&outbox));
        tokio::time::advance(Session::KEPT_FOR * 2).await;
        outbox.finish(Some(Bytes::from_static(b"answer")));
        tokio::time::advance(Session::KEPT_FOR).await;
        assert!(session.stream(number).is_some());
        tokio::time::advance(Duration::from_secs(1)).await;
        session.tidy(session.common.clock.now());
        assert!(session.lock().streams.is_empty() && session.lock().running.len() == 0);
    }

    #[tokio::test(start_paused = true)]
    async fn c03_streams_of_calls_that_go_on_are_all_kept_and_those_that_ended_are_bounded() {
        let session = session(1000);
        let running: Vec<u64> = (0..100).map(|_| session.keep_stream(Arc::default())).collect();
        let finished: Vec<u64> = (0..20).map(|_| session.keep_stream(ended(1))).collect();
        assert!(running.iter().all(|number| session.stream(*number).is_some()));
        let left = finished.iter().filter(|number| session.stream(**number).is_some());
        assert_eq!(left.count(), Session::MOST_ENDED);
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_kept_is_bounded_in_bytes_for_a_session_and_for_all() {
        let one = session(usize::MAX);
        let large = one.keep_stream(ended(Session::KEPT_BYTES));
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
        let mut open: Vec<Listening> =
            (0..16).map(|_| Session::listen(session.in_use()).ok().unwrap()).collect();
        assert!(Session::listen(session.in_use()).is_err());
        open.pop();
        assert!(Session::listen(session.in_use()).is_ok());
        drop(open);
        assert_eq!(session.open.load(Ordering::Acquire), 0);
    }
}
