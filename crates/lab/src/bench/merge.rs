//! Puts what the lab saw from outside into the cell that the generator measured.

use std::time::Instant;

use moonwire_load::Phase;
use moonwire_report::{Cell, Link as LinkReport, Server, Verdict};

use crate::link::{DirectionStats, IdleExchange, Link, LinkKind, LinkStats};
use crate::sampling::{Sample, Series};

/// When the phases of a run began, as its progress told.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Phases {
    sending: Option<Instant>,
    draining: Option<Instant>,
    closing: Option<Instant>,
}

impl Phases {
    /// Notes the phase that the run is in now; only the first time counts.
    pub(crate) fn note(&mut self, phase: Phase, now: Instant) {
        let begun = match phase {
            Phase::Connecting => return,
            Phase::Sending => &mut self.sending,
            Phase::Draining => &mut self.draining,
            Phase::Closing => &mut self.closing,
        };
        begun.get_or_insert(now);
    }

    /// The moment that the intervals of the run count from.
    pub(crate) fn origin(&self, end: Instant) -> Instant {
        self.sending.unwrap_or(end)
    }

    /// From the first send to the last one, as far as the run got.
    pub(crate) fn sending(&self, end: Instant) -> Option<(Instant, Instant)> {
        Some((self.sending?, self.draining.unwrap_or(end)))
    }

    /// From the first send to the last reply awaited, as far as the run got.
    fn busy(&self, end: Instant) -> Option<(Instant, Instant)> {
        Some((self.sending?, self.closing.unwrap_or(end)))
    }
}

/// Adds the server's figures and its share of each interval.
pub(crate) fn add_server(
    cell: &mut Cell,
    mut server: Server,
    series: &Series,
    phases: &Phases,
    end: Instant,
) {
    fill_server(&mut server, cell.messages.sent, series, phases, end);
    if let Some((from, to)) = phases.sending(end) {
        add_to_intervals(cell, series, from);
        cell.processors = series.processors(from, to);
    }
    if let Some(reason) = &server.died {
        cell.assessment.add_cause(Verdict::Invalid, reason.clone());
        cell.ended_early.get_or_insert_with(|| reason.clone());
    }
    cell.server = Some(server);
}

/// What a server used for so many messages.
pub(crate) fn fill_server(
    server: &mut Server,
    messages: u64,
    series: &Series,
    phases: &Phases,
    end: Instant,
) {
    server.rss_start_bytes = series.0.first().map(|sample| sample.rss_bytes);
    server.rss_peak_bytes = series.rss_peak_bytes();
    server.threads = series.0.iter().map(|sample| sample.threads).max();
    if let Some((from, to)) = phases.busy(end) {
        let used = |at| series.cpu_ns_at(at);
        if let (Some(before_ns), Some(after_ns)) = (used(from), used(to)) {
            let cpu_ns = (after_ns - before_ns).max(0.0);
            server.cpu_s = Some(cpu_ns / 1e9);
            server.observed_s = Some((to - from).as_secs_f64());
            let range = series.cpu_range(from, to);
            (server.cpu_least, server.cpu_most) = range.unzip();
            server.throttled_ms = series.throttled_ms(from, to);
            server.cpu_ns_per_message = (messages > 0).then(|| cpu_ns / messages as f64);
        }
        let sending_ended = phases.draining.unwrap_or(to);
        server.rss_bytes = series
            .last_until(sending_ended)
            .map(|sample| sample.rss_bytes);
    }
    if let (Some(first), Some(last)) = (series.0.first(), series.0.last()) {
        server.counters.extend(differences(first, last));
        server.counters.extend(series.peaks());
    }
}

/// Adds what the link was, what it did, and what speaks against it.
pub(crate) fn add_link(
    cell: &mut Cell,
    link: &Link,
    idle: Option<&IdleExchange>,
    stats: Option<&LinkStats>,
) {
    let spec = link.spec();
    let (queue_max, queue_unit) = spec.queue_bound(link.kind());
    let mut note = match link.kind() {
        LinkKind::Loopback | LinkKind::Netem => String::new(),
        LinkKind::Tun => "packets pass a forwarder of ours between two namespaces".to_owned(),
        LinkKind::StandIn => "bytes are delayed at the generator's sockets: no effect on \
                              handshake, loss or window"
            .to_owned(),
    };
    for reason in link.notes() {
        note += if note.is_empty() { "" } else { "; " };
        note += reason;
    }
    cell.link = Some(LinkReport {
        kind: kind_name(link.kind()).to_owned(),
        delay_ms: spec.delay.as_secs_f64() * 1e3,
        jitter_ms: spec.jitter.as_secs_f64() * 1e3,
        loss: spec.loss,
        rate_bit_per_s: spec.rate_bytes_per_s.map(|rate| rate as f64 * 8.0),
        empty_rtt_min_us: idle.map(|idle| idle.round_trip.min_ns as f64 / 1e3),
        empty_rtt_p50_us: idle.map(|idle| idle.round_trip.p50_ns as f64 / 1e3),
        queue_max: stats.map(|_| queue_max),
        queue_unit: stats.map_or_else(String::new, |_| queue_unit.to_owned()),
        drops: stats.map_or(0, LinkStats::dropped_packets),
        cpu_s: stats.map(|stats| stats.cpu_ns as f64 / 1e9),
        note,
    });
    if let Some(reason) = idle.and_then(|idle| link.reservation(idle)) {
        let reason = format!("the link is slower than asked: {reason}");
        cell.assessment.add(Verdict::Suspect, reason);
    }
    if let Some(stats) = stats {
        assess_link(cell, stats);
        assess_sharing(cell, stats, spec.forwarder_cpus.len());
    }
}

/// A server that has to wait for the link's forwarder, which goes before it on the processors that
/// they share, is slower than it is. `processors` is how many these are, 0 if they share none.
fn assess_sharing(cell: &mut Cell, stats: &LinkStats, processors: usize) {
    let server_cpu_s = cell.server.as_ref().and_then(|server| server.cpu_s);
    let Some(server_cpu_s) = server_cpu_s.filter(|_| processors > 0 && cell.rate.duration_s > 0.0)
    else {
        return;
    };
    let server_share = server_cpu_s / cell.rate.duration_s / processors as f64;
    let link_share = stats.cpu_share() / processors as f64;
    let verdict = match server_share + link_share {
        share if share > SHARED_INVALID => Verdict::Invalid,
        share if share > SHARED_MAX => Verdict::Suspect,
        _ => return,
    };
    let reason = format!(
        "the server waited for the link: they share a processor, of which the link took {:.0} % \
         and the server {:.0} %, at most {:.0} % together are allowed",
        link_share * 100.0,
        server_share * 100.0,
        SHARED_MAX * 100.0
    );
    cell.assessment.add(verdict, reason);
}

/// A link that drops what it was not asked to drop, or is late, is part of what was measured.
fn assess_link(cell: &mut Cell, stats: &LinkStats) {
    let unasked = stats.dropped_packets() - stats.up.dropped_loss - stats.down.dropped_loss;
    if unasked > 0 {
        let reason = format!("the link dropped {unasked} packets that it was to carry");
        cell.assessment.add(Verdict::Suspect, reason);
    }
    let median_ns = cell.latency.response.quantile_ns(0.5).unwrap_or(0);
    let allowed_ns = (median_ns / 20).max(LATENESS_ALLOWED_NS);
    let both = |figure: fn(&DirectionStats) -> u64| figure(&stats.up).max(figure(&stats.down));
    for (what, p99_ns) in [
        ("released packets late", both(|way| way.lateness_p99_ns)),
        (
            "could not keep up, packets may have waited at its door",
            both(|way| way.waited_p99_ns),
        ),
    ] {
        let verdict = match p99_ns {
            p99_ns if p99_ns > allowed_ns.saturating_mul(LATENESS_INVALID) => Verdict::Invalid,
            p99_ns if p99_ns > allowed_ns => Verdict::Suspect,
            _ => continue,
        };
        let reason = format!(
            "the link {what}: p99 {:.1} ms, at most {:.1} ms allowed",
            p99_ns as f64 / 1e6,
            allowed_ns as f64 / 1e6
        );
        cell.assessment.add(verdict, reason);
    }
}

/// Beyond it, work waits for more than twice as long as it takes (M/M/1). Measured on two
/// processors: with 56 % and 30 % messages took 170 to 720 ms more at the p99, with 36 % and 20 %
/// nothing.
const SHARED_MAX: f64 = 0.7;
/// Beyond it, work waits for ten times as long as it takes: such figures are the machine's.
const SHARED_INVALID: f64 = 0.9;
/// As for the send lag: 1 ms or 5 % of the median response, whichever is larger.
const LATENESS_ALLOWED_NS: u64 = 1_000_000;
/// As for the send lag: from twice that on the link is what was measured.
const LATENESS_INVALID: u64 = 2;

fn kind_name(kind: LinkKind) -> &'static str {
    match kind {
        LinkKind::Loopback => "none",
        LinkKind::Netem => "netem",
        LinkKind::Tun => "tun",
        LinkKind::StandIn => "stand-in",
    }
}

fn add_to_intervals(cell: &mut Cell, series: &Series, start: Instant) {
    let after = |seconds: f64| start + std::time::Duration::from_secs_f64(seconds.max(0.0));
    for interval in &mut cell.intervals {
        let (from, to) = (
            after(interval.start_s),
            after(interval.start_s + interval.length_s),
        );
        interval.throttled_ms = series.throttled_ms(from, to);
        interval.server_cpu = series.cpu_share(from, to);
        let last = series.last_until(to);
        interval.server_rss_bytes = last.map(|sample| sample.rss_bytes);
        interval.tcp_memory_bytes = last.map(|sample| sample.tcp_memory_bytes);
        interval.server_pss_bytes = series.rare_within(from, to).map(|rare| rare.pss_bytes);
        let rise = |count| series.rise(from, to, count);
        interval.voluntary_switches = rise(|sample| sample.voluntary_switches);
        interval.involuntary_switches = rise(|sample| sample.involuntary_switches);
        interval.retransmitted_segments = rise(|sample| sample.retransmitted_segments);
        interval.listen_overflows = rise(|sample| sample.listen_overflows);
        interval.stolen_ms = rise(|sample| sample.stolen_ms).map(|ms| ms as f64);
    }
}

fn differences(first: &Sample, last: &Sample) -> [(String, f64); 5] {
    let counter = |name: &str, count: fn(&Sample) -> u64| {
        (
            name.to_owned(),
            count(last).saturating_sub(count(first)) as f64,
        )
    };
    [
        counter("voluntary_context_switches", |sample| {
            sample.voluntary_switches
        }),
        counter("involuntary_context_switches", |sample| {
            sample.involuntary_switches
        }),
        counter("tcp_retransmitted_segments", |sample| {
            sample.retransmitted_segments
        }),
        counter("tcp_listen_overflows", |sample| sample.listen_overflows),
        ("tcp_memory_bytes".to_owned(), last.tcp_memory_bytes as f64),
    ]
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use moonwire_report::Interval;

    use super::*;

    fn sample(at: Instant, cpu_ms: u64, rss_bytes: u64) -> Sample {
        Sample {
            at,
            cpu_ns: cpu_ms * 1_000_000,
            waited_ns: 0,
            rss_bytes,
            threads: 3,
            voluntary_switches: cpu_ms,
            involuntary_switches: 0,
            retransmitted_segments: 0,
            listen_overflows: 0,
            tcp_memory_bytes: 4096,
            stolen_ms: 0,
            throttling: None,
            processors: Vec::new(),
            observer_cpu_ns: 0,
            rare: None,
        }
    }

    #[test]
    fn the_servers_cpu_counts_from_the_first_send_to_the_last_reply() {
        let start = Instant::now();
        let at = |seconds: u64| start + Duration::from_secs(seconds);
        let mut phases = Phases::default();
        phases.note(Phase::Connecting, at(0));
        phases.note(Phase::Sending, at(10));
        phases.note(Phase::Sending, at(11));
        phases.note(Phase::Draining, at(20));
        phases.note(Phase::Closing, at(21));
        let series = Series(vec![
            sample(at(0), 0, 1000),
            sample(at(10), 100, 5000),
            sample(at(20), 1100, 7000),
            sample(at(21), 1200, 6000),
            sample(at(30), 9000, 9000),
        ]);
        let mut cell = Cell::default();
        cell.messages.sent = 1000;
        cell.intervals = vec![Interval {
            start_s: 5.0,
            length_s: 1.0,
            ..Interval::default()
        }];
        add_server(&mut cell, Server::default(), &series, &phases, at(30));
        let server = cell.server.unwrap();
        assert_eq!(server.cpu_s, Some(1.1));
        assert_eq!(server.cpu_ns_per_message, Some(1_100_000.0));
        // In 10 s and in 1 s.
        assert_eq!((server.cpu_least, server.cpu_most), (Some(0.1), Some(0.1)));
        assert_eq!(
            (server.rss_start_bytes, server.rss_bytes),
            (Some(1000), Some(7000))
        );
        assert_eq!(server.rss_peak_bytes, Some(9000));
        assert_eq!(server.counters["voluntary_context_switches"], 9000.0);
        let share = cell.intervals[0].server_cpu.unwrap();
        assert!((share - 0.1).abs() < 1e-9, "{share}");
        assert_eq!(cell.intervals[0].server_rss_bytes, Some(5000));
        assert_eq!(cell.intervals[0].voluntary_switches, Some(100));
        assert_eq!(cell.intervals[0].tcp_memory_bytes, Some(4096));
    }

    #[test]
    fn a_server_that_died_makes_the_cell_invalid_with_the_reason() {
        let server = Server {
            died: Some("it fell over".to_owned()),
            ..Server::default()
        };
        let mut cell = Cell::default();
        let follows = "every connection was lost";
        cell.assessment.add(Verdict::Invalid, follows);
        let (series, phases) = (Series::default(), Phases::default());
        add_server(&mut cell, server, &series, &phases, Instant::now());
        assert_eq!(cell.assessment.verdict(), Verdict::Invalid);
        assert_eq!(cell.assessment.reasons(), ["it fell over", follows]);
        assert_eq!(cell.ended_early.as_deref(), Some("it fell over"));
    }

    #[test]
    fn a_server_that_waits_for_the_link_makes_the_cell_suspect() {
        let stats = LinkStats {
            cpu_ns: 560_000_000,
            wall_ns: 1_000_000_000,
            ..LinkStats::default()
        };
        let assessed = |server_cpu_s: f64, processors: usize| {
            let mut cell = Cell::default();
            cell.rate.duration_s = 10.0;
            cell.server = Some(Server {
                cpu_s: Some(server_cpu_s),
                ..Server::default()
            });
            assess_sharing(&mut cell, &stats, processors);
            cell.assessment
        };
        assert_eq!(assessed(1.3, 1).verdict(), Verdict::Valid);
        let both = assessed(3.0, 1);
        assert_eq!(both.verdict(), Verdict::Suspect);
        assert!(
            both.reasons()[0].contains("the link took 56 % and the server 30 %"),
            "{both:?}"
        );
        assert_eq!(assessed(3.6, 1).verdict(), Verdict::Invalid);
        assert_eq!(assessed(3.0, 2).verdict(), Verdict::Valid);
        assert_eq!(assessed(3.0, 0).verdict(), Verdict::Valid);
    }

    #[test]
    fn a_link_that_drops_or_is_late_speaks_against_the_cell() {
        let up = DirectionStats {
            dropped_loss: 5,
            ..DirectionStats::default()
        };
        let mut stats = LinkStats {
            up,
            ..LinkStats::default()
        };
        let mut cell = Cell::default();
        assess_link(&mut cell, &stats);
        assert_eq!(
            cell.assessment.verdict(),
            Verdict::Valid,
            "the loss was asked for"
        );
        stats.down.dropped_queue = 2;
        stats.down.lateness_p99_ns = 1_900_000;
        assess_link(&mut cell, &stats);
        assert_eq!(cell.assessment.verdict(), Verdict::Suspect);
        let reasons = cell.assessment.reasons();
        assert_eq!(
            reasons[0],
            "the link dropped 2 packets that it was to carry"
        );
        assert!(
            reasons[1].contains("p99 1.9 ms, at most 1.0 ms"),
            "{}",
            reasons[1]
        );
        stats.down.lateness_p99_ns = 2_100_000;
        assess_link(&mut cell, &stats);
        assert_eq!(cell.assessment.verdict(), Verdict::Invalid);
    }

    #[test]
    fn a_link_says_what_it_is() {
        let mut cell = Cell::default();
        let link = Link::establish(&crate::link::LinkSpec::default()).unwrap();
        add_link(&mut cell, &link, None, None);
        assert_eq!(cell.link.unwrap().kind, "none");
    }
}
