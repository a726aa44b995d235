//! The same load from another generator, beside ours.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::battle::Section;
use crate::cell::Cell;
use crate::format;
use crate::groups;
use crate::histogram::Histogram;
use crate::quantiles::microseconds;
use crate::run::Run;
use crate::statistics::ranks::median;
use crate::table::Table;

/// What another generator measured of the same processes, right after us.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct CrossCheck {
    /// The generator.
    pub client: String,
    /// Messages that it sent.
    pub sent: u64,
    /// Messages that came back.
    pub received: u64,
    /// Whether its latencies begin when a message was meant to be sent; else when it was.
    pub from_intended: bool,
    /// The median, microseconds.
    pub p50_us: f64,
    /// The 99th percentile, microseconds.
    pub p99_us: f64,
    /// The largest, microseconds.
    pub max_us: f64,
    /// The mean, microseconds.
    pub mean_us: f64,
    /// Time for which its own limit on CPU kept processors from it, milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub throttled_ms: Option<f64>,
    /// Why there are no figures, if there are none.
    pub failure: Option<String>,
}

impl CrossCheck {
    /// Those of ours that begin where its begin.
    fn ours<'a>(&self, cell: &'a Cell) -> &'a Histogram {
        match self.from_intended {
            true => &cell.latency.response,
            false => &cell.latency.service,
        }
    }
}

/// One load of one contestant, measured by one other generator.
#[derive(PartialEq)]
struct Key {
    load: String,
    contestant: String,
    client: String,
}

/// Ours beside theirs, medians of the rounds; `None` where nobody else measured.
pub(crate) fn section(run: &Run) -> Option<Section> {
    let mut groups: Vec<(Key, Vec<(&Cell, &CrossCheck)>)> = Vec::new();
    for cell in run.cells() {
        for check in cell.contest.iter().flat_map(|it| &it.cross_checks) {
            let key = key(cell, check);
            match groups.iter_mut().find(|(known, _)| *known == key) {
                Some((_, rounds)) => rounds.push((cell, check)),
                None => groups.push((key, vec![(cell, check)])),
            }
        }
    }
    if groups.is_empty() {
        return None;
    }
    groups.sort_by(|(one, _), (other, _)| {
        let order = |key: &Key| (key.load.clone(), key.contestant.clone(), key.client.clone());
        order(one).cmp(&order(other))
    });
    let mut table = Table::new([
        "load",
        "contestant",
        "generator",
        "rounds",
        "sent",
        "p50",
        "p99",
        "max",
        "mean",
    ]);
    let mut sentences = Vec::new();
    for (key, rounds) in &groups {
        add(&mut table, key, rounds);
        let failures = rounds
            .iter()
            .filter_map(|(_, check)| check.failure.as_ref());
        sentences.extend(failures.take(1).cloned());
        sentences.extend(throttled(key, rounds));
    }
    Some(Section {
        title: "what other generators measured of the same processes".to_owned(),
        table,
        sentences,
    })
}

/// What a limit on its CPU did to another generator: its latencies have these pauses.
fn throttled(key: &Key, rounds: &[(&Cell, &CrossCheck)]) -> Option<String> {
    let times = rounds.iter().filter_map(|(_, check)| check.throttled_ms);
    let longest_ms = times.fold(0.0, f64::max);
    (longest_ms > 0.0).then(|| {
        format!(
            "{} was kept waiting by the limit on the client's CPU, for up to {}",
            key.client,
            format::latency(longest_ms * 1e3)
        )
    })
}

fn key(cell: &Cell, check: &CrossCheck) -> Key {
    let contest = cell.contest.as_ref();
    let tls = contest.is_some_and(|contest| contest.tls);
    Key {
        load: format!(
            "{} connections, {}, {}",
            format::count(cell.parameters.clients),
            if tls { "wss" } else { "ws" },
            groups::described(&cell.parameters)
        ),
        contestant: contest.map_or_else(String::new, |it| it.contestant.clone()),
        client: check.client.clone(),
    }
}

/// A row of theirs and one of ours.
fn add(table: &mut Table, key: &Key, rounds: &[(&Cell, &CrossCheck)]) {
    let done: Vec<_> = rounds
        .iter()
        .filter(|(_, check)| check.failure.is_none())
        .collect();
    let median_of = |mut values: Vec<f64>| {
        values.sort_by(f64::total_cmp);
        let found = (!values.is_empty()).then(|| median(&values));
        format::latency_or_dash(found)
    };
    let theirs = |figure: fn(&CrossCheck) -> f64| {
        median_of(done.iter().map(|(_, check)| figure(check)).collect())
    };
    let ours = |figure: fn(&Histogram) -> Option<f64>| {
        let values = done
            .iter()
            .filter_map(|(cell, check)| figure(check.ours(cell)));
        median_of(values.map(microseconds).collect())
    };
    let sent: u64 = done.iter().map(|(_, check)| check.sent).sum();
    let own_sent: u64 = done.iter().map(|(cell, _)| cell.messages.sent).sum();
    let is_intended = done.first().is_some_and(|(_, check)| check.from_intended);
    let from = if is_intended { "intended" } else { "sent" };
    table.row([
        key.load.clone(),
        key.contestant.clone(),
        format!("{} (from {from})", key.client),
        done.len().to_string(),
        format::count(sent),
        theirs(|check| check.p50_us),
        theirs(|check| check.p99_us),
        theirs(|check| check.max_us),
        theirs(|check| check.mean_us),
    ]);
    table.row([
        String::new(),
        String::new(),
        format!("moonwire (from {from})"),
        done.len().to_string(),
        format::count(own_sent),
        ours(|histogram| histogram.quantile_ns(0.5).map(|ns| ns as f64)),
        ours(|histogram| histogram.quantile_ns(0.99).map(|ns| ns as f64)),
        ours(|histogram| histogram.max_ns().map(|ns| ns as f64)),
        ours(Histogram::mean_ns),
    ]);
}

#[cfg(test)]
mod tests {
    use super::super::battle::tests;
    use super::*;
    use crate::run::Content;

    #[test]
    fn theirs_stands_beside_ours_and_a_failure_is_said() {
        let mut run = tests::run(&[("a", 2.0)], 3);
        let Content::Bench(cells) = &mut run.content else {
            panic!("a battle");
        };
        for (index, cell) in cells.iter_mut().enumerate() {
            cell.latency.service.record(1_500_000);
            cell.contest.as_mut().unwrap().cross_checks = vec![CrossCheck {
                client: "k6".to_owned(),
                sent: 100,
                received: 100,
                p50_us: 1600.0 + index as f64,
                p99_us: 2000.0,
                max_us: 3000.0,
                mean_us: 1700.0,
                ..CrossCheck::default()
            }];
        }
        let last = cells[2].contest.as_mut().unwrap();
        last.cross_checks[0].failure = Some("k6 ended with code 1".to_owned());
        let section = section(&run).unwrap();
        let text = section.table.to_text();
        let row = |name: &str| {
            let row = text.lines().find(|line| line.contains(name));
            row.unwrap_or_else(|| panic!("{text}")).to_owned()
        };
        let theirs = row("k6 (from sent)");
        assert!(theirs.contains("  2   200  1.60 ms  2.00 ms"), "{theirs}");
        assert!(row("moonwire (from sent)").contains("1.50 ms"), "{text}");
        assert_eq!(section.sentences, ["k6 ended with code 1"]);
        assert_eq!(Run::parse(&run.to_json(), "run.json"), Ok(run));
    }

    #[test]
    fn nobody_else_measured() {
        assert!(section(&tests::run(&[("a", 2.0)], 3)).is_none());
    }
}
