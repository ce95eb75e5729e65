//! Subscriptions to resources and tasks of servers.

use crate::client::{Client, Principal};
use crate::host::{Host, HostEntry};
use crate::instances::InstanceLease;
use crate::transport::Listener;
use crate::upstream::{Answer, SubscriptionHandle};
use gripfast_core::failure::CallError;
use gripfast_core::session_state::SubscriptionTarget;
use gripfast_wire::patch::Patch;
use std::sync::Arc;
use std::time::Duration;

/// A subscription to a resource or task; dropping it unsubscribes.
pub struct Subscription {
    handle: SubscriptionHandle,
    /// Keeps a dedicated instance running while the client is subscribed there.
    _lease: InstanceLease,
}

impl std::fmt::Debug for Subscription {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Subscription").field("target", &self.handle.target).finish_non_exhaustive()
    }
}

/// Outcome of [`Host::subscribe`].
#[derive(Debug)]
pub enum SubscribeOutcome<S = Subscription> {
    /// Subscribed, in this session of the server and in all later ones.
    Subscribed(S),
    /// The server declined, with this answer.
    Declined(Answer),
    /// The server does not support such subscriptions.
    Unsupported,
}

/// Options of [`Host::subscribe`].
#[derive(Debug, Clone, Default)]
pub struct SubscribeOptions {
    /// Deadline for the server's acknowledgement, including waits for a connection.
    pub timeout: Option<Duration>,
    /// The client that subscribes. `None`: no particular client, on the shared instance.
    pub client: Option<Client>,
    /// Uses the shared instance regardless of `isolation`, for a task that only this instance knows.
    pub use_shared_instance: bool,
}

impl Host {
    /// Subscribes to a resource by the server's own URI. `listener` receives each `notifications/resources/updated`
    /// for it, or for a part of it, in the server's bytes.
    ///
    /// The host subscribes once per server however many subscribers there are, and again in every new session, until
    /// the last [`Subscription`] is dropped. After a lost session or stream the listener gets one notification,
    /// because it may have missed a change. A lazy server is started and stays up.
    ///
    /// Each server has at most 10 000 subscribed resources and tasks and 100 000 subscribers; one principal gets at
    /// most half of each. Beyond that the request is refused with [`Code::Overloaded`](crate::Code::Overloaded). The
    /// request waits as a call does.
    ///
    /// Dropping the future cancels the subscription.
    ///
    /// # Errors
    /// [`CallError`] if the server could not be reached. A refusal by the server is [`SubscribeOutcome::Declined`].
    pub async fn subscribe(
        &self,
        server: &str,
        uri: &str,
        listener: Arc<dyn Listener>,
        options: SubscribeOptions,
    ) -> Result<SubscribeOutcome, CallError> {
        let entry = self.entry(server)?;
        let params = Patch::new().set_text("uri", uri).to_object();
        let principal = options.client.as_ref().map(Client::principal);
        self.check_access(&entry, principal, "resources/subscribe", Some(&params))?;
        self.subscribe_target(&entry, SubscriptionTarget::Resource(uri.to_owned()), listener, &options).await
    }

    /// Subscribes to a task of a modern server by the server's own id. `listener` receives each `notifications/tasks`
    /// for it, in the server's bytes. The caller checks whether the client may see the task.
    ///
    /// Otherwise like [`Host::subscribe`]. After a lost session or stream the host requests the task's status, and
    /// the listener receives it as a notification.
    ///
    /// # Errors
    /// As [`Host::subscribe`].
    pub async fn subscribe_to_task(
        &self,
        server: &str,
        id: &str,
        listener: Arc<dyn Listener>,
        options: SubscribeOptions,
    ) -> Result<SubscribeOutcome, CallError> {
        let entry = self.entry(server)?;
        self.subscribe_target(&entry, SubscriptionTarget::Task(id.to_owned()), listener, &options).await
    }

    async fn subscribe_target(
        &self,
        entry: &HostEntry,
        target: SubscriptionTarget,
        listener: Arc<dyn Listener>,
        options: &SubscribeOptions,
    ) -> Result<SubscribeOutcome, CallError> {
        let client = options
            .client
            .as_ref()
            .filter(|_| !options.use_shared_instance)
            .map(Client::with_single_instance);
        let lease = entry.lease(client.as_ref())?;
        let deadline = options.timeout.map(|timeout| self.now() + timeout);
        let principal =
            options.client.as_ref().map_or_else(Principal::local, |client| client.principal().clone());
        Ok(match lease.upstream().subscribe(target, principal, listener, deadline).await? {
            SubscribeOutcome::Subscribed(handle) => {
                SubscribeOutcome::Subscribed(Subscription { handle, _lease: lease })
            }
            SubscribeOutcome::Declined(answer) => SubscribeOutcome::Declined(answer),
            SubscribeOutcome::Unsupported => SubscribeOutcome::Unsupported,
        })
    }

    /// Returns true if a server supports resource subscriptions; for a disconnected server, as of its last
    /// connection.
    pub fn has_resource_updates(&self) -> bool {
        self.entries()
            .iter()
            .any(|entry| entry.upstream().is_ok_and(|upstream| upstream.has_resource_updates()))
    }
}
