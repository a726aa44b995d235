//! Bars that lie, with their names before them and their values behind: panels on one axis, and
//! remarks below. Text is laid out by estimates of its width, so that no font has to be measured.

use std::collections::BTreeSet;

use crate::axis::Axis;
use crate::chart::{
    FAINT_INK, GRID, INK, PANEL_TITLE, PANEL_TITLE_WIDTH, TITLE_WIDTH, put, text, text_width,
    wrapped,
};
use crate::palette::FONTS;

/// Panels in two columns under one title.
pub(crate) struct BarChart {
    pub(crate) title: String,
    pub(crate) subtitle: String,
    /// What all bars are measured along, from 0.
    pub(crate) axis: Axis,
    pub(crate) panels: Vec<BarPanel>,
    /// What the marks behind values stand for; a paragraph each.
    pub(crate) remarks: Vec<String>,
}

/// Bars that belong together.
pub(crate) struct BarPanel {
    pub(crate) title: String,
    pub(crate) bars: Vec<Bar>,
}

/// One bar, or a name without any.
#[cfg_attr(test, derive(Clone))]
pub(crate) struct Bar {
    pub(crate) name: String,
    /// On the axis.
    pub(crate) value: Option<f64>,
    /// Ends of its interval, on the axis.
    pub(crate) bounds: Option<(f64, f64)>,
    /// The value as it is read.
    pub(crate) text: String,
    pub(crate) color: &'static str,
    /// Hatched bars are there to be seen and do not count.
    pub(crate) is_hatched: bool,
    /// A line through the panel at its end, for the others to be compared with.
    pub(crate) is_reference: bool,
}

/// Where the parts of a sheet lie.
struct Layout {
    columns: usize,
    names_width: f64,
    texts_width: f64,
    head_height: f64,
}

impl BarChart {
    /// The chart as a complete SVG document.
    pub(crate) fn to_svg(&self) -> String {
        let layout = self.layout();
        let heads = [(&self.title, TITLE_WIDTH), (&self.subtitle, 1.0)];
        let heads = heads.map(|(text, factor)| text_width(text) * factor + 2.0 * MARGIN);
        let width = heads.into_iter().fold(layout.sheet_width(), f64::max);
        let wrap = |remark: &String| wrapped(remark, width - 2.0 * MARGIN, "    ");
        let foot: Vec<String> = self.remarks.iter().flat_map(wrap).collect();
        let panels_end = layout.row_top(self, self.panels.len().div_ceil(layout.columns));
        let height = panels_end + foot.len() as f64 * LINE_HEIGHT + MARGIN;
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width:.0}\" \
             height=\"{height:.0}\" viewBox=\"0 0 {width:.0} {height:.0}\" \
             font-family=\"{FONTS}\" font-size=\"11\" fill=\"{INK}\">\n\
             {}<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n",
            self.hatches()
        );
        self.head(&mut svg, &layout);
        for (index, panel) in self.panels.iter().enumerate() {
            let (row, column) = (index / layout.columns, index % layout.columns);
            let left = MARGIN + column as f64 * (layout.panel_width() + GAP);
            let top = layout.row_top(self, row);
            for (line, words) in layout.title(panel).iter().enumerate() {
                let y = top + 14.0 + line as f64 * LINE_HEIGHT;
                text(&mut svg, (left, y), "start", words, PANEL_TITLE);
            }
            let panels = self.panels.chunks(layout.columns).nth(row);
            let below = top + layout.titles_height(panels.unwrap_or_default());
            self.panel(&mut svg, panel, (left, below), &layout);
        }
        for (index, line) in foot.iter().enumerate() {
            let y = panels_end + (index as f64 + 0.8) * LINE_HEIGHT;
            text(&mut svg, (MARGIN, y), "start", line, &faint());
        }
        svg.push_str("</svg>\n");
        svg
    }

    fn layout(&self) -> Layout {
        let widest = |of: fn(&Bar) -> f64| {
            let bars = self.panels.iter().flat_map(|panel| &panel.bars);
            bars.map(of).fold(40.0, f64::max)
        };
        Layout {
            columns: self.panels.len().clamp(1, 2),
            names_width: widest(|bar| text_width(&bar.name)) + 8.0,
            texts_width: widest(|bar| text_width(&bar.text)) + 10.0,
            head_height: match self.is_hatched() {
                true => HEAD_HEIGHT + LINE_HEIGHT,
                false => HEAD_HEIGHT,
            },
        }
    }

    /// Patterns in the colours of the bars that are hatched, and in that of the legend.
    fn hatches(&self) -> String {
        let bars = self.panels.iter().flat_map(|panel| &panel.bars);
        let hatched = bars.filter(|bar| bar.is_hatched).map(|bar| bar.color);
        let mut colors: BTreeSet<&str> = hatched.collect();
        if !colors.is_empty() {
            colors.insert(FAINT_INK);
        }
        let patterns: String = colors.into_iter().map(hatch).collect();
        format!("<defs>{patterns}</defs>\n")
    }

    fn is_hatched(&self) -> bool {
        let mut bars = self.panels.iter().flat_map(|panel| &panel.bars);
        bars.any(|bar| bar.is_hatched)
    }

    fn head(&self, svg: &mut String, layout: &Layout) {
        let big = "font-size=\"17\" font-weight=\"bold\"";
        text(svg, (MARGIN, 30.0), "start", &self.title, big);
        text(svg, (MARGIN, 50.0), "start", &self.subtitle, &faint());
        if self.is_hatched() {
            let y = layout.head_height - 16.0;
            put(
                svg,
                format_args!(
                    "<rect x=\"{MARGIN}\" y=\"{:.1}\" width=\"18\" height=\"10\" \
                     fill=\"{}\" stroke=\"{FAINT_INK}\"/>\n",
                    y - 9.0,
                    hatched(FAINT_INK)
                ),
            );
            let said = "hatched: not ranked, the reason is below";
            text(svg, (MARGIN + 26.0, y), "start", said, "");
        }
    }

    fn panel(&self, svg: &mut String, panel: &BarPanel, (left, top): (f64, f64), layout: &Layout) {
        let (start, first) = (left + layout.names_width, top);
        let bottom = first + panel.bars.len() as f64 * ROW_HEIGHT;
        for tick in self.axis.ticks() {
            let x = start + tick.at * BARS_WIDTH;
            put(
                svg,
                format_args!("<path d=\"M{x:.1} {first:.1}V{bottom:.1}\" stroke=\"{GRID}\"/>\n"),
            );
            text(svg, (x, bottom + 15.0), "middle", &tick.text, &faint());
        }
        for (index, bar) in panel.bars.iter().enumerate() {
            let y = first + (index as f64 + 0.5) * ROW_HEIGHT;
            bar.draw(svg, &self.axis, (start, y));
        }
        let reference = panel.bars.iter().find(|bar| bar.is_reference);
        if let Some(value) = reference.and_then(|bar| bar.value) {
            let x = start + self.axis.position(value) * BARS_WIDTH;
            put(
                svg,
                format_args!(
                    "<path d=\"M{x:.1} {first:.1}V{bottom:.1}\" stroke=\"{INK}\" \
                     stroke-dasharray=\"2 3\"/>\n"
                ),
            );
        }
        put(
            svg,
            format_args!(
                "<path d=\"M{start:.1} {first:.1}V{bottom:.1}\" stroke=\"{FAINT_INK}\"/>\n"
            ),
        );
    }
}

impl Layout {
    fn panel_width(&self) -> f64 {
        self.names_width + BARS_WIDTH + self.texts_width
    }

    fn sheet_width(&self) -> f64 {
        let columns = self.columns as f64;
        2.0 * MARGIN + columns * self.panel_width() + (columns - 1.0) * GAP
    }

    /// Where a row of panels begins: each is as high as its panel with the most bars.
    fn row_top(&self, chart: &BarChart, row: usize) -> f64 {
        let rows = chart.panels.chunks(self.columns).take(row);
        let heights = rows.map(|panels| {
            let bars = panels.iter().map(|panel| panel.bars.len()).max();
            let bars = bars.unwrap_or(0) as f64 * ROW_HEIGHT;
            self.titles_height(panels) + bars + PANEL_FOOT
        });
        self.head_height + heights.sum::<f64>()
    }

    /// The lines of a panel's title: what tells it from the others may stand at its end.
    fn title(&self, panel: &BarPanel) -> Vec<String> {
        wrapped(&panel.title, self.panel_width() / PANEL_TITLE_WIDTH, "")
    }

    /// The room for the titles of a row of panels.
    fn titles_height(&self, panels: &[BarPanel]) -> f64 {
        let lines = panels.iter().map(|panel| self.title(panel).len()).max();
        PANEL_HEAD + lines.unwrap_or(1).saturating_sub(1) as f64 * LINE_HEIGHT
    }
}

impl Bar {
    fn draw(&self, svg: &mut String, axis: &Axis, (start, y): (f64, f64)) {
        text(svg, (start - 7.0, y + 4.0), "end", &self.name, "");
        let x_of = |value: f64| start + axis.position(value) * BARS_WIDTH;
        let mut end = start;
        if let Some(value) = self.value {
            // Never less than a hair: 0 is a value, too.
            let width = (x_of(value) - start).max(0.7);
            let (fill, stroke) = match self.is_hatched {
                true => (hatched(self.color), self.color),
                false => (self.color.to_owned(), "none"),
            };
            put(
                svg,
                format_args!(
                    "<rect x=\"{start:.1}\" y=\"{:.1}\" width=\"{width:.1}\" \
                     height=\"{BAR_HEIGHT}\" fill=\"{fill}\" stroke=\"{stroke}\"/>\n",
                    y - BAR_HEIGHT / 2.0
                ),
            );
            end = start + width;
        }
        if let Some((low, high)) = self.bounds {
            let goes_on = !axis.reaches(high);
            let (low, high) = (x_of(low), x_of(high));
            let (top, bottom) = (y - 4.0, y + 4.0);
            let tip = match goes_on {
                true => format!(
                    "M{0:.1} {top:.1}L{high:.1} {y:.1}L{0:.1} {bottom:.1}",
                    high - 5.0
                ),
                false => format!("M{high:.1} {top:.1}V{bottom:.1}"),
            };
            let path = format!("M{low:.1} {y:.1}H{high:.1}M{low:.1} {top:.1}V{bottom:.1}{tip}");
            // A white edge keeps the whisker visible on a dark bar.
            for (color, width) in [("#ffffff", 3.4), (INK, 1.4)] {
                put(
                    svg,
                    format_args!(
                        "<path d=\"{path}\" fill=\"none\" stroke=\"{color}\" \
                         stroke-width=\"{width}\"/>\n"
                    ),
                );
            }
            end = end.max(high);
        }
        text(svg, (end + 8.0, y + 4.0), "start", &self.text, "");
    }
}

fn faint() -> String {
    format!("fill=\"{FAINT_INK}\"")
}

/// The pattern of a colour, by a name that all sheets of a page may share.
fn hatch(color: &str) -> String {
    format!(
        "<pattern id=\"hatch-{}\" width=\"6\" height=\"6\" patternUnits=\"userSpaceOnUse\" \
         patternTransform=\"rotate(45)\"><rect width=\"6\" height=\"6\" fill=\"#f7f8fa\"/>\
         <rect width=\"2\" height=\"6\" fill=\"{color}\"/></pattern>",
        color.trim_start_matches('#')
    )
}

fn hatched(color: &str) -> String {
    format!("url(#hatch-{})", color.trim_start_matches('#'))
}

const MARGIN: f64 = 32.0;
const GAP: f64 = 20.0;
const HEAD_HEIGHT: f64 = 66.0;
const PANEL_HEAD: f64 = 24.0;
const PANEL_FOOT: f64 = 36.0;
const ROW_HEIGHT: f64 = 24.0;
const BAR_HEIGHT: f64 = 14.0;
const BARS_WIDTH: f64 = 300.0;
const LINE_HEIGHT: f64 = 16.0;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::axis::Unit;
    use crate::plots::png;

    fn chart(is_hatched: bool) -> BarChart {
        let bar = |name: &str, value| Bar {
            name: name.to_owned(),
            value: Some(value),
            bounds: Some((value * 0.9, value * 1.1)),
            text: "1 ms [0.9 ms, 1.1 ms]".to_owned(),
            color: "#0072b2",
            is_hatched,
            is_reference: name == "none",
        };
        BarChart {
            title: "response p50".to_owned(),
            subtitle: String::new(),
            axis: Axis::linear("", Unit::Latency, 0.0, 2000.0),
            panels: vec![BarPanel {
                title: "100 connections, ws".to_owned(),
                bars: vec![bar("none", 1000.0), bar("<a>", 1500.0)],
            }],
            remarks: vec!["a remark of many words ".repeat(20)],
        }
    }

    #[test]
    fn names_are_escaped_and_long_remarks_fit() {
        let svg = chart(true).to_svg();
        assert!(svg.contains("&lt;a&gt;") && svg.contains("not ranked"));
        assert!(svg.matches("remark").count() >= 20);
        let lines = wrapped(&chart(true).remarks[0], 400.0, "    ");
        assert!(lines.len() > 5 && lines.iter().all(|line| text_width(line) <= 400.0));
        assert!(png(&svg, 1.0).is_some());
        assert!(!chart(false).to_svg().contains("not ranked"));
    }

    #[test]
    fn long_titles_of_panels_go_on_in_another_line() {
        let mut chart = chart(false);
        let panel = chart.panels.remove(0);
        let height = |chart: &BarChart| chart.layout().row_top(chart, 1);
        for title in [
            "short",
            "so many connections, and so many messages, "
                .repeat(4)
                .as_str(),
        ] {
            chart.panels.push(BarPanel {
                title: title.to_owned(),
                bars: panel.bars.clone(),
            });
        }
        let layout = chart.layout();
        let lines = layout.title(&chart.panels[1]);
        assert!(lines.len() > 1, "{lines:?}");
        let fits = |line: &String| text_width(line) * PANEL_TITLE_WIDTH <= layout.panel_width();
        assert!(lines.iter().all(fits), "{lines:?}");
        let high = height(&chart);
        chart.panels[1].title = "short".to_owned();
        assert_eq!(
            high - height(&chart),
            (lines.len() - 1) as f64 * LINE_HEIGHT
        );
    }

    #[test]
    fn a_whisker_that_goes_on_beyond_the_axis_has_an_arrow_and_no_end() {
        let whisker = |high| {
            let mut chart = chart(false);
            chart.panels[0].bars.truncate(1);
            chart.panels[0].bars[0].bounds = Some((900.0, high));
            let svg = chart.to_svg();
            let path = svg
                .lines()
                .find(|line| line.contains("stroke-width=\"1.4\""));
            path.unwrap().split('"').nth(1).unwrap().to_owned()
        };
        // Down and up at both ends, or an arrow at one of them.
        assert_eq!(whisker(1800.0).matches('V').count(), 2);
        let beyond = whisker(9000.0);
        assert_eq!(beyond.matches('V').count(), 1, "{beyond}");
        assert_eq!(beyond.matches('L').count(), 2, "{beyond}");
    }

    #[test]
    fn a_bar_is_as_long_as_its_value() {
        let svg = chart(false).to_svg();
        let half = BARS_WIDTH / 2.0;
        assert!(svg.contains(&format!("width=\"{half:.1}\"")), "{svg}");
    }
}
