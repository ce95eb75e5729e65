//! A table of text: columns as wide as their widest cell, two spaces between them, the last one ragged. On a terminal that
//! is too narrow for it, the widest columns are cut.

use std::fmt;

#[derive(Debug)]
pub(crate) struct Table<const N: usize> {
    rows: Vec<[String; N]>,
    hidden: [bool; N],
    /// The columns of the terminal; `None` for as many as it takes.
    within: Option<usize>,
}

/// Between two columns.
const GAP: &str = "  ";
/// A cut column is at least this wide.
const NARROWEST: usize = 12;

impl<const N: usize> Table<N> {
    pub(crate) fn new(titles: [&str; N]) -> Self {
        Self { rows: vec![titles.map(str::to_owned)], hidden: [false; N], within: None }
    }

    /// Adds a row. Of each cell the first line counts.
    pub(crate) fn row(&mut self, cells: [&str; N]) {
        self.rows.push(cells.map(one_line));
    }

    /// Leaves out a column that has nothing in it.
    pub(crate) fn hide_if_empty(&mut self, column: usize) {
        self.hidden[column] = self.rows.iter().skip(1).all(|row| row[column].is_empty());
    }

    /// The same table for a terminal with so many columns.
    pub(crate) fn within(self, columns: Option<usize>) -> Self {
        Self { within: columns, ..self }
    }

    fn widths(&self) -> [usize; N] {
        let width = |column: usize| match self.hidden[column] {
            true => 0,
            false => self.rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0),
        };
        let mut widths: [usize; N] = std::array::from_fn(width);
        let gaps = GAP.len() * self.hidden.iter().filter(|hidden| !**hidden).count().saturating_sub(1);
        let Some(room) = self.within.map(|columns| columns.saturating_sub(gaps)) else { return widths };
        loop {
            let excess = widths.iter().sum::<usize>().saturating_sub(room);
            // Of two that are equally wide the later one says less.
            match widths.iter_mut().max_by_key(|width| **width) {
                Some(widest) if excess > 0 && *widest > NARROWEST => {
                    *widest = widest.saturating_sub(excess).max(NARROWEST);
                }
                _ => return widths,
            }
        }
    }
}

impl<const N: usize> fmt::Display for Table<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let widths = self.widths();
        for (at, row) in self.rows.iter().enumerate() {
            let shown = row.iter().zip(widths).zip(self.hidden).filter(|(_, hidden)| !hidden);
            let cells = shown.map(|((cell, width), _)| format!("{:width$}", cut(cell, width)));
            let line = cells.collect::<Vec<_>>().join(GAP);
            let newline = if at == 0 { "" } else { "\n" };
            write!(f, "{newline}{}", line.trim_end())?;
        }
        Ok(())
    }
}

/// A text in no more than `width` characters.
fn cut(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    let kept: String = text.chars().take(width.saturating_sub(1)).collect();
    format!("{}…", kept.trim_end())
}

fn one_line(text: &str) -> String {
    let line = text.trim().lines().next().unwrap_or_default();
    line.chars().map(|letter| if letter.is_control() { ' ' } else { letter }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let mut table = Table::new(["A", "LONG"]);
        table.row(["é", "x"]);
        table.row(["abc", "first\nsecond"]);
        assert_eq!(table.to_string(), "A    LONG\né    x\nabc  first");
    }

    #[test]
    fn the_widest_column_is_cut_to_the_width_of_the_terminal() {
        let mut table = Table::new(["NAME", "DESCRIPTION"]);
        table.row(["demo", "Says what it was told, and nothing else."]);
        let table = table.within(Some(24));
        assert_eq!(table.to_string(), "NAME  DESCRIPTION\ndemo  Says what it was…");
        assert!(table.to_string().lines().all(|line| line.chars().count() <= 24));
        let table = table.within(None);
        assert!(table.to_string().ends_with("nothing else."), "a file or a pipe has any width");
    }

    #[test]
    fn an_empty_column_can_be_left_out() {
        let mut table = Table::new(["A", "B", "C"]);
        table.row(["1", "", "3"]);
        table.hide_if_empty(1);
        assert_eq!(table.to_string(), "A  C\n1  3");
    }
}
