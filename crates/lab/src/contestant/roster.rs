//! All contestants: those of `lab/contestants`, which are part of this program, and those of a
//! folder of the user's.

use std::path::Path;

use include_dir::{Dir, File, include_dir};
use sha2::{Digest, Sha256};

use super::file::{ContestantFile, Kind};
use super::{Contestant, template};

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
                install: format!("{INSTALL} {}", text(id.as_ref())),
                files: files.collect(),
                sha256: digest(shipped_files(folder)),
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

    /// Those that take part in a battle: `ID` means all variants that are neither for one scenario
    /// only nor on request. The error is a sentence.
    pub fn participants(&self, names: &[String]) -> Result<Vec<Contestant>, String> {
        let mut chosen = self.select(names)?;
        chosen.retain(|one| {
            let is_general = one.variant.scenario.is_none() && !one.variant.on_request;
            is_general || is_named(one, names)
        });
        Ok(chosen)
    }

    /// Those that the names choose: `ID` means all variants, `ID/VARIANT` one. The error is a
    /// sentence.
    pub fn select(&self, names: &[String]) -> Result<Vec<Contestant>, String> {
        let mut chosen: Vec<Contestant> = Vec::new();
        for (place, name) in names.iter().enumerate() {
            let before = chosen.len();
            for one in &self.contestants {
                let is_meant = *name == one.id || *name == one.name();
                if is_meant && chosen.iter().all(|other| other.name() != one.name()) {
                    chosen.push(one.clone());
                }
            }
            // What is on request is named beside the contestant's own name, which has it, too.
            let is_request = |one: &Contestant| one.variant.on_request && one.name() == *name;
            let is_first = !names.iter().take(place).any(|earlier| earlier == name);
            let is_requested = is_first && chosen.iter().any(is_request);
            if chosen.len() == before && !is_requested {
                let is_known = |one: &Contestant| *name == one.id || *name == one.name();
                if self.contestants.iter().any(is_known) {
                    return Err(format!(
                        "the contestant '{name}' is named already; a name without its variant \
                         means all of them"
                    ));
                }
                let known: Vec<String> = self.contestants.iter().map(Contestant::name).collect();
                return Err(format!(
                    "there is no contestant '{name}'; there are {}",
                    known.join(", ")
                ));
            }
        }
        Ok(chosen)
    }

    /// Servers that take part in a scenario: `ID` means the variants that are for it, or those that
    /// are for none in particular. The error is a sentence.
    pub fn servers(&self, scenario: &str, names: &[String]) -> Result<Vec<Contestant>, String> {
        let mut chosen = self.select(names)?;
        if let Some(other) = chosen.iter().find(|one| one.kind() != Kind::Server) {
            return Err(format!(
                "{} is no server: {scenario} is between servers, and `moonwire lab list` has them",
                other.name()
            ));
        }
        let is_for =
            |one: &Contestant, scenario: Option<&str>| one.variant.scenario.as_deref() == scenario;
        let of_scenario: Vec<String> = chosen
            .iter()
            .filter(|one| is_for(one, Some(scenario)))
            .map(|one| one.id.clone())
            .collect();
        chosen.retain(|one| {
            let wanted = of_scenario.contains(&one.id).then_some(scenario);
            let is_meant = is_for(one, wanted) && !one.variant.on_request;
            is_meant || is_named(one, names)
        });
        Ok(chosen)
    }

    /// The one contestant of this kind with this name: `ID` means its first variant that is for no
    /// scenario in particular. The error is a sentence.
    pub fn one(&self, kind: Kind, name: &str) -> Result<Contestant, String> {
        let of_kind = || self.contestants.iter().filter(|one| one.kind() == kind);
        let general = |one: &&Contestant| one.id == name && one.variant.scenario.is_none();
        let found = of_kind().find(|one| one.name() == name);
        let found = found.or_else(|| of_kind().find(general));
        found.cloned().ok_or_else(|| {
            let kind = match kind {
                Kind::Server => "server",
                Kind::Proxy => "proxy",
                Kind::Client => "client",
            };
            let known: Vec<String> = of_kind().map(Contestant::name).collect();
            let known = known.join(", ");
            format!("there is no {kind} '{name}' in the lab; there are {known}")
        })
    }
}

/// Whether it is named with its variant.
fn is_named(one: &Contestant, names: &[String]) -> bool {
    !one.variant.name.is_empty() && names.contains(&one.name())
}

/// A folder as it was read.
struct Folder {
    id: String,
    /// For errors.
    place: String,
    /// What installs it if anything does.
    install: String,
    files: Vec<(String, String)>,
    /// Of all its files, text or not.
    sha256: String,
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
        let is_for_install = |name: &str| INSTALL_FILES.contains(&name);
        self.files.retain(|(name, _)| !is_for_install(name));
        let line_of = |before: &str| 1 + before.matches('\n').count();
        let mut file: ContestantFile = toml::from_str(&text).map_err(|error| {
            let before = error.span().and_then(|span| text.get(..span.start));
            let line = line_of(before.unwrap_or_default());
            format!("{place}:{line}: {}", error.message())
        })?;
        file.check(&template::names()).map_err(|fault| {
            let before = text
                .split(&fault.at)
                .next()
                .filter(|it| it.len() < text.len());
            let line = line_of(before.unwrap_or_default());
            format!("{place}:{line}: {}", fault.reason)
        })?;
        let variants = file.variants.clone().into_iter();
        let one = |variant| Contestant {
            id: self.id.clone(),
            file: file.clone(),
            files: self.files.clone(),
            variant,
            install: file.install.as_ref().map(|_| self.install.clone()),
            sha256: self.sha256.clone(),
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
        let mut contents = Vec::new();
        for file in std::fs::read_dir(&path).map_err(|error| unreadable(&path, error))? {
            let file = file.map_err(|error| unreadable(&path, error))?.path();
            let name = file.file_name().unwrap_or_default().to_string_lossy();
            // Folders are none of it: what is installed beside is named by its version.
            let Ok(bytes) = std::fs::read(&file) else {
                continue;
            };
            contents.push((name.clone().into_owned(), bytes.clone()));
            // Programs that are no text are named by their own path.
            if let Ok(text) = String::from_utf8(bytes) {
                files.push((name.into_owned(), text));
            }
        }
        let id = path.file_name().unwrap_or_default().to_string_lossy();
        let install = format!("{INSTALL} --contestant-folder {} {id}", place.display());
        folders.push(Folder {
            id: id.into_owned(),
            install,
            place: path.display().to_string(),
            files,
            sha256: digest(contents),
        });
    }
    Ok(folders)
}

/// Names and contents of all files of a shipped contestant.
fn shipped_files(folder: &Dir<'_>) -> Vec<(String, Vec<u8>)> {
    let file = |file: &File<'_>| {
        let name = file.path().file_name().unwrap_or_default();
        (
            name.to_string_lossy().into_owned(),
            file.contents().to_owned(),
        )
    };
    folder.files().map(file).collect()
}

/// One sum over all files, in the order of their names: what
/// `sha256sum * | sha256sum` prints in their folder.
fn digest(mut files: Vec<(String, Vec<u8>)>) -> String {
    files.sort();
    let hex = |sum: &[u8]| -> String { sum.iter().map(|byte| format!("{byte:02x}")).collect() };
    let line = |(name, contents): &(String, Vec<u8>)| {
        format!("{}  {name}\n", hex(&Sha256::digest(contents)))
    };
    let lines: String = files.iter().map(line).collect();
    hex(&Sha256::digest(lines))
}

const DESCRIPTION: &str = "contestant.toml";
const INSTALL: &str = "cargo xtask peers";
/// Manifests and locks.
const INSTALL_FILES: &[&str] = &[
    "package.json",
    "package-lock.json",
    "requirements.txt",
    "go.mod",
    "go.sum",
    "Cargo.toml",
    "Cargo.lock",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sum_is_that_of_sha256sum() {
        let files = [("b", "2\n"), ("a", "1\n")];
        let files = files.map(|(name, text)| (name.to_owned(), text.as_bytes().to_vec()));
        let sum = "90efceaa49f4aae572a85797a92478a2f6ff255e5d7ee48e8e98293d728c580c";
        assert_eq!(digest(files.to_vec()), sum);
    }

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
        for part in ["no contestant 'apache'", "uwebsockets-js/1-thread"] {
            assert!(sentence.contains(part), "{sentence}");
        }
        let twice = select(&["moonwire", "moonwire"]).unwrap_err();
        assert!(twice.starts_with("the contestant 'moonwire' is named already"));
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
        for (right, wrong, part) in [
            (
                "ws://",
                "http://",
                ":6: `url` of [plain] must begin with ws://",
            ),
            (
                "{port}/\"\n[tls]",
                "{prot}/\"\n[tls]",
                ":6: nothing stands for {prot}",
            ),
            ("[tls]", "[tls_]", ":7: unknown field `tls_`"),
            (
                "version = [\"true\"]",
                "version = []",
                ":3: `version` needs a command",
            ),
            (
                "\"server\"",
                "\"proxy\"",
                ":4: `url` of [plain] is for servers",
            ),
            (
                "version =",
                "workers_max = 0\nversion =",
                ":3: `workers_max` must be",
            ),
            ("[plain]", "[gc]\n[plain]", ":4: missing field `lines`"),
            (
                "[plain]",
                "[gc]\nlines = \"java\"\n[plain]",
                ":5: unknown variant `java`, expected one of `node`, `go`, `pause`",
            ),
            (
                "[plain]",
                "[gc]\nlines = \"go\"\npath = \"/\"\n[plain]",
                ":6: unknown field `path`",
            ),
            (
                "name = \"only\"",
                "name = \"a\"\n[[variants]]\nname = \"a\"",
                ":10: two of",
            ),
            (
                "start = [\"python3\", \"{folder}/server.py\", \"{port}\"]",
                "start = []",
                ":4: `start`",
            ),
        ] {
            let sentence = sentence(Some(&MINE.replacen(right, wrong, 1)));
            assert!(sentence.contains(part), "{wrong}: {sentence}");
        }
    }

    #[test]
    fn a_control_has_no_process_and_variants_may_be_left_out() {
        let folder = tempfile::tempdir().unwrap();
        let write = |id: &str, text: &str| {
            std::fs::create_dir(folder.path().join(id)).unwrap();
            std::fs::write(folder.path().join(id).join(DESCRIPTION), text).unwrap();
        };
        write("nothing", "kind = \"proxy\"\ndescription = \"of a test\"\n");
        write("mine", MINE.split("[[variants]]").next().unwrap());
        let silent = "kind = \"proxy\"\ndescription = \"of a test\"\n[gc]\nlines = \"go\"\n";
        write("silent", silent);
        let sentence = Roster::load(Some(folder.path())).unwrap_err();
        let expected =
            "silent/contestant.toml:3: `gc` is for servers and proxies that have a process";
        assert!(sentence.ends_with(expected), "{sentence}");
        std::fs::remove_dir_all(folder.path().join("silent")).unwrap();
        let roster = Roster::load(Some(folder.path())).unwrap();
        assert!(!roster.one(Kind::Proxy, "nothing").unwrap().has_process());
        let mine = roster.one(Kind::Server, "mine").unwrap();
        assert_eq!((mine.name().as_str(), mine.has_process()), ("mine", true));
        let sentence = roster.one(Kind::Client, "mine").unwrap_err();
        assert!(
            sentence.starts_with("there is no client 'mine'"),
            "{sentence}"
        );
        assert_eq!(
            roster.one(Kind::Server, "moonwire").unwrap().name(),
            "moonwire"
        );
        let one = roster.one(Kind::Server, "moonwire/weight-0.8").unwrap();
        assert_eq!(one.connections(), Some(96));
    }

    #[test]
    fn a_scenario_has_its_own_variants_and_servers_only() {
        let roster = Roster::load(None).unwrap();
        let names = |scenario: &str, name: &str| -> Result<Vec<String>, String> {
            let chosen = roster.servers(scenario, &[name.to_owned()])?;
            Ok(chosen.iter().map(Contestant::name).collect())
        };
        assert_eq!(names("latency", "moonwire").unwrap(), ["moonwire"]);
        assert_eq!(names("payload-doubling", "moonwire").unwrap().len(), 4);
        assert_eq!(names("payload-doubling", "ws").unwrap(), ["ws"]);
        for one in ["moonwire/weight-0.5", "moonwire/native"] {
            assert_eq!(names("latency", one).unwrap(), [one]);
        }
        assert!(names("latency", "nginx").unwrap_err().contains("no server"));
    }

    #[test]
    fn a_battle_has_what_is_on_request_only_by_its_name() {
        let roster = Roster::load(None).unwrap();
        let names = |names: &[&str]| -> Vec<String> {
            let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
            let chosen = roster.participants(&names).unwrap();
            chosen.iter().map(Contestant::name).collect()
        };
        assert_eq!(names(&["moonwire", "ws"]), ["moonwire", "ws"]);
        let both = names(&["moonwire", "moonwire/native"]);
        assert_eq!(both, ["moonwire", "moonwire/native"]);
        let twice = ["moonwire/native".to_owned(), "moonwire/native".to_owned()];
        assert!(roster.participants(&twice).is_err());
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
