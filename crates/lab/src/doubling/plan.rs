//! Who takes a turn when, and how many messages of which size that is.

use moonwire_load::{Pacing, Scenario, ScenarioError, Settings, Stop, Target, Workload};
use moonwire_report::Contest;

use super::{DoublingError, DoublingSpec};
use crate::contestant::Contestant;

/// What is on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    /// The payload of each size, one message in flight.
    True,
    /// Always the same two messages, whatever size is said.
    Legacy,
}

impl Mode {
    pub(super) fn of(spec: &DoublingSpec) -> Self {
        match spec.legacy {
            true => Self::Legacy,
            false => Self::True,
        }
    }

    /// The name of the run and of its folder. Rows of the two are never in one run.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::True => "payload-doubling",
            Self::Legacy => "payload-doubling-legacy",
        }
    }

    pub(super) fn sentence(self) -> &'static str {
        match self {
            Self::True => "true payload: 1 in flight, each message is as long as its row says",
            Self::Legacy => {
                "legacy: 2 in flight, mean payload 512 B, nominal sizes are not on the wire"
            }
        }
    }

    fn workload(self, size: usize) -> (Workload, u32) {
        match self {
            Self::True => (
                Workload::Echo {
                    size,
                    binary: false,
                },
                1,
            ),
            Self::Legacy => (Workload::Alternating { size: SIZE_FIRST }, 2),
        }
    }
}

/// The messages of one size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Step {
    /// Bytes; in the legacy mode only in name.
    pub(super) size: usize,
    /// Messages for each client.
    pub(super) messages: u64,
}

/// The sizes from 1 KiB to 256 KiB. The messages are halved while there are more than 100, as the
/// published benchmark does it: 40,000 become 156.
pub(super) fn steps(messages: u64, fixed: bool) -> Vec<Step> {
    let sizes = std::iter::successors(Some(SIZE_FIRST), |size| Some(size * 2));
    let sizes = sizes.take_while(|size| *size <= SIZE_LAST);
    let mut left = messages;
    let mut steps = Vec::new();
    for size in sizes {
        steps.push(Step {
            size,
            messages: left,
        });
        if !fixed && left > HALVED_ABOVE {
            left /= 2;
        }
    }
    steps
}

/// One contestant's turn: all sizes against one server.
#[derive(Debug, Clone)]
pub(super) struct Bout {
    pub(super) contestant: Contestant,
    pub(super) connections: u32,
    pub(super) tls: bool,
    pub(super) round: u64,
}

impl Bout {
    /// For a reader.
    pub(super) fn name(&self) -> String {
        let scheme = if self.tls { "wss" } else { "ws" };
        format!(
            "round {}: {}, {scheme}, {} clients",
            self.round,
            self.contestant.name(),
            self.connections
        )
    }

    pub(super) fn contest(&self, mode: Mode, step: Step) -> Contest {
        Contest {
            contestant: self.contestant.name(),
            connections: u64::from(self.connections),
            tls: self.tls,
            round: self.round,
            nominal_bytes: (mode == Mode::Legacy).then_some(step.size as u64),
            ..Contest::default()
        }
    }
}

/// All turns: the contestants follow each other within a round, so that what changes on the
/// machine meets all of them.
pub(super) fn bouts(spec: &DoublingSpec) -> Result<Vec<Bout>, DoublingError> {
    let mut bouts = Vec::new();
    for round in 1..=spec.rounds {
        for &tls in &spec.tls {
            for contestant in &spec.contestants {
                for connections in connections(spec, contestant) {
                    bouts.push(Bout {
                        contestant: contestant.clone(),
                        connections,
                        tls,
                        round,
                    });
                }
            }
        }
    }
    // Every mistake is found before the first server is started.
    for connections in bouts.iter().map(|bout| bout.connections) {
        for step in steps(spec.messages, spec.fixed) {
            let generator = Generator {
                connections,
                seed: spec.seed,
                ..Generator::default()
            };
            scenario(Mode::of(spec), step, "ws://127.0.0.1:1/echo", &generator)
                .map_err(DoublingError::Scenario)?;
        }
    }
    Ok(bouts)
}

fn connections(spec: &DoublingSpec, contestant: &Contestant) -> Vec<u32> {
    match spec.connections.is_empty() {
        true => vec![contestant.connections().unwrap_or(CONNECTIONS)],
        false => spec.connections.clone(),
    }
}

/// How the generator is set up.
#[derive(Debug, Clone, Default)]
pub(super) struct Generator {
    /// The file of the control group that its threads are to be in.
    pub(super) group: Option<std::path::PathBuf>,
    pub(super) connections: u32,
    /// Empty leaves it to the kernel.
    pub(super) cpus: Vec<usize>,
    /// Whose certificates it trusts.
    pub(super) authority: Option<std::path::PathBuf>,
    pub(super) seed: u64,
}

/// The load of one cell. The clients of a worker thread take their messages from one pot, which
/// holds `step.messages` for each of them: all of them send until it is empty, so that the first
/// and the last to be served are measured over the same time.
pub(super) fn scenario(
    mode: Mode,
    step: Step,
    url: &str,
    generator: &Generator,
) -> Result<Scenario, ScenarioError> {
    let (workload, in_flight) = mode.workload(step.size);
    let total = step
        .messages
        .saturating_mul(u64::from(generator.connections));
    Scenario::new(Settings {
        targets: vec![Target::parse(url)?],
        connections: generator.connections,
        threads: u32::try_from(generator.cpus.len().max(1)).unwrap_or(1),
        pin: generator.cpus.clone(),
        group: generator.group.clone(),
        barrier: true,
        workload,
        pacing: Pacing::Closed { in_flight },
        stop: Stop::Messages(total),
        cacert: generator.authority.clone(),
        seed: generator.seed,
        same_host: true,
        ..Settings::default()
    })
}

const SIZE_FIRST: usize = 1024;
const SIZE_LAST: usize = 256 * 1024;
/// Below it the published benchmark halves no more.
const HALVED_ABOVE: u64 = 100;
/// Clients of the published benchmark, where a variant does not say otherwise.
const CONNECTIONS: u32 = 120;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contestant::Roster;

    fn select(names: &[&str]) -> Vec<Contestant> {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        Roster::load(None)
            .unwrap()
            .servers("payload-doubling", &names)
            .unwrap()
    }

    fn spec() -> DoublingSpec {
        DoublingSpec {
            cpu_limits: crate::cgroup::CpuLimits::default(),
            contestants: select(&["moonwire/weight-0.5", "uwebsockets-js"]),
            connections: Vec::new(),
            rounds: 2,
            messages: 40_000,
            fixed: false,
            legacy: false,
            tls: vec![true],
            program: "moonwire".into(),
            peers: "peers".into(),
            out: None,
            command_line: Vec::new(),
            seed: 1,
        }
    }

    fn names(spec: &DoublingSpec) -> Vec<String> {
        let bouts = bouts(spec).unwrap();
        bouts.iter().map(Bout::name).collect()
    }

    #[test]
    fn the_messages_are_halved_as_the_published_benchmark_halves_them() {
        let pairs = |messages, fixed| -> Vec<(usize, u64)> {
            let steps = steps(messages, fixed);
            steps
                .iter()
                .map(|step| (step.size, step.messages))
                .collect()
        };
        assert_eq!(
            pairs(40_000, false),
            [
                (1024, 40_000),
                (2048, 20_000),
                (4096, 10_000),
                (8192, 5000),
                (16_384, 2500),
                (32_768, 1250),
                (65_536, 625),
                (131_072, 312),
                (262_144, 156),
            ]
        );
        let few: Vec<u64> = pairs(400, false).iter().map(|pair| pair.1).collect();
        assert_eq!(few, [400, 200, 100, 100, 100, 100, 100, 100, 100]);
        assert!(pairs(400, true).iter().all(|pair| pair.1 == 400));
    }

    #[test]
    fn contestants_take_turns_in_each_round() {
        assert_eq!(
            names(&spec()),
            [
                "round 1: moonwire/weight-0.5, wss, 120 clients",
                "round 1: uwebsockets-js/1-thread, wss, 120 clients",
                "round 1: uwebsockets-js/n-threads, wss, 120 clients",
                "round 2: moonwire/weight-0.5, wss, 120 clients",
                "round 2: uwebsockets-js/1-thread, wss, 120 clients",
                "round 2: uwebsockets-js/n-threads, wss, 120 clients",
            ]
        );
    }

    #[test]
    fn clients_are_as_published_unless_given() {
        let published = DoublingSpec {
            contestants: select(&["moonwire"]),
            rounds: 1,
            ..spec()
        };
        let clients = |spec: &DoublingSpec| -> Vec<String> {
            let last_words = |name: &String| name.rsplit(", ").next().map(str::to_owned);
            names(spec).iter().filter_map(last_words).collect()
        };
        assert_eq!(
            clients(&published),
            ["120 clients", "120 clients", "96 clients", "96 clients"]
        );
        let given = DoublingSpec {
            contestants: select(&["moonwire/weight-0.8"]),
            connections: vec![4, 8],
            ..published
        };
        assert_eq!(clients(&given), ["4 clients", "8 clients"]);
        let none = DoublingSpec {
            connections: vec![0],
            ..given
        };
        let sentence = bouts(&none).unwrap_err().to_string();
        assert!(sentence.contains("at least 1 connection"), "{sentence}");
    }

    #[test]
    fn the_wire_has_what_the_row_says_except_in_the_legacy_mode() {
        let step = Step {
            size: 262_144,
            messages: 156,
        };
        let generator = Generator {
            connections: 120,
            ..Generator::default()
        };
        let run = |mode| scenario(mode, step, "ws://127.0.0.1:1/echo", &generator).unwrap();
        let (honest, legacy) = (run(Mode::True), run(Mode::Legacy));
        let size = 262_144;
        assert_eq!(
            honest.workload,
            Workload::Echo {
                size,
                binary: false
            }
        );
        assert_eq!(honest.pacing, Pacing::Closed { in_flight: 1 });
        assert_eq!(honest.messages_planned(), Some(120 * 156));
        assert_eq!(legacy.workload, Workload::Alternating { size: 1024 });
        assert_eq!(legacy.pacing, Pacing::Closed { in_flight: 2 });
        assert_eq!(legacy.messages_planned(), Some(120 * 156));
    }
}
