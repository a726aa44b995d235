//! The counters for people and machines: Prometheus text, and the table printed at exit.

use std::fmt::Write;

use moonwire_net::SessionMemory;

use crate::mailbox::MailboxLoad;
use crate::stats::{
    Counter, Failure, HandshakeFailure, ROUND_TRIP_BOUNDS_MS, ServiceStats, Stats, WorkerStats,
};

/// The media type of [`prometheus`].
pub(crate) const PROMETHEUS_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// What is on its way to each worker.
fn letters(page: &mut Page, mailboxes: &[MailboxLoad]) {
    let mut family = |name, help, of: fn(&MailboxLoad) -> usize| {
        page.family(name, "gauge", help);
        for (worker, load) in mailboxes.iter().enumerate() {
            page.line(name, &format!("worker=\"{worker}\""), &of(load).to_string());
        }
    };
    let help = "Connections on their way to this worker.";
    family("moonwire_mailbox_depth", help, |load| load.places);
    let help = "Bytes in memory of connections that wait for this worker.";
    family("moonwire_mailbox_bytes", help, |load| load.bytes);
}

/// All counters in the text format of Prometheus, version 0.0.4, with how many connections are on
/// their way to each worker and how many source addresses are counted.
pub(crate) fn prometheus(stats: &Stats, mailboxes: &[MailboxLoad], sources: usize) -> String {
    let mut page = Page {
        text: String::with_capacity(PAGE_BYTES),
    };
    page.family(
        "moonwire_uptime_seconds",
        "gauge",
        "Seconds since the server started.",
    );
    page.line(
        "moonwire_uptime_seconds",
        "",
        &format!("{:.3}", stats.started.elapsed().as_secs_f64()),
    );
    let name = "moonwire_sources";
    let help = "Source addresses whose connections and handshakes are counted.";
    page.family(name, "gauge", help);
    page.line(name, "", &sources.to_string());
    for metric in &WORKER_METRICS {
        page.family(metric.name, metric.kind, metric.help);
        for (worker, shard) in stats.workers.iter().enumerate() {
            let labels = format!("worker=\"{worker}\"");
            page.line(
                metric.name,
                &labels,
                &(metric.counter)(shard).value().to_string(),
            );
        }
    }
    letters(&mut page, mailboxes);
    memory(&mut page, stats);
    handshake_failures(&mut page, stats);
    for metric in &SERVICE_METRICS {
        page.family(metric.name, metric.kind, metric.help);
        each_service(stats, |labels, service| {
            page.line(
                metric.name,
                labels,
                &(metric.counter)(service).value().to_string(),
            );
        });
    }
    round_trips(&mut page, stats);
    failures(&mut page, stats);
    page.text
}

fn memory(page: &mut Page, stats: &Stats) {
    let name = "moonwire_memory_bytes";
    let help = "Bytes that connections hold in memory beyond their fixed size, by what for.";
    page.family(name, "gauge", help);
    for (worker, shard) in stats.workers.iter().enumerate() {
        for (part, held) in SessionMemory::NAMES.iter().zip(&shard.memory_bytes) {
            let labels = format!("worker=\"{worker}\",part=\"{part}\"");
            page.line(name, &labels, &held.value().to_string());
        }
    }
}

fn handshake_failures(page: &mut Page, stats: &Stats) {
    let name = "moonwire_handshake_failures_total";
    page.family(
        name,
        "counter",
        "Handshakes that did not end in a connection, by reason.",
    );
    for (worker, shard) in stats.workers.iter().enumerate() {
        for reason in HandshakeFailure::ALL {
            let labels = format!("worker=\"{worker}\",reason=\"{}\"", reason.name());
            let value = shard.handshake_failures[reason as usize].value();
            page.line(name, &labels, &value.to_string());
        }
    }
}

fn round_trips(page: &mut Page, stats: &Stats) {
    let name = "moonwire_ping_rtt_seconds";
    let help = "From a ping that the server sent by itself to its pong.";
    page.family(name, "histogram", help);
    each_service(stats, |labels, service| {
        let mut count = 0;
        let bounds = ROUND_TRIP_BOUNDS_MS.map(|ms| (ms as f64 / 1000.0).to_string());
        let bounds = bounds.into_iter().chain(["+Inf".to_owned()]);
        for (bound, bucket) in bounds.zip(&service.ping_rtt.buckets) {
            count += bucket.value();
            let labels = format!("{labels},le=\"{bound}\"");
            page.line(&format!("{name}_bucket"), &labels, &count.to_string());
        }
        let sum_s = service.ping_rtt.sum_ns.value() as f64 / 1e9;
        page.line(&format!("{name}_sum"), labels, &sum_s.to_string());
        page.line(&format!("{name}_count"), labels, &count.to_string());
    });
}

fn failures(page: &mut Page, stats: &Stats) {
    let name = "moonwire_failures_total";
    page.family(
        name,
        "counter",
        "What went wrong after the handshake, by kind.",
    );
    each_service(stats, |labels, service| {
        for failure in Failure::ALL {
            let labels = format!("{labels},kind=\"{}\"", failure.name());
            let value = service.failures[failure as usize].value();
            page.line(name, &labels, &value.to_string());
        }
    });
}

fn each_service(stats: &Stats, mut visit: impl FnMut(&str, &ServiceStats)) {
    for (worker, shard) in stats.workers.iter().enumerate() {
        for (name, service) in stats.services.iter().zip(&shard.services) {
            visit(&format!("worker=\"{worker}\",service=\"{name}\""), service);
        }
    }
}

/// The counters as a table: one line for each service on each worker that had any connection, the
/// sums, and what went wrong.
pub(crate) fn table(stats: &Stats) -> String {
    let mut text = format!("after {:.1} s\n", stats.started.elapsed().as_secs_f64());
    write_row(
        &mut text,
        [
            "service",
            "worker",
            "connected",
            "ever",
            "messages in",
            "out",
            "bytes in",
            "out",
            "failures",
        ]
        .map(str::to_owned),
    );
    let mut sums = [0; 7];
    for (worker, shard) in stats.workers.iter().enumerate() {
        for (name, service) in stats.services.iter().zip(&shard.services) {
            let numbers = numbers(service);
            if numbers.iter().all(|number| *number == 0) {
                continue;
            }
            sums = std::array::from_fn(|i| sums[i] + numbers[i]);
            write_row(&mut text, row(name, &worker.to_string(), numbers));
        }
    }
    write_row(&mut text, row("all", "", sums));
    let peaks = stats
        .workers
        .iter()
        .map(|shard| shard.memory_peak_bytes.value());
    if let Some(most) = peaks.max().filter(|most| *most > 0) {
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "memory: the connections of a worker held at most {most} bytes"
        );
    }
    let mut kinds = Vec::new();
    for reason in HandshakeFailure::ALL {
        let of = |shard: &WorkerStats| shard.handshake_failures[reason as usize].value();
        kinds.push((
            format!("handshake {}", reason.name()),
            stats.workers.iter().map(|s| of(s)).sum(),
        ));
    }
    for failure in Failure::ALL {
        let of = |service: &ServiceStats| service.failures[failure as usize].value();
        let services = stats.workers.iter().flat_map(|shard| &shard.services);
        kinds.push((failure.name().to_owned(), services.map(of).sum()));
    }
    let kinds: Vec<String> = kinds
        .into_iter()
        .filter(|(_, count): &(String, u64)| *count > 0)
        .map(|(kind, count)| format!("{kind} {count}"))
        .collect();
    if !kinds.is_empty() {
        text.push_str("failures: ");
        text.push_str(&kinds.join(", "));
        text.push('\n');
    }
    text
}

fn numbers(service: &ServiceStats) -> [u64; 7] {
    [
        service.connected.value(),
        service.connections.value(),
        service.messages_in.value(),
        service.messages_out.value(),
        service.bytes_in.value(),
        service.bytes_out.value(),
        service.failures.iter().map(Counter::value).sum(),
    ]
}

fn row(service: &str, worker: &str, numbers: [u64; 7]) -> [String; 9] {
    let mut row: [String; 9] = Default::default();
    row[0] = service.to_owned();
    row[1] = worker.to_owned();
    for (cell, number) in row[2..].iter_mut().zip(numbers) {
        *cell = number.to_string();
    }
    row
}

fn write_row(text: &mut String, row: [String; 9]) {
    let [service, numbers @ ..] = row;
    let widths = [6, 9, 9, 12, 12, 15, 15, 8];
    let mut line = format!("{service:<16}");
    for (number, width) in numbers.iter().zip(widths) {
        let _ = write!(line, " {number:>width$}");
    }
    text.push_str(&line);
    text.push('\n');
}

struct Page {
    text: String,
}

impl Page {
    fn family(&mut self, name: &str, kind: &str, help: &str) {
        // Writing to a string cannot fail.
        let _ = writeln!(self.text, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    fn line(&mut self, name: &str, labels: &str, value: &str) {
        let _ = match labels {
            "" => writeln!(self.text, "{name} {value}"),
            labels => writeln!(self.text, "{name}{{{labels}}} {value}"),
        };
    }
}

/// One counter of each worker or of each service.
struct Metric<T> {
    name: &'static str,
    kind: &'static str,
    help: &'static str,
    counter: fn(&T) -> &Counter,
}

const WORKER_METRICS: [Metric<WorkerStats>; 12] = [
    Metric {
        name: "moonwire_sockets",
        kind: "gauge",
        help: "Open sockets, handshakes included.",
        counter: |worker| &worker.sockets,
    },
    Metric {
        name: "moonwire_accepted_total",
        kind: "counter",
        help: "Accepted sockets.",
        counter: |worker| &worker.accepted,
    },
    Metric {
        name: "moonwire_accept_failures_total",
        kind: "counter",
        help: "Failed accepts, usually for want of descriptors.",
        counter: |worker| &worker.accept_failed,
    },
    Metric {
        name: "moonwire_handed_over_total",
        kind: "counter",
        help: "Connections given to a worker that owns an instance.",
        counter: |worker| &worker.handed_over,
    },
    Metric {
        name: "moonwire_taken_over_total",
        kind: "counter",
        help: "Connections taken from a worker without an instance.",
        counter: |worker| &worker.taken_over,
    },
    Metric {
        name: "moonwire_turns_total",
        kind: "counter",
        help: "Turns of the loop.",
        counter: |worker| &worker.turns,
    },
    Metric {
        name: "moonwire_handshakes",
        kind: "gauge",
        help: "Handshakes that are not over.",
        counter: |worker| &worker.handshakes,
    },
    Metric {
        name: "moonwire_accept_pauses_total",
        kind: "counter",
        help: "Times that accepting was put off because too many handshakes were not over.",
        counter: |worker| &worker.accept_pauses,
    },
    Metric {
        name: "moonwire_memory_peak_bytes",
        kind: "gauge",
        help: "The most that the connections of this worker held in memory at once.",
        counter: |worker| &worker.memory_peak_bytes,
    },
    Metric {
        name: "moonwire_compressor_bytes",
        kind: "gauge",
        help: "Bytes in memory of the compressors that the connections of this worker share.",
        counter: |worker| &worker.compressor_bytes,
    },
    Metric {
        name: "moonwire_spare_buffer_bytes",
        kind: "gauge",
        help: "Bytes in memory of the buffers that are kept for what connections send next.",
        counter: |worker| &worker.spare_buffer_bytes,
    },
    Metric {
        name: "moonwire_plain_requests_total",
        kind: "counter",
        help: "Requests that the server answered itself.",
        counter: |worker| &worker.requests,
    },
];

const SERVICE_METRICS: [Metric<ServiceStats>; 7] = [
    Metric {
        name: "moonwire_connected",
        kind: "gauge",
        help: "Connections now.",
        counter: |service| &service.connected,
    },
    Metric {
        name: "moonwire_connections_total",
        kind: "counter",
        help: "Connections ever.",
        counter: |service| &service.connections,
    },
    Metric {
        name: "moonwire_messages_in_total",
        kind: "counter",
        help: "Messages of clients.",
        counter: |service| &service.messages_in,
    },
    Metric {
        name: "moonwire_messages_out_total",
        kind: "counter",
        help: "Messages to clients.",
        counter: |service| &service.messages_out,
    },
    Metric {
        name: "moonwire_bytes_in_total",
        kind: "counter",
        help: "Payload bytes of clients.",
        counter: |service| &service.bytes_in,
    },
    Metric {
        name: "moonwire_bytes_out_total",
        kind: "counter",
        help: "Payload bytes to clients.",
        counter: |service| &service.bytes_out,
    },
    Metric {
        name: "moonwire_write_queue_bytes",
        kind: "gauge",
        help: "Bytes that wait for clients that read slowly.",
        counter: |service| &service.write_queue_bytes,
    },
];

/// A page of two workers and two services is about this long.
const PAGE_BYTES: usize = 8 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    fn stats() -> Stats {
        let stats = Stats::new(vec!["echo".to_owned()], 2);
        stats.workers[1].services[0].connected.add(2);
        stats.workers[1].services[0].messages_in.add(41);
        stats.workers[1].services[0].failed(Failure::LuaError);
        stats.workers[0].handshake_failed(HandshakeFailure::NotFound);
        stats.workers[1].memory_bytes[2].set(700);
        stats.workers[0].memory_peak_bytes.set(900);
        for ms in [1, 2, 250, 9000] {
            let took = std::time::Duration::from_millis(ms);
            stats.workers[1].services[0].ping_rtt.note(took);
        }
        stats
    }

    fn mailboxes() -> [MailboxLoad; 2] {
        let full = MailboxLoad {
            places: 3,
            bytes: 800,
        };
        [MailboxLoad::default(), full]
    }

    #[test]
    fn the_page_names_service_and_worker() {
        let page = prometheus(&stats(), &mailboxes(), 5);
        for line in [
            "moonwire_connected{worker=\"1\",service=\"echo\"} 2",
            "moonwire_messages_in_total{worker=\"1\",service=\"echo\"} 41",
            "moonwire_failures_total{worker=\"1\",service=\"echo\",kind=\"lua_error\"} 1",
            "moonwire_handshake_failures_total{worker=\"0\",reason=\"not_found\"} 1",
            "moonwire_mailbox_depth{worker=\"1\"} 3",
            "moonwire_mailbox_bytes{worker=\"1\"} 800",
            "moonwire_memory_bytes{worker=\"1\",part=\"message\"} 700",
            "moonwire_sources 5",
            "moonwire_ping_rtt_seconds_bucket{worker=\"1\",service=\"echo\",le=\"0.001\"} 1",
            "moonwire_ping_rtt_seconds_bucket{worker=\"1\",service=\"echo\",le=\"0.3\"} 3",
            "moonwire_ping_rtt_seconds_bucket{worker=\"1\",service=\"echo\",le=\"+Inf\"} 4",
            "moonwire_ping_rtt_seconds_sum{worker=\"1\",service=\"echo\"} 9.253",
            "moonwire_ping_rtt_seconds_count{worker=\"1\",service=\"echo\"} 4",
        ] {
            assert!(
                page.lines().any(|found| found == line),
                "{line} is missing in\n{page}"
            );
        }
    }

    #[test]
    fn each_family_is_declared_once() {
        let page = prometheus(&stats(), &mailboxes(), 5);
        let mut types: Vec<_> = page
            .lines()
            .filter(|line| line.starts_with("# TYPE"))
            .collect();
        let declared = types.len();
        types.sort_unstable();
        types.dedup();
        assert_eq!(types.len(), declared);
    }

    #[test]
    fn the_table_sums_and_names_failures() {
        let table = table(&stats());
        let all = table.lines().find(|line| line.starts_with("all")).unwrap();
        let words: Vec<_> = all.split_whitespace().collect();
        assert_eq!(words, ["all", "2", "0", "41", "0", "0", "0", "1"]);
        assert!(
            table.contains("\nmemory: the connections of a worker held at most 900 bytes\n"),
            "{table}"
        );
        assert!(
            table.ends_with("failures: handshake not_found 1, lua_error 1\n"),
            "{table}"
        );
    }
}
