//! `Sec-WebSocket-Extensions` (RFC 6455, 9.1).

use alloc::borrow::Cow;
use alloc::string::String;
use alloc::vec::Vec;

use crate::handshake::is_token_byte;

/// One extension of a list, with its parameters in the order they came.
#[derive(Debug, Eq, PartialEq)]
pub(crate) struct Extension<'a> {
    pub(crate) name: &'a str,
    pub(crate) parameters: Vec<Parameter<'a>>,
}

/// `name`, `name=value` or `name="value"`.
#[derive(Debug, Eq, PartialEq)]
pub(crate) struct Parameter<'a> {
    pub(crate) name: &'a str,
    pub(crate) value: Option<Cow<'a, str>>,
}

/// The extensions of one field. `None`: it is malformed, upon which RFC 6455, 9.1 has a connection
/// fail.
pub(crate) fn parse(field: &str) -> Option<Vec<Extension<'_>>> {
    let mut text = Text(field);
    let mut extensions = Vec::new();
    loop {
        // RFC 9110, 5.6.1.2: a recipient ignores empty members of a list.
        while text.takes(b',') {}
        if text.is_empty() {
            return Some(extensions);
        }
        let name = text.token()?;
        let mut parameters = Vec::new();
        while text.takes(b';') {
            parameters.push(text.parameter()?);
        }
        extensions.push(Extension { name, parameters });
        if !text.is_empty() && !text.takes(b',') {
            return None;
        }
    }
}

/// What of a field was not read yet.
struct Text<'a>(&'a str);

impl<'a> Text<'a> {
    fn skip_spaces(&mut self) {
        self.0 = self.0.trim_start_matches([' ', '\t']);
    }

    fn is_empty(&mut self) -> bool {
        self.skip_spaces();
        self.0.is_empty()
    }

    /// Whether this sign comes next; if so it is taken.
    fn takes(&mut self, sign: u8) -> bool {
        self.skip_spaces();
        match self.0.strip_prefix(char::from(sign)) {
            Some(rest) => {
                self.0 = rest;
                true
            }
            None => false,
        }
    }

    fn token(&mut self) -> Option<&'a str> {
        self.skip_spaces();
        let end = self.0.bytes().position(|byte| !is_token_byte(byte));
        let (token, rest) = self.0.split_at(end.unwrap_or(self.0.len()));
        self.0 = rest;
        (!token.is_empty()).then_some(token)
    }

    fn parameter(&mut self) -> Option<Parameter<'a>> {
        let name = self.token()?;
        if !self.takes(b'=') {
            return Some(Parameter { name, value: None });
        }
        let value = match self.takes(b'"') {
            true => Cow::Owned(self.quoted()?),
            false => Cow::Borrowed(self.token()?),
        };
        Some(Parameter {
            name,
            value: Some(value),
        })
    }

    /// The rest of a quoted string, whose value must be a token (RFC 6455, 9.1).
    fn quoted(&mut self) -> Option<String> {
        let mut value = String::new();
        let mut characters = self.0.char_indices();
        while let Some((place, character)) = characters.next() {
            match character {
                '"' => {
                    self.0 = self.0.get(place + 1..)?;
                    let is_token = !value.is_empty() && value.bytes().all(is_token_byte);
                    return is_token.then_some(value);
                }
                '\\' => value.push(characters.next()?.1),
                _ => value.push(character),
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use std::format;
    use std::string::ToString;

    use super::*;

    /// The list as text again, quoted strings as tokens.
    fn read(field: &str) -> Option<String> {
        let words = parse(field)?.into_iter().map(|extension| {
            let parameters = extension.parameters.iter().map(|parameter| {
                let value = parameter.value.as_ref();
                let value = value.map_or(String::new(), |value| format!("={value}"));
                format!(";{}{value}", parameter.name)
            });
            extension.name.to_string() + &parameters.collect::<String>()
        });
        Some(words.collect::<Vec<_>>().join(","))
    }

    #[test]
    fn lists_parameters_and_quoted_values() {
        for (field, expected) in [
            ("", ""),
            (" , ,", ""),
            ("a", "a"),
            ("a, b;c , d; e=1 ;f = \"2\"", "a,b;c,d;e=1;f=2"),
            ("a;b=\"1\\0\"", "a;b=10"),
            ("a,,b,", "a,b"),
        ] {
            assert_eq!(read(field).as_deref(), Some(expected), "{field:?}");
        }
    }

    #[test]
    fn what_is_not_the_grammar_is_refused() {
        for field in [
            ";",
            "a;",
            "a;;b",
            "a;=1",
            "a;b=",
            "a b",
            "a;b=1 2",
            "a;b=\"",
            "a;b=\"\"",
            "a;b=\"1",
            "a;b=\"1 2\"",
            "a;b=\"1\\",
            "a/b",
            "a;b=(1)",
            "=",
            "a=1",
            "κ",
        ] {
            assert_eq!(read(field), None, "{field:?}");
        }
    }
}
