//! Two battles side by side: each contestant against itself, or against the only other one, over
//! all rounds.

use serde::Serialize;

use super::Field;
use super::standing::Standing;
use crate::format;
use crate::metric::Metric;
use crate::pull_request::shown;
use crate::run::Run;
use crate::sentences;
use crate::statistics::ranks::{self, Shift, median};
use crate::statistics::sample_size::{ROUNDS_MAX, RoundsNeeded, rounds_needed};
use crate::summary::{Style, first_of};
use crate::table::Table;
use crate::tls;

/// What two battles say of each other, ready to be printed; as JSON it has every figure.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Contrast {
    title: String,
    sections: Vec<Section>,
    remarks: Vec<String>,
    /// What A has and B has not, or not as A has it; a clause each.
    #[serde(skip)]
    only_in_a: Vec<String>,
}

/// One contestant under one load in both.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct Section {
    title: String,
    /// The relative difference that the battles are to tell.
    resolve: f64,
    /// Rounds of each battle that tell it by the primary metric, in 19 of 20 cases.
    rounds_needed: Option<RoundsNeeded>,
    metrics: Vec<Difference>,
}

/// One metric of it.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct Difference {
    metric: String,
    /// It decides; the others are shown beside it.
    is_primary: bool,
    /// Ranked rounds of A and of B.
    rounds: [usize; 2],
    /// Medians of the rounds, in nanoseconds where it is a latency.
    medians: [Option<f64>; 2],
    /// B beside A, with the interval of 95 %; `None` with too few rounds, or where one has 0.
    #[serde(flatten)]
    change: Option<Change>,
    /// No round of either had 0.
    #[serde(skip)]
    has_ratio: bool,
    /// All rounds of both had the same.
    #[serde(skip)]
    is_same: bool,
    #[serde(skip)]
    unit: Option<Metric>,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
struct Change {
    /// `B / A - 1`.
    relative: f64,
    low: f64,
    high: f64,
    /// The size of the effect beside the scatter of the rounds, -1 to 1.
    cliffs_delta: f64,
    /// The interval does not hold 0.
    is_told: bool,
    /// The difference is for the worse, told or not.
    is_worse: bool,
}

/// Compares two battles over their rounds; `None` where one of them is none, or is a search.
pub fn contrast(a: &Run, b: &Run) -> Option<Contrast> {
    let rules = a.rules.as_ref().filter(|_| b.rules.is_some())?;
    if !a.capacities.is_empty() || !b.capacities.is_empty() {
        return None;
    }
    let primary = Metric::parse(&rules.primary)?;
    let mut metrics = vec![primary];
    let others = rules.columns.iter().filter_map(|name| Metric::parse(name));
    metrics.extend(others.filter(|metric| *metric != primary));
    let fields = [Field::all(a), Field::all(b)];
    let mut contrast = Contrast {
        title: format!("A = {}, B = {}", sentences::title(a), sentences::title(b)),
        sections: Vec::new(),
        remarks: Vec::new(),
        only_in_a: Vec::new(),
    };
    let mut pairs = Vec::new();
    for field in &fields[0] {
        let title = field.title();
        let Some(other) = fields[1].iter().find(|it| it.common() == field.common()) else {
            contrast.only_in_a.push(format!("{title}: it is in A only"));
            continue;
        };
        let [knobs, others] = [(field, a), (other, b)].map(|(it, run)| it.knobs(run));
        if let Some(difference) = knobs.difference(&others) {
            let clause = format!("{title}: no pair, because {difference}");
            contrast.only_in_a.push(clause);
            continue;
        }
        let standings =
            [(field, a), (other, b)].map(|(it, run)| it.standings(run.environment.seed));
        contrast.remark_on(&title, &standings);
        contrast.note_missing(&title, &standings);
        pairs.push((title, standings));
    }
    let is_new = |field: &&Field<'_>| fields[0].iter().all(|it| it.common() != field.common());
    let new = fields[1].iter().filter(is_new);
    let new = new.map(|field| format!("{}: it is in B only", field.title()));
    contrast.remarks.extend(new);
    contrast.remarks.extend(contrast.only_in_a.clone());
    let partners: Vec<(String, Pair<'_>)> = pairs
        .iter()
        .flat_map(|(title, [a, b])| of_both(title, a, b))
        .collect();
    for (title, [one, other]) in &partners {
        contrast.remark_on_tls(title, one, other);
    }
    // As many verdicts as there are sections, each held to its part of the level.
    let alpha = ALPHA / partners.len().max(1) as f64;
    let section =
        |(title, pair): (String, Pair<'_>)| section(title, pair, &metrics, rules.resolve, alpha);
    contrast.sections = partners.into_iter().map(section).collect();
    Some(contrast)
}

/// A contestant in A and in B.
type Pair<'a> = [&'a Standing<'a>; 2];

/// Contestants of the same name, or the only ones.
fn of_both<'a>(
    title: &str,
    a: &'a [Standing<'a>],
    b: &'a [Standing<'a>],
) -> Vec<(String, Pair<'a>)> {
    if let ([one], [other]) = (a, b) {
        let names = match one.contestant() == other.contestant() {
            true => one.contestant().to_owned(),
            false => format!("{} and {}", one.contestant(), other.contestant()),
        };
        return vec![(format!("{names}: {title}"), [one, other])];
    }
    let partner = |one: &'a Standing<'a>| {
        let other = b.iter().find(|it| it.contestant() == one.contestant())?;
        Some((format!("{}: {title}", one.contestant()), [one, other]))
    };
    a.iter().filter_map(partner).collect()
}

fn section(title: String, pair: Pair<'_>, metrics: &[Metric], resolve: f64, alpha: f64) -> Section {
    let values = |metric: Metric| pair.map(|standing| in_order(standing.values(metric)));
    let needed =
        |[a, b]: &[Vec<f64>; 2]| rounds_needed(&[&logs(a)?, &logs(b)?], resolve.ln_1p(), alpha);
    Section {
        title,
        resolve,
        rounds_needed: needed(&values(metrics[0])),
        metrics: metrics
            .iter()
            .enumerate()
            .map(|(place, &metric)| {
                let [a, b] = values(metric);
                let ratios = logs(&a).zip(logs(&b));
                // Those that do not decide have intervals of their own.
                let alpha = if place == 0 { alpha } else { ALPHA };
                Difference {
                    metric: metric.to_string(),
                    is_primary: place == 0,
                    rounds: [a.len(), b.len()],
                    medians: [&a, &b].map(|values| middle(values)),
                    has_ratio: ratios.is_some(),
                    is_same: is_same(&a, &b),
                    change: ratios
                        .and_then(|(a, b)| ranks::shift(&a, &b, alpha))
                        .map(|shift| Change::of(&shift, metric)),
                    unit: Some(metric),
                }
            })
            .collect(),
    }
}

/// Whether there is one value alone, in as many rounds as there are.
fn is_same(a: &[f64], b: &[f64]) -> bool {
    let mut all = a.iter().chain(b);
    let first = a.first().filter(|_| !b.is_empty());
    first.is_some_and(|first| all.all(|it| it == first))
}

fn in_order(mut values: Vec<f64>) -> Vec<f64> {
    values.sort_by(f64::total_cmp);
    values
}

/// The logarithms of values, of which differences are ratios; `None` where one of them is 0. To
/// leave such rounds out would be to choose.
fn logs(values: &[f64]) -> Option<Vec<f64>> {
    let logs = values.iter().map(|it| (*it > 0.0).then(|| it.ln()));
    logs.collect()
}

fn middle(sorted: &[f64]) -> Option<f64> {
    (!sorted.is_empty()).then(|| median(sorted))
}

impl Change {
    fn of(shift: &Shift, metric: Metric) -> Self {
        Self {
            relative: shift.estimate.exp_m1(),
            low: shift.low.exp_m1(),
            high: shift.high.exp_m1(),
            cliffs_delta: shift.cliffs_delta(),
            is_told: shift.is_told(),
            is_worse: shift.estimate != 0.0 && (shift.estimate < 0.0) == metric.is_better_high(),
        }
    }
}

impl Contrast {
    /// Says it where the difference may be one of TLS.
    fn remark_on_tls(&mut self, title: &str, one: &Standing<'_>, other: &Standing<'_>) {
        let (a, b) = (one.terms(), other.terms());
        if a.is_empty() || b.is_empty() || a == b {
            return;
        }
        let (a, b) = tls::difference(&a, &b);
        self.remarks.push(format!(
            "{title}: connections agreed on {a} in A and on {b} in B, so that the difference is \
             not the contestant's alone"
        ));
    }

    /// Whether there is nothing that both have.
    pub fn is_empty(&self) -> bool {
        self.sections.is_empty()
    }

    /// What else is to be said: loads that one of them does not have, rounds that are not ranked.
    pub fn remarks(&self) -> &[String] {
        &self.remarks
    }

    /// Where the primary metric is worse in B by more than the share `bound`, and not by chance; a
    /// clause each.
    pub fn regressions_beyond(&self, bound: f64) -> Vec<String> {
        let clause = |section: &Section| {
            let primary = section.metrics.iter().find(|it| it.is_primary)?;
            let change = primary.change?;
            let is_beyond = change.is_told && change.is_worse && change.relative.abs() > bound;
            let (title, metric) = (&section.title, &primary.metric);
            is_beyond.then(|| format!("{title}: {metric} {}", change.interval()))
        };
        self.sections.iter().filter_map(clause).collect()
    }

    /// Of which loads the primary metric says nothing, because too few rounds are ranked or some
    /// have 0; a clause each. What is the same in both needs no judge.
    pub fn unjudged(&self) -> Vec<String> {
        let clause = |section: &Section| {
            let primary = section.metrics.iter().find(|it| it.is_primary)?;
            let ([a, b], why) = (primary.rounds, primary.verdict());
            (primary.change.is_none() && !primary.is_same).then(|| {
                format!(
                    "not judged: {}: {}: {why} ({a} and {b} are ranked)",
                    section.title, primary.metric
                )
            })
        };
        let judged_not = self.sections.iter().filter_map(clause);
        judged_not.chain(self.only_in_a.iter().cloned()).collect()
    }

    /// As text for a terminal: what may be long comes last.
    pub fn text(&self, style: Style) -> String {
        let bold = |text: &str| match style.color {
            true => format!("\u{1b}[1m{text}\u{1b}[0m"),
            false => text.to_owned(),
        };
        let mut text = format!("{}\n", bold(&self.title));
        for section in &self.sections {
            text.push_str(&format!("\n{}\n", bold(&section.title)));
            text.push_str(&section.table().to_text());
            text.push_str(&format!("  {}\n", section.sentence()));
        }
        if !self.remarks.is_empty() {
            text.push('\n');
        }
        for remark in first_of(self.remarks.clone()) {
            text.push_str(&format!("  - {remark}\n"));
        }
        text + &format!("\n{METHOD}\n")
    }

    /// As Markdown.
    pub fn markdown(&self) -> String {
        let mut text = format!("# {}\n", format::in_markdown(&self.title));
        for remark in &self.remarks {
            text.push_str(&format!("\n- {}\n", format::in_markdown(remark)));
        }
        for section in &self.sections {
            let title = format::in_markdown(&section.title);
            text.push_str(&format!("\n## {title}\n\n"));
            text.push_str(&section.table().to_markdown());
            text.push_str(&format!("\n{}\n", section.sentence()));
        }
        text + &format!("\n{METHOD}\n")
    }

    /// In some twenty lines of Markdown, as a comment on a pull request: the metric that decides,
    /// and the others folded.
    pub fn pull_request(&self) -> String {
        let (mut worse, mut better, mut equal, mut unknown) = (0, 0, 0, 0);
        let mut table = Table::new(["", "metric", "A", "B", "B beside A", "verdict"]);
        for section in &self.sections {
            let Some(primary) = section.metrics.iter().find(|it| it.is_primary) else {
                continue;
            };
            match primary.change {
                None => unknown += 1,
                Some(change) if !change.is_told => equal += 1,
                Some(change) if change.is_worse => worse += 1,
                Some(_) => better += 1,
            }
            let row = primary.row();
            table.row(std::iter::once(section.title.clone()).chain(row));
        }
        let all = self.sections.len();
        let unknown = match unknown {
            0 => String::new(),
            some => format!(", {some} cannot be judged"),
        };
        let title = format::in_markdown(&self.title);
        let mut text = format!(
            "**{worse} of {all} worse, {better} better, {equal} cannot be told apart{unknown}**\n\n\
             {title}\n"
        );
        for remark in shown(&self.remarks) {
            text.push_str(&format!("- {remark}\n"));
        }
        text.push_str(&format!("\n{}", table.to_markdown()));
        text.push_str("\n<details><summary>All metrics</summary>\n");
        for section in &self.sections {
            let title = format::in_markdown(&section.title);
            text.push_str(&format!("\n{title}\n\n"));
            text.push_str(&section.table().to_markdown());
            text.push_str(&format!("\n{}\n", section.sentence()));
        }
        text + &format!("\n{METHOD}\n\n</details>\n")
    }

    /// Takes note of contestants that B does not have.
    fn note_missing(&mut self, title: &str, [a, b]: &[Vec<Standing<'_>>; 2]) {
        if a.len() == 1 && b.len() == 1 {
            return;
        }
        let is_in_b = |name: &str| b.iter().any(|it| it.contestant() == name);
        let missing = a.iter().map(Standing::contestant);
        let missing = missing.filter(|name| !is_in_b(name));
        let clauses = missing.map(|name| format!("{name}: {title}: it is in A only"));
        self.only_in_a.extend(clauses);
    }

    fn remark_on(&mut self, title: &str, standings: &[Vec<Standing<'_>>; 2]) {
        for (name, standings) in ["A", "B"].into_iter().zip(standings) {
            let remarks = standings.iter().filter_map(Standing::remark);
            let remarks = remarks.map(|remark| format!("{name}, {title}: {remark}"));
            self.remarks.extend(remarks);
        }
    }
}

impl Section {
    fn table(&self) -> Table {
        let mut table = Table::new(["", "A", "B", "B beside A", ""]);
        for difference in &self.metrics {
            table.row(difference.row());
        }
        table
    }

    /// What decides, and what more rounds would tell.
    fn sentence(&self) -> String {
        let resolve = format::percent(self.resolve);
        let fewest = self
            .metrics
            .first()
            .map(|it| it.rounds[0].min(it.rounds[1]));
        let is_without_ratio = self.metrics.first().is_some_and(|it| !it.has_ratio);
        let needed = match (self.rounds_needed, fewest) {
            (None, _) if is_without_ratio => "0 has no ratio to anything".to_owned(),
            (Some(RoundsNeeded::Beyond), _) => format!(
                "a difference of {resolve} would take more than {} rounds each",
                format::count(ROUNDS_MAX)
            ),
            (Some(RoundsNeeded::Rounds(needed)), Some(fewest)) if needed > fewest as u64 => {
                format!(
                    "a difference of {resolve} would be told in 19 of 20 cases with {} rounds \
                     each, of which there are {fewest}",
                    format::count(needed)
                )
            }
            (Some(_), Some(fewest)) => {
                format!("{fewest} rounds each tell a difference of {resolve} in 19 of 20 cases")
            }
            (None, _) | (_, None) => "there are too few rounds to say more".to_owned(),
        };
        let primary = self.metrics.first().map_or("", |it| it.metric.as_str());
        format!("{primary} decides; {needed}.")
    }
}

impl Difference {
    fn row(&self) -> [String; 5] {
        let quantity = |value: Option<f64>| match (value, self.unit) {
            (Some(value), Some(metric)) => metric.quantity(value),
            (Some(_), None) | (None, _) => format::dash(),
        };
        let [a, b] = self.medians.map(quantity);
        let interval = self.change.map_or_else(format::dash, Change::interval);
        let verdict = self.verdict().to_owned();
        [self.metric.clone(), a, b, interval, verdict]
    }

    fn verdict(&self) -> &'static str {
        match self.change {
            None if !self.has_ratio => "no ratio to 0",
            None => "too few rounds",
            Some(change) if !change.is_told => "cannot be told apart",
            Some(change) if change.is_worse => "worse",
            Some(_) => "better",
        }
    }
}

impl Change {
    fn interval(self) -> String {
        let percent = |share: f64| format!("{:+.1} %", share * 100.0);
        format!(
            "{} [{}, {}], {}",
            percent(self.relative),
            percent(self.low),
            percent(self.high),
            format::delta(self.cliffs_delta)
        )
    }
}

/// Of all verdicts together, and of each other interval.
const ALPHA: f64 = 0.05;
const METHOD: &str = "Medians of the ranked rounds; the difference is the median over all pairs of \
    a round of B and one of A, with the interval of the test of Mann and Whitney, 95 % for all \
    verdicts of the first lines together. δ is Cliff's delta, the share of the pairs in which B is \
    above less that in which it is below. Two battles on a machine that drifts can differ for no \
    other reason: let both take part in one, which interleaves them.";

#[cfg(test)]
mod tests;
