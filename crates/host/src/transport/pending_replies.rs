//! Requests that wait for their answers on a link that multiplexes by id.

use super::inbox::{Inbox, Incoming};
use super::{Listener, Reply, SentMark, Trouble, not_a_response};
use crate::memory::AnswerMemory;
use bytes::Bytes;
use gripfast_core::failure::classify::classify;
use gripfast_core::failure::{During, Evidence, Failure, Observed, RpcError, Sent};
use gripfast_wire::Outcome;
use gripfast_wire::envelope::{self, ErrorObject, Malformed, Message};
use gripfast_wire::results::Progress;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::oneshot;

/// The requests under way on one link.
#[derive(Default)]
pub(super) struct Pending {
    table: Mutex<Table>,
}

#[derive(Default)]
struct Table {
    waiting: HashMap<u64, Waiting>,
    /// Once the link is gone: why. Nobody can join any more.
    gone: Option<Observed>,
}

struct Waiting {
    answer: oneshot::Sender<Result<Reply, Box<Trouble>>>,
    listener: Option<Arc<dyn Listener>>,
    memory: Option<Arc<dyn AnswerMemory>>,
    during: During,
    fate: Arc<FrameFate>,
    /// An unreadable answer came.
    damaged: bool,
}

/// A message that was given to its receiver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Dispatched {
    /// A result of a request of ours.
    Result,
    /// An error, a request or a notification.
    Other,
}

/// How long a readable answer may follow an unreadable one.
pub(super) const MENDED_WITHIN: Duration = Duration::from_secs(1);

impl Pending {
    /// Adds a request. On a link that is gone, answers at once with what happened.
    pub(super) fn join(
        &self,
        id: u64,
        during: During,
        listener: Option<Arc<dyn Listener>>,
        memory: Option<Arc<dyn AnswerMemory>>,
        fate: Arc<FrameFate>,
    ) -> Result<oneshot::Receiver<Result<Reply, Box<Trouble>>>, Box<Trouble>> {
        let mut table = self.lock();
        if let Some(gone) = &table.gone {
            return Err(Evidence::unsent(during, gone.clone()).into());
        }
        let (answer, receiver) = oneshot::channel();
        table.waiting.insert(id, Waiting { answer, listener, memory, during, fate, damaged: false });
        Ok(receiver)
    }

    /// Gives a message of the server to whom it is for: answers to whoever asked, progress to whoever
    /// listens to that request, everything else to the link's owner.
    ///
    /// # Errors
    /// It cannot be read. A call that it seems to answer ends, unless a readable answer follows within a second.
    pub(super) async fn dispatch(
        self: &Arc<Self>,
        bytes: Bytes,
        inbox: &Inbox,
    ) -> Result<Dispatched, Malformed> {
        let message = match Message::parse(&bytes) {
            Ok(message) => message,
            Err(malformed) => {
                self.damaged(&bytes, inbox);
                return Err(malformed);
            }
        };
        match message {
            Message::Response(response) => {
                let expected = match (&response.id, &response.outcome) {
                    // None of our ids is a text.
                    (Some(id), _) if id.as_text().is_some() => self.damaged(&bytes, inbox),
                    (Some(id), _) => id.as_u64().is_some_and(|id| self.answer(id, bytes.clone())),
                    (None, Outcome::Error(error)) if inbox.underway().served_several() => {
                        self.answer_the_only_one(without_words(error, &bytes))
                    }
                    (None, Outcome::Error(_)) => self.answer_the_only_one(bytes.clone()),
                    (None, Outcome::Result(_)) => false,
                };
                if !expected {
                    tracing::debug!("an answer that nobody waits for any more");
                    if let Some(id) = response.id.and_then(|id| id.as_u64()) {
                        inbox.underway().settled(id);
                    }
                }
                if let Outcome::Result(_) = response.outcome {
                    return Ok(Dispatched::Result);
                }
            }
            Message::Notification(notification) if notification.method == Progress::METHOD => {
                let token = notification.params.and_then(Progress::read).and_then(|p| p.token.as_minted());
                if let Some(listener) = token.and_then(|id| self.listener(id)) {
                    listener.said(&bytes);
                }
            }
            Message::Request(_) | Message::Notification(_) => {
                inbox.put(Incoming::Message(bytes.clone())).await
            }
        }
        Ok(Dispatched::Other)
    }

    /// The answer to `id` came. Answers whether anybody waited for it.
    fn answer(&self, id: u64, message: Bytes) -> bool {
        let Some(waiting) = self.lock().waiting.remove(&id) else { return false };
        let reply = Reply::counted(message, waiting.during, waiting.memory.as_deref());
        // Whoever asked may have lost interest this very moment.
        let _ = waiting.answer.send(reply.map_err(Into::into));
        true
    }

    /// The server answered with an error that names no request. With exactly one request under way there
    /// is no doubt whose answer it is.
    fn answer_the_only_one(&self, message: Bytes) -> bool {
        let only = {
            let table = self.lock();
            let mut ids = table.waiting.keys();
            ids.next().copied().filter(|_| ids.next().is_none())
        };
        only.is_some_and(|id| self.answer(id, message))
    }

    /// Who listens to what the server says on the way to the answer of `id`.
    fn listener(&self, id: u64) -> Option<Arc<dyn Listener>> {
        self.lock().waiting.get(&id).and_then(|waiting| waiting.listener.clone())
    }

    /// Nobody waits for `id` any more.
    pub(super) fn forget(&self, id: u64) {
        self.lock().waiting.remove(&id);
    }

    /// Something unreadable came. Ends the calls that it answers by its looks, unless a readable answer follows in time.
    /// Answers whether there are any.
    pub(super) fn damaged(self: &Arc<Self>, bytes: &[u8], inbox: &Inbox) -> bool {
        let mut is_an_answer = false;
        for id in envelope::damaged_answers(bytes) {
            let first = match self.lock().waiting.get_mut(&id) {
                Some(waiting) => !std::mem::replace(&mut waiting.damaged, true),
                None => continue,
            };
            is_an_answer = true;
            if first {
                let (pending, inbox) = (Arc::downgrade(self), inbox.clone());
                let observed = Observed::Garbled(not_a_response(bytes));
                // Ends by itself, whatever becomes of the link. One for each call in flight at the most.
                tokio::spawn(async move {
                    tokio::time::sleep(MENDED_WITHIN).await;
                    if let Some(pending) = pending.upgrade() {
                        pending.fail(id, observed, &inbox);
                    }
                });
            }
        }
        is_an_answer
    }

    /// The answer to `id` came and cannot be used, for this reason.
    pub(super) fn fail(&self, id: u64, observed: Observed, inbox: &Inbox) {
        match self.lock().waiting.remove(&id) {
            // Whoever asked may have lost interest this very moment.
            Some(waiting) => drop(waiting.answer.send(Err(Evidence::sent(waiting.during, observed).into()))),
            None => inbox.underway().settled(id),
        }
    }

    /// The link is gone: everybody is told, with how much of their request had left us.
    pub(super) fn fail_all(&self, observed: &Observed) {
        let waiting = {
            let mut table = self.lock();
            table.gone.get_or_insert_with(|| observed.clone());
            std::mem::take(&mut table.waiting)
        };
        for (_, waiting) in waiting {
            let sent = waiting.fate.withdraw();
            let evidence = Evidence { during: waiting.during, sent, observed: observed.clone() };
            let _ = waiting.answer.send(Err(evidence.into()));
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An error that names no request, on a link that has served several principals: its words may be about the request
/// of another, so only its code is passed on. That a session is gone concerns all of them.
fn without_words(error: &ErrorObject<'_>, message: &Bytes) -> Bytes {
    let said = RpcError { code: error.code, message: error.message.to_string() };
    let evidence = Evidence::sent(During::Call, Observed::Rpc { error: said, had_session: true });
    if let Failure::SessionExpired(_) = classify(&evidence) {
        return message.clone();
    }
    let told = "the server answered with an error that names no request";
    envelope::error_response(None, error.code, told, None).into()
}

/// Whether a frame in the writer's queue was begun. Decided exactly once, by whoever comes first: the
/// writer that begins it, or the caller that withdraws it.
#[derive(Debug, Default)]
pub(super) struct FrameFate {
    state: AtomicU8,
    mark: Arc<SentMark>,
}

impl FrameFate {
    const QUEUED: u8 = 0;
    const BEGUN: u8 = 1;
    const WITHDRAWN: u8 = 2;

    /// A fate that also tells whoever holds the mark.
    pub(super) fn marking(mark: Arc<SentMark>) -> Self {
        Self { state: AtomicU8::default(), mark }
    }

    /// The writer is about to write the first byte. `false`: nobody wants it any more.
    pub(super) fn begin(&self) -> bool {
        let first =
            self.state.compare_exchange(Self::QUEUED, Self::BEGUN, Ordering::AcqRel, Ordering::Acquire);
        if first.is_ok() {
            self.mark.set();
        }
        first.is_ok()
    }

    /// The writer could not write even the first byte after all.
    pub(super) fn take_back(&self) {
        self.state.store(Self::WITHDRAWN, Ordering::Release);
    }

    /// The caller gives up on it. Answers whether anything had left us by then.
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
    fn c05_a_frame_that_was_withdrawn_is_never_written_and_one_that_was_begun_counts_as_sent() {
        let fate = FrameFate::default();
        assert_eq!(fate.withdraw(), Sent::No);
        assert!(!fate.begin());
        let fate = FrameFate::default();
        assert!(fate.begin());
        assert_eq!(fate.withdraw(), Sent::Yes);
    }

    #[test]
    fn c05_a_frame_of_which_not_one_byte_could_be_written_was_not_sent() {
        let fate = FrameFate::default();
        assert!(fate.begin());
        fate.take_back();
        assert_eq!(fate.withdraw(), Sent::No);
    }

    #[test]
    fn a_link_that_is_gone_tells_everybody_once_and_takes_nobody_new() {
        let pending = Pending::default();
        let begun = Arc::new(FrameFate::default());
        begun.begin();
        let mut sent = pending.join(1, During::Call, None, None, begun).unwrap();
        let mut queued = pending.join(2, During::Call, None, None, Arc::default()).unwrap();
        pending.fail_all(&Observed::Closed("gone".to_owned()));
        let told = |receiver: &mut oneshot::Receiver<Result<Reply, Box<Trouble>>>| {
            receiver.try_recv().unwrap().unwrap_err().evidence.sent
        };
        assert_eq!((told(&mut sent), told(&mut queued)), (Sent::Yes, Sent::No));
        assert!(pending.join(3, During::Call, None, None, Arc::default()).is_err());
    }

    #[test]
    fn d07_an_answer_that_names_no_request_goes_to_the_only_one_that_waits_and_to_nobody_if_in_doubt() {
        let pending = Pending::default();
        let _one = pending.join(1, During::Call, None, None, Arc::default()).unwrap();
        let two = pending.join(2, During::Call, None, None, Arc::default()).unwrap();
        assert!(!pending.answer_the_only_one(Bytes::from_static(b"{}")));
        drop(two);
        pending.forget(2);
        assert!(pending.answer_the_only_one(Bytes::from_static(b"{}")));
    }

    async fn dispatched(pending: &Arc<Pending>, inbox: &Inbox, line: &'static [u8]) {
        let _ = pending.dispatch(Bytes::from_static(line), inbox).await;
    }

    #[tokio::test(start_paused = true)]
    async fn g07_a_call_whose_answer_cannot_be_read_ends_after_a_second() {
        for line in [
            br#"{"jsonrpc":"2.0","id":1,"result":{"score":NaN}}"#.as_slice(),
            br#"{"jsonrpc":"2.0","id":"1","result":{}}"#,
            br#"{"jsonrpc":"2.0","id":1}"#,
            br#"INFO: {"jsonrpc":"2.0","id":1,"result":{}}"#,
        ] {
            let (pending, (inbox, _owner)) = (Arc::new(Pending::default()), Inbox::new());
            let one = pending.join(1, During::Call, None, None, Arc::default()).unwrap();
            let mut two = pending.join(2, During::Call, None, None, Arc::default()).unwrap();
            let begun = tokio::time::Instant::now();
            dispatched(&pending, &inbox, line).await;
            dispatched(&pending, &inbox, line).await;
            let evidence = one.await.unwrap().unwrap_err().evidence;
            assert!(matches!(evidence.observed, Observed::Garbled(_)), "{evidence:?}");
            assert_eq!((evidence.sent, begun.elapsed()), (Sent::Yes, MENDED_WITHIN));
            assert!(two.try_recv().is_err(), "another call is not concerned");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn g07_a_readable_answer_within_a_second_of_an_unreadable_one_counts() {
        let (pending, (inbox, _owner)) = (Arc::new(Pending::default()), Inbox::new());
        let one = pending.join(1, During::Call, None, None, Arc::default()).unwrap();
        dispatched(&pending, &inbox, br#"{"id":1,"result":{}}"#).await;
        tokio::time::advance(MENDED_WITHIN / 2).await;
        dispatched(&pending, &inbox, br#"{"jsonrpc":"2.0","id":1,"result":{}}"#).await;
        assert!(one.await.unwrap().is_ok());
        let again = pending.join(1, During::Call, None, None, Arc::default()).unwrap();
        tokio::time::advance(MENDED_WITHIN * 2).await;
        drop(again);
    }

    #[test]
    fn g05_an_error_that_names_no_request_has_no_words_for_one_of_several_principals() {
        for (several, said, told) in [
            (false, "no such row: alice", "no such row: alice"),
            (true, "no such row: alice", "the server answered with an error that names no request"),
            (true, "session not found", "session not found"),
        ] {
            let (pending, (inbox, _owner)) = (Arc::new(Pending::default()), Inbox::new());
            for principal in if several { &["alice", "bob"][..] } else { &["bob"] } {
                inbox.underway().serves(&Principal::named(*principal));
            }
            let mut answer = pending.join(1, During::Call, None, None, Arc::default()).unwrap();
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

    /// What a server may say about a request, and what its caller may do.
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
    struct Heard(Mutex<Vec<String>>);

    impl Listener for Heard {
        fn said(&self, message: &[u8]) {
            self.0.lock().unwrap().push(String::from_utf8(message.to_vec()).unwrap());
        }
    }

    proptest! {
        #[test]
        fn whoever_asked_hears_what_is_theirs_until_the_answer_and_nobody_else_does(
            steps in prop::collection::vec(step(), 1..100),
        ) {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
            let _entered = runtime.enter();
            let (pending, (inbox, mut owner)) = (Arc::new(Pending::default()), Inbox::new());
            let mut waiting: HashMap<u64, (Arc<Heard>, oneshot::Receiver<_>, Vec<String>)> = HashMap::new();
            let dispatch = |message: &str| {
                let bytes = Bytes::copy_from_slice(message.as_bytes());
                pending.dispatch(bytes, &inbox).now_or_never().unwrap().unwrap();
            };
            for (number, (step, id)) in steps.into_iter().enumerate() {
                match step {
                    Step::Joins if waiting.contains_key(&id) => {}
                    Step::Joins => {
                        let heard = Arc::new(Heard::default());
                        let ear = Arc::clone(&heard) as Arc<dyn Listener>;
                        let answer = pending.join(id, During::Call, Some(ear), None, Arc::default()).unwrap();
                        waiting.insert(id, (heard, answer, Vec::new()));
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
                        if let Some((heard, mut answer, theirs)) = waiting.remove(&id) {
                            let Ok(Ok(reply)) = answer.try_recv() else { panic!("no answer to {id}") };
                            prop_assert_eq!(&reply.message[..], said.as_bytes());
                            prop_assert_eq!(&*heard.0.lock().unwrap(), &theirs);
                        }
                    }
                    // No id of ours is a text, so it is nobody's.
                    Step::AnswersAsText => dispatch(&format!(r#"{{"jsonrpc":"2.0","id":"{id}","result":{{}}}}"#)),
                    Step::Forgotten => {
                        pending.forget(id);
                        waiting.remove(&id);
                    }
                }
                for (heard, answer, theirs) in waiting.values_mut() {
                    prop_assert_eq!(&*heard.0.lock().unwrap(), &*theirs);
                    prop_assert!(answer.try_recv().is_err(), "an answer that is not theirs");
                }
                prop_assert_eq!(pending.lock().waiting.len(), waiting.len(), "nothing is left behind");
            }
            prop_assert!(owner.try_recv().is_err(), "none of it is for the owner");
        }
    }
}
