//! The report as one HTML page that needs nothing but itself: no network, no other file.

use std::collections::BTreeSet;

use crate::battle;
use crate::capacity;
use crate::cell::Cell;
use crate::course;
use crate::doubling;
use crate::format::{self, escaped};
use crate::groups::{Group, clients};
use crate::heat_map;
use crate::histogram::Histogram;
use crate::objections;
use crate::page_data::page_data;
use crate::plot_data::curve_end;
use crate::plots::Plot;
use crate::processor;
use crate::run::Run;
use crate::sentences;
use crate::summary::faults;
use crate::table::Table;
use crate::tables::{self, Pick};
use crate::verdict::Verdict;

/// The page.
pub fn html(run: &Run) -> String {
    let groups = Group::all(run);
    let failed = objections::failed_thresholds(run);
    let mut first_cell = 0;
    let mut sections = contest_sections(run);
    for (index, group) in groups.iter().enumerate() {
        sections.push_str(&group_section(group, index, first_cell));
        first_cell += group.cells.len();
    }
    fill(
        include_str!("../assets/report.html"),
        &[
            ("title", &escaped(&sentences::title(run))),
            ("verdict", &(badge(run.verdict()) + &failed_badge(&failed))),
            (
                "reasons",
                &(list(&failed) + &list(&objections::reasons(run))),
            ),
            ("facts", &escaped(&facts(run))),
            ("groups", &sections),
            ("how_to_read", &escaped(&sentences::how_to_read(run))),
            (
                "command_line",
                &escaped(&format::command_line(&run.environment.command_line)),
            ),
            (
                "environment",
                &definitions(&sentences::environment(&run.environment)),
            ),
            ("data", &page_data(&groups)),
            ("css", include_str!("../assets/report.css")),
            ("js", include_str!("../assets/report.js")),
            (
                "uplot_css",
                include_str!("../assets/vendor/uplot/uPlot.min.css"),
            ),
            (
                "uplot_js",
                without_banner(include_str!("../assets/vendor/uplot/uPlot.iife.min.js")),
            ),
            (
                "uplot_license",
                include_str!("../assets/vendor/uplot/LICENSE"),
            ),
            ("uplot_version", "1.6.32"),
        ],
    )
}

/// Puts values in place of `{{name}}`, each once from left to right, so that a value which looks
/// like a placeholder stays what it is.
fn fill(template: &str, values: &[(&str, &str)]) -> String {
    let mut page = String::with_capacity(template.len());
    let mut rest = template;
    while let Some((before, after)) = rest.split_once("{{") {
        let (name, after) = after
            .split_once("}}")
            .expect("the template closes what it opens");
        let value = values.iter().find(|(known, _)| *known == name);
        page.push_str(before);
        page.push_str(
            value
                .expect("the template names only values that are given")
                .1,
        );
        rest = after;
    }
    page.push_str(rest);
    page
}

/// The first line of the library names its home page, which a page without references to the
/// outside leaves out; its licence is given in full elsewhere.
fn without_banner(script: &str) -> &str {
    match script.split_once("*/") {
        Some((banner, rest)) if banner.starts_with("/*!") => rest,
        Some(_) | None => script,
    }
}

fn facts(run: &Run) -> String {
    let environment = &run.environment;
    let mut parts = vec![
        environment.started_at.clone(),
        environment.cpu_model.clone(),
    ];
    if environment.cores > 0 {
        parts.push(format!("{} cores", environment.cores));
    }
    parts.push(environment.kernel.clone());
    parts.push(who(run));
    let link = run.cells().iter().find_map(|cell| cell.link.as_ref());
    parts.extend(link.map(|link| format!("link: {}", sentences::link_kind(link))));
    parts.retain(|part| !part.is_empty());
    parts.join(" · ")
}

/// All that were measured, or how many where a line does not hold them.
fn who(run: &Run) -> String {
    let name = |cell: &Cell| match &cell.contest {
        Some(contest) => Some(contest.contestant.clone()),
        None => cell.server.as_ref().map(|server| server.name.clone()),
    };
    let names: BTreeSet<String> = run.cells().iter().filter_map(name).collect();
    match names.len() {
        0..=NAMES_MAX => Vec::from_iter(names).join(", "),
        more => format!("{more} contestants"),
    }
}

/// The tables of contestants side by side, which are what a contest is made for.
fn contest_sections(run: &Run) -> String {
    let section = |title: &str, table: &Table, sentences: &[String]| {
        let said = sentences
            .iter()
            .map(|it| format!("<p>{}</p>\n", escaped(it)));
        format!(
            "<section>\n<h2>{}</h2>\n{}{}</section>\n",
            escaped(title),
            table.to_html(),
            said.collect::<String>()
        )
    };
    let paragraph = |text: &str| format!("<p class=\"meaning\">{}</p>\n", escaped(text));
    match &run.rules {
        Some(rules) => {
            let sections = battle::sections(run, rules);
            let tables = sections
                .iter()
                .map(|it| section(&it.title, &it.table, &it.sentences));
            let pictures = |plots: Vec<Plot>| -> String {
                let picture = |plot: &Plot| format!("<section>{}</section>\n", picture(plot));
                plots.iter().map(picture).collect()
            };
            let (first, others) = battle::plots(run)
                .into_iter()
                .partition(|plot| !plot.name.starts_with(battle::OTHER_METRIC));
            let first = capacity::plots(run).into_iter().chain(first);
            let first = first.chain(course::plots(run)).collect();
            pictures(first)
                + &tables.collect::<String>()
                + &pictures(others)
                + &paragraph(battle::method(run))
        }
        None if doubling::is_contest(run) => {
            let sections = doubling::sections(run);
            let tables = sections.iter().map(|it| section(&it.title, &it.table, &[]));
            let tables: String = tables.collect();
            paragraph(doubling::method(run)) + &tables + &paragraph(doubling::UNITS)
        }
        None => String::new(),
    }
}

fn group_section(group: &Group<'_>, index: usize, first_cell: usize) -> String {
    let mut html = format!("<section>\n<h2>{}</h2>\n", escaped(&group.title()));
    html.push_str(&tables::counter_table(group).to_html());
    html.push_str("<div class=\"pair\">\n");
    let has_replies = group
        .cells
        .iter()
        .any(|cell| !cell.latency.response.is_empty());
    // What never had a reply has neither figures nor a clock that could be blamed.
    let picks = [Pick::OneWay, Pick::Response].into_iter();
    for pick in picks.filter(|_| has_replies) {
        let heading = format!("<div><h3>{}</h3>", escaped(pick.title()));
        html.push_str(&format!(
            "{heading}<p class=\"meaning\">{}</p>\n",
            escaped(pick.meaning())
        ));
        match (pick, refusal(group)) {
            (Pick::OneWay, Some(reason)) => {
                html.push_str(&format!("<p>Not given: {}.</p>\n", escaped(reason)));
            }
            (Pick::OneWay | Pick::Response | Pick::RoundTripSeed, _) => {
                html.push_str(&tables::client_table(group, pick).to_html());
                if pick == Pick::OneWay && tables::is_coarse(group) {
                    let note = escaped(sentences::COARSE_CLOCK);
                    html.push_str(&format!("<p class=\"note\">{note}</p>\n"));
                }
            }
        }
        html.push_str("</div>\n");
    }
    html.push_str("</div>\n</section>\n");
    html.push_str(&chart_section(group, index));
    html.push_str("<section>\n<h2>Details</h2>\n");
    for (offset, cell) in group.cells.iter().enumerate() {
        let is_alone = group.cells.len() == 1;
        html.push_str(&cell_details(cell, first_cell + offset, is_alone));
    }
    html.push_str("</section>\n");
    html
}

/// Why a group has no one-way latency; `None` if one of its cells has.
fn refusal<'a>(group: &Group<'a>) -> Option<&'a str> {
    let measured = group
        .cells
        .iter()
        .any(|cell| Pick::OneWay.of(cell).is_some());
    let reason = || {
        group
            .cells
            .iter()
            .find_map(|cell| cell.latency.one_way.refusal())
    };
    if measured { None } else { reason() }
}

fn chart_section(group: &Group<'_>, index: usize) -> String {
    let has = |pick: Pick| group.cells.iter().any(|cell| pick.of(cell).is_some());
    let picks = [(Pick::OneWay, "one_way"), (Pick::Response, "response")];
    let picks: Vec<_> = picks.into_iter().filter(|(pick, _)| has(*pick)).collect();
    let Some((_, chosen)) = picks.last() else {
        return String::new();
    };
    let mut html = format!(
        "<section data-group=\"{index}\" data-pick=\"{chosen}\">\n<h2>Latency</h2>\n\
         <div class=\"choice\" role=\"group\" aria-label=\"Which latency\">"
    );
    for (pick, name) in &picks {
        let label = escaped(pick.title());
        html.push_str(&format!(
            "<button type=\"button\" data-pick=\"{name}\" aria-pressed=\"false\">{label}</button>"
        ));
    }
    html.push_str("</div>\n<p class=\"note hint\">Drag to zoom, double-click to go back.</p>\n");
    let sheets = [
        ("percentiles", "By percentile", "plots wide"),
        (
            "over_time",
            "Over time: each second's median, mean, p99 and maximum, and a rolling mean",
            "plots",
        ),
        ("distribution", "Distribution", "plots"),
        ("above_p90", "Tail above p90", "plots"),
        ("above_p99", "Tail above p99", "plots"),
    ];
    for (sheet, title, class) in sheets {
        html.push_str(&format!("<h3>{title}</h3>\n"));
        if sheet.starts_with("above") && group.cells.len() > 1 {
            let note = escaped(sentences::OWN_AXES);
            html.push_str(&format!("<p class=\"note\">{note}</p>\n"));
        }
        let counts = group
            .cells
            .iter()
            .filter_map(|cell| Pick::Response.of(cell));
        if sheet == "percentiles"
            && let Some(end) = curve_end(counts.map(Histogram::count))
        {
            html.push_str(&format!(
                "<p class=\"note\">Where samples are few, {end}.</p>\n"
            ));
        }
        html.push_str(&format!(
            "<div class=\"{class}\" data-sheet=\"{sheet}\"></div>\n"
        ));
    }
    if let [cell] = group.cells[..] {
        html.push_str(&heat_map(cell));
    }
    html.push_str("</section>\n");
    html
}

fn heat_map(cell: &Cell) -> String {
    heat_map::plot(cell).map_or_else(String::new, |plot| picture(&plot))
}

/// One that is alone in its group has its heat map with the other pictures of that.
fn cell_details(cell: &Cell, index: usize, is_alone: bool) -> String {
    let mut html = format!(
        "<details data-cell=\"{index}\">\n<summary>{} {}</summary>\n{}",
        escaped(&clients(cell)),
        badge(cell.assessment.verdict()),
        list(cell.assessment.reasons())
    );
    if !is_alone {
        html.push_str(&heat_map(cell));
    }
    html.push_str(&tables::latency_table(cell).to_html());
    for (title, table) in tables::further(cell) {
        html.push_str(&format!("<h3>{title}</h3>\n{}", table.to_html()));
    }
    html.push_str(&format!("<h3>{}</h3>\n", tables::LADDER_TITLE));
    html.push_str(&tables::ladder_table(cell).to_html());
    for (head, counts) in [("error", &cell.errors), ("close code", &cell.closes)] {
        let table = tables::count_table(head, counts);
        if !table.is_empty() {
            html.push_str(&table.to_html());
        }
    }
    let mut pairs = vec![
        ("connections".to_owned(), sentences::connections(cell)),
        ("faults".to_owned(), faults(cell)),
        (
            "bytes".to_owned(),
            format!(
                "{} sent, {} received",
                format::bytes(cell.bytes.sent as f64),
                format::bytes(cell.bytes.received as f64)
            ),
        ),
        ("generator".to_owned(), sentences::generator(cell)),
    ];
    let mut pair = |name: &str, value: Option<String>| {
        pairs.extend(value.map(|value| (name.to_owned(), value)));
    };
    pair("server", cell.server.as_ref().map(sentences::server));
    pair("server memory", sentences::memory(cell));
    pair("processors", processor::sentence(cell));
    for (name, value) in sentences::over_time(cell) {
        pair(&name, Some(value));
    }
    pair("link", cell.link.as_ref().map(sentences::link));
    pair("clocks", sentences::clocks(cell));
    pair("ended early", cell.ended_early.clone());
    for (name, value) in &cell.scenario {
        pair(
            name,
            Some(
                value
                    .as_str()
                    .map_or_else(|| value.to_string(), str::to_owned),
            ),
        );
    }
    pairs.extend(sentences::thresholds(cell));
    html.push_str(&definitions(&pairs));
    let intervals = tables::interval_table(cell).to_html();
    html.push_str(&format!(
        "<details><summary>Intervals</summary>\n{intervals}</details>\n"
    ));
    html.push_str("<div class=\"plots\"></div>\n</details>\n");
    html
}

fn picture(plot: &Plot) -> String {
    format!(
        "<div class=\"picture scroll\"{}>{}</div>\n",
        natural_width(&plot.svg),
        plot.svg
    )
}

/// How wide a picture was drawn, for the style sheet, which keeps its letters legible by that.
fn natural_width(svg: &str) -> String {
    let width = svg.split_once(" width=\"");
    let width = width.and_then(|(_, rest)| rest.split_once('"')?.0.parse::<f64>().ok());
    width.map_or_else(String::new, |px| format!(" style=\"--drawn: {px}px\""))
}

fn badge(verdict: Verdict) -> String {
    format!("<span class=\"badge {verdict}\">{verdict}</span>")
}

/// A run whose figures are to be believed may have broken what was asked of it.
fn failed_badge(failed: &[String]) -> String {
    match failed {
        [] => String::new(),
        _ => " <span class=\"badge FAILED\">THRESHOLD FAILED</span>".to_owned(),
    }
}

fn list(items: &[String]) -> String {
    if items.is_empty() {
        return String::new();
    }
    let points = |items: &[String]| -> String {
        let points = items.iter();
        points
            .map(|item| format!("<li>{}</li>", escaped(item)))
            .collect()
    };
    let (first, rest) = items.split_at(items.len().min(REASONS_SHOWN));
    let mut list = format!("<ul class=\"reasons\">{}</ul>\n", points(first));
    if !rest.is_empty() {
        list.push_str(&format!(
            "<details><summary>and {} more</summary><ul class=\"reasons\">{}</ul></details>\n",
            rest.len(),
            points(rest)
        ));
    }
    list
}

/// Names in the line below the title.
const NAMES_MAX: usize = 6;
/// Reasons that are seen at once: a contest on a busy machine has hundreds.
const REASONS_SHOWN: usize = 12;

fn definitions(pairs: &[(String, String)]) -> String {
    let pair = |(name, value): &(String, String)| {
        format!("<dt>{}</dt><dd>{}</dd>\n", escaped(name), escaped(value))
    };
    format!(
        "<dl>\n{}</dl>\n",
        pairs.iter().map(pair).collect::<String>()
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::environment::Threshold;
    use crate::run::Content;
    use crate::sample;

    #[test]
    fn the_page_refers_to_nothing_outside() {
        let page = html(&sample::bench(5, 100));
        for outside in [
            "http://", "https://", "src=", "@import", "url(", "{{", "}}</",
        ] {
            assert!(!page.contains(outside), "{outside}");
        }
        assert_eq!(page.matches("href=").count(), 1, "the empty icon");
    }

    #[test]
    fn strings_of_a_run_cannot_leave_their_place() {
        let mut run = sample::bench(5, 100);
        let hostile = "</script><script>alert(1)</script>{{js}}\u{2028}";
        run.name = hostile.to_owned();
        run.environment.command_line = vec![hostile.to_owned()];
        let Content::Bench(cells) = &mut run.content else {
            panic!("a bench")
        };
        cells[0].errors.insert(hostile.to_owned(), 1);
        cells[0].scenario.insert(hostile.to_owned(), hostile.into());
        cells[0].assessment.add(Verdict::Suspect, hostile);
        let page = html(&run);
        assert!(!page.contains("<script>alert"));
        assert!(page.contains("&lt;script&gt;alert(1)&lt;/script&gt;{{js}}"));
        assert_eq!(
            page.matches("</script>").count(),
            3,
            "the data, the library, the charts"
        );
    }

    #[test]
    fn a_page_begins_with_some_reasons_and_has_the_others_folded() {
        let reasons: Vec<String> = (0..20).map(|number| format!("reason {number}.")).collect();
        let all = list(&reasons);
        let (seen, folded) = all.split_once("<details>").unwrap();
        assert!(seen.contains("reason 11.") && !seen.contains("reason 12."));
        assert!(folded.contains("and 8 more") && folded.contains("reason 19."));
        assert!(!list(&reasons[..REASONS_SHOWN]).contains("details"));
    }

    #[test]
    fn pictures_say_how_wide_they_were_drawn() {
        let svg = "<svg xmlns=\"x\" width=\"1060\" height=\"2\">".to_owned();
        let name = String::new();
        let picture = picture(&Plot { name, svg });
        assert!(picture.starts_with("<div class=\"picture scroll\" style=\"--drawn: 1060px\">"));
    }

    #[test]
    fn a_failed_threshold_is_at_the_top() {
        let mut cell = sample::cell(100, 1.0, 2, 1);
        let threshold = |expression: &str, passed| Threshold {
            expression: expression.to_owned(),
            actual: "1".to_owned(),
            passed,
        };
        cell.thresholds = vec![threshold("leaks==0", false), threshold("lost==0", true)];
        let page = |cell: &Cell| {
            let page = html(&Run {
                content: Content::Load(Box::new(cell.clone())),
                ..Run::default()
            });
            page.split_once("<main>").unwrap().0.to_owned()
        };
        let head = page(&cell);
        assert!(head.contains("THRESHOLD FAILED</span>"), "{head}");
        assert!(head.contains("<li>threshold leaks==0 failed, found 1</li>"));
        assert!(!head.contains("lost==0"));
        cell.thresholds.remove(0);
        assert!(!page(&cell).contains("THRESHOLD FAILED</span>"));
    }

    #[test]
    fn a_load_run_without_any_sample_still_makes_a_page() {
        let page = |cell: &Cell| {
            html(&Run {
                content: Content::Load(Box::new(cell.clone())),
                ..Run::default()
            })
        };
        let mut cell = Cell::default();
        let refusal = "Not given: the server&#39;s replies carry no timestamps.";
        assert!(!page(&cell).contains("Not given"), "there are no replies");
        assert!(!page(&cell).contains("p99 (ms)"), "nor figures of them");
        cell.latency.response.record(1000);
        assert!(page(&cell).contains(refusal));
    }

    #[test]
    fn the_line_below_the_title_has_all_contestants() {
        let names = ["a", "b", "c", "d", "e", "f", "g"];
        let line = |count: usize| {
            let names: Vec<(&str, f64)> = names[..count].iter().map(|name| (*name, 2.0)).collect();
            facts(&battle::tests::run(&names, 1))
        };
        assert!(line(2).ends_with("a, b"), "{}", line(2));
        assert!(line(7).ends_with("7 contestants"), "{}", line(7));
    }

    #[test]
    fn each_tail_has_an_axis_of_its_own_and_the_page_says_so() {
        let mut run = sample::bench(5, 100);
        let Content::Bench(cells) = &mut run.content else {
            panic!("a bench")
        };
        cells[0].latency.response.record(90_000_000_000);
        let page = html(&run);
        assert_eq!(page.matches(sentences::OWN_AXES).count(), 2);
        let data = page.split_once("id=\"data\">").unwrap().1;
        let data = data.split_once("</script>").unwrap().0;
        let data: serde_json::Value = serde_json::from_str(data).unwrap();
        let end_us = |cell: usize| {
            let edges = data["cells"][cell]["response"]["above_p99"]["edges"].as_array();
            edges.unwrap().last().unwrap().as_f64().unwrap()
        };
        assert!(end_us(0) > 90e6, "{}", end_us(0));
        assert!((1..4).all(|cell| end_us(cell) < 45e6));
    }

    #[test]
    fn every_cell_has_its_details_and_its_data() {
        let page = html(&sample::bench(5, 100));
        assert_eq!(page.matches("<details data-cell=").count(), 4);
        assert!(page.contains("10,000 clients <span class=\"badge SUSPECT\">SUSPECT</span>"));
        let data = page
            .split_once("id=\"data\">")
            .unwrap()
            .1
            .split_once("</script>")
            .unwrap()
            .0;
        let data: serde_json::Value = serde_json::from_str(data).unwrap();
        assert_eq!(data["groups"][0]["cells"].as_array().unwrap().len(), 4);
        let bars = &data["cells"][3]["response"]["bins"];
        let lengths = ["edges", "share"].map(|name| bars[name].as_array().unwrap().len());
        assert_eq!(lengths[0], lengths[1] + 1);
    }
}
