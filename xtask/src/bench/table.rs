//! Medians of ratios, as a table and as a file.

use std::fmt::Write as _;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::environment::Environment;
use super::figures::{Column, Figures, Telling};
use super::row::{Echo, Row, Work};
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

    pub(super) fn row(&mut self, row: &Row, rounds: Vec<Vec<Figures>>) {
        let columns = row.work.columns();
        let text = format!(
            "\n## {}\n\n{}\n\n{}{}",
            row.name,
            sentence(row),
            head(columns),
            lines(columns, &rounds)
        );
        println!("{text}");
        self.text.push_str(&text);
        self.rows.push(json!({
            "row": row.name,
            "load": sentence(row),
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
        std::fs::write(&file, serde_json::to_string_pretty(&all)? + "\n")?;
        std::fs::write(folder.join(format!("{stem}.md")), &self.text)?;
        println!("{} s; {}", elapsed.as_secs(), file.display());
        Ok(if is_whole {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        })
    }
}

/// What the clients of a row do.
fn sentence(row: &Row) -> String {
    let scheme = if row.is_tls { "wss" } else { "ws" };
    match row.work {
        Work::Echo(load) => format!(
            "{}, {} in flight on each",
            echo(load, scheme),
            load.in_flight
        ),
        Work::Idle { connections } => format!(
            "{connections} connections over {scheme} that do nothing; memory over that of the \
             server without any"
        ),
        Work::Handshakes {
            connections,
            open_max,
            is_resumed,
        } => format!(
            "{connections} connections over {scheme}, one message each, at most {open_max} open at \
             once; sessions are {}resumed",
            if is_resumed { "" } else { "not " }
        ),
        Work::Generate(load) => format!(
            "{}; the same server, moonwire without Lua, under several generators",
            echo(load, scheme)
        ),
        Work::Paced(load) => format!(
            "{}, at 80 % of what the slowest of these can answer; latencies from the intended \
             moments of sending",
            echo(load, scheme)
        ),
    }
}

fn echo(load: Echo, scheme: &str) -> String {
    let Echo {
        connections,
        message_bytes,
        ..
    } = load;
    format!("{connections} connections over {scheme}, messages of {message_bytes} B")
}

fn head(columns: &[Column]) -> String {
    let (mut titles, mut line) = ("| |".to_owned(), "|---|".to_owned());
    for column in columns {
        let _ = write!(titles, " {} |", column.title);
        line.push_str("---|");
        if column.telling == Telling::Compared {
            titles.push_str(" ratio |");
            line.push_str("---|");
        }
    }
    format!("{titles}\n{line}\n")
}

/// One for each contender, beside the first.
fn lines(columns: &[Column], rounds: &[Vec<Figures>]) -> String {
    let count = rounds.first().map_or(0, Vec::len);
    let mut text = String::new();
    for place in 0..count {
        let _ = write!(text, "| {} |", rounds[0][place].name);
        for column in columns {
            let of = |place: usize| rounds.iter().map(move |round| round[place].of(column.key));
            let _ = write!(text, " {} |", column.text(median(of(place).collect())));
            if column.telling == Telling::Compared {
                let ratios = of(place).zip(of(0)).map(|(own, rival)| own / rival);
                let mark = if is_held_back(column, place, rounds) {
                    "*"
                } else {
                    ""
                };
                let _ = write!(text, " {}{mark} |", spread(ratios.collect()));
            }
        }
        text.push('\n');
    }
    text
}

/// Whether a throughput is of a server that was not busy all the time.
fn is_held_back(column: &Column, place: usize, rounds: &[Vec<Figures>]) -> bool {
    let shares = rounds.iter().map(|round| round[place].of("server_share"));
    matches!(column.key, "messages_per_s" | "connections_per_s") && median(shares.collect()) < BUSY
}

/// From here on a server is busy all the time: beginning and ending take the rest.
const BUSY: f64 = 0.9;

fn spread(mut ratios: Vec<f64>) -> String {
    ratios.sort_by(f64::total_cmp);
    match ratios.as_slice() {
        [] => String::new(),
        // It was not measured.
        ratios if ratios.iter().any(|ratio| ratio.is_nan()) => "-".to_owned(),
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
        let figure = |name: &str, messages_per_s, cpu_ns| {
            let name = name.to_owned();
            let values = [
                ("messages_per_s", messages_per_s),
                ("cpu_ns", cpu_ns),
                ("server_share", 1.0),
            ];
            Figures::new(name, values)
        };
        // The machine was half as fast in the second round.
        let rounds = [(1.0, 1.0), (0.5, 2.0), (1.0, 1.0)].map(|(speed, cost)| {
            vec![
                figure("rival", 1000.0 * speed, 5000.0 * cost),
                figure("ours", 1500.0 * speed, 4000.0 * cost),
            ]
        });
        let columns = &[
            Column::compared("messages_per_s", "messages/s"),
            Column::compared("cpu_ns", "CPU, ns a message"),
            Column::share("server_share", "busy"),
            Column::told("p99_us", "p99, us"),
        ];
        let ours = "| ours | 1500 | 1.50 [1.50, 1.50] | 4000 | 0.80 [0.80, 0.80] | 100 % | - |\n";
        assert!(lines(columns, &rounds).ends_with(ours));
        assert!(head(columns).starts_with("| | messages/s | ratio |"));
        assert_eq!(median(vec![3.0, 1.0, 2.0, 4.0]), 2.5);
    }
}
