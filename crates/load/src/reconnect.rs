//! When a connection that failed or was lost is made again.

use std::time::Duration;

use serde::Serialize;

use crate::quantity;

/// What follows a connection that failed or was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Reconnect {
    /// It stays down.
    Never,
    /// A new one is made after this time (at least [`RECONNECT_DELAY_MIN`]).
    After(Duration),
    /// The pause doubles with each attempt that fails, and begins anew once one succeeds.
    Exponential {
        /// The pause before the first attempt.
        first: Duration,
        /// The longest pause.
        max: Duration,
        /// Each pause is drawn from the seed, evenly between 0 and what it would be, so that
        /// connections that were lost together do not come back together.
        jitter: bool,
    },
}

impl Reconnect {
    /// Reads `never`, a pause such as `500ms`, `exponential:100ms..10s` or
    /// `exponential-jitter:100ms..10s`; the error is a clause.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text == "never" {
            return Ok(Self::Never);
        }
        if let Some((policy, pauses)) = text.split_once(':')
            && let Some((first, max)) = pauses.split_once("..")
            && let Some(jitter) = match policy {
                "exponential" => Some(false),
                "exponential-jitter" => Some(true),
                _ => None,
            }
            && let (Ok(first), Ok(max)) = (quantity::duration(first), quantity::duration(max))
        {
            return Ok(Self::Exponential { first, max, jitter });
        }
        quantity::duration(text).map(Self::After).map_err(|_| {
            format!(
                "'{text}' is neither 'never' nor a pause such as 500ms nor a policy such as \
                 exponential:100ms..10s or exponential-jitter:100ms..10s"
            )
        })
    }

    /// The pause before attempt `attempt`, which is 1 for the first one after a loss. `draw` is
    /// from 0 to less than 1 and different each time.
    pub(crate) fn pause(self, attempt: u32, draw: f64) -> Option<Duration> {
        let pause = match self {
            Self::Never => return None,
            Self::After(pause) => pause,
            Self::Exponential { first, max, jitter } => {
                let factor = 1_u32
                    .checked_shl(attempt.saturating_sub(1))
                    .unwrap_or(u32::MAX);
                let full = first.saturating_mul(factor).min(max);
                if jitter { full.mul_f64(draw) } else { full }
            }
        };
        Some(pause.max(RECONNECT_DELAY_MIN))
    }
}

/// Shortest pause before a connection is made again: a refused port must not be hammered.
pub(crate) const RECONNECT_DELAY_MIN: Duration = Duration::from_millis(10);

#[cfg(test)]
mod tests {
    use super::*;

    fn pauses(reconnect: Reconnect, draw: f64) -> Vec<u128> {
        [1, 2, 3, 4, 33, u32::MAX]
            .into_iter()
            .map(|attempt| reconnect.pause(attempt, draw).unwrap().as_millis())
            .collect()
    }

    #[test]
    fn a_pause_doubles_up_to_its_maximum() {
        let exponential = |jitter| Reconnect::Exponential {
            first: Duration::from_millis(100),
            max: Duration::from_secs(1),
            jitter,
        };
        let full = [100, 200, 400, 800, 1000, 1000];
        assert_eq!(pauses(exponential(false), 0.5), full);
        assert_eq!(
            pauses(exponential(true), 0.5),
            [50, 100, 200, 400, 500, 500]
        );
        assert_eq!(pauses(exponential(true), 0.0), [10; 6]);
    }

    #[test]
    fn policies_are_read_and_mistakes_are_said() {
        let ms = Duration::from_millis;
        assert_eq!(Reconnect::parse("never"), Ok(Reconnect::Never));
        assert_eq!(Reconnect::parse("50ms"), Ok(Reconnect::After(ms(50))));
        for (text, jitter) in [("exponential", false), ("exponential-jitter", true)] {
            let policy = Reconnect::Exponential {
                first: ms(100),
                max: ms(9000),
                jitter,
            };
            assert_eq!(Reconnect::parse(&format!("{text}:100ms..9s")), Ok(policy));
        }
        for text in ["", "linear:1s..2s", "exponential:1s", "exponential:a..b"] {
            let clause = Reconnect::parse(text).unwrap_err();
            assert!(
                clause.starts_with(&format!("'{text}' is neither")),
                "{clause}"
            );
        }
    }

    #[test]
    fn a_fixed_pause_has_a_minimum_and_never_is_never() {
        let after = |ms| Reconnect::After(Duration::from_millis(ms));
        assert_eq!(pauses(after(1), 0.5), [10; 6]);
        assert_eq!(pauses(after(70), 0.5), [70; 6]);
        assert_eq!(Reconnect::Never.pause(1, 0.5), None);
    }
}
