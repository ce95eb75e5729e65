//! Client sessions in the store: what another replica needs to open one from its id.

use super::Member;
use crate::mcp::session::preferences::SessionPreferences;
use gripfast::placement::place::SessionId;
use gripfast_cluster::sessions::{SessionMemory, StoredSession};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinHandle;

/// Record of a session in the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RemoteSession {
    /// Nothing was stored.
    Unrecorded,
    /// The last recorded use and the preferences.
    Recorded {
        /// Wall-clock time of the use.
        last_seen: Duration,
        /// Preferences of the client.
        preferences: SessionPreferences,
    },
    /// The client has ended it.
    Ended,
}

#[derive(Serialize, Deserialize)]
struct Memory {
    /// Seconds of the wall clock.
    seen: u64,
    #[serde(default)]
    preferences: SessionPreferences,
}

impl RemoteSession {
    pub(super) fn from_stored(stored: &StoredSession) -> Self {
        match &stored.memory {
            SessionMemory::None => Self::Unrecorded,
            SessionMemory::Ended => Self::Ended,
            SessionMemory::Kept(text) => match serde_json::from_str::<Memory>(text) {
                Ok(Memory { seen, preferences }) => {
                    Self::Recorded { last_seen: Duration::from_secs(seen), preferences }
                }
                // A record of a version that writes something else. The session opens without its preferences.
                Err(_) => Self::Unrecorded,
            },
        }
    }
}

impl Member {
    /// Records the use and the preferences of a session in the background, and renews the record of a session that
    /// moved.
    pub(crate) fn save_session(
        self: &Arc<Self>,
        session: SessionId,
        seen: Duration,
        preferences: SessionPreferences,
        lifetime: Duration,
    ) -> JoinHandle<()> {
        let member = Arc::clone(self);
        tokio::spawn(async move {
            let memory = Memory { seen: seen.as_secs(), preferences };
            let memory = serde_json::to_string(&memory).unwrap_or_default();
            let Ok(store) = member.joined_store() else { return };
            let saved = store.keep_session(&session, &memory, lifetime).await;
            let owner = member.router.lock().owner_of(&session);
            let renewed = if owner.place == member.place && owner.epoch.number() > 0 {
                store.put_back(&[(session, owner.epoch)], owner.epoch).await.map(drop)
            } else {
                Ok(())
            };
            if let Err(error) = saved.and(renewed) {
                tracing::debug!("a session is not recorded in the store: {error}");
            }
        })
    }

    /// Records that a client has ended its session.
    pub(crate) async fn end_session(&self, session: &SessionId, lifetime: Duration) {
        let ended = match self.joined_store() {
            Ok(store) => store.end_session(session, lifetime).await,
            Err(error) => Err(error),
        };
        if let Err(error) = ended {
            tracing::warn!(
                "the end of a session is not in the store: {error}; until its id expires another replica may open it"
            );
        }
        self.forget(session);
    }
}
