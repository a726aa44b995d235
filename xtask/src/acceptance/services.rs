//! A hundred services of which half fail, in every way that is documented: what the others and
//! their clients notice, and what the log says.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};

use super::program::Programs;
use super::table::Table;

/// Services that answer, each with two clients that send ten messages a second each.
const SOUND: usize = 50;
const LOAD: &str = "-t 1 -c 2 -q 20";

/// How a service fails, and what is in its file. `S` stands for its table.
struct Way {
    name: &'static str,
    code: &'static str,
    kind: Kind,
}

#[derive(Clone, Copy, Eq, PartialEq)]
enum Kind {
    /// It does not start.
    Broken,
    /// The same, of a service without connections.
    BrokenStandalone,
    /// It fails for each client that sends it a message.
    Fails,
    /// It fails once, as it runs.
    FailsAlone,
    /// It fails as the server stops.
    FailsAtEnd,
}

const WAYS: [Way; 25] = [
    broken("syntax", "local S = {"),
    broken("no_table", "return 5"),
    broken("nothing", ""),
    broken("raises", "error('on purpose')"),
    broken("requires", "require('no.such.module')"),
    broken("endless_file", "while true do end"),
    broken(
        "hoards_file",
        "local t = {} for i = 1, 1e9 do t[i] = ('x'):rep(1000) .. i end",
    ),
    broken(
        "no_on_start",
        "local S = callbacks() S.onStart = nil return S",
    ),
    broken(
        "no_on_message",
        "local S = callbacks() S.onMessage = nil return S",
    ),
    broken(
        "no_on_disconnect",
        "local S = callbacks() S.onDisconnect = 7 return S",
    ),
    broken(
        "no_on_shutdown",
        "local S = callbacks() S.onShutdown = {} return S",
    ),
    broken(
        "error_on_start",
        "local S = callbacks() function S.onStart() fail() end return S",
    ),
    broken(
        "endless_on_start",
        "local S = callbacks() function S.onStart() loop() end return S",
    ),
    broken(
        "hoards_on_start",
        "local S = callbacks() function S.onStart() hoard() end return S",
    ),
    fails(
        "error_on_message",
        "local S = callbacks() function S.onMessage() fail() end return S",
    ),
    fails(
        "endless_on_message",
        "local S = callbacks() function S.onMessage() loop() end return S",
    ),
    fails(
        "endless_pcall",
        "local S = callbacks() function S.onMessage() while true do pcall(loop) end end return S",
    ),
    fails(
        "hoards_on_message",
        "local S = callbacks() function S.onMessage() hoard() end return S",
    ),
    fails(
        "error_on_disconnect",
        "local S = callbacks() S.onDisconnect = fail return S",
    ),
    fails(
        "endless_on_disconnect",
        "local S = callbacks() S.onDisconnect = loop return S",
    ),
    Way {
        name: "error_on_shutdown",
        code: "local S = callbacks() S.onShutdown = fail return S",
        kind: Kind::FailsAtEnd,
    },
    standalone("no_run", "return {init = function() end}"),
    standalone("endless_init", "return {init = loop, run = loop}"),
    Way {
        name: "error_init",
        code: "return {init = fail, run = print}",
        kind: Kind::FailsAlone,
    },
    Way {
        name: "error_run",
        code: "return {init = print, run = fail}",
        kind: Kind::FailsAlone,
    },
];

const fn broken(name: &'static str, code: &'static str) -> Way {
    let kind = Kind::Broken;
    Way { name, code, kind }
}

const fn fails(name: &'static str, code: &'static str) -> Way {
    let kind = Kind::Fails;
    Way { name, code, kind }
}

const fn standalone(name: &'static str, code: &'static str) -> Way {
    let kind = Kind::BrokenStandalone;
    Way { name, code, kind }
}

/// What the files above call.
const PRELUDE: &str = "\
local function fail() error('on purpose') end
local function loop() while true do end end
local function hoard() local t = {} for i = 1, 1e9 do t[i] = ('x'):rep(1000) .. i end end
local function callbacks()
  return {onStart = function() end, onShutdown = function() end, onDisconnect = function() end,
    onMessage = function(handler, opcode, message) return ws:send(handler, opcode, message) end}
end
";

/// The load on the sound ones, while clients come to those that fail.
pub(crate) fn hundred(programs: &Programs, seconds: u16, table: &mut Table) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("moonwire.toml");
    std::fs::write(&file, configuration(folder.path())?)?;
    let file = file.to_str().context("a temporary folder is not UTF-8")?;
    let server = programs.serve(None, &["--config", file])?;
    let is_over = AtomicBool::new(false);
    let load = format!("{LOAD} -d {seconds}s");
    let (runs, visits) = thread::scope(|scope| {
        let sound: Vec<_> = (0..SOUND)
            .map(|number| {
                let url = format!("{}/sound_{number}", server.url);
                let load = &load;
                scope.spawn(move || programs.load(None, &url, load))
            })
            .collect();
        let visitor = scope.spawn(|| visit(programs, &server.url, &is_over));
        let runs: Vec<_> = sound.into_iter().map(join).collect();
        is_over.store(true, Ordering::Relaxed);
        (runs, join(visitor))
    });
    let (mut sent, mut lost) = (0, 0);
    for run in runs {
        let run = run?;
        sent += run.count("/messages/sent")?;
        lost += run.count("/messages/lost")?;
    }
    let planned = u64::from(seconds) * 20 * SOUND as u64;
    table.line(
        format!(
            "{SOUND} services beside {} that fail, {seconds} s: lost",
            2 * WAYS.len()
        ),
        format!("{lost} of {sent} messages"),
        format!("0 of {planned}"),
        lost == 0 && sent >= planned,
    );
    let log = server.stop()?;
    judge_log(&log, &visits?, table);
    Ok(())
}

fn join<T>(thread: thread::ScopedJoinHandle<'_, T>) -> T {
    thread
        .join()
        .expect("a run that fails is an error, not a panic")
}

/// Sends a message to each service that fails by one, again and again; how often to each.
fn visit(programs: &Programs, url: &str, is_over: &AtomicBool) -> Result<BTreeMap<String, usize>> {
    let mut visits = BTreeMap::new();
    while !is_over.load(Ordering::Relaxed) {
        for name in names().filter(|(_, way)| way.kind == Kind::Fails) {
            let (name, _) = name;
            programs.load(None, &format!("{url}/{name}"), "-t 1 -c 1 -n 1 --drain 1s")?;
            *visits.entry(name).or_default() += 1;
        }
        thread::sleep(Duration::from_secs(5));
    }
    Ok(visits)
}

/// Two services of each way.
fn names() -> impl Iterator<Item = (String, &'static Way)> {
    WAYS.iter()
        .flat_map(|way| [1, 2].map(|number| (format!("{}_{number}", way.name), way)))
}

fn configuration(folder: &Path) -> Result<String> {
    let mut toml =
        String::from("[server]\nworkers = 2\non_broken_service = 'skip'\nlog_format = 'compact'\n");
    let write = |name: &str, code: &str| {
        let app = folder.join("apps").join(name);
        std::fs::create_dir_all(&app)?;
        std::fs::write(app.join(format!("{name}.lua")), code)
    };
    for number in 0..SOUND {
        let name = format!("sound_{number}");
        writeln!(toml, "[services.{name}]\ntarget = '/{name}'\ninstances = 1")?;
        write(&name, &format!("{PRELUDE}return callbacks()\n"))?;
    }
    for (name, way) in names() {
        let keys = match way.kind {
            Kind::BrokenStandalone | Kind::FailsAlone => "standalone = true".to_owned(),
            Kind::Broken | Kind::Fails | Kind::FailsAtEnd => format!("target = '/{name}'"),
        };
        writeln!(
            toml,
            "[services.{name}]\n{keys}\ninstances = 1\ncallback_timeout_ms = 100\n\
             memory_bytes_max = 8388608"
        )?;
        let code = match way.name {
            "syntax" | "no_table" | "nothing" | "raises" | "requires" => way.code.to_owned(),
            _ => format!("{PRELUDE}{}\n", way.code),
        };
        write(&name, &code)?;
    }
    Ok(toml)
}

/// Each failure is one entry that names its service, and nothing else is one.
fn judge_log(log: &[String], visits: &BTreeMap<String, usize>, table: &mut Table) {
    let entries: Vec<&String> = log.iter().filter(|line| line.contains("ERROR")).collect();
    let of = |name: &str| {
        let service = format!("service \"{name}\": ");
        entries
            .iter()
            .filter(|line| line.contains(&service))
            .count()
    };
    let mut odd = Vec::new();
    let mut named = 0;
    for (name, way) in names() {
        let expected = match way.kind {
            Kind::Fails => visits.get(&name).copied().unwrap_or(0),
            Kind::Broken | Kind::BrokenStandalone | Kind::FailsAlone | Kind::FailsAtEnd => 1,
        };
        let found = of(&name);
        named += found;
        if found != expected {
            odd.push(format!("{name}: {found} instead of {expected}"));
        }
    }
    let failures: usize = visits.values().sum();
    table.line(
        "each failure is one entry of the log",
        format!(
            "{named} of {} entries name their service, {failures} of them failures for a client; \
             otherwise: {}",
            entries.len(),
            if odd.is_empty() {
                "none".to_owned()
            } else {
                odd.join(", ")
            }
        ),
        "one for each failure, and no other",
        odd.is_empty() && named == entries.len(),
    );
    for entry in names().filter_map(|(name, _)| {
        let service = format!("service \"{name}\": ");
        name.ends_with("_1")
            .then(|| entries.iter().find(|line| line.contains(&service)))?
    }) {
        eprintln!("   {}", entry.trim());
    }
}
