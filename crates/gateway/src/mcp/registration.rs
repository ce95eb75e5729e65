//! Registration of a client with the host: one key for as long as its session, connection or pipe lasts. When it ends,
//! the host ends the server instances that are dedicated to the client.

use super::Gateway;
use super::elicitation::ElicitationSupport;
use gripfast::{Client, ClientKey, Host, Principal};
use http::{HeaderMap, HeaderName};
use std::sync::atomic::{AtomicU64, Ordering};

/// Registration of one client. Dropping it removes the client from the host.
pub(crate) struct ClientRegistration {
    host: Host,
    key: ClientKey,
    principal: Principal,
}

impl ClientRegistration {
    /// Registers a client of `principal` under a new key.
    pub(crate) fn new(host: &Host, principal: Principal) -> Self {
        static CLIENTS: AtomicU64 = AtomicU64::new(1);
        let number = CLIENTS.fetch_add(1, Ordering::Relaxed);
        Self { host: host.clone(), key: ClientKey::new(format!("client-{number}")), principal }
    }

    /// Identity of the client for its calls.
    pub(crate) fn client(&self, abilities: ElicitationSupport) -> Client {
        Client::with_key(self.key.clone())
            .with_principal(self.principal.clone())
            .with_input_support(abilities.any())
    }
}

impl Drop for ClientRegistration {
    fn drop(&mut self) {
        self.host.remove_client(&self.key);
    }
}

/// Name of the client for which another replica keeps a dedicated instance. Only the listener for replicas sets it.
pub(crate) const RELAYED_CLIENT: HeaderName = HeaderName::from_static("gripfast-relayed-client");

/// Identity of the modern client of a request over HTTP.
pub(crate) fn of_request(
    gateway: &Gateway,
    headers: &HeaderMap,
    principal: Principal,
) -> impl FnOnce(ElicitationSupport) -> Client {
    let relayed = headers.get(RELAYED_CLIENT).filter(|_| gateway.host.is_view());
    let relayed = relayed.and_then(|key| key.to_str().ok()).map(ClientKey::new);
    |abilities| match relayed {
        Some(key) => Client::with_key(key).with_principal(principal).with_input_support(abilities.any()),
        None => without_session(principal)(abilities),
    }
}

/// Identity of modern clients over HTTP, which have no session: all clients of one principal count as one. Without
/// authentication there is only one principal.
pub(crate) fn without_session(principal: Principal) -> impl FnOnce(ElicitationSupport) -> Client {
    let key = ClientKey::new(format!("without a session, of {}", principal.name()));
    |abilities| Client::anonymous(key).with_principal(principal).with_input_support(abilities.any())
}
