//! Figures, and how they are told.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// What one contender came to in one round.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(super) struct Figures {
    pub(super) name: String,
    /// By the keys of the columns, and others that are kept with them.
    #[serde(flatten)]
    pub(super) values: BTreeMap<String, f64>,
}

impl Figures {
    /// Without those that were not measured.
    pub(super) fn new<const N: usize>(name: String, values: [(&str, f64); N]) -> Self {
        let measured = values.into_iter().filter(|(_, value)| value.is_finite());
        let values = measured.map(|(key, value)| (key.to_owned(), value));
        Self {
            name,
            values: values.collect(),
        }
    }

    /// Not a number for what was not measured.
    pub(super) fn of(&self, key: &str) -> f64 {
        self.values.get(key).copied().unwrap_or(f64::NAN)
    }

    /// For whoever watches.
    pub(super) fn sentence(&self, columns: &[Column]) -> String {
        let told = columns
            .iter()
            .map(|column| format!("{} {}", column.title, column.text(self.of(column.key))));
        format!("{}: {}", self.name, told.collect::<Vec<_>>().join(", "))
    }
}

/// One column of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Column {
    pub(super) key: &'static str,
    pub(super) title: &'static str,
    pub(super) telling: Telling,
}

/// How the figures of a column are told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Telling {
    /// The median, and the ratio to the first contender of the same round.
    Compared,
    /// The median.
    Told,
    /// The median, of a whole.
    Share,
}

impl Column {
    pub(super) const fn compared(key: &'static str, title: &'static str) -> Self {
        Self::new(key, title, Telling::Compared)
    }

    pub(super) const fn told(key: &'static str, title: &'static str) -> Self {
        Self::new(key, title, Telling::Told)
    }

    pub(super) const fn share(key: &'static str, title: &'static str) -> Self {
        Self::new(key, title, Telling::Share)
    }

    const fn new(key: &'static str, title: &'static str, telling: Telling) -> Self {
        Self {
            key,
            title,
            telling,
        }
    }

    pub(super) fn text(self, value: f64) -> String {
        match self.telling {
            _ if value.is_nan() => "-".to_owned(),
            Telling::Share => format!("{:.0} %", value * 100.0),
            Telling::Compared | Telling::Told => format!("{value:.0}"),
        }
    }
}
