//! The course of long cells: what went in and out, how soon, and what it took, on one time axis.

use crate::cell::Cell;
use crate::chart::{Timeline, Track};
use crate::curve::{self, Curve, Line, Points};
use crate::format;
use crate::groups;
use crate::live_counts;
use crate::palette::{BLUE, ORANGE, PALE_BLUE, PALE_ORANGE};
use crate::parameters::Parameters;
use crate::plots::Plot;
use crate::run::Run;
use crate::sentences;

/// A picture for each contestant and load whose cells are long enough to have one: ws and wss in
/// one, in two colours.
pub(crate) fn plots(run: &Run) -> Vec<Plot> {
    let mut courses: Vec<(Key<'_>, Vec<&Cell>)> = Vec::new();
    for cell in run.cells().iter().filter(|cell| is_long(cell)) {
        let Some(key) = Key::of(cell) else { continue };
        match courses.iter_mut().find(|(known, _)| *known == key) {
            Some((_, cells)) => cells.push(cell),
            None => courses.push((key, vec![cell])),
        }
    }
    courses
        .iter()
        .map(|(key, cells)| plot(key, cells))
        .collect()
}

/// What the cells of one picture have in common.
#[derive(PartialEq)]
struct Key<'a> {
    contestant: &'a str,
    round: u64,
    parameters: &'a Parameters,
}

impl<'a> Key<'a> {
    fn of(cell: &'a Cell) -> Option<Self> {
        let contest = cell.contest.as_ref()?;
        Some(Self {
            contestant: &contest.contestant,
            round: contest.round,
            parameters: &cell.parameters,
        })
    }
}

fn is_long(cell: &Cell) -> bool {
    let end = cell
        .intervals
        .last()
        .map(|last| last.start_s + last.length_s);
    end.is_some_and(|end_s| end_s >= LONG_S)
}

fn plot(key: &Key<'_>, cells: &[&Cell]) -> Plot {
    let mut cells = cells.to_vec();
    cells.sort_by_key(|cell| is_secure(cell));
    let end_s = cells.iter().map(|cell| cell.rate.duration_s);
    let end_s = end_s.fold(0.0, f64::max);
    let memory = cells.iter().filter_map(|cell| {
        let memory = sentences::memory(cell)?;
        Some(format!("{} memory: {memory}.", scheme(cell)))
    });
    let live = cells.iter().filter_map(|cell| {
        let sentence = live_counts::sentence(cell)?;
        Some(format!("{}: {sentence}.", scheme(cell)))
    });
    let is_counted = cells.iter().any(|cell| live_counts::is_told(cell));
    let names = |cell: &&Cell| {
        let ours = (scheme(cell).to_owned(), color(cell));
        let server = format!("{}, as the server counts", scheme(cell));
        let theirs = is_counted.then(|| (server, pale(cell)));
        std::iter::once(ours).chain(theirs)
    };
    let timeline = Timeline {
        title: format!(
            "{}, round {}: {} connections, {}",
            key.contestant,
            key.round,
            key.parameters.clients,
            groups::described(key.parameters)
        ),
        subtitle: memory.chain(live).collect(),
        legend: cells.iter().flat_map(names).collect(),
        tracks: CURVES
            .iter()
            .filter_map(|curve| track(curve, &cells, end_s))
            .chain(pauses(&cells, end_s))
            .collect(),
    };
    let contestant = key.contestant.replace('/', "_");
    Plot {
        name: format!(
            "course_{contestant}_{}_round{}",
            key.parameters.key(),
            key.round
        ),
        svg: timeline.to_svg(),
    }
}

/// Those of WebSocketListener's soaks, each with what the server says of the same, and the p99
/// beside the median.
const CURVES: [(Curve, Option<Curve>); 8] = [
    (curve::SENT, Some(curve::SERVER_RECEIVED)),
    (curve::RECEIVED, Some(curve::SERVER_SENT)),
    (curve::OF_EACH, None),
    (curve::CONNECTED, Some(curve::SERVER_CONNECTED)),
    (curve::P50, None),
    (curve::P99, None),
    (curve::CPU, None),
    (curve::MEMORY, None),
];

/// Whether each curve of a long cell stays where it is: its name and what is to be said.
pub(crate) fn trends(cell: &Cell) -> Vec<(String, String)> {
    if !is_long(cell) {
        return Vec::new();
    }
    let told = CURVES.iter().filter_map(|(curve, _)| {
        let trend = curve.trend(cell)?;
        Some((
            curve.title.to_lowercase().replace("cpu", "CPU"),
            trend.to_string(),
        ))
    });
    told.collect()
}

/// What each client of a long cell gets a second, over its seconds and over all clients.
pub(crate) fn rate_of_each(cell: &Cell) -> Option<String> {
    if !is_long(cell) {
        return None;
    }
    let told = format::significant;
    let [low, mean, high] = curve::OF_EACH.range(cell)?;
    let seconds = format!(
        "{} messages/s out on average, from {} to {} from second to second",
        told(mean),
        told(low),
        told(high)
    );
    let clients = cell.rate.least_each_per_s.zip(cell.rate.most_each_per_s);
    let clients = clients.map(|(least, most)| {
        format!(
            "; in, over the whole run, {} of the client with the least to {} of the one with the \
             most",
            told(least),
            told(most)
        )
    });
    Some(seconds + &clients.unwrap_or_default())
}

/// One curve of all cells, ours above the server's; `None` where no cell has it.
fn track(curves: &(Curve, Option<Curve>), cells: &[&Cell], end_s: f64) -> Option<Track> {
    let (curve, of_server) = curves;
    let theirs = cells.iter().flat_map(|cell| {
        of_server.iter().map(|curve| Line {
            points: once_it_counts(curve.points(cell)),
            color: pale(cell),
            width: 5.0,
        })
    });
    let ours = cells.iter().map(|cell| Line {
        points: curve.points(cell),
        color: color(cell),
        width: 1.4,
    });
    let lines: Vec<Line> = theirs.chain(ours).filter(|line| !line.is_empty()).collect();
    if lines.is_empty() {
        return None;
    }
    let trend = |cell: &&Cell| Some(format!("{} {}", scheme(cell), curve.trend(cell)?));
    let trends: Vec<String> = cells.iter().filter_map(trend).collect();
    Some(Track {
        panel: curve.panel(lines, end_s),
        height: TRACK_HEIGHT,
        keys: Vec::new(),
        remark: trends.join("; "),
    })
}

/// Without what the server told before it had anything to count.
fn once_it_counts(mut points: Points) -> Points {
    let nothing = |point: &&mut Option<(f64, f64)>| point.is_none_or(|(_, value)| value <= 0.0);
    points
        .iter_mut()
        .take_while(nothing)
        .for_each(|it| *it = None);
    points
}

/// What happens now and then has no trend.
fn pauses(cells: &[&Cell], end_s: f64) -> Option<Track> {
    let track = track(&(curve::GC_PAUSES, None), cells, end_s)?;
    Some(Track {
        remark: String::new(),
        ..track
    })
}

fn is_secure(cell: &Cell) -> bool {
    cell.contest.as_ref().is_some_and(|contest| contest.tls)
}

fn scheme(cell: &Cell) -> &'static str {
    if is_secure(cell) { "wss" } else { "ws" }
}

fn color(cell: &Cell) -> &'static str {
    if is_secure(cell) { ORANGE } else { BLUE }
}

fn pale(cell: &Cell) -> &'static str {
    if is_secure(cell) {
        PALE_ORANGE
    } else {
        PALE_BLUE
    }
}

/// Shorter cells have their pictures per second.
const LONG_S: f64 = 30.0;
const TRACK_HEIGHT: f64 = 96.0;

#[cfg(test)]
mod tests {
    use super::super::battle::tests;
    use super::*;
    use crate::interval::Interval;
    use crate::run::Content;

    fn run(seconds: usize) -> Run {
        let mut run = tests::run(&[("a", 1.0)], 1);
        let mut cells = run.cells().to_vec();
        cells.push(cells[0].clone());
        for (index, cell) in cells.iter_mut().enumerate() {
            cell.contest.as_mut().unwrap().tls = index == 1;
            cell.fill_seconds(seconds, |_| Interval {
                received: 1000,
                connected: 100,
                server_cpu: Some(0.5),
                server_rss_bytes: Some(30 << 20),
                ..Interval::default()
            });
        }
        run.content = Content::Bench(cells);
        run
    }

    #[test]
    fn both_schemes_of_a_long_cell_are_in_one_picture() {
        let plots = plots(&run(4000));
        assert_eq!(plots.len(), 1);
        let svg = &plots[0].svg;
        for text in [
            "Connections",
            "CPU of the server",
            "Memory of the server",
            ">wss<",
        ] {
            assert!(svg.contains(text), "{text}");
        }
        assert!(svg.contains(">Messages out, each client<"));
        // What no cell has is not drawn.
        assert!(!svg.contains("Delay") && !svg.contains("as the server counts"));
        assert!(svg.contains(">ws flat ("), "the trend of a curve");
        assert!(svg.len() < 200_000, "{}", svg.len());
    }

    #[test]
    fn the_rate_of_each_client_is_told_and_whether_it_stays() {
        let mut run = run(120);
        let Content::Bench(cells) = &mut run.content else {
            panic!("a bench")
        };
        let cell = &mut cells[0];
        let each = |cell: &Cell| {
            let trends = trends(cell);
            let of_each = |it: &&(String, String)| it.0 == "messages out, each client";
            let trend = trends.iter().find(of_each).unwrap().1.clone();
            (rate_of_each(cell).unwrap(), trend)
        };
        let (rate, trend) = each(cell);
        assert_eq!(
            rate,
            "10.0 messages/s out on average, from 10.0 to 10.0 from second to second"
        );
        assert!(trend.starts_with("flat ("), "{trend}");
        // Clients are lost, and the others go on as before: all messages fall, and those of each
        // client do not.
        cell.rate.least_each_per_s = Some(7.25);
        cell.rate.most_each_per_s = Some(12.0);
        for (second, interval) in cell.intervals.iter_mut().enumerate() {
            interval.connected = 200 - second as u64;
            interval.received = 10 * interval.connected;
        }
        let (rate, trend) = each(cell);
        assert!(trend.starts_with("flat ("), "{trend}");
        let clients = "7.25 of the client with the least to 12.0 of the one with the most";
        assert!(rate.ends_with(clients), "{rate}");
        let all = curve::RECEIVED.trend(cell).unwrap().to_string();
        assert!(all.starts_with("falls by"), "{all}");
        // The other way round it is seen.
        for (second, interval) in cell.intervals.iter_mut().enumerate() {
            interval.connected = 100 + second as u64;
            interval.received = 1000;
        }
        let (rate, trend) = each(cell);
        assert!(trend.starts_with("falls by"), "{trend}");
        assert!(
            rate.contains("from 4.57 to 10.0 from second to second"),
            "{rate}"
        );
        let markdown = crate::markdown::markdown(&run);
        assert!(markdown.contains("- each client: "), "{markdown}");
        assert!(markdown.contains("- course of messages out, each client: falls by"));
    }

    #[test]
    fn short_cells_have_no_course() {
        assert!(plots(&run(10)).is_empty());
        assert_eq!(rate_of_each(&run(10).cells()[0]), None);
        assert!(trends(&run(10).cells()[0]).is_empty());
    }

    #[test]
    fn what_the_server_told_before_its_first_connection_is_not_drawn() {
        let points = vec![Some((0.5, 0.0)), Some((1.5, 50.0)), Some((2.5, 0.0))];
        let drawn = vec![None, Some((1.5, 50.0)), Some((2.5, 0.0))];
        assert_eq!(once_it_counts(points), drawn);
    }

    #[test]
    fn what_the_server_counted_is_drawn_beside_ours_and_each_curve_is_judged() {
        let mut run = run(60);
        let Content::Bench(cells) = &mut run.content else {
            panic!("a bench")
        };
        for (second, interval) in cells[0].intervals.iter_mut().enumerate() {
            (interval.server_received, interval.server_connected) = (Some(1000), Some(100));
            interval.server_rss_bytes = Some((30 + second as u64) << 20);
            interval.gc_pause_max_ms = Some(if second % 20 == 7 { 30.0 } else { 0.0 });
        }
        let told = trends(&cells[0]);
        let memory = told.iter().find(|(name, _)| name == "memory of the server");
        assert!(memory.unwrap().1.starts_with("rises by "), "{told:?}");
        assert_eq!(told.len(), 6, "pauses have no trend: {told:?}");
        let svg = &plots(&run)[0].svg;
        assert!(svg.contains(">GC pauses of the server<"));
        assert!(svg.contains(PALE_BLUE) && svg.contains(">ws, as the server counts<"));
    }
}
