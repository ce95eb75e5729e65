//! The sections of `docs/performance.md` that the tool writes. What stands between them is written by people.

use super::{Measured, Section};
use crate::figure::Figure;
use gripfast_place::Place;

/// A page without a section.
pub(super) const EMPTY: &str = "# Performance\n";

pub(super) fn section(place: &Place, section: &Section) -> String {
    let Place { command, machine, load, date } = place;
    let figures: String = section.figures.iter().map(figure).collect();
    let tables: String = section.tables().iter().map(super::table::Table::to_markdown).collect();
    let plots: String = match &section.measured {
        Measured::Scale(scale) => {
            let plot = |over: &str| format!("![Growth over {over}](performance/{over}.svg)\n");
            scale.growth.iter().map(|growth| plot(growth.over.word())).collect()
        }
        Measured::Calls(_) | Measured::Lists(_) | Measured::Startup(_) | Measured::Observing(_) => {
            String::new()
        }
    };
    format!(
        "`{command}`, {date}, on {machine}; load before the run {load}.\n\n\
         | | to reach | measured |\n|---|---|---:|\n{figures}\n{tables}{plots}"
    )
}

/// The page with this section in the place of the one of that name, or at its end.
pub(super) fn with_section(page: &str, name: &str, section: &str) -> String {
    let (begin, end) = (format!("<!-- bench: {name} -->\n"), format!("<!-- end of bench: {name} -->\n"));
    let written = format!("{begin}\n{section}\n{end}");
    match (page.find(&begin), page.find(&end)) {
        (Some(from), Some(to)) if from < to => [&page[..from], &written, &page[to + end.len()..]].concat(),
        _ => format!("{page}\n## {name}\n\n{written}"),
    }
}

fn figure(Figure { goal, measured, met }: &Figure) -> String {
    format!("| {} | {goal} | {measured} |\n", if *met { "met" } else { "**missed**" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_section_replaces_the_one_before_and_nothing_else() {
        let page = with_section(EMPTY, "calls", "one");
        let page = with_section(&page, "lists", "two") + "by hand\n";
        let again = with_section(&page, "calls", "three");
        assert_eq!(again, page.replace("one", "three"));
        assert!(again.contains("two") && again.ends_with("by hand\n"));
    }
}
