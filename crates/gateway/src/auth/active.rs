//! The credentials that are in use, so that what they have opened ends when they do.

use crate::credential::Credential;
use gripfast::Principal;
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Tells credentials apart, without holding what would open anything.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum CredentialId {
    /// A key, by its digest.
    Key(String),
    /// A token of this principal that ends at this time of the wall clock. Tokens that end at one moment end alike.
    Token {
        /// Whose it is.
        principal: Principal,
        /// When it ends.
        ends: Duration,
    },
}

/// The credentials with which something is open. Bounded by the requests that are served at a time, and those of the
/// last moment.
#[derive(Default)]
pub(super) struct InUse(Mutex<HashMap<CredentialId, Credential>>);

impl InUse {
    /// The credential of this id.
    pub(super) fn credential(&self, id: CredentialId) -> Credential {
        self.lock().entry(id).or_default().clone()
    }

    /// Ends those that are over, and forgets those that nothing is open with.
    pub(super) fn end_those(&self, is_over: impl Fn(&CredentialId) -> bool) {
        let mut over = Vec::new();
        self.lock().retain(|id, credential| {
            let is_over = is_over(id);
            if is_over {
                over.push(credential.clone());
            }
            !is_over && !credential.is_unused()
        });
        // Outside the lock: what ends may ask for a credential.
        over.iter().for_each(Credential::end);
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.lock().len()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<CredentialId, Credential>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
