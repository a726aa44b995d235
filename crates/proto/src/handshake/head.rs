//! The head of an HTTP message: collected over any number of reads, bounded, then kept compactly.

use alloc::string::String;
use alloc::vec::Vec;
use core::ops::Range;

use httparse::Header;

use crate::limits::Limits;

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

/// The place of one field: both ranges are within the text, at the ends of characters.
#[derive(Clone, Debug, Eq, PartialEq)]
struct Field {
    name: Range<usize>,
    value: Range<usize>,
}

impl Headers {
    /// Keeps the names and values of parsed fields in one allocation.
    pub(super) fn from_parsed(parsed: &[Header<'_>]) -> Self {
        let bytes = parsed
            .iter()
            .map(|field| field.name.len() + field.value.len())
            .sum();
        let mut text = String::with_capacity(bytes);
        let mut append = |part: &str| {
            let start = text.len();
            text.push_str(part);
            start..text.len()
        };
        let fields = parsed
            .iter()
            .map(|field| Field {
                name: append(field.name),
                value: append(trimmed(&String::from_utf8_lossy(field.value))),
            })
            .collect();
        Self { text, fields }
    }

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
        let text = |range: &Range<usize>| self.text.get(range.clone()).unwrap_or_default();
        self.fields
            .iter()
            .map(move |field| (text(&field.name), text(&field.value)))
    }

    /// Bytes that they hold in memory.
    pub(super) fn memory_bytes(&self) -> usize {
        self.text.capacity() + self.fields.capacity() * size_of::<Field>()
    }

    /// The value of the field with this name, if there is exactly one.
    pub(super) fn only(&self, name: &str) -> Option<&str> {
        let mut values = self.all(name);
        values.next().filter(|_| values.next().is_none())
    }

    /// The members of all comma-separated lists with this name (RFC 9110, 5.6.1).
    pub(super) fn members<'a>(&'a self, name: &str) -> impl Iterator<Item = &'a str> {
        self.all(name)
            .flat_map(|list| list.split(','))
            .map(trimmed)
            .filter(|member| !member.is_empty())
    }

    /// Whether one of the lists with this name has the member, in any case.
    pub(super) fn has_member(&self, name: &str, member: &str) -> bool {
        self.members(name)
            .any(|candidate| candidate.eq_ignore_ascii_case(member))
    }
}

/// Collects a head: everything up to and with the first empty line.
#[derive(Debug)]
pub(super) struct HeadReader {
    /// The head so far, if it did not arrive whole: at most `head_bytes_max`.
    kept: Vec<u8>,
    /// How much of CR LF CR LF the bytes so far end with; odd after a CR.
    line_ends: u8,
    /// Lines that ended.
    lines: usize,
    head_bytes_max: usize,
    fields_max: usize,
}

impl HeadReader {
    pub(super) fn new(limits: &Limits) -> Self {
        Self {
            kept: Vec::new(),
            line_ends: 0,
            lines: 0,
            head_bytes_max: limits.header_bytes_max,
            fields_max: limits.headers_max,
        }
    }

    /// Takes more bytes. `None`: all were kept and the head is not complete; else the head, and how
    /// many bytes of `input` belong to it.
    pub(super) fn receive<'a>(
        &'a mut self,
        input: &'a [u8],
    ) -> Result<Option<(&'a [u8], usize)>, HeadError> {
        let room = self.head_bytes_max.saturating_sub(self.kept.len());
        let fitting = input.get(..room).unwrap_or(input);
        let Some(taken) = self.find_end(fitting)? else {
            if fitting.len() < input.len() {
                return Err(HeadError::TooLarge);
            }
            self.kept.extend_from_slice(input);
            return Ok(None);
        };
        let end = fitting.get(..taken).unwrap_or_default();
        if self.kept.is_empty() {
            return Ok(Some((end, taken)));
        }
        self.kept.extend_from_slice(end);
        Ok(Some((&self.kept, taken)))
    }

    /// Whether a part of a head is kept.
    pub(super) fn has_begun(&self) -> bool {
        !self.kept.is_empty()
    }

    /// Bytes that it holds in memory beyond itself.
    pub(super) fn memory_bytes(&self) -> usize {
        self.kept.capacity()
    }

    /// After a head of `head_bytes`: another one is to be collected, in what is left of the bound.
    pub(super) fn expect_another(&mut self, head_bytes: usize) {
        self.kept = Vec::new();
        self.line_ends = 0;
        self.lines = 0;
        self.head_bytes_max = self.head_bytes_max.saturating_sub(head_bytes);
    }

    /// Looks at each byte once: where the head ends, and whether something is in it that no head
    /// has. Readers that disagree on such bytes can be played against each other.
    fn find_end(&mut self, input: &[u8]) -> Result<Option<usize>, HeadError> {
        for (index, byte) in input.iter().enumerate() {
            let after_cr = self.line_ends % 2 == 1;
            self.line_ends = match byte {
                b'\r' if !after_cr => self.line_ends + 1,
                b'\n' if after_cr => self.line_ends + 1,
                // A line that begins with a space would be folded (RFC 9112, 5.2).
                b' ' | b'\t' if self.line_ends == 0 => 0,
                b' ' | b'\t' | 0..0x20 | 0x7f => return Err(HeadError::Malformed),
                _ if after_cr => return Err(HeadError::Malformed),
                _ => 0,
            };
            if self.line_ends == 2 {
                self.lines += 1;
                if self.lines > self.fields_max.saturating_add(LINES_BESIDE_FIELDS) {
                    return Err(HeadError::TooManyFields);
                }
            }
            if self.line_ends == 4 {
                return Ok(Some(index + 1));
            }
        }
        Ok(None)
    }

    /// The most fields a head may have.
    pub(super) fn fields_max(&self) -> usize {
        self.fields_max
    }
}

/// Lines of a head that are no fields: an empty one before it (RFC 9112, 2.2), and the first one.
const LINES_BESIDE_FIELDS: usize = 2;

/// Why a head cannot be read.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum HeadError {
    Malformed,
    TooLarge,
    TooManyFields,
}

/// Without the optional whitespace around a value (RFC 9110, 5.6.3).
fn trimmed(value: &str) -> &str {
    value.trim_matches([' ', '\t'])
}

/// Whether this can be a `Host`: a name or address and perhaps a port, and nothing that ends it. An
/// http URI has none that is empty (RFC 9110, 4.2.1).
pub(super) fn is_host(host: &str) -> bool {
    let is_host_byte = |byte: u8| byte.is_ascii_graphic() && !b"/?#@\\,\"<>".contains(&byte);
    !host.is_empty() && !host.starts_with(':') && host.bytes().all(is_host_byte)
}

/// Whether this is a token (RFC 9110, 5.6.2).
pub fn is_token(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(is_token_byte)
}

/// Whether a token can have this byte (RFC 9110, 5.6.2, "tchar").
pub(crate) fn is_token_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reader(head_bytes_max: usize) -> HeadReader {
        HeadReader::new(&Limits {
            header_bytes_max: head_bytes_max,
            ..Limits::default()
        })
    }

    #[test]
    fn a_head_is_the_same_in_one_read_or_byte_by_byte() {
        let input = b"GET / HTTP/1.1\r\nA: b\r\n\r\nthe next";
        let head = &input[..input.len() - 8];
        assert_eq!(reader(100).receive(input), Ok(Some((head, head.len()))));
        let mut slow = reader(100);
        for byte in &head[..head.len() - 1] {
            assert_eq!(slow.receive(&[*byte]), Ok(None));
        }
        assert_eq!(slow.receive(b"\nthe next"), Ok(Some((head, 1))));
    }

    #[test]
    fn the_bound_counts_the_head_only_and_is_exact() {
        let input = b"GET / HTTP/1.1\r\n\r\nlong after";
        assert!(reader(18).receive(input).unwrap().is_some());
        assert_eq!(reader(17).receive(input), Err(HeadError::TooLarge));
        let mut slow = reader(17);
        assert_eq!(slow.receive(&input[..17]), Ok(None));
        assert_eq!(slow.receive(b"\n"), Err(HeadError::TooLarge));
    }

    #[test]
    fn a_line_too_many_is_refused_before_the_rest_is_looked_at() {
        let limits = Limits {
            headers_max: 3,
            ..Limits::default()
        };
        let lines = "\r\nGET / HTTP/1.1\r\nA: b\r\nA: b\r\nA: b\r\n";
        let mut reader = HeadReader::new(&limits);
        assert_eq!(reader.receive(lines.as_bytes()), Ok(None));
        assert_eq!(reader.receive(b"A: b\r\n\0"), Err(HeadError::TooManyFields));
        let whole = [lines, "\r\n"].concat();
        assert!(
            HeadReader::new(&limits)
                .receive(whole.as_bytes())
                .unwrap()
                .is_some()
        );
    }

    #[test]
    fn bare_line_ends_folds_and_control_characters_are_refused_where_they_stand() {
        for head in [
            "GET / HTTP/1.1\n",
            "GET / HTTP/1.1\rH",
            "GET / HTTP/1.1\r\r",
            "GET / HTTP/1.1\r\nA: b\r\n ",
            "GET / HTTP/1.1\r\nA: b\r\n\t",
            "GET / HTTP/1.1\r\nA: \0",
            "GET / HTTP/1.1\r\nA: \x7f",
            "GET / HTTP/1.1\r\n\n",
            "\x16",
        ] {
            let (before, last) = head.as_bytes().split_at(head.len() - 1);
            let mut reader = reader(100);
            assert_eq!(reader.receive(before), Ok(None), "{head:?}");
            assert_eq!(reader.receive(last), Err(HeadError::Malformed), "{head:?}");
        }
    }
}
