//! How evenly a proxy spreads connections and work over the servers behind it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::battle::Section;
use crate::cell::Cell;
use crate::contest::Contest;
use crate::format;
use crate::groups;
use crate::run::Run;
use crate::table::Table;

/// What one of several servers had.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct BackendShare {
    /// Connections open at once, on average while messages were sent.
    pub connections: f64,
    /// CPU used, seconds.
    pub cpu_s: f64,
}

/// A row for each contestant and round; `None` where nobody had several servers.
pub(crate) fn section(run: &Run) -> Option<Section> {
    let mut table = Table::new([
        "load",
        "contestant",
        "round",
        "connections of each",
        "most / mean",
        "CPU of each",
        "most / mean",
    ]);
    let of_several = |cell: &&Cell| {
        let contest = cell.contest.as_ref();
        contest.is_some_and(|contest| contest.distribution.len() > 1)
    };
    let mut cells: Vec<&Cell> = run.cells().iter().filter(of_several).collect();
    if cells.is_empty() {
        return None;
    }
    cells.sort_by_key(|cell| {
        let contest = cell.contest.as_ref();
        let name = contest.map_or("", |contest| contest.contestant.as_str());
        let round = contest.map_or(0, |contest| contest.round);
        let tls = contest.is_some_and(|contest| contest.tls);
        (tls, cell.parameters.clients, name, round)
    });
    for cell in cells {
        if let Some(contest) = &cell.contest {
            table.row(row(cell, contest));
        }
    }
    Some(Section {
        title: "how connections were spread over the servers".to_owned(),
        table,
        sentences: Vec::new(),
    })
}

fn row(cell: &Cell, contest: &Contest) -> [String; 7] {
    let scheme = if contest.tls { "wss" } else { "ws" };
    let connections = contest.distribution.iter().map(|it| it.connections);
    let connections: Vec<f64> = connections.collect();
    let cpu_s: Vec<f64> = contest.distribution.iter().map(|it| it.cpu_s).collect();
    let listed = |values: &[f64], unit: &str| -> String {
        let texts: Vec<String> = values.iter().map(|it| format::significant(*it)).collect();
        format!("{}{unit}", texts.join(", "))
    };
    [
        format!(
            "{} connections, {scheme}, {}",
            format::count(cell.parameters.clients),
            groups::described(&cell.parameters)
        ),
        contest.contestant.clone(),
        contest.round.to_string(),
        listed(&connections, ""),
        most_over_mean(&connections),
        listed(&cpu_s, " s"),
        most_over_mean(&cpu_s),
    ]
}

/// 1 is even; as many as there are servers, if one has it all.
fn most_over_mean(values: &[f64]) -> String {
    let mean = values.iter().sum::<f64>() / values.len().max(1) as f64;
    let most = values.iter().copied().fold(0.0, f64::max);
    match mean > 0.0 {
        true => format!("{:.2}", most / mean),
        false => format::dash(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::battle::tests;
    use super::*;
    use crate::run::Content;

    #[test]
    fn one_that_has_more_than_the_others_is_seen() {
        let mut run = tests::run(&[("nginx", 2.0), ("none", 2.0)], 1);
        assert!(section(&run).is_none());
        let Content::Bench(cells) = &mut run.content else {
            panic!("a battle");
        };
        let share = |connections, cpu_s| BackendShare { connections, cpu_s };
        cells[0].contest.as_mut().unwrap().distribution = vec![share(75.0, 0.5), share(25.0, 0.5)];
        cells[1].contest.as_mut().unwrap().distribution = vec![share(0.0, 0.0); 3];
        let text = section(&run).unwrap().table.to_text();
        let row = |name: &str| text.lines().find(|line| line.contains(name)).unwrap();
        assert!(row("nginx").contains("1.50"), "{text}");
        assert!(row("nginx").contains("1.00"), "{text}");
        assert!(!row("none").contains("NaN"), "{text}");
        assert_eq!(Run::parse(&run.to_json(), "run.json"), Ok(run));
    }
}
