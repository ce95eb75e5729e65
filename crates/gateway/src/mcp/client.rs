//! Capabilities, identity and minimum log level of one client.

use super::elicitation::ElicitationSupport;
use super::loaded_tools::LoadedTools;
use super::notify::log_level::MinLogLevel;
use super::notify::subscriptions::Subscriptions;
use super::request::extensions;
use crate::server::memory::ClientMemory;
use gripfast::wire::era::ModernContext;
use gripfast::wire::log::LogLevel;
use gripfast::wire::patch::Object;
use gripfast::{Json, JsonText};
use std::sync::Arc;

/// Client properties on which its answers depend.
#[derive(Debug, Clone)]
pub(crate) struct Client {
    /// Kinds of requests that servers may send to the client.
    pub(crate) abilities: ElicitationSupport,
    /// The same as MCP capabilities, for servers that expect them in each request. `None` for a modern client, whose
    /// requests carry them already.
    pub(crate) capabilities: Option<Arc<JsonText>>,
    /// Minimum severity of log messages for the client.
    pub(crate) level: Arc<MinLogLevel>,
    /// Resources that the client subscribes to.
    pub(crate) subscriptions: Arc<Subscriptions>,
    /// Tools that the client has found and that are in its list since then.
    pub(crate) loaded: Arc<LoadedTools>,
    /// The client supports tasks as its era defines them.
    pub(crate) has_tasks: bool,
    /// Identity of the client towards the host and its servers.
    pub(crate) host_client: gripfast::Client,
    /// Memory account for messages to the client.
    pub(crate) memory: Arc<ClientMemory>,
}

impl Client {
    /// Creates a legacy client, which gets log messages of every level until it sets one.
    pub(crate) fn legacy(
        abilities: ElicitationSupport,
        host_client: gripfast::Client,
        memory: Arc<ClientMemory>,
    ) -> Self {
        Self {
            abilities,
            capabilities: Some(abilities.to_capabilities().into()),
            level: Arc::default(),
            subscriptions: Arc::default(),
            loaded: Arc::default(),
            has_tasks: false,
            host_client,
            memory,
        }
    }

    /// Creates a modern client from the `_meta` of one request; `identify` returns its identity for the elicitation
    /// support found there. Without a `logLevel` the client gets no log messages.
    pub(crate) fn from_request(
        params: Option<&Json>,
        identify: impl FnOnce(ElicitationSupport) -> gripfast::Client,
        memory: Arc<ClientMemory>,
    ) -> Self {
        let context = ModernContext::from_params(params).ok();
        let level = context.as_ref().and_then(|context| context.log_level.as_deref());
        let least = MinLogLevel::silent();
        if let Some(level) = level.and_then(LogLevel::from_name) {
            least.set(level);
        }
        let capabilities = context.map(|context| context.capabilities);
        let (abilities, has_tasks) =
            (ElicitationSupport::from_capabilities(capabilities), extensions::has_tasks(capabilities));
        let host_client = identify(abilities);
        Self {
            abilities,
            capabilities: None,
            level: Arc::new(least),
            subscriptions: Arc::default(),
            loaded: Arc::default(),
            has_tasks,
            host_client,
            memory,
        }
    }

    /// The same client with another identity towards the host.
    pub(crate) fn with_host_client(&self, host_client: gripfast::Client) -> Self {
        Self { host_client, ..self.clone() }
    }

    /// The same legacy client, without any elicitation support.
    pub(crate) fn without_elicitation(&self) -> Self {
        let abilities = ElicitationSupport::default();
        Self { abilities, capabilities: Some(abilities.to_capabilities().into()), ..self.clone() }
    }

    /// Tests if the client wants this message; see [`MinLogLevel::wants`].
    pub(crate) fn wants(&self, message: &[u8]) -> bool {
        self.level.wants(message)
    }
}

/// Name and version of a client from its `clientInfo`, shortened because session ids contain it.
pub(crate) fn name_in(info: Option<&Json>) -> Option<String> {
    const MAX: usize = 64;
    let info = Object::parse(info?).ok()?;
    let (name, version) = (info.text("name")?, info.text("version"));
    let name = version.map_or_else(|| name.to_string(), |version| format!("{name} {version}"));
    Some(name.chars().take(MAX).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mcp::registration::without_session;
    use gripfast::Principal;

    fn message(level: &str) -> String {
        format!(
            r#"{{"jsonrpc":"2.0","method":"notifications/message","params":{{"level":"{level}","data":1}}}}"#
        )
    }

    #[test]
    fn a_client_gets_every_log_message_until_it_sets_a_level() {
        let client = Client::legacy(
            ElicitationSupport::default(),
            without_session(Principal::local())(ElicitationSupport::default()),
            ClientMemory::unbounded(),
        );
        assert!(client.wants(message("debug").as_bytes()));
        client.level.set(LogLevel::Warning);
        assert!(!client.wants(message("notice").as_bytes()));
        assert!(client.wants(message("warning").as_bytes()) && client.wants(message("emergency").as_bytes()));
        assert!(client.wants(message("cosmic").as_bytes()), "a level of the future");
        assert!(client.wants(br#"{"jsonrpc":"2.0","method":"notifications/progress"}"#));
        assert_eq!(client.level.get(), Some(LogLevel::Warning));
    }

    #[test]
    fn a_modern_request_without_a_log_level_gets_no_log_messages() {
        let client = |meta: &str| {
            let context = r#""io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}"#;
            let params = format!(r#"{{"_meta":{{{context}{meta}}}}}"#);
            Client::from_request(
                Some(&JsonText::parse(params).unwrap()),
                without_session(Principal::local()),
                ClientMemory::unbounded(),
            )
        };
        let silent = client("");
        assert!(!silent.wants(message("emergency").as_bytes()));
        assert_eq!(silent.level.get(), None);
        assert!(silent.wants(br#"{"jsonrpc":"2.0","method":"notifications/progress"}"#));
        let errors_only = client(r#","io.modelcontextprotocol/logLevel":"error""#);
        assert!(
            errors_only.wants(message("alert").as_bytes()) && !errors_only.wants(message("info").as_bytes())
        );
    }
}
