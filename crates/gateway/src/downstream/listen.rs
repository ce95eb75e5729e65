//! `subscriptions/listen` of the modern era: acknowledged first, then told of whatever changes of what was
//! asked for. The transport decides where the messages go.

use super::ask::raw;
use super::herald::Marks;
use gripfast::RawValue;
use gripfast::wire::{Id, envelope};
use serde_json::{Map, Value, json};

/// What one subscription wants to hear of.
pub(super) struct Subscription {
    tools: bool,
    prompts: bool,
    resources: bool,
    /// Every message names the request that subscribed.
    meta: Value,
}

impl Subscription {
    pub(super) fn of(id: Id<'_>, params: Option<&RawValue>) -> Self {
        let filter: Value =
            params.and_then(|params| serde_json::from_str(params.get()).ok()).unwrap_or_default();
        let wants = |member: &str| filter["notifications"][member] == true;
        let id: Value = serde_json::from_str(id.as_raw()).unwrap_or_default();
        Self {
            tools: wants("toolsListChanged"),
            prompts: wants("promptsListChanged"),
            resources: wants("resourcesListChanged"),
            meta: json!({ "io.modelcontextprotocol/subscriptionId": id }),
        }
    }

    /// The first message: what of the wishes is granted.
    pub(super) fn acknowledged(&self) -> Vec<u8> {
        let granted = [
            ("toolsListChanged", self.tools),
            ("promptsListChanged", self.prompts),
            ("resourcesListChanged", self.resources),
        ];
        let granted = granted.into_iter().filter(|(_, wanted)| *wanted);
        let granted: Map<_, _> = granted.map(|(member, _)| (member.to_owned(), true.into())).collect();
        let params = raw(&json!({ "notifications": granted, "_meta": self.meta }));
        envelope::notification("notifications/subscriptions/acknowledged", Some(&params))
    }

    /// The messages that lead from `told` to `now`.
    pub(super) fn news(&self, told: Marks, now: Marks) -> Vec<Vec<u8>> {
        let params = raw(&json!({ "_meta": self.meta }));
        let wanted = told.news(now).filter(|method| match *method {
            "notifications/tools/list_changed" => self.tools,
            "notifications/prompts/list_changed" => self.prompts,
            _ => self.resources,
        });
        wanted.map(|method| envelope::notification(method, Some(&params))).collect()
    }
}
