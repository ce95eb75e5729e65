//! What a client said about itself, and what it wants to hear.

use super::extensions;
use super::follows::Follows;
use super::questions::Abilities;
use crate::memory::ClientMemory;
use gripfast::RawValue;
use gripfast::wire::envelope::Message;
use gripfast::wire::era::ModernContext;
use gripfast::wire::log::{self, LogLevel};
use gripfast::wire::patch::Object;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

/// One client, as far as its answers depend on it.
#[derive(Debug, Clone)]
pub(crate) struct Client {
    /// What it can be asked.
    pub(crate) abilities: Abilities,
    /// The same in the words of servers that want to see it in each request; a modern client says it there itself.
    pub(crate) capabilities: Option<Arc<RawValue>>,
    /// The least severe log message that it wants.
    pub(crate) level: Arc<LeastSevere>,
    /// The resources that it follows.
    pub(crate) follows: Arc<Follows>,
    /// Whether it knows what a task is, in the manner of its era.
    pub(crate) has_tasks: bool,
    /// Who it is to the servers.
    pub(crate) at_servers: gripfast::Client,
    /// What messages to it are counted against.
    pub(crate) memory: Arc<ClientMemory>,
}

impl Client {
    /// A legacy client, which hears what servers say until it says how much it wants to hear.
    pub(crate) fn with(
        abilities: Abilities,
        at_servers: gripfast::Client,
        memory: Arc<ClientMemory>,
    ) -> Self {
        Self {
            abilities,
            capabilities: Some(abilities.to_capabilities().into()),
            level: Arc::default(),
            follows: Arc::default(),
            has_tasks: false,
            at_servers,
            memory,
        }
    }

    /// A modern client for one request, as the request itself says; `who` tells who that is to the servers, given
    /// what it can be asked. If it names no level, the client wants to hear no log messages.
    pub(crate) fn of_request(
        params: Option<&RawValue>,
        who: impl FnOnce(Abilities) -> gripfast::Client,
        memory: Arc<ClientMemory>,
    ) -> Self {
        let context = ModernContext::from_params(params).ok();
        let level = context.as_ref().and_then(|context| context.log_level.as_deref());
        let least = LeastSevere(AtomicU8::new(LeastSevere::SILENT));
        if let Some(level) = level.and_then(LogLevel::named) {
            least.set(level);
        }
        let capabilities = context.map(|context| context.capabilities);
        let (abilities, has_tasks) = (Abilities::read(capabilities), extensions::has_tasks(capabilities));
        let at_servers = who(abilities);
        Self {
            abilities,
            capabilities: None,
            level: Arc::new(least),
            follows: Arc::default(),
            has_tasks,
            at_servers,
            memory,
        }
    }

    /// The same legacy client where it cannot be asked anything.
    pub(crate) fn unasked(&self) -> Self {
        let abilities = Abilities::default();
        Self { abilities, capabilities: Some(abilities.to_capabilities().into()), ..self.clone() }
    }

    /// Whether the client wants to hear this message.
    pub(crate) fn wants(&self, message: &[u8]) -> bool {
        self.level.wants(message)
    }
}

/// What a client calls itself in its `clientInfo`: the beginning of it, for it goes wherever the client does.
pub(crate) fn name_in(info: Option<&RawValue>) -> Option<String> {
    const MOST: usize = 64;
    let info = Object::parse(info?).ok()?;
    let (name, version) = (info.text("name")?, info.text("version"));
    let name = version.map_or_else(|| name.to_string(), |version| format!("{name} {version}"));
    Some(name.chars().take(MOST).collect())
}

/// The least severe message that is wanted: [`Self::UNSAID`], [`Self::SILENT`], or one more than the place of the
/// level among all.
#[derive(Debug, Default)]
pub(crate) struct LeastSevere(AtomicU8);

impl LeastSevere {
    /// Nobody said anything: whatever the server says is heard.
    const UNSAID: u8 = 0;
    /// No log message is wanted.
    const SILENT: u8 = u8::MAX;

    pub(crate) fn set(&self, level: LogLevel) {
        self.0.store(level as u8 + 1, Ordering::Relaxed);
    }

    /// What somebody said, if anybody did.
    pub(crate) fn said(&self) -> Option<LogLevel> {
        let place = self.0.load(Ordering::Relaxed).checked_sub(1)?;
        LogLevel::ALL.get(usize::from(place)).copied()
    }

    /// Somebody who wants no log messages.
    #[cfg(test)]
    pub(crate) fn silent() -> Self {
        Self(AtomicU8::new(Self::SILENT))
    }

    /// Whether whoever said this wants to hear this message: everything but log messages below the level.
    pub(crate) fn wants(&self, message: &[u8]) -> bool {
        match Message::parse(message) {
            Ok(Message::Notification(said)) if said.method == log::MESSAGE => {
                self.admits(LogLevel::in_params(said.params))
            }
            Ok(_) | Err(_) => true,
        }
    }

    fn admits(&self, level: Option<LogLevel>) -> bool {
        match (self.0.load(Ordering::Relaxed), self.said(), level) {
            (Self::SILENT, _, _) => false,
            (Self::UNSAID, _, _) => true,
            (_, Some(least), Some(level)) => level >= least,
            // A level of the future is better heard than not.
            (_, _, _) => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::presence::without_session;
    use super::*;
    use gripfast::Principal;

    fn message(level: &str) -> String {
        format!(
            r#"{{"jsonrpc":"2.0","method":"notifications/message","params":{{"level":"{level}","data":1}}}}"#
        )
    }

    #[test]
    fn a_client_hears_what_is_severe_enough_and_everything_before_it_says_so() {
        let client = Client::with(
            Abilities::default(),
            without_session(Principal::local())(Abilities::default()),
            ClientMemory::unbounded(),
        );
        assert!(client.wants(message("debug").as_bytes()));
        client.level.set(LogLevel::Warning);
        assert!(!client.wants(message("notice").as_bytes()));
        assert!(client.wants(message("warning").as_bytes()) && client.wants(message("emergency").as_bytes()));
        assert!(client.wants(message("cosmic").as_bytes()), "a level of the future");
        assert!(client.wants(br#"{"jsonrpc":"2.0","method":"notifications/progress"}"#));
        assert_eq!(client.level.said(), Some(LogLevel::Warning));
    }

    #[test]
    fn a_modern_request_that_names_no_level_wants_no_log_messages() {
        let asked = |meta: &str| {
            let context = r#""io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}"#;
            let params = format!(r#"{{"_meta":{{{context}{meta}}}}}"#);
            Client::of_request(
                Some(&RawValue::from_string(params).unwrap()),
                without_session(Principal::local()),
                ClientMemory::unbounded(),
            )
        };
        let silent = asked("");
        assert!(!silent.wants(message("emergency").as_bytes()));
        assert_eq!(silent.level.said(), None);
        assert!(silent.wants(br#"{"jsonrpc":"2.0","method":"notifications/progress"}"#));
        let asking = asked(r#","io.modelcontextprotocol/logLevel":"error""#);
        assert!(asking.wants(message("alert").as_bytes()) && !asking.wants(message("info").as_bytes()));
    }
}
