//! What it costs to hand a connection over to another worker.
//!
//! Two workers accept in equal parts. Where both own an instance of the service nearly all stay;
//! where one does, what the other accepts is handed over. The server has one processor, so that its
//! CPU time is comparable, and the generator the other.

use std::path::Path;

use anyhow::{Context, Result, ensure};

use super::program::Programs;
use super::table::{Table, median};

/// Servers with and without, one after the other in turn.
const PAIRS: usize = 7;
const CONNECTIONS: u64 = 2000;

/// The difference in CPU of opening a connection, by how many more were handed over.
pub(crate) fn price(programs: &Programs, table: &mut Table) -> Result<()> {
    for tls in [false, true] {
        let mut pairs = Vec::new();
        for _ in 0..PAIRS {
            let kept = open(programs, 2, tls)?;
            let handed = open(programs, 1, tls)?;
            ensure!(
                handed.handed_over > kept.handed_over,
                "{} of {CONNECTIONS} connections were handed over to the one owner, and {} to two",
                handed.handed_over,
                kept.handed_over
            );
            pairs.push((kept, handed));
        }
        let scheme = if tls { "wss" } else { "ws" };
        let of = |figure: fn(&(Opened, Opened)) -> f64| median(&pairs, figure);
        let lost: u64 = pairs.iter().map(|(a, b)| a.lost + b.lost).sum();
        table.line(
            format!("CPU of a connection with one message, {scheme}, us"),
            format!(
                "{} with two owners, {} with one; their handshakes took {} and {} us at the p99, \
                 and {} and {} were handed over; {lost} messages lost; medians of {PAIRS} pairs \
                 of {CONNECTIONS} connections with their range",
                of(|(kept, _)| kept.each_us()),
                of(|(_, handed)| handed.each_us()),
                of(|(kept, _)| kept.p99_us),
                of(|(_, handed)| handed.p99_us),
                of(|(kept, _)| kept.handed_over as f64),
                of(|(_, handed)| handed.handed_over as f64),
            ),
            "0 lost",
            lost == 0,
        );
        table.line(
            format!("CPU of a hand-over, {scheme}, us"),
            of(|(kept, handed)| {
                let more = handed.handed_over as f64 - kept.handed_over as f64;
                (handed.cpu_ns as f64 - kept.cpu_ns as f64) / 1000.0 / more
            }),
            "told",
            true,
        );
    }
    Ok(())
}

/// What it took to open all connections.
struct Opened {
    cpu_ns: u64,
    handed_over: u64,
    /// From the intended start of a handshake to the 101.
    p99_us: f64,
    lost: u64,
}

impl Opened {
    fn each_us(&self) -> f64 {
        self.cpu_ns as f64 / 1000.0 / CONNECTIONS as f64
    }
}

fn open(programs: &Programs, instances: u8, tls: bool) -> Result<Opened> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("moonwire.toml");
    let toml = format!(
        "[server]\nworkers = 2\n[services.echo]\ntarget = '/echo'\ninstances = {instances}\n"
    );
    std::fs::write(&file, toml)?;
    let file = file.to_str().context("a temporary folder is not UTF-8")?;
    let mut arguments = vec!["--config", file];
    if tls {
        arguments.push("--dev-tls");
    }
    let server = programs.serve(Some(0), &arguments)?;
    let url = format!("{}/echo", server.url);
    // What happens once is not the price of a connection.
    programs.load(Some(1), &url, "-t 1 -c 50 -n 50 --insecure --drain 1s")?;
    let metrics = server.metrics();
    let before = (cpu_ns(&server.proc())?, metrics.sum(HANDED_OVER, "")?);
    let load = format!("-t 1 -c {CONNECTIONS} -n {CONNECTIONS} --insecure --drain 1s");
    let run = programs.load(Some(1), &url, &load)?;
    let up = run.count("/connects/ok")?;
    ensure!(
        up == CONNECTIONS,
        "only {up} of {CONNECTIONS} connections came up"
    );
    Ok(Opened {
        cpu_ns: cpu_ns(&server.proc())? - before.0,
        handed_over: metrics.sum(HANDED_OVER, "")? - before.1,
        p99_us: run.number("/handshake/total/p99_us")?,
        lost: run.count("/messages/lost")?,
    })
}

const HANDED_OVER: &str = "moonwire_handed_over_total";

/// What the threads of a process have run, by the scheduler's count.
fn cpu_ns(proc: &Path) -> Result<u64> {
    let mut sum = 0;
    for task in std::fs::read_dir(proc.join("task")).context("the server is gone")? {
        let text = std::fs::read_to_string(task?.path().join("schedstat"))?;
        let first = text.split(' ').next().unwrap_or_default();
        sum += first.parse::<u64>().context("schedstat")?;
    }
    Ok(sum)
}
