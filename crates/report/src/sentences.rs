//! Lines of prose that the summary, the Markdown and the page have in common.

use crate::cell::Cell;
use crate::course;
use crate::environment::{Environment, Link, Server};
use crate::fan_out::FanOut;
use crate::format;
use crate::gc_pauses::GcPauses;
use crate::growth::Growth;
use crate::live_counts;
use crate::parameters::Loop;
use crate::run::Run;
use crate::spikes;
use crate::tls;

/// The link in one line.
pub(crate) fn link(link: &Link) -> String {
    let mut parts = link_shape(link);
    parts.push(link_work(link));
    if !link.note.is_empty() {
        parts.push(link.note.clone());
    }
    parts.join("; ")
}

/// What a link is, whatever it did.
pub(crate) fn link_nature(link: &Link) -> String {
    let mut parts = link_shape(link);
    if !link.note.is_empty() {
        parts.push(link.note.clone());
    }
    parts.join("; ")
}

/// What a link did for one load.
pub(crate) fn link_work(link: &Link) -> String {
    let dropped = format!("{} dropped", format::count(link.drops));
    match link.cpu_s {
        Some(cpu_s) => format!("{dropped}; {} CPU", format::latency(cpu_s * 1e6)),
        None => dropped,
    }
}

/// What a link is.
fn link_shape(link: &Link) -> Vec<String> {
    let mut parts = vec![link_kind(link)];
    if link.jitter_ms > 0.0 {
        parts.push(format!("jitter {}", format::latency(link.jitter_ms * 1e3)));
    }
    if link.loss > 0.0 {
        parts.push(format!("loss {}", format::percent(link.loss)));
    }
    if let Some(rate) = link.rate_bit_per_s {
        parts.push(format!("rate {} Mbit/s", format::significant(rate / 1e6)));
    }
    if let (Some(min), Some(median)) = (link.empty_rtt_min_us, link.empty_rtt_p50_us) {
        let (min, median) = (format::latency(min), format::latency(median));
        parts.push(format!(
            "empty exchange {min} min, {median} median round trip"
        ));
    }
    if let Some(queue) = link.queue_max {
        parts.push(format!(
            "queue at most {} {}",
            format::count(queue),
            link.queue_unit
        ));
    }
    parts
}

/// The kind of link and its delay.
pub(crate) fn link_kind(link: &Link) -> String {
    match link.kind.as_str() {
        "" | "none" => "no added delay".to_owned(),
        kind => {
            let delay = format::round_number(&format::latency(link.delay_ms * 1e3));
            format!("{kind}, {delay} per direction")
        }
    }
}

/// The server in one line.
pub(crate) fn server(server: &Server) -> String {
    let mut parts = Vec::new();
    if !server.name.is_empty() {
        parts.push(server.name.clone());
    }
    if let Some(ns) = server.cpu_ns_per_message {
        parts.push(format!("{} CPU per message", format::latency(ns / 1e3)));
    }
    if let Some(cpu_s) = server.cpu_s {
        parts.push(format!("{} CPU in all", format::latency(cpu_s * 1e6)));
    }
    if let Some(bytes) = server.rss_bytes {
        parts.push(format!("{} resident", format::bytes(bytes as f64)));
    }
    if let Some(bytes) = server.rss_peak_bytes {
        parts.push(format!("peak {}", format::bytes(bytes as f64)));
    }
    if !server.cores.is_empty() {
        parts.push(format!("on cores {}", server.cores));
    }
    parts.extend(cpu_limit(server.cpu_limit, server.throttled_ms));
    parts.extend(server.gc.as_ref().map(GcPauses::clause));
    if let Some(reason) = &server.died {
        parts.push(format!("ended before the run did: {reason}"));
    }
    parts.join("; ")
}

/// What a role was allowed to use, and what that did.
fn cpu_limit(limit: Option<f64>, throttled_ms: Option<f64>) -> Option<String> {
    let limit = limit.map(|limit| format!("limited to {limit} processors"));
    let throttled = throttled_ms.map(|ms| match ms > 0.0 {
        true => format!("throttled for {}", format::latency(ms * 1e3)),
        false => "never throttled".to_owned(),
    });
    let parts: Vec<String> = limit.into_iter().chain(throttled).collect();
    (!parts.is_empty()).then(|| parts.join(" and "))
}

/// The generator in one line.
pub(crate) fn generator(cell: &Cell) -> String {
    let generator = &cell.generator;
    let mut parts = vec![match generator.threads {
        1 => "1 thread".to_owned(),
        threads => format!("{threads} threads"),
    }];
    if let Some(share) = generator.cpu_share {
        parts.push(format!("{} of its CPU", format::percent(share)));
    }
    if let Some(pressure) = generator.cpu_pressure {
        parts.push(format!("CPU pressure {}", format::percent(pressure)));
    }
    if let Some(taken) = generator.cpu_taken {
        parts.push(format!(
            "the host took processors away {} of the time",
            format::percent(taken)
        ));
    }
    if !generator.cores.is_empty() {
        parts.push(format!("on cores {}", generator.cores));
    }
    parts.extend(cpu_limit(generator.cpu_limit, generator.throttled_ms));
    if generator.source_addresses > 1 {
        parts.push(format!("{} source addresses", generator.source_addresses));
    }
    parts.join("; ")
}

/// Connections and bytes in one line.
pub(crate) fn connections(cell: &Cell) -> String {
    let connects = cell.connects;
    let mut text = format!(
        "{} ok, {} failed, {} retried",
        format::count(connects.ok),
        format::count(connects.failed),
        format::count(connects.retried)
    );
    if connects.reconnected > 0 {
        text.push_str(&format!(
            ", {} reconnected",
            format::count(connects.reconnected)
        ));
    }
    if connects.disconnected > 0 {
        text.push_str(&format!(", {} lost", format::count(connects.disconnected)));
    }
    if let Some(compressed) = connects.compressed {
        text.push_str(&match compressed {
            0 => ", none compressed: the server declined".to_owned(),
            some => format!(", {} compressed", format::count(some)),
        });
    }
    if let Some(ms) = connects.all_online_ms {
        text.push_str(&format!("; all online after {}", format::latency(ms * 1e3)));
    }
    if !cell.tls_agreed.is_empty() {
        text.push_str(&format!("; {}", tls::sentence(&cell.tls_agreed)));
    }
    text
}

/// How far one-way latencies may be off, where the clocks of two hosts are compared.
pub(crate) fn clocks(cell: &Cell) -> Option<String> {
    let clock = cell.latency.one_way.clock()?;
    let offset = clock.offset_ns as f64 / 1e3;
    let ahead = if offset < 0.0 { "behind" } else { "ahead of" };
    Some(format!(
        "the server's is {} {ahead} ours, known to {} ({} of that by drift; smallest round trip \
         {}){}",
        format::latency(offset.abs()),
        clock.error(),
        format::latency(clock.drift_ns.unsigned_abs() as f64 / 1e3),
        format::latency(clock.round_trip_min_ns as f64 / 1e3),
        match cell.latency.one_way.refusal() {
            None => "; one-way latencies are corrected by it",
            Some(_) => "",
        }
    ))
}

/// Who heard what was published, in one line.
pub(crate) fn fan_out(fan_out: &FanOut) -> String {
    let mut parts = vec![format!(
        "{} of {} copies for {} subscribers of {} publishers",
        format::count(fan_out.copies),
        format::count(fan_out.copies_expected),
        format::count(fan_out.subscribers),
        format::count(fan_out.publishers)
    )];
    if fan_out.unreached > 0 {
        let unreached = format::count(fan_out.unreached);
        parts.push(format!("{unreached} subscribers heard nothing"));
    }
    if fan_out.copies < fan_out.copies_expected {
        let least = format::count(fan_out.heard_least);
        parts.push(format!("the least any of them heard is {least} messages"));
    }
    if fan_out.silent > 0 {
        parts.push(format!(
            "{} of {} that do not read were ended by the server",
            format::count(fan_out.silent_cut),
            format::count(fan_out.silent)
        ));
    }
    parts.join("; ")
}

/// What the memory of the server did: whether it grew, in a long run. `None` without samples.
pub(crate) fn memory(cell: &Cell) -> Option<String> {
    if let Some(growth) = Growth::of(cell) {
        return Some(growth.to_string());
    }
    let memory: Vec<u64> = cell
        .intervals
        .iter()
        .filter_map(|interval| interval.server_rss_bytes)
        .collect();
    let [first, .., last] = memory.as_slice() else {
        return None;
    };
    let (first, last) = (format::bytes(*first as f64), format::bytes(*last as f64));
    Some(format!(
        "{first} in the first second, {last} in the last; whether it grows is told of a minute \
         or more"
    ))
}

/// What is to be said of a cell's course over time, as pairs of a name and a value: whether its
/// curves are flat, what the server counted, and which seconds stand out.
pub(crate) fn over_time(cell: &Cell) -> Vec<(String, String)> {
    let each = course::rate_of_each(cell).map(|rate| ("each client".to_owned(), rate));
    let trends = course::trends(cell).into_iter();
    let trends = trends.map(|(curve, trend)| (format!("course of {curve}"), trend));
    let mut pairs: Vec<(String, String)> = each.into_iter().chain(trends).collect();
    let counted = live_counts::sentence(cell);
    pairs.extend(counted.map(|sentence| ("server's counters".to_owned(), sentence)));
    let (found, others) = spikes::spikes(cell);
    for (index, spike) in found.iter().enumerate() {
        pairs.push((format!("spike {}", index + 1), spike.to_string()));
    }
    if others > 0 {
        let sentence = format!("{} lower ones", format::count(others as u64));
        pairs.push(("more spikes".to_owned(), sentence));
    }
    pairs
}

/// Thresholds and what came of them, as pairs of a name and a value.
pub(crate) fn thresholds(cell: &Cell) -> impl Iterator<Item = (String, String)> + '_ {
    cell.thresholds.iter().map(|threshold| {
        let name = format!("threshold {}", threshold.expression);
        (name, threshold.finding())
    })
}

/// What the environment was, as pairs of a name and a value.
pub(crate) fn environment(environment: &Environment) -> Vec<(String, String)> {
    let mut pairs = Vec::new();
    let mut pair = |name: &str, value: String| {
        if !value.is_empty() {
            pairs.push((name.to_owned(), value));
        }
    };
    pair("started", environment.started_at.clone());
    if environment.elapsed_s > 0.0 {
        pair("took", format!("{:.1} s", environment.elapsed_s));
    }
    pair("CPU", environment.cpu_model.clone());
    if environment.cores > 0 {
        pair("cores", environment.cores.to_string());
    }
    if environment.memory_bytes > 0 {
        pair("memory", format::bytes(environment.memory_bytes as f64));
    }
    pair("kernel", environment.kernel.clone());
    pair("system", environment.os.clone());
    if environment.fd_limit > 0 {
        pair("file descriptors", format::count(environment.fd_limit));
    }
    pair("seed", environment.seed.to_string());
    let maps = [
        &environment.versions,
        &environment.sysctls,
        &environment.notes,
    ];
    for (name, value) in maps.into_iter().flatten() {
        pair(name, value.clone());
    }
    if let Some(servers) = &environment.servers {
        pairs.extend(of_servers(servers));
    }
    for (name, sum) in &environment.contestant_files {
        pairs.push((format!("files of {name}, SHA-256"), sum.clone()));
    }
    pairs
}

/// The same of the servers' host. What is drawn and how long it took belong to the run.
fn of_servers(servers: &Environment) -> impl Iterator<Item = (String, String)> {
    let pairs = environment(servers).into_iter();
    let pairs = pairs.filter(|(name, _)| !["started", "seed"].contains(&name.as_str()));
    pairs.map(|(name, value)| (format!("servers' host: {name}"), value))
}

/// The title: the name, or what the file holds.
pub(crate) fn title(run: &Run) -> String {
    match (run.name.as_str(), run.is_bench()) {
        ("", true) => "bench".to_owned(),
        ("", false) => "load run".to_owned(),
        (name, _) => name.to_owned(),
    }
}

/// How to read the figures, for whoever sees the report first: by the kinds of load that it has.
pub(crate) fn how_to_read(run: &Run) -> String {
    let cells = run.cells();
    let has = |kind: Loop| cells.iter().any(|cell| cell.parameters.kind() == kind);
    let (open, closed) = (has(Loop::Open), has(Loop::Closed));
    let mut sentences = match (open, closed) {
        (true, true) => vec![DUE, OPEN, SOME_ARE_CLOSED, CLOSED, SERVICE],
        (true, false) => vec![DUE, OPEN, SERVICE],
        (false, true) => vec![DUE, ALL_ARE_CLOSED, CLOSED, SERVICE],
        (false, false) => vec![NOTHING_DUE],
    };
    if cells.iter().any(|cell| !cell.handshake.total.is_empty()) {
        sentences.push(HANDSHAKES);
    }
    sentences.join(" ")
}

const NOTHING_DUE: &str = "No message was due: connections were opened and held.";
const DUE: &str = "Every latency of a message but the service time starts at the moment it was \
    due, whether or not the generator or the server was late by then.";
const OPEN: &str = "Where messages have a rate or an interval, they are due at times that wait \
    for nobody: a stall is charged to every message it held up, as users would feel it.";
const ALL_ARE_CLOSED: &str = "The loads of this report are closed loops, in which";
const SOME_ARE_CLOSED: &str = "In closed loops";
const CLOSED: &str = "a message is due once there is a reply to an earlier one. A stall is \
    charged to the messages that were under way when it began, at most so many per connection \
    as may be in flight; those that would have followed are not sent, which lowers the rate \
    and not the percentiles.";
const SERVICE: &str = "The service time starts at the actual send, so a response far above it \
    means that messages waited to be sent.";
const HANDSHAKES: &str = "A handshake starts with its attempt, not with the wait for a place \
    among those that may be under way at once; the handshake response, where there is one, has \
    that wait.";

/// What to know about one-way latencies from a server that answers in milliseconds.
pub(crate) const COARSE_CLOCK: &str = "The server's timestamps have a resolution of 1 ms.";

/// What to know about tails that are drawn side by side.
pub(crate) const OWN_AXES: &str = "Each panel has axes of its own: compare the numbers along \
    them, not the shapes.";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::Content;
    use crate::sample;

    #[test]
    fn a_stall_is_charged_as_the_kind_of_load_has_it() {
        let told = |rates: &[Option<f64>]| {
            let cell = |rate_per_s: &Option<f64>| {
                let mut cell = Cell::default();
                cell.parameters.rate_per_s = *rate_per_s;
                cell.parameters.in_flight = Some(1);
                cell
            };
            how_to_read(&Run {
                content: Content::Bench(rates.iter().map(cell).collect()),
                ..Run::default()
            })
        };
        let (every, under_way) = ("to every message it held up", "that were under way");
        let open = told(&[Some(50.0)]);
        assert!(open.contains(every) && !open.contains(under_way), "{open}");
        let closed = told(&[None]);
        assert!(closed.contains(under_way), "{closed}");
        assert!(!closed.contains(every), "{closed}");
        let both = told(&[None, Some(50.0)]);
        assert!(both.contains(every), "{both}");
        assert!(both.contains("In closed loops a message is due"), "{both}");
        assert!(!both.contains("handshake"), "{both}");
        // Connections that are only held have no messages.
        let held = Run {
            content: Content::Load(Box::default()),
            ..Run::default()
        };
        assert_eq!(how_to_read(&held), NOTHING_DUE);
        let bench = how_to_read(&sample::bench(1, 1000));
        assert!(bench.contains("with its attempt"), "{bench}");
    }

    #[test]
    fn the_host_of_the_servers_is_told_apart() {
        let host = |cpu_model: &str| Environment {
            cpu_model: cpu_model.to_owned(),
            started_at: "2026-11-24T21:00:00Z".to_owned(),
            ..Environment::default()
        };
        let both = Environment {
            servers: Some(Box::new(host("theirs"))),
            ..host("ours")
        };
        let pairs = environment(&both);
        let value = |name: &str| {
            let mut of_name = pairs.iter().filter(|(it, _)| it == name);
            of_name.next().map(|(_, value)| value.as_str())
        };
        assert_eq!(value("CPU"), Some("ours"));
        assert_eq!(value("servers' host: CPU"), Some("theirs"));
        assert_eq!(value("servers' host: started"), None);
    }
}
