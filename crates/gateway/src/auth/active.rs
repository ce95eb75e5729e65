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

impl CredentialId {
    /// The form in the header of a forwarded request.
    pub(super) fn to_header(&self) -> String {
        match self {
            Self::Key(digest) => format!("key {digest}"),
            Self::Token { ends, .. } => format!("token {}", ends.as_millis()),
        }
    }

    /// Reads that form.
    pub(super) fn from_header(text: &str, principal: &Principal) -> Option<Self> {
        match text.split_once(' ')? {
            ("key", digest) => Some(Self::Key(digest.to_owned())),
            ("token", ends) => {
                let ends = Duration::from_millis(ends.parse().ok()?);
                Some(Self::Token { principal: principal.clone(), ends })
            }
            _ => None,
        }
    }
}

/// Credentials of open calls and streams. Bounded by the number of requests that are served at a time, plus those since
/// the last cleanup.
#[derive(Default)]
pub(super) struct ActiveCredentials(Mutex<HashMap<CredentialId, Credential>>);

impl ActiveCredentials {
    /// The credential with this id.
    pub(super) fn credential(&self, id: CredentialId) -> Credential {
        let mut active = self.0.lock();
        if let Some(known) = active.get(&id) {
            return known.clone();
        }
        let credential = Credential::new(id.clone());
        active.insert(id, credential.clone());
        credential
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_id_of_a_credential_survives_its_header() {
        let alice = Principal::new("alice");
        let token = CredentialId::Token { principal: alice.clone(), ends: Duration::from_millis(1_234_567) };
        for id in [CredentialId::Key("ab12".to_owned()), token] {
            assert_eq!(CredentialId::from_header(&id.to_header(), &alice), Some(id));
        }
        for malformed in ["", "key", "token x", "token -1", "other 1"] {
            assert_eq!(CredentialId::from_header(malformed, &alice), None, "{malformed}");
        }
    }
}
