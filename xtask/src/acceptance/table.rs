//! The table that an acceptance prints: line, figure, limit, outcome.

use std::process::ExitCode;

/// Lines are printed when all are there, so that progress does not tear them apart.
pub(crate) struct Table {
    title: &'static str,
    lines: Vec<Line>,
}

struct Line {
    name: String,
    figure: String,
    limit: String,
    passed: bool,
}

impl Table {
    pub(crate) fn new(title: &'static str) -> Self {
        Self {
            title,
            lines: Vec::new(),
        }
    }

    /// Adds a line, and says it at once on stderr.
    pub(crate) fn line(
        &mut self,
        name: impl Into<String>,
        figure: impl Into<String>,
        limit: impl Into<String>,
        passed: bool,
    ) {
        let line = Line {
            name: name.into(),
            figure: figure.into(),
            limit: limit.into(),
            passed,
        };
        eprintln!(
            "{}: {} ({}) {}",
            line.name,
            line.figure,
            line.limit,
            line.outcome()
        );
        self.lines.push(line);
    }

    /// Prints the table; the exit code says whether every line passed.
    pub(crate) fn finish(self) -> ExitCode {
        println!("{self}");
        let passed = self.lines.iter().all(|line| line.passed);
        if passed {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        }
    }
}

impl Line {
    fn outcome(&self) -> &'static str {
        if self.passed { "PASS" } else { "FAIL" }
    }
}

impl std::fmt::Display for Table {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(f, "## {}\n", self.title)?;
        writeln!(f, "| line | figure | limit | |\n|---|---|---|---|")?;
        for line in &self.lines {
            let Line {
                name,
                figure,
                limit,
                ..
            } = line;
            writeln!(f, "| {name} | {figure} | {limit} | {} |", line.outcome())?;
        }
        Ok(())
    }
}

/// The median of a figure of each sample, and its range.
pub(crate) fn median<T>(samples: &[T], figure: impl Fn(&T) -> f64) -> String {
    let mut values: Vec<f64> = samples.iter().map(figure).collect();
    values.sort_by(f64::total_cmp);
    let at = |index: usize| values.get(index).copied().unwrap_or(f64::NAN);
    let (least, most) = (at(0), at(values.len().saturating_sub(1)));
    format!("{:.1} [{least:.1}, {most:.1}]", at(values.len() / 2))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_markdown() {
        let mut table = Table::new("Title");
        table.line("a", "1 ms", "2 ms", true);
        table.line("b", "3 ms", "2 ms", false);
        let expected = "## Title\n\n| line | figure | limit | |\n|---|---|---|---|\n\
                        | a | 1 ms | 2 ms | PASS |\n| b | 3 ms | 2 ms | FAIL |\n";
        assert_eq!(table.to_string(), expected);
        assert_eq!(table.finish(), ExitCode::FAILURE);
    }

    #[test]
    fn a_median_has_its_range() {
        assert_eq!(median(&[9, 1, 4], |n| f64::from(*n)), "4.0 [1.0, 9.0]");
    }
}
