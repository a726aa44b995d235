//! A run as JUnit XML, which continuous integration reads: a suite for each contestant and load, a
//! case for each verdict and each threshold.

use crate::battle;
use crate::capacity::Capacity;
use crate::cell::Cell;
use crate::environment::Threshold;
use crate::format::{self, escaped};
use crate::groups::{clients, described};
use crate::run::{INTERRUPTED, Run};
use crate::sentences;
use crate::verdict::Verdict;

/// The whole run as one document.
pub fn junit(run: &Run) -> String {
    let suites = suites(run);
    let mut counts = Counts::default();
    suites.iter().for_each(|suite| counts.add(&suite.cases));
    let properties = properties(run);
    let suites = suites.iter().map(|suite| suite.to_xml(run, &properties));
    format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites name=\"{}\" {} time=\"{:.3}\">\n\
         {}</testsuites>\n",
        xml(&sentences::title(run)),
        counts.attributes(),
        run.environment.elapsed_s,
        suites.collect::<String>()
    )
}

/// Cases with a common name.
struct Suite {
    name: String,
    cases: Vec<Case>,
}

/// One thing that can be so or not.
struct Case {
    name: String,
    time_s: f64,
    outcome: Outcome,
}

enum Outcome {
    /// With what is to be said of it.
    Passed(String),
    /// A threshold that was not kept.
    Failed(String),
    /// Figures that are not those of what was measured.
    Invalid(Vec<String>),
    /// Not judged, and why.
    Skipped(String),
}

#[derive(Default)]
struct Counts {
    tests: usize,
    failures: usize,
    errors: usize,
    skipped: usize,
}

fn suites(run: &Run) -> Vec<Suite> {
    if !run.capacities.is_empty() {
        return capacity_suites(run);
    }
    let mut suites: Vec<Suite> = Vec::new();
    for cell in run.cells() {
        let name = suite_name(cell);
        let cases = cell_cases(cell);
        match suites.iter_mut().find(|suite| suite.name == name) {
            Some(suite) => suite.cases.extend(cases),
            None => suites.push(Suite { name, cases }),
        }
    }
    if run.rules.is_some() {
        suites.sort_by(|one, other| one.name.cmp(&other.name));
        suites.extend(ranking_suites(run));
    }
    suites
}

fn suite_name(cell: &Cell) -> String {
    let load = format!("{}, {}", clients(cell), described(&cell.parameters));
    match &cell.contest {
        Some(contest) => format!("{}, {load}", contest.name()),
        None => load,
    }
}

fn cell_cases(cell: &Cell) -> Vec<Case> {
    let contest = cell.contest.as_ref();
    let round = contest.map_or_else(String::new, |it| format!("round {}: ", it.round));
    let case = |name: &str, outcome| Case {
        name: format!("{round}{name}"),
        time_s: cell.rate.duration_s,
        outcome,
    };
    let reasons = || cell.assessment.reasons().to_vec();
    let limit = contest.and_then(|it| it.limit.clone());
    let verdict = match (cell.assessment.verdict(), limit) {
        (Verdict::Invalid, _) => Outcome::Invalid(reasons()),
        (Verdict::Valid | Verdict::Suspect, Some(limit)) => {
            Outcome::Skipped(format!("not ranked: {limit}"))
        }
        (Verdict::Valid, None) => Outcome::Passed(String::new()),
        (Verdict::Suspect, None) => Outcome::Passed(format!("SUSPECT: {}", reasons().join("; "))),
    };
    let is_cut = contest.is_some() && cell.ended_early.as_deref() == Some(INTERRUPTED);
    let threshold = |it: &Threshold| {
        let outcome = match it.passed {
            _ if is_cut => Outcome::Skipped(INTERRUPTED.to_owned()),
            true => Outcome::Passed(format!("found {}", it.actual)),
            false if it.unanswered().is_some() => Outcome::Skipped(it.to_string()),
            false => Outcome::Failed(format!("{} failed, found {}", it.expression, it.actual)),
        };
        case(&it.expression, outcome)
    };
    let thresholds = cell.thresholds.iter().map(threshold);
    std::iter::once(case("verdict", verdict))
        .chain(thresholds)
        .collect()
}

/// What each contestant is called under each load.
fn ranking_suites(run: &Run) -> Vec<Suite> {
    let suite = |(name, verdicts): (String, battle::Verdicts)| Suite {
        name,
        cases: verdicts
            .into_iter()
            .map(|(contestant, verdict)| Case {
                name: contestant,
                time_s: 0.0,
                outcome: match verdict.starts_with("not ranked") {
                    true => Outcome::Skipped(verdict),
                    false => Outcome::Passed(verdict),
                },
            })
            .collect(),
    };
    battle::all_verdicts(run).into_iter().map(suite).collect()
}

/// A search fails thresholds on purpose: what counts is whether it found a load that kept them.
fn capacity_suites(run: &Run) -> Vec<Suite> {
    let mut suites: Vec<Suite> = Vec::new();
    for capacity in &run.capacities {
        let scheme = if capacity.tls { "wss" } else { "ws" };
        let name = format!("{}, {scheme}", capacity.contestant);
        let case = Case {
            name: format!("round {}: a load keeps the thresholds", capacity.round),
            time_s: 0.0,
            outcome: capacity_outcome(run, capacity),
        };
        match suites.iter_mut().find(|suite| suite.name == name) {
            Some(suite) => suite.cases.push(case),
            None => suites.push(Suite {
                name,
                cases: vec![case],
            }),
        }
    }
    suites
}

fn capacity_outcome(run: &Run, capacity: &Capacity) -> Outcome {
    let of_search = |cell: &&Cell| {
        cell.contest.as_ref().is_some_and(|it| {
            it.contestant == capacity.contestant
                && it.tls == capacity.tls
                && it.round == capacity.round
        })
    };
    match (capacity.highest, &capacity.limit) {
        (Some(highest), limit) => {
            let more = limit
                .as_ref()
                .map(|it| format!("; it may stand more: {it}"));
            let found = format::rate(highest);
            Outcome::Passed(format!("{found}{}", more.unwrap_or_default()))
        }
        (None, Some(limit)) => Outcome::Skipped(limit.clone()),
        (None, None) => {
            let cells = run.cells().iter().filter(of_search);
            let failed = cells.flat_map(|it| &it.thresholds).find(|it| !it.passed);
            let failed = failed.map(|it| format!(": {}, found {}", it.expression, it.actual));
            let failed = failed.unwrap_or_default();
            Outcome::Failed(format!("no load kept the thresholds{failed}"))
        }
    }
}

/// What was run, and where.
fn properties(run: &Run) -> String {
    let environment = &run.environment;
    let command_line = format::command_line(&environment.command_line);
    let mut pairs = vec![("command line".to_owned(), command_line)];
    pairs.extend(sentences::environment(environment));
    let property = |(name, value): &(String, String)| {
        format!(
            "<property name=\"{}\" value=\"{}\"/>\n",
            xml(name),
            xml(value)
        )
    };
    let properties: String = pairs.iter().map(property).collect();
    format!("<properties>\n{properties}</properties>\n")
}

impl Suite {
    fn to_xml(&self, run: &Run, properties: &str) -> String {
        let mut counts = Counts::default();
        counts.add(&self.cases);
        let time_s: f64 = self.cases.iter().map(|case| case.time_s).sum();
        // The form that the schema of Jenkins has: without a zone.
        let started = run.environment.started_at.trim_end_matches('Z');
        let cases = self.cases.iter().map(|case| case.to_xml(&self.name));
        format!(
            "<testsuite name=\"{}\" {} time=\"{time_s:.3}\" timestamp=\"{}\">\n{properties}{}\
             </testsuite>\n",
            xml(&self.name),
            counts.attributes(),
            xml(started),
            cases.collect::<String>()
        )
    }
}

impl Case {
    fn to_xml(&self, suite: &str) -> String {
        let inside = match &self.outcome {
            Outcome::Passed(said) if said.is_empty() => String::new(),
            Outcome::Passed(said) => format!("<system-out>{}</system-out>", xml(said)),
            Outcome::Failed(said) => {
                format!("<failure type=\"threshold\" message=\"{}\"/>", xml(said))
            }
            Outcome::Invalid(reasons) => {
                let first = reasons.first().map_or("INVALID", String::as_str);
                format!(
                    "<error type=\"INVALID\" message=\"{}\">{}</error>",
                    xml(first),
                    xml(&reasons.join("\n"))
                )
            }
            Outcome::Skipped(why) => format!("<skipped message=\"{}\"/>", xml(why)),
        };
        format!(
            "<testcase classname=\"{}\" name=\"{}\" time=\"{:.3}\">{inside}</testcase>\n",
            xml(suite),
            xml(&self.name),
            self.time_s
        )
    }
}

impl Counts {
    fn add(&mut self, cases: &[Case]) {
        self.tests += cases.len();
        for case in cases {
            match case.outcome {
                Outcome::Passed(_) => {}
                Outcome::Failed(_) => self.failures += 1,
                Outcome::Invalid(_) => self.errors += 1,
                Outcome::Skipped(_) => self.skipped += 1,
            }
        }
    }

    fn attributes(&self) -> String {
        let Self {
            tests,
            failures,
            errors,
            skipped,
        } = self;
        format!(
            "tests=\"{tests}\" failures=\"{failures}\" errors=\"{errors}\" skipped=\"{skipped}\""
        )
    }
}

/// Text for XML 1.0, which has no place for most control characters.
fn xml(text: &str) -> String {
    let is_told =
        |c: &char| matches!(c, '\t' | '\n' | '\r' | '\u{20}'..='\u{fffd}' | '\u{10000}'..);
    let told: String = text.chars().filter(is_told).collect();
    escaped(&told)
}

#[cfg(test)]
mod tests {
    use roxmltree::Document;

    use super::*;
    use crate::capacity::Over;
    use crate::run::Content;
    use crate::sample;

    fn counted(document: &Document<'_>) -> [usize; 4] {
        let root = document.root_element();
        ["tests", "failures", "errors", "skipped"]
            .map(|name| root.attribute(name).unwrap().parse().unwrap())
    }

    fn messages<'a>(document: &'a Document<'_>, tag: &str) -> Vec<&'a str> {
        let found = document.descendants().filter(|it| it.has_tag_name(tag));
        found.map(|it| it.attribute("message").unwrap()).collect()
    }

    fn threshold(passed: bool) -> Threshold {
        Threshold {
            expression: "response.p99<5ms".to_owned(),
            actual: "44.8 ms".to_owned(),
            passed,
        }
    }

    #[test]
    fn verdicts_and_thresholds_of_a_bench_are_cases() {
        let mut run = sample::bench(3, 500);
        let Content::Bench(cells) = &mut run.content else {
            panic!("a bench")
        };
        cells[0]
            .assessment
            .add(Verdict::Invalid, "late: 3 < 5 & \"so\"\u{1}");
        cells[1].thresholds = vec![threshold(true), threshold(false)];
        run.environment.command_line = vec!["a".to_owned(), "<&\">".to_owned()];
        let text = junit(&run);
        let document = Document::parse(&text).unwrap();
        assert_eq!(counted(&document), [6, 1, 1, 0]);
        assert_eq!(messages(&document, "error"), ["late: 3 < 5 & \"so\""]);
        let failed = ["response.p99<5ms failed, found 44.8 ms"];
        assert_eq!(messages(&document, "failure"), failed);
        let suites = document
            .descendants()
            .filter(|it| it.has_tag_name("testsuite"));
        assert_eq!(suites.count(), 4);
        let said = document
            .descendants()
            .filter(|it| it.has_tag_name("property"));
        let names: Vec<_> = said.map(|it| it.attribute("name").unwrap()).collect();
        for name in ["command line", "seed", "CPU", "kernel", "moonwire"] {
            assert!(names.contains(&name), "{name}: {names:?}");
        }
    }

    #[test]
    fn a_battle_has_a_suite_for_each_contestant_and_one_for_who_is_ahead() {
        let mut run = battle::tests::run(&[("a", 2.0), ("b", 2.4)], 5);
        let Content::Bench(cells) = &mut run.content else {
            panic!("a bench")
        };
        for cell in cells.iter_mut().skip(1).step_by(2).take(3) {
            cell.contest.as_mut().unwrap().limit = Some("the backend was the limit".to_owned());
        }
        let text = junit(&run);
        let document = Document::parse(&text).unwrap();
        // Five verdicts each, and two places, one of which is none.
        assert_eq!(counted(&document), [12, 0, 0, 4]);
        let skipped = messages(&document, "skipped");
        assert!(
            skipped[0].contains("the backend was the limit"),
            "{skipped:?}"
        );
        assert!(skipped.contains(&"not ranked: 2 rounds"), "{skipped:?}");
    }

    #[test]
    fn a_search_fails_where_no_load_kept_the_thresholds() {
        let mut run = battle::tests::run(&[("a", 2.0)], 2);
        let Content::Bench(cells) = &mut run.content else {
            panic!("a bench")
        };
        for cell in cells {
            cell.thresholds = vec![threshold(false)];
        }
        let capacity = |round, highest| Capacity {
            contestant: "a".to_owned(),
            tls: false,
            round,
            over: Over::Rate,
            highest,
            lowest_failed: None,
            is_confirmed: true,
            limit: None,
        };
        run.capacities = vec![capacity(1, Some(2000.0)), capacity(2, None)];
        let text = junit(&run);
        let document = Document::parse(&text).unwrap();
        assert_eq!(counted(&document), [2, 1, 0, 0]);
        let said = messages(&document, "failure")[0];
        assert!(said.ends_with("response.p99<5ms, found 44.8 ms"), "{said}");
    }

    #[test]
    fn a_load_run_is_one_suite() {
        let run = Run {
            content: Content::Load(Box::default()),
            ..Run::default()
        };
        let text = junit(&run);
        assert_eq!(counted(&Document::parse(&text).unwrap()), [1, 0, 0, 0]);
    }
}
