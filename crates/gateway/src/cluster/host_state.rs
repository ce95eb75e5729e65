//! The shared tables as the host sees them: its pins and logins.

use super::SharedTables;
use super::shared_tables::TableError;
use gripfast::placement::table_copy::CopiedField;
use gripfast::shared_state::{SharedState, StateError, StateField, StateTable};
use gripfast::transport::BoxFuture;
use gripfast_cluster::tables::SharedTable;
use tokio::sync::watch;

const fn shared_table(table: StateTable) -> SharedTable {
    match table {
        StateTable::Pins => SharedTable::Pins,
        StateTable::Logins => SharedTable::Logins,
    }
}

impl From<TableError> for StateError {
    fn from(error: TableError) -> Self {
        match error {
            TableError::Changed => Self::Changed,
            TableError::Grace(left) => Self::Later { left, reason: error.to_string() },
            TableError::Blocked(_) | TableError::Store(_) | TableError::TooLarge | TableError::NoEntropy => {
                Self::Unavailable(error.to_string())
            }
        }
    }
}

impl SharedState for SharedTables {
    fn get(&self, table: StateTable, field: &str) -> StateField {
        let CopiedField { version, value } = Self::get(self, shared_table(table), field);
        StateField { version, value }
    }

    fn refresh(&self, table: StateTable) -> BoxFuture<'_, Result<(), StateError>> {
        Box::pin(async move { Ok(Self::refresh(self, shared_table(table)).await?) })
    }

    fn set<'a>(
        &'a self,
        table: StateTable,
        field: &'a str,
        expected: u64,
        value: Option<String>,
    ) -> BoxFuture<'a, Result<u64, StateError>> {
        Box::pin(async move { Ok(Self::set(self, shared_table(table), field, expected, value).await?) })
    }

    fn changes(&self) -> watch::Receiver<u64> {
        self.watch_changes()
    }
}
