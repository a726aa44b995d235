//! The Run file: the only artefact of a run, from which everything else is drawn.

use std::cmp::Reverse;
use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::battle::Rules;
use crate::capacity::Capacity;
use crate::ceiling::Ceiling;
use crate::cell::Cell;
use crate::environment::Environment;
use crate::groups::{Group, clients, described, titled};
use crate::verdict::Verdict;

/// A run: one load run, or a bench with a cell per combination of parameters.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Run {
    /// What the reader sees as the title.
    pub name: String,
    /// The machine and the command.
    pub environment: Environment,
    /// What its contestants are judged by; `None` outside of a battle.
    pub rules: Option<Rules>,
    /// What searches for the most that contestants stand found.
    pub capacities: Vec<Capacity>,
    /// What the generator does at most under the loads of a battle.
    pub ceilings: Vec<Ceiling>,
    /// The measurements.
    pub content: Content,
}

/// The two kinds of run in the one file format.
#[derive(Clone, Debug, PartialEq)]
pub enum Content {
    /// A single load run; its figures stand at the top of the file.
    Load(Box<Cell>),
    /// A sweep; its figures stand under `cells`.
    Bench(Vec<Cell>),
}

/// Why a file is not a Run file. Displays as one sentence that names the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunError {
    /// The file as the user named it.
    pub file: String,
    /// What is wrong with it.
    pub problem: RunProblem,
}

/// What is wrong with a Run file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RunProblem {
    /// It is JSON of something else.
    Foreign,
    /// It is a Run file with a part missing or of the wrong type.
    Malformed(String),
    /// It comes from a newer moonwire.
    Newer(u64),
    /// It is not JSON.
    NotJson(String),
    /// The operating system does not let it be read.
    Unreadable(String),
    /// The operating system does not let it be written.
    Unwritable(String),
}

impl Run {
    /// Reads a run from the text of a file; `file` is its name, for the error.
    pub fn parse(text: &str, file: &str) -> Result<Self, RunError> {
        let error = |problem| RunError {
            file: file.to_owned(),
            problem,
        };
        let value: Value = serde_json::from_str(text)
            .map_err(|cause| error(RunProblem::NotJson(cause.to_string())))?;
        if value.get("schema").and_then(Value::as_str) != Some(SCHEMA) {
            return Err(error(RunProblem::Foreign));
        }
        match value.get("version").and_then(Value::as_u64) {
            Some(VERSION) => {}
            Some(version) if version > VERSION => return Err(error(RunProblem::Newer(version))),
            other => {
                let found = other.map_or_else(|| "none".to_owned(), |version| version.to_string());
                return Err(error(RunProblem::Malformed(format!("version {found}"))));
            }
        }
        Self::from_value(value).map_err(|cause| error(RunProblem::Malformed(cause.to_string())))
    }

    /// The text of the file, indented, ending in a line feed.
    pub fn to_json(&self) -> String {
        let (kind, cell, cells) = match &self.content {
            Content::Load(cell) => (Kind::Load, Some(cell.as_ref()), None),
            Content::Bench(cells) => (Kind::Bench, None, Some(cells.as_slice())),
        };
        let file = RunOut {
            schema: SCHEMA,
            version: VERSION,
            kind,
            name: &self.name,
            environment: &self.environment,
            rules: self.rules.as_ref(),
            capacities: &self.capacities,
            ceilings: &self.ceilings,
            bench_verdict: cells.map(|_| BenchVerdict::of(self)),
            cell,
            cells,
        };
        let mut text = serde_json::to_string_pretty(&file)
            .expect("a run holds nothing that JSON cannot: keys are strings, counts fit");
        text.push('\n');
        text
    }

    /// The cells: one for a load run.
    pub fn cells(&self) -> &[Cell] {
        match &self.content {
            Content::Load(cell) => std::slice::from_ref(cell),
            Content::Bench(cells) => cells,
        }
    }

    /// True for a bench.
    pub fn is_bench(&self) -> bool {
        matches!(self.content, Content::Bench(_))
    }

    /// The verdict on the run: that of its cell; of a bench the worst one, except that a bench
    /// with a cell that can be believed is at worst SUSPECT. Without cells it is INVALID.
    pub fn verdict(&self) -> Verdict {
        let verdicts = || self.cells().iter().map(|cell| cell.assessment.verdict());
        match (verdicts().min(), verdicts().max()) {
            (Some(Verdict::Invalid) | None, _) => Verdict::Invalid,
            (Some(best), worst) => worst.unwrap_or(best).min(Verdict::Suspect),
        }
    }

    /// The reasons of the verdict; those of a bench name their cell and its verdict, the worst
    /// first.
    pub fn verdict_reasons(&self) -> Vec<String> {
        match &self.content {
            Content::Load(cell) => cell.assessment.reasons().to_vec(),
            Content::Bench(_) => {
                let named = self.named_cells().into_iter();
                let reasons = named.flat_map(|(cell, name)| {
                    let verdict = cell.assessment.verdict();
                    let reasons = cell.assessment.reasons().iter();
                    reasons.map(move |reason| (verdict, format!("{name} ({verdict}): {reason}")))
                });
                let mut reasons: Vec<(Verdict, String)> = reasons.collect();
                reasons.sort_by_key(|(verdict, _)| Reverse(*verdict));
                reasons.into_iter().map(|(_, reason)| reason).collect()
            }
        }
    }

    /// Thresholds that were not kept, a sentence each; those of a bench name their cell. A search
    /// goes beyond them on purpose, and of a cell that was cut they say nothing.
    pub fn failed_thresholds(&self) -> Vec<String> {
        let is_named = self.is_bench();
        let named = self.named_cells().into_iter();
        let told = named.flat_map(|(cell, name)| {
            let failed = self.failed_thresholds_of(cell).into_iter();
            failed.map(move |it| match is_named {
                true => format!("{name}: {it}"),
                false => it,
            })
        });
        told.collect()
    }

    /// Those of one of its cells.
    pub(crate) fn failed_thresholds_of(&self, cell: &Cell) -> Vec<String> {
        let is_cut = self.is_bench() && cell.ended_early.as_deref() == Some(INTERRUPTED);
        if is_cut || !self.capacities.is_empty() {
            return Vec::new();
        }
        let failed = cell.thresholds.iter().filter(|it| !it.passed);
        failed.map(ToString::to_string).collect()
    }

    /// Each cell with what tells it from the others.
    pub(crate) fn named_cells(&self) -> Vec<(&Cell, String)> {
        // The client count names a cell in most sweeps; where it does not, all of it does. In a
        // contest the load is mostly the same for all.
        let is_one_group = Group::all(self).len() == 1;
        let cells = self.cells();
        let is_one_load = cells
            .windows(2)
            .all(|two| two[0].parameters == two[1].parameters);
        let is_same_but_clients = cells
            .windows(2)
            .all(|two| described(&two[0].parameters) == described(&two[1].parameters));
        let name = |cell: &Cell| match &cell.contest {
            Some(contest) if is_one_load => format!("{}, round {}", contest.name(), contest.round),
            Some(contest) if is_same_but_clients => {
                format!(
                    "{}, {}, round {}",
                    contest.name(),
                    clients(cell),
                    contest.round
                )
            }
            Some(_) => format!("{}, {}", clients(cell), titled(cell)),
            None if is_one_group => clients(cell),
            None => format!("{}, {}", clients(cell), titled(cell)),
        };
        self.cells().iter().map(|cell| (cell, name(cell))).collect()
    }

    fn from_value(value: Value) -> Result<Self, serde_json::Error> {
        let head: RunIn = RunIn::deserialize(&value)?;
        let content = match head.kind {
            Kind::Load => Content::Load(Box::new(serde_json::from_value(value)?)),
            Kind::Bench => Content::Bench(serde_json::from_value::<CellsIn>(value)?.cells),
        };
        Ok(Self {
            name: head.name,
            environment: head.environment,
            rules: head.rules,
            capacities: head.capacities,
            ceilings: head.ceilings,
            content,
        })
    }
}

impl Default for Content {
    fn default() -> Self {
        Self::Bench(Vec::new())
    }
}

impl fmt::Display for RunError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let file = &self.file;
        match &self.problem {
            RunProblem::Foreign => write!(
                formatter,
                "{file} is not a Run file: its \"schema\" should be \"{SCHEMA}\" \
                 (`moonwire load --json FILE` writes one)"
            ),
            RunProblem::Malformed(cause) => write!(
                formatter,
                "{file} is a Run file with a fault, {cause}; it should be as moonwire wrote it"
            ),
            RunProblem::Newer(version) => write!(
                formatter,
                "{file} is a Run file of version {version}, this moonwire reads up to version \
                 {VERSION}: use a newer moonwire"
            ),
            RunProblem::NotJson(cause) => {
                write!(
                    formatter,
                    "{file} is not a Run file: it should be JSON, but {cause}"
                )
            }
            RunProblem::Unreadable(cause) => write!(
                formatter,
                "{file} cannot be read: {cause}; give a Run file that exists and is readable"
            ),
            RunProblem::Unwritable(cause) => write!(
                formatter,
                "{file} cannot be written: {cause}; give a folder that exists and is writable"
            ),
        }
    }
}

impl std::error::Error for RunError {}

#[derive(Clone, Copy, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Kind {
    Load,
    Bench,
}

/// A run as the file holds it.
#[derive(Serialize, JsonSchema)]
pub(crate) struct RunOut<'a> {
    schema: &'static str,
    version: u64,
    kind: Kind,
    name: &'a str,
    environment: &'a Environment,
    #[serde(skip_serializing_if = "Option::is_none")]
    rules: Option<&'a Rules>,
    #[serde(skip_serializing_if = "<[Capacity]>::is_empty")]
    capacities: &'a [Capacity],
    #[serde(skip_serializing_if = "<[Ceiling]>::is_empty")]
    ceilings: &'a [Ceiling],
    #[serde(flatten)]
    bench_verdict: Option<BenchVerdict>,
    #[serde(flatten)]
    #[schemars(skip)]
    cell: Option<&'a Cell>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cells: Option<&'a [Cell]>,
}

#[derive(Serialize, JsonSchema)]
struct BenchVerdict {
    verdict: Verdict,
    verdict_reasons: Vec<String>,
}

impl BenchVerdict {
    fn of(run: &Run) -> Self {
        Self {
            verdict: run.verdict(),
            verdict_reasons: run.verdict_reasons(),
        }
    }
}

#[derive(Deserialize)]
struct RunIn {
    kind: Kind,
    #[serde(default)]
    name: String,
    #[serde(default)]
    environment: Environment,
    #[serde(default)]
    rules: Option<Rules>,
    #[serde(default)]
    capacities: Vec<Capacity>,
    #[serde(default)]
    ceilings: Vec<Ceiling>,
}

#[derive(Deserialize)]
struct CellsIn {
    cells: Vec<Cell>,
}

/// Tells a Run file from any other JSON.
/// What ended the cell early that a person stopped.
pub const INTERRUPTED: &str = "interrupted";
const SCHEMA: &str = "moonwire.run";
/// Raised when a reader of the previous version would misread the file.
const VERSION: u64 = 1;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::histogram::Histogram;
    use crate::one_way::{ClockOffset, OneWay};

    fn cell(clients: u64, verdict: Verdict) -> Cell {
        let mut cell = Cell::default();
        cell.parameters.clients = clients;
        if verdict != Verdict::Valid {
            cell.assessment
                .add(verdict, "p99 send lag 3 ms, at most 1 ms allowed");
        }
        cell.messages.sent = 10;
        cell.handshake.response.record(7_000_000);
        cell.recovery.time.record(30_000_000);
        cell.recovery.attempts.insert("2".to_owned(), 1);
        cell.errors.insert("connect: refused".to_owned(), 2);
        for ms in 1..=100 {
            cell.latency.response.record(ms * 1_000_000);
        }
        let mut histogram = Histogram::new();
        histogram.record(20_000_123);
        cell.latency.one_way = OneWay::Measured {
            histogram,
            resolution_us: 1,
            clock: Some(ClockOffset {
                offset_ns: -7_000_000_000,
                bound_ns: 21_000,
                drift_ns: 900,
                round_trip_min_ns: 40_000,
            }),
        };
        cell
    }

    fn bench(verdicts: &[Verdict]) -> Run {
        let cells = verdicts
            .iter()
            .map(|&verdict| cell(1000, verdict))
            .collect();
        Run {
            name: "b".to_owned(),
            content: Content::Bench(cells),
            ..Run::default()
        }
    }

    #[test]
    fn a_load_run_survives_its_file() {
        let content = Content::Load(Box::new(cell(100, Verdict::Suspect)));
        let run = Run {
            name: "n".to_owned(),
            content,
            ..Run::default()
        };
        assert_eq!(Run::parse(&run.to_json(), "run.json"), Ok(run));
    }

    #[test]
    fn a_bench_survives_its_file() {
        let run = bench(&[Verdict::Valid, Verdict::Invalid]);
        assert_eq!(Run::parse(&run.to_json(), "run.json"), Ok(run));
    }

    #[test]
    fn figures_stand_at_the_paths_that_others_read() {
        let run = Run {
            content: Content::Load(Box::new(cell(100, Verdict::Suspect))),
            ..Run::default()
        };
        let json: Value = serde_json::from_str(&run.to_json()).unwrap();
        assert_eq!(json["verdict"], "SUSPECT");
        assert_eq!(json["messages"]["sent"], 10);
        assert_eq!(json["errors"]["connect: refused"], 2);
        assert_eq!(json["latency"]["response"]["p50_us"], 50_003.967);
        assert_eq!(json["latency"]["response"]["p99_9_us"], 100_000.0);
        assert_eq!(json["latency"]["one_way"]["min_us"], 20_000.123);
        assert_eq!(json["latency"]["service"]["count"], 0);
        assert_eq!(json["latency"]["service"]["p50_us"], Value::Null);
        assert_eq!(json["clients"], 100);
        assert_eq!(json["handshake"]["response"]["max_us"], 7000.0);
        assert_eq!(json["recovery"]["max_us"], 30_000.0);
        assert_eq!(json["recovery"]["attempts"]["2"], 1);
        let bench: Value =
            serde_json::from_str(&bench(&[Verdict::Valid, Verdict::Invalid]).to_json()).unwrap();
        assert_eq!(bench["verdict"], "SUSPECT");
        assert_eq!(bench["cells"][1]["verdict"], "INVALID");
        assert_eq!(bench["cells"][1]["clients"], 1000);
    }

    #[test]
    fn a_file_without_what_was_added_later_is_read() {
        let run = Run {
            content: Content::Load(Box::new(cell(100, Verdict::Valid))),
            ..Run::default()
        };
        let mut json: Value = serde_json::from_str(&run.to_json()).unwrap();
        json.as_object_mut().unwrap().remove("recovery");
        let histograms = json["histograms"].as_object_mut().unwrap();
        histograms.remove("recovery");
        histograms.remove("handshake_response");
        let old = Run::parse(&json.to_string(), "run.json").unwrap();
        assert!(old.cells()[0].recovery.time.is_empty());
        assert!(old.cells()[0].handshake.response.is_empty());
    }

    #[test]
    fn a_refused_one_way_latency_is_null_with_its_reason() {
        let mut refused = cell(1, Verdict::Valid);
        refused.latency.one_way = OneWay::Refused {
            reason: "another host".to_owned(),
            clock: None,
        };
        let run = Run {
            content: Content::Load(Box::new(refused)),
            ..Run::default()
        };
        let json: Value = serde_json::from_str(&run.to_json()).unwrap();
        assert_eq!(json["latency"]["one_way"], Value::Null);
        assert_eq!(json["latency"]["one_way_refused"], "another host");
        assert_eq!(Run::parse(&run.to_json(), "run.json"), Ok(run));
    }

    #[test]
    fn a_bench_is_invalid_only_when_no_cell_can_be_believed() {
        use Verdict::{Invalid, Suspect, Valid};
        assert_eq!(bench(&[Valid, Valid]).verdict(), Valid);
        assert_eq!(bench(&[Valid, Invalid]).verdict(), Suspect);
        assert_eq!(bench(&[Suspect, Invalid]).verdict(), Suspect);
        assert_eq!(bench(&[Invalid]).verdict(), Invalid);
        assert_eq!(bench(&[]).verdict(), Invalid);
    }

    #[test]
    fn each_bad_file_gets_one_sentence_that_names_it() {
        let newer = bench(&[])
            .to_json()
            .replace("\"version\": 1", "\"version\": 2");
        let sentence = |text: &str| Run::parse(text, "x.json").unwrap_err().to_string();
        assert!(
            sentence(&newer).contains("version 2"),
            "{}",
            sentence(&newer)
        );
        assert!(sentence("{").starts_with("x.json is not a Run file: it should be JSON"));
        assert!(sentence("{}").contains("\"moonwire.run\""));
        assert!(
            sentence("{\"schema\":\"moonwire.run\",\"version\":1}").contains("missing field"),
            "{}",
            sentence("{\"schema\":\"moonwire.run\",\"version\":1}")
        );
        for text in [newer.as_str(), "{", "{}", "[]", "null"] {
            assert_eq!(sentence(text).lines().count(), 1);
        }
    }
}
