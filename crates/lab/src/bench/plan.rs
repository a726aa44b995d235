//! The sweep as values: which cells there are, what each asks of the generator, who runs where.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use moonwire_load::{Pacing, Scenario, Settings, Stop, Target, TimeUnit, Workload};
use moonwire_report::{Cell, Parameters};

use super::BenchError;
use crate::cgroup::CpuLimits;

/// What a bench is to do. The lists are multiplied: each combination is a cell.
#[derive(Debug, Clone)]
pub struct BenchSpec {
    /// Names the results.
    pub name: String,
    /// A server that runs already; without, the built-in one is started for each cell.
    pub url: Option<String>,
    /// Connections.
    pub clients: Vec<u32>,
    /// Messages per batch.
    pub batch: Vec<u32>,
    /// From the start of one batch to the start of the next.
    pub wait: Vec<Duration>,
    /// Time over which the clients' first batches are spread evenly; without, each cell's wait, so
    /// that the load is steady.
    pub stagger: Option<Duration>,
    /// Bytes of a message.
    pub message_size: Vec<usize>,
    /// Batches per client.
    pub batches: u64,
    /// Replies to each message.
    pub replies: u16,
    /// Delay of the link, each way; zero is no link.
    pub link_delay: Duration,
    /// Each packet takes up to this much longer.
    pub link_jitter: Duration,
    /// Share of the packets that the link drops at random, 0 to less than 1.
    pub link_loss: f64,
    /// Bottleneck of each direction in bits per second; none without.
    pub link_rate_bit_per_s: Option<u64>,
    /// Bytes that each direction holds at most; without, enough for every burst of a bench.
    pub link_queue_bytes: Option<usize>,
    /// How long replies are awaited after the last send.
    pub drain: Duration,
    /// Unit of the times in the messages.
    pub time_unit: TimeUnit,
    /// Generator threads; without, one for each processor the server does not get.
    pub threads: Option<u32>,
    /// Take any certificate.
    pub insecure: bool,
    /// The caller knows that the server behind `url` shares this host's clock.
    pub same_host: bool,
    /// Keep the processors from halting; without, in a virtual machine without a CPU quota only.
    pub idle_poll: Option<bool>,
    /// What server and generator may use of the processors; there is no proxy.
    pub cpu_limits: CpuLimits,
    /// How often, in all, a cell that the host disturbed is measured again.
    pub repeats: u32,
    /// Stream one line per reply into a file of each cell.
    pub csv: bool,
    /// The program that serves: this one, normally.
    pub program: PathBuf,
    /// Where the results go; without, `results/<time>-<name>`.
    pub out: Option<PathBuf>,
    /// For the record.
    pub command_line: Vec<String>,
    /// Fixes what is drawn at random.
    pub seed: u64,
}

impl BenchSpec {
    /// The suite of uwebsocket-benchmark with 20 batches and a steady load, against `program` as
    /// the server.
    pub fn new(program: PathBuf) -> Self {
        Self {
            name: "bench".to_owned(),
            url: None,
            clients: vec![1000, 3000, 5000, 10_000],
            batch: vec![1],
            wait: vec![Duration::from_secs(1)],
            stagger: None,
            message_size: vec![1024],
            batches: 20,
            replies: 4,
            link_delay: Duration::from_millis(20),
            link_jitter: Duration::ZERO,
            link_loss: 0.0,
            link_rate_bit_per_s: None,
            link_queue_bytes: None,
            drain: Duration::from_secs(10),
            time_unit: TimeUnit::Microseconds,
            threads: None,
            insecure: false,
            same_host: false,
            idle_poll: None,
            cpu_limits: CpuLimits::default(),
            repeats: 6,
            csv: false,
            program,
            out: None,
            command_line: Vec::new(),
            seed: 1,
        }
    }
}

/// One cell of the sweep.
#[derive(Debug, Clone)]
pub(super) struct CellPlan {
    pub(super) parameters: Parameters,
    clients: u32,
    batch: u32,
    wait: Duration,
    stagger: Duration,
    message_size: usize,
}

impl CellPlan {
    /// What the generator is to do against `url`.
    pub(super) fn scenario(
        &self,
        spec: &BenchSpec,
        url: &str,
        site: &Placement,
    ) -> Result<Scenario, BenchError> {
        let settings = Settings {
            targets: vec![Target::parse(url).map_err(BenchError::Spec)?],
            connections: self.clients,
            threads: site.threads,
            pin: site.pin.clone(),
            group: site.group.clone(),
            connect_concurrency: CONNECT_CONCURRENCY,
            barrier: true,
            stagger: Some(self.stagger),
            workload: Workload::Amplify {
                size: self.message_size,
                time_unit: spec.time_unit,
            },
            replies: spec.replies,
            pacing: Pacing::Batches {
                batch: self.batch,
                wait: self.wait,
                batches: spec.batches,
                in_flight: None,
            },
            stop: Stop::Schedule,
            drain: spec.drain,
            insecure: spec.insecure,
            seed: spec.seed,
            // The built-in server shares this host's clock, whatever its address looks like.
            same_host: spec.url.is_none() || spec.same_host,
            idle_poll: site.idle_poll,
            link_delay: site.stand_in_delay,
            raw_csv: site.raw_csv.clone(),
            ..Settings::default()
        };
        Scenario::new(settings).map_err(BenchError::Spec)
    }

    /// How long the cell takes when nothing goes wrong, from its server's start to its end.
    pub(super) fn expected_duration(&self) -> Duration {
        let batches = self.parameters.batches.unwrap_or(0) as f64;
        let sending =
            self.wait.as_secs_f64() * (batches - 1.0).max(0.0) + self.stagger.as_secs_f64();
        let connecting = f64::from(self.clients) / CONNECTS_PER_S_EXPECTED;
        Duration::from_secs_f64(sending + connecting) + CELL_OVERHEAD
    }
}

/// How the generator of a cell is set up on this machine.
#[derive(Debug, Clone, Default)]
pub(super) struct Placement {
    pub(super) threads: u32,
    pub(super) pin: Vec<usize>,
    /// The control group of the generator's threads.
    pub(super) group: Option<PathBuf>,
    pub(super) stand_in_delay: Option<Duration>,
    pub(super) idle_poll: bool,
    /// Where to stream a line per reply.
    pub(super) raw_csv: Option<PathBuf>,
}

/// Who runs where, where there are processors to share out.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Cores {
    /// Empty on a machine with one processor: nobody is pinned.
    pub(crate) generator: Vec<usize>,
    /// Likewise.
    pub(crate) server: Vec<usize>,
}

impl Cores {
    /// Shares out the processors that this process may use.
    pub(crate) fn of_this_process() -> Self {
        let allowed = rustix::thread::sched_getaffinity(None).map_or_else(
            |_| Vec::new(),
            |set| {
                (0..rustix::thread::CpuSet::MAX_CPU)
                    .filter(|cpu| set.is_set(*cpu))
                    .collect()
            },
        );
        Self::share(&allowed)
    }

    /// All of them, in order; empty where nobody is pinned.
    pub(super) fn all(&self) -> Vec<usize> {
        [self.generator.as_slice(), &self.server].concat()
    }

    /// CPU time per second that the generator had where no contestant was.
    pub(crate) fn generator_apart(&self, cell: &Cell) -> f64 {
        let duration_s = cell.rate.duration_s;
        match cell.generator.cpu_s {
            Some(cpu_s) if !self.server.is_empty() && duration_s > 0.0 => cpu_s / duration_s,
            Some(_) | None => 0.0,
        }
    }

    /// The upper half is the server's; the generator has the rest, and the odd one.
    fn share(allowed: &[usize]) -> Self {
        if allowed.len() < 2 {
            return Self::default();
        }
        let (generator, server) = allowed.split_at(allowed.len().div_ceil(2));
        Self {
            generator: generator.to_vec(),
            server: server.to_vec(),
        }
    }
}

/// Processors as a list such as `0-2,5`.
pub(crate) fn core_list(cores: &[usize]) -> String {
    let mut parts: Vec<(usize, usize)> = Vec::new();
    for core in cores {
        match parts.last_mut() {
            Some((_, last)) if *last + 1 == *core => *last = *core,
            Some(_) | None => parts.push((*core, *core)),
        }
    }
    let text = parts.iter().map(|(first, last)| match first == last {
        true => first.to_string(),
        false => format!("{first}-{last}"),
    });
    text.collect::<Vec<_>>().join(",")
}

/// The product of the lists, in the order of a reader: clients change fastest.
pub(super) fn cells(spec: &BenchSpec) -> Result<Vec<CellPlan>, BenchError> {
    let count = [
        spec.clients.len(),
        spec.batch.len(),
        spec.wait.len(),
        spec.message_size.len(),
    ]
    .iter()
    .try_fold(1_usize, |product, length| product.checked_mul(*length))
    .filter(|count| (1..=CELLS_MAX).contains(count));
    let Some(count) = count else {
        let sentence = format!("the sweep must have from 1 to {CELLS_MAX} cells");
        return Err(BenchError::Sweep(sentence));
    };
    let mut plans = Vec::with_capacity(count);
    for &message_size in &spec.message_size {
        for &wait in &spec.wait {
            for &batch in &spec.batch {
                for &clients in &spec.clients {
                    plans.push(plan(spec, clients, batch, wait, message_size));
                }
            }
        }
    }
    let mut keys = BTreeSet::new();
    for key in plans.iter().map(|plan| plan.parameters.key()) {
        if let Some(key) = keys.replace(key) {
            // Results are named by key: the second of two equal cells would replace the first.
            let sentence = format!("the lists of the sweep repeat a value: {key} comes up twice");
            return Err(BenchError::Sweep(sentence));
        }
    }
    if spec.link_queue_bytes.is_some() && super::link_spec(spec).is_plain() {
        let sentence = "--link-queue bounds a link, and there is none: give --link-delay, \
                        --link-jitter, --link-loss or --link-rate too";
        return Err(BenchError::Sweep(sentence.to_owned()));
    }
    // Every mistake is found before the first server is started.
    let probe = Placement {
        threads: 1,
        ..Placement::default()
    };
    let url = spec.url.as_deref().unwrap_or("ws://127.0.0.1:5083/amplify");
    for plan in &plans {
        plan.scenario(spec, url, &probe)?;
    }
    Ok(plans)
}

fn plan(
    spec: &BenchSpec,
    clients: u32,
    batch: u32,
    wait: Duration,
    message_size: usize,
) -> CellPlan {
    let stagger = spec.stagger.unwrap_or(wait);
    let parameters = Parameters {
        clients: u64::from(clients),
        batch: Some(u64::from(batch)),
        wait_ms: Some(wait.as_secs_f64() * 1e3),
        stagger_ms: Some(stagger.as_secs_f64() * 1e3),
        message_bytes: message_size as u64,
        batches: Some(spec.batches),
        replies: u64::from(spec.replies),
        rate_per_s: None,
        in_flight: None,
        link_delay_ms: Some(spec.link_delay.as_secs_f64() * 1e3),
        link_jitter_ms: (!spec.link_jitter.is_zero())
            .then_some(spec.link_jitter.as_secs_f64() * 1e3),
        link_loss: (spec.link_loss > 0.0).then_some(spec.link_loss),
        link_rate_bit_per_s: spec.link_rate_bit_per_s,
        link_queue_bytes: spec.link_queue_bytes.map(|bytes| bytes as u64),
        ..Parameters::default()
    };
    CellPlan {
        parameters,
        clients,
        batch,
        wait,
        stagger,
        message_size,
    }
}

/// Handshakes in flight at once: at 80 ms each over a link of 20 ms, 6,000 connections per second
/// are asked for, well within the accept queue.
const CONNECT_CONCURRENCY: u32 = 500;
/// For the time left only.
const CONNECTS_PER_S_EXPECTED: f64 = 3000.0;
/// Starting and stopping the server, measuring the link, draining; for the time left only.
const CELL_OVERHEAD: Duration = Duration::from_secs(3);
/// A sweep of more than a day of 20-second cells is a typing mistake.
const CELLS_MAX: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    fn spec() -> BenchSpec {
        BenchSpec::new(PathBuf::from("moonwire"))
    }

    #[test]
    fn the_default_sweep_has_four_cells_and_ends_within_five_minutes() {
        let plans = cells(&spec()).unwrap();
        let keys: Vec<String> = plans.iter().map(|plan| plan.parameters.key()).collect();
        assert_eq!(keys[0], "c1000_b1_n20_w1000_s1024_r4_l20ms");
        assert_eq!(keys.len(), 4);
        let total: Duration = plans.iter().map(CellPlan::expected_duration).sum();
        assert!(total < Duration::from_secs(150), "{total:?}");
    }

    #[test]
    fn the_load_is_steady_unless_told_otherwise_and_the_key_says_so() {
        assert_eq!(cells(&spec()).unwrap()[0].stagger, Duration::from_secs(1));
        let bursts = BenchSpec {
            stagger: Some(Duration::from_millis(100)),
            ..spec()
        };
        let key = cells(&bursts).unwrap()[0].parameters.key();
        assert_eq!(key, "c1000_b1_n20_w1000_g100_s1024_r4_l20ms");
    }

    #[test]
    fn a_sweep_is_the_product_of_its_lists_with_a_key_for_each_cell() {
        let spec = BenchSpec {
            clients: vec![1, 2, 3],
            batch: vec![1, 5],
            wait: vec![Duration::from_millis(100), Duration::from_millis(1)],
            message_size: vec![200, 1024],
            ..spec()
        };
        let plans = cells(&spec).unwrap();
        let mut keys: Vec<String> = plans.iter().map(|plan| plan.parameters.key()).collect();
        keys.sort();
        keys.dedup();
        assert_eq!((plans.len(), keys.len()), (24, 24));
    }

    #[test]
    fn a_sweep_that_cannot_run_is_refused_before_it_starts() {
        let empty = BenchSpec {
            clients: Vec::new(),
            ..spec()
        };
        assert!(matches!(cells(&empty), Err(BenchError::Sweep(_))));
        let nobody = BenchSpec {
            clients: vec![10, 0],
            ..spec()
        };
        assert!(matches!(cells(&nobody), Err(BenchError::Spec(_))));
        let url = BenchSpec {
            url: Some("http://x".to_owned()),
            ..spec()
        };
        assert!(matches!(cells(&url), Err(BenchError::Spec(_))));
    }

    #[test]
    fn a_queue_without_a_link_is_refused() {
        let queue_only = BenchSpec {
            link_delay: Duration::ZERO,
            link_queue_bytes: Some(100_000),
            ..spec()
        };
        let error = cells(&queue_only).unwrap_err().to_string();
        assert!(error.contains("--link-queue bounds a link"), "{error}");
        let slow = BenchSpec {
            link_rate_bit_per_s: Some(1_000_000),
            ..queue_only
        };
        assert!(cells(&slow).is_ok());
    }

    #[test]
    fn a_list_that_repeats_a_value_is_refused() {
        let twice = BenchSpec {
            clients: vec![1000, 2000, 1000],
            ..spec()
        };
        let error = cells(&twice).unwrap_err().to_string();
        assert!(
            error.contains("c1000_b1_n20_w1000_s1024_r4_l20ms comes up twice"),
            "{error}"
        );
    }

    #[test]
    fn what_else_is_asked_of_the_link_is_in_the_key_and_in_the_link() {
        let lossy = BenchSpec {
            link_jitter: Duration::from_millis(2),
            link_loss: 0.01,
            link_rate_bit_per_s: Some(10_000_000),
            link_queue_bytes: Some(100_000),
            ..spec()
        };
        let key = cells(&lossy).unwrap()[0].parameters.key();
        assert!(
            key.ends_with("_l20ms_j2ms_loss0.01_rate10000000_queue100000"),
            "{key}"
        );
        let link = super::super::link_spec(&lossy);
        assert_eq!((link.jitter, link.loss), (Duration::from_millis(2), 0.01));
        assert_eq!(
            (link.rate_bytes_per_s, link.queue_bytes),
            (Some(1_250_000), 100_000)
        );
        let elsewhere = BenchSpec {
            url: Some("ws://127.0.0.1:1/".to_owned()),
            link_delay: Duration::ZERO,
            ..lossy
        };
        let kind = super::super::link_spec(&elsewhere).kind;
        assert_eq!(kind, Some(crate::link::LinkKind::StandIn));
    }

    #[test]
    fn processors_are_shared_out_where_there_are_two() {
        assert_eq!(Cores::share(&[3]), Cores::default());
        let two = Cores::share(&[0, 1]);
        assert_eq!((two.generator, two.server), (vec![0], vec![1]));
        let five = Cores::share(&[0, 1, 2, 6, 7]);
        assert_eq!((five.generator, five.server), (vec![0, 1, 2], vec![6, 7]));
    }

    #[test]
    fn core_lists_are_written_as_the_kernel_writes_them() {
        assert_eq!(core_list(&[0, 1, 2, 5, 7, 8]), "0-2,5,7-8");
        assert_eq!(core_list(&[]), "");
    }
}
