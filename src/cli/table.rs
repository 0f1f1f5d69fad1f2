//! Aligned columns for people.

use super::{exit::Failure, output::Output};

/// The space between two columns.
const GAP: usize = 2;

/// Rows of text whose columns are as wide as their widest cell.
pub(super) struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    pub(super) fn new() -> Self {
        Self { rows: Vec::new() }
    }

    pub(super) fn with_head<const N: usize>(head: [&str; N]) -> Self {
        let mut table = Self::new();
        table.row(head.map(str::to_owned));
        table
    }

    pub(super) fn row<const N: usize>(&mut self, cells: [String; N]) {
        self.rows.push(cells.map(|cell| one_line(&cell)).into());
    }

    pub(super) fn print(self, out: &mut Output) -> Result<(), Failure> {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let widths: Vec<usize> = (0..columns)
            .map(|column| self.rows.iter().filter_map(|row| row.get(column)).map(|cell| width(cell)).max().unwrap_or(0))
            .collect();
        for row in &self.rows {
            let mut line = String::new();
            for (cell, column) in row.iter().zip(&widths) {
                line.push_str(cell);
                line.push_str(&" ".repeat(column - width(cell) + GAP));
            }
            out.line(line.trim_end())?;
        }
        Ok(())
    }
}

fn width(text: &str) -> usize {
    text.chars().count()
}

/// What others wrote must not break the lines, or reach the terminal as a command.
pub(super) fn one_line(text: &str) -> String {
    text.replace(char::is_control, " ")
}

/// The text on one line, cut to so many letters.
pub(super) fn brief(text: &str, letters: usize) -> String {
    let text = one_line(text);
    if width(&text) <= letters {
        return text;
    }
    text.chars().take(letters - 1).chain(['…']).collect()
}
