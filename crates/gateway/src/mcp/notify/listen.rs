//! `subscriptions/listen` of the modern era: sends the acknowledgement, then a notification for each change the client
//! asked for. The transport delivers the messages.

use super::change_feed::ChangeFeed;
use super::delivered::DeliveredVersions;
use super::subscriptions::Subscriptions;
use crate::mcp::Gateway;
use crate::mcp::client::Client;
use bytes::Bytes;
use futures_util::future::join_all;
use gripfast::wire::era::meta;
use gripfast::wire::patch::{MessagePatch, Patch, patch_payload};
use gripfast::wire::subscriptions::{Acknowledged, Filter};
use gripfast::wire::{RequestId, envelope};
use gripfast::{Json, JsonText};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// One notification stream.
pub(crate) struct ListenStream {
    /// The granted part of the filter: as much as the servers support.
    granted: Filter,
    /// Id of the request that opened the stream; every message carries it.
    id: RequestId,
    changes: ChangeFeed,
    delivered: DeliveredVersions,
}

/// Maximum wait for servers to confirm a subscription. Subscriptions that are not confirmed by then are not
/// acknowledged.
const ACK_TIMEOUT: Duration = Duration::from_secs(5);

impl ListenStream {
    /// Opens a stream with the filter in `params`, and subscribes to its resources and tasks.
    pub(crate) async fn open(
        gateway: &Gateway,
        id: &RequestId,
        params: Option<&Json>,
        client: &Client,
    ) -> Self {
        let mut granted = Filter::read(params);
        let (resources, tasks) = (Arc::<Subscriptions>::default(), Arc::<Subscriptions>::default());
        let subscriptions = vec![Arc::clone(&resources), Arc::clone(&tasks)];
        let changes = ChangeFeed::new(gateway, client, subscriptions);
        // From here on no change is missed, as the acknowledgement promises.
        let delivered = DeliveredVersions::new(changes.versions());
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
        Self { granted, id: id.clone(), changes, delivered }
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
            let granted = &self.granted;
            let pending = self.changes.take(&mut self.delivered, |method| wants(granted, method)).messages;
            if !pending.is_empty() {
                return Some(pending.into_iter().map(|message| self.with_subscription_id(message)).collect());
            }
            self.changes.changed().await?;
        }
    }

    /// Response to the request, sent when the stream ends.
    pub(crate) fn final_response(&self) -> Bytes {
        let result = Patch::new().set_text("resultType", "complete").to_object();
        let result = patch_payload(Some(&result), &Patch::new(), &self.subscription_meta()).unwrap_or(result);
        envelope::response(self.id.as_id(), &result).into()
    }

    fn with_subscription_id(&self, message: Bytes) -> Bytes {
        let patch = MessagePatch { meta: self.subscription_meta(), ..MessagePatch::default() };
        patch.apply(&message).map_or(message, Bytes::from)
    }

    fn subscription_meta(&self) -> Patch<'static> {
        let id = JsonText::parse(self.id.as_raw().to_owned()).expect("an id is JSON");
        Patch::new().set_owned(meta::SUBSCRIPTION_ID, id)
    }
}

/// Tests if a filter includes the notification of a changed list.
fn wants(granted: &Filter, method: &str) -> bool {
    match method {
        "notifications/tools/list_changed" => granted.tools,
        "notifications/prompts/list_changed" => granted.prompts,
        _ => granted.resources,
    }
}
