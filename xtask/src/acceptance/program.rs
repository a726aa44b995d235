//! The programs under test, built for release, and the processes made of them.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::run_file::RunFile;
use crate::place;

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

    /// The foreign echo server with a fault.
    pub(crate) fn faulty(&self, arguments: &[&str]) -> Result<Server> {
        let program = self.release.join("examples/faulty_server");
        Server::start(Command::new(program).args(arguments))
    }

    /// The attacker, against a server.
    pub(crate) fn attacker(&self, server: &Server, arguments: &[&str]) -> Command {
        let address = server.url.split_once("://").map_or("", |(_, rest)| rest);
        let mut command = Command::new(self.release.join("examples/attacker"));
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
        let file = self.results.path().join("run.json");
        let mut command = self.moonwire(core);
        command
            .args(["load", url])
            .args(arguments.split(' '))
            .arg("--json")
            .arg(&file);
        let output = command.stdin(Stdio::null()).output()?;
        let text = std::fs::read_to_string(&file).with_context(|| {
            let said = [output.stdout.as_slice(), output.stderr.as_slice()].concat();
            format!(
                "{command:?} left no Run file:\n{}",
                String::from_utf8_lossy(&said)
            )
        })?;
        std::fs::remove_file(&file)?;
        RunFile::parse(&text)
    }

    fn moonwire(&self, core: Option<u8>) -> Command {
        pinned(core, self.release.join("moonwire").as_os_str())
    }
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

/// A server in a process of its own, killed when dropped.
pub(crate) struct Server {
    child: Child,
    /// Open as long as a foreign server shall run.
    stdin: Option<ChildStdin>,
    lines: Receiver<String>,
    pub(crate) url: String,
}

impl Server {
    fn start(command: &mut Command) -> Result<Self> {
        let mut child = command
            .current_dir(place::root())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot run {command:?}"))?;
        let stdin = child.stdin.take();
        let lines = lines(&mut child);
        let mut server = Self {
            child,
            stdin,
            lines,
            url: String::new(),
        };
        while server.url.is_empty() {
            let line = server.lines.recv_timeout(PATIENCE);
            let line = line.with_context(|| format!("{command:?} does not get ready"))?;
            if let Some((_, rest)) = line.split_once("listening on ") {
                let url = rest.split_whitespace().next().unwrap_or_default();
                server.url = url.trim_end_matches('/').to_string();
            }
        }
        Ok(server)
    }

    /// The folder of the process in `/proc`.
    pub(crate) fn proc(&self) -> PathBuf {
        Path::new("/proc").join(self.child.id().to_string())
    }

    /// Ends a foreign server and gives the number that it prints behind `name`.
    pub(crate) fn count(mut self, name: &str) -> Result<u64> {
        self.stdin = None;
        loop {
            let line = self
                .lines
                .recv_timeout(PATIENCE)
                .with_context(|| format!("no {name}"))?;
            if let Some(rest) = line.strip_prefix(name) {
                return rest.trim().parse().with_context(|| line.clone());
            }
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// Both outputs line by line, read to their end so that the child never blocks on a pipe.
fn lines(child: &mut Child) -> Receiver<String> {
    let (sender, lines) = mpsc::channel();
    let stdout = child
        .stdout
        .take()
        .map(|output| Box::new(output) as Box<dyn Read + Send>);
    let stderr = child
        .stderr
        .take()
        .map(|output| Box::new(output) as Box<dyn Read + Send>);
    for output in [stdout, stderr].into_iter().flatten() {
        let sender = sender.clone();
        thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                sender.send(line).ok();
            }
        });
    }
    lines
}

const PATIENCE: Duration = Duration::from_secs(30);
