//! Resource subscriptions of one client, and the updates that it has not received yet.
//!
//! Only the latest update of each resource is kept: a client without a stream gets it later, a client that lost its
//! stream gets it again, and the memory is bounded by the number of subscriptions.

use super::delivered::Delivered;
use crate::mcp::Gateway;
use crate::mcp::request::dispatch::{ClientRequest, RequestOutcome, RpcFault, raw, text_param, unknown_item};
use crate::mcp::request::forward::ForwardedAnswer;
use bytes::Bytes;
use futures_util::future::join_all;
use gripfast::sync::Mutex;
use gripfast::transport::Listener;
use gripfast::wire::envelope::Message;
use gripfast::wire::era::meta;
use gripfast::wire::patch::{MessagePatch, Object, Patch};
use gripfast::wire::{codes, subscriptions};
use gripfast::{CallError, Code, SubscribeOptions, SubscribeOutcome, Subscription, UnlistedItem};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;

/// Subscriptions of one client.
#[derive(Default)]
pub(crate) struct Subscriptions {
    pub(crate) updates: Arc<UpdateQueue>,
    state: Mutex<SubscriptionState>,
}

impl std::fmt::Debug for Subscriptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Subscriptions").finish_non_exhaustive()
    }
}

#[derive(Default)]
struct SubscriptionState {
    /// By the URI that the client uses.
    subscriptions: BTreeMap<String, Subscription>,
    /// Subscriptions of a restored session that are not established yet.
    pending_resubscribe: BTreeSet<String>,
    /// The client is gone; nothing is stored for it any more.
    ended: bool,
}

/// Queue of resource updates for one client.
#[derive(Default)]
pub(crate) struct UpdateQueue {
    changes: Mutex<Changes>,
    changed: Notify,
}

#[derive(Default)]
struct Changes {
    /// Number of updates so far.
    count: u64,
    /// Number of updates that were sent.
    delivered: Delivered<u64>,
    /// Latest update of each resource, with its number.
    latest: BTreeMap<String, (u64, Bytes)>,
}

impl Subscriptions {
    /// Maximum number of subscriptions of one client.
    pub(crate) const MAX: usize = 1000;

    /// Updates that were not sent yet, oldest first, and the number of all updates so far. Marks them as sent.
    pub(crate) fn take_updates(&self) -> (Vec<Bytes>, u64) {
        let mut changes = self.updates.changes.lock();
        let count = changes.count;
        let sent = changes.delivered.mark_sent(count);
        let mut updates: Vec<_> =
            changes.latest.values().filter(|(number, _)| *number > sent).cloned().collect();
        drop(changes);
        updates.sort_unstable_by_key(|(number, _)| *number);
        (updates.into_iter().map(|(_, message)| message).collect(), count)
    }

    /// Marks everything that was sent as arrived.
    pub(crate) fn ack(&self) {
        self.updates.changes.lock().delivered.ack_sent();
    }

    /// Marks updates that may not have arrived as unsent.
    pub(crate) fn rewind_to_acked(&self) {
        self.updates.changes.lock().delivered.rewind_to_acked();
    }

    /// Marks the first `count` updates as arrived, because the client says so in `Last-Event-ID`.
    pub(crate) fn ack_up_to(&self, count: u64) {
        let mut changes = self.updates.changes.lock();
        changes.delivered = Delivered::new(changes.count.min(count));
    }

    /// Waits until there is an update that was not sent.
    pub(crate) async fn changed(&self) {
        loop {
            let notified = self.updates.changed.notified();
            tokio::pin!(notified);
            notified.as_mut().enable();
            {
                let changes = self.updates.changes.lock();
                if changes.delivered.sent() < changes.count {
                    return;
                }
            }
            notified.await;
        }
    }

    /// URIs of all subscriptions, established or pending.
    pub(crate) fn uris(&self) -> Vec<String> {
        let state = self.state.lock();
        state.subscriptions.keys().chain(&state.pending_resubscribe).cloned().collect()
    }

    /// Adds the URIs that a restored session had subscribed to.
    pub(crate) fn restore(&self, uris: &[String]) {
        self.state.lock().pending_resubscribe.extend(uris.iter().take(Self::MAX).cloned());
    }

    /// Drops all subscriptions, because the client is gone.
    pub(crate) fn end(&self) {
        let subscriptions = {
            let mut state = self.state.lock();
            state.ended = true;
            state.pending_resubscribe.clear();
            std::mem::take(&mut state.subscriptions)
        };
        drop(subscriptions);
    }

    pub(crate) fn insert(&self, uri: &str, subscription: Subscription) -> Result<(), SubscribeError> {
        let mut state = self.state.lock();
        if state.ended || !state.has_room_for(uri) {
            drop(state);
            return Err(SubscribeError::TooMany);
        }
        state.pending_resubscribe.remove(uri);
        let before = state.subscriptions.insert(uri.to_owned(), subscription);
        drop(state);
        drop(before);
        Ok(())
    }

    /// Stores a restored subscription, unless the client has unsubscribed meanwhile. The client may have missed an
    /// update, so one is queued.
    fn insert_pending(&self, uri: &str, subscription: Subscription) {
        let mut state = self.state.lock();
        if !state.pending_resubscribe.remove(uri) {
            drop(state);
            return drop(subscription);
        }
        state.subscriptions.insert(uri.to_owned(), subscription);
        drop(state);
        self.updates.push(uri.to_owned(), subscriptions::updated_notification(uri).into(), uri);
    }

    fn is_pending(&self, uri: &str) -> bool {
        self.state.lock().pending_resubscribe.contains(uri)
    }

    fn remove(&self, uri: &str) {
        let subscription = {
            let mut state = self.state.lock();
            state.pending_resubscribe.remove(uri);
            state.subscriptions.remove(uri)
        };
        drop(subscription);
        self.updates.changes.lock().latest.remove(uri);
    }
}

impl SubscriptionState {
    fn has_room_for(&self, uri: &str) -> bool {
        self.subscriptions.contains_key(uri)
            || self.pending_resubscribe.contains(uri)
            || self.subscriptions.len() + self.pending_resubscribe.len() < Subscriptions::MAX
    }
}

impl UpdateQueue {
    /// A larger notification is replaced by one that carries only the URI.
    const MAX_BYTES: usize = 16 << 10;

    /// Maximum number of distinct URIs in the queue. Servers may send updates for parts of a resource; above this limit
    /// they are replaced by one update of the subscribed resource.
    const MAX_NAMED: usize = 1000;

    pub(crate) fn push(&self, uri: String, message: Bytes, followed: &str) {
        let mut changes = self.changes.lock();
        changes.count += 1;
        let number = changes.count;
        if changes.latest.len() < Self::MAX_NAMED || changes.latest.contains_key(&uri) {
            changes.latest.insert(uri, (number, message));
        } else {
            let message = subscriptions::updated_notification(followed).into();
            changes.latest.insert(followed.to_owned(), (number, message));
        }
        drop(changes);
        self.changed.notify_waiters();
    }
}

/// Listens for updates of one resource on behalf of a client.
struct ResourceListener {
    updates: Arc<UpdateQueue>,
    /// URI that the client uses, and URI of the server.
    public: String,
    key: String,
}

impl ResourceListener {
    /// Client URI of a resource of the same server: gets the same prefix as the subscribed one.
    fn public_name(&self, uri: &str) -> String {
        match self.public.strip_suffix(self.key.as_str()) {
            Some(before) => format!("{before}{uri}"),
            None => uri.to_owned(),
        }
    }
}

impl Listener for ResourceListener {
    fn on_message(&self, message: &[u8]) {
        let Ok(Message::Notification(notification)) = Message::parse(message) else { return };
        let Some(uri) = notification.params.and_then(subscriptions::updated_uri) else { return };
        let public = self.public_name(&uri);
        let mut patch = MessagePatch::default();
        if public != *uri {
            patch.payload = Patch::new().set_text("uri", &public);
        }
        // The subscription id belongs to the gateway's own stream, so the client must not see it.
        let meta_object = notification.params.and_then(|params| Object::parse(params).ok()?.object("_meta"));
        if let Some(meta_object) = meta_object.filter(|meta_object| meta_object.has(meta::SUBSCRIPTION_ID)) {
            match meta_object.len() {
                1 => patch.payload = patch.payload.remove("_meta"),
                _ => patch.meta = patch.meta.remove(meta::SUBSCRIPTION_ID),
            }
        }
        let patched = patch.apply(message).ok().filter(|message| message.len() <= UpdateQueue::MAX_BYTES);
        let message = patched.unwrap_or_else(|| subscriptions::updated_notification(&public));
        self.updates.push(public, message.into(), &self.public);
    }
}

/// Reason why a subscription failed.
pub(crate) enum SubscribeError {
    /// No server is known to have the resource.
    Unknown,
    /// The server does not support subscriptions.
    Unsupported,
    /// The client has too many subscriptions.
    TooMany,
    /// The server declined.
    Declined(ForwardedAnswer),
    /// The server could not be reached.
    Failed(CallError),
}

/// Delay before a server that could not be reached is tried again.
const RETRY_DELAY: Duration = Duration::from_secs(5);

impl Gateway {
    /// Subscribes `client` to a resource, by its client URI.
    pub(crate) async fn subscribe_resource(
        &self,
        client: &gripfast::Client,
        subscriptions: &Subscriptions,
        uri: &str,
        timeout: Option<Duration>,
    ) -> Result<(), SubscribeError> {
        if !subscriptions.state.lock().has_room_for(uri) {
            return Err(SubscribeError::TooMany);
        }
        let subscription = self.subscribe_to(client, subscriptions, uri, timeout).await?;
        subscriptions.insert(uri, subscription)
    }

    /// Re-establishes the subscriptions of a restored session. A server that cannot be reached is tried again until it
    /// answers or the client unsubscribes.
    pub(crate) async fn resubscribe(&self, client: &gripfast::Client, subscriptions: &Subscriptions) {
        self.wait_for_startup().await;
        let pending: Vec<String> = subscriptions.state.lock().pending_resubscribe.iter().cloned().collect();
        let following = pending.into_iter().map(|uri| async move {
            while subscriptions.is_pending(&uri) {
                match self.subscribe_to(client, subscriptions, &uri, None).await {
                    Ok(subscription) => subscriptions.insert_pending(&uri, subscription),
                    Err(SubscribeError::Failed(_)) => tokio::time::sleep(RETRY_DELAY).await,
                    // No server has the resource any more, or its server does not support subscriptions.
                    Err(_) => subscriptions.remove(&uri),
                }
            }
        });
        // Concurrently: an unreachable server must not delay the others.
        join_all(following).await;
    }

    async fn subscribe_to(
        &self,
        client: &gripfast::Client,
        subscriptions: &Subscriptions,
        uri: &str,
        timeout: Option<Duration>,
    ) -> Result<Subscription, SubscribeError> {
        let (server, key) = self.server_of(uri).ok_or(SubscribeError::Unknown)?;
        let listener = ResourceListener {
            updates: Arc::clone(&subscriptions.updates),
            public: uri.to_owned(),
            key: key.clone(),
        };
        let options = SubscribeOptions { timeout, client: Some(client.clone()), use_shared_instance: false };
        match self.host.subscribe(&server, &key, Arc::new(listener), options).await {
            Ok(SubscribeOutcome::Subscribed(subscription)) => Ok(subscription),
            Ok(SubscribeOutcome::Unsupported) => Err(SubscribeError::Unsupported),
            Ok(SubscribeOutcome::Declined(answer)) => {
                Err(SubscribeError::Declined(ForwardedAnswer::new(answer, server.into())))
            }
            Err(error) if error.code == Code::Denied => Err(SubscribeError::Unknown),
            Err(error) => Err(SubscribeError::Failed(error)),
        }
    }

    /// Server that has a resource, and its own URI for it. Servers need not list every resource, so with a single
    /// server it is asked in any case.
    fn server_of(&self, uri: &str) -> Option<(String, String)> {
        let catalog = self.host.catalog_snapshot();
        if let Some(item) = catalog.merged.resource(uri) {
            return Some((item.server.to_owned(), item.key.to_owned()));
        }
        match self.host.server_names().as_slice() {
            [only] => Some((only.clone(), uri.to_owned())),
            _ => None,
        }
    }

    /// `resources/subscribe` of a legacy client.
    pub(crate) async fn subscribe(&self, request: &ClientRequest<'_>) -> RequestOutcome {
        self.wait_for_startup().await;
        let uri = match text_param(request.params, "uri") {
            Ok(uri) => uri,
            Err(outcome) => return outcome,
        };
        match self
            .subscribe_resource(&request.client.host_client, &request.client.subscriptions, &uri, None)
            .await
        {
            Ok(()) => RequestOutcome::Result(raw(&json!({}))),
            Err(SubscribeError::Unknown) => unknown_item("resource", UnlistedItem::Uri(&uri)),
            Err(SubscribeError::Unsupported) => {
                let text = "method not found: the server of this resource does not support subscriptions";
                RequestOutcome::Fault(RpcFault::new(codes::METHOD_NOT_FOUND, text))
            }
            Err(SubscribeError::TooMany) => {
                let text = format!("a client can subscribe to at most {} resources", Subscriptions::MAX);
                RequestOutcome::Fault(RpcFault::new(codes::INTERNAL_ERROR, text))
            }
            Err(SubscribeError::Declined(answer)) => RequestOutcome::Answer(answer),
            Err(SubscribeError::Failed(error)) => RequestOutcome::Failed(error),
        }
    }

    /// `resources/unsubscribe` of a legacy client. Succeeds also without a subscription.
    pub(crate) fn unsubscribe(&self, request: &ClientRequest<'_>) -> RequestOutcome {
        match text_param(request.params, "uri") {
            Ok(uri) => {
                request.client.subscriptions.remove(&uri);
                RequestOutcome::Result(raw(&json!({})))
            }
            Err(outcome) => outcome,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listener(subscriptions: &Subscriptions, public: &str, key: &str) -> ResourceListener {
        ResourceListener {
            updates: Arc::clone(&subscriptions.updates),
            public: public.to_owned(),
            key: key.to_owned(),
        }
    }

    fn updates(subscriptions: &Subscriptions) -> Vec<String> {
        let (updates, _) = subscriptions.take_updates();
        updates.into_iter().map(|message| String::from_utf8(message.to_vec()).unwrap()).collect()
    }

    #[test]
    fn an_update_has_the_client_uri_and_is_otherwise_unchanged() {
        let subscriptions = Subscriptions::default();
        let message = r#"{"jsonrpc":"2.0", "method":"notifications/resources/updated","params":{"uri":"a:/x","n":1.0,"_meta":{"io.modelcontextprotocol/subscriptionId":7,"k":1}}}"#;
        listener(&subscriptions, "two+a:/x", "a:/x").on_message(message.as_bytes());
        let sent =
            message.replace("a:/x", "two+a:/x").replace(r#""io.modelcontextprotocol/subscriptionId":7,"#, "");
        assert_eq!(updates(&subscriptions), [sent]);
        listener(&subscriptions, "a:/x", "a:/x")
            .on_message(&subscriptions::updated_notification("a:/x/part"));
        listener(&subscriptions, "two+a:/x", "a:/x")
            .on_message(&subscriptions::updated_notification("a:/x/part"));
        let sent = updates(&subscriptions);
        assert!(sent[0].contains(r#""uri":"a:/x/part""#) && sent[1].contains(r#""uri":"two+a:/x/part""#));
        for odd in ["", "{}", r#"{"jsonrpc":"2.0","method":"x"}"#] {
            listener(&subscriptions, "a", "a").on_message(odd.as_bytes());
        }
        assert!(updates(&subscriptions).is_empty());
    }

    #[test]
    fn repeated_updates_are_sent_once_and_again_after_a_broken_stream() {
        let subscriptions = Subscriptions::default();
        let (a, b) = (listener(&subscriptions, "a", "a"), listener(&subscriptions, "b", "b"));
        for _ in 0..3 {
            b.on_message(&subscriptions::updated_notification("b"));
        }
        a.on_message(&subscriptions::updated_notification("a"));
        assert_eq!(subscriptions.take_updates().1, 4);
        assert!(updates(&subscriptions).is_empty());
        subscriptions.rewind_to_acked();
        assert_eq!(updates(&subscriptions).len(), 2, "the stream broke before it was read");
        subscriptions.ack();
        subscriptions.rewind_to_acked();
        assert!(updates(&subscriptions).is_empty());
        subscriptions.ack_up_to(3);
        assert_eq!(updates(&subscriptions).len(), 1, "only the last one came after that");
        subscriptions.ack_up_to(99);
        assert!(updates(&subscriptions).is_empty());
        subscriptions.remove("b");
        subscriptions.ack_up_to(0);
        assert_eq!(updates(&subscriptions).len(), 1, "what it follows no more it need not hear");
    }

    #[test]
    fn many_updates_of_parts_become_one_update_of_the_resource() {
        let subscriptions = Subscriptions::default();
        let everything = listener(&subscriptions, "dir:/", "dir:/");
        for number in 0..5000 {
            everything.on_message(&subscriptions::updated_notification(&format!("dir:/{number}")));
        }
        let sent = updates(&subscriptions);
        assert_eq!(sent.len(), 1001);
        assert!(sent[1000].contains(r#""uri":"dir:/""#));
    }
}
