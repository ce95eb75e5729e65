//! Memory of client sessions in the store: what another replica needs to open a session from its token, with a lifetime.
//! It has this interface of its own, because the store on disk is synchronous and is scanned.

use crate::connection::{Script, cmd};
use crate::moved::{read_owner, session_text};
use crate::store::{Store, millis};
use crate::{StoreError, format};
use gripfast_core::placement::place::{SessionId, SessionOwner};
use std::sync::LazyLock;
use std::time::Duration;

static KEEP_SESSION: LazyLock<Script> = LazyLock::new(|| {
    Script::new(concat!(include_str!("scripts/common.lua"), include_str!("scripts/keep_session.lua")))
});

/// The memory of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SessionMemory {
    /// Nothing was stored, or its time is over.
    None,
    /// The stored preferences.
    Kept(String),
    /// The client has ended the session; it must not be opened again.
    Ended,
}

/// Everything that the store has about a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredSession {
    /// The owner, if it moved.
    pub owner: Option<SessionOwner>,
    /// Its memory.
    pub memory: SessionMemory,
}

impl Store {
    /// Reads owner and memory of a session in one round trip.
    ///
    /// # Errors
    ///
    /// If the store is unreachable or a value cannot be read.
    pub async fn open_session(&self, session: &SessionId) -> Result<StoredSession, StoreError> {
        let (moved, memory) = self.session_keys(session);
        let (owner, stored): (Option<String>, Option<String>) =
            self.connection.query(cmd("MGET").arg(&moved).arg(&memory)).await?;
        let owner = owner.map(|owner| read_owner(&moved, &owner)).transpose()?;
        let payload = stored.as_deref().map(|stored| format::decode(&memory, stored)).transpose()?;
        let memory = match payload.map(|payload| payload.split_at_checked(1)) {
            None => SessionMemory::None,
            Some(Some(("+", kept))) => SessionMemory::Kept(kept.to_owned()),
            Some(Some(("-", ""))) => SessionMemory::Ended,
            Some(_) => return Err(StoreError::Malformed(memory)),
        };
        Ok(StoredSession { owner, memory })
    }

    /// Stores the memory of a session for `lifetime`. If the session has ended, it stays ended: a memory may be on its way
    /// while the client ends the session at another replica.
    ///
    /// # Errors
    ///
    /// If the store is unreachable, or has a memory of a newer format.
    pub async fn keep_session(
        &self,
        session: &SessionId,
        memory: &str,
        lifetime: Duration,
    ) -> Result<(), StoreError> {
        self.set_session(session, &format!("+{memory}"), lifetime).await
    }

    /// Records that the client has ended the session. `lifetime` is the rest of its token's.
    ///
    /// # Errors
    ///
    /// If the store is unreachable, or has a memory of a newer format.
    pub async fn end_session(&self, session: &SessionId, lifetime: Duration) -> Result<(), StoreError> {
        self.set_session(session, "-", lifetime).await
    }

    async fn set_session(
        &self,
        session: &SessionId,
        payload: &str,
        lifetime: Duration,
    ) -> Result<(), StoreError> {
        let mut script = KEEP_SESSION.prepare_invoke();
        script.arg(self.prefix()).arg(session_text(session));
        script.arg(format::encode(payload)).arg(millis(lifetime).max(1));
        self.connection.run(&script).await
    }

    fn session_keys(&self, session: &SessionId) -> (String, String) {
        let text = session_text(session);
        let key = |kind: &str| self.settings.namespace.key(&format!("{kind}:{text}"));
        (key("moved"), key("session"))
    }
}
