//! Tokens that an authorization server gives: taken from the vault, replaced once for all who share it, and kept there.

use super::oauth::{Provider, Trouble};
use super::record::Record;
use super::vault::{Kept, Stamp, Vault};
use super::{Asked, Credential, LEASED_WITHIN, Refused, Source, Unsaved, held, unavailable};
use crate::transport::Renewed;
use gripfast_core::credential::{adopts, scopes};
use gripfast_core::failure::Observed;
use gripfast_core::text;
use std::time::Duration;

impl Credential {
    /// Puts another token in the place of what is held. To be called by whoever has the flight.
    pub(super) async fn replace_token(
        &self,
        asked_of: &Asked,
        vault: &Vault,
        refused: Option<Refused>,
    ) -> Result<Renewed, Observed> {
        let provider = Provider::of(asked_of).await.map_err(Observed::BadConfig)?;
        let _lease = match vault.lease(LEASED_WITHIN).await {
            Ok(lease) => Some(lease),
            // Its tokens cost no other process theirs.
            Err(_) if provider.by_itself() => None,
            Err(error) => {
                return Err(unavailable(&format!("the stored login cannot be locked: {error}")));
            }
        };
        let (kept, stamp) = self.load(vault).await;
        self.state().seen = Some(stamp.clone());
        let (stored, unread) = match kept {
            Kept::Nothing => (None, Trouble::NeedsPerson("nobody has logged in".to_owned())),
            Kept::Lost(why) => (None, Trouble::NeedsPerson(why)),
            Kept::Away(why) => (None, Trouble::Passing(why)),
            Kept::Login(record) | Kept::Unsealed(record) => {
                let theirs = "the stored login is for another address".to_owned();
                (Some(record).filter(|record| provider.owns(record)), Trouble::NeedsPerson(theirs))
            }
        };
        let (refused, challenge) = match refused {
            Some(Refused { shown, challenge }) => (shown, challenge),
            None => (self.state().held.as_ref().map(|held| held.shown.clone()), None),
        };
        let refused = refused.as_ref().and_then(|shown| shown.to_str().ok());
        if let Some(record) = &stored
            && let Some(token) = &record.access_token
            && adopts(&bearer(token), record.lifetime(), refused, self.clock.now().wall)
        {
            self.hold(record)?;
            return Ok(Renewed::Replaced);
        }
        let now = self.clock.now();
        let is_dead = stamp.is_some() && self.state().dead == stamp;
        let asks = provider.by_itself() || stored.is_some() && !is_dead;
        // What another process has renewed is adopted above; a server that has just failed is not asked again at once.
        let wait = self.state().retries.wait(now.mono).filter(|_| asks);
        if let Some(wait) = wait {
            let why = self.state().failed_over.clone();
            return Err(unavailable(&format!("{why}; it is asked again in {}", text::duration(wait))));
        }
        let outcome = match stored {
            _ if provider.by_itself() => {
                provider.client_credentials(stored.as_ref(), challenge, now.wall).await
            }
            None => Err(unread),
            Some(_) if is_dead => Err(Trouble::Rejected("the login has ended".to_owned())),
            Some(record) => provider.refresh(&record).await,
        };
        let (why, patience) = match &outcome {
            Err(Trouble::Passing(why)) => (Some(why), None),
            Err(Trouble::Later { why, wait }) => (Some(why), Some(*wait)),
            Ok(_) | Err(Trouble::NeedsPerson(_) | Trouble::Rejected(_) | Trouble::BadConfig(_)) => {
                (None, None)
            }
        };
        if asks {
            self.note_attempt(why, patience);
        }
        match outcome {
            Ok(mut record) => {
                record.received_at = self.clock.now().wall.since_epoch().as_secs();
                self.keep(vault, &record).await;
                self.hold(&record)?;
                Ok(Renewed::Replaced)
            }
            Err(Trouble::NeedsPerson(why)) => Ok(Renewed::NeedsPerson(Some(why))),
            Err(Trouble::Rejected(why)) => {
                self.state().dead = stamp;
                Ok(Renewed::Rejected(why))
            }
            Err(Trouble::BadConfig(observed)) => Err(observed),
            Err(Trouble::Passing(why) | Trouble::Later { why, .. }) => Err(unavailable(&why)),
        }
    }

    /// An authorization server was asked, and failed for this reason if there is one.
    fn note_attempt(&self, failed_over: Option<&String>, patience: Option<Duration>) {
        let mut state = self.state();
        match failed_over {
            Some(why) => {
                state.retries.failed(self.clock.mono(), patience);
                state.failed_over.clone_from(why);
            }
            None => state.retries.succeeded(),
        }
    }

    /// What the vault holds, or would if it could be written: then it is tried again. To be called by whoever has the
    /// lease.
    async fn load(&self, vault: &Vault) -> (Kept, Option<Stamp>) {
        let (kept, stamp) = vault.load().await;
        let Some(unsaved) = self.unsaved_over(stamp.as_ref()) else { return (kept, stamp) };
        let stamp = self.keep(vault, &unsaved).await;
        (Kept::Login(unsaved), stamp)
    }

    /// The login that could not be written, unless somebody else has written since.
    fn unsaved_over(&self, stamp: Option<&Stamp>) -> Option<Record> {
        let mut state = self.state();
        state.unsaved.take_if(|unsaved| unsaved.over.as_ref() != stamp);
        state.unsaved.as_ref().map(|unsaved| unsaved.record.clone())
    }

    /// Writes a login to the vault. One that cannot be written stays with this process: its refresh token may be the only
    /// one that is good.
    async fn keep(&self, vault: &Vault, record: &Record) -> Option<Stamp> {
        let saved = vault.save(record).await;
        if let Err(error) = &saved {
            tracing::warn!(%error, "a login cannot be written; this process goes on with it, and tries again");
        }
        let stamp = vault.stamp().await;
        let mut state = self.state();
        state.seen = Some(stamp.clone());
        state.unsaved = saved.is_err().then(|| Unsaved { record: record.clone(), over: stamp.clone() });
        stamp
    }

    /// Takes what the vault holds.
    pub(super) async fn read(&self, asked_of: &Asked, vault: &Vault) {
        let (mut kept, mut stamp) = vault.load().await;
        if let Kept::Unsealed(_) = kept {
            if let Err(error) = vault.seal(LEASED_WITHIN).await {
                tracing::warn!(%error, "a login of an older version stays unsealed");
            }
            (kept, stamp) = vault.load().await;
        }
        let Ok(provider) = Provider::of(asked_of).await else { return };
        // It is looked at again when it can be opened, and what nobody can open any more takes nothing away that is held.
        if matches!(kept, Kept::Away(_) | Kept::Lost(_)) || self.unsaved_over(stamp.as_ref()).is_some() {
            return self.hold_on(&provider);
        }
        let changed = self.state().seen.as_ref() != Some(&stamp);
        self.state().seen = Some(stamp);
        // Its key may have come back since.
        let missing = self.state().held.is_none();
        match kept.login().filter(|record| provider.owns(record)) {
            Some(record) if changed || missing => {
                // A token that no header can carry is no token.
                let _ = self.hold(&record);
            }
            Some(_) => {}
            None => self.state().held = None,
        }
    }

    /// Stays with what is held, which is newer than what the vault has or all that is to be had, if it is for this
    /// address.
    fn hold_on(&self, provider: &Provider<'_>) {
        let mut state = self.state();
        if !state.resource.as_deref().is_some_and(|resource| provider.is_at(resource)) {
            state.held = None;
        }
    }

    fn hold(&self, record: &Record) -> Result<(), Observed> {
        let mut state = self.state();
        state.resource = Some(record.resource.clone());
        state.held = match &record.access_token {
            Some(token) => Some(held(&bearer(token), record.lifetime())?),
            None => None,
        };
        Ok(())
    }

    /// Takes a login that was made since, or gives up one that somebody has logged out of.
    pub(super) async fn notice_change(&self) {
        let looked = self.clock.mono();
        self.state().looked = Some(looked);
        let Source::Token { asked_of, vault } = &self.source else { return };
        let now = vault.stamp().await;
        if self.state().seen.as_ref() != Some(&now) {
            self.read(asked_of, vault).await;
            self.state().too_narrow = false;
        }
    }

    /// The next login is to ask for these too.
    pub(super) async fn note_wanted(&self, vault: &Vault, wanted: Vec<String>) {
        self.state().too_narrow = true;
        // Where nothing can be written there is no lease, and a renewal under way must not be overwritten.
        let _flight = self.flight.lock().await;
        let Ok(_lease) = vault.lease(LEASED_WITHIN).await else { return };
        let Some(mut record) = self.load(vault).await.0.login() else { return };
        let all = scopes::bounded(record.wanted.iter().chain(&wanted).map(String::as_str));
        if all == record.wanted {
            return;
        }
        record.wanted = all;
        self.keep(vault, &record).await;
    }
}

fn bearer(token: &str) -> String {
    format!("Bearer {token}")
}
