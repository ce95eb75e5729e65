//! Clients of the program that embeds the host, as far as servers are concerned: whose a call is, and who
//! hears what a server says to a client outside its calls.

use crate::transport::Listener;
use gripfast_core::ids::ClientKey;
use gripfast_core::isolation::Caller;
use std::sync::Arc;

/// For whom a call is made. Cheap to clone.
///
/// Servers are shared by all clients or have an instance for each, as `isolation` says. Whoever makes calls
/// for several clients says which; a call for nobody in particular is served by the shared instance.
#[derive(Clone)]
pub struct Client {
    pub(crate) caller: Caller,
    pub(crate) can_be_asked: bool,
    pub(crate) ear: Option<Arc<dyn Listener>>,
    pub(crate) name: Option<Arc<str>>,
}

impl Client {
    /// One client, such as a session or a pipe. What a server asks for one of its calls may be put to it on
    /// any other of them.
    #[must_use]
    pub fn one(key: ClientKey) -> Self {
        Self { caller: Caller::One(key), can_be_asked: true, ear: None, name: None }
    }

    /// Programs that count as one client and cannot be told apart. None of them is asked what another's call
    /// has caused.
    #[must_use]
    pub fn many(key: ClientKey) -> Self {
        Self { caller: Caller::Many(key), can_be_asked: true, ear: None, name: None }
    }

    /// Who hears and answers for it while none of its calls is under way. Only a server's instance of its
    /// own speaks to it then.
    #[must_use]
    pub fn heard_by(mut self, ear: Arc<dyn Listener>) -> Self {
        self.ear = Some(ear);
        self
    }

    /// What it calls itself, for the ledger. Unless said here, it is what a modern client says about itself in
    /// the parameters of its calls. Nothing is decided on it.
    #[must_use]
    pub fn named(mut self, name: impl Into<Arc<str>>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Whether it can be asked anything at all. One that cannot gains nothing from an instance of its own,
    /// and gets none unless the config insists.
    #[must_use]
    pub fn can_be_asked(mut self, can: bool) -> Self {
        self.can_be_asked = can;
        self
    }
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client").field("caller", &self.caller).finish_non_exhaustive()
    }
}
