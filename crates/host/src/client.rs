//! Clients and principals: for which client a call is made, with which identity, and which listener receives server
//! messages outside the client's calls.

use crate::transport::Listener;
use gripfast_core::ids::{ClientKey, PrincipalName};
use gripfast_core::isolation::Caller;
use std::sync::{Arc, LazyLock};

/// The authenticated identity behind calls. Policies, budgets and private cache entries apply per principal. One
/// principal may have many clients. Cheap to clone.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Principal(PrincipalName);

impl Principal {
    /// Name of the principal of all unauthenticated local clients.
    pub const LOCAL: &'static str = PrincipalName::LOCAL;

    /// Name in ledger and audit log of calls made with the admin token. No client key can have it.
    pub const ADMIN: &'static str = "admin";

    /// An authenticated principal, by the name that the config uses in `clients`.
    #[must_use]
    pub fn new(name: impl Into<Arc<str>>) -> Self {
        Self(PrincipalName::new(name))
    }

    /// The principal of all local clients: without authentication they cannot be distinguished.
    #[must_use]
    pub fn local() -> Self {
        Self::local_ref().clone()
    }

    /// [`Principal::local`], borrowed.
    pub(crate) fn local_ref() -> &'static Self {
        static LOCAL: LazyLock<Principal> = LazyLock::new(|| Principal::new(Principal::LOCAL));
        &LOCAL
    }

    /// The principal's name.
    pub fn name(&self) -> &str {
        self.0.as_str()
    }

    /// The principal's name in the type that `core` uses.
    pub(crate) fn key(&self) -> &PrincipalName {
        &self.0
    }
}

/// A client that a call is made for. Cheap to clone.
///
/// `isolation` decides whether clients share one instance of a server or have their own. A call without a client uses
/// the shared instance.
#[derive(Clone)]
pub struct Client {
    pub(crate) caller: Caller,
    pub(crate) supports_input: bool,
    pub(crate) listener: Option<Arc<dyn Listener>>,
    pub(crate) name: Option<Arc<str>>,
    pub(crate) principal: Principal,
}

impl Client {
    /// A single client, such as a session or a pipe. A server request that belongs to one of its calls may be
    /// delivered on any other of them.
    #[must_use]
    pub fn with_key(key: ClientKey) -> Self {
        Self {
            caller: Caller::Single(key),
            supports_input: true,
            listener: None,
            name: None,
            principal: Principal::local(),
        }
    }

    /// Several programs that share one key and cannot be distinguished. None of them receives a server request that
    /// another one's call caused.
    #[must_use]
    pub fn anonymous(key: ClientKey) -> Self {
        Self {
            caller: Caller::Shared(key),
            supports_input: true,
            listener: None,
            name: None,
            principal: Principal::local(),
        }
    }

    /// Listener for server requests and notifications between the client's calls. Only the client's dedicated
    /// instance uses it.
    #[must_use]
    pub fn with_listener(mut self, listener: Arc<dyn Listener>) -> Self {
        self.listener = Some(listener);
        self
    }

    /// Client name for the ledger. Without it, the ledger uses the `clientInfo` of a modern client's requests. No
    /// decision depends on it.
    #[must_use]
    pub fn with_name(mut self, name: impl Into<Arc<str>>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// The client's name.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// Sets the principal. Default: [`Principal::local`].
    #[must_use]
    pub fn with_principal(mut self, principal: Principal) -> Self {
        self.principal = principal;
        self
    }

    /// The principal that the client calls for.
    pub fn principal(&self) -> &Principal {
        &self.principal
    }

    /// The client's key.
    pub fn key(&self) -> Option<&ClientKey> {
        self.caller.key()
    }

    /// The listener for messages between the client's calls.
    pub fn listener(&self) -> Option<&Arc<dyn Listener>> {
        self.listener.as_ref()
    }

    /// Returns a client for work that takes more than one request, such as a task or a subscription.
    /// [`Client::anonymous`] clients otherwise may get an instance per call, and here all requests must use the same
    /// instance.
    #[must_use]
    pub fn with_single_instance(&self) -> Self {
        let together = matches!(self.caller, Caller::Shared(_));
        self.clone().with_input_support(self.supports_input && !together)
    }

    /// Sets whether the client can answer server requests (elicitation, sampling, roots). Default true. A client that
    /// cannot has no use for a dedicated instance and gets one only if `isolation` requires it.
    #[must_use]
    pub fn with_input_support(mut self, supported: bool) -> Self {
        self.supports_input = supported;
        self
    }
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client").field("caller", &self.caller).finish_non_exhaustive()
    }
}
