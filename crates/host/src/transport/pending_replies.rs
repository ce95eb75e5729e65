//! Pending requests on a link that correlates responses by id.

use super::inbox::{Inbox, Incoming};
use super::{Listener, ReadResult, Reply, SendError, SentFlag, not_a_response};
use crate::large_message;
use crate::memory::AnswerMemory;
use crate::sync::Mutex;
use bytes::Bytes;
use gripfast_core::failure::classify::classify;
use gripfast_core::failure::{During, Evidence, Failure, Observed, RpcError, Sent};
use gripfast_wire::Outcome;
use gripfast_wire::envelope::{self, ErrorObject, Malformed, Message};
use gripfast_wire::results::Progress;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;
use tokio::sync::oneshot;

/// Pending requests of one link.
#[derive(Default)]
pub(super) struct PendingReplies {
    table: Mutex<Table>,
}

#[derive(Default)]
struct Table {
    waiting: HashMap<u64, Waiting>,
    /// Reason why the link is closed, once it is; no request can be added then.
    closed: Option<Observed>,
}

struct Waiting {
    answer: oneshot::Sender<Result<Reply, Box<SendError>>>,
    listener: Option<Arc<dyn Listener>>,
    memory: Option<Arc<dyn AnswerMemory>>,
    during: During,
    frame: Arc<FrameState>,
    /// An unreadable response has arrived.
    damaged: bool,
}

/// Kind of a dispatched message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Dispatched {
    /// Result of one of our requests.
    Result,
    /// An error, a request or a notification.
    Other,
}

/// Time within which a readable response may follow an unreadable one.
pub(super) const DAMAGED_GRACE: Duration = Duration::from_secs(1);

impl PendingReplies {
    /// Adds a request. On a closed link, fails at once with the reason.
    pub(super) fn insert(
        &self,
        id: u64,
        during: During,
        listener: Option<Arc<dyn Listener>>,
        memory: Option<Arc<dyn AnswerMemory>>,
        frame: Arc<FrameState>,
    ) -> Result<oneshot::Receiver<Result<Reply, Box<SendError>>>, Box<SendError>> {
        let mut table = self.table.lock();
        if let Some(gone) = &table.closed {
            return Err(Evidence::unsent(during, gone.clone()).into());
        }
        let (answer, receiver) = oneshot::channel();
        table.waiting.insert(id, Waiting { answer, listener, memory, during, frame, damaged: false });
        Ok(receiver)
    }

    /// Dispatches a message of the server: responses to their callers, progress to the listener of its request, and
    /// everything else to the supervisor.
    ///
    /// # Errors
    /// The message cannot be read. A call that it seems to answer fails, unless a readable response follows within a
    /// second.
    pub(super) async fn dispatch(
        self: &Arc<Self>,
        bytes: Bytes,
        inbox: &Inbox,
    ) -> Result<Dispatched, Malformed> {
        let (message, result) = match large_message::process(bytes.len(), || ReadResult::parse(&bytes)).await
        {
            Ok(read) => read,
            Err(malformed) => {
                self.note_damaged(&bytes, inbox);
                return Err(malformed);
            }
        };
        match message {
            Message::Response(response) => {
                let expected = match (&response.id, &response.outcome) {
                    // None of our ids is a string.
                    (Some(id), _) if id.as_text().is_some() => self.note_damaged(&bytes, inbox),
                    (Some(id), _) => id.as_u64().is_some_and(|id| self.complete(id, bytes.clone(), result)),
                    (None, Outcome::Error(error)) if inbox.in_flight().served_several() => {
                        self.complete_only(without_message(error, &bytes))
                    }
                    (None, Outcome::Error(_)) => self.complete_only(bytes.clone()),
                    (None, Outcome::Result(_)) => false,
                };
                if !expected {
                    tracing::debug!("ignored a response that no request waits for");
                    if let Some(id) = response.id.and_then(|id| id.as_u64()) {
                        inbox.in_flight().forget_withdrawn(id);
                    }
                }
                if let Outcome::Result(_) = response.outcome {
                    return Ok(Dispatched::Result);
                }
            }
            Message::Notification(notification) if notification.method == Progress::METHOD => {
                let token = notification.params.and_then(Progress::read).and_then(|p| p.token.as_minted());
                if let Some(listener) = token.and_then(|id| self.listener(id)) {
                    listener.on_message(&bytes);
                }
            }
            Message::Request(_) | Message::Notification(_) => {
                inbox.put(Incoming::Message(bytes.clone())).await
            }
        }
        Ok(Dispatched::Other)
    }

    /// Completes request `id` with its response. Returns whether it was pending.
    fn complete(&self, id: u64, message: Bytes, result: Option<ReadResult>) -> bool {
        let Some(waiting) = self.table.lock().waiting.remove(&id) else { return false };
        let reply = Reply::with_memory(message, waiting.during, waiting.memory.as_deref());
        // The caller may have stopped waiting at this moment.
        let _ = waiting.answer.send(reply.map(|reply| Reply { result, ..reply }).map_err(Into::into));
        true
    }

    /// Completes the only pending request with an error that names no request. With several pending requests its owner
    /// is ambiguous.
    fn complete_only(&self, message: Bytes) -> bool {
        let only = {
            let table = self.table.lock();
            let mut ids = table.waiting.keys();
            ids.next().copied().filter(|_| ids.next().is_none())
        };
        only.is_some_and(|id| self.complete(id, message, None))
    }

    /// Returns the listener of request `id`.
    fn listener(&self, id: u64) -> Option<Arc<dyn Listener>> {
        self.table.lock().waiting.get(&id).and_then(|waiting| waiting.listener.clone())
    }

    /// Removes request `id`, whose caller has stopped waiting.
    pub(super) fn remove(&self, id: u64) {
        self.table.lock().waiting.remove(&id);
    }

    /// Handles an unreadable message: the requests that it seems to answer fail, unless a readable response follows in
    /// time. Returns whether there are any.
    pub(super) fn note_damaged(self: &Arc<Self>, bytes: &[u8], inbox: &Inbox) -> bool {
        let mut is_an_answer = false;
        for id in envelope::damaged_answers(bytes) {
            let first = match self.table.lock().waiting.get_mut(&id) {
                Some(waiting) => !std::mem::replace(&mut waiting.damaged, true),
                None => continue,
            };
            is_an_answer = true;
            if first {
                let (pending, inbox) = (Arc::downgrade(self), inbox.clone());
                let observed = Observed::Malformed(not_a_response(bytes));
                // Ends by itself, whatever becomes of the link. At most one for each call in flight.
                tokio::spawn(async move {
                    tokio::time::sleep(DAMAGED_GRACE).await;
                    if let Some(pending) = pending.upgrade() {
                        pending.fail(id, observed, &inbox);
                    }
                });
            }
        }
        is_an_answer
    }

    /// Fails request `id`, whose response has arrived and cannot be used.
    pub(super) fn fail(&self, id: u64, observed: Observed, inbox: &Inbox) {
        match self.table.lock().waiting.remove(&id) {
            // The caller may have stopped waiting at this moment.
            Some(waiting) => drop(waiting.answer.send(Err(Evidence::sent(waiting.during, observed).into()))),
            None => inbox.in_flight().forget_withdrawn(id),
        }
    }

    /// Fails all requests of a closed link, each with whether it had been sent.
    pub(super) fn fail_all(&self, observed: &Observed) {
        let waiting = {
            let mut table = self.table.lock();
            table.closed.get_or_insert_with(|| observed.clone());
            std::mem::take(&mut table.waiting)
        };
        for (_, waiting) in waiting {
            let sent = waiting.frame.withdraw();
            let evidence = Evidence { during: waiting.during, sent, observed: observed.clone() };
            let _ = waiting.answer.send(Err(evidence.into()));
        }
    }
}

/// Removes the text of an error that names no request, on a link that has served several principals: it may be about
/// the request of another principal, so only the code is passed on. An expired session concerns all of them, so its
/// text stays.
fn without_message(error: &ErrorObject<'_>, message: &Bytes) -> Bytes {
    let said = RpcError { code: error.code, message: error.message.to_string() };
    let evidence = Evidence::sent(During::Call, Observed::Rpc { error: said, had_session: true });
    if let Failure::SessionExpired(_) = classify(&evidence) {
        return message.clone();
    }
    let text = "the server answered with an error that names no request";
    envelope::error_response(None, error.code, text, None).into()
}

/// Write state of a queued frame. Decided exactly once, by the first of the writer that begins it and the caller that
/// withdraws it.
#[derive(Debug, Default)]
pub(super) struct FrameState {
    state: AtomicU8,
    sent_flag: Arc<SentFlag>,
}

impl FrameState {
    const QUEUED: u8 = 0;
    const BEGUN: u8 = 1;
    const WITHDRAWN: u8 = 2;

    /// Creates a state that also sets a flag when the frame is begun.
    pub(super) fn with_flag(sent_flag: Arc<SentFlag>) -> Self {
        Self { state: AtomicU8::default(), sent_flag }
    }

    /// Begins the frame: the writer is about to write its first byte. `false` if the caller has withdrawn it.
    pub(super) fn begin(&self) -> bool {
        let first =
            self.state.compare_exchange(Self::QUEUED, Self::BEGUN, Ordering::AcqRel, Ordering::Acquire);
        if first.is_ok() {
            self.sent_flag.set();
        }
        first.is_ok()
    }

    /// Reverts a begun frame of which not even the first byte could be written.
    pub(super) fn revert(&self) {
        self.state.store(Self::WITHDRAWN, Ordering::Release);
    }

    /// Withdraws the frame. Returns whether any byte had been sent by then.
    pub(super) fn withdraw(&self) -> Sent {
        match self.state.compare_exchange(Self::QUEUED, Self::WITHDRAWN, Ordering::AcqRel, Ordering::Acquire)
        {
            Ok(_) | Err(Self::WITHDRAWN) => Sent::No,
            Err(_) => Sent::Yes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::Principal;
    use futures_util::FutureExt;
    use proptest::prelude::*;

    #[test]
    fn c05_a_withdrawn_frame_is_never_written_and_a_begun_one_counts_as_sent() {
        let frame = FrameState::default();
        assert_eq!(frame.withdraw(), Sent::No);
        assert!(!frame.begin());
        let frame = FrameState::default();
        assert!(frame.begin());
        assert_eq!(frame.withdraw(), Sent::Yes);
    }

    #[test]
    fn c05_a_frame_without_a_written_byte_was_not_sent() {
        let frame = FrameState::default();
        assert!(frame.begin());
        frame.revert();
        assert_eq!(frame.withdraw(), Sent::No);
    }

    #[test]
    fn a_closed_link_fails_all_requests_and_accepts_none() {
        let pending = PendingReplies::default();
        let begun = Arc::new(FrameState::default());
        begun.begin();
        let mut sent = pending.insert(1, During::Call, None, None, begun).unwrap();
        let mut queued = pending.insert(2, During::Call, None, None, Arc::default()).unwrap();
        pending.fail_all(&Observed::Closed("gone".to_owned()));
        let told = |receiver: &mut oneshot::Receiver<Result<Reply, Box<SendError>>>| {
            receiver.try_recv().unwrap().unwrap_err().evidence.sent
        };
        assert_eq!((told(&mut sent), told(&mut queued)), (Sent::Yes, Sent::No));
        assert!(pending.insert(3, During::Call, None, None, Arc::default()).is_err());
    }

    #[test]
    fn d07_a_response_without_id_completes_a_request_only_if_it_is_the_only_one() {
        let pending = PendingReplies::default();
        let _one = pending.insert(1, During::Call, None, None, Arc::default()).unwrap();
        let two = pending.insert(2, During::Call, None, None, Arc::default()).unwrap();
        assert!(!pending.complete_only(Bytes::from_static(b"{}")));
        drop(two);
        pending.remove(2);
        assert!(pending.complete_only(Bytes::from_static(b"{}")));
    }

    async fn dispatched(pending: &Arc<PendingReplies>, inbox: &Inbox, line: &'static [u8]) {
        let _ = pending.dispatch(Bytes::from_static(line), inbox).await;
    }

    #[tokio::test(start_paused = true)]
    async fn g07_a_call_with_an_unreadable_response_fails_after_a_second() {
        for line in [
            br#"{"jsonrpc":"2.0","id":1,"result":{"score":NaN}}"#.as_slice(),
            br#"{"jsonrpc":"2.0","id":"1","result":{}}"#,
            br#"{"jsonrpc":"2.0","id":1}"#,
            br#"INFO: {"jsonrpc":"2.0","id":1,"result":{}}"#,
        ] {
            let (pending, (inbox, _supervisor)) = (Arc::new(PendingReplies::default()), Inbox::new());
            let one = pending.insert(1, During::Call, None, None, Arc::default()).unwrap();
            let mut two = pending.insert(2, During::Call, None, None, Arc::default()).unwrap();
            let begun = tokio::time::Instant::now();
            dispatched(&pending, &inbox, line).await;
            dispatched(&pending, &inbox, line).await;
            let evidence = one.await.unwrap().unwrap_err().evidence;
            assert!(matches!(evidence.observed, Observed::Malformed(_)), "{evidence:?}");
            assert_eq!((evidence.sent, begun.elapsed()), (Sent::Yes, DAMAGED_GRACE));
            assert!(two.try_recv().is_err(), "another call is not affected");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn g07_a_readable_response_within_a_second_replaces_an_unreadable_one() {
        let (pending, (inbox, _supervisor)) = (Arc::new(PendingReplies::default()), Inbox::new());
        let one = pending.insert(1, During::Call, None, None, Arc::default()).unwrap();
        dispatched(&pending, &inbox, br#"{"id":1,"result":{}}"#).await;
        tokio::time::advance(DAMAGED_GRACE / 2).await;
        dispatched(&pending, &inbox, br#"{"jsonrpc":"2.0","id":1,"result":{}}"#).await;
        assert!(one.await.unwrap().is_ok());
        let again = pending.insert(1, During::Call, None, None, Arc::default()).unwrap();
        tokio::time::advance(DAMAGED_GRACE * 2).await;
        drop(again);
    }

    #[test]
    fn g05_an_error_without_id_hides_its_text_among_several_principals() {
        for (several, said, told) in [
            (false, "no such row: alice", "no such row: alice"),
            (true, "no such row: alice", "the server answered with an error that names no request"),
            (true, "session not found", "session not found"),
        ] {
            let (pending, (inbox, _supervisor)) = (Arc::new(PendingReplies::default()), Inbox::new());
            for principal in if several { &["alice", "bob"][..] } else { &["bob"] } {
                inbox.in_flight().note_principal(&Principal::new(*principal));
            }
            let mut answer = pending.insert(1, During::Call, None, None, Arc::default()).unwrap();
            let message = envelope::error_response(None, -32000, said, None);
            pending.dispatch(message.into(), &inbox).now_or_never().unwrap().unwrap();
            let Ok(Ok(reply)) = answer.try_recv() else { panic!("no answer") };
            let reply: serde_json::Value = serde_json::from_slice(&reply.message).unwrap();
            assert_eq!(
                (&reply["error"]["message"], &reply["error"]["code"]),
                (&told.into(), &(-32000).into())
            );
        }
    }

    /// Steps of a server and of a caller.
    #[derive(Debug, Clone, Copy)]
    enum Step {
        Joins,
        Progress,
        Answers,
        AnswersAsText,
        Forgotten,
    }

    fn step() -> impl Strategy<Value = (Step, u64)> {
        let what = prop_oneof![
            3 => Just(Step::Joins),
            3 => Just(Step::Progress),
            2 => Just(Step::Answers),
            1 => Just(Step::AnswersAsText),
            1 => Just(Step::Forgotten),
        ];
        (what, 0..8_u64)
    }

    #[derive(Default)]
    struct Recorder(Mutex<Vec<String>>);

    impl Listener for Recorder {
        fn on_message(&self, message: &[u8]) {
            self.0.lock().push(String::from_utf8(message.to_vec()).unwrap());
        }
    }

    proptest! {
        #[test]
        fn each_request_gets_only_its_own_progress_and_response(
            steps in prop::collection::vec(step(), 1..100),
        ) {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
            let _entered = runtime.enter();
            let (pending, (inbox, mut supervisor)) = (Arc::new(PendingReplies::default()), Inbox::new());
            let mut waiting: HashMap<u64, (Arc<Recorder>, oneshot::Receiver<_>, Vec<String>)> = HashMap::new();
            let dispatch = |message: &str| {
                let bytes = Bytes::copy_from_slice(message.as_bytes());
                pending.dispatch(bytes, &inbox).now_or_never().unwrap().unwrap();
            };
            for (number, (step, id)) in steps.into_iter().enumerate() {
                match step {
                    Step::Joins if waiting.contains_key(&id) => {}
                    Step::Joins => {
                        let recorded = Arc::new(Recorder::default());
                        let listener = Arc::clone(&recorded) as Arc<dyn Listener>;
                        let answer = pending.insert(id, During::Call, Some(listener), None, Arc::default()).unwrap();
                        waiting.insert(id, (recorded, answer, Vec::new()));
                    }
                    Step::Progress => {
                        let params = format!(r#"{{"progressToken":{id},"progress":{number}}}"#);
                        let said = format!(r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{params}}}"#);
                        dispatch(&said);
                        if let Some((_, _, theirs)) = waiting.get_mut(&id) {
                            theirs.push(said);
                        }
                    }
                    Step::Answers => {
                        let said = format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"of":{id}}}}}"#);
                        dispatch(&said);
                        if let Some((recorded, mut answer, theirs)) = waiting.remove(&id) {
                            let Ok(Ok(reply)) = answer.try_recv() else { panic!("no answer to {id}") };
                            prop_assert_eq!(&reply.message[..], said.as_bytes());
                            prop_assert_eq!(&*recorded.0.lock(), &theirs);
                        }
                    }
                    // None of our ids is a string, so it completes no request.
                    Step::AnswersAsText => dispatch(&format!(r#"{{"jsonrpc":"2.0","id":"{id}","result":{{}}}}"#)),
                    Step::Forgotten => {
                        pending.remove(id);
                        waiting.remove(&id);
                    }
                }
                for (recorded, answer, theirs) in waiting.values_mut() {
                    prop_assert_eq!(&*recorded.0.lock(), &*theirs);
                    prop_assert!(answer.try_recv().is_err(), "a response of another request");
                }
                prop_assert_eq!(pending.table.lock().waiting.len(), waiting.len(), "nothing is left behind");
            }
            prop_assert!(supervisor.try_recv().is_err(), "nothing is for the supervisor");
        }
    }
}
