//! The resources that one client follows, and what has changed since it was told.
//!
//! A change is kept, the last one of each resource: a client that does not listen is told later, one that
//! lost its stream is told again, and neither costs more than what it follows.

use super::Gateway;
use super::ask::{Asked, Fault, Told, member, raw, unknown};
use super::forward::PassedOn;
use bytes::Bytes;
use futures_util::future::join_all;
use gripfast::transport::Listener;
use gripfast::wire::envelope::Message;
use gripfast::wire::era::meta;
use gripfast::wire::patch::{MessagePatch, Object, Patch};
use gripfast::wire::{codes, subscriptions};
use gripfast::{CallError, Code, SubscribeOptions, Subscribed, Subscription, Wanted};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;

/// What one client follows.
#[derive(Default)]
pub(crate) struct Follows {
    pub(super) board: Arc<Board>,
    kept: Mutex<Kept>,
}

impl std::fmt::Debug for Follows {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Follows").finish_non_exhaustive()
    }
}

#[derive(Default)]
struct Kept {
    /// By the URI that the client uses.
    subscriptions: BTreeMap<String, Subscription>,
    /// What it followed before this process, and does not follow again yet.
    owed: BTreeSet<String>,
    /// The client is gone; nothing is kept for it any more.
    over: bool,
}

/// Where changes are written down.
#[derive(Default)]
pub(super) struct Board {
    changes: Mutex<Changes>,
    news: Notify,
}

#[derive(Default)]
struct Changes {
    /// How many there were.
    count: u64,
    /// How many of them the client was told of, and how many of those have certainly reached it.
    told: u64,
    sure: u64,
    /// The last one of each resource, with its number.
    last: BTreeMap<String, (u64, Bytes)>,
}

impl Follows {
    /// Resources that one client may follow.
    pub(super) const MOST: usize = 1000;

    /// The changes that the client was not told of, the oldest first, and how many there were in all. From
    /// here on it was told of them.
    pub(crate) fn tell(&self) -> (Vec<Bytes>, u64) {
        let mut changes = self.board.lock();
        let Changes { count, told, ref last, .. } = *changes;
        let mut news: Vec<_> = last.values().filter(|(number, _)| *number > told).cloned().collect();
        changes.told = count;
        drop(changes);
        news.sort_unstable_by_key(|(number, _)| *number);
        (news.into_iter().map(|(_, message)| message).collect(), count)
    }

    /// What it was told has reached it.
    pub(crate) fn arrived(&self) {
        let mut changes = self.board.lock();
        changes.sure = changes.told;
    }

    /// What it was told and may not have heard it is told again.
    pub(crate) fn take_back(&self) {
        let mut changes = self.board.lock();
        changes.told = changes.sure;
    }

    /// The client says itself that it has heard of so many changes.
    pub(crate) fn heard(&self, count: u64) {
        let mut changes = self.board.lock();
        changes.told = changes.count.min(count);
        changes.sure = changes.told;
    }

    /// Waits until there is something that the client was not told of.
    pub(crate) async fn changed(&self) {
        loop {
            let news = self.board.news.notified();
            tokio::pin!(news);
            news.as_mut().enable();
            {
                let changes = self.board.lock();
                if changes.told < changes.count {
                    return;
                }
            }
            news.await;
        }
    }

    /// What the client wants to follow, whether it does already or not.
    pub(crate) fn wanted(&self) -> Vec<String> {
        let kept = self.lock();
        kept.subscriptions.keys().chain(&kept.owed).cloned().collect()
    }

    /// The client wants to follow these: it did so before this process.
    pub(crate) fn want(&self, uris: &[String]) {
        self.lock().owed.extend(uris.iter().take(Self::MOST).cloned());
    }

    /// The client is gone.
    pub(crate) fn end(&self) {
        let subscriptions = {
            let mut kept = self.lock();
            kept.over = true;
            kept.owed.clear();
            std::mem::take(&mut kept.subscriptions)
        };
        drop(subscriptions);
    }

    pub(super) fn keep(&self, uri: &str, subscription: Subscription) -> Result<(), NotFollowed> {
        let mut kept = self.lock();
        if kept.over || !kept.has_room_for(uri) {
            drop(kept);
            return Err(NotFollowed::TooMany);
        }
        kept.owed.remove(uri);
        let before = kept.subscriptions.insert(uri.to_owned(), subscription);
        drop(kept);
        drop(before);
        Ok(())
    }

    /// Keeps what is owed, unless the client does not want it any more. It may have missed a change of it, so it is
    /// told of one.
    fn keep_owed(&self, uri: &str, subscription: Subscription) {
        let mut kept = self.lock();
        if !kept.owed.remove(uri) {
            drop(kept);
            return drop(subscription);
        }
        kept.subscriptions.insert(uri.to_owned(), subscription);
        drop(kept);
        self.board.put(uri.to_owned(), subscriptions::updated(uri).into(), uri);
    }

    fn owes(&self, uri: &str) -> bool {
        self.lock().owed.contains(uri)
    }

    fn leave(&self, uri: &str) {
        let subscription = {
            let mut kept = self.lock();
            kept.owed.remove(uri);
            kept.subscriptions.remove(uri)
        };
        drop(subscription);
        self.board.lock().last.remove(uri);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Kept {
    fn has_room_for(&self, uri: &str) -> bool {
        self.subscriptions.contains_key(uri)
            || self.owed.contains(uri)
            || self.subscriptions.len() + self.owed.len() < Follows::MOST
    }
}

impl Board {
    /// A change that is told in more bytes is kept as the URI alone.
    const LARGEST: usize = 16 << 10;

    /// Changed parts of resources that are told of by their own names; more are told of as what they are
    /// parts of.
    const MOST_NAMED: usize = 1000;

    pub(super) fn put(&self, uri: String, message: Bytes, followed: &str) {
        let mut changes = self.lock();
        changes.count += 1;
        let number = changes.count;
        if changes.last.len() < Self::MOST_NAMED || changes.last.contains_key(&uri) {
            changes.last.insert(uri, (number, message));
        } else {
            let message = subscriptions::updated(followed).into();
            changes.last.insert(followed.to_owned(), (number, message));
        }
        drop(changes);
        self.news.notify_waiters();
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Changes> {
        self.changes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Hears of one resource on behalf of a client.
struct Ear {
    board: Arc<Board>,
    /// What the client calls it, and what its server does.
    public: String,
    key: String,
}

impl Ear {
    /// What the client calls a resource of the same server: whatever stands before this one's URI stands
    /// before that one's too.
    fn public_name(&self, uri: &str) -> String {
        match self.public.strip_suffix(self.key.as_str()) {
            Some(before) => format!("{before}{uri}"),
            None => uri.to_owned(),
        }
    }
}

impl Listener for Ear {
    fn said(&self, message: &[u8]) {
        let Ok(Message::Notification(said)) = Message::parse(message) else { return };
        let Some(uri) = said.params.and_then(subscriptions::updated_uri) else { return };
        let public = self.public_name(&uri);
        let mut patch = MessagePatch::default();
        if public != *uri {
            patch.payload = Patch::new().set_text("uri", &public);
        }
        // Which stream of ours told of it is nothing to the client.
        let about = said.params.and_then(|params| Object::parse(params).ok()?.object("_meta"));
        if let Some(about) = about.filter(|about| about.has(meta::SUBSCRIPTION_ID)) {
            match about.len() {
                1 => patch.payload = patch.payload.remove("_meta"),
                _ => patch.meta = patch.meta.remove(meta::SUBSCRIPTION_ID),
            }
        }
        let patched = patch.apply(message).ok().filter(|message| message.len() <= Board::LARGEST);
        let message = patched.unwrap_or_else(|| subscriptions::updated(&public));
        self.board.put(public, message.into(), &self.public);
    }
}

/// Why a client does not follow a resource.
pub(super) enum NotFollowed {
    /// No server is known that has it.
    Unknown,
    /// Its server does not tell of changes.
    Unsupported,
    /// The client follows too many already.
    TooMany,
    /// Its server declined.
    Declined(PassedOn),
    /// Its server could not be asked.
    Failed(CallError),
}

/// How long a server that could not be asked is left alone.
const ASK_AGAIN: Duration = Duration::from_secs(5);

impl Gateway {
    /// Lets `client` follow a resource, by the URI that clients use for it.
    pub(super) async fn follow(
        &self,
        client: &gripfast::Client,
        follows: &Follows,
        uri: &str,
        patience: Option<Duration>,
    ) -> Result<(), NotFollowed> {
        if !follows.lock().has_room_for(uri) {
            return Err(NotFollowed::TooMany);
        }
        let subscription = self.subscribe_to(client, follows, uri, patience).await?;
        follows.keep(uri, subscription)
    }

    /// Lets a client whose session is older than we are follow again what it followed before. A server that is away
    /// is asked until it answers, or nobody wants it any more.
    pub(super) async fn follow_again(&self, client: &gripfast::Client, follows: &Follows) {
        self.settle().await;
        let owed: Vec<String> = follows.lock().owed.iter().cloned().collect();
        let following = owed.into_iter().map(|uri| async move {
            while follows.owes(&uri) {
                match self.subscribe_to(client, follows, &uri, None).await {
                    Ok(subscription) => follows.keep_owed(&uri, subscription),
                    Err(NotFollowed::Failed(_)) => tokio::time::sleep(ASK_AGAIN).await,
                    // Nobody has it any more, or its server does not tell of it.
                    Err(_) => follows.leave(&uri),
                }
            }
        });
        // All at once: a server that is away keeps nobody from the others.
        join_all(following).await;
    }

    async fn subscribe_to(
        &self,
        client: &gripfast::Client,
        follows: &Follows,
        uri: &str,
        patience: Option<Duration>,
    ) -> Result<Subscription, NotFollowed> {
        let (server, key) = self.home_of(uri).ok_or(NotFollowed::Unknown)?;
        let ear = Ear { board: Arc::clone(&follows.board), public: uri.to_owned(), key: key.clone() };
        let options = SubscribeOptions { patience, client: Some(client.clone()), shared: false };
        match self.host.subscribe(&server, &key, Arc::new(ear), options).await {
            Ok(Subscribed::Following(subscription)) => Ok(subscription),
            Ok(Subscribed::Unsupported) => Err(NotFollowed::Unsupported),
            Ok(Subscribed::Declined(answer)) => {
                Err(NotFollowed::Declined(PassedOn::as_it_is(answer, server)))
            }
            Err(error) if error.code == Code::Denied => Err(NotFollowed::Unknown),
            Err(error) => Err(NotFollowed::Failed(error)),
        }
    }

    /// The server that has a resource, and its own URI for it. Whether there is such a resource is for the
    /// server to say, so the only one is asked in any case.
    fn home_of(&self, uri: &str) -> Option<(String, String)> {
        let menu = self.host.menu();
        if let Some(home) = menu.menu.resource(uri) {
            return Some((home.server.to_owned(), home.key.to_owned()));
        }
        match self.host.names().as_slice() {
            [only] => Some((only.clone(), uri.to_owned())),
            _ => None,
        }
    }

    /// `resources/subscribe` of a legacy client.
    pub(super) async fn subscribe(&self, asked: &Asked<'_>) -> Told {
        self.settle().await;
        let uri = match member(asked.params, "uri") {
            Ok(uri) => uri,
            Err(told) => return told,
        };
        match self.follow(&asked.client.at_servers, &asked.client.follows, &uri, None).await {
            Ok(()) => Told::Result(raw(&json!({}))),
            Err(NotFollowed::Unknown) => unknown("resource", Wanted::Uri(&uri)),
            Err(NotFollowed::Unsupported) => {
                let text = "method not found: the server of this resource does not tell of changes";
                Told::Fault(Fault::new(codes::METHOD_NOT_FOUND, text))
            }
            Err(NotFollowed::TooMany) => {
                let text = format!("a client can follow {} resources at a time", Follows::MOST);
                Told::Fault(Fault::new(codes::INTERNAL_ERROR, text))
            }
            Err(NotFollowed::Declined(answer)) => Told::Answer(answer),
            Err(NotFollowed::Failed(error)) => Told::Failed(error),
        }
    }

    /// `resources/unsubscribe` of a legacy client. What it does not follow it need not leave.
    pub(super) fn unsubscribe(&self, asked: &Asked<'_>) -> Told {
        match member(asked.params, "uri") {
            Ok(uri) => {
                asked.client.follows.leave(&uri);
                Told::Result(raw(&json!({})))
            }
            Err(told) => told,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ear(follows: &Follows, public: &str, key: &str) -> Ear {
        Ear { board: Arc::clone(&follows.board), public: public.to_owned(), key: key.to_owned() }
    }

    fn news(follows: &Follows) -> Vec<String> {
        let (news, _) = follows.tell();
        news.into_iter().map(|message| String::from_utf8(message.to_vec()).unwrap()).collect()
    }

    #[test]
    fn a_change_is_told_under_the_clients_own_name_and_in_the_servers_own_bytes() {
        let follows = Follows::default();
        let message = r#"{"jsonrpc":"2.0", "method":"notifications/resources/updated","params":{"uri":"a:/x","n":1.0,"_meta":{"io.modelcontextprotocol/subscriptionId":7,"k":1}}}"#;
        ear(&follows, "two+a:/x", "a:/x").said(message.as_bytes());
        let told =
            message.replace("a:/x", "two+a:/x").replace(r#""io.modelcontextprotocol/subscriptionId":7,"#, "");
        assert_eq!(news(&follows), [told]);
        ear(&follows, "a:/x", "a:/x").said(&subscriptions::updated("a:/x/part"));
        ear(&follows, "two+a:/x", "a:/x").said(&subscriptions::updated("a:/x/part"));
        let told = news(&follows);
        assert!(told[0].contains(r#""uri":"a:/x/part""#) && told[1].contains(r#""uri":"two+a:/x/part""#));
        for odd in ["", "{}", r#"{"jsonrpc":"2.0","method":"x"}"#] {
            ear(&follows, "a", "a").said(odd.as_bytes());
        }
        assert!(news(&follows).is_empty());
    }

    #[test]
    fn what_changes_often_is_told_once_and_again_to_those_who_come_back() {
        let follows = Follows::default();
        let (a, b) = (ear(&follows, "a", "a"), ear(&follows, "b", "b"));
        for _ in 0..3 {
            b.said(&subscriptions::updated("b"));
        }
        a.said(&subscriptions::updated("a"));
        assert_eq!(follows.tell().1, 4);
        assert!(news(&follows).is_empty());
        follows.take_back();
        assert_eq!(news(&follows).len(), 2, "the stream broke before it was read");
        follows.arrived();
        follows.take_back();
        assert!(news(&follows).is_empty());
        follows.heard(3);
        assert_eq!(news(&follows).len(), 1, "only the last one came after that");
        follows.heard(99);
        assert!(news(&follows).is_empty());
        follows.leave("b");
        follows.heard(0);
        assert_eq!(news(&follows).len(), 1, "what it follows no more it need not hear");
    }

    #[test]
    fn a_flood_of_parts_is_told_as_what_they_are_parts_of() {
        let follows = Follows::default();
        let everything = ear(&follows, "dir:/", "dir:/");
        for number in 0..5000 {
            everything.said(&subscriptions::updated(&format!("dir:/{number}")));
        }
        let told = news(&follows);
        assert_eq!(told.len(), 1001);
        assert!(told[1000].contains(r#""uri":"dir:/""#));
    }
}
