//! The integral of a rate that changes in stages, and its inverse: how many messages are due by a
//! time, and when a message is due. Both are exact in whole numbers, so that nothing drifts and no
//! message is counted to two stages.
//!
//! A message is due at the last moment at which the integral is its number at most. So the first
//! one of a stage that follows a pause is due when that ends, and none in it.

use super::{NEVER, PICO, duration_ns};
use crate::stages::RateStages;

/// The stages that take time, and what was due before each of them.
#[derive(Clone, Debug)]
pub(super) struct Integral {
    pieces: Vec<Piece>,
    length_ns: u64,
    /// At the end.
    total: Mass,
}

/// An integral of a rate: twice the messages, times 10^12, so that a rate in 1000 s times
/// nanoseconds and the half of a square are whole numbers.
pub(super) type Mass = u128;

/// One message as a mass.
pub(super) const MESSAGE: Mass = 2 * PICO;

#[derive(Clone, Copy, Debug)]
struct Piece {
    start_ns: u64,
    /// Never 0.
    length_ns: u64,
    /// Messages in 1000 s where it begins and where it ends.
    from_millihertz: u64,
    to_millihertz: u64,
    /// The integral up to its start.
    before: Mass,
}

impl Integral {
    pub(super) fn new(stages: &RateStages) -> Self {
        let millihertz = |per_s: f64| (per_s * 1000.0).round() as u64;
        let mut pieces = Vec::new();
        let (mut start_ns, mut before) = (0, 0);
        for (from_per_s, stage) in stages.with_starts() {
            let piece = Piece {
                start_ns,
                length_ns: duration_ns(stage.duration),
                from_millihertz: millihertz(from_per_s),
                to_millihertz: millihertz(stage.target_per_s),
                before,
            };
            if piece.length_ns > 0 {
                start_ns += piece.length_ns;
                before += piece.mass();
                pieces.push(piece);
            }
        }
        Self {
            pieces,
            length_ns: start_ns,
            total: before,
        }
    }

    pub(super) fn length_ns(&self) -> u64 {
        self.length_ns
    }

    /// The integral up to `until_ns`, rounded down.
    pub(super) fn mass(&self, until_ns: u64) -> Mass {
        self.mass_and_rest(until_ns).0
    }

    /// Messages that are due before `until_ns`, from 0 on.
    pub(super) fn messages_before(&self, until_ns: u64) -> u64 {
        let (mass, has_rest) = self.mass_and_rest(until_ns);
        let messages = match has_rest {
            true => mass / MESSAGE + 1,
            false => mass.div_ceil(MESSAGE),
        };
        u64::try_from(messages).unwrap_or(NEVER)
    }

    /// When the integral goes beyond `mass`; [`NEVER`] where it does not.
    pub(super) fn time_ns(&self, mass: Mass) -> u64 {
        if mass >= self.total {
            return NEVER;
        }
        let after = self.pieces.partition_point(|piece| piece.before <= mass);
        let piece = &self.pieces[after - 1];
        piece.start_ns + piece.time_ns(mass - piece.before)
    }

    /// The integral rounded down, and whether something was left over.
    fn mass_and_rest(&self, until_ns: u64) -> (Mass, bool) {
        if until_ns >= self.length_ns {
            return (self.total, false);
        }
        let after = self.pieces.partition_point(|it| it.start_ns <= until_ns);
        let piece = &self.pieces[after - 1];
        let scaled = piece.scaled(until_ns - piece.start_ns);
        let length = u128::from(piece.length_ns);
        (
            piece.before + scaled / length,
            !scaled.is_multiple_of(length),
        )
    }
}

impl Piece {
    /// The integral over all of it.
    fn mass(&self) -> Mass {
        let rates = u128::from(self.from_millihertz) + u128::from(self.to_millihertz);
        rates * u128::from(self.length_ns)
    }

    /// The integral over its first `elapsed_ns`, times its length, which leaves no fraction.
    fn scaled(&self, elapsed_ns: u64) -> u128 {
        let elapsed = u128::from(elapsed_ns);
        let (from, to) = (self.from_millihertz, self.to_millihertz);
        let even = 2 * u128::from(from) * elapsed * u128::from(self.length_ns);
        let bend = u128::from(from.abs_diff(to)) * elapsed * elapsed;
        if to >= from { even + bend } else { even - bend }
    }

    /// The last moment at which the integral is `mass` at most, which is less than that of all.
    fn time_ns(&self, mass: Mass) -> u64 {
        let scaled = mass * u128::from(self.length_ns);
        let is_due = |elapsed_ns: u64| self.scaled(elapsed_ns) <= scaled;
        let estimate_ns = self.estimate_ns(mass);
        // The root in floating point is off by a few nanoseconds, and by more where the rate comes
        // to 0: bracket the right one in growing steps.
        let (mut low_ns, mut high_ns, mut step_ns) = (estimate_ns, estimate_ns, 1);
        if is_due(estimate_ns) {
            while is_due(high_ns) {
                low_ns = high_ns;
                high_ns = (high_ns + step_ns).min(self.length_ns);
                step_ns *= 2;
            }
        } else {
            while !is_due(low_ns) {
                high_ns = low_ns;
                low_ns = low_ns.saturating_sub(step_ns);
                step_ns *= 2;
            }
        }
        while high_ns - low_ns > 1 {
            let middle_ns = low_ns.midpoint(high_ns);
            if is_due(middle_ns) {
                low_ns = middle_ns;
            } else {
                high_ns = middle_ns;
            }
        }
        low_ns
    }

    /// About that moment: the root of a parabola, in the form that divides by no small difference.
    fn estimate_ns(&self, mass: Mass) -> u64 {
        let (from, to) = (self.from_millihertz as f64, self.to_millihertz as f64);
        let bend = (to - from) / self.length_ns as f64;
        let root = (from * from + bend * mass as f64).max(0.0).sqrt();
        let elapsed = mass as f64 / (from + root).max(f64::MIN_POSITIVE);
        (elapsed as u64).min(self.length_ns - 1)
    }
}
