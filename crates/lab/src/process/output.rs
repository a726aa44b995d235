//! What a child says: its last lines are kept, the rest is let go.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read};
use std::sync::{Mutex, PoisonError};

/// The last lines of a child's output. Invariant: at most `LINES_MAX` lines.
#[derive(Debug, Default)]
pub(super) struct Tail(Mutex<VecDeque<String>>);

impl Tail {
    pub(super) fn push(&self, line: &str) {
        let mut lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if lines.len() == LINES_MAX {
            lines.pop_front();
        }
        lines.push_back(line.to_owned());
    }

    pub(super) fn lines(&self) -> Vec<String> {
        let lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        lines.iter().cloned().collect()
    }
}

/// Calls `each` for every line until the stream ends; longer lines come in pieces.
pub(super) fn for_each_line(stream: impl Read, mut each: impl FnMut(&str)) {
    let mut stream = BufReader::new(stream);
    let mut line = Vec::new();
    loop {
        line.clear();
        let mut bounded = stream.by_ref().take(LINE_BYTES_MAX);
        match bounded.read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => return,
            Ok(_) => each(String::from_utf8_lossy(&line).trim_end_matches(['\n', '\r'])),
        }
    }
}

const LINES_MAX: usize = 200;
const LINE_BYTES_MAX: u64 = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_split_trimmed_and_bounded() {
        let long = "x".repeat(5000);
        let text = format!("one\r\ntwo\n{long}\nlast");
        let mut lines = Vec::new();
        for_each_line(text.as_bytes(), |line| lines.push(line.to_owned()));
        let lengths: Vec<usize> = lines.iter().map(String::len).collect();
        assert_eq!(lengths, [3, 3, 4096, 904, 4]);
        assert_eq!(lines[4], "last");
    }

    #[test]
    fn only_the_last_lines_are_kept() {
        let tail = Tail::default();
        for n in 0..LINES_MAX + 5 {
            tail.push(&n.to_string());
        }
        assert_eq!(tail.lines().len(), LINES_MAX);
        assert_eq!(tail.lines()[0], "5");
    }
}
