//! What servers say about something that they began for one client earlier: a task, or a page that a person was sent
//! to. It may come on the stream of anybody's call or outside all of them, so it is no caller's; whoever
//! remembers what was begun for whom hears it here.

use gripfast_core::ids::ClientKey;
use gripfast_wire::{pages, tasks};
use std::sync::{Arc, OnceLock};

/// Hears what is nobody's call's.
pub trait Overhears: Send + Sync {
    /// A server said this. It should not take long: the link waits.
    fn overheard(&self, said: Overheard<'_>);

    /// A client is gone, and so is everything that was begun for it.
    fn client_gone(&self, client: &ClientKey);
}

/// What was said, and by whom.
#[derive(Debug, Clone, Copy)]
pub struct Overheard<'a> {
    /// The server.
    pub server: &'a str,
    /// The client whose own instance said it; `None` if it was the instance that all share.
    pub own: Option<&'a ClientKey>,
    /// The method of the notification.
    pub method: &'a str,
    /// All of it, in the server's own bytes.
    pub message: &'a [u8],
}

/// Who overhears all servers, if anybody does.
#[derive(Clone, Default)]
pub(crate) struct Ears(Arc<OnceLock<Arc<dyn Overhears>>>);

impl Ears {
    /// The first one who wants to hears it all.
    pub(crate) fn give(&self, to: Arc<dyn Overhears>) {
        let _ = self.0.set(to);
    }

    pub(crate) fn client_gone(&self, client: &ClientKey) {
        if let Some(ears) = self.0.get() {
            ears.client_gone(client);
        }
    }
}

/// The ears, as one instance of a server speaks to them.
pub(crate) struct Earshot {
    pub(crate) ears: Ears,
    pub(crate) server: Arc<str>,
    pub(crate) own: Option<ClientKey>,
}

impl Earshot {
    /// Takes what is about something begun earlier. Answers whether it was.
    pub(crate) fn takes(&self, method: &str, message: &[u8]) -> bool {
        if !matches!(method, tasks::STATUS | pages::COMPLETE) {
            return false;
        }
        if let Some(ears) = self.ears.0.get() {
            ears.overheard(Overheard { server: &self.server, own: self.own.as_ref(), method, message });
        }
        true
    }
}
