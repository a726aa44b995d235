//! The programs under test, built for release, and the processes made of them.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::run_file::RunFile;
use crate::place;
use crate::server::Server;

/// Paths of the programs.
pub(crate) struct Programs {
    release: PathBuf,
    results: tempfile::TempDir,
}

impl Programs {
    pub(crate) fn build() -> Result<Self> {
        let mut build = place::cargo();
        build.args(["build", "--release", "-p", "moonwire", "--bin", "moonwire"]);
        build.args(["--example", "faulty_server", "--example", "attacker"]);
        build.args(["--example", "subscribers"]);
        ensure!(build.status()?.success(), "the release build failed");
        let results = tempfile::tempdir().context("a folder for Run files")?;
        Ok(Self {
            release: place::target()?.join("release"),
            results,
        })
    }

    /// `moonwire serve` on a port that the system chooses.
    pub(crate) fn serve(&self, core: Option<u8>, arguments: &[&str]) -> Result<Server> {
        let mut command = self.moonwire(core);
        Server::start(
            command
                .args(["serve", "--listen", "127.0.0.1:0"])
                .args(arguments),
        )
    }

    /// Another server, which gives way to all that shares its core.
    pub(crate) fn serve_aside(&self, core: u8) -> Result<Server> {
        let mut command = idle(core);
        command.arg(self.release.join("moonwire"));
        Server::start(command.args(["serve", "--listen", "127.0.0.1:0", "--workers", "1"]))
    }

    /// The foreign echo server with a fault.
    pub(crate) fn faulty(&self, arguments: &[&str]) -> Result<Server> {
        Server::start(Command::new(self.faulty_program()).args(arguments))
    }

    /// Where the foreign echo server is.
    pub(crate) fn faulty_program(&self) -> PathBuf {
        self.release.join("examples/faulty_server")
    }

    /// The attacker, against a server; on a core that others use, it gives way to them.
    pub(crate) fn attacker(
        &self,
        server: &Server,
        core: Option<u8>,
        arguments: &[&str],
    ) -> Command {
        let address = server.url.split_once("://").map_or("", |(_, rest)| rest);
        let program = self.release.join("examples/attacker");
        let mut command = match core {
            None => Command::new(program),
            Some(core) => {
                let mut command = idle(core);
                command.arg(program);
                command
            }
        };
        command.arg(address).args(arguments);
        command
    }

    /// Subscribers of a service, see there; on a core of their own.
    pub(crate) fn subscribers(&self, server: &Server, core: u8, arguments: &[&str]) -> Command {
        let address = server.url.split_once("://").map_or("", |(_, rest)| rest);
        let program = self.release.join("examples/subscribers");
        let mut command = pinned(Some(core), program.as_os_str());
        command.arg(address).args(arguments);
        command
    }

    /// The attacks that it knows, with their rates per second.
    pub(crate) fn attacks(&self) -> Result<Vec<(String, u32)>> {
        let mut list = Command::new(self.release.join("examples/attacker"));
        let output = list.arg("list").output().context("the attacker")?;
        let text = String::from_utf8(output.stdout).context("the list of attacks")?;
        let lines = text.lines().filter_map(|line| {
            let mut fields = line.split('\t');
            Some((fields.next()?.to_string(), fields.next()?.parse().ok()?))
        });
        Ok(lines.collect())
    }

    /// `moonwire load URL ARGUMENTS`, run to its end.
    pub(crate) fn load(&self, core: Option<u8>, url: &str, arguments: &str) -> Result<RunFile> {
        eprintln!("   moonwire load {url} {arguments}");
        // Of its own, because two may run at the same time.
        let file = tempfile::NamedTempFile::new_in(&self.results)?;
        let mut command = self.moonwire(core);
        command
            .args(["load", url])
            .args(arguments.split(' '))
            .arg("--json")
            .arg(file.path());
        run_file_of(command, file.path())
    }

    /// `moonwire lab`.
    pub(crate) fn lab_command(&self) -> Command {
        let mut command = self.moonwire(None);
        command.arg("lab");
        command
    }

    /// `moonwire lab ARGUMENTS`, run to its end.
    pub(crate) fn lab(&self, arguments: &[&str]) -> Result<RunFile> {
        eprintln!("   moonwire lab {}", arguments.join(" "));
        let folder = tempfile::tempdir_in(&self.results)?;
        let file = folder.path().join("lab.json");
        let mut command = self.lab_command();
        command.args(arguments).arg("--json").arg(&file);
        command.arg("--out").arg(folder.path().join("out"));
        run_file_of(command, &file)
    }

    /// `moonwire compare A B --json`.
    pub(crate) fn compare(&self, before: &Path, after: &Path) -> Result<Value> {
        let mut command = self.moonwire(None);
        command.arg("compare").args([before, after]).arg("--json");
        let output = command.stdin(Stdio::null()).output()?;
        serde_json::from_slice(&output.stdout).with_context(|| {
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            format!("{command:?}: {said}")
        })
    }

    /// Where `moonwire` is.
    pub(crate) fn program(&self) -> PathBuf {
        self.release.join("moonwire")
    }

    fn moonwire(&self, core: Option<u8>) -> Command {
        pinned(core, self.release.join("moonwire").as_os_str())
    }
}

/// Runs a command, and reads the file that it was to write.
fn run_file_of(mut command: Command, file: &Path) -> Result<RunFile> {
    let output = command.stdin(Stdio::null()).output()?;
    let text = std::fs::read_to_string(file).unwrap_or_default();
    ensure!(
        !text.is_empty(),
        "{command:?} left no Run file:\n{}",
        String::from_utf8_lossy(&[output.stdout, output.stderr].concat())
    );
    RunFile::parse(&text)
}

/// A command on one core, or on any.
pub(crate) fn pinned(core: Option<u8>, program: &OsStr) -> Command {
    let Some(core) = core else {
        return Command::new(program);
    };
    let mut command = Command::new("taskset");
    command.arg("-c").arg(core.to_string()).arg(program);
    command
}

/// The beginning of a command that gets what nobody else wants of a core.
pub(crate) fn idle(core: u8) -> Command {
    let mut command = pinned(Some(core), OsStr::new("chrt"));
    command.args(["--idle", "0"]);
    command
}
