//! Calls of this replica in the store: those that may change something, were sent, and have run for a while. After the
//! loss of a replica and its disk, another one shows them as unknown.
//!
//! No call waits for this. The calls in flight are compared with those in the store every few milliseconds, so nothing
//! is queued, and a batch that the store did not get is made again.

use super::{Member, StoreState};
use gripfast::ledger::{CallSubject, Row, RowEnd, RowId};
use gripfast::{CallOutcome, Host, Wall};
use gripfast_cluster::StoreError;
use gripfast_cluster::calls::CallBatch;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::time::Instant;

/// Age at which a call is entered. Most calls end before.
const AGE: Duration = Duration::from_millis(50);
/// Time between two comparisons.
const PAUSE: Duration = Duration::from_millis(50);
/// Largest number of calls in the store, of one replica.
const MAX_CALLS: usize = 10_000;
/// Time for which the calls of a lost replica are shown.
const RETENTION: Duration = Duration::from_secs(7 * 24 * 3600);
/// Time after which all calls in flight are written again, in case the store was emptied.
const REPEAT: Duration = Duration::from_secs(30);
/// Largest number of rows of lost replicas that are read.
const MAX_ROWS: usize = 1000;
/// Largest number of calls in one batch: the store does nothing else meanwhile.
const MAX_BATCH: usize = 500;
/// Longest time for which a reader waits for the rows of lost replicas.
const READ_TIMEOUT: Duration = Duration::from_secs(1);

/// A call as it is stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct StoredCall {
    replica: String,
    run: String,
    call: u64,
    at_ms: u64,
    principal: String,
    client: String,
    server: String,
    tool: String,
    sha256: Option<String>,
}

/// Comparison of the calls in flight with those in the store.
#[derive(Default)]
pub(super) struct CallRecords {
    /// Numbers of the calls that the store has.
    entered: BTreeSet<u64>,
    /// Calls that are not entered, because they only read or there are too many.
    ignored: BTreeSet<u64>,
    /// Time at which all calls are written again; `None` if that is due.
    repeat_at: Option<Instant>,
}

impl CallRecords {
    /// Follows the calls of a replica until it is gone.
    pub(super) fn start(member: &Arc<Member>) {
        let member: Weak<Member> = Arc::downgrade(member);
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(PAUSE).await;
                let Some(member) = member.upgrade() else { return };
                member.record_calls().await;
            }
        });
    }

    /// The changes since the last comparison: rows to enter and numbers to remove.
    fn changes(&mut self, host: &Host, now: Instant) -> CallChanges {
        let is_due = self.repeat_at.is_none_or(|at| at <= now);
        if is_due {
            self.ignored.clear();
        }
        let mut present = BTreeSet::new();
        let found = host.calls_in_flight(AGE, |call| {
            present.insert(call);
            is_due || !(self.entered.contains(&call) || self.ignored.contains(&call))
        });
        self.ignored.retain(|call| present.contains(call));
        let mut changes = CallChanges {
            started: Vec::new(),
            ended: self.entered.difference(&present).copied().collect(),
            dropped: 0,
            is_due,
        };
        let mut room = MAX_CALLS.saturating_sub(self.entered.len());
        for row in found {
            let call = row.id.call;
            let is_new = !self.entered.contains(&call);
            if host.is_read_only(&row.subject.server, &row.subject.tool) || (is_new && room == 0) {
                changes.dropped += u64::from(is_new && room == 0);
                self.ignored.insert(call);
                continue;
            }
            room -= usize::from(is_new);
            changes.started.push(row);
        }
        changes
    }
}

struct CallChanges {
    started: Vec<Row>,
    ended: Vec<u64>,
    /// Calls that are not entered because there are too many.
    dropped: u64,
    /// Whether all calls are written again.
    is_due: bool,
}

impl Member {
    /// Brings the calls in the store up to date.
    pub(super) async fn record_calls(&self) {
        let Some(gateway) = self.gateway() else { return };
        if *self.store_state.borrow() != StoreState::Reachable {
            return;
        }
        let mut records = self.call_records.lock().await;
        let changes = records.changes(&gateway.host, Instant::now());
        self.dropped_calls.fetch_add(changes.dropped, Ordering::Relaxed);
        let (is_due, sent) = (changes.is_due, self.send_calls(&mut records, changes).await);
        match sent {
            Ok(()) if is_due => records.repeat_at = Some(Instant::now() + REPEAT),
            Ok(()) => {}
            Err(error) => {
                tracing::debug!("calls in flight are not in the store: {error}");
                records.repeat_at = None;
            }
        }
    }

    async fn send_calls(&self, records: &mut CallRecords, changes: CallChanges) -> Result<(), StoreError> {
        let name = self.place.name.as_str();
        for ended in changes.ended.chunks(MAX_BATCH) {
            let numbers = ended.iter().map(u64::to_string).collect();
            let batch = CallBatch { started: Vec::new(), ended: numbers };
            self.store.enter_calls(&batch, RETENTION).await?;
            for call in ended {
                records.entered.remove(call);
            }
        }
        for started in changes.started.chunks(MAX_BATCH) {
            let rows = started.iter().map(|row| (row.id.call.to_string(), StoredCall::encode(name, row)));
            let batch = CallBatch { started: rows.collect(), ended: Vec::new() };
            self.store.enter_calls(&batch, RETENTION).await?;
            records.entered.extend(started.iter().map(|row| row.id.call));
        }
        Ok(())
    }

    /// Calls of replicas that are gone, each with the name of its replica.
    ///
    /// # Errors
    /// The store cannot be read now.
    pub(crate) async fn lost_calls(&self) -> Result<Vec<(String, Row)>, StoreError> {
        let read = tokio::time::timeout(READ_TIMEOUT, self.joined_store()?.lost_calls(MAX_ROWS)).await;
        let read = read.map_err(|_| StoreError::Unreachable("no reply in time".to_owned()))??;
        Ok(read.iter().filter_map(|lost| StoredCall::decode(&lost.row)).collect())
    }
}

impl StoredCall {
    fn encode(replica: &str, row: &Row) -> String {
        let Row { id, subject, started, .. } = row;
        let call = Self {
            replica: replica.to_owned(),
            run: id.run.clone(),
            call: id.call,
            at_ms: u64::try_from(started.since_epoch().as_millis()).unwrap_or(u64::MAX),
            principal: subject.principal.clone(),
            client: subject.client.clone(),
            server: subject.server.clone(),
            tool: subject.tool.clone(),
            sha256: subject.digest.clone(),
        };
        serde_json::to_string(&call).expect("strings and numbers are JSON")
    }

    /// The row of a call whose replica is gone; `None` if another version wrote something else.
    fn decode(text: &str) -> Option<(String, Row)> {
        let Self { replica, run, call, at_ms, principal, client, server, tool, sha256 } =
            serde_json::from_str(text).ok()?;
        let row = Row {
            id: RowId { run, call },
            // The store has no arguments.
            subject: CallSubject { principal, client, server, tool, digest: sha256, arguments: None },
            started: Wall::from_unix_epoch(Duration::from_millis(at_ms)),
            end: RowEnd::Orphaned(CallOutcome::Unknown),
        };
        Some((replica, row))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_of_a_lost_replica_is_read_without_its_arguments() {
        let row = Row {
            id: RowId { run: "19a8.3fa2".to_owned(), call: 17 },
            subject: CallSubject {
                principal: "ann".to_owned(),
                client: "editor 1".to_owned(),
                server: "files".to_owned(),
                tool: "write".to_owned(),
                digest: Some("abc".to_owned()),
                arguments: Some("{\"secret\":1}".to_owned()),
            },
            started: Wall::from_unix_epoch(Duration::from_millis(1_700_000_000_123)),
            end: RowEnd::InFlight,
        };
        let stored = StoredCall::encode("web-1", &row);
        assert!(!stored.contains("secret"), "{stored}");
        let (replica, read) = StoredCall::decode(&stored).unwrap();
        assert_eq!((replica.as_str(), read.id, read.started), ("web-1", row.id, row.started));
        assert_eq!(read.subject, CallSubject { arguments: None, ..row.subject });
        assert_eq!(read.end, RowEnd::Orphaned(CallOutcome::Unknown));
        assert_eq!(StoredCall::decode("{}"), None);
    }
}
