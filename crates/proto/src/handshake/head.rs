//! The head of an HTTP message: collected over any number of reads, bounded, then kept compactly.

use alloc::string::String;
use alloc::vec::Vec;
use core::ops::Range;

/// The header fields of a request or response, in the order they came.
///
/// Values that are not UTF-8 are kept with replacement characters.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Headers {
    /// All names and values, one after the other.
    text: String,
    /// Where each field is in `text`.
    fields: Vec<Field>,
}

/// The place of one field: `name.end <= value.start`, all within the text.
#[derive(Clone, Debug, Eq, PartialEq)]
struct Field {
    name: Range<u32>,
    value: Range<u32>,
}

impl Headers {
    /// The value of the first field with this name, in any case.
    pub fn first(&self, name: &str) -> Option<&str> {
        self.all(name).next()
    }

    /// The values of all fields with this name, in any case.
    pub fn all<'a>(&'a self, name: &str) -> impl Iterator<Item = &'a str> {
        self.iter()
            .filter(move |field| field.0.eq_ignore_ascii_case(name))
            .map(|field| field.1)
    }

    /// Names, as they were written, and values.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        let text = |range: &Range<u32>| &self.text[range.start as usize..range.end as usize];
        self.fields
            .iter()
            .map(move |field| (text(&field.name), text(&field.value)))
    }
}
