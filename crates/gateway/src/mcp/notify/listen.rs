//! `subscriptions/listen` of the modern era: acknowledged first, then told of whatever changes of what was
//! asked for. The transport decides where the messages go.

use super::Gateway;
use super::client::Client;
use super::follows::Follows;
use super::herald::Marks;
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

/// One stream of changes.
pub(super) struct Listening {
    /// What the client hears of: as much of its wishes as the servers serve.
    granted: Filter,
    /// The request that opened it, which every message names.
    id: RequestId,
    marks: watch::Receiver<Marks>,
    told: Marks,
    resources: Follows,
    tasks: Follows,
}

/// Servers that take longer to say whether they tell of something are not waited for: what they have is
/// not acknowledged.
const ACKNOWLEDGE_WITHIN: Duration = Duration::from_secs(5);

impl Listening {
    /// Begins to follow what `client` wishes for.
    pub(super) async fn begin(
        gateway: &Gateway,
        id: &RequestId,
        params: Option<&RawValue>,
        client: &Client,
    ) -> Self {
        let mut granted = Filter::read(params);
        let mut marks = gateway.herald.follow(client.at_servers.principal());
        // From here on no change is missed, and the acknowledgement says so.
        let told = *marks.borrow_and_update();
        let (resources, tasks) = (Follows::default(), Follows::default());
        // More than it may follow is not even looked at: a request can name millions.
        let few = |named: &mut Vec<String>| -> BTreeSet<String> {
            std::mem::take(named).into_iter().take(Follows::MOST).collect()
        };
        let (uris, ids) = (few(&mut granted.uris), few(&mut granted.tasks));
        if !uris.is_empty() {
            gateway.settle().await;
        }
        let who = &client.at_servers;
        let uris = uris.into_iter().map(|uri| {
            let resources = &resources;
            async move {
                let following = gateway.follow(who, resources, &uri, Some(ACKNOWLEDGE_WITHIN)).await;
                following.ok().map(|()| uri)
            }
        });
        // Whoever does not say that it knows tasks has none.
        let ids = ids.into_iter().filter(|_| client.has_tasks).map(|id| {
            let tasks = &tasks;
            async move { gateway.follow_task(who, tasks, &id, ACKNOWLEDGE_WITHIN).await.then_some(id) }
        });
        let (uris, ids) = tokio::join!(join_all(uris), join_all(ids));
        granted.uris = uris.into_iter().flatten().collect();
        granted.tasks = ids.into_iter().flatten().collect();
        Self { granted, id: id.clone(), marks, told, resources, tasks }
    }

    /// The first message: what of the wishes is granted.
    pub(super) fn acknowledged(&self) -> Bytes {
        let params = self.granted.to_params();
        let params = patch_payload(Some(&params), &Patch::new(), &self.about()).unwrap_or(params);
        envelope::notification(Acknowledged::METHOD, Some(&params)).into()
    }

    /// The next messages. `None` when there will be none any more.
    ///
    /// Dropping the future loses nothing.
    pub(super) async fn next(&mut self) -> Option<Vec<Bytes>> {
        loop {
            let now = *self.marks.borrow_and_update();
            let mut news: Vec<Bytes> = std::mem::replace(&mut self.told, now)
                .news(now)
                .filter(|method| self.wants(method))
                .map(|method| envelope::notification(method, None).into())
                .collect();
            news.extend(self.resources.tell().0);
            news.extend(self.tasks.tell().0);
            if !news.is_empty() {
                return Some(news.into_iter().map(|message| self.named(message)).collect());
            }
            tokio::select! {
                changed = self.marks.changed() => changed.ok()?,
                () = self.resources.changed() => {}
                () = self.tasks.changed() => {}
            }
        }
    }

    /// The answer to the request, when nothing more will be told.
    pub(super) fn over(&self) -> Bytes {
        let result = Patch::new().set_text("resultType", "complete").to_object();
        let result = patch_payload(Some(&result), &Patch::new(), &self.about()).unwrap_or(result);
        envelope::response(self.id.as_id(), &result).into()
    }

    fn wants(&self, method: &str) -> bool {
        match method {
            "notifications/tools/list_changed" => self.granted.tools,
            "notifications/prompts/list_changed" => self.granted.prompts,
            _ => self.granted.resources,
        }
    }

    fn named(&self, message: Bytes) -> Bytes {
        let patch = MessagePatch { meta: self.about(), ..MessagePatch::default() };
        patch.apply(&message).map_or(message, Bytes::from)
    }

    fn about(&self) -> Patch<'static> {
        let id = RawValue::from_string(self.id.as_raw().to_owned()).expect("an id is JSON");
        Patch::new().set_owned(meta::SUBSCRIPTION_ID, id)
    }
}
