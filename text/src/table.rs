//! Columns for people.
//!
//! For: lists of jobs and tables of benches.
//! In and out: rows of text → aligned lines.
//! Invariants: a column is as wide as its longest cell; no line ends in blanks.
//! Absent on purpose: colour, borders, the width of a terminal.

use std::fmt;

/// Lines of cells: the first column to the left, all others to the right.
#[derive(Debug)]
pub struct Table {
    lines: Vec<Vec<String>>,
}

impl Table {
    /// A table with these heads.
    #[must_use]
    pub fn new(heads: &[&str]) -> Self {
        Table { lines: vec![heads.iter().map(|&head| head.to_owned()).collect()] }
    }

    /// One more line; cells that are not given stay empty.
    pub fn line(&mut self, cells: impl IntoIterator<Item = String>) {
        self.lines.push(cells.into_iter().collect());
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let columns = self.lines.iter().map(Vec::len).max().unwrap_or(0);
        let width = |column: usize| {
            let cells = self.lines.iter().filter_map(|line| line.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..columns).map(width).collect();
        for line in &self.lines {
            let mut text = String::new();
            for (column, cell) in line.iter().enumerate() {
                let room = widths[column];
                match column {
                    0 => text.push_str(&format!("{cell:<room$}")),
                    _ => text.push_str(&format!("  {cell:>room$}")),
                }
            }
            writeln!(f, "{}", text.trim_end())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let mut table = Table::new(&["what", "GB/s"]);
        table.line(["memcpy".to_owned(), "10.0".to_owned()]);
        assert_eq!(table.to_string(), "what    GB/s\nmemcpy  10.0\n");
    }
}
