//! Two runs side by side, or one alone: the same table, the same path.
//!
//! The value of a metric is that of the whole run, from its histogram. Whether two values differ
//! is judged on the values of the single intervals by Welch's t-test, with the number of
//! intervals reduced by their autocorrelation; metrics that have no value per interval are shown
//! without a judgement.

mod change;

use serde::Serialize;

pub use self::change::Change;
use self::change::{Better, SIGNIFICANCE, Unit, signed_percent};
use crate::cell::Cell;
use crate::format;
use crate::groups::{clients, titled};
use crate::interval::{Interval, IntervalLatency};
use crate::knobs::Knobs;
use crate::pull_request::shown;
use crate::quantiles::Quantiles;
use crate::run::Run;
use crate::sentences;
use crate::statistics::{Estimate, cohens_d, welch_margin, welch_p_value};
use crate::summary::Style;
use crate::table::Table;
use crate::verdict::Verdict;

/// What a comparison found, ready to be printed.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    title: String,
    /// True if there is a second run to compare with.
    #[serde(skip)]
    paired: bool,
    sections: Vec<Section>,
    remarks: Vec<String>,
    /// Cells that B does not have; a clause each.
    #[serde(skip)]
    only_in_a: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
struct Section {
    title: String,
    changes: Vec<Change>,
    /// Why nothing is better or worse, whatever the figures.
    #[serde(skip_serializing_if = "Option::is_none")]
    unjudged: Option<String>,
}

/// Compares run `b` with run `a`, cell by cell; with `None`, shows `a` alone with its errors.
pub fn compare(a: &Run, b: Option<&Run>) -> Comparison {
    let title = match b {
        Some(b) => format!("A = {}, B = {}", sentences::title(a), sentences::title(b)),
        None => sentences::title(a),
    };
    let mut comparison = Comparison {
        title,
        paired: b.is_some(),
        sections: Vec::new(),
        remarks: Vec::new(),
        only_in_a: Vec::new(),
    };
    for cell in a.cells() {
        let other = b.map(|b| partner(cell, a, b));
        if other == Some(None) {
            comparison
                .only_in_a
                .push(format!("{} is in A only", cell.key()));
            continue;
        }
        let other = other.flatten();
        if let Some(other) = other {
            comparison.remark_on(cell, other);
        }
        let title = |cell: &Cell| format!("{}, {}", clients(cell), titled(cell));
        let title = match other.filter(|other| other.parameters != cell.parameters) {
            None => title(cell),
            Some(other) => format!("A: {}; B: {}", title(cell), title(other)),
        };
        comparison.sections.push(Section {
            title,
            changes: changes(cell, other),
            unjudged: other.and_then(|other| {
                let knobs = |run, cell| Knobs::of(run, &[cell]);
                let difference = knobs(a, cell).difference(&knobs(b?, other));
                objection(cell, other, difference)
            }),
        });
    }
    comparison.remarks.extend(comparison.only_in_a.clone());
    comparison.share_level();
    for cell in b.map_or(&[] as &[Cell], Run::cells) {
        if partner(cell, b.unwrap_or(a), a).is_none() {
            comparison
                .remarks
                .push(format!("{} is in B only", cell.key()));
        }
    }
    comparison
}

impl Comparison {
    /// Every change of every cell.
    pub fn changes(&self) -> impl Iterator<Item = &Change> {
        self.sections.iter().flat_map(|section| &section.changes)
    }

    /// Why cells are not judged; a clause each.
    pub fn unjudged(&self) -> Vec<String> {
        let clause = |it: &Section| {
            let why = it
                .unjudged
                .as_deref()
                .or_else(|| it.is_short().then_some(SHORT))?;
            Some(format!("{}: {why}", it.title))
        };
        let judged_not = self.sections.iter().filter_map(clause);
        judged_not.chain(self.only_in_a.iter().cloned()).collect()
    }

    /// All cells together are wrong as seldom as one would be.
    fn share_level(&mut self) {
        let level = SIGNIFICANCE / self.sections.len().max(1) as f64;
        let changes = self.sections.iter_mut().flat_map(|it| &mut it.changes);
        changes.for_each(|change| change.level = level);
    }

    /// What got worse by more than the share `bound`, and not by chance; a clause each. Of what is
    /// not judged there is none.
    pub fn regressions_beyond(&self, bound: f64) -> Vec<String> {
        let mut clauses = Vec::new();
        for section in self.sections.iter().filter(|it| it.unjudged.is_none()) {
            let beyond = |change: &&Change| {
                let relative = change.relative.unwrap_or(0.0);
                let is_beyond = change.is_regression() && relative.abs() > bound;
                is_beyond || change.has_more_faults(bound)
            };
            clauses.extend(section.changes.iter().filter(beyond).map(|change| {
                let relative = change.relative.map_or_else(format::dash, signed_percent);
                format!("{}: {} {relative}", section.title, change.metric)
            }));
        }
        clauses
    }

    /// What else is to be said: cells that only one run has, parameters that differ, and what
    /// speaks against a cell.
    pub fn remarks(&self) -> &[String] {
        &self.remarks
    }

    /// As text for a terminal.
    pub fn text(&self, style: Style) -> String {
        let bold = |text: &str| {
            if style.color {
                format!("\u{1b}[1m{text}\u{1b}[0m")
            } else {
                text.to_owned()
            }
        };
        let mut text = format!("{}\n", bold(&self.title));
        for remark in &self.remarks {
            text.push_str(&format!("  {remark}\n"));
        }
        for section in &self.sections {
            text.push_str(&format!("\n{}\n", bold(&section.title)));
            if let Some(reason) = &section.unjudged {
                text.push_str(&format!("  {reason}\n"));
            }
            text.push_str(&self.table(section).to_text());
        }
        self.foot()
            .iter()
            .for_each(|line| text.push_str(&format!("\n{line}")));
        text.push('\n');
        text
    }

    /// As Markdown.
    pub fn markdown(&self) -> String {
        let mut text = format!("# {}\n", format::in_markdown(&self.title));
        if !self.remarks.is_empty() {
            text.push('\n');
        }
        for remark in &self.remarks {
            text.push_str(&format!("- {}\n", format::in_markdown(remark)));
        }
        for section in &self.sections {
            let title = format::in_markdown(&section.title);
            text.push_str(&format!("\n## {title}\n\n"));
            if let Some(reason) = &section.unjudged {
                text.push_str(&format!("{reason}\n\n"));
            }
            text.push_str(&self.table(section).to_markdown());
        }
        self.foot()
            .iter()
            .for_each(|line| text.push_str(&format!("\n{line}\n")));
        text
    }

    /// In some twenty lines of Markdown, as a comment on a pull request: what got worse or better,
    /// and all the rest folded.
    pub fn pull_request(&self) -> String {
        let told = |change: &&Change| change.is_significant();
        let judged = self.sections.iter().filter(|it| it.unjudged.is_none());
        let judged: Vec<&Change> = judged.flat_map(|section| &section.changes).collect();
        let worse = judged.iter().filter(|it| it.is_regression()).count();
        let better = judged.iter().copied().filter(told).count() - worse;
        let mut text = format!(
            "**{worse} metrics worse, {better} better**\n\n{}\n",
            format::in_markdown(&self.title)
        );
        for remark in shown(&self.remarks) {
            text.push_str(&format!("- {remark}\n"));
        }
        let mut table = Table::new(["", "metric", "A", "B", "change", "verdict"]);
        for section in &self.sections {
            let (changed, same): (Vec<&Change>, Vec<&Change>) =
                section.changes.iter().partition(|it| it.is_significant());
            for change in changed.into_iter().chain(same).take(CHANGES_SHOWN) {
                table.row([
                    section.title.clone(),
                    change.metric.to_owned(),
                    change.quantity(change.a, 0),
                    change.quantity(change.b, 1),
                    change.relation(),
                    section.judgement(change).to_owned(),
                ]);
            }
        }
        let all = self.markdown();
        text + &format!(
            "\n{}\n<details><summary>All metrics</summary>\n\n{all}\n</details>\n",
            table.to_markdown()
        )
    }

    fn table(&self, section: &Section) -> Table {
        let mut table = if self.paired {
            Table::new(["", "A", "B", "change", "d", "p", ""])
        } else {
            Table::new(["", "value"])
        };
        for change in &section.changes {
            let mut row = vec![change.metric.to_owned(), change.quantity(change.a, 0)];
            if self.paired {
                row.push(change.quantity(change.b, 1));
                row.push(change.relation());
                let effect = change.cohens_d.map(|d| format!("{d:+.2}"));
                row.push(effect.unwrap_or_else(format::dash));
                row.push(change.p_value.map_or_else(format::dash, p_text));
                row.push(section.judgement(change).to_owned());
            }
            table.row(row);
        }
        table
    }

    fn foot(&self) -> Vec<String> {
        let mut lines = Vec::new();
        if self.paired {
            lines.push(format!(
                "In brackets the interval of 95 % of the change, as wide as the values per second \
                 scatter; d: the difference in their standard deviations (Cohen). \
                 p: Welch's t-test on the values per second, their autocorrelation taken off the \
                 sample size; better and worse mean p < {SIGNIFICANCE} of all cells together and \
                 a change beyond its interval, which is that of the mean of the seconds, and not \
                 told that the difference may be chance, however large it is. \
                 Without a p there were too few whole seconds, or none of that value. Two runs on \
                 a machine that drifts can differ for no other reason: repeat and interleave them."
            ));
        }
        lines
    }

    fn remark_on(&mut self, a: &Cell, b: &Cell) {
        if a.parameters != b.parameters {
            let key = a.key();
            self.remarks.push(format!(
                "{key} of A and its partner in B: the parameters differ"
            ));
        }
        for (name, cell) in [("A", a), ("B", b)] {
            for reason in cell.assessment.reasons() {
                let (verdict, key) = (cell.assessment.verdict(), cell.key());
                self.remarks
                    .push(format!("{name}, {key} is {verdict}: {reason}"));
            }
        }
    }
}

impl Section {
    /// Whether nothing could be tested, and something differs.
    fn is_short(&self) -> bool {
        let is_untested = self.changes.iter().all(|change| change.p_value.is_none());
        let differs = |change: &Change| change.b.is_some() && change.a != change.b;
        is_untested && self.changes.iter().any(differs)
    }

    fn judgement(&self, change: &Change) -> &'static str {
        match self.unjudged {
            Some(_) => "not judged",
            None => change.judgement(),
        }
    }
}

/// Why two cells say nothing of each other. Figures of a run that is INVALID are those of its
/// generator, and those of another load are no other server's.
fn objection(a: &Cell, b: &Cell, difference: Option<String>) -> Option<String> {
    let is_invalid = |cell: &Cell| cell.assessment.verdict() == Verdict::Invalid;
    let reason = match (is_invalid(a), is_invalid(b)) {
        (true, true) => "both are INVALID",
        (true, false) => "A is INVALID",
        (false, true) => "B is INVALID",
        (false, false) if a.parameters != b.parameters => "they are other loads",
        (false, false) => {
            let difference = difference?;
            return Some(format!(
                "not judged, because they are no pair: {difference}"
            ));
        }
    };
    Some(format!("not judged, because {reason}"))
}

/// The cell of `to` to compare with: the one with the same parameters, or the only one.
fn partner<'a>(cell: &Cell, from: &Run, to: &'a Run) -> Option<&'a Cell> {
    if let ([_], [only]) = (from.cells(), to.cells()) {
        return Some(only);
    }
    to.cells()
        .iter()
        .find(|other| other.parameters == cell.parameters && other.contest == cell.contest)
}

fn changes(a: &Cell, b: Option<&Cell>) -> Vec<Change> {
    METRICS
        .iter()
        .map(|metric| {
            let cells = [Some(a), b];
            let [value_a, value_b] = cells.map(|cell| cell.and_then(metric.value));
            let estimates = cells.map(|cell| Estimate::of(&metric.series(cell?)));
            let relative = value_a
                .zip(value_b)
                .filter(|(a, _)| *a != 0.0)
                .map(|(a, b)| b / a - 1.0);
            let [estimate_a, estimate_b] = &estimates;
            let p_value = estimate_a
                .as_ref()
                .zip(estimate_b.as_ref())
                .map(|(a, b)| welch_p_value(a, b));
            let both = estimate_a.as_ref().zip(estimate_b.as_ref());
            let margin = both.and_then(|(a, b)| relative_margin(a, b));
            let margin = margin.filter(|_| relative.is_some());
            let is_backed = both.zip(relative).is_some_and(|((a, b), relative)| {
                (b.mean - a.mean) * relative > 0.0 && relative.abs() > margin.unwrap_or(0.0)
            });
            Change {
                margin,
                is_backed,
                cohens_d: both.and_then(|(a, b)| cohens_d(a, b)),
                metric: metric.name,
                a: value_a,
                b: value_b,
                relative,
                p_value,
                unit: metric.unit,
                better: metric.better,
                errors: estimates.map(|estimate| estimate.map(|estimate| estimate.error)),
                level: SIGNIFICANCE,
            }
        })
        .filter(|change| change.a.is_some() || change.b.is_some())
        .collect()
}

/// Half the width of the interval of 95 % of `b / a`, to the first order: what A is off by counts
/// as many times as B is of A.
fn relative_margin(a: &Estimate, b: &Estimate) -> Option<f64> {
    let scaled = Estimate {
        error: a.error * (b.mean / a.mean),
        ..*a
    };
    (a.mean > 0.0).then(|| welch_margin(&scaled, b) / a.mean)
}

/// How to get a metric out of a cell, and out of one of its intervals.
struct Metric {
    name: &'static str,
    unit: Unit,
    better: Better,
    value: fn(&Cell) -> Option<f64>,
    sample: fn(&Interval) -> Option<f64>,
}

impl Metric {
    const fn latency(
        name: &'static str,
        value: fn(&Cell) -> Option<f64>,
        sample: fn(&Interval) -> Option<f64>,
    ) -> Self {
        Self {
            name,
            unit: Unit::Latency,
            better: Better::Less,
            value,
            sample,
        }
    }

    fn series(&self, cell: &Cell) -> Vec<f64> {
        let whole = |interval: &&Interval| is_whole(interval, cell.rate.duration_s);
        let intervals = cell.intervals.iter().filter(whole);
        intervals.filter_map(self.sample).collect()
    }
}

/// Whether load was offered for all of an interval of normal length. The last second that was
/// sent in and those of the drain have values that differ by their own nature; with them in the
/// series its spread hides any change of the rates.
fn is_whole(interval: &Interval, duration_s: f64) -> bool {
    (interval.length_s - 1.0).abs() <= LENGTH_SLACK_S
        && interval.start_s + interval.length_s <= duration_s + END_SLACK_S
}

fn response(cell: &Cell) -> Quantiles {
    Quantiles::of(&cell.latency.response)
}

fn one_way(cell: &Cell) -> Quantiles {
    cell.latency
        .one_way
        .histogram()
        .map(Quantiles::of)
        .unwrap_or_default()
}

fn of(latency: Option<IntervalLatency>, pick: fn(IntervalLatency) -> f64) -> Option<f64> {
    latency.map(pick)
}

const fn untested(_: &Interval) -> Option<f64> {
    None
}

static METRICS: [Metric; 17] = [
    Metric {
        name: "sent",
        unit: Unit::PerSecond,
        better: Better::More,
        value: |cell| Some(cell.rate.sent_per_s),
        sample: |interval| Some(interval.sent as f64 / interval.length_s.max(1e-9)),
    },
    Metric {
        name: "received",
        unit: Unit::PerSecond,
        better: Better::More,
        value: |cell| Some(cell.rate.received_per_s),
        sample: |interval| Some(interval.received as f64 / interval.length_s.max(1e-9)),
    },
    Metric {
        name: "lost",
        unit: Unit::Count,
        better: Better::Less,
        value: |cell| Some(cell.messages.lost as f64),
        sample: untested,
    },
    Metric::latency(
        "response mean",
        |c| response(c).mean_us,
        |i| of(i.response, |l| l.mean_us),
    ),
    Metric::latency(
        "response p50",
        |c| response(c).p50_us,
        |i| of(i.response, |l| l.p50_us),
    ),
    Metric::latency(
        "response p90",
        |c| response(c).p90_us,
        |i| of(i.response, |l| l.p90_us),
    ),
    Metric::latency(
        "response p99",
        |c| response(c).p99_us,
        |i| of(i.response, |l| l.p99_us),
    ),
    Metric::latency("response p99.9", |c| response(c).p99_9_us, untested),
    // One value of many says nothing of the next one.
    Metric::latency("response max", |c| response(c).max_us, untested),
    Metric::latency(
        "one-way mean",
        |c| one_way(c).mean_us,
        |i| of(i.one_way, |l| l.mean_us),
    ),
    Metric::latency(
        "one-way p50",
        |c| one_way(c).p50_us,
        |i| of(i.one_way, |l| l.p50_us),
    ),
    Metric::latency(
        "one-way p99",
        |c| one_way(c).p99_us,
        |i| of(i.one_way, |l| l.p99_us),
    ),
    Metric::latency("one-way p99.9", |c| one_way(c).p99_9_us, untested),
    Metric::latency("one-way max", |c| one_way(c).max_us, untested),
    Metric::latency(
        "service p99",
        |cell| Quantiles::of(&cell.latency.service).p99_us,
        |interval| of(interval.service, |latency| latency.p99_us),
    ),
    Metric::latency(
        "server CPU per message",
        |cell| Some(cell.server.as_ref()?.cpu_ns_per_message? / 1e3),
        |interval| {
            let messages = (interval.sent > 0).then_some(interval.sent as f64)?;
            Some(interval.server_cpu? * interval.length_s * 1e6 / messages)
        },
    ),
    Metric {
        name: "server memory",
        unit: Unit::Bytes,
        better: Better::Less,
        value: |cell| Some(cell.server.as_ref()?.rss_bytes? as f64),
        sample: untested,
    },
];

fn p_text(p: f64) -> String {
    if p < 0.0001 {
        "<0.0001".to_owned()
    } else {
        format!("{p:.4}")
    }
}

const SHORT: &str = "not judged, because there are fewer than four whole seconds";
/// How far an interval may be from a second: a worker closes one when it gets to it.
const LENGTH_SLACK_S: f64 = 0.1;
/// How far the last whole interval may reach beyond the end of the sending.
const END_SLACK_S: f64 = 0.01;

/// Changes of each cell that are seen at once.
const CHANGES_SHOWN: usize = 6;

#[cfg(test)]
mod tests;
