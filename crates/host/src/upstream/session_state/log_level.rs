//! The log level of a legacy session. There it is one for everybody: the mildest that any caller asked for, told to
//! the server before the first call that wants it, and again in each new session. What others did not ask for is
//! kept from them by whoever listens.

use super::{Live, Upstream};
use gripfast_core::failure::{During, Observed};
use gripfast_core::time::Mono;
use gripfast_wire::Era;
use gripfast_wire::envelope::Message;
use gripfast_wire::log::{self, LogLevel};
use gripfast_wire::patch::Patch;
use std::sync::atomic::{AtomicU8, Ordering};

/// What the server of one session was asked for: one more than the place of the level among all, as a severity
/// falls; zero while it was asked for nothing.
#[derive(Debug, Default)]
pub(super) struct SessionLevel(AtomicU8);

impl SessionLevel {
    /// Claims that the server is asked for `level`. `None` if it has been asked for that or more already;
    /// otherwise what it was asked for before.
    pub(super) fn claim(&self, level: LogLevel) -> Option<Claim<'_>> {
        let wanted = mildness(level);
        let before = self.0.fetch_max(wanted, Ordering::AcqRel);
        (before < wanted).then_some(Claim { level: self, before, wanted })
    }
}

/// The right and the duty to ask the server.
pub(super) struct Claim<'a> {
    level: &'a SessionLevel,
    before: u8,
    wanted: u8,
}

impl Claim<'_> {
    pub(super) fn kept(mut self) {
        self.before = self.wanted;
    }
}

/// A server that could not be asked is asked again by the next caller.
impl Drop for Claim<'_> {
    fn drop(&mut self) {
        if self.before != self.wanted {
            let _ =
                self.level.0.compare_exchange(self.wanted, self.before, Ordering::AcqRel, Ordering::Acquire);
        }
    }
}

fn mildness(level: LogLevel) -> u8 {
    let severity = LogLevel::ALL.iter().position(|known| *known == level).unwrap_or_default();
    u8::try_from(LogLevel::ALL.len() - severity).unwrap_or(u8::MAX)
}

impl Upstream {
    /// Makes sure that the server sends what a caller wants to hear, before the call goes or its time is over.
    pub(super) async fn tell_level(&self, live: &Live, wanted: Option<LogLevel>, deadline: Mono) {
        let Some(wanted) = wanted else { return };
        if live.session.era == Era::Modern || !live.server.capabilities.logging {
            return;
        }
        // A new session may not have been told yet what others want to hear.
        let known = self.wishes.level().and_then(|level| LogLevel::named(&level));
        let level = known.filter(|known| mildness(*known) > mildness(wanted)).unwrap_or(wanted);
        let Some(claim) = live.level.claim(level) else { return };
        let params = Patch::new().set_text("level", level.name()).to_object();
        // A server that does not take it says less than wished for; no call fails for that.
        let telling = self.own_request(live, log::SET_LEVEL, Some(&params), During::Probe);
        match tokio::time::timeout_at(self.clock.instant(deadline), telling).await {
            Ok(Ok(answer)) if matches!(Message::parse(&answer), Ok(Message::Response(_))) => {
                claim.kept();
                if let Some(session) = live.told_as.get() {
                    self.wishes.level_told(*session, level.name());
                }
            }
            // It had its time: the next caller is not to wait for it again in this session.
            Err(_) => claim.kept(),
            Ok(Err(trouble)) if matches!(trouble.evidence.observed, Observed::Silence(_)) => claim.kept(),
            Ok(Ok(_) | Err(_)) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_asked_once_for_each_milder_level_and_again_if_it_could_not_be_asked() {
        let session = SessionLevel::default();
        session.claim(LogLevel::Warning).unwrap().kept();
        assert!(session.claim(LogLevel::Warning).is_none() && session.claim(LogLevel::Error).is_none());
        drop(session.claim(LogLevel::Info).unwrap());
        session.claim(LogLevel::Info).unwrap().kept();
        assert!(session.claim(LogLevel::Warning).is_none());
        assert!(session.claim(LogLevel::Debug).is_some());
    }
}
