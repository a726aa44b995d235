//! Pauses of a server's garbage collector, as its runtime tells them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::format;

/// Those that ended while the cell ran.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct GcPauses {
    /// How many, of all its processes.
    pub count: u64,
    /// All together, milliseconds.
    pub total_ms: f64,
    /// The longest, milliseconds.
    pub max_ms: f64,
    /// The 50 longest, in the order of time.
    pub longest: Vec<GcPause>,
    /// More that the server told of when there was no room for them: they are in nothing else here.
    #[serde(skip_serializing_if = "is_zero")]
    pub left_out: u64,
}

/// One pause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct GcPause {
    /// Its end, seconds from the start of the sending phase: when the line that told of it was
    /// read, which is up to 20 ms late on a busy machine.
    pub at_s: f64,
    /// Its length, milliseconds.
    pub ms: f64,
}

impl GcPauses {
    /// Sums them up.
    pub fn of(mut pauses: Vec<GcPause>, left_out: u64) -> Self {
        let count = pauses.len() as u64;
        // A sum of none would be -0.
        let total_ms = pauses.iter().fold(0.0, |sum, it| sum + it.ms);
        pauses.sort_by(|a, b| b.ms.total_cmp(&a.ms));
        pauses.truncate(LONGEST_MAX);
        let max_ms = pauses.first().map_or(0.0, |longest| longest.ms);
        pauses.sort_by(|a, b| a.at_s.total_cmp(&b.at_s));
        Self {
            count,
            // Runtimes tell thousandths; the rest is what adding makes of them.
            total_ms: (total_ms * 1e6).round() / 1e6,
            max_ms,
            longest: pauses,
            left_out,
        }
    }

    /// All of it in a clause.
    pub(crate) fn clause(&self) -> String {
        let told = match self.count {
            0 => "no GC pause".to_owned(),
            count => format!(
                "{} GC {} of {} in all, {} at most",
                format::count(count),
                if count == 1 { "pause" } else { "pauses" },
                format::latency(self.total_ms * 1e3),
                format::latency(self.max_ms * 1e3)
            ),
        };
        match self.left_out {
            0 => told,
            left_out => format!("{told}, and {} more later", format::count(left_out)),
        }
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands it over so")]
fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// As many as the description of the field says.
const LONGEST_MAX: usize = 50;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_are_kept_and_all_are_summed_up() {
        let pause = |number: u32| GcPause {
            at_s: f64::from(number),
            ms: f64::from(number * 37 % 64),
        };
        let gc = GcPauses::of((0..64).map(pause).collect(), 0);
        assert_eq!((gc.count, gc.total_ms, gc.max_ms), (64, 2016.0, 63.0));
        assert_eq!(gc.longest.len(), LONGEST_MAX);
        assert!(gc.longest.iter().all(|it| it.ms >= 14.0));
        assert!(gc.longest.windows(2).all(|two| two[0].at_s < two[1].at_s));
        assert_eq!(
            gc.clause(),
            "64 GC pauses of 2.02 s in all, 63.0 ms at most"
        );
        let none = GcPauses::of(Vec::new(), 0);
        assert!(none.clause() == "no GC pause" && none.total_ms.is_sign_positive());
        let gc = GcPauses::of(vec![pause(1)], 1234);
        let expected = "1 GC pause of 37.0 ms in all, 37.0 ms at most, and 1,234 more later";
        assert_eq!(gc.clause(), expected);
    }
}
