//! Text table: columns as wide as their widest cell, separated by two spaces. On a narrow terminal the widest columns
//! are cut.

use std::fmt;

#[derive(Debug)]
pub(crate) struct Table<const N: usize> {
    rows: Vec<[String; N]>,
    hidden: [bool; N],
    /// The columns of the terminal; `None` for no limit.
    max_width: Option<usize>,
}

/// Separator of columns.
const GAP: &str = "  ";
/// A cut column is at least this wide.
const MIN_WIDTH: usize = 12;

impl<const N: usize> Table<N> {
    pub(crate) fn new(titles: [&str; N]) -> Self {
        Self { rows: vec![titles.map(str::to_owned)], hidden: [false; N], max_width: None }
    }

    /// Adds a row. Only the first line of each cell is shown.
    pub(crate) fn row(&mut self, cells: [&str; N]) {
        self.rows.push(cells.map(one_line));
    }

    /// Hides a column without content.
    pub(crate) fn hide_if_empty(&mut self, column: usize) {
        self.hidden[column] = self.rows.iter().skip(1).all(|row| row[column].is_empty());
    }

    /// Limits the table to the columns of the terminal.
    pub(crate) fn with_max_width(self, columns: Option<usize>) -> Self {
        Self { max_width: columns, ..self }
    }

    fn widths(&self) -> [usize; N] {
        let width = |column: usize| match self.hidden[column] {
            true => 0,
            false => self.rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0),
        };
        let mut widths: [usize; N] = std::array::from_fn(width);
        let gaps = GAP.len() * self.hidden.iter().filter(|hidden| !**hidden).count().saturating_sub(1);
        let Some(room) = self.max_width.map(|columns| columns.saturating_sub(gaps)) else { return widths };
        loop {
            let excess = widths.iter().sum::<usize>().saturating_sub(room);
            // Of two equally wide columns the later one is less important.
            match widths.iter_mut().max_by_key(|width| **width) {
                Some(widest) if excess > 0 && *widest > MIN_WIDTH => {
                    *widest = widest.saturating_sub(excess).max(MIN_WIDTH);
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
            let cells = shown.map(|((cell, width), _)| format!("{:width$}", truncate(cell, width)));
            let line = cells.collect::<Vec<_>>().join(GAP);
            let newline = if at == 0 { "" } else { "\n" };
            write!(f, "{newline}{}", line.trim_end())?;
        }
        Ok(())
    }
}

/// The text in at most `width` characters.
fn truncate(text: &str, width: usize) -> String {
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
        let table = table.with_max_width(Some(24));
        assert_eq!(table.to_string(), "NAME  DESCRIPTION\ndemo  Says what it was…");
        assert!(table.to_string().lines().all(|line| line.chars().count() <= 24));
        let table = table.with_max_width(None);
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
