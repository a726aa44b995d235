//! The knobs of a scenario as they were written, in its file or on the command line: texts, and
//! where each of them stands.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// All that was written, by the names of the knobs.
#[derive(Debug, Clone, Default)]
pub(super) struct Knobs(BTreeMap<String, Knob>);

/// What one knob was set to.
#[derive(Debug, Clone)]
pub(super) struct Knob {
    /// One text, or those of a list.
    pub(super) texts: Vec<String>,
    place: Place,
}

/// Where it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Place {
    Flag(String),
    Line { file: String, line: usize },
}

/// What is wrong in a scenario, where, and what would be right. Displays as one sentence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mistake(String);

impl fmt::Display for Mistake {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(&self.0)
    }
}

impl std::error::Error for Mistake {}

impl Mistake {
    /// One that has no line of its own.
    pub(super) fn of(file: &str, sentence: &str) -> Self {
        Self(format!("{file}: {sentence}"))
    }

    /// That something is not there, which is so from the top of the file.
    pub(super) fn missing(file: &str, sentence: &str) -> Self {
        Self(format!("{file}:1: {sentence}"))
    }
}

impl Knob {
    /// Whether it is a flag that set it.
    pub(super) fn is_flag(&self) -> bool {
        matches!(self.place, Place::Flag(_))
    }

    /// What is wrong with it.
    pub(super) fn mistake(&self, name: &str, clause: &str) -> Mistake {
        match &self.place {
            Place::Flag(flag) => Mistake(format!("{flag}: {clause}")),
            Place::Line { file, line } => Mistake(format!("{file}:{line}: {name}: {clause}")),
        }
    }
}

impl Knobs {
    /// Reads a file: keys with texts, numbers, yes or no, and lists of these. `known` has the
    /// names there are.
    pub(super) fn parse(text: &str, file: &str, known: &[&str]) -> Result<Self, Mistake> {
        let line_of = |span: Range<usize>| {
            let before = text.get(..span.start).unwrap_or(text);
            before.matches('\n').count() + 1
        };
        let broken = |error: toml::de::Error| {
            let line = error.span().map_or(1, line_of);
            let clause = error.message().replace('\n', ", ");
            Mistake(format!("{file}:{line}: {clause}"))
        };
        let table = DeTable::parse(text).map_err(broken)?;
        let mut knobs = Self::default();
        for (key, value) in table.get_ref() {
            let name = key.get_ref().as_ref();
            let place = Place::Line {
                file: file.to_owned(),
                line: line_of(key.span()),
            };
            let mut knob = Knob {
                texts: Vec::new(),
                place,
            };
            if !known.contains(&name) && value.get_ref().is_table() {
                let clause = "a scenario has no tables: write its knobs one below the other, \
                              without this line";
                return Err(knob.mistake(&format!("[{name}]"), clause));
            }
            if !known.contains(&name) {
                return Err(knob.mistake(name, &unknown(name, known)));
            }
            knob.texts = texts(value).map_err(|clause| knob.mistake(name, clause))?;
            knobs.0.insert(name.to_owned(), knob);
        }
        Ok(knobs)
    }

    /// Sets a knob as a flag says, in the place of what the file says. A list is separated by
    /// commas.
    pub(super) fn set(&mut self, name: &str, text: &str, is_list: bool) {
        let texts = match is_list {
            true => text.split(',').map(|part| part.trim().to_owned()).collect(),
            false => vec![text.to_owned()],
        };
        let place = Place::Flag(format!("--{}", name.replace('_', "-")));
        self.0.insert(name.to_owned(), Knob { texts, place });
    }

    /// What is wrong between knobs: at the last of those that the sentence is about, or at the
    /// top of the file where none of them was written.
    pub(super) fn mistake(&self, file: &str, sentence: &str) -> Mistake {
        let meant = MEANT.iter().find(|(words, name)| {
            let is_set = self.get(name).is_some();
            is_set && sentence.contains(words)
        });
        let is_named = |name: &str| {
            if let Some((_, meant)) = meant {
                return name == *meant;
            }
            let mut words =
                sentence.split(|letter: char| !letter.is_alphanumeric() && letter != '_');
            words.any(|word| word == name)
        };
        let named = self.0.iter().filter(|(name, _)| is_named(name));
        let last = named.max_by_key(|(_, knob)| match &knob.place {
            // A flag takes the place of what stands in the file, so that it comes after it.
            Place::Flag(_) => usize::MAX,
            Place::Line { line, .. } => *line,
        });
        match last.map(|(_, knob)| &knob.place) {
            Some(Place::Flag(flag)) => Mistake(format!("{flag}: {sentence}")),
            Some(Place::Line { line, .. }) => Mistake(format!("{file}:{line}: {sentence}")),
            None => Mistake::missing(file, sentence),
        }
    }

    /// One knob, if it was set.
    pub(super) fn get(&self, name: &str) -> Option<&Knob> {
        self.0.get(name)
    }

    /// Its single value, read by `parse`, whose error is a clause.
    pub(super) fn one<T>(
        &self,
        name: &str,
        parse: impl Fn(&str) -> Result<T, String>,
    ) -> Result<Option<T>, Mistake> {
        let Some(knob) = self.get(name) else {
            return Ok(None);
        };
        let [text] = knob.texts.as_slice() else {
            return Err(knob.mistake(name, "it takes one value, not a list"));
        };
        let value = parse(text).map_err(|clause| knob.mistake(name, &clause))?;
        Ok(Some(value))
    }

    /// Its values, at least one, read by `parse`.
    pub(super) fn many<T>(
        &self,
        name: &str,
        parse: impl Fn(&str) -> Result<T, String>,
    ) -> Result<Option<Vec<T>>, Mistake> {
        let Some(knob) = self.get(name) else {
            return Ok(None);
        };
        if knob.texts.is_empty() || knob.texts.iter().any(String::is_empty) {
            return Err(knob.mistake(name, "it needs one value at least, without gaps"));
        }
        let values = knob.texts.iter().map(|text| parse(text));
        let values: Result<Vec<T>, String> = values.collect();
        values
            .map(Some)
            .map_err(|clause| knob.mistake(name, &clause))
    }

    /// Everything as it was written, lists with commas.
    pub(super) fn texts(&self) -> BTreeMap<String, String> {
        let knobs = self.0.iter();
        let texts = knobs.map(|(name, knob)| (name.clone(), knob.texts.join(",")));
        texts.collect()
    }
}

/// What sentences of the load generator, which knows no knobs, are about.
const MEANT: [(&str, &str); 7] = [
    ("a message of ", "message_size"),
    ("an amplify message", "message_size"),
    ("in flight per connection", "in_flight"),
    ("fragmented message", "fragments"),
    ("can be sent in", "fragments"),
    ("connection rate", "conn_rate"),
    ("connect concurrency", "conn_concurrency"),
];

fn texts(value: &Spanned<DeValue<'_>>) -> Result<Vec<String>, &'static str> {
    match value.get_ref() {
        DeValue::Array(values) => {
            let single = |value: &Spanned<DeValue<'_>>| {
                if value.get_ref().is_array() {
                    return Err("a list holds texts and numbers, not lists");
                }
                Ok(texts(value)?.concat())
            };
            values.iter().map(single).collect()
        }
        DeValue::String(text) => Ok(vec![text.to_string()]),
        DeValue::Integer(number) => Ok(vec![number.as_str().replace('_', "")]),
        DeValue::Float(number) => Ok(vec![number.as_str().replace('_', "")]),
        DeValue::Boolean(yes) => Ok(vec![yes.to_string()]),
        DeValue::Datetime(_) | DeValue::Table(_) => {
            Err("it takes a text, a number, true or false, or a list of these")
        }
    }
}

/// That there is no such knob, and which one may have been meant.
fn unknown(name: &str, known: &[&str]) -> String {
    let nearest = known.iter().min_by_key(|other| distance(name, other));
    match nearest.filter(|other| distance(name, other) <= name.len() / 2) {
        Some(nearest) => format!("there is no such knob; '{nearest}' is the nearest name"),
        None => format!("there is no such knob; there are {}", known.join(", ")),
    }
}

/// Letters to insert, remove or change to make one word the other (Levenshtein).
fn distance(one: &str, other: &str) -> usize {
    let other: Vec<char> = other.chars().collect();
    let mut costs: Vec<usize> = (0..=other.len()).collect();
    for (row, letter) in one.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut costs[0], row + 1);
        for column in 0..other.len() {
            let changed = diagonal + usize::from(other[column] != letter);
            diagonal = costs[column + 1];
            costs[column + 1] = changed.min(diagonal + 1).min(costs[column] + 1);
        }
    }
    costs[other.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: [&str; 3] = ["connections", "rounds", "tls"];

    fn mistake(text: &str) -> String {
        Knobs::parse(text, "a.toml", &KNOWN)
            .unwrap_err()
            .to_string()
    }

    #[test]
    fn texts_numbers_and_lists_are_read_and_flags_take_their_place() {
        let text = "tls = true\nconnections = [1000, \"2k\"]\n";
        let mut knobs = Knobs::parse(text, "a.toml", &KNOWN).unwrap();
        let texts = |knobs: &Knobs, name| knobs.get(name).unwrap().texts.clone();
        assert_eq!(texts(&knobs, "connections"), ["1000", "2k"]);
        assert_eq!(texts(&knobs, "tls"), ["true"]);
        knobs.set("connections", "5, 7", true);
        assert_eq!(texts(&knobs, "connections"), ["5", "7"]);
        let wrong = knobs.one("connections", |text| Ok(text.to_owned()));
        let sentence = wrong.unwrap_err().to_string();
        assert_eq!(sentence, "--connections: it takes one value, not a list");
    }

    #[test]
    fn each_mistake_names_its_line() {
        assert!(mistake("rounds = \n").starts_with("a.toml:1: "));
        let near = mistake("tls = 'on'\nround = 3\n");
        assert_eq!(
            near,
            "a.toml:2: round: there is no such knob; 'rounds' is the nearest name"
        );
        assert!(mistake("colour = 1").contains("there are connections, rounds, tls"));
        assert!(mistake("\n\n[tls]\na = 1").starts_with("a.toml:3: tls: it takes a text"));
        assert!(mistake("rounds = [[1]]").contains("a list holds texts and numbers"));
        let table = mistake("rounds = 1\n[load]\nconnections = 1");
        assert!(
            table.starts_with("a.toml:2: [load]: a scenario has no tables"),
            "{table}"
        );
        let twice = mistake("rounds = 1\nrounds = 2");
        assert!(twice.starts_with("a.toml:2: "), "{twice}");
    }
}
