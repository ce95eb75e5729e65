//! What came of a run: for people, for programs, and for the documentation.

mod page;
mod table;

use serde::Serialize;

use crate::figure::Figure;
use crate::fleet::Neighbours;
use crate::renewal::Renewal;
use crate::row::Row;
use crate::soak::Soak;
use gripfast_place::Place;

/// Everything that came of a run.
#[derive(Debug, Serialize)]
pub struct Report {
    /// Where, when and by which command.
    place: Place,
    /// Parts that are still to be run, or broke off.
    pub missing: usize,
    /// The parts that broke off, and why.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub broken: Vec<String>,
    /// One fault on one transport each.
    pub rows: Vec<Row>,
    /// The session that expired under many calls.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub renewal: Option<Renewal>,
    /// The server that flapped among others.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub neighbours: Option<Neighbours>,
    /// The honest clients beside hostile ones.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub soak: Option<Soak>,
    /// What was to be reached, of what was run.
    pub figures: Vec<Figure>,
    /// The same faults under another gateway.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub other: Option<Other>,
}

/// What came of another gateway.
#[derive(Debug, Serialize)]
pub struct Other {
    /// What started it.
    pub command: String,
    /// One fault on one transport each.
    pub rows: Vec<Row>,
}

impl Report {
    /// An empty one. Taken before the run, whose own load is not of interest.
    #[must_use]
    pub fn begin() -> Self {
        Self {
            place: Place::here("cargo xtask chaos", &["--gripfast", "--write"]),
            missing: 0,
            broken: Vec::new(),
            rows: Vec::new(),
            renewal: None,
            neighbours: None,
            soak: None,
            figures: Vec::new(),
            other: None,
        }
    }

    /// For programs.
    #[must_use]
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).unwrap_or_default()
    }

    /// For people.
    #[must_use]
    pub fn to_text(&self) -> String {
        let figures = self.figures.iter().map(|Figure { goal, measured, met }| {
            format!("{} {goal}\n       {measured}\n", if *met { "met   " } else { "MISSED" })
        });
        let other = self
            .other
            .as_ref()
            .map(|Other { command, rows }| format!("\nthe gateway of `{command}`:\n{}", table::text(rows)));
        format!("{}\n{}{}", table::text(&self.rows), figures.collect::<String>(), other.unwrap_or_default())
    }

    /// For the documentation.
    #[must_use]
    pub fn to_markdown(&self) -> String {
        page::page(self)
    }
}
