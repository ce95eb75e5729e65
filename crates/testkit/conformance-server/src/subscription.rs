//! `subscriptions/listen` of the modern era.

use serde_json::{Value, json};

use crate::rpc::{self, META_SUBSCRIPTION, Request};
use crate::world::Change;

/// What one subscription wants to hear of.
pub(crate) struct Subscription {
    wanted: Value,
    pub(crate) meta: Value,
}

impl Subscription {
    pub(crate) fn of(request: &Request) -> Self {
        let meta = json!({ META_SUBSCRIPTION: request.id });
        Self { wanted: request.params["notifications"].clone(), meta }
    }

    /// The first message: all of it is granted, as far as it can ever happen.
    pub(crate) fn acknowledged(&self) -> Value {
        let params = json!({ "notifications": self.wanted, "_meta": self.meta });
        rpc::notification("notifications/subscriptions/acknowledged", &params)
    }

    pub(crate) fn wants(&self, change: &Change) -> bool {
        match change {
            Change::Tools => self.wanted["toolsListChanged"] == true,
            Change::Prompts => self.wanted["promptsListChanged"] == true,
            Change::Resource(uri) => {
                let uris = self.wanted["resourceSubscriptions"].as_array();
                uris.is_some_and(|uris| uris.iter().any(|wanted| wanted == uri))
            }
        }
    }
}
