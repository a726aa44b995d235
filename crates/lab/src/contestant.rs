//! Who takes part in a contest: a description, and the small programs and configurations that
//! belong to it, in a folder of their own.

mod certificate;
mod file;
mod roster;
mod running;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

pub(crate) use self::certificate::{paths as certificate_paths, write as write_certificate};
use self::file::{ContestantFile, Endpoint, Kind, Variant};
pub use self::roster::Roster;
pub(crate) use self::running::{RunningContestant, StartError};
use crate::link::LinkEnd;
use crate::process::{ChildSpec, Ready};

/// A contestant in one of its variants.
#[derive(Debug, Clone)]
pub struct Contestant {
    id: String,
    file: ContestantFile,
    /// Its programs and configurations: names and contents.
    files: Vec<(String, String)>,
    variant: Variant,
}

/// What the templates of a contestant are filled with.
#[derive(Debug, Clone)]
pub(crate) struct Surroundings {
    /// The moonwire that is a contestant: this program, normally.
    pub(crate) program: PathBuf,
    /// What `cargo xtask peers` has installed.
    pub(crate) peers: PathBuf,
    /// Where the contestant's files were written.
    pub(crate) folder: PathBuf,
    /// In PEM.
    pub(crate) certificate: PathBuf,
    /// In PEM.
    pub(crate) key: PathBuf,
    /// Processors of the machine.
    pub(crate) processors: usize,
    /// Where the server is to listen.
    pub(crate) port: u16,
}

impl Contestant {
    /// `ID/VARIANT`.
    pub fn name(&self) -> String {
        format!("{}/{}", self.id, self.variant.name)
    }

    /// What it is, in a few words.
    pub fn description(&self) -> &str {
        &self.file.description
    }

    /// The connections that it is measured with when nothing else is said.
    pub(crate) fn connections(&self) -> Option<u32> {
        self.variant.connections
    }

    /// What it is called in files.
    pub(crate) fn file_name(&self) -> String {
        format!("{}_{}", self.id, self.variant.name)
    }

    /// Its version as it tells it itself; the error is a sentence that says how it is installed.
    pub(crate) fn version(&self, around: &Surroundings) -> Result<String, String> {
        let command = self.fill_all(&self.file.version, around);
        let answer = command.split_first().and_then(|(program, args)| {
            let mut command = Command::new(program);
            command.args(args).stdin(Stdio::null());
            command.output().ok()
        });
        let answer = answer.filter(|answer| answer.status.success());
        let said = answer.map(|answer| String::from_utf8_lossy(&answer.stdout).trim().to_owned());
        said.filter(|said| !said.is_empty()).ok_or_else(|| {
            let install = self.file.install.as_deref();
            let install =
                install.map_or_else(String::new, |how| format!("; install it with `{how}`"));
            format!("the contestant {} is not here{install}", self.id)
        })
    }

    /// Its programs and configurations: names and contents.
    pub(crate) fn files(&self, around: &Surroundings) -> Vec<(&str, String)> {
        let is_template = |name: &str| self.file.templates.iter().any(|it| it == name);
        let content = |name: &str, text: &str| match is_template(name) {
            true => self.fill(text, around),
            false => text.to_owned(),
        };
        let files = self.files.iter();
        files
            .map(|(name, text)| (name.as_str(), content(name, text)))
            .collect()
    }

    /// How it is started.
    pub(crate) fn child(&self, tls: bool, around: &Surroundings, cpus: &[usize]) -> ChildSpec {
        let mut command = self.fill_all(&self.endpoint(tls).start, around).into_iter();
        let env = self.file.env.iter();
        let env = env.map(|(name, value)| (name.into(), self.fill(value, around).into()));
        ChildSpec {
            program: command.next().unwrap_or_default().into(),
            args: command.map(OsString::from).collect(),
            env: env.collect(),
            cpus: cpus.to_vec(),
            at: LinkEnd::default(),
            ready: match &self.file.ready {
                Some(text) => Ready::Line(text.clone()),
                None => Ready::Port((Ipv4Addr::LOCALHOST, around.port).into()),
            },
            ready_timeout: READY_TIMEOUT,
        }
    }

    /// Where its echo is.
    pub(crate) fn url(&self, tls: bool, around: &Surroundings) -> String {
        self.fill(&self.endpoint(tls).url, around)
    }

    fn endpoint(&self, tls: bool) -> &Endpoint {
        match self.file.kind {
            Kind::Server if tls => &self.file.tls,
            Kind::Server => &self.file.plain,
        }
    }

    fn fill_all(&self, texts: &[String], around: &Surroundings) -> Vec<String> {
        texts.iter().map(|text| self.fill(text, around)).collect()
    }

    /// Puts values in the place of their names in braces; the variant's own first, as they may name
    /// others.
    fn fill(&self, text: &str, around: &Surroundings) -> String {
        let path = |path: &Path| path.display().to_string();
        let modules = around.peers.join("contestants").join(&self.id);
        let common = BTreeMap::from([
            ("moonwire", path(&around.program)),
            ("modules", path(&modules.join("node_modules"))),
            ("folder", path(&around.folder)),
            ("certificate", path(&around.certificate)),
            ("key", path(&around.key)),
            ("processors", around.processors.to_string()),
            ("port", around.port.to_string()),
        ]);
        let mut filled = text.to_owned();
        for (name, value) in &self.variant.values {
            filled = filled.replace(&format!("{{{name}}}"), value);
        }
        for (name, value) in common {
            filled = filled.replace(&format!("{{{name}}}"), &value);
        }
        filled
    }
}

/// A virtual machine that is busy starts Node in a second or two.
const READY_TIMEOUT: Duration = Duration::from_secs(30);

#[cfg(test)]
mod tests {
    use super::*;

    fn around() -> Surroundings {
        Surroundings {
            program: "/bin/moonwire".into(),
            peers: "/peers".into(),
            folder: "/results/files".into(),
            certificate: "/results/certificate.pem".into(),
            key: "/results/key.pem".into(),
            processors: 8,
            port: 5083,
        }
    }

    fn select(names: &[&str]) -> Result<Vec<Contestant>, String> {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        Roster::load(None).unwrap().select(&names)
    }

    #[test]
    fn every_template_is_filled_and_every_file_is_there() {
        for contestant in Roster::load(None).unwrap().contestants() {
            for tls in [false, true] {
                let child = contestant.child(tls, &around(), &[1]);
                let url = contestant.url(tls, &around());
                assert!(
                    url.starts_with(if tls { "wss://" } else { "ws://" }),
                    "{url}"
                );
                let texts = child
                    .args
                    .iter()
                    .map(|arg| arg.to_str().unwrap().to_owned());
                let texts = texts.chain([url]);
                for text in texts {
                    assert!(!text.contains(['{', '}']), "{}: {text}", contestant.name());
                }
            }
            let files = contestant.files(&around());
            for name in &contestant.file.templates {
                let (_, text) = files.iter().find(|(file, _)| file == name).unwrap();
                assert!(!text.contains(['{', '}']), "{}: {text}", contestant.name());
            }
        }
    }

    #[test]
    fn the_variants_are_those_of_the_published_benchmark() {
        let names = |id: &str| -> Vec<(String, Option<u32>)> {
            let chosen = select(&[id]).unwrap();
            chosen
                .iter()
                .map(|one| (one.variant.name.clone(), one.connections()))
                .collect()
        };
        let ours = names("moonwire");
        let connections: Vec<_> = ours.iter().map(|(_, connections)| *connections).collect();
        assert_eq!(connections, [Some(120), Some(120), Some(96), Some(96)]);
        let threads = |name: &str| {
            let one = &select(&[name]).unwrap()[0];
            one.child(false, &around(), &[]).args[2].clone()
        };
        assert_eq!(threads("uwebsockets-js/1-thread"), "1");
        assert_eq!(threads("uwebsockets-js/n-threads"), "8");
    }

    #[test]
    fn what_is_not_installed_says_how_it_is() {
        let contestant = &select(&["uwebsockets-js"]).unwrap()[0];
        let sentence = contestant.version(&around()).unwrap_err();
        assert!(sentence.ends_with("`cargo xtask peers`"), "{sentence}");
    }
}
