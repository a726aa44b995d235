//! A Run file, read by its stable paths only, as a check outside the repository would.

use anyhow::{Context, Result, anyhow};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::Deserializer;
use serde_json::Value;

pub(crate) struct RunFile(Value);

impl RunFile {
    pub(crate) fn parse(text: &str) -> Result<Self> {
        Ok(Self(
            serde_json::from_str(text).context("the Run file is not JSON")?,
        ))
    }

    /// All of it.
    pub(crate) fn value(&self) -> &Value {
        &self.0
    }

    pub(crate) fn is_invalid(&self) -> bool {
        self.verdict().eq_ignore_ascii_case("invalid")
    }

    pub(crate) fn verdict(&self) -> &str {
        self.0["verdict"].as_str().unwrap_or("no verdict")
    }

    /// Everything under `verdict_reasons`, for a person to read.
    pub(crate) fn reasons(&self) -> String {
        let reasons = self.0["verdict_reasons"].as_array().into_iter().flatten();
        reasons
            .filter_map(Value::as_str)
            .collect::<Vec<_>>()
            .join("; ")
    }

    /// A number at a JSON pointer, such as `/messages/lost`.
    pub(crate) fn number(&self, pointer: &str) -> Result<f64> {
        let value = self.0.pointer(pointer).and_then(Value::as_f64);
        value.with_context(|| format!("the Run file has no number at {pointer}"))
    }

    pub(crate) fn text(&self, pointer: &str) -> Result<&str> {
        let value = self.0.pointer(pointer).and_then(Value::as_str);
        value.with_context(|| format!("the Run file has no text at {pointer}"))
    }

    pub(crate) fn count(&self, pointer: &str) -> Result<u64> {
        let value = self.0.pointer(pointer).and_then(Value::as_u64);
        value.with_context(|| format!("the Run file has no count at {pointer}"))
    }

    /// How many service times were above `limit_ns`, from the raw histogram.
    pub(crate) fn service_above(&self, limit_ns: u64) -> Result<u64> {
        let text = self
            .0
            .pointer("/histograms/service/base64")
            .and_then(Value::as_str);
        let text = text.context("the Run file has no histogram of service")?;
        let bytes = STANDARD
            .decode(text)
            .map_err(|error| anyhow!("base64: {error}"))?;
        let histogram: Histogram<u64> = Deserializer::new()
            .deserialize(&mut bytes.as_slice())
            .map_err(|error| anyhow!("the histogram of service: {error}"))?;
        Ok(histogram.len() - histogram.count_between(0, limit_ns))
    }
}

#[cfg(test)]
mod tests {
    use hdrhistogram::serialization::{Serializer, V2DeflateSerializer};
    use serde_json::json;

    use super::*;

    #[test]
    fn figures_are_found_by_path() {
        let mut histogram = Histogram::<u64>::new(3).unwrap();
        for value_ns in [1_000, 90_000_000, 110_000_000, 900_000_000] {
            histogram.record(value_ns).unwrap();
        }
        let mut bytes = Vec::new();
        V2DeflateSerializer::new()
            .serialize(&histogram, &mut bytes)
            .unwrap();
        let run = json!({
            "verdict": "INVALID",
            "messages": { "lost": 3 },
            "histograms": { "service": { "base64": STANDARD.encode(bytes) } },
        });
        let run = RunFile::parse(&run.to_string()).unwrap();
        assert!(run.is_invalid());
        assert_eq!(run.count("/messages/lost").unwrap(), 3);
        assert!(run.count("/messages/found").is_err());
        assert_eq!(run.service_above(100_000_000).unwrap(), 2);
    }
}
