//! All loads of a battle at a glance: one table for each scheme, with who won under each load.

use super::ranking::Ranking;
use super::standing::Standing;
use super::{Field, Rules, Section, circle, rest_in_common};
use crate::format;
use crate::groups;
use crate::metric::Metric;
use crate::table::Table;

/// A table of the loads over ws and one of those over wss, by the metric that decides.
pub(super) fn sections(fields: &[Field<'_>], rules: &Rules, seed: u64) -> Vec<Section> {
    let Some(primary) = Metric::parse(&rules.primary) else {
        return Vec::new();
    };
    let rest = rest_in_common(fields);
    let schemes = [(false, "plain (ws)"), (true, "TLS (wss)")];
    let sections = schemes.map(|(is_secure, scheme)| {
        let of_scheme = fields.iter().filter(|field| field.common().1 == is_secure);
        let is_short = rest.is_some();
        let loads: Vec<Load<'_>> = of_scheme
            .map(|field| Load::of(field, is_short, seed))
            .collect();
        let is_contest = loads.iter().any(|load| load.standings.len() > 1);
        // One contestant under one load has all of this in the table of its figures.
        if !is_contest && loads.len() < 2 {
            return None;
        }
        let who = if is_contest { ", and who wins" } else { "" };
        let sentence = rest.as_ref().map(|rest| format!("All with: {rest}."));
        Some(Section {
            title: format!("all loads, {scheme}: {primary}{who}"),
            table: table(&loads, primary, rules, is_contest),
            sentences: sentence.into_iter().collect(),
        })
    });
    sections.into_iter().flatten().collect()
}

/// One load with all who had it.
struct Load<'a> {
    name: String,
    standings: Vec<Standing<'a>>,
}

impl<'a> Load<'a> {
    fn of(field: &Field<'a>, is_short: bool, seed: u64) -> Self {
        let (parameters, _) = field.common();
        let connections = groups::plural(parameters.clients, "connection", "s");
        Self {
            name: match is_short {
                true => connections,
                false => format!("{connections}, {}", groups::described(&parameters)),
            },
            standings: field.standings(seed),
        }
    }

    fn quantity(&self, contestant: &str, primary: Metric) -> String {
        let mut standings = self.standings.iter();
        let standing = standings.find(|it| it.contestant() == contestant);
        standing.map_or_else(format::dash, |it| it.quantity(primary))
    }

    /// One for each group that can be compared: those over other TLS are not in one ranking.
    fn winner(&self, primary: Metric, rules: &Rules) -> String {
        let circles = circle::circles(&self.standings, rules.control.as_deref());
        let winners = circles.iter().filter_map(|circle| {
            let ranking = Ranking::of(&circle.members, primary, rules);
            ranking.winner().map(str::to_owned)
        });
        let winners: Vec<String> = winners.collect();
        match winners.as_slice() {
            [] => "nobody".to_owned(),
            winners => winners.join(" and "),
        }
    }
}

fn table(loads: &[Load<'_>], primary: Metric, rules: &Rules, is_contest: bool) -> Table {
    let all = loads.iter().flat_map(|load| &load.standings);
    let mut contestants: Vec<&str> = all.map(Standing::contestant).collect();
    contestants.sort_unstable();
    contestants.dedup();
    let header = std::iter::once("load").chain(contestants.iter().copied());
    let mut table = Table::new(header.chain(is_contest.then_some("winner")));
    for load in loads {
        let quantities = contestants.iter().map(|it| load.quantity(it, primary));
        let row = std::iter::once(load.name.clone()).chain(quantities);
        table.row(row.chain(is_contest.then(|| load.winner(primary, rules))));
    }
    table
}

#[cfg(test)]
mod tests {
    use super::super::{sections as all, tests};
    use crate::contest::Contest;
    use crate::environment::Server;
    use crate::evenness::BackendShare;
    use crate::run::{Content, Run};
    use crate::sample;

    /// Two loads over ws and one over wss, of which `b` wins the first and `a` the last.
    fn battle() -> Run {
        let parts = [
            (100, false, [("a", 2.4), ("b", 2.0), ("none", 4.0)]),
            (5000, false, [("a", 3.0), ("b", 3.0), ("none", 4.0)]),
            (100, true, [("a", 5.0), ("b", 6.0), ("none", 7.0)]),
        ];
        let mut cells = Vec::new();
        for (connections, tls, contestants) in parts {
            for mut cell in tests::run(&contestants, 8).cells().to_vec() {
                cell.parameters.clients = connections;
                cell.contest = cell.contest.map(|contest| Contest {
                    connections,
                    tls,
                    ..contest
                });
                cells.push(cell);
            }
        }
        Run {
            content: Content::Bench(cells),
            ..tests::run(&[], 0)
        }
    }

    #[test]
    fn each_scheme_has_a_table_of_its_loads_with_who_won() {
        let markdown = crate::markdown::markdown(&battle());
        let (_, plain) = markdown.split_once("## all loads, plain (ws)").unwrap();
        let (plain, secure) = plain.split_once("## all loads, TLS (wss)").unwrap();
        let (secure, _) = secure.split_once("\n## ").unwrap();
        let rows = |text: &str| -> Vec<Vec<String>> {
            let rows = text.lines().filter(|line| line.starts_with('|'));
            let cells = |row: &str| -> Vec<String> {
                let cells = row.trim_matches('|').split('|');
                cells.map(|cell| cell.trim().to_owned()).collect()
            };
            rows.map(cells).collect()
        };
        let plain = rows(plain);
        assert_eq!(plain[0], ["load", "a", "b", "none", "winner"]);
        assert_eq!(plain.len(), 4, "{plain:?}");
        assert_eq!(plain[2][0], "100 connections");
        assert!(markdown.contains("All with: "), "{markdown}");
        assert!(plain[2][2].starts_with("2.") && plain[2][2].contains('['));
        assert_eq!(plain[2][4], "b");
        // Those two cannot be told apart.
        assert_eq!(plain[3][4], "nobody", "{plain:?}");
        let secure = rows(secure);
        assert_eq!((secure.len(), secure[2][4].as_str()), (3, "a"));
    }

    /// The same with what was seen of the processes: two servers behind each.
    fn seen() -> Run {
        let mut run = battle();
        run.name = "a battle".to_owned();
        run.environment = sample::bench(1, 1000).environment;
        let Content::Bench(cells) = &mut run.content else {
            panic!("a battle")
        };
        for (index, cell) in cells.iter_mut().enumerate() {
            let part = (index % 3) as f64 * 0.1;
            let used = |least: f64, most: f64, peak_mib: u64| Server {
                cpu_s: Some(2.0 + part),
                observed_s: Some(5.0),
                cpu_least: Some(least + part),
                cpu_most: Some(most + part),
                rss_peak_bytes: Some(peak_mib << 20),
                ..Server::default()
            };
            cell.server = Some(used(0.2, 0.7, 20 + index as u64 % 3));
            cell.backends = Some(used(0.3, 1.6, 90));
            let clients = cell.parameters.clients as f64;
            let share = |part: f64| BackendShare {
                connections: clients * part,
                cpu_s: 4.0 * part,
            };
            let contest = cell.contest.as_mut().unwrap();
            if contest.round == 1 {
                contest.distribution = vec![share(0.6), share(0.4)];
            }
        }
        run
    }

    #[test]
    fn the_report_of_a_battle_reads_as_before() {
        let markdown = crate::markdown::markdown(&seen());
        // Behind its tables are those of each cell, which a bench has as well.
        let end = markdown.find(", ws, round 1: ").unwrap();
        let end = markdown[..end].rfind("\n## ").unwrap();
        sample::assert_golden("battle.md", &markdown[..end]);
    }

    #[test]
    fn one_contestant_has_nobody_to_win_against() {
        let one = tests::run(&[("a", 2.0)], 1);
        let sections = all(&one, &tests::rules());
        let titles: Vec<&str> = sections.iter().map(|it| it.title.as_str()).collect();
        assert_eq!(titles.len(), 1, "{titles:?}");
        let all = [
            crate::markdown::markdown(&one),
            crate::page::html(&one),
            crate::pull_request::pull_request(&one),
        ];
        for noise in [
            "who is ahead",
            "who wins",
            "nobody to compare with",
            "say nothing of a difference",
        ] {
            for text in &all {
                assert!(!text.contains(noise), "{noise}: {text}");
            }
        }
        // Two loads are worth a table of both.
        let mut two = one.cells().to_vec();
        two.extend(one.cells().iter().cloned().map(|mut cell| {
            cell.parameters.clients = 5000;
            cell
        }));
        let two = Run {
            content: Content::Bench(two),
            ..one
        };
        let markdown = crate::markdown::markdown(&two);
        assert!(
            markdown.contains("## all loads, plain (ws): response p50\n"),
            "{markdown}"
        );
        assert!(!markdown.contains("winner"), "{markdown}");
    }

    #[test]
    fn a_scheme_without_loads_has_no_table() {
        let run = tests::run(&[("a", 2.0), ("b", 2.4)], 8);
        let titles: Vec<String> = all(&run, &tests::rules())
            .into_iter()
            .map(|it| it.title)
            .collect();
        assert!(titles[0].starts_with("all loads, plain (ws): response p50"));
        assert!(!titles.iter().any(|it| it.contains("wss")), "{titles:?}");
    }
}
