//! What a few published and many heard.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::histogram::Histogram;
use crate::quantiles::Quantiles;

/// Who heard what was published, and how soon. Latencies are from the intended send time.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, from = "FanOutIn")]
pub struct FanOut {
    /// Connections that publish.
    pub publishers: u64,
    /// Connections that are to hear it; publishers are among them.
    pub subscribers: u64,
    /// Connections that have subscribed and do not read.
    pub silent: u64,
    /// Those among them that the server has ended.
    pub silent_cut: u64,
    /// Messages times subscribers.
    pub copies_expected: u64,
    /// Copies that were heard, each once.
    pub copies: u64,
    /// Messages that every subscriber heard.
    pub complete: u64,
    /// Subscribers that heard nothing at all.
    pub unreached: u64,
    /// Messages that the subscriber heard who heard the fewest.
    pub heard_least: u64,
    /// Until each subscriber had it: one sample a copy.
    pub delivery: Histogram,
    /// Until the first subscriber had it: one sample a message.
    pub first_receiver: Histogram,
    /// Until half of them had it; of messages that half of them heard.
    pub median_receiver: Histogram,
    /// Until the last one had it, of those who heard it.
    pub last_receiver: Histogram,
}

impl FanOut {
    /// Share of the copies that were heard, 0 to 1; `None` where nothing was published.
    pub fn reach(&self) -> Option<f64> {
        (self.copies_expected > 0).then(|| self.copies as f64 / self.copies_expected as f64)
    }
}

/// As the file holds it; the figures are computed from the histograms on each write.
#[derive(Serialize, JsonSchema)]
pub(crate) struct FanOutOut<'a> {
    publishers: u64,
    subscribers: u64,
    silent: u64,
    silent_cut: u64,
    copies_expected: u64,
    copies: u64,
    reach: Option<f64>,
    complete: u64,
    unreached: u64,
    heard_least: u64,
    delivery: Quantiles,
    first_receiver: Quantiles,
    median_receiver: Quantiles,
    last_receiver: Quantiles,
    histograms: HistogramsOut<'a>,
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "FanOutHistograms")]
struct HistogramsOut<'a> {
    delivery: &'a Histogram,
    first_receiver: &'a Histogram,
    median_receiver: &'a Histogram,
    last_receiver: &'a Histogram,
}

/// As it is read: figures that the histograms give are ignored.
#[derive(Default, Deserialize)]
#[serde(default)]
struct FanOutIn {
    publishers: u64,
    subscribers: u64,
    silent: u64,
    silent_cut: u64,
    copies_expected: u64,
    copies: u64,
    complete: u64,
    unreached: u64,
    heard_least: u64,
    histograms: HistogramsIn,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct HistogramsIn {
    delivery: Histogram,
    first_receiver: Histogram,
    median_receiver: Histogram,
    last_receiver: Histogram,
}

impl Serialize for FanOut {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        FanOutOut {
            publishers: self.publishers,
            subscribers: self.subscribers,
            silent: self.silent,
            silent_cut: self.silent_cut,
            copies_expected: self.copies_expected,
            copies: self.copies,
            reach: self.reach(),
            complete: self.complete,
            unreached: self.unreached,
            heard_least: self.heard_least,
            delivery: Quantiles::of(&self.delivery),
            first_receiver: Quantiles::of(&self.first_receiver),
            median_receiver: Quantiles::of(&self.median_receiver),
            last_receiver: Quantiles::of(&self.last_receiver),
            histograms: HistogramsOut {
                delivery: &self.delivery,
                first_receiver: &self.first_receiver,
                median_receiver: &self.median_receiver,
                last_receiver: &self.last_receiver,
            },
        }
        .serialize(serializer)
    }
}

impl From<FanOutIn> for FanOut {
    fn from(file: FanOutIn) -> Self {
        Self {
            publishers: file.publishers,
            subscribers: file.subscribers,
            silent: file.silent,
            silent_cut: file.silent_cut,
            copies_expected: file.copies_expected,
            copies: file.copies,
            complete: file.complete,
            unreached: file.unreached,
            heard_least: file.heard_least,
            delivery: file.histograms.delivery,
            first_receiver: file.histograms.first_receiver,
            median_receiver: file.histograms.median_receiver,
            last_receiver: file.histograms.last_receiver,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_read_as_it_was_written() {
        let mut fan_out = FanOut {
            publishers: 2,
            subscribers: 100,
            copies_expected: 1000,
            copies: 990,
            complete: 9,
            unreached: 1,
            ..FanOut::default()
        };
        fan_out.delivery.record(5_000_000);
        fan_out.last_receiver.record(9_000_000);
        let json = serde_json::to_value(&fan_out).unwrap();
        assert_eq!(json["reach"], 0.99);
        assert_eq!(json["last_receiver"]["max_us"], 9000.0);
        let read: FanOut = serde_json::from_value(json).unwrap();
        assert_eq!(read, fan_out);
        assert_eq!(FanOut::default().reach(), None);
    }
}
