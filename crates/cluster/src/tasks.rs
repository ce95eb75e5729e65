//! Tasks of modern clients in the store: a task that was begun at one replica is found from any other.

use crate::store::{Store, millis, read_place};
use crate::{StoreError, format};
use gripfast_core::placement::place::Place;
use redis::cmd;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The place of a task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskEntry {
    /// The principal that began it.
    pub principal: String,
    /// The server that runs it.
    pub server: String,
    /// The replica through which it was begun.
    pub place: Place,
}

#[derive(Serialize, Deserialize)]
struct Fields {
    principal: String,
    server: String,
    place: String,
}

impl Store {
    /// Enters a task of this replica for `lifetime`.
    ///
    /// # Errors
    ///
    /// If the store is unreachable.
    pub async fn enter_task(
        &self,
        id: &str,
        principal: &str,
        server: &str,
        lifetime: Duration,
    ) -> Result<(), StoreError> {
        let fields =
            Fields { principal: principal.to_owned(), server: server.to_owned(), place: self.place() };
        let fields = serde_json::to_string(&fields).expect("strings are JSON");
        let mut set = cmd("SET");
        set.arg(self.task_key(id)).arg(format::encode(&fields)).arg("PX").arg(millis(lifetime));
        self.connection.query(&set).await
    }

    /// The place of a task of this principal. Another principal's task is not found.
    ///
    /// # Errors
    ///
    /// If the store is unreachable or the entry cannot be read.
    pub async fn find_task(&self, id: &str, principal: &str) -> Result<Option<TaskEntry>, StoreError> {
        let key = self.task_key(id);
        let stored: Option<String> = self.connection.query(cmd("GET").arg(&key)).await?;
        let Some(stored) = stored else { return Ok(None) };
        let malformed = || StoreError::Malformed(key.clone());
        let fields: Fields = serde_json::from_str(format::decode(&key, &stored)?).map_err(|_| malformed())?;
        let place = read_place(&fields.place).ok_or_else(malformed)?;
        let entry = TaskEntry { principal: fields.principal, server: fields.server, place };
        Ok(Some(entry).filter(|entry| entry.principal == principal))
    }

    /// Removes a task that has ended.
    ///
    /// # Errors
    ///
    /// If the store is unreachable; the entry then ends by time.
    pub async fn remove_task(&self, id: &str) -> Result<(), StoreError> {
        self.connection.query(cmd("DEL").arg(self.task_key(id))).await
    }

    fn task_key(&self, id: &str) -> String {
        self.settings.namespace.key(&format!("task:{id}"))
    }
}
