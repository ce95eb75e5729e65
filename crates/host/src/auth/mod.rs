//! What servers are shown as proof of who we are, and how it is renewed.
//!
//! `Credential` belongs to one configured server and is shared by all its links: each request asks it what to show, and
//! tells it when a server has refused that. There are two kinds: an `Authorization` header of the config, and a token
//! that an authorization server gave ([`Login`], `oauth`). Tokens are kept in a `vault` that several processes share.
//!
//! Nothing here opens a browser or asks anybody. What only a person can mend is said, and waited for.

mod assertion;
mod device;
mod http;
pub(crate) mod issuer;
mod key;
mod keyring;
mod lease;
mod login;
mod oauth;
mod own;
mod record;
mod token;
mod token_answer;
mod vault;

pub use device::DeviceLogin;
pub use lease::{Lease, Leases};
pub use login::{LoggedOut, Login, LoginError, logout, state_of};
pub use vault::Logins;

use crate::clock::Clock;
use crate::config::{OAuthSpec, Target, Template, TlsSpec};
use crate::transport::{BoxFuture, Renewed, expand};
use ::http::HeaderValue;
use gripfast_core::credential::{Due, Lifetime, Retries};
use gripfast_core::failure::Observed;
use gripfast_core::time::Mono;
use record::Record;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::OwnedMutexGuard;
use tokio_util::task::TaskTracker;
use vault::{Stamp, Vault};

/// The credential of one server.
pub(crate) struct Credential {
    source: Source,
    clock: Clock,
    state: Mutex<State>,
    /// One renewal at a time, however many links ask for it.
    flight: Arc<tokio::sync::Mutex<()>>,
    /// The renewals of all credentials that are under way.
    under_way: TaskTracker,
}

/// The right to renew, which goes along with the renewal.
type Flight = OwnedMutexGuard<()>;

enum Source {
    /// The `Authorization` header of the config, filled in anew whenever it might have changed.
    Header(Template),
    /// An authorization server.
    Token { asked_of: Box<Asked>, vault: Vault },
}

/// The server whose tokens these are, as the config has it.
#[derive(Clone)]
pub(crate) struct Asked {
    pub(crate) url: Template,
    pub(crate) tls: TlsSpec,
    pub(crate) oauth: OAuthSpec,
}

#[derive(Default)]
struct State {
    /// What requests show.
    held: Option<Held>,
    /// What the vault looked like when it was last read; `None` before that.
    seen: Option<Option<Stamp>>,
    /// Whom it is for.
    resource: Option<String>,
    /// A login that could not be written to the vault: only this process has it.
    unsaved: Option<Unsaved>,
    /// What a server has refused last.
    refused: Option<Refused>,
    /// What the vault looked like when its refresh token was refused for good.
    dead: Option<Stamp>,
    /// A server has asked for more than what is held allows: somebody may log in anew while it is in use.
    too_narrow: bool,
    /// When an authorization server that has failed is asked again, and what it said.
    retries: Retries,
    failed_over: String,
    /// When the vault was last looked at for a login or a logout elsewhere.
    looked: Option<Mono>,
    /// Until then nothing is done ahead of time: it has failed a moment ago.
    pause: Option<Mono>,
}

struct Held {
    shown: HeaderValue,
    lifetime: Lifetime,
}

struct Unsaved {
    record: Record,
    /// What the vault looked like then. Who has written since knows better: a login, a logout, another process.
    over: Option<Stamp>,
}

#[derive(Clone)]
struct Refused {
    /// What was shown, if anything.
    shown: Option<HeaderValue>,
    challenge: Option<String>,
}

/// How long another process may take over its own renewal.
const LEASED_WITHIN: Duration = Duration::from_secs(20);
/// How soon a renewal ahead of time is tried again. The time ahead is a minute at the most.
const AHEAD_AGAIN: Duration = Duration::from_secs(5);
/// How often a login that is used is looked for: somebody may have logged out, or in again.
const LOOK_WHILE_USED_EVERY: Duration = Duration::from_secs(1);
/// How often a login that was made elsewhere is looked for.
const LOOK_EVERY: Duration = Duration::from_millis(500);

impl Credential {
    /// The credential of the server `name`. Servers on pipes have none.
    pub(crate) fn of(
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
                let asked_of = Asked { url: url.clone(), tls: tls.clone(), oauth };
                Source::Token { vault: Vault::of(logins, name, url.source()), asked_of: Box::new(asked_of) }
            }
        };
        let under_way = logins.under_way.clone();
        Some(Self { source, clock, state: Mutex::default(), flight: Arc::default(), under_way })
    }

    /// A link is about to be made: what the config refers to may have changed.
    pub(crate) async fn look_again(&self) -> Result<(), Observed> {
        match &self.source {
            Source::Header(value) => {
                let held = held(expand(value).await?.trim(), Lifetime::default())?;
                self.state().held = Some(held);
            }
            Source::Token { asked_of, vault } => self.read(asked_of, vault).await,
        }
        Ok(())
    }

    /// What a request shows now.
    pub(crate) fn shown(&self) -> Option<HeaderValue> {
        self.state().held.as_ref().map(|held| held.shown.clone())
    }

    /// Whether it is to be freshened before a request shows it.
    pub(crate) fn is_due(&self) -> bool {
        let state = self.state();
        let now = self.clock.now();
        let is_due = |held: &Held| {
            held.lifetime.due(now.wall) != Due::NotYet
                || state.looked.is_none_or(|at| now.mono - at >= LOOK_WHILE_USED_EVERY)
        };
        state.too_narrow || state.held.as_ref().is_some_and(is_due)
    }

    /// Replaces a token that has ended, or that allows too little, and begins to replace one that is about to end.
    pub(crate) async fn freshen(self: &Arc<Self>) -> Result<(), Observed> {
        self.notice_change().await;
        let due = self.state().held.as_ref().map(|held| held.lifetime.due(self.clock.now().wall));
        match (due, &self.source) {
            (Some(Due::Soon), Source::Token { .. }) => self.replace_ahead(),
            (Some(Due::Over), Source::Token { .. }) => {
                let flight = Arc::clone(&self.flight).lock_owned().await;
                let over = |held: &Held| held.lifetime.due(self.clock.now().wall) == Due::Over;
                let still = self.state().held.as_ref().is_some_and(over);
                if still
                    && let Renewed::NeedsPerson(_) | Renewed::Rejected(_) =
                        self.replaced(flight, None).await?
                {
                    // The server will say what it thinks of a request without it.
                    self.state().held = None;
                }
            }
            (Some(Due::NotYet | Due::Soon | Due::Over) | None, _) => {}
        }
        Ok(())
    }

    /// Begins to replace what is good for a while: nobody waits for it, however slow an authorization server is.
    fn replace_ahead(self: &Arc<Self>) {
        let now = self.clock.mono();
        if self.state().pause.is_some_and(|until| now < until) {
            return;
        }
        let Ok(flight) = Arc::clone(&self.flight).try_lock_owned() else { return };
        // For the case that it fails: what succeeds is not due again.
        self.state().pause = Some(now + AHEAD_AGAIN);
        drop(self.replaced(flight, None));
    }

    /// A server refused a request that showed this.
    pub(crate) async fn refused(&self, shown: Option<&HeaderValue>, status: u16, challenge: Option<String>) {
        match status {
            401 => self.state().refused = Some(Refused { shown: shown.cloned(), challenge }),
            403 => {
                if let (Source::Token { vault, asked_of }, Some(challenge)) = (&self.source, challenge)
                    && let Some(wanted) = oauth::wanted_scopes(&challenge, asked_of).await
                {
                    self.note_wanted(vault, wanted).await;
                }
            }
            _ => {}
        }
    }

    /// Puts another credential in the place of one that was refused, once for all who ask. What another link or another
    /// process has replaced meanwhile is adopted.
    pub(crate) async fn renew(self: &Arc<Self>) -> Result<Renewed, Observed> {
        let refused = self.state().refused.clone();
        let flight = Arc::clone(&self.flight).lock_owned().await;
        if let Some(refused) = &refused {
            let state = self.state();
            // Another link, or the approach of its end, has had it replaced already.
            if state.held.as_ref().is_some_and(|held| Some(&held.shown) != refused.shown.as_ref()) {
                return Ok(Renewed::Replaced);
            }
        }
        self.replaced(flight, refused).await
    }

    /// Ends when somebody has logged in, or out, since the vault was last read before this began. All who wait find
    /// out, whoever is first to read it again.
    pub(crate) async fn changed_elsewhere(&self) {
        let Source::Token { vault, .. } = &self.source else { return std::future::pending().await };
        let seen = self.state().seen.clone();
        let seen = match seen {
            Some(seen) => seen,
            None => vault.stamp().await,
        };
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            if vault.stamp().await != seen {
                return;
            }
        }
    }

    /// Has what is held replaced, whether or not the one who asks for it stays: once a refresh token is on its way it
    /// is spent, and only the answer has the next one. Every request on that way has a limit, so it ends by itself.
    fn replaced(
        self: &Arc<Self>,
        flight: Flight,
        refused: Option<Refused>,
    ) -> BoxFuture<'static, Result<Renewed, Observed>> {
        let credential = Arc::clone(self);
        let replacing = self.under_way.spawn(async move {
            let replaced = credential.replace(refused).await;
            drop(flight);
            replaced
        });
        let cut_short = |_| Err(unavailable("the renewal of the login was cut short"));
        Box::pin(async move { replacing.await.unwrap_or_else(cut_short) })
    }

    /// Replaces what is held. To be called by whoever has the flight.
    async fn replace(&self, refused: Option<Refused>) -> Result<Renewed, Observed> {
        match &self.source {
            Source::Header(value) => {
                let fresh = held(expand(value).await?.trim(), Lifetime::default())?;
                let mut state = self.state();
                if state.held.as_ref().is_some_and(|held| held.shown == fresh.shown) {
                    return Ok(Renewed::NeedsPerson(None));
                }
                state.held = Some(fresh);
                Ok(Renewed::Replaced)
            }
            Source::Token { asked_of, vault } => self.replace_token(asked_of, vault, refused).await,
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn held(shown: &str, lifetime: Lifetime) -> Result<Held, Observed> {
    let mut shown = HeaderValue::from_str(shown).map_err(|_| {
        Observed::BadConfig("the credential holds characters that a header cannot carry".to_owned())
    })?;
    shown.set_sensitive(true);
    Ok(Held { shown, lifetime })
}

fn unavailable(why: &str) -> Observed {
    Observed::NoToken(why.to_owned())
}
