//! Client sessions in the store: what another replica needs to open one from its id.

use super::Member;
use crate::mcp::session::preferences::SessionPreferences;
use gripfast::placement::place::SessionId;
use gripfast_cluster::StoreError;
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
    /// Records the use and the preferences of sessions in the background, and renews the records of those that moved.
    pub(crate) fn save_sessions(
        self: &Arc<Self>,
        seen: Duration,
        sessions: Vec<(SessionId, SessionPreferences, Duration)>,
    ) -> JoinHandle<()> {
        let member = Arc::clone(self);
        tokio::spawn(async move {
            for (session, preferences, lifetime) in sessions {
                let memory = Memory { seen: seen.as_secs(), preferences };
                if let Err(error) = member.save_session(session, &memory, lifetime).await {
                    // The others would wait as long. They are saved again long before their records end.
                    tracing::debug!("sessions are not recorded in the store: {error}");
                    return;
                }
            }
        })
    }

    async fn save_session(
        &self,
        session: SessionId,
        memory: &Memory,
        lifetime: Duration,
    ) -> Result<(), StoreError> {
        let store = self.joined_store()?;
        let memory = serde_json::to_string(memory).unwrap_or_default();
        store.keep_session(&session, &memory, lifetime).await?;
        let owner = self.router.lock().owner_of(&session);
        if owner.place == self.place && owner.epoch.number() > 0 {
            store.put_back(&[(session, owner.epoch)], owner.epoch).await?;
        }
        Ok(())
    }

    /// Records in the background that sessions have ended.
    pub(crate) fn end_sessions(self: &Arc<Self>, sessions: Vec<(SessionId, Duration)>) -> JoinHandle<()> {
        let member = Arc::clone(self);
        tokio::spawn(async move {
            let mut failed = None;
            for (session, lifetime) in &sessions {
                let ended = match (member.joined_store(), &failed) {
                    // The others would wait as long for a store that does not answer.
                    (Ok(_), Some(_)) => Ok(()),
                    (Ok(store), None) => store.end_session(session, *lifetime).await,
                    (Err(error), _) => Err(error),
                };
                failed = failed.or(ended.err());
                member.forget(session);
            }
            if let Some(error) = failed {
                tracing::warn!(
                    "the end of a session is not in the store: {error}; until its id expires another replica may open it"
                );
            }
        })
    }
}
