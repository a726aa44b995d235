//! `cargo xtask peers`: the real peers that the tests talk to and the contestants of the lab, all
//! pinned, into `target/peers`.
//!
//! Their definitions stand in `xtask/peers` and `lab/contestants`. An install is done again only
//! when a definition has changed or something is missing, so that calling it twice costs a second.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context, Result, bail, ensure};

mod contestants;
mod recipe;

use crate::place;

/// Where the browsers are; Debian's packages put them there.
const CHROMIUM: &str = "/usr/bin/chromium";
const FIREFOX: &str = "/usr/bin/firefox-esr";

/// A peer with what the tests need it for.
struct Peer {
    name: &'static str,
    source: &'static str,
    purpose: &'static str,
    version: fn(&Folder) -> Result<String>,
}

const PEERS: &[Peer] = &[
    Peer {
        name: "websockets",
        source: "xtask/peers/requirements.txt",
        purpose: "a client in Python",
        version: |folder| {
            let program = "import websockets.version; print(websockets.version.version)";
            said(Command::new(folder.python()).args(["-c", program]))
        },
    },
    Peer {
        name: "kosoku",
        source: "xtask/peers/requirements.txt",
        purpose: "runs the Autobahn test suite",
        version: |folder| {
            let program = "from importlib.metadata import version; print(version('kosoku'))";
            said(Command::new(folder.python()).args(["-c", program]))
        },
    },
    Peer {
        name: "cbor2",
        source: "xtask/peers/requirements.txt",
        purpose: "the messages of the LAppS protocol in Python",
        version: |folder| {
            let program = "from importlib.metadata import version; print(version('cbor2'))";
            said(Command::new(folder.python()).args(["-c", program]))
        },
    },
    Peer {
        name: "ws",
        source: "xtask/peers/package-lock.json",
        purpose: "a server in JavaScript",
        version: |folder| node_version(folder, "ws"),
    },
    Peer {
        name: "cbor-js",
        source: "xtask/peers/package-lock.json",
        purpose: "the same in a page",
        version: |folder| node_version(folder, "cbor-js"),
    },
    Peer {
        name: "playwright-core",
        source: "xtask/peers/package-lock.json",
        purpose: "drives the browser",
        version: |folder| node_version(folder, "playwright-core"),
    },
    Peer {
        name: "chromium",
        source: "apt",
        purpose: "a page as a client",
        version: |_| said(Command::new(CHROMIUM).arg("--version")),
    },
    Peer {
        name: "firefox",
        source: "apt",
        purpose: "another page as a client",
        version: |_| said(Command::new(FIREFOX).arg("--version")),
    },
    Peer {
        name: "openssl",
        source: "apt",
        purpose: "a certificate for the Autobahn suite's server",
        version: |_| said(Command::new("openssl").arg("version")),
    },
];

/// What the arguments say: everything, or some contestants.
pub(crate) fn run_with(arguments: &[&str]) -> Result<ExitCode> {
    match arguments {
        [] => install(),
        ["--list"] => list(),
        ["--check"] => check(),
        ["--contestant-folder", folder, ids @ ..] => {
            install_contestants(Some(Path::new(folder)), ids)
        }
        ids => install_contestants(None, ids),
    }
}

/// Installs what is missing.
pub(crate) fn install() -> Result<ExitCode> {
    let folder = Folder(place::target()?.join("peers"));
    let contestants = contestants::load(None, &[], &folder.0)?;
    let is_complete = folder.is_current() && problems(&folder).is_empty();
    if is_complete && contestants::missing(&contestants).is_empty() {
        println!("peers: all there in {}", folder.0.display());
        return Ok(ExitCode::SUCCESS);
    }
    if !is_complete {
        install_peers(&folder)?;
    }
    let installed = contestants::install(&contestants)?;
    // A contestant that could not be installed has said why.
    match check()? {
        ExitCode::SUCCESS => Ok(installed),
        failure => Ok(failure),
    }
}

/// Installs these contestants, or all of a folder.
fn install_contestants(folder: Option<&Path>, ids: &[&str]) -> Result<ExitCode> {
    if let Some(flag) = ids.iter().find(|id| id.starts_with('-')) {
        bail!("`cargo xtask peers` does not know {flag}; `cargo xtask help` has what it knows");
    }
    let peers = place::target()?.join("peers");
    let contestants = contestants::load(folder, ids, &peers)?;
    let installed = contestants::install(&contestants)?;
    if installed == ExitCode::SUCCESS {
        let place = peers.join("contestants");
        println!("contestants: all there in {}", place.display());
    }
    Ok(installed)
}

/// What the tests talk to.
fn install_peers(folder: &Folder) -> Result<()> {
    std::fs::create_dir_all(&folder.0)?;
    let requirements = definition("requirements.txt");
    let environment = folder.0.join("python");
    python_environment(&environment, &requirements, &[]).context("websockets, kosoku and cbor2")?;
    let node = folder.0.join("node");
    node_packages(&definition(""), &node).context("ws, cbor-js and playwright-core")?;
    if !Path::new(CHROMIUM).exists() {
        apt(&["chromium"]).context("a browser")?;
    }
    if !Path::new(FIREFOX).exists() {
        apt(&["firefox-esr"]).context("a browser")?;
    }
    if said(Command::new("openssl").arg("version")).is_err() {
        apt(&["openssl"])?;
    }
    folder.mark_current()
}

/// Says what is there; fails when something is missing.
fn check() -> Result<ExitCode> {
    let folder = Folder(place::target()?.join("peers"));
    for peer in PEERS {
        let version = (peer.version)(&folder).unwrap_or_else(|_| "missing".into());
        println!("{:16} {version}", peer.name);
    }
    let contestants = contestants::load(None, &[], &folder.0)?;
    let mut problems = problems(&folder);
    problems.extend(contestants::missing(&contestants));
    if problems.is_empty() {
        println!("and {} contestants of the lab", contestants.len());
        return Ok(ExitCode::SUCCESS);
    }
    println!("missing: {}; run `cargo xtask peers`", problems.join(", "));
    Ok(ExitCode::FAILURE)
}

/// Prints each peer, where its version is pinned, and what it is for.
fn list() -> Result<ExitCode> {
    for peer in PEERS {
        println!("{:16} {:30} {}", peer.name, peer.source, peer.purpose);
    }
    let peers = place::target()?.join("peers");
    for contestant in contestants::load(None, &[], &peers)? {
        println!("{}", contestant.line());
    }
    Ok(ExitCode::SUCCESS)
}

/// The Python that has our packages.
pub(crate) fn python() -> Result<PathBuf> {
    Ok(Folder(place::target()?.join("peers")).python())
}

/// A node that finds our packages.
pub(crate) fn node() -> Result<Command> {
    let mut node = Command::new("node");
    node.env(
        "NODE_PATH",
        place::target()?.join("peers/node/node_modules"),
    );
    Ok(node)
}

/// Names of the peers that do not answer.
fn problems(folder: &Folder) -> Vec<&'static str> {
    PEERS
        .iter()
        .filter(|peer| (peer.version)(folder).is_err())
        .map(|peer| peer.name)
        .collect()
}

/// Where the peers are installed, and from which definitions.
struct Folder(PathBuf);

impl Folder {
    fn python(&self) -> PathBuf {
        self.0.join("python/bin/python")
    }

    fn definitions() -> Result<String> {
        let files = ["requirements.txt", "package.json", "package-lock.json"].map(definition);
        let texts = files.into_iter().map(std::fs::read_to_string);
        let texts: std::io::Result<Vec<String>> = texts.collect();
        Ok(texts.context("the definitions of the peers")?.concat())
    }

    /// Whether the last complete install was made from the definitions of today.
    fn is_current(&self) -> bool {
        let installed = std::fs::read_to_string(self.0.join("installed"));
        matches!((installed, Self::definitions()), (Ok(was), Ok(is)) if was == is)
    }

    fn mark_current(&self) -> Result<()> {
        Ok(std::fs::write(
            self.0.join("installed"),
            Self::definitions()?,
        )?)
    }
}

fn definition(file: &str) -> PathBuf {
    place::root().join("xtask/peers").join(file)
}

/// A virtual environment with what `requirements` lists.
fn python_environment(environment: &Path, requirements: &Path, options: &[&str]) -> Result<()> {
    let make = || {
        run(Command::new("python3")
            .args(["-m", "venv", "--clear"])
            .arg(environment))
    };
    if make().is_err() {
        // Debian splits venv from python3.
        apt(&["python3", "python3-venv"])?;
        make()?;
    }
    let mut pip = Command::new(environment.join("bin/python"));
    pip.args(["-m", "pip", "install", "--quiet"]);
    pip.arg("--disable-pip-version-check").args(options);
    run(pip.arg("--requirement").arg(requirements))
}

/// Installs what the lock in `source` says into `modules`.
fn node_packages(source: &Path, modules: &Path) -> Result<()> {
    std::fs::create_dir_all(modules)?;
    for file in ["package.json", "package-lock.json"] {
        std::fs::copy(source.join(file), modules.join(file))?;
    }
    if said(Command::new("npm").arg("--version")).is_err() {
        apt(&["nodejs", "npm"])?;
    }
    run(Command::new("npm")
        .args([
            "ci",
            "--ignore-scripts",
            "--no-audit",
            "--no-fund",
            "--loglevel=error",
        ])
        .current_dir(modules))
}

fn node_version(folder: &Folder, package: &str) -> Result<String> {
    let program = format!("console.log(require('{package}/package.json').version)");
    said(
        Command::new("node")
            .args(["-e", &program])
            .current_dir(folder.0.join("node")),
    )
}

/// Installs Debian packages when we may, and says what to type when we may not.
fn apt(packages: &[&str]) -> Result<()> {
    let packages = packages.join(" ");
    let hint = format!("run `sudo apt-get install {packages}`, then this again");
    let root = said(Command::new("id").arg("-u"))? == "0";
    if !root || !Path::new("/usr/bin/apt-get").exists() {
        bail!("{packages} missing: {hint}");
    }
    let apt = |verb: &[&str]| {
        run(Command::new("apt-get")
            .env("DEBIAN_FRONTEND", "noninteractive")
            // Servers that come with a service are not started: in runlevel 1 none is.
            .env("RUNLEVEL", "1")
            .args(["--quiet", "--quiet", "--yes"])
            .args(verb)
            .stdout(Stdio::null()))
    };
    apt(&["update"])?;
    let mut verb = vec!["install", "--no-install-recommends"];
    verb.extend(packages.split(' '));
    apt(&verb).context(hint)
}

fn run(command: &mut Command) -> Result<()> {
    let status = command
        .status()
        .with_context(|| format!("cannot run {command:?}"))?;
    ensure!(status.success(), "{command:?} ended with {status}");
    Ok(())
}

/// What a command prints when it succeeds.
fn said(command: &mut Command) -> Result<String> {
    let output = command.stderr(Stdio::null()).output()?;
    ensure!(
        output.status.success(),
        "{command:?} ended with {}",
        output.status
    );
    Ok(String::from_utf8(output.stdout)?.trim().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_pinned() {
        for file in ["requirements.txt", "requirements-original.txt"] {
            let requirements = std::fs::read_to_string(definition(file)).unwrap();
            for line in requirements.lines() {
                assert!(line.starts_with('#') || line.contains("=="), "{line}");
            }
        }
        let manifest = std::fs::read_to_string(definition("package.json")).unwrap();
        let manifest: serde_json::Value = serde_json::from_str(&manifest).unwrap();
        for (name, version) in manifest["dependencies"].as_object().unwrap() {
            let version = version.as_str().unwrap();
            assert!(
                version.starts_with(|c: char| c.is_ascii_digit()),
                "{name} {version}"
            );
        }
    }

    #[test]
    fn what_is_not_there_is_named() {
        let folder = Folder("/nonexistent".into());
        assert!(!folder.is_current());
        assert!(problems(&folder).contains(&"websockets"));
    }
}
