//! The client of a pipe or of a session: its version and capabilities, its subscriptions, its requests in flight, and
//! the questions that it has not answered yet.

use std::{
    collections::{BTreeSet, HashMap},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use crate::{
    frame::Frame,
    rpc::{self, Call, Era, META_CLIENT_CAPABILITIES, META_LOG_LEVEL},
    state::Change,
    stream::Stream,
};

/// Destination of messages.
#[derive(Debug, Clone)]
pub(crate) enum MessageSink {
    /// One pipe for all messages. Bounded: calls of a peer that does not read wait.
    Pipe(mpsc::Sender<Frame>),
    Stream(Arc<Stream>),
}

impl MessageSink {
    pub(crate) async fn send(&self, frame: Frame) {
        match self {
            // Fails only if the writer has ended, and then the pipe is closed.
            Self::Pipe(pipe) => drop(pipe.send(frame).await),
            Self::Stream(stream) => stream.push(frame),
        }
    }
}

/// The levels of `logging/setLevel`, least severe first.
const LEVELS: [&str; 8] = ["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"];

fn severity(level: &str) -> Option<usize> {
    LEVELS.iter().position(|known| *known == level)
}

#[derive(Debug)]
pub(crate) struct Peer {
    /// Destination of messages that belong to no request.
    background: MessageSink,
    /// Cancelled when the pipe or the session ends, together with all its requests.
    life: CancellationToken,
    client: Mutex<ClientState>,
    in_flight: Mutex<HashMap<String, CancellationToken>>,
    questions: Mutex<Questions>,
}

#[derive(Debug, Default)]
struct ClientState {
    version: Option<String>,
    capabilities: Value,
    level: Option<usize>,
    subscriptions: BTreeSet<String>,
    roots: Option<String>,
}

#[derive(Debug, Default)]
struct Questions {
    asked: u64,
    open: HashMap<String, oneshot::Sender<Value>>,
}

impl Peer {
    pub(crate) fn new(background: MessageSink, life: CancellationToken) -> Self {
        Self {
            background,
            life,
            client: Mutex::default(),
            in_flight: Mutex::default(),
            questions: Mutex::default(),
        }
    }

    pub(crate) fn initialize(&self, version: &str, capabilities: Value) {
        let mut client = lock(&self.client);
        client.version = Some(version.to_owned());
        client.capabilities = capabilities;
    }

    /// The negotiated version; `None` before `initialize`.
    pub(crate) fn version(&self) -> Option<String> {
        lock(&self.client).version.clone()
    }

    /// Sets the log level. Returns whether it exists; an unknown one changes nothing.
    pub(crate) fn set_level(&self, level: &str) -> bool {
        let Some(severity) = severity(level) else { return false };
        lock(&self.client).level = Some(severity);
        true
    }

    pub(crate) fn subscribe(&self, uri: &str) {
        lock(&self.client).subscriptions.insert(uri.to_owned());
    }

    pub(crate) fn unsubscribe(&self, uri: &str) {
        lock(&self.client).subscriptions.remove(uri);
    }

    /// The roots of the client, if they were requested.
    pub(crate) fn roots(&self) -> Option<String> {
        lock(&self.client).roots.clone()
    }

    pub(crate) fn set_roots(&self, roots: &str) {
        lock(&self.client).roots = Some(roots.to_owned());
    }

    /// Notifies a legacy peer of a change that it subscribed to.
    pub(crate) async fn notify(&self, change: &Change) {
        let wanted = {
            let client = lock(&self.client);
            client.version.is_some()
                && match change {
                    Change::Tools => true,
                    Change::Resource(uri) => client.subscriptions.contains(uri),
                    Change::Task(_) => false,
                }
        };
        if wanted {
            self.background.send(Frame::Message(change.notification(None))).await;
        }
    }

    /// Sends a message outside of requests.
    pub(crate) async fn send(&self, message: Value) {
        self.background.send(Frame::Message(message)).await;
    }

    /// Adds a request to the table that `notifications/cancelled` uses.
    fn begin(self: &Arc<Self>, id: &Value) -> InFlight {
        let token = self.life.child_token();
        lock(&self.in_flight).insert(id.to_string(), token.clone());
        InFlight { peer: Arc::clone(self), id: id.to_string(), token }
    }

    pub(crate) fn cancel(&self, id: &Value) {
        if let Some(token) = lock(&self.in_flight).get(&id.to_string()) {
            token.cancel();
        }
    }

    /// Registers a question with a new id. The answer arrives by [`Peer::resolve_question`].
    fn new_question(&self) -> Question<'_> {
        let (sender, answer) = oneshot::channel();
        let mut questions = lock(&self.questions);
        questions.asked += 1;
        let id = format!("demo-{}", questions.asked);
        questions.open.insert(id.clone(), sender);
        Question { peer: self, id, answer }
    }

    /// Delivers an answer to its question. An answer without a question is dropped.
    pub(crate) fn resolve_question(&self, id: &Value, body: Value) {
        let question = id.as_str().and_then(|id| lock(&self.questions).open.remove(id));
        if let Some(question) = question {
            // The caller may have been cancelled meanwhile.
            drop(question.send(body));
        }
    }

    /// Sends a request outside of requests of the client and waits for the answer, a JSON-RPC body with `result` or
    /// `error`. `None` if the peer disconnected.
    pub(crate) async fn ask_in_background(&self, method: &str, params: Value) -> Option<Value> {
        let mut question = self.new_question();
        let message = json!({ "jsonrpc": "2.0", "id": question.id, "method": method, "params": params });
        self.background.send(Frame::Message(message)).await;
        (&mut question.answer).await.ok()
    }

    pub(crate) fn end(&self) {
        self.life.cancel();
    }

    /// Runs a future until it is done or the peer ends.
    pub(crate) async fn until_end<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        self.life.run_until_cancelled(work).await
    }
}

/// A question that is open until it is answered or dropped.
#[derive(Debug)]
struct Question<'a> {
    peer: &'a Peer,
    id: String,
    answer: oneshot::Receiver<Value>,
}

impl Drop for Question<'_> {
    fn drop(&mut self) {
        lock(&self.peer.questions).open.remove(&self.id);
    }
}

/// A request in flight; removed from the table on drop.
#[derive(Debug)]
pub(crate) struct InFlight {
    peer: Arc<Peer>,
    id: String,
    pub(crate) token: CancellationToken,
}

impl Drop for InFlight {
    fn drop(&mut self) {
        lock(&self.peer.in_flight).remove(&self.id);
    }
}

/// One request with the context for its handling.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) call: Call,
    pub(crate) era: Era,
    pub(crate) peer: Arc<Peer>,
    /// Destination of messages that belong to this request.
    pub(crate) outlet: MessageSink,
    pub(crate) in_flight: InFlight,
}

impl Request {
    /// Registers the request, so that it can be cancelled before its handling starts.
    pub(crate) fn begin(call: Call, era: Era, peer: &Arc<Peer>, outlet: MessageSink) -> Self {
        let in_flight = peer.begin(&call.id);
        Self { call, era, peer: Arc::clone(peer), outlet, in_flight }
    }

    pub(crate) fn param(&self, name: &str) -> &Value {
        &self.call.params[name]
    }

    /// The capabilities of the client: of this request in the modern era, of `initialize` in the legacy one.
    pub(crate) fn client_capabilities(&self) -> Value {
        match self.era {
            Era::Modern => self.call.meta(META_CLIENT_CAPABILITIES).clone(),
            Era::Legacy => lock(&self.peer.client).capabilities.clone(),
        }
    }

    pub(crate) fn client_can(&self, capability: &str) -> bool {
        self.client_capabilities()[capability].is_object()
    }

    pub(crate) async fn notify(&self, method: &str, params: Value) {
        self.outlet.send(Frame::Message(rpc::notification(method, params))).await;
    }

    /// Sends a log message if the client asked for messages of this level.
    pub(crate) async fn log(&self, level: &str, data: Value) {
        let threshold = match self.era {
            Era::Modern => self.call.meta(META_LOG_LEVEL).as_str().and_then(severity),
            Era::Legacy => lock(&self.peer.client).level,
        };
        if threshold.is_some_and(|threshold| severity(level) >= Some(threshold)) {
            let params = json!({ "level": level, "logger": "demo", "data": data });
            self.notify("notifications/message", params).await;
        }
    }

    /// Sends a request to the client on this request's own stream and waits for the answer, a JSON-RPC body with
    /// `result` or `error`. `None` if the peer disconnected.
    pub(crate) async fn ask_client(&self, method: &str, params: Value) -> Option<Value> {
        let mut question = self.peer.new_question();
        let message = json!({ "jsonrpc": "2.0", "id": question.id, "method": method, "params": params });
        self.outlet.send(Frame::Message(message)).await;
        (&mut question.answer).await.ok()
    }
}

/// Locks a mutex and ignores poisoning: the data is consistent between any two statements, so a panic does not harm it.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
