//! How a contestant of the lab is installed: `[install]` of its `contestant.toml`.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

use super::{apt, node_packages, python_environment, run, said};

/// The steps, in the order in which they are taken. `lab/contestants/README.md` has the keys.
#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Recipe {
    /// Only where it is named: it takes minutes to build, and no test needs it.
    pub(super) on_request: bool,
    /// Packages of Debian.
    apt: Vec<String>,
    /// `package-lock.json`, into `node_modules`.
    npm: bool,
    /// `requirements.txt`, into the virtual environment `python`.
    pip: bool,
    /// `go.mod` and its program, into `bin`.
    go: bool,
    /// Programs with their versions, into `bin`.
    go_install: Vec<String>,
    /// `Cargo.toml` and its programs, into `bin`.
    cargo: bool,
    /// Commands, run in the contestant's folder.
    build: Vec<Vec<String>>,
}

/// Where it comes from and goes to.
pub(super) struct Place {
    pub(super) source: PathBuf,
    pub(super) installed: PathBuf,
    /// Shared by all that cargo builds: most of them have most crates in common.
    pub(super) cargo_target: PathBuf,
}

impl Recipe {
    /// Takes all steps.
    pub(super) fn follow(&self, place: &Place) -> Result<()> {
        let missing: Vec<&str> = self.missing_packages().collect();
        if !missing.is_empty() {
            apt(&missing)?;
        }
        if self.npm {
            node_packages(&place.source, &place.installed).context("npm")?;
        }
        if self.pip {
            let requirements = place.source.join("requirements.txt");
            // What it depends on is listed as well: nothing comes in that has no version there.
            let python = place.installed.join("python");
            python_environment(&python, &requirements, &["--no-deps"]).context("pip")?;
        }
        let bin = place.installed.join("bin");
        if self.go {
            std::fs::create_dir_all(&bin)?;
            let mut go = Command::new("go");
            go.args(["build", "-trimpath", "-o"]).arg(&bin).arg(".");
            run(go.current_dir(&place.source))?;
        }
        for program in &self.go_install {
            let mut go = Command::new("go");
            go.args(["install", program]).env("GOBIN", &bin);
            run(go.current_dir(&place.installed))?;
        }
        if self.cargo {
            cargo_install(place)?;
        }
        for command in &self.build {
            let filled: Vec<String> = command.iter().map(|text| place.fill(text)).collect();
            let (program, args) = filled.split_first().context("`build` needs a program")?;
            run(Command::new(program).args(args).current_dir(&place.source))?;
        }
        Ok(())
    }

    /// Whether its packages of Debian are there: others may have removed them.
    pub(super) fn has_packages(&self) -> bool {
        self.missing_packages().next().is_none()
    }

    fn missing_packages(&self) -> impl Iterator<Item = &str> {
        let names = self.apt.iter().map(String::as_str);
        names.filter(|name| {
            let query = ["--show", "--showformat=${db:Status-Status}", name];
            let status = said(Command::new("dpkg-query").args(query));
            !status.is_ok_and(|status| status == "installed")
        })
    }

    /// What of it is not there, or has no version.
    #[cfg(test)]
    pub(super) fn problems(&self, source: &std::path::Path) -> Vec<String> {
        let mut problems = Vec::new();
        let mut needs = |wanted: bool, files: &[&str]| {
            let missing = files.iter().filter(|file| !source.join(file).is_file());
            problems.extend(missing.filter(|_| wanted).map(|file| format!("no {file}")));
        };
        needs(self.npm, &["package.json", "package-lock.json"]);
        needs(self.go, &["go.mod", "go.sum", "main.go"]);
        needs(self.cargo, &["Cargo.toml", "Cargo.lock"]);
        needs(self.pip, &["requirements.txt"]);
        let requirements = std::fs::read_to_string(source.join("requirements.txt"));
        let requirements = requirements.unwrap_or_default();
        let lines = requirements.lines();
        let loose = lines.filter(|line| !line.starts_with('#') && !line.contains("=="));
        problems.extend(loose.map(|line| format!("{line} has no version")));
        let programs = self.go_install.iter();
        let loose = programs.filter(|program| !program.contains("@v"));
        problems.extend(loose.map(|program| format!("{program} has no version")));
        problems
    }
}

impl Place {
    fn fill(&self, text: &str) -> String {
        let installed = self.installed.display().to_string();
        text.replace("{installed}", &installed)
    }
}

/// Builds the programs and puts them into `bin`.
fn cargo_install(place: &Place) -> Result<()> {
    ensure!(
        place.source.join("Cargo.lock").is_file(),
        "{} has no Cargo.lock",
        place.source.display()
    );
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo
        .args(["install", "--locked", "--force", "--quiet", "--no-track"])
        .arg("--path")
        .arg(&place.source)
        .arg("--root")
        .arg(&place.installed)
        .arg("--target-dir")
        .arg(&place.cargo_target);
    run(&mut cargo)
}
