//! Goals of a run, each with its measured value.

use serde::Serialize;

/// A goal and its measured value.
#[derive(Debug, Clone, Serialize)]
pub struct Figure {
    /// Goal, as text.
    pub goal: String,
    /// Measured value, as text.
    pub measured: String,
    /// True if the goal is met.
    pub met: bool,
}

impl Figure {
    /// The figure in two lines of text.
    #[must_use]
    pub fn to_text(&self) -> String {
        let Self { goal, measured, met } = self;
        format!("{} {goal}\n       {measured}\n", if *met { "met   " } else { "MISSED" })
    }

    /// The figure as a row of a Markdown table.
    #[must_use]
    pub fn to_markdown(&self) -> String {
        let Self { goal, measured, met } = self;
        format!("| {} | {goal} | {measured} |\n", if *met { "met" } else { "**missed**" })
    }
}
