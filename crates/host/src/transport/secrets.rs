//! What was filled in for one server: known to be secret, whatever it looks like, and taken out of everything that the
//! server is shown to have said. It outlives the link that it was filled in for, as the server's words do.

use gripfast_core::failure::classify::classify_knowing;
use gripfast_core::failure::{Evidence, Failure};
use gripfast_core::redact::KnownSecrets;
use std::borrow::Cow;
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
    /// What the server has refused last; it may be newer than the link.
    refused: KnownSecrets,
    /// All of them.
    all: KnownSecrets,
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

    /// Takes the credential that the server has refused, which is when it may repeat it.
    pub fn refused(&self, credential: &str) {
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        known.refused = KnownSecrets::default();
        known.refused.learn_words(credential);
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

    /// A text without them; otherwise as it is. JSON stays JSON.
    pub fn mask(&self, text: &str) -> String {
        self.known().all.mask(text).into_owned()
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
        let texts = [&self.present, &self.former, &self.refused].into_iter().flat_map(KnownSecrets::iter);
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
        secrets.refused("Bearer of-the-vault");
        let said = "old-password new-password of-the-vault";
        assert_eq!(secrets.mask(said), "************ ************ ************");
    }
}
