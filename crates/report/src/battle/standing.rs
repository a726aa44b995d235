//! What one contestant did in all rounds.

use crate::cell::Cell;
use crate::environment::Server;
use crate::format;
use crate::metric::{Latency, Metric, Statistic};
use crate::one_way::OneWay;
use crate::statistics::bootstrap::{self, Bounds};
use crate::statistics::ranks::median;
use crate::tls::{TermsOf, Tls};
use crate::verdict::Verdict;

/// The cells of one contestant in one field.
pub(super) struct Standing<'a> {
    contestant: &'a str,
    cells: Vec<&'a Cell>,
    /// Of what is drawn.
    seed: u64,
}

impl<'a> Standing<'a> {
    pub(super) fn new(contestant: &'a str, cell: &'a Cell, seed: u64) -> Self {
        Self {
            contestant,
            cells: vec![cell],
            seed,
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
        cells.filter(|cell| objection(cell).is_none())
    }

    /// How many of the rounds are ranked.
    pub(super) fn rounds(&self) -> String {
        let (ranked, all) = (self.ranked().count(), self.cells.len());
        match ranked == all {
            true => all.to_string(),
            false => format!("{ranked} of {all}"),
        }
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
        let Some(value) = self.value(metric) else {
            return format::dash();
        };
        let value = metric.quantity(value);
        match self.bounds(metric) {
            Some(Bounds { low, high }) => {
                format!(
                    "{value} [{}, {}]",
                    metric.quantity(low),
                    metric.quantity(high)
                )
            }
            None => value,
        }
    }

    /// Of a latency that of all samples, of anything else the median of the rounds.
    fn value(&self, metric: Metric) -> Option<f64> {
        match metric {
            Metric::Latency(latency, statistic) => {
                let rounds = self.bins(latency);
                let all: Vec<&Bins> = rounds.iter().flatten().collect();
                pooled(&all, statistic)
            }
            Metric::Figure(_) => {
                let mut values = self.values(metric);
                values.sort_by(f64::total_cmp);
                (!values.is_empty()).then(|| median(&values))
            }
        }
    }

    fn bounds(&self, metric: Metric) -> Option<Bounds> {
        match metric {
            Metric::Latency(latency, statistic) => {
                let rounds = self.bins(latency);
                bootstrap::bounds(&rounds, self.seed, |drawn| pooled(drawn, statistic))
            }
            Metric::Figure(_) => {
                let values = self.values(metric).into_iter();
                let rounds: Vec<Vec<f64>> = values.map(|value| vec![value]).collect();
                if rounds.len() < 2 {
                    return None;
                }
                bootstrap::bounds(&rounds, self.seed, |drawn| {
                    let mut values: Vec<f64> = drawn.iter().map(|value| **value).collect();
                    values.sort_by(f64::total_cmp);
                    Some(median(&values))
                })
            }
        }
    }

    /// The samples of each ranked round, in blocks of time.
    fn bins(&self, latency: Latency) -> Vec<Vec<Bins>> {
        let of_round = |cell: &Cell| -> Option<Vec<Bins>> {
            let histogram = latency.histogram(cell)?;
            let values = histogram.buckets();
            let bins = values.map(|bucket| (bucket.high_ns, bucket.count));
            Some(vec![Bins {
                counts: bins.collect(),
                sum_ns: histogram.mean_ns()? * histogram.count() as f64,
                min_ns: histogram.min_ns()?,
                max_ns: histogram.max_ns()?,
            }])
        };
        self.ranked().filter_map(of_round).collect()
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

/// The samples of one block of time.
struct Bins {
    /// Values in nanoseconds, from the smallest up, and how often each came.
    counts: Vec<(u64, u64)>,
    sum_ns: f64,
    min_ns: u64,
    max_ns: u64,
}

/// A statistic of all samples of some blocks.
fn pooled(blocks: &[&Bins], statistic: Statistic) -> Option<f64> {
    let count: u64 = counts(blocks).map(|(_, count)| count).sum();
    if count == 0 {
        return None;
    }
    let min_ns = blocks.iter().map(|block| block.min_ns).min()?;
    let max_ns = blocks.iter().map(|block| block.max_ns).max()?;
    match statistic {
        Statistic::Min => Some(min_ns as f64),
        Statistic::Max => Some(max_ns as f64),
        Statistic::Mean => {
            let sum_ns: f64 = blocks.iter().map(|block| block.sum_ns).sum();
            Some(sum_ns / count as f64)
        }
        Statistic::Quantile(share) => {
            let mut all: Vec<(u64, u64)> = counts(blocks).collect();
            all.sort_unstable();
            // As HdrHistogram has it: the smallest value that this share of all is not above.
            let mut left = ((share * count as f64).ceil() as u64).max(1);
            let value_ns = all.iter().find(|(_, count)| {
                let found = *count >= left;
                left = left.saturating_sub(*count);
                found
            });
            value_ns.map(|(value_ns, _)| (*value_ns).clamp(min_ns, max_ns) as f64)
        }
    }
}

fn counts<'a>(blocks: &'a [&Bins]) -> impl Iterator<Item = (u64, u64)> + 'a {
    blocks.iter().flat_map(|block| block.counts.iter().copied())
}

#[cfg(test)]
mod tests {
    use super::super::tests::cell;
    use super::*;
    use crate::histogram::Histogram;
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
            let (found, expected) = (standing.value(metric), statistic.of(&merged));
            let error = found.unwrap() / expected.unwrap() - 1.0;
            assert!(error.abs() < 1e-9, "{name}: {found:?} {expected:?}");
        }
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
