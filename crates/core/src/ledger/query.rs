//! Which rows somebody wants to see: a filter, and the newest of what passes it.

use super::{Row, RowId};
use crate::failure::Outcome;
use crate::time::Wall;
use std::collections::BTreeMap;

/// Which calls somebody wants to see.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Query {
    /// Only those of which nobody knows whether they were carried out.
    pub unknown: bool,
    /// Only those of this server.
    pub server: Option<String>,
    /// Only those that came at this time or later.
    pub since: Option<Wall>,
    /// At most so many, the newest. Never more than [`Query::MOST`].
    pub limit: usize,
}

impl Default for Query {
    fn default() -> Self {
        Self { unknown: false, server: None, since: None, limit: Self::USUAL }
    }
}

impl Query {
    /// How many rows are shown to somebody who does not say.
    pub const USUAL: usize = 50;
    /// How many rows are shown at the most.
    pub const MOST: usize = 1000;

    /// Whether this row is wanted.
    pub fn wants(&self, row: &Row) -> bool {
        (!self.unknown || row.outcome() == Some(Outcome::Unknown))
            && self.server.as_ref().is_none_or(|server| *server == row.subject.server)
            && self.since.is_none_or(|since| row.started >= since)
    }
}

/// The newest rows that a query wants, in bounded memory.
#[derive(Debug)]
pub struct Selection {
    query: Query,
    /// By time and id, so that the oldest is the first to go.
    rows: BTreeMap<(Wall, RowId), Row>,
    left_out: u64,
}

impl Selection {
    /// An empty selection.
    pub fn new(query: Query) -> Self {
        Self { query, rows: BTreeMap::new(), left_out: 0 }
    }

    /// Considers a row.
    pub fn consider(&mut self, row: Row) {
        if !self.query.wants(&row) {
            return;
        }
        self.rows.insert((row.started, row.id.clone()), row);
        if self.rows.len() > self.query.limit.min(Query::MOST) {
            self.rows.pop_first();
            self.left_out += 1;
        }
    }

    /// The rows, newest first, and how many older ones were left out.
    pub fn finish(self) -> (Vec<Row>, u64) {
        (self.rows.into_values().rev().collect(), self.left_out)
    }
}
