//! Tables of a report, as text and as Markdown.

/// A table whose first columns are text and whose others are numbers. The first line is the head.
#[derive(Debug)]
pub struct Table {
    text_columns: usize,
    lines: Vec<Vec<String>>,
}

impl Table {
    /// A table without rows.
    #[must_use]
    pub fn new(text_columns: usize, head: &[&str]) -> Self {
        Self { text_columns, lines: vec![head.iter().map(|&name| name.to_owned()).collect()] }
    }

    /// Adds a row.
    pub fn row(&mut self, cells: Vec<String>) {
        self.lines.push(cells);
    }

    /// The table with aligned columns.
    #[must_use]
    pub fn to_text(&self) -> String {
        let width =
            |column: usize| self.lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0);
        let widths: Vec<usize> = (0..self.lines[0].len()).map(width).collect();
        let line = |cells: &Vec<String>| {
            let padded = cells.iter().zip(&widths).enumerate().map(|(column, (cell, width))| {
                if column < self.text_columns { format!("{cell:width$}") } else { format!("{cell:>width$}") }
            });
            padded.collect::<Vec<_>>().join("  ") + "\n"
        };
        self.lines.iter().map(line).collect()
    }

    /// The table in Markdown.
    #[must_use]
    pub fn to_markdown(&self) -> String {
        let line = |cells: &Vec<String>| format!("| {} |\n", cells.join(" | "));
        let numbers = self.lines[0].len() - self.text_columns;
        let ruler = format!("|{}{}\n", "---|".repeat(self.text_columns), "---:|".repeat(numbers));
        let (head, body) = self.lines.split_first().expect("a table has a head");
        format!("{}{ruler}{}", line(head), body.iter().map(line).collect::<String>())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_aligned_left_and_numbers_right() {
        let mut table = Table::new(1, &["path", "p50"]);
        table.row(vec!["direct".to_owned(), "7".to_owned()]);
        assert_eq!(table.to_text(), "path    p50\ndirect    7\n");
        assert_eq!(table.to_markdown(), "| path | p50 |\n|---|---:|\n| direct | 7 |\n");
    }
}
