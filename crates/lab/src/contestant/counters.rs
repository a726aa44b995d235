//! What a server says that it has counted, in what it prints when it ends.

use moonwire_report::Counted;
use serde::Deserialize;

/// Where its counters stand.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Counters {
    /// The last line that begins with this word has them.
    line: String,
    /// Which word of it, from 0, is the number of messages received.
    received: usize,
    /// Which one is the number of messages sent.
    sent: usize,
}

impl Counters {
    /// Finds them; `None` where it has not printed them.
    pub(super) fn read(&self, output: &[String]) -> Option<Counted> {
        output.iter().rev().find_map(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            if words.first() != Some(&self.line.as_str()) {
                return None;
            }
            let number = |index: usize| words.get(index)?.parse().ok();
            Some(Counted {
                received: number(self.received)?,
                sent: number(self.sent)?,
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_are_in_the_last_line_that_begins_so() {
        let counters = Counters {
            line: "all".to_owned(),
            received: 3,
            sent: 4,
        };
        let output = [
            "all 0 10 1 2 3",
            "all            0        10        38239        38240",
            "all is well",
            "memory: 17",
        ]
        .map(str::to_owned);
        let counted = Counted {
            received: 38239,
            sent: 38240,
        };
        assert_eq!(counters.read(&output), Some(counted));
        assert_eq!(counters.read(&output[3..]), None);
    }
}
