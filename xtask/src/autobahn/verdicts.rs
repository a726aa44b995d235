//! What the suite says of each case.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::Deserialize;

/// `OK`, `NON-STRICT`, `INFORMATIONAL`, `UNIMPLEMENTED`, `FAILED` and more, in the suite's words.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
pub(crate) struct Verdict {
    /// Of the messages.
    pub(crate) behavior: String,
    /// Of the closing handshake.
    #[serde(rename = "behaviorClose")]
    pub(crate) behavior_close: String,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, close {}", self.behavior, self.behavior_close)
    }
}

/// One round's verdicts; prints as counts.
pub(crate) struct Verdicts {
    folder: PathBuf,
    by_case: BTreeMap<String, Verdict>,
}

impl Verdicts {
    /// From the `index.json` of a folder of reports.
    pub(crate) fn read(folder: PathBuf) -> Result<Self> {
        let path = folder.join("index.json");
        let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        Self::parse(&text, folder).with_context(|| path.display().to_string())
    }

    pub(crate) fn parse(text: &str, folder: PathBuf) -> Result<Self> {
        // Under the name of the peer under test, of which there is one.
        let index: BTreeMap<String, BTreeMap<String, Verdict>> = serde_json::from_str(text)?;
        let by_case = index.into_values().flatten().collect();
        Ok(Self { folder, by_case })
    }

    pub(crate) fn of(&self, case: &str) -> Option<&Verdict> {
        self.by_case.get(case)
    }

    /// Where the reports are.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }
}

impl fmt::Display for Verdicts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let of = |word: fn(&Verdict) -> &str| counts(self.by_case.values().map(word));
        writeln!(f, "   behavior       {}", of(|verdict| &verdict.behavior))?;
        let close = of(|verdict| &verdict.behavior_close);
        write!(f, "   behaviorClose  {close}")
    }
}

fn counts<'a>(words: impl Iterator<Item = &'a str>) -> String {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for word in words {
        *counts.entry(word).or_default() += 1;
    }
    let counts: Vec<String> = counts
        .iter()
        .map(|(word, count)| format!("{count} {word}"))
        .collect();
    counts.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_index_is_read_and_counted() {
        let text = r#"{"peer": {
            "1.1.1": {"behavior": "OK", "behaviorClose": "OK", "duration": 2},
            "1.1.2": {"behavior": "NON-STRICT", "behaviorClose": "OK", "remoteCloseCode": null}
        }}"#;
        let verdicts = Verdicts::parse(text, "/a".into()).unwrap();
        assert_eq!(
            verdicts.of("1.1.2").unwrap().to_string(),
            "NON-STRICT, close OK"
        );
        assert_eq!(verdicts.of("1.1.3"), None);
        let counts = "   behavior       1 NON-STRICT, 1 OK\n   behaviorClose  2 OK";
        assert_eq!(verdicts.to_string(), counts);
    }
}
