//! Kills a part of each scenario in its middle: the server, the proxy, or the lab itself. What was
//! measured must be there and say that it is not whole, and nobody may be left behind.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::program::Programs;
use super::table::Table;

/// Who is killed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Victim {
    Server,
    Proxy,
    /// The generator is a part of it.
    Lab,
}

/// A scenario, short, and who takes part.
struct Case {
    arguments: &'static str,
    victims: &'static [Victim],
    /// From the start of the last process until the load is under way, a warm-up included.
    at_work: Duration,
}

impl Case {
    /// Of its scenario.
    fn name(&self) -> &'static str {
        self.arguments.split(' ').next().unwrap_or_default()
    }
}

const OF_SERVERS: &[Victim] = &[Victim::Server, Victim::Lab];
const OF_PROXIES: &[Victim] = &[Victim::Server, Victim::Proxy, Victim::Lab];

const CASES: [Case; 10] = [
    Case {
        arguments: "latency --contestants moonwire --connections 100 --batches 20 --rounds 2",
        victims: OF_SERVERS,
        at_work: Duration::from_secs(5),
    },
    Case {
        arguments: "battle-shortlived --contestants nginx --tls off --connections 30k --rounds 2",
        victims: OF_PROXIES,
        at_work: Duration::from_secs(2),
    },
    Case {
        arguments: "battle-messaging --contestants nginx --connections 2k --per-connection 1k \
                    --rounds 2",
        victims: OF_PROXIES,
        at_work: Duration::from_secs(5),
    },
    Case {
        arguments: "soak --contestants moonwire --tls off --connections 50 --duration 20s",
        victims: OF_SERVERS,
        at_work: Duration::from_secs(5),
    },
    Case {
        arguments: "idle --contestants moonwire --tls off --connections 100 --duration 20s \
                    --rounds 2",
        victims: OF_SERVERS,
        at_work: Duration::from_secs(5),
    },
    Case {
        arguments: "fan-out --contestants moonwire --connections 50 --duration 20s --rounds 2",
        victims: OF_SERVERS,
        at_work: Duration::from_secs(5),
    },
    Case {
        arguments: "slow-consumers --contestants moonwire --connections 60 --silent 5 \
                    --duration 20s --rounds 2",
        victims: OF_SERVERS,
        at_work: Duration::from_secs(5),
    },
    Case {
        arguments: "find-max --contestants moonwire --connections 20 --duration 5s",
        victims: OF_SERVERS,
        at_work: Duration::from_secs(5),
    },
    Case {
        // Its server is killed anyway.
        arguments: "reconnect-storm --contestants moonwire --connections 200 --tls off \
                    --conn-concurrency 100 --reconnect 100ms --kill-after 10s --rounds 2",
        victims: &[Victim::Lab],
        at_work: Duration::from_secs(5),
    },
    Case {
        // Each cell lasts twice as long as is waited, and all of them less than the lab may take.
        arguments: "payload-doubling --contestants moonwire/weight-0.5 --messages 10k",
        victims: OF_SERVERS,
        at_work: Duration::from_secs(5),
    },
];

/// Each scenario once for each of its victims; only those with these names, if there are any.
pub(crate) fn survived(programs: &Programs, names: &[&str], table: &mut Table) -> Result<()> {
    let known: Vec<&str> = CASES.iter().map(Case::name).collect();
    for name in names {
        ensure!(
            known.contains(name),
            "there is no scenario `{name}`; there are {}",
            known.join(", ")
        );
    }
    let is_wanted = |case: &Case| names.is_empty() || names.contains(&case.name());
    for case in CASES.into_iter().filter(is_wanted) {
        let name = case.name();
        for &victim in case.victims {
            let folder = tempfile::tempdir()?;
            let out = folder.path().join("out");
            let found = killed(programs, &case, victim, &out);
            let left = await_end_of_all(&out);
            let (figure, is_well) = match (found, left.as_slice()) {
                (Ok(sentence), []) => (sentence, true),
                (Ok(_), left) => (format!("left behind: {}", left.join("; ")), false),
                (Err(error), _) => (format!("{error:#}"), false),
            };
            let who = match victim {
                Victim::Server => "the server",
                Victim::Proxy => "the proxy",
                Victim::Lab => "the lab",
            };
            let wanted = "a partial result that says so, and nobody left";
            table.line(format!("{name}, {who} killed"), figure, wanted, is_well);
        }
    }
    Ok(())
}

/// Starts the lab, kills the victim when it works, and gives what the result says of it.
fn killed(programs: &Programs, case: &Case, victim: Victim, out: &Path) -> Result<String> {
    let mut command = programs.lab_command();
    command.args(case.arguments.split_whitespace());
    command
        .arg("--out")
        .arg(out)
        .env(MARK, out)
        .stdin(Stdio::null());
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let mut lab = command.spawn().with_context(|| format!("{command:?}"))?;
    let result = kill_and_wait(&mut lab, victim, case.at_work);
    // It may be there yet where something went wrong.
    let _ = lab.kill();
    let _ = lab.wait();
    result?;
    let text = std::fs::read_to_string(out.join("run.json")).context("run.json")?;
    let run: Value = serde_json::from_str(&text).context("run.json")?;
    said(&run, victim).context("the result says nothing of it")
}

fn kill_and_wait(lab: &mut Child, victim: Victim, at_work: Duration) -> Result<()> {
    let server = await_child(lab, "a server", |command| command.contains(" serve "))?;
    let pid = match victim {
        Victim::Proxy => await_child(lab, PROXY, is_proxy)?,
        Victim::Server | Victim::Lab => server,
    };
    std::thread::sleep(at_work);
    match victim {
        Victim::Lab => lab.kill()?,
        Victim::Server | Victim::Proxy => kill(pid)?,
    }
    let deadline = Instant::now() + LAB_END_MAX;
    while lab.try_wait()?.is_none() {
        ensure!(
            Instant::now() < deadline,
            "the lab has not ended in {LAB_END_MAX:?}"
        );
        std::thread::sleep(LOOK);
    }
    Ok(())
}

/// What a result says of the victim, by its name.
fn said(run: &Value, victim: Victim) -> Option<String> {
    let name = match victim {
        Victim::Lab => {
            let partial = run.pointer("/environment/notes/partial")?;
            return partial.as_str().map(str::to_owned);
        }
        Victim::Server => "moonwire",
        Victim::Proxy => "nginx",
    };
    let cells = run["cells"].as_array()?;
    cells.iter().find_map(|cell| {
        let died = cell.pointer("/server/died").and_then(Value::as_str);
        let sentence = died.or_else(|| cell["ended_early"].as_str())?;
        // Where there is only one server, the cell is called after it.
        let who = match sentence.starts_with("the server process") {
            true => cell["contestant"].as_str()?,
            false => sentence,
        };
        let who = who.split([':', '/']).next();
        (who == Some(name)).then(|| sentence.to_owned())
    })
}

/// Whether this is the command line of the proxy. Those of the servers behind it name a folder that
/// is named after it.
fn is_proxy(command: &str) -> bool {
    let program = command.split(' ').next().unwrap_or_default();
    let name = program.rsplit('/').next().unwrap_or_default();
    // It changes its own to `nginx: master process`.
    name.trim_end_matches(':') == PROXY
}

/// The child of a process with such a command line.
fn await_child(lab: &mut Child, who: &str, is_it: impl Fn(&str) -> bool) -> Result<i32> {
    let deadline = Instant::now() + START_MAX;
    while Instant::now() < deadline {
        ensure!(lab.try_wait()?.is_none(), "the lab has ended at once");
        let own = lab.id().to_string();
        for (pid, command) in processes() {
            let is_meant = is_it(&command) && !command.contains(NULL_SERVER);
            if is_meant && parent(pid).as_deref() == Some(own.as_str()) {
                return Ok(pid);
            }
        }
        std::thread::sleep(LOOK);
    }
    anyhow::bail!("{who} was not started in {START_MAX:?}")
}

/// The command lines of those that this lab has started, and that are still there.
fn await_end_of_all(out: &Path) -> Vec<String> {
    let mark = format!("{MARK}={}", out.display());
    let deadline = Instant::now() + LEFT_MAX;
    loop {
        let left: Vec<String> = processes()
            .filter(|(pid, _)| is_marked(*pid, &mark))
            .map(|(_, command)| command)
            .collect();
        if left.is_empty() || Instant::now() > deadline {
            return left;
        }
        std::thread::sleep(LOOK);
    }
}

/// All processes with their command lines.
fn processes() -> impl Iterator<Item = (i32, String)> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| {
        let pid = entry.file_name().to_str()?.parse().ok()?;
        let command = std::fs::read(entry.path().join("cmdline")).ok()?;
        let command = String::from_utf8_lossy(&command).replace('\0', " ");
        Some((pid, command))
    })
}

/// Whatever a contestant starts inherits the environment of the lab.
fn is_marked(pid: i32, mark: &str) -> bool {
    let variables = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    let mut variables = variables.split(|byte| *byte == 0);
    variables.any(|variable| variable == mark.as_bytes())
}

fn parent(pid: i32) -> Option<String> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("PPid:"))?;
    Some(line.trim().to_owned())
}

fn kill(pid: i32) -> Result<()> {
    let status = Command::new("kill")
        .args(["-KILL", &pid.to_string()])
        .status()?;
    ensure!(status.success(), "process {pid} could not be killed");
    Ok(())
}

/// The program of the proxies that take part.
const PROXY: &str = "nginx";
/// What the generator is measured against before the rounds: it is gone when they begin.
const NULL_SERVER: &str = "null-server";
/// The variable that tells the processes of one lab from all others.
const MARK: &str = "MOONWIRE_KILLED";
const LOOK: Duration = Duration::from_millis(50);
const START_MAX: Duration = Duration::from_secs(30);
const LAB_END_MAX: Duration = Duration::from_secs(180);
/// What ends is reaped within this time.
const LEFT_MAX: Duration = Duration::from_secs(5);
