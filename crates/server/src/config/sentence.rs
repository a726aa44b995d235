//! What is wrong with a configuration, where, and what would be right: one sentence.

use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// A configuration that cannot be used. Displays as one sentence, with the place in front where
/// there is one: ``moonwire.toml:12: unknown key `lisen`, did you mean `listen`?``
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigError {
    /// The file and the line (from 1) of what is wrong. A line of 0 means the file as a whole.
    place: Option<(PathBuf, usize)>,
    sentence: String,
}

impl ConfigError {
    /// Something wrong that was not written in a file.
    pub(crate) fn new(sentence: impl Into<String>) -> Self {
        Self {
            place: None,
            sentence: sentence.into(),
        }
    }

    /// The same with something to add at the end.
    pub(super) fn with(mut self, addition: &str) -> Self {
        self.sentence.push_str(addition);
        self
    }

    /// Something wrong with the file as a whole.
    pub(crate) fn of_file(file: &Path, sentence: impl Into<String>) -> Self {
        Self {
            place: Some((file.to_owned(), 0)),
            sentence: sentence.into(),
        }
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            None => f.write_str(&self.sentence),
            Some((file, 0)) => write!(f, "{}: {}", file.display(), self.sentence),
            Some((file, line)) => write!(f, "{}:{line}: {}", file.display(), self.sentence),
        }
    }
}

impl std::error::Error for ConfigError {}

/// A configuration text and where it came from; turns byte ranges into lines.
pub(super) struct Text<'a> {
    /// None for what the command line or the defaults said.
    pub(super) file: Option<&'a Path>,
    pub(super) text: &'a str,
}

impl Text<'_> {
    /// A sentence about the bytes `span` of the text.
    pub(super) fn error(&self, span: Range<usize>, sentence: impl Into<String>) -> ConfigError {
        let place = self
            .file
            .map(|file| (file.to_owned(), line_of(self.text, span.start)));
        ConfigError {
            place,
            sentence: sentence.into(),
        }
    }

    /// A path that is written here, which is relative to the folder of the file.
    pub(super) fn relative(&self, path: &str) -> PathBuf {
        let folder = self.file.and_then(Path::parent);
        folder.map_or_else(|| PathBuf::from(path), |folder| folder.join(path))
    }

    /// The sentence for what the TOML reader refused.
    pub(super) fn refused(&self, error: &toml::de::Error) -> ConfigError {
        let span = error.span().unwrap_or(0..0);
        let sentence = if let Some((unknown, known)) = unknown_key(error.message()) {
            unknown_key_sentence(unknown, &known)
        } else if error.message().starts_with("invalid type")
            || error.message().starts_with("invalid value")
        {
            match key_of_line(self.text, span.start) {
                Some(key) => format!("`{key}` has the wrong type: {}", plain(error.message())),
                None => plain(error.message()),
            }
        } else {
            format!(
                "this is not TOML as expected here: {}",
                plain(error.message())
            )
        };
        self.error(span, sentence)
    }
}

/// The line, from 1, of the byte at `offset`.
fn line_of(text: &str, offset: usize) -> usize {
    let before = text.as_bytes().get(..offset).unwrap_or(text.as_bytes());
    1 + before.iter().filter(|byte| **byte == b'\n').count()
}

/// The key on the line of the byte at `offset`, as in `key = value`.
fn key_of_line(text: &str, offset: usize) -> Option<&str> {
    let start = text
        .get(..offset)?
        .rfind('\n')
        .map_or(0, |newline| newline + 1);
    let (key, _) = text.get(start..)?.lines().next()?.split_once('=')?;
    Some(key.trim())
}

/// serde's words for a reader of a configuration file.
fn plain(message: &str) -> String {
    let message = message.trim_end().trim_end_matches('.').replace('\n', "; ");
    let mut plain = message
        .strip_prefix("invalid type: ")
        .or_else(|| message.strip_prefix("invalid value: "))
        .unwrap_or(&message)
        .to_owned();
    for (theirs, ours) in [
        (" as i128", ""),
        ("expected i64", "expected a whole number"),
        ("expected a sequence", "expected a list"),
        ("expected struct ServiceTable", "expected a table"),
    ] {
        plain = plain.replace(theirs, ours);
    }
    plain
}

/// The unknown key and the known ones, read from serde's message.
fn unknown_key(message: &str) -> Option<(&str, Vec<&str>)> {
    let rest = message.strip_prefix("unknown field ")?;
    let mut quoted = rest.split('`').skip(1).step_by(2);
    let unknown = quoted.next()?;
    Some((unknown, quoted.collect()))
}

fn unknown_key_sentence(unknown: &str, known: &[&str]) -> String {
    let nearest = known
        .iter()
        .map(|key| (edit_distance(unknown, key), *key))
        .min()
        .filter(|(distance, key)| *distance <= key.len() / 2);
    match nearest {
        Some((_, key)) => format!("unknown key `{unknown}`, did you mean `{key}`?"),
        None => format!(
            "unknown key `{unknown}`; the keys known here are {}",
            known.join(", ")
        ),
    }
}

/// The Levenshtein distance in bytes; keys are short ASCII.
fn edit_distance(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.bytes().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.bytes().enumerate() {
            let replaced = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(row[j + 1] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distance_counts_edits() {
        assert_eq!(edit_distance("listen", "listen"), 0);
        assert_eq!(edit_distance("lisen", "listen"), 1);
        assert_eq!(edit_distance("", "abc"), 3);
        assert_eq!(edit_distance("kitten", "sitting"), 3);
    }

    #[test]
    fn a_distant_key_lists_the_known_ones() {
        let sentence = unknown_key_sentence("zzz", &["listen", "workers"]);
        assert_eq!(
            sentence,
            "unknown key `zzz`; the keys known here are listen, workers"
        );
    }
}
