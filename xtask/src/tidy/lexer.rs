//! A small lexer for Rust text: tells code from comments, literals and tests.
//!
//! It knows strings, raw strings, characters against lifetimes, and nested comments, and nothing
//! about grammar. Rules look at [`Source::code`], in which everything else is blanks of the same
//! length, so that an offset means the same place in both texts.

use std::ops::Range;

/// One Rust file, taken apart.
pub(crate) struct Source {
    /// The text with comments and the contents of literals blanked; same length, same lines.
    pub(crate) code: String,
    /// Every comment with its first line, counted from one.
    pub(crate) comments: Vec<Comment>,
    /// Offsets of what is compiled for tests only; ascending, not overlapping.
    tests: Vec<Range<usize>>,
}

/// A comment as it stands in the text.
pub(crate) struct Comment {
    pub(crate) line: usize,
    pub(crate) text: String,
}

/// A function with a body.
pub(crate) struct Function {
    pub(crate) name: String,
    pub(crate) line: usize,
    /// From the line of its `fn` to the line of its closing brace.
    pub(crate) lines: usize,
}

impl Source {
    pub(crate) fn new(text: &str) -> Self {
        let mut lexer = Lexer {
            text: text.as_bytes(),
            at: 0,
            code: text.into(),
            comments: vec![],
        };
        lexer.run();
        let code = String::from_utf8(lexer.code).expect("whole characters are blanked");
        let comments = lexer
            .comments
            .into_iter()
            .map(|range| Comment {
                line: line_of(text, range.start),
                text: text[range].into(),
            })
            .collect();
        let tests = test_ranges(&code);
        Self {
            code,
            comments,
            tests,
        }
    }

    /// The line of an offset, counted from one.
    pub(crate) fn line(&self, offset: usize) -> usize {
        line_of(&self.code, offset)
    }

    pub(crate) fn is_test(&self, offset: usize) -> bool {
        self.tests.iter().any(|range| range.contains(&offset))
    }

    /// Lines of the file that are not tests.
    pub(crate) fn product_lines(&self) -> usize {
        let in_tests: usize = self
            .tests
            .iter()
            .map(|range| self.code[range.clone()].lines().count())
            .sum();
        self.code.lines().count() - in_tests
    }

    /// Names of modules in other files that only tests have: `#[cfg(test)] mod name;`.
    pub(crate) fn test_modules(&self) -> impl Iterator<Item = &str> {
        let items = self.tests.iter().map(|range| &self.code[range.clone()]);
        items.filter_map(|item| {
            let name = item.strip_suffix(';')?.rsplit_once("mod ")?.1;
            name.chars().all(is_word).then_some(name)
        })
    }

    /// Functions outside tests, in order.
    pub(crate) fn functions(&self) -> Vec<Function> {
        let found = words(&self.code, "fn").filter(|at| !self.is_test(*at));
        found.filter_map(|at| self.function(at)).collect()
    }

    /// The function whose `fn` stands at `at`; none for a pointer type or a bare signature.
    fn function(&self, at: usize) -> Option<Function> {
        let rest = self.code[at + 2..].trim_start();
        let name: String = rest.chars().take_while(|c| is_word(*c)).collect();
        let end = item_end(&self.code, at)?;
        if name.is_empty() || self.code.as_bytes().get(end) != Some(&b'}') {
            return None;
        }
        let lines = self.line(end) - self.line(at) + 1;
        Some(Function {
            name,
            line: self.line(at),
            lines,
        })
    }
}

/// Offsets at which `word` stands alone in `code`.
pub(crate) fn words<'a>(code: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    code.match_indices(word)
        .map(|(at, _)| at)
        .filter(move |at| {
            let before = code[..*at].chars().next_back();
            let after = code[at + word.len()..].chars().next();
            !before.is_some_and(is_word) && !after.is_some_and(is_word)
        })
}

pub(crate) fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

fn line_of(text: &str, offset: usize) -> usize {
    text.as_bytes()[..offset]
        .iter()
        .filter(|byte| **byte == b'\n')
        .count()
        + 1
}

struct Lexer<'a> {
    text: &'a [u8],
    /// What has been looked at; at <= text.len().
    at: usize,
    code: Vec<u8>,
    comments: Vec<Range<usize>>,
}

impl Lexer<'_> {
    fn run(&mut self) {
        while self.at < self.text.len() {
            let rest = &self.text[self.at..];
            match rest {
                [b'/', b'/', ..] => self.comment(find(rest, b"\n").unwrap_or(rest.len())),
                [b'/', b'*', ..] => self.comment(block_comment(rest)),
                [b'"', ..] => self.literal(1, string(&rest[1..]), 1),
                [b'\'', ..] => self.quote(),
                [b'r', ..] if !self.inside_word() => self.raw(),
                _ => self.at += 1,
            }
        }
    }

    fn comment(&mut self, length: usize) {
        self.comments.push(self.at..self.at + length);
        self.blank(self.at..self.at + length);
        self.at += length;
    }

    /// A literal: an opening kept as code, contents blanked, a closing kept as code.
    fn literal(&mut self, opening: usize, contents: usize, closing: usize) {
        let start = self.at + opening;
        self.blank(start..start + contents);
        self.at = (start + contents + closing).min(self.text.len());
    }

    /// A character, or else the tick of a lifetime or label.
    fn quote(&mut self) {
        let rest = &self.text[self.at + 1..];
        let contents = match rest {
            [b'\\', _, tail @ ..] => find(tail, b"'").map(|length| length + 2),
            [first, ..] => {
                let width = utf8_width(*first);
                (rest.get(width) == Some(&b'\'')).then_some(width)
            }
            [] => None,
        };
        match contents {
            Some(length) => self.literal(1, length, 1),
            None => self.at += 1,
        }
    }

    /// A raw string, or else an identifier that begins with an `r`.
    fn raw(&mut self) {
        let rest = &self.text[self.at + 1..];
        let hashes = rest.iter().take_while(|byte| **byte == b'#').count();
        if rest.get(hashes) != Some(&b'"') {
            self.at += 1;
            return;
        }
        let mut closing = vec![b'"'];
        closing.resize(hashes + 1, b'#');
        let contents = &rest[hashes + 1..];
        let length = find(contents, &closing).unwrap_or(contents.len());
        self.literal(hashes + 2, length, hashes + 1);
    }

    /// Whether the byte before is part of a word; the `b` and `c` of `br` and `cr` are not.
    fn inside_word(&self) -> bool {
        let word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte >= 0x80;
        match &self.text[..self.at] {
            [.., before, b'b' | b'c'] => word(*before),
            [b'b' | b'c'] | [] => false,
            [.., before] => word(*before),
        }
    }

    fn blank(&mut self, range: Range<usize>) {
        for byte in &mut self.code[range] {
            if *byte != b'\n' {
                *byte = b' ';
            }
        }
    }
}

fn find(text: &[u8], pattern: &[u8]) -> Option<usize> {
    text.windows(pattern.len())
        .position(|window| window == pattern)
}

/// Length of a string's contents, up to its closing quote.
fn string(text: &[u8]) -> usize {
    let mut at = 0;
    while at < text.len() && text[at] != b'"' {
        at += if text[at] == b'\\' { 2 } else { 1 };
    }
    at.min(text.len())
}

/// Length of a block comment; they nest.
fn block_comment(text: &[u8]) -> usize {
    let (mut at, mut depth) = (0, 0);
    while at < text.len() {
        match &text[at..] {
            [b'/', b'*', ..] => (at, depth) = (at + 2, depth + 1),
            [b'*', b'/', ..] => (at, depth) = (at + 2, depth - 1),
            _ => at += 1,
        }
        if depth == 0 {
            break;
        }
    }
    at
}

fn utf8_width(first: u8) -> usize {
    match first {
        0x00..=0x7f => 1,
        0x80..=0xdf => 2,
        0xe0..=0xef => 3,
        0xf0..=0xff => 4,
    }
}

/// Items behind `#[cfg(test)]` and `#[test]`, from the attribute to their end.
fn test_ranges(code: &str) -> Vec<Range<usize>> {
    let mut ranges: Vec<Range<usize>> = Vec::new();
    let attributes = code.match_indices("#[").filter(|(at, _)| {
        let attribute = code[*at..]
            .split(']')
            .next()
            .expect("split gives at least one part");
        words(attribute, "test").next().is_some()
            && words(attribute, "not").next().is_none()
            && words(attribute, "cfg_attr").next().is_none()
    });
    for (start, _) in attributes {
        if ranges.last().is_some_and(|last| last.contains(&start)) {
            continue;
        }
        let end = item_end(code, start).map_or(code.len(), |end| end + 1);
        ranges.push(start..end);
    }
    ranges
}

/// Where an item ends: its closing brace, or the semicolon of one without a body.
fn item_end(code: &str, start: usize) -> Option<usize> {
    let mut depth = 0_usize;
    let mut braces = 0_usize;
    for (offset, byte) in code.bytes().enumerate().skip(start) {
        match byte {
            b'(' | b'[' => depth += 1,
            b')' | b']' => depth = depth.saturating_sub(1),
            b';' if depth == 0 && braces == 0 => return Some(offset),
            b'{' => braces += 1,
            b'}' => {
                braces = braces.saturating_sub(1);
                if braces == 0 {
                    return Some(offset);
                }
            }
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn literals_and_comments_are_blank() {
        for (text, code) in [
            ("a(\"x\\\"y\") // z", "a(\"    \")     "),
            ("r#\"a\"b\"# + r\"c\"", "r#\"   \"# + r\" \""),
            ("br\"a\" bar\"b\"", "br\" \" bar\" \""),
            ("/* a /* b */ c */ d", "                  d"),
            ("'a' '\\'' '\"' &'a str", "' ' '  ' ' ' &'a str"),
            ("'label: 'é'", "'label: '  '"),
            ("r#type = 'r'", "r#type = ' '"),
            ("\"never closed", "\"            "),
        ] {
            assert_eq!(Source::new(text).code, code, "{text}");
        }
    }

    #[test]
    fn comments_keep_their_line() {
        let source = Source::new("let a = \"// no\";\n// one\n/* two\n*/ b // three");
        let found: Vec<_> = source
            .comments
            .iter()
            .map(|c| (c.line, c.text.as_str()))
            .collect();
        assert_eq!(found, [(2, "// one"), (3, "/* two\n*/"), (4, "// three")]);
    }

    #[test]
    fn tests_are_cut() {
        let text = "fn a() {}\n#[cfg(test)]\nmod tests {\n    fn b() { \"}\"; }\n}\nfn c() {}\n";
        let source = Source::new(text);
        let names: Vec<_> = source
            .functions()
            .into_iter()
            .map(|f| (f.name, f.line))
            .collect();
        assert_eq!(names, [("a".to_string(), 1), ("c".to_string(), 6)]);
        assert_eq!(source.product_lines(), 2);
    }

    #[test]
    fn a_negated_test_attribute_is_product() {
        assert_eq!(
            Source::new("#[cfg(not(test))]\nfn a() {\n}\n").product_lines(),
            3
        );
        assert_eq!(
            Source::new("#[cfg(test)]\nmod tests;\nfn a() {}\n").product_lines(),
            1
        );
    }

    #[test]
    fn functions_end_at_their_brace() {
        let text = "fn a(x: [u8; 2])\n{\n  if b { c }\n}\ntype F = fn(u8);\ntrait T { fn d(); }\n";
        let found: Vec<_> = Source::new(text).functions();
        assert_eq!(found.len(), 1);
        assert_eq!(
            (found[0].name.as_str(), found[0].line, found[0].lines),
            ("a", 1, 4)
        );
    }
}
