//! One stage of a load whose rate changes: what was intended in it, and what became of that.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize, Serializer};

use crate::histogram::Histogram;
use crate::quantiles::Quantiles;

/// The messages that were intended in one stage, whenever they were sent and answered.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(from = "StageIn")]
pub struct Stage {
    /// Seconds from the start of the sending phase.
    pub start_s: f64,
    /// Length in seconds; 0 is a jump.
    pub length_s: f64,
    /// Messages per second at its start.
    pub from_per_s: f64,
    /// Messages per second at its end; between the two the rate is a line.
    pub target_per_s: f64,
    /// Its messages that were never sent; `None` in files from before that was counted.
    pub unsent: Option<u64>,
    /// Its messages that were sent.
    pub sent: u64,
    /// Replies to them, each once.
    pub received: u64,
    /// Replies to them that never came, or too late for a latency.
    pub lost: u64,
    /// Response times of its messages.
    pub response: Histogram,
}

impl Stage {
    /// Its messages that were sent, per second of its length; `None` of a jump.
    pub fn sent_per_s(&self) -> Option<f64> {
        (self.length_s > 0.0).then(|| self.sent as f64 / self.length_s)
    }

    /// What was due in it, sent or not.
    pub(crate) fn planned(&self) -> Option<u64> {
        Some(self.sent + self.unsent?)
    }

    /// Adds what became of the same stage in another round.
    pub(crate) fn add(&mut self, other: &Self) {
        self.unsent = self.unsent.zip(other.unsent).map(|(own, it)| own + it);
        self.sent += other.sent;
        self.received += other.received;
        self.lost += other.lost;
        self.response.merge(&other.response);
    }
}

/// As the file holds it; the figures are computed from the histogram on each write.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Stage")]
pub(crate) struct StageOut<'a> {
    start_s: f64,
    length_s: f64,
    from_per_s: f64,
    target_per_s: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    unsent: Option<u64>,
    sent: u64,
    sent_per_s: Option<f64>,
    received: u64,
    lost: u64,
    response: Quantiles,
    histogram: &'a Histogram,
}

/// As it is read: figures that the histogram gives are ignored.
#[derive(Default, Deserialize)]
#[serde(default)]
struct StageIn {
    start_s: f64,
    length_s: f64,
    from_per_s: f64,
    target_per_s: f64,
    unsent: Option<u64>,
    sent: u64,
    received: u64,
    lost: u64,
    histogram: Histogram,
}

impl Serialize for Stage {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        StageOut {
            start_s: self.start_s,
            length_s: self.length_s,
            from_per_s: self.from_per_s,
            target_per_s: self.target_per_s,
            unsent: self.unsent,
            sent: self.sent,
            sent_per_s: self.sent_per_s(),
            received: self.received,
            lost: self.lost,
            response: Quantiles::of(&self.response),
            histogram: &self.response,
        }
        .serialize(serializer)
    }
}

impl From<StageIn> for Stage {
    fn from(file: StageIn) -> Self {
        Self {
            start_s: file.start_s,
            length_s: file.length_s,
            from_per_s: file.from_per_s,
            target_per_s: file.target_per_s,
            unsent: file.unsent,
            sent: file.sent,
            received: file.received,
            lost: file.lost,
            response: file.histogram,
        }
    }
}

/// Stages as a part of a file name: as they are, or by how many they are and a sum of their text
/// where that is long.
pub(crate) fn key(stages: &str) -> String {
    if stages.len() <= KEY_MAX {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '.';
        // A Run file may say anything, and a slash would lead out of the folder.
        let plain = stages.chars().map(|c| if is_plain(c) { c } else { '-' });
        return format!("_stages{}", plain.collect::<String>());
    }
    // FNV-1a, which is the same in every build.
    let sum = stages.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |sum, byte| {
        (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let count = stages.split(',').count();
    format!("_{count}stages-{sum:016x}")
}

/// A file name has 255 bytes for all of its parts.
const KEY_MAX: usize = 60;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_read_as_it_was_written() {
        let mut stage = Stage {
            start_s: 10.0,
            length_s: 5.0,
            from_per_s: 100.0,
            target_per_s: 300.0,
            unsent: Some(3),
            sent: 1000,
            received: 999,
            lost: 1,
            ..Stage::default()
        };
        stage.response.record(3_000_000);
        let json = serde_json::to_value(&stage).unwrap();
        assert_eq!(json["sent_per_s"], 200.0);
        assert_eq!(json["response"]["p99_us"], 3000.0);
        assert_eq!(stage.planned(), Some(1003));
        assert_eq!(
            serde_json::from_value::<Stage>(json.clone()).unwrap(),
            stage
        );
        // Of an older file nobody knows what was due.
        let mut older = json;
        older.as_object_mut().unwrap().remove("unsent").unwrap();
        let older: Stage = serde_json::from_value(older).unwrap();
        assert_eq!(older.planned(), None);
        stage.add(&older);
        assert_eq!((stage.sent, stage.unsent), (2000, None));
    }

    #[test]
    fn a_file_name_leads_nowhere_whatever_a_file_says_of_stages() {
        assert_eq!(key("10s:1000,500ms:0.5"), "_stages10s-1000-500ms-0.5");
        let elsewhere = key("/../../../tmp/x\0");
        assert_eq!(elsewhere, "_stages-..-..-..-tmp-x-");
    }
}
