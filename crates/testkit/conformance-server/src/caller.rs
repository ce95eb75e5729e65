//! Who asks, what it can be asked in turn, and where messages about its request go.

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot};

use crate::rpc::{INTERNAL_ERROR, META_CAPABILITIES, META_LOG_LEVEL, Request, RpcError, notification};
use crate::world::Era;

/// A client, for the time of one request.
pub(crate) struct Caller {
    who: Who,
    stream: mpsc::Sender<Said>,
}

enum Who {
    Legacy(Arc<LegacyClient>),
    /// It says everything in each request.
    Modern {
        capabilities: Value,
        level: Option<Level>,
    },
}

/// What the stream of a request carries.
#[derive(Debug, Clone)]
pub(crate) enum Said {
    Message(Value),
    /// The client is to come back for the rest.
    HangUp,
}

/// What is known of a legacy client from its handshake on.
#[derive(Default)]
pub(crate) struct LegacyClient {
    capabilities: Value,
    level: Mutex<Option<Level>>,
    subscriptions: Mutex<BTreeSet<String>>,
    questions: Questions,
}

/// The requests to a client that it has not answered.
#[derive(Default)]
struct Questions {
    asked: AtomicU64,
    open: Mutex<HashMap<u64, oneshot::Sender<Result<Value, RpcError>>>>,
}

/// How severe a log message is: its place among the names.
pub(crate) type Level = usize;

const LEVELS: [&str; 8] = ["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"];

pub(crate) fn level_named(name: &str) -> Option<Level> {
    LEVELS.iter().position(|level| *level == name)
}

impl Caller {
    pub(crate) fn legacy(client: &Arc<LegacyClient>, stream: mpsc::Sender<Said>) -> Self {
        Self { who: Who::Legacy(Arc::clone(client)), stream }
    }

    pub(crate) fn modern(request: &Request, stream: mpsc::Sender<Said>) -> Self {
        let capabilities = request.meta(META_CAPABILITIES).clone();
        let level = request.meta(META_LOG_LEVEL).as_str().and_then(level_named);
        Self { who: Who::Modern { capabilities, level }, stream }
    }

    pub(crate) fn era(&self) -> Era {
        match self.who {
            Who::Legacy(_) => Era::Legacy,
            Who::Modern { .. } => Era::Modern,
        }
    }

    pub(crate) fn as_legacy(&self) -> Option<&LegacyClient> {
        match &self.who {
            Who::Legacy(client) => Some(client),
            Who::Modern { .. } => None,
        }
    }

    pub(crate) fn capabilities(&self) -> &Value {
        match &self.who {
            Who::Legacy(client) => &client.capabilities,
            Who::Modern { capabilities, .. } => capabilities,
        }
    }

    /// A log message, if the client wants it. A modern one that says nothing wants none.
    pub(crate) async fn log(&self, text: &str) {
        let wanted = match &self.who {
            Who::Legacy(client) => lock(&client.level).is_none_or(|least| least <= 1),
            Who::Modern { level, .. } => level.is_some_and(|least| least <= 1),
        };
        if wanted {
            let params = json!({ "level": "info", "logger": "conformance", "data": text });
            self.say(notification("notifications/message", &params)).await;
        }
    }

    /// A message on the stream of the request.
    pub(crate) async fn say(&self, message: Value) {
        // Nobody reads any more: the client went away, and so will the request.
        let _ = self.stream.send(Said::Message(message)).await;
    }

    /// Closes the stream before the answer, where there is one to close.
    pub(crate) async fn hang_up(&self) {
        let _ = self.stream.send(Said::HangUp).await;
    }

    /// Asks a legacy client and waits for its answer.
    pub(crate) async fn ask(&self, method: &str, params: &Value) -> Result<Value, RpcError> {
        let cannot = |why: &str| Err(RpcError::new(INTERNAL_ERROR, why));
        let Who::Legacy(client) = &self.who else { return cannot("a modern client is not asked like this") };
        let (id, answered) = client.questions.put();
        self.say(json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params })).await;
        match answered.await {
            Ok(outcome) => outcome,
            Err(_) => cannot("the client went away"),
        }
    }
}

impl LegacyClient {
    pub(crate) fn shakes_hands(initialize: &Request) -> Arc<Self> {
        let capabilities = initialize.params["capabilities"].clone();
        Arc::new(Self { capabilities, ..Self::default() })
    }

    pub(crate) fn set_level(&self, level: Level) {
        *lock(&self.level) = Some(level);
    }

    pub(crate) fn subscribe(&self, uri: &str) {
        lock(&self.subscriptions).insert(uri.to_owned());
    }

    pub(crate) fn unsubscribe(&self, uri: &str) {
        lock(&self.subscriptions).remove(uri);
    }

    pub(crate) fn is_subscribed_to(&self, uri: &str) -> bool {
        lock(&self.subscriptions).contains(uri)
    }

    /// The client answered a question.
    pub(crate) fn answered(&self, id: &Value, outcome: Result<Value, RpcError>) {
        let asked = id.as_u64().and_then(|id| lock(&self.questions.open).remove(&id));
        if let Some(tell) = asked {
            // Whoever asked may have lost interest.
            let _ = tell.send(outcome);
        }
    }
}

impl Questions {
    fn put(&self) -> (u64, oneshot::Receiver<Result<Value, RpcError>>) {
        let id = self.asked.fetch_add(1, Ordering::Relaxed) + 1;
        let (tell, answered) = oneshot::channel();
        lock(&self.open).insert(id, tell);
        (id, answered)
    }
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
