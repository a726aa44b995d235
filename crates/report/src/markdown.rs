//! The Markdown report: tables like those of uwebsocket-benchmark, one column per client count.

use crate::battle;
use crate::doubling;
use crate::format::{self, in_markdown};
use crate::groups::{Group, clients};
use crate::objections;
use crate::processor;
use crate::run::Run;
use crate::sentences;
use crate::tables::{self, Pick};

/// The whole report as Markdown.
pub fn markdown(run: &Run) -> String {
    let title = in_markdown(&sentences::title(run));
    let mut text = format!("# {title}\n\n**{}**", run.verdict());
    let reasons = objections::reasons(run);
    if reasons.is_empty() {
        text.push_str(": no reason against it.\n");
    } else {
        text.push_str(":\n\n");
        text.extend(reasons.iter().map(|it| format!("- {}\n", in_markdown(it))));
    }
    if !run.environment.command_line.is_empty() {
        let line = format::command_line(&run.environment.command_line);
        text.push_str(&format!("\n{}", format::fenced("sh", &line)));
    }
    match &run.rules {
        Some(rules) => text.push_str(&battle(run, rules)),
        None if doubling::is_contest(run) => text.push_str(&contest(run)),
        None => {}
    }
    for group in Group::all(run) {
        text.push_str(&format!("\n## {}\n\n", in_markdown(&group.title())));
        text.push_str(&tables::counter_table(&group).to_markdown());
        for pick in [Pick::OneWay, Pick::Response, Pick::RoundTripSeed] {
            text.push_str(&latency_section(&group, pick));
        }
        for cell in &group.cells {
            text.push_str(&format!("\n### {}\n\n", clients(cell)));
            text.push_str(&tables::latency_table(cell).to_markdown());
            for (title, table) in tables::further(cell) {
                text.push_str(&format!("\n**{title}**\n\n{}", table.to_markdown()));
            }
            let ladder = tables::ladder_table(cell).to_markdown();
            text.push_str(&format!("\n**{}**\n\n{ladder}", tables::LADDER_TITLE));
            text.push_str(&details(cell));
        }
    }
    text.push_str("\n## Environment\n\n");
    for (name, value) in sentences::environment(&run.environment) {
        text.push_str(&format!("- {name}: {}\n", in_markdown(&value)));
    }
    text.push_str(&format!(
        "\n## How to read this\n\n{}\n",
        sentences::how_to_read(run)
    ));
    text
}

fn battle(run: &Run, rules: &battle::Rules) -> String {
    let mut text = format!("\n{}\n", battle::method(run));
    for section in battle::sections(run, rules) {
        text.push_str(&format!("\n## {}\n\n", in_markdown(&section.title)));
        text.push_str(&section.table.to_markdown());
        for sentence in section.sentences {
            text.push_str(&format!("\n{}\n", in_markdown(&sentence)));
        }
    }
    text
}

fn contest(run: &Run) -> String {
    let mut text = format!("\n{}\n", doubling::method(run));
    for section in doubling::sections(run) {
        text.push_str(&format!("\n## {}\n\n", in_markdown(&section.title)));
        text.push_str(&section.table.to_markdown());
    }
    text + &format!("\n{}\n", doubling::UNITS)
}

fn latency_section(group: &Group<'_>, pick: Pick) -> String {
    let mut cells = group.cells.iter();
    if cells.all(|cell| cell.latency.response.is_empty()) {
        return String::new();
    }
    let mut text = format!("\n**{}**: {}.\n\n", pick.title(), pick.meaning());
    if group.cells.iter().any(|cell| pick.of(cell).is_some()) {
        text.push_str(&tables::client_table(group, pick).to_markdown());
        if pick == Pick::OneWay && tables::is_coarse(group) {
            text.push_str(&format!("\n{}\n", sentences::COARSE_CLOCK));
        }
        return text;
    }
    let refusal = group
        .cells
        .iter()
        .find_map(|cell| cell.latency.one_way.refusal());
    match (pick, refusal) {
        (Pick::OneWay, Some(reason)) => text.push_str(&format!("Not given: {reason}.\n")),
        (Pick::OneWay | Pick::Response | Pick::RoundTripSeed, _) => return String::new(),
    }
    text
}

fn details(cell: &crate::cell::Cell) -> String {
    let mut text = String::from("\n");
    let mut line = |name: &str, value: &str| {
        text.push_str(&format!("- {name}: {}\n", in_markdown(value)));
    };
    line("connections", &sentences::connections(cell));
    if let Some(link) = &cell.link {
        line("link", &sentences::link(link));
    }
    if let Some(server) = &cell.server {
        line("server", &sentences::server(server));
    }
    if let Some(memory) = sentences::memory(cell) {
        line("server memory", &memory);
    }
    for (name, value) in sentences::over_time(cell) {
        line(&name, &value);
    }
    line("generator", &sentences::generator(cell));
    if let Some(clocks) = sentences::clocks(cell) {
        line("clocks", &clocks);
    }
    if let Some(processors) = processor::sentence(cell) {
        line("processors", &processors);
    }
    for (name, value) in sentences::thresholds(cell) {
        line(&name, &value);
    }
    for (kind, count) in cell.errors.iter().filter(|(_, count)| **count > 0) {
        line("error", &format!("{kind}: {}", format::count(*count)));
    }
    for (code, count) in cell.closes.iter().filter(|(_, count)| **count > 0) {
        line("close code", &format!("{code}: {}", format::count(*count)));
    }
    text
}
