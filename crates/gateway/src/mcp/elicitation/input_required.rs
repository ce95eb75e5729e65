//! Calls of modern clients that wait for input.
//!
//! A modern client cannot be asked: it is told "input required", and comes back with the answers in a new
//! request. Meanwhile the call goes on behind us, held here under a state that only we can have given out.

use super::client::Client;
use super::fair_table::FairTable;
use super::outbox::{Next, Outbox};
use super::questions::{OpenQuestion, OpenQuestions};
use super::running::Running;
use crate::shares::Share;
use bytes::Bytes;
use futures_util::future::AbortHandle;
use gripfast::Principal;
use gripfast::transport::{BoxFuture, Listener};
use gripfast::wire::envelope::{self, Message};
use gripfast::wire::patch::Object;
use gripfast::wire::{RawValue, RequestId, codes};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, oneshot};
use tokio_util::task::AbortOnDropHandle;

/// A call and what its server has asked meanwhile.
pub(crate) struct Suspended {
    pub(crate) outbox: Arc<Outbox>,
    pub(crate) inputs: Arc<Inputs>,
    /// How much of the outbox the client has seen.
    pub(crate) place: usize,
    /// As long as whoever waits for it drives it.
    call: Option<Running>,
    handle: AbortHandle,
    origin: Origin,
}

/// What a call began with.
#[derive(Debug, Clone)]
pub(crate) struct Origin {
    /// Whose it is.
    pub(crate) principal: Principal,
    /// The request.
    pub(crate) asked: Bytes,
}

impl Origin {
    /// Whether a request asks for the same, but for what it says about questions and about itself.
    fn is_of(&self, request: &envelope::Request<'_>) -> bool {
        let Ok(Message::Request(asked)) = Message::parse(&self.asked) else { return false };
        asked.method == request.method && are_alike(asked.params, request.params)
    }
}

/// Whether parameters mean the same. Whoever builds a request anew may put its members in another order.
fn are_alike(one: Option<&RawValue>, other: Option<&RawValue>) -> bool {
    let (one, other) =
        (one.and_then(|raw| Object::parse(raw).ok()), other.and_then(|raw| Object::parse(raw).ok()));
    let (one, other) = (lasting(one.as_ref()), lasting(other.as_ref()));
    let same_value = |one: &RawValue, other: &RawValue| {
        let value = |raw: &RawValue| serde_json::from_str::<serde_json::Value>(raw.get()).ok();
        one.get() == other.get() || value(one).is_some_and(|value_of_one| Some(value_of_one) == value(other))
    };
    let same =
        |(name, value): (&&str, &&RawValue)| other.get(*name).is_some_and(|other| same_value(value, other));
    one.len() == other.len() && one.iter().all(same)
}

/// The parameters that a request has again when its client comes back.
fn lasting<'a>(params: Option<&'a Object<'a>>) -> BTreeMap<&'a str, &'a RawValue> {
    let differs = |name: &str| matches!(name, "_meta" | "inputResponses" | "requestState");
    params.into_iter().flat_map(Object::iter).filter(|(name, _)| !differs(name)).collect()
}

impl Suspended {
    pub(crate) fn new(
        outbox: Arc<Outbox>,
        inputs: Arc<Inputs>,
        (call, handle): (Running, AbortHandle),
        origin: Origin,
    ) -> Self {
        Self { outbox, inputs, place: 0, call: Some(call), handle, origin }
    }

    /// Waits for `wanted`, and drives the call meanwhile unless it goes by itself.
    pub(crate) async fn until<T>(&mut self, wanted: impl Future<Output = T>) -> T {
        match &mut self.call {
            Some(call) => call.until(wanted).await,
            None => wanted.await,
        }
    }

    /// From here on it goes by itself, whether or not anybody waits.
    pub(crate) fn goes_by_itself(mut self) -> Self {
        self.call = None;
        self
    }

    /// Waits for what comes next. Giving up on waiting loses nothing.
    pub(crate) async fn next(&mut self) -> Step {
        tokio::select! {
            biased;
            next = self.outbox.next(self.place) => match next {
                Next::End => Step::End,
                Next::Message(message, next) => {
                    let last = self.outbox.only_the_answer(next - 1).is_some();
                    self.place = next;
                    if last { Step::Answered(message) } else { Step::Said(message) }
                }
            },
            () = self.inputs.wanted() => Step::Wanted,
        }
    }
}

/// What a call does next.
pub(crate) enum Step {
    /// A message for the client, on the way to the answer.
    Said(Bytes),
    /// The answer, under the id that the call began with.
    Answered(Bytes),
    /// Its server wants input before it goes on.
    Wanted,
    /// Nothing more will come.
    End,
}

/// Whoever gives up on a call ends it.
impl Drop for Suspended {
    fn drop(&mut self) {
        match self.call.take() {
            Some(call) => call.cancel(),
            None => self.handle.abort(),
        }
    }
}

/// The input that a server wants before it goes on, and who waits for it.
pub(crate) struct Inputs {
    wanted: Mutex<Wanted>,
    news: Notify,
    /// Whose call it is.
    principal: Principal,
    questions: Arc<OpenQuestions>,
}

#[derive(Default)]
struct Wanted {
    asked: u64,
    open: BTreeMap<String, Open>,
}

struct Open {
    /// `{"method":…,"params":…}`, as `inputRequests` has it.
    question: String,
    answer: oneshot::Sender<String>,
    /// The memory that the question takes.
    _memory: Share,
}

/// Between two questions that belong together.
const A_MOMENT: Duration = Duration::from_millis(50);
/// How long a person may think.
const ANSWER_WITHIN: Duration = Duration::from_secs(600);
/// After its question was given up, a server may end the call by itself; then it is ended for it.
const GRACE: Duration = Duration::from_secs(5);
/// A server that asks more than this at once is not asking a person.
const MOST_OPEN: usize = 100;

impl Inputs {
    /// The input for a call of this principal.
    pub(crate) fn of(principal: Principal, questions: &Arc<OpenQuestions>) -> Self {
        Self { wanted: Mutex::default(), news: Notify::new(), principal, questions: Arc::clone(questions) }
    }

    /// Waits until something is wanted, and a moment longer: a server that wants to know several things at once
    /// can only ask for one after the other.
    pub(crate) async fn wanted(&self) {
        loop {
            let news = self.news.notified();
            tokio::pin!(news);
            news.as_mut().enable();
            if !self.lock().open.is_empty() {
                break;
            }
            news.await;
        }
        while tokio::time::timeout(A_MOMENT, self.news.notified()).await.is_ok() {}
    }

    /// Everything that is wanted, as the `inputRequests` of a result.
    pub(crate) fn requests(&self) -> String {
        let wanted = self.lock();
        let members: Vec<String> =
            wanted.open.iter().map(|(key, open)| format!("\"{key}\":{}", open.question)).collect();
        format!("{{{}}}", members.join(","))
    }

    /// The client came back with answers; what it left out is still wanted.
    pub(crate) fn give(&self, responses: &Object<'_>) {
        let mut wanted = self.lock();
        for (key, response) in responses.iter() {
            if let Some(open) = wanted.open.remove(key) {
                // The server may have lost interest meanwhile.
                let _ = open.answer.send(response.get().to_owned());
            }
        }
    }

    fn put(
        &self,
        request: &envelope::Request<'_>,
        memory: Share,
    ) -> Option<(OpenQuestion, oneshot::Receiver<String>)> {
        let method = serde_json::Value::from(&*request.method);
        let params = request.params.map_or("{}", RawValue::get);
        let question = format!("{{\"method\":{method},\"params\":{params}}}");
        let (answer, answered) = oneshot::channel();
        let mut wanted = self.lock();
        wanted.open.retain(|_, open| !open.answer.is_closed());
        if wanted.open.len() >= MOST_OPEN {
            return None;
        }
        wanted.asked += 1;
        let key = format!("input-{}", wanted.asked);
        wanted.open.insert(key, Open { question, answer, _memory: memory });
        drop(wanted);
        self.news.notify_waiters();
        Some((self.questions.open(&self.principal), answered))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Wanted> {
        self.wanted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Hears a call of a modern client: progress goes on its stream, questions become wanted input.
pub(crate) struct ModernEar {
    pub(crate) outbox: Arc<Outbox>,
    pub(crate) inputs: Arc<Inputs>,
    pub(crate) client: Client,
}

impl Listener for ModernEar {
    fn said(&self, message: &[u8]) {
        if self.client.wants(message) {
            self.outbox.push(Bytes::copy_from_slice(message));
        }
    }

    fn asked(&self, request: Bytes) -> Option<BoxFuture<'static, Vec<u8>>> {
        let Ok(Message::Request(asked)) = Message::parse(&request) else { return None };
        let abilities = self.client.abilities;
        if !abilities.allow(&asked) {
            return abilities.decline(&asked);
        }
        let is_form = asked.method == "elicitation/create";
        let memory = self.client.memory.take(request.len()).ok()?;
        let (id, (open, answered)) = (asked.id.to_request_id(), self.inputs.put(&asked, memory)?);
        Some(Box::pin(async move {
            match tokio::time::timeout(ANSWER_WITHIN, open.unless_given_up(answered)).await {
                Ok(Some(Ok(result))) => response(&id, result),
                Ok(Some(Err(_)) | None) | Err(_) if is_form => {
                    response(&id, r#"{"action":"cancel"}"#.to_owned())
                }
                Ok(Some(Err(_)) | None) | Err(_) => {
                    let why = "the client did not come back with an answer";
                    envelope::error_response(Some(id.as_id()), codes::INTERNAL_ERROR, why, None)
                }
            }
        }))
    }
}

fn response(id: &RequestId, result: String) -> Vec<u8> {
    match RawValue::from_string(result) {
        Ok(result) => envelope::response(id.as_id(), &result),
        Err(_) => envelope::error_response(Some(id.as_id()), codes::INTERNAL_ERROR, "not an answer", None),
    }
}

/// The calls that wait for their clients to come back, the oldest first.
pub(crate) struct Waiting(Arc<Mutex<FairTable<Held>>>);

struct Held {
    number: u64,
    call: Suspended,
    /// Ends it when its time has come; ends with it.
    _patience: AbortOnDropHandle<()>,
}

impl Waiting {
    /// Clients that never come back do not fill our memory: of one principal at most `each` calls wait, and `all` of all
    /// of them. Beyond it the oldest gives way, of all together the oldest of the principal that has the most.
    pub(crate) fn new(each: usize, all: usize) -> Self {
        Self(Arc::new(Mutex::new(FairTable::new(each, all))))
    }

    /// Holds a call under a number, for as long as a person may think. After that it is given up, and its
    /// server is told.
    pub(crate) fn hold(&self, number: u64, call: Suspended) {
        let (waiting, principal) = (Arc::downgrade(&self.0), call.origin.principal.clone());
        let patience = tokio::spawn({
            let principal = principal.clone();
            async move {
                tokio::time::sleep(ANSWER_WITHIN + GRACE).await;
                if let Some(waiting) = waiting.upgrade() {
                    drop(take(&waiting, &principal, number));
                }
            }
        });
        let held = Held { number, call, _patience: AbortOnDropHandle::new(patience) };
        let (_, gone) = lock(&self.0).insert(&principal, held);
        // Outside the lock: their end is told to others.
        drop(gone);
    }

    /// Gives a call back to its client, who comes back with the same request. Somebody else's is nobody's.
    pub(crate) fn take(
        &self,
        number: u64,
        principal: &Principal,
        request: &envelope::Request<'_>,
    ) -> Result<Suspended, NotGiven> {
        let origin = {
            let waiting = lock(&self.0);
            waiting.find(principal, |held| held.number == number).map(|(_, held)| held.call.origin.clone())
        };
        if !origin.ok_or(NotGiven::Ended)?.is_of(request) {
            return Err(NotGiven::ForAnother);
        }
        take(&self.0, principal, number).ok_or(NotGiven::Ended)
    }
}

/// Why a call is not given back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NotGiven {
    /// There is none, or not any more.
    Ended,
    /// It was begun by a request for something else, and waits on: what was approved is not what would be done.
    ForAnother,
}

fn take(waiting: &Mutex<FairTable<Held>>, principal: &Principal, number: u64) -> Option<Suspended> {
    let mut waiting = lock(waiting);
    let (at, _) = waiting.find(principal, |held| held.number == number)?;
    waiting.remove(at).map(|held| held.call)
}

fn lock(waiting: &Mutex<FairTable<Held>>) -> std::sync::MutexGuard<'_, FairTable<Held>> {
    waiting.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::super::presence::without_session;
    use super::super::questions::Abilities;
    use super::*;
    use crate::memory::ClientMemory;
    use proptest::prelude::*;

    const FORM: &[u8] = br#"{"jsonrpc":"2.0","id":"q","method":"elicitation/create","params":{}}"#;

    const ASKED: &[u8] = br#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"danger","arguments":{"a":1,"b":[2]},"_meta":{"v":1}}}"#;

    fn request(message: &'static [u8]) -> envelope::Request<'static> {
        match Message::parse(message) {
            Ok(Message::Request(request)) => request,
            other => panic!("{other:?}"),
        }
    }

    impl Waiting {
        const MOST: usize = 1000;
    }

    impl Default for Inputs {
        fn default() -> Self {
            Self::of(Principal::local(), &Arc::default())
        }
    }

    impl Default for Waiting {
        fn default() -> Self {
            Self::new(Self::MOST, 2 * Self::MOST)
        }
    }

    fn given_back(waiting: &Waiting, number: u64) -> Result<Suspended, NotGiven> {
        waiting.take(number, &Principal::local(), &request(ASKED))
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_is_given_back_to_the_request_that_it_began_with_and_waits_on_for_it() {
        let others: [&'static [u8]; 4] = [
            br#"{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"safe","arguments":{"a":1,"b":[2]}}}"#,
            br#"{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"danger","arguments":{"a":2,"b":[2]}}}"#,
            br#"{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"danger"}}"#,
            br#"{"jsonrpc":"2.0","id":2,"method":"prompts/get","params":{"name":"danger","arguments":{"a":1,"b":[2]}}}"#,
        ];
        let waiting = Waiting::default();
        waiting.hold(7, suspended().0);
        for other in others {
            let refused = waiting.take(7, &Principal::local(), &request(other)).err();
            assert_eq!(refused, Some(NotGiven::ForAnother), "{}", String::from_utf8_lossy(other));
        }
        let again = br#"{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"requestState":"s","inputResponses":{},
            "arguments":{ "b":[2], "a":1 },"name":"danger","_meta":{"v":2}}}"#;
        assert!(waiting.take(7, &Principal::local(), &request(again)).is_ok());
    }

    /// A call whose server has asked `ear`, and the answer that the server will get.
    fn suspended() -> (Suspended, Arc<Outbox>, BoxFuture<'static, Vec<u8>>) {
        suspended_of(Principal::local())
    }

    fn suspended_of(whose: Principal) -> (Suspended, Arc<Outbox>, BoxFuture<'static, Vec<u8>>) {
        let (outbox, inputs) = (Arc::new(Outbox::default()), Arc::new(Inputs::default()));
        let can = RawValue::from_string(r#"{"elicitation":{}}"#.to_owned()).unwrap();
        let abilities = Abilities::read(Some(&can));
        let ear = ModernEar {
            outbox: Arc::clone(&outbox),
            inputs: Arc::clone(&inputs),
            client: Client::with(
                abilities,
                without_session(Principal::local())(abilities),
                ClientMemory::unbounded(),
            ),
        };
        let answer = ear.asked(Bytes::from_static(FORM)).unwrap();
        let end = super::super::http::EndOnDrop(Arc::clone(&outbox));
        let call = Running::new(|| async move {
            let _end = end;
            std::future::pending::<()>().await;
        });
        let origin = Origin { principal: whose, asked: Bytes::from_static(ASKED) };
        (Suspended::new(Arc::clone(&outbox), inputs, call, origin), outbox, answer)
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_does_not_come_back_within_ten_minutes_has_cancelled_its_question_and_its_call() {
        let waiting = Waiting::default();
        let (call, outbox, answer) = suspended();
        waiting.hold(7, call);
        let begun = tokio::time::Instant::now();
        let answer: serde_json::Value = serde_json::from_slice(&answer.await).unwrap();
        assert_eq!((&answer["id"], &answer["result"]["action"]), (&"q".into(), &"cancel".into()));
        assert_eq!(begun.elapsed(), ANSWER_WITHIN);
        assert_eq!(outbox.answer().await, None, "the call itself is cancelled");
        assert!(begun.elapsed() <= ANSWER_WITHIN + GRACE + Duration::from_secs(1), "{:?}", begun.elapsed());
        assert!(given_back(&waiting, 7).is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_that_was_given_back_is_not_ended_by_the_time_of_its_waiting() {
        let waiting = Waiting::default();
        let (call, outbox, _answer) = suspended();
        waiting.hold(7, call);
        let call = given_back(&waiting, 7).unwrap();
        tokio::time::sleep(ANSWER_WITHIN * 2).await;
        outbox.finish(Some(Bytes::from_static(b"answer")));
        assert_eq!(call.outbox.answer().await.unwrap(), "answer");
    }

    #[tokio::test(start_paused = true)]
    async fn the_oldest_gives_way_when_too_many_wait() {
        let waiting = Waiting::default();
        let (oldest, outbox, _answer) = suspended();
        waiting.hold(0, oldest);
        for number in 1..=Waiting::MOST as u64 {
            waiting.hold(number, suspended().0);
        }
        assert!(given_back(&waiting, 0).is_err() && given_back(&waiting, 1).is_ok());
        assert_eq!(outbox.answer().await, None);
    }

    #[tokio::test(start_paused = true)]
    async fn questions_that_come_together_are_put_together() {
        let (call, _outbox, _first) = suspended();
        let inputs = Arc::clone(&call.inputs);
        let can = RawValue::from_string(r#"{"elicitation":{}}"#.to_owned()).unwrap();
        let abilities = Abilities::read(Some(&can));
        let client = Client::with(
            abilities,
            without_session(Principal::local())(abilities),
            ClientMemory::unbounded(),
        );
        let ear = ModernEar { outbox: Arc::default(), inputs: Arc::clone(&inputs), client };
        let asking = async {
            tokio::time::sleep(A_MOMENT / 2).await;
            let second = ear.asked(Bytes::from_static(FORM));
            tokio::time::sleep(A_MOMENT * 2).await;
            (second, ear.asked(Bytes::from_static(FORM)))
        };
        let told = async {
            inputs.wanted().await;
            inputs.requests().matches("elicitation/create").count()
        };
        let (_questions, told) = tokio::join!(asking, told);
        assert_eq!(told, 2, "the third came too late");
    }

    #[tokio::test(start_paused = true)]
    async fn a_principal_with_too_many_suspended_calls_loses_its_oldest_and_nobody_elses() {
        let waiting = Waiting::new(3, 5);
        let hold = |number: u64, whose: &str| waiting.hold(number, suspended_of(Principal::named(whose)).0);
        let mut expected: Vec<(u64, &str)> = Vec::new();
        let check = |expected: &[(u64, &str)], gone: &[u64]| {
            let table = lock(&waiting.0);
            for (number, whose) in expected {
                let found = table.find(&Principal::named(*whose), |held| held.number == *number);
                assert_eq!(found.is_none(), gone.contains(number), "call {number} of {whose}");
            }
        };
        for (number, whose) in [(0, "modest"), (1, "greedy"), (2, "greedy"), (3, "greedy")] {
            hold(number, whose);
            expected.push((number, whose));
        }
        check(&expected, &[]);
        for (number, whose, gone) in
            [(4, "greedy", &[1][..]), (5, "other", &[1]), (6, "third", &[1, 2]), (7, "third", &[1, 2, 3])]
        {
            hold(number, whose);
            expected.push((number, whose));
            check(&expected, gone);
        }
    }

    proptest! {
        #[test]
        fn a_call_is_given_back_once_and_to_nobody_but_its_own_client(
            events in prop::collection::vec((any::<bool>(), 0..6_u64, 0..3_u8), 1..60),
        ) {
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
            runtime.block_on(async {
                let principal = |number: u8| Principal::named(format!("client-{number}"));
                let waiting = Waiting::default();
                let mut model: BTreeMap<u64, (u8, Arc<Outbox>)> = BTreeMap::new();
                for (holds, number, who) in events {
                    if holds && !model.contains_key(&number) {
                        let (call, outbox, _) = suspended_of(principal(who));
                        waiting.hold(number, call);
                        model.insert(number, (who, outbox));
                    } else {
                        let theirs = model.get(&number).is_some_and(|(owner, _)| *owner == who);
                        let expected = theirs.then(|| model.remove(&number)).flatten();
                        let given = waiting.take(number, &principal(who), &request(ASKED)).ok();
                        let same = match (&given, &expected) {
                            (Some(given), Some((_, outbox))) => Arc::ptr_eq(&given.outbox, outbox),
                            (None, None) => true,
                            (Some(_), None) | (None, Some(_)) => false,
                        };
                        prop_assert!(same, "client {who} came with {number}");
                    }
                }
                Ok(())
            })?;
        }
    }
}
