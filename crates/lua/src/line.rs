//! Text of a script, and so perhaps of a client, in a log.

use std::borrow::Cow;
use std::fmt::Write;

/// `text` as one line of a log: no newline of it can begin a forged line, and what is beyond
/// [`LINE_BYTES_MAX`] is cut off.
pub(crate) fn log_line(text: &str) -> Cow<'_, str> {
    let cut = &text[..text.floor_char_boundary(LINE_BYTES_MAX)];
    let is_kept = |character: char| character == '\t' || !character.is_control();
    if cut.len() == text.len() && cut.chars().all(is_kept) {
        return Cow::Borrowed(text);
    }
    let mut line = String::with_capacity(cut.len() + 64);
    for character in cut.chars() {
        if is_kept(character) {
            line.push(character);
        } else {
            line.extend(character.escape_default());
        }
    }
    if cut.len() < text.len() {
        // Writing to a string cannot fail.
        let _ = write!(line, "... ({} bytes in all)", text.len());
    }
    Cow::Owned(line)
}

/// Enough for any sentence, and little enough to be written between two messages.
const LINE_BYTES_MAX: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_stays_one_line_and_short() {
        assert_eq!(log_line("grüße\tan alle"), "grüße\tan alle");
        assert_eq!(log_line("a\r\n\x1b[31mERROR"), "a\\r\\n\\u{1b}[31mERROR");
        let long = "ü".repeat(1_000_000);
        let line = log_line(&long);
        assert!(line.ends_with("ü... (2000000 bytes in all)"), "{line}");
        assert!(line.len() < LINE_BYTES_MAX + 64);
    }
}
