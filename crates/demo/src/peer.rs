//! The other side of a pipe or of a session: what it told us at `initialize`, what it subscribed to, which of its
//! requests run, and which of our questions it has not answered yet.

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
    stream::Stream,
    world::Change,
};

/// Where messages go.
#[derive(Debug, Clone)]
pub(crate) enum Outlet {
    /// One pipe for everything. Bounded: a peer that does not read makes its calls wait.
    Pipe(mpsc::Sender<Frame>),
    Stream(Arc<Stream>),
}

impl Outlet {
    pub(crate) async fn send(&self, frame: Frame) {
        match self {
            // The writer is gone only when the pipe is; nobody is left who could miss the frame.
            Self::Pipe(pipe) => drop(pipe.send(frame).await),
            Self::Stream(stream) => stream.push(frame),
        }
    }
}

/// The syslog severities of `logging/setLevel`, mildest first.
const LEVELS: [&str; 8] = ["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"];

fn severity(level: &str) -> Option<usize> {
    LEVELS.iter().position(|known| *known == level)
}

#[derive(Debug)]
pub(crate) struct Peer {
    /// Where messages go that belong to no request.
    background: Outlet,
    /// Ends with the pipe or the session, and every request of it with it.
    life: CancellationToken,
    told: Mutex<Told>,
    in_flight: Mutex<HashMap<String, CancellationToken>>,
    questions: Mutex<Questions>,
}

#[derive(Debug, Default)]
struct Told {
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
    pub(crate) fn new(background: Outlet, life: CancellationToken) -> Self {
        Self {
            background,
            life,
            told: Mutex::default(),
            in_flight: Mutex::default(),
            questions: Mutex::default(),
        }
    }

    pub(crate) fn initialize(&self, version: &str, capabilities: Value) {
        let mut told = lock(&self.told);
        told.version = Some(version.to_owned());
        told.capabilities = capabilities;
    }

    /// The negotiated version; `None` before `initialize`.
    pub(crate) fn version(&self) -> Option<String> {
        lock(&self.told).version.clone()
    }

    /// Says whether the level exists; an unknown one changes nothing.
    pub(crate) fn set_level(&self, level: &str) -> bool {
        let Some(severity) = severity(level) else { return false };
        lock(&self.told).level = Some(severity);
        true
    }

    pub(crate) fn subscribe(&self, uri: &str) {
        lock(&self.told).subscriptions.insert(uri.to_owned());
    }

    pub(crate) fn unsubscribe(&self, uri: &str) {
        lock(&self.told).subscriptions.remove(uri);
    }

    /// The roots that it told us, if we ever asked.
    pub(crate) fn roots(&self) -> Option<String> {
        lock(&self.told).roots.clone()
    }

    pub(crate) fn set_roots(&self, roots: &str) {
        lock(&self.told).roots = Some(roots.to_owned());
    }

    /// Tells a legacy peer of a change that it wants to know about.
    pub(crate) async fn notify(&self, change: &Change) {
        let wanted = {
            let told = lock(&self.told);
            told.version.is_some()
                && match change {
                    Change::Tools => true,
                    Change::Resource(uri) => told.subscriptions.contains(uri),
                    Change::Task(_) => false,
                }
        };
        if wanted {
            self.background.send(Frame::Message(change.notification(None))).await;
        }
    }

    /// Says something outside any request.
    pub(crate) async fn say(&self, message: Value) {
        self.background.send(Frame::Message(message)).await;
    }

    /// Enters a request into the table that `notifications/cancelled` looks into.
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

    /// Files a question under a fresh id. The answer arrives by [`Peer::answered`].
    fn ask(&self) -> Question<'_> {
        let (sender, answer) = oneshot::channel();
        let mut questions = lock(&self.questions);
        questions.asked += 1;
        let id = format!("demo-{}", questions.asked);
        questions.open.insert(id.clone(), sender);
        Question { peer: self, id, answer }
    }

    /// Delivers an answer to the question it belongs to. One that belongs to none is dropped.
    pub(crate) fn answered(&self, id: &Value, body: Value) {
        let question = id.as_str().and_then(|id| lock(&self.questions).open.remove(id));
        if let Some(question) = question {
            // The asker may have been cancelled in between.
            drop(question.send(body));
        }
    }

    /// Asks something outside any request and waits for the answer, a JSON-RPC body with `result` or `error`.
    /// `None` if the peer went away.
    pub(crate) async fn ask_aside(&self, method: &str, params: Value) -> Option<Value> {
        let mut question = self.ask();
        let message = json!({ "jsonrpc": "2.0", "id": question.id, "method": method, "params": params });
        self.background.send(Frame::Message(message)).await;
        (&mut question.answer).await.ok()
    }

    pub(crate) fn end(&self) {
        self.life.cancel();
    }

    /// Waits for something, but not past the end of this peer.
    pub(crate) async fn until_end<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        self.life.run_until_cancelled(work).await
    }
}

/// A question that is open until it is answered or nobody waits for the answer any more.
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

/// A running request; leaves the table when dropped.
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

/// One request with everything that its handling needs to know.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) call: Call,
    pub(crate) era: Era,
    pub(crate) peer: Arc<Peer>,
    /// Where messages go that belong to this request.
    pub(crate) outlet: Outlet,
    pub(crate) running: InFlight,
}

impl Request {
    /// From here on the request can be cancelled, before anybody has looked at it.
    pub(crate) fn begin(call: Call, era: Era, peer: &Arc<Peer>, outlet: Outlet) -> Self {
        let running = peer.begin(&call.id);
        Self { call, era, peer: Arc::clone(peer), outlet, running }
    }

    pub(crate) fn param(&self, name: &str) -> &Value {
        &self.call.params[name]
    }

    /// The capabilities of the client: of this request in the modern era, of `initialize` before.
    pub(crate) fn client_capabilities(&self) -> Value {
        match self.era {
            Era::Modern => self.call.meta(META_CLIENT_CAPABILITIES).clone(),
            Era::Legacy => lock(&self.peer.told).capabilities.clone(),
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
            Era::Legacy => lock(&self.peer.told).level,
        };
        if threshold.is_some_and(|threshold| severity(level) >= Some(threshold)) {
            let params = json!({ "level": level, "logger": "demo", "data": data });
            self.notify("notifications/message", params).await;
        }
    }

    /// Asks the client on this request's own stream and waits for its answer, which is a JSON-RPC body with
    /// `result` or `error`. `None` if the peer went away.
    pub(crate) async fn ask_client(&self, method: &str, params: Value) -> Option<Value> {
        let mut question = self.peer.ask();
        let message = json!({ "jsonrpc": "2.0", "id": question.id, "method": method, "params": params });
        self.outlet.send(Frame::Message(message)).await;
        (&mut question.answer).await.ok()
    }
}

/// The tables here stay consistent between any two statements, so a panic elsewhere does not spoil them.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
