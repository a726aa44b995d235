//! What a connection costs a server in memory: while it idles, and once it has exchanged compressed
//! messages.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::program::Programs;
use super::table::Table;
use crate::server::Server;

const CONNECTIONS: u64 = 10_000;
const CONNECTIONS_TLS: u64 = 5_000;
const CONNECTIONS_DEFLATE: u64 = 1000;
/// When the second thousand comes, how long it sends, and the first, which outlasts it.
const SECOND_AT_S: u64 = 20;
const SECOND_S: u64 = 15;
const FIRST_S: u64 = 45;

/// User memory per connection that does nothing, over the empty server.
pub(crate) fn idle(programs: &Programs, table: &mut Table) -> Result<()> {
    let plain: &[&str] = &[];
    let kinds = [
        ("ws", plain, CONNECTIONS, 1024),
        ("wss", &["--dev-tls"], CONNECTIONS_TLS, 8192),
    ];
    for (scheme, arguments, connections, goal) in kinds {
        let server = programs.serve(None, arguments)?;
        let url = format!("{}/echo", server.url);
        // One connection first: what the server allocates once is not the price of the others.
        programs.load(None, &url, "-c 1 -n 10 --insecure --drain 1s")?;
        let empty = rss_bytes(&server.proc())?;
        let sampler = Sampler::start(&server);
        let arguments = format!("-c {connections} --hold -d 20s --insecure --drain 1s");
        let run = programs.load(None, &url, &arguments)?;
        let samples = sampler.finish();
        let up = run.count("/connects/ok")?;
        ensure!(
            up == connections,
            "only {up} of {connections} connections came up"
        );
        let (held, peak) = held_and_peak(&samples).context("too few samples of RSS")?;
        let each = (held - empty) / connections as f64;
        table.line(
            format!("memory of {connections} idle {scheme} connections, each"),
            format!(
                "{each:.0} B ({:.1} MiB over {:.1} MiB; {:.0} B at the peak of the handshakes)",
                mib(held - empty),
                mib(empty),
                (peak - empty) / connections as f64
            ),
            format!("under {goal} B"),
            each < f64::from(goal),
        );
    }
    Ok(())
}

/// Memory per connection that exchanges compressed messages, long enough for its windows to be
/// full: without context takeover, which is the default, and with all of it.
pub(crate) fn compressed(programs: &Programs, table: &mut Table) -> Result<()> {
    let takeover = "server_context_takeover = true\nclient_context_takeover = true\n";
    let kinds = [
        ("no context takeover", "", 2 * 1024),
        ("context takeover of 15 bits both ways", takeover, 66 * 1024),
    ];
    for (name, keys, goal) in kinds {
        let folder = tempfile::tempdir()?;
        let file = folder.path().join("moonwire.toml");
        let service = "[services.echo]\ntarget = \"/echo\"\n[services.echo.deflate]\n";
        std::fs::write(&file, format!("{service}{keys}"))?;
        let file = file.to_str().context("a temporary folder is not UTF-8")?;
        let server = programs.serve(None, &["--config", file])?;
        let url = format!("{}/echo", server.url);
        let empty = rss_bytes(&server.proc())?;
        // 15 messages of 4 KiB fill a window of 32 KiB.
        let load = |seconds: u64| {
            let arguments = format!(
                "-c {CONNECTIONS_DEFLATE} -q {CONNECTIONS_DEFLATE} -d {seconds}s --deflate \
                 --message-size 4KiB --drain 2s"
            );
            programs.load(None, &url, &arguments)
        };
        // What the workers allocate once, compressors and buffers, is the price of none of the
        // connections: it is there when others come, and those stay that it came with.
        let (first, second, samples) = thread::scope(|scope| {
            let sampler = Sampler::start(&server);
            let first = scope.spawn(|| load(FIRST_S));
            thread::sleep(Duration::from_secs(SECOND_AT_S));
            let second = load(SECOND_S);
            (first.join(), second, sampler.finish())
        });
        let first = first.expect("a run that fails is an error, not a panic")?;
        let runs = [first, second?];
        let alone = |sample: &&Sample| sample.at_s < SECOND_AT_S as f64;
        let peak = |peak: f64, sample: &Sample| peak.max(sample.rss_bytes);
        let alone_peak = samples.iter().take_while(alone).fold(0.0, peak);
        let both_peak = samples.iter().fold(0.0, peak);
        let (mut up, mut lost) = (0, 0);
        for run in &runs {
            up += run.count("/connects/ok")?;
            lost += run.count("/messages/lost")?;
        }
        let each = (both_peak - alone_peak) / CONNECTIONS_DEFLATE as f64;
        table.line(
            format!("memory of a compressed connection, {name}"),
            format!(
                "{each:.0} B for each of {CONNECTIONS_DEFLATE} more beside as many, {:.0} B for \
                 each of the first with all that the workers allocate once, at the peak; {up} \
                 connected, {lost} messages lost",
                (alone_peak - empty) / CONNECTIONS_DEFLATE as f64
            ),
            format!("under {goal} B"),
            each < f64::from(goal) && up == 2 * CONNECTIONS_DEFLATE && lost == 0,
        );
    }
    Ok(())
}

/// What was resident in the middle of the time, when all connections were up and idle, and at
/// most.
fn held_and_peak(samples: &[Sample]) -> Option<(f64, f64)> {
    let third = samples.len() / 3;
    let mut middle: Vec<f64> = samples
        .get(third..2 * third)?
        .iter()
        .map(|sample| sample.rss_bytes)
        .collect();
    middle.sort_by(f64::total_cmp);
    let peak = samples
        .iter()
        .map(|sample| sample.rss_bytes)
        .fold(0.0, f64::max);
    Some((*middle.get(middle.len() / 2)?, peak))
}

#[derive(Clone, Copy)]
pub(crate) struct Sample {
    pub(crate) at_s: f64,
    pub(crate) rss_bytes: f64,
}

/// Reads the RSS of a server each second until it is told to stop.
pub(crate) struct Sampler {
    over: std::sync::Arc<AtomicBool>,
    thread: thread::JoinHandle<Vec<Sample>>,
}

impl Sampler {
    pub(crate) fn start(server: &Server) -> Self {
        let (proc, over) = (server.proc(), std::sync::Arc::new(AtomicBool::new(false)));
        let stop = std::sync::Arc::clone(&over);
        let thread = thread::spawn(move || {
            let (begin, mut samples) = (Instant::now(), Vec::new());
            while !stop.load(Ordering::Relaxed) {
                let Ok(rss_bytes) = rss_bytes(&proc) else {
                    break;
                };
                samples.push(Sample {
                    at_s: begin.elapsed().as_secs_f64(),
                    rss_bytes,
                });
                thread::sleep(Duration::from_secs(1));
            }
            samples
        });
        Self { over, thread }
    }

    pub(crate) fn finish(self) -> Vec<Sample> {
        self.over.store(true, Ordering::Relaxed);
        self.thread.join().unwrap_or_default()
    }
}

/// Resident memory of a process.
fn rss_bytes(proc: &Path) -> Result<f64> {
    let status = std::fs::read_to_string(proc.join("status")).context("the server is gone")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<f64>().ok());
    Ok(kib.context("no VmRSS")? * 1024.0)
}

pub(crate) fn mib(bytes: f64) -> f64 {
    bytes / (1024.0 * 1024.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_is_what_is_held() {
        let sample = |rss_bytes: f64| Sample {
            at_s: 0.0,
            rss_bytes,
        };
        let samples = [1.0, 9.0, 5.0, 5.0, 2.0, 2.0].map(sample);
        assert_eq!(held_and_peak(&samples), Some((5.0, 9.0)));
        assert_eq!(held_and_peak(&samples[..2]), None);
    }

    #[test]
    fn our_own_memory_is_read() {
        assert!(rss_bytes(Path::new("/proc/self")).unwrap() > 0.0);
        assert!(rss_bytes(Path::new("/proc/none")).is_err());
    }
}
