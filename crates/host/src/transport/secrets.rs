//! Secrets of one server: the values expanded for its links and its credentials. They are redacted from everything that
//! the server says, and outlive the link, as the server's messages do.

use crate::sync::RwLock;
use gripfast_core::failure::classify::classify_with_secrets;
use gripfast_core::failure::{Evidence, Failure};
use gripfast_core::redact::KnownSecrets;
use std::borrow::Cow;
use std::fmt;

/// Secrets of one upstream.
#[derive(Debug, Default)]
pub struct Secrets {
    known: RwLock<Known>,
}

#[derive(Debug, Default)]
struct Known {
    /// Secrets of the current link.
    current: KnownSecrets,
    /// Secrets of the link before it: a child that ends may still repeat them.
    previous: KnownSecrets,
    /// Credential that is sent to the server, and the one before it. They change while a link lasts.
    current_credential: ShownCredential,
    previous_credential: ShownCredential,
    /// Union of all of them.
    all: KnownSecrets,
}

#[derive(Default)]
struct ShownCredential {
    credential: String,
    known: KnownSecrets,
}

impl fmt::Debug for ShownCredential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.known.fmt(f)
    }
}

impl Secrets {
    /// Sets the secrets of a link that is being opened.
    pub fn set_for_link(&self, secrets: KnownSecrets) {
        let mut known = self.known.write();
        if known.current != secrets {
            known.previous = std::mem::replace(&mut known.current, secrets);
            known.rebuild();
        }
    }

    /// Sets the credential that is about to be sent to the server, which may repeat it from then on.
    pub fn set_credential(&self, credential: &str) {
        if self.known.read().current_credential.credential == credential {
            return;
        }
        let mut shown = ShownCredential { credential: credential.to_owned(), known: KnownSecrets::default() };
        shown.known.add_words(credential);
        let mut known = self.known.write();
        known.previous_credential = std::mem::replace(&mut known.current_credential, shown);
        known.rebuild();
    }

    /// Redacts a text of the server: these secrets and everything else that looks like one.
    pub fn redact_text(&self, text: &str) -> String {
        self.known.read().all.text(text).into_owned()
    }

    /// Redacts a name that the server or a client gave.
    pub fn redact_name<'n>(&self, name: &'n str) -> Cow<'n, str> {
        self.known.read().all.name(name)
    }

    /// Masks these secrets in a text and leaves the rest unchanged.
    pub fn mask(&self, text: &str) -> String {
        self.known.read().all.mask(text).into_owned()
    }

    /// Masks these secrets in a JSON document.
    pub fn mask_json(&self, value: &mut serde_json::Value) {
        self.known.read().all.mask_json(value);
    }

    /// Returns whether a text contains one of these secrets.
    pub fn occurs_in(&self, text: &str) -> bool {
        matches!(self.known.read().all.mask(text), Cow::Owned(_))
    }

    /// Classifies evidence, with these secrets redacted from the text.
    pub fn classify(&self, evidence: &Evidence) -> Failure {
        classify_with_secrets(evidence, &self.known.read().all)
    }
}

impl Known {
    fn rebuild(&mut self) {
        let texts =
            [&self.current, &self.previous, &self.current_credential.known, &self.previous_credential.known]
                .into_iter()
                .flat_map(KnownSecrets::iter);
        self.all = texts.collect();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_of_the_previous_link_are_still_masked() {
        let known = |text: &str| {
            let mut known = KnownSecrets::default();
            known.add_lines(text);
            known
        };
        let secrets = Secrets::default();
        secrets.set_for_link(known("old-password"));
        secrets.set_for_link(known("new-password"));
        secrets.set_for_link(known("new-password"));
        secrets.set_credential("Bearer of-the-vault");
        secrets.set_credential("Bearer refreshed-token");
        let said = "old-password new-password of-the-vault refreshed-token";
        assert_eq!(secrets.mask(said), "************ ************ ************ ***************");
    }
}
