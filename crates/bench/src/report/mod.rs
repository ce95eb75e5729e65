//! Report of a run: text, JSON and the documentation page.

mod page;
mod plot;
mod table;

use std::path::Path;

use serde::Serialize;

use crate::args::Part;
use crate::calls::Calls;
use crate::figure;
use crate::instructions::CallCost;
use crate::lists::Lists;
use crate::observing::Observing;
use crate::replicas::Replicas;
use crate::scale::Scale;
use crate::startup::Startup;
use gripfast_measure::Result;
use gripfast_measure::figure::Figure;
use gripfast_measure::place::Place;

/// Report of a run.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    /// Command, machine and date.
    place: Place,
    sections: Vec<Section>,
}

/// Measurements and goals of one part.
#[derive(Debug, Serialize)]
struct Section {
    #[serde(flatten)]
    measured: Measured,
    figures: Vec<Figure>,
}

/// Measurements of one part.
#[derive(Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Measured {
    Calls(Calls),
    Lists(Lists),
    Startup(Startup),
    Observing(Observing),
    Instructions(Vec<CallCost>),
    Scale(Scale),
    Replicas(Box<Replicas>),
}

impl Report {
    /// Creates an empty report. Call it before the run, so that it records the load of the idle machine.
    pub(crate) fn begin() -> Self {
        Self {
            place: Place::detect("cargo xtask bench", &["--gripfast", "--write", "--before", "--packaged"]),
            sections: Vec::new(),
        }
    }

    pub(crate) fn add(&mut self, measured: Measured) {
        let figures = match &measured {
            Measured::Calls(calls) => figure::of_calls(calls),
            Measured::Lists(lists) => figure::of_lists(lists),
            Measured::Startup(startup) => figure::of_startup(startup),
            Measured::Observing(observing) => figure::of_observing(observing),
            Measured::Instructions(costs) => figure::of_instructions(costs),
            Measured::Scale(scale) => figure::of_scale(scale),
            Measured::Replicas(replicas) => figure::of_replicas(replicas),
        };
        self.sections.push(Section { measured, figures });
    }

    /// Formats the report as JSON.
    pub(crate) fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).unwrap_or_default()
    }

    /// Formats the report as text.
    pub(crate) fn to_text(&self) -> String {
        let section = |section: &Section| {
            let figures: String = section.figures.iter().map(Figure::to_text).collect();
            let tables: String = section.tables().iter().map(table::ReportTable::to_text).collect();
            format!("{tables}\n{figures}\n")
        };
        self.sections.iter().map(section).collect()
    }

    /// Updates the sections of a page, and the plots in the directory of the same name beside it.
    pub(crate) fn write(&self, file: &Path) -> Result<()> {
        let is_of_replicas = matches!(self.sections[..], [Section { measured: Measured::Replicas(_), .. }]);
        let empty = if is_of_replicas { page::EMPTY_OF_REPLICAS } else { page::EMPTY };
        let mut text = std::fs::read_to_string(file).unwrap_or_else(|_| empty.to_owned());
        for section in &self.sections {
            text = page::with_section(&text, section.part().word(), &page::section(&self.place, section));
            if let Measured::Scale(scale) = &section.measured {
                let directory = file.with_extension("");
                std::fs::create_dir_all(&directory)?;
                for growth in &scale.growth {
                    let name = format!("{}.svg", growth.over.word());
                    std::fs::write(directory.join(name), plot::svg(growth))?;
                }
            }
        }
        std::fs::write(file, text)?;
        Ok(())
    }
}

impl Section {
    fn part(&self) -> Part {
        match &self.measured {
            Measured::Calls(_) => Part::Calls,
            Measured::Lists(_) => Part::Lists,
            Measured::Startup(_) => Part::Startup,
            Measured::Observing(_) => Part::Observing,
            Measured::Instructions(_) => Part::Instructions,
            Measured::Scale(_) => Part::Scale,
            Measured::Replicas(_) => Part::Replicas,
        }
    }

    fn tables(&self) -> Vec<table::ReportTable> {
        match &self.measured {
            Measured::Calls(calls) => table::of_calls(calls),
            Measured::Lists(lists) => vec![table::of_lists(lists)],
            Measured::Startup(startup) => vec![table::of_startup(startup)],
            Measured::Observing(observing) => vec![table::of_observing(observing)],
            Measured::Instructions(costs) => vec![table::of_instructions(costs)],
            Measured::Scale(scale) => table::of_scale(scale),
            Measured::Replicas(replicas) => table::of_replicas(replicas),
        }
    }
}
