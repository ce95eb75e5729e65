//! The shared tables as the host sees them: its pins and logins.

use super::SharedTables;
use super::shared_tables::TableError;
use gripfast::placement::exclusive::ClaimReply;
use gripfast::placement::place::OwnerEpoch;
use gripfast::placement::table_copy::CopiedField;
use gripfast::shared_state::{SharedState, StateError, StateField, StateTable};
use gripfast::transport::BoxFuture;
use gripfast_cluster::tables::SharedTable;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// Name of the exclusive lease for replacing a login.
fn lease_name(login: &str) -> String {
    format!("refresh:{login}")
}

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

    fn claim<'a>(
        &'a self,
        login: &'a str,
        lifetime: Duration,
    ) -> BoxFuture<'a, Result<Option<u64>, StateError>> {
        Box::pin(async move {
            let store = self.joined_store()?;
            let claimed = store.claim_for(&lease_name(login), OwnerEpoch::from_number(0), lifetime).await;
            match claimed.map_err(TableError::from)? {
                ClaimReply::Claimed { epoch } => Ok(Some(epoch.number())),
                ClaimReply::Taken { .. } => Ok(None),
                ClaimReply::Grace { left } => Err(TableError::Grace(left).into()),
            }
        })
    }

    fn confirm<'a>(
        &'a self,
        login: &'a str,
        claim: u64,
        version: u64,
    ) -> BoxFuture<'a, Result<bool, StateError>> {
        Box::pin(async move {
            let (name, epoch) = (lease_name(login), OwnerEpoch::from_number(claim));
            let field = (SharedTable::Logins, login, version);
            let confirmed = self.joined_store()?.confirm_claim(&name, epoch, field).await;
            Ok(confirmed.map_err(TableError::from)?)
        })
    }

    fn release(self: Arc<Self>, login: String, claim: u64) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            if let Ok(store) = self.joined_store() {
                // If it fails, the lease ends by time.
                let _ = store.release(&lease_name(&login), OwnerEpoch::from_number(claim)).await;
            }
        })
    }

    fn changes(&self) -> watch::Receiver<u64> {
        self.watch_changes()
    }
}
