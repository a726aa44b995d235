//! Two hosts: network namespaces with a cable between them, gone when the test is.
#![allow(clippy::print_stdout, reason = "a test that is left out says why")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::harness::{Server, root};

/// Both are removed when this is dropped, also by a test that fails.
pub(super) struct Hosts {
    lab: String,
    agent: String,
    /// Whether there are namespaces of time.
    has_time: bool,
}

impl Hosts {
    /// Makes them; `None` where this user may not, which has been said.
    pub(super) fn join() -> Option<Self> {
        let number = HOSTS.fetch_add(1, Ordering::Relaxed);
        let name = |role: &str| format!("moonwire-{}-{number}-{role}", std::process::id());
        let (lab, agent) = (name("lab"), name("agent"));
        let hosts = Self {
            has_time: is_done("unshare --time --monotonic 86400 true"),
            lab,
            agent,
        };
        let Self { lab, agent, .. } = &hosts;
        let steps = [
            format!("ip netns add {lab}"),
            format!("ip netns add {agent}"),
            format!("ip link add eth0 netns {lab} type veth peer name eth0 netns {agent}"),
            format!("ip -n {lab} address add {LAB}/30 dev eth0"),
            format!("ip -n {agent} address add {AGENT}/30 dev eth0"),
            format!("ip -n {lab} link set lo up"),
            format!("ip -n {agent} link set lo up"),
            format!("ip -n {lab} link set eth0 up"),
            format!("ip -n {agent} link set eth0 up"),
        ];
        if let Some(step) = steps.iter().find(|step| !is_done(step)) {
            println!("skipped: `{step}` cannot be done here");
            return None;
        }
        Some(hosts)
    }

    /// Nothing that either of them sends arrives any more.
    pub(super) fn part(&self) {
        for (from, to) in [(&self.lab, AGENT), (&self.agent, LAB)] {
            assert!(is_done(&format!(
                "ip -n {from} route add blackhole {to}/32"
            )));
        }
    }

    pub(super) fn agent_address(&self) -> &'static str {
        AGENT
    }

    /// An agent whose files go into this folder, with a monotonic clock of its own; it knows the
    /// contestants of `own`, too.
    pub(super) fn agent(&self, folder: &Path, token: &Path, own: Option<&Path>) -> Server {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.agent]);
        if self.has_time {
            command.args(["unshare", "--time", "--monotonic", "86400"]);
        }
        command.arg(env!("CARGO_BIN_EXE_moonwire"));
        command.args(["lab", "agent", "--listen", &format!("{AGENT}:0")]);
        command.arg("--token-file").arg(token);
        if let Some(own) = own {
            command.arg("--contestant-folder").arg(own);
        }
        command.env("TMPDIR", folder).current_dir(root());
        Server::start(command.stdin(Stdio::null()))
    }

    /// `moonwire lab` on the other host.
    pub(super) fn lab(&self) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.lab]);
        command.args([env!("CARGO_BIN_EXE_moonwire"), "lab"]);
        command.current_dir(root()).stdin(Stdio::null());
        command
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        for name in [&self.lab, &self.agent] {
            is_done(&format!("ip netns delete {name}"));
        }
    }
}

/// A file with a token.
pub(super) fn token_file(folder: &Path, token: &str) -> PathBuf {
    // Its name, which is in results, says nothing of what is in it.
    let path = folder.join(format!("{}-bytes.token", token.len()));
    fs::write(&path, format!("{token}\n")).expect("the folder is there");
    path
}

/// The command lines of servers whose files are in this folder.
pub(super) fn left_in(folder: &Path) -> Vec<String> {
    let folder = folder.to_str().expect("a plain path");
    let processes = fs::read_dir("/proc").expect("Linux").flatten();
    let commands = processes.filter_map(|process| {
        let command = fs::read(process.path().join("cmdline")).ok()?;
        Some(String::from_utf8_lossy(&command).replace('\0', " "))
    });
    let servers = commands.filter(|command| command.contains(" serve --config "));
    servers.filter(|command| command.contains(folder)).collect()
}

fn is_done(line: &str) -> bool {
    let mut words = line.split_whitespace();
    let mut command = Command::new(words.next().expect("a program"));
    command.args(words).stdin(Stdio::null());
    command.stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

static HOSTS: AtomicU32 = AtomicU32::new(0);
const LAB: &str = "10.213.0.1";
const AGENT: &str = "10.213.0.2";
