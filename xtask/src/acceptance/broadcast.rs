//! One broadcast a second to ten thousand subscribers, of whom a hundred do not read: whether the
//! others notice, what it costs, and what those who do not read may hold.

use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::disturbance::{self, HostMoment};
use super::memory::{Sample, Sampler, mib};
use super::program::Programs;
use super::table::Table;
use crate::server::{Metrics, Server};

const READERS: u64 = 9900;
const SILENT: u64 = 100;
/// Where the server runs, and where the subscribers do.
const SERVER_CORE: u8 = 0;
const SUBSCRIBERS_CORE: u8 = 1;
/// The service of those who do not read.
const SILENT_LABEL: &str = "service=\"silent\"";
const CONFIG: &str = "xtask/acceptance/broadcast/moonwire.toml";
/// `write_queue_bytes_max` there; a queue's buffer grows by doubling.
const QUEUE_BYTES_MAX: u64 = 32_768;
/// What the kernel keeps of a connection there: twice `send_buffer_bytes`. The server counts what
/// the kernel has taken of a write in progress.
const SEND_BUFFER_BYTES: u64 = 2 * 16_384;
/// What the server may take more than the queues of those who do not read: broadcasts under way
/// with their lists of subscribers, and what its heap keeps.
const ROOM_BYTES: u64 = 8 << 20;
/// From then on those who do not read are at the bound, with what the kernel keeps for them.
const FULL_AFTER_S: u16 = 150;

pub(crate) fn subscribers(programs: &Programs, seconds: u16, table: &mut Table) -> Result<()> {
    let server = programs.serve(Some(SERVER_CORE), &["--config", CONFIG])?;
    let watched = watch(programs, &server, seconds)?;
    delivery(&watched, seconds, table)?;
    costs(&watched, table)?;
    silent(&watched, seconds, table);
    Ok(())
}

/// What was seen from the first broadcast to the last.
struct Watched {
    results: Value,
    elapsed_s: f64,
    cpu_s: f64,
    /// The share of the machine that the host took.
    stolen: f64,
    samples: Vec<Sample>,
    queued_bytes_peak: u64,
    silent_left: u64,
    queue_full: u64,
    broadcasts_dropped: u64,
}

impl Watched {
    /// What the subscribers counted.
    fn count(&self, key: &str) -> Result<u64> {
        self.results[key].as_u64().with_context(|| key.to_owned())
    }
}

fn watch(programs: &Programs, server: &Server, seconds: u16) -> Result<Watched> {
    let numbers = [READERS, SILENT, seconds.into()].map(|number| number.to_string());
    let [readers, silent, seconds] = &numbers;
    let arguments: [&str; 5] = ["/feed", readers, "/silent", silent, seconds];
    let mut command = programs.subscribers(server, SUBSCRIBERS_CORE, &arguments);
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    // They go when this is dropped.
    let stay = child.stdin.take();
    let output = child.stdout.take().context("it is piped above")?;
    let mut lines = BufReader::new(output).lines();
    let line = lines.next().context("the subscribers said nothing")??;
    ensure!(line == format!("subscribed {}", READERS + SILENT), "{line}");
    eprintln!("   {line}");
    let (begin, host) = (Instant::now(), HostMoment::now()?);
    let cpu_s = disturbance::cpu_s(&server.proc())?;
    let (memory, queues) = (Sampler::start(server), Queues::start(server.metrics()));
    let results = lines.next().context("the subscribers gave up")??;
    let elapsed_s = begin.elapsed().as_secs_f64();
    let cpu_s = disturbance::cpu_s(&server.proc())? - cpu_s;
    let stolen = HostMoment::now()?.stolen_since(host);
    let (samples, queued_bytes_peak) = (memory.finish(), queues.finish());
    let metrics = server.metrics();
    let failures = |kind| metrics.sum("moonwire_failures_total", &format!("kind=\"{kind}\""));
    let watched = Watched {
        results: serde_json::from_str(&results).with_context(|| results.clone())?,
        elapsed_s,
        cpu_s,
        stolen,
        samples,
        queued_bytes_peak,
        silent_left: metrics.sum("moonwire_connected", SILENT_LABEL)?,
        queue_full: failures("queue_full")?,
        broadcasts_dropped: failures("broadcast_dropped")?,
    };
    drop(stay);
    ensure!(child.wait()?.success(), "the subscribers failed");
    Ok(watched)
}

/// Each reader gets each broadcast once, in order; how long they take.
fn delivery(watched: &Watched, seconds: u16, table: &mut Table) -> Result<()> {
    let count = |key| watched.count(key);
    let (received, expected) = (count("received")?, count("expected")?);
    let (complete, dropped) = (count("complete")?, watched.broadcasts_dropped);
    table.line(
        format!("{READERS} readers beside {SILENT} that do not read, 1 KiB a second, {seconds} s"),
        format!(
            "{} of {expected} lost, {complete} readers got each one once and in order; closed {}, \
             out of order {}, foreign {}; {dropped} broadcasts dropped",
            expected - received,
            count("closed")?,
            count("out_of_order")?,
            count("foreign")?,
        ),
        "0 lost",
        complete == READERS && received == READERS * u64::from(seconds) && dropped == 0,
    );
    let ms = |key| count(key).map(|us| us as f64 / 1000.0);
    table.line(
        "from the call of bcast:send to the reader, all on one host",
        format!(
            "p50 {:.1} ms, p99 {:.1} ms, max {:.1} ms; the host took {:.1} % of the machine",
            ms("p50_us")?,
            ms("p99_us")?,
            ms("max_us")?,
            100.0 * watched.stolen
        ),
        "printed",
        received > 0,
    );
    Ok(())
}

fn costs(watched: &Watched, table: &mut Table) -> Result<()> {
    let Watched {
        cpu_s, elapsed_s, ..
    } = watched;
    let messages = watched.count("received")? as f64;
    table.line(
        "CPU of the server",
        format!(
            "{cpu_s:.1} s in {elapsed_s:.0} s, {:.1} % of one core, {:.1} µs a message",
            100.0 * cpu_s / elapsed_s,
            1e6 * cpu_s / messages
        ),
        "printed",
        *cpu_s > 0.0,
    );
    let bytes = |sample: Option<&Sample>| sample.map_or(0.0, |sample| sample.rss_bytes);
    let (begin, end) = (
        bytes(watched.samples.first()),
        bytes(watched.samples.last()),
    );
    let peak = watched
        .samples
        .iter()
        .map(|sample| sample.rss_bytes)
        .fold(0.0, f64::max);
    let growth_max = SILENT * 2 * QUEUE_BYTES_MAX + ROOM_BYTES;
    table.line(
        "memory of the server (RSS)",
        format!(
            "{:.1} MiB with all subscribed, {:.1} at most, {:.1} at the end",
            mib(begin),
            mib(peak),
            mib(end)
        ),
        format!(
            "at most {:.1} MiB more: {SILENT} times twice {QUEUE_BYTES_MAX} B, and {} MiB",
            mib(growth_max as f64),
            ROOM_BYTES >> 20
        ),
        begin > 0.0 && peak - begin <= growth_max as f64,
    );
    Ok(())
}

/// Those who do not read hold what they may, and are closed beyond it.
fn silent(watched: &Watched, seconds: u16, table: &mut Table) {
    let held_max = SILENT * (QUEUE_BYTES_MAX + SEND_BUFFER_BYTES);
    let peak = watched.queued_bytes_peak;
    table.line(
        "bytes that waited for those who do not read, at most",
        format!("{peak} B"),
        format!("{held_max} B: {SILENT} times write_queue_bytes_max and a send buffer"),
        peak > 0 && peak <= held_max,
    );
    let is_full = seconds >= FULL_AFTER_S;
    table.line(
        "those who do not read, closed by policy",
        format!("{}, {} are left", watched.queue_full, watched.silent_left),
        format!("{SILENT} from {FULL_AFTER_S} s on, together with those left"),
        watched.queue_full + watched.silent_left == SILENT
            && (!is_full || watched.silent_left == 0),
    );
}

/// Reads each second what waits for those who do not read.
struct Queues {
    over: Arc<AtomicBool>,
    thread: thread::JoinHandle<u64>,
}

impl Queues {
    fn start(metrics: Metrics) -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let stop = Arc::clone(&over);
        let thread = thread::spawn(move || {
            let mut peak = 0;
            while !stop.load(Ordering::Relaxed) {
                thread::sleep(Duration::from_secs(1));
                let queued = metrics.sum("moonwire_write_queue_bytes", SILENT_LABEL);
                peak = peak.max(queued.unwrap_or_default());
            }
            peak
        });
        Self { over, thread }
    }

    fn finish(self) -> u64 {
        self.over.store(true, Ordering::Relaxed);
        self.thread.join().unwrap_or_default()
    }
}
