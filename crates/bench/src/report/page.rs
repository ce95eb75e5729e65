//! Generated sections of `docs/performance.md`. The text between them is written by hand.

use super::{Measured, Section};
use crate::scale::Dimension;
use gripfast_measure::figure::Figure;
use gripfast_measure::place::Place;

/// Page without sections.
pub(super) const EMPTY: &str = "# Performance\n";

/// Page of the part `replicas`, without its section.
pub(super) const EMPTY_OF_REPLICAS: &str = "\
# Performance of replicas

Cost of running several gateways as one service ([replicas.md](replicas.md)). The command below generates the section;
`docs/performance.md` has the cost of one gateway. Gateways, store, server and clients share the processors of one
machine, so that times with several replicas are longer than on several machines. Processor times and counts are not.

`[cluster]` on against off: two gateways with the same config and one client each, called in turns in the order off, on,
on, off. The ratio is the median over all rounds. Store commands are counted by the store itself; those of the same
time without calls are subtracted.
";

pub(super) fn section(place: &Place, section: &Section) -> String {
    let Place { command, machine, load, date } = place;
    let figures: String = section.figures.iter().map(Figure::to_markdown).collect();
    let tables: String = section.tables().iter().map(super::table::ReportTable::to_markdown).collect();
    let plots: String = match &section.measured {
        Measured::Scale(scale) => {
            let plot = |over: Dimension| {
                format!("![Growth with {}](performance/{}.svg)\n", over.label(), over.word())
            };
            scale.growth.iter().map(|growth| plot(growth.over)).collect()
        }
        Measured::Calls(_)
        | Measured::Lists(_)
        | Measured::Startup(_)
        | Measured::Observing(_)
        | Measured::Instructions(_)
        | Measured::Replicas(_) => String::new(),
    };
    format!(
        "`{command}`, {date}, on {machine}; load before the run {load}.\n\n\
         | | goal | measured |\n|---|---|---:|\n{figures}\n{tables}{plots}"
    )
}

/// Replaces the section of this name in a page, or appends it.
pub(super) fn with_section(page: &str, name: &str, section: &str) -> String {
    let (begin, end) = (format!("<!-- bench: {name} -->\n"), format!("<!-- end of bench: {name} -->\n"));
    let written = format!("{begin}\n{section}\n{end}");
    match (page.find(&begin), page.find(&end)) {
        (Some(from), Some(to)) if from < to => [&page[..from], &written, &page[to + end.len()..]].concat(),
        _ => format!("{page}\n## {name}\n\n{written}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_section_replaces_only_its_previous_version() {
        let page = with_section(EMPTY, "calls", "one");
        let page = with_section(&page, "lists", "two") + "by hand\n";
        let again = with_section(&page, "calls", "three");
        assert_eq!(again, page.replace("one", "three"));
        assert!(again.contains("two") && again.ends_with("by hand\n"));
    }
}
