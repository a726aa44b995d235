//! The terminal summary: the verdict first, then what users of wrk2, hey and oha look for.

use crate::battle;
use crate::cell::Cell;
use crate::doubling;
use crate::environment::Threshold;
use crate::format;
use crate::groups::{Group, clients};
use crate::objections;
use crate::plot_data::log_bins;
use crate::processor;
use crate::run::{Content, Run};
use crate::sentences;
use crate::spikes;
use crate::table::Table;
use crate::tables::{self, Pick};
use crate::verdict::Verdict;

/// How a terminal wants its text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Style {
    /// Use ANSI colours. The caller decides (terminal, `NO_COLOR`, `--no-color`).
    pub color: bool,
}

/// The summary of a run.
pub fn summary(run: &Run, style: Style) -> String {
    match &run.content {
        Content::Load(cell) => load_summary(cell, style),
        Content::Bench(_) if doubling::is_contest(run) => contest_summary(run, style),
        Content::Bench(_) => bench_summary(run, style),
    }
}

fn load_summary(cell: &Cell, style: Style) -> String {
    let mut text = verdict_lines(cell.assessment.verdict(), cell.assessment.reasons(), style);
    text.push_str(&threshold_lines(&cell.thresholds, style));
    if !is_connected(cell) {
        // The reason names what went wrong most often; a page of zeros would hide it.
        if cell.errors.len() > 1 {
            text.push_str(&count_section("Errors", "error", &cell.errors, style));
        }
        return text;
    }
    if let Some(reason) = cell.ended_early.as_deref().filter(|it| !is_said(cell, it)) {
        text.push_str(&format!("ended early: {reason}\n"));
    }
    text.push_str(&section("Summary", style));
    text.push_str(&traffic(cell));
    let latencies = tables::latency_table(cell);
    if !latencies.is_empty() {
        text.push_str(&section("Latency", style));
        text.push_str(&latencies.to_text());
    }
    for (title, table) in tables::further(cell) {
        text.push_str(&section(title, style));
        text.push_str(&table.to_text());
    }
    if cell.parameters.messages_per_connection.is_some() {
        // What thor printed of such a run.
        text.push_str(&section("Percentiles", style));
        text.push_str(&tables::ladder_table(cell).to_text());
    }
    if !cell.latency.response.is_empty() {
        if let Some(reason) = cell.latency.one_way.refusal() {
            text.push_str(&format!("  no one-way latency: {reason}\n"));
        }
        text.push_str(&section("Response time distribution", style));
        text.push_str(&bars(cell, style));
    }
    text.push_str(&count_section("Errors", "error", &cell.errors, style));
    if cell.closes.keys().any(|code| code != NORMAL_CLOSURE) {
        text.push_str(&count_section("Closes", "close code", &cell.closes, style));
    }
    text.push_str(&machinery(cell, style));
    text
}

/// What speaks against a run in one line: its verdict with the reasons, thresholds that were not
/// met. `None` where nothing does.
pub fn objection(run: &Run) -> Option<String> {
    let mut parts = match run.verdict() {
        Verdict::Valid => Vec::new(),
        verdict @ (Verdict::Suspect | Verdict::Invalid) => {
            let reasons = first_of(objections::reasons(run));
            vec![format!("{verdict}: {}", reasons.join("; "))]
        }
    };
    parts.extend(first_of(objections::failed_thresholds(run)));
    (!parts.is_empty()).then(|| parts.join("; "))
}

/// Whether there was a connection, and so anything to measure.
fn is_connected(cell: &Cell) -> bool {
    cell.connects.ok > 0
}

/// Whether the verdict says why the run ended already.
fn is_said(cell: &Cell, ending: &str) -> bool {
    let reasons = cell.assessment.reasons();
    reasons.iter().any(|reason| reason.contains(ending))
}

fn bench_summary(run: &Run, style: Style) -> String {
    let mut text = verdict_lines(run.verdict(), &objections::reasons(run), style);
    for group in Group::all(run) {
        if !group.cells.iter().any(|cell| is_connected(cell)) {
            continue;
        }
        text.push_str(&section(&group.title(), style));
        text.push_str(&tables::counter_table(&group).to_text());
        for pick in [Pick::OneWay, Pick::Response] {
            text.push_str(&section(pick.title(), style));
            text.push_str(&format!("  {}\n", pick.meaning()));
            text.push_str(&tables::client_table(&group, pick).to_text());
        }
        text.push_str(&refusals(&group));
        for cell in &group.cells {
            let kinds = cell.errors.iter().filter(|(_, count)| **count > 0);
            for (kind, count) in kinds {
                let clients = clients(cell);
                text.push_str(&format!(
                    "  {clients}: {} x {kind}\n",
                    format::count(*count)
                ));
            }
        }
    }
    if let Some(link) = run.cells().iter().find_map(|cell| cell.link.as_ref()) {
        text.push_str(&section("Link", style));
        text.push_str(&format!("  {}\n", sentences::link_nature(link)));
        text.push_str(&link_works(run));
    }
    text
}

/// What the link did for each of several loads: it may have been in the way of one of them.
fn link_works(run: &Run) -> String {
    let works = run.cells().iter().filter_map(|cell| {
        let work = sentences::link_work(cell.link.as_ref()?);
        Some(format!("  {}: {work}\n", clients(cell)))
    });
    works.collect()
}

/// The tables first: there may be a reason against each of a hundred cells.
fn contest_summary(run: &Run, style: Style) -> String {
    let mut text = match &run.rules {
        Some(rules) => battle_tables(run, rules, style),
        None => doubling_tables(run, style),
    };
    let reasons = first_of(objections::reasons(run));
    text.push_str(&verdict_lines(run.verdict(), &reasons, style));
    for failed in first_of(objections::failed_thresholds(run)) {
        text.push_str(&format!("{}  {failed}\n", painted("FAILED", RED, style)));
    }
    text
}

/// As many as a terminal should have, and how many there are beyond.
pub(crate) fn first_of(mut sentences: Vec<String>) -> Vec<String> {
    let more = sentences.len().saturating_sub(SENTENCES_SHOWN);
    if more > 0 {
        sentences.truncate(SENTENCES_SHOWN);
        sentences.push(format!("and {more} more, which the Run file has"));
    }
    sentences
}

fn doubling_tables(run: &Run, style: Style) -> String {
    let mut text = format!("{}\n", doubling::method(run));
    for section_of in doubling::sections(run) {
        text.push_str(&section(&section_of.title, style));
        text.push_str(&section_of.table.to_text());
    }
    text + &format!("\n{}\n\n", doubling::UNITS)
}

fn battle_tables(run: &Run, rules: &battle::Rules, style: Style) -> String {
    let mut text = String::new();
    for section_of in battle::sections(run, rules) {
        text.push_str(&section(&section_of.title, style));
        text.push_str(&section_of.table.to_text());
        for sentence in section_of.sentences {
            text.push_str(&format!("  {sentence}\n"));
        }
    }
    text + &format!("\n{}\n\n", battle::method(run))
}

/// Of each kind on a terminal: each of many cells may have three reasons.
const SENTENCES_SHOWN: usize = 12;

fn refusals(group: &Group<'_>) -> String {
    let refusal = group
        .cells
        .iter()
        .find_map(|cell| cell.latency.one_way.refusal());
    refusal.map_or_else(String::new, |reason| {
        format!("  no one-way latency: {reason}\n")
    })
}

fn verdict_lines(verdict: Verdict, reasons: &[String], style: Style) -> String {
    let color = match verdict {
        Verdict::Valid => GREEN,
        Verdict::Suspect => YELLOW,
        Verdict::Invalid => RED,
    };
    let word = painted(verdict.as_str(), color, style);
    match reasons {
        [] => format!("{word}\n"),
        [reason] => format!("{word}: {reason}\n"),
        several => {
            let lines: String = several
                .iter()
                .map(|reason| format!("  - {reason}\n"))
                .collect();
            format!("{word}:\n{lines}")
        }
    }
}

fn threshold_lines(thresholds: &[Threshold], style: Style) -> String {
    let line = |threshold: &Threshold| {
        let mark = if threshold.passed {
            painted("passed", GREEN, style)
        } else if threshold.unanswered().is_some() {
            painted("unknown", RED, style)
        } else {
            painted("FAILED", RED, style)
        };
        format!(
            "{mark}  {}  (found {})\n",
            threshold.expression, threshold.actual
        )
    };
    thresholds.iter().map(line).collect()
}

fn traffic(cell: &Cell) -> String {
    let messages = &cell.messages;
    let rate = &cell.rate;
    let target = rate.target_per_s.map_or_else(String::new, |target| {
        format!(" (asked for {}/s)", format::rate(target))
    });
    let mut table = Table::new(["Connections".to_owned(), sentences::connections(cell)]);
    table.row([
        "Sent".to_owned(),
        format!(
            "{} messages in {}: {}/s{target}",
            format::count(messages.sent),
            format::latency(rate.duration_s * 1e6),
            format::rate(rate.sent_per_s)
        ),
    ]);
    let kind = if cell.fan_out.is_some() {
        "copies"
    } else {
        "replies"
    };
    table.row([
        "Received".to_owned(),
        format!(
            "{} {kind}: {}/s",
            format::count(messages.received),
            format::rate(rate.received_per_s)
        ),
    ]);
    if let Some(fan_out) = &cell.fan_out {
        table.row(["Reach".to_owned(), sentences::fan_out(fan_out)]);
    }
    table.row(["Faults".to_owned(), faults(cell)]);
    table.row([
        "Bytes".to_owned(),
        format!(
            "{} sent, {} received",
            format::bytes(cell.bytes.sent as f64),
            format::bytes(cell.bytes.received as f64)
        ),
    ]);
    table.to_lines()
}

/// Everything that should be zero, zeros included for those users look for.
pub(crate) fn faults(cell: &Cell) -> String {
    let messages = &cell.messages;
    let mut parts = vec![
        format!("{} lost", format::count(messages.lost)),
        format!("{} duplicate", format::count(messages.duplicate)),
        format!("{} reordered", format::count(messages.reordered)),
        format!("{} corrupt", format::count(messages.corrupt)),
    ];
    let rare = [
        (messages.unsent, "never sent"),
        (messages.unexpected, "unexpected"),
        (messages.backpressured, "held back by a full socket"),
    ];
    for (count, name) in rare {
        if count > 0 {
            parts.push(format!("{} {name}", format::count(count)));
        }
    }
    parts.join(", ")
}

fn bars(cell: &Cell, style: Style) -> String {
    let histogram = &cell.latency.response;
    let bins = log_bins(histogram, None, BAR_COUNT);
    let largest = bins.iter().map(|bin| bin.count).max().unwrap_or(1).max(1);
    let mut text = String::new();
    for bin in bins {
        let length = (bin.count * BAR_WIDTH).div_ceil(largest);
        let bar = "■".repeat(length as usize);
        let bar = if bar.is_empty() {
            bar
        } else {
            painted(&bar, BLUE, style)
        };
        let (upper, count) = (format::latency(bin.high_us), format::count(bin.count));
        let line = format!("  ≤ {upper:>8}  {count:>11}  {bar}");
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

fn count_section(
    title: &str,
    head: &str,
    counts: &std::collections::BTreeMap<String, u64>,
    style: Style,
) -> String {
    let table = tables::count_table(head, counts);
    if table.is_empty() {
        return String::new();
    }
    format!("{}{}", section(title, style), table.to_text())
}

fn machinery(cell: &Cell, style: Style) -> String {
    let mut text = section("Where", style);
    if let Some(link) = &cell.link {
        text.push_str(&format!("  link       {}\n", sentences::link(link)));
    }
    if let Some(server) = &cell.server {
        text.push_str(&format!("  server     {}\n", sentences::server(server)));
    }
    if let Some(memory) = sentences::memory(cell) {
        text.push_str(&format!("  memory     {memory}\n"));
    }
    let (spikes, others) = spikes::spikes(cell);
    for spike in spikes.iter().take(SPIKES_SHOWN) {
        text.push_str(&format!("  spike      {spike}\n"));
    }
    let others = others + spikes.len().saturating_sub(SPIKES_SHOWN);
    if others > 0 {
        text.push_str(&format!(
            "  spikes     and {others} more, which the report has\n"
        ));
    }
    text.push_str(&format!("  generator  {}\n", sentences::generator(cell)));
    if let Some(processors) = processor::sentence(cell) {
        text.push_str(&format!("  processors {processors}\n"));
    }
    text
}

fn section(title: &str, style: Style) -> String {
    format!("\n{}\n", painted(title, BOLD, style))
}

fn painted(text: &str, code: &str, style: Style) -> String {
    if style.color {
        format!("\u{1b}[{code}m{text}\u{1b}[0m")
    } else {
        text.to_owned()
    }
}

/// The close code of a connection that ended as it should (RFC 6455, section 7.4.1).
const NORMAL_CLOSURE: &str = "1000";
const BOLD: &str = "1";
const RED: &str = "1;31";
const GREEN: &str = "1;32";
const YELLOW: &str = "1;33";
const BLUE: &str = "34";
/// On a terminal.
const SPIKES_SHOWN: usize = 3;
/// As many bars as hey and oha draw.
const BAR_COUNT: usize = 11;
/// Width of the longest bar in characters.
const BAR_WIDTH: u64 = 40;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::markdown::markdown;
    use crate::sample::{self, assert_golden};

    fn load() -> Run {
        let mut cell = sample::cell(1000, 0.6, 6, 20);
        cell.assessment
            .add(Verdict::Suspect, "CPU pressure from outside was 12.0 %");
        cell.errors.insert("connect: timed out".to_owned(), 3);
        cell.closes.insert("1011".to_owned(), 2);
        cell.thresholds.push(Threshold {
            expression: "response.p99<5ms".to_owned(),
            actual: "44.8 ms".to_owned(),
            passed: false,
        });
        Run {
            content: Content::Load(Box::new(cell)),
            ..sample::bench(1, 1000)
        }
    }

    #[test]
    fn a_load_run_reads_as_before() {
        assert_golden("load.txt", &summary(&load(), Style::default()));
    }

    #[test]
    fn what_went_as_it_should_takes_no_lines() {
        let mut run = load();
        let Content::Load(cell) = &mut run.content else {
            panic!("a load run")
        };
        cell.closes = [("1000".to_owned(), 50)].into();
        cell.parameters.replies = 1;
        cell.ended_early = Some("CPU pressure".to_owned());
        for interval in &mut cell.intervals {
            interval.server_rss_bytes = Some(1 << 20);
        }
        let text = summary(&run, Style::default());
        assert!(!text.contains("Closes") && !text.contains("seed"), "{text}");
        assert!(!text.contains("ended early"), "{text}");
        let said = "  memory     1.00 MiB in the first second, 1.00 MiB in the last; whether";
        assert!(text.contains(said), "{text}");
    }

    #[test]
    fn a_run_that_never_connected_has_no_tables_of_zeros() {
        let mut cell = Cell::default();
        let reason = "no connection could be made to ws://127.0.0.1:1/: refused (2 times)";
        cell.assessment.add(Verdict::Invalid, reason);
        cell.errors = [("refused".to_owned(), 2)].into();
        let load = Run {
            content: Content::Load(Box::new(cell.clone())),
            ..Run::default()
        };
        let text = summary(&load, Style::default());
        assert_eq!(text, format!("INVALID: {reason}\n"));
        assert_eq!(objection(&load).unwrap(), format!("INVALID: {reason}"));
        let bench = Run {
            content: Content::Bench(vec![cell]),
            ..Run::default()
        };
        let text = summary(&bench, Style::default());
        assert_eq!(text, format!("INVALID: 0 clients (INVALID): {reason}\n"));
    }

    #[test]
    fn an_objection_names_what_was_not_met() {
        let found = objection(&load()).unwrap();
        assert_eq!(
            found,
            "SUSPECT: CPU pressure from outside was 12.0 %; \
             threshold response.p99<5ms failed, found 44.8 ms"
        );
        let mut run = load();
        let Content::Load(cell) = &mut run.content else {
            panic!("a load run")
        };
        cell.assessment = crate::verdict::Assessment::valid();
        cell.thresholds.clear();
        assert_eq!(objection(&run), None);
    }

    fn cells_of(run: &mut Run) -> &mut [Cell] {
        match &mut run.content {
            Content::Bench(cells) => cells,
            Content::Load(_) => panic!("a battle"),
        }
    }

    #[test]
    fn a_contest_names_the_cell_of_a_threshold_that_failed() {
        let mut run = battle::tests::run(&[("a", 2.0), ("b", 2.4)], 4);
        cells_of(&mut run)[1].thresholds = vec![Threshold {
            expression: "leaks==0".to_owned(),
            actual: "1".to_owned(),
            passed: false,
        }];
        let said = "b, ws, round 1: threshold leaks==0 failed, found 1";
        let text = summary(&run, Style::default());
        assert!(text.ends_with(&format!("FAILED  {said}\n")), "{text}");
        assert!(objection(&run).unwrap().ends_with(said));
        cells_of(&mut run)[1].ended_early = Some(crate::run::INTERRUPTED.to_owned());
        assert!(run.failed_thresholds().is_empty());
        // It has the last cell's reason first.
        cells_of(&mut run)[7]
            .assessment
            .add(Verdict::Suspect, "late");
        cells_of(&mut run)[0]
            .assessment
            .add(Verdict::Valid, "a remark");
        assert!(run.verdict_reasons()[0].ends_with("(SUSPECT): late"));
    }

    #[test]
    fn a_run_without_a_sample_has_no_empty_table() {
        let mut cell = Cell::default();
        cell.connects.ok = 1;
        let run = Run {
            content: Content::Load(Box::new(cell)),
            ..Run::default()
        };
        let text = summary(&run, Style::default());
        assert!(
            !text.contains("Latency") && !text.contains("one-way"),
            "{text}"
        );
    }

    #[test]
    fn a_bench_reads_as_before() {
        let bench = sample::bench(6, 20);
        assert_golden("bench.txt", &summary(&bench, Style::default()));
        assert_golden("bench.md", &markdown(&bench));
    }

    #[test]
    fn colours_are_the_only_difference_of_a_coloured_summary() {
        let mut plain = summary(&load(), Style { color: true });
        for code in [BOLD, RED, GREEN, YELLOW, BLUE, "0"] {
            plain = plain.replace(&format!("\u{1b}[{code}m"), "");
        }
        assert_eq!(plain, summary(&load(), Style::default()));
    }
}
