//! A table once, as text, Markdown or HTML.

use crate::format::{escaped, in_markdown};

/// Rows of cells; the first column is text, the others are numbers and lean right.
pub(crate) struct Table {
    header: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Table {
    pub(crate) fn new(header: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self {
            header: line(header),
            rows: Vec::new(),
        }
    }

    /// Adds a row; missing cells at its end stay empty.
    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = impl Into<String>>) {
        self.rows.push(line(cells));
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Aligned columns, indented by two, with the header underlined by nothing: a terminal has
    /// bold for that, which the caller adds to the first line.
    pub(crate) fn to_text(&self) -> String {
        let widths = self.widths();
        let mut text = String::new();
        for cells in std::iter::once(&self.header).chain(&self.rows) {
            let mut line = String::from(" ");
            for (column, width) in widths.iter().enumerate() {
                let cell = cells.get(column).map_or("", String::as_str);
                let padding = " ".repeat(width - cell.chars().count());
                let (before, after) = if column == 0 {
                    ("", padding.as_str())
                } else {
                    (padding.as_str(), "")
                };
                line.push_str(&format!(" {before}{cell}{after} "));
            }
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }

    /// Aligned columns that all lean left, header and rows alike: for names and phrases.
    pub(crate) fn to_lines(&self) -> String {
        let widths = self.widths();
        let mut text = String::new();
        for cells in std::iter::once(&self.header).chain(&self.rows) {
            let columns = widths.iter().zip(cells);
            let line: String = columns
                .map(|(&width, cell)| format!("  {cell:<width$}"))
                .collect();
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }

    /// A pipe table, aligned in the source as well.
    pub(crate) fn to_markdown(&self) -> String {
        let safe = |cells: &Vec<String>| cells.iter().map(|cell| in_markdown(cell)).collect();
        let safe = Self {
            header: safe(&self.header),
            rows: self.rows.iter().map(safe).collect(),
        };
        safe.to_markdown_as_it_is()
    }

    fn to_markdown_as_it_is(&self) -> String {
        let widths = self.widths();
        let mut text = markdown_row(&self.header, &widths);
        for (column, width) in widths.iter().enumerate() {
            let dashes = "-".repeat(width + 1);
            text.push_str(&if column == 0 {
                format!("|:{dashes}")
            } else {
                format!("|{dashes}:")
            });
        }
        text.push_str("|\n");
        for cells in &self.rows {
            text.push_str(&markdown_row(cells, &widths));
        }
        text
    }

    /// A `<table>` in a wrapper that scrolls when the page is narrow.
    pub(crate) fn to_html(&self) -> String {
        let mut html = String::from("<div class=\"scroll\"><table><thead><tr>");
        for cell in &self.header {
            // Names of metrics are one word each.
            let name = match cell.contains('_') {
                // The unit at the end of some is no word.
                true if !cell.ends_with("_s") => {
                    escaped(cell).replace('_', "_<wbr>").replace('.', ".<wbr>")
                }
                true => escaped(cell),
                false => escaped(cell),
            };
            html.push_str(&match cell.chars().count() > LONG_HEADER {
                true => format!("<th scope=\"col\" class=\"long\">{name}</th>"),
                false => format!("<th scope=\"col\">{name}</th>"),
            });
        }
        html.push_str("</tr></thead><tbody>\n");
        for cells in &self.rows {
            html.push_str("<tr>");
            for column in 0..self.header.len() {
                let cell = escaped(cells.get(column).map_or("", String::as_str));
                if column == 0 {
                    html.push_str(&format!("<th scope=\"row\">{cell}</th>"));
                } else if VERDICTS.contains(&cell.as_str()) {
                    let badge = format!("<span class=\"badge {cell}\">{cell}</span>");
                    html.push_str(&format!("<td>{badge}</td>"));
                } else {
                    html.push_str(&format!("<td>{cell}</td>"));
                }
            }
            html.push_str("</tr>\n");
        }
        html.push_str("</tbody></table></div>\n");
        html
    }

    fn widths(&self) -> Vec<usize> {
        let width = |column: usize| {
            let cells = std::iter::once(&self.header).chain(&self.rows);
            cells
                .filter_map(|row| row.get(column))
                .map(|cell| cell.chars().count())
                .max()
        };
        (0..self.header.len())
            .map(|column| width(column).unwrap_or(0))
            .collect()
    }
}

/// Cells of one row, each of one line: names come from files.
fn line(cells: impl IntoIterator<Item = impl Into<String>>) -> Vec<String> {
    let in_one_line = |cell: String| cell.replace(char::is_control, " ");
    cells.into_iter().map(Into::into).map(in_one_line).collect()
}

fn markdown_row(cells: &[String], widths: &[usize]) -> String {
    let mut row = String::new();
    for (column, width) in widths.iter().enumerate() {
        let cell = cells.get(column).map_or("", String::as_str);
        let padding = " ".repeat(width.saturating_sub(cell.chars().count()));
        row.push_str(&if column == 0 {
            format!("| {cell}{padding} ")
        } else {
            format!("| {padding}{cell} ")
        });
    }
    row.push_str("|\n");
    row
}

/// Letters of a header that goes on in further lines, and must not have one for each word.
const LONG_HEADER: usize = 16;
/// Words that the page shows as badges.
const VERDICTS: [&str; 3] = ["VALID", "SUSPECT", "INVALID"];

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Table {
        let mut table = Table::new(["", "1000 clients"]);
        table.row(["mean µs", "27.1"]);
        table.row(["a|<b>"]);
        table
    }

    #[test]
    fn text_aligns_numbers_to_the_right() {
        let expected = "           1000 clients\n  mean µs          27.1\n  a|<b>\n";
        assert_eq!(sample().to_text(), expected);
    }

    #[test]
    fn markdown_has_a_rule_and_no_stray_pipes() {
        let expected = "|         | 1000 clients |\n|:--------|-------------:|\n\
                        | mean µs |         27.1 |\n| a\\|\\<b> |              |\n";
        assert_eq!(sample().to_markdown(), expected);
    }

    #[test]
    fn a_name_of_several_lines_stays_in_its_row() {
        let mut table = Table::new(["", "a\nb"]);
        table.row(["c\r\nd", "\u{1b}[31me"]);
        assert_eq!(table.to_markdown().lines().count(), 3);
        assert!(
            table.to_markdown().contains("| c  d |"),
            "{}",
            table.to_markdown()
        );
        assert_eq!(table.to_text().lines().count(), 2);
        assert!(!table.to_text().contains('\u{1b}'));
    }

    #[test]
    fn long_headers_go_on_in_another_line_of_some_width() {
        let html = Table::new(["server.memory_peak", "p99"]).to_html();
        let long = "<th scope=\"col\" class=\"long\">server.<wbr>memory_<wbr>peak</th>";
        assert!(html.contains(long), "{html}");
        assert!(html.contains("<th scope=\"col\">p99</th>"), "{html}");
    }

    #[test]
    fn html_is_escaped() {
        assert!(sample().to_html().contains("a|&lt;b&gt;"));
    }
}
