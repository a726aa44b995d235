//! Patterns of Lua, matched in a bounded number of steps or until somebody wants it to stop.
//!
//! The matcher in LuaJIT goes back to each choice that it made: it takes the length of the subject
//! to the power of the number of repetitions, and no hook can end it. This one finds the same
//! matches in the same order and counts.

/// What a capture is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Capture {
    /// Bytes `start..end` of the subject.
    Bytes { start: usize, end: usize },
    /// `()`: where it is in the subject, from 0.
    Position(usize),
    /// Its end has not been reached.
    Open { start: usize },
}

/// The first match.
#[derive(Debug)]
pub(crate) struct Match {
    pub(crate) start: usize,
    pub(crate) end: usize,
    pub(crate) captures: Vec<Capture>,
}

/// When a search is given up.
#[derive(Clone, Copy)]
pub(crate) struct Patience {
    /// Whether it is after some 50 ms, besides what a long subject takes.
    pub(crate) is_short: bool,
    /// Whether it is now; asked every [`STEPS_PER_LOOK`].
    pub(crate) is_over: fn() -> bool,
}

/// Looks for `pattern` from byte `init` on. `anchors` says whether a `^` in front means that place.
pub(crate) fn search(
    subject: &[u8],
    pattern: &[u8],
    init: usize,
    anchors: bool,
    patience: Patience,
) -> Result<Option<Match>, &'static str> {
    let bytes = subject.len().saturating_add(pattern.len());
    let steps_left = match patience.is_short {
        true => STEPS_MAX.saturating_add(bytes.saturating_mul(STEPS_PER_BYTE)),
        false => usize::MAX,
    };
    let mut matcher = Matcher {
        subject,
        pattern,
        captures: Vec::new(),
        depth: 0,
        steps_left,
        look_at: steps_left,
        is_over: patience.is_over,
    };
    let is_anchored = anchors && pattern.first() == Some(&b'^');
    for start in init..=subject.len() {
        matcher.captures.clear();
        if let Some(end) = matcher.descend(start, usize::from(is_anchored))? {
            let captures = matcher.captures;
            if captures
                .iter()
                .any(|capture| matches!(capture, Capture::Open { .. }))
            {
                return Err("unfinished capture");
            }
            return Ok(Some(Match {
                start,
                end,
                captures,
            }));
        }
        if is_anchored {
            break;
        }
    }
    Ok(None)
}

/// `at` is always an index into the subject, and `p` one into the pattern.
struct Matcher<'a> {
    subject: &'a [u8],
    pattern: &'a [u8],
    captures: Vec<Capture>,
    depth: usize,
    steps_left: usize,
    /// How many are left when it is time to look at `is_over`.
    look_at: usize,
    is_over: fn() -> bool,
}

/// Where a match ends, if there is one.
type Found = Result<Option<usize>, &'static str>;

impl Matcher<'_> {
    /// Matches what is left of the pattern, with a choice to come back to.
    fn descend(&mut self, at: usize, p: usize) -> Found {
        if self.depth == DEPTH_MAX {
            return Err("the pattern is too complex");
        }
        self.depth += 1;
        let found = self.proceed(at, p);
        self.depth -= 1;
        found
    }

    fn proceed(&mut self, mut at: usize, mut p: usize) -> Found {
        loop {
            self.step(1)?;
            let Some(&item) = self.pattern.get(p) else {
                return Ok(Some(at));
            };
            let next = self.pattern.get(p + 1).copied();
            match (item, next) {
                (b'(', Some(b')')) => return self.capture(Capture::Position(at), at, p + 2),
                (b'(', _) => return self.capture(Capture::Open { start: at }, at, p + 1),
                (b')', _) => return self.close_capture(at, p + 1),
                (b'$', None) => return Ok((at == self.subject.len()).then_some(at)),
                (b'%', Some(b'b')) => match self.balanced(at, p + 2)? {
                    Some(end) => (at, p) = (end, p + 4),
                    None => return Ok(None),
                },
                (b'%', Some(b'f')) => match self.frontier(at, p + 2)? {
                    Some(end) => p = end,
                    None => return Ok(None),
                },
                (b'%', Some(digit @ b'0'..=b'9')) => match self.repeated(at, digit)? {
                    Some(end) => (at, p) = (end, p + 2),
                    None => return Ok(None),
                },
                _ => {
                    let end = self.item_end(p)?;
                    let is_match = self.is_match(at, p, end)?;
                    match self.pattern.get(end) {
                        Some(b'?') => {
                            if is_match && let Some(found) = self.descend(at + 1, end + 1)? {
                                return Ok(Some(found));
                            }
                            p = end + 1;
                        }
                        Some(b'*') => return self.longest(at, p, end),
                        Some(b'+') if is_match => return self.longest(at + 1, p, end),
                        Some(b'-') => return self.shortest(at, p, end),
                        _ if is_match => (at, p) = (at + 1, end),
                        _ => return Ok(None),
                    }
                }
            }
        }
    }

    fn longest(&mut self, at: usize, p: usize, end: usize) -> Found {
        let mut last = at;
        while self.is_match(last, p, end)? {
            last += 1;
        }
        for last in (at..=last).rev() {
            if let Some(found) = self.descend(last, end + 1)? {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    fn shortest(&mut self, mut at: usize, p: usize, end: usize) -> Found {
        loop {
            if let Some(found) = self.descend(at, end + 1)? {
                return Ok(Some(found));
            }
            if !self.is_match(at, p, end)? {
                return Ok(None);
            }
            at += 1;
        }
    }

    fn capture(&mut self, capture: Capture, at: usize, p: usize) -> Found {
        if self.captures.len() == CAPTURES_MAX {
            return Err("too many captures");
        }
        let count = self.captures.len();
        self.captures.push(capture);
        let found = self.descend(at, p)?;
        if found.is_none() {
            self.captures.truncate(count);
        }
        Ok(found)
    }

    fn close_capture(&mut self, at: usize, p: usize) -> Found {
        let open = self.captures.iter().enumerate().rev();
        let mut open = open.filter_map(|(index, capture)| match capture {
            Capture::Open { start } => Some((index, *start)),
            Capture::Bytes { .. } | Capture::Position(_) => None,
        });
        let (index, start) = open.next().ok_or("invalid pattern capture")?;
        self.captures[index] = Capture::Bytes { start, end: at };
        let found = self.descend(at, p)?;
        if found.is_none() {
            self.captures[index] = Capture::Open { start };
        }
        Ok(found)
    }

    /// `%bxy`, whose two bytes are at `p`.
    fn balanced(&mut self, at: usize, p: usize) -> Found {
        let [open, close] = *self.pattern.get(p..p + 2).ok_or("unbalanced pattern")? else {
            return Err("unbalanced pattern");
        };
        if self.subject.get(at) != Some(&open) {
            return Ok(None);
        }
        let mut depth = 1_usize;
        for (index, &byte) in self.subject.iter().enumerate().skip(at + 1) {
            self.step(1)?;
            if byte == close {
                depth -= 1;
                if depth == 0 {
                    return Ok(Some(index + 1));
                }
            } else if byte == open {
                depth += 1;
            }
        }
        Ok(None)
    }

    /// `%f[set]`, whose set is at `p`: where the set ends, if this is a border of it.
    fn frontier(&mut self, at: usize, p: usize) -> Found {
        if self.pattern.get(p) != Some(&b'[') {
            return Err("missing '[' after '%f' in pattern");
        }
        let end = self.item_end(p)?;
        self.step(2 * (end - p))?;
        let byte = |index: Option<usize>| {
            let byte = index.and_then(|index| self.subject.get(index));
            byte.copied().unwrap_or(0)
        };
        let is_border = !self.is_in_set(byte(at.checked_sub(1)), p, end)
            && self.is_in_set(byte(Some(at)), p, end);
        Ok(is_border.then_some(end))
    }

    /// `%1` to `%9`: the same bytes as that capture.
    fn repeated(&mut self, at: usize, digit: u8) -> Found {
        let index = usize::from(digit).checked_sub(usize::from(b'1'));
        let capture = index.and_then(|index| self.captures.get(index));
        let Some(&Capture::Bytes { start, end }) = capture else {
            return Err("invalid capture index");
        };
        self.step(end - start)?;
        let wanted = &self.subject[start..end];
        let is_there = self.subject[at..].starts_with(wanted);
        Ok(is_there.then_some(at + wanted.len()))
    }

    /// Whether the byte at `at`, if there is one, is of the item at `p..end`.
    fn is_match(&mut self, at: usize, p: usize, end: usize) -> Result<bool, &'static str> {
        self.step(end - p)?;
        let Some(&byte) = self.subject.get(at) else {
            return Ok(false);
        };
        Ok(match self.pattern[p] {
            b'.' => true,
            b'%' => is_in_class(byte, self.pattern[p + 1]),
            b'[' => self.is_in_set(byte, p, end),
            literal => literal == byte,
        })
    }

    /// Where the item that begins at `p` ends; a repetition is not part of it.
    fn item_end(&self, p: usize) -> Result<usize, &'static str> {
        match self.pattern[p] {
            b'%' if p + 1 == self.pattern.len() => Err("malformed pattern (ends with '%')"),
            b'%' => Ok(p + 2),
            b'[' => self.set_end(p),
            _ => Ok(p + 1),
        }
    }

    /// A `]` that comes first belongs to the set.
    fn set_end(&self, p: usize) -> Result<usize, &'static str> {
        let mut q = p + 1 + usize::from(self.pattern.get(p + 1) == Some(&b'^'));
        loop {
            let &byte = self.pattern.get(q).ok_or(NO_END_OF_SET)?;
            q += if byte == b'%' { 2 } else { 1 };
            if self.pattern.get(q).ok_or(NO_END_OF_SET)? == &b']' {
                return Ok(q + 1);
            }
        }
    }

    fn is_in_set(&self, byte: u8, p: usize, end: usize) -> bool {
        let is_negated = self.pattern[p + 1] == b'^';
        let mut items = &self.pattern[p + 1 + usize::from(is_negated)..end - 1];
        while let [first, rest @ ..] = items {
            let (is_in, rest) = match (*first, rest) {
                (b'%', [class, rest @ ..]) => (is_in_class(byte, *class), rest),
                (low, [b'-', high, rest @ ..]) => ((low..=*high).contains(&byte), rest),
                (literal, rest) => (literal == byte, rest),
            };
            if is_in {
                return !is_negated;
            }
            items = rest;
        }
        is_negated
    }

    fn step(&mut self, count: usize) -> Result<(), &'static str> {
        self.steps_left = self.steps_left.checked_sub(count).ok_or(TOO_LONG)?;
        if self.steps_left <= self.look_at {
            self.look_at = self.steps_left.saturating_sub(STEPS_PER_LOOK);
            if (self.is_over)() {
                return Err(STOPPED);
            }
        }
        Ok(())
    }
}

fn is_in_class(byte: u8, class: u8) -> bool {
    let is_in = match class.to_ascii_lowercase() {
        b'a' => byte.is_ascii_alphabetic(),
        b'c' => byte.is_ascii_control(),
        b'd' => byte.is_ascii_digit(),
        b'g' => byte.is_ascii_graphic(),
        b'l' => byte.is_ascii_lowercase(),
        b'p' => byte.is_ascii_punctuation(),
        b's' => byte.is_ascii_whitespace() || byte == 0x0b,
        b'u' => byte.is_ascii_uppercase(),
        b'w' => byte.is_ascii_alphanumeric(),
        b'x' => byte.is_ascii_hexdigit(),
        b'z' => byte == 0,
        _ => return byte == class,
    };
    is_in != class.is_ascii_uppercase()
}

/// Some 50 ms on one core. What goes through the subject once has [`STEPS_PER_BYTE`] besides.
const STEPS_MAX: usize = 1 << 24;

/// Some 50 us.
const STEPS_PER_LOOK: usize = 1 << 14;

/// Enough for a look at each byte with each item of an ordinary pattern.
const STEPS_PER_BYTE: usize = 16;

/// Choices that may be open at a time, as in LuaJIT.
const DEPTH_MAX: usize = 200;

/// As in LuaJIT.
const CAPTURES_MAX: usize = 32;

const NO_END_OF_SET: &str = "malformed pattern (missing ']')";

const TOO_LONG: &str = "the pattern takes too long on this subject: \
    each of its repetitions tries every length, so use fewer or a shorter subject";

const STOPPED: &str = "the search took too long and was stopped";

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Patience = Patience {
        is_short: true,
        is_over: || false,
    };

    fn span(subject: &str, pattern: &str) -> Option<(usize, usize)> {
        let found = search(subject.as_bytes(), pattern.as_bytes(), 0, true, PATIENCE).unwrap();
        found.map(|found| (found.start, found.end))
    }

    #[test]
    fn what_goes_once_through_a_long_subject_is_not_bounded() {
        let text = "a".repeat(16 << 20);
        assert_eq!(span(&text, "b"), None);
        assert_eq!(span(&text, "^a*$"), Some((0, text.len())));
    }

    #[test]
    fn what_tries_every_length_ends() {
        let text = "a".repeat(5_000);
        for pattern in ["a*a*a*b", "(.*)(.*)(.*)%1b"] {
            let ended = search(text.as_bytes(), pattern.as_bytes(), 0, true, PATIENCE);
            assert_eq!(ended.unwrap_err(), TOO_LONG, "{pattern}");
        }
        let options = format!("{}{}", "a?".repeat(60), "b");
        let ended = search(text.as_bytes(), options.as_bytes(), 0, true, PATIENCE);
        assert_eq!(ended.unwrap_err(), TOO_LONG);
    }

    #[test]
    fn one_without_a_bound_ends_when_it_shall() {
        let patience = Patience {
            is_short: false,
            is_over: || true,
        };
        let ended = search(b"a", b"a", 0, true, patience);
        assert_eq!(ended.unwrap_err(), STOPPED);
    }
}
