//! The contestants of the lab: each is installed as its own folder says, into a folder of its own.
//!
//! What was installed is remembered with the files that it was installed from, so that a folder
//! that has changed installs itself again and no other.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use serde::Deserialize;

use super::recipe::{Place, Recipe};
use crate::place;

/// A contestant that something installs.
pub(super) struct Contestant {
    id: String,
    description: String,
    recipe: Recipe,
    place: Place,
    /// Its files with their names.
    definition: String,
}

/// What this chore reads of `contestant.toml`; the lab reads the rest.
#[derive(Deserialize)]
struct Description {
    description: String,
    install: Option<Recipe>,
}

/// Those of `folder`, or the shipped ones, that something installs; with `ids` only these, and
/// without also those that are installed on request only are left out.
pub(super) fn load(folder: Option<&Path>, ids: &[&str], peers: &Path) -> Result<Vec<Contestant>> {
    let shipped = place::root().join("lab/contestants");
    let folder = folder.unwrap_or(&shipped);
    let mut contestants = Vec::new();
    let mut known = Vec::new();
    let within = || format!("the contestants in {}", folder.display());
    for entry in std::fs::read_dir(folder).with_context(within)? {
        let source = entry?.path();
        if !source.join(DESCRIPTION).is_file() {
            continue;
        }
        let name = source.file_name().unwrap_or_default();
        let id = name.to_string_lossy().into_owned();
        known.push(id.clone());
        if !ids.is_empty() && !ids.contains(&id.as_str()) {
            continue;
        }
        let contestant = read(id, source, peers)?;
        contestants.extend(contestant.filter(|it| !ids.is_empty() || !it.recipe.on_request));
    }
    known.sort();
    if let Some(id) = ids.iter().find(|id| !known.iter().any(|it| it == *id)) {
        bail!(
            "there is no contestant `{id}`; there are {}",
            known.join(", ")
        );
    }
    contestants.sort_by(|one, other| one.id.cmp(&other.id));
    Ok(contestants)
}

fn read(id: String, source: PathBuf, peers: &Path) -> Result<Option<Contestant>> {
    let path = source.join(DESCRIPTION);
    let text = std::fs::read_to_string(&path)?;
    let description: Description =
        toml::from_str(&text).with_context(|| format!("{}", path.display()))?;
    let Some(recipe) = description.install else {
        return Ok(None);
    };
    let mut definition = String::new();
    describe(&source, &source, &mut definition)?;
    Ok(Some(Contestant {
        place: Place {
            source,
            installed: peers.join("contestants").join(&id),
            cargo_target: peers.join("cargo"),
        },
        id,
        description: description.description,
        recipe,
        definition,
    }))
}

/// Installs those that are not; one that cannot be is no reason not to try the others.
pub(super) fn install(contestants: &[Contestant]) -> Result<ExitCode> {
    let mut exit = ExitCode::SUCCESS;
    for contestant in contestants.iter().filter(|one| !one.is_current()) {
        let begin = Instant::now();
        match contestant.install() {
            Ok(()) => {
                let took = begin.elapsed().as_secs_f64();
                println!("{:18} installed in {took:.1} s", contestant.id);
            }
            Err(error) => {
                println!("{:18} not installed: {error:#}", contestant.id);
                exit = ExitCode::FAILURE;
            }
        }
    }
    Ok(exit)
}

/// Names of those that are not installed as their folders say today.
pub(super) fn missing(contestants: &[Contestant]) -> Vec<&str> {
    let missing = contestants.iter().filter(|one| !one.is_current());
    missing.map(|one| one.id.as_str()).collect()
}

impl Contestant {
    /// One line: where it is defined and what it is.
    pub(super) fn line(&self) -> String {
        let place = format!("lab/contestants/{}", self.id);
        format!("{:16} {place:30} {}", self.id, self.description)
    }

    fn record(&self) -> PathBuf {
        self.place.installed.join("definition.txt")
    }

    fn is_current(&self) -> bool {
        let installed = std::fs::read_to_string(self.record());
        installed.is_ok_and(|text| text == self.definition) && self.recipe.has_packages()
    }

    fn install(&self) -> Result<()> {
        let folder = &self.place.installed;
        if folder.exists() {
            std::fs::remove_dir_all(folder)?;
        }
        std::fs::create_dir_all(folder)?;
        self.recipe.follow(&self.place)?;
        // Last, so that what was interrupted is done again.
        Ok(std::fs::write(self.record(), &self.definition)?)
    }
}

/// Appends the files of a folder and of those in it, by name.
fn describe(folder: &Path, root: &Path, out: &mut String) -> Result<()> {
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        paths.push(entry?.path());
    }
    paths.sort();
    for path in paths {
        if path.is_dir() {
            describe(&path, root, out)?;
            continue;
        }
        let name = path.strip_prefix(root).unwrap_or(&path);
        let text = String::from_utf8_lossy(&std::fs::read(&path)?).into_owned();
        writeln!(out, "== {}\n{text}", name.display())?;
    }
    Ok(())
}

const DESCRIPTION: &str = "contestant.toml";

#[cfg(test)]
mod tests {
    use super::*;

    fn write(folder: &Path, id: &str, text: &str) {
        std::fs::create_dir_all(folder.join(id)).unwrap();
        std::fs::write(folder.join(id).join(DESCRIPTION), text).unwrap();
    }

    #[test]
    fn every_shipped_one_has_its_definitions_pinned() {
        let contestants = load(None, &[], Path::new("/peers")).unwrap();
        assert!(contestants.len() > 10, "{}", contestants.len());
        for contestant in contestants {
            let problems = contestant.recipe.problems(&contestant.place.source);
            assert_eq!(problems, [""; 0], "{}", contestant.id);
        }
    }

    #[test]
    fn one_that_fails_keeps_no_other_and_a_changed_one_is_installed_again() {
        let (folder, peers) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let fails = "description = 'fails'\n[install]\nbuild = [['false']]\n";
        let works = "description = 'works'\n[install]\n\
            build = [['sh', '-c', 'echo done >> {installed}/../log']]\n";
        write(folder.path(), "a", fails);
        write(folder.path(), "b", works);
        write(folder.path(), "c", "description = 'always here'\n");
        let all = || load(Some(folder.path()), &[], peers.path()).unwrap();
        assert_eq!(install(&all()).unwrap(), ExitCode::FAILURE);
        assert_eq!(missing(&all()), ["a"]);
        install(&all()).unwrap();
        let log = peers.path().join("contestants/log");
        assert_eq!(std::fs::read_to_string(&log).unwrap(), "done\n");
        std::fs::write(folder.path().join("b/server.py"), "print()\n").unwrap();
        assert_eq!(missing(&all()), ["a", "b"]);
        let one = load(Some(folder.path()), &["b"], peers.path()).unwrap();
        assert_eq!(install(&one).unwrap(), ExitCode::SUCCESS);
        assert_eq!(std::fs::read_to_string(&log).unwrap(), "done\ndone\n");
        let Err(error) = load(Some(folder.path()), &["d"], peers.path()) else {
            panic!("there is no d");
        };
        assert_eq!(
            error.to_string(),
            "there is no contestant `d`; there are a, b, c"
        );
    }
}
