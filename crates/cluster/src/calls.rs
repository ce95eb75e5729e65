//! Calls in the store: a call that is not read-only and has run for a while is entered, so that after the loss of a
//! replica and its disk another one can show what is unknown. No call waits for it.

use crate::connection::Script;
use crate::store::{Store, millis};
use crate::{StoreError, format};
use gripfast_core::placement::place::BootId;
use std::sync::LazyLock;
use std::time::Duration;

static CALLS: LazyLock<Script> = LazyLock::new(|| {
    Script::new(concat!(include_str!("scripts/common.lua"), include_str!("scripts/calls.lua")))
});
static OPEN_CALLS: LazyLock<Script> = LazyLock::new(|| {
    Script::new(concat!(include_str!("scripts/common.lua"), include_str!("scripts/open_calls.lua")))
});

/// Changes of one batch.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CallBatch {
    /// Calls that have started, with their rows.
    pub started: Vec<(String, String)>,
    /// Ids of entered calls that have ended.
    pub ended: Vec<String>,
}

/// A call of a replica that is gone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LostCall {
    /// The replica.
    pub boot: BootId,
    /// The id of the call.
    pub id: String,
    /// Its row.
    pub row: String,
}

impl Store {
    /// Enters and removes calls of this replica. They are kept for `lifetime` after its last batch.
    ///
    /// # Errors
    ///
    /// If the store is unreachable.
    pub async fn enter_calls(&self, batch: &CallBatch, lifetime: Duration) -> Result<(), StoreError> {
        let mut script = CALLS.prepare_invoke();
        script.arg(self.prefix()).arg(self.place()).arg(millis(lifetime)).arg(batch.started.len());
        for (id, row) in &batch.started {
            script.arg(id).arg(format::encode(row));
        }
        for id in &batch.ended {
            script.arg(id);
        }
        self.connection.run(&script).await
    }

    /// The calls of replicas that are gone, `most` at most. Rows of a newer format are left out.
    ///
    /// # Errors
    ///
    /// If the store is unreachable.
    pub async fn lost_calls(&self, most: usize) -> Result<Vec<LostCall>, StoreError> {
        let mut script = OPEN_CALLS.prepare_invoke();
        let found: Vec<String> = self.connection.run(script.arg(self.prefix()).arg(most)).await?;
        let read = |parts: &[String]| {
            let row = format::decode("calls", &parts[2]).ok()?.to_owned();
            Some(LostCall { boot: BootId::parse(&parts[0])?, id: parts[1].clone(), row })
        };
        Ok(found.chunks_exact(3).filter_map(read).collect())
    }
}
