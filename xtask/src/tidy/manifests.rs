//! Manifests: one place for versions and settings, and a reason for each foreign crate.

use toml::{Table, Value};

use super::Finding;
use super::tree::File;

pub(crate) fn check(file: &File, findings: &mut Vec<Finding>) {
    if file.path == "Cargo.toml" {
        dependencies_have_reasons(file, findings);
    } else if file.path.ends_with("/Cargo.toml") && !file.text.contains("\n[workspace]\n") {
        members_inherit(file, findings);
    }
}

/// Each foreign crate has a comment right above that says what it is for.
fn dependencies_have_reasons(file: &File, findings: &mut Vec<Finding>) {
    let mut inside = false;
    let mut before = "";
    for (index, line) in file.text.lines().enumerate() {
        if line.starts_with('[') {
            inside = line == "[workspace.dependencies]";
        } else if inside && line.starts_with(char::is_alphabetic) {
            let ours = line.contains("path =");
            if !ours && !before.starts_with('#') {
                let advice = "say in a comment right above what it is for";
                findings.push(Finding::new(file, index + 1, "dependency", advice));
            }
        }
        before = line;
    }
}

/// A member takes versions, edition, licence and lints from the workspace.
fn members_inherit(file: &File, findings: &mut Vec<Finding>) {
    let manifest: Table = match file.text.parse() {
        Ok(manifest) => manifest,
        Err(error) => {
            findings.push(Finding::new(file, 1, "manifest", error.to_string()));
            return;
        }
    };
    let table = |name: &str| manifest.get(name).and_then(Value::as_table);
    for section in ["dependencies", "dev-dependencies", "build-dependencies"] {
        for (name, value) in table(section).into_iter().flatten() {
            if !inherits(value) {
                let advice = format!("`{name}`: write `{name}.workspace = true`");
                findings.push(Finding::new(file, line_of(file, name), "manifest", advice));
            }
        }
    }
    for key in ["version", "edition", "rust-version", "license", "publish"] {
        if !table("package")
            .and_then(|package| package.get(key))
            .is_some_and(inherits)
        {
            let advice = format!("[package]: write `{key}.workspace = true`");
            findings.push(Finding::new(file, 1, "manifest", advice));
        }
    }
    if !manifest.get("lints").is_some_and(inherits) {
        findings.push(Finding::new(
            file,
            1,
            "manifest",
            "[lints]: write `workspace = true`",
        ));
    }
}

fn inherits(value: &Value) -> bool {
    value.get("workspace").and_then(Value::as_bool) == Some(true)
}

fn line_of(file: &File, name: &str) -> usize {
    file.text
        .lines()
        .position(|line| line.starts_with(name))
        .map_or(1, |index| index + 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::found;

    #[test]
    fn foreign_crates_have_a_reason() {
        let text = "[workspace.dependencies]\nours = { path = \"ours\" }\n\
            # Lists.\na = \"1\"\nb = \"1\"\n";
        assert_eq!(found(check, "Cargo.toml", text), [(5, "dependency")]);
    }

    #[test]
    fn members_take_from_the_workspace() {
        let good = "[package]\nname = \"a\"\nversion.workspace = true\nedition.workspace = true\n\
            rust-version.workspace = true\nlicense.workspace = true\npublish.workspace = true\n\
            [lints]\nworkspace = true\n[dependencies]\n";
        assert_eq!(found(check, "crates/a/Cargo.toml", good), []);
        let bad = format!("{good}b.workspace = true\nslab = \"1\"\n");
        // A workspace of its own has nowhere to take them from.
        let other = format!("# Fuzzing.\n[workspace]\n{bad}");
        assert_eq!(found(check, "fuzz/Cargo.toml", &other), []);
        assert_eq!(
            found(check, "crates/a/Cargo.toml", &bad),
            [(12, "manifest")]
        );
        assert_eq!(
            found(check, "crates/a/Cargo.toml", "[package]\nname = \"a\"\n").len(),
            6
        );
    }
}
