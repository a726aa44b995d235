//! One server under one load.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use super::contender::Contender;
use super::figures::Figures;
use super::generator;
use super::row::{Echo, Kind};
use crate::acceptance::pinned;
use crate::place;

/// Messages as fast as they are answered, or so many a second.
pub(super) fn echo(
    contender: &Contender,
    load: Echo,
    rate_per_s: Option<u64>,
    duration: Duration,
    program: &Path,
) -> Result<Figures> {
    let mut command = generator::command(contender, program);
    match rate_per_s {
        None => generator::echo(&mut command, load),
        Some(rate) => {
            command.args(["-c", &load.connections.to_string()]);
            command.args(["-q", &rate.to_string()]);
            command.args(["--message-size", &load.message_bytes.to_string()]);
        }
    }
    command.args(["-d", &format!("{}s", duration.as_secs())]);
    let outcome = generator::run(contender, command)?;
    let messages = outcome.number("/messages/received")?;
    Ok(Figures::new(
        contender.kind.name(),
        [
            ("messages", messages),
            ("messages_per_s", outcome.number("/rate/received_per_s")?),
            ("cpu_ns", outcome.server_ns / messages),
            ("server_share", outcome.server_share()),
            ("generator_share", outcome.number("/generator/cpu_share")?),
            ("p50_us", outcome.number_or_nan("/latency/response/p50_us")),
            ("p99_us", outcome.number_or_nan("/latency/response/p99_us")),
            (
                "p99_9_us",
                outcome.number_or_nan("/latency/response/p99_9_us"),
            ),
        ],
    ))
}

/// Connections that say one thing each: how many, how many at once, and whether they resume
/// sessions.
pub(super) fn handshakes(
    contender: &Contender,
    (connections, open_max, is_resumed): (u32, u32, bool),
    program: &Path,
) -> Result<Figures> {
    let mut command = generator::command(contender, program);
    if is_resumed {
        command.arg("--tls-resume");
    }
    command.args(["-c", &connections.to_string(), "--per-connection", "1"]);
    command.args(["--open-max", &open_max.to_string()]);
    command.args(["--message-size", "32"]);
    let outcome = generator::run(contender, command)?;
    let made = outcome.number("/connects/ok")?;
    let resumed = outcome.resumed() / made;
    ensure!(
        !is_resumed || resumed >= RESUMED_MIN,
        "{}: only {:.0} % of the sessions were resumed",
        contender.kind.name(),
        resumed * 100.0
    );
    Ok(Figures::new(
        contender.kind.name(),
        [
            ("connections", made),
            (
                "connections_per_s",
                made / outcome.number("/rate/duration_s")?,
            ),
            ("resumed_share", resumed),
            ("cpu_us", outcome.server_ns / made / 1e3),
            ("server_share", outcome.server_share()),
            ("generator_share", outcome.number("/generator/cpu_share")?),
            ("p99_us", outcome.number_or_nan("/handshake/total/p99_us")),
        ],
    ))
}

/// What each of so many idle connections takes of the memory of a server that was just started.
pub(super) fn idle(contender: &Contender, connections: u32, program: &Path) -> Result<Figures> {
    // One connection first: what the server allocates once is not the price of the others.
    let mut first = generator::command(contender, program);
    first.args(["-c", "1", "-n", "10"]);
    generator::run(contender, first)?;
    // Until the server has closed its end as well.
    thread::sleep(SETTLING);
    let (empty, descriptors) = (contender.memory_bytes()?, contender.descriptors()?);
    let mut command = generator::command(contender, program);
    command.args(["-c", &connections.to_string(), "--hold", "-d", "60s"]);
    let mut holding = Held(command.spawn().context("the generator")?);
    let begin = Instant::now();
    while contender.descriptors()? < descriptors + connections as usize {
        if begin.elapsed() > CONNECT_PATIENCE || holding.0.try_wait()?.is_some() {
            bail!(
                "{}: the {connections} connections do not come up",
                contender.kind.name()
            );
        }
        thread::sleep(Duration::from_millis(50));
    }
    thread::sleep(SETTLING);
    let held = contender.memory_bytes()?;
    Ok(Figures::new(
        contender.kind.name(),
        [
            ("connections", f64::from(connections)),
            ("bytes_each", (held - empty) / f64::from(connections)),
            ("empty_kib", empty / 1024.0),
        ],
    ))
}

/// What a generator gets out of a server.
pub(super) fn generator(
    server: &Contender,
    kind: Kind,
    load: Echo,
    duration: Duration,
    program: &Path,
) -> Result<Figures> {
    let figures = if let Kind::Generator(in_flight) = kind {
        let load = Echo { in_flight, ..load };
        echo(server, load, None, duration, program)?
    } else {
        load_test(server, load)?
    };
    Ok(Figures {
        name: kind.name(),
        ..figures
    })
}

/// It prints how many messages a second were answered, every four seconds and for ever.
fn load_test(server: &Contender, load: Echo) -> Result<Figures> {
    let address = server.url().trim_start_matches("ws://");
    let address = address.split('/').next().unwrap_or_default();
    let (host, port) = address.rsplit_once(':').context("a server has a port")?;
    let folder = place::target()?.join("peers/contestants/uwebsockets-epoll");
    // Without it the lines are kept until its end.
    let mut command = pinned(Some(generator::GENERATOR_CPU), "stdbuf".as_ref());
    command.arg("-oL").arg(folder.join("load_test"));
    command.arg(load.connections.to_string());
    command.args([host, port, "0", "0"]);
    command.arg(load.message_bytes.to_string());
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    let mut running = Held(command.spawn().context("load_test")?);
    let output = running.0.stdout.take().context("its output is a pipe")?;
    let (told, lines) = mpsc::channel();
    thread::spawn(move || {
        let lines = BufReader::new(output).lines();
        lines
            .map_while(Result::ok)
            .try_for_each(|line| told.send(line))
    });
    let next = || -> Result<f64> {
        loop {
            let line = lines.recv_timeout(LOAD_TEST_PATIENCE);
            let line = line.context("load_test prints no rate")?;
            if let Some(rate) = line.strip_prefix("Msg/sec: ") {
                return rate.trim().parse().with_context(|| line.clone());
            }
        }
    };
    // The first four seconds have the connections in them.
    next()?;
    let rate = next()?;
    Ok(Figures::new(
        Kind::LoadTest.name(),
        [("messages_per_s", rate)],
    ))
}

/// A generator that holds connections until it is dropped.
struct Held(Child);

impl Drop for Held {
    fn drop(&mut self) {
        // It has ended by itself where that fails.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// How long the connections may take to come up.
const CONNECT_PATIENCE: Duration = Duration::from_secs(60);
/// The last of them are accepted, but their handshakes may not be over.
const SETTLING: Duration = Duration::from_secs(2);
/// It prints each four seconds.
const LOAD_TEST_PATIENCE: Duration = Duration::from_secs(30);
/// Of all connections; the first ones have nothing to resume.
const RESUMED_MIN: f64 = 0.9;
