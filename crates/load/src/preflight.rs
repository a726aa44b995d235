//! What the machine must allow, checked before the first connection.

use std::fs;
use std::net::SocketAddr;

use moonwire_net::connections_per_table;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::scenario::Scenario;
use crate::sources::Sources;

/// What a run is given.
#[derive(Debug)]
pub(crate) struct Provision {
    pub(crate) sources: Sources,
    /// Whether one table of descriptors does not hold all connections, and each worker has its own.
    pub(crate) has_own_tables: bool,
}

/// Checks descriptors, ports and memory, raises what may be raised, and chooses the sources. The
/// error is one sentence with the command that helps.
pub(crate) fn check(scenario: &Scenario, targets: &[SocketAddr]) -> Result<Provision, String> {
    let has_own_tables = ensure_descriptors(scenario.open_max(), scenario.workers())?;
    let choose = |per_target| Sources::choose(targets, per_target, port_count(), &scenario.sources);
    // A port may be kept for a minute after its connection, by a server that lets us close first.
    let sources = match choose(scenario.connections) {
        Err(_) if scenario.open_max() < scenario.connections => choose(scenario.open_max())?,
        chosen => chosen?,
    };
    let secure = scenario
        .targets
        .iter()
        .filter(|target| target.is_secure())
        .count() as u64;
    let connections = u64::from(scenario.connections.min(scenario.open_max()));
    let stages = scenario.stages().map_or(0, |it| it.stages().len()) as u64;
    let plain = scenario.targets.len() as u64 - secure;
    let bytes = connections * (plain * PLAIN_BYTES + secure * SECURE_BYTES)
        + u64::from(scenario.workers()) * (WORKER_BYTES + stages * STAGE_BYTES);
    ensure_memory(bytes, available_bytes())?;
    Ok(Provision {
        sources,
        has_own_tables,
    })
}

/// How many workers so many connections need at least: each has a table of descriptors of its own
/// where one table may not hold them all.
pub fn workers_needed(connections: u64) -> u64 {
    connections.div_ceil(connections_per_table() as u64)
}

/// Soft limit of descriptors now, for the environment of a result.
pub(crate) fn descriptors_needed(connections: u32, workers: u32) -> u64 {
    let open = fs::read_dir("/proc/self/fd").map_or(OPEN_DEFAULT, |entries| entries.count() as u64);
    u64::from(connections) + u64::from(workers) * WORKER_DESCRIPTORS + open + SPARE_DESCRIPTORS
}

/// Raises the limit to what is needed in one table, or, where that is too much, in the table of
/// each worker: whether they need one each.
fn ensure_descriptors(connections: u32, workers: u32) -> Result<bool, String> {
    let in_one = ensure_limit(descriptors_needed(connections, workers));
    if in_one.is_ok() || workers == 1 {
        return in_one.map(|()| false);
    }
    let each = connections.div_ceil(workers);
    ensure_limit(descriptors_needed(each, 1)).map(|()| true)
}

fn ensure_limit(needed: u64) -> Result<(), String> {
    let limit = getrlimit(Resource::Nofile);
    let soft = limit.current.unwrap_or(u64::MAX);
    if soft >= needed {
        return Ok(());
    }
    let hard = limit.maximum.unwrap_or(u64::MAX);
    let wanted = Rlimit {
        current: Some(needed),
        maximum: limit.maximum,
    };
    if hard >= needed && setrlimit(Resource::Nofile, wanted).is_ok() {
        return Ok(());
    }
    Err(format!(
        "{needed} file descriptors are needed and {} allowed in one thread: run `ulimit -n {}` as \
         root first, have more threads with `-t`, or make fewer connections with `-c`",
        soft.max(hard),
        needed.next_power_of_two().max(65_536)
    ))
}

fn ensure_memory(needed: u64, available: Option<u64>) -> Result<(), String> {
    match available {
        Some(available) if available < needed => Err(format!(
            "about {} MiB of memory are needed and {} MiB available (`free -m`): make fewer \
             connections with `-c`",
            needed >> 20,
            available >> 20
        )),
        Some(_) | None => Ok(()),
    }
}

/// Ephemeral ports of one source address for one destination.
fn port_count() -> u32 {
    fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range")
        .ok()
        .and_then(|text| parse_port_range(&text))
        .unwrap_or(PORTS_DEFAULT)
}

fn parse_port_range(text: &str) -> Option<u32> {
    let mut ends = text.split_ascii_whitespace().map(str::parse::<u32>);
    let (low, high) = (ends.next()?.ok()?, ends.next()?.ok()?);
    (high + 1).checked_sub(low).filter(|&count| count > 0)
}

fn available_bytes() -> Option<u64> {
    parse_available(&fs::read_to_string("/proc/meminfo").ok()?)
}

fn parse_available(text: &str) -> Option<u64> {
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kilobytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kilobytes * 1024)
}

/// User and kernel memory of a ws connection at our end.
const PLAIN_BYTES: u64 = 8 * 1024;
/// The same for wss.
const SECURE_BYTES: u64 = 48 * 1024;
/// Histograms and buffers of a worker, those of blocks of time among them.
const WORKER_BYTES: u64 = 20 * 1024 * 1024;
/// The histogram of a stage.
const STAGE_BYTES: u64 = 280 * 1024;
/// Descriptors of a worker: epoll, waker, timer, a file of /proc.
const WORKER_DESCRIPTORS: u64 = 4;
/// Descriptors kept free: the result, name resolution, trust anchors.
const SPARE_DESCRIPTORS: u64 = 32;
/// Open descriptors assumed where /proc cannot say.
const OPEN_DEFAULT: u64 = 16;
/// Linux's default range, 32768 to 60999.
const PORTS_DEFAULT: u32 = 28_232;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_the_kernel_are_read() {
        assert_eq!(parse_port_range("32768\t60999\n"), Some(28_232));
        assert_eq!(parse_port_range("5 4"), None);
        assert_eq!(parse_port_range(""), None);
        let meminfo = "MemTotal: 9 kB\nMemAvailable:   2048 kB\n";
        assert_eq!(parse_available(meminfo), Some(2 << 20));
        assert_eq!(parse_available("MemTotal: 9 kB\n"), None);
    }

    #[test]
    fn what_is_missing_is_said_with_the_command_that_helps() {
        let sentence = ensure_limit(u64::MAX / 4).unwrap_err();
        assert!(sentence.contains("ulimit -n"), "{sentence}");
        let sentence = ensure_memory(3 << 20, Some(2 << 20)).unwrap_err();
        assert!(
            sentence.contains("3 MiB") && sentence.contains("2 MiB available"),
            "{sentence}"
        );
        assert!(ensure_memory(1, None).is_ok());
    }

    #[test]
    fn a_small_need_is_met() {
        assert_eq!(ensure_descriptors(1, 1), Ok(false));
    }

    #[test]
    fn what_one_table_does_not_hold_several_do() {
        let hard = getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX);
        let Some(connections) = u32::try_from(hard)
            .ok()
            .and_then(|hard| hard.checked_mul(3))
        else {
            // One table holds all that can be asked for.
            return;
        };
        assert_eq!(ensure_descriptors(connections, 4), Ok(true));
        assert!(ensure_descriptors(connections, 2).is_err());
        let workers = workers_needed(u64::from(connections)) as u32;
        assert_eq!(ensure_descriptors(connections, workers), Ok(true));
    }
}
