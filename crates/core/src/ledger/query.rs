//! Query of the ledger: a filter, and the newest rows that match.

use super::{Row, RowId};
use crate::failure::CallOutcome;
use crate::time::Wall;
use std::collections::BTreeMap;

/// A query for calls.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Query {
    /// Only calls with unknown outcome.
    pub unknown: bool,
    /// Only calls of this server.
    pub server: Option<String>,
    /// Only calls that started at this time or later.
    pub since: Option<Wall>,
    /// Maximum number of rows, the newest first. At most [`Query::MAX_LIMIT`].
    pub limit: usize,
}

impl Default for Query {
    fn default() -> Self {
        Self { unknown: false, server: None, since: None, limit: Self::DEFAULT_LIMIT }
    }
}

impl Query {
    /// Default number of rows.
    pub const DEFAULT_LIMIT: usize = 50;
    /// Maximum number of rows.
    pub const MAX_LIMIT: usize = 1000;

    /// Returns whether a row matches.
    pub fn matches(&self, row: &Row) -> bool {
        (!self.unknown || row.outcome() == Some(CallOutcome::Unknown))
            && self.server.as_ref().is_none_or(|server| *server == row.subject.server)
            && self.since.is_none_or(|since| row.started >= since)
    }
}

/// The newest rows that match a query, in bounded memory.
#[derive(Debug)]
pub struct Selection {
    query: Query,
    /// By time and id, so that the oldest row is removed first.
    rows: BTreeMap<(Wall, RowId), Row>,
    left_out: u64,
}

impl Selection {
    /// An empty selection.
    pub fn new(query: Query) -> Self {
        Self { query, rows: BTreeMap::new(), left_out: 0 }
    }

    /// Adds a row, if it matches.
    pub fn push(&mut self, row: Row) {
        if !self.query.matches(&row) {
            return;
        }
        self.rows.insert((row.started, row.id.clone()), row);
        if self.rows.len() > self.query.limit.min(Query::MAX_LIMIT) {
            self.rows.pop_first();
            self.left_out += 1;
        }
    }

    /// The rows, newest first, and the number of older rows that were left out.
    pub fn finish(self) -> (Vec<Row>, u64) {
        (self.rows.into_values().rev().collect(), self.left_out)
    }
}
