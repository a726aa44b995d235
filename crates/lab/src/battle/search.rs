//! The search for the most that keeps the thresholds: which value is tried next.
//!
//! It doubles until a value fails, halves the gap on a logarithmic scale until it is as small as
//! asked for, and tries the highest value that passed once more for longer. A value fails when two
//! tries fail, so that one disturbed moment does not end the search.

/// Where a search begins, where it ends, and how precise it is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Bounds {
    /// The first value that is tried.
    pub(super) from: f64,
    /// No higher one is tried.
    pub(super) to: f64,
    /// The gap that may be left, as a share: 0.02 is 2 %.
    pub(super) precision: f64,
    /// Whether there are only whole values.
    pub(super) is_whole: bool,
}

/// What to do next.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Step {
    /// Try this value.
    Probe(f64),
    /// Try this value for longer: it is the answer if it passes.
    Confirm(f64),
    /// The search has ended.
    End(Answer),
}

/// What was found.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Answer {
    /// The highest value that passed; `None` if none did.
    pub(super) highest: Option<f64>,
    /// The lowest that failed; `None` if all passed.
    pub(super) lowest_failed: Option<f64>,
    /// Whether the highest passed the longer try, too.
    pub(super) is_confirmed: bool,
}

/// A search on its way.
#[derive(Debug, Clone)]
pub(super) struct Search {
    bounds: Bounds,
    /// What passed, from the lowest up.
    passed: Vec<f64>,
    failed: Option<f64>,
    /// A try that failed once, and may have been disturbed.
    doubted: Option<Step>,
    is_confirmed: bool,
    tries: u32,
}

impl Search {
    pub(super) fn new(bounds: Bounds) -> Self {
        Self {
            bounds,
            passed: Vec::new(),
            failed: None,
            doubted: None,
            is_confirmed: false,
            tries: 0,
        }
    }

    /// What to do next.
    pub(super) fn step(&self) -> Step {
        let highest = self.passed.last().copied();
        if self.is_confirmed || self.tries >= TRIES_MAX {
            return self.end();
        }
        if let Some(step) = self.doubted {
            return step;
        }
        match (highest, self.failed) {
            (None, None) => Step::Probe(self.bounds.from),
            (None, Some(failed)) => match self.between(failed / 4.0, failed) {
                Some(lower) if lower >= self.lowest() => Step::Probe(lower),
                Some(_) | None => self.end(),
            },
            (Some(highest), None) if highest < self.bounds.to => {
                Step::Probe((highest * 2.0).min(self.bounds.to))
            }
            (Some(highest), None) => Step::Confirm(highest),
            (Some(highest), Some(failed)) => {
                let middle = self.between(highest, failed);
                middle.map_or(Step::Confirm(highest), Step::Probe)
            }
        }
    }

    /// The highest value that has passed until now.
    pub(super) fn highest(&self) -> Option<f64> {
        self.passed.last().copied()
    }

    /// The lowest value that has failed until now.
    pub(super) fn lowest_failed(&self) -> Option<f64> {
        self.failed
    }

    /// Notes how a value did.
    pub(super) fn tell(&mut self, step: Step, has_passed: bool) {
        self.tries += 1;
        match (step, has_passed) {
            (Step::Probe(value), true) => {
                self.doubted = None;
                self.passed.push(value);
                self.passed.sort_by(f64::total_cmp);
            }
            (Step::Probe(value) | Step::Confirm(value), false) => {
                if self.doubted.take().is_none() {
                    self.doubted = Some(step);
                } else {
                    self.failed = Some(value);
                    // What is not below it cannot be believed either.
                    self.passed.retain(|passed| *passed < value);
                }
            }
            (Step::Confirm(_), true) => {
                self.doubted = None;
                self.is_confirmed = true;
            }
            (Step::End(_), _) => {}
        }
    }

    fn end(&self) -> Step {
        Step::End(Answer {
            highest: self.passed.last().copied(),
            lowest_failed: self.failed,
            is_confirmed: self.is_confirmed,
        })
    }

    /// The middle of a gap on a logarithmic scale; `None` of one that is small enough.
    fn between(&self, low: f64, high: f64) -> Option<f64> {
        if high <= low * (1.0 + self.bounds.precision) {
            return None;
        }
        let middle = (low * high).sqrt();
        let whole = middle.round();
        if whole > low && whole < high {
            return Some(whole);
        }
        (!self.bounds.is_whole).then_some(middle)
    }

    /// Below it nothing is looked for.
    fn lowest(&self) -> f64 {
        if self.bounds.is_whole { 1.0 } else { RATE_MIN }
    }
}

/// A message in ten seconds: less is no load.
const RATE_MIN: f64 = 0.1;
/// From 1,000 to a million in 10, to 1 % in 7, each failed one twice, and some confirmations.
const TRIES_MAX: u32 = 60;

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: Bounds = Bounds {
        from: 1000.0,
        to: 1e6,
        precision: 0.02,
        is_whole: false,
    };

    /// Searches where `passes` says how a try goes: the value and its number.
    fn found(bounds: Bounds, passes: impl Fn(f64, u32) -> bool) -> (Answer, u32) {
        let mut search = Search::new(bounds);
        for number in 0.. {
            let step = search.step();
            let value = match step {
                Step::Probe(value) | Step::Confirm(value) => value,
                Step::End(answer) => return (answer, number),
            };
            search.tell(step, passes(value, number));
        }
        unreachable!("a search ends")
    }

    #[test]
    fn the_capacity_is_found_within_the_precision() {
        for capacity in [37.0, 1000.0, 4321.0, 77_777.0, 999_000.0] {
            let (answer, tries) = found(BOUNDS, |value, _| value <= capacity);
            let highest = answer.highest.unwrap();
            assert!(
                highest <= capacity && highest > capacity * 0.98,
                "{answer:?}"
            );
            assert!(answer.is_confirmed && tries < 40, "{answer:?} {tries}");
            assert!(answer.lowest_failed.unwrap() > capacity);
        }
    }

    #[test]
    fn one_disturbed_try_changes_nothing() {
        for disturbed in 0..12 {
            let (answer, _) = found(BOUNDS, |value, number| {
                value <= 20_000.0 && number != disturbed
            });
            let highest = answer.highest.unwrap();
            assert!(
                (19_600.0..=20_000.0).contains(&highest),
                "{disturbed}: {answer:?}"
            );
        }
    }

    #[test]
    fn what_does_not_hold_for_long_is_not_the_answer() {
        let mut search = Search::new(BOUNDS);
        let answer = loop {
            let step = search.step();
            let has_passed = match step {
                Step::Probe(value) => value <= 10_000.0,
                Step::Confirm(value) => value <= 9_000.0,
                Step::End(answer) => break answer,
            };
            search.tell(step, has_passed);
        };
        assert!(answer.highest.unwrap() <= 9_000.0, "{answer:?}");
    }

    #[test]
    fn everything_and_nothing_are_answers_too() {
        let (all, _) = found(BOUNDS, |_, _| true);
        assert_eq!((all.highest, all.lowest_failed), (Some(1e6), None));
        assert!(all.is_confirmed);
        let (none, _) = found(BOUNDS, |_, _| false);
        assert_eq!((none.highest, none.is_confirmed), (None, false));
    }

    #[test]
    fn whole_values_stay_whole() {
        let bounds = Bounds {
            from: 10.0,
            is_whole: true,
            ..BOUNDS
        };
        let (answer, _) = found(bounds, |value, _| {
            assert_eq!(value.fract(), 0.0);
            value <= 7.0
        });
        assert_eq!(
            (answer.highest, answer.lowest_failed),
            (Some(7.0), Some(8.0))
        );
    }
}
