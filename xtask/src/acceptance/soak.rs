//! Ten thousand connections: whether what they cost grows with time.

use std::time::Duration;

use anyhow::{Context, Result};

use super::memory::{Sample, Sampler, mib};
use super::program::Programs;
use super::table::Table;

/// Samples of the first seconds are left out: connections are still being opened.
const SETTLING: Duration = Duration::from_secs(60);
/// Growth over the five minutes that still counts as flat.
const GROWTH_BYTES_MAX: f64 = 1024.0 * 1024.0;

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
}
