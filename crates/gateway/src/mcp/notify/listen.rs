//! `subscriptions/listen` of the modern era: sends the acknowledgement, then a notification for each change the client
//! asked for. The transport delivers the messages.

use super::list_changes::ListVersions;
use super::subscriptions::Subscriptions;
use crate::mcp::Gateway;
use crate::mcp::client::Client;
use bytes::Bytes;
use futures_util::future::join_all;
use gripfast::RawValue;
use gripfast::wire::era::meta;
use gripfast::wire::patch::{MessagePatch, Patch, patch_payload};
use gripfast::wire::subscriptions::{Acknowledged, Filter};
use gripfast::wire::{RequestId, envelope};
use std::collections::BTreeSet;
use std::time::Duration;
use tokio::sync::watch;

/// One notification stream.
pub(crate) struct ListenStream {
    /// The granted part of the filter: as much as the servers support.
    granted: Filter,
    /// Id of the request that opened the stream; every message carries it.
    id: RequestId,
    versions: watch::Receiver<ListVersions>,
    sent: ListVersions,
    resources: Subscriptions,
    tasks: Subscriptions,
}

/// Maximum wait for servers to confirm a subscription. Subscriptions that are not confirmed by then are not
/// acknowledged.
const ACK_TIMEOUT: Duration = Duration::from_secs(5);

impl ListenStream {
    /// Opens a stream with the filter in `params`, and subscribes to its resources and tasks.
    pub(crate) async fn open(
        gateway: &Gateway,
        id: &RequestId,
        params: Option<&RawValue>,
        client: &Client,
    ) -> Self {
        let mut granted = Filter::read(params);
        let mut versions = gateway.list_changes.subscribe(client.host_client.principal());
        // From here on no change is missed, as the acknowledgement promises.
        let sent = *versions.borrow_and_update();
        let (resources, tasks) = (Subscriptions::default(), Subscriptions::default());
        // A request can name millions; no more than the limit are processed.
        let few = |named: &mut Vec<String>| -> BTreeSet<String> {
            std::mem::take(named).into_iter().take(Subscriptions::MAX).collect()
        };
        let (uris, ids) = (few(&mut granted.uris), few(&mut granted.tasks));
        if !uris.is_empty() {
            gateway.wait_for_startup().await;
        }
        let host_client = &client.host_client;
        let uris = uris.into_iter().map(|uri| {
            let resources = &resources;
            async move {
                let following =
                    gateway.subscribe_resource(host_client, resources, &uri, Some(ACK_TIMEOUT)).await;
                following.ok().map(|()| uri)
            }
        });
        // A client that does not declare tasks has none.
        let ids = ids.into_iter().filter(|_| client.has_tasks).map(|id| {
            let tasks = &tasks;
            async move { gateway.subscribe_task(host_client, tasks, &id, ACK_TIMEOUT).await.then_some(id) }
        });
        let (uris, ids) = tokio::join!(join_all(uris), join_all(ids));
        granted.uris = uris.into_iter().flatten().collect();
        granted.tasks = ids.into_iter().flatten().collect();
        Self { granted, id: id.clone(), versions, sent, resources, tasks }
    }

    /// First message: the granted part of the filter.
    pub(crate) fn ack_message(&self) -> Bytes {
        let params = self.granted.to_params();
        let params = patch_payload(Some(&params), &Patch::new(), &self.subscription_meta()).unwrap_or(params);
        envelope::notification(Acknowledged::METHOD, Some(&params)).into()
    }

    /// Next messages; `None` at the end of the stream.
    ///
    /// Cancel safe.
    pub(crate) async fn next(&mut self) -> Option<Vec<Bytes>> {
        loop {
            let now = *self.versions.borrow_and_update();
            let mut messages: Vec<Bytes> = std::mem::replace(&mut self.sent, now)
                .changes_to(now)
                .filter(|method| self.wants(method))
                .map(|method| envelope::notification(method, None).into())
                .collect();
            messages.extend(self.resources.take_updates().0);
            messages.extend(self.tasks.take_updates().0);
            if !messages.is_empty() {
                return Some(
                    messages.into_iter().map(|message| self.with_subscription_id(message)).collect(),
                );
            }
            tokio::select! {
                changed = self.versions.changed() => changed.ok()?,
                () = self.resources.changed() => {}
                () = self.tasks.changed() => {}
            }
        }
    }

    /// Response to the request, sent when the stream ends.
    pub(crate) fn final_response(&self) -> Bytes {
        let result = Patch::new().set_text("resultType", "complete").to_object();
        let result = patch_payload(Some(&result), &Patch::new(), &self.subscription_meta()).unwrap_or(result);
        envelope::response(self.id.as_id(), &result).into()
    }

    fn wants(&self, method: &str) -> bool {
        match method {
            "notifications/tools/list_changed" => self.granted.tools,
            "notifications/prompts/list_changed" => self.granted.prompts,
            _ => self.granted.resources,
        }
    }

    fn with_subscription_id(&self, message: Bytes) -> Bytes {
        let patch = MessagePatch { meta: self.subscription_meta(), ..MessagePatch::default() };
        patch.apply(&message).map_or(message, Bytes::from)
    }

    fn subscription_meta(&self) -> Patch<'static> {
        let id = RawValue::from_string(self.id.as_raw().to_owned()).expect("an id is JSON");
        Patch::new().set_owned(meta::SUBSCRIPTION_ID, id)
    }
}
