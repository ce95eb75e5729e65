//! Registry of credentials in use, so that calls and streams end when their credential does.

use super::credential::Credential;
use gripfast::Principal;
use gripfast::sync::Mutex;
use std::collections::HashMap;
use std::time::Duration;

/// Identity of a credential, without the secret.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum CredentialId {
    /// A key, identified by its digest.
    Key(String),
    /// A token of a principal. Tokens of one principal with the same expiry share an id.
    Token {
        /// Principal of the token.
        principal: Principal,
        /// Expiry, as wall-clock time since the Unix epoch.
        ends: Duration,
    },
}

/// Credentials of open calls and streams. Bounded by the number of requests that are served at a time, plus those since
/// the last cleanup.
#[derive(Default)]
pub(super) struct ActiveCredentials(Mutex<HashMap<CredentialId, Credential>>);

impl ActiveCredentials {
    /// The credential with this id.
    pub(super) fn credential(&self, id: CredentialId) -> Credential {
        self.0.lock().entry(id).or_default().clone()
    }

    /// Ends the credentials for which `is_over` is true, and removes those that are unused.
    pub(super) fn end_matching(&self, is_over: impl Fn(&CredentialId) -> bool) {
        let mut over = Vec::new();
        self.0.lock().retain(|id, credential| {
            let is_over = is_over(id);
            if is_over {
                over.push(credential.clone());
            }
            !is_over && !credential.is_unused()
        });
        // Outside the lock: ending a call may look up a credential.
        over.iter().for_each(Credential::end);
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.0.lock().len()
    }
}
