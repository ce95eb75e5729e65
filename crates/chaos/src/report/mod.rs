//! Report of a run: text, JSON and the documentation page.

mod page;
mod table;

use serde::Serialize;

use crate::neighbours::Neighbours;
use crate::renewal::Renewal;
use crate::row::Row;
use crate::soak::Soak;
use gripfast_measure::figure::Figure;
use gripfast_measure::place::Place;

/// Report of a run.
#[derive(Debug, Serialize)]
pub struct Report {
    /// Command, machine and date.
    place: Place,
    /// Number of parts that have not run or have failed.
    pub missing: usize,
    /// Parts that failed, with the cause.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub broken: Vec<String>,
    /// Results per fault and transport.
    pub rows: Vec<Row>,
    /// Result of the session that expired under many calls.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub renewal: Option<Renewal>,
    /// Result of one flapping server among others.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub neighbours: Option<Neighbours>,
    /// Result of the soak with hostile clients.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub soak: Option<Soak>,
    /// Goals and measured values.
    pub figures: Vec<Figure>,
    /// Same faults with another gateway.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub other: Option<Other>,
}

/// Results of another gateway.
#[derive(Debug, Serialize)]
pub struct Other {
    /// Command that started it.
    pub command: String,
    /// Results per fault and transport.
    pub rows: Vec<Row>,
}

impl Report {
    /// Creates an empty report. Call it before the run, so that it records the load of the idle machine.
    #[must_use]
    pub fn begin() -> Self {
        Self {
            place: Place::detect("cargo xtask chaos", &["--gripfast", "--write"]),
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

    /// Formats the report as JSON.
    #[must_use]
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).unwrap_or_default()
    }

    /// Formats the report as text.
    #[must_use]
    pub fn to_text(&self) -> String {
        let figures: String = self.figures.iter().map(Figure::to_text).collect();
        let other = self.other.as_ref().map(|Other { command, rows }| {
            format!("\nthe gateway of `{command}`:\n{}", table::of(rows).to_text())
        });
        format!("{}\n{}{}", table::of(&self.rows).to_text(), figures, other.unwrap_or_default())
    }

    /// Formats the report as a Markdown page.
    #[must_use]
    pub fn to_markdown(&self) -> String {
        page::page(self)
    }
}
