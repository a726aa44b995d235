//! Contestants of the lab against each other: what each of them did over all rounds, with
//! intervals, and which of them can be told apart.
//!
//! Only cells count whose limit was what is measured: where the generator or the backend had
//! nothing left, the figures are theirs.

mod brief;
mod circle;
mod contrast;
mod overview;
mod pictures;
mod ranking;
mod schemes;
mod stages;
mod standing;
mod usage;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub(crate) use self::brief::{all_verdicts, primary_table, winners};
pub use self::contrast::{Contrast, contrast};
pub(crate) use self::pictures::{OTHER_METRIC, plots};
use self::ranking::Ranking;
use self::standing::Standing;
use crate::capacity;
use crate::ceiling;
use crate::cell::Cell;
use crate::cross_check;
use crate::evenness;
use crate::format;
use crate::groups;
use crate::knobs::Knobs;
use crate::metric::Metric;
use crate::parameters::Parameters;
use crate::run::Run;
use crate::table::Table;
use crate::tls::all_terms;

/// What a battle is judged by.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Rules {
    /// The metric that decides.
    pub primary: String,
    /// The metrics that the tables have, by their names; the primary one is always there.
    pub columns: Vec<String>,
    /// The contestant that the others are compared with beside the best; none without.
    pub control: Option<String>,
    /// The relative difference that the battle should be able to tell, such as 0.03.
    pub resolve: f64,
}

/// A heading with its table and what it says.
pub(crate) struct Section {
    pub(crate) title: String,
    pub(crate) table: Table,
    pub(crate) sentences: Vec<String>,
}

/// What all tables have in common.
const METHOD: &str = "Rounds are interleaved in random order, each cell with processes \
    of its own. Values are those of all ranked rounds together, in brackets the interval that \
    holds the true one with 95 %, by drawing rounds again, and blocks of time in the response \
    times of each (bootstrap). Differences are medians over all pairs of rounds, with the \
    interval of the test of Mann and Whitney; the intervals of one table hold together with 95 %. \
    δ is Cliff's delta: 1 where each round is above each of the other, -1 where each is below, 0 \
    where neither is more often above. A cell in which the generator or the backend was the limit, \
    or that is INVALID, is not ranked; contestants whose connections agreed on other terms of TLS \
    are not ranked together.";

/// How what the tables say was found.
pub(crate) fn method(run: &Run) -> &'static str {
    match run.capacities.is_empty() {
        true => METHOD,
        false => capacity::METHOD,
    }
}

/// All loads at a glance, and two tables for each field of contestants: what they did, and how they
/// compare.
pub(crate) fn sections(run: &Run, rules: &Rules) -> Vec<Section> {
    let ceilings = ceiling::section(run);
    if !run.capacities.is_empty() {
        let mut sections = capacity::sections(run);
        sections.extend(ceilings);
        return sections;
    }
    let fields = Field::all(run);
    let mut sections = overview::sections(&fields, rules, run.environment.seed);
    for field in &fields {
        let standings = field.standings(run.environment.seed);
        sections.push(Section {
            title: field.title(),
            table: figures(&standings, rules, &verdicts(&standings, rules)),
            sentences: standings
                .iter()
                .flat_map(|it| [it.remark(), it.rationed(), it.clocks()])
                .flatten()
                .collect(),
        });
        sections.extend(stages::section(&field.title(), &standings));
        if let Some(primary) = Metric::parse(&rules.primary)
            && standings.len() > 1
        {
            let title = format!("{}: who is ahead by {primary}", field.title());
            sections.extend(rankings(&title, &standings, primary, rules));
        }
    }
    sections.extend(schemes::sections(&fields, run.environment.seed));
    sections.extend(usage::section(
        &fields,
        &names(&fields),
        run.environment.seed,
    ));
    sections.extend(evenness::section(run));
    sections.extend(cross_check::section(run));
    sections.extend(ceilings);
    sections
}

/// A table of those that can be compared with most, and one for each of the others that are not
/// alone.
fn rankings(
    title: &str,
    standings: &[Standing<'_>],
    primary: Metric,
    rules: &Rules,
) -> Vec<Section> {
    let circles = circle::circles(standings, rules.control.as_deref());
    let mut sections = Vec::new();
    for (index, circle) in circles.iter().enumerate() {
        if index > 0 && circle.members.len() < 2 {
            continue;
        }
        let others = circles.iter().enumerate();
        let others = others.filter(|(other, _)| *other != index);
        let others: Vec<_> = others.map(|(_, other)| other).collect();
        let ranking = Ranking::of(&circle.members, primary, rules);
        let mut table = ranking.table();
        for standing in others.iter().flat_map(|other| &other.members) {
            table.row([standing.contestant(), "not ranked with these: other TLS"]);
        }
        let objections = others.iter().map(|other| circle.objection_to(other));
        let mut sentences: Vec<String> = objections.collect();
        sentences.extend(ranking.sentences());
        sections.push(Section {
            title: match index {
                0 => title.to_owned(),
                _ => format!("{title}, with {}", circle.terms()),
            },
            table,
            sentences,
        });
    }
    sections
}

/// A name for each of all fields: connections and scheme, where they have the rest in common.
fn names(fields: &[Field<'_>]) -> Vec<String> {
    let is_common = rest_in_common(fields).is_some();
    let name = |field: &Field<'_>| match is_common {
        true => field.short_title(),
        false => field.title(),
    };
    fields.iter().map(name).collect()
}

/// What they are but for connections and scheme, where that is the same for all.
fn rest_in_common(fields: &[Field<'_>]) -> Option<String> {
    let rest = |field: &Field<'_>| groups::described(&field.common().0);
    let is_common = fields.windows(2).all(|two| rest(&two[0]) == rest(&two[1]));
    fields.first().map(rest).filter(|_| is_common)
}

/// Cells that differ only in their contestant and their round.
struct Field<'a> {
    cells: Vec<&'a Cell>,
}

impl<'a> Field<'a> {
    fn all(run: &'a Run) -> Vec<Self> {
        let mut fields: Vec<Self> = Vec::new();
        for cell in run.cells().iter().filter(|cell| cell.contest.is_some()) {
            match fields
                .iter_mut()
                .find(|field| common(field.cells[0]) == common(cell))
            {
                Some(field) => field.cells.push(cell),
                None => fields.push(Self { cells: vec![cell] }),
            }
        }
        // The order of the cells is random, that of the tables is not.
        fields.sort_by_key(|field| {
            let (parameters, tls) = common(field.cells[0]);
            (tls, parameters.message_bytes, parameters.clients)
        });
        fields
    }

    /// What its cells have in common.
    fn common(&self) -> (Parameters, bool) {
        common(self.cells[0])
    }

    /// What else its cells have in common.
    fn knobs(&self, run: &Run) -> Knobs {
        Knobs::of(run, &self.cells)
    }

    fn title(&self) -> String {
        let (parameters, tls) = self.common();
        let scheme = if tls { "wss" } else { "ws" };
        let connections = format::count(parameters.clients);
        format!(
            "{connections} connections, {scheme}, {}",
            groups::described(&parameters)
        )
    }

    /// Connections and scheme alone.
    fn short_title(&self) -> String {
        let (parameters, tls) = self.common();
        let scheme = if tls { "wss" } else { "ws" };
        format!(
            "{} connections, {scheme}",
            format::count(parameters.clients)
        )
    }

    /// The same without the scheme.
    fn load(&self) -> String {
        let (parameters, _) = self.common();
        let connections = format::count(parameters.clients);
        format!(
            "{connections} connections, {}",
            groups::described(&parameters)
        )
    }

    /// One for each contestant, in the order of their names: that of the cells is random.
    fn standings(&self, seed: u64) -> Vec<Standing<'a>> {
        let mut standings: Vec<Standing<'a>> = Vec::new();
        for &cell in &self.cells {
            let Some(contest) = &cell.contest else {
                continue;
            };
            let known = standings
                .iter_mut()
                .find(|it| it.contestant() == contest.contestant);
            match known {
                Some(standing) => standing.add(cell),
                None => standings.push(Standing::new(&contest.contestant, cell, seed)),
            }
        }
        standings.sort_by(|one, other| one.contestant().cmp(other.contestant()));
        standings
    }
}

fn common(cell: &Cell) -> (Parameters, bool) {
    let tls = cell.contest.as_ref().is_some_and(|contest| contest.tls);
    (cell.parameters.clone(), tls)
}

/// What the tables and the pictures have: the primary metric first.
fn metrics(rules: &Rules) -> Vec<Metric> {
    let names = std::iter::once(&rules.primary).chain(&rules.columns);
    let mut metrics: Vec<Metric> = Vec::new();
    for metric in names.filter_map(|name| Metric::parse(name)) {
        if !metrics.contains(&metric) {
            metrics.push(metric);
        }
    }
    metrics
}

/// What each contestant is called by the primary metric, with its name.
pub(crate) type Verdicts = Vec<(String, String)>;

fn verdicts(standings: &[Standing<'_>], rules: &Rules) -> Verdicts {
    let Some(primary) = Metric::parse(&rules.primary) else {
        return Vec::new();
    };
    let circles = circle::circles(standings, rules.control.as_deref());
    let rankings = circles.iter().filter(|it| it.members.len() > 1);
    let rankings: Vec<Ranking<'_>> = rankings
        .map(|circle| Ranking::of(&circle.members, primary, rules))
        .collect();
    let verdict = |standing: &Standing<'_>| {
        let mut verdicts = rankings
            .iter()
            .filter_map(|it| it.verdict(standing.contestant()));
        let verdict = verdicts.next();
        (
            standing.contestant().to_owned(),
            verdict.unwrap_or_else(|| "nobody to compare with".to_owned()),
        )
    };
    standings.iter().map(verdict).collect()
}

fn figures(standings: &[Standing<'_>], rules: &Rules, verdicts: &Verdicts) -> Table {
    let metrics = metrics(rules);
    let mut header = vec!["contestant".to_owned(), "rounds".to_owned()];
    let is_contest = standings.len() > 1;
    let primary = metrics.first().map_or_else(String::new, Metric::to_string);
    header.extend(is_contest.then(|| format!("by {primary}")));
    header.extend(metrics.iter().map(Metric::to_string));
    let terms: Vec<String> = standings
        .iter()
        .map(|it| all_terms(&it.all_terms()))
        .collect();
    let is_secure = terms.iter().any(|terms| !terms.is_empty());
    header.extend(is_secure.then(|| "TLS".to_owned()));
    let mut table = Table::new(header);
    for ((standing, terms), (_, verdict)) in standings.iter().zip(terms).zip(verdicts) {
        let mut row = vec![standing.contestant().to_owned(), standing.rounds()];
        row.extend(is_contest.then(|| verdict.clone()));
        row.extend(metrics.iter().map(|metric| standing.quantity(*metric)));
        row.extend(is_secure.then_some(terms));
        table.row(row);
    }
    table
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::contest::Contest;
    use crate::environment::Server;
    use crate::run::Content;
    use crate::tls::tests::tls;
    use crate::verdict::Verdict;

    /// A cell whose response times lie around `ms`, a little off in each round.
    pub(crate) fn cell(contestant: &str, round: u64, ms: f64) -> Cell {
        let mut cell = Cell::default();
        cell.parameters.clients = 100;
        cell.contest = Some(Contest {
            contestant: contestant.to_owned(),
            connections: 100,
            round,
            ..Contest::default()
        });
        cell.connects.ok = 100;
        let wobble = 1.0 + [0.004, -0.003, 0.001, -0.006, 0.002][(round % 5) as usize];
        for step in 0..200 {
            let spread = 0.8 + f64::from(step) * 0.002;
            let value_ns = ms * wobble * spread * 1e6;
            cell.latency.response.record(value_ns as u64);
        }
        cell
    }

    pub(crate) fn run(contestants: &[(&str, f64)], rounds: u64) -> Run {
        let mut cells = Vec::new();
        for round in 1..=rounds {
            cells.extend(contestants.iter().map(|(name, ms)| cell(name, round, *ms)));
        }
        Run {
            content: Content::Bench(cells),
            rules: Some(rules()),
            ..Run::default()
        }
    }

    pub(crate) fn rules() -> Rules {
        Rules {
            primary: "response.p50".to_owned(),
            columns: vec!["response.mean".to_owned(), "response.p50".to_owned()],
            control: Some("none".to_owned()),
            resolve: 0.03,
        }
    }

    fn text(run: &Run) -> String {
        let told = |section: &Section| {
            let table = section.table.to_text();
            format!(
                "{}\n{table}{}\n",
                section.title,
                section.sentences.join("\n")
            )
        };
        sections(run, &rules()).iter().map(told).collect()
    }

    #[test]
    fn a_faster_contestant_wins_and_equal_ones_cannot_be_told_apart() {
        let text = text(&run(&[("a", 2.0), ("b", 2.4), ("c", 2.001)], 8));
        let row = |name: &str| {
            let ranked = text.split("who is ahead").nth(1).unwrap();
            let name = format!("  {name} ");
            let row = ranked.lines().find(|line| line.starts_with(&name));
            row.unwrap_or_else(|| panic!("{name}: {text}")).to_owned()
        };
        assert!(row("b").contains("worse"), "{text}");
        assert!(row("c").contains("cannot be told apart"), "{text}");
        assert!(text.contains("[1.9"), "an interval: {text}");
    }

    #[test]
    fn a_battle_comes_back_from_its_file() {
        let mut run = run(&[("a", 2.0), ("b", 2.4)], 2);
        let Content::Bench(cells) = &mut run.content else {
            panic!("a bench")
        };
        let server = |name: &str| {
            Some(Server {
                name: name.to_owned(),
                ..Server::default()
            })
        };
        cells[0].server = server("proxy");
        cells[0].backends = server("echo");
        cells[0].contest.as_mut().unwrap().backend = Some("echo".to_owned());
        assert_eq!(Run::parse(&run.to_json(), "run.json"), Ok(run));
    }

    #[test]
    fn the_page_and_the_markdown_have_the_tables() {
        let run = run(&[("a", 2.0), ("b", 2.4)], 8);
        for text in [crate::page::html(&run), crate::markdown::markdown(&run)] {
            assert!(text.contains("who is ahead by response p50"));
            assert!(text.contains("a has the lowest response p50"));
        }
    }

    #[test]
    fn cells_with_another_limit_are_not_ranked_and_said() {
        let mut run = run(&[("a", 2.0), ("b", 2.4)], 5);
        let Content::Bench(cells) = &mut run.content else {
            panic!("a bench")
        };
        for cell in cells.iter_mut().filter(|cell| {
            cell.contest
                .as_ref()
                .is_some_and(|it| it.contestant == "b" && it.round > 2)
        }) {
            cell.contest.as_mut().unwrap().limit = Some("the generator was the limit".to_owned());
        }
        cells[0].assessment.add(Verdict::Invalid, "late");
        let text = text(&run);
        assert!(text.contains("4 of 5") && text.contains("2 of 5"), "{text}");
        assert!(
            text.contains(
                "b: 3 of 5 rounds are not ranked, to name the first reason: the generator was"
            ),
            "{text}"
        );
        assert!(text.contains("not ranked: 2 rounds"), "{text}");
    }

    #[test]
    fn a_limit_on_the_cpu_is_said_with_what_it_did() {
        let mut run = run(&[("a", 2.0), ("b", 2.4)], 5);
        let Content::Bench(cells) = &mut run.content else {
            panic!("a bench")
        };
        for cell in cells {
            let contest = cell.contest.as_ref().unwrap();
            let is_throttled = contest.contestant == "a" && contest.round > 1;
            cell.server = Some(Server {
                cpu_limit: Some(0.2),
                throttled_ms: Some(if is_throttled { 1500.0 } else { 0.0 }),
                observed_s: Some(2.0),
                ..Server::default()
            });
        }
        let text = text(&run);
        let reached = "a was limited to 0.2 processors, reached that in 4 of 5 rounds, and was \
                       kept waiting for 75";
        assert!(text.contains(reached), "{text}");
        let never = "b was limited to 0.2 processors and did not reach that.";
        assert!(text.contains(never), "{text}");
    }

    /// A battle over TLS in which the connections of some agreed on this version.
    fn secure(contestants: &[(&str, &str)]) -> Run {
        let speeds: Vec<(&str, f64)> = contestants.iter().map(|(name, _)| (*name, 2.0)).collect();
        let mut run = run(&speeds, 5);
        let Content::Bench(cells) = &mut run.content else {
            panic!("a bench")
        };
        for cell in cells {
            let contest = cell.contest.as_mut().unwrap();
            contest.tls = true;
            let of_cell = |it: &&(&str, &str)| it.0 == contest.contestant;
            let (_, version) = contestants.iter().find(of_cell).unwrap();
            cell.tls_agreed = vec![tls(version, 100, 0)];
        }
        run
    }

    #[test]
    fn contestants_with_other_tls_are_not_ranked_together_and_said() {
        let contestants = [("a", "1.3"), ("b", "1.2"), ("c", "1.3"), ("d", "1.3")];
        let told = text(&secure(&contestants));
        let ranked = told.split("who is ahead").nth(1).unwrap();
        let row = |name: &str| ranked.lines().find(|it| it.trim().starts_with(name));
        assert!(row("b ").unwrap().contains("not ranked"), "{told}");
        assert!(row("d ").unwrap().contains("[") || row("d ").unwrap().contains("best"));
        let said = "b cannot be compared with a, c and d: their connections agreed on TLS 1.2, \
                    and not on TLS 1.3.";
        assert!(told.contains(said), "{told}");
        assert_eq!(told.matches("who is ahead").count(), 1, "{told}");
        let agreed = "TLS 1.3, AES_128_GCM_SHA256, X25519, ECDSA 256, full handshakes";
        assert_eq!(told.matches(agreed).count(), 3, "{told}");
        // Those that agree on something else have a table of their own.
        let told = text(&secure(&[
            ("a", "1.3"),
            ("b", "1.2"),
            ("none", "1.3"),
            ("e", "1.2"),
        ]));
        assert_eq!(told.matches("who is ahead").count(), 2, "{told}");
        assert!(told.contains("b and e cannot be compared with a and none"));
        assert!(told.contains("a and none cannot be compared with b and e"));
        // All the same: nobody is apart, and without TLS nothing is said of it.
        let same = text(&secure(&[("a", "1.3"), ("b", "1.3")]));
        assert!(!same.contains("cannot be compared"), "{same}");
        let plain = text(&run(&[("a", 2.0), ("b", 2.0)], 5));
        assert!(!plain.contains("TLS") && !plain.contains("cannot be compared"));
    }

    #[test]
    fn rounds_on_other_terms_set_a_contestant_apart() {
        let mut run = secure(&[("a", "1.3"), ("b", "1.3")]);
        let Content::Bench(cells) = &mut run.content else {
            panic!("a bench")
        };
        cells[0].tls_agreed = vec![tls("1.3", 1, 99)];
        let text = text(&run);
        assert!(text.contains("cannot be compared"), "{text}");
        assert!(text.contains("full handshakes and resumed sessions"));
        let again = Run::parse(&run.to_json(), "run.json").unwrap();
        assert_eq!(again.cells()[0].tls_agreed, run.cells()[0].tls_agreed);
    }
}
