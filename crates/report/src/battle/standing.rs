//! What one contestant did in all rounds.

use crate::cell::Cell;
use crate::environment::Server;
use crate::format;
use crate::histogram::Histogram;
use crate::metric::{Latency, Metric};
use crate::one_way::OneWay;
use crate::statistics::bootstrap;
use crate::statistics::pool::{Estimate, Pool};
use crate::statistics::ranks::median;
use crate::time_block::TimeBlock;
use crate::tls::{TermsOf, Tls};
use crate::verdict::Verdict;

/// The cells of one contestant in one field.
#[derive(Clone)]
pub(super) struct Standing<'a> {
    contestant: &'a str,
    cells: Vec<&'a Cell>,
    /// Of what is drawn.
    seed: u64,
    /// Whether rounds that are not ranked count, too.
    is_lenient: bool,
}

impl<'a> Standing<'a> {
    pub(super) fn new(contestant: &'a str, cell: &'a Cell, seed: u64) -> Self {
        Self {
            contestant,
            cells: vec![cell],
            seed,
            is_lenient: false,
        }
    }

    /// The same with all its rounds, for a picture that says so.
    pub(super) fn with_all_rounds(&self) -> Self {
        Self {
            is_lenient: true,
            ..self.clone()
        }
    }

    pub(super) fn add(&mut self, cell: &'a Cell) {
        self.cells.push(cell);
    }

    pub(super) fn contestant(&self) -> &'a str {
        self.contestant
    }

    /// The cells whose figures are the contestant's own.
    pub(super) fn ranked(&self) -> impl Iterator<Item = &'a Cell> {
        let cells = self.cells.iter().copied();
        cells.filter(|cell| self.is_lenient || objection(cell).is_none())
    }

    /// All samples of the ranked rounds together; `None` without any.
    pub(super) fn merged(&self, latency: Latency) -> Option<Histogram> {
        let mut all = Histogram::new();
        let histograms = self.ranked().filter_map(|cell| latency.histogram(cell));
        histograms.for_each(|histogram| all.merge(histogram));
        (!all.is_empty()).then_some(all)
    }

    /// How many of the rounds are ranked.
    pub(super) fn rounds(&self) -> String {
        let (ranked, all) = self.ranked_of_all();
        match ranked == all {
            true => all.to_string(),
            false => format!("{ranked} of {all}"),
        }
    }

    /// Ranked rounds, and all of them.
    pub(super) fn ranked_of_all(&self) -> (usize, usize) {
        (self.ranked().count(), self.cells.len())
    }

    /// Why some are not, with the first reason; `None` where all are. Every round has figures of
    /// its own in it, and the cells have them all.
    pub(super) fn remark(&self) -> Option<String> {
        let objections = self.cells.iter().filter_map(|cell| objection(cell));
        let objections: Vec<&str> = objections.collect();
        let first = objections.first()?;
        let (left_out, all) = (objections.len(), self.cells.len());
        let name = self.contestant;
        let more = match left_out {
            1 => "",
            _ => ", to name the first reason",
        };
        Some(format!(
            "{name}: {left_out} of {all} rounds are not ranked{more}: {first}"
        ))
    }

    /// What a limit on its CPU did to it over all rounds; `None` where it had none.
    pub(super) fn rationed(&self) -> Option<String> {
        let servers = self.cells.iter().filter_map(|cell| cell.server.as_ref());
        let limited: Vec<&Server> = servers.filter(|it| it.cpu_limit.is_some()).collect();
        let limit = limited.first()?.cpu_limit?;
        let shares = limited
            .iter()
            .filter_map(|it| Some(it.throttled_ms? / 1e3 / it.observed_s.filter(|s| *s > 0.0)?));
        let mut shares: Vec<f64> = shares.collect();
        shares.sort_by(f64::total_cmp);
        let name = self.contestant;
        let throttled = shares.iter().filter(|share| **share > 0.0).count();
        Some(match throttled {
            0 => format!("{name} was limited to {limit} processors and did not reach that."),
            _ => format!(
                "{name} was limited to {limit} processors, reached that in {throttled} of {} \
                 rounds, and was kept waiting for {} of the time (the median; that of several \
                 processors is added up): its latencies hold pauses of up to 100 ms, the period \
                 of the limit.",
                limited.len(),
                format::percent(median(&shares))
            ),
        })
    }

    /// How far its one-way latencies may be off, or why it has none, where its clock is another
    /// host's; `None` where both ends share one.
    pub(super) fn clocks(&self) -> Option<String> {
        let of_hosts = self.cells.iter().map(|cell| &cell.latency.one_way);
        let of_hosts: Vec<&OneWay> = of_hosts.filter(|it| it.clock().is_some()).collect();
        let name = self.contestant;
        let measured = of_hosts.iter().filter(|it| it.refusal().is_none());
        let worst = measured.filter_map(|it| it.clock());
        let told = worst.max_by_key(|clock| clock.bound_ns).map(|worst| {
            format!(
                "{name}: one-way latencies are good to {}, as the clocks of both hosts are \
                 known.",
                worst.error()
            )
        });
        let refused: Vec<&str> = of_hosts.iter().filter_map(|it| it.refusal()).collect();
        let missing = refused.first().map(|first| {
            let (rounds, all) = (refused.len(), self.cells.len());
            format!("{name}: no one-way latency in {rounds} of {all} rounds: {first}.")
        });
        let told: Vec<String> = told.into_iter().chain(missing).collect();
        (!told.is_empty()).then(|| told.join(" "))
    }

    /// What its connections over TLS agreed on in the ranked rounds; empty without TLS, and where
    /// none was recorded.
    pub(super) fn terms(&self) -> TermsOf {
        let agreed = self.ranked().flat_map(|cell| &cell.tls_agreed);
        agreed.map(Tls::terms).collect()
    }

    /// The same of all rounds.
    pub(super) fn all_terms(&self) -> TermsOf {
        let agreed = self.cells.iter().flat_map(|cell| &cell.tls_agreed);
        agreed.map(Tls::terms).collect()
    }

    /// The value of each ranked round.
    pub(super) fn values(&self, metric: Metric) -> Vec<f64> {
        self.ranked()
            .filter_map(|cell| metric.value(cell))
            .collect()
    }

    /// The value over all ranked rounds with its interval, for a reader.
    pub(super) fn quantity(&self, metric: Metric) -> String {
        let told = |(value, bounds)| metric.estimate(value, bounds);
        self.estimate(metric).map_or_else(format::dash, told)
    }

    /// The value over all ranked rounds, and its interval of 95 % where there is one: of a latency
    /// that of all samples, of anything else the median of the rounds.
    pub(super) fn estimate(&self, metric: Metric) -> Option<Estimate> {
        if let Metric::Latency(latency, statistic) = metric {
            return Pool::new(&self.blocks(latency)).estimate(statistic, self.seed);
        }
        let median_of = |mut values: Vec<f64>| {
            values.sort_by(f64::total_cmp);
            (!values.is_empty()).then(|| median(&values))
        };
        let values = self.values(metric);
        let rounds: Vec<Vec<f64>> = values.iter().map(|value| vec![*value]).collect();
        let bounds = bootstrap::bounds(&rounds, self.seed, |drawn| {
            median_of(drawn.iter().map(|value| **value).collect())
        });
        Some((median_of(values)?, bounds))
    }

    /// The samples of each ranked round, in blocks of time.
    fn blocks(&self, latency: Latency) -> Vec<Vec<TimeBlock>> {
        self.ranked()
            .filter_map(|cell| cell.blocks_of(latency))
            .collect()
    }
}

/// Why a cell does not count; `None` where it does.
fn objection(cell: &Cell) -> Option<&str> {
    let limit = cell.contest.as_ref().and_then(|it| it.limit.as_deref());
    limit.or_else(|| {
        (cell.assessment.verdict() == Verdict::Invalid).then(|| {
            let reasons = cell.assessment.reasons();
            reasons.first().map_or("INVALID", String::as_str)
        })
    })
}

#[cfg(test)]
mod tests {
    use super::super::tests::cell;
    use super::*;
    use crate::one_way::ClockOffset;

    #[test]
    fn pooled_statistics_are_those_of_the_merged_histogram() {
        let cells = [cell("a", 1, 1.0), cell("a", 2, 3.0), cell("a", 3, 0.2)];
        let mut standing = Standing::new("a", &cells[0], 1);
        let mut merged = Histogram::new();
        for cell in &cells {
            merged.merge(&cell.latency.response);
        }
        standing.add(&cells[1]);
        standing.add(&cells[2]);
        for name in ["min", "max", "mean", "p1", "p50", "p90", "p99.9"] {
            let metric = Metric::parse(name).unwrap();
            let Metric::Latency(_, statistic) = metric else {
                panic!("{name} is a latency")
            };
            let found = standing.estimate(metric).map(|(value, _)| value);
            let expected = statistic.of(&merged);
            let error = found.unwrap() / expected.unwrap() - 1.0;
            assert!(error.abs() < 1e-9, "{name}: {found:?} {expected:?}");
        }
    }

    #[test]
    fn one_round_in_blocks_of_time_has_an_interval_unless_its_rate_changes() {
        let mut only = cell("a", 1, 1.0);
        only.blocks = (1..=10)
            .map(|block| TimeBlock::of(&cell("a", block, 1.0).latency.response))
            .collect();
        let p50 = Metric::parse("response.p50").unwrap();
        let told = Standing::new("a", &only, 1).quantity(p50);
        assert!(told.contains('['), "{told}");
        let first = Metric::parse("first_reply.p50").unwrap();
        only.latency.first_reply.record(1000);
        let told = Standing::new("a", &only, 1).quantity(first);
        assert!(!told.contains('['), "{told}");
        only.parameters.stages = Some("1s:5".to_owned());
        let told = Standing::new("a", &only, 1).quantity(p50);
        assert!(!told.contains('['), "{told}");
    }

    #[test]
    fn one_round_alone_has_no_interval() {
        let only = cell("a", 1, 1.0);
        let standing = Standing::new("a", &only, 1);
        let metric = Metric::parse("response.p50").unwrap();
        assert!(!standing.quantity(metric).contains('['));
        assert_eq!(standing.remark(), None);
    }

    #[test]
    fn the_worst_clock_is_told_and_why_rounds_have_no_one_way_latency() {
        let of = |one_way| {
            let mut cell = cell("a", 1, 1.0);
            cell.latency.one_way = one_way;
            cell
        };
        let known = |bound_ns| {
            Some(ClockOffset {
                bound_ns,
                ..ClockOffset::default()
            })
        };
        let measured = |clock| {
            of(OneWay::Measured {
                histogram: Histogram::new(),
                resolution_us: 1,
                clock,
            })
        };
        let local = measured(None);
        let standing = Standing::new("a", &local, 1);
        assert_eq!(standing.clocks(), None);
        let echo = of(OneWay::default());
        let mut standing = Standing::new("a", &echo, 1);
        assert_eq!(standing.clocks(), None);
        let cells = [measured(known(21_000)), measured(known(34_000))];
        cells.iter().for_each(|cell| standing.add(cell));
        let expected = "a: one-way latencies are good to ± 34.0 µs, as the clocks of both hosts \
                        are known.";
        assert_eq!(standing.clocks().as_deref(), Some(expected));
        let refused = of(OneWay::Refused {
            reason: "the clocks are known badly".to_owned(),
            clock: known(900_000),
        });
        standing.add(&refused);
        let told = standing.clocks().unwrap();
        let refusal = " a: no one-way latency in 1 of 4 rounds: the clocks are known badly.";
        assert_eq!(told, expected.to_owned() + refusal);
    }
}
