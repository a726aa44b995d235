//! Words that do not belong in the tree: unfinished work, ways to crash, names without meaning.

use super::Finding;
use super::lexer::{Source, is_word, words};
use super::tree::File;

pub(crate) fn check(file: &File, findings: &mut Vec<Finding>) {
    names_of_files(file, findings);
    match &file.rust {
        Some(source) => {
            unfinished(file, source, findings);
            unwraps(file, source, findings);
            reasons(file, source, findings);
            names_of_types(file, source, findings);
            for comment in &source.comments {
                marks(file, comment.line, &comment.text, findings);
            }
        }
        None if matches!(file.extension(), "lua" | "py" | "js" | "mjs" | "sh") => {
            for (index, line) in file.text.lines().enumerate() {
                marks(file, index + 1, line, findings);
            }
        }
        None => {}
    }
}

/// Code that says of itself that it is not done.
fn unfinished(file: &File, source: &Source, findings: &mut Vec<Finding>) {
    for name in ["todo", "unimplemented", "dbg"] {
        for at in words(&source.code, name) {
            if source.code[at + name.len()..].starts_with('!') {
                let advice = format!("`{name}!` does not land: finish it or leave it out");
                findings.push(Finding::new(file, source.line(at), "unfinished", advice));
            }
        }
    }
    for (at, _) in source.code.match_indices("#[ignore") {
        let advice = "a test that is not run is no test: run it, or remove it";
        findings.push(Finding::new(file, source.line(at), "unfinished", advice));
    }
}

/// Marks in comments that put work off.
fn marks(file: &File, line: usize, text: &str, findings: &mut Vec<Finding>) {
    for mark in ["FIXME", "XXX", "TODO"] {
        if words(text, mark).next().is_some() {
            let advice = format!("`{mark}` does not land: do it, or file it");
            findings.push(Finding::new(file, line, "unfinished", advice));
        }
    }
}

fn unwraps(file: &File, source: &Source, findings: &mut Vec<Finding>) {
    if file.is_test() {
        return;
    }
    for (at, _) in source.code.match_indices(".unwrap()") {
        if !source.is_test(at) {
            let advice = "return the error, or `expect(\"why this holds\")`";
            findings.push(Finding::new(file, source.line(at), "unwrap", advice));
        }
    }
}

/// `#[allow(..)]` and `#[expect(..)]` say why.
fn reasons(file: &File, source: &Source, findings: &mut Vec<Finding>) {
    for opening in ["#[allow(", "#![allow(", "#[expect(", "#![expect("] {
        for (at, _) in source.code.match_indices(opening) {
            let attribute = source.code[at..]
                .split(']')
                .next()
                .expect("split gives one part");
            if words(attribute, "reason").next().is_none() {
                let advice = "write `reason = \"...\"` after the lint";
                findings.push(Finding::new(file, source.line(at), "reason", advice));
            }
        }
    }
}

fn names_of_files(file: &File, findings: &mut Vec<Finding>) {
    for part in file.path.split('/') {
        let stem = part
            .split('.')
            .next()
            .expect("split gives at least one part");
        if stem.split(['_', '-']).any(is_banned) {
            let advice = format!("`{part}` says nothing: name the noun that it holds");
            findings.push(Finding::new(file, 1, "name", advice));
        }
    }
}

fn names_of_types(file: &File, source: &Source, findings: &mut Vec<Finding>) {
    for keyword in ["struct", "enum", "trait", "type", "mod"] {
        for at in words(&source.code, keyword) {
            let rest = source.code[at + keyword.len()..].trim_start();
            let name: String = rest.chars().take_while(|c| is_word(*c)).collect();
            if parts(&name).iter().any(is_banned) {
                let advice = format!("`{name}` says nothing: name the noun that it is");
                findings.push(Finding::new(file, source.line(at), "name", advice));
            }
        }
    }
}

/// `IdleTimer` and `idle_timer` are both `idle`, `timer`.
fn parts(name: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    for c in name.chars() {
        if c == '_' || c.is_uppercase() {
            parts.push(String::new());
        }
        if c != '_' {
            parts
                .last_mut()
                .expect("never empty")
                .extend(c.to_lowercase());
        }
    }
    parts
}

fn is_banned(word: impl AsRef<str>) -> bool {
    let word = word.as_ref().to_lowercase();
    matches!(
        word.as_str(),
        "util" | "utils" | "misc" | "helper" | "helpers" | "manager"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::found;

    #[test]
    fn unfinished_code_is_found_in_tests_too() {
        assert_eq!(
            found(check, "a.rs", "fn a() {\n    todo!()\n}\n"),
            [(2, "unfinished")]
        );
        assert_eq!(found(check, "a.rs", "unimplemented!();dbg!(1);").len(), 2);
        assert_eq!(
            found(
                check,
                "a.rs",
                "#[cfg(test)]\nmod t {\n#[ignore = \"slow\"]\nfn a() {}\n}"
            )
            .len(),
            1
        );
        assert_eq!(
            found(check, "a.rs", "let a = \"todo!()\"; let dbg = 1;"),
            []
        );
    }

    #[test]
    fn marks_are_found_in_comments_only() {
        assert_eq!(
            found(check, "a.rs", "let a = \"FIXME\";\n// FIXME: later\n"),
            [(2, "unfinished")]
        );
        assert_eq!(found(check, "a.lua", "-- XXX\n"), [(1, "unfinished")]);
        assert_eq!(found(check, "a.rs", "// a PREFIXXX is fine\n"), []);
    }

    #[test]
    fn unwrap_is_for_tests() {
        assert_eq!(
            found(check, "a.rs", "fn a() { b().unwrap(); }"),
            [(1, "unwrap")]
        );
        assert_eq!(found(check, "a.rs", "fn a() { b().unwrap_or(1); }"), []);
        assert_eq!(
            found(
                check,
                "a.rs",
                "#[cfg(test)]\nmod tests { fn a() { b().unwrap(); } }"
            ),
            []
        );
        assert_eq!(
            found(check, "crates/a/tests/b.rs", "fn a() { b().unwrap(); }"),
            []
        );
    }

    #[test]
    fn an_allow_says_why() {
        assert_eq!(
            found(check, "a.rs", "#[allow(dead_code)]\nfn a() {}"),
            [(1, "reason")]
        );
        assert_eq!(
            found(
                check,
                "a.rs",
                "#![allow(\n    unsafe_code,\n    reason = \"x\"\n)]"
            ),
            []
        );
    }

    #[test]
    fn names_mean_something() {
        assert_eq!(found(check, "src/utils.rs", ""), [(1, "name")]);
        assert_eq!(found(check, "src/test_helpers/a.rs", ""), [(1, "name")]);
        assert_eq!(
            found(check, "a.rs", "struct\n    SocketManager;"),
            [(1, "name")]
        );
        assert_eq!(found(check, "a.rs", "mod util;"), [(1, "name")]);
        assert_eq!(found(check, "a.rs", "struct Utility; enum Helped {}"), []);
    }
}
