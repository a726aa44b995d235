//! What a person who waits at a terminal sees: rates, response times and the contestants' use of
//! the machine, below the lines that stay.

use std::collections::VecDeque;
use std::io::{self, Stderr};
use std::time::Instant;

use moonwire_lab::Usage;
use moonwire_load::{LatencyStep, Progress};
use ratatui::backend::{Backend, CrosstermBackend};
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Style};
use ratatui::text::Line;
use ratatui::widgets::{Block, Gauge, Paragraph, Sparkline};
use ratatui::{Frame, Terminal, TerminalOptions, Viewport};

/// The lower part of the terminal.
pub(crate) struct LiveView {
    terminal: Terminal<CrosstermBackend<Stderr>>,
    picture: Picture,
}

impl LiveView {
    /// Takes the lowest lines of the terminal; an error where it cannot say where its cursor is or
    /// has too few lines.
    pub(crate) fn open() -> io::Result<Self> {
        let backend = CrosstermBackend::new(io::stderr());
        let size = backend.size()?;
        if size.width < WIDTH_MIN || size.height < HEIGHT + LINES_ABOVE_MIN {
            return Err(io::Error::other("the terminal is too small"));
        }
        let viewport = Viewport::Inline(HEIGHT);
        let terminal = Terminal::with_options(backend, TerminalOptions { viewport })?;
        Ok(Self {
            terminal,
            picture: Picture::default(),
        })
    }

    /// Begins a new part of the work: what is drawn over time starts again.
    pub(crate) fn begin(&mut self) {
        self.picture = Picture::default();
    }

    /// Puts a line that stays above the view. A terminal that is gone is told nothing.
    pub(crate) fn above(&mut self, line: &str) {
        let width = usize::from(self.terminal.size().map_or(WIDTH_MIN, |size| size.width));
        let rows = line.chars().count().div_ceil(width.max(1)).max(1);
        let rows = u16::try_from(rows).unwrap_or(1);
        let _ = self.terminal.insert_before(rows, |buffer| {
            let text = Paragraph::new(line).wrap(ratatui::widgets::Wrap { trim: false });
            ratatui::widgets::Widget::render(text, buffer.area, buffer);
        });
    }

    /// Draws where the run stands.
    pub(crate) fn show(&mut self, line: &str, share: f64, progress: &Progress, usage: &[Usage]) {
        self.picture.note(progress, usage, Instant::now());
        let picture = &self.picture;
        let drawn = |frame: &mut Frame<'_>| draw(frame, picture, line, share, progress, usage);
        let _ = self.terminal.draw(drawn);
    }

    /// Gives the lines back.
    pub(crate) fn close(&mut self) {
        let _ = self.terminal.clear();
    }
}

/// What is drawn over time.
#[derive(Default)]
struct Picture {
    /// Replies per second, oldest first.
    rates: VecDeque<u64>,
    /// 99th percentile of each second's response times, microseconds.
    p99s_us: VecDeque<u64>,
    /// Processors that the contestants used, in percent of one.
    cpu: VecDeque<u64>,
    /// When replies were counted last, and how many there were.
    last: Option<(Instant, u64)>,
}

impl Picture {
    fn note(&mut self, progress: &Progress, usage: &[Usage], now: Instant) {
        if let Some((then, received)) = self.last {
            let passed_s = now.duration_since(then).as_secs_f64();
            if passed_s < PASSED_MIN_S {
                return;
            }
            let replies = progress.received.saturating_sub(received) as f64;
            remember(&mut self.rates, (replies / passed_s) as u64);
            let p99_ns = progress.response_ns.map_or(0, |(_, p99_ns)| p99_ns);
            remember(&mut self.p99s_us, p99_ns / 1000);
            let cores: f64 = usage.iter().map(|one| one.cpu_cores).sum();
            remember(&mut self.cpu, (cores * 100.0) as u64);
        }
        self.last = Some((now, progress.received));
    }
}

fn remember(values: &mut VecDeque<u64>, value: u64) {
    if values.len() == SECONDS_MAX {
        values.pop_front();
    }
    values.push_back(value);
}

fn draw(
    frame: &mut Frame<'_>,
    picture: &Picture,
    line: &str,
    share: f64,
    progress: &Progress,
    usage: &[Usage],
) {
    let rows = [
        Constraint::Length(1),
        Constraint::Length(1),
        Constraint::Fill(1),
    ];
    let [sentence, bar, panels] = Layout::vertical(rows).areas(frame.area());
    frame.render_widget(Paragraph::new(line), sentence);
    let gauge = Gauge::default()
        .gauge_style(Style::new().fg(Color::Cyan))
        .ratio(share.clamp(0.0, 1.0));
    frame.render_widget(gauge, bar);
    let [rates, latency, contestants] = Layout::horizontal([Constraint::Fill(1); 3]).areas(panels);
    let rate = picture.rates.back().copied().unwrap_or(0);
    let title = format!("{rate} replies/s");
    over_time(frame, rates, &title, &picture.rates);
    histogram(frame, latency, picture, progress);
    machine(frame, contestants, picture, usage);
}

fn over_time(frame: &mut Frame<'_>, area: Rect, title: &str, values: &VecDeque<u64>) {
    let line = Sparkline::default()
        .block(Block::bordered().title(title))
        .style(Style::new().fg(Color::Cyan))
        .data(newest(values, area.width.saturating_sub(2)));
    frame.render_widget(line, area);
}

/// As many as there is room for.
fn newest(values: &VecDeque<u64>, width: u16) -> Vec<u64> {
    let skipped = values.len().saturating_sub(width.into());
    values.iter().skip(skipped).copied().collect()
}

/// The distribution of all response times so far, and the p99 of each second below it.
fn histogram(frame: &mut Frame<'_>, area: Rect, picture: &Picture, progress: &Progress) {
    let title = progress.response_ns.map_or_else(
        || "response time".to_owned(),
        |(p50_ns, p99_ns)| format!("response p50 {}, p99 {}", time(p50_ns), time(p99_ns)),
    );
    let block = Block::bordered().title(title);
    let inner = block.inner(area);
    frame.render_widget(block, area);
    let [bars, seconds] =
        Layout::vertical([Constraint::Fill(1), Constraint::Length(2)]).areas(inner);
    let lines = bar_lines(
        &progress.response_steps,
        bars.height.into(),
        bars.width.into(),
    );
    frame.render_widget(Paragraph::new(lines), bars);
    let p99s = Sparkline::default()
        .style(Style::new().fg(Color::Yellow))
        .data(newest(&picture.p99s_us, seconds.width));
    frame.render_widget(p99s, seconds);
}

/// A bar for each step, the slowest last; where there are more than `rows`, the fastest are one.
fn bar_lines(steps: &[LatencyStep], rows: usize, width: usize) -> Vec<Line<'static>> {
    let total: u64 = steps.iter().map(|step| step.count).sum();
    if total == 0 || rows == 0 {
        return Vec::new();
    }
    let merged = (steps.len() + 1)
        .saturating_sub(rows)
        .max(1)
        .min(steps.len());
    let (fast, slow) = steps.split_at(merged);
    let first = LatencyStep {
        below_ns: fast.last().map_or(0, |step| step.below_ns),
        count: fast.iter().map(|step| step.count).sum(),
    };
    let room = width.saturating_sub(LABEL_WIDTH);
    let bar = |step: &LatencyStep| {
        let share = step.count as f64 / total as f64;
        let cells = (share * room as f64).ceil() as usize;
        let label = format!("< {:>6} {:>5.1} % ", time(step.below_ns), share * 100.0);
        Line::from(format!("{label}{}", "█".repeat(cells)))
    };
    std::iter::once(&first).chain(slow).map(bar).collect()
}

fn machine(frame: &mut Frame<'_>, area: Rect, picture: &Picture, usage: &[Usage]) {
    let block = Block::bordered().title("contestants' CPU and memory");
    let inner = block.inner(area);
    frame.render_widget(block, area);
    let named = u16::try_from(usage.len()).unwrap_or(1).max(1);
    let [names, seconds] =
        Layout::vertical([Constraint::Length(named), Constraint::Fill(1)]).areas(inner);
    let lines: Vec<Line<'_>> = usage
        .iter()
        .map(|one| {
            let mib = one.rss_bytes as f64 / (1 << 20) as f64;
            let percent = one.cpu_cores * 100.0;
            Line::from(format!("{}: {percent:.0} % {mib:.1} MiB", one.name))
        })
        .collect();
    frame.render_widget(Paragraph::new(lines), names);
    let values = newest(&picture.cpu, seconds.width);
    // At least one processor high, so that little use is low.
    let highest = values.iter().copied().fold(100, u64::max);
    let cpu = Sparkline::default()
        .style(Style::new().fg(Color::Green))
        .max(highest)
        .data(values);
    frame.render_widget(cpu, seconds);
}

fn time(ns: u64) -> String {
    match ns {
        ..1_000_000 => format!("{} µs", ns / 1000),
        1_000_000..10_000_000 => format!("{:.1} ms", ns as f64 / 1e6),
        10_000_000..1_000_000_000 => format!("{} ms", ns / 1_000_000),
        1_000_000_000.. => format!("{:.1} s", ns as f64 / 1e9),
    }
}

/// Lines of the view.
const HEIGHT: u16 = 12;
/// What has been said stays in sight.
const LINES_ABOVE_MIN: u16 = 6;
/// Narrower, the three panels say nothing.
const WIDTH_MIN: u16 = 60;
/// Seconds that are drawn at most.
const SECONDS_MAX: usize = 240;
/// A change of phase is told at once; its rate would be that of a moment.
const PASSED_MIN_S: f64 = 0.5;
/// Of a step of the histogram.
const LABEL_WIDTH: usize = 18;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use moonwire_load::Phase;
    use ratatui::backend::TestBackend;

    use super::*;

    fn progress(received: u64) -> Progress {
        let steps = [(100_000, 10), (200_000, 80), (500_000, 9), (20_000_000, 1)];
        Progress {
            phase: Phase::Sending,
            elapsed: Duration::from_secs(3),
            sending: Duration::from_secs(2),
            sending_planned: None,
            connected: 100,
            made: None,
            connections: 100,
            sent: received,
            planned: None,
            received,
            errors: 0,
            response_ns: Some((150_000, 480_000)),
            response_steps: steps
                .map(|(below_ns, count)| LatencyStep { below_ns, count })
                .to_vec(),
        }
    }

    fn drawn(width: u16, height: u16) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        let usage = [Usage {
            name: "nginx".to_owned(),
            cpu_cores: 0.42,
            rss_bytes: 12 << 20,
        }];
        let start = Instant::now();
        let mut picture = Picture::default();
        for second in 0..5 {
            let now = start + Duration::from_secs(second);
            picture.note(&progress(1000 * second), &usage, now);
        }
        let run = progress(4000);
        let result =
            terminal.draw(|frame| draw(frame, &picture, "round 1: nginx", 0.5, &run, &usage));
        result.unwrap();
        let buffer = terminal.backend().buffer();
        let rows = buffer.content.chunks(width.into());
        rows.map(|row| row.iter().map(|cell| cell.symbol()).collect::<String>() + "\n")
            .collect()
    }

    #[test]
    fn all_is_in_sight_at_once() {
        let text = drawn(120, HEIGHT);
        for part in [
            "round 1: nginx",
            "50%",
            "1000 replies/s",
            "response p50 150 µs, p99 480 µs",
            "< 200 µs  80.0 % █",
            "<  20 ms   1.0 % █",
            "nginx: 42 % 12.0 MiB",
        ] {
            assert!(text.contains(part), "{part}:\n{text}");
        }
    }

    #[test]
    fn a_small_terminal_cuts_and_does_not_fail() {
        for (width, height) in [(60, HEIGHT), (20, 5), (1, 1)] {
            let text = drawn(width, height);
            assert_eq!(text.lines().count(), usize::from(height));
        }
    }

    #[test]
    fn the_fastest_steps_are_one_where_there_is_no_room() {
        let steps: Vec<LatencyStep> = (1..=6)
            .map(|step| LatencyStep {
                below_ns: step * 1_000_000,
                count: 10,
            })
            .collect();
        let lines = bar_lines(&steps, 3, 40);
        assert_eq!(lines.len(), 3);
        assert!(
            lines[0].to_string().starts_with("< 4.0 ms  66.7 %"),
            "{}",
            lines[0]
        );
        assert!(bar_lines(&[], 3, 40).is_empty());
    }
}
