//! `subscriptions/listen` of the modern era.

use serde_json::{Value, json};

use crate::rpc::{self, META_SUBSCRIPTION, Request};
use crate::state::Change;

/// Filter of one subscription.
pub(crate) struct Subscription {
    wanted: Value,
    pub(crate) meta: Value,
}

impl Subscription {
    pub(crate) fn from_request(request: &Request) -> Self {
        let meta = json!({ META_SUBSCRIPTION: request.id });
        Self { wanted: request.params["notifications"].clone(), meta }
    }

    /// Acknowledgement: grants everything that this server can send.
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
