//! How soon a callback that does not end is stopped, and one that takes all memory.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context, Result};

use super::program::Programs;
use super::table::{Table, median};

/// So often each is called.
const VISITS: usize = 7;
const LIMIT_MS: u32 = 100;
/// How long after its limit one may end.
const LATE_MS_MAX: f64 = 10.0;

/// A message that does not end, by name, sandbox and body of `onMessage`.
const ENDLESS: [(&str, &str, &str); 11] = [
    ("endless_loop", "trusted", "while true do end"),
    (
        "loop_that_counts",
        "trusted",
        "local n = 0 while true do n = n + 1 end",
    ),
    (
        "in_pcall",
        "trusted",
        "while true do pcall(function() while true do end end) end",
    ),
    (
        "in_xpcall",
        "trusted",
        "local f = function() while true do end end while true do xpcall(f, f) end",
    ),
    (
        "in_coroutine",
        "trusted",
        "while true do coroutine.wrap(function() while true do end end)() end",
    ),
    (
        "gc_storm",
        "trusted",
        "local t = {} for i = 1, 1e5 do t[i] = {} end while true do t[1] = {{}, {}} end",
    ),
    (
        "many_strings",
        "trusted",
        "while true do local s = ('x'):rep(1e6) .. tostring({}) end",
    ),
    (
        "long_sort",
        "trusted",
        "local t = {} for i = 1, 1e4 do t[i] = -i end while true do table.sort(t, function(a, b) \
         return a > b end) end",
    ),
    (
        "short_pattern",
        "restricted",
        "while true do pcall(string.find, ('a'):rep(30), ('a?'):rep(30) .. ('a'):rep(30)) end",
    ),
    (
        "one_pattern",
        "trusted",
        "return ('a'):rep(5000):find('.-.-.-.-.-b')",
    ),
    (
        "long_pattern",
        "restricted",
        "while true do pcall(string.find, ('a'):rep(1e6), '.-.-.-b') end",
    ),
];

/// One that is out of memory instead, and whose instance is replaced.
const GREEDY: (&str, &str) = (
    "string_of_10_gb",
    "local s = ('x'):rep(1e6) while #s < 1e10 do s = s .. s end",
);

pub(crate) fn stopped(programs: &Programs, table: &mut Table) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("moonwire.toml");
    std::fs::write(&file, configuration(folder.path())?)?;
    let file = file.to_str().context("a temporary folder is not UTF-8")?;
    let server = programs.serve(None, &["--config", file])?;
    let names = ENDLESS.iter().map(|(name, ..)| *name);
    for name in names.clone().chain([GREEDY.0]) {
        for _ in 0..VISITS {
            let url = format!("{}/{name}", server.url);
            programs.load(None, &url, "-t 1 -c 1 -n 1 --drain 1s")?;
        }
    }
    let log = server.stop()?;
    let entries = |name: &str, text: &str| -> Vec<String> {
        let service = format!("service \"{name}\": ");
        let lines = log.iter().filter(|line| line.contains(&service));
        lines
            .filter_map(|line| Some(line.split_once(text)?.1.to_owned()))
            .collect()
    };
    for name in names {
        let late_ms: Vec<f64> = entries(name, "it ended ")
            .iter()
            .filter_map(|rest| rest.split(' ').next()?.parse().ok())
            .collect();
        let longest_ms = late_ms.iter().copied().fold(0.0, f64::max);
        table.line(
            format!("{name}: stopped after its limit of {LIMIT_MS} ms, ms"),
            format!(
                "{}, {} of {VISITS}",
                median(&late_ms, |ms| *ms),
                late_ms.len()
            ),
            format!("all, each within {LATE_MS_MAX} ms"),
            late_ms.len() == VISITS && longest_ms <= LATE_MS_MAX,
        );
    }
    let refused = entries(GREEDY.0, "bytes of memory").len();
    table.line(
        format!("{}: instances replaced", GREEDY.0),
        format!("{refused} of {VISITS}"),
        "all",
        refused == VISITS,
    );
    Ok(())
}

fn configuration(folder: &Path) -> Result<String> {
    let mut toml = String::from("[server]\nworkers = 1\nlog_format = 'compact'\n");
    let (name, body) = GREEDY;
    for (name, sandbox, body) in ENDLESS.into_iter().chain([(name, "trusted", body)]) {
        writeln!(
            toml,
            "[services.{name}]\ntarget = '/{name}'\ninstances = 1\nsandbox = '{sandbox}'\n\
             callback_timeout_ms = {LIMIT_MS}"
        )?;
        if name == GREEDY.0 {
            writeln!(toml, "memory_bytes_max = 16777216")?;
        }
        let app = folder.join("apps").join(name);
        std::fs::create_dir_all(&app)?;
        let code = format!(
            "local function ignore() return true end\nreturn {{onStart = ignore, onShutdown = \
             ignore, onDisconnect = ignore,\n  onMessage = function() {body} end}}\n"
        );
        std::fs::write(app.join(format!("{name}.lua")), code)?;
    }
    Ok(toml)
}
