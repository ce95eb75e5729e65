//! `subscriptions/listen` of the modern era: acknowledged first, then told of whatever changes of what was
//! asked for. The transport decides where the messages go.

use super::Gateway;
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
    follows: Follows,
}

/// Servers that take longer to say whether they tell of a resource are not waited for: what they have is
/// not acknowledged.
const ACKNOWLEDGE_WITHIN: Duration = Duration::from_secs(5);

impl Listening {
    /// Begins to follow what `client` wishes for.
    pub(super) async fn begin(
        gateway: &Gateway,
        id: &RequestId,
        params: Option<&RawValue>,
        client: gripfast::Client,
    ) -> Self {
        let mut granted = Filter::read(params);
        let mut marks = gateway.herald.follow();
        // From here on no change is missed, and the acknowledgement says so.
        let told = *marks.borrow_and_update();
        let follows = Follows::default();
        let wanted: BTreeSet<String> = std::mem::take(&mut granted.uris).into_iter().collect();
        if !wanted.is_empty() {
            gateway.settle().await;
        }
        let asking = wanted.into_iter().map(|uri| {
            let (client, follows) = (&client, &follows);
            async move {
                let following = gateway.follow(client, follows, &uri, Some(ACKNOWLEDGE_WITHIN)).await;
                following.ok().map(|()| uri)
            }
        });
        granted.uris = join_all(asking).await.into_iter().flatten().collect();
        Self { granted, id: id.clone(), marks, told, follows }
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
            news.extend(self.follows.tell().0);
            if !news.is_empty() {
                return Some(news.into_iter().map(|message| self.named(message)).collect());
            }
            tokio::select! {
                changed = self.marks.changed() => changed.ok()?,
                () = self.follows.changed() => {}
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
