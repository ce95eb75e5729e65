//! Attribution of server requests and notifications that do not name a call: which client an instance belongs to, and
//! so which client receives them.

use super::notifications::default_reply;
use super::{Connection, Upstream};
use crate::client::Client;
use crate::sync::Mutex;
use crate::transport::{Listener, Route};
use bytes::Bytes;
use gripfast_core::event::Event;
use gripfast_core::ids::ClientKey;
use gripfast_core::isolation::{Attribution, Caller, DedicatedFor};
use gripfast_wire::envelope::{self, Message, Request};
use gripfast_wire::{Era, roots};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Role of an instance.
pub(crate) enum InstanceRole {
    /// The shared instance, which lists the catalog.
    Shared {
        /// Called when a request cannot be attributed, with the clients that need dedicated instances. Returns true
        /// if this is a change.
        separate: Box<dyn Fn(DedicatedFor) -> bool + Send + Sync>,
    },
    /// A dedicated instance.
    Dedicated {
        /// Its client.
        client: Arc<InstanceClient>,
    },
}

impl InstanceRole {
    pub(super) fn is_dedicated(&self) -> bool {
        match self {
            Self::Shared { .. } => false,
            Self::Dedicated { .. } => true,
        }
    }

    /// The client of a dedicated instance.
    pub(crate) fn client(&self) -> Option<&ClientKey> {
        match self {
            Self::Shared { .. } => None,
            Self::Dedicated { client: dedicated } => dedicated.caller.key(),
        }
    }
}

/// The client of a dedicated instance and its listener.
pub(crate) struct InstanceClient {
    caller: Caller,
    listener: Mutex<Option<Arc<dyn Listener>>>,
}

impl InstanceClient {
    pub(crate) fn of(client: &Client) -> Self {
        Self { caller: client.caller.clone(), listener: Mutex::new(client.listener.clone()) }
    }

    /// Replaces the listener.
    pub(crate) fn set_listener(&self, listener: Option<Arc<dyn Listener>>) {
        *self.listener.lock() = listener;
    }

    /// The key of a single client, which may receive requests of any of its calls; `None` for anonymous clients.
    fn client(&self) -> Option<&ClientKey> {
        match &self.caller {
            Caller::Single(client) => Some(client),
            Caller::Shared(_) | Caller::Anonymous => None,
        }
    }

    /// The listener for messages between the client's calls; anonymous clients have none.
    fn listener(&self) -> Option<Arc<dyn Listener>> {
        self.client()?;
        self.listener.lock().clone()
    }
}

impl Connection {
    /// Notes that the server has sent a request.
    pub(super) fn note_request(&self, request: &Request<'_>) {
        if needs_client(&request.method) {
            self.has_asked.store(true, Ordering::Release);
        }
        if request.method == roots::LIST {
            self.has_asked_for_roots.store(true, Ordering::Release);
        }
    }
}

impl Upstream {
    /// Returns true if server requests may not name their call: modern servers send none, and over Streamable HTTP a
    /// request comes on the stream of its call.
    pub(crate) fn has_ambiguous_requests(&self) -> bool {
        let route = self.connection().map(|connection| connection.route).or_else(|| self.only_route());
        route != Some(Route::Http) && self.listing.borrow().era == Era::Legacy
    }

    /// Returns true if the server has sent client requests before and has calls that may cause more.
    pub(crate) fn may_send_requests(&self) -> bool {
        let asks = |connection: &Arc<Connection>| connection.has_asked.load(Ordering::Acquire);
        self.connection().filter(asks).is_some_and(|connection| !connection.in_flight.is_idle())
    }

    /// Returns true if no call is in flight that may cause a server request.
    pub(crate) fn has_no_calls(&self) -> bool {
        self.connection().is_none_or(|connection| connection.in_flight.is_idle())
    }

    /// Notifies the server that the roots have changed. A session that never asked for roots is not notified, and a
    /// later session will ask; modern servers ask each time.
    pub(crate) fn notify_roots_changed(&self) {
        let knows = |connection: &Arc<Connection>| {
            connection.session.era == Era::Legacy && connection.has_asked_for_roots.load(Ordering::Acquire)
        };
        if let Some(connection) = self.connection().filter(knows) {
            connection.replies.send(envelope::notification(roots::CHANGED, None));
        }
    }

    /// Routes a server request that does not name its call: to the newest call of the client it belongs to, or to the
    /// client's listener. A request that cannot be attributed is declined.
    pub(super) fn route_request(&self, connection: &Connection, message: Bytes, attribution: Attribution) {
        let Ok(Message::Request(request)) = Message::parse(&message) else { return };
        connection.note_request(&request);
        if needs_client(&request.method) && attribution.needs_dedicated_instances() {
            self.separate_clients(if attribution == Attribution::AmbiguousPrincipal {
                DedicatedFor::All
            } else {
                DedicatedFor::Interactive
            });
        }
        let dedicated = match &self.role {
            InstanceRole::Shared { .. } => None,
            InstanceRole::Dedicated { client: dedicated } => Some(dedicated),
        };
        let client = match &attribution {
            Attribution::Client(client) => Some(client),
            Attribution::Call
            | Attribution::NoCall
            | Attribution::Withdrawn
            | Attribution::AmbiguousCall
            | Attribution::AmbiguousAnonymous
            | Attribution::AmbiguousClient => dedicated.and_then(|dedicated| dedicated.client()),
            Attribution::AmbiguousPrincipal => None,
        };
        // Any of the client's calls may wait for the answer, so the timeouts of all of them are paused.
        let calls = client.map(|client| connection.in_flight.calls_of(client)).unwrap_or_default();
        let ask = || match calls.last() {
            Some(newest) => newest.on_request(message.clone()),
            None if attribution == Attribution::AmbiguousPrincipal => None,
            None => dedicated?.listener()?.on_request(message.clone()),
        };
        let pauses = || calls.iter().map(|call| call.pause()).collect::<Vec<_>>();
        if !connection.open_questions.spawn(&connection.replies, ask, pauses) {
            connection.replies.send(default_reply(&request));
        }
    }

    /// Drops and counts a notification that may belong to the calls of several principals.
    pub(super) fn drop_unattributed(&self, beside_calls: bool) {
        let dropped = self.stats.notification_dropped();
        if dropped == 10u64.pow(dropped.ilog10()) {
            self.announce(self.clock.now(), Event::MessagesDropped { dropped });
        }
        // Without calls in flight no client would have received it, dedicated instance or not.
        if beside_calls {
            self.separate_clients(DedicatedFor::All);
        }
    }

    /// Gives the clients of this shared instance dedicated instances from now on.
    fn separate_clients(&self, apart: DedicatedFor) {
        if let InstanceRole::Shared { separate } = &self.role
            && separate(apart)
        {
            self.announce(self.clock.now(), Event::ClientsIsolated);
        }
    }

    /// Forwards a message outside any call to the client of a dedicated instance.
    pub(super) fn forward_to_client(&self, message: &[u8]) {
        match &self.role {
            InstanceRole::Shared { .. } => {}
            InstanceRole::Dedicated { client: dedicated } => {
                if let Some(listener) = dedicated.listener() {
                    listener.on_message(message);
                }
            }
        }
    }
}

/// Returns true for requests that a client has to answer.
fn needs_client(method: &str) -> bool {
    matches!(method, "elicitation/create" | "sampling/createMessage" | roots::LIST)
}
