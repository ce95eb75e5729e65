//! What all clients of this server share.

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

/// Something that clients may want to be told of.
#[derive(Debug, Clone)]
pub(crate) enum Change {
    Tools,
    Prompts,
    Resource(String),
}

pub(crate) struct World {
    pub(crate) era: Era,
    pub(crate) changes: broadcast::Sender<Change>,
    /// Whether the tool and the prompt that come and go are there.
    pub(crate) passing_tool: AtomicBool,
    pub(crate) passing_prompt: AtomicBool,
    pub(crate) tasks: Mutex<HashMap<String, Task>>,
    /// Makes request states that nobody else can make.
    pub(crate) secret: u64,
}

impl World {
    pub(crate) fn new(era: Era) -> Self {
        Self {
            era,
            changes: broadcast::Sender::new(64),
            passing_tool: AtomicBool::new(false),
            passing_prompt: AtomicBool::new(false),
            tasks: Mutex::default(),
            secret: RandomState::new().hash_one("secret"),
        }
    }

    /// Lets the tool that is passing through come or go.
    pub(crate) fn change_tools(&self) {
        self.passing_tool.fetch_xor(true, Ordering::Relaxed);
        self.tell(Change::Tools);
    }

    pub(crate) fn change_prompts(&self) {
        self.passing_prompt.fetch_xor(true, Ordering::Relaxed);
        self.tell(Change::Prompts);
    }

    pub(crate) fn tell(&self, change: Change) {
        // An error only says that nobody listens.
        let _ = self.changes.send(change);
    }
}

impl Change {
    /// The notification about it, for whoever listens under `meta`.
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
