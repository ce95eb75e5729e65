//! State shared by all clients of this server.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};
use tokio::sync::broadcast;

use crate::rpc;
use crate::tasks::Task;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Era {
    Legacy,
    Modern,
}

/// A change that clients can subscribe to.
#[derive(Debug, Clone)]
pub(crate) enum Change {
    Tools,
    Prompts,
    Resource(String),
}

pub(crate) struct ServerState {
    pub(crate) era: Era,
    pub(crate) changes: broadcast::Sender<Change>,
    /// True while the optional tool is listed; the prompt has the same flag below.
    pub(crate) extra_tool: AtomicBool,
    pub(crate) extra_prompt: AtomicBool,
    pub(crate) tasks: Mutex<HashMap<String, Task>>,
    /// Key for signing request states.
    pub(crate) secret: u64,
}

impl ServerState {
    pub(crate) fn new(era: Era) -> Self {
        Self {
            era,
            changes: broadcast::Sender::new(64),
            extra_tool: AtomicBool::new(false),
            extra_prompt: AtomicBool::new(false),
            tasks: Mutex::default(),
            secret: RandomState::new().hash_one("secret"),
        }
    }

    /// Adds or removes the optional tool.
    pub(crate) fn change_tools(&self) {
        self.extra_tool.fetch_xor(true, Ordering::Relaxed);
        self.broadcast(Change::Tools);
    }

    pub(crate) fn change_prompts(&self) {
        self.extra_prompt.fetch_xor(true, Ordering::Relaxed);
        self.broadcast(Change::Prompts);
    }

    pub(crate) fn broadcast(&self, change: Change) {
        // An error only means that no client listens.
        let _ = self.changes.send(change);
    }
}

impl Change {
    /// Notification for this change, with `meta` of the subscription.
    pub(crate) fn to_message(&self, meta: Option<&Value>) -> Value {
        let (method, mut params) = match self {
            Self::Tools => ("notifications/tools/list_changed", json!({})),
            Self::Prompts => ("notifications/prompts/list_changed", json!({})),
            Self::Resource(uri) => ("notifications/resources/updated", json!({ "uri": uri })),
        };
        if let Some(meta) = meta {
            params["_meta"] = meta.clone();
        }
        rpc::notification(method, &params)
    }
}
