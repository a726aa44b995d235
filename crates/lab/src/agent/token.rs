//! The word that a lab and its agent share.

use std::fmt;
use std::path::Path;

use serde::{Deserialize, Serialize};

/// What a lab has to know to use an agent. It is never printed.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Token(String);

impl Token {
    /// Takes a text without the white space around it; the error is a sentence.
    pub fn new(text: &str) -> Result<Self, String> {
        let token = text.trim();
        match token.len() {
            ..BYTES_MIN => Err(format!(
                "a token has at least {BYTES_MIN} bytes, such as `openssl rand -hex 16` prints"
            )),
            BYTES_MIN..=BYTES_MAX => Ok(Self(token.to_owned())),
            _ => Err(format!("a token has at most {BYTES_MAX} bytes")),
        }
    }

    /// Reads the one in a file; the error is a sentence.
    pub fn read(path: &Path) -> Result<Self, String> {
        let text = std::fs::read_to_string(path);
        let token = text.map_err(|error| format!("it cannot be read: {error}"));
        token
            .and_then(|text| Self::new(&text))
            .map_err(|why| format!("{}: {why}", path.display()))
    }

    /// Whether both are the same, in a time that does not tell where they differ.
    pub(super) fn is(&self, other: &Self) -> bool {
        let (one, other) = (self.0.as_bytes(), other.0.as_bytes());
        let pairs = one.iter().zip(other);
        let differing = pairs.fold(0_u8, |all, (one, other)| all | (one ^ other));
        one.len() == other.len() && std::hint::black_box(differing) == 0
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str("Token(..)")
    }
}

/// Fewer can be tried out.
const BYTES_MIN: usize = 16;
/// It has to fit into the first line, with room to spare.
const BYTES_MAX: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_same_token_is_the_same() {
        let token = |text: &str| Token::new(text).unwrap();
        let one = token("0123456789abcdef\n");
        assert!(one.is(&token(" 0123456789abcdef")));
        assert!(!one.is(&token("0123456789abcdeX")));
        assert!(!one.is(&token("X123456789abcdef")));
        assert!(!one.is(&token("0123456789abcdef0")));
        assert!(!token("0123456789abcdef0").is(&one));
        assert_eq!(format!("{one:?}"), "Token(..)");
    }

    #[test]
    fn short_ones_are_refused() {
        assert!(Token::new("  short  ").unwrap_err().contains("at least 16"));
        let file = tempfile::NamedTempFile::new().unwrap();
        let sentence = Token::read(file.path()).unwrap_err();
        assert!(sentence.contains("at least 16"), "{sentence}");
        let sentence = Token::read(Path::new("/none")).unwrap_err();
        assert!(
            sentence.starts_with("/none: it cannot be read"),
            "{sentence}"
        );
    }
}
