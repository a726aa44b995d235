//! Sizes of files and functions, as a ratchet.
//!
//! What is over a limit today stands in `xtask/tidy.toml` with its exact size. It may shrink, and
//! then its entry must follow; it may not grow, and nothing new may join it.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;

use super::Finding;
use super::tree::File;

/// Lines of a file, its tests not counted.
const FILE_LINES_MAX: usize = 600;
/// Lines of a function, from its `fn` to its closing brace.
const FUNCTION_LINES_MAX: usize = 70;

/// What is tolerated; `xtask/tidy.toml`.
#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
pub(crate) struct Tolerated {
    /// Path to lines.
    #[serde(default)]
    file_lines: BTreeMap<String, usize>,
    /// `path::function` to lines.
    #[serde(default)]
    function_lines: BTreeMap<String, usize>,
    /// Files that may say `unsafe`.
    #[serde(default)]
    unsafe_files: BTreeSet<String>,
}

/// Where [`Tolerated`] is written down.
pub(crate) const TOLERATED_PATH: &str = "xtask/tidy.toml";

pub(crate) fn check(files: &[File], tolerated: &Tolerated, findings: &mut Vec<Finding>) {
    let sources = || {
        files
            .iter()
            .filter_map(|file| Some((file, file.rust.as_ref()?)))
    };
    let mut file_lines = Ratchet::new("file size", FILE_LINES_MAX, &tolerated.file_lines);
    let mut function_lines = Ratchet::new(
        "function size",
        FUNCTION_LINES_MAX,
        &tolerated.function_lines,
    );
    for (file, source) in sources().filter(|(file, _)| !file.is_test()) {
        file_lines.measure(file, 1, &file.path, source.product_lines(), findings);
        for function in source.functions() {
            let key = format!("{}::{}", file.path, function.name);
            function_lines.measure(file, function.line, &key, function.lines, findings);
        }
    }
    file_lines.finish(findings);
    function_lines.finish(findings);
    unsafe_files(files, &tolerated.unsafe_files, findings);
}

/// `unsafe` has rooms: modules of net, lab and lua that need a system call, each named.
fn unsafe_files(files: &[File], tolerated: &BTreeSet<String>, findings: &mut Vec<Finding>) {
    let mut unused = tolerated.clone();
    for file in files {
        let Some(source) = &file.rust else { continue };
        let Some(at) = super::lexer::words(&source.code, "unsafe").next() else {
            continue;
        };
        let room = ["crates/net/", "crates/lab/", "crates/lua/"];
        if !room.iter().any(|room| file.path.starts_with(room)) {
            let advice = "unsafe lives in net, lab and lua only: ask one of them";
            findings.push(Finding::new(file, source.line(at), "unsafe", advice));
        } else if !unused.remove(&file.path) {
            let advice = format!("name the file under unsafe_files in {TOLERATED_PATH}");
            findings.push(Finding::new(file, source.line(at), "unsafe", advice));
        }
    }
    for path in unused {
        let advice = format!("`{path}` has no unsafe: remove it from unsafe_files");
        findings.push(Finding::at(TOLERATED_PATH, 1, "ratchet", advice));
    }
}

/// One measure with its limit and what is tolerated above it.
struct Ratchet<'a> {
    rule: &'static str,
    limit: usize,
    tolerated: &'a BTreeMap<String, usize>,
    /// Keys of `tolerated` that nothing over the limit has claimed yet.
    unused: BTreeSet<&'a str>,
}

impl<'a> Ratchet<'a> {
    fn new(rule: &'static str, limit: usize, tolerated: &'a BTreeMap<String, usize>) -> Self {
        Self {
            rule,
            limit,
            tolerated,
            unused: tolerated.keys().map(String::as_str).collect(),
        }
    }

    fn measure(
        &mut self,
        file: &File,
        line: usize,
        key: &str,
        lines: usize,
        findings: &mut Vec<Finding>,
    ) {
        if lines <= self.limit {
            return;
        }
        self.unused.remove(key);
        let advice = match self.tolerated.get(key) {
            Some(tolerated) if *tolerated == lines => return,
            Some(tolerated) if *tolerated > lines => {
                format!("lower the entry `{key}` in {TOLERATED_PATH} from {tolerated} to {lines}")
            }
            Some(tolerated) => format!("`{key}` grew from {tolerated} to {lines} lines: split it"),
            None => format!(
                "`{key}` has {lines} lines, at most {}: split it",
                self.limit
            ),
        };
        findings.push(Finding::new(file, line, self.rule, advice));
    }

    fn finish(self, findings: &mut Vec<Finding>) {
        for key in self.unused {
            let advice = format!("`{key}` is within the limit of {}: remove it", self.limit);
            findings.push(Finding::at(TOLERATED_PATH, 1, "ratchet", advice));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, text: &str, tolerated: &str) -> Vec<String> {
        let tolerated: Tolerated = toml::from_str(tolerated).unwrap();
        let mut findings = Vec::new();
        check(&[File::new(path, text)], &tolerated, &mut findings);
        findings
            .iter()
            .map(|finding| format!("{}: {}", finding.rule, finding.advice))
            .collect()
    }

    fn function(lines: usize) -> String {
        format!("fn long() {{\n{}}}\n", "    a();\n".repeat(lines - 2))
    }

    #[test]
    fn a_long_function_is_found() {
        assert_eq!(found("a.rs", &function(70), ""), [""; 0]);
        let expected = "function size: `a.rs::long` has 71 lines, at most 70: split it";
        assert_eq!(found("a.rs", &function(71), ""), [expected]);
        assert_eq!(found("crates/a/tests/b.rs", &function(71), ""), [""; 0]);
    }

    #[test]
    fn a_long_file_is_found() {
        let tests = "#[cfg(test)]\nmod tests {\n    // a\n}\n";
        assert_eq!(
            found("a.rs", &format!("{}{tests}", "// a\n".repeat(600)), ""),
            [""; 0]
        );
        assert_eq!(found("a.rs", &"// a\n".repeat(601), "").len(), 1);
    }

    #[test]
    fn an_entry_only_shrinks() {
        let entry = "[function_lines]\n\"a.rs::long\" = 80\n";
        assert_eq!(found("a.rs", &function(80), entry), [""; 0]);
        assert!(found("a.rs", &function(81), entry)[0].contains("grew from 80 to 81"));
        assert!(found("a.rs", &function(79), entry)[0].contains("from 80 to 79"));
        assert!(found("a.rs", &function(70), entry)[0].contains("remove it"));
        assert!(found("a.rs", "", "[file_lines]\n\"b.rs\" = 700\n")[0].contains("remove it"));
    }

    #[test]
    fn unsafe_has_rooms() {
        let text = "fn a() { unsafe { b() } }\n";
        assert!(found("crates/server/src/a.rs", text, "")[0].contains("net, lab and lua"));
        assert!(found("crates/net/src/a.rs", text, "")[0].contains("unsafe_files"));
        let entry = "unsafe_files = [\"crates/net/src/a.rs\"]\n";
        assert_eq!(found("crates/net/src/a.rs", text, entry), [""; 0]);
        assert!(found("crates/net/src/a.rs", "// unsafe\n", entry)[0].contains("remove it"));
    }
}
