//! Calls of modern clients that wait for input.
//!
//! A modern client gets no requests: it receives an `input_required` result and repeats its request with the answers.
//! Meanwhile the call stays in flight, held here under an encrypted `requestState`.

use super::{OpenElicitation, OpenElicitations};
use crate::mcp::address::{AddressKind, IdOrigin, Replica};
use crate::mcp::client::Client;
use crate::mcp::fair_table::FairTable;
use crate::mcp::session::claims::random;
use crate::mcp::session::token::TokenCipher;
use crate::mcp::transport::replay_buffer::{ReplayBuffer, ReplayItem};
use crate::mcp::transport::streamable_http::CountedResponse;
use crate::server::quota::QuotaPermit;
use crate::server::runtime::inline_call::{CallProgress, InlineCall};
use bytes::Bytes;
use futures_util::future::AbortHandle;
use gripfast::Principal;
use gripfast::sync::Mutex;
use gripfast::transport::{BoxFuture, Listener};
use gripfast::wire::envelope::{self, Message};
use gripfast::wire::patch::Object;
use gripfast::wire::{Json, JsonText, RequestId, codes};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Notify, oneshot};
use tokio_util::task::AbortOnDropHandle;

/// Call of a modern client, and the input that its server has requested.
pub(crate) struct InputRequiredCall {
    pub(crate) replay_buffer: Arc<ReplayBuffer>,
    pub(crate) inputs: Arc<RequestedInputs>,
    /// Position in the replay buffer up to which the client has received messages.
    pub(crate) position: usize,
    /// Drives the call inline while a request waits for it; `None` once it runs on its own.
    call: Option<InlineCall<ReplayBuffer>>,
    handle: AbortHandle,
    origin: CallOrigin,
}

/// Principal and request that started a call.
#[derive(Debug, Clone)]
pub(crate) struct CallOrigin {
    /// Principal of the client.
    pub(crate) principal: Principal,
    /// Request that started the call.
    pub(crate) request: Bytes,
}

impl CallOrigin {
    /// Tests if a repeated request is for the same call: same method and parameters, apart from `_meta`,
    /// `inputResponses` and `requestState`.
    fn matches(&self, request: &envelope::Request<'_>) -> bool {
        let Ok(Message::Request(original)) = Message::parse(&self.request) else { return false };
        original.method == request.method && are_alike(original.params, request.params)
    }
}

/// Compares parameters by value. A client that rebuilds its request may change the order of members.
fn are_alike(one: Option<&Json>, other: Option<&Json>) -> bool {
    let (one, other) =
        (one.and_then(|raw| Object::parse(raw).ok()), other.and_then(|raw| Object::parse(raw).ok()));
    let (one, other) = (stable_params(one.as_ref()), stable_params(other.as_ref()));
    let same_value = |one: &Json, other: &Json| {
        let value = |raw: &Json| serde_json::from_str::<serde_json::Value>(raw.get()).ok();
        one.get() == other.get() || value(one).is_some_and(|value_of_one| Some(value_of_one) == value(other))
    };
    let same =
        |(name, value): (&&str, &&Json)| other.get(*name).is_some_and(|other| same_value(value, other));
    one.len() == other.len() && one.iter().all(same)
}

/// Parameters that must be the same in a repeated request.
fn stable_params<'o, 'a>(params: Option<&'o Object<'a>>) -> BTreeMap<&'o str, &'a Json> {
    let differs = |name: &str| matches!(name, "_meta" | "inputResponses" | "requestState");
    params.into_iter().flat_map(Object::iter).filter(|(name, _)| !differs(name)).collect()
}

impl InputRequiredCall {
    pub(crate) fn new(
        replay_buffer: Arc<ReplayBuffer>,
        inputs: Arc<RequestedInputs>,
        (call, handle): (InlineCall<ReplayBuffer>, AbortHandle),
        origin: CallOrigin,
    ) -> Self {
        Self { replay_buffer, inputs, position: 0, call: Some(call), handle, origin }
    }

    /// Waits for `wanted`, and drives the call meanwhile unless it runs on its own.
    pub(crate) async fn until<T>(
        &mut self,
        wanted: impl Future<Output = T>,
    ) -> CallProgress<CountedResponse, T> {
        match &mut self.call {
            Some(call) => call.until(wanted).await,
            None => CallProgress::Wanted(wanted.await),
        }
    }

    /// Lets the call run on its own, independent of waiting requests.
    pub(crate) fn detached(mut self) -> Self {
        self.call = None;
        self
    }

    /// Waits for the next step. Cancel safe.
    pub(crate) async fn next(&mut self) -> CallStep {
        tokio::select! {
            biased;
            next = self.replay_buffer.next(self.position) => match next {
                ReplayItem::End => CallStep::End,
                ReplayItem::Message(message, next) => {
                    let last = self.replay_buffer.sole_answer(next - 1).is_some();
                    self.position = next;
                    if last { CallStep::Answered(message) } else { CallStep::Notification(message) }
                }
            },
            () = self.inputs.wanted() => CallStep::InputRequired,
        }
    }
}

/// Next step of a call.
pub(crate) enum CallStep {
    /// Message for the client before the answer.
    Notification(Bytes),
    /// The answer, with the id of the request that started the call.
    Answered(Bytes),
    /// The server requests input.
    InputRequired,
    /// The call has ended without an answer.
    End,
}

/// Cancels the call.
impl Drop for InputRequiredCall {
    fn drop(&mut self) {
        match self.call.take() {
            Some(call) => call.cancel(),
            None => self.handle.abort(),
        }
    }
}

/// Input that a server has requested during one call.
pub(crate) struct RequestedInputs {
    wanted: Mutex<RequestedInput>,
    changed: Notify,
    /// Principal of the client.
    principal: Principal,
    elicitations: Arc<OpenElicitations>,
}

#[derive(Default)]
struct RequestedInput {
    count: u64,
    open: BTreeMap<String, OpenInput>,
}

struct OpenInput {
    /// `{"method":…,"params":…}`, as in `inputRequests`.
    question: String,
    answer: oneshot::Sender<String>,
    /// Memory of the request.
    _memory: QuotaPermit,
}

/// Wait for further requests of the server, so that they reach the client in one result.
const COLLECT_DELAY: Duration = Duration::from_millis(50);
/// Time that a person has for an answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(600);
/// After a request of the server timed out, the server has this time to end the call itself; then the gateway cancels
/// it.
const GRACE: Duration = Duration::from_secs(5);
/// Maximum number of open requests of one call: no person answers more at once.
const MAX_OPEN: usize = 100;

impl RequestedInputs {
    /// Requested inputs of a call of this principal.
    pub(crate) fn new(principal: Principal, elicitations: &Arc<OpenElicitations>) -> Self {
        Self {
            wanted: Mutex::default(),
            changed: Notify::new(),
            principal,
            elicitations: Arc::clone(elicitations),
        }
    }

    /// Waits until the server requests input, and [`COLLECT_DELAY`] longer: a server that needs several answers sends
    /// its requests one after the other.
    pub(crate) async fn wanted(&self) {
        loop {
            let notified = self.changed.notified();
            tokio::pin!(notified);
            notified.as_mut().enable();
            if !self.wanted.lock().open.is_empty() {
                break;
            }
            notified.await;
        }
        while tokio::time::timeout(COLLECT_DELAY, self.changed.notified()).await.is_ok() {}
    }

    /// All open requests, as the `inputRequests` of a result.
    pub(crate) fn requests(&self) -> String {
        let wanted = self.wanted.lock();
        let members: Vec<String> =
            wanted.open.iter().map(|(key, open)| format!("\"{key}\":{}", open.question)).collect();
        format!("{{{}}}", members.join(","))
    }

    /// Passes the answers of a repeated request to the server; requests without an answer stay open.
    pub(crate) fn answer(&self, responses: &Object<'_>) {
        let mut wanted = self.wanted.lock();
        for (key, response) in responses.iter() {
            if let Some(open) = wanted.open.remove(key) {
                // The server may have cancelled its request meanwhile.
                let _ = open.answer.send(response.get().to_owned());
            }
        }
    }

    fn insert(
        &self,
        request: &envelope::Request<'_>,
        memory: QuotaPermit,
    ) -> Option<(OpenElicitation, oneshot::Receiver<String>)> {
        let method = serde_json::Value::from(&*request.method);
        let params = request.params.map_or("{}", Json::get);
        let question = format!("{{\"method\":{method},\"params\":{params}}}");
        let (answer, answered) = oneshot::channel();
        let mut wanted = self.wanted.lock();
        wanted.open.retain(|_, open| !open.answer.is_closed());
        if wanted.open.len() >= MAX_OPEN {
            return None;
        }
        wanted.count += 1;
        let key = format!("input-{}", wanted.count);
        wanted.open.insert(key, OpenInput { question, answer, _memory: memory });
        drop(wanted);
        self.changed.notify_waiters();
        Some((self.elicitations.open(&self.principal), answered))
    }
}

/// Listener for a call of a modern client: notifications go to its stream, requests become requested input.
pub(crate) struct ModernListener {
    pub(crate) replay_buffer: Arc<ReplayBuffer>,
    pub(crate) inputs: Arc<RequestedInputs>,
    pub(crate) client: Arc<Client>,
}

impl Listener for ModernListener {
    fn on_message(&self, message: &[u8]) {
        if self.client.wants(message) {
            self.replay_buffer.push(Bytes::copy_from_slice(message));
        }
    }

    fn on_request(&self, request: Bytes) -> Option<BoxFuture<'static, Vec<u8>>> {
        let Ok(Message::Request(parsed)) = Message::parse(&request) else { return None };
        let abilities = self.client.abilities;
        if !abilities.allows(&parsed) {
            return abilities.decline(&parsed);
        }
        let is_form = parsed.method == "elicitation/create";
        let memory = self.client.memory.take(request.len()).ok()?;
        let (id, (open, answered)) = (parsed.id.to_request_id(), self.inputs.insert(&parsed, memory)?);
        Some(Box::pin(async move {
            match tokio::time::timeout(ANSWER_TIMEOUT, open.unless_evicted(answered)).await {
                Ok(Some(Ok(result))) => response(&id, result),
                Ok(Some(Err(_)) | None) | Err(_) if is_form => {
                    response(&id, r#"{"action":"cancel"}"#.to_owned())
                }
                Ok(Some(Err(_)) | None) | Err(_) => {
                    let why = "the client did not repeat its request with an answer";
                    envelope::error_response(Some(id.as_id()), codes::INTERNAL_ERROR, why, None)
                }
            }
        }))
    }
}

fn response(id: &RequestId, result: String) -> Vec<u8> {
    match JsonText::parse(result) {
        Ok(result) => envelope::response(id.as_id(), &result),
        Err(_) => envelope::error_response(
            Some(id.as_id()),
            codes::INTERNAL_ERROR,
            "the answer of the client is not valid JSON",
            None,
        ),
    }
}

/// Meaning of a `requestState` that gripfast has issued.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HeldCallId {
    /// Number of a call of this process.
    Here(u64),
    /// A call of a process that is gone.
    Gone,
}

impl HeldCallId {
    /// Content of a `requestState` from before 0.2, which names no process.
    const UNADDRESSED_PREFIX: &[u8] = b"input ";

    /// Creates the number of a call, and the `requestState` that carries it.
    pub(crate) fn issue(tokens: &TokenCipher) -> Option<(u64, String)> {
        let number = random()?;
        Some((number, tokens.seal(AddressKind::RequestState, number, b"")?))
    }

    /// Process that issued a `requestState`; `None` if gripfast did not issue it, or it names no process.
    pub(crate) fn issuer(tokens: &TokenCipher, state: &str) -> Option<Replica> {
        tokens.open(AddressKind::RequestState, state).map(|(address, _)| address.replica)
    }

    /// Opens a `requestState`; `None` if gripfast did not issue it.
    pub(crate) fn open(tokens: &TokenCipher, state: &str) -> Option<Self> {
        match tokens.open(AddressKind::RequestState, state) {
            Some((address, _)) => Some(match tokens.origin_of(&address) {
                IdOrigin::Here => Self::Here(address.number),
                IdOrigin::Gone => Self::Gone,
            }),
            None => {
                tokens.open_unaddressed(state)?.starts_with(Self::UNADDRESSED_PREFIX).then_some(Self::Gone)
            }
        }
    }
}

/// Calls that wait for their clients to repeat the request, oldest first.
pub(crate) struct InputRequiredCalls(Arc<Mutex<FairTable<HeldCall>>>);

struct HeldCall {
    number: u64,
    call: InputRequiredCall,
    /// Cancels the call at its timeout; stops when the call is taken.
    _timeout: AbortOnDropHandle<()>,
}

impl InputRequiredCalls {
    /// Creates a table for at most `max_per_principal` waiting calls of one principal and `max_total` altogether. Above
    /// it the oldest call is cancelled: of the same principal, or of the principal with the most calls.
    pub(crate) fn new(max_per_principal: usize, max_total: usize) -> Self {
        Self(Arc::new(Mutex::new(FairTable::new(max_per_principal, max_total))))
    }

    /// Holds a call under a number until the answer timeout. After that the call is cancelled, and its server is
    /// notified.
    pub(crate) fn hold(&self, number: u64, call: InputRequiredCall) {
        let (calls, principal) = (Arc::downgrade(&self.0), call.origin.principal.clone());
        let timeout = tokio::spawn({
            let principal = principal.clone();
            async move {
                tokio::time::sleep(ANSWER_TIMEOUT + GRACE).await;
                if let Some(calls) = calls.upgrade() {
                    drop(take(&calls, &principal, number));
                }
            }
        });
        let held = HeldCall { number, call, _timeout: AbortOnDropHandle::new(timeout) };
        let (_, evicted) = self.0.lock().insert(&principal, held);
        // Outside the lock: dropping a call notifies its server.
        drop(evicted);
    }

    /// Returns a held call to its client, which repeats the same request. A call of another principal is reported as
    /// ended.
    pub(crate) fn take(
        &self,
        number: u64,
        principal: &Principal,
        request: &envelope::Request<'_>,
    ) -> Result<InputRequiredCall, ResumeError> {
        let origin = {
            let calls = self.0.lock();
            calls.find(principal, |held| held.number == number).map(|(_, held)| held.call.origin.clone())
        };
        if !origin.ok_or(ResumeError::Ended)?.matches(request) {
            return Err(ResumeError::OtherRequest);
        }
        take(&self.0, principal, number).ok_or(ResumeError::Ended)
    }
}

/// Reason why a call is not returned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ResumeError {
    /// There is no such call, or it has ended.
    Ended,
    /// The call was started by a different request and stays held: the user approved another call than the one repeated
    /// here.
    OtherRequest,
}

fn take(calls: &Mutex<FairTable<HeldCall>>, principal: &Principal, number: u64) -> Option<InputRequiredCall> {
    let mut calls = calls.lock();
    let (at, _) = calls.find(principal, |held| held.number == number)?;
    calls.remove(at).map(|held| held.call)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mcp::elicitation::ElicitationSupport;
    use crate::mcp::registration::without_session;
    use crate::server::memory::ClientMemory;
    use proptest::prelude::*;

    const FORM: &[u8] = br#"{"jsonrpc":"2.0","id":"q","method":"elicitation/create","params":{}}"#;

    const ASKED: &[u8] = br#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"danger","arguments":{"a":1,"b":[2]},"_meta":{"v":1}}}"#;

    fn request(message: &'static [u8]) -> envelope::Request<'static> {
        match Message::parse(message) {
            Ok(Message::Request(request)) => request,
            other => panic!("{other:?}"),
        }
    }

    impl InputRequiredCalls {
        const MAX: usize = 1000;
    }

    impl Default for RequestedInputs {
        fn default() -> Self {
            Self::new(Principal::local(), &Arc::default())
        }
    }

    impl Default for InputRequiredCalls {
        fn default() -> Self {
            Self::new(Self::MAX, 2 * Self::MAX)
        }
    }

    #[test]
    fn a_request_state_names_its_process_and_is_no_session_id() {
        let directory = tempfile::tempdir().unwrap();
        let process = || TokenCipher::load_or_create(directory.path()).unwrap();
        let (before, after) = (process(), process());
        let (number, state) = HeldCallId::issue(&before).unwrap();
        assert_eq!(HeldCallId::open(&before, &state), Some(HeldCallId::Here(number)));
        assert_eq!(HeldCallId::open(&after, &state), Some(HeldCallId::Gone));
        assert_eq!(HeldCallId::open(&TokenCipher::ephemeral().unwrap(), &state), None);
        assert_eq!(before.open(AddressKind::Session, &state), None);
        let session = before.seal(AddressKind::Session, number, b"").unwrap();
        assert_eq!(HeldCallId::open(&before, &session), None);
        assert_eq!(HeldCallId::open(&before, "a state of the server"), None);
    }

    fn given_back(calls: &InputRequiredCalls, number: u64) -> Result<InputRequiredCall, ResumeError> {
        calls.take(number, &Principal::local(), &request(ASKED))
    }

    #[tokio::test(start_paused = true)]
    async fn a_held_call_is_returned_only_to_the_request_that_started_it() {
        let others: [&'static [u8]; 4] = [
            br#"{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"safe","arguments":{"a":1,"b":[2]}}}"#,
            br#"{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"danger","arguments":{"a":2,"b":[2]}}}"#,
            br#"{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"danger"}}"#,
            br#"{"jsonrpc":"2.0","id":2,"method":"prompts/get","params":{"name":"danger","arguments":{"a":1,"b":[2]}}}"#,
        ];
        let calls = InputRequiredCalls::default();
        calls.hold(7, suspended().0);
        for other in others {
            let refused = calls.take(7, &Principal::local(), &request(other)).err();
            assert_eq!(refused, Some(ResumeError::OtherRequest), "{}", String::from_utf8_lossy(other));
        }
        let again = br#"{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"requestState":"s","inputResponses":{},
            "arguments":{ "b":[2], "a":1 },"name":"danger","_meta":{"v":2}}}"#;
        assert!(calls.take(7, &Principal::local(), &request(again)).is_ok());
    }

    /// A call whose server has sent a request, and the future response to that request.
    fn suspended() -> (InputRequiredCall, Arc<ReplayBuffer>, BoxFuture<'static, Vec<u8>>) {
        suspended_of(Principal::local())
    }

    fn suspended_of(owner: Principal) -> (InputRequiredCall, Arc<ReplayBuffer>, BoxFuture<'static, Vec<u8>>) {
        let (replay_buffer, inputs) =
            (Arc::new(ReplayBuffer::default()), Arc::new(RequestedInputs::default()));
        let can = JsonText::parse(r#"{"elicitation":{}}"#.to_owned()).unwrap();
        let abilities = ElicitationSupport::from_capabilities(Some(&can));
        let listener = ModernListener {
            replay_buffer: Arc::clone(&replay_buffer),
            inputs: Arc::clone(&inputs),
            client: Arc::new(Client::legacy(
                abilities,
                without_session(Principal::local())(abilities),
                ClientMemory::unbounded(),
            )),
        };
        let answer = listener.on_request(Bytes::from_static(FORM)).unwrap();
        let (handle, registration) = AbortHandle::new_pair();
        let call = InlineCall::new(Arc::clone(&replay_buffer), None, registration, std::future::pending);
        let origin = CallOrigin { principal: owner, request: Bytes::from_static(ASKED) };
        (
            InputRequiredCall::new(Arc::clone(&replay_buffer), inputs, (call, handle), origin),
            replay_buffer,
            answer,
        )
    }

    #[tokio::test(start_paused = true)]
    async fn a_held_call_is_cancelled_after_ten_minutes_without_an_answer() {
        let calls = InputRequiredCalls::default();
        let (call, replay_buffer, answer) = suspended();
        calls.hold(7, call);
        let begun = tokio::time::Instant::now();
        let answer: serde_json::Value = serde_json::from_slice(&answer.await).unwrap();
        assert_eq!((&answer["id"], &answer["result"]["action"]), (&"q".into(), &"cancel".into()));
        assert_eq!(begun.elapsed(), ANSWER_TIMEOUT);
        assert_eq!(replay_buffer.answer().await, None, "the call itself is cancelled");
        assert!(begun.elapsed() <= ANSWER_TIMEOUT + GRACE + Duration::from_secs(1), "{:?}", begun.elapsed());
        assert!(given_back(&calls, 7).is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn a_returned_call_is_not_cancelled_by_the_hold_timeout() {
        let calls = InputRequiredCalls::default();
        let (call, replay_buffer, _answer) = suspended();
        calls.hold(7, call);
        let call = given_back(&calls, 7).unwrap();
        tokio::time::sleep(ANSWER_TIMEOUT * 2).await;
        replay_buffer.finish(Some(Bytes::from_static(b"answer")));
        assert_eq!(call.replay_buffer.answer().await.unwrap(), "answer");
    }

    #[tokio::test(start_paused = true)]
    async fn the_oldest_held_call_is_evicted_when_there_are_too_many() {
        let calls = InputRequiredCalls::default();
        let (oldest, replay_buffer, _answer) = suspended();
        calls.hold(0, oldest);
        for number in 1..=InputRequiredCalls::MAX as u64 {
            calls.hold(number, suspended().0);
        }
        assert!(given_back(&calls, 0).is_err() && given_back(&calls, 1).is_ok());
        assert_eq!(replay_buffer.answer().await, None);
    }

    #[tokio::test(start_paused = true)]
    async fn requests_that_come_together_are_in_one_result() {
        let (call, _replay_buffer, _first) = suspended();
        let inputs = Arc::clone(&call.inputs);
        let can = JsonText::parse(r#"{"elicitation":{}}"#.to_owned()).unwrap();
        let abilities = ElicitationSupport::from_capabilities(Some(&can));
        let client = Client::legacy(
            abilities,
            without_session(Principal::local())(abilities),
            ClientMemory::unbounded(),
        );
        let listener = ModernListener {
            replay_buffer: Arc::default(),
            inputs: Arc::clone(&inputs),
            client: Arc::new(client),
        };
        let asking = async {
            tokio::time::sleep(COLLECT_DELAY / 2).await;
            let second = listener.on_request(Bytes::from_static(FORM));
            tokio::time::sleep(COLLECT_DELAY * 2).await;
            (second, listener.on_request(Bytes::from_static(FORM)))
        };
        let count = async {
            inputs.wanted().await;
            inputs.requests().matches("elicitation/create").count()
        };
        let (_requests, count) = tokio::join!(asking, count);
        assert_eq!(count, 2, "the third came too late");
    }

    #[tokio::test(start_paused = true)]
    async fn a_principal_with_too_many_held_calls_loses_its_own_oldest() {
        let calls = InputRequiredCalls::new(3, 5);
        let hold = |number: u64, owner: &str| calls.hold(number, suspended_of(Principal::new(owner)).0);
        let mut expected: Vec<(u64, &str)> = Vec::new();
        let check = |expected: &[(u64, &str)], evicted: &[u64]| {
            let table = calls.0.lock();
            for (number, owner) in expected {
                let found = table.find(&Principal::new(*owner), |held| held.number == *number);
                assert_eq!(found.is_none(), evicted.contains(number), "call {number} of {owner}");
            }
        };
        for (number, owner) in [(0, "modest"), (1, "greedy"), (2, "greedy"), (3, "greedy")] {
            hold(number, owner);
            expected.push((number, owner));
        }
        check(&expected, &[]);
        for (number, owner, evicted) in
            [(4, "greedy", &[1][..]), (5, "other", &[1]), (6, "third", &[1, 2]), (7, "third", &[1, 2, 3])]
        {
            hold(number, owner);
            expected.push((number, owner));
            check(&expected, evicted);
        }
    }

    proptest! {
        #[test]
        fn a_held_call_is_returned_once_and_only_to_its_own_client(
            events in prop::collection::vec((any::<bool>(), 0..6_u64, 0..3_u8), 1..60),
        ) {
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
            runtime.block_on(async {
                let principal = |number: u8| Principal::new(format!("client-{number}"));
                let calls = InputRequiredCalls::default();
                let mut model: BTreeMap<u64, (u8, Arc<ReplayBuffer>)> = BTreeMap::new();
                for (holds, number, who) in events {
                    if holds && !model.contains_key(&number) {
                        let (call, replay_buffer, _) = suspended_of(principal(who));
                        calls.hold(number, call);
                        model.insert(number, (who, replay_buffer));
                    } else {
                        let theirs = model.get(&number).is_some_and(|(owner, _)| *owner == who);
                        let expected = theirs.then(|| model.remove(&number)).flatten();
                        let given = calls.take(number, &principal(who), &request(ASKED)).ok();
                        let same = match (&given, &expected) {
                            (Some(given), Some((_, replay_buffer))) => Arc::ptr_eq(&given.replay_buffer, replay_buffer),
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
