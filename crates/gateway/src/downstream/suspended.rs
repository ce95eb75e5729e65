//! Calls of modern clients that wait for input.
//!
//! A modern client cannot be asked: it is told "input required", and comes back with the answers in a new
//! request. Meanwhile the call goes on behind us, held here under a state that only we can have given out.

use super::outbox::Outbox;
use super::questions::Abilities;
use bytes::Bytes;
use gripfast::transport::{BoxFuture, Listener};
use gripfast::wire::envelope::{self, Message};
use gripfast::wire::patch::Object;
use gripfast::wire::{RawValue, RequestId, codes};
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, oneshot};
use tokio::task::AbortHandle;

/// A call and what its server has asked meanwhile.
pub(crate) struct Suspended {
    pub(crate) outbox: Arc<Outbox>,
    pub(crate) inputs: Arc<Inputs>,
    /// How much of the outbox the client has seen.
    pub(crate) place: usize,
    call: AbortHandle,
}

impl Suspended {
    pub(crate) fn new(outbox: Arc<Outbox>, inputs: Arc<Inputs>, call: AbortHandle) -> Self {
        Self { outbox, inputs, place: 0, call }
    }
}

/// Whoever gives up on a call ends it.
impl Drop for Suspended {
    fn drop(&mut self) {
        self.call.abort();
    }
}

/// The input that a server wants before it goes on, and who waits for it.
#[derive(Default)]
pub(crate) struct Inputs {
    wanted: Mutex<Wanted>,
    news: Notify,
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
}

/// How long a person may think.
const ANSWER_WITHIN: Duration = Duration::from_secs(600);
/// A server that asks more than this at once is not asking a person.
const MOST_OPEN: usize = 100;

impl Inputs {
    /// Waits until something is wanted.
    pub(crate) async fn wanted(&self) {
        loop {
            let news = self.news.notified();
            tokio::pin!(news);
            news.as_mut().enable();
            if !self.lock().open.is_empty() {
                return;
            }
            news.await;
        }
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

    fn put(&self, request: &envelope::Request<'_>) -> Option<oneshot::Receiver<String>> {
        let method = serde_json::Value::from(&*request.method);
        let params = request.params.map_or("{}", RawValue::get);
        let question = format!("{{\"method\":{method},\"params\":{params}}}");
        let (answer, answered) = oneshot::channel();
        let mut wanted = self.lock();
        if wanted.open.len() >= MOST_OPEN {
            return None;
        }
        wanted.asked += 1;
        let key = format!("input-{}", wanted.asked);
        wanted.open.insert(key, Open { question, answer });
        drop(wanted);
        self.news.notify_waiters();
        Some(answered)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Wanted> {
        self.wanted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Hears a call of a modern client: progress goes on its stream, questions become wanted input.
pub(crate) struct ModernEar {
    pub(crate) outbox: Arc<Outbox>,
    pub(crate) inputs: Arc<Inputs>,
    pub(crate) abilities: Abilities,
}

impl Listener for ModernEar {
    fn said(&self, message: &[u8]) {
        self.outbox.push(Bytes::copy_from_slice(message));
    }

    fn asked(&self, request: Bytes) -> Option<BoxFuture<'static, Vec<u8>>> {
        let Ok(Message::Request(asked)) = Message::parse(&request) else { return None };
        if !self.abilities.allow(&asked) {
            return self.abilities.decline(&asked);
        }
        let (id, answered) = (asked.id.to_request_id(), self.inputs.put(&asked)?);
        Some(Box::pin(async move {
            match tokio::time::timeout(ANSWER_WITHIN, answered).await {
                Ok(Ok(result)) => response(&id, result),
                Ok(Err(_)) | Err(_) => {
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
#[derive(Default)]
pub(crate) struct Waiting(Mutex<VecDeque<(u64, Suspended)>>);

impl Waiting {
    /// Clients that never come back do not fill our memory: the oldest gives way.
    const MOST: usize = 1000;

    /// Holds a call under a number.
    pub(crate) fn hold(&self, number: u64, call: Suspended) {
        let mut waiting = self.lock();
        if waiting.len() >= Self::MOST {
            waiting.pop_front();
        }
        waiting.push_back((number, call));
    }

    /// Gives a call back to its client.
    pub(crate) fn take(&self, number: u64) -> Option<Suspended> {
        let mut waiting = self.lock();
        let at = waiting.iter().position(|(held, _)| *held == number)?;
        waiting.remove(at).map(|(_, call)| call)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, VecDeque<(u64, Suspended)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
