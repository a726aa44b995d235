//! The look of a text file: width, ends of lines, end of file.

use super::Finding;
use super::tree::File;

/// Columns of a source line; the same number is in `rustfmt.toml`.
const COLUMNS_MAX: usize = 100;

pub(crate) fn check(file: &File, findings: &mut Vec<Finding>) {
    let narrow = matches!(file.extension(), "rs" | "lua" | "py" | "js" | "mjs" | "sh");
    for (index, line) in file.text.split('\n').enumerate() {
        let columns = line.chars().count();
        if narrow && columns > COLUMNS_MAX {
            let advice = format!("{columns} columns, at most {COLUMNS_MAX}");
            findings.push(Finding::new(file, index + 1, "width", advice));
        }
        if line.ends_with([' ', '\t', '\r']) {
            findings.push(Finding::new(
                file,
                index + 1,
                "space",
                "no white space at line ends",
            ));
        }
    }
    let lines = file.text.lines().count();
    if !file.text.is_empty() && !file.text.ends_with('\n') {
        findings.push(Finding::new(
            file,
            lines,
            "newline",
            "a file ends with a newline",
        ));
    }
    if file.text.ends_with("\n\n") {
        findings.push(Finding::new(
            file,
            lines,
            "newline",
            "no empty lines at the end",
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::found;

    #[test]
    fn wide_lines_are_for_prose() {
        let wide = format!("{}\n", "é".repeat(101));
        assert_eq!(found(check, "a.rs", &wide), [(1, "width")]);
        assert_eq!(found(check, "a.md", &wide), []);
        assert_eq!(found(check, "a.rs", &format!("{}\n", "é".repeat(100))), []);
    }

    #[test]
    fn lines_end_without_spaces() {
        assert_eq!(
            found(check, "a.md", "a \nb\t\nc\r\nd\n"),
            [(1, "space"), (2, "space"), (3, "space")]
        );
    }

    #[test]
    fn files_end_with_one_newline() {
        assert_eq!(found(check, "a.toml", "a"), [(1, "newline")]);
        assert_eq!(found(check, "a.toml", "a\n\n"), [(2, "newline")]);
        assert_eq!(found(check, "a.toml", ""), []);
    }
}
