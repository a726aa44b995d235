//! Medians of ratios, as a table and as a file.

use std::fmt::Write as _;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::environment::Environment;
use super::measure::Measured;
use super::row::Row;
use crate::place;

/// What was measured so far.
pub(super) struct Results {
    environment: Environment,
    rows: Vec<Value>,
    text: String,
}

impl Results {
    pub(super) fn new(environment: Environment) -> Self {
        let Environment {
            cpu,
            cpus,
            kernel,
            commit,
            load_average,
            command,
            date,
        } = &environment;
        let text = format!(
            "# The server beside its rivals\n\n{date}, commit {commit}: {cpus} processors ({cpu}), \
             Linux {kernel}, load {load_average} before the start. `cargo xtask {command}`\n\n\
             The server on processor 0, the generator on processor 1. Medians over the rounds of \
             the ratio to the first line, with the least and the most; CPU is the server's, by the \
             scheduler's clock. A throughput with a * is of a server that was not busy all the \
             time: the generator, or the row, was the limit.\n"
        );
        Self {
            environment,
            rows: Vec::new(),
            text,
        }
    }

    pub(super) fn row(&mut self, row: &Row, rounds: Vec<Vec<Measured>>) {
        let lines = lines(&rounds);
        let text = format!("\n## {}\n\n{HEAD}{lines}", row.name);
        println!("{text}");
        self.text.push_str(&text);
        self.rows.push(json!({
            "row": row.name,
            "connections": row.connections,
            "message_bytes": row.message_bytes,
            "in_flight": row.in_flight,
            "tls": row.is_tls,
            "rounds": rounds,
        }));
    }

    pub(super) fn missing(&mut self, row: &Row, why: &str) {
        let text = format!("\n## {}\n\nnot measured: {why}\n", row.name);
        println!("{text}");
        self.text.push_str(&text);
        self.rows.push(json!({ "row": row.name, "missing": why }));
    }

    pub(super) fn finish(self, elapsed: Duration) -> Result<ExitCode> {
        let is_whole = self.rows.iter().all(|row| row.get("missing").is_none());
        let folder = place::root().join("bench/results");
        std::fs::create_dir_all(&folder).context("bench/results")?;
        let stem = self.environment.date.replace(':', "");
        let all = json!({
            "environment": self.environment,
            "elapsed_s": elapsed.as_secs(),
            "rows": self.rows,
        });
        let file = folder.join(format!("{stem}.json"));
        std::fs::write(&file, serde_json::to_string_pretty(&all)?)?;
        std::fs::write(folder.join(format!("{stem}.md")), &self.text)?;
        println!("{} s; {}", elapsed.as_secs(), file.display());
        Ok(if is_whole {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        })
    }
}

const HEAD: &str = "| | messages/s | throughput | CPU, ns a message | CPU | p99, us | busy | \
                    generator |\n|---|---|---|---|---|---|---|---|\n";

/// One for each contender, beside the first.
fn lines(rounds: &[Vec<Measured>]) -> String {
    let count = rounds.first().map_or(0, Vec::len);
    let mut text = String::new();
    for place in 0..count {
        let of = |figure: fn(&Measured) -> f64| -> Vec<f64> {
            rounds.iter().map(|round| figure(&round[place])).collect()
        };
        let beside = |figure: fn(&Measured) -> f64| {
            let ratios = rounds
                .iter()
                .map(|round| figure(&round[place]) / figure(&round[0]));
            spread(ratios.collect())
        };
        let busy = median(of(|it| it.server_share));
        let mark = if busy < BUSY { "*" } else { "" };
        let _ = writeln!(
            text,
            "| {} | {:.0} | {}{mark} | {:.0} | {} | {:.0} | {:.0} % | {:.0} % |",
            rounds[0][place].name,
            median(of(|it| it.messages_per_s)),
            beside(|it| it.messages_per_s),
            median(of(|it| it.cpu_ns)),
            beside(|it| it.cpu_ns),
            median(of(|it| it.p99_us)),
            busy * 100.0,
            median(of(|it| it.generator_share)) * 100.0,
        );
    }
    text
}

/// From here on a server is busy all the time: starting and ending a run takes the rest.
const BUSY: f64 = 0.9;

fn spread(mut ratios: Vec<f64>) -> String {
    ratios.sort_by(f64::total_cmp);
    match ratios.as_slice() {
        [] => String::new(),
        [least, ..] => {
            let most = ratios.last().copied().unwrap_or(*least);
            format!("{:.2} [{least:.2}, {most:.2}]", median(ratios.clone()))
        }
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match (values.get(middle), values.len() % 2) {
        (None, _) => f64::NAN,
        (Some(upper), 1) => *upper,
        (Some(upper), _) => f64::midpoint(values[middle - 1], *upper),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_of_one_round() {
        let figure = |name: &str, messages_per_s, cpu_ns| Measured {
            name: name.to_owned(),
            messages: 1.0,
            messages_per_s,
            cpu_ns,
            server_share: 1.0,
            generator_share: 0.5,
            p99_us: 1.0,
        };
        // The machine was half as fast in the second round.
        let rounds = [(1.0, 1.0), (0.5, 2.0), (1.0, 1.0)].map(|(speed, cost)| {
            vec![
                figure("rival", 1000.0 * speed, 5000.0 * cost),
                figure("ours", 1500.0 * speed, 4000.0 * cost),
            ]
        });
        let text = lines(&rounds);
        assert!(text.contains("| ours | 1500 | 1.50 [1.50, 1.50] | 4000 | 0.80 [0.80, 0.80] |"));
        assert_eq!(median(vec![3.0, 1.0, 2.0, 4.0]), 2.5);
    }
}
