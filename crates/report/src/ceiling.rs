//! What the generator does at most: the same connections and messages, as fast as they go, against
//! a server that does nothing but answer.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::battle::Section;
use crate::cell::Cell;
use crate::format;
use crate::groups;
use crate::parameters::Parameters;
use crate::run::Run;
use crate::table::Table;

/// The ceiling of one load.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Ceiling {
    /// The load; its rate, if it has one, was not kept.
    pub parameters: Parameters,
    /// Whether connections were made over TLS.
    pub tls: bool,
    /// Replies received per second.
    pub replies_per_s: f64,
    /// CPU that the generator used for each reply, microseconds.
    pub generator_us_per_reply: f64,
    /// Share of the time in which the generator's threads were busy, 0 to 1.
    pub generator_busy: f64,
    /// The same of the server's one thread.
    pub server_busy: f64,
}

impl Ceiling {
    /// What a cell against the null server found; `None` where it answered too little to say.
    pub fn of(cell: &Cell) -> Option<Self> {
        let is_whole = cell.messages.lost == 0 && cell.messages.received > 0;
        let duration_s = cell.rate.duration_s;
        if !is_whole || duration_s <= 0.0 {
            return None;
        }
        let generator_s = cell.generator.cpu_s?;
        let server_s = cell.server.as_ref().and_then(|server| server.cpu_s);
        Some(Self {
            parameters: cell.parameters.clone(),
            tls: cell.contest.as_ref().is_some_and(|contest| contest.tls),
            replies_per_s: cell.rate.received_per_s,
            generator_us_per_reply: generator_s * 1e6 / cell.messages.received as f64,
            generator_busy: generator_s / duration_s / cell.generator.threads.max(1) as f64,
            server_busy: server_s.unwrap_or(0.0) / duration_s,
        })
    }

    /// Whether it is the generator's own: it had no time left. Else it does this much and more.
    pub fn is_of_generator(&self) -> bool {
        self.generator_busy >= BUSY_SHARE
    }

    /// Why a cell under this load is the generator's figure rather than the contestant's.
    pub fn objection(&self, cell: &Cell) -> Option<String> {
        let tls = cell.contest.as_ref().is_some_and(|contest| contest.tls);
        let is_same = tls == self.tls && load(&cell.parameters) == load(&self.parameters);
        let share = fastest_per_s(cell) / self.replies_per_s.max(f64::MIN_POSITIVE);
        (is_same && self.is_of_generator() && share >= NEAR_SHARE).then(|| {
            format!(
                "the generator was the limit: {:.0} % of the replies that it gets from a server \
                 that only answers",
                share * 100.0
            )
        })
    }
}

/// Replies per second; where the rate changes those of the fastest second, because then it was that
/// the generator had no time left, or never.
fn fastest_per_s(cell: &Cell) -> f64 {
    if cell.parameters.stages.is_none() {
        return cell.rate.received_per_s;
    }
    let whole = cell.intervals.iter().filter(|it| it.length_s >= 1.0);
    let rates = whole.map(|it| it.received as f64 / it.length_s);
    rates.fold(cell.rate.received_per_s, f64::max)
}

/// The load apart from its pace.
fn load(parameters: &Parameters) -> Parameters {
    Parameters {
        rate_per_s: None,
        stages: None,
        batch: None,
        batches: None,
        wait_ms: None,
        stagger_ms: None,
        ..parameters.clone()
    }
}

/// The ceilings of a battle; `None` where none was measured.
pub(crate) fn section(run: &Run) -> Option<Section> {
    if run.ceilings.is_empty() {
        return None;
    }
    let mut table = Table::new([
        "load",
        "replies/s",
        "generator's CPU a reply",
        "generator busy",
        "null server busy",
        "ceiling",
    ]);
    for ceiling in &run.ceilings {
        let scheme = if ceiling.tls { "wss" } else { "ws" };
        let verdict = match ceiling.is_of_generator() {
            true => "the generator's",
            false => "higher: the generator had time left",
        };
        table.row([
            format!(
                "{} connections, {scheme}, {}",
                format::count(ceiling.parameters.clients),
                groups::described(&load(&ceiling.parameters))
            ),
            format::count(ceiling.replies_per_s.round() as u64),
            format::latency(ceiling.generator_us_per_reply),
            format!("{:.0} %", ceiling.generator_busy * 100.0),
            format!("{:.0} %", ceiling.server_busy * 100.0),
            verdict.to_owned(),
        ]);
    }
    Some(Section {
        title: "what the generator does at most, against a server that only answers".to_owned(),
        table,
        sentences: Vec::new(),
    })
}

/// From here on a thread has no time left.
const BUSY_SHARE: f64 = 0.95;
/// Two short runs of the same load differ by a few percent.
const NEAR_SHARE: f64 = 0.95;

#[cfg(test)]
mod tests {
    use super::super::battle::tests;
    use super::*;
    use crate::interval::Interval;

    fn cell(replies_per_s: f64, generator_s: f64) -> Cell {
        let mut cell = tests::cell("a", 1, 1.0);
        cell.rate.duration_s = 2.0;
        cell.rate.received_per_s = replies_per_s;
        cell.messages.received = (replies_per_s * 2.0) as u64;
        cell.generator.threads = 1;
        cell.generator.cpu_s = Some(generator_s);
        cell
    }

    #[test]
    fn a_cell_near_the_generators_own_ceiling_is_the_generators() {
        let ceiling = Ceiling::of(&cell(100_000.0, 1.98)).unwrap();
        assert!((ceiling.generator_us_per_reply - 9.9).abs() < 1e-9);
        assert!(ceiling.is_of_generator());
        let objection = ceiling.objection(&cell(97_000.0, 1.0)).unwrap();
        assert!(
            objection.starts_with("the generator was the limit: 97 %"),
            "{objection}"
        );
        assert_eq!(ceiling.objection(&cell(80_000.0, 1.0)), None);
        let mut paced = cell(97_000.0, 1.0);
        paced.parameters.rate_per_s = Some(97_000.0);
        assert!(ceiling.objection(&paced).is_some());
        let mut other = cell(97_000.0, 1.0);
        other.parameters.clients = 7;
        assert_eq!(ceiling.objection(&other), None);
        other = cell(97_000.0, 1.0);
        other.contest.as_mut().unwrap().tls = true;
        assert_eq!(ceiling.objection(&other), None);
    }

    #[test]
    fn of_a_rate_that_changes_the_fastest_second_is_beside_the_ceiling() {
        let ceiling = Ceiling::of(&cell(100_000.0, 1.98)).unwrap();
        let mut spike = cell(40_000.0, 1.0);
        spike.intervals = [20_000, 97_000, 20_000]
            .map(|received| Interval {
                length_s: 1.0,
                received,
                ..Interval::default()
            })
            .into();
        assert_eq!(ceiling.objection(&spike), None);
        spike.parameters.stages = Some("1s:20000".to_owned());
        assert!(ceiling.objection(&spike).unwrap().contains("97 %"));
    }

    #[test]
    fn a_generator_with_time_left_has_a_higher_one() {
        let ceiling = Ceiling::of(&cell(100_000.0, 1.2)).unwrap();
        assert!(!ceiling.is_of_generator());
        assert_eq!(ceiling.objection(&cell(110_000.0, 1.9)), None);
    }

    #[test]
    fn a_null_server_that_lost_something_says_nothing() {
        let mut lossy = cell(100_000.0, 1.9);
        lossy.messages.lost = 1;
        assert_eq!(Ceiling::of(&lossy), None);
        assert_eq!(Ceiling::of(&Cell::default()), None);
    }

    #[test]
    fn the_report_says_whose_ceiling_it_is_and_the_file_keeps_it() {
        let mut run = tests::run(&[("a", 2.0), ("b", 2.4)], 5);
        run.ceilings = [1.98, 1.2]
            .iter()
            .filter_map(|cpu_s| Ceiling::of(&cell(100_000.0, *cpu_s)))
            .collect();
        let text = crate::markdown::markdown(&run);
        assert!(text.contains("the generator's |"), "{text}");
        assert!(text.contains("higher: the generator had time left"));
        assert_eq!(Run::parse(&run.to_json(), "run.json"), Ok(run));
    }
}
