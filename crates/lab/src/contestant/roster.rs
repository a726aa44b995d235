//! All contestants: those of `lab/contestants`, which are part of this program, and those of a
//! folder of the user's.

use std::path::Path;

use include_dir::{Dir, include_dir};

use super::Contestant;
use super::file::ContestantFile;

/// As they were when this was built.
static SHIPPED: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/../../lab/contestants");

/// Those that can take part, in all their variants.
#[derive(Debug, Clone)]
pub struct Roster {
    contestants: Vec<Contestant>,
}

impl Roster {
    /// The shipped ones, and those of the folders in `more`, which take the place of shipped ones
    /// of the same name. The error is a sentence.
    pub fn load(more: Option<&Path>) -> Result<Self, String> {
        let mut folders = Vec::new();
        for folder in SHIPPED.dirs() {
            let text = |path: &Path| path.to_string_lossy().into_owned();
            let files = folder.files().filter_map(|file| {
                let name = text(file.path().file_name()?.as_ref());
                Some((name, file.contents_utf8()?.to_owned()))
            });
            let id = folder.path().file_name().unwrap_or_default();
            folders.push(Folder {
                id: text(id.as_ref()),
                place: text(folder.path()),
                files: files.collect(),
            });
        }
        for folder in more.map_or_else(|| Ok(Vec::new()), folders_in)? {
            folders.retain(|shipped| shipped.id != folder.id);
            folders.push(folder);
        }
        folders.sort_by(|one, other| one.id.cmp(&other.id));
        let mut contestants = Vec::new();
        for folder in folders {
            contestants.extend(folder.variants()?);
        }
        Ok(Self { contestants })
    }

    /// All of them.
    pub fn contestants(&self) -> &[Contestant] {
        &self.contestants
    }

    /// Those that the names choose: `ID` means all variants, `ID/VARIANT` one. The error is a
    /// sentence.
    pub fn select(&self, names: &[String]) -> Result<Vec<Contestant>, String> {
        let mut chosen: Vec<Contestant> = Vec::new();
        for name in names {
            let before = chosen.len();
            for one in &self.contestants {
                let is_meant = *name == one.id || *name == one.name();
                if is_meant && chosen.iter().all(|other| other.name() != one.name()) {
                    chosen.push(one.clone());
                }
            }
            if chosen.len() == before {
                let known: Vec<String> = self.contestants.iter().map(Contestant::name).collect();
                return Err(format!(
                    "there is no contestant '{name}' that is not named already; there are {}, and \
                     a name without its variant means all of them",
                    known.join(", ")
                ));
            }
        }
        Ok(chosen)
    }
}

/// A folder as it was read.
struct Folder {
    id: String,
    /// For errors.
    place: String,
    files: Vec<(String, String)>,
}

impl Folder {
    fn variants(mut self) -> Result<Vec<Contestant>, String> {
        let place = format!("{}/{DESCRIPTION}", self.place);
        let index = self.files.iter().position(|(name, _)| name == DESCRIPTION);
        let Some(index) = index else {
            return Err(format!("{place} is missing: it says how it is started"));
        };
        let (_, text) = self.files.remove(index);
        // What installs it is not needed to start it.
        self.files.retain(|(name, _)| !name.starts_with("package"));
        let file: ContestantFile = toml::from_str(&text).map_err(|error| {
            let before = error.span().and_then(|span| text.get(..span.start));
            let line = before.map_or(1, |before| before.matches('\n').count() + 1);
            format!("{place}:{line}: {}", error.message())
        })?;
        file.check()
            .map_err(|reason| format!("{place}: {reason}"))?;
        let variants = file.variants.clone().into_iter();
        let one = |variant| Contestant {
            id: self.id.clone(),
            file: file.clone(),
            files: self.files.clone(),
            variant,
        };
        Ok(variants.map(one).collect())
    }
}

fn folders_in(place: &Path) -> Result<Vec<Folder>, String> {
    let unreadable = |path: &Path, error| format!("{} cannot be read: {error}", path.display());
    let mut folders = Vec::new();
    for entry in std::fs::read_dir(place).map_err(|error| unreadable(place, error))? {
        let path = entry.map_err(|error| unreadable(place, error))?.path();
        if !path.is_dir() {
            continue;
        }
        let mut files = Vec::new();
        for file in std::fs::read_dir(&path).map_err(|error| unreadable(&path, error))? {
            let file = file.map_err(|error| unreadable(&path, error))?.path();
            let name = file.file_name().unwrap_or_default().to_string_lossy();
            // Programs that are no text are named by their own path.
            if let Ok(text) = std::fs::read_to_string(&file) {
                files.push((name.into_owned(), text));
            }
        }
        folders.push(Folder {
            id: path
                .file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned(),
            place: path.display().to_string(),
            files,
        });
    }
    Ok(folders)
}

const DESCRIPTION: &str = "contestant.toml";

#[cfg(test)]
mod tests {
    use super::*;

    fn names(roster: &Roster) -> Vec<String> {
        roster.contestants().iter().map(Contestant::name).collect()
    }

    #[test]
    fn a_wrong_name_says_which_are_right() {
        let roster = Roster::load(None).unwrap();
        let select = |names: &[&str]| {
            let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
            roster.select(&names)
        };
        let sentence = select(&["moonwire", "apache"]).unwrap_err();
        for part in ["'apache'", "uwebsockets-js/1-thread", "without its variant"] {
            assert!(sentence.contains(part), "{sentence}");
        }
        assert!(select(&["moonwire", "moonwire"]).is_err());
    }

    #[test]
    fn a_folder_of_the_user_adds_and_replaces() {
        let shipped = names(&Roster::load(None).unwrap());
        let folder = tempfile::tempdir().unwrap();
        for id in ["mine", "uwebsockets-js"] {
            let place = folder.path().join(id);
            std::fs::create_dir(&place).unwrap();
            std::fs::write(place.join(DESCRIPTION), MINE).unwrap();
            std::fs::write(place.join("server.py"), "# {port}").unwrap();
        }
        let roster = Roster::load(Some(folder.path())).unwrap();
        let added: Vec<String> = names(&roster)
            .into_iter()
            .filter(|name| !shipped.contains(name))
            .collect();
        assert_eq!(added, ["mine/only", "uwebsockets-js/only"]);
        assert!(!names(&roster).contains(&"uwebsockets-js/1-thread".to_owned()));
    }

    #[test]
    fn what_is_wrong_is_one_sentence_with_its_line() {
        let sentence = |text: Option<&str>| {
            let folder = tempfile::tempdir().unwrap();
            let place = folder.path().join("mine");
            std::fs::create_dir(&place).unwrap();
            if let Some(text) = text {
                std::fs::write(place.join(DESCRIPTION), text).unwrap();
            }
            Roster::load(Some(folder.path())).unwrap_err()
        };
        assert!(sentence(None).contains("contestant.toml is missing"));
        let wrong = MINE.replace("kind = \"server\"", "kind = \"car\"");
        assert!(
            sentence(Some(&wrong)).contains("contestant.toml:1: "),
            "{wrong}"
        );
        let odd = MINE.replace("[plain]", "[plain]\ncolour = 1");
        assert!(sentence(Some(&odd)).contains(":5: unknown field `colour`"));
        let none = MINE.split("[[variants]]").next().unwrap();
        assert!(sentence(Some(none)).contains("variants"), "{none}");
    }

    const MINE: &str = r#"kind = "server"
description = "of a test"
version = ["true"]
[plain]
start = ["python3", "{folder}/server.py", "{port}"]
url = "ws://127.0.0.1:{port}/"
[tls]
start = ["python3", "{folder}/server.py", "{port}"]
url = "wss://127.0.0.1:{port}/"
[[variants]]
name = "only"
"#;
}
