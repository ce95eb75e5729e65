//! Credentials for servers, and their renewal.
//!
//! `Credential` belongs to one configured server and is shared by all its links: each request gets its header from it,
//! and reports when a server has refused that. There are two kinds: an `Authorization` header of the config, and a
//! token of an authorization server ([`Login`], `oauth`). Tokens are stored in a `vault` that several processes share.
//!
//! Nothing here opens a browser or prompts a person. A credential that needs a person is reported, and waited for.

mod assertion;
mod client_credentials;
mod device;
mod http;
pub(crate) mod issuer;
mod keyring;
mod lease;
mod login;
mod oauth;
mod record;
mod sealing_key;
mod token;
mod token_response;
mod vault;

pub use device::DeviceLogin;
pub use lease::{Leases, RefreshLease};
pub use login::{Login, LoginError, LogoutOutcome, logout, state_parameter};
pub use vault::Logins;

use crate::clock::Clock;
use crate::config::{OAuthSpec, Target, Template, TlsSpec};
use crate::sync::Mutex;
use crate::transport::{BoxFuture, RenewOutcome, expand};
use ::http::HeaderValue;
use gripfast_core::credential::{Due, Lifetime, Retries};
use gripfast_core::failure::Observed;
use gripfast_core::time::Mono;
use record::Record;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::OwnedMutexGuard;
use tokio_util::task::TaskTracker;
use vault::{ContentStamp, Vault};

/// Credential of one server.
pub(crate) struct Credential {
    source: Source,
    clock: Clock,
    state: Mutex<State>,
    /// Allows one renewal at a time, however many links ask for it.
    renewal_lock: Arc<tokio::sync::Mutex<()>>,
    /// Renewals of all credentials that are in progress.
    renewals: TaskTracker,
}

/// Right to renew, held until the renewal has ended.
type RenewalGuard = OwnedMutexGuard<()>;

enum Source {
    /// The `Authorization` header of the config, expanded again whenever it might have changed.
    Header(Template),
    /// Token of an authorization server.
    Token { token_server: Box<TokenServer>, vault: Vault },
}

/// Server that the tokens are for, as configured.
#[derive(Clone)]
pub(crate) struct TokenServer {
    pub(crate) url: Template,
    pub(crate) tls: TlsSpec,
    pub(crate) oauth: OAuthSpec,
}

#[derive(Default)]
struct State {
    /// Credential that requests carry.
    held: Option<Held>,
    /// Stamp of the vault when it was last read; `None` before that.
    last_stamp: Option<Option<ContentStamp>>,
    /// URL that the held token is for.
    resource: Option<String>,
    /// A login that could not be written to the vault: only this process has it.
    unsaved: Option<Unsaved>,
    /// A task tries to write it.
    is_saving: bool,
    /// Credential that a server has refused last.
    refused: Option<Refused>,
    /// Stamp of the vault when its refresh token was rejected for good.
    rejected_stamp: Option<ContentStamp>,
    /// A server has asked for more scopes than the held token has: a person may log in again while it is in use.
    scopes_insufficient: bool,
    /// Retries of an authorization server that has failed, and its last failure.
    retries: Retries,
    last_failure: String,
    /// Time of the last check of the vault for a login or a logout elsewhere.
    checked_at: Option<Mono>,
    /// No early renewal is started before this time, because the last one failed.
    no_early_renewal_before: Option<Mono>,
}

struct Held {
    header: HeaderValue,
    lifetime: Lifetime,
}

struct Unsaved {
    record: Record,
    /// Stamp of the vault at that time. A later write is newer: a login, a logout, or another process.
    base_stamp: Option<ContentStamp>,
}

#[derive(Clone)]
struct Refused {
    /// Header that was sent, if any.
    header: Option<HeaderValue>,
    challenge: Option<String>,
}

/// Time limit for the renewal of another process.
const LEASE_TIMEOUT: Duration = Duration::from_secs(20);
/// Interval between attempts of an early renewal, which begins a minute ahead at the most.
const EARLY_RETRY: Duration = Duration::from_secs(5);
/// Interval between checks of a login in use: it may have been removed or replaced.
const CHECK_INTERVAL_IN_USE: Duration = Duration::from_secs(1);
/// Interval between checks for a login that is made elsewhere.
const CHECK_INTERVAL: Duration = Duration::from_millis(500);

impl Credential {
    /// Creates the credential of the server `name`. Stdio servers have none.
    pub(crate) fn from_config(
        name: &str,
        target: &Target,
        oauth: Option<&OAuthSpec>,
        logins: &Logins,
        clock: Clock,
    ) -> Option<Self> {
        let Target::Url { url, headers, tls, .. } = target else { return None };
        let configured = headers.iter().find(|(name, _)| name.eq_ignore_ascii_case("authorization"));
        let source = match configured {
            Some((_, value)) => Source::Header(value.clone()),
            None => {
                let oauth = oauth.cloned().unwrap_or_default();
                let token_server = TokenServer { url: url.clone(), tls: tls.clone(), oauth };
                Source::Token {
                    vault: Vault::new(logins, name, url.source()),
                    token_server: Box::new(token_server),
                }
            }
        };
        let under_way = logins.renewals.clone();
        Some(Self {
            source,
            clock,
            state: Mutex::default(),
            renewal_lock: Arc::default(),
            renewals: under_way,
        })
    }

    /// Reloads the credential before a link is opened: values that the config refers to may have changed.
    pub(crate) async fn reload(&self) -> Result<(), Observed> {
        match &self.source {
            Source::Header(value) => {
                let held = new_held(expand(value).await?.trim(), Lifetime::default())?;
                self.state.lock().held = Some(held);
            }
            Source::Token { token_server, vault } => self.read_vault(token_server, vault).await,
        }
        Ok(())
    }

    /// Returns the header for a request.
    pub(crate) fn header(&self) -> Option<HeaderValue> {
        self.state.lock().held.as_ref().map(|held| held.header.clone())
    }

    /// Returns whether [`Self::refresh_if_due`] has to run before a request.
    pub(crate) fn is_due(&self) -> bool {
        let state = self.state.lock();
        let is_due = |held: &Held| {
            let now = self.clock.now();
            held.lifetime.due(now.wall) != Due::NotYet
                || state.checked_at.is_none_or(|at| now.mono - at >= CHECK_INTERVAL_IN_USE)
        };
        state.scopes_insufficient || state.held.as_ref().is_some_and(is_due)
    }

    /// Replaces a token that has expired, or whose scopes are insufficient, and begins to replace one that is about to
    /// expire.
    pub(crate) async fn refresh_if_due(self: &Arc<Self>) -> Result<(), Observed> {
        self.check_vault().await;
        let due = self.state.lock().held.as_ref().map(|held| held.lifetime.due(self.clock.now().wall));
        match (due, &self.source) {
            (Some(Due::Soon), Source::Token { .. }) => self.start_early_renewal(),
            (Some(Due::Expired), Source::Token { .. }) => {
                let flight = Arc::clone(&self.renewal_lock).lock_owned().await;
                let over = |held: &Held| held.lifetime.due(self.clock.now().wall) == Due::Expired;
                let still = self.state.lock().held.as_ref().is_some_and(over);
                if still
                    && let RenewOutcome::NeedsPerson(_) | RenewOutcome::Rejected(_) =
                        self.spawn_replace(flight, None).await?
                {
                    // The server decides about a request without a credential.
                    self.state.lock().held = None;
                }
            }
            (Some(Due::NotYet | Due::Soon | Due::Expired) | None, _) => {}
        }
        Ok(())
    }

    /// Begins to replace a token that is still valid: no request waits for it, however slow an authorization server is.
    fn start_early_renewal(self: &Arc<Self>) {
        let now = self.clock.mono();
        if self.state.lock().no_early_renewal_before.is_some_and(|until| now < until) {
            return;
        }
        let Ok(flight) = Arc::clone(&self.renewal_lock).try_lock_owned() else { return };
        // In case it fails: after a success it is not due again.
        self.state.lock().no_early_renewal_before = Some(now + EARLY_RETRY);
        drop(self.spawn_replace(flight, None));
    }

    /// Notes that a server refused a request with this header.
    pub(crate) async fn on_refused(
        &self,
        shown: Option<&HeaderValue>,
        status: u16,
        challenge: Option<String>,
    ) {
        match status {
            401 => self.state.lock().refused = Some(Refused { header: shown.cloned(), challenge }),
            403 => {
                if let (Source::Token { vault, token_server }, Some(challenge)) = (&self.source, challenge)
                    && let Some(wanted) = oauth::wanted_scopes(&challenge, token_server).await
                {
                    self.record_wanted_scopes(vault, wanted).await;
                }
            }
            _ => {}
        }
    }

    /// Replaces a credential that was refused, once for all links that ask. One that another link or another process
    /// has replaced meanwhile is adopted.
    pub(crate) async fn renew(self: &Arc<Self>) -> Result<RenewOutcome, Observed> {
        let refused = self.state.lock().refused.clone();
        let flight = Arc::clone(&self.renewal_lock).lock_owned().await;
        if let Some(refused) = &refused {
            let state = self.state.lock();
            // Another link, or an early renewal, has replaced it already.
            if state.held.as_ref().is_some_and(|held| Some(&held.header) != refused.header.as_ref()) {
                return Ok(RenewOutcome::Replaced);
            }
        }
        self.spawn_replace(flight, refused).await
    }

    /// Completes when the vault has changed since it was last read before this call, by a login or a logout. All
    /// waiting callers notice, whichever reads it first.
    pub(crate) async fn wait_for_change(&self) {
        let Source::Token { vault, .. } = &self.source else { return std::future::pending().await };
        let seen = self.state.lock().last_stamp.clone();
        let seen = match seen {
            Some(seen) => seen,
            None => vault.stamp().await,
        };
        loop {
            tokio::time::sleep(CHECK_INTERVAL).await;
            if vault.stamp().await != seen {
                return;
            }
        }
    }

    /// Replaces the credential in a task that continues if the caller stops waiting: once a refresh token was sent it
    /// is spent, and only the answer has the next one. Every request of the task has a time limit, so it ends by
    /// itself.
    fn spawn_replace(
        self: &Arc<Self>,
        flight: RenewalGuard,
        refused: Option<Refused>,
    ) -> BoxFuture<'static, Result<RenewOutcome, Observed>> {
        let credential = Arc::clone(self);
        let replacing = self.renewals.spawn(async move {
            let replaced = credential.replace(refused).await;
            drop(flight);
            credential.spawn_save();
            replaced
        });
        let cut_short = |_| Err(unavailable("the renewal of the login was interrupted"));
        Box::pin(async move { replacing.await.unwrap_or_else(cut_short) })
    }

    /// Replaces the credential. The caller holds the renewal lock.
    async fn replace(&self, refused: Option<Refused>) -> Result<RenewOutcome, Observed> {
        match &self.source {
            Source::Header(value) => {
                let fresh = new_held(expand(value).await?.trim(), Lifetime::default())?;
                let mut state = self.state.lock();
                if state.held.as_ref().is_some_and(|held| held.header == fresh.header) {
                    return Ok(RenewOutcome::NeedsPerson(None));
                }
                state.held = Some(fresh);
                Ok(RenewOutcome::Replaced)
            }
            Source::Token { token_server, vault } => self.replace_token(token_server, vault, refused).await,
        }
    }
}

fn new_held(shown: &str, lifetime: Lifetime) -> Result<Held, Observed> {
    let mut shown = HeaderValue::from_str(shown).map_err(|_| {
        Observed::BadConfig("the credential contains characters that are not allowed in a header".to_owned())
    })?;
    shown.set_sensitive(true);
    Ok(Held { header: shown, lifetime })
}

fn unavailable(why: &str) -> Observed {
    Observed::NoToken(why.to_owned())
}
