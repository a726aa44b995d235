//! A distribution in few numbers, for those who watch.

use moonwire_report::Histogram;

/// How many values lie below this step and not below the one before; steps are 1, 2 and 5 of each
/// decade.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LatencyStep {
    /// Above its values, nanoseconds.
    pub below_ns: u64,
    /// Values.
    pub count: u64,
}

/// The steps from that of the smallest value to that of the largest.
pub(crate) fn steps(histogram: &Histogram) -> Vec<LatencyStep> {
    let mut steps: Vec<LatencyStep> = Vec::new();
    let mut below_ns = FIRST_NS;
    for bucket in histogram.buckets() {
        while bucket.low_ns >= below_ns && below_ns < LAST_NS {
            below_ns = after(below_ns);
            if !steps.is_empty() {
                steps.push(LatencyStep { below_ns, count: 0 });
            }
        }
        match steps.last_mut() {
            Some(last) => last.count += bucket.count,
            None => steps.push(LatencyStep {
                below_ns,
                count: bucket.count,
            }),
        }
    }
    steps
}

/// The step after one that begins with 1, 2 or 5.
fn after(step_ns: u64) -> u64 {
    let decade = 10_u64.pow(step_ns.ilog10());
    match step_ns / decade {
        2 => step_ns / 2 * 5,
        _ => step_ns * 2,
    }
}

/// Nobody answers in less.
const FIRST_NS: u64 = 10_000;
/// What takes longer is in the last step.
const LAST_NS: u64 = 1_000_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_between_their_step_and_the_one_before() {
        let mut histogram = Histogram::new();
        for value_ns in [150_000, 160_000, 700_000, 1_500_000] {
            histogram.record(value_ns);
        }
        let found: Vec<(u64, u64)> = steps(&histogram)
            .iter()
            .map(|step| (step.below_ns, step.count))
            .collect();
        let wanted = [(200_000, 2), (500_000, 0), (1_000_000, 1), (2_000_000, 1)];
        assert_eq!(found, wanted);
    }

    #[test]
    fn none_or_one_that_is_beyond_everything_is_no_endless_loop() {
        assert_eq!(steps(&Histogram::new()), []);
        let mut histogram = Histogram::new();
        histogram.record(u64::MAX);
        histogram.record(1);
        let found = steps(&histogram);
        assert_eq!(found.iter().map(|step| step.count).sum::<u64>(), 2);
        assert_eq!(found[0].below_ns, FIRST_NS);
    }
}
