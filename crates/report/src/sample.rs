//! Synthetic runs for tests: lifelike latencies without a clock or a random generator.

use crate::cell::Cell;
use crate::counts::{Bytes, Connects, Messages, Rate};
use crate::environment::{Environment, Generator, Link, Server};
use crate::histogram::Histogram;
use crate::interval::{Interval, IntervalLatency};
use crate::one_way::OneWay;
use crate::run::{Content, Run};
use crate::verdict::Verdict;

/// A bench of four client counts over `seconds`, one in `thinning` messages recorded.
pub(crate) fn bench(seconds: u64, thinning: u64) -> Run {
    let cells = [(1000, 0.6), (3000, 4.0), (5000, 22.0), (10_000, 160.0)]
        .map(|(clients, scale_ms)| cell(clients, scale_ms, seconds, thinning));
    let command_line = ["moonwire", "bench", "--clients", "1000,3000,5000,10000"];
    Run {
        rules: None,
        capacities: Vec::new(),
        ceilings: Vec::new(),
        name: "bench of amplify, 20 ms link".to_owned(),
        environment: Environment {
            cpu_model: "AMD EPYC 7B13".to_owned(),
            cores: 2,
            memory_bytes: 8 << 30,
            kernel: "6.1.0-18-amd64".to_owned(),
            os: "Debian GNU/Linux 12".to_owned(),
            versions: [("moonwire".to_owned(), "0.1.0".to_owned())].into(),
            contestant_files: Default::default(),
            fd_limit: 1_048_576,
            sysctls: [("net.core.somaxconn".to_owned(), "4096".to_owned())].into(),
            command_line: command_line.map(str::to_owned).to_vec(),
            seed: 42,
            started_at: "2026-11-21T21:21:00Z".to_owned(),
            elapsed_s: 131.4,
            ..Environment::default()
        },
        content: Content::Bench(cells.to_vec()),
    }
}

/// A cell whose latency above the link's delay has about this scale, with a tail.
pub(crate) fn cell(clients: u64, scale_ms: f64, seconds: u64, thinning: u64) -> Cell {
    let mut cell = Cell::default();
    cell.parameters.clients = clients;
    cell.parameters.batch = Some(1);
    cell.parameters.batches = Some(seconds);
    cell.parameters.wait_ms = Some(1000.0);
    cell.parameters.message_bytes = 1024;
    cell.parameters.replies = 4;
    cell.parameters.link_delay_ms = Some(20.0);
    let mut one_way = Histogram::new();
    let mut noise = Noise(clients);
    for second in 0..seconds {
        let interval = interval(
            &mut cell,
            &mut one_way,
            &mut noise,
            second,
            scale_ms,
            thinning,
        );
        cell.intervals.push(interval);
    }
    cell.latency.one_way = OneWay::Measured {
        histogram: one_way,
        resolution_us: 1,
        clock: None,
    };
    for _ in 0..clients / thinning {
        let tcp = 40_050_000 + (noise.exponential() * scale_ms * 4e5) as u64;
        let upgrade = 40_200_000 + (noise.exponential() * scale_ms * 8e5) as u64;
        cell.handshake.tcp.record(tcp);
        cell.handshake.upgrade.record(upgrade);
        cell.handshake.total.record(tcp + upgrade);
    }
    let sent = cell.latency.response.count();
    fill_counters(&mut cell, sent, seconds);
    if clients >= 10_000 {
        cell.assessment.add(
            Verdict::Suspect,
            "send lag p99 is 2.31 ms, at most 1.00 ms allowed",
        );
        cell.errors.insert("connect: timed out".to_owned(), 3);
        cell.closes.insert("1000".to_owned(), clients);
    }
    cell
}

fn interval(
    cell: &mut Cell,
    one_way_all: &mut Histogram,
    noise: &mut Noise,
    second: u64,
    scale_ms: f64,
    thinning: u64,
) -> Interval {
    let clients = cell.parameters.clients;
    let (mut response, mut one_way) = (Histogram::new(), Histogram::new());
    // Every eighth second something else runs on the machine.
    let load = if second % 8 == 5 {
        2.6
    } else {
        1.0 + 0.2 * noise.uniform()
    };
    for _ in 0..clients / thinning {
        let tail = if noise.uniform() < 0.012 { 7.0 } else { 1.0 };
        let ahead = (noise.exponential() * scale_ms * load * tail * 1e6) as u64;
        let back = (noise.exponential() * scale_ms * 2e5) as u64;
        let lag = 20_000 + (noise.exponential() * (60.0 + scale_ms * 4.0) * 1e3) as u64;
        let there = 20_060_000 + ahead;
        one_way.record(there);
        response.record(there + 20_050_000 + back + lag);
        cell.latency
            .first_reply
            .record(there + 20_040_000 + back / 2 + lag);
        cell.latency.service.record(there + 20_050_000 + back);
        cell.latency.send_lag.record(lag);
        for reply in 1..=4 {
            cell.latency
                .round_trip_seed
                .record(there + 20_040_000 + back * reply / 4);
        }
    }
    cell.latency.response.merge(&response);
    one_way_all.merge(&one_way);
    Interval {
        start_s: second as f64,
        length_s: 1.0,
        sent: clients,
        received: clients * 4,
        errors: 0,
        opened: if second == 0 { clients } else { 0 },
        connected: clients,
        in_flight: (clients as f64 * 0.02 * load) as u64,
        response: IntervalLatency::of(&response),
        service: IntervalLatency::of(&response),
        send_lag: None,
        one_way: IntervalLatency::of(&one_way),
        server_cpu: Some(rounded((0.05 + clients as f64 * 4.2e-5 * load).min(1.0))),
        throttled_ms: None,
        server_rss_bytes: Some(21_000_000 + clients * 2200 + second * 900),
        generator_cpu: Some(rounded(0.08 + clients as f64 * 3e-5)),
        ..Interval::default()
    }
}

fn fill_counters(cell: &mut Cell, sent: u64, seconds: u64) {
    let clients = cell.parameters.clients;
    cell.messages = Messages {
        sent,
        received: sent * 4,
        ..Messages::default()
    };
    cell.bytes = Bytes {
        sent: sent * 1032,
        received: sent * 4400,
    };
    cell.rate = Rate {
        target_per_s: Some(clients as f64),
        sent_per_s: rounded(clients as f64 * 0.9998),
        received_per_s: rounded(clients as f64 * 3.9992),
        duration_s: seconds as f64,
        ..Rate::default()
    };
    let all_online_ms = Some(rounded(300.0 + clients as f64 * 0.11));
    cell.connects = Connects {
        ok: clients,
        all_online_ms,
        ..Connects::default()
    };
    cell.server = Some(Server {
        name: "moonwire serve 0.1.0, amplify".to_owned(),
        urls: vec!["ws://10.77.0.2:5083/amplify".to_owned()],
        cpu_ns_per_message: Some(21_400.0),
        cpu_s: Some(rounded(sent as f64 * 2.14e-5)),
        rss_bytes: Some(21_000_000 + clients * 2200),
        rss_peak_bytes: Some(22_000_000 + clients * 2300),
        cores: "1".to_owned(),
        ..Server::default()
    });
    cell.generator = Generator {
        threads: 1,
        cpu_s: Some(rounded(0.3 * seconds as f64)),
        cpu_share: Some(0.31),
        cpu_pressure: Some(0.004),
        cpu_taken: None,
        cpu_limit: None,
        throttled_ms: None,
        cores: "0".to_owned(),
        source_addresses: 1,
    };
    cell.link = Some(Link {
        kind: "tun".to_owned(),
        delay_ms: 20.0,
        empty_rtt_min_us: Some(40_082.0),
        empty_rtt_p50_us: Some(40_171.0),
        queue_max: Some(100_000),
        queue_unit: "packets".to_owned(),
        cpu_s: Some(0.9),
        ..Link::default()
    });
}

/// Compares with a file beside the sources; `UPDATE=1 cargo test` writes it anew.
pub(crate) fn assert_golden(name: &str, text: &str) {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("src/golden")
        .join(name);
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&path, text).unwrap();
    }
    let expected = std::fs::read_to_string(&path).unwrap();
    assert!(
        text == expected,
        "{name} differs from what is expected:\n{text}"
    );
}

/// A number that survives being printed and parsed.
fn rounded(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}

/// A linear congruential generator: the same numbers in every test run.
struct Noise(u64);

impl Noise {
    /// Between 0 and 1, never 0.
    fn uniform(&mut self) -> f64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 11) as f64 + 1.0) / (1u64 << 53) as f64
    }

    fn exponential(&mut self) -> f64 {
        -self.uniform().ln()
    }
}
