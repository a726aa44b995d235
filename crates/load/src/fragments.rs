//! Messages in several frames.

use serde::Serialize;

use crate::scenario::ScenarioError;
use crate::schedule::mix;

/// One way to send a message, and how often it is taken among all.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FragmentShare {
    /// How often, compared with the sum of all weights.
    pub weight: u32,
    /// The frames.
    pub cut: Cut,
}

/// The frames of a message. None of them is empty, unless the message is: one that is too short has
/// fewer frames.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Cut {
    /// So many frames of about the same size; 1 sends the message whole.
    Parts(u32),
    /// Frames of these sizes, and one with the rest.
    Sizes(Vec<usize>),
}

impl FragmentShare {
    /// Reads `40:1,40:100+rest,20:100+50+rest`: weights, and for each a number of parts, or the
    /// sizes of the first ones. Weights in percent, `40%:1,60%:2`, come to 100.
    pub fn parse_all(text: &str) -> Result<Vec<Self>, ScenarioError> {
        let shares: Vec<Self> = text.split(',').map(Self::parse).collect::<Result<_, _>>()?;
        let mut weights = text.split(',').filter_map(|share| share.split(':').next());
        let is_percent = weights.all(|weight| weight.trim().ends_with('%'));
        let sum: u64 = shares.iter().map(|share| u64::from(share.weight)).sum();
        match is_percent && sum != 100 {
            true => Err(ScenarioError::new(format!(
                "the shares of '{text}' come to {sum} %, not to 100 %: give all of them, or \
                 weights without %"
            ))),
            false => Ok(shares),
        }
    }

    fn parse(text: &str) -> Result<Self, ScenarioError> {
        let mistake = || {
            ScenarioError::new(format!(
                "'{text}' is not a share of messages and its frames; write WEIGHT:PARTS such as \
                 40:2, or the sizes as in 20:100+50+rest"
            ))
        };
        let (weight, cut) = text.split_once(':').ok_or_else(mistake)?;
        let cut = match cut.trim().strip_suffix("+rest") {
            Some(sizes) => {
                let sizes = sizes.split('+').map(|size| size.trim().parse().ok());
                Cut::Sizes(sizes.collect::<Option<_>>().ok_or_else(mistake)?)
            }
            None => Cut::Parts(cut.trim().parse().map_err(|_| mistake())?),
        };
        let weight = weight.trim().trim_end_matches('%').parse();
        Ok(Self {
            weight: weight.map_err(|_| mistake())?,
            cut,
        })
    }
}

/// Checks the shares of a scenario.
pub(crate) fn check(shares: &[FragmentShare]) -> Result<(), ScenarioError> {
    let mistake = |sentence: String| Err(ScenarioError::new(sentence));
    if !shares.is_empty() && shares.iter().all(|share| share.weight == 0) {
        return mistake("the shares of fragmented messages must not all be 0".to_owned());
    }
    for share in shares {
        let parts = match &share.cut {
            Cut::Parts(parts) => *parts as usize,
            Cut::Sizes(sizes) if sizes.contains(&0) => {
                return mistake("a frame of a fragmented message needs at least 1 byte".to_owned());
            }
            Cut::Sizes(sizes) => sizes.len() + 1,
        };
        if !(1..=PARTS_MAX).contains(&parts) {
            return mistake(format!(
                "a message can be sent in 1 to {PARTS_MAX} frames, not in {parts}"
            ));
        }
    }
    Ok(())
}

/// The sizes of all frames but the last, which has the rest, for a message of `length` bytes.
/// `shares` was checked and is not empty.
pub(crate) fn sizes(
    shares: &[FragmentShare],
    seed: u64,
    (connection, seq): (u32, u64),
    length: usize,
) -> Vec<usize> {
    let total: u64 = shares.iter().map(|share| u64::from(share.weight)).sum();
    let drawn = mix(mix(seed ^ FRAGMENT_SALT, u64::from(connection)), seq) % total.max(1);
    let mut weights = 0;
    let share = shares.iter().find(|share| {
        weights += u64::from(share.weight);
        drawn < weights
    });
    match share.map(|share| &share.cut) {
        Some(Cut::Sizes(sizes)) => sizes.clone(),
        Some(&Cut::Parts(parts)) => {
            let parts = parts as usize;
            let end = |part: usize| length / parts * part + length % parts * part / parts;
            let sizes = (1..parts).map(|part| end(part) - end(part - 1));
            sizes.filter(|&size| size > 0).collect()
        }
        None => Vec::new(),
    }
}

/// Frames of one message; servers limit them as well.
const PARTS_MAX: usize = 1000;
/// Keeps the cuts apart from what else is drawn from the seed.
const FRAGMENT_SALT: u64 = 0x6672_6167_6d65_6e74;

#[cfg(test)]
mod tests {
    use super::*;

    fn shares(text: &str) -> Vec<FragmentShare> {
        let shares = FragmentShare::parse_all(text).unwrap();
        check(&shares).unwrap();
        shares
    }

    #[test]
    fn shares_are_weights_with_parts_or_sizes() {
        assert_eq!(
            shares("40:1,20%:100+50+rest"),
            [
                FragmentShare {
                    weight: 40,
                    cut: Cut::Parts(1)
                },
                FragmentShare {
                    weight: 20,
                    cut: Cut::Sizes(vec![100, 50])
                },
            ]
        );
        for wrong in [
            "",
            "40",
            "a:1",
            "40:",
            "40:rest",
            "40:1+x+rest",
            "-1:2",
            "40:1;",
        ] {
            let sentence = FragmentShare::parse_all(wrong).unwrap_err().to_string();
            assert!(sentence.contains("WEIGHT:PARTS"), "{sentence}");
        }
        assert_eq!(shares("40%:1,60%:2").len(), 2);
        let sentence = FragmentShare::parse_all("40%:1,20%:2").unwrap_err();
        let told = "come to 60 %, not to 100 %";
        assert!(sentence.to_string().contains(told), "{sentence}");
    }

    #[test]
    fn shares_that_cannot_be_sent_are_refused() {
        for (text, part) in [
            ("0:1,0:2", "not all be 0"),
            ("1:0", "1 to 1000 frames, not in 0"),
            ("1:1001", "not in 1001"),
            ("1:0+rest", "at least 1 byte"),
        ] {
            let shares = FragmentShare::parse_all(text).unwrap();
            let sentence = check(&shares).unwrap_err().to_string();
            assert!(sentence.contains(part), "{text}: {sentence}");
        }
    }

    #[test]
    fn parts_are_about_equal_and_never_empty() {
        let cut = |parts: &str, length| sizes(&shares(parts), 1, (0, 0), length);
        assert_eq!(cut("1:3", 10), [3, 3]);
        assert_eq!(cut("1:2", 64), [32]);
        assert_eq!(cut("1:1", 64), [0_usize; 0]);
        assert_eq!(cut("1:3", 2), [1]);
        assert_eq!(cut("1:3", 0), [0_usize; 0]);
        assert_eq!(cut("1:100+50+rest", 275), [100, 50]);
        assert_eq!(cut("1:1000", 16 << 20).len(), 999);
    }

    #[test]
    fn each_way_is_taken_as_often_as_its_weight_says_and_again_with_the_same_seed() {
        let shares = shares("40:1,40:100+rest,20:100+50+rest");
        let frames = |seed| {
            let message = |n: u64| sizes(&shares, seed, ((n % 50) as u32, n / 50), 275).len();
            (0..10_000).map(message).collect::<Vec<_>>()
        };
        let drawn = frames(7);
        for (cuts, expected) in [(0, 4000), (1, 4000), (2, 2000)] {
            let count = drawn.iter().filter(|&&n| n == cuts).count();
            assert!(count.abs_diff(expected) < 200, "{cuts}: {count}");
        }
        assert_eq!(drawn, frames(7));
        assert_ne!(drawn, frames(8));
    }
}
