//! What a client said about itself, and what it wants to hear.

use super::questions::Abilities;
use gripfast::wire::RawValue;
use gripfast::wire::envelope::Message;
use gripfast::wire::patch::Object;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

/// One client, as far as its answers depend on it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Client {
    /// What it can be asked.
    pub(crate) abilities: Abilities,
    /// The least severe log message that it wants.
    pub(crate) level: Arc<LeastSevere>,
}

impl Client {
    pub(crate) fn with(abilities: Abilities) -> Self {
        Self { abilities, level: Arc::default() }
    }

    /// Whether the client wants to hear this message: everything but log messages below its level.
    pub(crate) fn wants(&self, message: &[u8]) -> bool {
        let Ok(Message::Notification(said)) = Message::parse(message) else { return true };
        if said.method != LOG_MESSAGE {
            return true;
        }
        let level =
            said.params.and_then(|params| Object::parse(params).ok()).and_then(|params| params.text("level"));
        match level.and_then(|level| Severity::named(&level)) {
            Some(severity) => self.level.said().is_none_or(|least| severity >= least),
            // A level of the future is better heard than not.
            None => true,
        }
    }
}

pub(crate) const LOG_MESSAGE: &str = "notifications/message";

/// How severe a log message is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Severity(u8);

impl Severity {
    const NAMES: [&'static str; 8] =
        ["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"];

    pub(crate) fn named(name: &str) -> Option<Self> {
        let at = Self::NAMES.iter().position(|known| *known == name)?;
        u8::try_from(at).ok().map(Self)
    }

    /// The one in the parameters of `logging/setLevel`.
    pub(crate) fn in_params(params: Option<&RawValue>) -> Option<Self> {
        let level = Object::parse(params?).ok()?.text("level")?.into_owned();
        Self::named(&level)
    }

    pub(crate) fn name(self) -> &'static str {
        Self::NAMES[usize::from(self.0).min(Self::NAMES.len() - 1)]
    }
}

/// The least severe message that is wanted; everything until somebody says otherwise. Zero is unsaid.
#[derive(Debug, Default)]
pub(crate) struct LeastSevere(AtomicU8);

impl LeastSevere {
    pub(crate) fn set(&self, severity: Severity) {
        self.0.store(severity.0 + 1, Ordering::Relaxed);
    }

    /// What somebody said, if anybody did.
    pub(crate) fn said(&self) -> Option<Severity> {
        self.0.load(Ordering::Relaxed).checked_sub(1).map(Severity)
    }
}

/// The most talkative wish of all clients.
#[derive(Debug)]
pub(crate) struct Talk(AtomicU8);

impl Default for Talk {
    fn default() -> Self {
        Self(AtomicU8::new(u8::MAX))
    }
}

impl Talk {
    /// Takes note of a wish; answers with it if it is more talkative than all before.
    pub(crate) fn lower_to(&self, severity: Severity) -> Option<Severity> {
        (self.0.fetch_min(severity.0, Ordering::Relaxed) > severity.0).then_some(severity)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(level: &str) -> String {
        format!(
            r#"{{"jsonrpc":"2.0","method":"notifications/message","params":{{"level":"{level}","data":1}}}}"#
        )
    }

    #[test]
    fn a_client_hears_what_is_severe_enough_and_everything_before_it_says_so() {
        let client = Client::default();
        assert!(client.wants(message("debug").as_bytes()));
        client.level.set(Severity::named("warning").unwrap());
        assert!(!client.wants(message("notice").as_bytes()));
        assert!(client.wants(message("warning").as_bytes()) && client.wants(message("emergency").as_bytes()));
        assert!(client.wants(message("cosmic").as_bytes()), "a level of the future");
        assert!(client.wants(br#"{"jsonrpc":"2.0","method":"notifications/progress"}"#));
        assert_eq!(Severity::named("alert").unwrap().name(), "alert");
    }
}
