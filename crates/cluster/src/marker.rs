//! Service marker: it tells a store that was emptied from a known one, and a namespace of another service from ours.

use crate::connection::{Script, cmd};
use crate::store::Store;
use crate::{StoreError, format};
use std::sync::LazyLock;

static MARKER: LazyLock<Script> = LazyLock::new(|| {
    Script::new(concat!(include_str!("scripts/common.lua"), include_str!("scripts/marker.lua")))
});
static RESEAL: LazyLock<Script> = LazyLock::new(|| {
    Script::new(concat!(include_str!("scripts/common.lua"), include_str!("scripts/reseal_marker.lua")))
});

/// The marker of a service in the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceMarker {
    /// The time at which the marker was made, on the store's clock. A store that was emptied has another one.
    pub generation: u64,
    key_check: String,
}

/// The state of the store when a replica joins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoreAge {
    /// The replica knows this generation, or joins for the first time.
    Known,
    /// The replica knows another generation: the store was emptied. It writes its tables and records back.
    Emptied,
}

/// A replica cannot join.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum JoinError {
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// None of the replica's keys made the marker.
    #[error("{}", StoreError::ForeignService)]
    ForeignService,
}

impl ServiceMarker {
    /// Reads a marker as the store has it.
    ///
    /// # Errors
    ///
    /// If it is malformed or of a newer format.
    pub fn read(stored: &str) -> Result<Self, StoreError> {
        let malformed = || StoreError::Malformed("service".to_owned());
        let (generation, key_check) =
            format::decode("service", stored)?.split_once(':').ok_or_else(malformed)?;
        let generation = generation.parse().map_err(|_| malformed())?;
        Ok(Self { generation, key_check: key_check.to_owned() })
    }

    /// The state of the store for a replica that knows this generation, or none.
    #[must_use]
    pub fn age(&self, known: Option<u64>) -> StoreAge {
        match known {
            Some(known) if known != self.generation => StoreAge::Emptied,
            Some(_) | None => StoreAge::Known,
        }
    }

    fn stored(&self) -> String {
        format::encode(&format!("{}:{}", self.generation, self.key_check))
    }
}

impl Store {
    /// Checks that the namespace is free, or belongs to a service with this key. Writes nothing.
    ///
    /// # Errors
    ///
    /// If the store fails, or the marker was made with another key.
    pub async fn check_marker(&self) -> Result<(), JoinError> {
        let key = self.settings.namespace.key("service");
        let stored: Option<String> = self.connection.query(cmd("GET").arg(key)).await?;
        let marker = stored.map(|stored| ServiceMarker::read(&stored)).transpose()?;
        match marker {
            Some(marker) if !self.settings.keys.knows(&marker.key_check) => Err(JoinError::ForeignService),
            Some(_) | None => Ok(()),
        }
    }

    /// Reads the marker of the service, or makes one in an empty store. A marker of an older key in the list is made
    /// again with the first one.
    ///
    /// # Errors
    ///
    /// If the store fails, or the marker was made with another key.
    pub async fn join(&self) -> Result<ServiceMarker, JoinError> {
        let check = self.settings.keys.check_value();
        let mut script = MARKER.prepare_invoke();
        let stored: String = self.connection.run(script.arg(self.prefix()).arg(&check)).await?;
        let marker = ServiceMarker::read(&stored)?;
        if !self.settings.keys.knows(&marker.key_check) {
            return Err(JoinError::ForeignService);
        }
        if marker.key_check == check {
            return Ok(marker);
        }
        let marker = ServiceMarker { key_check: check, ..marker };
        let mut script = RESEAL.prepare_invoke();
        script.arg(self.prefix()).arg(&stored).arg(marker.stored());
        self.connection.run::<()>(&script).await?;
        Ok(marker)
    }
}
