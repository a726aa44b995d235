//! Panels below each other on one time axis, so that what happened at once stands at one place.

use super::{
    FAINT_INK, Frame, MARGIN_LEFT, MARGIN_RIGHT, PANEL_TITLE_WIDTH, Panel, TITLE_WIDTH, legend,
    sheet, text, text_width, wrapped,
};

/// Panels on one time axis under one title and one legend.
pub(crate) struct Timeline {
    pub(crate) title: String,
    /// Sentences below it, a line each.
    pub(crate) subtitle: Vec<String>,
    pub(crate) legend: Vec<(String, &'static str)>,
    pub(crate) tracks: Vec<Track>,
}

/// One panel of a timeline. All panels of one have the same x axis.
pub(crate) struct Track {
    pub(crate) panel: Panel,
    pub(crate) height: f64,
    /// Beside its title: names of its lines.
    pub(crate) keys: Vec<(String, &'static str)>,
    /// At the right end of its title: what to make of it.
    pub(crate) remark: String,
}

impl Timeline {
    /// The timeline as a complete SVG document.
    pub(crate) fn to_svg(&self) -> String {
        let title_width = MARGIN_LEFT - MARGIN + WIDTH;
        let subtitle = self.subtitle.iter();
        let subtitle: Vec<String> = subtitle
            .flat_map(|sentence| wrapped(sentence, title_width, ""))
            .collect();
        let lines = subtitle.len() as f64;
        let legend_height = if self.legend.is_empty() {
            0.0
        } else {
            LINE_HEIGHT
        };
        let title = wrapped(&self.title, title_width / TITLE_WIDTH, "");
        let below_title = TITLE_HEIGHT + (title.len() - 1) as f64 * TITLE_LINE_HEIGHT;
        let head_height = below_title + lines * LINE_HEIGHT + legend_height;
        let of_tracks: f64 = self.tracks.iter().map(|it| TRACK_HEAD + it.height).sum();
        let mut svg = sheet(
            MARGIN_LEFT + WIDTH + MARGIN_RIGHT,
            head_height + of_tracks + FOOT_HEIGHT,
        );
        let left = MARGIN;
        let bold = "font-size=\"17\" font-weight=\"bold\"";
        for (line, words) in title.iter().enumerate() {
            let y = 30.0 + line as f64 * TITLE_LINE_HEIGHT;
            text(&mut svg, (left, y), "start", words, bold);
        }
        let faint = format!("fill=\"{FAINT_INK}\"");
        for (line, sentence) in subtitle.iter().enumerate() {
            let y = below_title + 10.0 + line as f64 * LINE_HEIGHT;
            text(&mut svg, (left, y), "start", sentence, &faint);
        }
        legend(&mut svg, (left, head_height - 6.0), &self.legend);
        let mut top = head_height;
        for (index, track) in self.tracks.iter().enumerate() {
            top += TRACK_HEAD;
            let frame = Frame {
                left: MARGIN_LEFT,
                top,
                width: WIDTH,
                height: track.height,
            };
            track.draw(&mut svg, frame, index + 1 == self.tracks.len());
            top += track.height;
        }
        svg.push_str("</svg>\n");
        svg
    }
}

impl Track {
    fn draw(&self, svg: &mut String, frame: Frame, is_last: bool) {
        self.panel.draw(svg, frame, is_last);
        let y = frame.top - 10.0;
        let keys_at = frame.left + text_width(&self.panel.title) * PANEL_TITLE_WIDTH + 16.0;
        legend(svg, (keys_at, y), &self.keys);
        let right = frame.left + frame.width;
        let faint = format!("fill=\"{FAINT_INK}\"");
        text(svg, (right, y), "end", &self.remark, &faint);
    }
}

const WIDTH: f64 = 960.0;
/// Above each panel, for its title.
const TRACK_HEAD: f64 = 34.0;
/// Below the last one, for the time.
const FOOT_HEIGHT: f64 = 48.0;
const TITLE_HEIGHT: f64 = 40.0;
/// Of each line of a title beyond the first.
const TITLE_LINE_HEIGHT: f64 = 22.0;
const MARGIN: f64 = 32.0;
const LINE_HEIGHT: f64 = 17.0;
