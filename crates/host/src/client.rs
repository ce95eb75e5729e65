//! Clients of the program that embeds the host: on whose behalf a call is made, whose it is at a server that
//! serves each client apart, and who hears what a server says to a client outside its calls.

use crate::transport::Listener;
use gripfast_core::ids::{ClientKey, PrincipalName};
use gripfast_core::isolation::Caller;
use std::sync::Arc;

/// On whose behalf calls are made. What is allowed, how many calls there may be, and whose an answer is that
/// was made for nobody else, is decided on it. One principal may have many clients; cheap to clone.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Principal(PrincipalName);

impl Principal {
    /// The name of everybody on this machine.
    pub const LOCAL: &'static str = PrincipalName::LOCAL;

    /// The name in ledger and audit log of whoever calls with the admin token. No key can have it.
    pub const ADMIN: &'static str = "admin";

    /// Somebody who has shown who it is, by the name that the config uses in `clients`.
    #[must_use]
    pub fn named(name: impl Into<Arc<str>>) -> Self {
        Self(PrincipalName::new(name))
    }

    /// Everybody on this machine: without authentication they cannot be told apart.
    #[must_use]
    pub fn local() -> Self {
        Self::named(Self::LOCAL)
    }

    /// Its name.
    pub fn name(&self) -> &str {
        self.0.as_str()
    }

    /// Its name, for those who decide.
    pub(crate) fn key(&self) -> &PrincipalName {
        &self.0
    }
}

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
    pub(crate) principal: Principal,
}

impl Client {
    /// One client, such as a session or a pipe. What a server asks for one of its calls may be put to it on
    /// any other of them.
    #[must_use]
    pub fn one(key: ClientKey) -> Self {
        Self {
            caller: Caller::One(key),
            can_be_asked: true,
            ear: None,
            name: None,
            principal: Principal::local(),
        }
    }

    /// Programs that count as one client and cannot be told apart. None of them is asked what another's call
    /// has caused.
    #[must_use]
    pub fn many(key: ClientKey) -> Self {
        Self {
            caller: Caller::Many(key),
            can_be_asked: true,
            ear: None,
            name: None,
            principal: Principal::local(),
        }
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

    /// What it says that it is.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// On whose behalf it calls. Unless said here, it is somebody on this machine.
    #[must_use]
    pub fn on_behalf_of(mut self, principal: Principal) -> Self {
        self.principal = principal;
        self
    }

    /// On whose behalf it calls.
    pub fn principal(&self) -> &Principal {
        &self.principal
    }

    /// Under which key it is known, if it is a named one.
    pub fn key(&self) -> Option<&ClientKey> {
        self.caller.key()
    }

    /// Who hears for it outside its calls.
    pub fn ear(&self) -> Option<&Arc<dyn Listener>> {
        self.ear.as_ref()
    }

    /// The same for what takes more than one request, such as a task, or goes on for long: programs that count as one
    /// client have an instance for each call that can be asked something, and here all requests must meet at one.
    #[must_use]
    pub fn at_one_instance(&self) -> Self {
        let together = matches!(self.caller, Caller::Many(_));
        self.clone().can_be_asked(self.can_be_asked && !together)
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
