//! The client of a request: its capabilities, requests to it, and the stream for messages about its request.

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot};

use crate::rpc::{INTERNAL_ERROR, META_CAPABILITIES, META_LOG_LEVEL, Request, RpcError, notification};
use crate::state::Era;

/// A client for the duration of one request.
pub(crate) struct Caller {
    era_state: CallerEra,
    stream: mpsc::Sender<Outbound>,
}

enum CallerEra {
    Legacy(Arc<LegacyClient>),
    /// Client state from the request itself.
    Modern {
        capabilities: Value,
        level: Option<Level>,
    },
}

/// Messages on the stream of a request.
#[derive(Debug, Clone)]
pub(crate) enum Outbound {
    Message(Value),
    /// Close the stream; the client reconnects for the rest.
    Close,
}

/// State of a legacy client since its handshake.
#[derive(Default)]
pub(crate) struct LegacyClient {
    capabilities: Value,
    level: Mutex<Option<Level>>,
    subscriptions: Mutex<BTreeSet<String>>,
    pending: PendingRequests,
}

/// Requests to a client that it has not answered yet.
#[derive(Default)]
struct PendingRequests {
    last_id: AtomicU64,
    open: Mutex<HashMap<u64, oneshot::Sender<Result<Value, RpcError>>>>,
}

/// Log severity: index in `LEVELS`.
pub(crate) type Level = usize;

const LEVELS: [&str; 8] = ["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"];

pub(crate) fn level_named(name: &str) -> Option<Level> {
    LEVELS.iter().position(|level| *level == name)
}

impl Caller {
    pub(crate) fn legacy(client: &Arc<LegacyClient>, stream: mpsc::Sender<Outbound>) -> Self {
        Self { era_state: CallerEra::Legacy(Arc::clone(client)), stream }
    }

    pub(crate) fn modern(request: &Request, stream: mpsc::Sender<Outbound>) -> Self {
        let capabilities = request.meta(META_CAPABILITIES).clone();
        let level = request.meta(META_LOG_LEVEL).as_str().and_then(level_named);
        Self { era_state: CallerEra::Modern { capabilities, level }, stream }
    }

    pub(crate) fn era(&self) -> Era {
        match self.era_state {
            CallerEra::Legacy(_) => Era::Legacy,
            CallerEra::Modern { .. } => Era::Modern,
        }
    }

    pub(crate) fn as_legacy(&self) -> Option<&LegacyClient> {
        match &self.era_state {
            CallerEra::Legacy(client) => Some(client),
            CallerEra::Modern { .. } => None,
        }
    }

    pub(crate) fn capabilities(&self) -> &Value {
        match &self.era_state {
            CallerEra::Legacy(client) => &client.capabilities,
            CallerEra::Modern { capabilities, .. } => capabilities,
        }
    }

    /// Sends a log message if the client's level allows it. A modern client without a level gets none.
    pub(crate) async fn log(&self, text: &str) {
        let wanted = match &self.era_state {
            CallerEra::Legacy(client) => lock(&client.level).is_none_or(|least| least <= 1),
            CallerEra::Modern { level, .. } => level.is_some_and(|least| least <= 1),
        };
        if wanted {
            let params = json!({ "level": "info", "logger": "conformance", "data": text });
            self.send(notification("notifications/message", &params)).await;
        }
    }

    /// Sends a message on the stream of the request.
    pub(crate) async fn send(&self, message: Value) {
        // An error means that the client has disconnected; its request ends too.
        let _ = self.stream.send(Outbound::Message(message)).await;
    }

    /// Closes the stream before the answer, if the transport can do that.
    pub(crate) async fn close(&self) {
        let _ = self.stream.send(Outbound::Close).await;
    }

    /// Sends a request to a legacy client and waits for its response.
    pub(crate) async fn request(&self, method: &str, params: &Value) -> Result<Value, RpcError> {
        let cannot = |why: &str| Err(RpcError::new(INTERNAL_ERROR, why));
        let CallerEra::Legacy(client) = &self.era_state else {
            return cannot("a modern client is not asked like this");
        };
        let (id, answered) = client.pending.insert();
        self.send(json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params })).await;
        match answered.await {
            Ok(outcome) => outcome,
            Err(_) => cannot("the client went away"),
        }
    }
}

impl LegacyClient {
    pub(crate) fn from_initialize(initialize: &Request) -> Arc<Self> {
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

    /// Passes a response of the client to the waiting request.
    pub(crate) fn complete(&self, id: &Value, outcome: Result<Value, RpcError>) {
        let asked = id.as_u64().and_then(|id| lock(&self.pending.open).remove(&id));
        if let Some(tell) = asked {
            // The request may have been dropped.
            let _ = tell.send(outcome);
        }
    }
}

impl PendingRequests {
    fn insert(&self) -> (u64, oneshot::Receiver<Result<Value, RpcError>>) {
        let id = self.last_id.fetch_add(1, Ordering::Relaxed) + 1;
        let (tell, answered) = oneshot::channel();
        lock(&self.open).insert(id, tell);
        (id, answered)
    }
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
