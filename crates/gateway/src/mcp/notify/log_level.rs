//! Log level of a client: the log messages of servers that it gets.

use gripfast::wire::envelope::Message;
use gripfast::wire::log::{self, LogLevel};
use std::sync::atomic::{AtomicU8, Ordering};

/// Minimum severity of log messages: [`Self::UNSET`], [`Self::SILENT`], or one more than the index in
/// [`LogLevel::ALL`].
#[derive(Debug, Default)]
pub(crate) struct MinLogLevel(AtomicU8);

impl MinLogLevel {
    /// The client has set no level: it gets every log message.
    const UNSET: u8 = 0;
    /// The client wants no log messages.
    const SILENT: u8 = u8::MAX;

    pub(crate) fn set(&self, level: LogLevel) {
        self.0.store(level as u8 + 1, Ordering::Relaxed);
    }

    /// The level that the client has set.
    pub(crate) fn get(&self) -> Option<LogLevel> {
        let index = self.0.load(Ordering::Relaxed).checked_sub(1)?;
        LogLevel::ALL.get(usize::from(index)).copied()
    }

    /// Level of a client that wants no log messages.
    pub(crate) fn silent() -> Self {
        Self(AtomicU8::new(Self::SILENT))
    }

    /// Tests if a message passes: everything but log messages below the level.
    pub(crate) fn wants(&self, message: &[u8]) -> bool {
        match Message::parse(message) {
            Ok(Message::Notification(notification)) if notification.method == log::MESSAGE => {
                self.admits(LogLevel::from_params(notification.params))
            }
            Ok(_) | Err(_) => true,
        }
    }

    fn admits(&self, level: Option<LogLevel>) -> bool {
        match (self.0.load(Ordering::Relaxed), self.get(), level) {
            (Self::SILENT, _, _) => false,
            (Self::UNSET, _, _) => true,
            (_, Some(least), Some(level)) => level >= least,
            // A level that this build does not know is delivered.
            (_, _, _) => true,
        }
    }
}
