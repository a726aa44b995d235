//! What it costs a service to have a thread of its own, and what a second worker brings.

use anyhow::{Context, Result};

use super::program::Programs;
use super::table::{Table, median};

/// Each kind of server is measured so often, one after the other in turn.
const ROUNDS: usize = 5;
const SECONDS: u32 = 4;

/// Connections, and messages per second over all of them: well below what the slowest can do.
const LOADS: [(u32, u32); 2] = [(1, 1000), (120, 10_000)];

/// Inline against threaded, with one worker and with two; all share two processors with the
/// generator.
pub(crate) fn echo(programs: &Programs, table: &mut Table) -> Result<()> {
    let kinds = [
        ("inline", 1),
        ("threaded", 1),
        ("inline", 2),
        ("threaded", 2),
    ];
    let folder = tempfile::tempdir()?;
    for (connections, per_s) in LOADS {
        let mut cells: Vec<Vec<Figures>> = kinds.iter().map(|_| Vec::new()).collect();
        for _ in 0..ROUNDS {
            for ((execution, workers), cell) in kinds.iter().zip(&mut cells) {
                let file = folder.path().join("moonwire.toml");
                let toml = format!(
                    "[server]\nworkers = {workers}\n[services.echo]\ntarget = '/echo'\n\
                     execution = '{execution}'\n"
                );
                std::fs::write(&file, toml)?;
                let file = file.to_str().context("a temporary folder is not UTF-8")?;
                let server = programs.serve(None, &["--config", file])?;
                let load = format!("-t 1 -c {connections} -q {per_s} -d {SECONDS}s");
                let run = programs.load(None, &format!("{}/echo", server.url), &load)?;
                cell.push(Figures {
                    cpu_ns: run.number("/server/cpu_ns_per_message")?,
                    p50_us: run.number("/latency/service/p50_us")?,
                    p99_us: run.number("/latency/service/p99_us")?,
                    lost: run.count("/messages/lost")?,
                });
            }
        }
        for ((execution, workers), cell) in kinds.iter().zip(&cells) {
            let lost: u64 = cell.iter().map(|figures| figures.lost).sum();
            let [cpu, p50, p99] = [
                median(cell, |figures| figures.cpu_ns / 1000.0),
                median(cell, |figures| figures.p50_us),
                median(cell, |figures| figures.p99_us),
            ];
            table.line(
                format!(
                    "{execution} echo, {workers} worker(s), {connections} connection(s), \
                     {per_s} messages/s"
                ),
                format!(
                    "{cpu} us of CPU a message, p50 {p50} us, p99 {p99} us; {lost} lost; medians \
                     of {ROUNDS} runs of {SECONDS} s with their range"
                ),
                "0 lost",
                lost == 0,
            );
        }
    }
    Ok(())
}

struct Figures {
    cpu_ns: f64,
    p50_us: f64,
    p99_us: f64,
    lost: u64,
}
