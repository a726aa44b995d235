//! A chart of one or more panels as SVG. The text is laid out by its anchors alone, so that no
//! font has to be measured.

mod mark;
mod timeline;

use std::fmt::Write as _;

pub(crate) use self::mark::{Mark, Stroke};
pub(crate) use self::timeline::{Timeline, Track};

use crate::axis::Axis;
use crate::format::escaped;
use crate::palette::FONTS;

/// Panels in a grid under one title and one legend.
pub(crate) struct Chart {
    pub(crate) title: String,
    pub(crate) subtitle: String,
    pub(crate) legend: Vec<Key>,
    pub(crate) panels: Vec<Panel>,
}

/// What a line of a chart stands for.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Key {
    pub(crate) name: String,
    pub(crate) color: &'static str,
    pub(crate) stroke: Stroke,
}

/// One coordinate system.
pub(crate) struct Panel {
    pub(crate) title: String,
    /// Lines of the box to the right of the panel: a name and a value each.
    pub(crate) notes: Vec<(String, String)>,
    pub(crate) x: Axis,
    pub(crate) y: Axis,
    pub(crate) marks: Vec<Mark>,
}

/// Where a panel lies on the sheet.
#[derive(Clone, Copy)]
struct Frame {
    left: f64,
    top: f64,
    width: f64,
    height: f64,
}

impl Key {
    /// Of a line without gaps.
    pub(crate) fn solid(name: impl Into<String>, color: &'static str) -> Self {
        Self {
            name: name.into(),
            color,
            stroke: Stroke::Solid,
        }
    }
}

impl Chart {
    /// The chart as a complete SVG document.
    pub(crate) fn to_svg(&self) -> String {
        let columns = if self.panels.len() > 1 { 2 } else { 1 };
        let rows = self.panels.len().div_ceil(columns);
        let (width, height, right) = self.panel_size();
        let sheet_width = columns as f64 * (width + MARGIN_LEFT + right);
        let places = self.legend_places(sheet_width);
        let subtitle = wrapped(&self.subtitle, sheet_width - 2.0 * HEAD_LEFT, "");
        let more_height = (subtitle.len() - 1) as f64 * LEGEND_LINE_HEIGHT;
        let head_height = more_height
            + match places.last() {
                None => HEAD_HEIGHT,
                Some((_, line)) => LEGEND_HEAD_HEIGHT + *line as f64 * LEGEND_LINE_HEIGHT,
            };
        let title_lines = self
            .panels
            .iter()
            .map(|panel| panel.title_lines(width).len());
        let more_lines = title_lines.max().unwrap_or(1) - 1;
        let margin_top = MARGIN_TOP + more_lines as f64 * TITLE_LINE_HEIGHT;
        let row_height = height + margin_top + MARGIN_BOTTOM;
        let sheet_height = head_height + rows as f64 * row_height;
        let mut svg = sheet(sheet_width, sheet_height);
        self.head(&mut svg, &subtitle, &places);
        for (index, panel) in self.panels.iter().enumerate() {
            let (row, column) = (index / columns, index % columns);
            let frame = Frame {
                left: MARGIN_LEFT + column as f64 * (width + MARGIN_LEFT + right),
                top: head_height + margin_top + row as f64 * row_height,
                width,
                height,
            };
            panel.draw(&mut svg, frame, true);
        }
        svg.push_str("</svg>\n");
        svg
    }

    /// Where each entry of the legend begins, and on which line: none goes beyond the sheet.
    fn legend_places(&self, sheet_width: f64) -> Vec<(f64, usize)> {
        let (mut x, mut line) = (HEAD_LEFT, 0);
        let mut places = Vec::new();
        for key in &self.legend {
            let width = 44.0 + text_width(&key.name);
            if x + width > sheet_width && x > HEAD_LEFT {
                (x, line) = (HEAD_LEFT, line + 1);
            }
            places.push((x, line));
            x += width;
        }
        places
    }

    fn head(&self, svg: &mut String, subtitle: &[String], places: &[(f64, usize)]) {
        let left = HEAD_LEFT;
        text(
            svg,
            (left, 30.0),
            "start",
            &self.title,
            "font-size=\"17\" font-weight=\"bold\"",
        );
        let faint = format!("fill=\"{FAINT_INK}\"");
        let mut y = 50.0;
        for line in subtitle {
            text(svg, (left, y), "start", line, &faint);
            y += LEGEND_LINE_HEIGHT;
        }
        for (key, (x, line)) in self.legend.iter().zip(places) {
            let y = y - 1.0 + *line as f64 * LEGEND_LINE_HEIGHT;
            let ends = [(*x, y), (x + 19.0, y)];
            mark::draw_broken(svg, &ends, (key.color, 3.0, key.stroke));
            text(svg, (x + 24.0, y + 4.0), "start", &key.name, "");
        }
    }

    /// Width and height of the coordinate systems, and of what a panel has to its right.
    fn panel_size(&self) -> (f64, f64, f64) {
        let has_notes = self.panels.iter().any(|panel| !panel.notes.is_empty());
        let right = if has_notes {
            MARGIN_RIGHT + NOTE_WIDTH + 10.0
        } else {
            MARGIN_RIGHT
        };
        let (width, height) = if self.panels.len() > 1 {
            PANEL_SIZE
        } else {
            SINGLE_SIZE
        };
        (width, height, right)
    }
}

impl Panel {
    /// What tells a panel from the others may stand at the end of its title.
    fn title_lines(&self, width: f64) -> Vec<String> {
        wrapped(&self.title, width / PANEL_TITLE_WIDTH, "")
    }

    /// `has_time` is false where the x axis is told further below.
    fn draw(&self, svg: &mut String, frame: Frame, has_time: bool) {
        let title = self.title_lines(frame.width);
        for (above, line) in title.iter().rev().enumerate() {
            let y = frame.top - 10.0 - above as f64 * TITLE_LINE_HEIGHT;
            text(svg, (frame.left, y), "start", line, PANEL_TITLE);
        }
        self.grid(svg, frame, has_time);
        for mark in &self.marks {
            mark.draw(svg, self, frame);
        }
        let Frame {
            left,
            top,
            width,
            height,
        } = frame;
        let bottom = top + height;
        put(
            svg,
            format_args!(
                "<path d=\"M{left:.1} {top:.1}V{bottom:.1}H{:.1}\" fill=\"none\" \
             stroke=\"{FAINT_INK}\"/>\n",
                left + width
            ),
        );
        let faint = format!("fill=\"{FAINT_INK}\"");
        let middle = left + width / 2.0;
        if has_time {
            let at = (middle, bottom + 36.0);
            text(svg, at, "middle", self.x.label(), &faint);
        }
        let (x, y) = (left - 58.0, top + height / 2.0);
        let turned = format!("{faint} transform=\"rotate(-90 {x:.1} {y:.1})\"");
        text(svg, (x, y), "middle", self.y.label(), &turned);
        self.note_box(svg, frame);
    }

    fn grid(&self, svg: &mut String, frame: Frame, has_time: bool) {
        let Frame {
            left,
            top,
            width,
            height,
        } = frame;
        for tick in self.x.ticks() {
            let x = left + tick.at * width;
            let color = if tick.text.is_empty() {
                MINOR_GRID
            } else {
                GRID
            };
            let bottom = top + height;
            put(
                svg,
                format_args!("<path d=\"M{x:.1} {top:.1}V{bottom:.1}\" stroke=\"{color}\"/>\n"),
            );
            if has_time {
                text(svg, (x, bottom + 16.0), "middle", &tick.text, "");
            }
        }
        for tick in self.y.ticks() {
            let y = top + height - tick.at * height;
            let color = if tick.text.is_empty() {
                MINOR_GRID
            } else {
                GRID
            };
            let right = left + width;
            put(
                svg,
                format_args!("<path d=\"M{left:.1} {y:.1}H{right:.1}\" stroke=\"{color}\"/>\n"),
            );
            text(svg, (left - 7.0, y + 4.0), "end", &tick.text, "");
        }
    }

    fn note_box(&self, svg: &mut String, frame: Frame) {
        if self.notes.is_empty() {
            return;
        }
        let (line, width) = (16.0, NOTE_WIDTH);
        let height = self.notes.len() as f64 * line + 10.0;
        let left = frame.left + frame.width + 10.0;
        let top = frame.top;
        put(
            svg,
            format_args!(
                "<rect x=\"{left:.1}\" y=\"{top:.1}\" width=\"{width}\" height=\"{height}\" \
                 rx=\"4\" fill=\"#f7f8fa\" stroke=\"{GRID}\"/>\n"
            ),
        );
        for (index, (name, value)) in self.notes.iter().enumerate() {
            let y = top + 16.0 + index as f64 * line;
            let faint = format!("fill=\"{FAINT_INK}\"");
            text(svg, (left + 8.0, y), "start", name, &faint);
            text(svg, (left + width - 8.0, y), "end", value, "");
        }
    }
}

/// The beginning of a document of this size.
fn sheet(width: f64, height: f64) -> String {
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
         viewBox=\"0 0 {width} {height}\" font-family=\"{FONTS}\" \
         font-size=\"11\" fill=\"{INK}\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n"
    )
}

/// Names with their colours in a row that begins at `at`.
fn legend(svg: &mut String, at: (f64, f64), names: &[(String, &'static str)]) {
    let (mut x, y) = at;
    for (name, color) in names {
        put(
            svg,
            format_args!(
                "<rect x=\"{x:.1}\" y=\"{:.1}\" width=\"18\" height=\"4\" rx=\"2\" \
                 fill=\"{color}\"/>\n",
                y - 6.0
            ),
        );
        text(svg, (x + 24.0, y), "start", name, "");
        x += 44.0 + text_width(name);
    }
}

/// An estimate on the wide side: letters of this font are about 0.6 em.
pub(crate) fn text_width(text: &str) -> f64 {
    6.8 * text.chars().count() as f64
}

/// A text in lines that fit, all but the first after an indent.
pub(crate) fn wrapped(text: &str, width: f64, indent: &str) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    let mut line = String::new();
    for word in text.split(' ') {
        if !line.is_empty() && text_width(&line) + text_width(word) + 7.0 > width {
            lines.push(std::mem::replace(&mut line, indent.to_owned()));
        } else if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    lines.push(line);
    lines
}

pub(crate) fn text(
    svg: &mut String,
    at: (f64, f64),
    anchor: &str,
    content: &str,
    attributes: &str,
) {
    if content.is_empty() {
        return;
    }
    let content = escaped(content);
    put(
        svg,
        format_args!(
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"{anchor}\" {attributes}>\
             {content}</text>\n",
            at.0, at.1
        ),
    );
}

pub(crate) fn put(text: &mut String, arguments: std::fmt::Arguments<'_>) {
    text.write_fmt(arguments)
        .expect("writing into a String cannot fail");
}

pub(crate) const PANEL_TITLE: &str = "font-size=\"13\" font-weight=\"bold\"";
/// How much wider than plain text of 11 such a title is, and that of the sheet.
pub(crate) const PANEL_TITLE_WIDTH: f64 = 1.35;
pub(crate) const TITLE_WIDTH: f64 = 1.75;
const TITLE_LINE_HEIGHT: f64 = 16.0;
pub(crate) const INK: &str = "#1f2933";
pub(crate) const FAINT_INK: &str = "#616e7c";
pub(crate) const GRID: &str = "#d9dee4";
const MINOR_GRID: &str = "#f0f2f5";
const SINGLE_SIZE: (f64, f64) = (860.0, 380.0);
const PANEL_SIZE: (f64, f64) = (450.0, 250.0);
const HEAD_HEIGHT: f64 = 58.0;
const LEGEND_HEAD_HEIGHT: f64 = 80.0;
const LEGEND_LINE_HEIGHT: f64 = 18.0;
/// Where the title and the legend begin.
const HEAD_LEFT: f64 = 32.0;
const NOTE_WIDTH: f64 = 128.0;
const MARGIN_LEFT: f64 = 76.0;
const MARGIN_RIGHT: f64 = 24.0;
const MARGIN_TOP: f64 = 30.0;
const MARGIN_BOTTOM: f64 = 52.0;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::axis::Unit;

    /// Above and below a line of text, some of a letter's height is left.
    #[test]
    fn a_legend_of_any_length_lies_between_the_subtitle_and_the_first_title() {
        for (entries, more) in [(1, ""), (40, ""), (3, &*" and so on".repeat(40))] {
            let legend = (0..entries).map(|_| Key::solid("legend", "#000000"));
            let chart = Chart {
                title: "title".to_owned(),
                subtitle: format!("{more} subtitle"),
                legend: legend.collect(),
                panels: vec![Panel {
                    title: "panel".to_owned(),
                    notes: Vec::new(),
                    x: Axis::linear("x", Unit::Seconds, 0.0, 1.0),
                    y: Axis::linear("y", Unit::Percent, 0.0, 1.0),
                    marks: Vec::new(),
                }],
            };
            let svg = chart.to_svg();
            let baselines = |word: &str| {
                let lines = svg
                    .lines()
                    .filter(|line| line.contains(&format!("{word}<")));
                let y = lines.map(|line| line.split("y=\"").nth(1).unwrap().split('"').next());
                y.map(|y| y.unwrap().parse::<f64>().unwrap())
                    .collect::<Vec<_>>()
            };
            let (legend, panel) = (baselines("legend"), baselines("panel")[0]);
            assert_eq!(legend.len(), entries);
            assert!(legend[0] - baselines("subtitle")[0] > 13.0, "{legend:?}");
            assert!(panel - legend[entries - 1] > 16.0, "{panel}: {legend:?}");
        }
    }

    #[test]
    fn a_long_title_stands_in_lines_above_its_panel_and_not_beside_it() {
        let panel = |title: String| Panel {
            title,
            notes: Vec::new(),
            x: Axis::linear("x", Unit::Seconds, 0.0, 1.0),
            y: Axis::linear("y", Unit::Percent, 0.0, 1.0),
            marks: Vec::new(),
        };
        let long = panel("many connections, ".repeat(6));
        let lines = long.title_lines(PANEL_SIZE.0);
        assert!(lines.len() > 1, "{lines:?}");
        let chart = Chart {
            title: "title".to_owned(),
            subtitle: "subtitle".to_owned(),
            legend: Vec::new(),
            panels: vec![panel("short".to_owned()), long],
        };
        let svg = chart.to_svg();
        let y = |words: &str| {
            let mut of_words = svg
                .lines()
                .filter(|line| line.contains(&format!(">{words}<")));
            let y = of_words.next().unwrap().split("y=\"").nth(1).unwrap();
            y.split('"').next().unwrap().parse::<f64>().unwrap()
        };
        // The last one as near to its panel as a short title, the others above it.
        assert_eq!(y("short"), y(lines.last().unwrap()));
        assert!(y(&lines[0]) < y("short") && y(&lines[0]) > y("subtitle") + 10.0);
    }
}
