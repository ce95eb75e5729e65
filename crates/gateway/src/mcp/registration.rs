//! A client as the servers know it: under one key, for as long as its session, its connection or its pipe
//! lasts. When that is over, so are the instances that servers have for it alone.

use super::questions::Abilities;
use gripfast::{Client, ClientKey, Host, Principal};
use std::sync::atomic::{AtomicU64, Ordering};

/// One client, while it is there. Dropping it says that it is gone.
pub(crate) struct Presence {
    host: Host,
    key: ClientKey,
    principal: Principal,
}

impl Presence {
    /// A client of `principal` is there.
    pub(crate) fn begin(host: &Host, principal: Principal) -> Self {
        static CLIENTS: AtomicU64 = AtomicU64::new(1);
        let number = CLIENTS.fetch_add(1, Ordering::Relaxed);
        Self { host: host.clone(), key: ClientKey::new(format!("client-{number}")), principal }
    }

    /// The client, for its calls.
    pub(crate) fn client(&self, abilities: Abilities) -> Client {
        Client::one(self.key.clone()).on_behalf_of(self.principal.clone()).can_be_asked(abilities.any())
    }
}

impl Drop for Presence {
    fn drop(&mut self) {
        self.host.client_gone(&self.key);
    }
}

/// Modern clients over HTTP, which have no session: those of one principal count as one, and without
/// authentication all of them are of one.
pub(crate) fn without_session(principal: Principal) -> impl FnOnce(Abilities) -> Client {
    let key = ClientKey::new(format!("without a session, of {}", principal.name()));
    |abilities| Client::many(key).on_behalf_of(principal).can_be_asked(abilities.any())
}
