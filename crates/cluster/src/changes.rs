//! Notices of changes: after a change of a shared table the store publishes its name, so that a replica reads the table
//! before its next heartbeat. They are never needed: one that is lost costs the time until that heartbeat.

use crate::StoreError;
use crate::connection::Messages;
use crate::store::Store;
use crate::tables::SharedTable;
use std::fmt;

/// Notices of one service, over a connection of its own.
pub struct ChangeNotices(Messages);

impl Store {
    /// Subscribes to the notices of the service.
    ///
    /// # Errors
    ///
    /// If the store is unreachable.
    pub async fn subscribe(&self) -> Result<ChangeNotices, StoreError> {
        let channel = self.settings.namespace.key("changes");
        Ok(ChangeNotices(self.connection.subscribe(&channel).await?))
    }
}

impl ChangeNotices {
    /// The next table that was changed; `None` if the connection has ended.
    pub async fn next(&mut self) -> Option<SharedTable> {
        loop {
            let name = self.0.next().await?;
            // A newer version may have further tables.
            if let Some(table) = SharedTable::ALL.into_iter().find(|table| table.as_str() == name) {
                return Some(table);
            }
        }
    }
}

impl fmt::Debug for ChangeNotices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ChangeNotices")
    }
}
