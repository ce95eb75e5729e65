//! Following the resources and tasks of servers.

use crate::client::{Client, Principal};
use crate::host::{Entry, Host};
use crate::instances::Lease;
use crate::transport::Listener;
use crate::upstream::{Answer, Followed, Following};
use gripfast_core::failure::CallError;
use gripfast_core::standing::Subject;
use gripfast_wire::patch::Patch;
use std::sync::Arc;
use std::time::Duration;

/// A resource or a task whose changes are told of until this is dropped.
pub struct Subscription {
    following: Following,
    /// An instance of a client's own stays while the client follows something there, calls or not.
    _lease: Lease,
}

impl std::fmt::Debug for Subscription {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Subscription").field("subject", &self.following.subject).finish_non_exhaustive()
    }
}

/// What came of wanting to follow something.
#[derive(Debug)]
pub enum Subscribed {
    /// Changes are told of, in this session of the server and in those after it.
    Following(Subscription),
    /// The server declined, in its own words.
    Declined(Answer),
    /// The server does not tell of such changes.
    Unsupported,
}

/// What whoever follows something may say, besides which.
#[derive(Debug, Clone, Default)]
pub struct SubscribeOptions {
    /// How long it waits at the most for the server's word, holding included.
    pub patience: Option<Duration>,
    /// For which client it is. `None`: for nobody in particular, at the instance that all share.
    pub client: Option<Client>,
    /// At the instance that all share, whatever `isolation` says: only that one can know what is followed.
    pub shared: bool,
}

impl Host {
    /// Follows a resource, by the server's own URI for it: `listener` hears each
    /// `notifications/resources/updated` about it, or about a part of it, in the server's bytes.
    ///
    /// A server is asked once however many follow, and asked again in every new session, until the last
    /// [`Subscription`] is dropped. After a session or a stream was lost, the listener hears of a change
    /// once, because one may have been missed. A lazy server is started, and stays up.
    ///
    /// At one server up to 10 000 resources and tasks can be followed, by up to 100 000 followers, and half of each for
    /// one principal; the next one is turned away as overloaded. It waits as a call does.
    ///
    /// Dropping the future leaves nothing behind.
    ///
    /// # Errors
    /// [`CallError`] if the server could not be asked. Its own refusal is an answer.
    pub async fn subscribe(
        &self,
        server: &str,
        uri: &str,
        listener: Arc<dyn Listener>,
        options: SubscribeOptions,
    ) -> Result<Subscribed, CallError> {
        let entry = self.entry(server)?;
        let params = Patch::new().set_text("uri", uri).to_object();
        let principal = options.client.as_ref().map(Client::principal);
        self.permit(&entry, principal, "resources/subscribe", Some(&params))?;
        self.follow(&entry, Subject::Resource(uri.to_owned()), listener, &options).await
    }

    /// Follows a task of a modern server, by the server's own id for it: `listener` hears each
    /// `notifications/tasks` about it, in the server's bytes. Who may name a task is for the caller to know.
    ///
    /// It is like [`Host::subscribe`] in everything else. After a session or a stream was lost, the server is asked how
    /// the task stands, and the listener hears the answer as if the server had told it.
    ///
    /// # Errors
    /// As [`Host::subscribe`].
    pub async fn subscribe_to_task(
        &self,
        server: &str,
        id: &str,
        listener: Arc<dyn Listener>,
        options: SubscribeOptions,
    ) -> Result<Subscribed, CallError> {
        let entry = self.entry(server)?;
        self.follow(&entry, Subject::Task(id.to_owned()), listener, &options).await
    }

    async fn follow(
        &self,
        entry: &Entry,
        subject: Subject,
        listener: Arc<dyn Listener>,
        options: &SubscribeOptions,
    ) -> Result<Subscribed, CallError> {
        let client = options.client.as_ref().filter(|_| !options.shared).map(Client::at_one_instance);
        let lease = entry.lease(client.as_ref())?;
        let deadline = options.patience.map(|patience| self.now() + patience);
        let who = options.client.as_ref().map_or_else(Principal::local, |client| client.principal().clone());
        Ok(match lease.upstream().follow(subject, who, listener, deadline).await? {
            Followed::Following(following) => {
                Subscribed::Following(Subscription { following, _lease: lease })
            }
            Followed::Declined(answer) => Subscribed::Declined(answer),
            Followed::Unsupported => Subscribed::Unsupported,
        })
    }

    /// Whether some server tells of changed resources, as far as is known of those that are away.
    pub fn tells_of_resources(&self) -> bool {
        self.entries()
            .iter()
            .any(|entry| entry.upstream().is_ok_and(|upstream| upstream.tells_of_resources()))
    }
}
