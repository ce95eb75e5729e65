//! Tokens of an authorization server: read from the vault, replaced once for all processes that share it, and stored
//! there.

use super::lease::RefreshLease;
use super::oauth::{Provider, TokenError};
use super::record::Record;
use super::vault::{ContentStamp, StoredLogin, Vault, version_of};
use super::{Credential, LEASE_TIMEOUT, Refused, Source, TokenServer, Unsaved, new_held, unavailable};
use crate::transport::RenewOutcome;
use gripfast_core::credential::{can_use_stored, scopes};
use gripfast_core::failure::Observed;
use gripfast_core::text;
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// Interval between attempts to write a login. Where hosts share their state, it is shorter than the time between the
/// first possible write after an outage and the first possible renewal by another host.
const SAVE_INTERVAL: Duration = Duration::from_millis(500);

impl Credential {
    /// Replaces the held token. The caller holds the renewal lock.
    pub(super) async fn replace_token(
        &self,
        token_server: &TokenServer,
        vault: &Vault,
        refused: Option<Refused>,
    ) -> Result<RenewOutcome, Observed> {
        let provider = Provider::new(token_server).await.map_err(Observed::BadConfig)?;
        let lease = match vault.lease(LEASE_TIMEOUT).await {
            Ok(lease) => Some(lease),
            // A token of this grant does not invalidate the tokens of other processes.
            Err(_) if provider.uses_client_credentials() => None,
            Err(error) => {
                return Err(unavailable(&format!("the stored login cannot be renewed: {error}")));
            }
        };
        let (kept, stamp) = self.load(vault).await;
        self.state.lock().last_stamp = Some(stamp.clone());
        let (stored, unread) = match kept {
            StoredLogin::Absent => (None, TokenError::NeedsPerson("not logged in".to_owned())),
            StoredLogin::Lost(why) => (None, TokenError::NeedsPerson(why)),
            StoredLogin::Unavailable(why) => (None, TokenError::Transient(why)),
            StoredLogin::Login(record) | StoredLogin::Unsealed(record) => {
                let other_url = "the stored login is for another address".to_owned();
                (
                    Some(record).filter(|record| provider.matches_record(record)),
                    TokenError::NeedsPerson(other_url),
                )
            }
        };
        let (refused, challenge) = match refused {
            Some(Refused { header: shown, challenge }) => (shown, challenge),
            None => (self.state.lock().held.as_ref().map(|held| held.header.clone()), None),
        };
        let refused = refused.as_ref().and_then(|shown| shown.to_str().ok());
        if let Some(record) = &stored
            && let Some(token) = &record.access_token
            && can_use_stored(&bearer(token), record.lifetime(), refused, self.clock.now().wall)
        {
            self.adopt(record)?;
            return Ok(RenewOutcome::Replaced);
        }
        let now = self.clock.now();
        let is_dead = stamp.is_some() && self.state.lock().rejected_stamp == stamp;
        let asks = provider.uses_client_credentials() || stored.is_some() && !is_dead;
        // A token that another process has renewed was adopted above; a server that has just failed is not asked again
        // at once.
        let wait = self.state.lock().retries.wait(now.mono).filter(|_| asks);
        if let Some(wait) = wait {
            let why = self.state.lock().last_failure.clone();
            return Err(unavailable(&format!("{why}; next attempt in {}", text::duration(wait))));
        }
        let outcome = match stored {
            _ if provider.uses_client_credentials() => {
                provider.client_credentials(stored.as_ref(), challenge, now.wall).await
            }
            None => Err(unread),
            Some(_) if is_dead => Err(TokenError::Rejected("the login has ended".to_owned())),
            Some(record) => match confirm(lease.as_ref(), stamp.as_ref()).await {
                Ok(()) => provider.refresh(&record).await,
                Err(why) => Err(TokenError::Transient(why)),
            },
        };
        let (why, patience) = match &outcome {
            Err(TokenError::Transient(why)) => (Some(why), None),
            Err(TokenError::RetryAfter { why, wait }) => (Some(why), Some(*wait)),
            Ok(_) | Err(TokenError::NeedsPerson(_) | TokenError::Rejected(_) | TokenError::BadConfig(_)) => {
                (None, None)
            }
        };
        if asks {
            self.record_attempt(why, patience);
        }
        match outcome {
            Ok(mut record) => {
                record.received_at = self.clock.now().wall.since_epoch().as_secs();
                self.save(vault, &record, stamp.as_ref()).await;
                let kept = self.present_record(vault, record).await;
                self.adopt(&kept)?;
                Ok(RenewOutcome::Replaced)
            }
            Err(TokenError::NeedsPerson(why)) => Ok(RenewOutcome::NeedsPerson(Some(why))),
            Err(TokenError::Rejected(why)) => {
                self.state.lock().rejected_stamp = stamp;
                Ok(RenewOutcome::Rejected(why))
            }
            Err(TokenError::BadConfig(observed)) => Err(observed),
            Err(TokenError::Transient(why) | TokenError::RetryAfter { why, .. }) => Err(unavailable(&why)),
        }
    }

    /// Records an attempt at an authorization server, with the reason if it failed.
    fn record_attempt(&self, failed_over: Option<&String>, patience: Option<Duration>) {
        let mut state = self.state.lock();
        match failed_over {
            Some(why) => {
                state.retries.failed(self.clock.mono(), patience);
                state.last_failure.clone_from(why);
            }
            None => state.retries.succeeded(),
        }
    }

    /// Loads the login from the vault. An unsaved login takes precedence, and is written again. The caller holds the
    /// lease.
    async fn load(&self, vault: &Vault) -> (StoredLogin, Option<ContentStamp>) {
        let (kept, stamp) = vault.load().await;
        let Some(unsaved) = self.unsaved_record(stamp.as_ref()) else { return (kept, stamp) };
        let stamp = self.save(vault, &unsaved, stamp.as_ref()).await;
        (StoredLogin::Login(unsaved), stamp)
    }

    /// Returns the login that could not be written, unless the vault was written since.
    fn unsaved_record(&self, stamp: Option<&ContentStamp>) -> Option<Record> {
        let mut state = self.state.lock();
        state.unsaved.take_if(|unsaved| unsaved.base_stamp.as_ref() != stamp);
        state.unsaved.as_ref().map(|unsaved| unsaved.record.clone())
    }

    /// Writes a login to the vault. One that cannot be written stays with this process: its refresh token may be the
    /// only valid one.
    async fn save(
        &self,
        vault: &Vault,
        record: &Record,
        read: Option<&ContentStamp>,
    ) -> Option<ContentStamp> {
        let saved = self.try_save(vault, record, read).await;
        let stamp = vault.stamp().await;
        let mut state = self.state.lock();
        state.last_stamp = Some(stamp.clone());
        state.unsaved = match saved {
            Ok(()) => None,
            Err(error) => {
                tracing::warn!(%error, "cannot save a login; this process keeps it and will try again");
                Some(Unsaved { record: record.clone(), base_stamp: stamp.clone() })
            }
        };
        stamp
    }

    /// Writes a login to the vault, unless another host was faster.
    async fn try_save(&self, vault: &Vault, record: &Record, read: Option<&ContentStamp>) -> io::Result<()> {
        match vault.save(record, read).await {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                tracing::warn!("another replica has replaced a login at the same time; its login is used");
                Ok(())
            }
            saved => saved,
        }
    }

    /// Writes an unsaved login as soon as the vault can be written. Until then other processes have only a refresh token
    /// that is spent.
    pub(super) fn spawn_save(self: &Arc<Self>) {
        {
            let mut state = self.state.lock();
            if state.unsaved.is_none() || std::mem::replace(&mut state.is_saving, true) {
                return;
            }
        }
        let credential = Arc::downgrade(self);
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(SAVE_INTERVAL).await;
                let Some(credential) = credential.upgrade() else { return };
                credential.save_again().await;
                let mut state = credential.state.lock();
                if state.unsaved.is_none() {
                    state.is_saving = false;
                    return;
                }
            }
        });
    }

    async fn save_again(&self) {
        let Source::Token { vault, .. } = &self.source else { return };
        let _flight = self.renewal_lock.lock().await;
        // Without the lease another process could write between the two steps.
        let Ok(_lease) = vault.lease_to_save(LEASE_TIMEOUT).await else { return };
        let stamp = vault.stamp().await;
        let Some(record) = self.unsaved_record(stamp.as_ref()) else { return };
        if self.try_save(vault, &record, stamp.as_ref()).await.is_ok() {
            tracing::info!("a login that could not be saved is saved now");
            let stamp = vault.stamp().await;
            let mut state = self.state.lock();
            state.last_stamp = Some(stamp);
            state.unsaved = None;
        }
    }

    /// The login to use after `new` was saved: another one if another host has stored it at the same time.
    async fn present_record(&self, vault: &Vault, new: Record) -> Record {
        if self.state.lock().unsaved.is_some() {
            return new;
        }
        vault.load().await.0.login().unwrap_or(new)
    }

    /// Adopts the login in the vault.
    pub(super) async fn read_vault(&self, token_server: &TokenServer, vault: &Vault) {
        let (mut kept, mut stamp) = vault.load().await;
        if let StoredLogin::Unsealed(_) = kept {
            if let Err(error) = vault.seal(LEASE_TIMEOUT).await {
                tracing::warn!(%error, "cannot encrypt a login of an older version");
            }
            (kept, stamp) = vault.load().await;
        }
        let Ok(provider) = Provider::new(token_server).await else { return };
        // A login that cannot be opened now is read again later, and one that is lost does not replace a held token.
        if matches!(kept, StoredLogin::Unavailable(_) | StoredLogin::Lost(_))
            || self.unsaved_record(stamp.as_ref()).is_some()
        {
            return self.keep_held(&provider);
        }
        let changed = self.state.lock().last_stamp.as_ref() != Some(&stamp);
        self.state.lock().last_stamp = Some(stamp);
        // The key may be available again.
        let missing = self.state.lock().held.is_none();
        match kept.login().filter(|record| provider.matches_record(record)) {
            Some(record) if changed || missing => {
                // A token that no header can carry is ignored.
                let _ = self.adopt(&record);
            }
            Some(_) => {}
            None => self.state.lock().held = None,
        }
    }

    /// Keeps the held token, which is newer than that of the vault or the only one, if it is for this URL.
    fn keep_held(&self, provider: &Provider<'_>) {
        let mut state = self.state.lock();
        if !state.resource.as_deref().is_some_and(|resource| provider.is_at(resource)) {
            state.held = None;
        }
    }

    fn adopt(&self, record: &Record) -> Result<(), Observed> {
        let mut state = self.state.lock();
        state.resource = Some(record.resource.clone());
        state.held = match &record.access_token {
            Some(token) => Some(new_held(&bearer(token), record.lifetime())?),
            None => None,
        };
        Ok(())
    }

    /// Adopts a login that was made since the last check, or drops one that was logged out.
    pub(super) async fn check_vault(&self) {
        let looked = self.clock.mono();
        self.state.lock().checked_at = Some(looked);
        let Source::Token { token_server, vault } = &self.source else { return };
        let now = vault.stamp().await;
        if self.state.lock().last_stamp.as_ref() != Some(&now) {
            self.read_vault(token_server, vault).await;
            self.state.lock().scopes_insufficient = false;
        }
    }

    /// Adds scopes for the next login to request.
    pub(super) async fn record_wanted_scopes(&self, vault: &Vault, wanted: Vec<String>) {
        self.state.lock().scopes_insufficient = true;
        // Without a writable directory there is no lease, and a renewal in progress must not be overwritten.
        let _flight = self.renewal_lock.lock().await;
        let Ok(_lease) = vault.lease(LEASE_TIMEOUT).await else { return };
        let Some(mut record) = self.load(vault).await.0.login() else { return };
        let all = scopes::bounded(record.wanted.iter().chain(&wanted).map(String::as_str));
        if all == record.wanted {
            return;
        }
        record.wanted = all;
        let stamp = vault.stamp().await;
        self.save(vault, &record, stamp.as_ref()).await;
    }
}

/// Confirms just before a refresh token is sent that this process still has the right to, and that it is the present one.
async fn confirm(lease: Option<&RefreshLease>, stamp: Option<&ContentStamp>) -> Result<(), String> {
    let Some(lease) = lease else { return Ok(()) };
    match lease.is_valid(version_of(stamp)).await {
        Ok(true) => Ok(()),
        Ok(false) => Err("another replica has replaced the login, or may do so now".to_owned()),
        Err(error) => Err(format!("the login is not renewed: {error}")),
    }
}

fn bearer(token: &str) -> String {
    format!("Bearer {token}")
}
