//! Ten thousand connections: what they cost while they idle, and whether that grows with time.

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
/// Samples of the first seconds are left out: connections are still being opened.
const SETTLING: Duration = Duration::from_secs(60);
/// Growth over the five minutes that still counts as flat.
const GROWTH_BYTES_MAX: f64 = 1024.0 * 1024.0;

/// User memory per connection that does nothing, over the empty server.
pub(crate) fn idle_memory(programs: &Programs, table: &mut Table) -> Result<()> {
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

/// Five minutes at one message per second and connection.
pub(crate) fn five_minutes(programs: &Programs, table: &mut Table) -> Result<()> {
    let server = programs.serve(None, &[])?;
    let url = format!("{}/echo", server.url);
    let sampler = Sampler::start(&server);
    let run = programs.load(None, &url, "-c 10000 -q 10000 -d 5m")?;
    let samples = sampler.finish();
    let (sent, lost) = (run.count("/messages/sent")?, run.count("/messages/lost")?);
    table.line(
        "10,000 connections, 1 message per second each, 5 minutes: lost",
        format!("{lost} of {sent}, {} {}", run.verdict(), run.reasons()),
        "0",
        lost == 0 && sent > 0,
    );
    let settling = SETTLING.as_secs_f64();
    let settled: Vec<Sample> = samples
        .into_iter()
        .filter(|sample| (settling..300.0).contains(&sample.at_s))
        .collect();
    let slope = Slope::of(&settled).context("too few samples of RSS")?;
    let growth = slope.bytes_per_s * 300.0;
    table.line(
        format!(
            "the same: slope of the server's RSS over {} samples",
            settled.len()
        ),
        format!(
            "{:.0} ± {:.0} B/s (95 %)",
            slope.bytes_per_s, slope.interval
        ),
        format!("flat: under {:.0} MiB in 5 minutes", mib(GROWTH_BYTES_MAX)),
        growth < GROWTH_BYTES_MAX,
    );
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
struct Sample {
    at_s: f64,
    rss_bytes: f64,
}

/// Reads the RSS of a server each second until it is told to stop.
struct Sampler {
    over: std::sync::Arc<AtomicBool>,
    thread: thread::JoinHandle<Vec<Sample>>,
}

impl Sampler {
    fn start(server: &Server) -> Self {
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

    fn finish(self) -> Vec<Sample> {
        self.over.store(true, Ordering::Relaxed);
        self.thread.join().unwrap_or_default()
    }
}

/// A line through samples, by least squares.
struct Slope {
    bytes_per_s: f64,
    /// Half of the 95 % interval, samples taken as independent.
    interval: f64,
}

impl Slope {
    fn of(samples: &[Sample]) -> Option<Self> {
        let n = samples.len() as f64;
        if n < 3.0 {
            return None;
        }
        let mean = |of: fn(&Sample) -> f64| samples.iter().map(of).sum::<f64>() / n;
        let (x, y) = (mean(|sample| sample.at_s), mean(|sample| sample.rss_bytes));
        let squares: f64 = samples.iter().map(|sample| (sample.at_s - x).powi(2)).sum();
        let products: f64 = samples
            .iter()
            .map(|sample| (sample.at_s - x) * (sample.rss_bytes - y))
            .sum();
        let bytes_per_s = products / squares;
        let residual =
            |sample: &Sample| (sample.rss_bytes - y - bytes_per_s * (sample.at_s - x)).powi(2);
        let error = samples.iter().map(residual).sum::<f64>() / (n - 2.0) / squares;
        Some(Self {
            bytes_per_s,
            interval: 1.96 * error.sqrt(),
        })
    }
}

/// Resident memory of a process.
fn rss_bytes(proc: &Path) -> Result<f64> {
    let status = std::fs::read_to_string(proc.join("status")).context("the server is gone")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<f64>().ok());
    Ok(kib.context("no VmRSS")? * 1024.0)
}

fn mib(bytes: f64) -> f64 {
    bytes / (1024.0 * 1024.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_found() {
        let sample = |at_s: f64, rss_bytes: f64| Sample { at_s, rss_bytes };
        let samples: Vec<Sample> = (0..10)
            .map(f64::from)
            .map(|x| sample(x, 5.0 + 2.0 * x))
            .collect();
        let slope = Slope::of(&samples).unwrap();
        assert!((slope.bytes_per_s - 2.0).abs() < 1e-9 && slope.interval < 1e-6);
        let noisy: Vec<Sample> = (0..10)
            .map(f64::from)
            .map(|x| sample(x, if x % 2.0 == 0.0 { 1.0 } else { 0.0 }))
            .collect();
        let slope = Slope::of(&noisy).unwrap();
        assert!(slope.bytes_per_s.abs() < slope.interval);
        assert!(Slope::of(&samples[..2]).is_none());
    }

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
