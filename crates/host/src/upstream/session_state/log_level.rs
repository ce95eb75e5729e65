//! Log level of a legacy session. There is one per session: the lowest severity that any caller asked for, set before
//! the first call that wants it and again in each new session. Listeners filter what their caller did not ask for.

use crate::upstream::{Connection, Upstream};
use gripfast_core::failure::{During, Observed};
use gripfast_core::time::Mono;
use gripfast_wire::Era;
use gripfast_wire::envelope::Message;
use gripfast_wire::log::{self, LogLevel};
use gripfast_wire::patch::Patch;
use std::sync::atomic::{AtomicU8, Ordering};

/// The level that the server of one session was asked for, as verbosity: one for the highest severity, rising as
/// severity falls; zero before the first request.
#[derive(Debug, Default)]
pub(crate) struct SessionLevel(AtomicU8);

impl SessionLevel {
    /// Claims the right to request `level`; `None` if the server has been asked for that or more.
    pub(crate) fn claim(&self, level: LogLevel) -> Option<LevelUpdate<'_>> {
        let wanted = verbosity(level);
        let before = self.0.fetch_max(wanted, Ordering::AcqRel);
        (before < wanted).then_some(LevelUpdate { level: self, before, wanted })
    }
}

/// A pending request for a level; dropping it without `commit` restores the level before.
pub(crate) struct LevelUpdate<'a> {
    level: &'a SessionLevel,
    before: u8,
    wanted: u8,
}

impl LevelUpdate<'_> {
    pub(crate) fn commit(mut self) {
        self.before = self.wanted;
    }
}

/// A failed request is repeated by the next caller.
impl Drop for LevelUpdate<'_> {
    fn drop(&mut self) {
        if self.before != self.wanted {
            let _ =
                self.level.0.compare_exchange(self.wanted, self.before, Ordering::AcqRel, Ordering::Acquire);
        }
    }
}

fn verbosity(level: LogLevel) -> u8 {
    let severity = LogLevel::ALL.iter().position(|known| *known == level).unwrap_or_default();
    u8::try_from(LogLevel::ALL.len() - severity).unwrap_or(u8::MAX)
}

impl Upstream {
    /// Sets the log level that a caller wants before its call is sent, up to the call's deadline.
    pub(crate) async fn request_log_level(
        &self,
        connection: &Connection,
        wanted: Option<LogLevel>,
        deadline: Mono,
    ) {
        let Some(wanted) = wanted else { return };
        if connection.session.era == Era::Modern || !connection.server.capabilities.logging {
            return;
        }
        // A new session may not have got the level of other callers yet.
        let known = self.session_state.level().and_then(|level| LogLevel::from_name(&level));
        let level = known.filter(|known| verbosity(*known) > verbosity(wanted)).unwrap_or(wanted);
        let Some(claim) = connection.log_level.claim(level) else { return };
        let params = Patch::new().set_text("level", level.name()).to_object();
        // If the server refuses, it sends fewer messages; the call does not fail.
        let telling = self.internal_request(connection, log::SET_LEVEL, Some(&params), During::Probe);
        match tokio::time::timeout_at(self.clock.instant(deadline), telling).await {
            Ok(Ok(answer)) if matches!(Message::parse(&answer), Ok(Message::Response(_))) => {
                claim.commit();
                if let Some(session) = connection.session_number.get() {
                    self.session_state.level_sent(*session, level.name());
                }
            }
            // The server had its time: the next caller does not wait for it again in this session.
            Err(_) => claim.commit(),
            Ok(Err(send_error)) if matches!(send_error.evidence.observed, Observed::NoAnswer(_)) => {
                claim.commit()
            }
            Ok(Ok(_) | Err(_)) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_lower_level_is_requested_once_and_again_after_a_failed_request() {
        let session = SessionLevel::default();
        session.claim(LogLevel::Warning).unwrap().commit();
        assert!(session.claim(LogLevel::Warning).is_none() && session.claim(LogLevel::Error).is_none());
        drop(session.claim(LogLevel::Info).unwrap());
        session.claim(LogLevel::Info).unwrap().commit();
        assert!(session.claim(LogLevel::Warning).is_none());
        assert!(session.claim(LogLevel::Debug).is_some());
    }
}
