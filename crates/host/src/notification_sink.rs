//! Sink for notifications about tasks and URL elicitations. They may arrive on the stream of any call or outside all
//! calls, so they belong to no caller; the sink knows which client the task or elicitation belongs to.

use crate::sync::Mutex;
use gripfast_core::ids::ClientKey;
use gripfast_wire::{tasks, url_elicitation};
use std::sync::{Arc, OnceLock, Weak};

/// Receives server notifications that belong to no call.
pub trait NotificationSink: Send + Sync {
    /// Handles a notification. Must return quickly: the connection waits for it.
    fn notify(&self, notification: ServerNotification<'_>);

    /// Removes everything that belongs to a client.
    fn remove_client(&self, client: &ClientKey);
}

/// A server notification and its origin.
#[derive(Debug, Clone, Copy)]
pub struct ServerNotification<'a> {
    /// The server.
    pub server: &'a str,
    /// The client of the dedicated instance that sent it; `None` for the shared instance.
    pub dedicated_to: Option<&'a ClientKey>,
    /// The method of the notification.
    pub method: &'a str,
    /// The whole message, in the server's own bytes.
    pub message: &'a [u8],
}

/// The sink of a host, once it is set.
#[derive(Clone, Default)]
pub(crate) struct SinkSlot(
    Arc<OnceLock<Arc<dyn NotificationSink>>>,
    Arc<Mutex<Vec<Weak<dyn NotificationSink>>>>,
);

impl SinkSlot {
    /// Adds the sink of a view of one server. It ends with its last strong reference.
    pub(crate) fn add_view(&self, to: &Arc<dyn NotificationSink>) {
        let mut views = self.1.lock();
        views.retain(|view| view.strong_count() > 0);
        views.push(Arc::downgrade(to));
    }

    fn views(&self) -> Vec<Arc<dyn NotificationSink>> {
        self.1.lock().iter().filter_map(Weak::upgrade).collect()
    }

    /// Sets the sink. Only the first call has an effect.
    pub(crate) fn set(&self, to: Arc<dyn NotificationSink>) {
        let _ = self.0.set(to);
    }

    pub(crate) fn remove_client(&self, client: &ClientKey) {
        if let Some(sink) = self.0.get() {
            sink.remove_client(client);
        }
    }
}

/// The sink together with the instance that sends to it.
pub(crate) struct InstanceSink {
    pub(crate) sink: SinkSlot,
    pub(crate) server: Arc<str>,
    pub(crate) dedicated_to: Option<ClientKey>,
}

impl InstanceSink {
    /// Forwards a notification about a task or a URL elicitation. Returns true if it was one, even without a sink.
    pub(crate) fn try_forward(&self, method: &str, message: &[u8]) -> bool {
        if !matches!(method, tasks::STATUS | url_elicitation::COMPLETE) {
            return false;
        }
        for sink in self.sink.0.get().cloned().into_iter().chain(self.sink.views()) {
            sink.notify(ServerNotification {
                server: &self.server,
                dedicated_to: self.dedicated_to.as_ref(),
                method,
                message,
            });
        }
        true
    }
}
