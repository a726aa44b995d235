//! The arrows of the house: which crate may import which, as cargo sees it.

use serde_json::Value;

use super::Finding;
use super::tree::File;

/// Every crate of the workspace with those of ours that it may import.
const ARROWS: &[(&str, &[&str])] = &[
    ("moonwire-proto", &[]),
    ("moonwire-net", &["moonwire-proto"]),
    ("moonwire-lua", &["moonwire-proto"]),
    (
        "moonwire-server",
        &["moonwire-proto", "moonwire-net", "moonwire-lua"],
    ),
    (
        "moonwire-load",
        &["moonwire-proto", "moonwire-net", "moonwire-report"],
    ),
    ("moonwire-report", &[]),
    ("moonwire-lab", &["moonwire-load", "moonwire-report"]),
    (
        "moonwire",
        &[
            "moonwire-server",
            "moonwire-load",
            "moonwire-lab",
            "moonwire-report",
        ],
    ),
    ("xtask", &[]),
];

/// Compares `cargo metadata` with [`ARROWS`]; imports of tests are free.
pub(crate) fn check(metadata: &Value, findings: &mut Vec<Finding>) {
    for package in array(&metadata["packages"]) {
        let name = text(&package["name"]);
        let manifest = text(&package["manifest_path"]);
        let Some((_, allowed)) = ARROWS.iter().find(|(from, _)| *from == name) else {
            let advice = format!("`{name}` has no place in the list of arrows");
            findings.push(Finding::at(manifest, 1, "arrow", advice));
            continue;
        };
        let imports = array(&package["dependencies"])
            .iter()
            .filter(|dependency| dependency["kind"].as_str() != Some("dev"))
            .map(|dependency| text(&dependency["name"]))
            .filter(|import| ARROWS.iter().any(|(ours, _)| ours == import));
        for import in imports.filter(|import| !allowed.contains(import)) {
            let list = if allowed.is_empty() {
                "none of ours".into()
            } else {
                allowed.join(", ")
            };
            let advice = format!("`{name}` may import {list}, not `{import}`");
            findings.push(Finding::at(manifest, 1, "arrow", advice));
        }
    }
}

/// The compiler proves that proto does no I/O and has no clock, as long as these lines stand.
pub(crate) fn check_proto(files: &[File], findings: &mut Vec<Finding>) {
    let lib = files.iter().find(|file| file.path == PROTO_LIB);
    let code = lib
        .and_then(|file| file.rust.as_ref())
        .map_or("", |source| source.code.as_str());
    for line in ["#![no_std]", "#![forbid(unsafe_code)]"] {
        if !code.contains(line) {
            findings.push(Finding::at(
                PROTO_LIB,
                1,
                "proto",
                format!("`{line}` must stand here"),
            ));
        }
    }
    for file in files
        .iter()
        .filter(|file| file.path.starts_with("crates/proto/src/"))
    {
        let Some(source) = file.rust.as_ref().filter(|_| !file.is_test()) else {
            continue;
        };
        for (at, _) in source.code.match_indices("extern crate std") {
            if !source.is_test(at) {
                let advice = "proto lives without std: take core or alloc";
                findings.push(Finding::new(file, source.line(at), "proto", advice));
            }
        }
    }
}

const PROTO_LIB: &str = "crates/proto/src/lib.rs";

fn array(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn found(name: &str, import: &str, kind: Option<&str>) -> usize {
        let dependency = json!({ "name": import, "kind": kind });
        let package = json!({ "name": name, "manifest_path": "", "dependencies": [dependency] });
        let mut findings = Vec::new();
        check(&json!({ "packages": [package] }), &mut findings);
        findings.len()
    }

    #[test]
    fn only_listed_arrows_pass() {
        assert_eq!(found("moonwire-net", "moonwire-proto", None), 0);
        assert_eq!(found("moonwire-proto", "moonwire-net", None), 1);
        assert_eq!(found("moonwire-lab", "moonwire-server", Some("build")), 1);
        assert_eq!(found("moonwire-lab", "moonwire-server", Some("dev")), 0);
        assert_eq!(found("moonwire-net", "slab", None), 0);
    }

    #[test]
    fn a_new_crate_must_be_placed() {
        assert_eq!(found("moonwire-attic", "slab", None), 1);
    }

    #[test]
    fn proto_stays_pure() {
        let found = |text: &str| {
            let mut findings = Vec::new();
            check_proto(&[File::new(PROTO_LIB, text)], &mut findings);
            findings.len()
        };
        let pure = "#![no_std]\n#![forbid(unsafe_code)]\n";
        assert_eq!(found(pure), 0);
        assert_eq!(found("// #![no_std]\n#![forbid(unsafe_code)]\n"), 1);
        assert_eq!(found(&format!("{pure}extern crate std;\n")), 1);
        assert_eq!(
            found(&format!("{pure}#[cfg(test)]\nextern crate std;\n")),
            0
        );
    }
}
