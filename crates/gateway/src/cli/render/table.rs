//! A table of text: columns as wide as their widest cell, two spaces between them, the last one ragged.

use std::fmt;

#[derive(Debug)]
pub(crate) struct Table<const N: usize> {
    rows: Vec<[String; N]>,
}

impl<const N: usize> Table<N> {
    pub(crate) fn new(titles: [&str; N]) -> Self {
        Self { rows: vec![titles.map(str::to_owned)] }
    }

    /// Adds a row. Of each cell the first line counts.
    pub(crate) fn row(&mut self, cells: [&str; N]) {
        self.rows.push(cells.map(one_line));
    }
}

impl<const N: usize> fmt::Display for Table<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width =
            |column: usize| self.rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
        let widths: [usize; N] = std::array::from_fn(width);
        for (at, row) in self.rows.iter().enumerate() {
            let cells = row.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}"));
            let line = cells.collect::<Vec<_>>().join("  ");
            let newline = if at == 0 { "" } else { "\n" };
            write!(f, "{newline}{}", line.trim_end())?;
        }
        Ok(())
    }
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
}
