//! What is drawn inside a panel.

use super::{Frame, INK, Panel, put, text};

/// How a line goes along.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Stroke {
    Solid,
    Dashed,
    Dotted,
    DashDotted,
}

impl Stroke {
    /// As SVG has it.
    fn dashes(self) -> &'static str {
        match self {
            Self::Solid => "none",
            Self::Dashed => "7 4",
            Self::Dotted => "2 2.5",
            Self::DashDotted => "8 3 2 3",
        }
    }
}

/// Something drawn in a panel.
pub(crate) enum Mark {
    /// A line through points, broken where a point is `None`.
    Line {
        points: Vec<Option<(f64, f64)>>,
        color: &'static str,
        width: f64,
    },
    /// The same without gaps of its own.
    Broken {
        points: Vec<(f64, f64)>,
        color: &'static str,
        width: f64,
        stroke: Stroke,
    },
    /// Dots at points.
    Dots {
        points: Vec<(f64, f64)>,
        color: &'static str,
        radius: f64,
    },
    /// A ring around a point.
    Ring { at: (f64, f64), color: &'static str },
    /// Bars from the x axis up: low edge, high edge, height.
    Bars {
        bars: Vec<(f64, f64, f64)>,
        color: &'static str,
    },
    /// Boxes: low and high edge on the x axis, then on the y axis.
    Boxes {
        boxes: Vec<[f64; 4]>,
        color: &'static str,
    },
    /// A vertical line with a word beside it, on the given line from the top so that the words of
    /// lines close to each other do not cover one another.
    Vertical {
        x: f64,
        text: &'static str,
        line: usize,
    },
}

impl Mark {
    pub(super) fn draw(&self, svg: &mut String, panel: &Panel, frame: Frame) {
        let x_of = |value: f64| frame.left + panel.x.position(value) * frame.width;
        let y_of = |value: f64| frame.top + frame.height - panel.y.position(value) * frame.height;
        match self {
            Self::Line {
                points,
                color,
                width,
            } => {
                let place = |point: &Option<(f64, f64)>| point.map(|(x, y)| (x_of(x), y_of(y)));
                let points: Vec<_> = points.iter().map(place).collect();
                draw_line(svg, &points, color, *width);
            }
            Self::Broken {
                points,
                color,
                width,
                stroke,
            } => {
                let points = points.iter().map(|(x, y)| (x_of(*x), y_of(*y)));
                draw_broken(svg, &points.collect::<Vec<_>>(), (color, *width, *stroke));
            }
            Self::Dots {
                points,
                color,
                radius,
            } => {
                for (x, y) in points {
                    draw_dot(svg, (x_of(*x), y_of(*y)), color, *radius);
                }
            }
            Self::Ring { at: (x, y), color } => draw_ring(svg, (x_of(*x), y_of(*y)), color),
            Self::Bars { bars, color } => draw_bars(svg, bars, color, (&x_of, &y_of), frame),
            Self::Boxes { boxes, color } => draw_boxes(svg, boxes, color, (&x_of, &y_of)),
            Self::Vertical { x, text, line } => draw_vertical(svg, x_of(*x), text, *line, frame),
        }
    }
}

/// Boxes of one colour, as one path.
fn draw_boxes(
    svg: &mut String,
    boxes: &[[f64; 4]],
    color: &str,
    (x_of, y_of): (&dyn Fn(f64) -> f64, &dyn Fn(f64) -> f64),
) {
    let mut path = String::new();
    for [left, right, low, high] in boxes {
        let (left, right) = (x_of(*left), x_of(*right));
        let (top, bottom) = (y_of(*high), y_of(*low));
        put(
            &mut path,
            format_args!("M{left:.1} {top:.1}H{right:.1}V{bottom:.1}H{left:.1}Z"),
        );
    }
    // Neighbours would have a seam between them.
    let crisp = "shape-rendering=\"crispEdges\"";
    put(
        svg,
        format_args!("<path d=\"{path}\" fill=\"{color}\" {crisp}/>\n"),
    );
}

/// Bars from the bottom of the panel up.
fn draw_bars(
    svg: &mut String,
    bars: &[(f64, f64, f64)],
    color: &str,
    (x_of, y_of): (&dyn Fn(f64) -> f64, &dyn Fn(f64) -> f64),
    frame: Frame,
) {
    let mut path = String::new();
    let bottom = frame.top + frame.height;
    for (low, high, value) in bars.iter().filter(|bar| bar.2 > 0.0) {
        // Half a pixel of white between two bars, and never less than a hair of bar.
        let (left, top) = (x_of(*low), y_of(*value).min(bottom - 0.7));
        let right = (x_of(*high) - 0.5).max(left + 0.5);
        put(
            &mut path,
            format_args!("M{left:.1} {bottom:.1}V{top:.1}H{right:.1}V{bottom:.1}Z"),
        );
    }
    put(svg, format_args!("<path d=\"{path}\" fill=\"{color}\"/>\n"));
}

fn draw_vertical(svg: &mut String, x: f64, word: &str, line: usize, frame: Frame) {
    let (top, bottom) = (frame.top, frame.top + frame.height);
    put(
        svg,
        format_args!(
            "<path d=\"M{x:.1} {top:.1}V{bottom:.1}\" stroke=\"{INK}\" \
             stroke-dasharray=\"4 3\"/>\n"
        ),
    );
    let y = top + 12.0 + 14.0 * line as f64;
    // A white edge keeps the word readable on bars and grid.
    let halo = "font-size=\"10\" stroke=\"#ffffff\" stroke-width=\"3\" \
                paint-order=\"stroke\"";
    text(svg, (x + 4.0, y), "start", word, halo);
}

/// A line through points of the sheet, broken where one is `None`. A point without neighbours has
/// no line to be seen in and is a dot.
fn draw_line(svg: &mut String, points: &[Option<(f64, f64)>], color: &str, width: f64) {
    let mut path = String::new();
    for points in points.split(Option::is_none) {
        let points: Vec<(f64, f64)> = points.iter().copied().flatten().collect();
        if let &[(x, y)] = points.as_slice() {
            draw_dot(svg, (x, y), color, width + DOT_EDGE);
            continue;
        }
        for (pen, (x, y)) in std::iter::once('M')
            .chain(std::iter::repeat('L'))
            .zip(points)
        {
            put(&mut path, format_args!("{pen}{x:.1} {y:.1}"));
        }
    }
    if path.is_empty() {
        return;
    }
    put(
        svg,
        format_args!(
            "<path d=\"{path}\" fill=\"none\" stroke=\"{color}\" stroke-width=\"{width}\" \
             stroke-linejoin=\"round\" stroke-linecap=\"round\"/>\n"
        ),
    );
}

pub(super) fn draw_broken(
    svg: &mut String,
    points: &[(f64, f64)],
    (color, width, stroke): (&str, f64, Stroke),
) {
    let dashes = stroke.dashes();
    let points = points.iter().map(|(x, y)| format!("{x:.1} {y:.1}"));
    let points: Vec<String> = points.collect();
    put(
        svg,
        format_args!(
            "<path d=\"M{}\" fill=\"none\" stroke=\"{color}\" stroke-width=\"{width}\" \
             stroke-dasharray=\"{dashes}\"/>\n",
            points.join("L")
        ),
    );
}

fn draw_dot(svg: &mut String, (x, y): (f64, f64), color: &str, radius: f64) {
    put(
        svg,
        format_args!("<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{radius}\" fill=\"{color}\"/>\n"),
    );
}

fn draw_ring(svg: &mut String, (x, y): (f64, f64), color: &str) {
    put(
        svg,
        format_args!(
            "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"5\" fill=\"#ffffff\" stroke=\"{color}\" \
             stroke-width=\"2.4\"/>\n"
        ),
    );
}

/// What a dot has around what the width of its line would be, so that it is seen.
const DOT_EDGE: f64 = 1.5;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_point_without_neighbours_is_a_dot() {
        let drawn = |points: &[Option<(f64, f64)>]| {
            let mut svg = String::new();
            draw_line(&mut svg, points, "#000000", 2.0);
            let dots = svg.matches("<circle").count();
            let path = svg.split(" d=\"").nth(1);
            let path = path.map(|rest| rest.split('"').next().unwrap().to_owned());
            (dots, path.unwrap_or_default())
        };
        let (one, two, three) = (Some((1.0, 1.0)), Some((2.0, 2.0)), Some((3.0, 3.0)));
        assert_eq!(drawn(&[one]), (1, String::new()));
        assert_eq!(drawn(&[one, two]), (0, "M1.0 1.0L2.0 2.0".to_owned()));
        let broken = [None, one, None, two, three];
        assert_eq!(drawn(&broken), (1, "M2.0 2.0L3.0 3.0".to_owned()));
        assert_eq!(drawn(&[None]), (0, String::new()));
    }
}
