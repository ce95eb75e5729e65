//! What was filled in for one server: known to be secret, whatever it looks like, and taken out of everything that the
//! server is shown to have said. It outlives the link that it was filled in for, as the server's words do.

use gripfast_core::failure::classify::classify_knowing;
use gripfast_core::failure::{Evidence, Failure};
use gripfast_core::redact::KnownSecrets;
use std::borrow::Cow;
use std::fmt;
use std::sync::{PoisonError, RwLock, RwLockReadGuard};

/// The secrets of one upstream.
#[derive(Debug, Default)]
pub struct Secrets {
    known: RwLock<Known>,
}

#[derive(Debug, Default)]
struct Known {
    /// What the present link was made with.
    present: KnownSecrets,
    /// What the one before was made with: a child that ends may still repeat it.
    former: KnownSecrets,
    /// The credential that the server is shown, and the one before it. They change while a link lasts.
    shown: Shown,
    shown_before: Shown,
    /// All of them.
    all: KnownSecrets,
}

#[derive(Default)]
struct Shown {
    credential: String,
    known: KnownSecrets,
}

impl fmt::Debug for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.known.fmt(f)
    }
}

impl Secrets {
    /// Takes what was filled in for a link that is being made.
    pub fn filled_in(&self, secrets: KnownSecrets) {
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        if known.present != secrets {
            known.former = std::mem::replace(&mut known.present, secrets);
            known.gather();
        }
    }

    /// Takes the credential that the server is about to be shown, which it may repeat from then on.
    pub fn shown(&self, credential: &str) {
        if self.known().shown.credential == credential {
            return;
        }
        let mut shown = Shown { credential: credential.to_owned(), known: KnownSecrets::default() };
        shown.known.learn_words(credential);
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        known.shown_before = std::mem::replace(&mut known.shown, shown);
        known.gather();
    }

    /// A text of the server, without them and without whatever else looks like a secret.
    pub fn text(&self, text: &str) -> String {
        self.known().all.text(text).into_owned()
    }

    /// A name that the server or a client gave, without them.
    pub fn name(&self, name: &str) -> String {
        self.known().all.name(name).into_owned()
    }

    /// A text without them; otherwise as it is.
    pub fn mask(&self, text: &str) -> String {
        self.known().all.mask(text).into_owned()
    }

    /// A JSON document without them.
    pub fn mask_json(&self, value: &mut serde_json::Value) {
        self.known().all.mask_json(value);
    }

    /// Whether a text holds one of them.
    pub fn is_in(&self, text: &str) -> bool {
        matches!(self.known().all.mask(text), Cow::Owned(_))
    }

    /// What `evidence` means, in words without them.
    pub fn classify(&self, evidence: &Evidence) -> Failure {
        classify_knowing(evidence, &self.known().all)
    }

    fn known(&self) -> RwLockReadGuard<'_, Known> {
        self.known.read().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Known {
    fn gather(&mut self) {
        let texts = [&self.present, &self.former, &self.shown.known, &self.shown_before.known]
            .into_iter()
            .flat_map(KnownSecrets::iter);
        self.all = texts.collect();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_filled_in_for_the_link_before_is_still_known() {
        let known = |text: &str| {
            let mut known = KnownSecrets::default();
            known.learn(text);
            known
        };
        let secrets = Secrets::default();
        secrets.filled_in(known("old-password"));
        secrets.filled_in(known("new-password"));
        secrets.filled_in(known("new-password"));
        secrets.shown("Bearer of-the-vault");
        secrets.shown("Bearer refreshed-token");
        let said = "old-password new-password of-the-vault refreshed-token";
        assert_eq!(secrets.mask(said), "************ ************ ************ ***************");
    }
}
