//! What a legacy client has said in the course of its session and expects to hold until its end: how much it
//! wants to hear, and which resources it follows. Its id cannot say that, for it was given out before; so it is
//! remembered beside the session, and comes back with it.

use super::client::Client;
use gripfast::wire::log::LogLevel;
use serde::{Deserialize, Serialize};

/// What one client has wished for.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Wishes {
    /// The least severe log message that it wants.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    level: Option<String>,
    /// The resources that it follows, by the URIs that it uses.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    uris: Vec<String>,
}

impl Wishes {
    /// What all URIs of one client may take together. What does not fit holds until the end of the process.
    const MOST_BYTES: usize = 64 << 10;

    /// What `client` wishes for at this moment.
    pub(crate) fn of(client: &Client) -> Self {
        let mut bytes = 0;
        let mut uris = client.follows.wanted();
        uris.retain(|uri| {
            bytes += uri.len();
            bytes <= Self::MOST_BYTES
        });
        Self { level: client.level.said().map(|level| level.name().to_owned()), uris }
    }

    /// Gives them back to a client that is new here.
    pub(crate) fn give_back(&self, client: &Client) {
        if let Some(level) = self.level.as_deref().and_then(LogLevel::named) {
            client.level.set(level);
        }
        client.follows.want(&self.uris);
    }

    /// Whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// Whether a request with this method may change what its client wishes for.
pub(crate) fn is_wish(method: &str) -> bool {
    matches!(method, "logging/setLevel" | "resources/subscribe" | "resources/unsubscribe")
}

#[cfg(test)]
mod tests {
    use super::super::presence::without_session;
    use super::super::questions::Abilities;
    use super::*;
    use crate::memory::ClientMemory;
    use gripfast::Principal;

    fn client() -> Client {
        Client::with(
            Abilities::default(),
            without_session(Principal::local())(Abilities::default()),
            ClientMemory::unbounded(),
        )
    }

    #[test]
    fn what_a_client_wished_for_comes_back_as_it_was() {
        assert!(Wishes::of(&client()).is_empty());
        let before = client();
        before.level.set(LogLevel::Warning);
        before.follows.want(&["a:/1".to_owned(), "b:/2".to_owned()]);
        let wishes = Wishes::of(&before);
        let kept = serde_json::to_vec(&wishes).unwrap();
        let after = client();
        serde_json::from_slice::<Wishes>(&kept).unwrap().give_back(&after);
        assert_eq!(Wishes::of(&after), wishes);
        assert_eq!(after.level.said(), Some(LogLevel::Warning));
        assert_eq!(after.follows.wanted(), ["a:/1", "b:/2"]);
    }

    #[test]
    fn what_is_remembered_of_one_client_is_bounded() {
        let client = client();
        let uris: Vec<String> =
            (0..100).map(|number| format!("a:/{number}{}", "x".repeat(1 << 10))).collect();
        client.follows.want(&uris);
        let kept: usize = Wishes::of(&client).uris.iter().map(String::len).sum();
        assert!(kept <= Wishes::MOST_BYTES && kept > Wishes::MOST_BYTES / 2, "{kept}");
    }
}
