//! Session preferences of a legacy client: its log level and its resource subscriptions. The client sets them after the
//! session id was issued, so they are stored beside the session and restored with it.

use crate::mcp::client::Client;
use gripfast::wire::log::LogLevel;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;

/// Preferences of one client.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SessionPreferences {
    /// Minimum log level.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    level: Option<String>,
    /// Subscribed resources, by client URI.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    uris: Vec<String>,
    /// Members that a newer version has added, in the record of a session that this gateway has taken over.
    #[serde(flatten)]
    unknown: BTreeMap<String, Value>,
}

impl SessionPreferences {
    /// Maximum size of all URIs of one client. Further subscriptions are lost at a restart.
    const MAX_BYTES: usize = 64 << 10;

    /// Current preferences of `client`.
    pub(crate) fn from_client(client: &Client) -> Self {
        let mut bytes = 0;
        let mut uris = client.subscriptions.uris();
        uris.retain(|uri| {
            bytes += uri.len();
            bytes <= Self::MAX_BYTES
        });
        let level = client.level.get().map(|level| level.name().to_owned());
        Self { level, uris, unknown: BTreeMap::new() }
    }

    /// Takes the members along that only a newer version knows.
    pub(crate) fn with_unknown_of(self, stored: &Self) -> Self {
        Self { unknown: stored.unknown.clone(), ..self }
    }

    /// Applies the preferences to the client of a restored session.
    pub(crate) fn restore_to(&self, client: &Client) {
        if let Some(level) = self.level.as_deref().and_then(LogLevel::from_name) {
            client.level.set(level);
        }
        client.subscriptions.restore(&self.uris);
    }

    /// Tests if there are no preferences.
    pub(crate) fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// Tests if a method can change the preferences.
pub(crate) fn sets_preference(method: &str) -> bool {
    matches!(method, "logging/setLevel" | "resources/subscribe" | "resources/unsubscribe")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mcp::elicitation::ElicitationSupport;
    use crate::mcp::registration::without_session;
    use crate::server::memory::ClientMemory;
    use gripfast::Principal;

    fn client() -> Client {
        Client::legacy(
            ElicitationSupport::default(),
            without_session(Principal::local())(ElicitationSupport::default()),
            ClientMemory::unbounded(),
        )
    }

    #[test]
    fn preferences_are_restored_as_they_were() {
        assert!(SessionPreferences::from_client(&client()).is_empty());
        let before = client();
        before.level.set(LogLevel::Warning);
        before.subscriptions.restore(&["a:/1".to_owned(), "b:/2".to_owned()]);
        let preferences = SessionPreferences::from_client(&before);
        let stored = serde_json::to_vec(&preferences).unwrap();
        let after = client();
        serde_json::from_slice::<SessionPreferences>(&stored).unwrap().restore_to(&after);
        assert_eq!(SessionPreferences::from_client(&after), preferences);
        assert_eq!(after.level.get(), Some(LogLevel::Warning));
        assert_eq!(after.subscriptions.uris(), ["a:/1", "b:/2"]);
    }

    #[test]
    fn preferences_that_only_a_newer_version_knows_are_kept() {
        let stored: SessionPreferences =
            serde_json::from_str(r#"{"level":"warning","tomorrow":[1]}"#).unwrap();
        let client = client();
        stored.restore_to(&client);
        client.level.set(LogLevel::Error);
        let saved = SessionPreferences::from_client(&client).with_unknown_of(&stored);
        assert_eq!(serde_json::to_string(&saved).unwrap(), r#"{"level":"error","tomorrow":[1]}"#);
    }

    #[test]
    fn stored_preferences_of_one_client_are_bounded() {
        let client = client();
        let uris: Vec<String> =
            (0..100).map(|number| format!("a:/{number}{}", "x".repeat(1 << 10))).collect();
        client.subscriptions.restore(&uris);
        let stored: usize = SessionPreferences::from_client(&client).uris.iter().map(String::len).sum();
        assert!(
            stored <= SessionPreferences::MAX_BYTES && stored > SessionPreferences::MAX_BYTES / 2,
            "{stored}"
        );
    }
}
